"""Windows that count bytes: what live tasks write never exceeds the limit, judged by the trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    DenseDyn,
    DType,
    In,
    InOut,
    Out,
    P,
    Scalar,
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
from tests.conformance.grids import COLS, ROWS, WORKERS, grid, nap, run, step


@kernel(
    cpp_src="std::this_thread::sleep_for(std::chrono::microseconds(us)); y[0] = 1;",
    cpp_includes=["<chrono>", "<thread>"],
)
def sleep(y: Out[Tensor], us: Scalar[DType.I64]): ...


@kernel(cpp_src="for (int k = 0; k < x.shape(0); ++k) y[0] += x[k];")
def total(x: In[Tensor], y: InOut[Tensor]): ...


def windowed(work: Workload, size: int, mode: WindowMode = WindowMode.STALL) -> Workload:
    return work.task_graph(window=TaskWindow(size, "bytes", mode))


def most_live(trace: np.ndarray, sizes: dict[int, int]) -> int:
    """Bytes of the tasks between ready and ended, at their most. Tasks without predecessors are
    ready when they are generated."""
    starts = [(int(r["ready_ns"]), 1, sizes[int(r["task_id"])]) for r in trace]
    ends = [(int(r["end_ns"]), -1, -sizes[int(r["task_id"])]) for r in trace]
    now = most = 0
    for _, _, change in sorted(starts + ends, key=lambda event: event[:2]):
        now += change
        most = max(most, now)
    return most


@pytest.mark.directive("window_bytes")
@pytest.mark.parametrize("tasks", [1, 2, 5, 13])
@pytest.mark.parametrize("workers", [1, 2, WORKERS])
def test_live_bytes(tasks: int, workers: int) -> None:
    trace, stats = run(windowed(grid(nap), 8 * tasks + 7), workers)  # each task writes 8 bytes
    assert most_live(trace, dict.fromkeys(range(ROWS * COLS), 8)) <= 8 * tasks
    assert stats.window_bytes_high == 8 * tasks
    assert stats.window_stalls > 0


def test_wide_windows_do_not_stall() -> None:
    trace, stats = run(windowed(grid(nap), 8 * ROWS * COLS))
    assert stats.window_stalls == 0
    assert 0 < stats.window_bytes_high <= 8 * ROWS * COLS
    assert most_live(trace, dict.fromkeys(range(ROWS * COLS), 8)) > 8 * WORKERS


def test_regions_of_many_sizes() -> None:
    lengths = [int(k * 7 % 5) for k in range(40)]
    Y = Tensor(data=np.zeros((40, 8), np.int64), name="Y")

    @workload
    def ragged(rows: Any, lens: Any) -> None:
        for i in P(rows):
            sleep[i](Y[i, 0 : lens[i] + 1], 200)

    traced = TracePolicy.timestamps()
    work = windowed(ragged(DenseDyn(40), lengths).task_graph(trace=traced), 64)
    with work.compile(num_threads=WORKERS) as program:
        program.execute()
        trace, stats = program.trace, program.stats
    sizes = {k: 8 * (n + 1) for k, n in enumerate(lengths)}
    assert 32 < most_live(trace, sizes) <= 64
    assert 32 < stats.window_bytes_high <= 64
    assert stats.tasks == 40


def test_room_comes_back_in_any_order() -> None:
    """While the first task sleeps, all others pass through the rest of the window."""
    Y = Tensor(data=np.zeros(60, np.int64), name="Y")

    @workload
    def work(rows: Any) -> None:
        for i in P(rows):
            sleep[i](Y[i : i + 1], (1 - (i + 59) // 60) * 400_000)

    traced = work(DenseDyn(60)).task_graph(trace=TracePolicy.timestamps())
    with windowed(traced, 4 * 8).compile(num_threads=2) as program:
        program.execute()
        trace = np.sort(program.trace, order="task_id")
    assert trace["end_ns"][1:].max() < trace["end_ns"][0]


def test_what_is_read_does_not_count_and_temporaries_do() -> None:
    X = Tensor(data=np.ones((12, 100), np.int64), name="X")
    Y = Tensor(data=np.zeros(12, np.int64), name="Y")

    @workload
    def work(rows: Any) -> None:
        for i in P(rows):
            part = Tensor.temp(shape=(3,), dtype=DType.I64)
            sleep[i](part, 0)
            total[i](X[i], Y[i : i + 1])
            total[i](part[0:1], Y[i : i + 1])

    with windowed(work(DenseDyn(12)), 40).compile(num_threads=2) as program:
        program.execute()
        assert program.stats.window_bytes_high == 40  # 24 of a temporary, 8 and 8
        assert Y.data.tolist() == [101] * 12


@pytest.mark.parametrize("start", [StartPolicy.immediate(), StartPolicy.after_orchestration()])
def test_modes(start: StartPolicy) -> None:
    held = grid(nap).task_graph(start=start)
    with windowed(held, 64, WindowMode.ABORT).compile(num_threads=2) as program:
        with pytest.raises(WindowOverflow) as caught:
            program.execute()
        assert caught.value.message == "the task window of 64 bytes is full and its mode is ABORT"
        assert caught.value.loc is not None
    _, stats = run(windowed(held, 64, WindowMode.BENCHMARK))
    assert stats.window_overflows == stats.window_stalls > 0
    _, stats = run(windowed(held, 64))
    assert stats.window_overflows == 0
    assert (stats.start_released > 0) is (start != StartPolicy.immediate())


@pytest.mark.parametrize("workers", [1, 2, WORKERS])
def test_a_task_that_never_fits(workers: int) -> None:
    Y = Tensor(data=np.zeros((6, 6), np.int64), name="Y")

    @workload
    def work(rows: Any, lens: Any) -> None:
        for i in P(rows):
            sleep[i](Y[i, 0 : lens[i]], 0)

    with windowed(work(DenseDyn(6), [1, 2, 3, 4, 5, 6]), 32).compile(num_threads=workers) as p:
        with pytest.raises(WindowOverflow, match=r"sleep\[4\] writes 40 bytes, .* of 32") as caught:
            p.execute()
        assert caught.value.loc is not None
        p.execute(lens=np.array([4, 3, 2, 1, 0, 4]))
        assert p.stats.tasks == 6


def test_records_stay_bounded() -> None:
    Y = Tensor(data=np.zeros(1, np.int64), name="Y")

    @workload
    def chain(rows: Any) -> None:
        for i in P(rows):
            step[i](Y, i)

    with windowed(chain(DenseDyn(30_000)), 1 << 60).compile(num_threads=2) as program:
        program.execute()
        assert program.stats.tasks == 30_000
        assert program.stats.live_high <= 8192


def test_explained() -> None:
    with windowed(grid(), 64).compile(num_threads=2) as program:
        program.execute()
        assert "window(64, bytes, stall)" in program.explain()
        assert "and 64 bytes" in program.explain()
