"""batch_deps(n): successors become ready when the n-th task of a batch has ended, or earlier where
somebody would wait. Judged by the trace."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    DenseDyn,
    In,
    InOut,
    Out,
    P,
    ReadyPolicy,
    ScheduleError,
    StartPolicy,
    TaskWindow,
    Tensor,
    TimingPolicy,
    TracePolicy,
    Workload,
    kernel,
    slot_load_u64,
    slot_u64,
    workload,
)
from tests.conformance.grids import WORKERS, grid, nap

CHAINS, STEPS = 64, 5
FIFO = {"ready": ReadyPolicy.fifo(), "start": StartPolicy.after_orchestration()}


def chains(**graph: Any) -> tuple[Workload, np.ndarray]:
    """Tasks of which each but the last of a chain has one successor, CHAINS further on."""
    Y = Tensor(data=np.zeros(CHAINS, np.int64), name="Y")

    @workload
    def work(steps: Any, rows: Any) -> None:
        for j in P(steps):
            for i in P(rows):
                nap[j, i](Y[i : i + 1])

    traced = TracePolicy.timestamps()
    return work(DenseDyn(STEPS), DenseDyn(CHAINS)).task_graph(trace=traced, **graph), Y.data


def run(work: Workload, y: np.ndarray, workers: int) -> tuple[np.ndarray, Any]:
    y[:] = 0
    with work.compile(num_threads=workers) as program:
        program.execute()
        program.execute()  # finds everything ended that the first one left
        assert (y == 2 * STEPS).all()
        return np.sort(program.trace, order="task_id"), program.stats


def batches(trace: np.ndarray, worker: int) -> list[list[int]]:
    """The tasks of a worker as they were committed together: a batch ends where a successor of one
    of its tasks became ready before the worker's next task had ended. The last one may be longer
    than it was."""
    mine = np.sort(trace[trace["worker"] == worker], order="end_ns")
    found: list[list[int]] = [[]]
    for row, behind in pairwise([*mine, None]):
        found[-1].append(int(row["task_id"]))
        after = [task + CHAINS for task in found[-1] if task + CHAINS < CHAINS * STEPS]
        if behind is None or any(trace["ready_ns"][t] < behind["end_ns"] for t in after):
            found.append([])
    return [batch for batch in found if batch]


def with_successors(batch: list[int]) -> bool:
    return all(task < CHAINS * (STEPS - 1) for task in batch)


@pytest.mark.parametrize("count", [1, 2, 4, 7])
@pytest.mark.parametrize("workers", [1, 2, WORKERS])
def test_successors_wait_for_the_batch(count: int, workers: int) -> None:
    work, y = chains(**FIFO)
    trace, stats = run(work.batch_deps(count), y, workers)
    odd = 0
    for worker in range(workers):
        *full, _ = batches(trace, worker) or [[]]
        for batch in filter(with_successors, full):
            odd += len(batch) != count
            ended = max(int(trace["end_ns"][task]) for task in batch)
            assert all(trace["ready_ns"][task + CHAINS] >= ended for task in batch)
    # A flush leaves a short batch; if another worker makes it, this one may be further by then.
    assert odd <= 2 * stats.dep_flushes
    assert stats.dep_batches >= CHAINS * STEPS / count


@pytest.mark.directive("start_after_orchestration")
@pytest.mark.directive("batch_deps")
def test_one_worker_is_exact() -> None:
    work, y = chains(**FIFO)
    trace, stats = run(work.batch_deps(8), y, 1)
    assert (stats.dep_batches, stats.dep_flushes) == (CHAINS * STEPS // 8, 0)
    for task in range(CHAINS * (STEPS - 1)):
        ready = int(trace["ready_ns"][task + CHAINS])
        last = task - task % 8 + 7
        assert int(trace["end_ns"][last]) <= ready <= int(trace["start_ns"][last + 1])


@pytest.mark.parametrize("workers", [1, 2, WORKERS])
@pytest.mark.parametrize(
    "graph",
    [
        {},
        {"ready": ReadyPolicy.fifo()},
        {"ready": ReadyPolicy.work_steal()},
        {"window": TaskWindow(3)},
        {"window": TaskWindow(24, "bytes")},
    ],
    ids=str,
)
def test_batches_that_never_fill_are_flushed(graph: dict[str, Any], workers: int) -> None:
    work, y = chains(**graph)
    _, stats = run(work.batch_deps(100_000), y, workers)
    assert stats.dep_batches == stats.dep_flushes >= STEPS


def test_timing_and_gates() -> None:
    """What is held in a batch is neither lost nor taken for the end."""
    work, y = chains()
    work = work.batch_deps(1000).timing(TimingPolicy.batched(7)).pipeline_depth(3).streams(5)
    _, stats = run(work, y, WORKERS)
    assert stats.tasks == CHAINS * STEPS


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("gated", [False, True])
def test_on_a_virtual_clock(workers: int, gated: bool) -> None:
    """Where all workers are busy a batch is kept, else it is flushed before time goes on."""
    work, y = chains()
    clocked = work.task_graph(trace=TracePolicy.cycles(lambda t: 10 + t.rows % 3))
    clocked = clocked.batch_deps(1000)
    _, stats = run(clocked.pipeline_depth(2) if gated else clocked, y, workers)
    assert stats.dep_batches == stats.dep_flushes > 0


@pytest.mark.parametrize("seed", range(5))
def test_drawn_runs_keep_batches(seed: int) -> None:
    work, y = chains()
    for drawn in (work.batch_deps(4), work.batch_deps(4).pipeline_depth(3)):
        with drawn.compile(num_threads=3) as program:
            program.execute(seed=seed)
            assert program.stats.dep_batches >= CHAINS * STEPS / 4
            y[:] = 0
            program.execute(seed=seed)
            assert (y == STEPS).all()


@kernel(cpp_src="n[0] = 1 + x[0];")
def more(x: In[Tensor], n: Out[Tensor]): ...


@kernel(cpp_src="y[0] += 1;")
def bump(y: InOut[Tensor]): ...


@pytest.mark.parametrize("workers", [1, WORKERS])
def test_control_that_waits_for_a_task(workers: int) -> None:
    N = Tensor(data=np.zeros(6, np.uint64), name="N")
    Y = Tensor(data=np.zeros(1, np.int64), name="Y")

    @workload
    def work(rows: Any) -> None:
        for i in P.seq(rows):
            more[i](N[i : i + 1], N[i + 1 : i + 2])
            slot_load_u64(0, N[i + 1 : i + 2], row=0)
            for _ in P(slot_u64(0)):
                bump(Y)

    with work(DenseDyn(5)).batch_deps(1000).compile(num_threads=workers) as program:
        program.execute()
        assert Y.data.tolist() == [1 + 2 + 3 + 4 + 5]
        assert program.stats.control_waits > 0


def test_explained() -> None:
    with grid().batch_deps(32).compile(num_threads=1) as program:
        program.execute()
        assert "batch_deps(32)" in program.explain()
        assert "3 batches, 0 of them before they were full" in program.explain()


def test_refused() -> None:
    with pytest.raises(ScheduleError, match=r"batch_deps\(n\): 0"):
        grid().batch_deps(0)
