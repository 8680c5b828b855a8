"""Operations on elements as Triton expressions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pto_wsp.dtypes import DType
from pto_wsp.kernels.tile_expr import FLOATS, HALVES, dtype_of
from pto_wsp.kernels.tile_ir import Op, Statement, Value
from pto_wsp.kernels.triton_code.literals import TYPES, literal, zero
from pto_wsp.kernels.triton_code.writer import UNKNOWN, Fills, Writer

_OPERATORS = {
    Op.ADD: "+",
    Op.SUB: "-",
    Op.MUL: "*",
    Op.AND: "&",
    Op.OR: "|",
    Op.XOR: "^",
    Op.EQ: "==",
    Op.NE: "!=",
    Op.LT: "<",
    Op.LE: "<=",
    Op.GT: ">",
    Op.GE: ">=",
}
# Functions of Triton that compute what NumPy does, within the stated bounds.
_FUNCTIONS = {
    Op.ABS: "tl.abs",
    Op.EXP: "tl.exp",
    Op.EXP2: "tl.exp2",
    Op.LOG: "tl.log",
    Op.RSQRT: "tl.rsqrt",
    Op.ERF: "tl.erf",
    Op.SIN: "tl.sin",
    Op.COS: "tl.cos",
    Op.FLOOR: "tl.floor",
    Op.CEIL: "tl.ceil",
}
_HELPERS = {
    Op.SQRT: "square_root",
    Op.RECIP: "reciprocal",
    Op.TANH: "tanh",
    Op.SIGMOID: "sigmoid",
    Op.GELU: "gelu",
    Op.SILU: "silu",
    Op.DIV: "divided",
    Op.POW: "power",
    Op.FLOORDIV: "floordiv",
    Op.MOD: "mod",
}
_COMPARISONS = frozenset({Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE})


def emit_elementwise(w: Writer, stmt: Statement) -> None:
    """A statement of tiles and scalars, element by element."""
    result = stmt.results[0]
    if stmt.op is Op.CAST:
        source = stmt.operands[0]
        fills = w.scope.fills.get(source.number, UNKNOWN)
        kept = [zero(dtype_of(result)) if fill in ("0", "0.0") else None for fill in fills]
        zeros: Fills = (kept[0], kept[1])  # a zero stays one in every dtype
        w.define(result, cast(w, source, result, str(stmt.attribute("rounding"))), stmt, zeros)
        return
    if stmt.op is Op.WHERE:
        mask, a, b = stmt.operands
        first = w.tensor(a) if w.is_constant(b) else w.text(a)
        w.define(result, f"tl.where({w.tensor(mask)}, {first}, {w.text(b)})", stmt)
        return
    text = _plain(w, stmt, _operands(w, stmt))
    if dtype_of(result) in HALVES:
        text = f"({text}).to({TYPES[dtype_of(result)]})"
    w.define(result, text, stmt)


def _operands(w: Writer, stmt: Statement) -> list[str]:
    """Half precision computes in f32. Constants take the dtype of what they stand beside, if
    anything; functions want them typed."""
    plain = stmt.op in _OPERATORS or stmt.op in (Op.MAX, Op.MIN)
    alone = all(w.is_constant(operand) for operand in stmt.operands)
    found: list[str] = []
    for number, operand in enumerate(stmt.operands):
        if plain and w.is_constant(operand) and not (alone and number == 0):
            found.append(literal(w.constants[operand.number], dtype_of(operand)))
            continue
        text = w.tensor(operand)
        found.append(f"{text}.to(tl.float32)" if dtype_of(operand) in HALVES else text)
    return found


def _plain(w: Writer, stmt: Statement, args: Sequence[str]) -> str:
    op, dtype = stmt.op, dtype_of(stmt.operands[-1])
    if op in _OPERATORS:
        return f"{_grouped(args[0])} {_OPERATORS[op]} {_grouped(args[1])}"
    if op in _FUNCTIONS:
        return f"{_FUNCTIONS[op]}({args[0]})"
    if op in _HELPERS:
        return f"{w.helper(_HELPERS[op])}({', '.join(args)})"
    match op:
        case Op.NEG:
            # Subtracting from 0 would lose the sign of a zero.
            return f"{args[0]} * -1.0" if dtype in FLOATS else f"0 - {args[0]}"
        case Op.NOT:
            if dtype is DType.BOOL:
                return f"{args[0]} == 0"
            return f"{args[0]} ^ {np.iinfo(dtype.numpy).max if dtype.name[0] == 'U' else -1}"
        case Op.RELU:
            return f"{w.helper(larger(dtype, True))}({args[0]}, 0)"
        case _:
            return f"{w.helper(larger(dtype, op is Op.MAX))}({', '.join(args)})"


def _grouped(text: str) -> str:
    return f"({text})" if " " in text or text.startswith("-") else text


def larger(dtype: DType, most: bool) -> str:
    """The function of two that gives the larger (or smaller) one, and NaN where one is."""
    name = "larger" if most else "smaller"
    if dtype is DType.F64:
        return f"{name}_f64"
    return name if dtype in FLOATS else f"{name}_int"


# --- other dtypes --------------------------------------------------------------------------------

_ROUND = {"floor": "tl.floor", "ceil": "tl.ceil"}


def cast(w: Writer, source: Value, result: Value, rounding: str) -> str:
    x, to, of = w.tensor(source), dtype_of(result), dtype_of(source)
    if to is of:
        return x
    if to is DType.BOOL:
        return f"{x}.to(tl.float32) != 0" if of in HALVES else f"{x} != 0"
    if of in FLOATS and to not in FLOATS:
        return _to_integer(w, x, of, to, rounding)
    if to is DType.BF16:
        return _to_bf16(w, x, of)
    if of is DType.BF16:
        return f"{x}.to(tl.float32)" + ("" if to is DType.F32 else f".to({TYPES[to]})")
    return f"{x}.to({TYPES[to]})"


def _to_bf16(w: Writer, x: str, of: DType) -> str:
    """Rounded once."""
    if of is DType.F64:
        return f"{w.helper('bf16_of_f64')}({x})"
    if of is DType.U64 or of is DType.I64:
        return f"{w.helper('bf16_of_f64')}({w.helper('f64_of_int64')}({x}))"
    if of in (DType.I32, DType.U32):
        return f"{w.helper('bf16_of_f64')}({x}.to(tl.float64))"
    wide = x if of is DType.F32 else f"{x}.to(tl.float32)"
    return f"{wide}.to(tl.bfloat16)"


def _to_integer(w: Writer, x: str, of: DType, to: DType, rounding: str) -> str:
    if of in HALVES:
        x = f"{x}.to(tl.float32)"
    if rounding in _ROUND:
        x = f"{_ROUND[rounding]}({x})"
    else:
        name = "rounded_to_even" if rounding == "nearest" else "rounded_to_zero"
        x = f"{w.helper(name)}({x})"
    info = np.iinfo(to.numpy)
    by = to if to.size == 8 else DType.I64
    ends = f"{float(info.min)}, {float(int(info.max) + 1)}, {info.min}, {info.max}"
    ends = f"{ends}, {TYPES[to]}, {TYPES[by]}"
    return f"{w.helper('saturated')}({x}, {ends})"
