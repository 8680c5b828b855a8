"""Symbolic values: loop variables, array elements, tensor shapes and conditions in a workload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

import numpy as np

from pto_wsp import ir, srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.frontend.context import Scope
from pto_wsp.frontend.names import indexes_something
from pto_wsp.frontend.refusal import (
    ARITHMETIC,
    COMPARISONS,
    COMPUTING,
    CONVERSIONS,
    EQUALITY,
    ITERATION,
    TRUTH,
    UNTRACED_ARITHMETIC,
    refuse,
)
from pto_wsp.ir import polynomial as poly
from pto_wsp.ir.polynomial import Polynomial

_TRACED_ONCE = "a workload is traced once for all values, so this one has no number yet"
_INT64 = "numbers in a plan have 64 bits"
_MOVE = {
    "loop": "move the use into the loop body",
    "condition": "move the use under the same P.when, or read the element again",
    "reduction": "use it only in the function that is reduced or searched",
}
_INTEGERS = "use Python integers, loop variables, array elements or tensor shapes"
T = TypeVar("T")


@refuse(
    TRUTH,
    code=Code.SYMBOL_TESTED,
    message="a symbolic value cannot be tested ({op})",
    why=_TRACED_ONCE,
    fix="write `with P.when(n > 0):` for tasks that depend on it, or select(n > 0, a, b)",
)
@refuse(
    ITERATION,
    code=Code.SYMBOL_UNPACKED,
    message="a symbolic value cannot be unpacked or iterated over ({op})",
    why="it stands for one integer; P(...) over one axis gives one variable, not a tuple",
    fix="write `for i in P(axis)` for one axis and `for i, j in P(a, b)` for two",
)
@refuse(
    UNTRACED_ARITHMETIC,
    code=Code.UNTRACEABLE,
    message="{op} of a symbolic value cannot be traced",
    why="scalar expressions have +, -, *, //, %, comparisons, minimum, maximum and select",
    fix="rewrite it with these, or compute it inside a kernel",
)
class SymInt:
    """An integer that is known only when the tasks are generated.

    Supports `+ - * // %` and comparisons with integers and each other, `minimum`, `maximum` and
    `select`.
    """

    __slots__ = ("polynomial", "scopes")
    known_as = "an integer"
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

    def __getitem__(self, index: object) -> NoReturn:
        names = [scope.name for scope in self.scopes]
        raise CompileError(
            Code.UNTRACEABLE,
            f"{ir.expr_text(poly_expr(self), names)} is a number and is indexed",
            loc=srcloc.here(),
            why="only tensors and arrays have elements",
            fix="pass an array or a Tensor for it",
        )

    # What the variable of a tiled loop has (tile_vars.TileVar), so that others can say why not.

    @property
    def start(self) -> SymInt:
        raise _not_a_tile("start")

    @property
    def stop(self) -> SymInt:
        raise _not_a_tile("stop")

    @property
    def size(self) -> SymInt:
        raise _not_a_tile("size")

    @property
    def slice(self) -> slice[SymInt, SymInt, None]:
        raise _not_a_tile("slice")

    def __lt__(self, other: IntLike) -> SymBool:
        return _compare(ir.BinaryOp.LT, self, other)

    def __le__(self, other: IntLike) -> SymBool:
        return _compare(ir.BinaryOp.LE, self, other)

    def __gt__(self, other: IntLike) -> SymBool:
        return _compare(ir.BinaryOp.GT, self, other)

    def __ge__(self, other: IntLike) -> SymBool:
        return _compare(ir.BinaryOp.GE, self, other)

    def __eq__(self, other: object) -> SymBool:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _compare(ir.BinaryOp.EQ, self, other)

    def __ne__(self, other: object) -> SymBool:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _compare(ir.BinaryOp.NE, self, other)


def _no_number(spelling: str) -> Callable[..., NoReturn]:
    """A conversion of a SymInt: refused, and differently where it is an index."""

    def refusing(self: SymInt, *operands: object) -> NoReturn:
        del self, operands
        frame = srcloc.user_frame()
        if indexes_something(frame):
            raise CompileError(
                Code.SYMBOL_AS_INDEX,
                "a symbolic value indexes something that is not a parameter of the workload",
                loc=srcloc.here(),
                why="Python reads it while the workload is traced, when the index has no number",
                fix="pass the array to the workload; its parameter is read in each run: lens[b]",
            )
        raise CompileError(
            Code.SYMBOL_AS_NUMBER,
            f"a symbolic value cannot become a Python number ({spelling})",
            loc=srcloc.here(),
            why=_TRACED_ONCE,
            fix="loop with P(...) instead of range(...), and compute with it as it is",
        )

    return refusing


for _method, _spelling in CONVERSIONS.items():
    setattr(SymInt, _method, _no_number(_spelling))


@refuse(
    TRUTH,
    code=Code.SYMBOL_TESTED,
    message="a symbolic condition cannot be tested ({op})",
    why=_TRACED_ONCE,
    fix="write `with P.when(condition):`, maximum(a, b) for max and minimum(a, b) for min; join "
    "conditions with &, | and ~, in brackets",
)
@refuse(
    ARITHMETIC,
    COMPARISONS,
    EQUALITY,
    CONVERSIONS,
    ITERATION,
    code=Code.UNTRACEABLE,
    message="a symbolic condition is not a number ({op})",
    why="it stands for true or false",
    fix="write select(condition, 1, 0) for a number",
)
class SymBool:
    """A condition that is known only when the tasks are generated. `&`, `|` and `~` combine them;
    both sides are evaluated."""

    __slots__ = ("expr", "scopes")
    known_as = "a condition"
    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __init__(self, expr: ir.Expr, scopes: frozenset[Scope]) -> None:
        self.expr = expr
        self.scopes = scopes

    def __repr__(self) -> str:
        names = [scope.name for scope in self.scopes]
        return f"<symbolic {ir.expr_text(self.expr, names)}>"

    def __and__(self, other: BoolLike) -> SymBool:
        return _logic(ir.BinaryOp.AND, self, other)

    def __rand__(self, other: BoolLike) -> SymBool:
        return _logic(ir.BinaryOp.AND, other, self)

    def __or__(self, other: BoolLike) -> SymBool:
        return _logic(ir.BinaryOp.OR, self, other)

    def __ror__(self, other: BoolLike) -> SymBool:
        return _logic(ir.BinaryOp.OR, other, self)

    def __invert__(self) -> SymBool:
        return SymBool(ir.Not(self.expr), self.scopes)


@refuse(
    COMPUTING,
    EQUALITY,
    code=Code.UNTRACEABLE,
    message="a floating-point scalar is passed on, never computed with ({op})",
    why="control is made of integers",
    fix="pass it to a kernel's Scalar parameter and compute there",
)
class SymFloat:
    """A floating-point number that is bound at execute."""

    __slots__ = ("expr", "scopes")
    known_as = "a floating-point number"
    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __init__(self, expr: ir.Expr, scopes: frozenset[Scope]) -> None:
        self.expr = expr
        self.scopes = scopes

    def __repr__(self) -> str:
        return f"<symbolic {ir.expr_text(self.expr)}>"


@runtime_checkable
class ScalarLike(Protocol):
    """Something else that counts as an integer in an expression, such as an element of a tensor."""

    def as_scalar(self) -> SymInt: ...


IntLike: TypeAlias = SymInt | ScalarLike | int | np.integer[Any]
BoolLike: TypeAlias = SymBool | bool


def _compare(op: ir.BinaryOp, a: object, b: object) -> SymBool:
    left, right = as_symint(a), as_symint(b)
    node = ir.Binary(op, poly_expr(left), poly_expr(right))
    return SymBool(_checked(node), left.scopes | right.scopes)


def _logic(op: ir.BinaryOp, a: object, b: object) -> SymBool:
    left, right = as_symbool(a), as_symbool(b)
    return SymBool(_checked(ir.Binary(op, left.expr, right.expr)), left.scopes | right.scopes)


def as_symbool(value: object) -> SymBool:
    """Accept what counts as a condition; CompileError for anything else."""
    if isinstance(value, SymBool):
        return value
    if isinstance(value, bool | np.bool_):
        number = 1 if value else 0
        return SymBool(ir.Binary(ir.BinaryOp.EQ, ir.Const(number), ir.Const(1)), frozenset())
    raise CompileError(
        Code.UNTRACEABLE,
        f"{kind_of(value)} where a condition is wanted",
        loc=srcloc.here(),
        why="a condition compares symbolic integers",
        fix="write a comparison: n > 0",
    )


def select(condition: BoolLike, then: IntLike, otherwise: IntLike) -> SymInt:
    """`then` if the condition holds, else `otherwise`; only that one is evaluated."""
    test, a, b = as_symbool(condition), as_symint(then), as_symint(otherwise)
    node = ir.Select(test.expr, poly_expr(a), poly_expr(b))
    _checked(node)
    return SymInt(poly.of_atom(node), test.scopes | a.scopes | b.scopes)


def poly_expr(value: SymInt) -> ir.Expr:
    """The expression, wherever its scopes are."""
    try:
        return poly.to_expr(value.polynomial)
    except OverflowError:
        raise _overflow() from None


def _checked(node: T) -> T:
    try:
        poly.check_size(cast(ir.Expr, node))
    except poly.TooLarge:
        raise _too_large() from None
    return node


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
    if isinstance(value, ScalarLike):
        return value.as_scalar()
    number = as_int(value)
    if number is None:
        what, fix = kind_of(value), _INTEGERS
        if isinstance(value, SymFloat):
            name = ir.expr_text(value.expr)
            what, fix = f"{name}, {what},", f"give {name} an integer: {name}=8"
        raise CompileError(
            Code.UNTRACEABLE,
            f"{what} in a scalar expression",
            loc=srcloc.here(),
            why="indices and extents are made of integers",
            fix=fix,
        )
    return constant(number)


def kind_of(value: object) -> str:
    """The type of a value in the words of users: the classes of traced values are not theirs."""
    return getattr(type(value), "known_as", type(value).__name__)


def as_int(value: object) -> int | None:
    """The number, if the value is a Python or NumPy integer."""
    return int(cast(int, value)) if isinstance(value, int | np.integer) else None


def is_integer(value: object) -> bool:
    """Whether a value may stand where an integer is wanted; bool may not."""
    if isinstance(value, SymInt | ScalarLike):
        return True
    return as_int(value) is not None and not isinstance(value, bool)


def lower(value: SymInt) -> ir.Expr:
    """The IR of a value at the place where it is used: all its loops must be open there."""
    check_scopes(value.scopes)
    return poly_expr(value)


def lower_bool(value: SymBool) -> ir.Expr:
    """The same for a condition."""
    check_scopes(value.scopes)
    return value.expr


def check_scopes(scopes: frozenset[Scope]) -> None:
    """CompileError if one of the scopes is closed."""
    for scope in scopes:
        if not scope.is_open:
            raise CompileError(
                Code.LOOP_VARIABLE_ESCAPED,
                f"a value of {scope.kind} {scope.name} is used outside of it",
                loc=srcloc.here(),
                why=f"it has a value only inside {scope.kind} {scope.name}",
                fix=_MOVE.get(scope.kind, "pass arrays and axes as parameters to every workload"),
            )


def _apply(
    operation: Callable[[Polynomial, Polynomial], Polynomial], a: object, b: object
) -> SymInt:
    left, right = as_symint(a), as_symint(b)
    try:
        result = operation(left.polynomial, right.polynomial)
    except ZeroDivisionError:
        raise CompileError(
            Code.ARITHMETIC,
            "division by zero in a scalar expression",
            loc=srcloc.here(),
            why="the divisor is the constant 0",
            fix="divide by a number that is not zero",
        ) from None
    except OverflowError:
        raise _overflow() from None
    except poly.TooLarge:
        raise _too_large() from None
    return SymInt(result, left.scopes | right.scopes)


def _too_large() -> CompileError:
    return CompileError(
        Code.PLAN_LIMIT,
        "a scalar expression is too large",
        loc=srcloc.here(),
        why=f"written out it has more than {poly.MAX_NODES} operations",
        fix="compute a part of it into an array that the workload reads",
    )


def _overflow() -> CompileError:
    return CompileError(
        Code.ARITHMETIC,
        "a constant in a scalar expression does not fit 64 bits",
        loc=srcloc.here(),
        why=_INT64,
        fix="use smaller numbers",
    )


def _not_a_tile(name: str) -> CompileError:
    return CompileError(
        Code.AXIS_KIND,
        f".{name} of a symbolic value that is no tile",
        loc=srcloc.here(),
        why="only the variable of a loop over tiles has bounds",
        fix="pass Tiled(axis, size) to the workload and loop over it, or give the axis of a space "
        "tiles: axis(0, n, tile=16)",
    )


def _true_division() -> CompileError:
    return CompileError(
        Code.UNTRACEABLE,
        "/ of a symbolic value cannot be traced",
        loc=srcloc.here(),
        why="scalar expressions are integers",
        fix="use // for the integer quotient",
    )
