"""What the processes of a plan say to each other: loops, conditions and channels, without tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from pto_wsp.backends.reference.liveness.counts import Extents
from pto_wsp.backends.reference.network import Shape, shape_of
from pto_wsp.plan import Axis, Channel, Entry, Instr, Op, Plan, Process

_TALKS = frozenset({Op.ROOM, Op.SEND, Op.TAKE, Op.DROP, Op.CLOSE})
_LOOPS = frozenset({Op.PARALLEL_FOR, Op.FOR_EACH, Op.SELECT})
_BLOCKS = frozenset({Op.COMBINE, Op.SEQUENTIAL})
_UNKNOWN = frozenset({Op.CALL, Op.BREAK})  # control that leaves its block


@dataclass(frozen=True, slots=True)
class Talk:
    """An instruction of a channel, other than RECV."""

    op: Op
    channel: int
    pc: int


@dataclass(frozen=True, slots=True)
class Loop:
    """`extent` is an EXPR; None if the number of iterations is known only by running."""

    extent: int | None
    body: Body


@dataclass(frozen=True, slots=True)
class Messages:
    """A RECV."""

    channel: int
    pc: int
    body: Body


@dataclass(frozen=True, slots=True)
class Choice:
    """A condition of which nothing is known."""

    body: Body
    other: Body


Node: TypeAlias = Talk | Loop | Messages | Choice
Body: TypeAlias = tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Link:
    """A channel, and how many replicas are at its ends."""

    name: str
    depth: int
    initial: int
    producers: int
    consumers: int


@dataclass(frozen=True, slots=True)
class Skeleton:
    plan: Plan
    extents: Extents
    shape: Shape
    bodies: tuple[Body, ...]  # by process of `shape`
    links: tuple[Link, ...]  # by CHANNEL

    @property
    def symbols(self) -> tuple[int, ...]:
        """Nodes of names whose values are extents of loops in which channels are used."""
        loops = (n for body in self.bodies for n in nodes_of(body) if isinstance(n, Loop))
        found = (self.extents.symbol(n.extent) for n in loops if n.extent is not None)
        return tuple(dict.fromkeys(symbol for symbol in found if symbol is not None))


def nodes_of(body: Body) -> Iterator[Node]:
    """All nodes of a body, outer ones first."""
    for node in body:
        yield node
        if isinstance(node, Loop | Messages | Choice):
            yield from nodes_of(node.body)
        if isinstance(node, Choice):
            yield from nodes_of(node.other)


def skeleton_of(plan: Plan) -> Skeleton | None:
    """None if it cannot be told from the plan alone."""
    extents = Extents(plan)
    code, entries = plan.records(Instr), plan.records(Entry)
    replicas = [extents.known(record.replicas) for record in plan.records(Process)]
    depths = [extents.known(record.depth) for record in plan.records(Channel)]
    known = [count for count in replicas if count is not None]
    if len(known) < len(replicas) or any(instr.opcode in _UNKNOWN for instr in code):
        return None
    shape = shape_of(plan, known)
    reader = _Reader(plan, extents)
    # A replica is one iteration of the loop that its process is.
    starts = [entries[entry].pc + (count > 1) for _, entry, count in shape.processes]
    links: list[Link] = []
    for number, (record, depth) in enumerate(zip(plan.records(Channel), depths, strict=True)):
        ends = [shape.producer[number], shape.consumer[number]]
        counts = [0 if end is None else shape.processes[end][2] for end in ends]
        if depth is None or (0 in counts and any(counts) and not record.initial):
            return None  # what is at the other end is not in the plan
        links.append(Link(plan.string(record.name), depth, record.initial, *counts))
    return Skeleton(plan, extents, shape, tuple(map(reader.body, starts)), tuple(links))


class _Reader:
    def __init__(self, plan: Plan, extents: Extents) -> None:
        self._code = plan.records(Instr)
        self._axes = plan.records(Axis)
        self._extents = extents

    def body(self, pc: int) -> Body:
        """The block that begins at `pc`. Parts of it that use no channel are left out."""
        found: list[Node] = []
        while self._code[pc].opcode not in (Op.END, Op.HALT):
            nodes, pc = self._item(pc)
            found += nodes
        return tuple(found)

    def _item(self, pc: int) -> tuple[Body, int]:
        """What stands at `pc`, and where the next item stands."""
        instr = self._code[pc]
        op = Op(instr.opcode)
        if op in _TALKS:
            return (Talk(op, instr.operand1, pc),), pc + 1
        if op in _LOOPS:
            body = self.body(pc + 1)
            return _unless_empty(
                body, Loop(self._axes[instr.operand1].extent, body)
            ), instr.operand2
        if op == Op.LOOP_WHILE:
            body = self.body(pc + 2)
            return _unless_empty(body, Loop(None, body)), instr.operand2
        if op == Op.RECV:
            return (Messages(instr.operand1, pc, self.body(pc + 1)),), instr.operand2
        if op in _BLOCKS:
            return self.body(pc + 1), instr.operand2
        if op == Op.COND:
            return self._condition(pc, instr)
        words = instr.operand1 if op in (Op.TASK, Op.COLLECTIVE) else int(op == Op.SLOT_LOAD)
        return (), pc + 1 + words

    def _condition(self, pc: int, instr: Instr) -> tuple[Body, int]:
        body, other, end = self.body(pc + 2), (), instr.operand2
        if self._code[end].opcode == Op.ELSE:
            other = self.body(end + 1)
            end = self._code[end].operand2
        holds = self._extents.known(self._code[pc + 1].operand2)
        if holds is not None:
            return (body if holds else other), end
        return _unless_empty(body + other, Choice(body, other)), end


def _unless_empty(body: Body, node: Node) -> Body:
    return (node,) if body else ()
