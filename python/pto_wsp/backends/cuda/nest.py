"""A plan's code as a tree, for those who write programs from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from pto_wsp.plan import Entry, Instr, Op, Plan


@dataclass(frozen=True, slots=True)
class Loop:
    """`level` loops enclose it. `ordered`: iteration i + 1 waits for iteration i."""

    pc: int
    axis: int
    level: int
    ordered: bool
    body: Block


@dataclass(frozen=True, slots=True)
class Branch:
    """`condition` is an EXPR node."""

    pc: int
    condition: int
    then: Block
    other: Block


@dataclass(frozen=True, slots=True)
class Phases:
    """Children of which each waits for the one before it."""

    pc: int
    level: int
    children: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """`afters` are AFTER records."""

    pc: int
    site: int
    accesses: tuple[int, ...]
    scalars: tuple[int, ...]
    afters: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Let:
    pc: int
    number: int
    value: int


@dataclass(frozen=True, slots=True)
class Temporary:
    """An ALLOC record, made once for each iteration of the loops around it."""

    pc: int
    alloc: int
    level: int


Item: TypeAlias = Loop | Branch | Phases | Call | Let | Temporary
Block: TypeAlias = tuple[Item, ...]

_LOOPS = (Op.PARALLEL_FOR, Op.FOR_EACH, Op.SELECT)
_REGIONS = (Op.IO_INPUT, Op.IO_OUTPUT, Op.IO_INOUT, Op.IO_ACCUM)
# What the tree has a node for. LOOP_WHILE, slots and channels cannot be reached by number.
OPS = frozenset(
    {
        *(Op.HALT, Op.NOP, Op.END, Op.EXT, Op.COND, Op.ELSE, Op.COMBINE, Op.SEQUENTIAL, Op.CALL),
        *(Op.LET, Op.ALLOC, Op.FREE, Op.TASK, Op.PARAM_CONST, Op.PARAM_LOOPVAR, Op.PARAM_EXPR),
        *(Op.SCALAR, Op.AFTER, *_LOOPS, *_REGIONS),
    }
)


class _Reader:
    def __init__(self, plan: Plan) -> None:
        self._code = plan.records(Instr)
        self._entries = plan.records(Entry)

    def block(self, pc: int, level: int) -> Block:
        """The items from `pc` up to the END or HALT of that block."""
        items: list[Item] = []
        for found in self._children(pc, level):
            items += found
        return tuple(items)

    def _children(self, pc: int, level: int) -> list[Block]:
        """The same, instruction by instruction; those that order nothing are left out."""
        found: list[Block] = []
        while self._code[pc].opcode not in (Op.END, Op.HALT):
            items, pc = self._items(pc, level)
            if items:
                found.append(items)
        return found

    def _items(self, pc: int, level: int) -> tuple[Block, int]:
        """What one instruction stands for, and where the next one is."""
        instr = self._code[pc]
        match instr.opcode:
            case Op.NOP | Op.FREE:
                return (), pc + 1
            case Op.PARALLEL_FOR | Op.FOR_EACH | Op.SELECT:
                body = self.block(pc + 1, level + 1)
                loop = Loop(pc, instr.operand1, level, instr.opcode == Op.FOR_EACH, body)
                return (loop,), instr.operand2
            case Op.COND:
                branch, after = self._branch(pc, level)
                return (branch,), after
            case Op.COMBINE:
                return self.block(pc + 1, level), instr.operand2
            case Op.SEQUENTIAL:
                children = tuple(self._children(pc + 1, level))
                return (Phases(pc, level, children),), instr.operand2
            case Op.CALL:
                return self.block(self._entries[instr.operand2].pc, level), pc + 1
            case Op.LET:
                return (Let(pc, instr.operand1, instr.operand2),), pc + 1
            case Op.ALLOC:
                return (Temporary(pc, instr.operand1, level),), pc + 1
            case Op.TASK:
                return (self._call(pc),), pc + 1 + instr.operand1
            case op:
                raise AssertionError(f"check() lets no {op.name} pass")

    def _branch(self, pc: int, level: int) -> tuple[Branch, int]:
        instr, condition = self._code[pc], self._code[pc + 1].operand2
        then = self.block(pc + 2, level)
        other = self._code[instr.operand2]
        if other.opcode != Op.ELSE:
            return Branch(pc, condition, then, ()), instr.operand2
        return Branch(pc, condition, then, self.block(instr.operand2 + 1, level)), other.operand2

    def _call(self, pc: int) -> Call:
        instr = self._code[pc]
        words = self._code[pc + 1 : pc + 1 + instr.operand1]
        return Call(
            pc,
            instr.operand2,
            tuple(w.operand2 for w in words if w.opcode in _REGIONS),
            tuple(w.operand2 for w in words if w.opcode == Op.SCALAR),
            tuple(w.operand2 for w in words if w.opcode == Op.AFTER),
        )


def read_nest(plan: Plan) -> Block:
    """The main entry of a plan; only instructions of OPS are known here."""
    return _Reader(plan).block(plan.records(Entry)[0].pc, 0)


# What encloses an item, outermost first: the item, and which of its parts.
Path: TypeAlias = tuple[tuple[Loop | Branch | Phases, int], ...]


def calls(block: Block, path: Path = ()) -> Iterator[tuple[Call, Path]]:
    """Every call with what is around it, in the order of the text. Part 0 of a branch is taken if
    its condition holds."""
    for item in block:
        match item:
            case Call():
                yield item, path
            case Loop():
                yield from calls(item.body, (*path, (item, 0)))
            case Branch():
                yield from calls(item.then, (*path, (item, 0)))
                yield from calls(item.other, (*path, (item, 1)))
            case Phases():
                for number, child in enumerate(item.children):
                    yield from calls(child, (*path, (item, number)))
            case Let() | Temporary():
                pass


def loops_of(path: Path) -> tuple[Loop, ...]:
    return tuple(item for item, _ in path if isinstance(item, Loop))
