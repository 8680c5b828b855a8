"""All that a network can do, whatever is bound: a search for one way to its end.

Processes wait only where they use channels, and each channel has one process at each end; so in
which order they go on decides nothing, and one order stands for all. What is not known is a choice:
how often a loop runs, which branch of a condition is taken. A network is stuck for certain if no
choice leads to its end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from pto_wsp.backends.reference.liveness.flow import Flow
from pto_wsp.backends.reference.liveness.skeleton import Skeleton
from pto_wsp.backends.reference.liveness.steps import Flattener, Step
from pto_wsp.backends.reference.network import Wait
from pto_wsp.plan import Op

LIMIT = 64  # iterations of constant loops that are played; of longer ones, at least these
_HEADS = frozenset({Op.PARALLEL_FOR, Op.COND})


@dataclass(eq=False, slots=True)
class State:
    """Where each process stands: its step, and how often its loops have begun an iteration."""

    at: list[int]
    loops: list[list[int]]
    flows: list[Flow]

    def copy(self) -> State:
        loops = [counters[:] for counters in self.loops]
        return State(self.at[:], loops, [flow.copy() for flow in self.flows])

    def key(self, actor: int) -> tuple[object, ...]:
        loops = tuple(tuple(counters) for counters in self.loops)
        return actor, tuple(self.at), loops, tuple(flow.key() for flow in self.flows)


class Found(Enum):
    END = auto()  # there is a way to the end
    STUCK = auto()  # there is none
    UNKNOWN = auto()  # too much to look at


@dataclass(eq=False, slots=True)
class Exploration:
    """The outcome, the first state in which a network was stuck, the waits there by actor (None: it
    has ended), and who received from a closed channel, if that is what happened."""

    found: Found = Found.END
    state: State | None = None
    waits: list[Wait | None] = field(default_factory=list[Wait | None])
    closed: int | None = None
    states: int = 0
    steps: int = 0


class _Moves(Enum):
    WAITS = auto()
    CHOOSES = auto()
    FAILS = auto()
    ENDS = auto()


class Explorer:
    """`empty` are the symbols whose value is taken to be 0; others are at least 1."""

    def __init__(
        self, skeleton: Skeleton, depths: list[int], empty: frozenset[int], limit: int = LIMIT
    ) -> None:
        self._shape = skeleton.shape
        self._links = skeleton.links
        self._depths = depths
        self._codes: list[list[Step]] = []
        for body in skeleton.bodies:
            flat = Flattener(skeleton, empty, limit)
            flat.body(body)
            self._codes.append([*flat.steps, Step(Op.HALT)])
        self.actors = [
            (process, replica)
            for process, (_, _, count) in enumerate(skeleton.shape.processes)
            for replica in range(count)
        ]
        self._first = [actor for actor, (_, replica) in enumerate(self.actors) if replica == 0]
        self.result = Exploration()

    def explore(self, budget: int) -> Exploration:
        """Looks for a way to the end in at most `budget` steps."""
        result = self.result
        stack, seen = [self._start()], set[tuple[object, ...]]()
        while stack:
            state = stack.pop()
            moves, actor = self._settle(state)
            if moves is _Moves.ENDS:
                result.found = Found.END
                return result
            if result.steps > budget:
                result.found = Found.UNKNOWN
                return result
            if moves is not _Moves.CHOOSES:
                self._note(state, actor if moves is _Moves.FAILS else None)
                continue
            key = state.key(actor)
            if key in seen:
                continue
            seen.add(key)
            result.states = len(seen)
            stack += self._choices(state, actor)
        result.found = Found.STUCK
        return result

    def _start(self) -> State:
        levels = [max((step.level for step in code), default=0) + 1 for code in self._codes]
        flows = [
            Flow(
                link,
                depth,
                [0] * link.producers,
                [False] * link.producers,
                [0] * link.consumers,
                [0] * link.consumers,
            )
            for link, depth in zip(self._links, self._depths, strict=True)
        ]
        loops = [[0] * levels[process] for process, _ in self.actors]
        return State([0] * len(self.actors), loops, flows)

    def _settle(self, state: State) -> tuple[_Moves, int]:
        """Lets everybody go on until there is a choice, or nobody can."""
        moved = True
        while moved:
            moved = False
            ended = 0
            for actor in range(len(self.actors)):
                before = self.result.steps
                moves = self._advance(state, actor)
                if moves in (_Moves.CHOOSES, _Moves.FAILS):
                    return moves, actor
                ended += moves is _Moves.ENDS
                moved = moved or self.result.steps > before + 1
            if ended == len(self.actors):
                return _Moves.ENDS, 0
        return _Moves.WAITS, 0

    def _advance(self, state: State, actor: int) -> _Moves:
        """Goes on until the process waits, chooses, fails or ends. Every look counts as a step."""
        code = self._codes[self.actors[actor][0]]
        while True:
            self.result.steps += 1
            step = code[state.at[actor]]
            if step.op == Op.HALT:
                self._end(state, actor)
                return _Moves.ENDS
            if step.op in _HEADS:
                if self._is_open(state, actor, step):
                    return _Moves.CHOOSES
                self._enter(state, actor, step, state.loops[actor][step.level] < step.low)
                continue
            if step.op == Op.NOP:
                state.at[actor] = step.target
                continue
            moves = self._talk(state, actor, step)
            if moves is not None:
                return moves

    def _is_open(self, state: State, actor: int, step: Step) -> bool:
        """Whether there is a choice; a loop may have to go on, or have come to its end."""
        done = state.loops[actor][step.level]
        return step.op == Op.COND or (done >= step.low and (step.high is None or done < step.high))

    def _enter(self, state: State, actor: int, step: Step, enters: bool) -> None:
        """Into the body of a loop or a condition, or past it."""
        state.at[actor] = state.at[actor] + 1 if enters else step.target
        if step.op != Op.PARALLEL_FOR:
            return
        done = state.loops[actor][step.level]
        # Beyond `low` the count of a loop that may go on for ever says nothing.
        state.loops[actor][step.level] = min(done + 1, step.low) if enters else 0

    def _choices(self, state: State, actor: int) -> list[State]:
        """The last one is looked at first: leaving a loop leads to the end sooner."""
        step = self._codes[self.actors[actor][0]][state.at[actor]]
        other = state.copy()
        self.result.steps += len(self.actors)  # a copy costs as much
        self._enter(state, actor, step, enters=step.op == Op.PARALLEL_FOR)
        self._enter(other, actor, step, enters=step.op != Op.PARALLEL_FOR)
        return [state, other]

    def _talk(self, state: State, actor: int, step: Step) -> _Moves | None:
        """An instruction of a channel; None if it is done."""
        replica = self.actors[actor][1]
        flow = state.flows[step.channel]
        match step.op:
            case Op.ROOM:
                if not flow.has_room(replica):
                    return _Moves.WAITS
            case Op.SEND:
                if flow.depth == 0 and not self._is_awaited(state, step.channel, replica):
                    return _Moves.WAITS
                flow.sent[replica] += 1
            case Op.TAKE | Op.RECV:
                message = flow.next_taken(replica)
                if not flow.is_there(message):
                    return self._without_message(state, actor, step, flow.never_comes(message))
                flow.taken[replica] += 1
            case Op.DROP:
                flow.left[replica] += 1
            case _:
                flow.closed[replica] = True
        state.at[actor] += 1
        return None

    def _without_message(self, state: State, actor: int, step: Step, ended: bool) -> _Moves | None:
        if not ended:
            return _Moves.WAITS
        if step.op == Op.TAKE:
            return _Moves.FAILS
        state.at[actor] = step.target
        return None

    def waits_for(self, actor: int) -> int | None:
        """Whom an actor waits for in the state in which the search was stuck; None if that one has
        ended."""
        wait, state, replica = self.result.waits[actor], self.result.state, self.actors[actor][1]
        if wait is None or state is None:
            return None
        flow, link = state.flows[wait.channel], self._links[wait.channel]
        if wait.op in (Op.TAKE, Op.RECV):
            end, count = self._shape.producer[wait.channel], link.producers
            message = flow.next_taken(replica) - link.initial
        else:
            end, count = self._shape.consumer[wait.channel], link.consumers
            message = flow.next_sent(replica) - (flow.buffers if wait.op == Op.ROOM else 0)
        if end is None:
            return None
        found = self._first[end] + message % count
        return None if self.result.waits[found] is None else found

    def _is_awaited(self, state: State, channel: int, replica: int) -> bool:
        consumer, flow = self._shape.consumer[channel], state.flows[channel]
        if consumer is None:
            return False
        message = flow.next_sent(replica)
        taker = message % flow.link.consumers
        step = self._codes[consumer][state.at[self._first[consumer] + taker]]
        takes = step.op in (Op.TAKE, Op.RECV) and step.channel == channel
        return takes and flow.next_taken(taker) == message

    def _end(self, state: State, actor: int) -> None:
        process, replica = self.actors[actor]
        for flow, producer in zip(state.flows, self._shape.producer, strict=True):
            if producer == process and not flow.closed[replica]:
                flow.closed[replica] = True
                self.result.steps += 1  # somebody may go on now

    def _note(self, state: State, closed: int | None) -> None:
        if self.result.state is not None:
            return
        steps = [
            self._codes[process][at] for (process, _), at in zip(self.actors, state.at, strict=True)
        ]
        self.result.state = state
        self.result.closed = closed
        self.result.waits = [
            None if step.op == Op.HALT else Wait(step.op, step.channel, step.pc) for step in steps
        ]
