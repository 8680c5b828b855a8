"""Operations that are fused, loops and branches, compiled, against the meaning."""

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


def partial_moves(x: Any, y: Any, z: Any) -> None:
    t = pto.load(x[0:6, 0:40])
    pto.store(y[0:40, 0:6], t.T + 1.0)
    pto.store(z[0:4, 0:20], t[1:5, 10:30])


def product(a: Any, b: Any, c: Any, y: Any) -> None:
    left, right = pto.load(a[0:20, 0:24]), pto.load(b[0:18, 0:24])
    acc = pto.load(c[0:20, 0:18])
    pto.store(y[0, 0:20, 0:18], pto.matmul(left, right.T))
    pto.store(y[1, 0:20, 0:18], pto.matmul_acc(acc, left, right.T) + acc)


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
    kernels = {
        "partial moves": traced(partial_moves, x=ref(), y=out(), z=out()),
        "product": traced(product, a=ref(), b=ref(), c=ref(), y=out(rank=3)),
    }
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


@pytest.mark.parametrize("extent", EXTENTS)
def test_moves(compiled: Table, extent: tuple[int, int]) -> None:
    x = data(*extent)
    outputs = [np.zeros(shape, np.float32) for shape in ((40, 6), (14, 26))]
    same(compiled["partial moves"].both(x, *outputs))


@pytest.mark.parametrize(
    ("rows", "cols", "inner"), [(20, 18, 24), (7, 18, 24), (20, 5, 11), (1, 1, 1)]
)
def test_products(compiled: Table, rows: int, cols: int, inner: int) -> None:
    a, b, c = data(rows, inner), data(cols, inner, seed=1), data(rows, cols, seed=2)
    same(compiled["product"].both(a, b, c, np.zeros((2, 20, 18), "f4")), 1e-6)
    turned = np.asfortranarray(a), np.asfortranarray(b), c
    same(compiled["product"].both(*turned, np.zeros((2, 20, 18), "f4")), 1e-6)


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
