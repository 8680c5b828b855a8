"""Schedules change nothing that is computed: on a GPU every program under every directive, in the
interpreter one program for each, with all blocks running at a time."""

# pyright: basic
from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

from pto_wsp import (
    Affinity,
    DispatchPolicy,
    Interleaved,
    Parallel,
    Pools,
    ReadyPolicy,
    ScheduleError,
    TaskWindow,
)
from pto_wsp.backends.cuda import device

from .programs import PROGRAMS
from .stepping import stepped

ON_GPU = not device.is_interpreted()
PARTS = DispatchPolicy.static_partition([(0, 3), (3, 4), (4, 9)])
STEAL = ReadyPolicy.work_steal()
DIRECTED = {
    "steal": lambda w: w.task_graph(ready=STEAL),
    "steal keys": lambda w: DIRECTED["affinity"](w).task_graph(ready=STEAL),
    "steal pools": lambda w: DIRECTED["pools"](w).task_graph(ready=STEAL),
    "fifo": lambda w: w.task_graph(ready=ReadyPolicy.fifo()),
    "robin": lambda w: w.dispatch(DispatchPolicy.round_robin(3)),
    "parts": lambda w: w.dispatch(PARTS),
    "affinity": lambda w: w.dispatch(DispatchPolicy.affinity(lambda t: t.ordinal // 2)),
    "hash": lambda w: w.dispatch(DispatchPolicy.hash(lambda t: t.site)),
    "near": lambda w: w.affinity(rows=Affinity.CORE_LOCAL),
    "streams": lambda w: w.streams(3).stream_by(lambda t: t.get("rows", 1)),
    "pools": lambda w: w.task_graph(pools=Pools.custom(lambda t: t.ordinal, 2)),
    "calls": lambda w: w.task_graph(pools=Pools.custom(lambda t: t.site, 3)),
    "priority": lambda w: w.task_graph(ready=ReadyPolicy.priority(lambda t: -t.site)),
    "turns": lambda w: w.order(rows=Interleaved(2)),
    "parallel": lambda w: w.order(rows=Parallel).dispatch(DispatchPolicy.round_robin(2)),
    "few": lambda w: w.pipeline_depth(2).task_graph(window=TaskWindow(3)),
}
ROWS = ("near", "turns", "parallel")  # those that name a loop
HERE = {
    "steal": "temporaries",
    "steal keys": "two_parts",
    "steal pools": "chains",
    "fifo": "temporaries",
    "robin": "steps",
    "parts": "two_parts",
    "affinity": "wavefront",
    "hash": "temporaries",
    "near": "by_data",
    "streams": "chains",
    "pools": "steps",
    "calls": "temporaries",
    "priority": "two_parts",
    "turns": "by_data",
    "few": "wavefront",
    "parallel": "by_data",
}
CASES = [(how, name) for how in DIRECTED for name in PROGRAMS] if ON_GPU else [*HERE.items()]


@pytest.mark.parametrize(("how", "name"), CASES)
def test_results_are_those_of_the_program(how, name, monkeypatch) -> None:
    wanted, found = PROGRAMS[name](), PROGRAMS[name]()
    reference = wanted.workload.compile(target="reference")
    try:
        program = DIRECTED[how](found.workload).compile(target="cuda")
    except ScheduleError as error:
        if not ON_GPU or (how not in ROWS and how != "priority"):
            raise
        pytest.skip(str(error).splitlines()[0])  # no such loop, or tasks that wait
    if not ON_GPU:
        program._engine.tries = 100_000
    with nullcontext() if ON_GPU else stepped(monkeypatch, 3):
        for _ in range(2):  # the second run uses the counters that the first one cleared
            reference.execute(hash=True)
            program.execute(hash=True)
    for a, b in zip(wanted.outputs, found.outputs, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-6)
    assert program.stats.tasks == reference.stats.tasks
    assert program.task_hash() == reference.task_hash()
