"""The smallest depths of channels with which a network comes to its end."""

from __future__ import annotations

from collections.abc import Callable

from pto_wsp.backends.reference.bound import BoundPlan
from pto_wsp.backends.reference.network import Actor, Network, Queue, Step, Wait
from pto_wsp.backends.reference.walk import Task, Walk
from pto_wsp.errors import DeadlockError
from pto_wsp.plan import Channel, Feature, Instr, Op, Plan
from pto_wsp.runtime.bindings import Bound
from pto_wsp.runtime.run_errors import tasks_depend_on_data

_TASK = Task(0, 0, 0, (), ())  # stands for all of them
_LOOPS = frozenset({Op.PARALLEL_FOR, Op.FOR_EACH, Op.SELECT})
# What makes a difference outside of its loop.
_MATTERS = frozenset(
    {Op.ROOM, Op.SEND, Op.RECV, Op.CLOSE, Op.TAKE, Op.DROP, Op.SLOT_SET, Op.SLOT_LOAD}
)


def min_depths(plan: Plan, bindings: tuple[Bound, ...]) -> dict[str, int]:
    """By name of a channel, a depth; none of them can be smaller while the others stay. Raises
    DeadlockError if no depths help, and whatever else ends each run."""
    if Feature.DATA_DEPENDENT in plan.features:
        raise tasks_depend_on_data("execute it: stats.channel_high says how many messages waited")
    channels = plan.records(Channel)
    if not channels:
        return {}

    def play(depths: list[int], *, deepens: bool = False) -> Network:
        walk = _Talk(BoundPlan(plan, bindings), depths, deepens)
        for _ in walk.tasks():
            pass
        assert walk.network is not None
        return walk.network

    def completes(depths: list[int]) -> bool:
        try:
            play(depths)
        except DeadlockError:
            return False
        return True

    lowest = [channel.initial for channel in channels]
    try:
        enough = [queue.depth for queue in play(lowest, deepens=True).queues]
    except DeadlockError as error:
        raise DeadlockError(
            error.code,
            error.message,
            loc=error.loc,
            why="they wait for messages, and so no depths of channels help",
            fix="let somebody begin: Channel[...](initial=1) has a message at the start",
        ) from None
    found = smallest(lowest, enough, completes)
    return {plan.string(c.name): depth for c, depth in zip(channels, found, strict=True)}


def smallest(
    lowest: list[int], enough: list[int], completes: Callable[[list[int]], bool]
) -> list[int]:
    """Depths between those, of which none can be smaller while the others stay. More buffers never
    hurt, so that each can be found by bisection."""
    depths = list(enough)
    for channel, low in enumerate(lowest):
        high = depths[channel]
        while low < high:
            middle = (low + high) // 2
            depths[channel] = middle
            if completes(depths):
                high = middle
            else:
                low = middle + 1
        depths[channel] = high
    return depths


class _Talk(Walk):
    """A walk that leaves out what tasks do, and loops that are about nothing else."""

    def __init__(self, bound: BoundPlan, depths: list[int], deepens: bool) -> None:
        self._depths = depths
        self._deepens = deepens
        self._silent = _silent_axes(bound.plan)
        super().__init__(bound)

    def _make_network(self) -> Network:
        shape = super()._make_network().shape
        kind = _Deepening if self._deepens else Network
        return kind(self._plan, shape, self._depths, self._switch)

    def _enter(self, axis: int, indices: tuple[int, ...], *, limit: bool = False) -> range:
        return range(0) if axis in self._silent else super()._enter(axis, indices, limit=limit)

    def _task(self, site: int, indices: tuple[int, ...]) -> Task:
        del site, indices
        return _TASK

    def _hold(self, channel: int) -> None:
        """Nobody looks at messages."""

    def _alloc(self, alloc: int, pc: int, indices: tuple[int, ...]) -> None:
        """Nobody looks at temporaries."""


def _silent_axes(plan: Plan) -> frozenset[int]:
    """Those of loops in which there are only tasks."""
    code = plan.records(Instr)
    heads = [pc for pc, instr in enumerate(code) if instr.opcode in _LOOPS]
    heard = {
        code[pc].operand1
        for pc in heads
        if any(instr.opcode in _MATTERS for instr in code[pc : code[pc].operand2])
    }
    return frozenset(code[pc].operand1 for pc in heads) - heard


class _Deepening(Network):
    """Where nobody can go on, the smallest of the channels to blame gets twice its buffers (Parks'
    rule), and what has happened stays as it is. Those too many are taken away again later."""

    def _next_turn(self) -> bool:
        while True:
            try:
                return super()._next_turn()
            except DeadlockError:
                full = self._to_blame()
                if not full:
                    raise
            queue = min((self.queues[channel] for channel in full), key=lambda q: q.depth)
            _deepen(queue, max(queue.depth * 2, 1))

    def _to_blame(self) -> list[int]:
        """Channels without room, or receiver, for which processes wait in a cycle, or for ever
        since the receiver has ended. None if some cycle has no such channel: all of it waits for
        messages that cannot come."""
        found: list[int] = []
        for cycle in self._cycles():
            full = [wait.channel for wait in cycle if wait.op in (Op.ROOM, Op.SEND)]
            if not full:
                return []
            found += full
        return found

    def _cycles(self) -> list[list[Wait]]:
        """What processes wait for in each cycle, and in front of each that has ended."""
        cycles: list[list[Wait]] = []
        done: set[int] = set()
        for first in self.actors:
            path: list[Actor[Step]] = []
            actor = first
            while not actor.ended and id(actor) not in done:
                done.add(id(actor))
                path.append(actor)
                actor = self._waits_for(actor)
            if actor.ended and path:
                cycles.append(_waits(path[-1:]))
            elif actor in path:
                cycles.append(_waits(path[path.index(actor) :]))
        return cycles

    def _waits_for(self, actor: Actor[Step]) -> Actor[Step]:
        wait = actor.wait
        assert wait is not None
        queue = self.queues[wait.channel]
        if wait.op in (Op.ROOM, Op.SEND):
            message = queue.next_sent(actor.replica)
            message -= queue.buffers if wait.op == Op.ROOM else 0
            end, replica = self.shape.consumer[wait.channel], message % max(queue.consumers, 1)
        else:
            message = queue.next_taken(actor.replica) - queue.initial
            end, replica = self.shape.producer[wait.channel], message % max(queue.producers, 1)
        found = [a for a in self.actors if a.process == end and a.replica == replica]
        return found[0]


def _waits(actors: list[Actor[Step]]) -> list[Wait]:
    return [actor.wait for actor in actors if actor.wait is not None]


def _deepen(queue: Queue, depth: int) -> None:
    """More buffers. What was sent and left stays so, in other buffers."""
    old, is_there = queue.free_for, queue.is_there

    def is_left(message: int) -> bool:
        return old[message % len(old)] > message

    free_for: list[int] = []
    start = min(old) // depth * depth  # all before it were left
    for message in range(start, start + depth):
        while is_left(message):
            message += depth
        free_for.append(message)
    arrived = [message + 1 if is_there(message) else 0 for message in free_for]
    queue.depth, queue.free_for, queue.arrived = depth, free_for, arrived
