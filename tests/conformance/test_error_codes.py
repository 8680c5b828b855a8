"""A mistake has the same code, advice and place on every target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    DenseDyn,
    DType,
    InOut,
    P,
    PtoError,
    Ragged,
    Scalar,
    Sparse,
    Tensor,
    Workload,
    kernel,
    slot_set_u64,
    slot_u64,
    workload,
)
from pto_wsp.error_codes import Code

Y = Tensor(data=np.zeros(8, np.int64))
BATCH = DenseDyn(2)


@kernel
def touch(y: InOut[Tensor]):
    y += 1


@kernel
def small(y: InOut[Tensor], n: Scalar[DType.I8]):
    y += n


@kernel
def fails(y: InOut[Tensor]):
    raise ValueError


@workload
def shifted(rows: Any, by: Any):
    for i in P(rows):
        touch[i](Y[i + by])


@workload
def negative_region(rows: Any, end: Any):
    for i in P(rows):
        touch[i](Y[i:end])


@workload
def looked_up(rows: Any, lens: Any):
    for i in P(rows):
        touch[i](Y[lens[i + 1]])


@workload
def divided(rows: Any, by: Any):
    for i in P(rows):
        touch[i](Y[i // by])


@workload
def overflowing(rows: Any, n: Any):
    for i in P(rows):
        touch[i](Y[n * n * n % 8])


@workload
def too_small(rows: Any, n: Any):
    for i in P(rows):
        small[i](Y[i], n)


@workload
def counted(rows: Any, n: Any):
    for i in P(rows):
        for j in P(n - i):
            touch[i, j](Y[j])


@workload
def endless():
    slot_set_u64(0, 1)
    for i in P.loop_while(lambda: slot_u64(0) > 0, max_iterations=3):
        touch[i](Y[i])


@workload
def ragged(batch: Any, toks: Any):
    for b in P(batch):
        for t in P(toks):
            touch[b, t](Y[t])


@workload
def routed(batch: Any, routing: Any):
    for b in P(batch):
        for e in P.sel(routing[b]):
            touch[b, e](Y[e])


@workload
def reads_what_is_written(batch: Any, lens: Any):
    for b in P(batch):
        touch[b](Y[b])
        for t in P(lens[b]):
            touch[b, t](Y[4 + t])


@workload
def failing():
    fails(Y)


def read_only() -> np.ndarray:
    array = np.zeros(8, np.int64)
    array.flags.writeable = False
    return array


CASES: dict[str, tuple[Callable[[], Workload], dict[str, Any], Code]] = {
    "region": (lambda: shifted(DenseDyn(8), Scalar(1)), {}, Code.OUT_OF_BOUNDS),
    "below": (lambda: shifted(DenseDyn(8), Scalar(-1)), {}, Code.OUT_OF_BOUNDS),
    "no region": (lambda: negative_region(DenseDyn(8), Scalar(3)), {}, Code.OUT_OF_BOUNDS),
    "index": (lambda: looked_up(DenseDyn(2), [0, 1]), {}, Code.OUT_OF_BOUNDS),
    "column": (lambda: routed(BATCH, Sparse(BATCH, [0, 1, 9], [1, 2])), {}, Code.OUT_OF_BOUNDS),
    "division": (lambda: divided(DenseDyn(8), Scalar(0)), {}, Code.ARITHMETIC),
    "overflow": (lambda: overflowing(DenseDyn(8), Scalar(1 << 40)), {}, Code.ARITHMETIC),
    "scalar": (lambda: too_small(DenseDyn(8), Scalar(300)), {}, Code.ARITHMETIC),
    "extent": (lambda: counted(DenseDyn(8), Scalar(3)), {}, Code.NEGATIVE_EXTENT),
    "limit": (endless, {}, Code.LOOP_LIMIT),
    "lengths": (lambda: ragged(BATCH, Ragged(BATCH, [1, 2])), {"batch": 3}, Code.LENGTHS),
    "range": (
        lambda: ragged(BATCH, Ragged(BATCH, [1, 2])),
        {"toks": np.array([1, -2])},
        Code.BINDING_RANGE,
    ),
    "number": (lambda: shifted(DenseDyn(8), Scalar(0)), {"rows": -1}, Code.BINDING_RANGE),
    "read only": (lambda: shifted(DenseDyn(8), Scalar(0)), {"Y": read_only()}, Code.READ_ONLY),
    "written": (lambda: reads_what_is_written(BATCH, Y.data[2:4]), {}, Code.ARRAY_WRITTEN),
    "dtype": (lambda: shifted(DenseDyn(8), Scalar(0)), {"Y": np.zeros(8)}, Code.BINDING_TYPE),
    "floats": (lambda: looked_up(DenseDyn(2), [0, 1, 2]), {"lens": [0.5, 1]}, Code.BINDING_TYPE),
    "rank": (
        lambda: shifted(DenseDyn(8), Scalar(0)),
        {"Y": np.zeros((2, 4), np.int64)},
        Code.BINDING_RANK,
    ),
    "list": (lambda: shifted(DenseDyn(8), Scalar(0)), {"Y": [1, 2]}, Code.MEMORY_NOT_SHARED),
    "name": (lambda: shifted(DenseDyn(8), Scalar(0)), {"Z": 1}, Code.UNKNOWN_NAME),
    "kernel": (failing, {}, Code.KERNEL_FAILED),
}


@pytest.mark.parametrize("case", CASES)
def test_code(target: str, case: str) -> None:
    make, bindings, code = CASES[case]
    with make().compile(target=target) as program, pytest.raises(PtoError) as raised:
        program.execute(**bindings)
    assert raised.value.code is code
    assert raised.value.loc is not None
    assert raised.value.loc.file == __file__
    if code is not Code.KERNEL_FAILED:
        assert raised.value.why
        assert raised.value.fix
