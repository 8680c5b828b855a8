"""Products over pages that are computed together, among other statements: as one by one."""

# Annotations are values here, made from the arguments around them.
# pyright: basic, reportInvalidTypeForm=false, reportArgumentType=false
from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from pto_wsp import DType, In, Out, PagedTensor, Tensor, Tile, kernel, pto
from tests.kernels.test_library import TARGETS, call, numbers

SIZE, HEADS, TOKENS = 16, 3, 48
SQUARE = Tile[SIZE, SIZE, DType.F32]
KINDS = ("plain", "turned_keys", "added", "turned_left")


def product(kind: str, left: Any, added: Any, keys: Any) -> Any:
    if kind == "added":
        return pto.matmul_acc(added, left, keys)
    return pto.matmul(
        left.T if kind == "turned_left" else left, keys.T if kind == "turned_keys" else keys
    )


def any_products(seed: int) -> Any:
    """A straight line of products, with heads that mostly lie on the same tokens, and of row-wise
    operations. Any tile made before may be an operand; some are used no more behind that."""

    def body(q: Any, k: Any, y: Any) -> None:
        draw = random.Random(seed)
        tiles = [pto.load(q[0:SIZE, 0:SIZE])]
        kind, loads = draw.choice(KINDS), []
        for _ in range(draw.randrange(4, 10)):
            if draw.random() < 0.3:
                tiles.append(pto.sqrt(pto.abs(draw.choice(tiles))))
                continue
            if draw.random() < 0.2:
                kind = draw.choice(KINDS)
            if not loads:
                at = draw.choice([0, 0, 0, 5, 20])
                heads = range(draw.choice([1, HEADS, HEADS]))
                loads = [pto.load(k[at : at + SIZE, h, 0:SIZE]) for h in heads]
            tiles.append(product(kind, draw.choice(tiles), draw.choice(tiles), loads.pop()))
        for i, tile in enumerate([tiles[-1], tiles[-2], draw.choice(tiles)]):
            pto.store(y[i * SIZE : (i + 1) * SIZE, 0:SIZE], tile)

    @kernel
    def any_products(q: In[SQUARE], k: In[PagedTensor], y: Out[Tile[3 * SIZE, SIZE, DType.F32]]):
        body(q, k, y)

    return any_products


def paged(page: int) -> Any:
    count = -(-TOKENS // page)
    table = np.random.default_rng(page).permutation(count).astype(np.int32)[None]
    pool = Tensor(data=numbers(count, page, HEADS, SIZE))
    return PagedTensor(pool, table, page=page, name="k")


def results(target: str, page: int, kernels: list[Any], named: str = "q") -> list[Any]:
    found = [np.zeros((3 * SIZE, SIZE), np.float32) for _ in kernels]
    k = paged(page)
    given = {named: numbers(SIZE, SIZE, seed=1), "k": lambda: k[0, 0:TOKENS]}
    call(target, *((each, {**given, "y": y}) for each, y in zip(kernels, found, strict=True)))
    return found


@pytest.mark.parametrize("page", [1, 5, 64])
def test_any_products(page: int) -> None:
    kernels = [any_products(seed) for seed in range(page, page + 12)]
    exact, ours = (results(target, page, kernels) for target in TARGETS)
    for seed, (wanted, found) in enumerate(zip(exact, ours, strict=True), page):
        assert np.abs(wanted).max() > 0
        near = 1e-5 * np.abs(wanted).max()
        assert np.abs(found - wanted).max() <= near, seed


# A kernel multiplies 8 KB of a page at a time where the tokens of a head lie next to each other.
@pytest.mark.parametrize("by_head", [True, False])
@pytest.mark.parametrize(("page", "begin"), [(64, 0), (40, 7), (100, 30)])
def test_long_pages(page: int, begin: int, by_head: bool) -> None:
    wide, tokens = 128, 70

    @kernel
    def both_heads(
        q: In[Tile[4, wide, DType.F32]], k: In[PagedTensor], y: Out[Tile[8, wide, DType.F32]]
    ):
        keys = [pto.load(k[begin : begin + tokens, h, 0:wide]) for h in range(2)]
        scores = [pto.matmul(q, each.T) for each in keys]
        values = [pto.load(k[begin : begin + tokens, h, 0:wide]) for h in range(2)]
        sums = [pto.matmul(score, each) for score, each in zip(scores, values, strict=True)]
        for h, each in enumerate(sums):
            pto.store(y[4 * h : 4 * h + 4, 0:wide], each)

    count = -(-(begin + tokens) // page)
    table = np.arange(count, dtype=np.int32)[None, ::-1].copy()
    pool = numbers(count, 2, page, wide).swapaxes(1, 2)
    pool = Tensor(data=pool if by_head else pool.copy())
    found = [np.zeros((8, wide), np.float32) for _ in TARGETS]
    for target, y in zip(TARGETS, found, strict=True):
        k = PagedTensor(pool, table, page=page, name="k")
        q = numbers(4, wide, seed=1)
        given = {"q": q, "k": lambda k=k: k[0, 0 : begin + tokens], "y": y}
        call(target, (both_heads, given))
    np.testing.assert_allclose(found[1], found[0], atol=1e-5 * np.abs(found[0]).max())


def test_a_parameter_may_have_the_name_of_what_puts_them_together() -> None:
    @kernel
    def named(by: In[SQUARE], k: In[PagedTensor], y: Out[Tile[3 * SIZE, SIZE, DType.F32]]):
        parts = [pto.matmul(by, pto.load(k[0:SIZE, h, 0:SIZE])) for h in range(HEADS)]
        for h, part in enumerate(parts):
            pto.store(y[h * SIZE : (h + 1) * SIZE, 0:SIZE], part)

    exact, ours = (results(target, 16, [named], "by") for target in TARGETS)
    np.testing.assert_allclose(ours[0], exact[0], atol=1e-5)
