"""What waits, for what, how often and how long; and what is never taken for a deadlock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    DenseDyn,
    Deps,
    DispatchPolicy,
    In,
    InOut,
    Out,
    P,
    Pools,
    ReadyPolicy,
    ScheduleError,
    StartPolicy,
    TaskWindow,
    Tensor,
    TimingPolicy,
    Workload,
    kernel,
    slot_load_u64,
    slot_u64,
    workload,
)
from pto_wsp.dtypes import DType
from pto_wsp.runtime.stats import Stats

ROWS, COLS = 4, 6


@kernel(cpp_src="y[0] += 1;")
def count(y: InOut[Tensor]): ...


@kernel(
    cpp_src="std::this_thread::sleep_for(std::chrono::milliseconds(30)); y[0] += 1;",
    cpp_includes=["<chrono>", "<thread>"],
)
def nap(y: InOut[Tensor]): ...


def grid(body: Any = count) -> Workload:
    """COLS chains of ROWS tasks."""
    Y = Tensor(data=np.zeros(COLS, np.int64), name="Y")

    @workload
    def work(rows: Any, cols: Any) -> None:
        for i, j in P(rows, cols):
            body[i, j](Y[j : j + 1])

    return work(DenseDyn(ROWS), DenseDyn(COLS))


def run(work: Workload, workers: int = 2, **values: Any) -> Stats:
    y = np.zeros(COLS, np.int64)
    with work.compile(num_threads=workers) as program:
        program.execute(Y=y, **values)
        assert (y == values.get("rows", ROWS))[: values.get("cols", COLS)].all()
        return program.stats


# --- what can never go on is refused ---


@pytest.mark.parametrize(
    "never",
    [
        lambda w: w.pipeline_depth(0),
        lambda w: w.streams(0),
        lambda w: w.timing(TimingPolicy.batched(0)),
        lambda w: w.timing(TimingPolicy.interleaved(0)),
        lambda w: w.timing(TimingPolicy.rate_limit(0)),
        lambda w: w.task_graph(window=TaskWindow(0)),
        lambda w: w.task_graph(pools=Pools.custom(lambda t: t.cols, 0)),
        lambda w: w.dispatch(DispatchPolicy.round_robin(0)),
        lambda w: w.dispatch(DispatchPolicy.static_partition([])),
    ],
)
def test_room_for_nothing(never: Callable[[Workload], Workload]) -> None:
    with pytest.raises(ScheduleError, match="PTO320"):
        never(grid())


@pytest.mark.parametrize(
    "policy",
    [
        DispatchPolicy.round_robin(3),
        DispatchPolicy.static_partition([(0, 8), (8, 16), (16, 24)]),
    ],
)
def test_workers_that_are_not_there(policy: DispatchPolicy) -> None:
    work = grid().dispatch(policy)
    with pytest.raises(ScheduleError, match="sends tasks to 3 workers, and num_threads=2"):
        work.compile(num_threads=2)
    assert run(work, workers=3).tasks == ROWS * COLS


def test_fewer_workers_than_pools_take_turns() -> None:
    work = grid().task_graph(pools=Pools.custom(lambda t: t.cols, 5))
    assert run(work, workers=2).tasks == ROWS * COLS


# --- what holds tasks back lets go ---


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_a_start_that_the_window_cannot_reach(workers: int) -> None:
    held = grid().task_graph(start=StartPolicy.threshold(100), window=TaskWindow(3))
    stats = run(held, workers)
    assert stats.start_released == 1
    assert 1 <= stats.start_held <= 3
    assert stats.live_high <= 3
    assert run(grid().task_graph(start=StartPolicy.threshold(5)), workers).start_released == 0


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_a_batch_that_the_window_cannot_hold(workers: int) -> None:
    held = grid().timing(TimingPolicy.batched(100)).task_graph(window=TaskWindow(3))
    assert run(held, workers).timing_released > 0


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("window", [1, 2])
def test_everything_at_once_in_a_small_window(window: int, workers: int) -> None:
    work = (
        grid()
        .streams(3)
        .pipeline_depth(1)
        .pipeline_depth(1, scope="per_key", key=lambda t: t.cols)
        .timing(TimingPolicy.batched(4))
        .task_graph(
            ready=ReadyPolicy.priority(lambda t: t.cols),
            start=StartPolicy.after_orchestration(),
            pools=Pools.custom(lambda t: t.cols, 3),
            window=TaskWindow(window),
        )
    )
    stats = run(work, workers)
    assert stats.tasks == ROWS * COLS
    assert stats.start_released == 1


# --- slow is not stuck ---


def test_long_kernels_are_waited_for() -> None:
    """One chain, so that all workers but one find nothing to do for long."""
    for ready in (ReadyPolicy.fifo(), ReadyPolicy.work_steal()):
        assert run(grid(nap).task_graph(ready=ready), 4, cols=1).tasks == ROWS
    assert run(grid(nap), 4, cols=1).tasks == ROWS


def test_a_timer_is_waited_for() -> None:
    assert run(grid().timing(TimingPolicy.rate_limit(1)), 4, rows=2).tasks == 2 * COLS


# --- counts, times and marks ---


def test_a_full_window_is_counted() -> None:
    stats = run(grid(nap).task_graph(window=TaskWindow(2), ready=ReadyPolicy.fifo()), rows=1)
    assert stats.window_stalls > 0
    assert stats.window_stall_ns > 0
    assert stats.live_high == 2


@kernel(
    cpp_src="std::this_thread::sleep_for(std::chrono::milliseconds(5)); c[0] -= 1;",
    cpp_includes=["<chrono>", "<thread>"],
)
def down(c: InOut[Tensor]): ...


@pytest.mark.parametrize("window", [1, 8])
def test_waiting_for_a_value_is_counted(window: int) -> None:
    """In a window of one task, too: control waits for the task, the task for nobody."""
    C = Tensor(data=np.full(1, 4, np.int64), name="C")

    @workload
    def work() -> None:
        slot_load_u64(0, C[:], col=0)
        for i in P.loop_while(lambda: slot_u64(0) > 0, max_iterations=50):
            down[i](C[0:1])
            slot_load_u64(0, C[:], col=0)

    with work().task_graph(window=TaskWindow(window)).compile(num_threads=2) as program:
        c = np.full(1, 4, np.int64)
        program.execute(C=c)
        assert c[0] == 0
        stats = program.stats
        assert stats.loads == 5
        assert 1 <= stats.control_waits <= 5
        assert stats.control_wait_ns > 0
        assert stats.workspace_stalls == 0


@kernel(cpp_src="t[0] = x[0];")
def first(x: In[Tensor], t: Out[Tensor]): ...


@kernel(
    cpp_src="std::this_thread::sleep_for(std::chrono::milliseconds(1)); y[0] = t[0] + 1;",
    cpp_includes=["<chrono>", "<thread>"],
)
def second(t: In[Tensor], y: Out[Tensor]): ...


def test_waiting_for_a_copy_of_a_temporary_is_counted() -> None:
    """Where only equal regions are tracked, a copy is used again when all before it has ended."""
    n = 200
    X = Tensor(data=np.arange(n, dtype=np.int64), name="X")
    Y = Tensor(data=np.zeros(n, np.int64), name="Y")

    @workload
    def work(rows: Any) -> None:
        for i in P(rows):
            t = Tensor.temp((1,), DType.I64)
            first[i](X[i : i + 1], t[:])
            second[i](t[:], Y[i : i + 1])

    exact = work(DenseDyn(n)).task_graph(
        deps=Deps.infer_tensor_map_exact(), ready=ReadyPolicy.fifo()
    )
    with exact.compile(num_threads=2) as program:
        y = np.zeros(n, np.int64)
        program.execute(Y=y)
        assert (y == np.arange(n) + 1).all()
        stats = program.stats
    assert stats.workspace_stalls > 0
    assert stats.workspace_stall_ns > 0
    assert stats.workspace_bytes > 0
    assert stats.control_waits == 0


def test_marks_of_pools_and_queues() -> None:
    """A task that waits for many: their edges have no place in its record."""
    n = 50
    X = Tensor(data=np.zeros(n, np.int64), name="X")

    @workload
    def work(rows: Any) -> None:
        for i in P(rows):
            count[i](X[i : i + 1])
        count(X[:])

    held = work(DenseDyn(n)).task_graph(start=StartPolicy.after_orchestration())
    with held.compile(num_threads=2) as program:
        program.execute()
        stats = program.stats
    assert stats.edges == n
    assert n - 8 <= stats.edges_high <= n
    assert stats.map_high >= n
    assert stats.ready_high >= n
    assert stats.live_high == n + 1
