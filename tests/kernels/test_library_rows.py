"""Ready kernels that move rows by their numbers, on both targets, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    DenseDyn,
    DType,
    In,
    InOut,
    Out,
    P,
    PagedTensor,
    Tensor,
    Tile,
    kernel,
    kernels,
    pto,
    workload,
)
from tests.kernels.test_library import TARGETS, call, is_near, numbers


@pytest.mark.parametrize("target", TARGETS)
def test_the_largest_of_a_long_row(target: str) -> None:
    rng = np.random.default_rng(0)
    rows = {n: rng.standard_normal(n).astype(np.float32) for n in (0, 1, 6, 7, 8, 50, 129)}
    rows[60] = np.repeat(np.float32([3, -1, 3, 2]), 15)  # equal ones, in several blocks
    kernel = kernels.select_topk(7, 16)
    found = {n: np.full(7, -9, np.int32) for n in rows}
    call(target, *[(kernel, {"scores": rows[n], "chosen": found[n]}) for n in rows])
    for n, row in rows.items():
        best = np.argsort(-row, kind="stable")[:7]
        assert found[n].tolist() == [*best, *[-1] * (7 - len(best))]


def test_thousands_of_a_long_row() -> None:
    scores = numbers(30_000)
    chosen = np.zeros(2048, np.int32)
    call("cpu_sim", (kernels.select_topk(2048), {"scores": scores, "chosen": chosen}))
    assert np.array_equal(chosen, np.argsort(-scores, kind="stable")[:2048])


@pytest.mark.parametrize("target", TARGETS)
def test_choices_by_group_and_back(target: str) -> None:
    groups, k, tokens, cols = 6, 3, 11, 5
    rng = np.random.default_rng(1)
    chosen = rng.integers(0, groups - 1, (tokens, k)).astype(np.int32)  # the last has none
    indptr, indices = np.full(groups + 1, 7, np.int32), np.zeros(tokens * k, np.int32)
    places, x = np.zeros_like(chosen), numbers(tokens, cols, seed=2)
    packed, weights = np.zeros((tokens * k, cols), np.float32), numbers(tokens, k, seed=3)
    out = np.zeros_like(x)
    sorting = {"chosen": chosen, "indptr": indptr, "indices": indices, "places": places}
    adding: dict[str, Any] = {"x": packed, "places": places, "weights": weights, "out": out}
    call(
        target,
        (kernels.group_choices(groups, k), sorting),
        (kernels.gather_choices(33, cols, k), {"x": x, "choices": indices, "out": packed}),
        (kernels.combine_choices(16, cols, k), adding),
    )
    order = np.argsort(chosen.ravel(), kind="stable")
    assert np.array_equal(indices, order)
    assert np.array_equal(indptr, np.searchsorted(chosen.ravel()[order], range(groups + 1)))
    assert np.array_equal(indices[places.ravel()], np.arange(tokens * k))
    assert np.array_equal(packed, x[order // k])
    assert is_near(out, x.astype(np.float64) * weights.sum(axis=1, keepdims=True))


@kernel(body="tile")
def swap(cache: InOut[PagedTensor], rows: In[Tile[4, DType.I32]], out: Out[Tile[4, 6, DType.F32]]):
    found = pto.gather(cache, rows.T, cols=6)
    pto.scatter(cache, rows.T, -found)
    pto.store(out, found)


@kernel(body="tile")
def sums(x: In[Tensor], rows: In[Tensor], out: Out[Tile[4, 6, DType.F32]]):
    """Blocks of rows whose columns may be fewer than the sum has: the same fewer each time."""
    s = pto.carry(sum=pto.zeros((4, 6)))
    for at in pto.for_range(0, rows.shape[0], 4):
        numbers = pto.pad(pto.load(rows[at : at + 4]), -1)
        s.sum = s.sum + pto.gather(x, numbers.T, cols=6)
    pto.store(out, s.sum)


@pytest.mark.parametrize("target", TARGETS)
def test_rows_behind_a_page_table(target: str) -> None:
    pool = numbers(6, 4, 6)
    before, table = pool.copy(), np.array([[3, 1], [0, 2]], np.int32)
    rows, found = np.array([6, 0, 5, 7], np.int32), np.zeros((2, 4, 6), np.float32)
    cache, which, out = PagedTensor(pool, table), Tensor(data=rows), Tensor(data=found)

    @workload
    def both(sequences):
        for s in P(sequences):
            swap[s](cache[s, 0:7], which, out[s])

    both(DenseDyn(2)).compile(target=target).execute()
    tokens, after = (each[table].reshape(2, 8, 6) for each in (before, pool))
    expected = tokens[:, rows]
    expected[:, 3] = 0  # the seventh token is not there
    assert np.array_equal(found, expected)
    changed = np.isin(np.arange(8), rows[:3])
    assert np.array_equal(after, np.where(changed[:, None], -tokens, tokens))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("cols", [6, 3])
def test_gathered_rows_that_are_carried(target: str, cols: int) -> None:
    x, rows = numbers(9, cols), np.array([8, 1, 2, 2, 0, 7], np.int32)
    out = np.zeros((4, cols), np.float32)
    call(target, (sums, {"x": x, "rows": rows, "out": out}))
    wide = np.zeros((8, cols))
    wide[:6] = x[rows]
    assert is_near(out, wide.reshape(2, 4, cols).sum(axis=0))
