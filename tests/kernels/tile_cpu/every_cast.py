"""Casts between all dtypes, with every rounding, and their comparison with true values."""

from __future__ import annotations

from typing import Any

import numpy as np

from pto_wsp import pto
from pto_wsp.dtypes import DType
from pto_wsp.kernels.tile_ir import Op, TileKernel
from pto_wsp.kernels.tile_ir.ops import FLOATS, INTEGERS, ROUNDINGS
from tests.kernels.tile_cpu.exact import casted, ulp_errors
from tests.kernels.tile_cpu.ledger import Ledger, shapes_in
from tests.kernels.tile_cpu.native import Array, Compiled, out, ref, traced
from tests.kernels.tile_cpu.numbers import random, special

Shape = tuple[int, int]
WHOLE, COLUMN = (4, 72), (9, 1)
PARTS = {
    WHOLE: ((1, 72), (4, 1), (3, 5), (2, 33), (4, 71), (3, 2)),
    COLUMN: ((5, 1), (1, 1)),
}
SCALARS = (DType.F64, DType.F32, DType.I64, DType.BOOL)  # single elements of rows are scalars
BULK = 12


def roundings(source: DType, to: DType) -> tuple[str, ...]:
    """Those that make a difference."""
    return ROUNDINGS if source in FLOATS and to in INTEGERS else ROUNDINGS[:1]


def targets(source: DType) -> list[DType]:
    return [dtype for dtype in DType if dtype is not source]


def kernel(source: DType, shape: Shape) -> TileKernel:
    rows, cols = shape

    def casts(x: Any, *results: Any) -> None:
        tile = pto.load(x[0:rows, 0:cols])
        for y, to in zip(results, targets(source), strict=True):
            for number, rounding in enumerate(roundings(source, to)):
                pto.store(y[number, 0:rows, 0:cols], pto.cast(tile, to, rounding))

    return traced(casts, x=ref(source), **{f"to_{to.text}": out(to, 3) for to in targets(source)})


def kernels() -> dict[tuple[DType, Shape], TileKernel]:
    return {
        (dtype, shape): kernel(dtype, shape)
        for dtype in DType
        for shape in (WHOLE, COLUMN)
        if shape == WHOLE or dtype in SCALARS
    }


def hard(source: DType, rng: np.random.Generator) -> Array:
    """Special numbers, those halfway between two of a shorter float, and their neighbours."""
    found = [special(source), random(source, 40, rng)]
    shorter = [to for to in FLOATS if to is not DType.F64 and source not in (to, DType.BOOL)]
    for to in sorted(shorter):
        with np.errstate(all="ignore"):
            below = random(to, 40, rng)
            above = np.nextafter(below, to.numpy.type(np.inf))
            middle = (below.astype(np.float64) + above.astype(np.float64)) / 2
            if source in FLOATS:
                near = (middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf))
                found += [each.astype(source.numpy) for each in near]
                continue
        info = np.iinfo(source.numpy)
        whole = [int(each) + d for each in middle if np.isfinite(each) for d in (-1, 0, 1)]
        found.append(np.array([n for n in whole if info.min <= n <= info.max], source.numpy))
    return np.concatenate(found)


def check(compiled: Compiled, source: DType, tile: Shape, ledger: Ledger) -> None:
    rng = np.random.default_rng([7, source])
    numbers = hard(source, rng)
    extents = list(PARTS[tile])
    extents += [tile] * max(BULK, -(-len(numbers) // (tile[0] * tile[1])))
    shapes = set[str]().union(*(shapes_in(source, extent, tile) for extent in extents))
    for extent in extents:
        count = extent[0] * extent[1]
        x = rng.choice(numbers, extent) if extent != tile else numbers[:count]
        if x.size < count:
            x = np.concatenate([x, random(source, count - x.size, rng)])
        numbers = numbers[count:] if extent == tile else numbers
        x = x.reshape(extent)
        ledger.note(Op.CAST, source, [x], shapes)
        for compute in (compiled.run, compiled.meaning):
            results = [np.ones((len(ROUNDINGS), *tile), to.numpy) for to in targets(source)]
            compute(x, *results)
            for y, to in zip(results, targets(source), strict=True):
                _compare(x, y, source, to, ledger)


def _compare(x: Array, y: Array, source: DType, to: DType, ledger: Ledger) -> None:
    rows, cols = x.shape
    names = f"to {to.text}"
    for number, rounding in enumerate(roundings(source, to)):
        with np.errstate(all="ignore"):
            exact = casted(x, to, rounding).reshape(x.shape)
        found = y[number, :rows, :cols].copy()
        ledger.same(Op.CAST, source, found, exact, f"{names}, {rounding}")
        if to in FLOATS and source in FLOATS:
            with np.errstate(all="ignore"):
                errors = ulp_errors(found, x, to)
            ledger.worst(Op.CAST, source, errors, 0, 0, (found, x))
        y[number, :rows, :cols] = 1
    assert (y == 1).all(), f"{source.text} {names}: written outside"
