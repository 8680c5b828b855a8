"""Batches of a ragged paged decode: lengths, page tables over one large pool, what is exact."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.gpu.timing import l2_bytes, tensor_of, torch, where

POOL_BYTES = 1 << 30  # of keys, and as much of values
_LOG_UNIFORM_TOKENS = 464_350  # what the recorded row read: its limit is 418 us at 4.55 TB/s
_SAMPLED = 4  # sequences whose result is checked
_COLD_SETS = 16  # sets of pages that take turns, at most
# Results are rounded to 8 or 11 bits, and so are the shares that values are multiplied by.
ERRORS = {"bfloat16": 2e-2, "float16": 4e-3, "float32": 1e-5}


@dataclass(frozen=True, slots=True)
class Shape:
    """The heads of a model, and how its cache is cut."""

    heads: int = 32
    kv_heads: int = 8
    dim: int = 128
    page: int = 16
    dtype: str = "bfloat16"


@dataclass(frozen=True, slots=True)
class Recorded:
    """Microseconds that were measured on an H200: FlashInfer 0.7.2, the better of its decode
    kernels and its persistent one; torch SDPA; a hand-written persistent kernel (the sketch)."""

    flashinfer: float
    sketch: float
    sdpa: float | None = None


def log_uniform() -> list[int]:
    """64 lengths from 128 to 32768 with as many tokens as the recorded row had."""

    def drawn(seed: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        return np.exp(rng.uniform(math.log(128), math.log(32768), 64)).astype(np.int64)

    seed = min(range(2000), key=lambda s: abs(int(drawn(s).sum()) - _LOG_UNIFORM_TOKENS))
    return drawn(seed).tolist()


@dataclass(frozen=True, slots=True)
class Batch:
    name: str
    lens: list[int]
    recorded: Recorded | None = None
    ratio: float = 1.0  # to the best rival, at most
    strictly: bool = False

    @property
    def uniform(self) -> bool:
        return len(set(self.lens)) == 1

    def tiny(self) -> Batch:
        """The same kind of raggedness, small enough for the interpreter."""
        most = max(self.lens)
        lens = [max(1, n * 24 // most) for n in self.lens[:2]]
        return Batch(self.name, lens, self.recorded, self.ratio, self.strictly)


BATCHES = (
    Batch("64 x 4096", [4096] * 64, Recorded(252, 265, 248), 1.07),
    Batch("8 x 32768", [32768] * 8, Recorded(250, 271, 250), 1.07),
    Batch("1 x 131072", [131072], Recorded(134, 145, 133), 1.07),
    Batch("16 x 512", [512] * 16, Recorded(20.1, 18.9, 16.0), 1.2),
    Batch("64 log-uniform 128..32768", log_uniform(), Recorded(496, 465), 1.0, True),
    Batch("65536 + 63 x 512", [65536, *[512] * 63], Recorded(117, 112), 1.0, True),
)
UNIFORM, SKEWED = BATCHES[0], BATCHES[5]


class Pool:
    """Random keys and values, [page, token, KV head, dim]; one pool serves all batches of a
    shape."""

    def __init__(self, shape: Shape, tokens: int | None = None) -> None:
        self.shape = shape
        size = shape.kv_heads * shape.dim
        self.tokens = POOL_BYTES // (2 * size) if tokens is None else tokens
        pages = self.tokens // shape.page
        dtype = getattr(torch(), shape.dtype)
        generator = torch().Generator(where()).manual_seed(1)
        sizes = (pages, shape.page, shape.kv_heads, shape.dim)
        self.keys, self.values = (
            torch().randn(sizes, dtype=dtype, device=where(), generator=generator) for _ in range(2)
        )


@dataclass
class Placed:
    """A batch in a pool. `sets` are page tables that name different pages: with several, runs that
    take turns find nothing in the cache."""

    pool: Pool
    batch: Batch
    lens: Any
    q: Any
    sets: list[tuple[Any, Any]]  # table, out

    @property
    def bytes_read(self) -> int:
        return sum(self.batch.lens) * self.pool.shape.kv_heads * self.pool.shape.dim * 4

    def keys(self, b: int, length: int, table: Any) -> tuple[Any, Any]:
        """[token, KV head, dim] of one sequence."""
        shape = self.pool.shape
        pages = table[b, : -(-length // shape.page)].long()
        return tuple(
            each[pages].reshape(-1, shape.kv_heads, shape.dim)[:length]
            for each in (self.pool.keys, self.pool.values)
        )


def place(pool: Pool, batch: Batch, room: list[int] | None = None) -> Placed:
    """`room`: the longest that sequences become, if not what they are."""
    shape, rng = pool.shape, np.random.default_rng(2)
    needed = [-(-n // shape.page) for n in room or batch.lens]
    pages = rng.permutation(pool.tokens // shape.page).astype(np.int32)
    if sum(needed) > len(pages):
        raise ValueError(f"{sum(needed)} pages are needed, the pool has {len(pages)}")
    bytes_read = sum(batch.lens) * shape.kv_heads * shape.dim * 4
    fits_in_cache = bytes_read < 4 * l2_bytes()
    count = min(_COLD_SETS, len(pages) // sum(needed)) if fits_in_cache else 1
    dtype = getattr(torch(), shape.dtype)
    generator = torch().Generator(where()).manual_seed(3)
    sizes = (len(batch.lens), shape.heads, shape.dim)
    q = torch().randn(sizes, dtype=dtype, device=where(), generator=generator)
    sets: list[tuple[Any, Any]] = []
    for _ in range(count):
        table = np.zeros((len(needed), max(needed)), np.int32)
        for row, pages_of in enumerate(needed):
            table[row, :pages_of], pages = pages[:pages_of], pages[pages_of:]
        sets.append((tensor_of(table), torch().zeros_like(q)))
    return Placed(pool, batch, tensor_of(np.array(batch.lens, np.int32)), q, sets)


def error(placed: Placed, lens: list[int], number: int = 0, found: Any = None) -> float:
    """The largest difference to float64, by the largest value, of some sequences: the longest, the
    shortest and others. `found` is what others made of the set, if not what is in its place."""
    table, out = placed.sets[number]
    out = out if found is None else found.reshape(out.shape)
    order = sorted(range(len(lens)), key=lambda b: lens[b])
    step = max(1, len(order) // (_SAMPLED - 1))
    worst = 0.0
    for b in dict.fromkeys([*order[::step], order[-1]]):
        wanted = _exact(placed, b, lens[b], table)
        most = float(wanted.abs().max())
        apart = float((out[b].double() - wanted).abs().max()) / (most or 1.0)
        worst = max(worst, math.inf if math.isnan(apart) else apart)
    return worst


def wrong(placed: Placed, number: int = 0, found: Any = None) -> str:
    """What is wrong with a result, if anything is."""
    worst = error(placed, placed.batch.lens, number, found)
    most = ERRORS[placed.pool.shape.dtype]
    return "" if worst <= most else f"error {worst:.2g}, more than {most:g}"


def _exact(placed: Placed, b: int, length: int, table: Any) -> Any:
    shape, double = placed.pool.shape, torch().float64
    q = placed.q[b].to(double)
    if length == 0:
        return torch().zeros_like(q)
    keys, values = (each.to(double) for each in placed.keys(b, length, table))
    grouped = q.reshape(shape.kv_heads, -1, shape.dim)
    scores = torch().einsum("hgd,thd->hgt", grouped, keys) / math.sqrt(shape.dim)
    return torch().einsum("hgt,thd->hgd", scores.softmax(-1), values).reshape(q.shape)
