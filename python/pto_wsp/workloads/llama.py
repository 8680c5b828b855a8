"""A LLaMA layer, and a model of such layers that decodes: one token of each sequence a step.

Weights are stacked, `[layers, out, in]` with the matrices as torch stores them, and the layers are
a loop of the plan: eight of them or eighty, the plan is the same. Keys and values lie in pages
(`KvCache`). Lengths, tokens, page tables and the numbers of sequences, layers and steps are bound
at each run.
"""

# Parameters of workloads are axes, arrays and tensors; annotations of kernels are values.
# pyright: basic, reportInvalidTypeForm=false, reportArgumentType=false
import functools
import math
from dataclasses import dataclass

from pto_wsp import DType, In, InOut, Kernel, Out, P, Tensor, Tile, kernel, kernels, pto, workload
from pto_wsp import maximum as most
from pto_wsp import minimum as least
from pto_wsp.frontend.tensor_kinds import expect
from pto_wsp.workloads.factories import made_once
from pto_wsp.workloads.parts import check_sizes, part, parts
from pto_wsp.workloads.refusals import check_f32, refused

F32 = DType.F32


@dataclass(frozen=True, slots=True)
class LlamaShape:
    """What is fixed in a plan: the sizes of a layer, and how its work is cut into tasks."""

    d_model: int
    heads: int
    kv_heads: int
    d_ff: int
    head_dim: int = 64
    rows: int = 16  # sequences of a tile
    cols: int = 32  # columns of a product that are one task; a part of a head
    chunk: int = 256  # keys of a task of attention; longer sequences are split and merged
    keys: int = 64  # of them at a time
    eps: float = 1e-5

    def __post_init__(self) -> None:
        check_sizes(self)
        if self.heads % self.kv_heads:
            raise refused(
                f"LlamaShape: {self.heads} heads do not share {self.kv_heads} KV heads evenly",
                "the same number of query heads looks at each KV head",
                "pass heads that are a multiple of kv_heads",
            )
        if self.head_dim % 2:
            raise refused(
                f"LlamaShape: head_dim is {self.head_dim}, which is odd",
                "rotary embedding turns pairs of elements",
                "pass an even number for head_dim",
            )
        for name in ("head_dim", "d_model", "d_ff"):
            if getattr(self, name) % self.cols:
                raise refused(
                    f"LlamaShape: {name} is {getattr(self, name)}, no multiple of cols={self.cols}",
                    "a task is cols columns of a product, a part of a head, of d_model or of d_ff",
                    f"pass cols={self._fitting_cols}, which divides head_dim, d_model and d_ff, or "
                    "other sizes",
                )

    @property
    def group(self) -> int:
        """Query heads that share a head of the cache."""
        return self.heads // self.kv_heads

    @property
    def _fitting_cols(self) -> int:
        common = math.gcd(self.head_dim, self.d_model, self.d_ff)
        return max(cols for cols in range(1, self.cols + 1) if common % cols == 0)


@functools.cache
def rotate_and_append(group: int, dim: int, dtype: DType = F32) -> Kernel:
    """`rotate_and_append(q, k, v, cos, sin, key, value)`: turns the query heads of one token in
    place, and writes its key, turned as well, and its value."""
    half = dim // 2
    angle, token = Tile[1, half, F32], Tile[dim, dtype]

    def turned(x, rows: int, cos, sin):
        first = pto.cast(pto.load(x[0:rows, 0:half]), F32)
        second = pto.cast(pto.load(x[0:rows, half:dim]), F32)
        low, high = first * cos - second * sin, second * cos + first * sin
        return pto.cast(low, dtype), pto.cast(high, dtype)

    @kernel
    def rotate_and_append(
        q: InOut[Tile[group, dim, dtype]],
        k: In[Tile[1, dim, dtype]],
        v: In[token],
        cos: In[angle],
        sin: In[angle],
        key: Out[token],
        value: Out[token],
    ):
        low, high = turned(q, group, cos, sin)
        pto.store(q[0:group, 0:half], low)
        pto.store(q[0:group, half:dim], high)
        low, high = turned(k, 1, cos, sin)
        pto.store(key[0:half], low)
        pto.store(key[half:dim], high)
        pto.store(value, v)

    return rotate_and_append


@functools.cache
def join_heads(rows: int, dim: int) -> Kernel:
    """`join_heads(x, out)`: `[row, head, dim]` to `[row, head * dim]`, of which a product is one
    long sum."""

    @kernel(body="tile")
    def join_heads(x: In[Tensor], out: Out[Tensor]):
        for h in pto.for_range(0, x.shape[1]):
            head = pto.load(x[0:rows, h, 0:dim])
            pto.store(out[0:rows, h * dim : h * dim + dim], head)

    return join_heads


def _blocks(size: int, count):
    """Loops over `count` rows, `size` at a time: the number of a block and its rows, of which the
    last block may have fewer."""
    for i in P((count + size - 1) // size):
        yield i, slice(i * size, least(i * size + size, count))


def _columns(shape: LlamaShape, width, count):
    """Loops over the tiles of a product: their numbers, rows and columns, of which the last tile
    may have fewer. Tiles of the same columns follow each other, since they read the same
    weights."""
    for j in P(parts(width, shape.cols)):
        for i, rows in _blocks(shape.rows, count):
            yield (j, i), rows, part(j, shape.cols, width)


def _project(shape: LlamaShape, product: Kernel, x, matrix, layer, out) -> None:
    """out[sequence, head] = x @ matrix.T"""
    for h, c in P(out.shape[1], shape.head_dim // shape.cols):
        part = slice(c * shape.cols, c * shape.cols + shape.cols)
        first = h * shape.head_dim + c * shape.cols
        for i, rows in _blocks(shape.rows, x.shape[0]):
            weight = matrix[layer, first : first + shape.cols]
            product[h, c, i](x[rows], weight, out[rows, h, part])


def _expect_inputs(shape: LlamaShape, x, K, V, cos, sin):
    expect(x, None, shape.d_model)
    for each in (K, V):
        expect(each, None, None, shape.kv_heads, shape.head_dim)
    for each in (cos, sin):
        expect(each, None, shape.head_dim // 2)


def _expect_weights(shape: LlamaShape, norm_1, wq, wk, wv, wo, norm_2, w_gate, w_up, w_down):
    width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    for each in (norm_1, norm_2):
        expect(each, None, shape.d_model)
    for each, rows in ((wq, width), (wk, kv_width), (wv, kv_width)):
        expect(each, None, rows, shape.d_model)
    expect(wo, None, shape.d_model, width)
    for each in (w_gate, w_up):
        expect(each, None, shape.d_ff, shape.d_model)
    expect(w_down, None, shape.d_model, shape.d_ff)


@made_once
def llama_layer(shape: LlamaShape):
    """`llama_layer(shape)(batch, layer, lens, x, K, V, cos, sin, ...)`: one token of each sequence
    through layer `layer` of the stacked weights, `x[sequence, d_model]` in place.

    Sequence b has `lens[b]` tokens in the cache and gets one more, at that position. Page tables of
    `K` and `V` have as many rows for each layer of the weights, `layer * sequences + b`; a run may
    have fewer sequences than that, the first ones. `cos` and `sin` are `[position, head_dim / 2]`.
    """
    s = shape
    norm = kernels.rmsnorm(s.rows, s.d_model)
    product = kernels.linear(s.rows, s.cols)
    add_product = kernels.linear(s.rows, s.cols, add=True)
    join = join_heads(s.rows, s.head_dim)
    gated = kernels.gated_linear(s.rows, s.cols)
    rotate = rotate_and_append(s.group, s.head_dim)
    attend = kernels.flash_attention(s.group, s.keys, s.head_dim, paged=True)
    partial = kernels.decode(s.group, s.keys, s.head_dim, paged=True)
    merge = kernels.merge_partials(s.group, s.head_dim)
    scale = s.head_dim**-0.5

    def split(b, h, q, K, V, row, tokens, out) -> None:
        """Attention to a long sequence: a task for each chunk, and one that puts them together."""
        chunks = (tokens + s.chunk - 1) // s.chunk
        parts = Tensor.temp((chunks * s.group, s.head_dim), F32)
        stats = Tensor.temp((chunks * s.group, 2), F32)
        for c in P(chunks):
            some = (row, slice(c * s.chunk, least(c * s.chunk + s.chunk, tokens)), h)
            mine = slice(c * s.group, (c + 1) * s.group)
            partial[b, h, c](q, K[some], V[some], parts[mine], stats[mine], scale)
        merge[b, h](parts, stats, out)

    @workload
    def layer(
        batch, layer, lens, x, K, V, cos, sin, norm_1, wq, wk, wv, wo, norm_2, w_gate, w_up, w_down
    ):
        check_f32("llama_layer", x=x, K=K, V=V, cos=cos, sin=sin, norm_1=norm_1, norm_2=norm_2)
        check_f32("llama_layer", wq=wq, wk=wk, wv=wv, wo=wo)
        check_f32("llama_layer", w_gate=w_gate, w_up=w_up, w_down=w_down)
        _expect_inputs(s, x, K, V, cos, sin)
        _expect_weights(s, norm_1, wq, wk, wv, wo, norm_2, w_gate, w_up, w_down)
        count, of = x.shape[0], slice(layer, layer + 1)
        normed, between = (Tensor.temp((count, s.d_model), F32) for _ in range(2))
        q, mixed = (Tensor.temp((count, s.heads, s.head_dim), F32) for _ in range(2))
        k, v = (Tensor.temp((count, s.kv_heads, s.head_dim), F32) for _ in range(2))
        joined = Tensor.temp((count, s.heads * s.head_dim), F32)
        wide = Tensor.temp((count, s.d_ff), F32)
        sequences = K.shape[0] // most(norm_1.shape[0], 1)  # of the cache

        for i, rows in _blocks(s.rows, count):
            norm[i](x[rows], norm_1[of], normed[rows], s.eps)
        _project(s, product, normed, wq, layer, q)
        _project(s, product, normed, wk, layer, k)
        _project(s, product, normed, wv, layer, v)
        for b, h in P(batch, s.kv_heads):
            row, at = layer * sequences + b, lens[b]
            mine, here = q[b, h * s.group : h * s.group + s.group], slice(at, at + 1)
            out = mixed[b, h * s.group : h * s.group + s.group]
            new = (K[row, at, h], V[row, at, h])
            rotate[b, h](mine, k[b, h : h + 1], v[b, h], cos[here], sin[here], *new)
            with P.when(at < s.chunk):
                every = (row, slice(0, at + 1), h)
                attend[b, h](mine, K[every], V[every], out, scale)
            with P.otherwise():
                split(b, h, mine, K, V, row, at + 1, out)
        for i, rows in _blocks(s.rows, count):
            join[i](mixed[rows], joined[rows])
        for tile, rows, cols in _columns(s, s.d_model, count):
            add_product[tile](joined[rows], wo[layer, cols], x[rows, cols])

        for i, rows in _blocks(s.rows, count):
            norm[i](x[rows], norm_2[of], between[rows], s.eps)
        for tile, rows, cols in _columns(s, s.d_ff, count):
            gated[tile](between[rows], w_gate[layer, cols], w_up[layer, cols], wide[rows, cols])
        for tile, rows, cols in _columns(s, s.d_model, count):
            add_product[tile](wide[rows], w_down[layer, cols], x[rows, cols])

    return layer


class _Later:
    """The lengths after some steps."""

    def __init__(self, lens, steps) -> None:
        self.lens, self.steps = lens, steps

    def __getitem__(self, b):
        return self.lens[b] + self.steps


@made_once
def llama_step(shape: LlamaShape):
    """`llama_step(shape)(steps, layers, batch, lens, tokens, logits, K, V, cos, sin, embed, ...,
    norm_out, head)`: `steps` tokens of each sequence, each from the one before: embedding, all
    layers, norm, logits, and the largest of them.

    Step t takes `tokens[t]` and writes `tokens[t + 1]`, both `[sequence, 1]` of i32, and leaves its
    logits in `logits[t % logits.shape[0]]`. The pages have room for the new tokens. How many
    sequences there are, `tokens.shape[1]`, may change from run to run, as in `llama_layer`. A token
    that has no row in `embed` is embedded as zeros.
    """
    s = shape
    one_layer = llama_layer(shape)
    embedding = kernels.embedding(s.rows, s.d_model)
    norm = kernels.rmsnorm(s.rows, s.d_model)
    product = kernels.linear(s.rows, s.cols)
    largest = kernels.argmax(1, 1024)

    @workload
    def step(
        steps,
        layers,
        batch,
        lens,
        tokens,
        logits,
        K,
        V,
        cos,
        sin,
        embed,
        norm_1,
        wq,
        wk,
        wv,
        wo,
        norm_2,
        w_gate,
        w_up,
        w_down,
        norm_out,
        head,
    ):
        check_f32("llama_step", logits=logits, embed=embed, norm_out=norm_out, head=head)
        for each in (embed, head):
            expect(each, None, s.d_model)
        count, vocab = tokens.shape[1], head.shape[0]
        for t in P(steps):
            x, normed = (Tensor.temp((count, s.d_model), F32) for _ in range(2))
            scores = t % logits.shape[0]
            for i, rows in _blocks(s.rows, count):
                embedding[t, i](tokens[t, rows], embed, x[rows])
            for layer in P(layers):
                attention, mlp = (norm_1, wq, wk, wv, wo), (norm_2, w_gate, w_up, w_down)
                at = _Later(lens, t)
                one_layer(batch, layer, at, x, K, V, cos, sin, *attention, *mlp)
            for i, rows in _blocks(s.rows, count):
                norm[t, i](x[rows], norm_out, normed[rows], s.eps)
            for tile, rows, cols in _columns(s, vocab, count):
                product[tile](normed[rows], head[cols], logits[scores, rows, cols])
            for b in P(batch):
                this = slice(b, b + 1)
                largest[t, b](logits[scores, this], tokens[t + 1, this])

    return step
