"""Attention by tiles: whole, or in parts that are merged."""

# Annotations are values here, made from the arguments around them.
# pyright: basic, reportInvalidTypeForm=false, reportArgumentType=false
import functools
from dataclasses import dataclass
from typing import Any

from pto_wsp import DType, In, Kernel, Out, PagedTensor, Scalar, Tensor, Tile, kernel, pto

F32 = DType.F32
NEVER = float("-inf")
HIDDEN = -1e30  # a score whose exponential is 0 beside any other; a difference of two is no NaN


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys, or values, of a task, `cols` tokens of which are a block: [token, dim], or [token,
    head, dim] with several KV heads, which the same number of query rows look at each."""

    memory: Any
    cols: int
    dim: int
    heads: int = 1

    def block(self, at, head: int):
        where = (
            slice(at, at + self.cols),
            *((head,) if self.heads > 1 else ()),
            slice(0, self.dim),
        )
        return pto.cast(pto.load(self.memory[where]), F32)


def _attend(q, k: _Keys, v: _Keys, scale, hide=None, least: float = NEVER) -> list[Any]:
    """Goes over the keys once. Of each head, what its `carry` holds afterwards are the largest
    score of each row, the sum of exponentials and the sum of values, both relative to it.
    `hide(scores, at)` gives the scores of the keys from `at` on that are seen, and `least` for
    others. The heads of a block come one after the other: pages are read whole, which memory likes
    better than a part of each."""
    rows = q.shape[0] // k.heads
    heads = [
        pto.carry(
            most=pto.full((rows, 1), least, F32),
            total=pto.zeros((rows, 1), F32),
            sum=pto.zeros((rows, v.dim), F32),
        )
        for _ in range(k.heads)
    ]
    queries = [pto.cast(q, F32) * scale]
    if k.heads > 1:
        query = pto.pad(queries[0], 0.0)  # rows of a head are where they are counted to be
        queries = [query[mine] for mine in _rows_of(q, k.heads)]
    for at in pto.for_range(0, k.memory.shape[0], k.cols):
        scores = [pto.matmul(mine, k.block(at, h).T) for h, mine in enumerate(queries)]
        if hide is not None:
            scores = [hide(mine, at) for mine in scores]
        shares = [_share(s, mine) for s, mine in zip(heads, scores, strict=True)]
        for h, (s, mine) in enumerate(zip(heads, shares, strict=True)):
            s.sum = pto.matmul_acc(s.sum, mine, v.block(at, h))
    return heads


def _share(s, scores):
    """The exponentials of scores; what `s` holds becomes relative to the largest one by now."""
    most = pto.maximum(s.most, pto.row_max(scores))
    shares = pto.exp(scores - most)
    before = pto.exp(s.most - most)
    s.total = s.total * before + pto.row_sum(shares)
    s.sum = s.sum * before
    s.most = most
    return shares


def _rows_of(tile, heads: int) -> list[tuple[slice, slice]]:
    """The rows of each head, as an index."""
    rows, cols = tile.shape
    each = rows // heads
    return [(slice(h * each, (h + 1) * each), slice(0, cols)) for h in range(heads)]


@functools.cache
def flash_attention(
    rows: int, cols: int, dim: int, dtype: DType = F32, *, paged: bool = False, kv_heads: int = 1
) -> Kernel:
    """`flash_attention(q, k, v, out, scale)`: `rows` queries against all keys, `cols` of them at a
    time, without ever holding the matrix of scores. With several `kv_heads`, `k` and `v` are
    [token, head, dim], and the rows are shared out among the heads, in order."""
    _check_shares(rows, kv_heads)
    tile = Tile[rows, dim, dtype]
    cache = PagedTensor if paged else Tensor

    @kernel
    def flash_attention(
        q: In[tile], k: In[cache], v: In[cache], out: Out[tile], scale: Scalar[F32]
    ):
        keys, values = (_Keys(each, cols, dim, kv_heads) for each in (k, v))
        for mine, s in zip(_rows_of(out, kv_heads), _attend(q, keys, values, scale), strict=True):
            pto.store(out[mine], pto.cast(s.sum * pto.recip(s.total), dtype))

    return flash_attention


def _check_shares(rows: int, kv_heads: int) -> None:
    if kv_heads < 1 or rows % kv_heads:
        raise ValueError(f"{rows} query heads do not share {kv_heads} KV heads evenly")


@functools.cache
def masked_attention(
    rows: int,
    cols: int,
    dim: int,
    dtype: DType = F32,
    *,
    causal: bool = True,
    window: int = 0,
) -> Kernel:
    """`masked_attention(q, k, v, out, scale, shift)`: as `flash_attention`, but query i stands at
    key i + shift, and sees no key behind it (`causal`), and no more than `window` keys up to it, if
    that is not 0. A query that sees no key gives zeros."""
    tile = Tile[rows, dim, dtype]

    @kernel
    def masked_attention(
        q: In[tile],
        k: In[Tensor],
        v: In[Tensor],
        out: Out[tile],
        scale: Scalar[F32],
        shift: Scalar[DType.I64],
    ):
        def hide(scores, at):
            """Blocks that all queries see are left as they are."""
            s = pto.carry(scores=scores)
            edge = at + cols - 1 > shift
            if window:
                edge = edge | (at <= shift + rows - 1 - window)
            with pto.when(edge):
                own = pto.arange((rows, 1), start=pto.cast(shift - at, DType.I32), axis=0)
                key = pto.arange((1, cols))
                seen = key <= own
                if window:
                    seen = seen & (key > own - window)
                s.scores = pto.where(seen, s.scores, HIDDEN)
            return s.scores

        keys, values = (_Keys(each, cols, dim) for each in (k, v))
        (s,) = _attend(q, keys, values, scale, hide if causal else None, HIDDEN)
        # Of a query that has seen nothing yet the sums are wrong, but relative to HIDDEN: the first
        # key that it sees makes them nothing.
        shares = pto.where(s.most > HIDDEN, pto.recip(s.total), 0.0)
        pto.store(out, pto.cast(s.sum * shares, dtype))

    return masked_attention


@functools.cache
def decode(
    heads: int, cols: int, dim: int, dtype: DType = F32, *, paged: bool = False, kv_heads: int = 1
) -> Kernel:
    """`decode(q, k, v, part, stats, scale)`: one chunk of the keys for the query heads that share
    them. `part` is the sum of values, `stats` holds the largest score and the sum of exponentials;
    `merge_partials` puts chunks together. Several `kv_heads` as in `flash_attention`."""
    _check_shares(heads, kv_heads)
    cache = PagedTensor if paged else Tensor

    @kernel
    def decode(
        q: In[Tile[heads, dim, dtype]],
        k: In[cache],
        v: In[cache],
        part: Out[Tile[heads, dim, F32]],
        stats: Out[Tile[heads, 2, F32]],
        scale: Scalar[F32],
    ):
        keys, values = (_Keys(each, cols, dim, kv_heads) for each in (k, v))
        for mine, s in zip(_rows_of(part, kv_heads), _attend(q, keys, values, scale), strict=True):
            pto.store(part[mine], s.sum)
            pto.store(stats[mine[0], 0:1], s.most)
            pto.store(stats[mine[0], 1:2], s.total)

    return decode


@functools.cache
def merge_partials(heads: int, dim: int, dtype: DType = F32, *, at_once: int = 1) -> Kernel:
    """`merge_partials(parts, stats, out)`: the chunks of `decode`, however many there are, one
    below the other: `parts[chunk * heads + head, dim]`, `stats[chunk * heads + head, 2]`; zeros if
    there are none. Several `at_once` for machines on which one would wait for the other, as on a
    GPU."""

    @kernel
    def merge_partials(parts: In[Tensor], stats: In[Tensor], out: Out[Tile[heads, dim, dtype]]):
        s = pto.carry(
            most=pto.full((heads, 1), NEVER, F32),
            total=pto.zeros((heads, 1), F32),
            sum=pto.zeros((heads, dim), F32),
        )
        last = parts.shape[0] - heads
        for at in pto.for_range(0, parts.shape[0], at_once * heads):
            # Rows beyond the last chunk weigh nothing. A single one cannot be loaded there: in its
            # place the last one is read again.
            firsts = [at + c * heads for c in range(at_once)]
            starts = firsts if heads > 1 else [pto.minimum(first, last) for first in firsts]
            chunks = [slice(start, start + heads) for start in starts]
            mosts = [pto.pad(pto.load(stats[c, 0:1]), NEVER) for c in chunks]
            if heads == 1:
                counted = zip(firsts, mosts, strict=True)
                mosts = [pto.where(first <= last, most, NEVER) for first, most in counted]
            totals = [pto.pad(pto.load(stats[c, 1:2]), 0.0) for c in chunks]
            sums = [pto.pad(pto.load(parts[c, 0:dim]), 0.0) for c in chunks]
            most = functools.reduce(pto.maximum, mosts, s.most)
            before = pto.exp(s.most - most)
            total, sum = s.total * before, s.sum * before
            for m, t, p in zip(mosts, totals, sums, strict=True):
                share = pto.exp(m - most)
                total, sum = total + t * share, sum + p * share
            s.most, s.total, s.sum = most, total, sum
        shares = pto.where(s.total == 0.0, 0.0, pto.recip(s.total))
        pto.store(out, pto.cast(s.sum * shares, dtype))

    return merge_partials


@functools.cache
def rope(rows: int, dim: int, dtype: DType = F32) -> Kernel:
    """`rope(x, cos, sin, out)`: rotary embedding; element i turns with element i + dim / 2."""
    half = dim // 2
    if half * 2 != dim:
        raise ValueError(f"rotary embedding turns pairs, {dim} is odd")
    tile = Tile[rows, dim, dtype]
    angle = Tile[rows, half, F32]

    @kernel
    def rope(x: In[tile], cos: In[angle], sin: In[angle], out: Out[tile]):
        first = pto.cast(pto.load(x[0:rows, 0:half]), F32)
        second = pto.cast(pto.load(x[0:rows, half:dim]), F32)
        pto.store(out[0:rows, 0:half], pto.cast(first * cos - second * sin, dtype))
        pto.store(out[0:rows, half:dim], pto.cast(second * cos + first * sin, dtype))

    return rope
