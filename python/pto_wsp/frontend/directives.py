"""The directives of a schedule, as calls on whatever has one: workloads, and schedules that stand
for themselves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Self

from pto_wsp.frontend.keys import key_of
from pto_wsp.frontend.policies import (
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
)
from pto_wsp.frontend.schedule import DirectiveSet


class Directives(ABC):
    """Each call returns a new value with one directive replaced or added."""

    __slots__ = ()

    @property
    @abstractmethod
    def directives(self) -> DirectiveSet:
        """Those given so far."""

    @abstractmethod
    def _under(self, schedule: DirectiveSet) -> Self:
        """The same with other directives."""

    def task_graph(
        self,
        deps: Deps | None = None,
        window: TaskWindow | None = None,
        pools: Pools | None = None,
        ready: ReadyPolicy | None = None,
        start: StartPolicy | None = None,
        trace: TracePolicy | None = None,
    ) -> Self:
        """This workload with directives replaced or added; None keeps what is there."""
        return self._under(
            self.directives.task_graph(
                deps=deps, window=window, pools=pools, ready=ready, start=start, trace=trace
            )
        )

    def dispatch(self, policy: DispatchPolicy) -> Self:
        """Which worker runs a task."""
        return self._under(self.directives.with_dispatch(policy))

    def dispatch_threshold(
        self, metric: Metric, thresholds: Sequence[int], policies: Sequence[DispatchPolicy]
    ) -> Self:
        """The dispatch policy of the highest threshold that the metric reaches."""
        return self._under(self.directives.with_threshold(metric, thresholds, policies))

    def streams(self, n: int) -> Self:
        """n in-order queues: a task starts after its predecessor in the stream has ended."""
        return self._under(self.directives.with_streams(n))

    def stream_by(self, key: Callable[[Any], Any]) -> Self:
        """The stream of a task, modulo the number of streams; by default tasks take turns."""
        return self._under(self.directives.with_stream_by(key))

    def timing(self, policy: TimingPolicy) -> Self:
        """When ready tasks are issued."""
        return self._under(self.directives.with_timing(policy))

    def pipeline_depth(
        self,
        depth: int,
        scope: str = "global",
        key: Callable[[Any], Any] | None = None,
        on_full: str = "stall",
    ) -> Self:
        """At most `depth` tasks in flight: in all ("global"), "per_stream", "per_pool" or
        "per_key". On a full gate a task waits ("stall") or the run ends ("error")."""
        found = None if key is None else key_of(key, "pipeline_depth")
        return self._under(self.directives.with_depth(DepthGate(depth, scope, found, on_full)))

    def order(self, **axes: OrderPolicy) -> Self:
        """In which order the values of axes are generated: order(batch=Interleaved(4))."""
        return self._under(self.directives.with_order(axes))

    def batch_deps(self, n: int) -> Self:
        """Ended tasks release their successors n at a time on each worker, or earlier where
        somebody would wait."""
        return self._under(self.directives.with_batch_deps(n))

    def prefetch(self, axis: str, depth: int) -> Self:
        """Before a task, prefetch what the task `depth` iterations further along the axis reads."""
        return self._under(self.directives.with_prefetch(Prefetch(axis, depth)))

    def affinity(self, **axis: Affinity) -> Self:
        """Which workers run the tasks of one index of an axis: affinity(rows=Affinity.CORE_LOCAL).
        Tasks that are in no loop over the axis run on any worker."""
        return self._under(self.directives.with_affinity(axis))


class Schedule(Directives):
    """A schedule of its own, for any workload that has the axes it names:
    `Schedule("decode").order(batch=Interleaved(4))`, then `workload.under(schedule)`."""

    __slots__ = ("_directives", "name")

    def __init__(self, name: str = "", directives: DirectiveSet | None = None) -> None:
        self.name = name
        self._directives = DirectiveSet() if directives is None else directives

    @property
    def directives(self) -> DirectiveSet:
        return self._directives

    def _under(self, schedule: DirectiveSet) -> Schedule:
        return Schedule(self.name, schedule)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and self._directives == other._directives

    def __hash__(self) -> int:
        return hash(self._directives)

    def __repr__(self) -> str:
        name = repr(self.name) if self.name else ""
        given = "" if self._directives.is_default else f".{self._directives}"
        return f"Schedule({name}){given}"
