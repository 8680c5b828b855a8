"""Moves, memory, products, order and control as Triton, on tiles of odd shapes, also partial."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pto_wsp import pto
from pto_wsp.dtypes import DType
from pto_wsp.kernels.tile_ir import RefType, ScalarType
from pto_wsp.kernels.tile_ir.ops import FLOATS, PRODUCT
from pto_wsp.kernels.triton_code import ParamFacts, TritonOptions
from pto_wsp.plan import AccessMode
from tests.kernels.triton.harness import (
    COMPILES,
    PagedRegion,
    assert_same,
    both,
    out,
    ref,
    run,
    traced,
)
from tests.kernels.triton.test_elementwise import numbers

F32, BF16, I8, I32, I64, BOOL = DType.F32, DType.BF16, DType.I8, DType.I32, DType.I64, DType.BOOL
runs = pytest.mark.skipif(COMPILES, reason="the code is compiled, not run")
SOME = [F32, BF16, DType.U64, BOOL]
ROWS, COLS = 5, 12


def check(kernel: Any, arguments: list[Any], options: TritonOptions | None = None) -> None:
    """Nothing is rounded: the same bits."""
    for mine, meant in zip(*both(kernel, arguments, options), strict=True):
        assert_same(mine, meant)


def inout(dtype: DType = F32, rank: int = 2) -> RefType:
    return ref(dtype, rank, AccessMode.INOUT)


@pytest.mark.parametrize("dtype", SOME, ids=lambda d: d.text)
@pytest.mark.parametrize("extent", [(5, 12), (4, 3)], ids=str)
def test_moves(dtype: DType, extent: tuple[int, int]) -> None:
    def moves(x: Any, s: Any, n: Any, y: Any, e: Any) -> None:
        t = pto.load(x[0:ROWS, 0:COLS])
        whole = pto.pad(t, s)
        part = whole[1:4, 3:9]
        made = [t, t.T, whole, t[1:4, 2:9], pto.reshape(whole, (6, 10)), whole[n : n + 2, 0:5]]
        made += [pto.concat([whole[0:5, 0:6], part], axis=0), pto.concat([part, part], axis=1)]
        made += [pto.reshape(whole[0:4, 0:8], (8, 4)), t[0:1, 0:4], t[0:4, 2:3]]
        for k, value in enumerate(made):
            pto.store(y[k, 0 : value.shape[0], 0 : value.shape[1]], value)
        k = len(made)
        pto.store(y[k, 0:2, 0:5], pto.full((2, 5), s))
        pto.store(y[k, 2:4, 0:5], pto.full((2, 5), pto.item(t, n, 1)))
        pto.store(y[k, 4:6, 0:5], s)
        if dtype is not BOOL:
            pto.store(y[k + 1, 0:3, 0:12], pto.arange((3, 12), dtype, start=s))
            pto.store(y[k + 1, 3:12, 0:3], pto.arange((9, 3), dtype, axis=0))
        pto.store(e[0], x.shape[0])
        pto.store(e[1], x.shape[1])

    types: dict[str, Any] = {"s": ScalarType(dtype), "n": ScalarType(I64)}
    kernel = traced(moves, x=ref(dtype), **types, y=out(dtype, 3), e=out(I64, 1))
    y = np.ones((13, 12, 12), dtype.numpy)
    x = numbers(dtype, extent)
    check(kernel, [x, numbers(dtype, (1,), 4)[0], 1, y, np.zeros(2, "i8")])


@pytest.mark.parametrize("index", [I32, DType.U64, I8], ids=lambda d: d.text)
def test_rows_by_number(index: DType) -> None:
    def rows_by_number(x: Any, n: Any, y: Any, z: Any) -> None:
        at = pto.load(n[0:6, 0:1])
        found = pto.gather(x, at, COLS)
        pto.store(y[0, 0:6, 0:COLS], found)
        pto.store(y[1, 0:6, 0:COLS], pto.gather(pto.load(x[0:ROWS, 0:COLS]), at))
        pto.scatter(z, at, found)

    kernel = traced(rows_by_number, x=ref(), n=ref(index), y=out(F32, 3), z=inout())
    info = np.iinfo(index.numpy)
    for rows, cols in ((5, 12), (3, 7)):
        n = np.array([[0], [2], [info.max], [2], [info.min], [1]], index.numpy)
        y, z = np.ones((2, 6, COLS), "f4"), np.ones((4, 9), "f4")
        check(kernel, [numbers(F32, (rows, cols)), n, y, z])


def product(a: Any, b: Any, c: Any, y: Any, M: int, K: int, N: int) -> None:
    left, right = pto.load(a[0:M, 0:K]), pto.load(b[0:K, 0:N])
    pto.store(y[0, 0:M, 0:N], pto.matmul(left, right))
    pto.store(y[1, 0:M, 0:N], pto.matmul_acc(pto.load(c[0:M, 0:N]), left, right))
    pto.store(y[2, 0:M, 0:N], pto.matmul(pto.load(b[0:K, 0:N]).T, left.T).T)


# What shapes of products need does not depend on the dtype, so some dtypes have a few only.
ODD, ROW = (3, 5, 7), (1, 6, 4)
PRODUCTS = [(d, s) for d in (F32, BF16, I8) for s in (ODD, ROW, (16, 16, 16), (4, 6, 1), (3, 1, 5))]
PRODUCTS += [(d, s) for d in (DType.F64, DType.F16, DType.U8, DType.I16) for s in (ODD, ROW)]


@pytest.mark.parametrize(("dtype", "shape"), PRODUCTS)
def test_products(dtype: DType, shape: tuple[int, int, int]) -> None:
    M, K, N = shape
    to = PRODUCT.get(dtype, dtype)
    types = {"a": ref(dtype), "b": ref(dtype), "c": ref(to), "y": out(to, 3)}
    kernel = traced(product, **types, M=M, K=K, N=N)
    rng = np.random.default_rng(7)
    # The inner extents differ: what one of them lacks does not count, whatever the other has there.
    for m, ka, kb, n in ((M, K, K, N), (max(M - 1, 1), K, max(K - 2, 1), max(N - 2, 1))):
        a, b = (rng.integers(-9, 9, s).astype(dtype.numpy) for s in ((m, ka), (kb, n)))
        if dtype in FLOATS and ka > kb:
            a[0, kb:] = np.nan
        c = rng.integers(-9, 9, (m, n)).astype(to.numpy)
        check(kernel, [a, b, c, np.ones((3, m, n), to.numpy)])


@pytest.mark.parametrize("dtype", [d for d in DType if d is not BOOL], ids=lambda d: d.text)
def test_order(dtype: DType) -> None:
    def order(x: Any, y: Any, p: Any) -> None:
        t = pto.load(x[0:3, 0:7])
        pairs = [pto.sort(t), pto.sort(t, descending=False), pto.topk(t, 3), pto.topk(t, 1)]
        for k, (values, places) in enumerate(pairs):
            pto.store(y[k, 0:3, 0 : values.shape[1]], values)
            pto.store(p[k, 0:3, 0 : values.shape[1]], places)

    kernel = traced(order, x=ref(dtype), y=out(dtype, 3), p=out(I32, 3))
    for rows, cols in ((3, 7), (2, 2)) if dtype in (F32, I64) else ((3, 5),):
        y, p = np.ones((4, 3, 7), dtype.numpy), np.ones((4, 3, 7), "i4")
        check(kernel, [numbers(dtype, (rows, cols)), y, p])


@pytest.mark.parametrize("dtype", SOME, ids=lambda d: d.text)
def test_control(dtype: DType) -> None:
    def control(x: Any, s: Any, n: Any, flag: Any, y: Any, last: Any) -> None:
        start = pto.full((2, COLS), s)
        c = pto.carry(even=start, other=start, item=s, count=pto.scalar(0, I64))
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

    scalars = {"s": ScalarType(dtype), "n": ScalarType(I64), "flag": ScalarType(BOOL)}
    kernel = traced(control, x=ref(dtype), **scalars, y=out(dtype, 3), last=out(I64, 1))
    for extent, flag in (((5, 12), True), ((3, 7), False), ((0, 7), True)):
        y, last = np.ones((3, 2, COLS), dtype.numpy), np.zeros(1, np.int64)
        check(kernel, [numbers(dtype, extent), numbers(dtype, (1,))[0], extent[0], flag, y, last])


def test_bounds_that_change_in_loops_and_branches() -> None:
    """What a loop carries has the extents of the iteration before; a branch those of its side."""

    def moving(x: Any, n: Any, flag: Any, y: Any) -> None:
        c = pto.carry(last=pto.zeros((4, 8)), seen=pto.zeros((4, 8)))
        for i in pto.for_range(0, n, 4):
            pto.store(y[0, i : i + 4, 0:8], c.last + 1.0)
            c.last = pto.load(x[i : i + 4, 0:8])
            with pto.when(flag):
                c.seen = c.last
        pto.store(y[1, 0:4, 0:8], c.last * 2.0)
        pto.store(y[1, 4:8, 0:8], c.seen)

    scalars = {"n": ScalarType(I64), "flag": ScalarType(BOOL)}
    kernel = traced(moving, x=ref(), **scalars, y=inout(F32, 3))
    for n in (0, 4, 6, 9):
        for flag in (False, True):
            x = numbers(F32, (6, 5), n)
            check(kernel, [x, n, flag, np.ones((2, 12, 8), "f4")])


def test_memory_in_order() -> None:
    """A load sees what was stored before it."""

    def in_order(x: Any) -> None:
        for i in pto.for_range(0, 3):
            pto.store(x[i + 1], pto.load(x[i]) + pto.load(x[i + 1]))
        pto.store(x[0:4], pto.load(x[1:5]) * 2.0)
        pto.store(x[2:6], pto.load(x[0:4]))

    kernel = traced(in_order, x=inout(F32, 1))
    check(kernel, [np.arange(6, dtype="f4")])


@pytest.mark.parametrize("extent", [0, 3, 9, 16])
def test_pages(extent: int) -> None:
    """Tokens as rows, as columns, one by one and by number."""
    paged = RefType(BF16, 3, AccessMode.INOUT, None, paged=True)
    flat = RefType(F32, 2, AccessMode.INOUT, None, paged=True)

    def pages(x: Any, z: Any, n: Any, y: Any, w: Any) -> None:
        for at in pto.for_range(0, x.shape[0], 8):
            pto.store(y[at : at + 8, 0:6], pto.load(x[at : at + 8, 1, 0:6]))
            pto.store(w[0, at : at + 8], pto.load(z[at : at + 8, 2]))
            pto.store(x[at : at + 8, 0, 0:6], pto.load(x[at : at + 8, 1, 0:6]) + 1.0)
        rows = pto.gather(z, pto.load(n[0:4, 0:1]), 5)
        pto.store(w[1, 0:5], rows[1:2, 0:5])
        pto.scatter(z, pto.load(n[0:4, 0:1]), rows + 1.0)
        with pto.when(x.shape[0] > 2):
            pto.store(w[2, 0], pto.load(z[2, 3]))
            pto.store(w[3:5, 0:6], pto.cast(pto.load(x[1, 0:2, 0:6]), F32))

    types = {"x": paged, "z": flat, "n": ref(I32), "y": inout(BF16), "w": inout()}
    kernel = traced(pages, **types)
    x = PagedRegion(numbers(BF16, (extent, 2, 6)).astype("f4").clip(-3, 3).astype(BF16.numpy))
    z = PagedRegion(numbers(F32, (extent, 5), 2), page=8, first=2)
    facts = {"z": ParamFacts(page=8, table_stride=1, page_stride=40, strides=(5, 1))}
    n = np.array([[1], [0], [20], [1]], "i4")
    y, w = np.ones((20, 6), BF16.numpy), np.ones((6, 20), "f4")
    check(kernel, [x, z, n, y, w], TritonOptions(params=facts))


@runs
def test_faults_have_a_line() -> None:
    def picks(x: Any, i: Any, y: Any) -> None:
        t = pto.load(x[0:4, 0:4])
        pto.store(y[0], pto.load(x[i, 0]))
        pto.store(y[1], pto.item(t, i, 0))
        pto.store(y[2:4], t[i : i + 1, 0:2])

    kernel = traced(picks, x=ref(), i=ScalarType(I64), y=out(F32, 1))
    x, y = np.ones((3, 4), "f4"), np.zeros(4, "f4")
    assert run(kernel, [x, 2, y]) is None
    for wrong in (-1, 3, 7):
        fault = run(kernel, [x, wrong, y])
        assert fault is not None
        assert "outside" in fault
        assert "test_tiles.py:" in fault


@runs
def test_products_in_narrow_precision() -> None:
    """An operand that was half stays half; the other is rounded to it."""

    def narrow(q: Any, k: Any, y: Any) -> None:
        left = pto.load(q[0:16, 0:32]) * 0.5
        right = pto.cast(pto.load(k[0:16, 0:32]), F32)
        pto.store(y, pto.matmul(left, right.T))

    kernel = traced(narrow, q=ref(), k=ref(BF16), y=RefType(F32, 2, AccessMode.OUT, (16, 16)))
    rng = np.random.default_rng(1)
    q, k = rng.standard_normal((16, 32)).astype("f4"), rng.standard_normal((16, 32))
    k = k.astype(BF16.numpy)
    y = np.zeros((16, 16), "f4")
    for options in (TritonOptions(narrow=True), TritonOptions(tf32=True)):
        assert run(kernel, [q, k, y], options) is None
        left = (q * np.float32(0.5)).astype(BF16.numpy) if options.narrow else q * 0.5
        exact = left.astype("f8") @ k.astype("f8").T
        np.testing.assert_allclose(y, exact, rtol=0, atol=1e-4 if options.narrow else 2e-2)
