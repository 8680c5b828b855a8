"""Sorting and the largest elements of rows, stable, NaN counting as the largest.

Values of up to 32 bits become keys that stand in one integer with their place, which Triton sorts.
Wider ones are put in order by counting.
"""

from __future__ import annotations

from pto_wsp.dtypes import DType
from pto_wsp.kernels.tile_expr import FLOATS, HALVES, dtype_of, tile_type
from pto_wsp.kernels.tile_ir import Op, Statement, Value
from pto_wsp.kernels.triton_code.moves import taken
from pto_wsp.kernels.triton_code.writer import Writer


def emit_order(w: Writer, stmt: Statement) -> None:
    (x,), (values, places) = stmt.operands, stmt.results
    kind = tile_type(x)
    descending = stmt.op is Op.TOPK or bool(stmt.attribute("descending"))
    _check_rows(w, stmt)
    rows, cols = w.blocks(x)
    order = w.names.fresh(f"{w.names.of(x)}_order")
    if cols == 1:
        w.line(f"{order} = tl.zeros([{rows}, 1], tl.int32)")
    else:
        w.line(f"{order} = {_order(w, x, descending)}")
    text, row = order, w.lane(0, kind.rows)
    if w.blocks(places) != (rows, cols):
        text = taken(w, order, x, (row, w.lane(1, tile_type(places).cols)), places)
    w.define(places, text, stmt)
    safe = f"tl.minimum({w.text(places)}, {kind.cols - 1})"
    w.define(values, taken(w, w.text(x), x, (row, safe), values), stmt)


def _check_rows(w: Writer, stmt: Statement) -> None:
    """How many the largest are."""
    if stmt.op is not Op.TOPK:
        return
    (x,), result = stmt.operands, stmt.results[0]
    bound = w.dims(x)[1]
    if not bound:
        w.whole |= w.bounds.dims(result)[1]
        return
    for name in w.dims(result)[1]:
        w.line(f"{name} = tl.minimum({w.extent(x, 1)}, {stmt.attribute('k')})", stmt)
    if tile_type(result).cols == 1:
        w.fault(f"{w.extent(x, 1)} < 1", "topk: a row without elements", stmt)


def _order(w: Writer, x: Value, descending: bool) -> str:
    dtype, cols = dtype_of(x), tile_type(x).cols
    rows_cols = w.blocks(x)
    lane = f"tl.broadcast_to({w.lane(1, cols)}, [{rows_cols[0]}, {rows_cols[1]}])"
    inside = f"{lane} < {w.extent(x, 1)}"
    text = w.text(x)
    if dtype.size == 8:
        key = f"{w.helper('order_key_f64')}({text})" if dtype is DType.F64 else text
        count = w.helper("order_by_count")
        return f"{count}({key}, {inside}, {lane}, {rows_cols[1]}, {not descending})"
    if dtype in FLOATS:
        wide = f"{text}.to(tl.float32)" if dtype in HALVES else text
        key = f"{w.helper('order_key_f32')}({wide})"
    else:
        key = f"{text}.to(tl.int64)"
        if not dtype.name.startswith("U"):
            key = f"({key} + 2147483648)"
    if not descending:
        key = f"(4294967295 - {key})"
    sort = f"{w.helper('order_by_key')}({key}, {inside}, {lane})"
    return f"{w.helper('place_in_key')}({sort})"
