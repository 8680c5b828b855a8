"""Operands for tile kernels: every hard number of a dtype, and random ones of all sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from pto_wsp.dtypes import DType
from pto_wsp.kernels.tile_ir.ops import FLOATS
from tests.kernels.tile_cpu.exact import DIGITS, HIGHEST, LOWEST

Array = np.ndarray[Any, Any]

# A number of these kinds is among the operands of every operation that takes it.
FLOAT_KINDS = ("nan", "inf", "-inf", "0", "-0", "denormal", "smallest", "largest", "lowest")
INTEGER_KINDS = ("0", "largest", "lowest")
BOOL_KINDS = ("false", "true")


def kinds_needed(dtype: DType) -> frozenset[str]:
    if dtype is DType.BOOL:
        return frozenset(BOOL_KINDS)
    return frozenset(FLOAT_KINDS if dtype in FLOATS else INTEGER_KINDS)


def limits(dtype: DType) -> dict[str, float]:
    """The largest number, the least normal and the least positive one."""
    top = np.ldexp(2.0 - 2.0 ** (1 - DIGITS[dtype]), HIGHEST[dtype] - 1)
    least = np.ldexp(1.0, LOWEST[dtype] - 1)
    return {"largest": top, "normal": least, "smallest": least * 2.0 ** (1 - DIGITS[dtype])}


def kinds_in(x: Array) -> set[str]:
    """Which of the kinds are among these numbers."""
    dtype = DType.of(x.dtype)
    if dtype is DType.BOOL:
        return {BOOL_KINDS[int(each)] for each in np.unique(x)}
    if dtype not in FLOATS:
        info = np.iinfo(dtype.numpy)
        values = {"0": 0, "largest": info.max, "lowest": info.min}
        return {kind for kind, value in values.items() if (x == value).any()}
    with np.errstate(invalid="ignore"):  # of a NaN that signals
        ends, v = limits(dtype), x.astype(np.float64)
    size = np.abs(v)
    found = {
        "nan": np.isnan(v),
        "inf": v == np.inf,
        "-inf": v == -np.inf,
        "0": (v == 0) & ~np.signbit(v),
        "-0": (v == 0) & np.signbit(v),
        "denormal": (size > ends["smallest"]) & (size < ends["normal"]),
        "smallest": v == ends["smallest"],
        "largest": v == ends["largest"],
        "lowest": v == -ends["largest"],
    }
    return {kind for kind, where in found.items() if where.any()}


def special(dtype: DType) -> Array:
    """All of the kinds, and numbers at which functions and casts change their ways."""
    if dtype is DType.BOOL:
        return np.array([False, True])
    if dtype not in FLOATS:
        info = np.iinfo(dtype.numpy)
        near = [info.min, info.max, 0, 1, 2, 3, 7, 100, info.min + 1, info.max - 1, info.max // 2]
        return np.array(near + ([-1, -2, -3, -100] if info.min < 0 else []), dtype.numpy)
    ends = limits(dtype)
    sizes = [0.0, ends["smallest"], ends["normal"] - ends["smallest"], ends["normal"], 0.5, 1.0]
    sizes += [ends["largest"], np.inf, 1.5, 2.5, 3.75, 9.0, 80.0, 88.7, 103.9, 127.5, 128.5, 255.5]
    sizes += [65519.0, 65520.0, 131073.0, 2.0**31, 2.0**32, 2.0**63, 2.0**64, 1e-5, 709.7, 745.0]
    with np.errstate(over="ignore"):
        numbers = np.array(sizes).astype(dtype.numpy)
    return np.concatenate([numbers, -numbers, np.array([np.nan], dtype.numpy)])


def random(dtype: DType, count: int, rng: np.random.Generator) -> Array:
    """Half of them of any size, half of them near 1 or near 0."""
    if dtype is DType.BOOL:
        return rng.integers(0, 2, count).astype(bool)
    bits = rng.integers(0, 256, count * dtype.size, np.uint8).view(dtype.numpy)
    if dtype not in FLOATS:
        return np.where(
            rng.random(count) < 0.5, bits, rng.integers(0, 10, count).astype(bits.dtype)
        )
    with np.errstate(all="ignore"):
        near = (rng.standard_normal(count) * 10 ** rng.uniform(-3, 2, count)).astype(dtype.numpy)
    return np.where(rng.random(count) < 0.3, bits, near)


def moderate(dtype: DType, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Numbers that can be added up without an overflow of floats."""
    if dtype in FLOATS:
        return rng.standard_normal(shape).astype(dtype.numpy)
    return random(dtype, int(np.prod(shape)), rng).reshape(shape)


def with_special(x: Array, rng: np.random.Generator, share: float = 0.2) -> Array:
    """A part of the numbers replaced by special ones."""
    chosen = rng.choice(special(DType.of(x.dtype)), x.shape)
    return np.where(rng.random(x.shape) < share, chosen, x)
