"""Which tasks come before which, by what a program says: its structure, `after=`, what control
waits for, and edges that a dependence policy adds.

All of it goes forward in program order, so a search for what comes before a task goes back from it.
Phases are not made of edges: all nodes of the phases before are those of the same process in a
stretch of numbers, and what these waited for outside of their group is a list that grows with the
group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from pto_wsp.backends.reference.verify.record import Bundle, Event, Record

Edge = int | Bundle


@dataclass(eq=False, slots=True)
class Group:
    """A FOR_EACH or SEQUENTIAL: `outside` are edges of its members to nodes before its first."""

    first: int
    outside: list[Edge] = field(default_factory=list[Edge])


@dataclass(frozen=True, slots=True)
class Phase:
    """The part of a group that a node is in: it comes after [group.first, first) and after the
    first `outside` of the group's edges."""

    group: Group
    first: int
    outside: int


@dataclass(eq=False, slots=True)
class Process:
    """Where a process stands, and what its control has waited for: in its order, and by node since
    when."""

    open: list[Group] = field(default_factory=list[Group])
    now: tuple[Phase, ...] = ()
    awaited: list[int] = field(default_factory=list[int])
    since: dict[int, int] = field(default_factory=dict[int, int])


class Order:
    """Nodes are added in program order."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._phases: list[tuple[Phase, ...]] = []  # by node
        self._edges: list[tuple[Edge, ...]] = []
        self._awaited_at: list[int] = []  # by node: how many reads of control came before
        self._processes: dict[int, Process] = defaultdict(Process)

    def add(self, n: int, edges: Iterable[int] = ()) -> None:
        """Node n, which comes after `edges` besides what the program says."""
        self._go_to(n)
        node = self._record.nodes[n]
        process = self._processes[node.process]
        mine: tuple[Edge, ...] = (*edges, *node.after, *node.after_all)
        self._phases.append(process.now)
        self._edges.append(mine)
        self._awaited_at.append(len(process.awaited))
        for group in process.open:
            group.outside += [edge for edge in mine if not self._is_inside(edge, group, n)]
        if not node.is_task:
            for a in (*edges,):
                process.since.setdefault(a, n)
                process.awaited.append(a)

    def _is_inside(self, edge: Edge, group: Group, n: int) -> bool:
        lowest = _lowest(edge)
        return lowest >= group.first and self._same_process(lowest, n)

    def _same_process(self, a: int, b: int) -> bool:
        return self._record.nodes[a].process == self._record.nodes[b].process

    def not_before(self, n: int, wanted: set[int]) -> set[int]:
        """Those of `wanted` that may still run when node n starts. It was added last."""
        left = {a for a in wanted if not self._directly(a, n)}
        return self._search(n, left) if left else left

    def _go_to(self, n: int) -> None:
        for number, event in self._record.events.get(n, ()):
            process = self._processes[number]
            match event:
                case Event.OPEN:
                    process.open.append(Group(n))
                    process.now = (*process.now, Phase(process.open[-1], n, 0))
                case Event.NEXT:
                    group = process.open[-1]
                    process.now = (*process.now[:-1], Phase(group, n, len(group.outside)))
                case Event.CLOSE:
                    process.open.pop()
                    process.now = process.now[:-1]

    def _directly(self, a: int, n: int) -> bool:
        if self._processes[self._record.nodes[n].process].since.get(a, n) < n:
            return True
        inside = any(phase.group.first <= a < phase.first for phase in self._phases[n])
        if inside and self._same_process(a, n):
            return True
        return any(_has(edge, a) for edge in self._edges[n])

    def _search(self, n: int, left: set[int]) -> set[int]:
        """Goes back from n to the lowest of those that are left."""
        low = min(left)
        seen = {n}
        stack = [n]
        groups: dict[Group, int] = {}  # how many of its edges were followed
        bundles: dict[int, int] = {}  # by id of the members
        awaited: dict[int, int] = {}  # by process

        def go(edge: Edge) -> None:
            if isinstance(edge, Bundle):
                done = bundles.get(id(edge.members), 0)
                bundles[id(edge.members)] = max(done, edge.count)
                members = edge.members[done : edge.count]
            else:
                members = [edge]
            for a in members:
                if a >= low and a not in seen:
                    seen.add(a)
                    left.discard(a)
                    stack.append(a)

        while stack and left:
            b = stack.pop()
            for phase in self._phases[b]:
                if phase.first <= low:
                    continue
                left -= {
                    a
                    for a in left
                    if phase.group.first <= a < phase.first and self._same_process(a, b)
                }
                done = groups.get(phase.group, 0)
                groups[phase.group] = max(done, phase.outside)
                for edge in phase.group.outside[done : phase.outside]:
                    go(edge)
            for edge in self._edges[b]:
                go(edge)
            number = self._record.nodes[b].process
            done = awaited.get(number, 0)
            for a in self._processes[number].awaited[done : self._awaited_at[b]]:
                go(a)
            awaited[number] = max(done, self._awaited_at[b])
        return left


def _lowest(edge: Edge) -> int:
    return edge.members[0] if isinstance(edge, Bundle) else edge


def _has(edge: Edge, node: int) -> bool:
    if not isinstance(edge, Bundle):
        return edge == node
    return edge.members[0] <= node <= edge.members[edge.count - 1] and node in edge.members
