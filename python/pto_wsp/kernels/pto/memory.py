"""Loads, stores, and rows by their numbers."""

from __future__ import annotations

from typing import Any, cast

from pto_wsp.error_codes import Code
from pto_wsp.errors import TypeCheckError
from pto_wsp.kernels.pto.refs import Ref, RefPart
from pto_wsp.kernels.pto.trace import current
from pto_wsp.kernels.pto.values import TileValue, as_value, constant, is_number, tile, wrap
from pto_wsp.kernels.tile_ir import Op


def load(source: Any) -> Any:
    """The tile in a tile parameter, or in a part of any parameter: `pto.load(k[p : p + 64, h])`; a
    scalar if all indices are numbers. What lies outside of the parameter is not part of the tile.
    """
    return _part(source, "load").load()


def store(target: Any, value: Any) -> None:
    """Writes a tile of the shape of the target, or a number everywhere in it."""
    part = _part(target, "store")
    given = constant(value, part.dtype) if is_number(value) else as_value(value, "store")
    ref, offsets, sizes = part.place("store")
    trace = current("pto.store")
    trace.emit(Op.STORE, [ref, given.traced("store"), *offsets], (("sizes", sizes),))
    part.ref.written()


def gather(source: Any, rows: Any, cols: int | None = None) -> TileValue:
    """Rows of a tile, or of a parameter of rank 2, by a column of integers; rows that do not exist
    are zeros. `cols` says how many columns, for Tensor parameters."""
    trace = current("pto.gather")
    index = as_value(rows, "gather")
    if not isinstance(source, Ref):
        value = as_value(source, "gather")
        count = value.shape[1] if isinstance(value, TileValue) else 1
        return tile(Op.GATHER, [value, index], "gather", cols=cols or count)
    known = source.type.tile
    count = cols if cols is not None else known[1] if known and len(known) == 2 else 0
    operands = [source.check("gather"), index.traced("gather")]
    (made,) = trace.emit(Op.GATHER, operands, (("cols", count),))
    return cast(TileValue, wrap(trace, made))


def scatter(target: Any, rows: Any, value: Any) -> None:
    """Writes the rows of a tile into a parameter of rank 2, by a column of integers. Of equal
    numbers the last counts; rows that do not exist are left out."""
    trace = current("pto.scatter")
    if not isinstance(target, Ref):
        raise trace.error(
            Code.TILE_REFERENCE,
            f"scatter into {type(target).__name__}",
            "it writes into a whole parameter",
            "pto.scatter(y, rows, tile) with a parameter y",
            TypeCheckError,
        )
    index, given = as_value(rows, "scatter"), as_value(value, "scatter")
    operands = [target.check("scatter"), index.traced("scatter"), given.traced("scatter")]
    trace.emit(Op.SCATTER, operands)
    target.written()


def _part(target: object, what: str) -> RefPart:
    trace = current(f"pto.{what}")
    if isinstance(target, RefPart):
        return target
    if isinstance(target, Ref):
        return target.whole(what)
    raise trace.error(
        Code.TILE_REFERENCE,
        f"{what} of {type(target).__name__}",
        "only parameters of the kernel are memory",
        "name a parameter, or a part of one: x[0:16, 0:64]",
        TypeCheckError,
    )
