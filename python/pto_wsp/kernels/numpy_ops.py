"""What each tile operation computes, on arrays of the elements that there are.

Half precision computes in f32 and rounds once; integers wrap around. Functions here get the
statement, the operands and the attributes, and give an array, or a tuple of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from pto_wsp.dtypes import DType
from pto_wsp.kernels.tile_ir import Op, Statement, TileType
from pto_wsp.kernels.tile_ir.ops import FLOATS, PRODUCT

Array: TypeAlias = npt.NDArray[Any]
Attributes: TypeAlias = Mapping[str, Any]
Compute: TypeAlias = Callable[[Statement, Sequence[Array], Attributes], Any]


class TileFault(Exception):
    """A task that cannot go on: an element that is picked does not exist, or the like."""


_HALF = frozenset({DType.F16, DType.BF16})
_erf = np.frompyfunc(math.erf, 1, 1)


def wide(array: Array) -> Array:
    """Half precision as f32; everything else as it is."""
    return array.astype(np.float32) if DType.of(array.dtype) in _HALF else array


def common(statement: Statement, operands: Sequence[Array]) -> list[Array]:
    """The operands of a statement, cut to the elements that all of them have; what has one row or
    column by its type has it everywhere, and scalars are everywhere."""
    types = [operand.type for operand in statement.operands]
    found = list(operands)
    for axis in (0, 1):
        many = [
            each.shape[axis]
            for each, of_type in zip(operands, types, strict=True)
            if isinstance(of_type, TileType) and of_type.shape[axis] != 1
        ]
        for position, of_type in enumerate(types):
            if many and isinstance(of_type, TileType) and of_type.shape[axis] != 1:
                end = slice(min(many))
                found[position] = found[position][end] if axis == 0 else found[position][:, end]
    return found


def _typed(statement: Statement, value: Any) -> Array:
    """The result in its dtype: the one rounding."""
    return np.asarray(value).astype(statement.results[0].type.dtype.numpy)


# --- elementwise ---------------------------------------------------------------------------------


def _map(function: Callable[..., Any]) -> Compute:
    def compute(statement: Statement, operands: Sequence[Array], attributes: Attributes) -> Array:
        del attributes
        return _typed(statement, function(*(wide(each) for each in common(statement, operands))))

    return compute


def _function_of_double(function: Callable[[Any], Any]) -> Callable[[Array], Array]:
    """A function that NumPy has no good f32 form of: computed in f64, rounded to what comes in."""

    def compute(x: Array) -> Array:
        return np.asarray(function(x.astype(np.float64))).astype(x.dtype)

    return compute


def _relu(x: Array) -> Array:
    return np.maximum(x, np.zeros_like(x))


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _erf_of(x: Array) -> Array:
    return np.asarray(_erf(x)).astype(np.float64)


def _gelu(x: Array) -> Array:
    return x * ((1 + _erf_of(x / math.sqrt(2))) / 2)  # twice x may be too large


def _silu(x: Array) -> Array:
    return x * _sigmoid(x)


def _floordiv(a: Array, b: Array) -> Array:
    return np.where(b == 0, 0, _down(a, b))


def _down(a: Array, b: Array) -> Array:
    """NumPy's division rounds down; the least integer by -1 wraps around to itself."""
    return a // np.where(b == 0, np.ones_like(b), b)


def _mod(a: Array, b: Array) -> Array:
    return np.where(b == 0, 0, a % np.where(b == 0, np.ones_like(b), b))


def _not(x: Array) -> Array:
    return np.logical_not(x) if x.dtype == np.bool_ else np.invert(x)


def _where(statement: Statement, operands: Sequence[Array], attributes: Attributes) -> Array:
    del attributes
    mask, a, b = common(statement, operands)
    return _typed(statement, np.where(mask, a, b))


# --- other dtypes --------------------------------------------------------------------------------

_ROUND: dict[str, Callable[[Array], Array]] = {
    "nearest": np.rint,
    "zero": np.trunc,
    "floor": np.floor,
    "ceil": np.ceil,
}


def _as_bf16(x: Array) -> Array:
    """Rounded once. The conversion goes by way of f32; a number that is odd there wherever bits
    were lost is never taken for one halfway between two of bf16."""
    if x.dtype.kind in "iu" and x.dtype.itemsize == 8:
        size = np.where(x < 0, np.negative(x.view(np.uint64)), x.view(np.uint64))
        sticky = (size & ~np.uint64(0xFFF)) | ((size & np.uint64(0xFFF)) != 0) * np.uint64(0x800)
        size = np.where(size >> np.uint64(53) != 0, sticky, size)
        exact = np.copysign(size.astype(np.float64), np.where(x < 0, -1.0, 1.0))
    else:
        exact = x.astype(np.float64)
    nearest = exact.astype(np.float32)
    back = nearest.astype(np.float64)
    bits = nearest.view(np.uint32)
    even = (back != exact) & (bits & np.uint32(1) == 0) & ~np.isnan(exact)
    odd = np.where(np.abs(exact) > np.abs(back), bits + np.uint32(1), bits - np.uint32(1))
    return np.where(even, odd, bits).view(np.float32).astype(DType.BF16.numpy)


def _cast(statement: Statement, operands: Sequence[Array], attributes: Attributes) -> Array:
    (x,) = operands
    to = statement.results[0].type.dtype
    if to is DType.BOOL:
        return np.asarray(x != 0)
    if to is DType.BF16 and x.dtype != np.bool_:
        return _as_bf16(wide(x))
    if DType.of(x.dtype) not in FLOATS or to in FLOATS:
        return np.asarray(x.astype(to.numpy))
    rounded = _ROUND[attributes["rounding"]](wide(x).astype(np.float64))
    info = np.iinfo(to.numpy)
    # The ends of 64 bits are no doubles; what is not below the end is beyond the range.
    low, high = float(info.min), float(info.max) + (0 if to.size == 8 else 1)
    inside = (rounded >= low) & (rounded < high)
    plain = np.where(inside, rounded, 0).astype(to.numpy)
    ends = np.where(rounded < 0, info.min, info.max).astype(to.numpy)
    return np.where(inside | np.isnan(rounded), plain, ends)


# --- along an axis -------------------------------------------------------------------------------


def _along(function: Callable[[Array, int], Any]) -> Compute:
    def compute(statement: Statement, operands: Sequence[Array], attributes: Attributes) -> Array:
        (x,) = operands
        axis = int(attributes["axis"])
        return _typed(statement, np.expand_dims(function(wide(x), axis), axis))

    return compute


def _sum(x: Array, axis: int) -> Array:
    return np.sum(x, axis=axis, dtype=x.dtype)


def _ends(x: Array) -> tuple[Any, Any]:
    if np.issubdtype(x.dtype, np.floating):
        return -np.inf, np.inf
    info = np.iinfo(x.dtype)
    return info.min, info.max


def _max(x: Array, axis: int) -> Array:
    return np.max(x, axis=axis, initial=_ends(x)[0])


def _min(x: Array, axis: int) -> Array:
    return np.min(x, axis=axis, initial=_ends(x)[1])


def _mean(x: Array, axis: int) -> Array:
    return _sum(x, axis) / np.asarray(x.shape[axis], x.dtype)


def _argmax(x: Array, axis: int) -> Array:
    if x.shape[axis] == 0:
        return np.zeros(int(x.shape[1 - axis]), np.int32)
    return np.asarray(np.argmax(x, axis=axis))


# --- moving elements -----------------------------------------------------------------------------


def _full(statement: Statement, operands: Sequence[Array], attributes: Attributes) -> Array:
    return np.broadcast_to(operands[0], attributes["shape"])


def _arange(statement: Statement, operands: Sequence[Array], attributes: Attributes) -> Array:
    (start,) = operands
    axis, shape = int(attributes["axis"]), attributes["shape"]
    steps = np.arange(int(shape[axis]), dtype=np.int64).astype(wide(start).dtype)
    line = _typed(statement, np.add(wide(start), steps))
    return np.broadcast_to(np.expand_dims(line, 1 - axis), shape).copy()


def _pad(statement: Statement, operands: Sequence[Array], attributes: Attributes) -> Array:
    del attributes
    x, value = operands
    whole = np.full(cast(TileType, statement.results[0].type).shape, value, x.dtype)
    whole[: x.shape[0], : x.shape[1]] = x
    return whole


def _reshape(statement: Statement, operands: Sequence[Array], attributes: Attributes) -> Array:
    return operands[0].reshape(attributes["shape"])


def _transpose(statement: Statement, operands: Sequence[Array], attributes: Attributes) -> Array:
    return operands[0].T


def _slice(statement: Statement, operands: Sequence[Array], attributes: Attributes) -> Array:
    x, row, col = operands
    tile = cast(TileType, statement.operands[0].type)
    rows, cols = attributes["shape"]
    for start, size, extent in ((row, rows, tile.rows), (col, cols, tile.cols)):
        if start < 0 or start + size > extent:
            raise TileFault(f"a slice from {start} to {start + size} of {extent}")
    return x[int(row) : int(row) + rows, int(col) : int(col) + cols]


def _concat(statement: Statement, operands: Sequence[Array], attributes: Attributes) -> Array:
    axis = int(attributes["axis"])
    shortest = min(each.shape[1 - axis] for each in operands)
    cut = [each[:, :shortest] if axis == 0 else each[:shortest] for each in operands]
    return np.concatenate(cut, axis=axis)


def _item(statement: Statement, operands: Sequence[Array], attributes: Attributes) -> Array:
    x, row, col = operands
    if not (0 <= row < x.shape[0] and 0 <= col < x.shape[1]):
        raise TileFault(f"element [{row}, {col}] of a tile of {x.shape[0]} by {x.shape[1]}")
    return np.asarray(x[int(row), int(col)])


def _const(statement: Statement, operands: Sequence[Array], attributes: Attributes) -> Array:
    return np.asarray(attributes["value"], statement.results[0].type.dtype.numpy)


# --- products and order --------------------------------------------------------------------------


def _matmul(statement: Statement, operands: Sequence[Array], attributes: Attributes) -> Array:
    a, b = operands[-2:]
    inner = min(a.shape[1], b.shape[0])
    dtype = DType.of(a.dtype)
    to = PRODUCT.get(dtype, dtype).numpy
    product = np.matmul(a[:, :inner].astype(to), b[:inner].astype(to))
    if statement.op is Op.MATMUL:
        return product
    acc = operands[0]
    rows, cols = (slice(min(sizes)) for sizes in zip(acc.shape, product.shape, strict=True))
    return acc[rows, cols] + product[rows, cols]


def _sort_keys(x: Array, descending: bool) -> Array:
    """The order of each row, as a stable sort; NaN counts as the largest."""
    values = wide(x)
    if not descending:
        return np.argsort(values, axis=1, kind="stable")
    # Backwards and stable: the order of the reversed row, from its end.
    last = values.shape[1] - 1
    return last - np.argsort(values[:, ::-1], axis=1, kind="stable")[:, ::-1]


def _sort(statement: Statement, operands: Sequence[Array], attributes: Attributes) -> Any:
    (x,) = operands
    order = _sort_keys(x, descending=bool(attributes.get("descending", True)))
    order = order[:, : attributes.get("k", order.shape[1])]
    return np.take_along_axis(x, order, axis=1), order.astype(np.int32)


COMPUTE: dict[Op, Compute] = {
    Op.CONST: _const,
    Op.FULL: _full,
    Op.ARANGE: _arange,
    Op.NEG: _map(np.negative),
    Op.ABS: _map(np.abs),
    Op.EXP: _map(np.exp),
    Op.EXP2: _map(np.exp2),
    Op.LOG: _map(np.log),
    Op.SQRT: _map(np.sqrt),
    Op.RSQRT: _map(_function_of_double(lambda x: 1 / np.sqrt(x))),
    Op.RECIP: _map(np.reciprocal),
    Op.TANH: _map(np.tanh),
    Op.SIGMOID: _map(_function_of_double(_sigmoid)),
    Op.ERF: _map(_function_of_double(_erf_of)),
    Op.SIN: _map(np.sin),
    Op.COS: _map(np.cos),
    Op.RELU: _map(_relu),
    Op.GELU: _map(_function_of_double(_gelu)),
    Op.SILU: _map(_function_of_double(_silu)),
    Op.FLOOR: _map(np.floor),
    Op.CEIL: _map(np.ceil),
    Op.NOT: _map(_not),
    Op.ADD: _map(np.add),
    Op.SUB: _map(np.subtract),
    Op.MUL: _map(np.multiply),
    Op.DIV: _map(np.divide),
    Op.FLOORDIV: _map(_floordiv),
    Op.MOD: _map(_mod),
    Op.MAX: _map(np.maximum),
    Op.MIN: _map(np.minimum),
    Op.POW: _map(np.power),
    Op.AND: _map(np.bitwise_and),
    Op.OR: _map(np.bitwise_or),
    Op.XOR: _map(np.bitwise_xor),
    Op.EQ: _map(np.equal),
    Op.NE: _map(np.not_equal),
    Op.LT: _map(np.less),
    Op.LE: _map(np.less_equal),
    Op.GT: _map(np.greater),
    Op.GE: _map(np.greater_equal),
    Op.WHERE: _where,
    Op.CAST: _cast,
    Op.SUM_OF: _along(_sum),
    Op.MAX_OF: _along(_max),
    Op.MIN_OF: _along(_min),
    Op.MEAN_OF: _along(_mean),
    Op.ARGMAX_OF: _along(_argmax),
    Op.PAD: _pad,
    Op.RESHAPE: _reshape,
    Op.TRANSPOSE: _transpose,
    Op.SLICE: _slice,
    Op.CONCAT: _concat,
    Op.ITEM: _item,
    Op.MATMUL: _matmul,
    Op.MATMUL_ACC: _matmul,
    Op.TOPK: _sort,
    Op.SORT: _sort,
}
