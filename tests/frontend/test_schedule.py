"""Schedules are values: they print as what makes them, and lower to directives of the plan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pto_wsp import (
    Deps,
    DispatchPolicy,
    ReadyPolicy,
    ScheduleError,
    StartPolicy,
    TaskWindow,
    TracePolicy,
    WindowMode,
    Workload,
    ir,
    workload,
)

ENUMS = Path(__file__).parents[2] / "core" / "include" / "ptowsp" / "enums.def"

Refused = Callable[..., ScheduleError]


@workload
def empty():
    pass


def directives(value: Workload) -> tuple[ir.Directive, ...]:
    return value.traced().module.schedule


def test_no_directive_by_default() -> None:
    assert directives(empty()) == ()
    assert directives(empty().task_graph()) == ()
    assert repr(empty().schedule) == "task_graph()"


@pytest.mark.parametrize(
    ("given", "name", "args"),
    [
        ({"deps": Deps.auto()}, "DEPS", (0,)),
        ({"deps": Deps.infer_tensor_map_exact()}, "DEPS", (1,)),
        ({"deps": Deps.infer_bytes_overlap()}, "DEPS", (2,)),
        ({"ready": ReadyPolicy.fifo()}, "READY", (1,)),
        ({"ready": ReadyPolicy.work_steal()}, "READY", (2,)),
        ({"start": StartPolicy.immediate()}, "START", (0, 0)),
        ({"start": StartPolicy.after_orchestration()}, "START", (1, 0)),
        ({"start": StartPolicy.threshold(100)}, "START", (2, 100)),
        ({"window": TaskWindow()}, "WINDOW", (8192, 0, 0)),
        ({"window": TaskWindow(16, mode=WindowMode.ABORT)}, "WINDOW", (16, 0, 1)),
        ({"window": TaskWindow(16, "tasks", WindowMode.BENCHMARK)}, "WINDOW", (16, 0, 2)),
        ({"window": TaskWindow(1 << 40, "bytes")}, "WINDOW", (1 << 40, 1, 0)),
        ({"trace": TracePolicy.none()}, "TRACE", (0, 0)),
        ({"trace": TracePolicy.timestamps()}, "TRACE", (1, 65536)),
        ({"trace": TracePolicy.timestamps(capacity=32)}, "TRACE", (1, 32)),
    ],
)
def test_directives(given: dict[str, Any], name: str, args: tuple[int, ...]) -> None:
    value = empty().task_graph(**given)
    assert directives(value) == (ir.Directive(name, args),)
    (option, policy) = next(iter(given.items()))
    assert repr(value) == f"<Workload empty task_graph({option}={policy!r})>"
    # What is printed can be pasted back.
    assert eval(repr(policy)) == policy


def test_later_directives_replace_and_add() -> None:
    first = empty().task_graph(deps=Deps.auto(), window=TaskWindow(64))
    second = first.task_graph(window=TaskWindow(8), trace=TracePolicy.none())
    assert [d.name for d in directives(first)] == ["DEPS", "WINDOW"]
    assert directives(first)[1].args == (64, 0, 0)
    assert [d.name for d in directives(second)] == ["DEPS", "WINDOW", "TRACE"]
    assert directives(second)[1].args == (8, 0, 0)
    assert repr(second.schedule) == (
        "task_graph(deps=Deps.auto(), "
        "window=TaskWindow(size=8, unit='tasks', mode=WindowMode.STALL), trace=TracePolicy.none())"
    )


def test_each_directive_has_the_line_that_gave_it() -> None:
    value = empty().task_graph(deps=Deps.auto(), window=TaskWindow())
    value = value.task_graph(window=TaskWindow(4))
    deps, window = directives(value)
    assert deps.loc is not None
    assert window.loc is not None
    assert window.loc.line == deps.loc.line + 1
    assert deps.loc.file == __file__


def test_schedules_are_equal_by_value() -> None:
    one, other = (empty().task_graph(start=StartPolicy.threshold(3)) for _ in range(2))
    assert one.schedule == other.schedule
    assert one.schedule != empty().schedule
    assert hash(one.schedule) == hash(other.schedule)


@pytest.mark.parametrize(
    ("option", "value", "kind"),
    [
        ("deps", "auto", "Deps"),
        ("deps", ReadyPolicy.fifo(), "Deps"),
        ("window", 64, "TaskWindow"),
        ("ready", Deps.auto(), "ReadyPolicy"),
        ("start", 3, "StartPolicy"),
        ("trace", True, "TracePolicy"),
    ],
)
def test_refuses_other_types(option: str, value: Any, kind: str, refused: Refused) -> None:
    def case() -> None:
        empty().task_graph(**{option: value})  #!

    error = refused(case, f"task_graph({option}={value!r})", ScheduleError)
    assert error.why == f"{option} is a {kind}"


def test_refuses_other_values(refused: Refused) -> None:
    def unit() -> None:
        TaskWindow(64, unit="pages")  #!

    refused(unit, "TaskWindow(unit='pages')", ScheduleError)

    def size() -> None:
        TaskWindow(0)  #!

    refused(size, "TaskWindow(size): 0", ScheduleError)

    def mode() -> None:
        TaskWindow(mode=1)  #!  # pyright: ignore[reportArgumentType]

    refused(mode, "TaskWindow(mode=1)", ScheduleError)

    def threshold() -> None:
        StartPolicy.threshold(0)  #!

    refused(threshold, "StartPolicy.threshold(n): 0", ScheduleError)

    def capacity() -> None:
        TracePolicy.timestamps(capacity=2.5)  #!  # pyright: ignore[reportArgumentType]

    refused(capacity, "TracePolicy.timestamps(capacity=...): 2.5", ScheduleError)

    def kind() -> None:
        Deps("guess")  #!

    refused(kind, "no Deps 'guess'", ScheduleError)


def test_refuses_other_defaults_of_a_key(refused: Refused) -> None:
    def symbolic() -> None:
        DispatchPolicy.affinity(lambda t: t.rows + t.get("x", t.ordinal))  #!

    error = refused(symbolic, "t.get('x', <symbolic task_ordinal()>)", ScheduleError)
    assert error.fix == 'write t.get("rows", 0)'

    def no_name() -> None:
        DispatchPolicy.affinity(lambda t: t.get(3, 0))  #!

    refused(no_name, "t.get(3, 0)", ScheduleError)
