"""Schedules: how tasks run, never what they compute. Policies are values; a schedule is, too.

The numbers are those of the plan's enums in core/include/ptowsp/enums.def; a test compares them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import TypeVar, cast

from pto_wsp import ir, srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import ScheduleError
from pto_wsp.frontend.scalar_expr import as_int
from pto_wsp.srcloc import SrcLoc

# Per policy class: the number of each policy, by the name of the method that makes it.
NUMBERS: dict[str, dict[str, int]] = {
    "Deps": {"auto": 0, "infer_tensor_map_exact": 1, "infer_bytes_overlap": 2},
    "ReadyPolicy": {"fifo": 1, "work_steal": 2},
    "StartPolicy": {"immediate": 0, "after_orchestration": 1, "threshold": 2},
    "TracePolicy": {"none": 0, "timestamps": 1},
    "WindowUnit": {"tasks": 0},
}


class WindowMode(IntEnum):
    """What happens when the task window is full."""

    STALL = 0
    ABORT = 1
    BENCHMARK = 2

    def __repr__(self) -> str:
        return f"WindowMode.{self.name}"


@dataclass(frozen=True, slots=True, repr=False)
class _Policy:
    """One of the named policies of a kind; made by the class methods of the subclasses."""

    kind: str

    def __post_init__(self) -> None:
        known = NUMBERS[type(self).__name__]
        if self.kind not in known:
            forms = ", ".join(f"{type(self).__name__}.{name}()" for name in known)
            raise _error(
                Code.DIRECTIVE_VALUE,
                f"no {type(self).__name__} {self.kind!r}",
                f"there are {forms}",
                forms,
            )

    @property
    def number(self) -> int:
        """The policy's number in the plan."""
        return NUMBERS[type(self).__name__][self.kind]

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.kind}()"


@dataclass(frozen=True, slots=True, repr=False)
class Deps(_Policy):
    """How data dependences are found."""

    @classmethod
    def auto(cls) -> Deps:
        """Nothing tracked where a proof shows it needless, overlap for the rest (the default)."""
        return cls("auto")

    @classmethod
    def infer_tensor_map_exact(cls) -> Deps:
        """Only equal regions depend on each other: a promise that no others overlap."""
        return cls("infer_tensor_map_exact")

    @classmethod
    def infer_bytes_overlap(cls) -> Deps:
        """Overlapping regions depend on each other."""
        return cls("infer_bytes_overlap")


@dataclass(frozen=True, slots=True, repr=False)
class ReadyPolicy(_Policy):
    """Which ready task runs next; without one, the target chooses."""

    @classmethod
    def fifo(cls) -> ReadyPolicy:
        """The ready task that was submitted first."""
        return cls("fifo")

    @classmethod
    def work_steal(cls) -> ReadyPolicy:
        """A queue per worker; a worker without work takes from another."""
        return cls("work_steal")


@dataclass(frozen=True, slots=True, repr=False)
class StartPolicy(_Policy):
    """When ready tasks may begin."""

    count: int = 0

    @classmethod
    def immediate(cls) -> StartPolicy:
        """At once (the default)."""
        return cls("immediate")

    @classmethod
    def after_orchestration(cls) -> StartPolicy:
        """When all tasks have been generated."""
        return cls("after_orchestration")

    @classmethod
    def threshold(cls, n: int) -> StartPolicy:
        """When n tasks have been generated, or all of them."""
        return cls("threshold", _positive(n, "StartPolicy.threshold(n)"))

    def __repr__(self) -> str:
        return f"StartPolicy.{self.kind}({self.count if self.kind == 'threshold' else ''})"


@dataclass(frozen=True, slots=True, repr=False)
class TracePolicy(_Policy):
    """What a run records of each task."""

    capacity: int = 0

    @classmethod
    def none(cls) -> TracePolicy:
        """Nothing (the default)."""
        return cls("none")

    @classmethod
    def timestamps(cls, capacity: int = 65536) -> TracePolicy:
        """Times and places of the last `capacity` tasks of each worker."""
        return cls("timestamps", _positive(capacity, "TracePolicy.timestamps(capacity=...)"))

    def __repr__(self) -> str:
        capacity = f"capacity={self.capacity}" if self.kind == "timestamps" else ""
        return f"TracePolicy.{self.kind}({capacity})"


@dataclass(frozen=True, slots=True)
class TaskWindow:
    """At most `size` tasks are generated and not finished at any time."""

    size: int = 8192
    unit: str = "tasks"
    mode: WindowMode = WindowMode.STALL

    def __post_init__(self) -> None:
        _positive(self.size, "TaskWindow(size)")
        if self.unit == "bytes":
            raise _error(
                Code.DIRECTIVE_NOT_ENFORCED,
                'TaskWindow(unit="bytes")',
                "this version does not count bytes and so could not enforce the limit",
                'limit the number of tasks: TaskWindow(size, unit="tasks")',
            )
        if self.unit not in NUMBERS["WindowUnit"]:
            raise _error(
                Code.DIRECTIVE_VALUE,
                f"TaskWindow(unit={self.unit!r})",
                "no such unit",
                'use unit="tasks"',
            )
        if not isinstance(cast(object, self.mode), WindowMode):
            raise _error(
                Code.DIRECTIVE_VALUE,
                f"TaskWindow(mode={self.mode!r})",
                "the mode is a WindowMode",
                "use WindowMode.STALL, WindowMode.ABORT or WindowMode.BENCHMARK",
            )


@dataclass(frozen=True, slots=True, repr=False)
class Schedule:
    """The directives given so far; None is the default. Prints as the call that gives them."""

    deps: Deps | None = None
    window: TaskWindow | None = None
    ready: ReadyPolicy | None = None
    start: StartPolicy | None = None
    trace: TracePolicy | None = None
    locs: tuple[tuple[str, SrcLoc | None], ...] = field(default=(), compare=False)

    def task_graph(
        self,
        deps: Deps | None,
        window: TaskWindow | None,
        ready: ReadyPolicy | None,
        start: StartPolicy | None,
        trace: TracePolicy | None,
    ) -> Schedule:
        """This schedule with the given directives replaced or added."""
        loc = srcloc.here()
        given: dict[str, object] = {
            "deps": _checked("deps", deps, Deps, "Deps.auto()"),
            "window": _checked("window", window, TaskWindow, "TaskWindow(8192)"),
            "ready": _checked("ready", ready, ReadyPolicy, "ReadyPolicy.fifo()"),
            "start": _checked("start", start, StartPolicy, "StartPolicy.immediate()"),
            "trace": _checked("trace", trace, TracePolicy, "TracePolicy.timestamps()"),
        }
        new = {name: value for name, value in given.items() if value is not None}
        kept = tuple(entry for entry in self.locs if entry[0] not in new)
        return replace(self, **new, locs=(*kept, *((name, loc) for name in new)))

    @property
    def is_default(self) -> bool:
        return not self.directives()

    def directives(self) -> tuple[ir.Directive, ...]:
        """The IR of what was given, in a fixed order; names and arguments as in enums.def."""
        found: dict[str, tuple[int, ...]] = {}
        if self.deps is not None:
            found["deps"] = (self.deps.number,)
        if self.window is not None:
            unit = NUMBERS["WindowUnit"][self.window.unit]
            found["window"] = (self.window.size, unit, int(self.window.mode))
        if self.ready is not None:
            found["ready"] = (self.ready.number,)
        if self.start is not None:
            found["start"] = (self.start.number, self.start.count)
        if self.trace is not None:
            found["trace"] = (self.trace.number, self.trace.capacity)
        locs = dict(self.locs)
        return tuple(
            ir.Directive(name.upper(), args, locs.get(name)) for name, args in found.items()
        )

    def __repr__(self) -> str:
        named = ((each.name, getattr(self, each.name)) for each in fields(self))
        given = [
            f"{name}={value!r}" for name, value in named if name != "locs" and value is not None
        ]
        return f"task_graph({', '.join(given)})"


Value = TypeVar("Value")


def _checked(name: str, value: object, kind: type[Value], example: str) -> Value | None:
    if value is None or isinstance(value, kind):
        return value
    raise _error(
        Code.DIRECTIVE_VALUE,
        f"task_graph({name}={value!r})",
        f"{name} is a {kind.__name__}",
        f"write {name}={example}",
    )


def _positive(value: object, form: str) -> int:
    number = None if isinstance(value, bool) else as_int(value)
    if number is None or not 1 <= number < 2**63:
        raise _error(
            Code.DIRECTIVE_VALUE,
            f"{form}: {value!r}",
            "it counts tasks",
            "use an integer of at least 1",
        )
    return number


def _error(code: Code, what: str, why: str, fix: str) -> ScheduleError:
    return ScheduleError(code, what, loc=srcloc.here(), why=why, fix=fix)
