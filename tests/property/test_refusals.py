"""Random schedules, as users write them, legal or not: each is enforced, with the right results, or
refused with the reason, the place and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st

from pto_wsp import (
    Affinity,
    CompileError,
    DenseDyn,
    Deps,
    DispatchPolicy,
    InOut,
    Interleaved,
    Metric,
    P,
    Parallel,
    Pools,
    ReadyPolicy,
    ScheduleError,
    Sequential,
    StartPolicy,
    TaskWindow,
    Tensor,
    TimingPolicy,
    WindowOverflow,
    Workload,
    kernel,
    workload,
)

ROWS, COLS = 6, 5
SIZES = st.sampled_from([1, 2, 3, 3, 4, 7, 20, 10**6, 0, -1, 2**70, True, "4", None])
KEYS: st.SearchStrategy[Callable[[Any], Any]] = st.sampled_from(
    [
        lambda t: t.rows,
        lambda t: t.cols * 3 - 7,
        lambda t: t.get("other", 2),
        lambda t: t.other,  # no such loop
        lambda t: t.ordinal // 0,
        lambda t: "rows",
    ]
)
AXES = st.sampled_from(["rows", "cols", "other"])
Step = Callable[[Workload], Workload]


@kernel(cpp_src="x[0] = x[0] * 3 + 1;")
def change(x: InOut[Tensor]): ...


@st.composite
def steps(draw: st.DrawFn) -> Step:
    """One directive with values of which many make no sense. It is built inside of the step, since
    some values are refused there."""
    size, key, axis = draw(SIZES), draw(KEYS), draw(AXES)
    scope = draw(st.sampled_from(["global", "per_stream", "per_pool", "per_key", "all"]))
    order = draw(st.sampled_from([Sequential, Parallel, "sequential"]))
    data = draw(st.integers(0, 7))
    kinds: list[Step] = [
        lambda w: w.dispatch(_dispatch(data, size, key)),
        lambda w: w.dispatch_threshold(
            Metric.num_tasks(), [0, size], [_dispatch(0, 1, key), _dispatch(data, size, key)]
        ),
        lambda w: w.streams(size),
        lambda w: w.stream_by(key),
        lambda w: w.timing(TimingPolicy.batched(size)),
        lambda w: w.timing(TimingPolicy.interleaved(size)),
        lambda w: w.pipeline_depth(size, scope=scope, key=key if data % 2 else None),
        lambda w: w.batch_deps(size),
        lambda w: w.prefetch(axis, size),
        lambda w: w.affinity(**{axis: list(Affinity)[data % 3]}),
        lambda w: w.order(**{axis: order}),
        lambda w: w.order(**{axis: Interleaved(size)}),
        lambda w: w.task_graph(ready=ReadyPolicy.priority(key)),
        lambda w: w.task_graph(ready=ReadyPolicy.work_steal()),
        lambda w: w.task_graph(window=TaskWindow(size, "bytes" if data % 2 else "tasks")),
        lambda w: w.task_graph(start=StartPolicy.threshold(size)),
        lambda w: w.task_graph(pools=Pools.custom(key, size)),
        lambda w: w.task_graph(pools=Pools.by_exec_unit(), deps=Deps.hybrid()),
    ]
    return draw(st.sampled_from(kinds))


def _dispatch(kind: int, size: Any, key: Callable[[Any], Any]) -> DispatchPolicy:
    match kind:
        case 0:
            return DispatchPolicy.round_robin(size)
        case 1:
            return DispatchPolicy.affinity(key)
        case 2:
            return DispatchPolicy.hash(key)
        case 3:
            return DispatchPolicy.dispatch_by(key)
        case 4:
            return DispatchPolicy.static_partition([(0, size)])
        case _:
            return DispatchPolicy.work_steal()


def run(given: list[Step], workers: int) -> tuple[np.ndarray, np.ndarray]:
    own = Tensor(data=np.zeros((ROWS, COLS), np.int64), name="own")
    shared = Tensor(data=np.zeros(COLS, np.int64), name="shared")

    @workload
    def work(rows: Any, cols: Any) -> None:
        for i in P(rows):
            for j in P(cols):
                change[i, j](own[i, j])
        for _k in P(rows):
            for j in P(cols):
                change[j](shared[j])

    made: Workload = work(DenseDyn(ROWS), DenseDyn(COLS))
    for step in given:
        made = step(made)
    with made.compile(num_threads=workers) as program:
        program.execute()
    return own.data, shared.data


@settings(max_examples=200)
@given(st.lists(steps(), min_size=1, max_size=4), st.integers(1, 3))
def test_a_schedule_is_enforced_or_refused(given: list[Step], workers: int) -> None:
    try:
        own, shared = run(given, workers)
    except (ScheduleError, CompileError, WindowOverflow) as error:  # the last: no room for a task
        event(f"refused: {error.code.value}")
        reason = error
    else:
        event("enforced")
        assert (own == 1).all()
        assert (shared == (3**ROWS - 1) // 2).all()
        return
    text = str(reason)
    assert reason.code.value in text
    assert "-->" in text
    assert "why:" in text
    assert "fix:" in text
