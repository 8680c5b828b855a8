"""True values of tile operations and the distance from them: float64, or whole numbers without end.

A float64 itself is compared with what NumPy computes in `longdouble`.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from pto_wsp.dtypes import DType
from pto_wsp.kernels.tile_ir.ops import FLOATS

Array = np.ndarray[Any, Any]

# Bits of the significand, and the exponents e with 2**(e - 1) <= x < 2**e of normal numbers.
DIGITS = {DType.F64: 53, DType.F32: 24, DType.F16: 11, DType.BF16: 8}
LOWEST = {DType.F64: -1021, DType.F32: -125, DType.F16: -13, DType.BF16: -125}
HIGHEST = {DType.F64: 1024, DType.F32: 128, DType.F16: 16, DType.BF16: 128}
# What the computation of the true value may be off by, in units of the last place.
HAS_LONG_DOUBLE = np.finfo(np.longdouble).nmant > 60
SLACK = dict.fromkeys(FLOATS, 2.0**-10) | {DType.F64: 2.0**-9 if HAS_LONG_DOUBLE else 1.0}


def wide(array: Array) -> Array:
    """The same numbers in a type that loses nothing on the way."""
    dtype = DType.of(array.dtype)
    if dtype is DType.BOOL:
        return array
    if dtype not in FLOATS:
        return array.astype(object)
    return array.astype(np.longdouble if dtype is DType.F64 else np.float64)


def wrapped(values: Array, dtype: DType) -> Array:
    """Whole numbers, as integers of a dtype that wraps around."""
    if dtype is DType.BOOL:
        return values.astype(bool)
    info = np.iinfo(dtype.numpy)
    size = int(info.max) - int(info.min) + 1
    return ((values.astype(object) - int(info.min)) % size + int(info.min)).astype(dtype.numpy)


def ulp_errors(found: Array, exact: Array, dtype: DType, scale: Array | None = None) -> Array:
    """How far each number is from the true one, in units of the last place. Infinity counts as the
    power of two behind the largest number; NaN is at no distance from NaN, and far from others. A
    unit is not less than the smallest number times `scale`."""
    real = np.longdouble if dtype is DType.F64 else np.float64
    got, want = found.astype(real), exact.astype(real)
    end = np.ldexp(real(1), HIGHEST[dtype])
    with np.errstate(all="ignore"):
        got = np.where(np.isinf(got), np.copysign(end, got), got)
        want = np.where(np.abs(want) > end, np.copysign(end, want), want)
        _, exponent = np.frexp(np.where(np.isnan(want), 0, want))
        _, more = np.frexp(0.5 + 0 * got if scale is None else scale.astype(real))
        last = np.maximum(exponent, LOWEST[dtype] + np.maximum(more, 0)) - DIGITS[dtype]
        errors = np.ldexp(np.abs(got - want), -last)
    errors = np.where(np.isnan(got) != np.isnan(want), np.inf, errors)
    return np.where(np.isnan(got) & np.isnan(want), 0, errors).astype(np.float64)


def epsilon(dtype: DType) -> float:
    return math.ldexp(1.0, 1 - DIGITS[dtype])


def _nearest(number: int | float, dtype: DType) -> float:
    """Rounded to nearest, ties to even, in one step."""
    if number == 0 or not math.isfinite(number):
        return float(number)
    value = Fraction(number)
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if size < Fraction(2) ** exponent:
        exponent -= 1
    last = max(exponent + 1, LOWEST[dtype]) - DIGITS[dtype]
    units = round(size / Fraction(2) ** last)
    if Fraction(units) * Fraction(2) ** last >= Fraction(2) ** HIGHEST[dtype]:
        return math.copysign(math.inf, number)
    return math.copysign(math.ldexp(units, last), value)


_ROUND = {"nearest": round, "zero": math.trunc, "floor": math.floor, "ceil": math.ceil}


def _whole(number: float, rounding: str, low: int, high: int) -> int:
    if math.isnan(number):
        return 0
    if math.isinf(number):
        return high if number > 0 else low
    return max(low, min(high, _ROUND[rounding](number)))


def casted(x: Array, to: DType, rounding: str) -> Array:
    """What a cast gives; floats as float64."""
    source = DType.of(x.dtype)
    numbers = x.astype(np.float64) if source in FLOATS else x.astype(object)
    if to is DType.BOOL:
        return np.asarray(numbers != 0).astype(bool)
    if to in FLOATS:
        plain = [_nearest(each if source in FLOATS else int(each), to) for each in numbers.ravel()]
        signed = np.array(plain, np.float64).reshape(x.shape)
        return np.copysign(signed, numbers) if source in FLOATS else signed
    if source not in FLOATS:
        return wrapped(numbers.astype(object), to)
    info = np.iinfo(to.numpy)
    ends = int(info.min), int(info.max)
    return np.array([_whole(float(each), rounding, *ends) for each in numbers.ravel()], to.numpy)
