"""The whole way in a few seconds: trace, compile, run on every target, look at the result."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp import DenseDyn, In, InOut, Out, P, Ragged, Tensor, TracePolicy, kernel, workload
from pto_wsp.backends import registry


@kernel(cpp_src="for (int64_t i = 0; i < y.shape(0); ++i) y(i) = y(i) * 3 + x(i);")
def update(x: In[Tensor], y: InOut[Tensor]): ...


@kernel
def total(y: In[Tensor], out: Out[Tensor]):
    out[...] = y.sum()


@workload
def tiny(rows, cols, X, Y, out):
    for i in P(rows):
        for j in P.seq(cols[i]):
            update[i, j](x=X[j], y=Y[i])
        total[i](y=Y[i], out=out[i])


@pytest.mark.parametrize("target", registry.host_names())
def test_tiny(target: str) -> None:
    lengths = [3, 0, 2]
    rows = DenseDyn(3)
    X, Y = np.arange(12).reshape(3, 4), np.zeros((3, 4), np.int64)
    out = np.zeros(3, np.int64)
    program = (
        tiny(rows, Ragged(rows, lengths), Tensor(data=X), Tensor(data=Y), Tensor(data=out))
        .task_graph(trace=TracePolicy.timestamps())
        .compile(target=target)
    )
    program.execute()
    expected = np.zeros((3, 4), np.int64)
    for i, length in enumerate(lengths):
        for j in range(length):
            expected[i] = expected[i] * 3 + X[j]
    assert np.array_equal(Y, expected)
    assert np.array_equal(out, expected.sum(axis=1))
    assert program.stats.tasks == len(program.trace) == program.num_tasks() == 8

    again = np.zeros(1, np.int64)
    program.execute(rows=1, cols=[1], Y=np.zeros((1, 4), np.int64), out=again)
    assert again[0] == X[0].sum()
