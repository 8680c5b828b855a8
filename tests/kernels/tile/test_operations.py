"""Every operation against NumPy, computed in float64 where there are floats."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pto_wsp.dtypes import DType
from pto_wsp.kernels import pto
from pto_wsp.kernels.numpy_ops import COMPUTE
from pto_wsp.kernels.tile_ir import OPS, Group, Op
from pto_wsp.kernels.tile_ir.ops import DTYPES, FLOATS, INTEGERS
from tests.kernels.tile.operations import BINARY, COMPARE, REDUCTIONS, UNARY
from tests.kernels.tile.tracing import compute

Array = np.ndarray[Any, Any]
SHAPES = ((1, 1), (3, 5), (16, 8))
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 1.0, -1.0, 0.5, 3.75, 80.0, -80.0]
# Of the last place of a number of that dtype: a function may be off by that, an operation by half.
ULP = {DType.F64: 2.0**-52, DType.F32: 2.0**-23, DType.F16: 2.0**-10, DType.BF16: 2.0**-7}
NAMED = {dtype.text: dtype for dtype in DType}


def sample(dtype: DType, shape: tuple[int, int], seed: int, special: bool = True) -> Array:
    """Numbers of all kinds that the dtype has."""
    rng = np.random.default_rng([seed, int(dtype), *shape])
    if dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype in INTEGERS:
        info = np.iinfo(dtype.numpy)
        values = rng.integers(info.min, info.max, shape, dtype.numpy, endpoint=True)
        small = rng.integers(0, 5, shape).astype(dtype.numpy)
        return np.where(rng.random(shape) < 0.5, values, small)
    values = rng.normal(size=shape) * 3
    if special:
        chosen = rng.choice(SPECIAL, shape)
        values = np.where(rng.random(shape) < 0.4, chosen, values)
    with np.errstate(all="ignore"):
        return values.astype(dtype.numpy)


def close(found: Array, wanted: Array, dtype: DType, ulps: float = 2.0) -> None:
    """Equal to a few units in the last place, and where both overflow or are NaN."""
    if dtype not in FLOATS:
        np.testing.assert_array_equal(found, wanted.astype(dtype.numpy))
        return
    with np.errstate(all="ignore"):
        exact = wanted.astype(np.float64)
        rounded = exact.astype(dtype.numpy).astype(np.float64)
        got = found.astype(np.float64)
        tiny = float(np.finfo(np.float32 if dtype is DType.BF16 else dtype.numpy).tiny)
        bound = ulps * ULP[dtype] * np.maximum(np.abs(exact), tiny)
        same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
        assert np.all(same | (np.abs(got - exact) <= bound)), (found, wanted)


def as_meant(array: Array) -> Array:
    return array.astype(np.float64) if DType.of(array.dtype) in FLOATS else array


def cases(table: dict[Op, Any]) -> list[Any]:
    return [
        pytest.param(op, dtype, id=f"{op.value}-{dtype.text}")
        for op in table
        for dtype in sorted(DTYPES[OPS[op].types])
    ]


def test_every_elementwise_operation_is_here() -> None:
    groups = {Group.UNARY: UNARY, Group.BINARY: BINARY, Group.COMPARE: COMPARE}
    for group, table in groups.items():
        assert set(table) == {op for op, info in OPS.items() if info.group is group}


def test_every_operation_has_a_meaning() -> None:
    own = {Op.LOAD, Op.STORE, Op.EXTENT, Op.GATHER, Op.SCATTER, Op.FOR, Op.WHEN}
    assert set(COMPUTE) | own == set(Op)


@pytest.mark.parametrize(("op", "dtype"), cases(UNARY))
def test_unary(op: Op, dtype: DType) -> None:
    ours, theirs = UNARY[op]
    for shape in SHAPES:
        x = sample(dtype, shape, 1)
        found = compute(ours, x, result=dtype, shape=shape)
        with np.errstate(all="ignore"):
            close(found, np.asarray(theirs(as_meant(x))), dtype)


@pytest.mark.parametrize(("op", "dtype"), cases(BINARY))
def test_binary(op: Op, dtype: DType) -> None:
    ours, theirs = BINARY[op]
    for shape, other in (((3, 5), (3, 5)), ((3, 5), (1, 5)), ((3, 1), (3, 5)), ((3, 1), (1, 5))):
        a, b = sample(dtype, shape, 1), sample(dtype, other, 2)
        whole = np.broadcast_shapes(shape, other)
        found = compute(ours, a, b, result=dtype, shape=(whole[0], whole[1]))
        with np.errstate(all="ignore"):
            close(found, np.asarray(theirs(as_meant(a), as_meant(b))), dtype, 4.0)


@pytest.mark.parametrize(("op", "dtype"), cases(COMPARE))
def test_compare(op: Op, dtype: DType) -> None:
    ours, theirs = COMPARE[op]
    a, b = sample(dtype, (6, 7), 1), sample(dtype, (6, 7), 2)
    b[::2] = a[::2]
    found = compute(ours, a, b, result=DType.BOOL, shape=(6, 7))
    np.testing.assert_array_equal(found, theirs(as_meant(a), as_meant(b)))


@pytest.mark.parametrize("dtype", DType, ids=lambda dtype: dtype.text)
def test_where_and_moves(dtype: DType) -> None:
    a, b = sample(dtype, (4, 6), 1), sample(dtype, (1, 6), 2)
    mask = sample(DType.BOOL, (4, 1), 3)

    def same(found: Array, wanted: Array) -> None:
        np.testing.assert_array_equal(as_meant(found), as_meant(wanted))

    same(compute(pto.where, mask, a, b, result=dtype, shape=(4, 6)), np.where(mask, a, b))
    same(compute(lambda x: x.T, a, result=dtype, shape=(6, 4)), a.T)
    same(compute(lambda x: x[1:3, 2:6], a, result=dtype, shape=(2, 4)), a[1:3, 2:6])
    same(compute(lambda x: x[2], a, result=dtype, shape=(1, 6)), a[2:3])
    filler: Any = False if dtype is DType.BOOL else 0
    reshaped = compute(
        lambda x: pto.reshape(pto.pad(x, filler), (3, 8)), a, result=dtype, shape=(3, 8)
    )
    same(reshaped, a.reshape(3, 8))
    joined = compute(
        lambda x, y: pto.concat([pto.pad(x, filler), pto.pad(y, filler)]),
        *(a, b),
        result=dtype,
        shape=(5, 6),
    )
    same(joined, np.concatenate([a, b]))
    rows = np.array([[2], [0], [7], [-1]], np.int32)
    found = compute(pto.gather, a, rows, result=dtype, shape=(4, 6))
    wanted = np.zeros_like(a)
    wanted[:2] = a[[2, 0]]
    same(found, wanted)
    item = compute(lambda x: pto.full((1, 1), pto.item(x, 3, 1)), a, result=dtype, shape=(1, 1))
    same(item, a[3:, 1:2])


@pytest.mark.parametrize(("op", "dtype"), cases(REDUCTIONS))
def test_reductions(op: Op, dtype: DType) -> None:
    along_rows, along_cols, theirs = REDUCTIONS[op]
    result = DType.I32 if op is Op.ARGMAX_OF else dtype
    exact = op in (Op.MAX_OF, Op.MIN_OF, Op.ARGMAX_OF)
    x = sample(dtype, (9, 17), 1, special=exact)
    for axis, ours, shape in ((1, along_rows, (9, 1)), (0, along_cols, (1, 17))):
        found = compute(ours, x, result=result, shape=shape)
        source = as_meant(x)
        with np.errstate(all="ignore"):
            wanted = np.expand_dims(theirs(source, axis=axis), axis)
        if dtype in FLOATS and not exact:
            # What cancels is lost: the bound is of the sum of what is added.
            bound = 20 * ULP[dtype] * np.sum(np.abs(source), axis=axis, keepdims=True)
            assert np.all(np.abs(found.astype(np.float64) - wanted) <= bound)
        else:
            close(found, np.asarray(wanted), result)


def test_reductions_over_everything() -> None:
    x = sample(DType.F32, (5, 6), 1, special=False)
    for ours, theirs in ((pto.sum, np.sum), (pto.max, np.max), (pto.min, np.min)):
        found = compute(ours, x, result=DType.F32, shape=(1, 1))
        np.testing.assert_allclose(found[0, 0], theirs(x.astype(np.float64)), rtol=1e-5)


@pytest.mark.parametrize("source", DType, ids=lambda dtype: dtype.text)
def test_casts(source: DType) -> None:
    x = sample(source, (8, 16), 1)
    meant = as_meant(x)
    for to in set(DType) - {source}:
        found = compute(lambda t, to=to: pto.cast(t, to), x, result=to, shape=x.shape)
        if to is DType.BOOL:
            np.testing.assert_array_equal(found, meant != 0)
        elif to in FLOATS:
            close(found, meant.astype(np.float64), to, 0.51)
        elif source in FLOATS:
            info = np.iinfo(to.numpy)
            wanted = [_saturated(float(v), info.min, info.max) for v in meant.ravel()]
            np.testing.assert_array_equal(found.ravel(), np.array(wanted, to.numpy))
        else:
            np.testing.assert_array_equal(found, x.astype(to.numpy))


def _saturated(value: float, low: int, high: int) -> int:
    if math.isnan(value):
        return 0
    if math.isinf(value):
        return high if value > 0 else low
    return max(low, min(high, round(value)))


@pytest.mark.parametrize(
    ("rounding", "wanted"),
    [
        ("nearest", [-3, -2, -2, 0, 0, 2, 2, 127, -128, 0]),
        ("zero", [-2, -2, -1, 0, 0, 1, 2, 127, -128, 0]),
        ("floor", [-3, -3, -2, -1, 0, 1, 2, 127, -128, 0]),
        ("ceil", [-2, -2, -1, 0, 1, 2, 3, 127, -128, 0]),
    ],
)
def test_roundings(rounding: str, wanted: list[int]) -> None:
    x = np.array([[-2.7, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 1e9, -1e9, np.nan]], np.float32)
    found = compute(lambda t: pto.cast(t, DType.I8, rounding), x, result=DType.I8, shape=(1, 10))
    assert found[0].tolist() == wanted


@pytest.mark.parametrize("dtype", sorted(FLOATS | INTEGERS), ids=lambda dtype: dtype.text)
def test_products(dtype: DType) -> None:
    a, b = sample(dtype, (5, 33), 1, special=False), sample(dtype, (33, 7), 2, special=False)
    half, small = (DType.F16, DType.BF16), (DType.I8, DType.U8)
    result = DType.F32 if dtype in half else DType.I32 if dtype in small else dtype
    found = compute(pto.matmul, a, b, result=result, shape=(5, 7))
    acc = sample(result, (5, 7), 3, special=False)
    more = compute(pto.matmul_acc, acc, a, b, result=result, shape=(5, 7))
    if dtype in FLOATS:
        wanted = as_meant(a) @ as_meant(b)
        bound = 40 * ULP[result] * (np.abs(as_meant(a)) @ np.abs(as_meant(b)))
        assert np.all(np.abs(found - wanted) <= bound)
        assert np.all(np.abs(more - (as_meant(acc) + wanted)) <= bound + 1e-5)
        return
    exact = a.astype(object) @ b.astype(object)
    bits = 8 * result.size
    low = np.array([int(v) & ((1 << bits) - 1) for v in exact.ravel()], np.uint64)
    wrapped = low.astype(f"u{result.size}").view(result.numpy).reshape(5, 7)
    np.testing.assert_array_equal(found, wrapped)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(more, acc + wrapped)


@pytest.mark.parametrize("dtype", sorted(FLOATS | INTEGERS), ids=lambda dtype: dtype.text)
def test_order(dtype: DType) -> None:
    x = sample(dtype, (6, 11), 1)
    keys = [[(math.isnan(float(v)), v) if dtype in FLOATS else v for v in row] for row in x]
    for descending in (False, True):
        places = compute(
            lambda t, down=descending: pto.sort(t, descending=down)[1],
            x,
            result=DType.I32,
            shape=x.shape,
        )
        values = compute(
            lambda t, down=descending: pto.sort(t, descending=down)[0],
            x,
            result=dtype,
            shape=x.shape,
        )
        np.testing.assert_array_equal(as_meant(values), as_meant(np.take_along_axis(x, places, 1)))
        for row, found in zip(keys, places, strict=True):
            # Python's sort is stable, backwards too; NaNs are equal to each other here.
            row = [
                (key[0], 0.0 if key[0] else float(key[1])) if dtype in FLOATS else key
                for key in row
            ]
            assert found.tolist() == sorted(range(11), key=row.__getitem__, reverse=descending)
    top = compute(lambda t: pto.topk(t, 3)[1], x, result=DType.I32, shape=(6, 3))
    np.testing.assert_array_equal(
        top,
        compute(lambda t: pto.sort(t, descending=True)[1], x, result=DType.I32, shape=x.shape)[
            :, :3
        ],
    )


def test_making_tiles() -> None:
    def both(x: Any) -> Any:
        rows = pto.arange((3, 4), DType.F32, start=2.0, axis=0)
        return rows * 10.0 + pto.arange((3, 4), DType.F32) + pto.zeros((1, 4)) + 0.0 * x

    found = compute(both, np.zeros((3, 4), np.float32), result=DType.F32, shape=(3, 4))
    np.testing.assert_array_equal(found, np.arange(2.0, 5.0)[:, None] * 10 + np.arange(4.0))


def test_numbers_on_either_side() -> None:
    x = sample(DType.F32, (2, 3), 1, special=False)
    found = compute(
        lambda t: (1 - t) * 2 / 4 + np.float32(1) * t - abs(t) ** 2 + 2.0**t,
        x,
        result=DType.F32,
        shape=(2, 3),
    )
    wide = x.astype(np.float64)
    np.testing.assert_allclose(
        found, (1 - wide) * 2 / 4 + wide - np.abs(wide) ** 2 + 2.0**wide, rtol=2e-5, atol=1e-6
    )
    whole = np.array([[7, -7, 9]], np.int32)
    found = compute(lambda t: -(t // 2) + t % 4 ^ 1 & 3 | 8, whole, result=DType.I32, shape=(1, 3))
    np.testing.assert_array_equal(found, -(whole // 2) + whole % 4 ^ 1 & 3 | 8)


def test_half_precision_rounds_once_per_operation() -> None:
    x = np.array([[2048.0]], np.float16)
    found = compute(lambda t: (t + 1.0) + 1.0, x, result=DType.F16, shape=(1, 1))
    assert found[0, 0] == 2048.0  # 2049 is no f16: each sum rounds back
    found = compute(
        lambda t: pto.cast((pto.cast(t, DType.F32) + 1.0) + 1.0, DType.F16),
        x,
        result=DType.F16,
        shape=(1, 1),
    )
    assert found[0, 0] == 2050.0
