"""Processes and channels: what a program with them computes, and in which order its tasks run."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    Channel,
    ChannelClosed,
    ChannelError,
    ChannelFull,
    CompileError,
    DeadlockError,
    DenseDyn,
    Deps,
    DispatchPolicy,
    DType,
    Event,
    ExecutionError,
    In,
    KernelError,
    Out,
    P,
    Parallel,
    Program,
    RaceError,
    ReadyPolicy,
    Scalar,
    ScheduleError,
    TaskWindow,
    Tensor,
    Tile,
    TracePolicy,
    Workload,
    close,
    connect,
    consume,
    kernel,
    process,
    receive,
    record,
    replicate,
    send,
    synchronize,
    workload,
)
from pto_wsp.backends import registry

N, WIDTH = 9, 4
ELEMENT = Tile[WIDTH, DType.F32]


@kernel
def load(x: In[Tensor], t: Out[Tensor]):
    t[...] = x


@kernel
def compute(t: In[Tensor], r: Out[Tensor]):
    if t[0] < 0:
        raise ValueError("negative")
    r[...] = 2 * t + 1


@kernel
def store(r: In[Tensor], y: Out[Tensor]):
    y[...] = r


@kernel
def slow(t: In[Tensor], y: Out[Tensor]):
    time.sleep(0.005)
    y[...] = t


@kernel
def number(t: Out[Tensor], i: Scalar[DType.I64]):
    t[...] = i


class Pipeline:
    """load, compute and store, on arrays of its own."""

    def __init__(self, depth: int = 2, latency: int = 0, replicas: int = 1) -> None:
        self.x = np.arange(N * WIDTH, dtype=np.float32).reshape(N, WIDTH)
        self.y = np.zeros_like(self.x)
        X, Y = Tensor(data=self.x, name="X"), Tensor(data=self.y, name="Y")
        a = Channel[ELEMENT]("a", depth=depth, latency=latency)
        b = Channel[ELEMENT]("b", depth=depth, latency=latency)

        @workload
        def loads(tiles: Any):
            for i in P(tiles):
                send(a, load[i](x=X[i]))

        def computes():
            with consume(a) as t:
                send(b, compute(t=t))

        def stores():
            with consume(b) as r:
                store[r.number](r=r, y=Y[r.number])

        middle = process("compute").consumes(a).produces(b).body(computes)
        parts = [
            process("load").produces(a).body(loads(DenseDyn(N))),
            replicate(middle, replicas) if replicas > 1 else middle,
            process("store").consumes(b).body(stores),
        ]
        self.work: Workload = connect(parts, [a, b])

    def check(self) -> None:
        np.testing.assert_array_equal(self.y, 2 * self.x + 1)


@pytest.mark.parametrize("depth", [0, 1, 2, 5])
@pytest.mark.parametrize("replicas", [1, 3])
def test_messages_arrive_in_order(target: str, depth: int, replicas: int) -> None:
    pipeline = Pipeline(depth, replicas=replicas)
    program = pipeline.work.compile(target=target)
    program.execute()
    pipeline.check()
    assert program.stats.tasks == 3 * N
    program.execute(tiles=4)
    assert program.stats.tasks == 12


def test_extents_and_hash_are_those_of_every_target() -> None:
    hashes = set()
    for target in registry.host_names():
        program = Pipeline().work.compile(target=target)
        program.execute(hash=True)
        hashes.add(program.task_hash())
        assert program.num_tasks() == 3 * N
    assert len(hashes) == 1


def by_number(trace: Any, kernel: str) -> Any:
    """The rows of a kernel, in the order of messages."""
    rows = trace[trace["kernel"] == kernel]
    return rows[np.argsort(rows["task_id"])]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_buffer_is_written_again_when_its_reader_has_ended(depth: int) -> None:
    work = Pipeline(depth).work.task_graph(trace=TracePolicy.timestamps())
    program = work.compile(num_threads=3)
    program.execute()
    writes, reads = by_number(program.trace, "load"), by_number(program.trace, "compute")
    assert (writes["end_ns"] <= reads["start_ns"]).all()
    assert (reads["end_ns"][:-depth] <= writes["start_ns"][depth:]).all()
    assert program.stats.channel_high <= depth
    assert program.stats.messages == 2 * N


@pytest.mark.parametrize("workers", [1, 2])
def test_stages_overlap_with_two_buffers_and_not_with_one(workers: int) -> None:
    """On a virtual clock, where each process has a worker: 10 cycles a task."""

    def makespan(depth: int, latency: int = 0) -> int:
        policy = TracePolicy.cycles(lambda t: 10)
        work = Pipeline(depth, latency).work.task_graph(trace=policy)
        program = work.compile(num_threads=workers)
        program.execute()
        assert program.stats.worker_tasks == (N, N, N)
        return int(program.trace["end_ns"].max())

    assert makespan(2) == 10 * (N + 2)
    assert makespan(1) == 10 * (2 * N + 1)
    assert makespan(4, latency=5) == 10 * (N + 2) + 2 * 5
    assert makespan(2, latency=5) > makespan(4, latency=5)
    assert makespan(0) == makespan(1)


def test_latency_counts_under_a_schedule_too() -> None:
    def ends(latency: int) -> int:
        work = Pipeline(2, latency).work.dispatch(DispatchPolicy.round_robin(3))
        program = work.task_graph(trace=TracePolicy.cycles(lambda t: 10)).compile()
        program.execute()
        reads, writes = (by_number(program.trace, name) for name in ("compute", "load"))
        assert (reads["start_ns"] >= writes["end_ns"] + latency).all()
        return int(program.trace["end_ns"].max())

    assert ends(7) > ends(0)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_under_windows_streams_and_depth(workers: int) -> None:
    pipeline = Pipeline()
    work = (
        pipeline.work.streams(2)
        .pipeline_depth(1)
        .task_graph(window=TaskWindow(3), ready=ReadyPolicy.fifo(), trace=TracePolicy.timestamps())
    )
    program = work.compile(num_threads=workers)
    program.execute()
    pipeline.check()
    trace = program.trace[np.argsort(program.trace["start_ns"])]
    assert (trace["end_ns"][:-1] <= trace["start_ns"][1:]).all()  # one at a time
    assert program.stats.live_high <= 3


def test_recorded_replayed_and_drawn_runs(tmp_path: Any) -> None:
    pipeline = Pipeline(replicas=2)
    program = pipeline.work.compile(num_threads=2)
    program.record(tmp_path / "run")
    pipeline.y[:] = 0
    program.replay(tmp_path / "run")
    pipeline.check()
    for seed in range(5):
        pipeline.y[:] = 0
        program.execute(seed=seed)
        pipeline.check()


def test_the_plan_travels() -> None:
    pipeline = Pipeline()
    saved = pipeline.work.compile().plan
    kernels = {"load": load, "compute": compute, "store": store}
    for target in registry.host_names():
        pipeline.y[:] = 0
        program = Program.from_plan(saved.to_bytes(), kernels=kernels, target=target)
        program.execute(X=pipeline.x, Y=pipeline.y)
        pipeline.check()


def test_a_stage_that_fails_ends_the_pipeline(target: str) -> None:
    pipeline = Pipeline()
    program = pipeline.work.compile(target=target)
    pipeline.x[5] = -1
    with pytest.raises(KernelError, match="negative") as caught:
        program.execute()
    assert caught.value.indices == (5,)
    pipeline.x[5] = 1
    program.execute()
    pipeline.check()


def test_tasks_with_messages_do_not_run_alone(tmp_path: Any) -> None:
    program = Pipeline().work.compile()
    with pytest.raises(ExecutionError, match="compute has a message"):
        program.run_task("compute", 0)
    made = program.run_task("load", 2, path=tmp_path / "load.npz")
    assert "t_after" in str(made)


# --- one workload ---


def test_pipe(target: str) -> None:
    out = np.zeros((N, WIDTH), np.float32)
    Y = Tensor(data=out, name="Y")

    @workload
    def counted(n: Any):
        with P.pipe():
            for i in P.seq(n):
                send(numbers, number(i=i))
            with consume(numbers) as t, P.when(t.number % 2 == 0):
                store(r=t, y=Y[t.number])

    numbers = Channel[ELEMENT](depth=2)
    counted(DenseDyn(N)).compile(target=target).execute()
    assert out[:, 0].tolist() == [i if i % 2 == 0 else 0 for i in range(N)]


@pytest.mark.parametrize("workers", [1, 3])
def test_events_order_tasks(workers: int) -> None:
    data = np.zeros((2 * N, WIDTH), np.float32)
    Y = Tensor(data=data, name="Y")
    done = Event("done")

    def writes():
        for i in P(N):
            number(t=Y[i], i=i)
        record(done)

    def reads():
        synchronize(done)
        for i in P(N):
            store(r=Y[i], y=Y[i + N])

    parts = [
        process("writes").produces(done).body(writes),
        process("reads").consumes(done).body(reads),
    ]
    traced = connect(parts, [done]).task_graph(trace=TracePolicy.timestamps())
    program = traced.compile(num_threads=workers, verify="full")
    program.execute()
    trace = program.trace
    written = trace[trace["kernel"] == "number"]["end_ns"].max()
    assert written <= trace[trace["kernel"] == "store"]["start_ns"].min()
    np.testing.assert_array_equal(data[N:], data[:N])


def test_after_counts_in_each_replica() -> None:
    """Replicas take turns between the two calls."""
    a, b = Channel[ELEMENT]("a", depth=6), Channel[ELEMENT]("b", depth=6)
    data = np.zeros((3, N, WIDTH), np.float32)
    Y = Tensor(data=data, name="Y")

    @workload
    def sends(n: Any):
        for i in P(n):
            send(a, number(i=i))

    def works():
        with consume(a) as t:
            first = slow(t=t, y=Y[0, t.number])
            send(b, compute(t=t))
            store(r=t, y=Y[1, t.number], after=first)

    def takes():
        with consume(b) as t:
            store(r=t, y=Y[2, t.number])

    parts = [
        process("one").produces(a).body(sends(DenseDyn(6))),
        replicate(process("two").consumes(a).produces(b).body(works), 3),
        process("three").consumes(b).body(takes),
    ]
    work = connect(parts, [a, b]).task_graph(trace=TracePolicy.timestamps())
    program = work.compile(num_threads=4, verify="schedule")
    program.execute()
    trace = program.trace
    for row in trace[trace["kernel"] == "slow"]:
        same = (trace["indices"] == row["indices"]).all(axis=1)
        (waits,) = trace[same & (trace["site"] == row["site"] + 2)]
        assert waits["start_ns"] >= row["end_ns"]


# --- what goes wrong ---


def fan(depth: int, n: int = 3) -> Workload:
    """Sends n messages to one channel, then n to the other; they are received in turn."""
    first = Channel[ELEMENT]("first", depth=depth)
    second = Channel[ELEMENT]("second", depth=depth)
    Y = Tensor(data=np.zeros((n, WIDTH), np.float32), name="Y")

    @workload
    def sends(count: Any):
        for channel in (first, second):
            for i in P(count):
                send(channel, number(i=i))

    def takes():
        with consume(first) as a:
            compute(t=a, r=Y[a.number])
            store(r=receive(second), y=Y[a.number])

    one = process("one").produces(first, second).body(sends(DenseDyn(n)))
    return connect([one, process("two").consumes(first, second).body(takes)], [first, second])


def test_deadlocks_say_who_waits(target: str) -> None:
    program = fan(2).compile(target=target)
    with pytest.raises(DeadlockError) as caught:
        program.execute()
    text = caught.value.message
    assert "process 'one' waits for a free buffer of channel 'first' (2 of 2 in use)" in text
    assert "process 'two' waits for message 0 of channel 'second' (empty" in text
    assert "test_networks.py:" in text
    assert program.min_depths() == {"first": 3, "second": 0}
    program.execute(count=1)  # goes on to be of use
    assert program.stats.tasks == 4


def test_a_closed_channel_has_no_message(target: str) -> None:
    a = Channel[ELEMENT]("a", depth=1)
    Y = Tensor(data=np.zeros(WIDTH, np.float32), name="Y")

    @workload
    def sends(sent: Any):
        for i in P(sent):
            send(a, number(i=i))

    @workload
    def takes(wanted: Any):
        for _ in P.seq(wanted):
            store(r=receive(a), y=Y)

    one = process("one").produces(a).body(sends(DenseDyn(3)))
    two = process("two").consumes(a).body(takes(DenseDyn(3)))
    program = connect([one, two], [a]).compile(target=target)
    program.execute()
    with pytest.raises(ChannelClosed, match="process 'two' receives message 3 of channel 'a'"):
        program.execute(wanted=4)


def test_nothing_is_sent_behind_close(target: str) -> None:
    a = Channel[ELEMENT]("a", depth=2)
    Y = Tensor(data=np.zeros(WIDTH, np.float32), name="Y")

    def sends():
        send(a, number(i=1))
        close(a)
        send(a, number(i=2))

    def takes():
        with consume(a) as t:
            store(r=t, y=Y)

    parts = [
        process("one").produces(a).body(sends),
        process("two").consumes(a).body(takes),
    ]
    program = connect(parts, [a]).compile(target=target)
    with pytest.raises(ChannelClosed, match="process 'one' sends to channel 'a', which it has"):
        program.execute()


def test_replicas_send_alike(target: str) -> None:
    a, b = Channel[ELEMENT]("a", depth=4), Channel[ELEMENT]("b", depth=4)
    Y = Tensor(data=np.zeros((N, WIDTH), np.float32), name="Y")

    @workload
    def sends(n: Any):
        for i in P(n):
            send(a, number(i=i))

    def drops(replica: Any):
        with consume(a) as t, P.when(replica > 0):
            send(b, compute(t=t))

    def takes():
        with consume(b) as t:
            store(r=t, y=Y[t.number])

    parts = [
        process("one").produces(a).body(sends(DenseDyn(4))),
        replicate(process("two").consumes(a).produces(b).body(drops), 2),
        process("three").consumes(b).body(takes),
    ]
    with pytest.raises(ChannelError, match="replica 0 has sent 0 messages to channel 'b'"):
        connect(parts, [a, b]).compile(target=target).execute()


def test_promises_and_orders_are_refused() -> None:
    for schedule in (
        Pipeline().work.task_graph(deps=Deps.explicit()),
        Pipeline().work.task_graph(deps=Deps.infer_tensor_map_exact()),
        Pipeline().work.order(tiles=Parallel),
    ):
        with pytest.raises(ScheduleError, match="of a network") as caught:
            schedule.compile()
        assert caught.value.loc is not None


def test_races_between_processes_are_found() -> None:
    a = Channel[ELEMENT]("a", depth=2)
    Y = Tensor(data=np.zeros((N + 1, WIDTH), np.float32), name="Y")

    def work(late: int) -> Workload:
        @workload
        def sends(n: Any):
            for i in P(n):
                number(t=Y[i], i=i)
                send(a, store(r=Y[i]))

        def takes():
            with consume(a) as t:
                compute(t=t, r=Y[t.number + late])

        one = process("one").produces(a).body(sends(DenseDyn(N - 1)))
        return connect([one, process("two").consumes(a).body(takes)], [a])

    work(0).compile(verify="full").execute()
    work(0).compile(verify="schedule", num_threads=2).execute()
    with pytest.raises(RaceError, match="different processes") as caught:
        work(1).compile(verify="full").execute()
    assert caught.value.total >= N - 2


def test_names_of_channels_are_their_own() -> None:
    two = [Channel[ELEMENT]("same", depth=1) for _ in range(2)]
    with pytest.raises(CompileError, match="two channels are called same"):
        connect([process("one").body(lambda: None)], two)

    @workload
    def both(n: Any):
        with P.pipe():
            for i in P(n):
                send(two[0], number(i=i))
            for _ in P(n):
                store(r=receive(two[1]), y=Tensor.temp((WIDTH,), DType.F32))

    with pytest.raises(CompileError, match="two channels are called same"):
        both(DenseDyn(3)).compile()


def test_tasks_of_messages_are_not_waited_for_by_index() -> None:
    Y = Tensor(data=np.zeros((N, WIDTH), np.float32), name="Y")

    @workload
    def waits(n: Any):
        numbers = Channel[ELEMENT]("numbers", depth=2)
        with P.pipe():
            for i in P(n):
                send(numbers, number(i=i))
            with consume(numbers) as t:
                for j in P(2):
                    first = store(r=t, y=Y[t.number])
                    store(r=t, y=Y[t.number], after=first[j - 1])

    with pytest.raises(CompileError, match="waited for by its indices in a consume"):
        waits(DenseDyn(3)).compile()


def test_descriptors_know_the_loops_of_messages() -> None:
    Y = Tensor(data=np.zeros((N, 2, WIDTH), np.float32), name="Y")

    @workload
    def parts(n: Any, halves: Any):
        numbers = Channel[ELEMENT]("numbers", depth=2)
        with P.pipe():
            for i in P(n):
                send(numbers, number(i=i))
            with consume(numbers) as t:
                for j in P(halves):
                    store(r=t, y=Y[t.number, j])

    rows = parts(DenseDyn(3), DenseDyn(2)).compile().descriptors()
    assert rows[rows["kernel"] == 1]["halves"].tolist() == [0, 1, 0, 1, 0, 1]


# --- the host ---


def test_host_ports(target: str) -> None:
    feed = Channel[ELEMENT]("feed", depth=3, host=True)
    out = Channel[ELEMENT]("out", depth=3, host=True)

    def work():
        with consume(feed) as t:
            send(out, compute(t=t))

    net = connect([process("work").consumes(feed).produces(out).body(work)], [feed, out])
    program = net.compile(target=target)
    for batch in range(2):
        for i in range(3):
            program.channel(feed).try_send(np.full(WIDTH, batch + i))
        with pytest.raises(ChannelFull, match="'feed' has 3 messages waiting"):
            program.channel("feed").try_send(0)
        assert not program.channel(out).query()
        program.execute()
        assert [m[0] for m in program.channel(out)] == [2 * (batch + i) + 1 for i in range(3)]
        with pytest.raises(ChannelClosed, match="nothing runs"):
            program.channel(out).receive()
    program.channel(feed).try_send(8)
    program.execute_async()
    assert program.channel(out).receive(timeout=60)[0] == 17
    program.synchronize()
    program.channel(feed).close()
    with pytest.raises(ChannelClosed):
        program.channel(feed).try_send(0)
    with pytest.raises(ChannelError, match="the host sends at channel 'feed'"):
        program.channel(feed).receive()


def test_host_messages_are_not_lost() -> None:
    feed = Channel[ELEMENT]("feed", depth=3, host=True)
    out = Channel[ELEMENT]("out", depth=1, host=True)

    def work():
        with consume(feed) as t:
            send(out, compute(t=t))

    net = connect([process("work").consumes(feed).produces(out).body(work)], [feed, out])
    program = net.compile()
    program.channel(feed).try_send(1)
    with pytest.raises(ExecutionError):
        program.execute(nonsense=1)  # never begins
    program.execute()
    assert program.channel(out).receive()[0] == 3
    for value in (1, 2):
        program.channel(feed).try_send(value)
    with pytest.raises(KernelError, match="at most as many messages as the channel has buffers"):
        program.execute()


def test_an_event_for_the_host() -> None:
    done = Event("done", host=True)
    Y = Tensor(data=np.zeros(WIDTH, np.float32), name="Y")

    def work():
        number(t=Y, i=3)
        record(done)

    program = connect([process("work").produces(done).body(work)], [done]).compile()
    assert not program.channel(done).query()
    program.execute()
    assert program.channel(done).query()


def test_the_host_has_one_end() -> None:
    a = Channel[ELEMENT]("a", host=True)
    Y = Tensor(data=np.zeros(WIDTH, np.float32), name="Y")

    def work():
        number(t=Y, i=1)

    with pytest.raises(CompileError, match="channel a has host=True and no end"):
        connect([process("one").body(work)], [a]).compile()
