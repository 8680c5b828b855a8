"""Which tasks wait for which, and by what counter.

A group is a set of tasks that others wait for, with a counter for each of its instances: the tasks
of a call in one iteration of some loops, or of a construct that orders its parts. Tasks add one
when they end; whoever waits knows how many there are, since counts are expressions. All groups are
found before anything runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from pto_wsp.backends.cuda.linear import Linear, linear
from pto_wsp.backends.cuda.nest import Block, Branch, Call, Loop, Path, Phases, calls, loops_of
from pto_wsp.plan import (
    Access,
    AccessDim,
    AccessMode,
    After,
    Axis,
    Deps,
    DepsDistance,
    DepsPolicy,
    Directive,
    ExprRef,
    HazardKind,
    Plan,
    ProofKind,
)


@dataclass(frozen=True, slots=True)
class Group:
    """`loops` number the instances. `sites`: the tasks of these calls; none: all tasks of the
    ordered construct at `pc`."""

    number: int
    loops: tuple[Loop, ...]
    sites: tuple[int, ...] = ()
    pc: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """The iteration of a group's loop that a task waits for: `distance` before its own of the loop
    at `level`, or the one whose variable is the value of an expression."""

    level: int = 0
    distance: int = 0
    node: int | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """`places`, one per loop of the group. `why` is for people."""

    group: Group
    places: tuple[Place, ...]
    why: str

    @property
    def is_here(self) -> bool:
        """Whether it is the instance of the task's own iteration, with loops matched one by one."""
        return all(place.node is None and place.distance == 0 for place in self.places)


_Where: TypeAlias = tuple[tuple[Loop, ...], tuple[Place, ...]]


@dataclass(slots=True)
class Tasks:
    """A call, what is around it, what it waits for and which groups it belongs to."""

    call: Call
    path: Path
    waits: list[Wait] = field(default_factory=list[Wait])
    signals: list[Group] = field(default_factory=list[Group])
    # The wait whose last task runs this one itself, instead of a ticket of its own.
    rides: Wait | None = None

    @property
    def loops(self) -> tuple[Loop, ...]:
        return loops_of(self.path)


@dataclass(eq=False, slots=True)
class Open(Exception):
    """Tasks of two calls may meet at any distance along a parallel loop: nothing less than one
    iteration after the other is right."""

    loop: Loop
    source: int
    sink: int


class Synchronisation:
    """All of it, for a plan; nothing but the calls of one that is expanded on the host. `Open` if a
    loop would have to be ordered first."""

    def __init__(
        self, plan: Plan, nest: Block, *, rides: bool = True, expanded: bool = False
    ) -> None:
        self._plan = plan
        self.groups: list[Group] = []
        self.tasks = {call.site: Tasks(call, path) for call, path in calls(nest)}
        self._order = {site: n for n, site in enumerate(self.tasks)}
        # By sink, then by loops and places: the calls that it waits for, and why.
        self._found: dict[int, dict[_Where, dict[int, str]]] = {site: {} for site in self.tasks}
        if expanded:
            return
        self._structural()
        self._explicit()
        self._data()
        self._make_waits()
        if rides:
            self._riders()

    # --- order that the text says ---

    def _structural(self) -> None:
        found: dict[int, Group] = {}
        for tasks in self.tasks.values():
            for depth, (item, _) in enumerate(tasks.path):
                if isinstance(item, Branch) or (isinstance(item, Loop) and not item.ordered):
                    continue
                if item.pc not in found:
                    around = loops_of(tasks.path[:depth])
                    found[item.pc] = self._group(around, pc=item.pc)
                tasks.signals.append(found[item.pc])

    def _group(self, loops: tuple[Loop, ...], sites: tuple[int, ...] = (), pc: int = 0) -> Group:
        for group in self.groups:
            if (group.loops, group.sites, group.pc) == (loops, sites, pc):
                return group
        group = Group(len(self.groups), loops, sites, pc)
        self.groups.append(group)
        return group

    def _explicit(self) -> None:
        afters = self._plan.records(After)
        nodes = self._plan.records(ExprRef)
        for tasks in self.tasks.values():
            for number in tasks.call.afters:
                after = afters[number]
                source = self.tasks[after.site]
                loops = source.loops[: after.shared_levels]
                places = [Place(level=loop.level) for loop in loops]
                if after.num_indices:
                    given = nodes[after.indices : after.indices + after.num_indices]
                    places += [Place(node=each.expr) for each in given]
                    loops = source.loops
                self._wait(tasks, source, loops, tuple(places), "after")

    # --- order that data says ---

    def _data(self) -> None:
        # The user's promise that `after` says everything is none about updates that commute: any
        # order of them will do, but not two at a time.
        promised = self._plan.policy(Directive.DEPS) == DepsPolicy.EXPLICIT
        if not promised:
            self._unproved()
        distances = self._plan.records(DepsDistance)
        for record in self._plan.records(Deps):
            if record.proof == ProofKind.INDEPENDENT or record.sink not in self.tasks:
                continue
            if promised and not self._add_both(record.source, record.sink):
                continue
            parts = distances[record.distance : record.distance + record.num_distance]
            vector = [None if part.open else part.value for part in parts]
            self._conflict(record.source, record.sink, vector, HazardKind(record.hazard).name)

    def _add_both(self, source: int, sink: int) -> bool:
        """Whether two calls add to the same tensor."""
        pairs = self._meeting(self.tasks[source], self.tasks[sink])
        return any(a.mode == b.mode == AccessMode.ACCUM for a, b in pairs)

    def _unproved(self) -> None:
        """Two calls that may touch the same elements and have no proof: a plan from a file may come
        without, and of very large ones not all are kept. Then nothing is known of distances."""
        proved = {frozenset((r.source, r.sink)) for r in self._plan.records(Deps)}
        sites = list(self.tasks.values())
        for i, first in enumerate(sites):
            for second in sites[i:]:
                pair = first.call.site, second.call.site
                if frozenset(pair) not in proved and self._meeting(first, second):
                    self._conflict(*pair, [], "unproved")

    def _conflict(self, first: int, second: int, vector: list[int | None], why: str) -> None:
        """Tasks of `second` wait for those of `first` that are `vector` iterations before them."""
        source, sink = self.tasks[first], self.tasks[second]
        shared = _shared(source.path, sink.path)
        loops = loops_of(shared)
        vector = vector[: len(loops)] + [None] * (len(loops) - len(vector))
        apart = len(loops)  # the first loop of which they are in different iterations
        for level, loop in enumerate(loops):
            if loop.ordered and vector[level] is None:
                vector[level] = 0  # other iterations are ordered by the text
            if vector[level] == 0:
                continue
            if loop.ordered:
                return
            if vector[level] is None or not self._has_plain_start(loop):
                raise Open(loop, first, second)
            apart = level
            break
        if apart == len(loops):
            if self._order[first] >= self._order[second]:
                return  # it comes later, or is the same task
            if self._is_settled(source.path[len(shared) :], sink.path[len(shared) :]):
                return
        known = self._known(loops, vector, apart)
        matched = self._matched(source, sink, len(loops)) if apart == len(loops) else []
        group = (*loops[:known], *(loop for loop, _ in matched))
        pairs = zip(loops[:known], vector, strict=False)
        places = [Place(loop.level, part or 0) for loop, part in pairs]
        places += [Place(level=mine.level) for _, mine in matched]
        self._wait(sink, source, group, tuple(places), why)

    def _known(self, loops: tuple[Loop, ...], vector: list[int | None], apart: int) -> int:
        """How many loops name the iteration that is waited for; of the others it is all of
        them."""
        for level in range(apart + 1, len(loops)):
            if vector[level] is None or (vector[level] and not self._has_plain_start(loops[level])):
                return level
        return len(loops)

    def _has_plain_start(self, loop: Loop) -> bool:
        """Whether a distance of variables is one of iterations."""
        start = linear(self._plan, self._plan.records(Axis)[loop.axis].start)
        return start is not None and not any(start.by_level.values())

    @staticmethod
    def _is_settled(source: Path, sink: Path) -> bool:
        """Whether calls of one iteration are in different parts of an ordered construct, or in
        branches of which only one is taken."""
        if not source or not sink or source[0][0] is not sink[0][0]:
            return False
        return not isinstance(source[0][0], Loop)

    def _matched(self, source: Tasks, sink: Tasks, shared: int) -> list[tuple[Loop, Loop]]:
        """Pairs of loops, one around each call, whose variables are equal wherever the two touch
        the same elements."""
        found: set[tuple[int, int]] | None = None
        for a, b in self._meeting(source, sink):
            equal = set(self._equal(a, b, shared))
            found = equal if found is None else found & equal
        mine = {loop.level: loop for loop in sink.loops[shared:]}
        theirs = {loop.level: loop for loop in source.loops[shared:]}
        pairs = sorted(found or ())
        return [(theirs[a], mine[b]) for a, b in pairs if a in theirs and b in mine]

    def _meeting(self, source: Tasks, sink: Tasks) -> list[tuple[Access, Access]]:
        records = self._plan.records(Access)
        return [
            (records[a], records[b])
            for a in source.call.accesses
            for b in sink.call.accesses
            if records[a].tensor == records[b].tensor
            and (records[a].mode != AccessMode.IN or records[b].mode != AccessMode.IN)
        ]

    def _equal(self, a: Access, b: Access, shared: int) -> list[tuple[int, int]]:
        """Levels of which a dimension says that the variables are equal: both move by at least as
        much as the region is long, from the same start."""
        dims = self._plan.records(AccessDim)
        pairs = zip(dims[a.dims : a.dims + a.rank], dims[b.dims : b.dims + b.rank], strict=True)
        found: list[tuple[int, int]] = []
        for one, other in pairs:
            x, y = (linear(self._plan, dim.start) for dim in (one, other))
            sizes = [linear(self._plan, dim.extent) for dim in (one, other)]
            steps = [linear(self._plan, dim.step) for dim in (one, other)]
            if x is None or y is None or not all(_is_one(step) for step in steps):
                continue
            own_x, own_y = x.own(shared), y.own(shared)
            if len(own_x) != 1 or len(own_y) != 1 or x.rest(shared) != y.rest(shared):
                continue
            ((level_x, by_x),), ((level_y, by_y),) = own_x.items(), own_y.items()
            fits = all(size is not None and size.at_most(by_x) for size in sizes)
            if by_x == by_y and by_x > 0 and fits:
                found.append((level_x, level_y))
        return found

    def _wait(
        self,
        sink: Tasks,
        source: Tasks,
        loops: tuple[Loop, ...],
        places: tuple[Place, ...],
        why: str,
    ) -> None:
        found = self._found[sink.call.site].setdefault((loops, places), {})
        found.setdefault(source.call.site, why)

    def _make_waits(self) -> None:
        """One wait for all calls of which the same iterations matter: they share a counter."""
        for sink, found in self._found.items():
            for (loops, places), why in found.items():
                group = self._group(loops, tuple(sorted(why)))
                reasons = ", ".join(dict.fromkeys(why.values()))
                self.tasks[sink].waits.append(Wait(group, places, reasons))
                for site in group.sites:
                    if group not in self.tasks[site].signals:
                        self.tasks[site].signals.append(group)

    # --- who runs whom ---

    def _riders(self) -> None:
        """A task that waits for nothing but tasks of its own iteration is run by the last of them:
        nobody waits, and no ticket is spent."""
        for tasks in self.tasks.values():
            if len(tasks.waits) != 1 or tasks.call.afters or is_ordered(tasks.path):
                continue
            (wait,) = tasks.waits
            sources = [self.tasks[site] for site in wait.group.sites]
            if any(source.rides or is_ordered(source.path) for source in sources):
                continue
            levels = {place.level for place in wait.places}
            if wait.is_here and levels == {loop.level for loop in tasks.loops}:
                tasks.rides = wait


def is_ordered(path: Path) -> bool:
    """Whether the text puts something around a task in order."""
    return any(
        isinstance(item, Phases) or (isinstance(item, Loop) and item.ordered) for item, _ in path
    )


def _shared(a: Path, b: Path) -> Path:
    """What is around both."""
    found: list[tuple[Loop | Branch | Phases, int]] = []
    for one, other in zip(a, b, strict=False):
        if one[0] is not other[0] or one[1] != other[1]:
            break
        found.append(one)
    return tuple(found)


def _is_one(found: Linear | None) -> bool:
    return found is not None and not found.by_level and found.constant == 1
