"""The kernels of sparse attention to a latent cache."""

# Annotations are values here, made from the arguments around them.
# pyright: basic, reportInvalidTypeForm=false, reportArgumentType=false
import functools

from pto_wsp import (
    DType,
    In,
    InOut,
    Kernel,
    Out,
    PagedTensor,
    Scalar,
    Tensor,
    Tile,
    kernel,
    pto,
)

F32, I32 = DType.F32, DType.I32
NEVER = float("-inf")


def _turned(first, second, cos, sin):
    """Rotary embedding: element i of the first half turns with element i of the second."""
    return first * cos - second * sin, second * cos + first * sin


def _turn(to, at_to: int, x, at: int, rows: int, half: int, cos, sin) -> None:
    """The same from elements of a parameter into those of another, or of the same."""
    first = pto.load(x[0:rows, at : at + half])
    second = pto.load(x[0:rows, at + half : at + 2 * half])
    for n, turned in enumerate(_turned(first, second, cos, sin)):
        begin = at_to + n * half
        pto.store(to[0:rows, begin : begin + half], turned)


@functools.cache
def absorbed_query(rows: int, nope: int, rope: int, rank: int, depth: int) -> Kernel:
    """`absorbed_query(latent, up, keys, out)`: the query of one head for a tile of tokens. What of
    it meets the cached latents directly comes first: `keys`, which would make a key of a latent, is
    applied to the query instead. The part with positions follows, not turned yet."""
    width = nope + rope

    @kernel(body="tile")
    def absorbed_query(
        latent: In[Tensor],
        up: In[Tensor],
        keys: In[Tile[nope, rank, F32]],
        out: Out[Tile[rows, rank + rope, F32]],
    ):
        s = pto.carry(q=pto.zeros((rows, width), F32))
        for k in pto.for_range(0, latent.shape[1], depth):
            part = pto.load(latent[0:rows, k : k + depth])
            s.q = pto.matmul_acc(s.q, part, pto.load(up[0:width, k : k + depth]).T)
        pto.store(out[0:rows, 0:rank], pto.matmul(s.q[0:rows, 0:nope], keys))
        pto.store(out[0:rows, rank : rank + rope], s.q[0:rows, nope:width])

    return absorbed_query


@functools.cache
def latent_row(heads: int, rank: int, rope: int, eps: float) -> Kernel:
    """`latent_row(kv, weight, cos, sin, query, latent)`: of one token, the normed latent and the
    turned key for the cache; its queries are turned in place."""
    half = rope // 2
    angle = Tile[1, half, F32]

    @kernel
    def latent_row(
        kv: In[Tile[1, rank + rope, F32]],
        weight: In[Tile[1, rank, F32]],
        cos: In[angle],
        sin: In[angle],
        query: InOut[Tile[heads, rope, F32]],
        latent: Out[Tile[1, rank + rope, F32]],
    ):
        wide = pto.load(kv[0:1, 0:rank])
        pto.store(latent[0:1, 0:rank], wide * pto.rsqrt(pto.row_mean(wide * wide) + eps) * weight)
        _turn(latent, rank, kv, rank, 1, half, cos, sin)
        _turn(query, 0, query, 0, heads, half, cos, sin)

    return latent_row


@functools.cache
def index_row(heads: int, dim: int, rope: int, eps: float) -> Kernel:
    """`index_row(k, weight, bias, cos, sin, query, key)`: of one token, the key by which the
    indexer finds it; its queries are turned in place. The first `rope` elements have positions."""
    half = rope // 2
    row, angle = Tile[1, dim, F32], Tile[1, half, F32]

    @kernel
    def index_row(
        k: In[row],
        weight: In[row],
        bias: In[row],
        cos: In[angle],
        sin: In[angle],
        query: InOut[Tile[heads, dim, F32]],
        key: Out[Tile[dim, F32]],
    ):
        centred = k - pto.row_mean(k)
        scale = pto.rsqrt(pto.row_mean(centred * centred) + eps)
        normed = pto.pad(centred * scale * weight + bias, 0.0)
        low, high = _turned(normed[0:1, 0:half], normed[0:1, half:rope], cos, sin)
        pto.store(key[0:half], low)
        pto.store(key[half:rope], high)
        if rope < dim:
            pto.store(key[rope:dim], normed[0:1, rope:dim])
        _turn(query, 0, query, 0, heads, half, cos, sin)

    return index_row


@functools.cache
def index_scores(heads: int, dim: int, block: int) -> Kernel:
    """`index_scores(query, weights, keys, out, scale)`: for each key the sum over heads of
    weight * relu(query . key)."""

    @kernel(body="tile")
    def index_scores(
        query: In[Tile[heads, dim, F32]],
        weights: In[Tile[heads, F32]],
        keys: In[PagedTensor],
        out: Out[Tile[block, F32]],
        scale: Scalar[F32],
    ):
        dots = pto.matmul(query, pto.load(keys[0:block, 0:dim]).T)
        pto.store(out, pto.matmul(weights * scale, pto.relu(dots)))

    return index_scores


@functools.cache
def attend_latent(heads: int, rank: int, rope: int, block: int, *, chosen: bool) -> Kernel:
    """`attend_latent(query, latent, which, out, scale)`: attention of a tile of heads to the
    cached latents whose numbers are in `which`, `block` of them at a time; without `chosen` there
    is no `which`, and attention is to all of them. What is added up are latents, too."""
    width = rank + rope

    def merged(s, query, rows):
        """What has been seen, and some more rows of the cache."""
        scores = pto.matmul(query, rows.T)
        most = pto.maximum(s.most, pto.row_max(scores))
        shares, before = pto.exp(scores - most), pto.exp(s.most - most)
        s.total = s.total * before + pto.row_sum(shares)
        s.sum = pto.matmul_acc(s.sum * before, shares, rows)
        s.most = most

    def nothing():
        return pto.carry(
            most=pto.full((heads, 1), NEVER, F32),
            total=pto.zeros((heads, 1), F32),
            sum=pto.zeros((heads, width), F32),
        )

    def told(s):
        # The last columns of the sum belong to no value: they are cheaper added up than cut off
        # in each block.
        return s.sum[0:heads, 0:rank] * pto.recip(s.total)

    @kernel
    def attend_all(
        query: In[Tile[heads, width, F32]],
        latent: In[PagedTensor],
        out: Out[Tile[heads, rank, F32]],
        scale: Scalar[F32],
    ):
        s = nothing()
        for at in pto.for_range(0, latent.shape[0], block):
            merged(s, query * scale, pto.load(latent[at : at + block, 0:width]))
        pto.store(out, told(s))

    @kernel
    def attend_chosen(
        query: In[Tile[heads, width, F32]],
        latent: In[PagedTensor],
        which: In[Tensor],
        out: Out[Tile[heads, rank, F32]],
        scale: Scalar[F32],
    ):
        s = nothing()
        for at in pto.for_range(0, which.shape[0], block):
            rows = pto.gather(latent, pto.load(which[at : at + block]).T, cols=width)
            merged(s, query * scale, rows)
        pto.store(out, told(s))

    return attend_chosen if chosen else attend_all
