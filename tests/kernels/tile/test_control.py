"""Loops, conditions, and the values that they carry."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pto_wsp import In, Out, Scalar, Tensor, Tile, kernel
from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.kernels import pto
from pto_wsp.kernels.numpy_ops import TileFault
from pto_wsp.kernels.tile_ir import Op, Statement, TileKernel, TileType
from pto_wsp.plan import AccessMode
from tests.kernels.tile.tracing import out, run, scalar, tensor, tile, traced

I64 = DType.I64


def partials(loop: Statement) -> list[tuple[bool, bool]]:
    return [each.type.partial for each in loop.results if isinstance(each.type, TileType)]


def statements(kernel: TileKernel) -> list[Statement]:
    def walk(body: tuple[Statement, ...]) -> list[Statement]:
        found: list[Statement] = []
        for each in body:
            found.append(each)
            for block in each.blocks:
                found += walk(block.body)
        return found

    return walk(kernel.body)


def result(function: Any, *arguments: Any, **params: Any) -> list[float]:
    y = np.zeros(4, np.int64)
    kernel = traced(function, y=out(4, dtype=I64), **params)
    run(kernel, y, *arguments)
    return y.tolist()


@given(st.integers(-3, 9), st.integers(-3, 9), st.integers(1, 4))
def test_loops_count_as_python_does(start: int, stop: int, step: int) -> None:
    def total(y: Any, a: Any, b: Any, c: Any) -> None:
        s = pto.carry(sum=0, count=0)
        for i in pto.for_range(a, b, c):
            s.sum = s.sum + i
            s.count += 1
        pto.store(y[0:1], s.sum)
        pto.store(y[1:2], s.count)

    params = {name: scalar(I64) for name in "abc"}
    wanted = range(start, stop, step)
    assert result(total, start, stop, step, **params)[:2] == [sum(wanted), len(wanted)]


def test_a_step_from_outside_goes_up() -> None:
    def loop(y: Any, c: Any) -> None:
        for i in pto.for_range(0, 4, c):
            pto.store(y, i)

    with pytest.raises(TileFault, match="a step of 0"):
        result(loop, 0, c=scalar(I64))


@pytest.mark.parametrize("value", [-2, 0, 3])
def test_branches(value: int) -> None:
    def sign(y: Any, n: Any) -> None:
        s = pto.carry(x=7, kept=5, other=1)
        with pto.when(n > 0):
            s.x = n * 10
            s.other = s.x + 1
        with pto.otherwise():
            s.x = -n
        with pto.when(n == 0):
            s.kept = s.x + 100
        pto.store(y[0:1], s.x)
        pto.store(y[1:2], s.kept)
        pto.store(y[2:3], s.other)

    x, other = (value * 10, value * 10 + 1) if value > 0 else (-value, 1)
    kept = x + 100 if value == 0 else 5
    assert result(sign, value, n=scalar(I64))[:3] == [x, kept, other]


def test_nested_loops_and_branches() -> None:
    def count(y: Any, n: Any) -> None:
        s = pto.carry(pairs=0, odd=0)
        for i in pto.for_range(n):
            inner = pto.carry(row=0)
            for _ in pto.for_range(i):
                inner.row = inner.row + 1
                with pto.when(i % 2 == 1):
                    s.odd = s.odd + 1
            s.pairs = s.pairs + inner.row
        pto.store(y[0:1], s.pairs)
        pto.store(y[1:2], s.odd)

    wanted = [sum(range(6)), sum(i for i in range(6) if i % 2)]
    assert result(count, 6, n=scalar(I64))[:2] == wanted


def test_what_does_not_change_is_not_carried() -> None:
    def kernel(y: Any, n: Any) -> None:
        s = pto.carry(changes=0, stays=3)
        for i in pto.for_range(n):
            s.changes = s.changes + i * s.stays
        pto.store(y[0:1], s.changes)
        pto.store(y[1:2], s.stays)

    found = traced(kernel, y=out(4, dtype=I64), n=scalar(I64))
    (loop,) = [each for each in statements(found) if each.op is Op.FOR]
    assert [each.name for each in loop.results] == ["changes"]
    assert result(kernel, 4, n=scalar(I64))[:2] == [18, 3]


def test_values_exchanged_in_a_loop() -> None:
    def fibonacci(y: Any, n: Any) -> None:
        s = pto.carry(a=0, b=1)
        for _ in pto.for_range(n):
            s.a, s.b = s.b, s.a + s.b
        pto.store(y[0:1], s.a)

    assert result(fibonacci, 10, n=scalar(I64))[0] == 55


def test_a_loop_that_turns_whole_tiles_into_partial_ones() -> None:
    """What it begins with is whole; the first iteration makes it partial, and so is the result."""

    def maxima(y: Any, x: Any) -> None:
        s = pto.carry(m=pto.full((8, 1), -1.0, DType.F32), first=pto.zeros((8, 1)))
        for i in pto.for_range(0, x.shape[1], 4):
            s.first = s.m
            s.m = pto.maximum(s.m, pto.row_max(pto.load(x[0:8, i : i + 4])))
        pto.store(y, s.m + 0.0 * s.first)

    kernel = traced(maxima, y=out(8, 1), x=tensor(2))
    (loop,) = [each for each in kernel.body if each.op is Op.FOR]
    assert partials(loop) == [(True, False)] * 2
    x = np.random.default_rng(1).random((5, 11)).astype(np.float32)
    y = np.zeros((5, 1), np.float32)
    run(kernel, y, x)
    np.testing.assert_array_equal(y, x.max(1, keepdims=True))


def test_widening_reaches_nested_loops_and_refuses_what_cannot_be() -> None:
    def nested(y: Any, x: Any) -> None:
        s = pto.carry(m=pto.zeros((8, 4)), n=pto.zeros((8, 4)))
        for _ in pto.for_range(2):
            for _ in pto.for_range(2):
                s.n = s.n + s.m
            s.m = s.m + pto.load(x[0:8, 0:4])
        pto.store(y, s.n)

    kernel = traced(nested, y=out(8, 4), x=tensor(2))
    loops = [each for each in statements(kernel) if each.op is Op.FOR]
    assert all(partial == (True, True) for each in loops for partial in partials(each))

    def reshaped(y: Any, x: Any) -> None:
        s = pto.carry(m=pto.zeros((8, 4)))
        for _ in pto.for_range(2):
            pto.store(y, pto.reshape(s.m, (4, 8)))
            s.m = s.m + pto.load(x[0:8, 0:4])

    with pytest.raises(CompileError, match=r"reshape .* may be partial") as caught:
        traced(reshaped, y=out(4, 8), x=tensor(2))
    assert caught.value.loc is not None
    assert "pto.reshape" in caught.value.loc.render()


def test_a_parameter_is_loaded_again_after_a_store() -> None:
    def twice(x: Any) -> None:
        a = x + 1.0
        pto.store(x, a)
        pto.store(x, x * 2.0)
        for _ in pto.for_range(3):
            pto.store(x, x + 1.0)
        with pto.when(pto.item(x) > 0.0):
            pto.store(x, x * 10.0)
        pto.store(x, x + 0.5)

    kernel = traced(twice, x=tile(2, 2, mode=AccessMode.INOUT))
    x = np.ones((2, 2), np.float32)
    run(kernel, x)
    assert x.tolist() == [[70.5, 70.5], [70.5, 70.5]]


def test_a_parameter_that_is_only_read_is_loaded_once() -> None:
    def kernel(y: Any, x: Any) -> None:
        s = pto.carry(sum=x)
        for _ in pto.for_range(3):
            s.sum = s.sum + x
        pto.store(y, s.sum + x)

    found = traced(kernel, y=out(2, 2), x=tile(2, 2))
    assert sum(each.op is Op.LOAD for each in statements(found)) == 1


def test_index_arithmetic_gives_constant_lengths() -> None:
    def kernel(y: Any, x: Any, n: Any, at: Any) -> None:
        for i in pto.for_range(n):
            pto.store(y[i * 4 : (i + 1) * 4], pto.load(x[at - i : 4 + (at - i)]))
            pto.store(y[2 * i + at : i + at + 8 + i], pto.load(x[0:8]))

    mode = AccessMode.INOUT
    found = traced(kernel, y=tensor(1, mode=mode), x=tensor(1), n=scalar(DType.I32), at=scalar(I64))
    sizes = [each.attribute("sizes") for each in statements(found) if each.op is Op.LOAD]
    assert sizes == [(4,), (8,)]


def test_scalars_in_memory() -> None:
    def kernel(y: Any, x: Any) -> None:
        first = pto.load(x[0])
        pto.store(y[0], first * 2.0)
        pto.store(y[1:3], first)

    found = traced(kernel, y=tensor(1, mode=AccessMode.OUT), x=tensor(1))
    y = np.zeros(4, np.float32)
    run(found, y, np.array([3.0, 4.0], np.float32))
    assert y.tolist() == [6, 3, 3, 0]


def test_a_carried_tile_that_would_lose_elements_is_refused() -> None:
    """A block at the end of x has fewer rows; a sum over blocks would have no more than those."""

    @kernel(body="tile")
    def total(x: In[Tensor], y: Out[Tile[4, 8, DType.F32]]):
        s = pto.carry(sum=pto.zeros((4, 8)))
        for i in pto.for_range(0, x.shape[0], 4):
            s.sum = s.sum + pto.load(x[i : i + 4, 0:8])
        pto.store(y, s.sum)

    with pytest.raises(CompileError, match="sum would lose rows from iteration to iteration") as e:
        total.trace(x=(DType.F32, 2))
    assert e.value.code is Code.TILE_CARRY
    assert e.value.loc is not None


def test_a_carried_tile_that_is_seen_before_it_loses_elements_is_refused() -> None:
    """The first iteration would store more rows than the others."""

    @kernel(body="tile")
    def total(x: In[Tensor], y: Out[Tile[4, 8, DType.F32]], n: Scalar[DType.I64]):
        s = pto.carry(sum=pto.zeros((4, 8)))
        for _ in pto.for_range(n):
            pto.store(y, s.sum)
            s.sum = s.sum + pto.load(x[0:4, 0:8])

    with pytest.raises(CompileError, match="sum would lose rows") as e:
        total.trace(x=(DType.F32, 2))
    assert e.value.code is Code.TILE_CARRY


def test_carried_tiles_that_keep_their_extents() -> None:
    """A padded block is whole; a block that replaces the one before it loses nothing."""

    @kernel(body="tile")
    def total(x: In[Tensor], y: Out[Tile[4, 8, DType.F32]], last: Out[Tile[4, 8, DType.F32]]):
        s = pto.carry(sum=pto.zeros((4, 8)), last=pto.zeros((4, 8)))
        for i in pto.for_range(0, x.shape[0], 4):
            s.last = pto.load(x[i : i + 4, 0:8])
            s.sum = s.sum + pto.pad(s.last, 0.0)
        pto.store(y, s.sum)
        pto.store(last, s.last)

    x = np.arange(48, dtype=np.float32).reshape(6, 8)
    y, last = np.zeros((4, 8), np.float32), np.full((4, 8), -1, np.float32)
    total.run(x=x, y=y, last=last)
    assert np.array_equal(y[:2], x[:2] + x[4:])
    assert np.array_equal(y[2:], x[2:4])
    assert np.array_equal(last[:2], x[4:])
    assert (last[2:] == -1).all()
