"""Each directive and value, on eight workers, judged by what the trace shows."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    DenseDyn,
    DispatchPolicy,
    ExecutionError,
    Metric,
    P,
    Pools,
    Ragged,
    ReadyPolicy,
    ScheduleError,
    StartPolicy,
    Tensor,
    TimingPolicy,
    TracePolicy,
    WindowOverflow,
    select,
    sequential,
    workload,
)
from tests.conformance.grids import COLS, ROWS, WORKERS, by, grid, most_in_flight, nap, run, step

# --- dispatch ---


@pytest.mark.directive("dispatch_round_robin")
def test_round_robin() -> None:
    trace, _ = run(grid().dispatch(DispatchPolicy.round_robin(3)))
    assert by(trace, lambda r: int(r["task_id"]) % 3) == {0: {0}, 1: {1}, 2: {2}}


@pytest.mark.directive("dispatch_affinity")
def test_affinity() -> None:
    trace, _ = run(grid().dispatch(DispatchPolicy.affinity(lambda t: 3 * t.rows + 1)))
    expected = {i: {(3 * i + 1) % WORKERS} for i in range(ROWS)}
    assert by(trace, lambda r: int(r["indices"][0])) == expected


def test_affinity_with_stealing_places_first() -> None:
    """All tasks are placed on worker 2; whoever else runs one has stolen it."""
    work = grid(nap).dispatch(DispatchPolicy.affinity(lambda t: 2 + 0 * t.rows))
    held = StartPolicy.after_orchestration()
    trace, stats = run(work.task_graph(ready=ReadyPolicy.work_steal(), start=held))
    assert {int(r["worker"]) for r in trace if not r["stolen"]} <= {2}
    assert all(r["worker"] != 2 for r in trace if r["stolen"])
    assert stats.stolen == int(trace["stolen"].sum()) > 0


@pytest.mark.directive("dispatch_hash")
def test_hash() -> None:
    trace, _ = run(grid().dispatch(DispatchPolicy.hash(lambda t: t.ordinal)))
    again, _ = run(grid().dispatch(DispatchPolicy.hash(lambda t: t.ordinal)))
    placed = by(trace, lambda r: int(r["task_id"]))
    assert placed == by(again, lambda r: int(r["task_id"]))
    assert all(len(workers) == 1 for workers in placed.values())
    counts = np.bincount([next(iter(w)) for w in placed.values()], minlength=WORKERS)
    assert counts.min() > 0
    assert counts.max() < ROWS * COLS // 2


@pytest.mark.directive("dispatch_by")
def test_dispatch_by() -> None:
    trace, _ = run(grid().dispatch(DispatchPolicy.dispatch_by(lambda t: t.cols % 5)))
    assert by(trace, lambda r: int(r["indices"][1]) % 5) == {k: {k} for k in range(5)}
    with pytest.raises(ScheduleError, match="dispatch_by gives worker 8, there are 8"):
        run(grid().dispatch(DispatchPolicy.dispatch_by(lambda t: t.cols)))


@pytest.mark.directive("dispatch_static_partition")
def test_static_partition() -> None:
    parts = [(0, 10), (10, 40), (40, 96)]
    trace, _ = run(grid().dispatch(DispatchPolicy.static_partition(parts)))
    for worker, (first, last) in enumerate(parts):
        mine = [r for r in trace if first <= r["task_id"] < last]
        assert {int(r["worker"]) for r in mine} == {worker}


def test_work_steal() -> None:
    trace, _ = run(grid(nap).dispatch(DispatchPolicy.work_steal()))
    assert len(set(trace["worker"].tolist())) > 1


def test_the_schedule_names_its_workers() -> None:
    with grid().dispatch(DispatchPolicy.round_robin(11)).compile() as program:
        program.execute()
        assert program.stats.workers >= 11


@pytest.mark.directive("dispatch_threshold")
def test_dispatch_threshold() -> None:
    few, many = DispatchPolicy.round_robin(1), DispatchPolicy.round_robin(4)
    for limit, workers in ((ROWS * COLS + 1, {0}), (ROWS * COLS, {0, 1, 2, 3})):
        work = grid().dispatch_threshold(Metric.num_tasks(), [0, limit], [few, many])
        trace, _ = run(work)
        assert set(trace["worker"].tolist()) == workers
    by_row = Metric.task(lambda t: t.rows)
    one, other = (DispatchPolicy.dispatch_by(lambda t, k=k: k + 0 * t.rows) for k in (1, 6))
    trace, _ = run(grid().dispatch_threshold(by_row, [0, 5], [one, other]))
    assert by(trace, lambda r: int(r["indices"][0] >= 5)) == {0: {1}, 1: {6}}


# --- streams ---


def in_stream_order(trace: np.ndarray) -> bool:
    for stream in set(trace["stream"].tolist()):
        rows = np.sort(trace[trace["stream"] == stream], order="task_id")
        if any(b["start_ns"] < a["end_ns"] for a, b in pairwise(rows)):
            return False
    return True


@pytest.mark.directive("streams")
def test_streams() -> None:
    trace, stats = run(grid(nap).streams(3))
    assert [int(r["stream"]) for r in np.sort(trace, order="task_id")] == [
        k % 3 for k in range(ROWS * COLS)
    ]
    assert in_stream_order(trace)
    assert most_in_flight(trace) <= 3
    assert stats.edges >= 0


@pytest.mark.directive("streams")
@pytest.mark.directive("stream_by")
def test_stream_by() -> None:
    trace, _ = run(grid(nap).streams(4).stream_by(lambda t: t.rows))
    assert all(int(r["stream"]) == int(r["indices"][0]) % 4 for r in trace)
    assert in_stream_order(trace)


# --- timing ---


@pytest.mark.directive("timing_batched")
def test_batched() -> None:
    """Ready tasks wait for others: no task of the last batch is taken before that one is full."""
    trace, stats = run(grid().timing(TimingPolicy.batched(40)))
    assert stats.timing_released == 1  # of 96 tasks, 16 are left over
    assert len(trace) == 96
    _, stats = run(grid().timing(TimingPolicy.batched(32)))
    assert stats.timing_released == 0
    ready = np.sort(trace["ready_ns"])
    assert trace["start_ns"].min() >= ready[39]


@pytest.mark.directive("streams")
@pytest.mark.directive("timing_interleaved")
def test_interleaved_streams_wait_for_their_turn() -> None:
    """Every fourth row is slow; the others would run ahead of it."""
    Y = Tensor(data=np.zeros(ROWS * COLS, np.int64), name="Y")

    @workload
    def uneven(rows: Any, cols: Any) -> None:
        for i, j in P(rows, cols):
            place = Y[i * COLS + j : i * COLS + j + 1]
            with P.when(i % 4 == 0):
                nap[i, j](place)
            with P.otherwise():
                step[i, j](place, i)

    work = uneven(DenseDyn(ROWS), DenseDyn(COLS)).task_graph(trace=TracePolicy.timestamps())
    work = work.streams(4).stream_by(lambda t: t.rows).timing(TimingPolicy.interleaved(4))
    trace, _ = run(work)
    assert trace["stream"].tolist() == [0, 1, 2, 3] * 24


def test_interleaved() -> None:
    work = grid().streams(4).stream_by(lambda t: t.rows).timing(TimingPolicy.interleaved(4))
    held = StartPolicy.after_orchestration()
    trace, stats = run(work.task_graph(start=held), workers=1)
    assert trace["stream"].tolist() == [0, 1, 2, 3] * 24
    assert stats.timing_released == 0


def test_a_stream_that_ends_is_passed_over() -> None:
    Y = Tensor(data=np.zeros(64, np.int64), name="Y")

    @workload
    def ragged(rows: Any, lens: Any) -> None:
        for i in P(rows):
            for j in P(lens):
                step[i, j](Y[i * 8 + j : i * 8 + j + 1], i)

    rows = DenseDyn(3)
    work = ragged(rows, Ragged(rows, [1, 4, 2])).streams(3).stream_by(lambda t: t.rows)
    work = work.timing(TimingPolicy.interleaved(3)).task_graph(
        trace=TracePolicy.timestamps(), start=StartPolicy.after_orchestration()
    )
    with work.compile(num_threads=1) as program:
        program.execute()
        trace = np.sort(program.trace, order="take")
    assert trace["stream"].tolist() == [0, 1, 2, 1, 2, 1, 1]


@pytest.mark.directive("timing_rate_limit")
def test_rate_limit() -> None:
    trace, _ = run(grid().timing(TimingPolicy.rate_limit(20)))
    span = trace["start_ns"].max() - trace["start_ns"].min()
    assert span >= (ROWS * COLS - 1) * 50_000 * 0.9  # 50 µs from one to the next, at the least


def test_immediate() -> None:
    _, stats = run(grid().timing(TimingPolicy.immediate()))
    assert stats.timing_released == 0


# --- pools ---


@pytest.mark.directive("pools_custom")
def test_custom_pools() -> None:
    trace, _ = run(grid(nap).task_graph(pools=Pools.custom(lambda t: t.rows, 3)))
    assert all(int(r["pool"]) == int(r["indices"][0]) % 3 for r in trace)
    assert all(int(r["worker"]) % 3 == int(r["pool"]) for r in trace)


def test_fewer_workers_than_pools_take_turns() -> None:
    work = grid().task_graph(
        pools=Pools.custom(lambda t: t.rows, 4), start=StartPolicy.after_orchestration()
    )
    trace, _ = run(work, workers=2)
    assert by(trace, lambda r: int(r["pool"])) == {0: {0}, 1: {1}, 2: {0}, 3: {1}}
    mine = [int(r["pool"]) for r in trace if r["worker"] == 0]
    assert mine == [0, 2] * (len(mine) // 2)


def test_dispatch_inside_a_pool() -> None:
    work = grid().task_graph(pools=Pools.custom(lambda t: t.rows, 2))
    trace, _ = run(work.dispatch(DispatchPolicy.affinity(lambda t: t.cols)))
    crew = {0: [0, 2, 4, 6], 1: [1, 3, 5, 7]}
    for r in trace:
        assert int(r["worker"]) == crew[int(r["pool"])][int(r["indices"][1]) % 4]


# --- ready ---


def test_fifo_with_other_directives() -> None:
    work = grid().task_graph(ready=ReadyPolicy.fifo(), start=StartPolicy.after_orchestration())
    trace, _ = run(work.pipeline_depth(100))
    assert trace["task_id"].tolist() == list(range(ROWS * COLS))


@pytest.mark.directive("ready_priority")
@pytest.mark.directive("start_after_orchestration")
def test_priority() -> None:
    """One worker, so that it is sure what happens where `start` is not enforced. Of several:
    tests/runtime/test_program_schedule.py."""
    ready = ReadyPolicy.priority(lambda t: select(t.cols % 2 == 0, 10 + t.cols, -t.rows))
    work = grid().task_graph(ready=ready, start=StartPolicy.after_orchestration())
    trace, _ = run(work, workers=1)

    def key(r: Any) -> int:
        i, j = (int(x) for x in r["indices"][:2])
        return 10 + j if j % 2 == 0 else -i

    expected = sorted(trace, key=lambda r: (-key(r), int(r["task_id"])))
    assert [int(r["task_id"]) for r in trace] == [int(r["task_id"]) for r in expected]


def test_long_tasks_are_shared_after_short_ones() -> None:
    """Workers leave tasks of a few nanoseconds to one of them, and come back for longer ones."""
    X = Tensor(data=np.zeros(20_064, np.int64), name="X")

    @workload
    def work(short: Any, long: Any) -> None:
        for i in P(short):
            step[i](X[i : i + 1], 1)
        for j in P(long):
            nap[j](X[20_000 + j : 20_001 + j])

    first = ReadyPolicy.priority(lambda t: -t.ordinal)
    scheduled = work(DenseDyn(20_000), DenseDyn(64)).task_graph(
        ready=first, trace=TracePolicy.timestamps()
    )
    with scheduled.compile(num_threads=4) as program:
        for _ in range(5):
            program.execute()
            trace = program.trace
            assert len(trace) == 20_064
            long = trace[trace["task_id"] >= 20_000]
            assert len(set(long["worker"].tolist())) > 1
    assert (X.data[:20_000] != 0).all()
    assert (X.data[20_000:] == 5).all()


# --- depth ---


@pytest.mark.directive("depth_global")
def test_global_depth() -> None:
    for depth in (1, 3):
        trace, stats = run(grid(nap).pipeline_depth(depth))
        assert most_in_flight(trace) <= depth
        assert stats.gate_stalls > 0
    trace, stats = run(grid(nap).pipeline_depth(1000))
    assert stats.gate_stalls == 0
    assert most_in_flight(trace) > 1


@pytest.mark.parametrize(
    "scope",
    [
        "per_stream",  # which are in order: there is never more than one in flight
        pytest.param("per_pool", marks=pytest.mark.directive("depth_per_pool")),
        pytest.param("per_key", marks=pytest.mark.directive("depth_per_key")),
    ],
)
def test_depth_by_scope(scope: str) -> None:
    work = grid(nap)
    if scope == "per_stream":
        work = work.streams(96).pipeline_depth(1, scope=scope)  # a stream for each task
        assert run(work)[1].gate_stalls == 0
        return
    if scope == "per_pool":
        work = work.task_graph(pools=Pools.custom(lambda t: t.rows, 2))
        work = work.pipeline_depth(2, scope=scope)
    else:
        work = work.pipeline_depth(2, scope=scope, key=lambda t: t.rows % 2)
    trace, stats = run(work)
    for k in range(2):
        assert most_in_flight(trace[trace["indices"][:, 0] % 2 == k]) <= 2
    assert stats.gate_stalls > 0


def test_several_gates_hold_together() -> None:
    work = grid(nap).pipeline_depth(3).pipeline_depth(1, scope="per_key", key=lambda t: t.rows)
    trace, _ = run(work)
    assert most_in_flight(trace) <= 3
    for i in range(ROWS):
        assert most_in_flight(trace[trace["indices"][:, 0] == i]) <= 1


@pytest.mark.directive("depth_on_full_error")
def test_a_full_gate_can_end_the_run() -> None:
    work = grid(nap).pipeline_depth(2, on_full="error")
    with work.compile(num_threads=WORKERS) as program:
        with pytest.raises(WindowOverflow, match='its on_full is "error"') as caught:
            program.execute()
        assert caught.value.loc is not None
        with pytest.raises(WindowOverflow):
            program.execute()


# --- together ---


def test_all_of_it_together() -> None:
    work = (
        grid()
        .dispatch(DispatchPolicy.affinity(lambda t: t.cols))
        .streams(5)
        .stream_by(lambda t: t.rows + t.cols)
        .timing(TimingPolicy.batched(7))
        .pipeline_depth(4)
        .pipeline_depth(2, scope="per_stream")
        .task_graph(ready=ReadyPolicy.priority(lambda t: -t.ordinal))
    )
    trace, _ = run(work)
    assert in_stream_order(trace)
    assert most_in_flight(trace) <= 4
    assert by(trace, lambda r: int(r["indices"][1]) % 8) == {k: {k} for k in range(8)}


def test_explain_names_every_directive() -> None:
    work = grid().streams(2).pipeline_depth(3).timing(TimingPolicy.batched(7))
    with work.compile(num_threads=2) as program:
        before = program.explain()
        program.execute()
        after = program.explain()
    for name in ("trace(", "streams(2)", "timing(batched, 7)", "pipeline_depth(3, global, stall)"):
        assert name in before
    assert "cost:" not in before
    assert "tasks met a full gate" in after
    assert "test_directives.py" in after


# --- refused ---


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: (
                grid()
                .dispatch(DispatchPolicy.round_robin(2))
                .task_graph(ready=ReadyPolicy.work_steal())
            ),
            "dispatch and ready contradict each other",
        ),
        (
            lambda: (
                grid()
                .dispatch(DispatchPolicy.round_robin(2))
                .dispatch_threshold(Metric.num_tasks(), [0], [DispatchPolicy.work_steal()])
            ),
            "dispatch and dispatch_threshold contradict each other",
        ),
        (lambda: grid().stream_by(lambda t: t.rows).compile(), "stream_by without streams"),
        (
            lambda: grid().timing(TimingPolicy.interleaved(2)).compile(),
            "timing without streams",
        ),
        (
            lambda: grid().pipeline_depth(2, scope="per_pool").compile(),
            "pipeline_depth without pools",
        ),
        (lambda: grid().pipeline_depth(2, scope="per_key"), "without a key"),
        (lambda: grid().pipeline_depth(0), "pipeline_depth"),
        (lambda: grid().pipeline_depth(2, scope="row"), "scope='row'"),
        (lambda: grid().pipeline_depth(2, on_full="wait"), "on_full='wait'"),
        (lambda: grid().streams(0), "streams"),
        (lambda: grid().dispatch(DispatchPolicy.affinity(lambda t: "x")), "the key of"),
        (lambda: grid().dispatch(DispatchPolicy.affinity(3)), "a key is a function"),
        (lambda: grid().dispatch("round_robin"), "dispatch(policy='round_robin')"),
        (
            lambda: DispatchPolicy.static_partition([(0, 4), (5, 9)]),
            "the ranges do not follow each other",
        ),
        (
            lambda: grid().dispatch(DispatchPolicy.affinity(lambda t: t.depth)).compile(),
            "a key names the loop 'depth'",
        ),
        (
            lambda: grid().dispatch_threshold(Metric.num_tasks(), [5, 1], []),
            "dispatch_threshold of 2 thresholds and 0 policies",
        ),
    ],
)
def test_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        make()
    assert message in str(caught.value)
    assert caught.value.fix or "depth" in message


def test_loops_that_only_some_calls_have() -> None:
    Y = Tensor(data=np.zeros(16, np.int64), name="Y")

    @workload
    def one(rows: Any) -> None:
        for i in P(rows):
            step[i](Y[i : i + 1], i)

    @workload
    def other(cols: Any) -> None:
        for j in P(cols):
            step[j](Y[j : j + 1], j)

    both = sequential(one(DenseDyn(4)), other(DenseDyn(4)))
    key = DispatchPolicy.dispatch_by(lambda t: t.get("rows", 5))
    work = both.dispatch(key).task_graph(trace=TracePolicy.timestamps())
    with work.compile(num_threads=WORKERS) as program:
        program.execute()
        trace = program.trace
    workers = {int(r["task_id"]): int(r["worker"]) for r in trace}
    assert [workers[k] for k in range(8)] == [0, 1, 2, 3, 5, 5, 5, 5]
    with pytest.raises(ScheduleError, match="a key names the loop 'rows'"):
        both.dispatch(DispatchPolicy.dispatch_by(lambda t: t.rows)).compile()


def test_keys_that_have_no_value() -> None:
    work = grid().dispatch(DispatchPolicy.affinity(lambda t: 100 // (t.rows - 3)))
    with pytest.raises(ExecutionError, match=r"division by zero .* in step\[3, 0\]"):
        run(work)
