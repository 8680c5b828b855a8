"""Attention over ragged batches: decode from a paged cache, and prefill of packed sequences."""

# The parameters of a workload are symbols while it is traced.
# pyright: basic
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pto_wsp import (
    DType,
    Out,
    P,
    Tensor,
    Tile,
    kernel,
    kernels,
    maximum,
    minimum,
    pto,
    reduce_max,
    reduce_sum,
    search,
    select,
    workload,
)


@dataclass(frozen=True, slots=True)
class Tier:
    """How sequences of up to `limit` tokens are attended to: `block` keys at a time, cut into
    chunks of at least `chunk` tokens, or never where that is 0. The last tier also takes what is
    longer."""

    limit: int
    block: int
    chunk: int


# Short sequences are one task for each KV head: a second one would cost a merge and save nothing.
# Longer ones read more keys at a time, which spreads the cost of a block, and are cut into chunks
# of more, which bounds what the merge reads.
DECODE_TIERS = (
    Tier(2 << 10, 64, 0),
    Tier(8 << 10, 128, 1 << 10),
    Tier(64 << 10, 128, 2 << 10),
    Tier(128 << 10, 256, 4 << 10),
)


@dataclass(frozen=True, slots=True)
class _Cutting:
    """How sequences are cut: chunks are multiples of `unit` tokens."""

    tiers: tuple[Tier, ...]
    unit: int
    exact: bool
    uneven: int

    def units(self, sequences, lens, blocks):
        find = self.search if self.exact else self.mean
        return find(sequences, lens, blocks)

    def chunk(self, length, units):
        return self.size(length, units) if self.exact else self.even(length, units)

    def most(self, blocks):
        """More chunks than that no sequence has."""
        return blocks if self.exact else blocks * self.uneven + 1

    @property
    def all(self) -> bool:
        """Whether sequences of every length may be cut."""
        return all(tier.chunk for tier in self.tiers)

    def by_tier(self, length, of):
        """What `of` says of the tier of a sequence; only what is chosen costs time."""
        found = of(self.tiers[-1])
        for tier in reversed(self.tiers[:-1]):
            found = select(length <= tier.limit, of(tier), found)
        return found

    def size(self, length, units):
        """The chunk size of a sequence; its length if it is never cut."""
        return self.by_tier(
            length,
            lambda tier: maximum(units * self.unit, tier.chunk) if tier.chunk else length,
        )

    def count(self, length, units):
        def of(tier: Tier):
            if tier.chunk == 0:
                return minimum(length, 1)
            return _ceil(length, maximum(units * self.unit, tier.chunk))

        return self.by_tier(length, of)

    def mean(self, sequences, lens, blocks):
        """The chunk, in units, of which all sequences together have `blocks`, or `uneven` times as
        many if the longest is more than an eighth longer than the mean."""
        total = reduce_sum(sequences, lambda b: lens[b])
        if self.uneven > 1:
            longest = reduce_max(sequences, lambda b: lens[b])
            differ = longest * sequences > total + total // 8
            blocks = select(differ, blocks * self.uneven, blocks)
        return maximum(_ceil(total, maximum(blocks, 1) * self.unit), 1)

    def even(self, length, units):
        """Near that chunk size, such that all chunks of a sequence are of one size: what is left
        over is no chunk by itself if it is less than a quarter of one."""
        size = self.size(length, units)
        chunks = maximum(_ceil(length - size // 4, size), 1)
        return _ceil(_ceil(length, chunks), self.unit) * self.unit

    def search(self, sequences, lens, blocks):
        """The smallest chunk, in units, with which there are at most `blocks` chunks."""

        def fits(units):
            return reduce_sum(sequences, lambda b: self.count(lens[b], units)) <= blocks

        # Rounding up adds less than one chunk to each sequence, so `enough` is.
        total, more = reduce_sum(sequences, lambda b: lens[b]), blocks - sequences
        enough = select(more > 0, _ceil(total, maximum(more, 1)), total)
        last = maximum(_ceil(enough, self.unit), 2)
        # Where every sequence is cut, chunks of less than the mean are too many.
        first = maximum(_ceil(_ceil(total, maximum(blocks, 1)), self.unit), 2) if self.all else 2
        return select(fits(1), 1, search(minimum(first, last), last, fits))


def chunk_unit(page: int) -> int:
    """Chunks are multiples of so many tokens: whole pages, and not too few tokens."""
    return page * max(1, 64 // page)


def _call_by_tier(length, tiers: Sequence[Tier], call: Callable[[Tier], None]) -> None:
    """A call for each tier, of which the length takes one."""
    *shorter, last = tiers
    for tier in shorter:
        with P.when(length <= tier.limit):
            call(tier)
    if not shorter:
        call(last)
        return
    with P.otherwise():
        call(last)


@functools.cache
def paged_decode(
    heads: int,
    kv_heads: int,
    dim: int,
    page: int,
    dtype: DType = DType.F32,
    *,
    tiers: tuple[Tier, ...] = DECODE_TIERS,
    scale: float | None = None,
    together: int = 1,
    exact: bool = True,
    uneven: int = 1,
) -> Any:
    """One decode step: `paged_decode(...)(batch, kv, lens, blocks, q, k, v, out)`.

    The query `q[b, head]` of each sequence looks at the `lens[b]` tokens that it has in the cache.
    `k` and `v` are `PagedTensor`s over pools [page, token of the page, KV head, dim] of any
    strides; KV head h serves the heads from h * (heads / kv_heads) on. A sequence without tokens
    gives zeros. `batch` and `kv` are axes of sequences and KV heads; all else is bound at each run.

    A task takes `together` KV heads that follow each other, and `kv` has an element for as many:
    one gives the most tasks, several read longer stretches, which is faster. `blocks` (a `Scalar`)
    is how many chunks all sequences together may be cut into. Control looks for the smallest chunk
    that keeps it, in multiples of 64 tokens or of a page; each sequence is at least one. One chunk
    is written at once; partial results of others are temporaries, which are merged. Without `exact`
    nothing is searched for, for workers that all work it out, as on a GPU (`GpuDecode`): chunks are
    even and near the mean, `uneven` times as many if lengths differ.
    """
    group = _group(heads, kv_heads, together) * together
    cutting = _Cutting(tiers, chunk_unit(page), exact, uneven)
    factor = 1 / math.sqrt(dim) if scale is None else scale
    paged = {"paged": True, "kv_heads": together}
    merge, nothing = kernels.merge_partials(group, dim, dtype), _zeros(group, dim, dtype)
    rows = functools.partial(_part, group)

    @workload
    def paged_decode(batch, kv, lens, blocks, q, k, v, out):
        def given(b, h, span):
            mine = h if together == 1 else _part(together, h)
            return q[b, rows(h)], k[b, span, mine], v[b, span, mine]

        def whole(b, h):
            def call(tier: Tier) -> None:
                attend = kernels.flash_attention(group, tier.block, dim, dtype, **paged)
                attend[b, h](*given(b, h, slice(0, lens[b])), out[b, rows(h)], factor)

            _call_by_tier(lens[b], tiers, call)

        def cut(b, size, chunks):
            every = (kv_heads // together, chunks * group)
            parts = Tensor.temp((*every, dim), DType.F32, name="parts")
            stats = Tensor.temp((*every, 2), DType.F32, name="stats")

            def one(c, h):
                def call(tier: Tier) -> None:
                    attend = kernels.decode(group, tier.block, dim, dtype, **paged)
                    span = slice(c * size, minimum((c + 1) * size, lens[b]))
                    result = parts[h, rows(c)], stats[h, rows(c)]
                    attend[b, c, h](*given(b, h, span), *result, factor)

                _call_by_tier(lens[b], [tier for tier in tiers if tier.chunk], call)

            for c, h in P(chunks, kv):
                one(c, h)
            for h in P(kv):
                merge[b, h](parts[h], stats[h], out[b, rows(h)])

        units = cutting.units(q.shape[0], lens, blocks)
        for b in P(batch):
            size = cutting.chunk(lens[b], units)
            with P.when(lens[b] == 0):
                for h in P(kv):  # as all tasks, so that every one has a KV head to be placed by
                    nothing[b, h](out[b, rows(h)])
            with P.when(lens[b] <= size):
                for h in P(kv):
                    whole(b, h)
            with P.otherwise():  # the least is for temporaries, which then have a largest size
                cut(b, size, minimum(_ceil(lens[b], size), cutting.most(blocks)))

    return paged_decode


@functools.cache
def ragged_prefill(
    heads: int,
    kv_heads: int,
    dim: int,
    dtype: DType = DType.F32,
    *,
    causal: bool = True,
    window: int = 0,
    rows: int = 64,
    cols: int = 64,
    scale: float | None = None,
) -> Any:
    """Attention of whole sequences that are packed behind each other:
    `ragged_prefill(...)(batch, heads, q_starts, k_starts, q, k, v, out)`.

    Sequence b has the queries `q[q_starts[b] : q_starts[b + 1], head]` and the keys
    `k[k_starts[b] : k_starts[b + 1], kv_head]`. Its last query stands at its last key: with more
    keys than queries the first keys are a prefix that was there before. `causal`: a query sees no
    key behind its own; `window` > 0: only the last that many keys up to its own, which takes
    `causal`. A query that sees no key gives zeros.

    A task is `rows` queries of one head, and is given only the keys that one of them sees: what the
    mask hides is never read.
    """
    if window and not causal:
        raise ValueError("a sliding window ends at the query's own key: it takes causal=True")
    group = _group(heads, kv_heads)
    factor = 1 / math.sqrt(dim) if scale is None else scale
    attend = kernels.masked_attention(rows, cols, dim, dtype, causal=causal, window=window)
    nothing = _zeros(rows, dim, dtype)

    @workload
    def ragged_prefill(batch, heads, q_starts, k_starts, q, k, v, out):
        for b in P(batch):
            first, queries = q_starts[b], q_starts[b + 1] - q_starts[b]
            key, keys = k_starts[b], k_starts[b + 1] - k_starts[b]
            for i in P(_ceil(queries, rows)):
                top, bottom = i * rows, minimum((i + 1) * rows, queries)
                mine = slice(first + top, first + bottom)
                # Which keys the first and the last of these queries stand at.
                at, last = top + keys - queries, bottom - 1 + keys - queries
                end = minimum(last + 1, keys) if causal else keys
                begin = maximum(at - (window - 1), 0) if window else 0
                for h in P(heads):
                    with P.when(end > begin):
                        span = slice(key + begin, key + end)
                        attend[b, i, h](
                            q[mine, h],
                            k[span, h // group],
                            v[span, h // group],
                            out[mine, h],
                            factor,
                            at - begin,
                        )
                    with P.otherwise():
                        nothing[b, i, h](out[mine, h])

    return ragged_prefill


def _group(heads: int, kv_heads: int, together: int = 1) -> int:
    if together < 1 or kv_heads % together:
        raise ValueError(f"{kv_heads} KV heads are no multiple of {together} together")
    if heads < 1 or kv_heads < 1 or heads % kv_heads:
        raise ValueError(f"{heads} heads do not share {kv_heads} KV heads evenly")
    return heads // kv_heads


def _part(size, n):
    """The n-th of parts of that size."""
    return slice(n * size, (n + 1) * size)


def _ceil(size, by):
    return (size + by - 1) // by


@functools.cache
def _zeros(rows: int, dim: int, dtype: DType):
    @kernel
    def zeros(out: Out[Tile[rows, dim, dtype]]):  # pyright: ignore[reportInvalidTypeForm]
        pto.store(out, pto.zeros((rows, dim), dtype))

    return zeros
