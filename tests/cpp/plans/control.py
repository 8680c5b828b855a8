"""Writes control.plan, which tests/cpp/test_control.cpp runs: control that reads what tasks write,
sparse rows, conditions, slots and explicit order. The kernels are the C++ test's own."""

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
    Ragged,
    Scalar,
    Sparse,
    Tensor,
    kernel,
    slot_load_u64,
    slot_u64,
    workload,
)


@kernel(cpp_src="(void)out; (void)s;")
def route(out: Out[Tensor], s: Scalar[DType.I64]): ...


@kernel(cpp_src="(void)y; (void)s;")
def note(y: InOut[Tensor], s: Scalar[DType.I64]): ...


@kernel(cpp_src="(void)x;")
def look(x: In[Tensor]): ...


@workload
def control(tokens: Any, routing: Any, toks: Any, idx: Any, L: Any, Y: Any, C: Any):
    for t in P(tokens):
        route[t](idx[2 * t : 2 * t + 2], t)
        first = note[t](L[t], t % 3)
    for t in P(tokens):
        for e in P.sel(routing[t]):
            note[t, e](Y[e], t + 1)
        for j in P(toks):
            note[t, j](Y[j], 100)
        with P.when(L[t] == 2):
            note[t](Y[4], 1000)
        with P.when(idx[2 * t] == 2):
            look[t](C[0], after=first)
    slot_load_u64(0, C[:], col=0)
    for i in P.loop_while(lambda: slot_u64(0) > 0, max_iterations=100):
        note[i](C[0], -1)
        note[i](Y[0], slot_u64(0))
        slot_load_u64(0, C[:], col=0)


def plan_bytes() -> bytes:
    tokens = DenseDyn(1)
    idx, L = Tensor(data=np.zeros(2, np.int64)), Tensor(data=np.zeros(1, np.int64))
    Y, C = Tensor(data=np.zeros(5, np.int64)), Tensor(data=np.zeros(1, np.int64))
    routing = Sparse(tokens, np.array([0, 2]), idx)
    work = control(tokens, routing, Ragged(tokens, L), idx, L, Y, C)
    return work.compile(target="reference").plan.to_bytes()


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_suffix(".plan")
    target.write_bytes(plan_bytes())
