"""What dependence analysis proves is not tracked under Deps.auto(), and only that."""

from __future__ import annotations

from typing import Any

import numpy as np

from pto_wsp import (
    DenseDyn,
    Deps,
    In,
    InOut,
    Out,
    P,
    Tensor,
    TracePolicy,
    Workload,
    kernel,
    workload,
)


@kernel(cpp_src="x[0] += 1;")
def visit(x: InOut[Tensor]): ...


@kernel(cpp_src="y[0] = x[0] + 1;")
def copy(x: In[Tensor], y: Out[Tensor]): ...


def entries(work: Workload, **bound: Any) -> int:
    """Entries in the tensor maps of a run on two workers that has records."""
    with work.task_graph().batch_deps(1).compile(num_threads=2) as program:
        program.execute(**bound)
        return program.stats.map_high


def halves() -> Workload:
    X = Tensor(data=np.zeros((64, 2), np.int64), name="X")
    Y = Tensor(data=np.zeros((64, 2), np.int64), name="Y")

    @workload
    def work(rows: Any, lens: Any) -> None:
        for i in P(rows):
            for j in P(lens[i]):
                visit[i, j](X[2 * i + j // 2, 0:1])
            visit[i](Y[i, 0:1])
            visit[i](Y[i, 1:2])

    return work(DenseDyn(8), np.full(8, 2))


def test_calls_that_never_meet_are_not_tracked() -> None:
    auto, overlap = Deps.auto(), Deps.infer_bytes_overlap()
    tracked = entries(halves().task_graph(deps=overlap))
    assert 0 < entries(halves().task_graph(deps=auto)) < tracked


def test_tensors_that_share_memory_are_tracked_again() -> None:
    memory = np.zeros((64, 2), np.int64)
    A, B = Tensor(data=memory, name="A"), Tensor(data=np.zeros_like(memory), name="B")

    @workload
    def work(rows: Any) -> None:
        for i in P(rows):
            visit[i](A[i, 0:1])
            visit[i](A[i, 1:2])
            visit[i](B[i, 0:1])
            visit[i](B[i, 1:2])

    assert entries(work(DenseDyn(64))) == 0
    assert entries(work(DenseDyn(64)), B=memory[::-1]) > 0


def test_explain_names_parallel_loops_that_are_not() -> None:
    X = Tensor(data=np.zeros((9, 9), np.int64), name="X")
    C = Tensor(data=np.zeros(4, np.int64), name="C")

    @workload
    def work(rows: Any, cols: Any, steps: Any) -> None:
        for i in P(rows):
            for j in P(cols):
                copy[i, j](X[i, j], X[i + 2, j])
        for k in P(cols):
            for _ in P(steps):
                visit[k](C[k])

    made = work(DenseDyn(6), DenseDyn(4), DenseDyn(3))
    text = made.compile().explain()
    assert "P over 'rows'" in text
    assert "P over 'cols'" not in text  # its columns are independent, in both loops
    assert "copy (" in text
    assert "2 iterations before it" in text
    assert "visit (" in text.partition("P over 'steps'")[2]
    assert "of every iteration before it" in text
    assert "%" not in text
    program = made.task_graph(trace=TracePolicy.timestamps()).compile(num_threads=2).execute()
    rows, steps = [line for line in program.explain().splitlines() if "P over" in line]
    assert "67% of these tasks do" in rows  # 4 of 6 rows
    assert "67% of these tasks do" in steps  # 2 of 3 steps
    assert "P over" not in made.task_graph(deps=Deps.explicit()).compile().explain()
