"""Which tasks wait for which, and by what counter.

A group is a set of tasks that others wait for, with a counter for each of its instances: the tasks
of a call in one iteration of some loops, or of a construct that orders its parts. Tasks add one
when they end; whoever waits knows how many there are, since counts are expressions. All groups are
found before anything runs: what only an inference over regions would find is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn, TypeAlias

from pto_wsp.backends.cuda.linear import Linear, linear
from pto_wsp.backends.cuda.nest import Block, Branch, Call, Loop, Path, Phases, calls, loops_of
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
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
    Section,
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


class Synchronisation:
    """All of it, for a plan; nothing but the calls of one that is expanded on the host."""

    def __init__(self, plan: Plan, nest: Block, *, expanded: bool = False) -> None:
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
        if self._plan.policy(Directive.DEPS) == DepsPolicy.EXPLICIT:
            return  # the user's promise that `after` says everything
        self._check_proofs()
        distances = self._plan.records(DepsDistance)
        for record in self._plan.records(Deps):
            if record.proof == ProofKind.INDEPENDENT or record.sink not in self.tasks:
                continue
            parts = distances[record.distance : record.distance + record.num_distance]
            vector = [None if part.open else part.value for part in parts]
            self._conflict(record, vector)

    def _check_proofs(self) -> None:
        """Every two calls that may touch the same elements have a proof: a plan from a file may
        come without, and of very large ones not all are kept."""
        proved = {frozenset((r.source, r.sink)) for r in self._plan.records(Deps)}
        sites = list(self.tasks.values())
        for i, first in enumerate(sites):
            for second in sites[i:]:
                pair = frozenset((first.call.site, second.call.site))
                if pair not in proved and self._meeting(first, second):
                    self._refuse_pair(first.call.site, second.call.site, "the plan has no proof")

    def _conflict(self, record: Deps, vector: list[int | None]) -> None:
        source, sink = self.tasks[record.source], self.tasks[record.sink]
        shared = _shared(source.path, sink.path)
        loops = loops_of(shared)
        vector = vector[: len(loops)] + [None] * (len(loops) - len(vector))
        for level, loop in enumerate(loops):
            if loop.ordered and vector[level] is None:
                vector[level] = 0  # other iterations are ordered by the text
            if vector[level] == 0:
                continue
            if loop.ordered:
                return
            if vector[level] is None:
                self._refuse(record, loop)
            break
        pairs = list(zip(vector, loops, strict=True))
        rest = [0 if part is None and loop.ordered else part for part, loop in pairs]
        if None in rest:
            self._refuse(record, loops[rest.index(None)])
        if not any(rest):
            if self._order[record.source] >= self._order[record.sink]:
                return  # it comes later, or is the same task
            if self._is_settled(source.path[len(shared) :], sink.path[len(shared) :]):
                return
        for loop, part in zip(loops, rest, strict=True):
            start = linear(self._plan, self._plan.records(Axis)[loop.axis].start)
            if part and (start is None or any(start.by_level.values())):
                self._refuse(record, loop)
        matched = self._matched(source, sink, len(loops), any(rest))
        group = (*loops, *(loop for loop, _ in matched))
        places = [Place(loop.level, part or 0) for loop, part in zip(loops, rest, strict=True)]
        places += [Place(level=mine.level) for _, mine in matched]
        self._wait(sink, source, group, tuple(places), HazardKind(record.hazard).name)

    @staticmethod
    def _is_settled(source: Path, sink: Path) -> bool:
        """Whether calls of one iteration are in different parts of an ordered construct, or in
        branches of which only one is taken."""
        if not source or not sink or source[0][0] is not sink[0][0]:
            return False
        return not isinstance(source[0][0], Loop)

    def _matched(
        self, source: Tasks, sink: Tasks, shared: int, apart: bool
    ) -> list[tuple[Loop, Loop]]:
        """Pairs of loops, one around each call, whose variables are equal wherever the two touch
        the same elements."""
        if apart:
            return []
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

    def _refuse(self, record: Deps, loop: Loop) -> NoReturn:
        name = self._plan.string(self._plan.records(Axis)[loop.axis].name)
        why = f"their regions may meet at any distance along the parallel loop {name!r}"
        self._refuse_pair(record.source, record.sink, why)

    def _refuse_pair(self, source: int, sink: int, why: str) -> NoReturn:
        names = [repr(self._plan.site_name(site)) for site in (source, sink)]
        raise CompileError(
            Code.TARGET_LIMIT,
            f"the cuda target cannot tell which tasks of {names[0]} a task of {names[1]} waits for",
            loc=self._plan.loc(Section.SITE, sink),
            why=f"{why}, and a GPU infers no dependences while it runs",
            fix="use P.seq for that loop, name the task with after=, let the host list all tasks "
            "with compile(allow_host_expand=True), or run on target='cpu_sim'",
        )

    # --- who runs whom ---

    def _riders(self) -> None:
        """A task that waits for nothing but tasks of its own iteration is run by the last of them:
        nobody waits, and no ticket is spent."""
        for tasks in self.tasks.values():
            if len(tasks.waits) != 1 or tasks.call.afters or self._is_ordered(tasks.path):
                continue
            (wait,) = tasks.waits
            sources = [self.tasks[site] for site in wait.group.sites]
            if any(source.rides or self._is_ordered(source.path) for source in sources):
                continue
            levels = {place.level for place in wait.places}
            if wait.is_here and levels == {loop.level for loop in tasks.loops}:
                tasks.rides = wait

    @staticmethod
    def _is_ordered(path: Path) -> bool:
        return any(
            isinstance(item, Phases) or (isinstance(item, Loop) and item.ordered)
            for item, _ in path
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
