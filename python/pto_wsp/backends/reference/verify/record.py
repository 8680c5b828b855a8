"""A walk that remembers what it met: tasks, reads by control, and what the program says of their
order."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from pto_wsp.backends.reference.bound import BoundPlan
from pto_wsp.backends.reference.expr import Scope
from pto_wsp.backends.reference.network import Actor, Step
from pto_wsp.backends.reference.region import Region
from pto_wsp.backends.reference.walk import Task, Walk
from pto_wsp.plan import After, Channel, Op, Storage


class Event(Enum):
    """What comes before a node."""

    OPEN = auto()  # a group of phases
    NEXT = auto()  # its next phase
    CLOSE = auto()


@dataclass(frozen=True, slots=True)
class Bundle:
    """Tasks of one call: the first `count` of a list that may still grow."""

    members: list[int]
    count: int


@dataclass(frozen=True, slots=True)
class Node:
    """A task, or a read by control, which has no task_id. `copies` tells temporaries of different
    iterations and buffers of channels apart, by region; `process` is that of a replica, too."""

    site: int
    indices: tuple[int, ...]
    regions: tuple[Region, ...]
    copies: tuple[int, ...]
    task_id: int | None = None
    after: tuple[int, ...] = ()
    after_all: tuple[Bundle, ...] = ()
    process: int = 0

    @property
    def is_task(self) -> bool:
        return self.task_id is not None


@dataclass(slots=True)
class Record:
    """All nodes in program order; `events[n]`, each with its process, come before node n."""

    bound: BoundPlan
    nodes: list[Node] = field(default_factory=list[Node])
    events: dict[int, list[tuple[int, Event]]] = field(
        default_factory=dict[int, list[tuple[int, Event]]]
    )


class Recorder(Walk):
    """Walks a plan and writes a Record."""

    def __init__(self, bound: BoundPlan) -> None:
        super().__init__(bound)
        self.record = Record(bound)
        self._copies: dict[int, int] = {}  # by tensor, of the process at work
        self._made: dict[int, int] = {}  # by tensor: copies so far
        self._held: dict[int, dict[int, int]] = {}  # the copies of the other processes
        self._temporaries: dict[int, list[int]] = {}  # by alloc
        for index, tensor in enumerate(self._tensors):
            alloc = bound.plan.records(Storage)[tensor.storage].alloc
            self._temporaries.setdefault(alloc, []).append(index)
        self._waits = [self._afters_of(site) for site in range(len(self._sites))]
        self._awaited = {after.site for waits in self._waits for after in waits}
        self._by_index: dict[tuple[int, tuple[int, ...]], int] = {}
        # By call, number of shared loops and process: tasks of the current iteration of these.
        self._members: dict[tuple[int, int, int], tuple[tuple[int, ...], list[int]]] = {}

    def _open_group(self) -> None:
        self._event(Event.OPEN)

    def _next_phase(self) -> None:
        self._event(Event.NEXT)

    def _close_group(self) -> None:
        self._event(Event.CLOSE)

    def _event(self, event: Event) -> None:
        events = self.record.events.setdefault(len(self.record.nodes), [])
        events.append((self._process_at_work, event))

    @property
    def _process_at_work(self) -> int:
        return 0 if self.network is None else self.network.at

    def _switch(self, old: Actor[Step], new: Actor[Step]) -> None:
        super()._switch(old, new)
        self._held[id(old)] = self._copies
        self._copies = self._held.pop(id(new), {})

    def _hold(self, channel: int) -> None:
        super()._hold(channel)
        assert self.network is not None
        element = self._plan.records(Channel)[channel].element
        self._copies[element] = self.network.buffer(channel)

    def _alloc(self, alloc: int, pc: int, indices: tuple[int, ...]) -> None:
        super()._alloc(alloc, pc, indices)
        for tensor in self._temporaries.get(alloc, ()):
            self._copies[tensor] = self._made[tensor] = self._made.get(tensor, 0) + 1

    def _control_reads(self, site: int, indices: tuple[int, ...], region: Region) -> None:
        copies = self._copies_of((region,))
        process = self._process_at_work
        self.record.nodes.append(Node(site, indices, (region,), copies, process=process))

    def _task(self, site: int, indices: tuple[int, ...]) -> Task:
        task = super()._task(site, indices)
        after, after_all = self._waited(site, self._scope(indices))
        self.record.nodes.append(
            Node(
                site,
                indices,
                task.regions,
                self._copies_of(task.regions),
                task.task_id,
                after,
                after_all,
                self._process_at_work,
            )
        )
        if site in self._awaited:
            self._add(site, indices, len(self.record.nodes) - 1)
        return task

    def _copies_of(self, regions: tuple[Region, ...]) -> tuple[int, ...]:
        return tuple(self._copies.get(region.tensor, 0) for region in regions)

    def _afters_of(self, site: int) -> list[After]:
        indexed = [after for after, _ in self._afters[site]]
        if not self._sites[site].kernel < len(self._plan.kernel_names):
            return []  # a read by control
        pc = self._sites[site].pc
        words = self._code[pc + 1 : pc + 1 + self._code[pc].operand1]
        found = [self._plan.records(After)[w.operand2] for w in words if w.opcode == Op.AFTER]
        return [*indexed, *(after for after in found if after.num_indices == 0)]

    def _waited(self, site: int, scope: Scope) -> tuple[tuple[int, ...], tuple[Bundle, ...]]:
        single: list[int] = []
        bundles: list[Bundle] = []
        for after in self._waits[site]:
            if after.num_indices > 0:
                found = self._by_index.get((after.site, self._after_indices(after, scope)))
                single += [] if found is None else [found]
                continue
            key = (after.site, after.shared_levels, self._process_at_work)
            prefix, members = self._members.get(key, ((), []))
            if members and prefix == tuple(scope.loops[: after.shared_levels]):
                bundles.append(Bundle(members, len(members)))
        return tuple(single), tuple(bundles)

    def _add(self, site: int, indices: tuple[int, ...], node: int) -> None:
        self._by_index[site, indices] = node
        for after in (a for waits in self._waits for a in waits):
            key = (after.site, after.shared_levels, self._process_at_work)
            if after.site != site or after.num_indices > 0:
                continue
            prefix, members = self._members.get(key, ((), []))
            if not members or prefix != indices[: after.shared_levels]:
                prefix, members = indices[: after.shared_levels], []
                self._members[key] = prefix, members
            if not members or members[-1] != node:
                members.append(node)
