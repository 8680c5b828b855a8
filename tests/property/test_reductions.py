"""Reductions longer than a block of them: the same numbers and the same errors on both targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pto_wsp import (
    DType,
    ExecutionError,
    Out,
    P,
    Scalar,
    Tensor,
    kernel,
    maximum,
    minimum,
    reduce_any,
    reduce_max,
    reduce_min,
    reduce_sum,
    search,
    select,
    workload,
)

LARGE = 2**62


@kernel(cpp_src="y[0] = s;")
def keep(y: Out[Tensor], s: Scalar[DType.I64]): ...


BODIES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "sum": lambda a, n, d: reduce_sum(n, lambda k: a[k] * d + k),
    "tiles": lambda a, n, d: reduce_sum(n, lambda k: (a[k] + d - 1) // d),
    "rest": lambda a, n, d: reduce_max(n, lambda k: a[k] % d - k),
    "least": lambda a, n, d: reduce_min(n, lambda k: minimum(maximum(a[k], d), a[n - 1 - k])),
    "beyond": lambda a, n, d: reduce_sum(n, lambda k: a[k + 1]),
    "chosen": lambda a, n, d: reduce_sum(n, lambda k: select(a[k] > d, a[k], -1)),
    "pairs": lambda a, n, d: reduce_sum(3, lambda i: reduce_max(n, lambda k: a[k] * i - d)),
    "search": lambda a, n, d: search(1, 500, lambda c: reduce_sum(n, lambda k: a[k] // c) <= d),
    "any": lambda a, n, d: select(reduce_any(n, lambda k: (a[k] == d) & (k > 70)), 1, 0),
}


def programs(body: Callable[[Any, Any, Any], Any], dtype: Any = np.int64) -> list[Any]:
    @workload
    def reduced(a: Any, n: Any, d: Any, Y: Any) -> None:
        for i in P(2):
            keep[i](Y[i : i + 1], body(a, n, d))

    work = reduced(np.zeros(1, dtype), Scalar(1), Scalar(1), Tensor(data=np.zeros(2, np.int64)))
    return [work.compile(target=target) for target in ("cpu_sim", "reference")]


COMPILED = {name: programs(body) for name, body in BODIES.items()}
numbers = st.one_of(st.integers(0, 300), st.sampled_from([-1, -7, LARGE, -LARGE, 2**63 - 1]))


def outcomes(compiled: list[Any], array: np.ndarray, n: int, d: int) -> list[object]:
    found: list[object] = []
    for program in compiled:
        out = np.zeros(2, np.int64)
        try:
            program.execute(a=array, n=n, d=d, Y=out)
            found.append(out.tolist())
        except ExecutionError as error:
            found.append(error.code)
    return found


@pytest.mark.parametrize("name", BODIES)
@given(
    st.lists(numbers, min_size=1, max_size=3),
    st.integers(1, 140),
    st.one_of(st.integers(-3, 60), st.just(LARGE)),
)
def test_both_targets(name: str, first: list[int], n: int, d: int) -> None:
    ours, reference = outcomes(COMPILED[name], np.resize(np.array(first, np.int64), n), n, d)
    assert ours == reference


STRIDED = {dtype: programs(BODIES["sum"], dtype) for dtype in (np.int64, np.int32, np.uint8)}


@pytest.mark.parametrize("dtype", STRIDED)
@given(st.integers(1, 140), st.integers(-2, 3), st.integers(0, 1))
def test_elements_of_any_type_and_stride(dtype: Any, n: int, step: int, beyond: int) -> None:
    array = np.arange(700, dtype=np.int64).astype(dtype)[:: step or 5][:n]
    ours, reference = outcomes(STRIDED[dtype], array, n + beyond, 3)
    assert ours == reference
    assert isinstance(ours, list) == (beyond == 0)
