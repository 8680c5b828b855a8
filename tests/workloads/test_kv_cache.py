"""Pages that sequences take, give back and cannot have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pto_wsp import ExecutionError, OutOfPages
from pto_wsp.error_codes import Code
from pto_wsp.workloads import KvCache, page_pool


def make() -> KvCache:
    return KvCache(layers=2, sequences=3, pages=5, page=4, kv_heads=1, head_dim=2)


def tokens(count: int, number: float = 1.0) -> Any:
    return np.full((count, 1, 2), number, np.float32)


def test_a_cache_gives_and_takes_pages() -> None:
    cache = make()
    table = cache.reserve([5, 0, 4])
    assert table.shape == (6, 2)
    pages = [*table[0], table[2, 0]]
    assert len(set(pages)) == 3
    assert (table[3:] - table[:3])[[0, 0, 2], [0, 1, 0]].tolist() == [5, 5, 5]
    cache.release(0)
    assert cache.reserve([0, 16, 4]).shape == (6, 4)


def test_a_cache_that_is_too_small_gives_nobody_a_page() -> None:
    cache = make()
    before = cache.reserve([5, 0, 4]).copy()
    with pytest.raises(OutOfPages, match="3 more are needed, and 2 of all 5 pages"):
        cache.reserve([5, 12, 4])
    assert np.array_equal(cache.table, before)
    assert cache.reserve([5, 4, 8]).shape == (6, 2)  # room for smaller sequences is still there


def test_running_out_of_pages_is_a_memory_error() -> None:
    with pytest.raises(MemoryError) as caught:
        make().reserve([100])
    assert isinstance(caught.value, OutOfPages)
    assert caught.value.code is Code.PAGES
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__


def test_sequences_without_pages_have_none_of_others() -> None:
    cache = make()
    assert cache.table.tolist() == [[-1]] * 6
    cache.reserve([5, 4])
    cache.release(0)
    assert cache.table[[0, 3]].tolist() == [[-1, -1]] * 2
    assert (cache.table[[1, 4]] >= 0).any(axis=1).all()
    assert cache.table[:, 1].tolist() == [-1] * 6


def test_rows_of_some_sequences() -> None:
    cache = make()
    table = cache.reserve([5, 0, 4])
    assert np.array_equal(cache.rows([2, 0]), table[[2, 0, 5, 3]])
    assert np.array_equal(cache.rows(range(3)), table)
    assert cache.rows([]).shape == (0, 2)


WRONG: dict[str, tuple[Callable[[KvCache], Any], Code, str]] = {
    "no room": (
        lambda c: c.fill(0, 0, tokens(3), tokens(3)),
        Code.PAGES,
        "3 tokens of sequence 0, which has room for 0",
    ),
    "less room": (
        lambda c: c.fill(1, 1, tokens(5), tokens(5)),
        Code.PAGES,
        "5 tokens of sequence 1, which has room for 4",
    ),
    "read": (lambda c: c.tokens(1, 1, 5), Code.PAGES, "5 tokens of sequence 1"),
    "values": (lambda c: c.fill(0, 1, tokens(4), tokens(3)), Code.PAGES, r"values of shape \(3, 1"),
    "keys": (lambda c: c.fill(0, 1, tokens(4)[:, 0], tokens(4)), Code.PAGES, "keys of shape"),
    "layer": (lambda c: c.fill(2, 1, tokens(1), tokens(1)), Code.OUT_OF_BOUNDS, "layer 2 of a"),
    "release": (lambda c: c.release(7), Code.OUT_OF_BOUNDS, "sequence 7 of a cache of 3"),
    "the last": (lambda c: c.release(-1), Code.OUT_OF_BOUNDS, "sequence -1 of a cache of 3"),
    "rows": (lambda c: c.rows([0, 3]), Code.OUT_OF_BOUNDS, "sequence 3 of a cache of 3"),
    "lengths": (lambda c: c.reserve([1, 2, 3, 4]), Code.LENGTHS, "4 lengths for 3 sequences"),
    "negative": (lambda c: c.reserve([9, -2]), Code.LENGTHS, "a sequence of -2 tokens"),
    "fraction": (lambda c: c.reserve([1.5]), Code.LENGTHS, "a sequence of 1.5 tokens"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_refused_changes_nothing(what: str) -> None:
    cache = make()
    before = cache.reserve([0, 4]).copy()
    wrong, code, text = WRONG[what]
    with pytest.raises(ExecutionError, match=text) as caught:
        wrong(cache)
    assert caught.value.code is code
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__
    assert np.array_equal(cache.table, before)
    assert not cache.keys.any()
    assert not cache.values.any()
    cache.reserve([16, 4])  # as many pages are free as before


def test_filling_leaves_other_sequences_alone() -> None:
    cache = make()
    cache.reserve([6, 7])
    for layer in range(2):
        for b in range(2):
            cache.fill(layer, b, tokens(6, 2 * layer + b), tokens(6, -b))
    for layer in range(2):
        for b in range(2):
            keys, values = cache.tokens(layer, b, 6)
            assert np.array_equal(keys, tokens(6, 2 * layer + b))
            assert np.array_equal(values, tokens(6, -b))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_pools_begin_at_a_cache_line(dtype: Any) -> None:
    pools = [page_pool((3, 4, 2, 5), dtype) for _ in range(8)]
    assert all(pool.ctypes.data % 64 == 0 for pool in pools)
    assert all(pool.shape == (3, 4, 2, 5) and pool.dtype == dtype for pool in pools)
    assert all(pool.flags.c_contiguous and not pool.any() for pool in pools)
