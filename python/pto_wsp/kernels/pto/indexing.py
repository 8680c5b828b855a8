"""Indices in brackets: `k[pos : pos + 64, h, 0:D]` of parameters and `x[0:8, :]` of tiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import TypeCheckError
from pto_wsp.kernels.pto.linear import Linear
from pto_wsp.kernels.pto.trace import current
from pto_wsp.kernels.pto.values import (
    ScalarValue,
    TileValue,
    constant,
    emit,
    is_number,
    plain,
    tile,
)
from pto_wsp.kernels.tile_ir import Op
from pto_wsp.kernels.tile_ir.ops import INTEGERS


@dataclass(frozen=True, slots=True)
class DimIndex:
    """One dimension of an index: where it starts and how long it is, 0 if it picks one element."""

    start: object
    size: int


def dim_indices(index: object, extents: tuple[int | None, ...], what: str) -> list[DimIndex]:
    """An index of something with these extents, None where they are not known. Dimensions that it
    leaves out are whole."""
    parts = cast("tuple[object, ...]", index) if isinstance(index, tuple) else (index,)
    if Ellipsis in [part for part in parts if part is Ellipsis]:
        place = next(i for i, part in enumerate(parts) if part is Ellipsis)
        missing = len(extents) - len(parts) + 1
        parts = (*parts[:place], *(slice(None) for _ in range(missing)), *parts[place + 1 :])
    if len(parts) > len(extents):
        raise _error(
            f"{what} has {len(parts)} indices",
            f"it has {len(extents)} dimensions",
            "leave the other indices out",
        )
    parts = (*parts, *(slice(None) for _ in range(len(extents) - len(parts))))
    return [_dim(part, extent, what) for part, extent in zip(parts, extents, strict=True)]


def _dim(part: object, extent: int | None, what: str) -> DimIndex:
    if not isinstance(part, slice):
        _check_integer(part, what)
        return DimIndex(part, 0)
    begin, end, step = cast("tuple[Any, Any, Any]", (part.start, part.stop, part.step))  # pyright: ignore[reportUnknownMemberType]
    if step is not None:
        raise _error(
            f"{what} with a step", "elements of a tile lie side by side", "remove the step"
        )
    start: object = 0 if begin is None else begin
    stop: object = extent if end is None else end
    if stop is None:
        raise _error(
            f"{what} to an end that is not known",
            "the extents of a tile are constants of the kernel",
            "say how long it is: x[i : i + 64]; what lies outside is not part of the tile",
        )
    size = _linear(stop, what).minus(_linear(start, what)).number
    if size is None:
        raise _error(
            f"{what} whose length is not known",
            "the extents of a tile are constants of the kernel",
            "write x[i : i + 64], with a Python number or a Constexpr",
        )
    if size < 1:
        raise _error(f"{what} of length {size}", "a tile has elements", "put a later end")
    return DimIndex(start, size)


def _check_integer(part: object, what: str) -> None:
    number = plain(part)
    if isinstance(number, int) and not isinstance(number, bool):
        if number < 0:
            raise _error(
                f"{what} with the index {number}", "indices count from the front", "count from 0"
            )
        return
    if isinstance(part, ScalarValue) and part.dtype in INTEGERS:
        return
    raise _error(
        f"{what} with {type(part).__name__}",
        "an index is an integer or a slice",
        "write x[i : i + 64, h], with numbers and integer scalars",
    )


def _linear(part: object, what: str) -> Linear:
    _check_integer(part, what)
    if isinstance(part, ScalarValue):
        return part.linear or Linear.of(-1)
    return Linear((), int(cast(Any, plain(part))))


def offset(start: object) -> ScalarValue:
    """Where a dimension starts, as an i64 scalar."""
    if is_number(start):
        return constant(start, DType.I64)
    return as_i64(cast(ScalarValue, start))


def as_i64(value: ScalarValue) -> ScalarValue:
    """An integer scalar as an index; integers of any width are taken."""
    if value.dtype is DType.I64:
        return value
    (made,) = emit(Op.CAST, [value], "cast", dtype="i64", rounding="nearest")
    made = cast(ScalarValue, made)
    made.linear = value.linear
    return made


def tile_slice(value: TileValue, index: object) -> TileValue:
    """A part of a tile; an index picks one row or column, which stays a dimension."""
    dims = dim_indices(index, value.shape, "a slice of a tile")
    for dim, extent in zip(dims, value.shape, strict=True):
        start = plain(dim.start)
        if isinstance(start, int) and start + max(dim.size, 1) > extent:
            raise _error(
                f"elements {start} to {start + max(dim.size, 1) - 1} of {extent}",
                "the tile has no such elements",
                "use bounds inside the tile",
            )
    starts = [offset(dim.start) for dim in dims]
    shape = tuple(max(dim.size, 1) for dim in dims)
    return tile(Op.SLICE, [value, *starts], "slice", shape=shape)


TileValue.part = tile_slice


def _error(message: str, why: str, fix: str) -> Exception:
    return current("an index").error(Code.TILE_REFERENCE, message, why, fix, TypeCheckError)
