"""Attention as in DeepSeek-V3.2: a latent cache, of which an indexer picks what is attended to."""

# The parameters of a workload are symbols while it is traced.
# pyright: basic
from dataclasses import dataclass

from pto_wsp import DType, P, Tensor, combine, kernels, minimum, workload
from pto_wsp.frontend.tensor_kinds import expect
from pto_wsp.frontend.workloads import WorkloadFunction
from pto_wsp.workloads.factories import made_once
from pto_wsp.workloads.parts import Product, check_sizes, part, parts
from pto_wsp.workloads.refusals import check_f32, refused
from pto_wsp.workloads.sparse_kernels import (
    absorbed_query,
    attend_latent,
    index_row,
    index_scores,
    latent_row,
)

F32, I32 = DType.F32, DType.I32


@dataclass(frozen=True, slots=True)
class SparseAttentionShape:
    """What is fixed in a plan: the sizes of a layer, and how its work is cut into tasks."""

    d_model: int
    heads: int
    q_rank: int  # of the latent that queries are made of
    kv_rank: int  # of the latent that is cached for keys and values
    nope: int  # elements of a query without positions,
    rope: int  # and those with; the indexer's queries have as many
    v_dim: int
    index_heads: int
    index_dim: int
    top_k: int = 2048  # tokens that are attended to
    rows: int = 16  # tokens of a tile
    cols: int = 128  # columns of a product that are one task
    depth: int = 256  # of its sums that are taken at a time
    head_rows: int = 16  # heads that attend together
    keys: int = 64  # latents that they attend to at a time
    index_block: int = 256  # keys of the indexer that are one task
    eps: float = 1e-6

    @property
    def width(self) -> int:
        """Elements that are cached for a token."""
        return self.kv_rank + self.rope

    def __post_init__(self) -> None:
        check_sizes(self)
        if self.rope % 2:
            raise refused(
                f"SparseAttentionShape: rope is {self.rope}, which is odd",
                "rotary embedding turns pairs of elements",
                "pass an even number for rope",
            )
        if self.rope > self.index_dim:
            raise refused(
                f"SparseAttentionShape: rope is {self.rope}, and index_dim {self.index_dim}",
                "so many elements of an index key turn as of a query",
                "pass an index_dim of at least rope",
            )


@made_once
def sparse_attention(shape: SparseAttentionShape) -> WorkloadFunction:
    """`sparse_attention(X, sequence, position, cos, sin, ..., latent, index_keys, Y)`: each row of
    X is a token, at `position[i]` of `sequence[i]`. It is put into the caches and attends to
    itself and what stands before it there: to all of that if it is no more than `top_k` tokens,
    else to those `top_k` that the indexer gives the largest scores. Decoding is one token of each
    sequence; several of one sequence, in order, are a prefill, also in the same run.

    `cos` and `sin` are `[position, rope / 2]`. Weights are `[out, in]`: `Wdq` `[q_rank, d_model]`,
    `Wuq` `[heads, nope + rope, q_rank]`, `Wdkv` `[kv_rank + rope, d_model]`, `Wuk` `[heads, nope,
    kv_rank]`, `Wuv` `[heads, v_dim, kv_rank]`, `Wo` `[d_model, heads * v_dim]`, of the indexer
    `Wiq` `[index_heads, index_dim, q_rank]`, `Wik` `[index_dim, d_model]`, `Wiw` `[index_heads,
    d_model]`; `q_norm`, `kv_norm`, `index_norm` and `index_bias` are rows. The caches are
    PagedTensors: `latent` of rows of kv_rank + rope, `index_keys` of index_dim.
    """
    prolog, index_prolog = _prolog(shape), _index_prolog(shape)
    attend = _attend(shape)
    product = _product(shape)
    norm = kernels.rmsnorm(shape.rows, shape.q_rank)

    @workload
    def sparse_attention(
        X,
        sequence,
        position,
        cos,
        sin,
        Wdq,
        q_norm,
        Wuq,
        Wdkv,
        kv_norm,
        Wuk,
        Wuv,
        Wo,
        Wiq,
        Wik,
        index_norm,
        index_bias,
        Wiw,
        latent,
        index_keys,
        Y,
    ):
        _check_inputs(shape, X, Y, cos, sin, latent, index_keys)
        _check_weights(shape, Wdq, Wuq, Wdkv, Wuk, Wuv, Wo, Wiq, Wik, Wiw)
        check_f32("sparse_attention", q_norm=q_norm, kv_norm=kv_norm)
        check_f32("sparse_attention", index_norm=index_norm, index_bias=index_bias)
        tokens = X.shape[0]
        down = Tensor.temp((tokens, shape.q_rank), F32, name="down")
        q_latent = Tensor.temp((tokens, shape.q_rank), F32, name="q_latent")
        query = Tensor.temp((tokens, shape.heads, shape.width), F32, name="query")
        index_query = Tensor.temp(
            (tokens, shape.index_heads, shape.index_dim), F32, name="index_query"
        )
        index_weights = Tensor.temp((tokens, shape.index_heads), F32, name="index_weights")
        mixed = Tensor.temp((tokens, shape.heads, shape.kv_rank), F32, name="mixed")
        values = Tensor.temp((tokens, shape.heads * shape.v_dim), F32, name="values")

        for t in P(parts(tokens, shape.rows)):
            rows = part(t, shape.rows, tokens)
            product((t,), X[rows], (Wdq,), (down, rows), shape.q_rank)
            norm[t](down[rows], q_norm, q_latent[rows], shape.eps)
        places = (sequence, position, cos, sin)
        made = (index_norm, index_bias, index_query, index_weights)
        combine(
            prolog(X, q_latent, *places, Wuq, Wdkv, kv_norm, Wuk, query, latent),
            index_prolog(X, q_latent, *places, Wiq, Wik, Wiw, *made, index_keys),
        )
        for i in P(tokens):
            cached = (index_query, index_weights, index_keys, query, latent, mixed)
            attend(i, sequence[i], position[i] + 1, *cached)
        for t in P(parts(tokens, shape.rows)):
            rows = part(t, shape.rows, tokens)
            for h in P(shape.heads):
                head = mixed[rows, h], (Wuv, h), (values, rows)
                product((t, h), *head, shape.v_dim, first=h * shape.v_dim)
            product((t,), values[rows], (Wo,), (Y, rows), shape.d_model)

    return sparse_attention


def _check_inputs(shape: SparseAttentionShape, X, Y, cos, sin, latent, index_keys):
    check_f32("sparse_attention", X=X, Y=Y, latent=latent, index_keys=index_keys)
    check_f32("sparse_attention", cos=cos, sin=sin)
    for each in (X, Y):
        expect(each, None, shape.d_model)
    for each in (cos, sin):
        expect(each, None, shape.rope // 2)
    expect(latent, None, None, shape.width)
    expect(index_keys, None, None, shape.index_dim)


def _check_weights(shape: SparseAttentionShape, Wdq, Wuq, Wdkv, Wuk, Wuv, Wo, Wiq, Wik, Wiw):
    check_f32("sparse_attention", Wdq=Wdq, Wuq=Wuq, Wdkv=Wdkv, Wuk=Wuk, Wuv=Wuv, Wo=Wo)
    check_f32("sparse_attention", Wiq=Wiq, Wik=Wik, Wiw=Wiw)
    expect(Wdq, shape.q_rank, shape.d_model)
    expect(Wuq, shape.heads, shape.nope + shape.rope, shape.q_rank)
    expect(Wdkv, shape.width, shape.d_model)
    expect(Wuk, shape.heads, shape.nope, shape.kv_rank)
    expect(Wuv, shape.heads, shape.v_dim, shape.kv_rank)
    expect(Wo, shape.d_model, shape.heads * shape.v_dim)
    expect(Wiq, shape.index_heads, shape.index_dim, shape.q_rank)
    expect(Wik, shape.index_dim, shape.d_model)
    expect(Wiw, shape.index_heads, shape.d_model)


def _product(shape: SparseAttentionShape) -> Product:
    return Product(kernels.linear(shape.rows, shape.cols, shape.depth), shape.cols)


def _prolog(shape: SparseAttentionShape) -> WorkloadFunction:
    """Queries of all heads, and what is cached of the tokens."""
    rows_of, rope = shape.rows, shape.rope
    one_query = absorbed_query(rows_of, shape.nope, rope, shape.kv_rank, shape.depth)
    product = _product(shape)
    one_row = latent_row(shape.heads, shape.kv_rank, rope, shape.eps)

    @workload
    def prolog(X, q_latent, sequence, position, cos, sin, Wuq, Wdkv, kv_norm, Wuk, query, latent):
        tokens = X.shape[0]
        kv = Tensor.temp((tokens, shape.width), F32, name="kv")
        for t in P(parts(tokens, rows_of)):
            rows = part(t, rows_of, tokens)
            for h in P(shape.heads):
                one_query[t, h](q_latent[rows], Wuq[h], Wuk[h], query[rows, h])
            product((t,), X[rows], (Wdkv,), (kv, rows), shape.width)
        for i in P(tokens):
            p = position[i]
            angles, turning = (cos[p : p + 1], sin[p : p + 1]), query[i, :, shape.kv_rank :]
            cached = latent[sequence[i], p : p + 1]
            one_row[i](kv[i : i + 1], kv_norm, *angles, turning, cached)

    return prolog


def _index_prolog(shape: SparseAttentionShape) -> WorkloadFunction:
    """Queries of the indexer, the weights of its heads, and its keys of the tokens."""
    rows_of, heads, dim = shape.rows, shape.index_heads, shape.index_dim
    product = _product(shape)
    one_row = index_row(heads, dim, shape.rope, shape.eps)

    @workload
    def index_prolog(
        X, q_latent, sequence, position, cos, sin, Wiq, Wik, Wiw, norm, bias, query, weights, keys
    ):
        tokens = X.shape[0]
        key = Tensor.temp((tokens, dim), F32, name="key")
        for t in P(parts(tokens, rows_of)):
            rows = part(t, rows_of, tokens)
            for h in P(heads):
                product((t, h), q_latent[rows], (Wiq, h), (query, rows, h), dim)
            product((t,), X[rows], (Wik,), (key, rows), dim)
            product((t,), X[rows], (Wiw,), (weights, rows), heads)
        for i in P(tokens):
            p = position[i]
            angles = cos[p : p + 1], sin[p : p + 1]
            one_row[i](key[i : i + 1], norm, bias, *angles, query[i], keys[sequence[i], p])

    return index_prolog


def _attend(shape: SparseAttentionShape) -> WorkloadFunction:
    """One token's attention to the first `length` tokens of its sequence."""
    score = index_scores(shape.index_heads, shape.index_dim, shape.index_block)
    select = kernels.select_topk(shape.top_k)
    sizes = (shape.head_rows, shape.kv_rank, shape.rope, shape.keys)
    attend_chosen = attend_latent(*sizes, chosen=True)
    attend_all = attend_latent(*sizes, chosen=False)
    scale = (shape.nope + shape.rope) ** -0.5
    index_scale = (shape.index_heads * shape.index_dim) ** -0.5

    @workload
    def attend(i, s, length, index_query, index_weights, index_keys, query, latent, mixed):
        groups = parts(shape.heads, shape.head_rows)
        with P.when(length <= shape.top_k):
            for g in P(groups):
                heads = part(g, shape.head_rows, shape.heads)
                attend_all[i, g](query[i, heads], latent[s, :length], mixed[i, heads], scale)
        with P.otherwise():
            # The cache has room for no more, which bounds the temporary.
            scores = Tensor.temp((minimum(length, index_keys.shape[1]),), F32, name="scores")
            chosen = Tensor.temp((shape.top_k,), I32, name="chosen")
            for b in P(parts(length, shape.index_block)):
                at = part(b, shape.index_block, length)
                asked = index_query[i], index_weights[i]
                score[i, b](*asked, index_keys[s, at], scores[at], index_scale)
            select[i](scores, chosen)
            for g in P(groups):
                heads = part(g, shape.head_rows, shape.heads)
                cached = latent[s, :length], chosen
                attend_chosen[i, g](query[i, heads], *cached, mixed[i, heads], scale)

    return attend
