"""What a GPU cannot do is said before anything runs, and what goes wrong there with its line."""

# pyright: basic, reportInvalidTypeForm=false
from __future__ import annotations

import numpy as np
import pytest

from pto_wsp import (
    CompileError,
    DenseDyn,
    DispatchPolicy,
    ExecutionError,
    In,
    Out,
    P,
    ScheduleError,
    Tensor,
    kernel,
    workload,
)

from .programs import add, dense, double, grow, numbers


def test_python_kernels() -> None:
    @kernel
    def copy(x: In[Tensor], y: Out[Tensor]):
        y[...] = x

    x, y = Tensor(data=numbers(4, 4)), Tensor(data=numbers(4, 4))

    @workload
    def run(rows):
        for i in P(rows):
            copy[i](x[i], y[i])

    with pytest.raises(CompileError, match=r"'copy' has a Python body, which a GPU cannot run"):
        run(DenseDyn(4)).compile(target="cuda")


def test_dependences_that_only_a_run_could_find() -> None:
    x = Tensor(data=numbers(2, 4))

    @workload
    def run(rows):
        for i in P(rows):
            grow[i](x[0:2], 1)

    with pytest.raises(CompileError, match="cannot tell which tasks of 'grow'") as caught:
        run(DenseDyn(4)).compile(target="cuda")
    assert "along the parallel loop 'rows'" in str(caught.value)


@pytest.mark.parametrize(
    "directed",
    [
        lambda w: w.dispatch(DispatchPolicy.round_robin(2)),
        lambda w: w.streams(2),
    ],
)
def test_directives_that_nobody_enforces(directed) -> None:
    with pytest.raises(ScheduleError, match="the cuda target cannot enforce"):
        directed(dense().workload).compile(target="cuda")


def test_tensors_that_are_one() -> None:
    x = np.zeros((4, 4), np.float32)
    a, b = Tensor(data=x), Tensor(data=numbers(4, 4))

    @workload
    def run(rows):
        for i in P(rows):
            double[i](a[2 * i : 2 * i + 2], b[2 * i : 2 * i + 2])

    program = run(DenseDyn(2)).compile(target="cuda")
    with pytest.raises(ExecutionError, match=r"'b', which tasks write, shares memory with 'a'"):
        program.execute(b=x)
    program.execute()


def test_more_counters_and_workspace_than_there_were() -> None:
    """A run that does not fit is made room for, and nothing of it has run before."""
    n = 300
    x = np.zeros((2 * n + 2, 4 * n + 4), np.float32)
    x[:2], x[:, :4] = 1.0, 1.0
    t = Tensor(data=x)

    @workload
    def run(rows, cols):
        for i in P.seq(rows):
            for j in P(cols):
                add[i, j](
                    t[2 * i : 2 * i + 2, 4 * j + 4 : 4 * j + 8],
                    t[2 * i + 2 : 2 * i + 4, 4 * j : 4 * j + 4],
                    t[2 * i + 2 : 2 * i + 4, 4 * j + 4 : 4 * j + 8],
                )

    program = run(DenseDyn(2), DenseDyn(2)).compile(target="cuda")
    engine = program._engine
    engine._events = engine._events[:2]  # room for one counter
    program.execute()
    assert program.stats.tasks == 4
    assert x[4, 8] == 6.0  # as in Pascal's triangle
