"""What the rules of `infer` ask of operands and attributes; each question raises if the answer is
no, with the reason and the way out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import TypeCheckError
from pto_wsp.kernels.tile_ir.nodes import Attribute, RefType, ScalarType, TileType, Type
from pto_wsp.kernels.tile_ir.ops import DTYPES, INTEGERS, OPS, Op
from pto_wsp.plan import AccessMode

MAX_EXTENT = 1 << 20
I64 = ScalarType(DType.I64)
Attributes = Mapping[str, Attribute]


def type_text(value: Type) -> str:
    """A type as people read it, and as the text form spells it: `f32[16, 128?]`; the question mark
    says that there may be fewer."""
    match value:
        case ScalarType(dtype):
            return dtype.text
        case TileType():
            marks = ("?" if partial else "" for partial in value.partial)
            sizes = (f"{n}{mark}" for n, mark in zip(value.shape, marks, strict=True))
            return f"{value.dtype.text}[{', '.join(sizes)}]"
        case RefType():
            sizes = map(str, value.tile) if value.tile is not None else [":"] * value.rank
            paged = "paged " if value.paged else ""
            return f"{value.mode.name.lower()} {paged}{value.dtype.text}[{', '.join(sizes)}]"


def tile_shape(sizes: Sequence[int]) -> tuple[int, int] | None:
    """The shape of the tile that a load of these sizes makes; None if it makes a scalar."""
    kept = [size for size in sizes if size != 0]
    if len(kept) > 2:
        shape_error(
            f"{len(kept)} dimensions in one tile",
            "a tile has two",
            "pick one element of the others: x[b, 0:16, 0:64]",
        )
    if not kept:
        return None
    return (1, kept[0]) if len(kept) == 1 else (kept[0], kept[1])


def dtype_error(message: str, why: str, fix: str) -> NoReturn:
    raise TypeCheckError(Code.TILE_DTYPE, message, why=why, fix=fix)


def shape_error(message: str, why: str, fix: str) -> NoReturn:
    raise TypeCheckError(Code.TILE_SHAPE, message, why=why, fix=fix)


def argument_error(message: str, why: str, fix: str) -> NoReturn:
    raise TypeCheckError(Code.TILE_ARGUMENT, message, why=why, fix=fix)


def reference_error(message: str, why: str, fix: str) -> NoReturn:
    raise TypeCheckError(Code.TILE_REFERENCE, message, why=why, fix=fix)


def check_whole(what: str, tile: TileType, axes: Sequence[int]) -> None:
    if any(tile.partial[axis] for axis in axes):
        raise TypeCheckError(
            Code.TILE_PARTIAL,
            f"{what} of {type_text(tile)}, which may be partial",
            why="where the elements go would depend on how many there are",
            fix="fill it first: pto.pad(x, 0.0)",
        )


def value_of(op: Op, operand: Type) -> ScalarType | TileType:
    if isinstance(operand, RefType):
        reference_error(
            f"{op.value} of a parameter",
            "it takes values",
            "load it first: pto.load(x[0:16, 0:64])",
        )
    return operand


def tile_of(op: Op, operand: Type) -> TileType:
    value = value_of(op, operand)
    if isinstance(value, ScalarType):
        shape_error(f"{op.value} of a scalar", "it takes a tile", "make one: pto.full((1, 1), x)")
    return value


def ref_of(op: Op, operand: Type) -> RefType:
    if not isinstance(operand, RefType):
        reference_error(f"{op.value} of a value", "it takes a parameter", "name the parameter")
    return operand


def scalar_of(op: Op, operand: Type, what: str) -> ScalarType:
    if not isinstance(operand, ScalarType):
        shape_error(f"{op.value}: {what} is {type_text(operand)}", "it is one number", _ITEM)
    return operand


_ITEM = "take one element: pto.item(x, row, column)"


def check_index(op: Op, operand: Type, what: str) -> None:
    if scalar_of(op, operand, what).dtype is not DType.I64:
        dtype_error(
            f"{op.value}: {what} is {type_text(operand)}",
            "indices are i64",
            "convert it: pto.cast(n, DType.I64)",
        )


def check_dtype(op: Op, dtype: DType) -> None:
    """TypeCheckError if the operation does not take elements of that dtype."""
    if dtype in DTYPES[OPS[op].types]:
        return
    dtype_error(
        f"{op.value} of {dtype.text}",
        f"it takes {OPS[op].types.value}",
        "convert it first: pto.cast(x, DType.F32)",
    )


def one_dtype(op: Op, values: Sequence[ScalarType | TileType]) -> DType:
    dtypes = list(dict.fromkeys(value.dtype for value in values))
    if len(dtypes) > 1:
        first, second = dtypes[0], dtypes[1]
        dtype_error(
            f"{op.value} of {first.text} and {second.text}",
            "nothing is converted behind your back",
            f"convert one of them: pto.cast(x, DType.{first.name})",
        )
    check_dtype(op, dtypes[0])
    return dtypes[0]


def broadcast(op: Op, values: Sequence[ScalarType | TileType], dtype: DType) -> Type:
    """A tile over the elements that all operands have; a scalar if there is no tile."""
    tiles = [value for value in values if isinstance(value, TileType)]
    if not tiles:
        return ScalarType(dtype)
    extents: list[int] = []
    partial: list[bool] = []
    for axis in (0, 1):
        sizes = {tile.shape[axis] for tile in tiles} - {1}
        if len(sizes) > 1:
            shown = " and ".join(type_text(tile) for tile in tiles)
            shape_error(
                f"{op.value} of {shown}",
                f"their {('rows', 'columns')[axis]} are neither equal nor 1",
                "slice, transpose (x.T) or reduce one of them",
            )
        extents.append(sizes.pop() if sizes else 1)
        wide = [tile for tile in tiles if tile.shape[axis] != 1]
        partial.append(any(tile.partial[axis] for tile in wide))
    return TileType(dtype, extents[0], extents[1], (partial[0], partial[1]))


def tile_type(
    dtype: DType, rows: int, cols: int, rows_partial: bool, cols_partial: bool
) -> TileType:
    """A tile type; an extent of 1 is never partial."""
    return TileType(dtype, rows, cols, (rows_partial and rows != 1, cols_partial and cols != 1))


def shape_of(op: Op, attributes: Attributes) -> tuple[int, int]:
    shape = sizes_of(attributes["shape"])
    if len(shape) != 2 or not all(0 < size <= MAX_EXTENT for size in shape):
        argument_error(
            f"{op.value} of shape {shape}",
            f"a tile has two extents, each from 1 to {MAX_EXTENT}",
            "write (rows, columns), with Python numbers",
        )
    return shape[0], shape[1]


def sizes_of(attribute: Attribute) -> tuple[int, ...]:
    """An attribute that holds several numbers."""
    return attribute if isinstance(attribute, tuple) else ()


def axis_of(op: Op, attributes: Attributes) -> int:
    axis = attributes["axis"]
    if axis not in (0, 1):
        argument_error(f"{op.value} along axis {axis}", "a tile has axes 0 and 1", "use 0 or 1")
    return int(axis)


def dtype_of(op: Op, attributes: Attributes) -> DType:
    try:
        return DType.parse(str(attributes["dtype"]))
    except ValueError:
        name = attributes["dtype"]
        argument_error(f"{op.value} to {name}", "there is no such dtype", "use a DType")


def check_readable(op: Op, ref: RefType) -> None:
    if ref.mode is AccessMode.OUT:
        reference_error(
            f"a {op.value} of an Out parameter",
            "what it holds before the kernel writes it is undefined",
            "declare it InOut, or keep the tile that you stored in a variable",
        )


def check_stored(op: Op, ref: RefType, value: ScalarType | TileType) -> None:
    """Whether the parameter may be written, with values of that dtype."""
    if ref.mode is AccessMode.IN:
        reference_error(
            f"a {op.value} into an In parameter",
            "the kernel only reads it",
            "declare it Out or InOut",
        )
    if value.dtype is not ref.dtype:
        dtype_error(
            f"a {op.value} of {value.dtype.text} into {ref.dtype.text}",
            "nothing is converted behind your back",
            f"convert it: pto.store(y, pto.cast(x, DType.{ref.dtype.name}))",
        )


def check_rank_2(op: Op, ref: RefType) -> None:
    if ref.rank != 2:
        reference_error(
            f"{op.value} of a parameter of rank {ref.rank}",
            "it moves whole rows",
            "pass a region of rank 2",
        )


def column_of(op: Op, operand: Type) -> TileType:
    tile = tile_of(op, operand)
    if tile.cols != 1 or tile.dtype not in INTEGERS:
        shape_error(
            f"{op.value} by {type_text(tile)}",
            "row numbers are a column of integers",
            "transpose (x.T) or cast them",
        )
    return tile
