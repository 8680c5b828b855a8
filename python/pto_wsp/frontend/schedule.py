"""Schedules: how tasks run, never what they compute. A schedule is a value, made of policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pto_wsp import ir, srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import ScheduleError
from pto_wsp.frontend.keys import Key, key_of
from pto_wsp.frontend.policies import (
    NUMBERS,
    Affinity,
    Deps,
    DepthGate,
    DispatchPolicy,
    Metric,
    OrderPolicy,
    Pools,
    Prefetch,
    ReadyPolicy,
    StartPolicy,
    TaskWindow,
    TimingPolicy,
    TracePolicy,
    directive_error,
    positive,
)
from pto_wsp.frontend.scalar_expr import as_int
from pto_wsp.srcloc import SrcLoc


@dataclass(frozen=True, slots=True)
class Levels:
    """dispatch_threshold: the policy of the highest threshold that the metric reaches."""

    metric: Metric
    thresholds: tuple[int, ...]
    policies: tuple[DispatchPolicy, ...]


@dataclass(frozen=True, slots=True)
class Orders:
    """order: the axes that have one."""

    axes: tuple[tuple[str, OrderPolicy], ...]


@dataclass(frozen=True, slots=True, repr=False)
class DirectiveSet:
    """The directives given so far; None is the default. Prints as the calls that give them."""

    deps: Deps | None = None
    window: TaskWindow | None = None
    pools: Pools | None = None
    ready: ReadyPolicy | None = None
    start: StartPolicy | None = None
    trace: TracePolicy | None = None
    dispatch: DispatchPolicy | None = None
    dispatch_threshold: Levels | None = None
    streams: int | None = None
    stream_by: Key | None = None
    timing: TimingPolicy | None = None
    pipeline_depth: tuple[DepthGate, ...] | None = None
    order: tuple[tuple[str, OrderPolicy], ...] | None = None
    batch_deps: int | None = None
    prefetch: tuple[Prefetch, ...] | None = None
    affinity: tuple[str, Affinity] | None = None
    locs: tuple[tuple[str, SrcLoc | None], ...] = field(default=(), compare=False)

    # --- the calls ---

    def task_graph(self, **given: object) -> DirectiveSet:
        """This schedule with the given directives replaced or added."""
        kinds: dict[str, tuple[type[object], str]] = {
            "deps": (Deps, "Deps.auto()"),
            "window": (TaskWindow, "TaskWindow(8192)"),
            "pools": (Pools, "Pools.single()"),
            "ready": (ReadyPolicy, "ReadyPolicy.fifo()"),
            "start": (StartPolicy, "StartPolicy.immediate()"),
            "trace": (TracePolicy, "TracePolicy.timestamps()"),
        }
        checked = {
            name: _checked("task_graph", name, value, *kinds[name]) for name, value in given.items()
        }
        return self._with(**{name: value for name, value in checked.items() if value is not None})

    def with_dispatch(self, policy: object) -> DirectiveSet:
        example = "DispatchPolicy.round_robin(4)"
        return self._with(dispatch=_checked("dispatch", "policy", policy, DispatchPolicy, example))

    def with_threshold(
        self, metric: object, thresholds: Sequence[int], policies: Sequence[DispatchPolicy]
    ) -> DirectiveSet:
        found = _checked("dispatch_threshold", "metric", metric, Metric, "Metric.num_tasks()")
        assert found is not None
        numbers = [as_int(number) for number in thresholds]
        known = [n for n in numbers if n is not None and -(2**63) <= n < 2**63]
        if not len(known) == len(thresholds) == len(policies) or sorted(known) != known:
            raise directive_error(
                f"dispatch_threshold of {len(thresholds)} thresholds and {len(policies)} policies",
                "each policy begins at its threshold, a 64-bit integer, and thresholds grow",
                "write dispatch_threshold(metric, [0, 1000], [small, large])",
            )
        return self._with(dispatch_threshold=Levels(found, tuple(known), tuple(policies)))

    def with_streams(self, count: int) -> DirectiveSet:
        return self._with(streams=positive(count, "streams(n)"))

    def with_stream_by(self, key: Callable[[Any], Any]) -> DirectiveSet:
        return self._with(stream_by=key_of(key, "stream_by"))

    def with_timing(self, policy: object) -> DirectiveSet:
        example = "TimingPolicy.batched(16)"
        return self._with(timing=_checked("timing", "policy", policy, TimingPolicy, example))

    def with_depth(self, gate: DepthGate) -> DirectiveSet:
        """One gate more, or another one of the same scope."""
        kept = tuple(g for g in self.pipeline_depth or () if g.scope != gate.scope)
        return self._with(pipeline_depth=(*kept, gate))

    def with_order(self, given: Mapping[str, object]) -> DirectiveSet:
        """The order of some axes more, or another one."""
        if not given:
            raise directive_error(
                "order() of no axis", "it orders the values of axes", "write order(rows=Parallel)"
            )
        orders = dict(self.order or ())
        for axis, policy in given.items():
            found = _checked("order", axis, policy, OrderPolicy, "Interleaved(4)")
            assert found is not None
            orders[axis] = found
        return self._with(order=tuple(orders.items()))

    def with_batch_deps(self, count: int) -> DirectiveSet:
        return self._with(batch_deps=positive(count, "batch_deps(n)"))

    def with_prefetch(self, ahead: Prefetch) -> DirectiveSet:
        """One axis more, or another depth of the same one."""
        kept = tuple(p for p in self.prefetch or () if p.axis != ahead.axis)
        return self._with(prefetch=(*kept, ahead))

    def with_affinity(self, axes: Mapping[str, object]) -> DirectiveSet:
        if len(axes) != 1:
            raise directive_error(
                f"affinity of {len(axes)} axes",
                "the index of one axis says where a task runs",
                "write affinity(rows=Affinity.CORE_LOCAL)",
            )
        ((axis, policy),) = axes.items()
        if not isinstance(policy, Affinity):
            raise directive_error(
                f"affinity({axis}={policy!r})",
                "the policy of an axis is an Affinity",
                "use Affinity.CORE_LOCAL, Affinity.CORE_GROUP or Affinity.SPREAD",
            )
        return self._with(affinity=(axis, policy))

    def _with(self, **new: object) -> DirectiveSet:
        loc = srcloc.here()
        kept = tuple(entry for entry in self.locs if entry[0] not in new)
        changed = replace(self, **new, locs=(*kept, *((name, loc) for name in new)))
        changed.check()
        return changed

    # --- contradictions ---

    def check(self) -> None:
        """ScheduleError if two directives contradict each other."""
        policies = [self.dispatch] if self.dispatch else []
        if self.dispatch_threshold is not None:
            if self.dispatch is not None:
                self._contradiction(
                    "dispatch",
                    "dispatch_threshold",
                    "both say which worker runs a task",
                    "keep one of them",
                )
            policies += self.dispatch_threshold.policies
        self._check_affinity()
        stealing = self.ready is not None and self.ready.kind == "work_steal"
        for policy in policies:
            if stealing and policy.pins and policy.kind != "affinity":
                pinned = "dispatch" if self.dispatch else "dispatch_threshold"
                self._contradiction(
                    pinned,
                    "ready",
                    f"{policy!r} says who runs a task, work_steal() lets others take it",
                    "use DispatchPolicy.affinity(key), which places first and may be stolen from",
                )

    def _check_affinity(self) -> None:
        if self.affinity is None:
            return
        given = {"dispatch": self.dispatch, "dispatch_threshold": self.dispatch_threshold}
        for name, value in given.items():
            if value is not None:
                why = "both say which worker runs a task"
                self._contradiction("affinity", name, why, "keep one of them")
        if self.ready is not None and self.ready.kind == "work_steal":
            self._contradiction(
                "affinity",
                "ready",
                f"{self.affinity[1]!r} says who runs a task, work_steal() lets others take it",
                "use dispatch(DispatchPolicy.affinity(key)), which places first and may be stolen "
                "from",
            )

    def check_complete(self) -> None:
        """ScheduleError for a directive that needs another one, once all have been given."""
        needs = [
            ("stream_by", self.stream_by is not None, "streams", self.streams),
            ("timing", self._turns_over_streams(), "streams", self.streams),
            ("pipeline_depth", self._has_gate("per_stream"), "streams", self.streams),
            ("pipeline_depth", self._has_gate("per_pool"), "pools", self.pools),
        ]
        for name, given, needed, value in needs:
            if given and value is None:
                raise ScheduleError(
                    Code.DIRECTIVE_VALUE,
                    f"{name} without {needed}",
                    loc=dict(self.locs).get(name),
                    why=f"it divides tasks by {needed}, and there are none",
                    fix="add .streams(4)" if needed == "streams" else "add pools=Pools.custom(...)",
                )

    def check_axes(self, body: ir.Body) -> None:
        """ScheduleError for a directive that names a loop which the program does not have."""
        counted = {stmt.axis for stmt in ir.walk(body) if isinstance(stmt, ir.Loop)}
        loops = {stmt.axis for stmt in ir.walk(body) if isinstance(stmt, ir.While)} | counted
        named = [("prefetch", ahead.axis, counted) for ahead in self.prefetch or ()]
        named += [("order", axis, loops) for axis, _ in self.order or ()]
        if self.affinity is not None:
            named.append(("affinity", self.affinity[0], loops))
        for name, axis, known in named:
            if axis not in known:
                uncounted = axis in loops
                raise ScheduleError(
                    Code.DIRECTIVE_VALUE,
                    f"{name} names the loop {axis!r}",
                    loc=dict(self.locs).get(name),
                    why="nobody knows how often P.loop_while goes round"
                    if uncounted
                    else f"the workload has no loop over an axis {axis!r}",
                    fix=f"use one of {', '.join(map(repr, sorted(known)))}"
                    if known
                    else f"leave {name} out",
                )

    def check_network(self, body: ir.Body) -> None:
        """ScheduleError for a directive that processes leave no room for."""
        if not body or not isinstance(body[-1], ir.Network):
            return
        promise = self.deps is not None and self.deps.kind in ("infer_tensor_map_exact", "explicit")
        if promise:
            raise ScheduleError(
                Code.DIRECTIVE_NOT_ENFORCED,
                f"deps={self.deps} of a network",
                loc=dict(self.locs).get("deps"),
                why="messages are ordered by their regions, which such a policy does not look at",
                fix="use Deps.hybrid(), Deps.infer_bytes_overlap() or leave deps out",
            )
        if self.order:
            raise ScheduleError(
                Code.DIRECTIVE_NOT_ENFORCED,
                "order(...) of a network",
                loc=dict(self.locs).get("order"),
                why="processes take turns in generating tasks, message by message",
                fix="leave order out, or use P.seq in the process",
            )

    def _turns_over_streams(self) -> bool:
        return self.timing is not None and self.timing.kind == "interleaved"

    def _has_gate(self, scope: str) -> bool:
        return any(gate.scope == scope for gate in self.pipeline_depth or ())

    def _contradiction(self, one: str, other: str, why: str, fix: str) -> None:
        locs = dict(self.locs)
        there = "" if locs.get(one) is None else f" ({one} is given at {locs[one]})"
        raise ScheduleError(
            Code.DIRECTIVES_CONTRADICT,
            f"{one} and {other} contradict each other",
            loc=locs.get(other),
            why=why + there,
            fix=fix,
        )

    # --- as IR ---

    @property
    def is_default(self) -> bool:
        return not self.directives()

    def directives(self) -> tuple[ir.Directive, ...]:
        """The IR of what was given, in a fixed order; names and arguments as in enums.def."""
        locs = dict(self.locs)
        return tuple(
            ir.Directive(name.upper(), args, locs.get(name)) for name, args in self._arguments()
        )

    def _arguments(self) -> list[tuple[str, tuple[ir.DirectiveArg, ...]]]:
        found: list[tuple[str, tuple[ir.DirectiveArg, ...]]] = []
        if self.deps is not None:
            found.append(("deps", (self.deps.number,)))
        if self.window is not None:
            unit = NUMBERS["WindowUnit"][self.window.unit]
            found.append(("window", (self.window.size, unit, int(self.window.mode))))
        if self.pools is not None:
            key = () if self.pools.key is None else (self.pools.count, self.pools.key.expr)
            found.append(("pools", (self.pools.number, *key)))
        if self.ready is not None:
            key = () if self.ready.key is None else (self.ready.key.expr,)
            found.append(("ready", (self.ready.number, *key)))
        if self.start is not None:
            found.append(("start", (self.start.number, self.start.count)))
        if self.trace is not None:
            found.append(("trace", self.trace.directive()))
        if self.dispatch is not None:
            found.append(("dispatch", self.dispatch.directive()))
        if self.dispatch_threshold is not None:
            found += self._levels(self.dispatch_threshold)
        if self.streams is not None:
            found.append(("streams", (self.streams,)))
        if self.stream_by is not None:
            found.append(("stream_by", (self.stream_by.expr,)))
        if self.timing is not None:
            found.append(("timing", (self.timing.number, self.timing.count)))
        found += [("pipeline_depth", gate.directive()) for gate in self.pipeline_depth or ()]
        found += [("order", policy.directive(axis)) for axis, policy in self.order or ()]
        if self.batch_deps is not None:
            found.append(("batch_deps", (self.batch_deps,)))
        found += [("prefetch", (ahead.axis, ahead.depth)) for ahead in self.prefetch or ()]
        if self.affinity is not None:
            found.append(("affinity", (self.affinity[0], int(self.affinity[1]))))
        return found

    @staticmethod
    def _levels(levels: Levels) -> list[tuple[str, tuple[ir.DirectiveArg, ...]]]:
        metric = None if levels.metric.key is None else levels.metric.key.expr
        return [
            ("dispatch_threshold", (metric, threshold, *policy.directive()))
            for threshold, policy in zip(levels.thresholds, levels.policies, strict=True)
        ]

    def __repr__(self) -> str:
        calls = [f"{name}({_shown(value)})" for name, value in self._calls()]
        names = ("deps", "window", "pools", "ready", "start", "trace")
        graph = [f"{n}={getattr(self, n)!r}" for n in names if getattr(self, n) is not None]
        if graph or not calls:
            calls.append(f"task_graph({', '.join(graph)})")
        return ".".join(calls)

    def _calls(self) -> list[tuple[str, object]]:
        names = ("dispatch", "dispatch_threshold", "streams", "stream_by", "timing", "batch_deps")
        found = [(name, getattr(self, name)) for name in names if getattr(self, name) is not None]
        found += [("pipeline_depth", gate) for gate in self.pipeline_depth or ()]
        found += [("order", Orders(self.order))] if self.order else []
        found += [("prefetch", ahead) for ahead in self.prefetch or ()]
        return [*found, *([] if self.affinity is None else [("affinity", self.affinity)])]


def _shown(value: object) -> str:
    match value:
        case Levels(metric, thresholds, policies):
            return f"{metric!r}, {list(thresholds)}, {list(policies)}"
        case DepthGate(depth, scope, key, on_full):
            more = "" if key is None else f", key={key}"
            return f"{depth}, scope={scope!r}{more}, on_full={on_full!r}"
        case Prefetch(axis, depth):
            return f"{axis!r}, {depth}"
        case (str(axis), Affinity() as policy):
            return f"{axis}={policy!r}"
        case Key():
            return str(value)
        case Orders(axes):
            return ", ".join(f"{axis}={policy!r}" for axis, policy in axes)
        case _:
            return repr(value)


Value = TypeVar("Value")


def _checked(form: str, name: str, value: object, kind: type[Value], example: str) -> Value | None:
    if value is None or isinstance(value, kind):
        return value
    raise directive_error(
        f"{form}({name}={value!r})", f"{name} is a {kind.__name__}", f"write {name}={example}"
    )
