"""Operations that move elements (and loops and branches) for each dtype, with what they must give.

A kernel writes one image per operation; what it must not touch stays 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pto_wsp import pto
from pto_wsp.dtypes import DType
from pto_wsp.kernels.tile_ir import Op, ScalarType, TileKernel
from pto_wsp.kernels.tile_ir.ops import FLOATS, INTEGERS
from pto_wsp.plan import AccessMode
from tests.kernels.tile_cpu.exact import wrapped
from tests.kernels.tile_cpu.ledger import Ledger, shapes_in
from tests.kernels.tile_cpu.native import Array, Compiled, out, ref, traced
from tests.kernels.tile_cpu.numbers import moderate, special, with_special

ROWS, COLS = 5, 72
EXTENTS = ((5, 72), (5, 71), (1, 72), (4, 1), (3, 3), (2, 33), (5, 2), (1, 1))
IMAGE = (8, 72, 72)
INDEX = sorted(INTEGERS)


def moves(dtype: DType) -> TileKernel:
    def kernel(x: Any, s: Any, y: Any, e: Any) -> None:
        t = pto.load(x[0:ROWS, 0:COLS])
        whole = pto.pad(t, s)
        part = whole[1:4, 11:41]
        made = [t, t.T, whole, t[1:4, 11:41], pto.reshape(whole, (8, 45))]
        made += [pto.concat([whole[0:5, 0:30], part], axis=0), pto.concat([part, part], axis=1)]
        for k, value in enumerate(made):
            pto.store(y[k, 0 : value.shape[0], 0 : value.shape[1]], value)
        pto.store(y[7, 0:2, 0:5], pto.full((2, 5), s))
        pto.store(y[7, 2:4, 0:5], pto.full((2, 5), pto.item(t, 0, 0)))
        pto.store(y[7, 4:6, 0:5], s)
        pto.store(e[0], x.shape[0])
        pto.store(e[1], x.shape[1])

    scalar = ScalarType(dtype)
    return traced(kernel, x=ref(dtype), s=scalar, y=out(dtype, 3), e=out(DType.I64, 1))


def _moved(x: Array, s: Any, y: Array) -> None:
    """What `moves` writes."""
    rows, cols = x.shape
    whole = np.full((ROWS, COLS), s, x.dtype)
    whole[:rows, :cols] = x
    part, there = whole[1:4, 11:41], x[1:4, 11:41]
    made = [x, x.T, whole, there, whole.reshape(8, 45)]
    made += [np.concatenate([whole[:, :30], part]), np.concatenate([part, part], axis=1)]
    for image, value in zip(y, made, strict=False):
        image[: value.shape[0], : value.shape[1]] = value
    y[7, 0:2, 0:5], y[7, 2:4, 0:5], y[7, 4:6, 0:5] = s, x[0, 0], s


_MOVES = (Op.LOAD, Op.TRANSPOSE, Op.PAD, Op.SLICE, Op.RESHAPE, Op.CONCAT, Op.CONCAT, Op.FULL)


def check_moves(compiled: Compiled, dtype: DType, ledger: Ledger) -> None:
    rng = np.random.default_rng([5, dtype])
    hard = special(dtype)
    for number in range(max(len(hard), 2 * len(EXTENTS))):
        extent, s = EXTENTS[number % len(EXTENTS)], hard[number % len(hard)]
        x = with_special(moderate(dtype, extent, rng), rng, 0.5)
        x[0, 0] = hard[(3 * number) % len(hard)]
        y, wanted, e = np.ones(IMAGE, dtype.numpy), np.ones(IMAGE, dtype.numpy), np.zeros(2, "i8")
        compiled.run(x, s, y, e)
        _moved(x, s, wanted)
        shapes = shapes_in(dtype, extent, (ROWS, COLS))
        for k, op in enumerate(_MOVES):
            ledger.same(op, dtype, y[k], wanted[k], f"image {k} of {extent}")
            ledger.note(op, dtype, [x, np.asarray(s)], shapes)
        for op in (Op.STORE, Op.ITEM, Op.EXTENT):
            ledger.note(op, dtype, [x], shapes)
        ledger.same(Op.EXTENT, dtype, e, np.array(extent, np.int64))


# --- rows by number ------------------------------------------------------------------------------


def rows_by_number(dtype: DType, index: DType) -> TileKernel:
    def kernel(x: Any, n: Any, y: Any, z: Any) -> None:
        numbers = pto.load(n[0:6, 0:1])
        found = pto.gather(x, numbers, COLS)
        pto.store(y[0, 0:6, 0:COLS], found)
        pto.store(y[1, 0:6, 0:COLS], pto.gather(pto.load(x[0:ROWS, 0:COLS]), numbers))
        pto.scatter(z, numbers, found)

    inout = ref(dtype, mode=AccessMode.INOUT)
    return traced(kernel, x=ref(dtype), n=ref(index), y=out(dtype, 3), z=inout)


def check_rows(compiled: Compiled, dtype: DType, index: DType, ledger: Ledger) -> None:
    rng = np.random.default_rng([6, dtype])
    info = np.iinfo(index.numpy)
    for extent in EXTENTS:
        rows, cols = extent
        x = with_special(moderate(dtype, extent, rng), rng, 0.5)
        n = np.array([0, rows - 1, rows, info.max, info.min, 0], index.numpy).reshape(6, 1)
        rng.shuffle(n)
        y, z = np.ones((2, 6, COLS), dtype.numpy), np.ones((4, 50), dtype.numpy)
        wanted, left = y.copy(), z.copy()
        compiled.run(x, n, y, z)
        for row, number in enumerate(int(each) for each in n[:, 0]):
            found = x[number] if 0 <= number < rows else np.zeros(cols, x.dtype)
            wanted[:, row, :cols] = found
            if 0 <= number < len(left):
                left[number, : min(50, cols)] = found[:50]
        ledger.same(Op.GATHER, dtype, y, wanted, f"by {index.text} of {extent}")
        ledger.same(Op.SCATTER, dtype, z, left, f"by {index.text} of {extent}")
        for op in (Op.GATHER, Op.SCATTER):
            ledger.note(op, dtype, [x], shapes_in(dtype, extent, (ROWS, COLS)))


# --- numbers that are made -----------------------------------------------------------------------

STARTS = ("0", "largest", "lowest")


def constants(dtype: DType) -> list[Any]:
    values = special(dtype)
    return [each.item() if dtype is not DType.BF16 else float(each) for each in values]


def made(dtype: DType) -> TileKernel:
    """Constants, as they are written in the kernel, and counting."""

    def kernel(s: Any, y: Any, rows: Any, cols: Any) -> None:
        for k, value in enumerate(constants(dtype)):
            pto.store(y[k], pto.scalar(value, dtype))
        if dtype is not DType.BOOL:
            pto.store(cols[0:3, 0:COLS], pto.arange((3, COLS), dtype, start=s))
            pto.store(rows[0:COLS, 0:3], pto.arange((COLS, 3), dtype, start=s, axis=0))

    results = {"y": out(dtype, 1), "rows": out(dtype), "cols": out(dtype)}
    return traced(kernel, s=ScalarType(dtype), **results)


def check_made(compiled: Compiled, dtype: DType, ledger: Ledger) -> None:
    hard = special(dtype)
    for s in hard:
        y, rows = np.ones(len(hard), dtype.numpy), np.ones((COLS, 3), dtype.numpy)
        cols = np.ones((3, COLS), dtype.numpy)
        compiled.run(s, y, rows, cols)
        ledger.same(Op.CONST, dtype, y, hard)
        ledger.note(Op.CONST, dtype, [hard], set())
        if dtype is DType.BOOL:
            continue
        with np.errstate(all="ignore"):
            wide = np.longdouble if dtype is DType.F64 else np.float64
            start = s.astype(wide) if dtype in FLOATS else int(s)
            steps = np.arange(COLS) if dtype in FLOATS else np.arange(COLS).astype(object)
            counted = start + steps
            for image in (cols, rows.T):
                for line in image:
                    if dtype in FLOATS:
                        ledger.near(Op.ARANGE, dtype, line, counted, [])
                    else:
                        ledger.same(Op.ARANGE, dtype, line, wrapped(counted, dtype))
        ledger.note(Op.ARANGE, dtype, [np.asarray(s)], set())


# --- loops and branches --------------------------------------------------------------------------


def control(dtype: DType) -> TileKernel:
    def kernel(x: Any, s: Any, n: Any, flag: Any, y: Any, last: Any) -> None:
        start = pto.full((2, COLS), s)
        c = pto.carry(even=start, other=start, item=s, count=pto.scalar(0, DType.I64))
        for i in pto.for_range(0, n, 2):
            t = pto.pad(pto.load(x[i : i + 2, 0:COLS]), s)
            with pto.when(flag):
                c.even, c.other = c.other, t
            with pto.otherwise():
                c.even = t
                c.item = pto.item(t, 0, 0)
            c.count = c.count + 1
        pto.store(y[0, 0:2, 0:COLS], c.even)
        pto.store(y[1, 0:2, 0:COLS], c.other)
        pto.store(y[2, 0:1, 0:1], c.item)
        pto.store(last[0], c.count)

    scalars = {"s": ScalarType(dtype), "n": ScalarType(DType.I64), "flag": ScalarType(DType.BOOL)}
    return traced(kernel, x=ref(dtype), **scalars, y=out(dtype, 3), last=out(DType.I64, 1))


def check_control(compiled: Compiled, dtype: DType, ledger: Ledger) -> None:
    rng = np.random.default_rng([8, dtype])
    hard = special(dtype)
    for number, extent in enumerate((*EXTENTS, *EXTENTS)):
        x = with_special(moderate(dtype, extent, rng), rng, 0.5)
        s, flag = hard[number % len(hard)], number >= len(EXTENTS)
        y, last = np.ones((3, 2, COLS), dtype.numpy), np.zeros(1, np.int64)
        compiled.run(x, s, extent[0], flag, y, last)
        even = other = np.full((2, COLS), s, x.dtype)
        item = s
        for i in range(0, extent[0], 2):
            t = np.full((2, COLS), s, x.dtype)
            t[: len(x[i : i + 2]), : extent[1]] = x[i : i + 2]
            if flag:
                even, other = other, t
            else:
                even, item = t, t[0, 0]
        ledger.same(Op.FOR, dtype, y[0], even)
        ledger.same(Op.FOR, dtype, y[1], other)
        ledger.same(Op.FOR, dtype, y[2, :1, 0], np.array([item]))
        assert last[0] == (extent[0] + 1) // 2
        ledger.note(Op.FOR, dtype, [x], shapes_in(dtype, extent, (ROWS, COLS)))
        ledger.note(Op.WHEN, DType.BOOL, [np.array([flag])], set())
