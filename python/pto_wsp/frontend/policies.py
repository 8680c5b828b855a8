"""Policies: the values of which schedules are made.

The numbers are those of the plan's enums in core/include/ptowsp/enums.def; a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from os import PathLike
from pathlib import Path
from typing import Any, Self, cast

from pto_wsp import ir, srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import ScheduleError
from pto_wsp.frontend.keys import Key, key_of
from pto_wsp.frontend.named_policies import named_policy
from pto_wsp.frontend.scalar_expr import as_int

# Per policy class: the number of each policy, by the name of the method that makes it.
NUMBERS: dict[str, dict[str, int]] = {
    "Deps": {
        "auto": 0,
        "infer_tensor_map_exact": 1,
        "infer_bytes_overlap": 2,
        "explicit": 3,
        "hybrid": 4,
    },
    "ReadyPolicy": {"fifo": 1, "work_steal": 2, "priority": 3},
    "StartPolicy": {"immediate": 0, "after_orchestration": 1, "threshold": 2},
    "TracePolicy": {"none": 0, "timestamps": 1, "cycles": 2},
    "WindowUnit": {"tasks": 0, "bytes": 1},
    "DispatchPolicy": {
        "work_steal": 0,
        "round_robin": 1,
        "affinity": 2,
        "hash": 3,
        "dispatch_by": 4,
        "static_partition": 5,
    },
    "TimingPolicy": {"immediate": 0, "batched": 1, "interleaved": 2, "rate_limit": 3},
    "Pools": {"single": 0, "by_exec_unit": 1, "custom": 2},
    "DepthScope": {"global": 0, "per_stream": 1, "per_pool": 2, "per_key": 3},
    "OnFull": {"stall": 0, "error": 1},
    "OrderPolicy": {"Sequential": 0, "Parallel": 1, "Interleaved": 2},
}


class WindowMode(IntEnum):
    """What happens when the task window is full."""

    STALL = 0
    ABORT = 1
    BENCHMARK = 2

    def __repr__(self) -> str:
        return f"WindowMode.{self.name}"


class Affinity(IntEnum):
    """Which workers run the tasks of one index of an axis."""

    CORE_LOCAL = 0  # one and the same: index modulo workers
    CORE_GROUP = 1  # any of a group of neighbours: index modulo groups
    SPREAD = 2  # all of them, by the mixed number of the task

    def __repr__(self) -> str:
        return f"Affinity.{self.name}"


@dataclass(frozen=True, slots=True, repr=False)
class _Policy:
    """One of the named policies of a kind; made by the class methods of the subclasses."""

    kind: str

    def __post_init__(self) -> None:
        known = NUMBERS[type(self).__name__]
        if self.kind not in known:
            forms = ", ".join(f"{type(self).__name__}.{name}()" for name in known)
            raise directive_error(
                f"no {type(self).__name__} {self.kind!r}",
                f"there are {forms}",
                forms,
            )

    @classmethod
    def named(cls, name: str, /, *args: Any, **kwargs: Any) -> Self:
        """A policy of another package, registered under that name in the entry point group
        `pto_wsp.policies`; what else is passed goes to its function."""
        return named_policy(cls, name, args, kwargs)

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

    @classmethod
    def explicit(cls) -> Deps:
        """Only P.seq, sequential and `after=` order tasks: a promise that they say everything.
        Updates through `Accum`, whose order is free, are still kept apart."""
        return cls("explicit")

    @classmethod
    def hybrid(cls) -> Deps:
        """`after=` and all overlapping regions. Every policy counts `after=`, so this is another
        name for `infer_bytes_overlap` that says so."""
        return cls("hybrid")


@dataclass(frozen=True, slots=True, repr=False)
class ReadyPolicy(_Policy):
    """Which ready task runs next; without one, the target chooses."""

    key: Key | None = None

    @classmethod
    def fifo(cls) -> ReadyPolicy:
        """The ready task that was submitted first."""
        return cls("fifo")

    @classmethod
    def work_steal(cls) -> ReadyPolicy:
        """A queue per worker; a worker without work takes from another."""
        return cls("work_steal")

    @classmethod
    def priority(cls, key: Callable[[Any], Any]) -> ReadyPolicy:
        """The ready task with the largest key; of equal ones, the one submitted first."""
        return cls("priority", key_of(key, "ReadyPolicy.priority"))

    def __repr__(self) -> str:
        return f"ReadyPolicy.{self.kind}({'' if self.key is None else self.key})"


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
        return cls("threshold", positive(n, "StartPolicy.threshold(n)"))

    def __repr__(self) -> str:
        return f"StartPolicy.{self.kind}({self.count if self.kind == 'threshold' else ''})"


@dataclass(frozen=True, slots=True, repr=False)
class TracePolicy(_Policy):
    """What a run records of each task."""

    capacity: int = 0
    path: Path | None = None
    key: Key | None = None

    @classmethod
    def none(cls) -> TracePolicy:
        """Nothing (the default)."""
        return cls("none")

    @classmethod
    def timestamps(
        cls, path: str | PathLike[str] | None = None, capacity: int = 65536
    ) -> TracePolicy:
        """Times and places of tasks and what they waited for: of the last `capacity` tasks of each
        worker, or with `path` of all of them. Each run then writes that file, for Perfetto."""
        count = positive(capacity, "TracePolicy.timestamps(capacity=...)")
        return cls("timestamps", count, _path(path, "TracePolicy.timestamps(path=...)"))

    @classmethod
    def cycles(
        cls,
        key: Callable[[Any], Any],
        path: str | PathLike[str] | None = None,
        capacity: int = 65536,
    ) -> TracePolicy:
        """The same on a virtual clock, on which a task lasts as many cycles as the key says. The
        workers are simulated: any number of them, the same trace on every machine."""
        count = positive(capacity, "TracePolicy.cycles(capacity=...)")
        found = key_of(key, "TracePolicy.cycles")
        return cls("cycles", count, _path(path, "TracePolicy.cycles(path=...)"), found)

    def directive(self) -> tuple[ir.DirectiveArg, ...]:
        """The path is not part of it: a plan says nothing about the machine it runs on, and must
        not name files there."""
        key = () if self.key is None else (self.key.expr,)
        return (self.number, self.capacity, *key)

    def __repr__(self) -> str:
        parts = [] if self.key is None else [str(self.key)]
        parts += [] if self.path is None else [f"path={str(self.path)!r}"]
        parts += [f"capacity={self.capacity}"] if self.capacity else []
        return f"TracePolicy.{self.kind}({', '.join(parts)})"


@dataclass(frozen=True, slots=True)
class TaskWindow:
    """At most `size` tasks are generated and not finished at any time; with unit="bytes", at most
    as many as write `size` bytes together (Out, InOut and Accum regions, temporaries included)."""

    size: int = 8192
    unit: str = "tasks"
    mode: WindowMode = WindowMode.STALL

    def __post_init__(self) -> None:
        positive(self.size, "TaskWindow(size)")
        if self.unit not in NUMBERS["WindowUnit"]:
            raise directive_error(
                f"TaskWindow(unit={self.unit!r})",
                "no such unit",
                'use unit="tasks" or unit="bytes"',
            )
        if not isinstance(cast(object, self.mode), WindowMode):
            raise directive_error(
                f"TaskWindow(mode={self.mode!r})",
                "the mode is a WindowMode",
                "use WindowMode.STALL, WindowMode.ABORT or WindowMode.BENCHMARK",
            )


@dataclass(frozen=True, slots=True, repr=False)
class DispatchPolicy(_Policy):
    """Which worker runs a task. All but `work_steal` pin: the task runs there and nowhere else,
    except that with ready=work_steal() tasks placed by `affinity` may be stolen."""

    args: tuple[ir.DirectiveArg, ...] = ()
    shown: str = ""

    @classmethod
    def work_steal(cls) -> DispatchPolicy:
        """Any worker that is idle (the default)."""
        return cls("work_steal")

    @classmethod
    def round_robin(cls, n: int) -> DispatchPolicy:
        """Task number modulo n."""
        count = positive(n, "DispatchPolicy.round_robin(n)")
        return cls("round_robin", (count,), str(count))

    @classmethod
    def affinity(cls, key: Callable[[Any], Any]) -> DispatchPolicy:
        """Key modulo workers: tasks of equal keys run on one worker."""
        return cls._by("affinity", key)

    @classmethod
    def hash(cls, key: Callable[[Any], Any]) -> DispatchPolicy:
        """The key, mixed, modulo workers."""
        return cls._by("hash", key)

    @classmethod
    def dispatch_by(cls, key: Callable[[Any], Any]) -> DispatchPolicy:
        """The key is the number of the worker."""
        return cls._by("dispatch_by", key)

    @classmethod
    def static_partition(cls, ranges: Sequence[Sequence[int]]) -> DispatchPolicy:
        """Worker k runs the tasks of ranges[k], (first, last) in program order. The ranges follow
        each other from task 0 on; the last worker has all tasks behind as well."""
        bounds = [(as_int(r[0]), as_int(r[1])) for r in ranges if len(r) == 2]
        starts = [lo for lo, _ in bounds]
        ends = [0, *(hi for _, hi in bounds)]
        if not bounds or len(bounds) != len(ranges) or starts != ends[:-1]:
            raise directive_error(
                f"DispatchPolicy.static_partition({ranges!r})",
                "the ranges do not follow each other from 0 on",
                "write [(0, 100), (100, 250)]: one range for each worker",
            )
        return cls("static_partition", tuple(starts), repr(list(ranges)))

    @classmethod
    def _by(cls, kind: str, key: Callable[[Any], Any]) -> DispatchPolicy:
        found = key_of(key, f"DispatchPolicy.{kind}")
        return cls(kind, (found.expr,), str(found))

    @property
    def pins(self) -> bool:
        return self.kind != "work_steal"

    def directive(self) -> tuple[ir.DirectiveArg, ...]:
        return (self.number, *self.args)

    def __repr__(self) -> str:
        return f"DispatchPolicy.{self.kind}({self.shown})"


@dataclass(frozen=True, slots=True, repr=False)
class TimingPolicy(_Policy):
    """When ready tasks are issued."""

    count: int = 0

    @classmethod
    def immediate(cls) -> TimingPolicy:
        """At once (the default)."""
        return cls("immediate")

    @classmethod
    def batched(cls, n: int) -> TimingPolicy:
        """n at a time; fewer when nothing else could run."""
        return cls("batched", positive(n, "TimingPolicy.batched(n)"))

    @classmethod
    def interleaved(cls, n: int) -> TimingPolicy:
        """In turns over n streams; a stream without tasks is passed over."""
        return cls("interleaved", positive(n, "TimingPolicy.interleaved(n)"))

    @classmethod
    def rate_limit(cls, k: int) -> TimingPolicy:
        """k in a millisecond."""
        return cls("rate_limit", positive(k, "TimingPolicy.rate_limit(k)"))

    def __repr__(self) -> str:
        return f"TimingPolicy.{self.kind}({self.count if self.count else ''})"


@dataclass(frozen=True, slots=True, repr=False)
class Pools(_Policy):
    """Into which pools workers and tasks are divided: workers run tasks of their pool only. Where
    there are fewer workers than pools, they take turns."""

    count: int = 1
    key: Key | None = None

    @classmethod
    def single(cls) -> Pools:
        """One for all (the default)."""
        return cls("single")

    @classmethod
    def by_exec_unit(cls) -> Pools:
        """Pool 0 runs kernels of exec_unit "vector" and "any", pool 1 those of "cube". Workers are
        divided evenly between them whatever the kernels are, like the cores of a machine."""
        return cls("by_exec_unit", 2)

    @classmethod
    def custom(cls, key: Callable[[Any], Any], count: int) -> Pools:
        """Pool number key modulo `count`."""
        found = key_of(key, "Pools.custom")
        return cls("custom", positive(count, "Pools.custom(key, count)"), found)

    def __repr__(self) -> str:
        custom = "" if self.key is None else f"{self.key}, {self.count}"
        return f"Pools.{self.kind}({custom})"


@dataclass(frozen=True, slots=True)
class Metric:
    """What `dispatch_threshold` compares with its thresholds."""

    key: Key | None = None

    @classmethod
    def num_tasks(cls) -> Metric:
        """The number of tasks of the run; unknown before it counts as many."""
        return cls()

    @classmethod
    def task(cls, key: Callable[[Any], Any]) -> Metric:
        """A key of each task."""
        return cls(key_of(key, "Metric.task"))


@dataclass(frozen=True, slots=True)
class DepthGate:
    """At most `depth` tasks in flight."""

    depth: int
    scope: str = "global"
    key: Key | None = None
    on_full: str = "stall"

    def __post_init__(self) -> None:
        positive(self.depth, "pipeline_depth(depth)")
        for name, value in (("scope", self.scope), ("on_full", self.on_full)):
            known = NUMBERS["DepthScope" if name == "scope" else "OnFull"]
            if value not in known:
                raise directive_error(
                    f"pipeline_depth({name}={value!r})",
                    "no such value",
                    f"use one of {', '.join(repr(k) for k in known)}",
                )
        if (self.scope == "per_key") is not (self.key is not None):
            raise directive_error(
                f"pipeline_depth(scope={self.scope!r}) {'without' if self.key is None else 'with'} "
                "a key",
                'scope="per_key" counts tasks of equal keys, the others have none',
                'write pipeline_depth(4, scope="per_key", key=lambda t: t.rows)',
            )

    def directive(self) -> tuple[ir.DirectiveArg, ...]:
        scope, full = NUMBERS["DepthScope"][self.scope], NUMBERS["OnFull"][self.on_full]
        return (self.depth, scope, full, *(() if self.key is None else (self.key.expr,)))


@dataclass(frozen=True, slots=True)
class OrderPolicy:
    """In which order the values of an axis are generated: `Sequential`, `Parallel` or
    `Interleaved(n)`."""

    kind: str
    count: int = 0

    def directive(self, axis: str) -> tuple[ir.DirectiveArg, ...]:
        count = (self.count,) if self.kind == "Interleaved" else ()
        return (axis, NUMBERS["OrderPolicy"][self.kind], *count)

    def __repr__(self) -> str:
        return self.kind + (f"({self.count})" if self.count else "")


# One after the other.
Sequential = OrderPolicy("Sequential")
# Several at a time, each at its own pace.
Parallel = OrderPolicy("Parallel")


def Interleaved(n: int) -> OrderPolicy:  # noqa: N802 - one of three values
    """n values of the axis at a time, in turns of one task; one that ends gives way to the next."""
    return OrderPolicy("Interleaved", positive(n, "Interleaved(n)"))


@dataclass(frozen=True, slots=True)
class Prefetch:
    """What the task `depth` iterations further along an axis reads is prefetched."""

    axis: str
    depth: int

    def __post_init__(self) -> None:
        if not isinstance(cast(object, self.axis), str):
            raise directive_error(
                f"prefetch(axis={self.axis!r})",
                "an axis is given by its name",
                'write prefetch("rows", 2) for a loop over the parameter rows',
            )
        positive(self.depth, "prefetch(axis, depth)")


def _path(value: object, form: str) -> Path | None:
    if value is None or isinstance(value, str | PathLike):
        return None if value is None else Path(cast("str | PathLike[str]", value))
    raise directive_error(
        f"{form}: {value!r}", "it is a path", 'write path="trace.json" or path="trace.json.gz"'
    )


def positive(value: object, form: str) -> int:
    number = None if isinstance(value, bool) else as_int(value)
    if number is None or not 1 <= number < 2**63:
        raise directive_error(f"{form}: {value!r}", "it is a count", "use an integer of at least 1")
    return number


def directive_error(what: str, why: str, fix: str) -> ScheduleError:
    return ScheduleError(Code.DIRECTIVE_VALUE, what, loc=srcloc.here(), why=why, fix=fix)
