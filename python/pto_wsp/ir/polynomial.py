"""The normal form of scalar expressions: a sum of integer coefficients times products of atoms.

Equal sums have equal normal forms whatever way they were written, so `(t + 1) * 64 - t * 64` is 64
and not an expression: region extents come out as the constants that analysis and kernels need.
Atoms are the leaves of the IR and the operations that do not distribute (`//`, `%`, min, max,
select, reductions, searches).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from pto_wsp.ir import nodes as ir
from pto_wsp.ir.rewrite import operands

Atom: TypeAlias = (
    ir.TaskAxis
    | ir.TaskSite
    | ir.TaskOrdinal
    | ir.LoopVar
    | ir.Column
    | ir.SymbolRef
    | ir.ShapeOf
    | ir.SlotRef
    | ir.BoundVar
    | ir.ArrayLoad
    | ir.Binary
    | ir.Select
    | ir.Reduce
    | ir.Search
)
Product: TypeAlias = tuple[Atom, ...]

# An expression that is larger than this comes from a loop that went wrong; `verify` has the same
# limit, but by then a sum of products could have filled the memory.
MAX_NODES = 4096

_ATOM_ORDER = (
    *(ir.LoopVar, ir.Column, ir.SymbolRef, ir.ShapeOf, ir.SlotRef, ir.BoundVar),
    *(ir.ArrayLoad, ir.Binary, ir.Select, ir.Reduce, ir.Search),
    *(ir.TaskAxis, ir.TaskSite, ir.TaskOrdinal),
)


def _atom_key(atom: Atom) -> tuple[int, str]:
    return _ATOM_ORDER.index(type(atom)), repr(atom)


def _product_key(product: Product) -> tuple[int, list[tuple[int, str]]]:
    """Longer products first, so that the constant (the empty product) comes last."""
    return -len(product), [_atom_key(atom) for atom in product]


class TooLarge(Exception):
    """An expression has more than MAX_NODES nodes."""


@dataclass(frozen=True, slots=True)
class Polynomial:
    """`terms` are sorted, their coefficients are not zero; the empty product is the constant."""

    terms: tuple[tuple[Product, int], ...]

    @property
    def constant(self) -> int:
        """The part without atoms."""
        return self.terms[-1][1] if self.terms and not self.terms[-1][0] else 0

    @property
    def is_constant(self) -> bool:
        return not self.terms or (len(self.terms) == 1 and not self.terms[0][0])

    @property
    def atom(self) -> Atom | None:
        """The atom, where the whole expression is one atom."""
        if len(self.terms) != 1:
            return None
        product, coefficient = self.terms[0]
        return product[0] if len(product) == 1 and coefficient == 1 else None


def of_terms(terms: Iterable[tuple[Product, int]]) -> Polynomial:
    """Collect equal products and sort."""
    sums: dict[Product, int] = {}
    for product, coefficient in terms:
        sums[product] = sums.get(product, 0) + coefficient
    if sum(len(product) for product in sums) > MAX_NODES:
        raise TooLarge
    kept = sorted((t for t in sums.items() if t[1] != 0), key=lambda term: _product_key(term[0]))
    return Polynomial(tuple(kept))


def of_int(value: int) -> Polynomial:
    return of_terms([((), value)])


def of_atom(atom: Atom) -> Polynomial:
    return Polynomial((((atom,), 1),))


def add(a: Polynomial, b: Polynomial) -> Polynomial:
    return of_terms((*a.terms, *b.terms))


def scale(a: Polynomial, factor: int) -> Polynomial:
    return of_terms((product, coefficient * factor) for product, coefficient in a.terms)


def subtract(a: Polynomial, b: Polynomial) -> Polynomial:
    return add(a, scale(b, -1))


def multiply(a: Polynomial, b: Polynomial) -> Polynomial:
    if len(a.terms) * len(b.terms) > MAX_NODES:
        raise TooLarge
    return of_terms(
        (tuple(sorted((*p, *q), key=_atom_key)), m * n) for p, m in a.terms for q, n in b.terms
    )


def floor_divide(a: Polynomial, b: Polynomial) -> Polynomial:
    """`a // b`; ZeroDivisionError for a constant zero. Multiples of a constant divisor leave the
    division: (d*q + r) // d = q + r // d for every non-zero d."""
    if not b.is_constant:
        return _compound(ir.BinaryOp.FLOORDIV, a, b)
    whole, rest = _split(a, b.constant)
    if rest.is_constant:  # then it lies between 0 and the divisor
        return whole
    divisor = b.constant
    common = math.gcd(divisor, *(coefficient for _, coefficient in rest.terms))
    rest = of_terms((product, coefficient // common) for product, coefficient in rest.terms)
    return add(whole, _compound(ir.BinaryOp.FLOORDIV, rest, of_int(divisor // common)))


def modulo(a: Polynomial, b: Polynomial) -> Polynomial:
    """`a % b` with the sign of b; ZeroDivisionError for a constant zero. Multiples of a constant
    divisor vanish: (d*q + r) % d = r % d."""
    if not b.is_constant:
        return _compound(ir.BinaryOp.MOD, a, b)
    _, rest = _split(a, b.constant)
    if rest.is_constant:
        return rest
    return _compound(ir.BinaryOp.MOD, rest, b)


def least(a: Polynomial, b: Polynomial) -> Polynomial:
    difference = subtract(a, b)
    if difference.is_constant:
        return a if difference.constant <= 0 else b
    return _ordered(ir.BinaryOp.MIN, a, b)


def greatest(a: Polynomial, b: Polynomial) -> Polynomial:
    difference = subtract(a, b)
    if difference.is_constant:
        return a if difference.constant >= 0 else b
    return _ordered(ir.BinaryOp.MAX, a, b)


def to_expr(a: Polynomial) -> ir.Expr:
    """The expression as one would write it: sums of positive terms, then what is subtracted, then
    the constant. OverflowError if a number does not fit 64 bits."""
    terms = [term for term in a.terms if term[0]]
    constant = a.constant
    added = [term for term in terms if term[1] > 0]
    if not added:
        result, constant = _const(constant), 0
    else:
        result = _term(*added[0])
    for product, coefficient in added[1:]:
        result = ir.Binary(ir.BinaryOp.ADD, result, _term(product, coefficient))
    for product, coefficient in terms:
        if coefficient < 0:
            result = ir.Binary(ir.BinaryOp.SUB, result, _term(product, -coefficient))
    if constant > 0:
        result = ir.Binary(ir.BinaryOp.ADD, result, _const(constant))
    if constant < 0:
        result = ir.Binary(ir.BinaryOp.SUB, result, _const(-constant))
    return result


def of_expr(expr: ir.Expr) -> Polynomial:
    """The normal form of an integer expression, the inverse of `to_expr`."""
    match expr:
        case ir.Const(value):
            return of_int(value)
        case ir.Binary(ir.BinaryOp.ADD, lhs, rhs):
            return add(of_expr(lhs), of_expr(rhs))
        case ir.Binary(ir.BinaryOp.SUB, lhs, rhs):
            return subtract(of_expr(lhs), of_expr(rhs))
        case ir.Binary(ir.BinaryOp.MUL, lhs, rhs):
            return multiply(of_expr(lhs), of_expr(rhs))
        case ir.FloatConst() | ir.Not():
            raise ValueError("no integer")
        case _:
            return of_atom(expr)


def _split(a: Polynomial, divisor: int) -> tuple[Polynomial, Polynomial]:
    """q and r with a = divisor*q + r; the constant of r lies between 0 and the divisor."""
    if divisor == 0:
        raise ZeroDivisionError
    multiples = [(p, c // divisor) for p, c in a.terms if p and c % divisor == 0]
    others = [(p, c) for p, c in a.terms if p and c % divisor != 0]
    quotient, remainder = divmod(a.constant, divisor)
    return of_terms([*multiples, ((), quotient)]), of_terms([*others, ((), remainder)])


def _ordered(op: ir.BinaryOp, a: Polynomial, b: Polynomial) -> Polynomial:
    """A commutative operation on operands in a fixed order; constants go last."""
    sides = sorted((a, b), key=lambda side: (side.is_constant, repr(side)))
    return _compound(op, sides[0], sides[1])


def _compound(op: ir.BinaryOp, a: Polynomial, b: Polynomial) -> Polynomial:
    """An operation that does not distribute over sums, as an atom."""
    node = ir.Binary(op, to_expr(a), to_expr(b))
    check_size(node)
    return of_atom(node)


def check_size(node: ir.Expr) -> None:
    """TooLarge for an expression that comes from a loop that went wrong."""
    level: list[ir.Expr] = [node]
    nodes = 0
    while level:
        nodes += len(level)
        if nodes > MAX_NODES:
            raise TooLarge
        level = [inner for each in level for inner in operands(each)]


def _term(product: Product, coefficient: int) -> ir.Expr:
    result: ir.Expr = product[0]
    for atom in product[1:]:
        result = ir.Binary(ir.BinaryOp.MUL, result, atom)
    if coefficient == 1:
        return result
    return ir.Binary(ir.BinaryOp.MUL, result, _const(coefficient))


def _const(value: int) -> ir.Const:
    if not -(2**63) <= value < 2**63:
        raise OverflowError
    return ir.Const(value)
