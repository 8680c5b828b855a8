"""Makes a kernel shorter without changing what it computes, to the last bit.

Scalars whose operands are constants are computed, equal statements become one, what is multiplied
by 1 stays, a transpose of a transpose goes, and statements whose results nobody uses go.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from pto_wsp.dtypes import DType
from pto_wsp.kernels.tile_ir.nodes import Attribute, Block, ScalarType, Statement, TileKernel, Value
from pto_wsp.kernels.tile_ir.ops import FLOATS, INTEGERS, OPS, Group, Op
from pto_wsp.kernels.tile_ir.rebuild import replaced

_WRITES = frozenset({Op.STORE, Op.SCATTER})
_READS = frozenset({Op.LOAD, Op.GATHER})
Constant: TypeAlias = int | float | bool


def simplify(kernel: TileKernel) -> TileKernel:
    """A kernel with the same meaning; repeated until nothing changes."""
    while True:
        body = _Pass().body(kernel.body)
        shorter = replace(kernel, body=_live(body, ())[0])
        if shorter == kernel:
            return shorter
        kernel = shorter


class _Pass:
    """One walk over a kernel. `_same` finds an earlier equal statement that is visible here."""

    def __init__(self) -> None:
        self._values: dict[int, Value] = {}
        self._makers: dict[int, Statement] = {}
        self._same: dict[object, Statement] = {}
        self._epoch = 0  # of memory: loads before and after a store are different

    def body(self, body: Sequence[Statement]) -> tuple[Statement, ...]:
        found: list[Statement] = []
        for statement in body:
            kept = self._statement(statement)
            if kept is not None:
                found.append(kept)
        return tuple(found)

    def _statement(self, statement: Statement) -> Statement | None:
        """The statement as it stays; None if its result is another value."""
        statement = replace(statement, operands=replaced(statement.operands, self._values))
        if statement.blocks:
            return self._with_blocks(statement)
        if statement.op in _WRITES:
            self._epoch += 1
            return statement
        same = self._known(statement)
        if same is not None:
            for result, value in zip(statement.results, same, strict=True):
                self._values[result.number] = value
            return None
        statement = self._folded(statement)
        self._same[self._key(statement)] = statement
        for result in statement.results:
            self._makers[result.number] = statement
        return statement

    def _with_blocks(self, statement: Statement) -> Statement:
        """What a block computes is seen inside of it only."""
        writes = any(_writes(block.body) for block in statement.blocks)
        self._epoch += writes  # an iteration may come after a store of the one before
        blocks: list[Block] = []
        for block in statement.blocks:
            outside = dict(self._same)
            inside = self.body(block.body)
            blocks.append(Block(block.params, inside, replaced(block.yields, self._values)))
            self._same = outside
            self._epoch += writes
        return replace(statement, blocks=tuple(blocks))

    def _known(self, statement: Statement) -> tuple[Value, ...] | None:
        earlier = self._same.get(self._key(statement))
        if earlier is not None:
            return earlier.results
        single = self._identity(statement)
        return None if single is None else (single,)

    def _key(self, statement: Statement) -> object:
        epoch = self._epoch if statement.op in _READS else None
        # 0.0 and -0.0 are equal in Python, as are 1 and True.
        attributes = tuple((key, repr(value)) for key, value in statement.attributes)
        return statement.op, tuple(o.number for o in statement.operands), attributes, epoch

    def _identity(self, statement: Statement) -> Value | None:
        """The operand that the result equals, bit by bit and in its type."""
        if statement.op is Op.TRANSPOSE:
            maker = self._makers.get(statement.operands[0].number)
            return maker.operands[0] if maker is not None and maker.op is Op.TRANSPOSE else None
        neutral = _NEUTRAL.get(statement.op)
        if neutral is None:
            return None
        first, second = statement.operands
        pairs = [(first, second)] + ([(second, first)] if statement.op in _COMMUTES else [])
        for value, other in pairs:
            number = self._constant(other)
            if number is None or value.type != statement.results[0].type:
                continue
            if number == neutral and (neutral == 1 or _dtype(value) in INTEGERS):
                return value
        return None

    def _constant(self, value: Value) -> Constant | None:
        maker = self._makers.get(value.number)
        if maker is None or maker.op is not Op.CONST:
            return None
        found = maker.attribute("value")
        return found if isinstance(found, int | float) else None

    def _folded(self, statement: Statement) -> Statement:
        """A scalar of constants as a constant; only what is exact."""
        compute = _FOLDED.get(statement.op)
        if compute is None:
            return statement
        numbers = [self._constant(operand) for operand in statement.operands]
        constants = [number for number in numbers if number is not None]
        result = statement.results[0]
        if len(constants) < len(numbers) or not isinstance(result.type, ScalarType):
            return statement
        if any(_dtype(operand) in FLOATS for operand in statement.operands):
            return statement  # rounding belongs to whoever runs the kernel
        value = _wrapped(compute(*constants), result.type.dtype)
        attributes: tuple[tuple[str, Attribute], ...] = (
            ("dtype", result.type.dtype.text),
            ("value", value),
        )
        return Statement(Op.CONST, statement.results, (), attributes, (), statement.loc)


def _dtype(value: Value) -> DType:
    return value.type.dtype


def _writes(body: Sequence[Statement]) -> bool:
    return any(
        each.op in _WRITES or any(_writes(block.body) for block in each.blocks) for each in body
    )


def _wrapped(value: int | bool, dtype: DType) -> int | bool:
    """An integer in the range of its dtype, by its low bits."""
    if dtype is DType.BOOL:
        return bool(value)
    bits = 8 * dtype.size
    low = value & ((1 << bits) - 1)
    signed = dtype.name.startswith("I") and low >> (bits - 1)
    return low - (1 << bits) if signed else low


def _live(
    body: Sequence[Statement], used_after: Sequence[Value]
) -> tuple[tuple[Statement, ...], set[int]]:
    """The statements that something needs, and the numbers that they and what follows use."""
    used = {value.number for value in used_after}
    kept: list[Statement] = []
    for statement in reversed(body):
        wanted = any(result.number in used for result in statement.results)
        if not wanted and not _has_effect(statement):
            continue
        blocks: list[Block] = []
        for block in statement.blocks:
            inside, needs = _live(block.body, block.yields)
            used |= needs
            blocks.append(replace(block, body=inside))
        used |= {operand.number for operand in statement.operands}
        kept.append(replace(statement, blocks=tuple(blocks)))
    return tuple(reversed(kept)), used


def _has_effect(statement: Statement) -> bool:
    if statement.op in _WRITES:
        return True
    if OPS[statement.op].group is Group.CONTROL:
        return any(_has_effect(each) for block in statement.blocks for each in block.body)
    return False


_COMMUTES = frozenset({Op.ADD, Op.MUL, Op.OR, Op.XOR})
_NEUTRAL: dict[Op, int] = {
    Op.ADD: 0,
    Op.SUB: 0,
    Op.MUL: 1,
    Op.DIV: 1,
    Op.FLOORDIV: 1,
    Op.OR: 0,
    Op.XOR: 0,
}


def _floordiv(a: int, b: int) -> int:
    return a // b if b else 0


def _mod(a: int, b: int) -> int:
    return a % b if b else 0


def _not(a: int) -> int:
    return not a if isinstance(a, bool) else ~a


_FOLDED: dict[Op, Callable[..., Any]] = {
    Op.NEG: operator.neg,
    Op.ABS: operator.abs,
    Op.NOT: _not,
    Op.ADD: operator.add,
    Op.SUB: operator.sub,
    Op.MUL: operator.mul,
    Op.FLOORDIV: _floordiv,
    Op.MOD: _mod,
    Op.MAX: max,
    Op.MIN: min,
    Op.AND: int.__and__,
    Op.OR: int.__or__,
    Op.XOR: int.__xor__,
    Op.EQ: operator.eq,
    Op.NE: operator.ne,
    Op.LT: operator.lt,
    Op.LE: operator.le,
    Op.GT: operator.gt,
    Op.GE: operator.ge,
}
