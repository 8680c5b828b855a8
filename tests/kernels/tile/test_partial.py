"""Partial tiles: one rule, operations compute where all their operands have elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pto_wsp.dtypes import DType
from pto_wsp.errors import CompileError
from pto_wsp.kernels import pto
from pto_wsp.kernels.numpy_ops import TileFault
from pto_wsp.kernels.tile_ir import TileType
from pto_wsp.plan import AccessMode
from tests.kernels.tile.tracing import compute, out, run, scalar, tensor, tile, traced

F32 = DType.F32


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    return np.arange(1, 1 + int(np.prod(shape)), dtype=np.float32).reshape(shape)


@given(st.integers(0, 6), st.integers(0, 7), st.integers(0, 6), st.integers(0, 7))
def test_elementwise_on_what_both_have(r1: int, c1: int, r2: int, c2: int) -> None:
    a, b = numbers(r1, c1), 10 * numbers(r2, c2)
    rows, cols = min(r1, r2), min(c1, c2)
    found = compute(
        lambda x, y: x + y, a, b, result=F32, shape=(6, 7), tiles=[(6, 7)] * 2, whole=(6, 7)
    )
    wanted = np.zeros((6, 7), np.float32)
    wanted[:rows, :cols] = a[:rows, :cols] + b[:rows, :cols]
    np.testing.assert_array_equal(found, wanted)


@given(st.integers(1, 6), st.integers(1, 7))
def test_what_has_one_row_has_it_everywhere(rows: int, cols: int) -> None:
    a, row, column = numbers(rows, cols), numbers(1, cols), numbers(rows, 1)
    found = compute(
        lambda x, y, z: x * y + z,
        *(a, row, column),
        result=F32,
        shape=(rows, cols),
        tiles=[(6, 7), (1, 7), (6, 1)],
        whole=(6, 7),
    )
    np.testing.assert_array_equal(found, a * row + column)


def test_one_row_of_many_is_not_spread() -> None:
    """Extents of the type decide what is spread, not those of a run."""
    found = compute(
        lambda x, y: x + y,
        *(numbers(1, 2), numbers(3, 2)),
        result=F32,
        shape=(3, 2),
        tiles=[(3, 2)] * 2,
    )
    assert found[1:].tolist() == [[0, 0], [0, 0]]


@given(st.integers(0, 5), st.integers(0, 6), st.integers(0, 6), st.integers(0, 4))
def test_products_over_what_both_have(m: int, k1: int, k2: int, n: int) -> None:
    a, b = numbers(m, k1), numbers(k2, n)
    inner = min(k1, k2)
    found = compute(
        pto.matmul, a, b, result=F32, shape=(m, n), tiles=[(5, 6), (6, 4)], whole=(5, 4)
    )
    np.testing.assert_allclose(found, a[:, :inner] @ b[:inner], rtol=1e-6)


def test_reductions_see_only_what_is_there() -> None:
    x = -numbers(2, 3)
    at = {"tiles": [(4, 8)], "whole": (4, 1), "result": F32, "shape": (2, 1)}
    assert compute(pto.row_max, x, **at).ravel().tolist() == [-1, -4]
    assert compute(pto.row_mean, x, **at).ravel().tolist() == [-2, -5]
    at["shape"] = (4, 1)
    assert compute(pto.row_sum, x, **at).ravel().tolist() == [-6, -15, 0, 0]


def test_reductions_of_nothing() -> None:
    def ends(y: Any, x: Any) -> None:
        columns = [pto.row_sum(x), pto.row_max(x), pto.row_min(x), pto.row_mean(x)]
        columns.append(pto.cast(pto.row_argmax(x), F32))
        pto.store(y, pto.concat(columns, axis=1))

    kernel = traced(ends, y=out(2, 5), x=tile(2, 8))
    y = np.ones((2, 5), np.float32)
    run(kernel, y, np.zeros((2, 0), np.float32))
    np.testing.assert_array_equal(y, [[0, -np.inf, np.inf, np.nan, 0]] * 2)
    found = compute(
        pto.row_max, np.zeros((1, 0), np.int8), result=DType.I8, shape=(1, 1), tiles=[(1, 4)]
    )
    assert found[0, 0] == -128


def test_pad_makes_it_whole() -> None:
    found = compute(
        lambda x: pto.pad(x, -1.0), numbers(2, 2), result=F32, shape=(3, 4), tiles=[(3, 4)]
    )
    assert found.tolist() == [[1, 2, -1, -1], [3, 4, -1, -1], [-1, -1, -1, -1]]


def test_slices_and_order_of_what_is_there() -> None:
    found = compute(lambda x: x[0:4, 2:6], numbers(2, 3), result=F32, shape=(4, 4), tiles=[(4, 8)])
    assert found[:, 0].tolist() == [3, 6, 0, 0]
    assert not found[:, 1:].any()
    found = compute(
        lambda x: pto.topk(x, 4)[0], numbers(2, 3), result=F32, shape=(2, 4), tiles=[(2, 8)]
    )
    assert found.tolist() == [[3, 2, 1, 0], [6, 5, 4, 0]]


def test_partial_is_part_of_the_type() -> None:
    def kernel(y: Any, x: Any, row: Any) -> None:
        pto.store(y, pto.row_sum(x * row) + pto.zeros((4, 1)))

    found = traced(kernel, y=out(4, 1), x=tile(4, 8), row=tile(8))
    types = [result.type for each in found.body for result in each.results]
    tiles = [each for each in types if isinstance(each, TileType)]
    assert [each.partial for each in tiles] == [
        (True, True),
        (False, True),  # rank 1 is one row, and that one is there
        (True, True),
        (True, False),
        (False, False),
        (True, False),
    ]


def test_loads_and_stores_at_the_edge() -> None:
    def shift(y: Any, x: Any, at: Any) -> None:
        pto.store(y[at + 1 : at + 5, 0:4], pto.load(x[at : at + 4, 0:4]))

    out_mode = AccessMode.INOUT
    kernel = traced(shift, y=tensor(2, mode=out_mode), x=tensor(2), at=scalar(DType.I32))
    x, y = numbers(6, 3), np.zeros((6, 4), np.float32)
    run(kernel, y, x, 3)
    assert y[4:, :3].tolist() == x[3:5].tolist()
    assert not y[:4].any()
    assert not y[:, 3].any()
    run(kernel, y, x, 6)  # beyond the end there is nothing to load, and nowhere to store
    with pytest.raises(TileFault, match="index -1 of dimension 0"):
        run(kernel, y, x, -1)


def test_what_is_picked_must_exist() -> None:
    def pick(y: Any, x: Any, at: Any) -> None:
        pto.store(y[0:4], pto.load(x[at, 0:4]))

    kernel = traced(pick, y=tensor(1, mode=AccessMode.OUT), x=tensor(2), at=scalar(DType.I64))
    y = np.zeros(4, np.float32)
    run(kernel, y, numbers(2, 4), 1)
    assert y.tolist() == [5, 6, 7, 8]
    with pytest.raises(TileFault, match="index 2 of dimension 0, which has 2 elements"):
        run(kernel, y, numbers(2, 4), 2)

    def only(y: Any, x: Any) -> None:
        pto.store(y, x)

    with pytest.raises(TileFault, match="a tile of 1 row has 0 here"):
        run(traced(only, y=out(1, 4), x=tile(1, 4)), y, numbers(0, 4))


def test_scatter_writes_rows_that_exist() -> None:
    def put(y: Any, rows: Any, x: Any) -> None:
        pto.scatter(y, rows, x)

    mode = AccessMode.INOUT
    kernel = traced(put, y=tensor(2, mode=mode), rows=tile(4, 1, dtype=DType.I32), x=tile(4, 3))
    y = np.zeros((3, 2), np.float32)
    run(kernel, y, np.array([[2], [-1], [2], [5]], np.int32), numbers(4, 3))
    assert y.tolist() == [[0, 0], [0, 0], [7, 8]]  # the last of equal rows, as many columns as fit


def test_gather_from_a_parameter() -> None:
    def take(y: Any, x: Any, rows: Any) -> None:
        pto.store(y, pto.gather(x, rows, cols=4))

    kernel = traced(take, y=out(3, 4), x=tensor(2), rows=tile(3, 1, dtype=DType.I64))
    y = np.full((3, 4), 9, np.float32)
    run(kernel, y, numbers(5, 3), np.array([[4], [9], [0]]))
    assert y.tolist() == [[13, 14, 15, 9], [0, 0, 0, 9], [1, 2, 3, 9]]


def test_concat_along_a_partial_axis_is_refused() -> None:
    def side_by_side(y: Any, x: Any) -> None:
        pto.store(y, pto.concat([x, x], axis=1))

    with pytest.raises(CompileError, match=r"concat of f32\[4\?, 8\?\], which may be partial") as e:
        traced(side_by_side, y=out(4, 16), x=tile(4, 8))
    assert e.value.fix == "fill it first: pto.pad(x, 0.0)"
