"""The schedule as a GPU keeps it: who takes which tasks, in what order, with how many blocks.

A worker is a block of threads, which runs one task at a time. Directives say which tasks a block
takes; how many there are at a time is how many blocks are launched. What neither of these can
keep is refused, with the reason and the nearest directive that is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from pto_wsp.backends.cuda.keys import Keys, reads_ordinal
from pto_wsp.backends.cuda.refused import refusal
from pto_wsp.plan import (
    Affinity,
    DepthScope,
    Directive,
    DispatchPolicy,
    OnFull,
    OrderPolicy,
    Plan,
    PoolPolicy,
    ReadyPolicy,
    ScheduleArg,
    ScheduleEntry,
    StartPolicy,
    TimingPolicy,
    TracePolicy,
    WindowMode,
    WindowUnit,
)


class Owner(Enum):
    """What says which block runs a task."""

    ANY = "any"  # whoever takes it first
    NUMBER = "number"  # its number in the order of generation, modulo `count`
    ORDINAL = "ordinal"  # its number in program order, modulo `count`
    PARTS = "parts"  # its number in program order lies in the block's part
    KEY = "key"  # a key modulo blocks
    HASH = "hash"  # a mixed key modulo blocks
    BLOCK = "block"  # a key is the block
    SPREAD = "spread"  # the mixed number in program order, modulo blocks


@dataclass(frozen=True, slots=True)
class Dispatch:
    """`key` is a SCHEDULE_EXPR node, `axis` the name of a loop that stands for one. `count`: blocks
    that tasks are dealt out to; 0: all that there are."""

    owner: Owner = Owner.ANY
    count: int = 0
    starts: tuple[int, ...] = ()
    key: int | None = None
    axis: str = ""


@dataclass(frozen=True, slots=True)
class Order:
    """Of the loops over the axis `name`. `lanes`: values at a time; 0: as many as blocks."""

    entry: int
    name: str
    policy: OrderPolicy
    lanes: int


@dataclass(slots=True)
class Schedule:
    """`pool_key` is None if kernels say which pool a task is for. `most` is how many blocks may run
    tasks at a time, 0 without limit, and `most_each` the same of each pool. The entries are for
    messages."""

    dispatch: Dispatch = Dispatch()
    pools: int = 1
    pool_key: int | None = None
    priority: int | None = None
    most: int = 0
    most_each: int = 0
    orders: list[Order] = field(default_factory=list[Order])
    fifo: bool = False
    steals: bool = False  # blocks take tasks of others when their own are used up
    entries: dict[Directive, int] = field(default_factory=dict[Directive, int])

    @property
    def in_order(self) -> bool:
        """Whether the order in which tasks start matters to the user."""
        return self.fifo or self.priority is not None or bool(self.orders)

    @property
    def is_plain(self) -> bool:
        """Whether any block takes the next task, from one counter."""
        return not self.pins and self.priority is None and not self.steals

    @property
    def pins(self) -> bool:
        """Whether it is said of tasks which blocks they are for."""
        return self.dispatch.owner is not Owner.ANY or self.pools > 1

    @property
    def rides(self) -> bool:
        """Whether the last of the tasks that another one waits for may run that one: not if it is
        said who runs it, or when. Stealing says neither: whoever makes a task ready runs it."""
        return (self.is_plain or self.steals) and not self.pins and not self.in_order

    @property
    def together(self) -> bool:
        """Whether tasks may wait for those of a block that has to run as well."""
        return self.pins or self.steals

    def interleaved(self, name: str) -> Order | None:
        """How the loops over an axis are generated, if not one value after the other."""
        found = [o for o in self.orders if o.name == name and o.policy != OrderPolicy.SEQUENTIAL]
        return found[-1] if found else None

    def check_keys(self, keys: Keys) -> None:
        """ScheduleError for a key that has no value for some task."""
        who = Directive.STREAM_BY if Directive.STREAM_BY in self.entries else Directive.DISPATCH
        given = {who: self.dispatch.key, Directive.POOLS: self.pool_key}
        for directive, key in {**given, Directive.READY: self.priority}.items():
            if key is not None:
                keys.check(key, self.entries[directive])

    def grid(self, blocks: int) -> int:
        """How many blocks are launched where the machine has room for `blocks`."""
        if self.dispatch.count and self.pools == 1:
            return self.dispatch.count
        limits = [self.most, self.most_each * self.pools]
        found = min([blocks, *(limit for limit in limits if limit)])
        return max(found, self.pools)


def read_schedule(plan: Plan) -> Schedule:
    """ScheduleError, with the line, for a directive that a GPU does not keep."""
    return _Reader(plan).read()


class _Reader:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._found = Schedule()
        self._index = 0
        self._args: list[int] = []

    def read(self) -> Schedule:
        args = self._plan.records(ScheduleArg)
        for index, entry in enumerate(self._plan.records(ScheduleEntry)):
            self._index = index
            self._args = [arg.bits for arg in args[entry.args : entry.args + entry.num_args]]
            self._found.entries[Directive(entry.id)] = index
            try:
                self._directive(Directive(entry.id))
            except (ValueError, IndexError):  # of a plan that no frontend wrote
                self._refuse("it does not know it with these values", "leave it out")
        self._check_together()
        return self._found

    def _refuse(self, why: str, fix: str, *, entry: int | None = None) -> None:
        raise refusal(self._plan, self._index if entry is None else entry, why, fix)

    def _directive(self, id: Directive) -> None:
        match id:
            case Directive.DEPS:
                pass  # sync.py
            case Directive.TRACE:
                self._trace()
            case Directive.DISPATCH:
                self._found.dispatch = self._dispatch()
            case Directive.STREAMS | Directive.STREAM_BY:
                self._streams(id)
            case Directive.AFFINITY:
                self._affinity()
            case Directive.POOLS:
                self._pools()
            case Directive.READY:
                self._ready()
            case Directive.ORDER:
                self._order()
            case Directive.PIPELINE_DEPTH:
                self._depth()
            case Directive.WINDOW:
                self._window()
            case Directive.START:
                self._start()
            case Directive.TIMING:
                self._timing()
            case Directive.DISPATCH_THRESHOLD:
                self._refuse(
                    "a kernel is written for one way of dealing tasks out",
                    "use dispatch(...) with one of these policies",
                )
            case Directive.BATCH_DEPS:
                self._refuse(
                    "ended tasks release nobody: those that wait look at a counter themselves",
                    "leave it out; there is nothing to put together",
                )
            case Directive.PREFETCH:
                self._refuse(
                    "a block knows its next task when it has taken it, and not before",
                    "leave it out; the option num_stages says how far loads of a kernel run ahead",
                )
            case _:
                self._refuse("it does not know it", "leave it out for this target")

    def _trace(self) -> None:
        if self._plan.policy(Directive.TRACE) == TracePolicy.CYCLES:
            self._refuse("its blocks run by the clock of the GPU", "use TracePolicy.timestamps()")

    # --- who ---

    def _dispatch(self) -> Dispatch:
        policy, *rest = self._args
        match DispatchPolicy(policy):
            case DispatchPolicy.WORK_STEAL:
                return Dispatch()
            case DispatchPolicy.ROUND_ROBIN:
                return Dispatch(Owner.NUMBER, count=rest[0])
            case DispatchPolicy.STATIC_PARTITION:
                return Dispatch(Owner.PARTS, count=len(rest), starts=tuple(rest))
            case DispatchPolicy.AFFINITY:
                return Dispatch(Owner.KEY, key=rest[0])
            case DispatchPolicy.HASH:
                return Dispatch(Owner.HASH, key=rest[0])
            case DispatchPolicy.BY_KEY:
                return Dispatch(Owner.BLOCK, key=rest[0])

    def _streams(self, id: Directive) -> None:
        """A block for each stream: it runs its tasks one after the other."""
        given = self._found.dispatch
        if id is Directive.STREAM_BY:
            self._found.dispatch = Dispatch(Owner.KEY, count=given.count, key=self._args[0])
            return
        if given.owner is not Owner.ANY:
            self._refuse(
                "a block runs one stream after the other's end, and dispatch says which block",
                "keep streams, whose blocks run their tasks in order, or dispatch",
            )
        self._found.dispatch = Dispatch(Owner.ORDINAL, count=self._args[0])

    def _affinity(self) -> None:
        name, policy = self._plan.schedule_string(self._args[0]), Affinity(self._args[1])
        if self._found.dispatch.owner is not Owner.ANY:
            self._refuse(
                "a stream is a block, and affinity says which block runs a task",
                "keep streams or affinity",
            )
        if policy is Affinity.CORE_LOCAL:
            self._found.dispatch = Dispatch(Owner.KEY, axis=name)
        elif policy is Affinity.SPREAD:
            self._found.dispatch = Dispatch(Owner.SPREAD, axis=name)
        else:
            self._refuse(
                "blocks have no neighbours: the GPU places them on multiprocessors as it likes",
                f"use affinity({name}=Affinity.CORE_LOCAL)",
            )

    def _pools(self) -> None:
        policy, *rest = self._args
        if policy == PoolPolicy.BY_EXEC_UNIT:
            self._found.pools = 2
        elif policy == PoolPolicy.CUSTOM:
            self._found.pools, self._found.pool_key = rest

    # --- in what order ---

    def _ready(self) -> None:
        policy, *rest = self._args
        self._found.fifo = policy == ReadyPolicy.FIFO
        if policy == ReadyPolicy.PRIORITY:
            self._found.priority = rest[0]
        self._found.steals = policy == ReadyPolicy.WORK_STEAL

    def _order(self) -> None:
        name, policy = self._plan.schedule_string(self._args[0]), OrderPolicy(self._args[1])
        lanes = self._args[2] if policy is OrderPolicy.INTERLEAVED else 0
        self._found.orders.append(Order(self._index, name, policy, lanes))

    # --- how many ---

    def _depth(self) -> None:
        depth, scope, on_full = self._args[:3]
        if on_full == OnFull.ERROR:
            self._refuse(
                "no task ever meets a full gate: there are only as many blocks as may run",
                f'use pipeline_depth({depth}), which is on_full="stall"',
            )
        if scope == DepthScope.KEY:
            self._refuse(
                "blocks do not count the tasks of each key that run",
                "use dispatch(DispatchPolicy.affinity(key)): one at a time of equal keys",
            )
        if scope == DepthScope.GLOBAL:
            self._found.most = _least(self._found.most, depth)
        if scope == DepthScope.POOL:
            self._found.most_each = _least(self._found.most_each, depth)

    def _window(self) -> None:
        size, unit, mode = self._args
        if unit == WindowUnit.BYTES:
            self._refuse(
                "blocks do not count the bytes that others write",
                'use unit="tasks"',
            )
        if mode != WindowMode.STALL:
            self._refuse(
                "no window is ever full: a block takes a task when its last one has ended",
                f"use TaskWindow({size})",
            )
        self._found.most = _least(self._found.most, size)

    def _start(self) -> None:
        if self._args[0] != StartPolicy.IMMEDIATE:
            self._refuse(
                "tasks are not generated before they run: a block finds each by its number",
                "use start=StartPolicy.immediate()",
            )

    def _timing(self) -> None:
        if self._args[0] != TimingPolicy.IMMEDIATE:
            self._refuse(
                "nobody stands between blocks and their tasks who could hold these back",
                "use timing(TimingPolicy.immediate()), and pipeline_depth(d) for fewer at a time",
            )

    # --- directives that do not go together here ---

    def _check_together(self) -> None:
        found, entries = self._found, self._found.entries
        named = found.dispatch.count
        who = Directive.STREAMS if Directive.STREAMS in entries else Directive.DISPATCH
        if named and 0 < found.most < named:
            self._refuse(
                f"it names {named} blocks, each of which runs a task at a time, and "
                f"the limit on tasks is {found.most}",
                f"deal tasks out to at most {found.most}",
                entry=entries[who],
            )
        if Directive.STREAMS in entries and found.pools > 1:
            self._refuse(
                "a stream is a block, and each block belongs to one pool",
                "keep streams or pools",
                entry=entries[Directive.STREAMS],
            )
        if 0 < found.most < found.pools:
            self._refuse(
                f"each of {found.pools} pools has a block, which runs a task at a time, and the "
                f"limit on tasks is {found.most}",
                f"use at most {found.most} pools",
                entry=entries[Directive.POOLS],
            )
        if found.steals and not self._may_be_stolen():
            self._refuse(
                "a stream is a block, which runs its tasks one after the other"
                if Directive.STREAMS in entries
                else "another directive says which block runs a task",
                "leave it out, or place tasks by dispatch(DispatchPolicy.affinity(key)), from "
                "which others may take them",
                entry=entries[Directive.READY],
            )
        moved = next((o for o in found.orders if found.interleaved(o.name)), None)
        if moved is not None and self._needs_ordinals():
            self._refuse(
                "a block knows the number of a task in the order of generation, and another "
                "directive needs the one in program order",
                "use keys of loop indices, or DispatchPolicy.round_robin(n)",
                entry=moved.entry,
            )

    def _may_be_stolen(self) -> bool:
        """Whether tasks are placed by a key of `dispatch`, or not at all."""
        dispatch, entries = self._found.dispatch, self._found.entries
        placed = dispatch.owner is Owner.KEY and dispatch.key is not None
        return dispatch.owner is Owner.ANY or (placed and Directive.STREAMS not in entries)

    def _needs_ordinals(self) -> bool:
        found = self._found
        keys = (found.dispatch.key, found.pool_key, found.priority)
        read = any(reads_ordinal(self._plan, key) for key in keys if key is not None)
        return read or found.dispatch.owner in (Owner.ORDINAL, Owner.PARTS, Owner.SPREAD)


def _least(known: int, limit: int) -> int:
    return min(known, limit) if known else limit
