"""Processes that take turns, and the channels between them.

A turn ends where a message was sent, where the body of a RECV ends, where the process has to wait
for another one, at its end, and after TURN tasks. What a process waits for depends on where the
others stand and never on how long tasks take, so the order of tasks is that of the plan and its
values, on every target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from pto_wsp.error_codes import Code
from pto_wsp.errors import ExecutionError
from pto_wsp.plan import NONE, Channel, Entry, Instr, Op, Plan, Process, Section, Storage, Tensor
from pto_wsp.runtime.run_errors import run_error

TURN = 64  # tasks
T = TypeVar("T")

SENDING = frozenset({Op.ROOM, Op.SEND, Op.CLOSE})
TAKING = frozenset({Op.RECV, Op.TAKE, Op.DROP})


@dataclass(frozen=True, slots=True)
class Wait:
    """A process stands at an instruction of a channel and may have to wait there."""

    op: Op
    channel: int
    pc: int


class TurnEnds:
    """A process has done something that lets the next one have its turn."""


TURN_ENDS = TurnEnds()
Step = Any  # what a walk yields: tasks, Wait and TURN_ENDS


@dataclass(eq=False, slots=True)
class Actor(Generic[T]):
    """A process, or a replica of one. `state` is the walk's own, kept while others have a turn."""

    process: int  # in Shape.processes
    replica: int
    name: str
    steps: Iterator[T] | None = None
    state: Any = None
    wait: Wait | None = None
    ended: bool = False


Switch: TypeAlias = Callable[[Actor[Step], Actor[Step]], None]


@dataclass(eq=False, slots=True)
class Queue:
    """A channel at work: which buffer is free for which message, and which messages are there."""

    name: str
    depth: int
    initial: int
    producers: int
    consumers: int
    free_for: list[int] = field(default_factory=list[int])
    arrived: list[int] = field(default_factory=list[int])
    sent: list[int] = field(default_factory=list[int])
    closed: list[bool] = field(default_factory=list[bool])
    taken: list[int] = field(default_factory=list[int])
    held: list[int] = field(default_factory=list[int])

    def __post_init__(self) -> None:
        buffers = max(self.depth, 1)
        self.free_for = list(range(buffers))
        self.arrived = [m + 1 if m < self.initial else 0 for m in range(buffers)]
        self.sent = [0] * self.producers
        self.closed = [False] * self.producers
        self.taken = [0] * self.consumers
        self.held = [0] * self.consumers

    @property
    def buffers(self) -> int:
        return len(self.free_for)

    def next_sent(self, replica: int) -> int:
        return self.initial + replica + self.sent[replica] * self.producers

    def next_taken(self, replica: int) -> int:
        return replica + self.taken[replica] * self.consumers

    def has_room(self, replica: int) -> bool:
        message = self.next_sent(replica)
        return self.free_for[message % self.buffers] == message

    def is_there(self, message: int) -> bool:
        return self.arrived[message % self.buffers] == message + 1

    def never_comes(self, message: int) -> bool:
        if message < self.initial:
            return False
        if self.producers == 0:
            return True
        replica = (message - self.initial) % self.producers
        return self.closed[replica] and self.next_sent(replica) <= message

    def send(self, replica: int) -> None:
        message = self.next_sent(replica)
        self.arrived[message % self.buffers] = message + 1
        self.sent[replica] += 1

    def take(self, replica: int) -> int:
        message = self.held[replica] = self.next_taken(replica)
        self.taken[replica] += 1
        return message

    def leave(self, replica: int) -> None:
        message = self.held[replica]
        self.free_for[message % self.buffers] = message + self.buffers

    @property
    def in_use(self) -> int:
        left = sum(free - b for b, free in enumerate(self.free_for)) // self.buffers
        return self.initial + sum(self.sent) - left


@dataclass(frozen=True, slots=True)
class Shape:
    """Who is joined to whom: processes as (name, entry, replicas), and for each channel its
    producing and its consuming process, or None."""

    processes: tuple[tuple[str, int, int], ...]
    producer: tuple[int | None, ...]
    consumer: tuple[int | None, ...]


def shape_of(plan: Plan, replicas: list[int]) -> Shape:
    """`replicas` are those of each PROCESS."""
    code, entries = plan.records(Instr), plan.records(Entry)
    processes = [
        (plan.string(record.name), record.entry, count)
        for record, count in zip(plan.records(Process), replicas, strict=True)
    ]
    if code[entries[0].pc].opcode != Op.HALT or not processes:
        processes.insert(0, ("main", 0, 1))
    ends: dict[bool, list[int | None]] = {
        sends: [None] * len(plan.records(Channel)) for sends in (True, False)
    }
    for number, (_, entry, _) in enumerate(processes):
        for instr in body_of(code, entries[entry].pc):
            if instr.opcode in SENDING | TAKING:
                ends[instr.opcode in SENDING][instr.operand1] = number
    return Shape(tuple(processes), tuple(ends[True]), tuple(ends[False]))


def body_of(code: tuple[Instr, ...], pc: int) -> Iterator[Instr]:
    """The instructions of an entry, without the words behind them."""
    while code[pc].opcode != Op.HALT:
        yield code[pc]
        pc += 1 + (code[pc].operand1 if code[pc].opcode == Op.TASK else 0)


class Network:
    """The turns of the processes of a plan. `depths` are those of its channels; `switch` is called
    with the old and the new process when another one has the turn, by whoever keeps state for
    each."""

    def __init__(self, plan: Plan, shape: Shape, depths: list[int], switch: Switch) -> None:
        self._plan = plan
        self._switch = switch
        self.shape = shape
        self.actors: list[Actor[Step]] = [
            Actor(number, replica, f"{name!r}" + (f" replica {replica}" if count > 1 else ""))
            for number, (name, _, count) in enumerate(shape.processes)
            for replica in range(count)
        ]
        self.queues = [
            Queue(
                plan.string(record.name),
                depths[number],
                record.initial,
                self._count(shape.producer[number]),
                self._count(shape.consumer[number]),
            )
            for number, record in enumerate(plan.records(Channel))
        ]
        self.at = 0
        self.messages = 0
        self.empty = 0  # how often a process had to wait for a message,
        self.full = 0  # and for a buffer or a receiver
        self.high = 0  # most buffers of one channel in use

    def _count(self, process: int | None) -> int:
        return 0 if process is None else self.shape.processes[process][2]

    @property
    def actor(self) -> Actor[Step]:
        return self.actors[self.at]

    def buffer(self, channel: int) -> int:
        """The buffer of the message that the process at work writes or has."""
        queue, replica = self.queues[channel], self.actor.replica
        sends = self.shape.producer[channel] == self.actor.process
        return (queue.next_sent(replica) if sends else queue.held[replica]) % queue.buffers

    # --- waiting ---

    def can_pass(self, actor: Actor[Step], wait: Wait) -> bool:
        queue = self.queues[wait.channel]
        if wait.op == Op.ROOM:
            return queue.has_room(actor.replica)
        if wait.op == Op.SEND:
            return self._is_awaited(wait.channel, queue.next_sent(actor.replica))
        message = queue.next_taken(actor.replica)
        return queue.is_there(message) or queue.never_comes(message)

    def _is_awaited(self, channel: int, message: int) -> bool:
        queue = self.queues[channel]
        if queue.depth > 0:
            return True
        consumer = self.shape.consumer[channel]
        for actor in self.actors:
            if actor.process != consumer or actor.wait is None or actor.wait.channel != channel:
                continue
            if queue.next_taken(actor.replica) == message:
                return True
        return False

    def run(self) -> Iterator[Step]:
        """The tasks of all processes in the order of their turns. Before each turn of an actor
        `switch` is called with it."""
        budget = TURN
        while True:
            actor = self.actor
            assert actor.steps is not None
            step = next(actor.steps, None)
            ends = step is None or step is TURN_ENDS
            if step is None:
                actor.ended = True
                for queue, producer in zip(self.queues, self.shape.producer, strict=True):
                    if producer == actor.process:
                        queue.closed[actor.replica] = True
            elif isinstance(step, Wait):
                if self.can_pass(actor, step):
                    continue
                actor.wait, ends = step, True
                if step.op in SENDING:
                    self.full += 1
                else:
                    self.empty += 1
            elif not ends:
                yield step
                budget -= 1
                ends = budget == 0
            if not ends:
                continue
            budget = TURN
            if not self._next_turn():
                return

    def _next_turn(self) -> bool:
        count = len(self.actors)
        for k in range(1, count + 1):
            number = (self.at + k) % count
            actor = self.actors[number]
            if actor.ended or (actor.wait is not None and not self.can_pass(actor, actor.wait)):
                continue
            actor.wait = None
            if number != self.at:
                self._switch(self.actor, actor)
                self.at = number
            return True
        if all(actor.ended for actor in self.actors):
            self._check_gaps()
            return False
        raise self.stuck()

    def _check_gaps(self) -> None:
        for number, queue in enumerate(self.queues):
            total = sum(queue.sent)
            for replica, sent in enumerate(queue.sent):
                turns = queue.producers
                expected = (total - replica + turns - 1) // turns if total > replica else 0
                if sent != expected:
                    raise run_error(
                        Code.CHANNEL_GAP,
                        f"replica {replica} has sent {sent} messages to channel {queue.name!r} "
                        f"where it should have sent {expected}: messages of replicas are collected "
                        "in turn",
                        loc=self._plan.loc(Section.CHANNEL, number),
                    )

    # --- reports ---

    def stuck(self) -> ExecutionError:
        lines = ["no process can go on"]
        waiting = [actor for actor in self.actors if not actor.ended]
        lines += [self.describe(actor) for actor in waiting]
        lines += [f"process {a.name} has come to its end" for a in self.actors if a.ended]
        first = waiting[0].wait
        loc = None if first is None else self._plan.loc(Section.CODE, first.pc)
        return run_error(Code.NETWORK_STUCK, "\n  ".join(lines), loc=loc)

    def describe(self, actor: Actor[Step]) -> str:
        wait = actor.wait
        assert wait is not None
        queue = self.queues[wait.channel]
        message = queue.next_taken(actor.replica) if wait.op in TAKING else 0
        text = wait_text(wait.op, queue.name, queue.in_use, queue.buffers, message)
        return f"process {actor.name} {text}{at_line(self._plan, wait.pc)}"

    def closed_error(self, wait: Wait) -> ExecutionError:
        queue = self.queues[wait.channel]
        text = closed_text(queue.name, queue.next_taken(self.actor.replica))
        loc = self._plan.loc(Section.CODE, wait.pc)
        return run_error(Code.CHANNEL_CLOSED, f"process {self.actor.name} {text}", loc=loc)

    def sends_closed(self, wait: Wait) -> ExecutionError:
        text = f"sends to channel {self.queues[wait.channel].name!r}, which it has closed"
        loc = self._plan.loc(Section.CODE, wait.pc)
        return run_error(Code.CHANNEL_CLOSED, f"process {self.actor.name} {text}", loc=loc)


def wait_text(op: Op, channel: str, in_use: int, buffers: int, message: int) -> str:
    """What a process waits for."""
    name, used = f"channel {channel!r}", f"{in_use} of {buffers}"
    if op == Op.ROOM:
        return f"waits for a free buffer of {name} ({used} in use)"
    if op == Op.SEND:
        return f"waits for a receiver at {name} (rendezvous)"
    return f"waits for message {message} of {name} (empty, {used} buffers in use)"


def closed_text(channel: str, message: int) -> str:
    return f"receives message {message} of channel {channel!r}, which is closed: no more come"


def at_line(plan: Plan, pc: int) -> str:
    """Where an instruction comes from, to be put behind it."""
    loc = plan.debug_loc(Section.CODE, pc)
    return "" if loc is None else f" ({loc.file}:{loc.line})"


def own_tensors(plan: Plan) -> list[int]:
    """Tensors of which each process has its own: temporaries and messages."""
    storages = plan.records(Storage)
    return [
        index
        for index, tensor in enumerate(plan.records(Tensor))
        if storages[tensor.storage].alloc != NONE
    ]
