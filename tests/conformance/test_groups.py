"""Directives of `task_graph` that other files do not judge by the trace alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    DenseDyn,
    Deps,
    InOut,
    P,
    ReadyPolicy,
    StartPolicy,
    TaskWindow,
    Tensor,
    TracePolicy,
    WindowMode,
    WindowOverflow,
    Workload,
    kernel,
    workload,
)
from tests.conformance.grids import COLS, ROWS, grid, nap

TASKS = ROWS * COLS


@kernel(cpp_src="x[0] = x[0] * 3 + 1;")
def change(x: InOut[Tensor]): ...


def shifted(n: int = 4) -> Workload:
    """Each task overlaps the one before it; no two regions are equal."""
    X = Tensor(data=np.zeros(n + 1, np.int64), name="X")

    @workload
    def work(steps: Any) -> None:
        for i in P(steps):
            change[i](X[i : i + 2])

    return work(DenseDyn(n)).task_graph(trace=TracePolicy.timestamps())


def chain(n: int = 4, body: Any = change) -> Workload:
    X = Tensor(data=np.zeros(1, np.int64), name="X")

    @workload
    def work(steps: Any) -> None:
        for i in P(steps):
            body[i](X[0:1])

    return work(DenseDyn(n)).task_graph(trace=TracePolicy.timestamps())


def run(work: Workload, workers: int) -> tuple[np.ndarray, Any]:
    """The trace in the order in which workers took tasks, and the stats."""
    with work.compile(num_threads=workers) as program:
        program.execute()
        return np.sort(program.trace, order="take"), program.stats


def taken(work: Workload) -> list[int]:
    """The order on one worker that takes the newest ready task of the complete graph: what is not
    ordered comes backwards."""
    newest = {"ready": ReadyPolicy.work_steal(), "start": StartPolicy.after_orchestration()}
    return run(work.task_graph(**newest), 1)[0]["task_id"].tolist()


@pytest.mark.directive("ready_work_steal")
@pytest.mark.directive("deps_exact")
@pytest.mark.directive("start_after_orchestration")
def test_exact_matching_takes_only_equal_regions() -> None:
    assert taken(shifted().task_graph(deps=Deps.infer_tensor_map_exact())) == [3, 2, 1, 0]


@pytest.mark.directive("deps_overlap")
def test_overlap() -> None:
    assert taken(shifted().task_graph(deps=Deps.infer_bytes_overlap())) == [0, 1, 2, 3]


@pytest.mark.directive("ready_work_steal")
@pytest.mark.directive("deps_explicit")
@pytest.mark.directive("start_after_orchestration")
def test_explicit() -> None:
    assert taken(chain().task_graph(deps=Deps.explicit())) == [3, 2, 1, 0]


@pytest.mark.directive("deps_hybrid")
def test_hybrid() -> None:
    assert taken(shifted().task_graph(deps=Deps.hybrid())) == [0, 1, 2, 3]


@pytest.mark.directive("ready_fifo")
def test_fifo() -> None:
    """One worker that wakes up late: the default order would begin with what it kept itself."""
    held = StartPolicy.after_orchestration()
    trace, _ = run(grid(nap).task_graph(ready=ReadyPolicy.fifo(), start=held), 8)
    assert trace["task_id"].tolist() == list(range(TASKS))


@pytest.mark.directive("start_after_orchestration")
@pytest.mark.directive("ready_work_steal")
def test_work_steal_takes_the_newest() -> None:
    held = StartPolicy.after_orchestration()
    trace, _ = run(grid().task_graph(ready=ReadyPolicy.work_steal(), start=held), 1)
    assert trace["task_id"].tolist() == list(reversed(range(TASKS)))


@pytest.mark.directive("start_after_orchestration")
def test_start_after_orchestration() -> None:
    start = StartPolicy.after_orchestration()
    trace, stats = run(grid().task_graph(start=start, ready=ReadyPolicy.fifo()), 8)
    assert trace["start_ns"].min() >= trace["ready_ns"].max()
    assert stats.live_high == TASKS


@pytest.mark.directive("start_threshold")
def test_start_threshold() -> None:
    """The first tasks become ready together, once enough of them have been generated."""
    start = StartPolicy.threshold(90)
    trace, stats = run(grid().task_graph(start=start, ready=ReadyPolicy.fifo()), 8)
    first = np.sort(trace, order="seq")[:90]
    assert first["start_ns"].min() >= first["ready_ns"].max()
    assert stats.live_high >= 90


@pytest.mark.directive("window_tasks")
def test_window_of_tasks() -> None:
    _, stats = run(grid(nap).task_graph(window=TaskWindow(5)), 8)
    assert stats.live_high == 5


@pytest.mark.directive("window_abort")
def test_window_that_ends_the_run() -> None:
    """All but the first task have to wait."""
    window = TaskWindow(5, mode=WindowMode.ABORT)
    program = chain(20, nap).task_graph(window=window).compile(num_threads=2)
    with program, pytest.raises(WindowOverflow):
        program.execute()


@pytest.mark.directive("window_benchmark")
def test_window_that_counts() -> None:
    window = TaskWindow(5, mode=WindowMode.BENCHMARK)
    _, stats = run(grid(nap).task_graph(window=window), 8)
    assert stats.window_overflows > 0


@pytest.mark.directive("trace_cycles")
def test_cycles() -> None:
    """A hundred cycles for each task, eight workers."""
    trace, _ = run(grid().task_graph(trace=TracePolicy.cycles(lambda t: 100 + 0 * t.rows)), 8)
    assert (trace["end_ns"] - trace["start_ns"] == 100).all()
    assert trace["end_ns"].max() == 100 * TASKS // 8
