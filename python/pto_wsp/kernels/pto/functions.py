"""The functions of the tile language, but for memory and control."""

from __future__ import annotations

import typing
from collections.abc import Sequence
from typing import Any

from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import TypeCheckError
from pto_wsp.kernels.pto.indexing import offset
from pto_wsp.kernels.pto.trace import current
from pto_wsp.kernels.pto.values import (
    ScalarValue,
    TileValue,
    TracedValue,
    as_value,
    binary,
    constant,
    emit,
    is_number,
    pair,
    plain,
    tile,
    unary,
)
from pto_wsp.kernels.tile_ir import Op

# --- making tiles and scalars --------------------------------------------------------------------


def scalar(value: Any, dtype: DType) -> ScalarValue:
    """A number as a scalar of a dtype."""
    current("pto.scalar")
    if is_number(value):
        return constant(value, _dtype("scalar", dtype))
    raise _argument("scalar", value, "it takes a Python number", "convert scalars with pto.cast")


def full(shape: Any, value: Any, dtype: DType | None = None) -> TileValue:
    """A tile whose elements are all the same; `dtype` is that of a Python number."""
    current("pto.full")
    if not is_number(value):
        return tile(Op.FULL, [as_value(value, "full")], "full", shape=_shape("full", shape))
    if dtype is None:
        raise _argument(
            "full", value, "a number alone has no dtype", "write pto.full(shape, 1.0, DType.F32)"
        )
    made = constant(value, _dtype("full", dtype))
    return tile(Op.FULL, [made], "full", shape=_shape("full", shape))


def zeros(shape: Any, dtype: DType = DType.F32) -> TileValue:
    """A tile of zeros."""
    return full(shape, False if dtype is DType.BOOL else 0, dtype)


def arange(shape: Any, dtype: DType = DType.I32, *, start: Any = 0, axis: int = 1) -> TileValue:
    """`start`, `start` + 1, ... along an axis; `shape` is a number of columns, or two extents."""
    current("pto.arange")
    first = start
    if is_number(start):
        first = constant(start, _dtype("arange", dtype))
    value = as_value(first, "arange")
    return tile(Op.ARANGE, [value], "arange", shape=_shape("arange", shape), axis=axis)


# --- elementwise ---------------------------------------------------------------------------------


def exp(x: Any) -> Any:
    """e to the power of x."""
    return unary(Op.EXP, x)


def exp2(x: Any) -> Any:
    """2 to the power of x."""
    return unary(Op.EXP2, x)


def log(x: Any) -> Any:
    """Natural logarithm."""
    return unary(Op.LOG, x)


def sqrt(x: Any) -> Any:
    """Square root."""
    return unary(Op.SQRT, x)


def rsqrt(x: Any) -> Any:
    """1 / square root."""
    return unary(Op.RSQRT, x)


def recip(x: Any) -> Any:
    """1 / x."""
    return unary(Op.RECIP, x)


def tanh(x: Any) -> Any:
    """Hyperbolic tangent."""
    return unary(Op.TANH, x)


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return unary(Op.SIGMOID, x)


def erf(x: Any) -> Any:
    """Error function."""
    return unary(Op.ERF, x)


def sin(x: Any) -> Any:
    """Sine of radians."""
    return unary(Op.SIN, x)


def cos(x: Any) -> Any:
    """Cosine of radians."""
    return unary(Op.COS, x)


def relu(x: Any) -> Any:
    """maximum(x, 0)."""
    return unary(Op.RELU, x)


def gelu(x: Any) -> Any:
    """x * (1 + erf(x / sqrt(2))) / 2."""
    return unary(Op.GELU, x)


def silu(x: Any) -> Any:
    """x * sigmoid(x)."""
    return unary(Op.SILU, x)


def floor(x: Any) -> Any:
    """The largest whole number not above x."""
    return unary(Op.FLOOR, x)


def ceil(x: Any) -> Any:
    """The smallest whole number not below x."""
    return unary(Op.CEIL, x)


def abs(x: Any) -> Any:
    """|x|."""
    return unary(Op.ABS, x)


def maximum(a: Any, b: Any) -> Any:
    """The larger of two, element by element; NaN where one is NaN."""
    return binary(Op.MAX, a, b)


def minimum(a: Any, b: Any) -> Any:
    """The smaller of two, element by element; NaN where one is NaN."""
    return binary(Op.MIN, a, b)


def pow(a: Any, b: Any) -> Any:
    """a to the power of b."""
    return binary(Op.POW, a, b)


def where(mask: Any, a: Any, b: Any) -> Any:
    """a where the mask holds, else b."""
    current("pto.where")
    chosen = as_value(mask, "where")
    return emit(Op.WHERE, [chosen, *pair("where", a, b)], "where")[0]


def cast(x: Any, dtype: DType, rounding: str = "nearest") -> Any:
    """Another dtype. From floats to integers `rounding` is "nearest" (to even), "zero", "floor" or
    "ceil"; numbers beyond the range become its ends, NaN becomes 0."""
    value = as_value(x, "cast")
    to = _dtype("cast", dtype)
    if value.dtype is to:
        return value
    (made,) = emit(Op.CAST, [value], "cast", dtype=to.text, rounding=rounding)
    return made


# --- reductions ----------------------------------------------------------------------------------


def _reduced(op: Op, x: Any, axis: int, what: str) -> TileValue:
    return tile(op, [as_value(x, what)], what, axis=axis)


def row_sum(x: Any) -> TileValue:
    """The sum of each row, as a column."""
    return _reduced(Op.SUM_OF, x, 1, "row_sum")


def row_max(x: Any) -> TileValue:
    """The largest element of each row, as a column."""
    return _reduced(Op.MAX_OF, x, 1, "row_max")


def row_min(x: Any) -> TileValue:
    """The smallest element of each row, as a column."""
    return _reduced(Op.MIN_OF, x, 1, "row_min")


def row_mean(x: Any) -> TileValue:
    """The mean of each row, as a column."""
    return _reduced(Op.MEAN_OF, x, 1, "row_mean")


def row_argmax(x: Any) -> TileValue:
    """Where the largest element of each row is, as a column of i32."""
    return _reduced(Op.ARGMAX_OF, x, 1, "row_argmax")


def col_sum(x: Any) -> TileValue:
    """The sum of each column, as a row."""
    return _reduced(Op.SUM_OF, x, 0, "col_sum")


def col_max(x: Any) -> TileValue:
    """The largest element of each column, as a row."""
    return _reduced(Op.MAX_OF, x, 0, "col_max")


def col_min(x: Any) -> TileValue:
    """The smallest element of each column, as a row."""
    return _reduced(Op.MIN_OF, x, 0, "col_min")


def col_mean(x: Any) -> TileValue:
    """The mean of each column, as a row."""
    return _reduced(Op.MEAN_OF, x, 0, "col_mean")


def col_argmax(x: Any) -> TileValue:
    """Where the largest element of each column is, as a row of i32."""
    return _reduced(Op.ARGMAX_OF, x, 0, "col_argmax")


def sum(x: Any) -> TileValue:
    """The sum of all elements, as a tile of one."""
    return col_sum(row_sum(x))


def max(x: Any) -> TileValue:
    """The largest of all elements, as a tile of one."""
    return col_max(row_max(x))


def min(x: Any) -> TileValue:
    """The smallest of all elements, as a tile of one."""
    return col_min(row_min(x))


# --- moving elements -----------------------------------------------------------------------------


def pad(x: Any, value: Any) -> TileValue:
    """The whole tile, with a number where a partial tile has nothing."""
    tiled, filler = pair("pad", x, value)
    return tile(Op.PAD, [tiled, filler], "pad")


def reshape(x: Any, shape: Any) -> TileValue:
    """The same elements, row by row, in another shape; of whole tiles only."""
    return tile(Op.RESHAPE, [as_value(x, "reshape")], "reshape", shape=_shape("reshape", shape))


def transpose(x: Any) -> TileValue:
    """Rows become columns; also x.T."""
    return tile(Op.TRANSPOSE, [as_value(x, "transpose")], "transpose")


def concat(tiles: Sequence[Any], axis: int = 0) -> TileValue:
    """Tiles behind each other: one below the other with axis 0, side by side with axis 1."""
    current("pto.concat")
    if not isinstance(tiles, list | tuple) or not tiles:
        raise _argument("concat", tiles, "it takes a list of tiles", "write pto.concat([a, b])")
    return tile(Op.CONCAT, [as_value(each, "concat") for each in tiles], "concat", axis=axis)


def item(x: Any, row: Any = 0, col: Any = 0) -> ScalarValue:
    """One element of a tile as a scalar."""
    places = [_place("item", each) for each in (row, col)]
    (made,) = emit(Op.ITEM, [as_value(x, "item"), *places], "item")
    return typing.cast(ScalarValue, made)


# --- products and order --------------------------------------------------------------------------


def matmul(a: Any, b: Any) -> TileValue:
    """The product, also a @ b. f16 and bf16 add up in f32 and give f32; i8 and u8 give i32."""
    return as_value(a, "matmul") @ b


def matmul_acc(acc: Any, a: Any, b: Any) -> TileValue:
    """acc + the product of a and b."""
    values = [as_value(each, "matmul_acc") for each in (acc, a, b)]
    return tile(Op.MATMUL_ACC, values, "matmul_acc")


def topk(x: Any, k: int) -> tuple[TileValue, TileValue]:
    """The k largest of each row, in order, and where they were."""
    return _two(emit(Op.TOPK, [as_value(x, "topk")], "topk", k=_integer("topk", k)))


def sort(x: Any, *, descending: bool = False) -> tuple[TileValue, TileValue]:
    """Each row in order, and where its elements were."""
    return _two(emit(Op.SORT, [as_value(x, "sort")], "sort", descending=descending))


def _two(made: tuple[TracedValue, ...]) -> tuple[TileValue, TileValue]:
    values, places = made
    return typing.cast(TileValue, values), typing.cast(TileValue, places)


# --- arguments -----------------------------------------------------------------------------------


def _argument(what: str, given: object, why: str, fix: str) -> Exception:
    message = f"{what} with {given if is_number(given) else type(given).__name__}"
    trace = current(f"pto.{what}")
    return trace.error(Code.TILE_ARGUMENT, message, why, fix, TypeCheckError)


def _dtype(what: str, dtype: object) -> DType:
    if isinstance(dtype, DType):
        return dtype
    raise _argument(what, dtype, "it takes a DType", "write DType.F32")


def _integer(what: str, value: object) -> int:
    number = plain(value)
    if isinstance(number, int) and not isinstance(number, bool):
        return number
    raise _argument(what, value, "it takes a Python integer", "use a number or a Constexpr")


def _place(what: str, value: object) -> ScalarValue:
    if isinstance(value, ScalarValue):
        return offset(value)
    return constant(_integer(what, value), DType.I64)


def _shape(what: str, shape: object) -> tuple[int, ...]:
    """Two extents; a single number is one row."""
    parts = (
        typing.cast("tuple[object, ...]", shape) if isinstance(shape, tuple | list) else (1, shape)
    )
    sizes = tuple(_integer(what, part) for part in parts)
    return sizes if len(sizes) != 1 else (1, sizes[0])
