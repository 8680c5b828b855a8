"""Numbers and dtypes as Triton spells them."""

from __future__ import annotations

import math

from pto_wsp.dtypes import DType
from pto_wsp.kernels.tile_expr import FLOATS, HALVES

TYPES = {
    DType.F64: "tl.float64",
    DType.F32: "tl.float32",
    DType.F16: "tl.float16",
    DType.BF16: "tl.bfloat16",
    DType.I8: "tl.int8",
    DType.I16: "tl.int16",
    DType.I32: "tl.int32",
    DType.I64: "tl.int64",
    DType.U8: "tl.uint8",
    DType.U16: "tl.uint16",
    DType.U32: "tl.uint32",
    DType.U64: "tl.uint64",
    DType.BOOL: "tl.int1",
}


def literal(value: float, dtype: DType) -> str:
    """A constant beside an operand of that dtype, which gives it its own."""
    if dtype is DType.BOOL:
        return typed(value, dtype)
    if dtype not in FLOATS:
        return str(int(value))
    number = float(dtype.numpy.type(value))
    if math.isnan(number):
        return 'float("nan")'
    if math.isinf(number):
        return 'float("-inf")' if number < 0 else 'float("inf")'
    text = repr(number) if dtype is DType.F64 else str(DType.F32.numpy.type(number))
    return text if any(c in text for c in ".e") else f"{text}.0"


def beside(value: float, dtype: DType) -> str:
    """The same for a choice between both; bf16 needs its conversion written."""
    return typed(value, dtype) if dtype is DType.BF16 else literal(value, dtype)


def typed(value: float, dtype: DType) -> str:
    """A constant that has its dtype wherever it stands."""
    return filled_block([], value, dtype)


def filled_block(shape: list[int], value: float, dtype: DType) -> str:
    """A block that holds one constant."""
    if dtype is DType.BOOL:
        return f"tl.full({shape}, {int(value)}, tl.int32) != 0"
    text = literal(value, dtype)
    if dtype in HALVES:
        return f"tl.full({shape}, {text}, tl.float32).to({TYPES[dtype]})"
    return f"tl.full({shape}, {text}, {TYPES[dtype]})"


def zero(dtype: DType) -> str:
    return "0.0" if dtype in FLOATS else "0"
