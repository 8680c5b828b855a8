"""A cache of keys and values in pages, which sequences take as they grow."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_LINE = 64  # bytes of a cache line, and of the longest vector


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
    grow; bind it at each run: `execute(table=cache.table)`.
    """

    def __init__(
        self, *, layers: int, sequences: int, pages: int, page: int, kv_heads: int, head_dim: int
    ) -> None:
        self.layers, self.sequences, self.page = layers, sequences, page
        # `pages` of each layer: page p of layer i is number i * pages + p of the pool.
        self.pages = pages
        pool = (layers * pages, page, kv_heads, head_dim)
        self.keys, self.values = (page_pool(pool) for _ in range(2))
        self._free = list(range(pages - 1, -1, -1))
        self._owned: list[list[int]] = [[] for _ in range(sequences)]
        self._table = np.zeros((layers, sequences, 1), np.int32)

    @property
    def table(self) -> Array:
        """`[layers * sequences, pages]`, for PagedTensor."""
        return self._table.reshape(self.layers * self.sequences, self._table.shape[2])

    def reserve(self, lens: npt.ArrayLike) -> Array:
        """Room for `lens[b]` tokens of sequence b; the table. If there are too few pages for all of
        them, nobody gets one."""
        lengths = [int(length) for length in np.asarray(lens).ravel()]
        if len(lengths) > self.sequences:
            raise ValueError(f"{len(lengths)} lengths for {self.sequences} sequences")
        if min(lengths, default=0) < 0:
            raise ValueError(f"a sequence of {min(lengths)} tokens")
        missing = [
            max(0, -(-length // self.page) - len(owned))
            for length, owned in zip(lengths, self._owned, strict=False)
        ]
        if sum(missing) > len(self._free):
            raise MemoryError(
                f"{sum(missing)} more are needed, and {len(self._free)} of all {self.pages} pages "
                "of the cache are free"
            )
        for b, count in enumerate(missing):
            for _ in range(count):
                self._give(b, self._free.pop())
        return self.table

    def release(self, b: int) -> None:
        """Sequence b has ended."""
        self._free += reversed(self._owned[b])
        self._owned[b].clear()

    def _give(self, b: int, page: int) -> None:
        place = len(self._owned[b])
        self._owned[b].append(page)
        if place == self._table.shape[2]:
            self._table = np.pad(self._table, ((0, 0), (0, 0), (0, 1)))
        self._table[:, b, place] = page + self.pages * np.arange(self.layers)

    def tokens(self, layer: int, b: int, length: int) -> tuple[Array, Array]:
        """Copies of the keys and values of a sequence: `[length, kv_heads, head_dim]` each."""
        row = self._table[layer, b, : -(-length // self.page)]
        shape = (-1, *self.keys.shape[2:])
        return self.keys[row].reshape(shape)[:length], self.values[row].reshape(shape)[:length]

    def fill(self, layer: int, b: int, keys: Array, values: Array) -> None:
        """Writes the first tokens of a sequence, for which there is room: what a prefill leaves."""
        for pool, new in ((self.keys, keys), (self.values, values)):
            for at in range(0, len(new), self.page):
                part = new[at : at + self.page]
                pool[self._table[layer, b, at // self.page], : len(part)] = part
