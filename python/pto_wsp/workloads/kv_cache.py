"""A cache of keys and values in pages, which sequences take as they grow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pto_wsp.error_codes import Code
from pto_wsp.errors import ExecutionError, OutOfPages
from pto_wsp.workloads.refusals import caller, check_counts

Array = npt.NDArray[Any]
_LINE = 64  # bytes of a cache line, and of the longest vector
_NO_PAGE = -1


def page_pool(shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32) -> Array:
    """Zeros that begin at a cache line, as PyTorch's tensors do. NumPy's own begin in the middle of
    one, so that each vector of a row would lie in two lines. Written now: memory that is first
    touched in a run would be given by the system there."""
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    raw = np.full(size + _LINE, 0, np.uint8)
    start = -raw.ctypes.data % _LINE
    return raw[start : start + size].view(kind).reshape(shape)


class KvCache:
    """Pools of pages for the keys and values of all layers, and the table that says whose page is
    whose: row `layer * sequences + b` holds the pages of sequence b in that layer.

    `reserve(lens)` gives sequences the pages that they need, `release(b)` takes those of one back.
    The table has the columns that the longest sequence needs, so it becomes wider as sequences
    grow; bind it at each run: `execute(table=cache.table)`, or `cache.rows(...)` for a run of some
    of the sequences. Where a sequence has no page, the table holds -1, which no task may read.
    Whatever is refused changes nothing.
    """

    def __init__(
        self, *, layers: int, sequences: int, pages: int, page: int, kv_heads: int, head_dim: int
    ) -> None:
        check_counts("KvCache", page=page, kv_heads=kv_heads, head_dim=head_dim)
        self.layers, self.sequences, self.page = layers, sequences, page
        # `pages` of each layer: page p of layer i is number i * pages + p of the pool.
        self.pages = pages
        pool = (layers * pages, page, kv_heads, head_dim)
        self.keys, self.values = (page_pool(pool) for _ in range(2))
        self._free = list(range(pages - 1, -1, -1))
        self._owned: list[list[int]] = [[] for _ in range(sequences)]
        self._table = np.full((layers, sequences, 1), _NO_PAGE, np.int32)

    @property
    def table(self) -> Array:
        """`[layers * sequences, pages]`, for PagedTensor."""
        return self._table.reshape(self.layers * self.sequences, self._table.shape[2])

    def rows(self, sequences: Sequence[int]) -> Array:
        """The table of these sequences alone, which are 0, 1 and so on for a run that it is bound
        for."""
        for b in sequences:
            _check("sequence", b, self.sequences)
        chosen = self._table[:, list(sequences)]
        return chosen.reshape(self.layers * len(sequences), self._table.shape[2])

    def reserve(self, lens: npt.ArrayLike) -> Array:
        """Room for `lens[b]` tokens of sequence b, which keeps what it has; the table. If there are
        too few pages for all of them, nobody gets one: OutOfPages, which is a MemoryError."""
        lengths = self._lengths(lens)
        missing = [
            max(0, -(-length // self.page) - len(owned))
            for length, owned in zip(lengths, self._owned, strict=False)
        ]
        if sum(missing) > len(self._free):
            raise OutOfPages(
                Code.PAGES,
                f"{sum(missing)} more are needed, and {len(self._free)} of all {self.pages} pages "
                "of the cache are free",
                loc=caller(),
                why="a page belongs to one sequence",
                fix="release sequences that have ended, or make the cache with more pages",
            )
        for b, count in enumerate(missing):
            for _ in range(count):
                self._give(b, self._free.pop())
        return self.table

    def _lengths(self, given: npt.ArrayLike) -> list[int]:
        lens = np.asarray(given).ravel()
        if lens.size > self.sequences:
            raise _error(
                Code.LENGTHS,
                f"{lens.size} lengths for {self.sequences} sequences",
                "there is a length for each sequence of the cache, or for the first of them",
                "pass fewer, or make the cache for more sequences",
            )
        if lens.size and (lens.dtype.kind not in "iu" or lens.min() < 0):
            raise _error(
                Code.LENGTHS,
                f"a sequence of {lens.min()} tokens",
                "a length is how many tokens there are",
                "pass integers, 0 for a sequence that needs no room",
            )
        return lens.tolist()

    def release(self, b: int) -> None:
        """Sequence b has ended."""
        _check("sequence", b, self.sequences)
        self._free += reversed(self._owned[b])
        self._owned[b].clear()
        self._table[:, b] = _NO_PAGE

    def _give(self, b: int, page: int) -> None:
        place = len(self._owned[b])
        self._owned[b].append(page)
        if place == self._table.shape[2]:
            self._table = np.pad(self._table, ((0, 0), (0, 0), (0, 1)), constant_values=_NO_PAGE)
        self._table[:, b, place] = page + self.pages * np.arange(self.layers)

    def tokens(self, layer: int, b: int, length: int) -> tuple[Array, Array]:
        """Copies of the keys and values of a sequence: `[length, kv_heads, head_dim]` each."""
        pages = self._pages(layer, b, length)
        shape = (-1, *self.keys.shape[2:])
        return self.keys[pages].reshape(shape)[:length], self.values[pages].reshape(shape)[:length]

    def fill(self, layer: int, b: int, keys: Array, values: Array) -> None:
        """Writes the first tokens of a sequence, for which there is room: what a prefill leaves."""
        pages = self._pages(layer, b, len(keys))
        wanted = (len(keys), *self.keys.shape[2:])
        for name, new in (("keys", keys), ("values", values)):
            if new.shape != wanted:
                raise _error(
                    Code.PAGES,
                    f"{name} of shape {new.shape}",
                    f"a token of this cache is {wanted[1:]}, and each has a key and a value",
                    f"pass keys and values of shape {wanted}",
                )
        for pool, new in ((self.keys, keys), (self.values, values)):
            for at, page in zip(range(0, len(new), self.page), pages, strict=True):
                part = new[at : at + self.page]
                pool[page, : len(part)] = part

    def _pages(self, layer: int, b: int, length: int) -> Array:
        """The pages of the first tokens of a sequence."""
        _check("layer", layer, self.layers)
        _check("sequence", b, self.sequences)
        room = len(self._owned[b]) * self.page
        if not 0 <= length <= room:
            raise _error(
                Code.PAGES,
                f"{length} tokens of sequence {b}, which has room for {room}",
                "a sequence has the pages that were reserved for it, and no others",
                "reserve(lens) first, with the length that it is to have",
            )
        return self._table[layer, b, : -(-length // self.page)]


def _check(what: str, number: object, count: int) -> None:
    if isinstance(number, int | np.integer) and 0 <= number < count:
        return
    raise _error(
        Code.OUT_OF_BOUNDS,
        f"{what} {number} of a cache of {count}",
        f"each {what} has a number, from 0 on",
        f"pass the number of a {what}, or make the cache with more of them",
    )


def _error(code: Code, message: str, why: str, fix: str) -> ExecutionError:
    return ExecutionError(code, message, loc=caller(), why=why, fix=fix)
