"""What a tile kernel computes with: tiles and scalars whose operators are traced."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NoReturn, TypeAlias, cast

import numpy as np

from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import TypeCheckError
from pto_wsp.kernels.pto.linear import Linear
from pto_wsp.kernels.pto.trace import Frame, Trace, current
from pto_wsp.kernels.tile_ir import Attribute, Op, TileType, Value, type_text
from pto_wsp.kernels.tile_ir.ops import FLOATS, INTEGERS

Number: TypeAlias = int | float | bool


class Operand:
    """Whatever has operators: traced values, and parameters that are loaded when they are used."""

    # NumPy numbers on the left leave the operation to us.
    __array_ufunc__: ClassVar[None] = None

    def __add__(self, other: Any) -> Any:
        return binary(Op.ADD, self, other)

    def __radd__(self, other: Any) -> Any:
        return binary(Op.ADD, other, self)

    def __sub__(self, other: Any) -> Any:
        return binary(Op.SUB, self, other)

    def __rsub__(self, other: Any) -> Any:
        return binary(Op.SUB, other, self)

    def __mul__(self, other: Any) -> Any:
        return binary(Op.MUL, self, other)

    def __rmul__(self, other: Any) -> Any:
        return binary(Op.MUL, other, self)

    def __truediv__(self, other: Any) -> Any:
        return binary(Op.DIV, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return binary(Op.DIV, other, self)

    def __floordiv__(self, other: Any) -> Any:
        return binary(Op.FLOORDIV, self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return binary(Op.FLOORDIV, other, self)

    def __mod__(self, other: Any) -> Any:
        return binary(Op.MOD, self, other)

    def __rmod__(self, other: Any) -> Any:
        return binary(Op.MOD, other, self)

    def __pow__(self, other: Any) -> Any:
        # The square is exact in one product, for integers too.
        if isinstance(other, int) and other == 2:
            value = as_value(self, "**")
            return binary(Op.MUL, value, value)
        return binary(Op.POW, self, other)

    def __rpow__(self, other: Any) -> Any:
        return binary(Op.POW, other, self)

    def __matmul__(self, other: Any) -> Any:
        return tile(Op.MATMUL, [as_value(self, "matmul"), as_value(other, "matmul")], "matmul")

    def __rmatmul__(self, other: Any) -> Any:
        return tile(Op.MATMUL, [as_value(other, "matmul"), as_value(self, "matmul")], "matmul")

    def __and__(self, other: Any) -> Any:
        return binary(Op.AND, self, other)

    def __rand__(self, other: Any) -> Any:
        return binary(Op.AND, other, self)

    def __or__(self, other: Any) -> Any:
        return binary(Op.OR, self, other)

    def __ror__(self, other: Any) -> Any:
        return binary(Op.OR, other, self)

    def __xor__(self, other: Any) -> Any:
        return binary(Op.XOR, self, other)

    def __rxor__(self, other: Any) -> Any:
        return binary(Op.XOR, other, self)

    def __eq__(self, other: Any) -> Any:
        return binary(Op.EQ, self, other)

    def __ne__(self, other: Any) -> Any:
        return binary(Op.NE, self, other)

    def __lt__(self, other: Any) -> Any:
        return binary(Op.LT, self, other)

    def __le__(self, other: Any) -> Any:
        return binary(Op.LE, self, other)

    def __gt__(self, other: Any) -> Any:
        return binary(Op.GT, self, other)

    def __ge__(self, other: Any) -> Any:
        return binary(Op.GE, self, other)

    def __neg__(self) -> Any:
        return unary(Op.NEG, self)

    def __abs__(self) -> Any:
        return unary(Op.ABS, self)

    def __invert__(self) -> Any:
        return unary(Op.NOT, self)


class TracedValue(Operand):
    """A value of a trace, which means something while its frame is open."""

    __slots__ = ("_frame", "_trace", "_value")

    def __init__(self, trace: Trace, frame: Frame, value: Value) -> None:
        self._trace = trace
        self._frame = frame
        self._value = value

    @property
    def dtype(self) -> DType:
        return self._value.type.dtype

    @property
    def exists(self) -> bool:
        """Whether the loop or branch that made it is still open."""
        return self._frame.is_open

    def withdraw(self, frame: Frame) -> None:
        """From now on it is a value of that frame, which has been closed."""
        self._frame = frame

    def traced(self, what: str) -> Value:
        """The value, for an operation of the current trace."""
        trace = current(what)
        if self._trace is trace and self._frame.is_open:
            return self._value
        frame = self._frame
        begins = "" if frame.loc is None else f", which begins at line {frame.loc.line}"
        where = f"the {frame.kind} it belongs to{begins}"
        if self._trace is not trace:
            where = f"kernel {self._trace.name}, which traced it"
        raise trace.error(
            Code.TILE_ESCAPED,
            f"{what} of a value outside {where}",
            "it exists only there; a loop may run any number of times, a branch not at all",
            "carry it out: s = pto.carry(x=...) before, s.x = ... inside, s.x after",
        )

    def __repr__(self) -> str:
        return f"<traced {type_text(self._value.type)}>"


class ScalarValue(TracedValue):
    """One number that is known when the kernel runs. `linear` says what is known of it before."""

    __slots__ = ("linear",)

    def __init__(
        self, trace: Trace, frame: Frame, value: Value, linear: Linear | None = None
    ) -> None:
        super().__init__(trace, frame, value)
        self.linear = linear
        if linear is None and value.type.dtype in INTEGERS:
            self.linear = Linear.of(value.number)


class TileValue(TracedValue):
    """Two dimensions of numbers."""

    __slots__ = ()

    @property
    def type(self) -> TileType:
        return cast(TileType, self._value.type)

    @property
    def shape(self) -> tuple[int, int]:
        """The extents of a whole tile; a partial one has fewer."""
        return self.type.shape

    @property
    def T(self) -> TileValue:  # noqa: N802 - as NumPy calls it
        """The transposed tile."""
        return tile(Op.TRANSPOSE, [self], "transpose")

    part: ClassVar[Callable[[TileValue, Any], TileValue]]  # `indexing` knows how

    def __getitem__(self, index: Any) -> TileValue:
        return TileValue.part(self, index)


def wrap(trace: Trace, value: Value, linear: Linear | None = None) -> TracedValue:
    if isinstance(value.type, TileType):
        return TileValue(trace, trace.frame, value)
    return ScalarValue(trace, trace.frame, value, linear)


def emit(
    op: Op, operands: Sequence[TracedValue], what: str, **attributes: Attribute
) -> tuple[TracedValue, ...]:
    """A statement over traced values; its results."""
    trace = current(f"pto.{what}")
    values = [operand.traced(what) for operand in operands]
    return tuple(wrap(trace, each) for each in trace.emit(op, values, tuple(attributes.items())))


def tile(op: Op, operands: Sequence[TracedValue], what: str, **attributes: Attribute) -> TileValue:
    return cast(TileValue, emit(op, operands, what, **attributes)[0])


def plain(value: object) -> object:
    """A NumPy number as a Python one."""
    return cast(Any, value).item() if isinstance(value, np.generic) else value


def is_number(value: object) -> bool:
    return isinstance(plain(value), int | float)


def constant(value: object, dtype: DType) -> ScalarValue:
    """A number of the kernel's text as a scalar of a dtype."""
    trace = current("a number")
    number = cast(Number, plain(value))
    if dtype in FLOATS and not isinstance(number, bool):
        number = _rounded(float(number), dtype)
    attributes: tuple[tuple[str, Attribute], ...] = (("dtype", dtype.text), ("value", number))
    (made,) = trace.emit(Op.CONST, (), attributes)
    whole = isinstance(number, int) and dtype in INTEGERS
    return ScalarValue(trace, trace.frame, made, Linear((), int(number)) if whole else None)


def _rounded(number: float, dtype: DType) -> float:
    """The nearest number of that dtype; one NaN for all."""
    if math.isnan(number):
        return math.nan
    with np.errstate(over="ignore"):
        return float(np.asarray(number, np.float64).astype(dtype.numpy))


def as_value(operand: object, what: str) -> TracedValue:
    """A tile or scalar; a tile parameter is loaded."""
    if isinstance(operand, TracedValue):
        return operand
    if isinstance(operand, Operand):
        return cast("Loadable", operand).loaded(what)
    trace = current(f"pto.{what}")
    kind = type(operand).__name__
    fix = "compute with tiles, scalars and numbers"
    if is_number(operand):
        fix = "say its dtype: pto.scalar(1.0, DType.F32)"
    if isinstance(operand, np.ndarray):
        fix = "pass the array as a parameter of the kernel"
    raise trace.error(
        Code.TILE_ARGUMENT,
        f"{what} of {kind}",
        "it is neither a tile nor a scalar of the kernel",
        fix,
        TypeCheckError,
    )


class Loadable(Operand):
    """A parameter, or a part of one, that stands for the tile in it."""

    def loaded(self, what: str) -> TracedValue:
        raise AssertionError(what)


def pair(op: str, *operands: object) -> list[TracedValue]:
    """Operands with one dtype for the numbers among them: that of the first that has one."""
    values = [None if is_number(each) else as_value(each, op) for each in operands]
    known = next((value for value in values if value is not None), None)
    if known is None:
        as_value(operands[0], op)
    dtype = cast(TracedValue, known).dtype
    return [
        constant(operand, dtype) if value is None else value
        for value, operand in zip(values, operands, strict=True)
    ]


def unary(op: Op, operand: object) -> TracedValue:
    value = as_value(operand, op.value)
    (made,) = emit(op, [value], op.value)
    if op is Op.NEG:
        _known(made, _linear(value), lambda a: Linear().minus(a))
    return made


def binary(op: Op, a: object, b: object) -> TracedValue:
    first, second = pair(op.value, a, b)
    (made,) = emit(op, [first, second], op.value)
    rule = _LINEAR.get(op)
    one, two = _linear(first), _linear(second)
    if rule is not None and one is not None and two is not None:
        _known(made, rule(one, two), lambda found: found)
    return made


def _linear(value: TracedValue) -> Linear | None:
    return value.linear if isinstance(value, ScalarValue) else None


def _known(
    made: TracedValue, found: Linear | None, rule: Callable[[Linear], Linear | None]
) -> None:
    result = None if found is None else rule(found)
    if isinstance(made, ScalarValue) and result is not None:
        made.linear = result


_LINEAR: dict[Op, Callable[[Linear, Linear], Linear | None]] = {
    Op.ADD: Linear.plus,
    Op.SUB: Linear.minus,
    Op.MUL: Linear.times,
}


# --- what Python would do with a number or a sequence --------------------------------------------

_REFUSED = {
    "__bool__": (
        "the truth of a traced value",
        "it is known only when the kernel runs, so if, while, and, or, not cannot ask for it",
        "use pto.where(mask, a, b), with pto.when(condition):, and & | ~ for logic",
    ),
    "__index__": (
        "a traced value as a Python integer",
        "its value is known only when the kernel runs",
        "use pto.for_range for loops, Constexpr parameters for sizes",
    ),
    "__float__": (
        "a traced value as a Python number",
        "its value is known only when the kernel runs",
        "compute with it as it is; pto functions take it",
    ),
    "__iter__": (
        "iteration over a traced value",
        "its elements are not Python objects",
        "compute with the whole tile, or loop with pto.for_range and slices",
    ),
    "__len__": (
        "len() of a traced value",
        "a tile may be partial",
        "x.shape has the extents of a whole tile; of a Tensor parameter those of the run",
    ),
    "__contains__": (
        "`in` of a traced value",
        "its elements are known only when the kernel runs",
        "compare: pto.max(pto.cast(x == value, DType.I32))",
    ),
    "__array__": (
        "a NumPy function of a traced value",
        "NumPy computes at once, and there are no elements yet",
        "use the function of the same name in pto",
    ),
}
_REFUSED["__int__"] = _REFUSED["__index__"]


def _refusal(what: str, why: str, fix: str) -> Callable[..., NoReturn]:
    def refuse(self: object, *args: object, **kwargs: object) -> NoReturn:
        del self, args, kwargs
        raise current(what).error(Code.TILE_TESTED, what, why, fix)

    return refuse


for _method, _text in _REFUSED.items():
    setattr(Operand, _method, _refusal(*_text))
