"""Elements in other places, by Triton's gather: every lane says from which lane it comes."""

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


def along(w: Writer, text: str, axis: int, lanes: str, blocks: tuple[int, int]) -> str:
    """The rows (or columns) with the numbers `lanes` of a block; `blocks` is what results."""
    index = f"tl.broadcast_to({lanes}, [{blocks[0]}, {blocks[1]}])"
    return f"tl.gather({text}, {index}, {axis})"


def emit_reshape(w: Writer, stmt: Statement) -> None:
    (x,), result = stmt.operands, stmt.results[0]
    old, new = tile_type(x).shape, tile_type(result).shape
    if w.blocks(x) == old and w.blocks(result) == new:
        w.define(result, f"tl.reshape({w.text(x)}, {w.shape(result)})", stmt)
        return
    rows, cols = w.blocks(x)
    lane = f"({w.lane(0, new[0])} * {new[1]} + {w.lane(1, new[1])})"
    place = w.names.fresh(f"{w.names.of(result)}_from")
    w.line(f"{place} = {lane} // {old[1]} * {cols} + {lane} % {old[1]}")
    count = w.blocks(result)[0] * w.blocks(result)[1]
    # Lanes beyond the elements point somewhere, too.
    index = f"tl.reshape(tl.minimum({place}, {rows * cols - 1}), [{count}])"
    if count == 1:
        index = "tl.zeros([1], tl.int32)"
    flat = f"tl.reshape({_moved(w, x)}, [{rows * cols}])"
    text = f"tl.reshape(tl.gather({flat}, {index}, 0), {w.shape(result)})"
    w.define(result, _back(x, text), stmt)


def emit_slice(w: Writer, stmt: Statement) -> None:
    x, *first = stmt.operands
    result = stmt.results[0]
    kind, part = tile_type(x), tile_type(result)
    _check_slice(w, stmt)
    text, blocks = _moved(w, x), list(w.blocks(x))
    for axis in (0, 1):
        block = w.block(part.shape[axis])
        start = w.text(first[axis])
        if start == "0" and block == blocks[axis]:
            continue
        lanes = f"({w.lane(axis, part.shape[axis])} + {start})"
        if not start.isdigit():
            lanes = f"tl.maximum({lanes}, 0).to(tl.int32)"
        if block == 1 and start.isdigit():
            lanes = f"tl.full([1, 1], {start}, tl.int32)"
        lanes = f"tl.minimum({lanes}, {kind.shape[axis] - 1})"
        blocks[axis] = block
        text = along(w, text, axis, lanes, (blocks[0], blocks[1]))
    w.define(result, _back(x, text), stmt)


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
    blocks, size = w.blocks(result), tile_type(result).shape[axis]
    lane, begin = w.lane(axis, size), 0
    found = ""
    for operand in stmt.operands:
        extent = tile_type(operand).shape[axis]
        lanes = f"tl.minimum(tl.maximum({lane} - {begin}, 0), {extent - 1})"
        if lane == "0":
            lanes = "tl.zeros([1, 1], tl.int32)"
        text = along(w, _moved(w, operand), axis, lanes, blocks)
        name = w.names.fresh(f"{w.names.of(result)}_part")
        w.line(f"{name} = {text}")
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
    rows, cols = w.blocks(result)[0], w.blocks(x)[1]
    last = tile_type(x).rows - 1
    lanes = f"tl.minimum(tl.maximum({row}, 0), {last}).to(tl.int32)"
    text = along(w, _moved(w, x), 0, lanes, (rows, cols))
    w.define(result, _back(x, f"tl.where({exists}, {text}, {zero(dtype_of(x))})"), stmt)
