"""What the directives do on the native core: windows, start policies, modes, counts."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    DenseDyn,
    InOut,
    P,
    Program,
    ReadyPolicy,
    ScheduleError,
    StartPolicy,
    TaskWindow,
    Tensor,
    TracePolicy,
    WindowMode,
    WindowOverflow,
    kernel,
    select,
    workload,
)
from tests.conformance.grids import grid, run


@kernel(cpp_src="y() += 1;")
def bump(y: InOut[Tensor]): ...


@workload
def wide(n, Y):
    for i in P(n):
        bump[i](y=Y[i % 64])  # the call


def compiled(n: int, *, num_threads: int = 2, **schedule: Any) -> tuple[Program, np.ndarray]:
    y = np.zeros(64)
    work = wide(DenseDyn(n), Tensor(data=y)).task_graph(**schedule)
    return work.compile(num_threads=num_threads), y


POLICIES = [ReadyPolicy.fifo(), ReadyPolicy.work_steal(), None]


@pytest.mark.parametrize("ready", POLICIES, ids=str)
@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("window", [1, 2, 64])
def test_the_window_is_never_exceeded(window: int, workers: int, ready: ReadyPolicy | None) -> None:
    schedule = {"window": TaskWindow(window), "ready": ready, "trace": TracePolicy.timestamps()}
    program, y = compiled(1000, num_threads=workers, **schedule)
    program.execute()
    assert y.sum() == 1000
    assert program.stats.tasks == 1000
    assert program.stats.live_high <= window
    assert sorted(program.trace["task_id"].tolist()) == list(range(1000))


@kernel
def slow_bump(y: InOut[Tensor]):
    time.sleep(0.0005)  # long enough for all workers to take part
    y += 1


@workload
def independent(n, Y):
    for i in P(n):
        slow_bump[i](y=Y[i])


@pytest.mark.parametrize("ready", POLICIES, ids=str)
@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("window", [1, 3, 8192])
def test_the_window_holds_for_independent_tasks_too(
    window: int, workers: int, ready: ReadyPolicy | None
) -> None:
    y = np.zeros(64)
    schedule = {"window": TaskWindow(window), "ready": ready, "trace": TracePolicy.timestamps()}
    work = independent(DenseDyn(64), Tensor(data=y)).task_graph(**schedule)
    program = work.compile(num_threads=workers).execute()
    assert (y == 1).all()
    assert program.stats.live_high <= window
    trace = program.trace
    begun = np.sort(trace["start_ns"])
    ended = np.sort(trace["end_ns"])
    # How many run when one begins: those that have begun, less those that have ended by then.
    running = np.arange(1, 65) - np.searchsorted(ended, begun, side="right")
    assert running.max() <= min(window, workers)


@pytest.mark.parametrize("ready", POLICIES, ids=str)
@pytest.mark.parametrize("workers", [1, 3])
def test_after_orchestration_with_more_tasks_than_the_window(
    workers: int, ready: ReadyPolicy | None
) -> None:
    """Nothing could ever start, so the policy is released, and the run says so."""
    schedule = {"window": TaskWindow(16), "start": StartPolicy.after_orchestration()}
    program, y = compiled(100, num_threads=workers, ready=ready, **schedule)
    program.execute()
    assert y.sum() == 100
    stats = program.stats
    assert stats.start_released == 1
    assert stats.start_held == 16
    assert stats.live_high == 16


@pytest.mark.parametrize("ready", POLICIES, ids=str)
@pytest.mark.parametrize("workers", [1, 3])
def test_threshold_larger_than_the_window(workers: int, ready: ReadyPolicy | None) -> None:
    schedule = {"window": TaskWindow(16), "start": StartPolicy.threshold(50)}
    program, y = compiled(100, num_threads=workers, ready=ready, **schedule)
    program.execute()
    assert y.sum() == 100
    assert program.stats.start_released == 1
    assert program.stats.start_held == 16


@pytest.mark.parametrize("ready", POLICIES, ids=str)
@pytest.mark.parametrize(
    "start", [StartPolicy.after_orchestration(), StartPolicy.threshold(100)], ids=str
)
def test_a_start_policy_that_is_met_is_not_released(
    start: StartPolicy, ready: ReadyPolicy | None
) -> None:
    program, y = compiled(100, start=start, ready=ready, trace=TracePolicy.timestamps())
    program.execute()
    assert y.sum() == 100
    assert program.stats.start_released == program.stats.start_held == 0
    assert program.stats.live_high == 100  # all were there before the first one ran


@pytest.mark.parametrize("ready", POLICIES, ids=str)
def test_threshold_of_more_tasks_than_there_are(ready: ReadyPolicy | None) -> None:
    program, y = compiled(10, start=StartPolicy.threshold(1000), ready=ready)
    program.execute()
    assert y.sum() == 10
    assert program.stats.start_released == 0


@pytest.mark.parametrize("ready", POLICIES, ids=str)
def test_start_policies_without_any_task(ready: ReadyPolicy | None) -> None:
    for start in (StartPolicy.after_orchestration(), StartPolicy.threshold(5)):
        program, _ = compiled(0, start=start, ready=ready)
        assert program.execute().stats.tasks == 0


@pytest.mark.parametrize("ready", POLICIES, ids=str)
def test_abort_when_the_window_is_full(ready: ReadyPolicy | None) -> None:
    """Nothing starts before all are generated, so the ninth task finds no room for sure."""
    window = TaskWindow(8, mode=WindowMode.ABORT)
    start = StartPolicy.after_orchestration()
    program, y = compiled(20, window=window, start=start, ready=ready)
    with pytest.raises(WindowOverflow) as raised:
        program.execute()
    error = raised.value
    assert error.message == "the task window of 8 records is full and its mode is ABORT"
    assert error.fix == "use a larger TaskWindow, or mode=WindowMode.STALL"
    assert error.loc is not None
    with open(__file__, encoding="utf-8") as file:
        assert file.readlines()[error.loc.line - 1].strip().endswith("# the call")
    y[:] = 0
    assert program.execute(n=8).stats.tasks == 8
    assert y.sum() == 8


@pytest.mark.parametrize("ready", POLICIES, ids=str)
def test_benchmark_mode_counts_what_stall_does_not(ready: ReadyPolicy | None) -> None:
    for mode in (WindowMode.STALL, WindowMode.BENCHMARK):
        window = TaskWindow(4, mode=mode)
        start = StartPolicy.after_orchestration()
        program, y = compiled(50, num_threads=1, window=window, start=start, ready=ready)
        program.execute()
        stats = program.stats
        assert y.sum() == 50
        assert stats.window_stalls >= 1
        assert stats.window_overflows == (
            stats.window_stalls if mode is WindowMode.BENCHMARK else 0
        )


def test_no_trace_by_name() -> None:
    program, _ = compiled(3, trace=TracePolicy.none())
    assert len(program.execute().trace) == 0


def test_directives_that_cannot_be_enforced_are_refused() -> None:
    with pytest.raises(ScheduleError, match="cannot be enforced by cpu_sim"):
        compiled(3, window=TaskWindow(1 << 30))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("ready", POLICIES, ids=str)
def test_a_million_tasks_in_a_small_window(ready: ReadyPolicy | None, workers: int) -> None:
    """Memory does not grow with the number of tasks, and every task runs once."""
    window = TaskWindow(1024)
    program, y = compiled(10_000, num_threads=workers, window=window, ready=ready)
    program.execute()
    small = program.stats.memory_bytes
    y[:] = 0
    program.execute(n=1_000_000)
    assert program.num_tasks(n=1_000_000) == program.stats.tasks == 1_000_000
    assert (y == 1_000_000 // 64).all()
    assert program.stats.memory_bytes <= max(2 * small, small + (1 << 20))


@pytest.mark.parametrize("workers", [2, 4, 8])
def test_workers_take_tasks_by_priority(workers: int) -> None:
    ready = ReadyPolicy.priority(lambda t: select(t.cols % 2 == 0, 10 + t.cols, -t.rows))
    held = StartPolicy.after_orchestration()
    trace, _ = run(grid().task_graph(ready=ready, start=held), workers=workers)
    row, col = trace["indices"][:, 0], trace["indices"][:, 1]
    priority = np.where(col % 2 == 0, 10 + col, -row)
    assert (
        trace["task_id"].tolist()
        == trace["task_id"][np.lexsort((trace["task_id"], -priority))].tolist()
    )
