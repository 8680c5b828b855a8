"""What programs record of their runs: edges, files, counters, and runs on a virtual clock."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    Channel,
    DenseDyn,
    DType,
    ExecutionError,
    In,
    InOut,
    KernelError,
    Out,
    P,
    Pools,
    Program,
    ReadyPolicy,
    ScheduleError,
    StartPolicy,
    TaskWindow,
    Tensor,
    Tile,
    TimingPolicy,
    TracePolicy,
    Workload,
    connect,
    consume,
    kernel,
    process,
    replicate,
    select,
    send,
    workload,
)

N = 8


@kernel(cpp_src="out[0] = up[0] + left[0] + 1;")
def cell(up: In[Tensor], left: In[Tensor], out: Out[Tensor]): ...


@kernel(cpp_src="x[0] += 1;")
def step(x: InOut[Tensor]): ...


def wave() -> Workload:
    X = Tensor(data=np.zeros((N + 1, N + 1)))

    @workload
    def grid(rows, cols):
        for i, j in P(rows, cols):
            cell[i, j](up=X[i, j + 1], left=X[i + 1, j], out=X[i + 1, j + 1])

    return grid(DenseDyn(N), DenseDyn(N))


def flat(count: int) -> Workload:
    X = Tensor(data=np.zeros(count))

    @workload
    def independent(n):
        for i in P(n):
            step[i](X[i])

    return independent(DenseDyn(count))


def neighbours() -> set[tuple[int, int]]:
    """The edges of the grid in closed form."""
    down = {(i * N + j, (i + 1) * N + j) for i in range(N - 1) for j in range(N)}
    return down | {(i * N + j, i * N + j + 1) for i in range(N) for j in range(N - 1)}


def virtual(work: Workload, workers: int, cycles: Any = lambda t: 10, **graph: Any) -> Program:
    traced = work.task_graph(trace=TracePolicy.cycles(cycles), **graph)
    with traced.compile(num_threads=workers) as program:
        return program.execute()


def makespan(program: Program) -> int:
    return int(program.trace["end_ns"].max())


# --- edges ---


def test_edges_of_a_held_grid_are_those_of_the_closed_form() -> None:
    held = wave().task_graph(
        start=StartPolicy.after_orchestration(), trace=TracePolicy.timestamps()
    )
    with held.compile(num_threads=2) as program:
        program.execute()
        assert {(int(s), int(d)) for s, d in program.edges} == neighbours()
        assert len(program.edges) == program.stats.edges


def test_edges_of_phases_come_from_the_task_that_ends_last() -> None:
    X = Tensor(data=np.zeros((3, 4)))

    @workload
    def phases(rounds, width):
        for r in P.seq(rounds):
            for i in P(width):
                step[r, i](X[r, i])

    work = phases(DenseDyn(3), DenseDyn(4))
    program = virtual(
        work, 2, lambda t: select(t.width == 1, 15, 10), start=StartPolicy.immediate()
    )
    # Of each round, task 1 is the longest; of two workers, one runs 0 and 2, 3, the other 1.
    trace = np.sort(program.trace, order="seq")
    last = [max(range(4 * r, 4 * r + 4), key=lambda t: trace["end_ns"][t]) for r in range(2)]
    wanted = {(last[r], 4 * (r + 1) + i) for r in range(2) for i in range(4)}
    assert {(int(s), int(d)) for s, d in program.edges} == wanted


def test_strips_wait_for_strips() -> None:
    """Under the default order, consecutive tasks may share a record: whoever waits for it waits
    for its last task."""
    X = Tensor(data=np.zeros((3, 4096)))

    @workload
    def rows(steps, width):
        for t, i in P(steps, width):
            step[t, i](X[t, i])
        for i in P(width):
            step[i](X[0, i])

    traced = rows(DenseDyn(3), DenseDyn(4096)).task_graph(trace=TracePolicy.timestamps())
    with traced.compile(num_threads=2) as program:
        program.execute()
        trace, edges = np.sort(program.trace, order="seq"), program.edges
    assert len(trace) == 4 * 4096
    ends, starts = trace["end_ns"][edges["src"]], trace["start_ns"][edges["dst"]]
    assert (ends <= starts).all()


def test_nothing_is_recorded_without_a_policy() -> None:
    with wave().compile() as program:
        program.execute()
        assert (len(program.trace), len(program.edges)) == (0, 0)


# --- files ---


def read(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    return json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)


@pytest.mark.parametrize("target", ["cpu_sim", "reference"])
@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_whole_trace_in_a_file(tmp_path: Path, target: str, name: str) -> None:
    """Rings of 16 tasks, and yet nothing is lost."""
    path = tmp_path / name
    policy = TracePolicy.timestamps(path, capacity=16)
    with flat(1000).task_graph(trace=policy).compile(target=target) as program:
        for count in (1000, 700):
            program.execute(n=count)
            slices = [e for e in read(path)["traceEvents"] if e["ph"] == "X"]
            assert sorted(e["args"]["seq"] for e in slices) == list(range(count))
            assert {e["name"] for e in slices} == {"step"}
            assert sorted(program.trace["task_id"].tolist()) == list(range(count))
            assert program.stats.trace_dropped == 0
    del program
    assert [found.name for found in tmp_path.iterdir()] == [name]


def test_files_of_asynchronous_runs_and_instances(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    policy = TracePolicy.timestamps(path, capacity=16)
    with flat(100).task_graph(trace=policy).compile() as program:
        for count in (90, 40, 70):
            program.execute_async(n=count)
        program.synchronize()
        assert read(path)["otherData"]["tasks"] == len(program.trace) == 70
        with program.instance() as other:
            other.execute(n=20)
        assert read(path)["otherData"]["tasks"] == 70
        assert read(tmp_path / "2-trace.json")["otherData"]["tasks"] == 20


def test_trace_of_a_run_that_fails_is_written(tmp_path: Path) -> None:
    X = Tensor(data=np.zeros(10))

    @kernel
    def picky(x: InOut[Tensor]):
        if x[()] < 0:
            raise ValueError("negative")

    @workload
    def line(n):
        for i in P.seq(n):
            picky[i](X[i])

    X.data[6] = -1
    policy = TracePolicy.timestamps(tmp_path / "trace.json")
    with line(DenseDyn(10)).task_graph(trace=policy).compile() as program:
        with pytest.raises(KernelError, match="negative"):
            program.execute()
        slices = [e for e in read(tmp_path / "trace.json")["traceEvents"] if e["ph"] == "X"]
    assert [e["args"]["seq"] for e in slices] == list(range(7))


def test_files_that_cannot_be(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere" / "trace.json"
    with pytest.raises(ScheduleError, match="there is no folder"):
        wave().task_graph(trace=TracePolicy.timestamps(missing)).compile()
    with pytest.raises(ScheduleError, match="it is a path"):
        TracePolicy.timestamps(65536)  # pyright: ignore[reportArgumentType]
    folder = tmp_path / "there"
    folder.mkdir()
    with flat(10).task_graph(trace=TracePolicy.timestamps(folder / "t.json")).compile() as program:
        folder.rmdir()
        with pytest.raises(ExecutionError, match="trace cannot be written"):
            program.execute()
        folder.mkdir()
        program.execute()
        assert read(folder / "t.json")["otherData"]["tasks"] == 10


def test_flows_of_a_file_join_the_right_slices(tmp_path: Path) -> None:
    """Each arrow begins inside of the slice of the task waited for, and ends where the other one
    begins."""
    path = tmp_path / "trace.json"
    held = {"start": StartPolicy.after_orchestration(), "ready": ReadyPolicy.work_steal()}
    traced = wave().task_graph(trace=TracePolicy.timestamps(path), **held)
    with traced.compile(num_threads=2) as program:
        program.execute()
    found = read(path)["traceEvents"]
    slices = [e for e in found if e["ph"] == "X"]
    begins = {e["id"]: e for e in found if e["ph"] == "s"}
    ends = {e["id"]: e for e in found if e["ph"] == "f"}
    assert begins.keys() == ends.keys()

    def ns(us: float) -> int:  # a slice begins where the one before it ends: no sums of fractions
        return round(us * 1000)

    def inside(arrow: dict[str, Any]) -> list[int]:
        return [
            s["args"]["seq"]
            for s in slices
            if s["tid"] == arrow["tid"] and 0 <= ns(arrow["ts"]) - ns(s["ts"]) < ns(s["dur"])
        ]

    joined = {(*inside(begins[k]), *inside(ends[k])) for k in begins}
    assert joined == neighbours()
    starts = {(s["tid"], s["ts"]) for s in slices}
    assert all((e["tid"], e["ts"]) in starts for e in ends.values())
    assert all(ends[k]["ts"] >= begins[k]["ts"] for k in begins)


def test_counters_of_a_small_window(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    policy = TracePolicy.cycles(lambda t: 10)
    with flat(64).task_graph(trace=policy, window=TaskWindow(4)).compile(num_threads=2) as program:
        program.execute().save_trace(path)
    counted: dict[str, list[int]] = {}
    for e in read(path)["traceEvents"]:
        if e["ph"] == "C":
            counted.setdefault(e["name"], []).append(e["args"]["tasks"])
    assert max(counted["running"]) == 2
    assert max(counted["ready"]) == 2
    assert max(counted["window"]) == 4
    assert counted["window"][-1] == 0
    assert set(counted["window full"]) == {0, 1}


# --- the virtual clock ---


@pytest.mark.parametrize(("workers", "cycles"), [(1, 640), (N, 150), (64, 150)])
def test_makespan_of_the_grid(workers: int, cycles: int) -> None:
    """One worker needs the sum, many need the longest path."""
    program = virtual(wave(), workers)
    assert makespan(program) == cycles
    assert program.num_workers == workers
    assert {(int(s), int(d)) for s, d in program.edges} == neighbours()


def test_results_do_not_depend_on_the_clock() -> None:
    X = Tensor(data=np.zeros(50))

    @workload
    def sums(n):
        for i in P(n):
            for k in P(i + 1):
                step[i, k](X[i])

    virtual(sums(DenseDyn(50)), 7, lambda t: t.n * t.n + 1)
    assert X.data.tolist() == list(range(1, 51))


def test_durations_are_keys() -> None:
    program = virtual(flat(6), 2, lambda t: 3 * t.n)
    trace = program.trace
    lengths = (trace["end_ns"] - trace["start_ns"]).tolist()
    assert lengths == (3 * trace["indices"][:, 0]).tolist()
    for worker in (0, 1):
        mine = trace[trace["worker"] == worker]
        assert (mine["end_ns"][:-1] <= mine["start_ns"][1:]).all()


@pytest.mark.parametrize("ready", [None, ReadyPolicy.work_steal(), ReadyPolicy.fifo()])
def test_the_same_program_has_the_same_trace(ready: ReadyPolicy | None) -> None:
    first, second = (virtual(wave(), 3, lambda t: 7 + t.rows, ready=ready) for _ in range(2))
    assert first.trace.tobytes() == second.trace.tobytes()


def test_directives_act_in_virtual_time() -> None:
    assert makespan(virtual(flat(12), 3)) == 40
    assert makespan(virtual(flat(12).pipeline_depth(1), 3)) == 120
    assert makespan(virtual(flat(12), 4, window=TaskWindow(2))) == 60
    assert makespan(virtual(flat(12).streams(2), 3)) == 60
    by_half = Pools.custom(lambda t: select(t.n >= 8, 1, 0), 2)
    assert makespan(virtual(flat(12), 4, pools=by_half)) == 40  # 8 tasks for two workers


def test_priority_in_virtual_time() -> None:
    program = virtual(flat(9), 1, ready=ReadyPolicy.priority(lambda t: t.n % 3))
    assert program.trace["task_id"].tolist() == [2, 5, 8, 1, 4, 7, 0, 3, 6]


def test_rate_limit_in_virtual_time() -> None:
    """A cycle counts as a nanosecond: 100 tasks a millisecond are one in 10,000 cycles."""
    program = virtual(flat(6).timing(TimingPolicy.rate_limit(100)), 2)
    starts = np.sort(program.trace["start_ns"].astype(np.int64))
    assert all(b - a >= 10_000 for a, b in pairwise(starts.tolist()))
    assert makespan(program) < 70_000


def test_batches_let_go_in_virtual_time() -> None:
    program = virtual(flat(10).timing(TimingPolicy.batched(8)), 4)
    assert len(program.trace) == 10
    assert program.stats.timing_released > 0


def test_batches_of_dependences_in_virtual_time() -> None:
    """A worker that would idle commits what it has, so nothing is lost but nothing hangs either."""
    for batch in (1, 3, 100):
        program = virtual(wave().batch_deps(batch), 4)
        assert len(program.trace) == N * N
        assert makespan(program) <= 10 * N * N
    assert makespan(virtual(wave().batch_deps(1), N)) == 150


def test_other_ways_to_repeat_a_run_are_refused(tmp_path: Path) -> None:
    traced = flat(4).task_graph(trace=TracePolicy.cycles(lambda t: 1))
    with traced.compile(num_threads=2) as program:
        with pytest.raises(ScheduleError, match="is the same each time"):
            program.record(tmp_path / "run.rec")
        with pytest.raises(ScheduleError, match="is the same each time"):
            program.execute(seed=3)
        assert makespan(program.execute()) == 2


def test_cycles_that_cannot_be() -> None:
    with pytest.raises(ScheduleError, match=r"TracePolicy.cycles gives -1 cycles .*step\[1\]"):
        virtual(flat(3), 2, lambda t: 0 - t.n)
    with pytest.raises(ExecutionError, match="division by zero"):
        virtual(flat(3), 2, lambda t: 10 // t.n)
    with pytest.raises(ScheduleError, match="reference target cannot enforce this trace policy"):
        flat(3).task_graph(trace=TracePolicy.cycles(lambda t: 1)).compile(target="reference")


def test_a_kernel_that_fails_in_virtual_time() -> None:
    @kernel(cpp_src='throw std::runtime_error("no");')
    def fails(x: InOut[Tensor]): ...

    X = Tensor(data=np.zeros(4))

    @workload
    def broken(n):
        for i in P(n):
            fails[i](X[i])

    traced = broken(DenseDyn(4)).task_graph(trace=TracePolicy.cycles(lambda t: 1))
    with traced.compile(num_threads=2) as program:
        for _ in range(2):
            with pytest.raises(KernelError, match="no"):
                program.execute()


def test_workers_are_called_like_their_processes(tmp_path: Path) -> None:
    loaded, done = (Channel[Tile[1, DType.F64]](name, depth=2) for name in ("loaded", "done"))
    cells = Tensor(data=np.zeros((N, 1)), name="cells")

    @kernel
    def copy(x: In[Tensor], y: Out[Tensor]) -> None:
        y[...] = x

    def load() -> None:
        for i in P(N):
            send(loaded, copy[i](x=cells[i]))

    def work() -> None:
        with consume(loaded) as x:
            send(done, copy(x=x))

    def store() -> None:
        with consume(done) as y:
            copy(x=y, y=cells[y.number])

    stages = [
        process("load").produces(loaded).body(load),
        replicate(process("work").consumes(loaded).produces(done).body(work), 2),
        process("store").consumes(done).body(store),
    ]
    timed = connect(stages, [loaded, done]).task_graph(trace=TracePolicy.cycles(lambda t: 1))
    program = timed.compile()
    program.execute()
    program.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert names == [
        "worker 0, load",
        "worker 1, work 0",
        "worker 2, work 1",
        "worker 3, store",
    ]
