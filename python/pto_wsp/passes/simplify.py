"""Folds constants and drops neutral operations: `1 + i + 2 - 3` becomes `i`.

Only expressions change. What stays evaluates as before, wherever the original evaluated: an operand
that might fail at run time (an array index, a division) is never dropped, a division by zero is
left for the verifier and the run to report, and nothing is folded beyond 64 bits. Adding up the
constants of a chain can only make an intermediate overflow disappear.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from pto_wsp import ir
from pto_wsp.ir import Binary, BinaryOp, Const, Expr

_I64 = range(-(2**63), 2**63)

_EVALUATE: dict[BinaryOp, Callable[[int, int], int]] = {
    BinaryOp.ADD: lambda a, b: a + b,
    BinaryOp.SUB: lambda a, b: a - b,
    BinaryOp.MUL: lambda a, b: a * b,
    BinaryOp.FLOORDIV: lambda a, b: a // b,
    BinaryOp.MOD: lambda a, b: a % b,
    BinaryOp.MIN: min,
    BinaryOp.MAX: max,
}

# x op n is x.
_NEUTRAL = {
    BinaryOp.ADD: 0,
    BinaryOp.SUB: 0,
    BinaryOp.MUL: 1,
    BinaryOp.FLOORDIV: 1,
}

_COMMUTATIVE = frozenset({BinaryOp.ADD, BinaryOp.MUL, BinaryOp.MIN, BinaryOp.MAX})

# (x op c) op d is x op (c op d).
_ASSOCIATIVE = _COMMUTATIVE


@dataclass(frozen=True, slots=True)
class Simplify:
    """Constant folding in every expression of a module."""

    name: ClassVar[str] = "simplify"

    def apply(self, module: ir.Module) -> ir.Module:
        return replace(module, body=ir.map_exprs(module.body, simplify))


def simplify(expr: Expr) -> Expr:
    """An expression of the same value with its constants folded and to the right."""
    return ir.map_expr(expr, _fold)


def _fold(expr: Expr) -> Expr:
    """Folds at the root of an expression whose operands are folded already."""
    match expr:
        case Binary(op, Const(a), Const(b)):
            return _constant(op, a, b) or expr
        case Binary(op, Const() as constant, other) if op in _COMMUTATIVE:
            return _fold(Binary(op, other, constant))
        case Binary(BinaryOp.SUB, other, Const(value)) if -value in _I64:
            return _positive(_fold(Binary(BinaryOp.ADD, other, Const(-value))))
        case Binary(op, other, Const(value)) if _NEUTRAL.get(op) == value:
            return other
        case Binary(BinaryOp.ADD, Binary(BinaryOp.SUB, other, Const(a)), Const(b)):
            return _chain(BinaryOp.ADD, other, -a, b) or _positive(expr)
        case Binary(op, Binary(inner, other, Const(a)), Const(b)) if (
            op is inner and op in _ASSOCIATIVE
        ):
            return _chain(op, other, a, b) or _positive(expr)
        case Binary(BinaryOp.MIN | BinaryOp.MAX, lhs, rhs) if lhs == rhs:
            return lhs
        case _:
            return _positive(expr)


def _constant(op: BinaryOp, a: int, b: int) -> Const | None:
    """The value of a constant operation, None if it fails or does not fit 64 bits."""
    if op not in _EVALUATE or (b == 0 and op in (BinaryOp.FLOORDIV, BinaryOp.MOD)):
        return None
    value = _EVALUATE[op](a, b)
    return Const(value) if value in _I64 else None


def _chain(op: BinaryOp, other: Expr, a: int, b: int) -> Expr | None:
    """other op (a op b)."""
    constant = _constant(op, a, b)
    return None if constant is None else _fold(Binary(op, other, constant))


def _positive(expr: Expr) -> Expr:
    """`x + -1` as `x - 1`."""
    match expr:
        case Binary(BinaryOp.ADD, other, Const(value)) if value < 0 and -value in _I64:
            return Binary(BinaryOp.SUB, other, Const(-value))
        case _:
            return expr
