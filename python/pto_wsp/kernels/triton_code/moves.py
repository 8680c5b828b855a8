"""Elements in other places: every lane says from which lane it comes."""

from __future__ import annotations

from pto_wsp.dtypes import DType
from pto_wsp.kernels.tile_expr import FLOATS, dtype_of, tile_type
from pto_wsp.kernels.tile_ir import Statement, Value
from pto_wsp.kernels.triton_code.literals import TYPES, zero
from pto_wsp.kernels.triton_code.writer import Writer, both

_BITS = {1: "tl.int8", 2: "tl.int16", 4: "tl.int32", 8: "tl.int64"}


def _moved(w: Writer, value: Value) -> str:
    """A tile that may be gathered: truth values as bytes."""
    text = w.text(value)
    return f"{text}.to(tl.int8)" if dtype_of(value) is DType.BOOL else text


def _back(value: Value, text: str) -> str:
    return f"({text}) != 0" if dtype_of(value) is DType.BOOL else text


def taken(w: Writer, text: str, source: Value, lanes: tuple[str, str], result: Value) -> str:
    """The elements of a block in those rows and columns, as the block of the result."""
    cols = w.blocks(source)[1]
    row, column = lanes
    at = column if row == "0" or cols == 1 else f"{row} * {cols} + {column}"
    if cols == 1:
        at = row
    elif at == "0":
        at = "tl.zeros([1, 1], tl.int32)"
    return f"{w.helper('taken')}({text}, tl.broadcast_to({at}, {w.shape(result)}))"


def emit_reshape(w: Writer, stmt: Statement) -> None:
    (x,), result = stmt.operands, stmt.results[0]
    old, new = tile_type(x).shape, tile_type(result).shape
    if w.blocks(x) == old and w.blocks(result) == new:
        w.define(result, f"tl.reshape({w.text(x)}, {w.shape(result)})", stmt)
        return
    place = w.names.fresh(f"{w.names.of(result)}_from")
    # Lanes beyond the elements point somewhere, too.
    number = f"{w.lane(0, new[0])} * {new[1]} + {w.lane(1, new[1])}"
    w.line(f"{place} = tl.minimum({number}, {old[0] * old[1] - 1})")
    lanes = f"({place} // {old[1]})", f"{place} % {old[1]}"
    w.define(result, _back(x, taken(w, _moved(w, x), x, lanes, result)), stmt)


def emit_slice(w: Writer, stmt: Statement) -> None:
    x, *first = stmt.operands
    result = stmt.results[0]
    _check_slice(w, stmt)
    lanes = [_part(w, first[axis], axis, x, result) for axis in (0, 1)]
    w.define(result, _back(x, taken(w, _moved(w, x), x, (lanes[0], lanes[1]), result)), stmt)


def _part(w: Writer, first: Value, axis: int, x: Value, result: Value) -> str:
    """Lanes of a tile from `first` on; those beyond its end stay inside of the block."""
    size, part = tile_type(x).shape[axis], tile_type(result).shape[axis]
    lane, start = w.lane(axis, part), w.constant(first)
    if start is not None and start >= 0 and start + w.block(part) <= w.block(size):
        if lane == "0":
            return f"tl.full([1, 1], {start}, tl.int32)" if start else "0"
        return lane if start == 0 else f"({lane} + {start})"
    lanes = f"{lane} + {w.tensor(first)}.to(tl.int32)"
    return f"tl.minimum(tl.maximum({lanes}, 0), {size - 1})"


def _check_slice(w: Writer, stmt: Statement) -> None:
    """Whether the part is inside, and how much of it there is."""
    x, *first = stmt.operands
    result = stmt.results[0]
    kind, part = tile_type(x), tile_type(result)
    bad: list[str] = []
    for axis in (0, 1):
        at, known = w.text(first[axis]), w.constant(first[axis])
        room = kind.shape[axis] - part.shape[axis]
        if known is None:
            bad.append(f"({at} < 0) | ({at} > {room})")
        elif not 0 <= known <= room:
            bad.append("tl.full([], 1, tl.int32) != 0")
        if not w.dims(x)[axis]:
            w.whole |= w.bounds.dims(result)[axis]
            continue
        for name in w.dims(result)[axis]:
            extent = f"{w.extent(x, axis)} - {at}"
            w.line(f"{name} = {w.helper('within')}({extent}, {part.shape[axis]})", stmt)
        if part.shape[axis] == 1:
            bad.append(f"({at} >= {w.extent(x, axis)})")
    if bad:
        w.fault(" | ".join(bad), "slice: outside of the tile", stmt)


def emit_concat(w: Writer, stmt: Statement) -> None:
    """Each lane takes from the operand that it belongs to."""
    result, axis = stmt.results[0], stmt.attribute("axis")
    assert isinstance(axis, int)
    shape = tile_type(result).shape
    lane, other = w.lane(axis, shape[axis]), w.lane(1 - axis, shape[1 - axis])
    found, begin = "", 0
    for operand in stmt.operands:
        extent = tile_type(operand).shape[axis]
        own = f"tl.minimum(tl.maximum({lane} - {begin}, 0), {extent - 1})"
        own = own if lane != "0" else "0"
        lanes = (own, other) if axis == 0 else (other, own)
        name = w.names.fresh(f"{w.names.of(result)}_part")
        w.line(f"{name} = {taken(w, _moved(w, operand), operand, lanes, result)}")
        found = name if not found else f"tl.where({lane} < {begin}, {found}, {name})"
        begin += extent
    w.define(result, _back(result, found), stmt)


def emit_item(w: Writer, stmt: Statement) -> None:
    (x, row, col), result = stmt.operands, stmt.results[0]
    kind, dtype = tile_type(x), dtype_of(x)
    bad: list[str] = []
    for axis, at in ((0, row), (1, col)):
        known, text = w.constant(at), w.text(at)
        if known is None:
            bad.append(f"({text} < 0) | ({text} >= {w.extent(x, axis)})")
        elif w.dims(x)[axis] or known >= kind.shape[axis]:
            bad.append(f"({w.tensor(at)} >= {w.extent(x, axis)})")
    if bad:
        w.fault(" | ".join(bad), "item: outside of the tile", stmt)
    text = _moved(w, x)
    if dtype in FLOATS:
        text = f"{text}.to({_BITS[dtype.size]}, bitcast=True)"
    lanes = [w.lane(axis, kind.shape[axis]) for axis in (0, 1)]
    lanes = [lane if lane != "0" else "tl.zeros([1, 1], tl.int32)" for lane in lanes]
    text = f"{w.helper('picked')}({text}, {', '.join(lanes)}, {w.text(row)}, {w.text(col)})"
    if dtype in FLOATS:
        text = f"{text}.to({TYPES[dtype]}, bitcast=True)"
    w.define(result, _back(x, text), stmt)


def emit_gather(w: Writer, stmt: Statement) -> None:
    """Rows of a tile; a row that does not exist is zeros."""
    (x, numbers), result = stmt.operands, stmt.results[0]
    row = w.names.fresh(f"{w.names.of(numbers)}_at")
    w.line(f"{row} = {w.text(numbers)}.to(tl.int64)")
    exists = both([f"({row} >= 0)", f"({row} < {w.extent(x, 0)})"])
    last = tile_type(x).rows - 1
    row = f"tl.minimum(tl.maximum({row}, 0), {last}).to(tl.int32)"
    text = taken(w, _moved(w, x), x, (row, w.lane(1, tile_type(x).cols)), result)
    w.define(result, _back(x, f"tl.where({exists}, {text}, {zero(dtype_of(x))})"), stmt)
