"""Programs whose host side is measured: LLaMA-7B attention, a call with many tensors, a stamp."""

from __future__ import annotations

from typing import Any

import numpy as np

from pto_wsp import (
    AUTO,
    DYNAMIC,
    DenseDyn,
    DType,
    In,
    InOut,
    Out,
    P,
    Scalar,
    Space,
    Sparse,
    Tensor,
    Workload,
    Workspace,
    axis,
    default,
    kernel,
    select_tier,
    tier,
    tiers,
    workload,
)

TILE = 32  # tokens; 16K tokens are 512 tiles
LLAMA_7B = (4, 32, 512, 512)  # batch, heads, query tiles, key tiles at 16K tokens
DIM = 128


# Only generation is measured, so the body does next to nothing.
@kernel(cpp_src="acc(0, 0) = acc(0, 0) + q(0, 0) * k(0, 0) * v(0, 0);")
def attend(q: In[Tensor], k: In[Tensor], v: In[Tensor], acc: InOut[Tensor]): ...


@workload
def attention(batch, heads, q_tiles, k_tiles, Q, K, V, acc):
    for b, h, i, j in P(batch, heads, q_tiles, k_tiles):
        attend[b, h, i, j](
            q=Q[b, h, i * TILE : (i + 1) * TILE],
            k=K[b, h, j * TILE : (j + 1) * TILE],
            v=V[b, h, j * TILE : (j + 1) * TILE],
            acc=acc[b, h, i * TILE : (i + 1) * TILE],
        )


def make_attention(extents: tuple[int, int, int, int]) -> Workload:
    """Attention of these extents. The pages of the tensors are never touched, so they cost none."""
    batch, heads, q_tiles, k_tiles = extents
    queries = batch, heads, q_tiles * TILE, DIM
    keys = batch, heads, k_tiles * TILE, DIM
    shapes = {"Q": queries, "K": keys, "V": keys, "acc": queries}
    tensors = {name: Tensor(data=np.empty(shape, np.float32)) for name, shape in shapes.items()}
    axes = [DenseDyn(extent) for extent in extents]
    return attention(*axes, **tensors)


@kernel(cpp_src="y[0] = x[0] * w[0] * s;")
def scaled(x: In[Tensor], w: In[Tensor], y: Out[Tensor], s: Scalar[DType.I64]): ...


@workload
def routed(batch, lens, routing, X, W, Y):
    for b in P(batch):
        for t in P(lens[b]):
            with P.when(t % 4 != 3):
                for e in P.sel(routing[b]):
                    scaled[b, t, e](X[b, t], W[e], Y[b, t, routing.pos], t)


def make_sparse(rows: int) -> Workload:
    """Ragged rows of up to 1000 tokens, a condition on the token, 8 of 64 columns for each row."""
    random = np.random.default_rng(0)
    batch = DenseDyn(rows)
    routing = Sparse(batch, np.arange(0, 8 * rows + 1, 8), random.integers(0, 64, 8 * rows))
    shapes = {"X": (rows, 1000), "W": (64,), "Y": (rows, 1000, 8)}
    tensors = {name: Tensor(data=np.empty(shape, np.float32)) for name, shape in shapes.items()}
    return routed(batch, random.integers(100, 1000, rows), routing, **tensors)


EIGHT = tuple(f"t{k}" for k in range(8))


@kernel(cpp_src="t0(0) = t1(0);")
def take_eight(
    t0: Out[Tensor],
    t1: In[Tensor],
    t2: In[Tensor],
    t3: In[Tensor],
    t4: In[Tensor],
    t5: In[Tensor],
    t6: In[Tensor],
    t7: In[Tensor],
): ...


@workload
def one_task(t0, t1, t2, t3, t4, t5, t6, t7):
    take_eight(t0, t1, t2, t3, t4, t5, t6, t7)


def make_eight() -> dict[str, np.ndarray[Any, Any]]:
    """Eight arrays to bind."""
    return {name: np.zeros(16, np.float32) for name in EIGHT}


# steady_clock and time.monotonic_ns() are the same clock on Linux.
@kernel(
    cpp_includes=["<chrono>"],
    cpp_src="""
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    at() = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
    """,
)
def stamp(at: Out[Tensor]): ...


@workload
def stamps(n, at):
    for i in P(n):
        stamp[i](at=at[i])


@kernel(cpp_src="y[0] = x[0];")
def short_sum(x: In[Tensor], y: Out[Tensor]): ...


@kernel(cpp_src="workspace[0] = x[0]; y[0] = workspace[0];")
def long_sum(x: In[Tensor], y: Out[Tensor], workspace: Out[Tensor]): ...


by_length = tiers(
    "by_length",
    tier(lambda n: n <= 2048, short_sum),
    tier(lambda n: n <= 8192, long_sum, Workspace((16,))),
    tier(lambda n: n <= 65536, long_sum, Workspace((64,))),
    default(long_sum, Workspace((128,))),
)
AXES = {"batch": axis(0, "batch_size"), "kv": axis(0, DYNAMIC, tile=AUTO), "head": axis(0, 32)}
decode = Space("decode", **AXES)
masked = Space("masked", where=lambda head: head < 31, **AXES)


def _chunks(s, select, x, y, lens, blocks):
    s.kv.fit(blocks, lens, s.batch.end, least=64)
    for b in P(s.batch):
        kernel = select(lens[b])
        for c in P(s.kv(lens[b])):
            for h in P(s.head):
                bounds = {"start": c.start, "stop": c.stop}
                s.emit(kernel, x[h : h + 1], y[b, c, h : h + 1], fields=bounds)


@decode.generator
def decode_chunks(s, x, y, lens, blocks):
    _chunks(s, lambda n: select_tier(by_length, n), x, y, lens, blocks)


@masked.generator
def masked_chunks(s, x, y, lens, blocks):
    _chunks(s, lambda n: short_sum, x, y, lens, blocks)


def make_decode(sequences: int, *, constrained: bool = False) -> Workload:
    """Ragged decode of so many sequences: about 6,000 descriptors each, of tiers with workspaces or
    under a constraint that is asked for each of them."""
    lens = np.random.default_rng(0).integers(1000, 16000, sequences)
    out = np.empty((sequences, 256, 32), np.float32)
    x, y = Tensor(data=np.zeros(32, np.float32)), Tensor(data=out)
    make = masked_chunks if constrained else decode_chunks
    return make(x, y, lens, Scalar(200 * sequences), batch_size=sequences)
