"""Long expressions of loop indices, whose values are kept while indices stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pto_wsp import (
    DenseDyn,
    DType,
    Out,
    P,
    Program,
    Scalar,
    Tensor,
    TracePolicy,
    kernel,
    maximum,
    minimum,
    reduce_sum,
    search,
    slot_set_u64,
    slot_u64,
    workload,
)

ROWS, COLS = 16, 6


@kernel(cpp_src="y[0] = s;")
def put(y: Out[Tensor], s: Scalar[DType.I64]): ...


def long(x: Any, by: Any) -> Any:
    """More than 16 operations, all of which matter."""
    for k in range(2, 7):
        x = (x * k + by) // 3 % 1000 - k
    return x


FORMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "one index": lambda a, i, j: long(a[i], i) + j,
    "two indices": lambda a, i, j: long(a[i] + j, long(a[j], j)),
    "twice the same": lambda a, i, j: long(a[i], 5) * j + long(a[i], 5),
    "reduction": lambda a, i, j: reduce_sum(COLS, lambda k: long(a[k], i)) - j,
    "search": lambda a, i, j: search(1, 99, lambda c: c * 7 >= long(a[i], 1) % 99) + j,
    "of a slot": lambda a, i, j: long(slot_u64(0), a[i]) + j,
}


def compiled(form: Callable[[Any, Any, Any], Any], **options: Any) -> Program:
    @workload
    def kept(rows: Any, a: Any, Y: Any) -> None:
        for i in P(rows):
            for j in P(maximum(minimum(long(a[i], 2) % 5, COLS), 1)):
                slot_set_u64(0, j * 3 + i)
                put[i, j](Y[i, j : j + 1], form(a, i, j))

    Y = Tensor(data=np.zeros((ROWS, COLS), np.int64))
    work = kept(DenseDyn(ROWS), np.zeros(ROWS, np.int64), Y)
    return work.task_graph(trace=TracePolicy.timestamps()).compile(**options)


PROGRAMS = {
    name: (compiled(form, num_threads=2), compiled(form, target="reference"))
    for name, form in FORMS.items()
}


def in_order(trace: Any) -> list[int]:
    """Task ids in the order of indices."""
    at = trace["indices"]
    return trace["task_id"][np.lexsort((at[:, 1], at[:, 0]))].tolist()


lengths = st.lists(st.integers(0, 200), min_size=ROWS, max_size=ROWS)


@pytest.mark.parametrize("name", FORMS)
@given(st.lists(lengths, min_size=2, max_size=4), st.booleans())
def test_values_are_those_of_the_run(name: str, contents: list[list[int]], in_place: bool) -> None:
    a = np.zeros(ROWS, np.int64)
    for content in contents:
        a = a if in_place else np.zeros(ROWS, np.int64)
        a[:] = content
        found = np.zeros((2, ROWS, COLS), np.int64)
        for program, out in zip(PROGRAMS[name], found, strict=True):
            program.execute(a=a, Y=out)
            assert in_order(program.trace) == list(range(program.stats.tasks))
        np.testing.assert_array_equal(*found)
