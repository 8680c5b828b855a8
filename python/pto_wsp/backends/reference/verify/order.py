"""Which tasks come before which, by what a program says: its structure, `after=`, what control
waits for, and edges that a dependence policy adds.

All of it goes forward in program order, so a search for what comes before a task goes back from it.
Phases are not made of edges: all nodes of the phases before are a stretch of numbers, and what
these waited for outside of their group is a list that grows with the group.
"""

from __future__ import annotations

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


class Order:
    """Nodes are added in program order."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._phases: list[tuple[Phase, ...]] = []  # by node
        self._edges: list[tuple[Edge, ...]] = []
        self._loads: list[int] = []  # reads by control before the node
        self._awaited: list[int] = []  # what these waited for, in their order
        self._awaited_at: list[int] = []  # by node: how many of them
        self._control: dict[int, int] = {}  # by node that control waited for: since when
        self._open: list[Group] = []
        self._now: tuple[Phase, ...] = ()

    def add(self, n: int, edges: Iterable[int] = ()) -> None:
        """Node n, which comes after `edges` besides what the program says."""
        self._go_to(n)
        node = self._record.nodes[n]
        mine: tuple[Edge, ...] = (*edges, *node.after, *node.after_all)
        self._phases.append(self._now)
        self._edges.append(mine)
        self._awaited_at.append(len(self._awaited))
        for group in self._open:
            group.outside += [edge for edge in mine if _lowest(edge) < group.first]
        if not node.is_task:
            for a in (*edges,):
                self._control.setdefault(a, n)
                self._awaited.append(a)

    def not_before(self, n: int, wanted: set[int]) -> set[int]:
        """Those of `wanted` that may still run when node n starts. It was added last."""
        left = {a for a in wanted if not self._directly(a, n)}
        return self._search(n, left) if left else left

    def _go_to(self, n: int) -> None:
        for event in self._record.events.get(n, ()):
            match event:
                case Event.OPEN:
                    self._open.append(Group(n))
                    self._now = (*self._now, Phase(self._open[-1], n, 0))
                case Event.NEXT:
                    group = self._open[-1]
                    self._now = (*self._now[:-1], Phase(group, n, len(group.outside)))
                case Event.CLOSE:
                    self._open.pop()
                    self._now = self._now[:-1]

    def _directly(self, a: int, n: int) -> bool:
        if self._control.get(a, n) < n:
            return True
        if any(phase.group.first <= a < phase.first for phase in self._phases[n]):
            return True
        return any(_has(edge, a) for edge in self._edges[n])

    def _search(self, n: int, left: set[int]) -> set[int]:
        """Goes back from n to the lowest of those that are left."""
        low = min(left)
        seen = {n}
        stack = [n]
        groups: dict[Group, int] = {}  # how many of its edges were followed
        bundles: dict[int, int] = {}  # by id of the members
        awaited = 0

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
                left -= {a for a in left if phase.group.first <= a < phase.first}
                done = groups.get(phase.group, 0)
                groups[phase.group] = max(done, phase.outside)
                for edge in phase.group.outside[done : phase.outside]:
                    go(edge)
            for edge in self._edges[b]:
                go(edge)
            for a in self._awaited[awaited : self._awaited_at[b]]:
                go(a)
            awaited = max(awaited, self._awaited_at[b])
        return left


def _lowest(edge: Edge) -> int:
    return edge.members[0] if isinstance(edge, Bundle) else edge


def _has(edge: Edge, node: int) -> bool:
    if not isinstance(edge, Bundle):
        return edge == node
    return edge.members[0] <= node <= edge.members[edge.count - 1] and node in edge.members
