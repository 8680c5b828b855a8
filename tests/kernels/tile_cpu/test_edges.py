"""What is rare and must not go wrong: constants, names, empty regions, offsets far outside, tiles
that are needed in more than one place. One unit, compiled, against the meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pto_wsp import pto
from pto_wsp.dtypes import DType
from pto_wsp.kernels.cpp_words import CPP_WORDS
from pto_wsp.kernels.numpy_ops import TileFault
from pto_wsp.kernels.tile_ir import ScalarType
from pto_wsp.kernels.tile_writer import OWN_WORDS
from pto_wsp.plan import AccessMode
from tests.kernels.tile_cpu.native import Array, Compiled, compile_kernels, out, ref, traced

F32, I64 = DType.F32, ScalarType(DType.I64)
FAR = 2**63 - 2  # what is added to it wraps around
Table = dict[str, Compiled]
BOTH = ref(mode=AccessMode.INOUT)


def negated(y: Any) -> None:
    pto.store(y[0:2, 0:4], -pto.full((2, 4), -2.0, F32))
    pto.store(y[2:4, 0:4], -pto.full((2, 4), -float("inf"), F32))
    pto.store(y[4:5, 0:4], -pto.scalar(-3.0, F32))


def scalars_before_tiles(y: Any) -> None:
    s = pto.carry(scale=pto.scalar(1.0, F32), t=pto.zeros((2, 4)))
    for _ in pto.for_range(3):
        t = pto.full((2, 4), s.scale)
        s.scale = s.scale * 2.0
        s.t = t
    pto.store(y[0:2, 0:4], s.t)


def onto_itself(x: Any, y: Any, z: Any) -> None:
    t = pto.load(x[0:20, 0:20]) * 3
    u = pto.load(x[0:20, 0:20]) * 5
    pto.store(y[0:20, 0:20], pto.matmul_acc(t, t, t))
    pto.store(z[0:20, 0:20], pto.matmul_acc(u, pto.load(x[0:20, 0:20]), u.T))


def stored_and_used(x: Any, y: Any, z: Any, w: Any) -> None:
    t = pto.load(x[0:6, 0:20])
    e = pto.exp(t)
    pto.store(y[0:6, 0:20], e)  # which may be smaller than the tile
    pto.store(z[0:20, 0:6], e.T)
    f = pto.exp(t * 0.5)
    total = pto.row_sum(f + pto.load(y[0:1, 0:20]) * 0.0)  # as wide as y
    pto.store(w[0:6, 0:20], f + total)  # as wide as x


def grows(x: Any, y: Any, n: Any) -> None:
    s = pto.carry(t=pto.load(x[0:6, 0:20]))
    for _ in pto.for_range(n):
        s.t = pto.pad(pto.abs(s.t) + 1.0, 5.0)
    pto.store(y[0:6, 0:20], s.t)


def seen_before_it_is_partial(x: Any, y: Any, n: Any) -> None:
    s = pto.carry(t=pto.zeros((6, 20)))
    for _ in pto.for_range(n):
        pto.store(y[0:6, 0:20], s.t + 5.0)  # all of y in the first iteration
        s.t = pto.load(x[0:6, 0:20])


def handed_on(x: Any, y: Any, n: Any) -> None:
    s = pto.carry(t=pto.zeros((6, 20)))
    for _ in pto.for_range(n):
        s.t = pto.abs(s.t) * 2.0 + pto.load(x[0:6, 0:20])  # nobody sees more than x has
    pto.store(y[0:6, 0:20], s.t)


def empty_stores(y: Any, n: Any) -> None:
    pto.store(y[n : n + 1, 0:1], 1.0)
    pto.store(y[n : n + 1, 0:4], 2.0)
    pto.store(y[n : n + 1, 0:4], pto.zeros((1, 4)))
    pto.store(y[n : n + 3, 0:1], pto.zeros((3, 1)))
    pto.store(y[0:1, n : n + 1], 3.0)


def far_load(x: Any, y: Any, n: Any) -> None:
    pto.store(y[0:4, 0:8], pto.load(x[n : n + 4, 0:8]) + 1.0)


def far_store(y: Any, n: Any) -> None:
    pto.store(y[n : n + 4, 0:8], pto.zeros((4, 8)))


def far_slice(x: Any, y: Any, n: Any) -> None:
    pto.store(y[0:2, 0:8], pto.load(x[0:4, 0:8])[n : n + 2, :])


def largest(x: Any, y: Any, n: Any) -> None:
    pto.store(y[0:4, 0:1], pto.topk(pto.load(x[0:4, n : n + 8]), 1)[0])


def first_column(x: Any, y: Any, n: Any) -> None:
    pto.store(y[0:4, 0:1], pto.gather(x, pto.arange((4, 1), axis=0) + pto.cast(n, DType.I32), 1))


def _names() -> list[list[str]]:
    """What C++, or the source itself, calls something else; as many at a time as a kernel takes."""
    words = sorted(CPP_WORDS | OWN_WORDS)
    words += ["vexp", "Tile", "NULL", "v3", "x_tile", "x_rows", "_x", "__y", "é"]
    return [words[first : first + 28] for first in range(0, len(words), 28)]


def names(x: Any, y: Any, *scalars: Any) -> None:
    s = pto.carry(t=pto.zeros((4, 8)))
    for i in pto.for_range(0, x.shape[0], 4):
        block = pto.pad(pto.load(x[i : i + 4, 0:8]), 0.0)
        for each in scalars:
            block = pto.maximum(block * each, pto.load(x[0, 0]))
        s.t = s.t + block
    pto.store(y[0:4, 0:8], s.t)


def _traced() -> dict[str, Any]:
    whole = ref(DType.I64), out(DType.I64)
    plain: list[Callable[..., None]] = [far_load, far_slice, largest, first_column]
    kernels = {each.__name__: traced(each, x=ref(), y=out(), n=I64) for each in plain}
    kernels |= {each.__name__: traced(each, y=out()) for each in (negated, scalars_before_tiles)}
    kernels |= {each.__name__: traced(each, y=BOTH, n=I64) for each in (empty_stores, far_store)}
    kernels["onto_itself"] = traced(onto_itself, x=whole[0], y=whole[1], z=whole[1])
    kernels["stored_and_used"] = traced(stored_and_used, x=ref(), y=BOTH, z=out(), w=out())
    for each in (grows, seen_before_it_is_partial, handed_on):
        kernels[each.__name__] = traced(each, x=ref(), y=out(), n=I64)
    for number, words in enumerate(_names()):
        scalars = {word: ScalarType(F32) for word in words}
        kernels[f"names{number}"] = traced(names, x=ref(), y=out(), **scalars)
    return kernels


@pytest.fixture(scope="module")
def compiled() -> Table:
    kernels = _traced()
    return dict(zip(kernels, compile_kernels(list(kernels.values()), level=1), strict=True))


def zeros(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


def some(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def agree(kernel: Compiled, *arguments: Any) -> None:
    for ours, theirs in zip(*kernel.both(*arguments), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_constants_are_negated(compiled: Table) -> None:
    agree(compiled["negated"], zeros(5, 4))


def test_a_tile_of_a_carried_scalar_is_that_of_its_iteration(compiled: Table) -> None:
    agree(compiled["scalars_before_tiles"], zeros(2, 4))


def test_a_product_onto_one_of_its_operands(compiled: Table) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (20, 20))
    agree(compiled["onto_itself"], x, np.zeros_like(x), np.zeros_like(x))


@pytest.mark.parametrize("extent", [(6, 20), (3, 20), (6, 7), (2, 3)])
def test_a_store_that_ends_early_leaves_the_tile_whole(
    compiled: Table, extent: tuple[int, int]
) -> None:
    agree(compiled["stored_and_used"], some(6, 20), zeros(*extent), zeros(20, 6), zeros(6, 20))


@pytest.mark.parametrize("times", [0, 1, 3])
def test_a_carried_tile_becomes_whole(compiled: Table, times: int) -> None:
    agree(compiled["grows"], some(4, 7), zeros(6, 20), times)


@pytest.mark.parametrize("times", [0, 1, 2, 3])
@pytest.mark.parametrize("name", ["seen_before_it_is_partial", "handed_on"])
def test_a_carried_tile_becomes_partial(compiled: Table, name: str, times: int) -> None:
    agree(compiled[name], some(4, 7), zeros(6, 20), times)


@pytest.mark.parametrize("row", [1, 2, 3, FAR])
def test_nothing_is_written_outside(compiled: Table, row: int) -> None:
    ours, theirs = zeros(8, 8), zeros(8, 8)
    compiled["empty_stores"].run(ours[:2, :2], row)
    compiled["empty_stores"].meaning(theirs[:2, :2], row)
    np.testing.assert_array_equal(ours, theirs)


def test_offsets_far_outside(compiled: Table) -> None:
    agree(compiled["far_load"], some(8, 8), zeros(4, 8), FAR)
    agree(compiled["far_store"], zeros(4, 8), FAR)


@pytest.mark.parametrize(
    ("name", "x", "n"),
    [("far_slice", some(4, 8), FAR), ("largest", some(4, 8), 8), ("first_column", some(4, 0), 0)],
)
def test_both_fail(compiled: Table, name: str, x: Array, n: int) -> None:
    with pytest.raises(TileFault):
        compiled[name].meaning(x, zeros(4, 8), n)
    with pytest.raises(RuntimeError, match=r"test_edges\.py:\d+"):
        compiled[name].run(x, zeros(4, 8), n)


def test_names_that_mean_something_in_cpp(compiled: Table) -> None:
    for number, words in enumerate(_names()):
        scales = [1.0 + position / 64 for position, _ in enumerate(words)]
        agree(compiled[f"names{number}"], some(10, 8), zeros(4, 8), *scales)
