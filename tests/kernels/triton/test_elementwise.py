"""Operations on elements, casts and reductions as Triton: every operation on every dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pto_wsp import pto
from pto_wsp.dtypes import DType
from pto_wsp.kernels.tile_ir import OPS, Op, ScalarType
from pto_wsp.kernels.tile_ir.ops import DTYPES, FLOATS, ROUNDINGS
from tests.kernels.tile.operations import BINARY, COMPARE, REDUCTIONS, UNARY
from tests.kernels.triton.harness import Array, assert_same, both, out, ref, traced

ROWS, COLS = 3, 8
# How far Triton's functions may be from the meaning, in last places; halves round once more.
ULPS = {Op.EXP: 8, Op.EXP2: 4, Op.LOG: 4, Op.RSQRT: 4, Op.TANH: 8, Op.SIGMOID: 8, Op.ERF: 4}
ULPS |= {Op.SIN: 4, Op.COS: 4, Op.GELU: 8, Op.SILU: 8, Op.POW: 8, Op.RECIP: 1, Op.SQRT: 1}
ULPS |= {Op.DIV: 1}


def numbers(dtype: DType, shape: tuple[int, ...], seed: int = 0) -> Array:
    """Small and large numbers, both zeros, infinities, NaN, the ends of the range."""
    rng = np.random.default_rng([seed, dtype])
    if dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype in FLOATS:
        found = rng.standard_normal(shape) * 3
        special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -2.5]
    else:
        info = np.iinfo(dtype.numpy)
        found = rng.integers(max(info.min, -9), 10, shape)
        special = [0, 1, info.min, info.max, info.max - 1]
    found = found.astype(dtype.numpy)
    where = rng.random(shape) < 0.3
    values = np.array(special, dtype.numpy)
    found[where] = values[rng.integers(0, len(values), int(where.sum()))]
    return found


def takes(op: Op, dtype: DType) -> bool:
    return dtype in DTYPES[OPS[op].types]


def shapes(dtype: DType) -> list[tuple[int, int]]:
    """Partial tiles for all; whole ones for some, since the interpreter is slow."""
    return [(2, 5), (ROWS, COLS)] if dtype in (DType.F32, DType.BF16, DType.I32) else [(2, 5)]


@pytest.mark.parametrize("dtype", DType, ids=lambda d: d.text)
def test_unary(dtype: DType) -> None:
    ops = [op for op in UNARY if takes(op, dtype)]

    def unary(x: Any, y: Any) -> None:
        t = pto.load(x[0:ROWS, 0:COLS])
        for k, op in enumerate(ops):
            pto.store(y[k, 0:ROWS, 0:COLS], UNARY[op][0](t))

    kernel = traced(unary, x=ref(dtype), y=out(dtype, 3))
    for seed, shape in enumerate(shapes(dtype)):
        x = numbers(dtype, shape, seed)
        found, wanted = both(kernel, [x, np.ones((len(ops), *shape), dtype.numpy)])
        for op, a, b in zip(ops, found[0], wanted[0], strict=True):
            # What gelu loses by cancellation is small beside x.
            floor = 2.0 * np.abs(np.nan_to_num(x.astype("f8"), posinf=0, neginf=0)).max()
            floor = floor if op is Op.GELU else 1e-30
            try:
                assert_same(a, b, ULPS.get(op, 0), floor)
            except AssertionError as error:
                raise AssertionError(f"{op.value} of {dtype.text}: {error}") from error


@pytest.mark.parametrize("dtype", DType, ids=lambda d: d.text)
def test_binary(dtype: DType) -> None:
    """Tiles with tiles, rows, columns, scalars and constants."""
    ops = [op for op in BINARY if takes(op, dtype)]
    one: Any = True if dtype is DType.BOOL else 3.0 if dtype in FLOATS else 3

    def binary(a: Any, b: Any, s: Any, y: Any) -> None:
        left, right = pto.load(a[0:ROWS, 0:COLS]), pto.load(b[0:ROWS, 0:COLS])
        row, column = pto.load(b[0:1, 0:COLS]), pto.load(b[0:ROWS, 0:1])
        constant = pto.scalar(one, dtype)
        for k, op in enumerate(ops):
            function = BINARY[op][0]
            made = [(left, right), (left, row), (column, right), (left, s), (left, constant)]
            for n, pair in enumerate(made):
                pto.store(y[k, n, 0:ROWS, 0:COLS], function(*pair))
            pto.store(y[k, 5, 0:1, 0:1], function(s, constant))

    kernel = traced(binary, a=ref(dtype), b=ref(dtype), s=ScalarType(dtype), y=out(dtype, 4))
    for seed, shape in enumerate(shapes(dtype)):
        a, b = numbers(dtype, shape, seed), numbers(dtype, shape, seed + 5)
        s = numbers(dtype, (1,), 3)[0]
        y = np.ones((len(ops), 6, *shape), dtype.numpy)
        found, wanted = both(kernel, [a, b, s, y])
        for op, mine, meant in zip(ops, found[0], wanted[0], strict=True):
            try:
                assert_same(mine, meant, ULPS.get(op, 0), 1e-30)
            except AssertionError as error:
                raise AssertionError(f"{op.value} of {dtype.text}: {error}") from error


@pytest.mark.parametrize("dtype", DType, ids=lambda d: d.text)
def test_comparisons_and_choice(dtype: DType) -> None:
    ops = [op for op in COMPARE if takes(op, dtype)]

    def compare(a: Any, b: Any, y: Any, z: Any) -> None:
        left, right = pto.load(a[0:ROWS, 0:COLS]), pto.load(b[0:ROWS, 0:COLS])
        for k, op in enumerate(ops):
            mask = COMPARE[op][0](left, right)
            pto.store(y[k, 0:ROWS, 0:COLS], mask)
            pto.store(z[k, 0:ROWS, 0:COLS], pto.where(mask, left, right))

    types = {"y": out(DType.BOOL, 3), "z": out(dtype, 3)}
    kernel = traced(compare, a=ref(dtype), b=ref(dtype), **types)
    for seed, shape in enumerate(shapes(dtype)):
        a, b = numbers(dtype, shape, seed), numbers(dtype, shape, seed + 5)
        y, z = np.zeros((len(ops), *shape), bool), np.ones((len(ops), *shape), dtype.numpy)
        found, wanted = both(kernel, [a, b, y, z])
        for mine, meant in zip(found, wanted, strict=True):
            assert_same(mine, meant)


@pytest.mark.parametrize("dtype", DType, ids=lambda d: d.text)
def test_casts(dtype: DType) -> None:
    roundings = ROUNDINGS if dtype in FLOATS else ("nearest",)

    def casts(x: Any, **to: Any) -> None:
        t = pto.load(x[0:ROWS, 0:COLS])
        for each in DType:
            for k, rounding in enumerate(roundings):
                target = to[each.text][k, 0:ROWS, 0:COLS]
                pto.store(target, pto.cast(t, each, rounding))

    # Tracing wants the parameters by name.
    names = [each.text for each in DType]
    source = f"lambda x, {', '.join(names)}: f(x, {', '.join(f'{n}={n}' for n in names)})"
    kernel = traced(eval(source, {"f": casts}), x=ref(dtype), **{d.text: out(d, 3) for d in DType})
    for seed, shape in enumerate(shapes(dtype)):
        x = numbers(dtype, shape, seed)
        if dtype in FLOATS:
            with np.errstate(over="ignore"):
                x[0, :4] = np.array([3e9, -3e9, 1.5, 2.5]).astype(dtype.numpy)
        y = [np.ones((len(roundings), *shape), each.numpy) for each in DType]
        found, wanted = both(kernel, [x, *y])
        for mine, meant in zip(found, wanted, strict=True):
            assert_same(mine, meant)


@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.BOOL], ids=lambda d: d.text)
def test_reductions(dtype: DType) -> None:
    ops = [op for op in REDUCTIONS if takes(op, dtype)]

    def reductions(x: Any, y: Any, z: Any) -> None:
        t = pto.load(x[0:ROWS, 0:COLS])
        for k, op in enumerate(ops):
            rows, cols = (REDUCTIONS[op][n](t) for n in (0, 1))
            if op is Op.ARGMAX_OF:
                pto.store(z[0, 0:ROWS, 0:1], rows)
                pto.store(z[1, 0:1, 0:COLS], cols)
            else:
                pto.store(y[2 * k, 0:ROWS, 0:1], rows)
                pto.store(y[2 * k + 1, 0:1, 0:COLS], cols)

    kernel = traced(reductions, x=ref(dtype), y=out(dtype, 3), z=out(DType.I32, 3))
    for seed, shape in enumerate([(ROWS, COLS), (2, 5), (3, 0)]):
        x = numbers(dtype, shape, seed)
        if seed == 0 and dtype in FLOATS:  # no row of NaN alone
            x = np.nan_to_num(x.astype("f8"), posinf=9, neginf=-9, nan=1).astype(dtype.numpy)
            x[1, 2] = x[2, 1] = np.nan
        y = np.ones((2 * len(ops), ROWS, COLS), dtype.numpy)
        found, wanted = both(kernel, [x, y, np.ones((2, ROWS, COLS), "i4")])
        assert_same(found[0], wanted[0], 8, 10.0)
        assert_same(found[1], wanted[1])
