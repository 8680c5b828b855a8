"""Program: running, waiting, looking at what happened."""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    DenseDyn,
    ExecutionError,
    In,
    InOut,
    KernelError,
    P,
    Program,
    ReadyPolicy,
    SynchronizeTimeout,
    TaskWindow,
    Tensor,
    TracePolicy,
    kernel,
    workload,
)
from pto_wsp.backends import registry
from pto_wsp.error_codes import Code


@kernel
def update(x: In[Tensor], y: InOut[Tensor]):
    y[...] = y * 3 + x


class Gate:
    """A kernel that waits until it is let through, so that a run is in flight for sure."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.reached = threading.Event()

        @kernel
        def held(y: InOut[Tensor]):
            self.reached.set()
            assert self.open.wait(60)
            y += 1

        @workload
        def work(n, Y):
            for i in P.seq(n):
                held[i](y=Y[i])

        self.work = work

    def compile(self, target: str, n: int = 3, **options: Any) -> Program:
        return self.work(DenseDyn(n), Tensor(data=np.zeros(8))).compile(target=target, **options)


@pytest.fixture(params=registry.host_names())
def target(request: pytest.FixtureRequest) -> str:
    return request.param


@workload
def chain(n, X, Y):
    for i in P(n):
        update[i](x=X[i], y=Y[0])


def make_chain(target: str, n: int = 5, schedule: Any = None, **options: Any) -> Program:
    work = chain(DenseDyn(n), Tensor(data=np.arange(64)), Tensor(data=np.zeros(1, np.int64)))
    return work.task_graph(**(schedule or {})).compile(target=target, **options)


def folded(n: int) -> int:
    y = 0
    for i in range(n):
        y = y * 3 + i
    return y


# --- execute, execute_async, synchronize ---------------------------------------------------------


def test_execute_runs_to_the_end_and_again(target: str) -> None:
    program = make_chain(target)
    y = np.zeros(1, np.int64)
    assert program.execute(Y=y) is program
    assert y[0] == folded(5)
    y[0] = 0
    program.execute()
    assert y[0] == folded(5)
    assert program.is_complete()


def test_async_runs_queue_in_call_order(target: str) -> None:
    program = make_chain(target)
    y = np.zeros(1, np.int64)
    for n in (3, 1, 4, 1, 5):
        assert program.execute_async(n=n, Y=y) is program
    program.execute(n=2)
    assert program.synchronize() is program
    expected = 0
    for n in (3, 1, 4, 1, 5, 2):
        for i in range(n):
            expected = expected * 3 + i
    assert y[0] == expected


def test_synchronize_times_out_and_the_run_goes_on(target: str) -> None:
    gate = Gate()
    program = gate.compile(target)
    y = np.zeros(8)
    program.execute_async(Y=y).execute_async()
    assert gate.reached.wait(60)
    assert not program.is_complete()
    for timeout in (0, 0.02):
        with pytest.raises(SynchronizeTimeout) as raised:
            program.synchronize(timeout=timeout)
        assert raised.value.message == f"2 run(s) not done after {timeout} s"
        assert raised.value.fix == "they go on; call synchronize() again"
        assert isinstance(raised.value, TimeoutError)
    assert not program.is_complete()
    gate.open.set()
    program.synchronize(timeout=60)
    assert program.is_complete()
    assert y.tolist() == [2, 2, 2, 0, 0, 0, 0, 0]


def test_is_complete_before_and_after(target: str) -> None:
    gate = Gate()
    program = gate.compile(target)
    assert program.is_complete()
    program.execute_async()
    assert gate.reached.wait(60)
    assert not program.is_complete()
    gate.open.set()
    program.synchronize()
    assert program.is_complete()


def test_synchronize_without_runs(target: str) -> None:
    make_chain(target).synchronize().synchronize(timeout=0)


def test_arrays_of_an_async_run_stay_alive(target: str) -> None:
    gate = Gate()
    program = gate.compile(target)
    y = np.zeros(8)
    other = np.zeros(8)
    program.execute_async(Y=y)
    assert gate.reached.wait(60)
    watch = y[:]
    address = watch.ctypes.data
    del y, watch
    program.execute_async(Y=other)
    gc.collect()
    filler = [np.full(8, 9.0) for _ in range(64)]  # would land in memory that was given back
    assert address not in [array.ctypes.data for array in filler]
    gate.open.set()
    program.synchronize()
    assert other.tolist() == [1, 1, 1, 0, 0, 0, 0, 0]
    assert all((array == 9).all() for array in filler)


def test_several_programs_run_at_once(target: str) -> None:
    """Two programs meet inside their kernels, so neither waits for the other to end."""
    meeting = threading.Barrier(2, timeout=60)

    @kernel
    def meet(y: InOut[Tensor]):
        meeting.wait()
        y += 1

    @workload
    def work(n, Y):
        for i in P(n):
            meet[i](y=Y[i])

    arrays = [np.zeros(1), np.zeros(1)]
    programs = [work(DenseDyn(1), Tensor(data=y)).compile(target=target) for y in arrays]
    for program in programs:
        program.execute_async()
    for program in programs:
        program.synchronize(timeout=60)
    assert arrays == [1, 1]


def test_one_program_from_several_threads(target: str) -> None:
    """Runs queue; each has its own bindings."""
    program = make_chain(target)
    arrays = [np.zeros(1, np.int64) for _ in range(6)]

    def run(number: int) -> None:
        for _ in range(5):
            arrays[number][0] = 0
            program.execute(n=number + 1, Y=arrays[number], X=np.arange(64))

    threads = [threading.Thread(target=run, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [int(y[0]) for y in arrays] == [folded(k + 1) for k in range(6)]


def test_errors_in_threads_stay_in_their_thread(target: str) -> None:
    @kernel
    def fail_on_odd(y: InOut[Tensor]):
        assert y[()] % 2 == 0, "odd"
        y += 2

    @workload
    def work(n, Y):
        for i in P(n):
            fail_on_odd[i](y=Y[i])

    program = work(DenseDyn(3), Tensor(data=np.zeros(3))).compile(target=target)
    found: dict[int, BaseException | None] = {}

    def run(number: int) -> None:
        try:
            program.execute(Y=np.full(3, float(number)))
            found[number] = None
        except KernelError as error:
            found[number] = error

    threads = [threading.Thread(target=run, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(8):
        error = found[number]
        if number % 2 == 0:
            assert error is None
        else:
            assert isinstance(error, KernelError)
            assert isinstance(error.__cause__, AssertionError)


def test_a_kernel_may_run_another_program(target: str) -> None:
    inner = make_chain(target)

    @kernel
    def outer(y: InOut[Tensor]):
        result = np.zeros(1, np.int64)
        inner.execute(n=4, Y=result)
        y[...] = result[0]

    @workload
    def work(n, Y):
        for i in P(n):
            outer[i](y=Y[i])

    y = np.zeros(5, np.int64)
    work(DenseDyn(5), Tensor(data=y)).compile(target=target).execute()
    assert y.tolist() == [folded(4)] * 5


# --- stats and trace -----------------------------------------------------------------------------


def test_nothing_to_look_at_before_the_first_run(target: str) -> None:
    program = make_chain(target, schedule={"trace": TracePolicy.timestamps()})
    for look in (lambda: program.stats, lambda: program.trace, program.elapsed_ms):
        with pytest.raises(ExecutionError) as raised:
            look()
        assert raised.value.message == "no run has ended yet"
        assert raised.value.fix == "call execute(), or synchronize() after execute_async()"


def test_stats_are_of_the_last_run_that_was_waited_for(target: str) -> None:
    program = make_chain(target)
    assert program.execute(n=4).stats.tasks == 4
    assert program.execute_async(n=2).synchronize().stats.tasks == 2
    program.execute(n=6)
    stats = program.stats
    assert (stats.tasks, stats.generated, sum(stats.worker_tasks)) == (6, 6, 6)
    assert stats.workers == program.num_workers == len(stats.worker_tasks)
    assert stats.elapsed_ns > 0
    assert 0 < stats.began_ns <= time.monotonic_ns() - stats.elapsed_ns
    assert program.elapsed_ms() == stats.elapsed_ns / 1e6
    assert "tasks: 6" in str(stats)


def test_stats_of_a_chain_on_the_native_core() -> None:
    """All fields that do not depend on time. The chain has one dependence per neighbour."""
    schedule = {"ready": ReadyPolicy.fifo(), "window": TaskWindow(16)}
    stats = make_chain("cpu_sim", n=40, schedule=schedule, num_threads=1).execute().stats
    assert (stats.tasks, stats.generated, stats.phases) == (40, 40, 0)
    assert stats.edges <= 39  # a task that has ended needs no edge
    assert 1 <= stats.live_high <= 16
    assert 1 <= stats.ready_high <= 16
    assert stats.stolen == stats.parks == stats.window_overflows == stats.start_released == 0
    assert stats.bounds_proved == 2
    assert stats.bounds_checked == stats.trace_dropped == 0
    assert stats.memory_bytes > 0
    assert stats.workers == 1
    assert stats.worker_tasks == (40,)


def test_without_a_trace_there_are_no_events(target: str, tmp_path: Path) -> None:
    program = make_chain(target).execute()
    with pytest.raises(ExecutionError, match="the last run kept no trace") as caught:
        program.save_trace(tmp_path / "trace.json")
    assert caught.value.code is Code.PROGRAM_STATE
    assert not (tmp_path / "trace.json").exists()
    assert len(program.trace) == 0
    assert program.trace.dtype.names is not None
    assert "task_id" in program.trace.dtype.names


def test_trace_of_one_worker_in_fifo_order() -> None:
    """One worker takes the ready task that was submitted first, which is program order."""

    @workload
    def nest(rows, cols, X, Y):
        for i in P(rows):
            for j in P(cols):
                update[i, j](x=X[j], y=Y[i])
            update[i](x=X[i], y=Y[i])

    work = nest(DenseDyn(6), DenseDyn(5), Tensor(data=np.arange(8)), Tensor(data=np.zeros(8, int)))
    schedule = {"ready": ReadyPolicy.fifo(), "trace": TracePolicy.timestamps()}
    program = work.task_graph(**schedule).compile(num_threads=1).execute()
    trace = program.trace
    assert len(trace) == 36
    assert trace["take"].tolist() == trace["seq"].tolist() == trace["task_id"].tolist()
    assert trace["take"].tolist() == list(range(36))
    assert set(trace["kernel"]) == {"update"}
    assert sorted(set(trace["site"])) == [0, 1]
    assert trace["indices"].shape == (36, 2)
    assert trace["indices"][:6].tolist() == [[0, j] for j in range(5)] + [[0, 0]]
    assert not trace["stolen"].any()
    assert not trace["worker"].any()
    assert not trace["stream"].any()
    assert not trace["pool"].any()
    assert (trace["ready_ns"] <= trace["start_ns"]).all()
    assert (trace["start_ns"] <= trace["end_ns"]).all()
    assert (trace["end_ns"][:-1] <= trace["start_ns"][1:]).all()  # one after the other
    assert int(trace["end_ns"].max()) <= program.stats.elapsed_ns


def test_thieves_take_tasks_of_others() -> None:
    """The first tasks meet in pairs, so at least two workers run, and only one generates."""
    meeting = threading.Barrier(2, timeout=60)

    @kernel
    def meet(y: InOut[Tensor]):
        meeting.wait()
        y += 1

    @workload
    def work(n, Y):
        for i in P(n):
            meet[i](y=Y[i])

    schedule = {"ready": ReadyPolicy.work_steal(), "trace": TracePolicy.timestamps()}
    y = np.zeros(16)
    program = work(DenseDyn(16), Tensor(data=y)).task_graph(**schedule).compile(num_threads=4)
    program.execute()
    assert (y == 1).all()
    stolen = program.trace["stolen"]
    assert stolen.any()
    assert int(stolen.sum()) == program.stats.stolen
    assert len(set(program.trace["worker"].tolist())) >= 2
    assert sum(count > 0 for count in program.stats.worker_tasks) >= 2


def test_a_full_trace_keeps_the_newest_events_and_counts_the_rest(target: str) -> None:
    schedule = {"trace": TracePolicy.timestamps(capacity=4), "ready": ReadyPolicy.fifo()}
    options = {"num_threads": 1} if target == "cpu_sim" else {}
    program = make_chain(target, n=10, schedule=schedule, **options).execute()
    assert program.trace["task_id"].tolist() == [6, 7, 8, 9]
    assert program.stats.trace_dropped == 6


def test_a_trace_survives_later_runs(target: str) -> None:
    program = make_chain(target, schedule={"trace": TracePolicy.timestamps()})
    first = program.execute(n=3).trace
    program.execute(n=5)
    assert (len(first), len(program.trace)) == (3, 5)
    program.close()
    assert len(program.trace) == 5


# --- the end of a program ------------------------------------------------------------------------


def threads_of_process() -> int:
    gc.collect()  # programs of earlier tests may wait for it
    return len(os.listdir("/proc/self/task"))


def assert_threads(most: int) -> None:
    """The operating system may list a thread for a moment after it was joined."""
    deadline = time.monotonic() + 30
    while threads_of_process() > most and time.monotonic() < deadline:
        time.sleep(0.001)
    assert threads_of_process() <= most


def test_close_ends_a_run_and_refuses_more(target: str) -> None:
    gate = Gate()
    with gate.compile(target, n=8) as program:
        y = np.zeros(8)
        program.execute_async(Y=y)
        assert gate.reached.wait(60)
        timer = threading.Timer(0.05, gate.open.set)  # close() waits for the kernel that runs
        timer.start()
    timer.join()
    assert y.sum() < 8
    for call in (program.execute, program.execute_async, program.task_hash, program.num_tasks):
        with pytest.raises(ExecutionError, match="this program was closed"):
            call()
    program.close()  # a second time does nothing


@pytest.mark.parametrize("way", ["close", "del", "with"])
def test_no_thread_survives(target: str, way: str) -> None:
    options = {"num_threads": 4} if target == "cpu_sim" else {}
    before = threads_of_process()
    program = make_chain(target, **options)
    program.execute()
    program.execute_async().synchronize()
    if way == "close":
        program.close()
    elif way == "with":
        with program:
            pass
    del program
    gc.collect()
    assert_threads(before)


def test_a_program_that_goes_ends_its_run() -> None:
    gate = Gate()
    before = threads_of_process()
    program = gate.compile("cpu_sim", n=8, num_threads=3)
    y = np.zeros(8)
    program.execute_async(Y=y)
    assert gate.reached.wait(60)
    assert threads_of_process() > before
    timer = threading.Timer(0.05, gate.open.set)
    timer.start()
    del program
    gc.collect()
    timer.join()
    assert y.sum() < 8
    assert_threads(before)


def test_repr_and_workers() -> None:
    program = make_chain("cpu_sim", num_threads=3)
    assert program.num_workers == 3
    text = repr(program)
    assert text == f"<Program on cpu_sim: {program.plan.task_bytes} bytes, kernels update>"
