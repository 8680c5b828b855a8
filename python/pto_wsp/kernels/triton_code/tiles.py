"""Whole tiles: made of scalars, reduced, moved, multiplied, put in order."""

from __future__ import annotations

import numpy as np

from pto_wsp.dtypes import DType
from pto_wsp.kernels.tile_bounds import Dim
from pto_wsp.kernels.tile_expr import FLOATS, HALVES, dtype_of, tile_type
from pto_wsp.kernels.tile_ir import Op, Statement, Value
from pto_wsp.kernels.triton_code.elementwise import larger
from pto_wsp.kernels.triton_code.literals import TYPES, filled_block, literal, zero
from pto_wsp.kernels.triton_code.writer import UNKNOWN, Writer, both, is_dot


def axis_of(stmt: Statement) -> int:
    axis = stmt.attribute("axis")
    assert isinstance(axis, int)
    return axis


# --- made of scalars -----------------------------------------------------------------------------


def emit_full(w: Writer, stmt: Statement) -> None:
    value, result = stmt.operands[0], stmt.results[0]
    if value.number in w.constants:
        rows, cols = w.blocks(result)
        text = filled_block([rows, cols], w.constants[value.number], dtype_of(result))
        w.define(result, text, stmt)
    else:
        w.define(result, f"tl.broadcast_to({w.text(value)}, {w.shape(result)})", stmt)


def emit_arange(w: Writer, stmt: Statement) -> None:
    start, result, axis = stmt.operands[0], stmt.results[0], axis_of(stmt)
    dtype = dtype_of(result)
    wide = DType.F32 if dtype in HALVES else dtype
    lane = w.lane(axis, tile_type(result).shape[axis])
    steps = f"{lane}.to({TYPES[wide]})" if lane != "0" else f"tl.zeros([1, 1], {TYPES[wide]})"
    first = w.text(start)
    if dtype in HALVES and start.number not in w.constants:
        first = f"{first}.to(tl.float32)"
    text = steps if first == "0" else f"{first} + {steps}"
    if dtype in HALVES:
        text = f"({text}).to({TYPES[dtype]})"
    w.define(result, f"tl.broadcast_to({text}, {w.shape(result)})", stmt)


# --- along an axis -------------------------------------------------------------------------------


def emit_reduce(w: Writer, stmt: Statement) -> None:
    (x,), result, axis = stmt.operands, stmt.results[0], axis_of(stmt)
    dtype = dtype_of(x)
    match stmt.op:
        case Op.SUM_OF | Op.MEAN_OF:
            text = w.filled(x, zero(dtype), (axis,), {})
            wide = f"{text}.to(tl.float32)" if dtype in HALVES else text
            text = f"tl.sum({wide}, {axis}, keep_dims=True)"
            if stmt.op is Op.MEAN_OF:
                text = _mean(w, x, axis, text)
            if dtype in HALVES or (dtype not in FLOATS and dtype.size < 4):
                text = f"{text}.to({TYPES[dtype]})"
        case Op.ARGMAX_OF:
            _argmax(w, stmt)
            return
        case _:
            text = _most(w, x, axis, stmt.op is Op.MAX_OF)
    w.define(result, text, stmt)


def _mean(w: Writer, x: Value, axis: int, total: str) -> str:
    dtype = dtype_of(x)
    wide = DType.F32 if dtype in HALVES else dtype
    count = f"tl.cast({w.extent(x, axis)}, {TYPES[wide]})"
    return f"{w.helper('divided')}({total}, {count})"


def _most(w: Writer, x: Value, axis: int, most: bool) -> str:
    dtype = dtype_of(x)
    text = w.filled(x, _end(dtype, most), (axis,), {})
    if dtype in HALVES:
        text = f"{text}.to(tl.float32)"
    name = w.helper(larger(dtype, most))
    text = f"tl.reduce({text}, {axis}, {name}, keep_dims=True)"
    return f"{text}.to({TYPES[dtype]})" if dtype in HALVES else text


def _end(dtype: DType, most: bool) -> str:
    """What is below (or above) everything."""
    if dtype in FLOATS:
        return literal(-np.inf if most else np.inf, DType.F32)
    info = np.iinfo(dtype.numpy)
    return str(info.min if most else info.max)


def _argmax(w: Writer, stmt: Statement) -> None:
    """Where an element equals the largest; if that is NaN, where one is NaN."""
    (x,), result, axis = stmt.operands, stmt.results[0], axis_of(stmt)
    dtype, size = dtype_of(x), tile_type(x).shape[axis]
    most = w.names.fresh(f"{w.names.of(x)}_most")
    w.line(f"{most} = {_most(w, x, axis, True)}")
    wide = ".to(tl.float32)" if dtype in HALVES else ""
    text = f"{w.text(x)}{wide}"
    hit = f"({text} == {most}{wide})"
    if dtype in FLOATS:
        hit = f"({hit} | ({text} != {text}))"
    hit = both([hit, w.mask(x, (axis,))]) or hit
    lane = w.lane(axis, size)
    if lane == "0":
        w.define(result, f"tl.zeros({w.shape(result)}, tl.int32)", stmt)
        return
    w.define(result, f"{w.helper('first_of')}({hit}, {lane}, {axis}, {w.block(size)})", stmt)


# --- products ------------------------------------------------------------------------------------


def emit_product(w: Writer, stmt: Statement) -> None:
    a, b = stmt.operands[-2:]
    result = stmt.results[0]
    inner = w.dims(a)[1] | w.dims(b)[0]
    acc = w.tensor(stmt.operands[0]) if stmt.op is Op.MATMUL_ACC else ""
    if is_dot(stmt):
        w.define(result, _dot(w, stmt, inner, acc), stmt)
        return
    left, right = _factor(w, a, 1, inner), _factor(w, b, 0, inner)
    dtype = dtype_of(result)
    if dtype is not dtype_of(a):
        left, right = (f"{each}.to({TYPES[dtype]})" for each in (left, right))
    kind, other = tile_type(a), tile_type(b)
    if kind.cols == 1:
        text = f"{left} * {right}"
    elif kind.rows == 1:
        text = f"tl.sum(tl.trans({left}) * {right}, 0, keep_dims=True)"
    elif other.cols == 1:
        text = f"tl.sum({left} * tl.trans({right}), 1, keep_dims=True)"
    else:
        text = f"{w.helper('product_by_terms')}({left}, {right}, {kind.cols})"
    if dtype not in FLOATS and dtype.size < 4:
        text = f"({text}).to({TYPES[dtype]})"
    w.define(result, f"{acc} + {text}" if acc else text, stmt)


def _factor(w: Writer, value: Value, axis: int, inner: Dim) -> str:
    """An operand that is 0 beyond the inner elements that both have."""
    return w.filled(value, zero(dtype_of(value)), (axis,), {axis: inner})


def _dot(w: Writer, stmt: Statement, inner: Dim, acc: str) -> str:
    a, b = stmt.operands[-2:]
    dtype = dtype_of(a)
    left, right = _factor(w, a, 1, inner), _factor(w, b, 0, inner)
    more = f", acc={acc}" if acc else ""
    half = _narrow(w, a) or _narrow(w, b) if dtype is DType.F32 and w.options.narrow else None
    if half is not None:
        left, right = _as_half(w, a, left, half), _as_half(w, b, right, half)
        return f"tl.dot({left}, {right}{more})"
    if dtype is DType.F32:
        precision = "tf32" if w.options.tf32 else "ieee"
        return f'tl.dot({left}, {right}{more}, input_precision="{precision}")'
    if dtype in HALVES:
        return f"tl.dot({left}, {right}{more})"
    return f"tl.dot({left}, {right}{more}, out_dtype={TYPES[dtype_of(stmt.results[0])]})"


def _narrow(w: Writer, value: Value) -> DType | None:
    """The half precision that a value was converted from, if that is all that happened to it."""
    made = w.definitions.get(value.number)
    while made is not None and made.op is Op.TRANSPOSE:
        made = w.definitions.get(made.operands[0].number)
    if made is None or made.op is not Op.CAST:
        return None
    source = dtype_of(made.operands[0])
    return source if source in HALVES else None


def _as_half(w: Writer, value: Value, text: str, half: DType) -> str:
    """An operand in half precision. One that was so before, and is not masked, is taken as it was
    loaded: the compiler then copies it where products read it, without registers between."""
    made = w.definitions.get(value.number)
    turned = 0
    while made is not None and made.op is Op.TRANSPOSE:
        made, turned = w.definitions.get(made.operands[0].number), turned + 1
    if text == w.text(value) and made is not None and made.op is Op.CAST:
        source = made.operands[0]
        # By another name it has been masked, with something that need not be 0.
        if dtype_of(source) is half and w.text(source) == w.names.of(source):
            return f"tl.trans({w.text(source)})" if turned % 2 else w.text(source)
    return f"{text}.to({TYPES[half]})"


# --- elements in other places --------------------------------------------------------------------


def emit_pad(w: Writer, stmt: Statement) -> None:
    (x, value), result = stmt.operands, stmt.results[0]
    mask = w.mask(x)
    text = w.text(x) if mask is None else f"tl.where({mask}, {w.text(x)}, {w.text(value)})"
    w.define(result, text, stmt)


def emit_transpose(w: Writer, stmt: Statement) -> None:
    (x,), result = stmt.operands, stmt.results[0]
    rows, cols = w.scope.fills.get(x.number, UNKNOWN)
    w.define(result, f"tl.trans({w.text(x)})", stmt, (cols, rows))
