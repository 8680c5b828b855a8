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
    default,
    emit,
    kernel,
    kernels,
    maximum,
    minimum,
    pto,
    select_tier,
    tier,
    workload,
)
from pto_wsp import (
    tiers as kernel_tiers,
)
from pto_wsp.frontend.tensor_kinds import expect
from pto_wsp.workloads.cutting import DECODE_TIERS, Cutting, Tier, ceil_div, chunk_unit
from pto_wsp.workloads.factories import made_once
from pto_wsp.workloads.refusals import check_counts, check_dtype, refused


@dataclass(frozen=True, slots=True)
class _DecodeKinds:
    """What all tasks of a decode step have in common: a task takes `together` KV heads, which
    `group` query heads look at."""

    group: int
    kv_heads: int
    dim: int
    page: int
    dtype: DType
    together: int
    factor: float
    merged: int

    @property
    def heads(self) -> int:
        return self.tasks * self.group

    @property
    def tasks(self) -> int:
        """Of a sequence that is not cut."""
        return self.kv_heads // self.together

    def rows(self, n):
        """Those of the n-th task, or chunk."""
        return _part(self.group, n)

    def variants(self, make: Callable[..., Any], found: Sequence[Tier]) -> Any:
        """The kernel that each range of lengths has, for `select_tier`."""
        *shorter, last = found
        limited = (tier(_up_to(each.limit), self._kernel(make, each)) for each in shorter)
        return kernel_tiers(make.__name__, *limited, default(self._kernel(make, last)))

    def _kernel(self, make: Callable[..., Any], of: Tier) -> Any:
        size = self.group, of.block, self.dim, self.dtype
        return make(*size, paged=True, kv_heads=self.together)


def _up_to(limit: int):
    return lambda length: length <= limit


@dataclass(frozen=True, slots=True)
class _DecodeTasks:
    """The tasks of a sequence: descriptors inside a workload. Schedules know loops by the names of
    their variables."""

    kinds: _DecodeKinds
    b: Any
    length: Any
    q: Any
    k: Any
    v: Any
    out: Any

    def _given(self, kv, start, stop):
        kinds, b = self.kinds, self.b
        mine = kv if kinds.together == 1 else _part(kinds.together, kv)
        return self.q[b, kinds.rows(kv)], self.k[b, start:stop, mine], self.v[b, start:stop, mine]

    def whole(self, tiers: Sequence[Tier]) -> None:
        b, kinds = self.b, self.kinds
        variants = kinds.variants(kernels.flash_attention, tiers)
        for kv in P(kinds.tasks):
            attend = select_tier(variants, self.length)[b, kv]
            given = self._given(kv, 0, self.length)
            fields = {"start": 0, "stop": self.length}
            emit(attend, *given, self.out[b, kinds.rows(kv)], kinds.factor, fields=fields)

    def cut(self, tiers: Sequence[Tier], chunks, start) -> None:
        b, kinds = self.b, self.kinds
        every = (kinds.tasks, chunks * kinds.group)
        parts = Tensor.temp((*every, kinds.dim), DType.F32, name="parts")
        stats = Tensor.temp((*every, 2), DType.F32, name="stats")
        variants = kinds.variants(kernels.decode, tiers)
        for chunk, kv in P(chunks, kinds.tasks):
            attend = select_tier(variants, self.length)[b, chunk, kv]
            first, last = start(chunk), minimum(start(chunk + 1), self.length)
            result = parts[kv, kinds.rows(chunk)], stats[kv, kinds.rows(chunk)]
            given = (*self._given(kv, first, last), *result, kinds.factor)
            emit(attend, *given, fields={"start": first, "stop": last})
        merge = kernels.merge_partials(kinds.group, kinds.dim, kinds.dtype, at_once=kinds.merged)
        for kv in P(kinds.tasks):
            merge[b, kv](parts[kv], stats[kv], self.out[b, kinds.rows(kv)])


def paged_decode(
    heads: int,
    kv_heads: int,
    dim: int,
    page: int,
    dtype: DType = DType.F32,
    *,
    tiers: Sequence[Tier] = DECODE_TIERS,
    scale: float | None = None,
    together: int = 1,
    exact: bool = True,
    uneven: int = 1,
    shares: int = 1,
    merged: int = 1,
) -> Any:
    """One decode step: `paged_decode(...)(batch, lens, blocks, q, k, v, out)`.

    The query `q[b, head]` of each sequence looks at the `lens[b]` tokens that it has in the cache.
    `k` and `v` are `PagedTensor`s over pools [page, token of the page, KV head, dim] of any
    strides; KV head h serves the heads from h * (heads / kv_heads) on. A sequence without tokens
    gives zeros. `batch` is the axis of sequences. Sizes are bound at each run, but for those that
    the workload is made for.

    A task takes `together` KV heads that follow each other, by axis `kv`: one gives the most tasks,
    several read longer stretches, which is faster. Its descriptor has the tokens from `start` to
    `stop` that it attends to. `blocks` (a `Scalar`) is how many chunks all sequences together may
    be cut into. Control looks for the smallest chunk that keeps it, in multiples of 64 tokens or of
    a page; each sequence is at least one. One chunk is written at once; partial results of others
    are temporaries, which are merged. Without `exact` nothing is searched for, for workers that all
    work it out, as on a GPU (`GpuDecode`): chunks are even and near the mean, `uneven` times as
    many if lengths differ. `merged` chunks are merged at a time.

    With `shares`, each sequence is then cut into a multiple of that many chunks, of one size, give
    or take a unit of 64 tokens or a page; one of fewer units than shares has a chunk for each. So
    many workers that take them in turns, by the dispatch policy
    `affinity(lambda t: t.batch + t.get("chunk", 0))`, read equal parts of every sequence, whatever
    the lengths are, and whole pages if a task takes all KV heads.
    """
    counts = {"heads": heads, "kv_heads": kv_heads, "dim": dim, "page": page, "together": together}
    check_counts("paged_decode", **counts, uneven=uneven, shares=shares, merged=merged)
    check_dtype("paged_decode", dtype)
    cutting = Cutting(_checked(tiers), chunk_unit(page), exact, uneven, shares)
    group = _group("paged_decode", heads, kv_heads) * together
    if kv_heads % together:
        raise refused(
            f"paged_decode: {kv_heads} KV heads are no multiple of {together} together",
            "a task takes so many KV heads, and all tasks as many",
            "pass together=1, or another number that divides kv_heads",
        )
    factor = 1 / math.sqrt(dim) if scale is None else scale
    return _paged_decode(
        _DecodeKinds(group, kv_heads, dim, page, dtype, together, factor, merged), cutting
    )


def _checked(tiers: object) -> tuple[Tier, ...]:
    found = tuple(tiers) if isinstance(tiers, list | tuple) else ()
    if found and all(isinstance(each, Tier) for each in found):
        return found
    raise refused(
        f"paged_decode: the tiers are {tiers!r}",
        "the tier of a sequence, by its length, says how its tokens are taken",
        "pass a tuple of workloads.Tier(limit, block, chunk)",
    )


@made_once
def _paged_decode(kinds: _DecodeKinds, cutting: Cutting) -> Any:
    nothing = _zeros(kinds.group, kinds.dim, kinds.dtype)

    @workload
    def paged_decode(batch, lens, blocks, q, k, v, out):
        for each in (q, out):
            expect(each, None, kinds.heads, kinds.dim)
        for each in (k, v):
            expect(each, None, None, kinds.kv_heads, kinds.dim, page=kinds.page)
        units = cutting.units(q.shape[0], lens, blocks)
        for b in P(batch):
            tasks = _DecodeTasks(kinds, b, lens[b], q, k, v, out)
            chunks, is_one, start = cutting.chunks(lens[b], units)
            with P.when(lens[b] == 0):
                for kv in P(kinds.tasks):  # as all tasks, so that every one has a place
                    nothing[b, kv](out[b, kinds.rows(kv)])
            with P.when(is_one) if cutting.tiers_cut else P.otherwise():
                tasks.whole(cutting.tiers)
            if cutting.tiers_cut:
                with P.otherwise():  # the least is for temporaries, which then have a largest size
                    tasks.cut(cutting.tiers_cut, minimum(chunks, cutting.most(blocks)), start)

    return paged_decode


@made_once
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
    `ragged_prefill(...)(batch, q_starts, k_starts, q, k, v, out)`.

    Sequence b has the queries `q[q_starts[b] : q_starts[b + 1], head]` and the keys
    `k[k_starts[b] : k_starts[b + 1], kv_head]`. Its last query stands at its last key: with more
    keys than queries the first keys are a prefix that was there before. `causal`: a query sees no
    key behind its own; `window` > 0: only the last that many keys up to its own, which takes
    `causal`. A query that sees no key gives zeros.

    A task is `rows` queries of one head, and is given only the keys that one of them sees: what the
    mask hides is never read.
    """
    counts = {"heads": heads, "kv_heads": kv_heads, "dim": dim, "rows": rows, "cols": cols}
    check_counts("ragged_prefill", **counts)
    check_dtype("ragged_prefill", dtype)
    if window < 0:
        raise refused(
            f"ragged_prefill: a window of {window} keys",
            "a query sees the last so many keys up to its own",
            "pass 0 for all of them",
        )
    if window and not causal:
        raise refused(
            f"ragged_prefill: a window of {window} keys without causal",
            "a sliding window ends at the query's own key, behind which it sees none",
            "pass causal=True, or no window",
        )
    group = _group("ragged_prefill", heads, kv_heads)
    factor = 1 / math.sqrt(dim) if scale is None else scale
    attend = kernels.masked_attention(rows, cols, dim, dtype, causal=causal, window=window)
    nothing = _zeros(rows, dim, dtype)

    @workload
    def ragged_prefill(batch, q_starts, k_starts, q, k, v, out):
        for each, count in ((q, heads), (k, kv_heads), (v, kv_heads), (out, heads)):
            expect(each, None, count, dim)
        for b in P(batch):
            first, queries = q_starts[b], q_starts[b + 1] - q_starts[b]
            key, keys = k_starts[b], k_starts[b + 1] - k_starts[b]
            for i in P(ceil_div(queries, rows)):
                top, bottom = i * rows, minimum((i + 1) * rows, queries)
                mine = slice(first + top, first + bottom)
                # Which keys the first and the last of these queries stand at.
                at, last = top + keys - queries, bottom - 1 + keys - queries
                end = minimum(last + 1, keys) if causal else keys
                begin = maximum(at - (window - 1), 0) if window else 0
                for head in P(heads):
                    with P.when(end > begin):
                        span = slice(key + begin, key + end)
                        attend[b, i, head](
                            q[mine, head],
                            k[span, head // group],
                            v[span, head // group],
                            out[mine, head],
                            factor,
                            at - begin,
                        )
                    with P.otherwise():
                        nothing[b, i, head](out[mine, head])

    return ragged_prefill


def _group(workload: str, heads: int, kv_heads: int) -> int:
    if heads % kv_heads:
        raise refused(
            f"{workload}: {heads} heads do not share {kv_heads} KV heads evenly",
            "the same number of query heads looks at each KV head",
            "pass heads that are a multiple of kv_heads",
        )
    return heads // kv_heads


def _part(size, n):
    """The n-th of parts of that size."""
    return slice(n * size, (n + 1) * size)


@functools.cache
def _zeros(rows: int, dim: int, dtype: DType):
    @kernel
    def zeros(out: Out[Tile[rows, dim, dtype]]):  # pyright: ignore[reportInvalidTypeForm]
        pto.store(out, pto.zeros((rows, dim), dtype))

    return zeros
