"""Reductions, moves, products, sorting, loops and branches, compiled, against the meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pto_wsp import pto
from pto_wsp.dtypes import DType
from pto_wsp.kernels.tile_ir import ScalarType
from pto_wsp.plan import AccessMode
from tests.kernels.tile_cpu.native import Array, Compiled, compile_kernels, out, ref, traced

F32, I64 = DType.F32, ScalarType(DType.I64)
Table = dict[str, Compiled]


def reductions(x: Any, rows: Any, cols: Any, best: Any, best_col: Any) -> None:
    t = pto.load(x[0:6, 0:40])
    for number, name in enumerate(("sum", "max", "min", "mean")):
        pto.store(rows[0:6, number : number + 1], getattr(pto, f"row_{name}")(t))
        pto.store(cols[number : number + 1, 0:40], getattr(pto, f"col_{name}")(t))
    pto.store(best[0:6, 0:1], pto.row_argmax(t))
    pto.store(best_col[0:1, 0:40], pto.col_argmax(t))


def whole_reductions(x: Any, rows: Any, cols: Any) -> None:
    t = pto.load(x[0:6, 0:40])
    for number, name in enumerate(("sum", "max", "min")):
        pto.store(rows[0:6, number : number + 1], getattr(pto, f"row_{name}")(t))
        pto.store(cols[number : number + 1, 0:40], getattr(pto, f"col_{name}")(t))


def moves(x: Any, y: Any, z: Any, flat: Any) -> None:
    t = pto.pad(pto.load(x[0:6, 0:40]), 7.0)
    pto.store(y[0:40, 0:6], t.T)
    pto.store(flat[0:3, 0:80], pto.reshape(t, (3, 80)))
    left, right = t[0:6, 0:13], t[2:4, 5:18]
    pto.store(z[0:8, 0:13], pto.concat([left, right], axis=0))
    pto.store(z[8:14, 0:26], pto.concat([left, t[0:6, 20:33]], axis=1))


def partial_moves(x: Any, y: Any, z: Any) -> None:
    t = pto.load(x[0:6, 0:40])
    pto.store(y[0:40, 0:6], t.T + 1.0)
    pto.store(z[0:4, 0:20], t[1:5, 10:30])


def rows_by_number(x: Any, n: Any, y: Any, z: Any) -> None:
    numbers = pto.load(n[0:5, 0:1])
    found = pto.gather(x, numbers, 24)
    pto.store(y[0:5, 0:24], found)
    pto.scatter(z, numbers, found * 2.0)


def product(a: Any, b: Any, c: Any, y: Any) -> None:
    left, right = pto.load(a[0:20, 0:24]), pto.load(b[0:18, 0:24])
    acc = pto.load(c[0:20, 0:18])
    pto.store(y[0, 0:20, 0:18], pto.matmul(left, right.T))
    pto.store(y[1, 0:20, 0:18], pto.matmul_acc(acc, left, right.T) + acc)


def half_product(a: Any, b: Any, y: Any) -> None:
    pto.store(y[0:20, 0:18], pto.matmul(pto.load(a[0:20, 0:24]), pto.load(b[0:24, 0:18])))


def sorting(x: Any, top: Any, where: Any, low: Any, order: Any) -> None:
    t = pto.load(x[0:6, 0:40])
    values, indices = pto.topk(t, 5)
    pto.store(top[0:6, 0:5], values)
    pto.store(where[0:6, 0:5], indices)
    values, indices = pto.sort(t)
    pto.store(low[0:6, 0:40], values)
    pto.store(order[0:6, 0:40], indices)


def loop(x: Any, n: Any, y: Any, last: Any) -> None:
    s = pto.carry(
        total=pto.zeros((4, 16)), other=pto.full((4, 16), 1.0, F32), k=pto.scalar(0, DType.I64)
    )
    for i in pto.for_range(0, n, 4):
        t = pto.load(x[i : i + 4, 0:16])
        s.total, s.other = s.other, s.total + t
        s.k = s.k + i
    pto.store(y[0, 0:4, 0:16], s.total)
    pto.store(y[1, 0:4, 0:16], s.other)
    pto.store(last[0], s.k)


def branch(x: Any, n: Any, y: Any) -> None:
    t = pto.load(x[0:4, 0:16])
    s = pto.carry(v=t * 2.0, f=pto.scalar(1.0, F32))
    with pto.when(n > 3):
        s.v = s.v + 100.0
        s.f = s.f + 1.0
    with pto.when(n > 5):
        s.v = pto.exp(t) - s.f
    with pto.otherwise():
        s.v = s.v * s.f
    pto.store(y[0:4, 0:16], s.v)


def masks(x: Any, n: Any, y: Any) -> None:
    t = pto.load(x[0:8, 0:24])
    rows = pto.arange((8, 1), DType.I64, start=n, axis=0)
    cols = pto.arange((1, 24), DType.I64)
    s = pto.where(rows >= cols, t, -1.0)
    pto.store(y[0, 0:8, 0:24], s - pto.row_max(s))
    pto.store(y[1, 0:8, 0:24], pto.cast(pto.arange((8, 24), F32, start=0.5), F32) * t)
    pto.store(y[2, 0:8, 0:24], 5.0)
    pto.store(y[3, 0:8, 0:24], pto.where(pto.load(y[2, 0:8, 0:24]) > t, t, 0.0))


def in_place(x: Any) -> None:
    t = pto.load(x[0:8, 0:24])
    pto.store(x[0:7, 0:24], t[1:8, 0:24])
    pto.store(x[7:8, 0:24], t[0:1, 0:24] + pto.item(t, 2, 3))


def layernorm(x: Any, g: Any, b: Any, y: Any) -> None:
    t = pto.load(x[0:8, 0:128])
    centred = t - pto.row_mean(t)
    scale = pto.rsqrt(pto.row_mean(centred * centred) + 1e-5)
    pto.store(y[0:8, 0:128], centred * scale * pto.load(g[0:128]) + pto.load(b[0:128]))


def flash(q: Any, k: Any, v: Any, y: Any, n: Any, scale: Any) -> None:
    query = pto.load(q[0:16, 0:32])
    s = pto.carry(
        high=pto.full((16, 1), float("-inf"), F32),
        total=pto.zeros((16, 1)),
        acc=pto.zeros((16, 32)),
    )
    for j in pto.for_range(0, n, 24):
        score = pto.matmul(query, pto.load(k[j : j + 24, 0:32]).T) * scale
        high = pto.maximum(s.high, pto.row_max(score))
        p = pto.exp(score - high)
        alpha = pto.exp(s.high - high)
        s.total = s.total * alpha + pto.row_sum(p)
        s.acc = pto.matmul_acc(s.acc * alpha, p, pto.load(v[j : j + 24, 0:32]))
        s.high = high
    pto.store(y[0:16, 0:32], s.acc / s.total)


@pytest.fixture(scope="module")
def compiled() -> Table:
    i32 = DType.I32
    kernels = {
        f"reductions {dtype.text}": traced(
            reductions,
            x=ref(dtype),
            rows=out(dtype),
            cols=out(dtype),
            best=out(i32),
            best_col=out(i32),
        )
        for dtype in (F32, DType.F64, DType.F16)
    }
    for dtype in (DType.I8, DType.U64):
        kernels[f"reductions {dtype.text}"] = traced(
            whole_reductions, x=ref(dtype), rows=out(dtype), cols=out(dtype)
        )
    kernels["moves"] = traced(moves, x=ref(), y=out(), z=out(), flat=out())
    kernels["partial moves"] = traced(partial_moves, x=ref(), y=out(), z=out())
    by_number = {"x": ref(), "n": ref(DType.I32), "y": out(), "z": ref(mode=AccessMode.INOUT)}
    kernels["rows by number"] = traced(rows_by_number, **by_number)
    kernels["product"] = traced(product, a=ref(), b=ref(), c=ref(), y=out(rank=3))
    kernels["product f16"] = traced(half_product, a=ref(DType.F16), b=ref(DType.F16), y=out())
    kernels["product i8"] = traced(half_product, a=ref(DType.I8), b=ref(DType.I8), y=out(i32))
    kernels["product i64"] = traced(
        half_product, a=ref(DType.I64), b=ref(DType.I64), y=out(DType.I64)
    )
    for dtype in (F32, DType.F16, DType.I32):
        kernels[f"sorting {dtype.text}"] = traced(
            sorting, x=ref(dtype), top=out(dtype), where=out(i32), low=out(dtype), order=out(i32)
        )
    kernels["loop"] = traced(loop, x=ref(), n=I64, y=out(rank=3), last=out(DType.I64, 1))
    kernels["branch"] = traced(branch, x=ref(), n=I64, y=out())
    kernels["masks"] = traced(masks, x=ref(), n=I64, y=ref(F32, 3, AccessMode.INOUT))
    kernels["in place"] = traced(in_place, x=ref(mode=AccessMode.INOUT))
    kernels["layernorm"] = traced(layernorm, x=ref(), g=ref(rank=1), b=ref(rank=1), y=out())
    attention = {"q": ref(), "k": ref(), "v": ref(), "y": out(), "n": I64, "scale": ScalarType(F32)}
    kernels["flash"] = traced(flash, **attention)
    return dict(zip(kernels, compile_kernels(list(kernels.values())), strict=True))


def same(pair: tuple[list[Array], list[Array]], tolerance: float = 0.0) -> None:
    for ours, theirs in zip(*pair, strict=True):
        if ours.dtype.kind in "iub":
            np.testing.assert_array_equal(ours, theirs)
        else:
            scale = tolerance * max(
                1.0, float(np.nanmax(np.abs(theirs), initial=0, where=np.isfinite(theirs)))
            )
            np.testing.assert_allclose(ours.astype("f8"), theirs.astype("f8"), tolerance, scale)


def data(*shape: int, dtype: DType = F32, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    if dtype.numpy.kind in "iu":
        low = 0 if dtype.name[0] == "U" else -100
        return rng.integers(low, 100, shape).astype(dtype.numpy)
    return rng.standard_normal(shape).astype(dtype.numpy)


EXTENTS = [(6, 40), (4, 33), (1, 40), (6, 1), (3, 7)]


@pytest.mark.parametrize("dtype", [F32, DType.F64, DType.F16], ids=lambda d: d.text)
@pytest.mark.parametrize("extent", EXTENTS)
def test_reductions(compiled: Table, extent: tuple[int, int], dtype: DType) -> None:
    x = data(*extent, dtype=dtype)
    tolerance = {F32: 1e-6, DType.F64: 1e-14, DType.F16: 2e-3}[dtype]
    for hole in (None, np.nan, np.inf, -np.inf):
        if hole is not None:
            x[-1, -1] = hole
        rows, cols = np.zeros((6, 4), dtype.numpy), np.zeros((4, 40), dtype.numpy)
        best, best_col = np.zeros((6, 1), np.int32), np.zeros((1, 40), np.int32)
        same(compiled[f"reductions {dtype.text}"].both(x, rows, cols, best, best_col), tolerance)


@pytest.mark.parametrize("dtype", [DType.I8, DType.U64], ids=lambda d: d.text)
def test_integer_reductions(compiled: Table, dtype: DType) -> None:
    for extent in EXTENTS:
        rows, cols = np.zeros((6, 3), dtype.numpy), np.zeros((3, 40), dtype.numpy)
        x = data(*extent, dtype=dtype)
        same(compiled[f"reductions {dtype.text}"].both(x, rows, cols))


@pytest.mark.parametrize("extent", EXTENTS)
def test_moves(compiled: Table, extent: tuple[int, int]) -> None:
    x = data(*extent)
    outputs = [np.zeros(shape, np.float32) for shape in ((40, 6), (14, 26), (3, 80))]
    same(compiled["moves"].both(x, *outputs))
    same(compiled["partial moves"].both(x, *outputs[:2]))


def test_rows_by_number(compiled: Table) -> None:
    for cols in (24, 10):
        n = np.array([[3], [0], [-1], [9], [3]], np.int32)
        same(
            compiled["rows by number"].both(data(7, cols), n, np.zeros((5, 24), "f4"), data(8, 24))
        )


@pytest.mark.parametrize(
    ("rows", "cols", "inner"), [(20, 18, 24), (7, 18, 24), (20, 5, 11), (1, 1, 1)]
)
def test_products(compiled: Table, rows: int, cols: int, inner: int) -> None:
    a, b, c = data(rows, inner), data(cols, inner, seed=1), data(rows, cols, seed=2)
    same(compiled["product"].both(a, b, c, np.zeros((2, 20, 18), "f4")), 1e-6)
    turned = np.asfortranarray(a), np.asfortranarray(b), c
    same(compiled["product"].both(*turned, np.zeros((2, 20, 18), "f4")), 1e-6)
    for dtype in (DType.F16, DType.I8, DType.I64):
        a, b = data(rows, inner, dtype=dtype), data(inner, cols, dtype=dtype, seed=1)
        to = {DType.F16: "f4", DType.I8: "i4", DType.I64: "i8"}[dtype]
        same(compiled[f"product {dtype.text}"].both(a, b, np.zeros((20, 18), to)), 1e-6)


@pytest.mark.parametrize("dtype", [F32, DType.F16, DType.I32], ids=lambda d: d.text)
def test_sorting(compiled: Table, dtype: DType) -> None:
    for extent in ((6, 40), (5, 33), (2, 3)):
        x = data(*extent, dtype=dtype)
        x[:, ::3] = x[:, :1]
        top, where = np.zeros((6, 5), dtype.numpy), np.zeros((6, 5), np.int32)
        low, order = np.zeros((6, 40), dtype.numpy), np.zeros((6, 40), np.int32)
        same(compiled[f"sorting {dtype.text}"].both(x, top, where, low, order))


@pytest.mark.parametrize("rows", [12, 11, 4, 1])
def test_loops(compiled: Table, rows: int) -> None:
    for cols in (16, 9):
        y, last = np.zeros((2, 4, 16), "f4"), np.zeros(1, "i8")
        same(compiled["loop"].both(data(rows, cols), rows, y, last), 1e-6)


def test_branches(compiled: Table) -> None:
    for n in (0, 4, 7):
        for extent in ((4, 16), (3, 11)):
            same(compiled["branch"].both(data(*extent), n, np.zeros((4, 16), "f4")), 1e-6)


def test_masks(compiled: Table) -> None:
    for extent in ((8, 24), (5, 10)):
        same(compiled["masks"].both(data(*extent), 3, np.zeros((4, 8, 24), "f4")), 1e-6)


def test_stores_come_after_loads(compiled: Table) -> None:
    same(compiled["in place"].both(data(8, 24)))


def test_norm_and_attention(compiled: Table) -> None:
    for rows, cols in ((8, 128), (5, 100)):
        g, b = data(cols), data(cols, seed=1)
        same(compiled["layernorm"].both(data(rows, cols), g, b, np.zeros((8, 128), "f4")), 2e-6)
    for rows, tokens, width in ((16, 48, 32), (16, 50, 32), (9, 23, 32), (16, 30, 20)):
        q, k, v = (data(r, width, seed=i) for i, r in enumerate((rows, tokens, tokens)))
        y = np.zeros((16, 32), "f4")
        same(compiled["flash"].both(q, k, v, y, tokens, 0.3), 2e-6)


def test_failures_name_the_line(compiled: Table) -> None:
    with pytest.raises(RuntimeError, match=r"item: outside of the tile \(test_tiles.py:\d+\)"):
        compiled["in place"].run(data(2, 24))
    with pytest.raises(
        RuntimeError, match=r"index 0 of dimension 0, which has 0 elements \(store of last"
    ):
        compiled["loop"].run(data(4, 16), 4, np.zeros((2, 4, 16), "f4"), np.zeros(0, "i8"))
