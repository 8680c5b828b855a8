"""Writes kinds.plan, which tests/cpp/test_kinds.cpp runs: temporaries that are used again, tokens,
and pages that tasks append to and read. The kernels are the C++ test's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from pto_wsp import (
    DenseDyn,
    DType,
    In,
    InOut,
    Out,
    P,
    PagedTensor,
    Scalar,
    Tensor,
    Token,
    Workload,
    kernel,
    workload,
)


@kernel(cpp_src="(void)t; (void)s;")
def fill(t: Out[Tensor], s: Scalar[DType.I64]): ...


@kernel(cpp_src="(void)t; (void)y;")
def total(t: In[Tensor], y: InOut[Tensor]): ...


@kernel(cpp_src="(void)k; (void)y;")
def attend(k: In[PagedTensor], y: InOut[Tensor]): ...


@kernel(cpp_src="(void)y;")
def turn(y: InOut[Tensor], g: InOut[Token]): ...


@workload
def kinds(rows: Any, lens: Any, Y: Any, K: Any):
    G = Token((4,))
    for r in P(rows):
        T = Tensor.temp((lens[r],), DType.I64)
        fill[r](T, r)
        with P.when(r % 3 == 0):
            U = Tensor.temp((5,), DType.I64)
            fill[r](U, 100)
            total[r](U, Y[r % 4])
        total[r](T, Y[r % 4])
        fill[r](K[r % 3, r % 8], r)
        attend[r](K[r % 3, 0:8], Y[r % 4])
        turn[r](Y[r % 4], G[r % 2])


def work() -> Workload:
    pool, table = np.zeros((6, 4), np.int64), np.zeros((3, 2), np.int64)
    Y = Tensor(data=np.zeros(4, np.int64))
    return kinds(DenseDyn(1), np.array([1]), Y, PagedTensor(pool, table))


def plan_bytes() -> bytes:
    return work().compile(target="reference").plan.to_bytes()


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_suffix(".plan")
    target.write_bytes(plan_bytes())
