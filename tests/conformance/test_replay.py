"""Runs that are recorded, repeated, or drawn from a seed."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    Affinity,
    DenseDyn,
    Deps,
    DispatchPolicy,
    DType,
    ExecutionError,
    In,
    InOut,
    KernelError,
    P,
    Pools,
    Program,
    ReadyPolicy,
    Scalar,
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

WORKERS = 3
ROWS, COLS = 4, 6


@kernel(
    cpp_src="""
    if (slow[0] != 0) std::this_thread::sleep_for(std::chrono::microseconds(slow[0]));
    y[0] = y[0] * 3 + s;
    """,
    cpp_includes=["<chrono>", "<thread>"],
)
def step(y: InOut[Tensor], slow: In[Tensor], s: Scalar[DType.I64]): ...


def chains() -> Workload:
    """COLS chains of ROWS tasks. Tasks are longer where `slow` says so."""
    Y = Tensor(data=np.zeros(COLS, np.int64), name="Y")
    slow = Tensor(data=np.zeros(1, np.int64), name="slow")

    @workload
    def work(rows: Any, cols: Any) -> None:
        for i, j in P(rows, cols):
            step[i, j](Y[j : j + 1], slow[:], 10 * i + j)

    return work(DenseDyn(ROWS), DenseDyn(COLS))


def expected() -> list[int]:
    y = [0] * COLS
    for i in range(ROWS):
        y = [3 * y[j] + 10 * i + j for j in range(COLS)]
    return y


SCHEDULES: dict[str, Callable[[Workload], Workload]] = {
    "default": lambda w: w,
    "fifo": lambda w: w.task_graph(ready=ReadyPolicy.fifo()),
    "work_steal": lambda w: w.task_graph(ready=ReadyPolicy.work_steal()),
    "priority": lambda w: w.task_graph(ready=ReadyPolicy.priority(lambda t: t.cols)),
    "streams": lambda w: w.streams(4).stream_by(lambda t: t.ordinal).pipeline_depth(2),
    "dispatch": lambda w: w.dispatch(DispatchPolicy.round_robin(3)),
    "batched": lambda w: w.timing(TimingPolicy.batched(5)),
    "interleaved": lambda w: w.streams(3).timing(TimingPolicy.interleaved(3)),
    "rate_limit": lambda w: w.timing(TimingPolicy.rate_limit(100)),
    "pools": lambda w: w.task_graph(pools=Pools.custom(lambda t: t.cols, 2)),
    "window": lambda w: w.task_graph(window=TaskWindow(3)),
    "held": lambda w: w.task_graph(start=StartPolicy.after_orchestration(), window=TaskWindow(9)),
    "bytes": lambda w: w.task_graph(window=TaskWindow(20, "bytes")),
    "units": lambda w: w.task_graph(pools=Pools.by_exec_unit()),
    "batch_deps": lambda w: w.batch_deps(4),
    "batch_deps and gates": lambda w: w.batch_deps(100).pipeline_depth(2).streams(2),
    "affinity": lambda w: w.affinity(cols=Affinity.CORE_GROUP),
    "prefetch": lambda w: w.prefetch("cols", 1),
    "threshold": lambda w: w.task_graph(start=StartPolicy.threshold(7)),
}


def run(program: Program, start: Callable[..., Any]) -> np.ndarray:
    """Starts from zero, checks the result, and gives the decisions."""
    y = np.zeros(COLS, np.int64)
    start(Y=y)
    assert y.tolist() == expected()
    found = program.decisions
    assert len(found) == 2 * ROWS * COLS
    return found


def record_shared(program: Program, path: Path) -> np.ndarray:
    """A recording in which several workers took part."""
    slow = np.full(1, 200, np.int64)
    for _ in range(100):
        found = run(program, partial(program.record, path, slow=slow))
        program.execute(slow=np.zeros(1, np.int64))
        if len(set(found["worker"].tolist())) > 1:
            return found
    raise AssertionError("one worker took everything a hundred times")


def test_a_thousand_replays_of_a_stealing_run(tmp_path: Path) -> None:
    path = tmp_path / "run.rec"
    work = chains().task_graph(ready=ReadyPolicy.work_steal(), trace=TracePolicy.timestamps())
    with work.compile(num_threads=WORKERS) as program:
        wanted = record_shared(program, path)
        starts = wanted[~wanted["ends"]]
        for _ in range(1000):
            assert np.array_equal(run(program, partial(program.replay, path)), wanted)
            trace = np.sort(program.trace, order="take")
            assert trace["task_id"].tolist() == starts["task_id"].tolist()
            assert trace["worker"].tolist() == starts["worker"].tolist()


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_is_recorded_and_drawn(name: str, tmp_path: Path) -> None:
    path = tmp_path / "run.rec"
    with SCHEDULES[name](chains()).compile(num_threads=WORKERS) as program:
        wanted = run(program, partial(program.record, path))
        assert len(path.read_bytes()) <= 64 + 4 * ROWS * COLS
        for _ in range(3):
            assert np.array_equal(run(program, partial(program.replay, path)), wanted)
        seen = set()
        for seed in range(20):
            draw = partial(program.execute, seed=seed)
            drawn = [run(program, draw) for _ in range(2)]
            assert np.array_equal(*drawn)
            seen.add(drawn[0].tobytes())
        assert len(seen) > 10
        # What was drawn can be recorded like anything else.
        drawn_again = run(program, partial(program.record, path, seed=7))
        assert np.array_equal(run(program, partial(program.replay, path)), drawn_again)


def test_seeds_keep_to_the_schedule() -> None:
    work = chains().streams(2).stream_by(lambda t: t.cols).pipeline_depth(2)
    work = work.dispatch(DispatchPolicy.affinity(lambda t: t.rows))
    with work.compile(num_threads=WORKERS) as program:
        for seed in range(30):
            program.execute(seed=seed)
            running: set[int] = set()
            last = {0: -1, 1: -1}
            for task, worker, ends in program.decisions.tolist():
                if ends:
                    running.remove(task)
                    continue
                running.add(task)
                assert len(running) <= 2
                row, col = divmod(task, COLS)
                assert worker == row % WORKERS
                assert task > last[col % 2]
                last[col % 2] = task


def test_seeds_show_what_a_promise_hides() -> None:
    """Exact dependences miss overlaps that are not equal: some interleavings give other results."""

    @kernel(cpp_src="for (std::int64_t k = 0; k < x.shape(0); ++k) x[k] = x[k] * 2 + s;")
    def mix(x: InOut[Tensor], s: Scalar[DType.I64]): ...

    @workload
    def shifted(n: Any, X: Any) -> None:
        for i in P(n):
            mix[i](X[i : i + 3], i + 1)

    def results(policy: Any) -> set[tuple[int, ...]]:
        X = Tensor(data=np.zeros(6, np.int64))
        work = shifted(DenseDyn(4), X).task_graph(deps=policy)
        found = set()
        with work.compile(num_threads=2) as program:
            for seed in range(40):
                x = np.zeros(6, np.int64)
                program.execute(X=x, seed=seed)
                found.add(tuple(x.tolist()))
        return found

    assert len(results(Deps.infer_bytes_overlap())) == 1
    assert len(results(Deps.infer_tensor_map_exact())) > 1


# --- control that reads data ---


@kernel(cpp_src="c[0] -= 1;")
def down(c: InOut[Tensor]): ...


@kernel(cpp_src="y[0] = y[0] * 3 + s;")
def note(y: InOut[Tensor], s: Scalar[DType.I64]): ...


def countdown() -> Workload:
    C = Tensor(data=np.full(1, 5, np.int64), name="C")
    Y = Tensor(data=np.zeros(4, np.int64), name="Y")

    @workload
    def work(cols: Any) -> None:
        slot_load_u64(0, C[:], col=0)
        for i in P.loop_while(lambda: slot_u64(0) > 0, max_iterations=50):
            down[i](C[0:1])
            for j in P(cols):
                note[i, j](Y[j : j + 1], i + j)
            slot_load_u64(0, C[:], col=0)

    return work(DenseDyn(4))


def test_control_that_reads_data(tmp_path: Path) -> None:
    path = tmp_path / "run.rec"

    def start(program: Program, n: int, how: Callable[..., Any]) -> tuple[list[int], np.ndarray]:
        y = np.zeros(4, np.int64)
        how(C=np.full(1, n, np.int64), Y=y)
        return y.tolist(), program.decisions

    with countdown().compile(num_threads=WORKERS) as program:
        wanted = start(program, 6, partial(program.record, path))
        for _ in range(5):
            again = start(program, 6, partial(program.replay, path))
            assert again[0] == wanted[0]
            assert np.array_equal(again[1], wanted[1])
        for seed in range(20):
            drawn = start(program, 6, partial(program.execute, seed=seed))
            assert drawn[0] == wanted[0]
        for n in (3, 9):  # fewer tasks, and more
            with pytest.raises(ExecutionError, match="PTO512"):
                start(program, n, partial(program.replay, path))
        assert start(program, 6, partial(program.replay, path))[0] == wanted[0]


# --- what does not fit ---


def recorded(tmp_path: Path) -> tuple[Program, Path, bytes]:
    path = tmp_path / "run.rec"
    program = chains().compile(num_threads=WORKERS)
    program.record(path)
    return program, path, path.read_bytes()


def test_every_damaged_byte_is_noticed(tmp_path: Path) -> None:
    program, path, good = recorded(tmp_path)
    with program:
        for at in range(len(good)):
            path.write_bytes(good[:at] + bytes([good[at] ^ 0x41]) + good[at + 1 :])
            with pytest.raises(ExecutionError, match="PTO512"):
                program.replay(path)
            path.write_bytes(good[:at])
            with pytest.raises(ExecutionError, match="PTO512"):
                program.replay(path)
        path.write_bytes(good)
        program.replay(path)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda: chains().compile(num_threads=2), "made with 3 workers, here are 2"),
        (
            lambda: chains().streams(2).compile(num_threads=WORKERS),
            "made under another schedule",
        ),
        (lambda: countdown().compile(num_threads=WORKERS), "made with another plan"),
    ],
)
def test_recordings_of_other_programs(
    change: Callable[[], Program], why: str, tmp_path: Path
) -> None:
    program, path, _ = recorded(tmp_path)
    program.close()
    with change() as other, pytest.raises(ExecutionError, match=why):
        other.replay(path)


def test_a_recording_of_other_values(tmp_path: Path) -> None:
    program, path, _ = recorded(tmp_path)
    with program:
        with pytest.raises(ExecutionError, match="give other tasks: 24 of them, here are 18"):
            program.replay(path, rows=3)
        program.replay(path, rows=ROWS)


def test_a_trace_may_be_added_for_the_replay(tmp_path: Path) -> None:
    program, path, _ = recorded(tmp_path)
    wanted = program.decisions
    program.close()
    traced = chains().task_graph(trace=TracePolicy.timestamps())
    with traced.compile(num_threads=WORKERS) as other:
        other.replay(path)
        trace = np.sort(other.trace, order="take")
        assert trace["task_id"].tolist() == wanted["task_id"][~wanted["ends"]].tolist()


def fnv(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    for multiplier in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        value = (value ^ (value >> 33)) * multiplier % (1 << 64)
    return value ^ (value >> 33)


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([(0, 0), (1, 6)], "task 6 waits for others"),  # the next of the same chain
        ([(0, 0), (0, None), (1, 0)], "task 0 waits for others or has run"),
        ([(0, 24)], "task 24, of which there are fewer"),
        ([(0, 0), (0, None)], "there are more tasks"),
        ([], "there are more tasks"),
        ([(0, 0)], "there are more tasks"),
    ],
)
def test_orders_that_cannot_be(
    events: list[tuple[int, int | None]], why: str, tmp_path: Path
) -> None:
    """Recordings that are whole and tell nonsense."""
    program, path, good = recorded(tmp_path)
    body = bytearray(good[:46])
    body += bytes([ROWS * COLS, WORKERS])
    last = [0] * WORKERS
    for worker, task in events:
        body.append(worker)
        if task is not None:
            distance = task - last[worker]
            body.append(2 * distance if distance >= 0 else -2 * distance - 1)
            last[worker] = task
    path.write_bytes(bytes(body) + struct.pack("<Q", fnv(bytes(body))))
    with program:
        with pytest.raises(ExecutionError, match=why):
            program.replay(path)
        program.execute()


# --- failures ---


@kernel(cpp_src='if (y[0] >= limit[0]) ptowsp_fail("too much"); y[0] += 1;')
def climb(y: InOut[Tensor], limit: In[Tensor]): ...


def climbing() -> Workload:
    Y = Tensor(data=np.zeros(3, np.int64), name="Y")
    limit = Tensor(data=np.full(1, 4, np.int64), name="limit")

    @workload
    def work(rows: Any, cols: Any) -> None:
        for i, j in P(rows, cols):
            climb[i, j](Y[j : j + 1], limit[:])

    return work(DenseDyn(8), DenseDyn(3))


def test_a_run_that_fails_is_recorded_and_fails_again(tmp_path: Path) -> None:
    path = tmp_path / "run.rec"
    limit = np.full(1, 4, np.int64)
    with climbing().compile(num_threads=WORKERS) as program:
        with pytest.raises(KernelError, match="too much"):
            program.record(path, Y=np.zeros(3, np.int64), limit=limit)
        for _ in range(20):
            with pytest.raises(KernelError, match="too much"):
                program.replay(path, Y=np.zeros(3, np.int64), limit=limit)
        with pytest.raises(ExecutionError, match="of a run that failed here, and this one did not"):
            program.replay(path, Y=np.zeros(3, np.int64), limit=np.full(1, 100, np.int64))
        for seed in range(20):
            with pytest.raises(KernelError, match="too much"):
                program.execute(Y=np.zeros(3, np.int64), limit=limit, seed=seed)
        y = np.zeros(3, np.int64)
        program.execute(Y=y, limit=np.full(1, 100, np.int64), seed=1)
        assert y.tolist() == [8, 8, 8]


def test_drawn_runs_may_be_asynchronous() -> None:
    with chains().compile(num_threads=WORKERS) as program:
        y = np.zeros(COLS, np.int64)
        program.execute_async(Y=y, seed=3).synchronize()
        assert y.tolist() == expected()
        drawn = program.decisions
        program.execute(seed=3)
        assert np.array_equal(program.decisions, drawn)
        program.execute()
        with pytest.raises(ExecutionError, match="nobody kept the decisions"):
            _ = program.decisions


def test_targets_with_one_order(tmp_path: Path) -> None:
    with chains().compile(target="reference") as program:
        with pytest.raises(ExecutionError, match="reference has one order of tasks"):
            program.record(tmp_path / "run.rec")
        with pytest.raises(ExecutionError, match="seed must be an integer"):
            program.execute(seed=-1)
