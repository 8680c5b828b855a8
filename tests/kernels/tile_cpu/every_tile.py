"""Operations on whole tiles (reductions, order, products, moves, memory, control) for each dtype,
and their comparison with true values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pto_wsp import pto
from pto_wsp.dtypes import DType
from pto_wsp.kernels.tile_ir import OPS, Op, ScalarType, TileKernel
from pto_wsp.kernels.tile_ir.ops import DTYPES, FLOATS, PRODUCT
from tests.kernels.tile.operations import REDUCTIONS
from tests.kernels.tile_cpu.exact import wide, wrapped
from tests.kernels.tile_cpu.ledger import Ledger, shapes_in
from tests.kernels.tile_cpu.native import Array, Compiled, out, ref, traced
from tests.kernels.tile_cpu.numbers import limits, moderate, special, with_special

Shape = tuple[int, int]
ROWS, COLS = 5, 72
EXTENTS = ((5, 72), (5, 71), (1, 72), (4, 1), (3, 3), (2, 33), (5, 2), (1, 1))
NUMBERS = sorted(set(DType) - {DType.BOOL})
Table = dict[str, Callable[[DType], TileKernel]]


def accepted(op: Op, dtype: DType) -> bool:
    return dtype in DTYPES[OPS[op].types]


# --- reductions ----------------------------------------------------------------------------------


def reduced(dtype: DType) -> list[Op]:
    return [op for op in REDUCTIONS if accepted(op, dtype) and op is not Op.ARGMAX_OF]


def reductions(dtype: DType) -> TileKernel:
    def kernel(x: Any, rows: Any, cols: Any, best: Any, best_col: Any) -> None:
        t = pto.load(x[0:ROWS, 0:COLS])
        for k, op in enumerate(reduced(dtype)):
            pto.store(rows[0:ROWS, k : k + 1], REDUCTIONS[op][0](t))
            pto.store(cols[k : k + 1, 0:COLS], REDUCTIONS[op][1](t))
        pto.store(best[0:ROWS, 0:1], pto.row_argmax(t))
        pto.store(best_col[0:1, 0:COLS], pto.col_argmax(t))

    results = {"rows": out(dtype), "cols": out(dtype)}
    places = {"best": out(DType.I32), "best_col": out(DType.I32)}
    return traced(kernel, x=ref(dtype), **results, **places)


def reduction_operands(dtype: DType) -> list[Array]:
    """Tiles of ordinary numbers, with special ones among them, and with one special one a row."""
    rng = np.random.default_rng([1, dtype])
    found = [moderate(dtype, extent, rng) for extent in EXTENTS]
    found += [with_special(moderate(dtype, extent, rng), rng, 0.05) for extent in EXTENTS]
    hard = special(dtype)
    for first in range(0, len(hard), ROWS):
        x = np.zeros((ROWS, COLS), dtype.numpy)
        for row, number in enumerate(hard[first : first + ROWS]):
            x[row, rng.integers(COLS)] = number
        found.append(x)
    found.append(np.ones((ROWS, COLS), dtype.numpy))  # of equal ones the first
    return found


def check_reductions(compiled: Compiled, dtype: DType, ledger: Ledger) -> None:
    check_nothing(compiled, dtype)
    for x in reduction_operands(dtype):
        count = len(reduced(dtype))
        rows, cols = np.ones((ROWS, count), dtype.numpy), np.ones((count, COLS), dtype.numpy)
        best, best_col = np.full((ROWS, 1), -1, np.int32), np.full((1, COLS), -1, np.int32)
        compiled.run(x, rows, cols, best, best_col)
        shapes = shapes_in(dtype, x.shape, (ROWS, COLS))
        for axis, values, places in ((1, rows, best), (0, cols, best_col)):
            end = x.shape[1 - axis]
            for k, op in enumerate(reduced(dtype)):
                found = values[:end, k] if axis else values[k, :end]
                kept = _compare_reduction(op, dtype, x, axis, found, ledger)
                ledger.note(op, dtype, [kept], shapes)
            with np.errstate(invalid="ignore"):
                where = np.argmax(x.astype(np.float64) if dtype in FLOATS else x, axis=axis)
            ledger.same(Op.ARGMAX_OF, dtype, places.ravel()[:end], where.astype(np.int32))
            ledger.note(Op.ARGMAX_OF, dtype, [x], shapes)


def check_nothing(compiled: Compiled, dtype: DType) -> None:
    """Rows without columns, and columns without rows: as the meaning says."""
    for extent in ((3, 0), (0, 7)):
        count = len(reduced(dtype))
        results = np.ones((ROWS, count), dtype.numpy), np.ones((count, COLS), dtype.numpy)
        places = np.ones((ROWS, 1), np.int32), np.ones((1, COLS), np.int32)
        pairs = compiled.both(np.zeros(extent, dtype.numpy), *results, *places)
        for ours, theirs in zip(*pairs, strict=True):
            np.testing.assert_array_equal(ours.astype("f8"), theirs.astype("f8"))


def _compare_reduction(
    op: Op, dtype: DType, x: Array, axis: int, found: Array, ledger: Ledger
) -> Array:
    """Gives the operands that were compared: where a sum overflows on the way, order decides."""
    with np.errstate(all="ignore"):
        numbers = wide(x)
        exact = np.asarray(REDUCTIONS[op][2](numbers, axis=axis))
        if dtype not in FLOATS:
            ledger.same(op, dtype, found, wrapped(exact, dtype), f"axis {axis}")
            return x
        if op in (Op.MAX_OF, Op.MIN_OF):
            ledger.same(op, dtype, found, exact.astype(np.float64), f"axis {axis}")
            return x
        size = np.sum(np.where(np.isfinite(numbers), np.abs(numbers), 0), axis=axis)
        fits = size <= limits(dtype)["largest"]
        terms = x.shape[axis]
        size = size / terms if op is Op.MEAN_OF else size
        ledger.relative(op, dtype, found[fits], exact[fits], size[fits], terms)
        return x[fits] if axis else x[:, fits]


# --- order ---------------------------------------------------------------------------------------

K = 7


def order(dtype: DType) -> TileKernel:
    def kernel(x: Any, values: Any, places: Any) -> None:
        t = pto.load(x[0:ROWS, 0:COLS])
        made = [pto.topk(t, K), pto.sort(t), pto.sort(t, descending=True)]
        for k, ((value, place), cols) in enumerate(zip(made, (K, COLS, COLS), strict=True)):
            pto.store(values[k, 0:ROWS, 0:cols], value)
            pto.store(places[k, 0:ROWS, 0:cols], place)

    return traced(kernel, x=ref(dtype), values=out(dtype, 3), places=out(DType.I32, 3))


def check_order(compiled: Compiled, dtype: DType, ledger: Ledger) -> None:
    rng = np.random.default_rng([2, dtype])
    for extent in EXTENTS * 2:
        x = with_special(moderate(dtype, extent, rng), rng, 0.6)  # most of them are there twice
        values = np.ones((3, ROWS, COLS), dtype.numpy)
        places = np.full((3, ROWS, COLS), -1, np.int32)
        compiled.run(x, values, places)
        rows, cols = extent
        for k, (op, down) in enumerate(((Op.TOPK, True), (Op.SORT, False), (Op.SORT, True))):
            count = min(cols, K) if op is Op.TOPK else cols
            wanted = np.array([_places(row, down)[:count] for row in x], np.int32)
            ledger.same(op, dtype, places[k, :rows, :count], wanted.reshape(rows, count))
            there = np.take_along_axis(x, wanted.reshape(rows, count).astype(np.int64), 1)
            ledger.same(op, dtype, values[k, :rows, :count], there)
            ledger.note(op, dtype, [x], shapes_in(dtype, extent, (ROWS, COLS)))
            assert (places[k, :rows, count:] == -1).all()


def _places(row: Array, down: bool) -> list[int]:
    """Python's sort is stable, backwards too. NaN is above all numbers."""
    with np.errstate(invalid="ignore"):
        numbers = [float(v) if DType.of(row.dtype) in FLOATS else int(v) for v in row]
    keys = [(v != v, 0 if v != v else v) for v in numbers]
    return sorted(range(len(keys)), key=keys.__getitem__, reverse=down)


# --- products ------------------------------------------------------------------------------------

M, N, INNER = 18, 21, 72
PRODUCTS = ((18, 72, 21), (18, 71, 20), (1, 72, 21), (18, 1, 1), (7, 3, 5), (1, 1, 1), (17, 33, 2))


def products(dtype: DType) -> TileKernel:
    def kernel(a: Any, b: Any, c: Any, y: Any) -> None:
        left, right = pto.load(a[0:M, 0:INNER]), pto.load(b[0:INNER, 0:N])
        pto.store(y[0, 0:M, 0:N], pto.matmul(left, right))
        pto.store(y[1, 0:M, 0:N], pto.matmul_acc(pto.load(c[0:M, 0:N]), left, right))

    result = PRODUCT.get(dtype, dtype)
    return traced(kernel, a=ref(dtype), b=ref(dtype), c=ref(result), y=out(result, 3))


def check_products(compiled: Compiled, dtype: DType, ledger: Ledger) -> None:
    rng = np.random.default_rng([3, dtype])
    result = PRODUCT.get(dtype, dtype)
    hard = special(dtype)
    for number, (m, k, n) in enumerate(PRODUCTS * 3):
        a, b, c = (
            moderate(of, shape, rng)
            for of, shape in ((dtype, (m, k)), (dtype, (k, n)), (result, (m, n)))
        )
        if dtype not in FLOATS:
            a, b, c = (with_special(each, rng) for each in (a, b, c))
        elif number % 3 == 1:  # one special number a row, and nothing that could overflow with it
            a = np.where(np.arange(k) == rng.integers(k), rng.choice(hard, (m, 1)), 0)
            a = a.astype(dtype.numpy)
            b = (np.abs(b.astype(np.float64)) % 0.5 + 0.5).astype(dtype.numpy)
            c = c * 0
        elif number % 3 == 2:
            sizes = np.nan_to_num(np.abs(hard.astype(np.float64)), nan=0, posinf=0)
            small = hard[sizes < 1]
            a = np.where(rng.random((m, k)) < 0.02, rng.choice(small, (m, k)), a)
        a, b = (np.asfortranarray(each) if number % 2 else each for each in (a, b))
        y = np.ones((2, M, N), result.numpy)
        compiled.run(a, b, c, y)
        _compare_products(dtype, (a, b, c), y[:, :m, :n], ledger)


def _compare_products(
    dtype: DType, operands: tuple[Array, Array, Array], y: Array, ledger: Ledger
) -> None:
    a = operands[0]
    result, terms = PRODUCT.get(dtype, dtype), a.shape[1]
    with np.errstate(all="ignore"):
        left, right, acc = (wide(each) for each in operands)
        exact = left @ right
        pairs = ((Op.MATMUL, exact, 0), (Op.MATMUL_ACC, exact + acc, np.abs(acc)))
        for k, (op, want, more) in enumerate(pairs):
            if dtype in FLOATS:
                size = np.abs(left) @ np.abs(right) + more
                fits = ~(size > limits(result)["largest"]) | ~np.isfinite(size)
                args = (y[k][fits], want[fits], size[fits], terms, result)
                ledger.relative(op, dtype, *args)
            else:
                ledger.same(op, dtype, y[k].copy(), wrapped(want, result))
            ledger.note(op, dtype, [a], shapes_in(dtype, a.shape, (M, INNER)))


# --- operands that are spread --------------------------------------------------------------------


def spread(dtype: DType) -> TileKernel:
    def kernel(x: Any, row: Any, col: Any, s: Any, y: Any) -> None:
        a, b = pto.load(x[0:ROWS, 0:COLS]), pto.load(row[0:1, 0:COLS])
        c = pto.load(col[0:ROWS, 0:1])
        for k, made in enumerate((a - b, b - a, a - c, c - a, a - s, s - a, c - b)):
            pto.store(y[k, 0:ROWS, 0:COLS], made)

    given = {"x": ref(dtype), "row": ref(dtype), "col": ref(dtype), "s": ScalarType(dtype)}
    return traced(kernel, **given, y=out(dtype, 3))


def check_spread(compiled: Compiled, dtype: DType, ledger: Ledger) -> None:
    rng = np.random.default_rng([4, dtype])
    for extent in EXTENTS:
        x, row, col, s = (
            with_special(moderate(dtype, shape, rng), rng)
            for shape in (extent, (1, extent[1]), (extent[0], 1), (1, 1))
        )
        y = np.ones((7, ROWS, COLS), dtype.numpy)
        compiled.run(x, row, col, s[0, 0], y)
        a, b, c, d = (wide(each) for each in (x, row, col, s))
        with np.errstate(all="ignore"):
            wanted = (a - b, b - a, a - c, c - a, a - d, d - a, c - b)
            for k, exact in enumerate(wanted):
                found = y[k, : extent[0], : extent[1]]
                if dtype in FLOATS:
                    ledger.near(Op.SUB, dtype, found, np.asarray(exact), [])
                else:
                    ledger.same(Op.SUB, dtype, found, wrapped(exact, dtype))
