"""Sparse attention as in DeepSeek-V3.2: an indexer scores all cached tokens, attention is to the
best of them.

Sequences of very different lengths decode together, a token of each in a run. Prologs, scores,
top-k, attention to the chosen rows of a paged latent cache and output projection are one plan; the
caches grow from run to run, and nothing is compiled again.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

from pto_wsp import PagedTensor, Tensor, TracePolicy, workloads

SHAPE = workloads.SparseAttentionShape(
    d_model=256,
    heads=16,
    q_rank=128,
    kv_rank=96,
    nope=48,
    rope=32,
    v_dim=48,
    index_heads=8,
    index_dim=64,
    top_k=256,
)
PAGE = 16


def weights(rng):
    s = SHAPE
    shapes = {
        "Wdq": (s.q_rank, s.d_model),
        "q_norm": (1, s.q_rank),
        "Wuq": (s.heads, s.nope + s.rope, s.q_rank),
        "Wdkv": (s.width, s.d_model),
        "kv_norm": (1, s.kv_rank),
        "Wuk": (s.heads, s.nope, s.kv_rank),
        "Wuv": (s.heads, s.v_dim, s.kv_rank),
        "Wo": (s.d_model, s.heads * s.v_dim),
        "Wiq": (s.index_heads, s.index_dim, s.q_rank),
        "Wik": (s.index_dim, s.d_model),
        "index_norm": (1, s.index_dim),
        "index_bias": (1, s.index_dim),
        "Wiw": (s.index_heads, s.d_model),
    }
    return {
        name: rng.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[-1]))
        for name, shape in shapes.items()
    }


class Caches:
    """Latents and index keys in pages, which lie in any order."""

    def __init__(self, rng, sequences: int, tokens: int) -> None:
        pages = -(-tokens // PAGE)
        self.table = rng.permutation(sequences * pages).reshape(sequences, pages).astype(np.int32)
        widths = SHAPE.width, SHAPE.index_dim
        self.latent, self.keys = (
            rng.standard_normal((sequences * pages, PAGE, width), np.float32) for width in widths
        )

    def rows(self, pool, sequence: int, tokens: int):
        return pool[self.table[sequence]].reshape(-1, pool.shape[2])[:tokens].astype(np.float64)


def turn(x, cos, sin):
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def attention(x, w, cos, sin, latent, keys):
    """What one token says, in float64, from caches that it is in; and to how many it attends."""
    s = SHAPE
    down = w["Wdq"] @ x
    q_latent = down / np.sqrt((down * down).mean() + s.eps) * w["q_norm"][0]
    asked = w["Wiq"] @ q_latent
    asked = np.concatenate([turn(asked[:, : s.rope], cos, sin), asked[:, s.rope :]], axis=1)
    scores = (w["Wiw"] @ x) @ np.maximum(asked @ keys.T, 0)
    seen = latent[np.argsort(-scores, kind="stable")[: s.top_k]]
    q = w["Wuq"] @ q_latent
    query = np.concatenate(
        [
            np.einsum("hn,hnr->hr", q[:, : s.nope], w["Wuk"]),
            turn(q[:, s.nope :], cos, sin),
        ],
        axis=1,
    )
    dots = query @ seen.T * (s.nope + s.rope) ** -0.5
    shares = np.exp(dots - dots.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    values = np.einsum("hr,hvr->hv", shares @ seen[:, : s.kv_rank], w["Wuv"])
    return w["Wo"] @ values.ravel(), len(seen)


def positive(text: str) -> int:
    """An argument that is 1 or more."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return int(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=positive, default=6)
    parser.add_argument("--longest", type=positive, default=3000)
    parser.add_argument("--steps", type=positive, default=3)
    args = parser.parse_args()

    rng = np.random.default_rng(0)
    n, room = args.sequences, args.longest + args.steps
    w, caches = weights(rng), Caches(rng, n, room)
    wide = {name: value.astype(np.float64) for name, value in w.items()}
    angles = np.outer(np.arange(room), 1e-4 ** (np.arange(SHAPE.rope // 2) / (SHAPE.rope // 2)))
    cos, sin = np.cos(angles), np.sin(angles)
    lengths = np.geomspace(min(100, args.longest), args.longest, n).astype(np.int32)
    x, y = rng.standard_normal((2, n, SHAPE.d_model), np.float32)

    arrays = {**w, "cos": cos.astype(np.float32), "sin": sin.astype(np.float32), "X": x, "Y": y}
    work = workloads.sparse_attention(SHAPE)(
        sequence=np.arange(n, dtype=np.int32),
        position=lengths,
        latent=PagedTensor(caches.latent, caches.table),
        index_keys=PagedTensor(caches.keys, caches.table),
        **{name: Tensor(data=value) for name, value in arrays.items()},
    )
    program = work.task_graph(trace=TracePolicy.timestamps()).compile(num_threads=2)
    right = True
    for step in range(args.steps):
        begin = time.perf_counter()
        program.execute(position=lengths + step)
        took = time.perf_counter() - begin
        error, attended = 0.0, 0
        for i, p in enumerate(lengths + step):
            cached = (caches.rows(pool, i, p + 1) for pool in (caches.latent, caches.keys))
            wanted, seen = attention(x[i].astype(np.float64), wide, cos[p], sin[p], *cached)
            error = max(error, np.abs(y[i] - wanted).max() / np.abs(wanted).max())
            attended += seen
        right = right and error < 1e-4
        print(
            f"step {step}   {n} sequences of {lengths[0] + step} to {lengths[-1] + step} tokens: "
            f"attention to {attended} of {(lengths + step + 1).sum()}, "
            f"{program.stats.tasks} tasks in {took * 1e3:.1f} ms, error {error:.1e}"
        )
    asked = np.unique(program.trace["indices"][program.trace["kernel"] == "index_scores", 0])
    long = np.flatnonzero(lengths + args.steps > SHAPE.top_k)
    right = right and asked.tolist() == long.tolist()
    print(f"verdict  {'OK' if right else 'WRONG'}: indexer for {len(asked)} of {n} sequences")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
