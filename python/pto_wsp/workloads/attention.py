"""Attention over ragged batches: decode from a paged cache."""

# The parameters of a workload are symbols while it is traced.
# pyright: basic
import functools
import math
from dataclasses import dataclass

from pto_wsp import (
    DType,
    P,
    Tensor,
    kernels,
    maximum,
    minimum,
    reduce_sum,
    search,
    select,
    slot_set_u64,
    slot_u64,
    workload,
)

CHUNK_SLOT = 15  # the chunk size of the batch, in units
LONGEST = 1 << 31  # tokens of a sequence: where the search for a chunk size ends


@dataclass(frozen=True, slots=True)
class Tier:
    """How sequences of up to `limit` tokens are attended to: `block` keys at a time, and in chunks
    of no fewer than `chunk` tokens; 0: never cut. The last tier also takes what is longer."""

    limit: int
    block: int
    chunk: int


DECODE_TIERS = (
    Tier(2 << 10, 32, 0),
    Tier(8 << 10, 64, 1 << 10),
    Tier(64 << 10, 128, 2 << 10),
    Tier(128 << 10, 256, 4 << 10),
)


@functools.cache
def paged_decode(
    heads: int,
    kv_heads: int,
    dim: int,
    page: int,
    dtype: DType = DType.F32,
    *,
    tiers: tuple[Tier, ...] = DECODE_TIERS,
):
    """`paged_decode(...)(batch, kv, lens, blocks, q, k, v, out)`: one query of each sequence looks
    at the `lens[b]` tokens that its pages hold."""
    group = heads // kv_heads
    unit = page * max(1, 64 // page)
    scale = 1 / math.sqrt(dim)
    merge = kernels.merge_partials(group, dim, dtype)

    def chunk_of(tier: Tier, units):
        return maximum(units * unit, tier.chunk)

    def count(tier: Tier, length, units):
        """Chunks of a sequence of this tier."""
        if tier.chunk == 0:
            return 1
        size = chunk_of(tier, units)
        return (length + size - 1) // size

    def chunks_of(length, units):
        *shorter, last = tiers
        found = count(last, length, units)
        for tier in reversed(shorter):
            found = select(length <= tier.limit, count(tier, length, units), found)
        return select(length == 0, 0, found)

    @workload
    def paged_decode(batch, kv, lens, blocks, q, k, v, out):
        def whole(tier: Tier, b):
            attend = kernels.flash_attention(group, tier.block, dim, dtype, paged=True)
            for h in P(kv):
                mine = slice(h * group, (h + 1) * group)
                keys = k[b, 0 : lens[b], h], v[b, 0 : lens[b], h]
                attend[b, h](q[b, mine], *keys, out[b, mine], scale=scale)

        def cut(tier: Tier, b):
            attend = kernels.decode(group, tier.block, dim, dtype, paged=True)
            size = chunk_of(tier, slot_u64(CHUNK_SLOT))
            most = blocks if tier is tiers[-1] else minimum(blocks, -(-tier.limit // tier.chunk))
            chunks = minimum((lens[b] + size - 1) // size, most)
            parts = Tensor.temp((kv_heads, chunks, group, dim), DType.F32, name="parts")
            stats = Tensor.temp((kv_heads, chunks, group, 2), DType.F32, name="stats")
            for c, h in P(chunks, kv):
                mine = slice(h * group, (h + 1) * group)
                span = slice(c * size, minimum((c + 1) * size, lens[b]))
                attend[b, c, h](
                    q[b, mine], k[b, span, h], v[b, span, h], parts[h, c], stats[h, c], scale=scale
                )
            for h in P(kv):
                merge[b, h](parts[h], stats[h], out[b, h * group : (h + 1) * group])

        def attend(tier: Tier, b):
            if tier.chunk == 0:
                whole(tier, b)
                return
            with P.when(count(tier, lens[b], slot_u64(CHUNK_SLOT)) == 1):
                whole(tier, b)
            with P.otherwise():
                cut(tier, b)

        rows = q.shape[0]
        fits = lambda units: reduce_sum(rows, lambda b: chunks_of(lens[b], units)) <= blocks
        slot_set_u64(CHUNK_SLOT, search(1, LONGEST // unit, fits))
        for b in P(batch):
            *shorter, last = tiers
            with P.when(lens[b] == 0):
                pass
            for tier in shorter:
                with P.when(lens[b] <= tier.limit):
                    attend(tier, b)
            with P.otherwise():
                attend(last, b)

    return paged_decode
