"""Symbolic integers: loop variables, array elements and tensor shapes inside a workload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, cast

import numpy as np

from pto_wsp import ir, srcloc
from pto_wsp.errors import CompileError
from pto_wsp.frontend import polynomial as poly
from pto_wsp.frontend.context import Scope
from pto_wsp.frontend.polynomial import Polynomial
from pto_wsp.frontend.refusal import (
    COMPARISONS,
    CONVERSIONS,
    EQUALITY,
    ITERATION,
    TRUTH,
    UNTRACED_ARITHMETIC,
    refuse,
)

_TRACED_ONCE = "a workload is traced once for all values, so this one has no number yet"
_INT64 = "numbers in a plan have 64 bits"


@refuse(
    COMPARISONS,
    EQUALITY,
    TRUTH,
    message="a symbolic value cannot be compared or tested ({op})",
    why=_TRACED_ONCE,
    fix="decide inside a kernel, split the loop, or use minimum(a, b) and maximum(a, b)",
)
@refuse(
    CONVERSIONS,
    message="a symbolic value cannot become a Python number ({op})",
    why=_TRACED_ONCE,
    fix="loop with P(...) instead of range(...); pass arrays as workload parameters to index them",
)
@refuse(
    ITERATION,
    message="a symbolic value cannot be unpacked or iterated over ({op})",
    why="it stands for one integer; P(...) over one axis gives one variable, not a tuple",
    fix="write `for i in P(axis)` for one axis and `for i, j in P(a, b)` for two",
)
@refuse(
    UNTRACED_ARITHMETIC,
    message="{op} of a symbolic value cannot be traced",
    why="scalar expressions have +, -, *, //, %, minimum and maximum of integers",
    fix="rewrite it with these, or compute it inside a kernel",
)
class SymInt:
    """An integer that is known only when the tasks are generated.

    Supports `+ - * // %` with integers and each other, `minimum` and `maximum`.
    """

    __slots__ = ("polynomial", "scopes")
    __hash__ = None  # pyright: ignore[reportAssignmentType]
    __array_ufunc__ = None  # NumPy integers leave `np.int64(2) * i` to us

    def __init__(self, polynomial: Polynomial, scopes: frozenset[Scope]) -> None:
        self.polynomial = polynomial
        self.scopes = scopes

    def __repr__(self) -> str:
        names = [scope.name for scope in self.scopes]
        try:
            return f"<symbolic {ir.expr_text(poly.to_expr(self.polynomial), names)}>"
        except OverflowError:
            return "<symbolic, beyond 64 bits>"

    def __add__(self, other: IntLike) -> SymInt:
        return _apply(poly.add, self, other)

    def __radd__(self, other: IntLike) -> SymInt:
        return _apply(poly.add, other, self)

    def __sub__(self, other: IntLike) -> SymInt:
        return _apply(poly.subtract, self, other)

    def __rsub__(self, other: IntLike) -> SymInt:
        return _apply(poly.subtract, other, self)

    def __mul__(self, other: IntLike) -> SymInt:
        return _apply(poly.multiply, self, other)

    def __rmul__(self, other: IntLike) -> SymInt:
        return _apply(poly.multiply, other, self)

    def __floordiv__(self, other: IntLike) -> SymInt:
        return _apply(poly.floor_divide, self, other)

    def __rfloordiv__(self, other: IntLike) -> SymInt:
        return _apply(poly.floor_divide, other, self)

    def __mod__(self, other: IntLike) -> SymInt:
        return _apply(poly.modulo, self, other)

    def __rmod__(self, other: IntLike) -> SymInt:
        return _apply(poly.modulo, other, self)

    def __truediv__(self, other: object) -> SymInt:
        raise _true_division()

    def __rtruediv__(self, other: object) -> SymInt:
        raise _true_division()

    def __neg__(self) -> SymInt:
        return SymInt(poly.scale(self.polynomial, -1), self.scopes)

    def __pos__(self) -> SymInt:
        return self


IntLike: TypeAlias = SymInt | int | np.integer[Any]


def minimum(a: IntLike, b: IntLike) -> SymInt:
    """The smaller of two integers, of which the loop variables need not be known."""
    return _apply(poly.least, a, b)


def maximum(a: IntLike, b: IntLike) -> SymInt:
    """The larger of two integers, of which the loop variables need not be known."""
    return _apply(poly.greatest, a, b)


def constant(value: int) -> SymInt:
    return SymInt(poly.of_int(value), frozenset())


def atom(node: poly.Atom, *scopes: Scope) -> SymInt:
    """A leaf that means something while the scopes are open."""
    return SymInt(poly.of_atom(node), frozenset(scopes))


def as_symint(value: object) -> SymInt:
    """Accept what counts as an integer in an expression; CompileError for anything else."""
    if isinstance(value, SymInt):
        return value
    number = as_int(value)
    if number is None:
        raise CompileError(
            f"{type(value).__name__} in a scalar expression",
            loc=srcloc.here(),
            why="indices and extents are made of integers",
            fix="use Python integers, loop variables, array elements or tensor shapes",
        )
    return constant(number)


def as_int(value: object) -> int | None:
    """The number, if the value is a Python or NumPy integer."""
    return int(cast(int, value)) if isinstance(value, int | np.integer) else None


def lower(value: SymInt) -> ir.Expr:
    """The IR of a value at the place where it is used: all its loops must be open there."""
    for scope in value.scopes:
        if not scope.is_open:
            raise CompileError(
                f"a value of {scope.kind} {scope.name} is used outside of it",
                loc=srcloc.here(),
                why=f"it has a value only inside {scope.kind} {scope.name}",
                fix="move the use into the loop body" if scope.kind == "loop" else
                "pass arrays and axes as parameters to every workload that uses them",
            )  # fmt: skip
    try:
        return poly.to_expr(value.polynomial)
    except OverflowError:
        raise _overflow() from None


def _apply(
    operation: Callable[[Polynomial, Polynomial], Polynomial], a: object, b: object
) -> SymInt:
    left, right = as_symint(a), as_symint(b)
    try:
        result = operation(left.polynomial, right.polynomial)
    except ZeroDivisionError:
        raise CompileError(
            "division by zero in a scalar expression",
            loc=srcloc.here(),
            why="the divisor is the constant 0",
            fix="divide by a number that is not zero",
        ) from None
    except OverflowError:
        raise _overflow() from None
    except poly.TooLarge:
        raise CompileError(
            "a scalar expression is too large",
            loc=srcloc.here(),
            why=f"written out it has more than {poly.MAX_NODES} operations",
            fix="compute a part of it into an array that the workload reads",
        ) from None
    return SymInt(result, left.scopes | right.scopes)


def _overflow() -> CompileError:
    return CompileError(
        "a constant in a scalar expression does not fit 64 bits",
        loc=srcloc.here(),
        why=_INT64,
        fix="use smaller numbers",
    )


def _true_division() -> CompileError:
    return CompileError(
        "/ of a symbolic value cannot be traced",
        loc=srcloc.here(),
        why="scalar expressions are integers",
        fix="use // for the integer quotient",
    )
