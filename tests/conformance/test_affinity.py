"""affinity(axis=...): which workers run the tasks of one index of a loop, judged by the trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    Affinity,
    DenseDyn,
    DispatchPolicy,
    Metric,
    P,
    Pools,
    ReadyPolicy,
    ScheduleError,
    StartPolicy,
    Tensor,
    TracePolicy,
    Workload,
    sequential,
    workload,
)
from tests.conformance.grids import COLS, ROWS, WORKERS, by, grid, nap, run, step


def row_of(r: Any) -> int:
    return int(r["indices"][0])


@pytest.mark.directive("affinity_core_local")
@pytest.mark.parametrize("workers", [1, 3, WORKERS])
def test_core_local(workers: int) -> None:
    trace, _ = run(grid(nap).affinity(rows=Affinity.CORE_LOCAL), workers)
    assert by(trace, row_of) == {i: {i % workers} for i in range(ROWS)}
    trace, _ = run(grid(nap).affinity(cols=Affinity.CORE_LOCAL), workers)
    assert by(trace, lambda r: int(r["indices"][1])) == {j: {j % workers} for j in range(COLS)}


@pytest.mark.directive("affinity_core_group")
@pytest.mark.parametrize(
    ("workers", "groups"),
    [
        (1, [{0}]),
        (2, [{0}, {1}]),
        (3, [{0}, {1}, {2}]),
        (5, [{0, 1}, {2, 3}, {4}]),
        (8, [{0, 1, 2, 3}, {4, 5, 6, 7}]),
        (9, [{0, 1, 2, 3}, {4, 5, 6, 7}, {8}]),
    ],
)
def test_core_group(workers: int, groups: list[set[int]]) -> None:
    trace, _ = run(grid(nap).affinity(rows=Affinity.CORE_GROUP), workers)
    for i, found in by(trace, row_of).items():
        assert found <= groups[i % len(groups)]
    # Whoever of the group is free takes a task: a row is not the business of one worker.
    shared = [len(found) for found in by(trace, row_of).values()]
    assert max(shared) > 1 or max(map(len, groups)) == 1


@pytest.mark.directive("affinity_spread")
def test_spread() -> None:
    trace, _ = run(grid().affinity(rows=Affinity.SPREAD))
    same, _ = run(grid().dispatch(DispatchPolicy.hash(lambda t: t.ordinal)))
    assert by(trace, lambda r: int(r["task_id"])) == by(same, lambda r: int(r["task_id"]))
    assert min(len(found) for found in by(trace, row_of).values()) > 2


def test_inside_a_pool() -> None:
    pools = grid(nap).task_graph(pools=Pools.custom(lambda t: t.cols, 2))
    trace, _ = run(pools.affinity(rows=Affinity.CORE_LOCAL))
    for r in trace:
        crew = [0, 2, 4, 6] if r["pool"] == 0 else [1, 3, 5, 7]
        assert int(r["worker"]) == crew[row_of(r) % 4]
    trace, _ = run(pools.affinity(rows=Affinity.CORE_GROUP))
    for r in trace:
        groups = [{0, 2}, {4, 6}] if r["pool"] == 0 else [{1, 3}, {5, 7}]
        assert int(r["worker"]) in groups[row_of(r) % 2]


@pytest.mark.parametrize("policy", list(Affinity))
def test_more_pools_than_workers(policy: Affinity) -> None:
    work = grid().task_graph(pools=Pools.custom(lambda t: t.cols, 5)).affinity(rows=policy)
    trace, _ = run(work, 2)
    assert all(int(r["worker"]) == int(r["pool"]) % 2 for r in trace)


def test_the_ready_policy_orders_a_group() -> None:
    work = grid().affinity(rows=Affinity.CORE_GROUP)
    fifo = {"ready": ReadyPolicy.fifo(), "start": StartPolicy.after_orchestration()}
    trace, _ = run(work.task_graph(**fifo))
    for group in (0, 1):
        mine = trace["task_id"][trace["indices"][:, 0] % 2 == group].tolist()
        assert mine == sorted(mine)


@pytest.mark.parametrize("policy", list(Affinity))
def test_tasks_outside_of_the_loop_run_anywhere(policy: Affinity) -> None:
    Y = Tensor(data=np.zeros(120, np.int64), name="Y")

    @workload
    def one(rows: Any) -> None:
        for i in P(rows):
            step[i](Y[i : i + 1], i)

    @workload
    def other(cols: Any) -> None:
        for j in P(cols):
            nap[j](Y[j : j + 1])

    both = sequential(one(DenseDyn(8)), other(DenseDyn(60))).affinity(rows=policy)
    work = both.task_graph(trace=TracePolicy.timestamps())
    with work.compile(num_threads=WORKERS) as program:
        program.execute()
        trace = program.trace
    assert len(trace) == 68
    assert len(set(trace["worker"][trace["task_id"] >= 8].tolist())) > 1


def test_explained() -> None:
    with grid().affinity(cols=Affinity.CORE_GROUP).compile(num_threads=2) as program:
        program.execute()
        assert "affinity('cols', core_group)" in program.explain()
        assert "tasks by worker: 48, 48" in program.explain()
    assert "affinity(cols=Affinity.CORE_GROUP)" in repr(grid().affinity(cols=Affinity.CORE_GROUP))


LOCAL = Affinity.CORE_LOCAL


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: grid().affinity(rows=LOCAL).dispatch(DispatchPolicy.work_steal()),
            "affinity and dispatch contradict each other",
        ),
        (
            lambda: grid().dispatch(DispatchPolicy.round_robin(2)).affinity(rows=LOCAL),
            "affinity and dispatch contradict each other",
        ),
        (
            lambda: (
                grid()
                .dispatch_threshold(Metric.num_tasks(), [0], [DispatchPolicy.work_steal()])
                .affinity(rows=LOCAL)
            ),
            "affinity and dispatch_threshold contradict each other",
        ),
        (
            lambda: grid().affinity(rows=LOCAL).task_graph(ready=ReadyPolicy.work_steal()),
            "affinity and ready contradict each other",
        ),
        (lambda: grid().affinity(), "affinity of 0 axes"),
        (lambda: grid().affinity(rows=LOCAL, cols=LOCAL), "affinity of 2 axes"),
        (lambda: grid().affinity(rows=1), "affinity(rows=1)"),
        (lambda: grid().affinity(deep=LOCAL).compile(), "affinity names the loop 'deep'"),
    ],
)
def test_refused(make: Callable[[], Workload], message: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        make()
    assert message in str(caught.value)
    assert caught.value.loc is not None
    assert caught.value.fix
    if "contradict" in message:
        assert "(affinity is given at" in str(caught.value)
