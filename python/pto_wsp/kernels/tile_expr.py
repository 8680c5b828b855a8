"""Elementwise operations of tile kernels as C++ expressions over core/tile/arith.h."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pto_wsp.dtypes import DType
from pto_wsp.kernels.tile_ir import Op, ScalarType, Statement, TileType, Value

HALVES = frozenset({DType.F16, DType.BF16})
FLOATS = frozenset({DType.F64, DType.F32}) | HALVES

# The spelling inside namespace ptowsp::tile: elements in memory.
TYPES = {
    DType.F64: "double",
    DType.F32: "float",
    DType.F16: "f16",
    DType.BF16: "bf16",
    DType.I8: "i8",
    DType.I16: "i16",
    DType.I32: "i32",
    DType.I64: "i64",
    DType.U8: "u8",
    DType.U16: "u16",
    DType.U32: "u32",
    DType.U64: "u64",
    DType.BOOL: "bool",
}
ROUNDINGS = {"nearest": "kNearest", "zero": "kZero", "floor": "kDown", "ceil": "kUp"}

_OPERATORS = {
    Op.ADD: "+",
    Op.SUB: "-",
    Op.MUL: "*",
    Op.DIV: "/",
    Op.EQ: "==",
    Op.NE: "!=",
    Op.LT: "<",
    Op.LE: "<=",
    Op.GT: ">",
    Op.GE: ">=",
}
# Functions of vectors alone: a scalar goes through one lane.
_VECTOR_FUNCTIONS = {
    Op.EXP: "vexp",
    Op.EXP2: "vexp2",
    Op.LOG: "vlog",
    Op.SQRT: "vsqrt",
    Op.RSQRT: "vrsqrt",
    Op.TANH: "vtanh",
    Op.SIGMOID: "vsigmoid",
    Op.ERF: "verf",
    Op.SIN: "vsin",
    Op.COS: "vcos",
    Op.GELU: "vgelu",
    Op.SILU: "vsilu",
    Op.FLOOR: "vfloor",
    Op.CEIL: "vceil",
    Op.POW: "vpow",
}
_FUNCTIONS = {
    Op.NEG: "vneg",
    Op.ABS: "vabs",
    Op.RECIP: "vrecip",
    Op.RELU: "vrelu",
    Op.NOT: "vnot",
    Op.ADD: "vadd",
    Op.SUB: "vsub",
    Op.MUL: "vmul",
    Op.FLOORDIV: "vfloordiv",
    Op.MOD: "vmod",
    Op.MAX: "vmax",
    Op.MIN: "vmin",
    Op.AND: "vand",
    Op.OR: "vor",
    Op.XOR: "vxor",
    Op.EQ: "veq",
    Op.NE: "vne",
    Op.LT: "vlt",
    Op.LE: "vle",
    Op.GT: "vgt",
    Op.GE: "vge",
    Op.WHERE: "vselect",
}
# Results that need no rounding after them: they are one of the operands, or a truth value.
_EXACT = frozenset({Op.NEG, Op.ABS, Op.RELU, Op.MAX, Op.MIN, Op.WHERE, Op.FLOOR, Op.CEIL})
# Worth keeping rather than computing twice.
EXPENSIVE = frozenset(_VECTOR_FUNCTIONS) - {Op.FLOOR, Op.CEIL} | {
    Op.DIV,
    Op.RECIP,
    Op.FLOORDIV,
    Op.MOD,
}


def dtype_of(value: Value) -> DType:
    """The dtype of elements, whatever kind of value it is."""
    return value.type.dtype


def register_size(dtype: DType) -> int:
    """Bytes of an element in a register: halves compute as f32."""
    return 4 if dtype in HALVES else dtype.size


def scalar_type(dtype: DType) -> str:
    """The C++ type of a scalar."""
    return "float" if dtype in HALVES else TYPES[dtype]


def literal(value: float, dtype: DType) -> str:
    """A constant of a dtype, as it is in registers."""
    if dtype is DType.BOOL:
        return "true" if value else "false"
    if dtype not in FLOATS:
        if value == -(2**63):
            return "std::numeric_limits<i64>::min()"
        return f"{TYPES[dtype]}{{{int(value)}{'u' if dtype.name.startswith('U') else ''}}}"
    number = float(dtype.numpy.type(value))
    suffix = "" if dtype is DType.F64 else "f"
    name = "double" if dtype is DType.F64 else "float"
    if math.isnan(number):
        return f"std::numeric_limits<{name}>::quiet_NaN()"
    if math.isinf(number):
        return f"{'-' if number < 0 else ''}std::numeric_limits<{name}>::infinity()"
    text = repr(number) if dtype is DType.F64 else str(DType.F32.numpy.type(number))
    if not any(c in text for c in ".e"):
        text += ".0"
    return text + suffix


def expression(stmt: Statement, args: Sequence[str], is_vector: bool) -> str:
    """The C++ of an elementwise statement, of operands that are names or literals."""
    op, dtype = stmt.op, dtype_of(stmt.operands[-1])
    result = dtype_of(stmt.results[0])
    if op is Op.CAST:
        mode = ROUNDINGS[str(stmt.attribute("rounding"))]
        if result == dtype:
            return args[0]
        if dtype in FLOATS and result not in FLOATS and result is not DType.BOOL:
            return f"cast<{TYPES[result]}, {TYPES[dtype]}, Rounding::{mode}>({args[0]})"
        return f"cast<{TYPES[result]}, {TYPES[dtype]}>({args[0]})"
    text = _plain(op, dtype, args, is_vector)
    if result in HALVES and op not in _EXACT:
        return f"to_half<{TYPES[result]}>({text})"
    return text


def _plain(op: Op, dtype: DType, args: Sequence[str], is_vector: bool) -> str:
    if op in _VECTOR_FUNCTIONS:
        name = _VECTOR_FUNCTIONS[op]
        if is_vector:
            return f"{'vpower' if op is Op.POW else name}({', '.join(args)})"
        params = ("x", "y")[: len(args)]
        declared = ", ".join(f"auto {p}" for p in params)
        body = f"return {name}({', '.join(params)});"
        return f"on_scalars([]({declared}) {{ {body} }}, {', '.join(args)})"
    if dtype is DType.BOOL and op in (Op.EQ, Op.NE):
        text = f"vxor({args[0]}, {args[1]})"
        return text if op is Op.NE else f"vnot({text})"
    if dtype in FLOATS and op in _OPERATORS:
        return f"{args[0]} {_OPERATORS[op]} {args[1]}"
    if dtype in FLOATS and op is Op.NEG:
        return f"-({args[0]})" if args[0].startswith("-") else f"-{args[0]}"
    return f"{_FUNCTIONS[op]}({', '.join(args)})"


def is_tile(value: Value) -> bool:
    return isinstance(value.type, TileType)


def is_scalar(value: Value) -> bool:
    return isinstance(value.type, ScalarType)


def tile_type(value: Value) -> TileType:
    assert isinstance(value.type, TileType)
    return value.type
