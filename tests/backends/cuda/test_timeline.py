"""Timelines of the cuda target: which task, where and when, as on the other targets."""

# pyright: basic
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_wsp import Program, RaceError, ScheduleError, TracePolicy
from pto_wsp.backends.cuda import device

from .programs import PROGRAMS
from .stepping import stepped

SAME = ("task_id", "seq", "kernel", "site", "indices")


def traced(name: str, target: str = "cuda", capacity: int = 65536, **options: Any) -> Program:
    made = PROGRAMS[name]().workload
    made = made.task_graph(trace=TracePolicy.timestamps(capacity=capacity))
    return made.compile(target=target, **options)


def by_seq(program: Program) -> np.ndarray:
    return np.sort(program.execute().trace, order="seq")


@pytest.mark.parametrize(
    "name", ["ragged_twice", "sparse", "branches", "chains", "two_parts", "temporaries", "slanted"]
)
def test_the_tasks_of_a_trace_are_those_of_the_reference(name: str) -> None:
    program = traced(name)
    wanted, found = by_seq(traced(name, "reference")), by_seq(program)
    assert wanted.dtype == found.dtype
    assert len(wanted) > 3
    for column in SAME:
        assert (wanted[column] == found[column]).all(), column
    assert (found["ready_ns"] <= found["start_ns"]).all()
    assert (found["start_ns"] < found["end_ns"]).all()
    assert found["worker"].max() < program.num_workers
    assert sorted(found["take"]) == list(range(len(found)))
    assert program.stats.trace_dropped == 0
    assert (by_seq(program)["site"] == found["site"]).all()


@pytest.mark.interpreted
@pytest.mark.parametrize("name", ["chains", "two_parts", "wavefront", "temporaries"])
def test_times_show_that_tasks_waited(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the interleaving, no task starts before those that it depends on have ended."""
    program = traced(name, blocks_per_sm=2, verify="schedule")
    engine: Any = program._engine
    engine.tries = 10_000
    with stepped(monkeypatch, 1):
        program.execute()
    assert len({int(worker) for worker in program.trace["worker"]}) > 1


@pytest.mark.interpreted
def test_times_show_that_tasks_did_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    program = traced("wavefront", blocks_per_sm=2, verify="schedule")
    plain = device.load_source

    def without_waits(text: str) -> Any:
        broken = text.replace("while seen < target", "while seen < 0")
        assert broken != text
        return plain(broken)

    monkeypatch.setattr(device, "load_source", without_waits)
    with stepped(monkeypatch, 1), pytest.raises(RaceError, match="add"):
        program.execute()


@pytest.mark.interpreted  # a GPU has room for all
@pytest.mark.parametrize("name", ["ragged", "temporaries"])
def test_a_trace_that_is_full_has_the_first_tasks(name: str) -> None:
    wanted = by_seq(traced(name, "reference"))
    program = traced(name, capacity=1, blocks_per_sm=1)
    found = by_seq(program)
    assert 0 < len(found) < len(wanted)
    for column in SAME:
        assert (wanted[column][: len(found)] == found[column]).all(), column
    assert program.stats.trace_dropped == len(wanted) - len(found)
    assert f"{len(wanted) - len(found)} records did not fit" in program.explain()


@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        # Two blocks, so two rows at a time: one column behind the row above, or two.
        ("wavefront", [(0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]),
        ("slanted", [(0, 0), (0, 1), (0, 2), (1, 0), (0, 3), (1, 1), (1, 2), (1, 3), (2, 0)]),
    ],
)
def test_rows_that_wait_are_taken_along_diagonals(name: str, wanted: list[Any]) -> None:
    """The interpreter's first block takes all numbers, as they come."""
    program = traced(name, blocks_per_sm=1).execute()
    rows = program.trace["indices"][: len(wanted), -2:]
    assert [tuple(map(int, row)) for row in rows] == wanted
    assert "tasks are numbered along diagonals" in program.explain()
    assert "along diagonals" not in traced("rows_before").explain()


def test_a_path_gets_all_tasks(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    made = PROGRAMS["temporaries"]().workload
    policy = TracePolicy.timestamps(path=path, capacity=1)
    program = made.task_graph(trace=policy).compile(target="cuda", blocks_per_sm=1)
    engine: Any = program._engine
    engine._trace._cap = 2  # room is made when a run needs it
    program.execute()
    assert program.stats.trace_dropped == 0
    events = json.loads(path.read_text())["traceEvents"]
    tasks = [event for event in events if event["ph"] == "X"]
    assert len(tasks) == program.stats.tasks
    assert {task["name"] for task in tasks} == {"double", "total"}
    tracks = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert all(" SM " in track for track in tracks)


def test_runs_that_overlap_have_traces_of_their_own() -> None:
    program = traced("ragged")
    for lengths in ([1, 1, 0, 0], [3, 0, 1, 4]):
        program.execute_async(lens=np.array(lengths))
    runs = list(program._pending)
    program.synchronize()
    assert [len(run.trace()) for run in runs] == [2, 8]


def test_programs_without_a_trace_have_no_line_of_it() -> None:
    program = PROGRAMS["temporaries"]().workload.compile(target="cuda")
    engine: Any = program._engine
    assert "TRACE" not in engine.module.text
    assert len(program.execute().trace) == 0


def test_a_virtual_clock_is_refused() -> None:
    made = PROGRAMS["dense"]().workload.task_graph(trace=TracePolicy.cycles(lambda t: 1))
    with pytest.raises(ScheduleError, match="cannot enforce") as caught:
        made.compile(target="cuda")
    assert "the clock of the GPU" in str(caught.value)
