"""Plans whose dependences only a run could find, expanded on the host: a table of all tasks, with
the counters that each waits for and those that it adds to.

The reference lists tasks and what they conflict with, for the values of one run. That takes tens of
microseconds a task, so it is done only where the user allows it, and again only for other values.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from pto_wsp.backends.cuda import device
from pto_wsp.backends.reference import BoundPlan
from pto_wsp.backends.reference.verify import Bundle, Event, Oracle, Recorder
from pto_wsp.plan import DepsPolicy, Directive, Plan
from pto_wsp.runtime.bindings import Bound

# What such kernels are given besides: the table, its tasks and waits, and how many counters.
ARGUMENTS = ("TABLE", "TASK_COUNT", "WAIT_COUNT", "SLOTS")
UNSPECIALISED = ("TASK_COUNT", "WAIT_COUNT", "SLOTS")


@dataclass(slots=True)
class Table:
    """The tasks of a run: by task its site and indices, the counters that it waits for, with the
    numbers that they have to reach, and those that it adds one to. `owners`: the task that a
    counter is of, if it is of one."""

    depth: int
    tasks: list[tuple[int, tuple[int, ...]]] = field(default_factory=list[Any])
    waits: list[list[tuple[int, int]]] = field(default_factory=list[Any])
    signals: list[list[int]] = field(default_factory=list[list[int]])
    owners: dict[int, int] = field(default_factory=dict[int, int])
    slots: int = 0

    def slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def words(self) -> npt.NDArray[np.int64]:
        """Site and indices of each task; where its waits begin; where its signals do; all waits;
        all signals."""
        rows = np.zeros((len(self.tasks), 1 + self.depth), np.int64)
        for row, (site, indices) in zip(rows, self.tasks, strict=True):
            row[0], row[1 : 1 + len(indices)] = site, indices
        parts = [
            rows.ravel(),
            _starts(map(len, self.waits)),
            _starts(map(len, self.signals)),
            np.array([n for waits in self.waits for wait in waits for n in wait], np.int64),
            np.array([slot for slots in self.signals for slot in slots], np.int64),
        ]
        return np.concatenate(parts)

    def arguments(self) -> tuple[Any, ...]:
        words = device.to_device(self.words())
        return words, len(self.tasks), sum(map(len, self.waits)), self.slots


def _starts(lengths: Iterable[int]) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(np.fromiter(lengths, np.int64))]).astype(np.int64)


@dataclass(slots=True)
class _Group:
    """An ordered construct: tasks so far, and those of the parts before this one."""

    slot: int
    count: int = 0
    before: int = 0


def expand(plan: Plan, bindings: tuple[Bound, ...], depth: int) -> Table:
    """All tasks for these values, and what they wait for."""
    walk = Recorder(BoundPlan(plan, bindings))
    for _ in walk.tasks():
        pass
    record = walk.record
    oracle = None
    if plan.policy(Directive.DEPS) != DepsPolicy.EXPLICIT:
        oracle = Oracle(record)
    table = Table(depth)
    own: dict[int, int] = {}  # by task: its own counter
    joined: dict[int, int] = {}  # by list of tasks: the counter of all of them
    opened: list[_Group] = []
    for n, node in enumerate(record.nodes):
        for _, event in record.events.get(n, ()):
            match event:
                case Event.OPEN:
                    opened.append(_Group(table.slot()))
                case Event.NEXT:
                    opened[-1].before = opened[-1].count
                case Event.CLOSE:
                    opened.pop()
        table.tasks.append((node.site, node.indices))
        table.waits.append([(group.slot, group.before) for group in opened if group.before])
        table.signals.append([group.slot for group in opened])
        for group in opened:
            group.count += 1
        sources = {*node.after}
        for bundle in node.after_all:
            sources |= _join(bundle, joined, table)
        if oracle is not None:
            sources |= set(oracle.conflicts(n))
            oracle.add(n)
        for source in sorted(sources - {n}):
            if source not in own:
                own[source] = table.slot()
                table.owners[own[source]] = source
                table.signals[source].append(own[source])
            table.waits[n].append((own[source], 1))
    return table


def _join(bundle: Bundle, joined: dict[int, int], table: Table) -> set[int]:
    """All tasks of a list have one counter, if nobody waits for a part of it; else the tasks."""
    if bundle.count < len(bundle.members):
        return set(bundle.members[: bundle.count])
    key = id(bundle.members)
    if key not in joined:
        joined[key] = table.slot()
        for member in bundle.members:
            table.signals[member].append(joined[key])
    table.waits[-1].append((joined[key], bundle.count))
    return set()


class Expansion:
    """The table of the last run, for the next one with the same values."""

    def __init__(self, plan: Plan, depth: int) -> None:
        self._plan = plan
        self._depth = depth
        self._key: tuple[object, ...] | None = None
        self._arguments: tuple[Any, ...] = ()
        self.table = Table(depth)

    def arguments(self, bindings: tuple[Bound, ...]) -> tuple[Any, ...]:
        key = tuple(_content(bound.value) for bound in bindings)
        if key != self._key:
            self.table = expand(self._plan, bindings, self._depth)
            self._arguments = self.table.arguments()
            self._key = key
        return self._arguments


def _content(value: object) -> object:
    """What tasks depend on: of tensors the shape only, which have no content here."""
    if not isinstance(value, np.ndarray):
        return value
    array = cast("npt.NDArray[Any]", value)
    return array.shape, array.tobytes() if array.flags.writeable else None
