"""The types of results: what tracing makes and the verifier asks for are the same.

`infer` knows every operation but loops and conditions, whose results have the types of their
blocks (`join`). What does not fit is a TypeCheckError without a place; the caller knows the place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pto_wsp.dtypes import DType
from pto_wsp.kernels.tile_ir.nodes import RefType, ScalarType, TileType, Type
from pto_wsp.kernels.tile_ir.operands import (
    I64,
    MAX_EXTENT,
    Attributes,
    argument_error,
    axis_of,
    broadcast,
    check_dtype,
    check_index,
    check_rank_2,
    check_readable,
    check_stored,
    check_whole,
    column_of,
    dtype_error,
    dtype_of,
    one_dtype,
    ref_of,
    reference_error,
    scalar_of,
    shape_error,
    shape_of,
    sizes_of,
    tile_of,
    tile_shape,
    tile_type,
    type_text,
    value_of,
)
from pto_wsp.kernels.tile_ir.ops import (
    FLOATS,
    OPS,
    PRODUCT,
    ROUNDINGS,
    Group,
    Op,
)


def infer(op: Op, operands: Sequence[Type], attributes: Attributes) -> tuple[Type, ...]:
    """The types of the results. Operands and attributes are as many as the operation has."""
    own = _OWN.get(op)
    if own is not None:
        return own(op, operands, attributes)
    return _BY_GROUP[OPS[op].group](op, operands, attributes)


def join(one: Type, other: Type) -> Type | None:
    """The type that holds the values of both; None if there is none."""
    if isinstance(one, TileType) and isinstance(other, TileType):
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            return None
        rows, cols = (a or b for a, b in zip(one.partial, other.partial, strict=True))
        return TileType(one.dtype, *one.shape, (rows, cols))
    return one if one == other else None


# --- one rule for each group ---------------------------------------------------------------------


def _elementwise(op: Op, operands: Sequence[Type], attributes: Attributes) -> tuple[Type, ...]:
    del attributes
    values = [value_of(op, operand) for operand in operands]
    return (broadcast(op, values, one_dtype(op, values)),)


def _compare(op: Op, operands: Sequence[Type], attributes: Attributes) -> tuple[Type, ...]:
    del attributes
    values = [value_of(op, operand) for operand in operands]
    one_dtype(op, values)
    return (broadcast(op, values, DType.BOOL),)


def _where(op: Op, operands: Sequence[Type], attributes: Attributes) -> tuple[Type, ...]:
    del attributes
    mask, *rest = (value_of(op, operand) for operand in operands)
    if mask.dtype is not DType.BOOL:
        dtype_error(
            f"where with a mask of {mask.dtype.text}",
            "a mask is bool",
            "compare something: pto.where(x > 0, a, b)",
        )
    return (broadcast(op, [mask, *rest], one_dtype(op, rest)),)


def _cast(op: Op, operands: Sequence[Type], attributes: Attributes) -> tuple[Type, ...]:
    dtype = dtype_of(op, attributes)
    if attributes["rounding"] not in ROUNDINGS:
        argument_error(
            f"cast with rounding {attributes['rounding']!r}",
            "there is no such rounding",
            f"use one of {', '.join(map(repr, ROUNDINGS))}",
        )
    return (broadcast(op, [value_of(op, operands[0])], dtype),)


def _reduce(op: Op, operands: Sequence[Type], attributes: Attributes) -> tuple[Type, ...]:
    tile, axis = tile_of(op, operands[0]), axis_of(op, attributes)
    check_dtype(op, tile.dtype)
    dtype = DType.I32 if op is Op.ARGMAX_OF else tile.dtype
    if axis == 1:
        return (tile_type(dtype, tile.rows, 1, tile.partial[0], False),)
    return (tile_type(dtype, 1, tile.cols, False, tile.partial[1]),)


def _sort(op: Op, operands: Sequence[Type], attributes: Attributes) -> tuple[Type, ...]:
    tile = tile_of(op, operands[0])
    check_dtype(op, tile.dtype)
    count = tile.cols if op is Op.SORT else attributes["k"]
    if not isinstance(count, int) or not 1 <= count <= tile.cols:
        argument_error(
            f"topk of {count} of {tile.cols} columns",
            "each row has that many",
            f"use a k from 1 to {tile.cols}",
        )
    kept = tile.rows, count, *tile.partial
    return tile_type(tile.dtype, *kept), tile_type(DType.I32, *kept)


def _matmul(op: Op, operands: Sequence[Type], attributes: Attributes) -> tuple[Type, ...]:
    del attributes
    a, b = tile_of(op, operands[-2]), tile_of(op, operands[-1])
    dtype = one_dtype(op, (a, b))
    if a.cols != b.rows:
        shape_error(
            f"{op.value} of {type_text(a)} and {type_text(b)}",
            f"the first has {a.cols} columns, the second {b.rows} rows",
            "transpose one of them: pto.matmul(q, k.T)",
        )
    made = tile_type(PRODUCT.get(dtype, dtype), a.rows, b.cols, a.partial[0], b.partial[1])
    if op is Op.MATMUL:
        return (made,)
    acc = tile_of(op, operands[0])
    if acc.dtype is not made.dtype:
        dtype_error(
            f"matmul_acc onto {acc.dtype.text}",
            f"a product of {dtype.text} adds up in {made.dtype.text}",
            f"start with pto.zeros(shape, DType.{made.dtype.name})",
        )
    if acc.shape != made.shape:
        shape_error(
            f"matmul_acc of a product of shape {made.shape} onto {type_text(acc)}",
            "the shapes differ",
            f"start with a tile of shape {made.shape}",
        )
    return (broadcast(op, [acc, made], made.dtype),)


# --- operations with a rule of their own ---------------------------------------------------------


def _const(op: Op, operands: Sequence[Type], attributes: Attributes) -> tuple[Type, ...]:
    del operands
    dtype, value = dtype_of(op, attributes), attributes["value"]
    wanted = "a number with a point" if dtype in FLOATS else "a whole number"
    fits = isinstance(value, float)
    if dtype is DType.BOOL:
        wanted, fits = "True or False", isinstance(value, bool)
    elif wanted == "a whole number":
        size = 8 * dtype.size
        low, high = (0, 1 << size) if dtype.name[0] == "U" else (-(1 << size - 1), 1 << size - 1)
        fits = isinstance(value, int) and not isinstance(value, bool) and low <= value < high
    if not fits:
        dtype_error(
            f"the number {value} as {dtype.text}",
            f"{dtype.text} holds {wanted} of {8 * dtype.size} bits",
            "write a number that fits, or convert the other operand: pto.cast",
        )
    return (ScalarType(dtype),)


def _offsets(op: Op, ref: RefType, offsets: Sequence[Type], attributes: Attributes) -> list[int]:
    """Checks the offsets; the sizes."""
    sizes = sizes_of(attributes["sizes"])
    legal = len(sizes) == len(offsets) == ref.rank
    if not legal or not all(0 <= size <= MAX_EXTENT for size in sizes):
        reference_error(
            f"{op.value} with {len(offsets)} offsets and sizes {sizes}",
            f"the parameter has rank {ref.rank}",
            f"index each dimension, with at most {MAX_EXTENT} elements",
        )
    for offset in offsets:
        check_index(op, offset, "an offset")
    return list(sizes)


def _load(op: Op, operands: Sequence[Type], attributes: Attributes) -> tuple[Type, ...]:
    ref = ref_of(op, operands[0])
    check_readable(op, ref)
    sizes = _offsets(op, ref, operands[1:], attributes)
    shape = tile_shape(sizes)
    return (ScalarType(ref.dtype) if shape is None else tile_type(ref.dtype, *shape, True, True),)


def _store(op: Op, operands: Sequence[Type], attributes: Attributes) -> tuple[Type, ...]:
    ref, value = ref_of(op, operands[0]), value_of(op, operands[1])
    shape = tile_shape(_offsets(op, ref, operands[2:], attributes))
    check_stored(op, ref, value)
    if isinstance(value, TileType) and value.shape != (shape or (1, 1)):
        shape_error(
            f"a store of {type_text(value)} into a region of shape {shape or (1, 1)}",
            "a store writes one element for each element",
            "slice, transpose (x.T) or reshape the tile, or index the parameter",
        )
    return ()


def _extent(op: Op, operands: Sequence[Type], attributes: Attributes) -> tuple[Type, ...]:
    ref, dim = ref_of(op, operands[0]), attributes["dim"]
    if not isinstance(dim, int) or not 0 <= dim < ref.rank:
        reference_error(
            f"dimension {dim} of a parameter of rank {ref.rank}",
            "there is no such dimension",
            "dimensions count from 0",
        )
    return (I64,)


def _gather(op: Op, operands: Sequence[Type], attributes: Attributes) -> tuple[Type, ...]:
    source, index, cols = operands[0], column_of(op, operands[1]), attributes["cols"]
    partial = True
    if isinstance(source, RefType):
        check_rank_2(op, source)
        check_readable(op, source)
    else:
        tile = tile_of(op, source)
        partial = tile.partial[1]
        if cols != tile.cols:
            shape_error(f"gather of {cols} of {tile.cols} columns", "rows are whole", "slice it")
    if not isinstance(cols, int) or not 1 <= cols <= MAX_EXTENT:
        argument_error(f"gather of {cols} columns", "a tile has some", "pass cols=64")
    return (tile_type(source.dtype, index.rows, cols, index.partial[0], partial),)


def _scatter(op: Op, operands: Sequence[Type], attributes: Attributes) -> tuple[Type, ...]:
    del attributes
    ref, index, tile = ref_of(op, operands[0]), column_of(op, operands[1]), tile_of(op, operands[2])
    check_rank_2(op, ref)
    check_stored(op, ref, tile)
    if index.rows != tile.rows:
        shape_error(
            f"scatter of {tile.rows} rows by {index.rows} row numbers",
            "each row has one",
            "slice one of them",
        )
    return ()


def _full(op: Op, operands: Sequence[Type], attributes: Attributes) -> tuple[Type, ...]:
    value = scalar_of(op, operands[0], "the value")
    check_dtype(op, value.dtype)
    if op is Op.ARANGE:
        axis_of(op, attributes)
    return (TileType(value.dtype, *shape_of(op, attributes)),)


def _pad(op: Op, operands: Sequence[Type], attributes: Attributes) -> tuple[Type, ...]:
    del attributes
    tile, value = tile_of(op, operands[0]), scalar_of(op, operands[1], "the value")
    return (TileType(one_dtype(op, (tile, value)), *tile.shape),)


def _reshape(op: Op, operands: Sequence[Type], attributes: Attributes) -> tuple[Type, ...]:
    tile, (rows, cols) = tile_of(op, operands[0]), shape_of(op, attributes)
    check_whole("reshape", tile, (0, 1))
    if rows * cols != tile.rows * tile.cols:
        shape_error(
            f"reshape of {type_text(tile)} to ({rows}, {cols})",
            f"{tile.rows * tile.cols} elements are not {rows * cols}",
            "use a shape with as many elements",
        )
    return (TileType(tile.dtype, rows, cols),)


def _transpose(op: Op, operands: Sequence[Type], attributes: Attributes) -> tuple[Type, ...]:
    del attributes
    tile = tile_of(op, operands[0])
    return (TileType(tile.dtype, tile.cols, tile.rows, (tile.partial[1], tile.partial[0])),)


def _slice(op: Op, operands: Sequence[Type], attributes: Attributes) -> tuple[Type, ...]:
    tile, (rows, cols) = tile_of(op, operands[0]), shape_of(op, attributes)
    check_index(op, operands[1], "the first row")
    check_index(op, operands[2], "the first column")
    if rows > tile.rows or cols > tile.cols:
        shape_error(
            f"a slice of shape ({rows}, {cols}) of {type_text(tile)}",
            "it is larger than the tile",
            "use bounds inside the tile",
        )
    return (tile_type(tile.dtype, rows, cols, *tile.partial),)


def _concat(op: Op, operands: Sequence[Type], attributes: Attributes) -> tuple[Type, ...]:
    tiles, axis = [tile_of(op, operand) for operand in operands], axis_of(op, attributes)
    dtype = one_dtype(op, tiles)
    other = 1 - axis
    for tile in tiles:
        check_whole("concat", tile, (axis,))
        if tile.shape[other] != tiles[0].shape[other]:
            shape_error(
                f"concat of {type_text(tiles[0])} and {type_text(tile)} along axis {axis}",
                f"their {('rows', 'columns')[other]} differ",
                "slice or transpose one of them",
            )
    shape = [0, 0]
    shape[axis] = sum(tile.shape[axis] for tile in tiles)
    shape[other] = tiles[0].shape[other]
    partial = [False, False]
    partial[other] = any(tile.partial[other] for tile in tiles)
    shape_of(op, {"shape": (shape[0], shape[1])})
    return (TileType(dtype, shape[0], shape[1], (partial[0], partial[1])),)


def _item(op: Op, operands: Sequence[Type], attributes: Attributes) -> tuple[Type, ...]:
    del attributes
    tile = tile_of(op, operands[0])
    check_index(op, operands[1], "the row")
    check_index(op, operands[2], "the column")
    return (ScalarType(tile.dtype),)


_Rule = Callable[[Op, Sequence[Type], Attributes], tuple[Type, ...]]
_BY_GROUP: dict[Group, _Rule] = {
    Group.UNARY: _elementwise,
    Group.BINARY: _elementwise,
    Group.COMPARE: _compare,
    Group.SELECT: _where,
    Group.CAST: _cast,
    Group.REDUCE: _reduce,
    Group.MAKE: _full,
    Group.MATMUL: _matmul,
    Group.SORT: _sort,
}
_OWN: dict[Op, _Rule] = {
    Op.CONST: _const,
    Op.LOAD: _load,
    Op.STORE: _store,
    Op.EXTENT: _extent,
    Op.GATHER: _gather,
    Op.SCATTER: _scatter,
    Op.PAD: _pad,
    Op.RESHAPE: _reshape,
    Op.TRANSPOSE: _transpose,
    Op.SLICE: _slice,
    Op.CONCAT: _concat,
    Op.ITEM: _item,
}
