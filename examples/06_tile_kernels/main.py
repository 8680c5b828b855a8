"""One layer of a transformer from tile kernels: some from the library, one written here.

Each kernel is a few lines of tile mathematics, traced once and compiled for this machine. The
workload calls them on blocks of rows, heads and columns; that attention waits for its projections,
and the MLP for attention, follows from what they read and write.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

from pto_wsp import (
    DenseDyn,
    DType,
    In,
    Out,
    P,
    Tensor,
    Tile,
    kernel,
    kernels,
    minimum,
    pto,
    workload,
)

ROWS, COLS, HEAD = 32, 64, 64
F32 = DType.F32


Block = Tile[ROWS, COLS, F32]


@kernel
def add(x: In[Block], y: In[Block], out: Out[Block]):
    pto.store(out, x + y)


def layer(width: int, tokens: int):
    """The workload for rows of `width` numbers."""
    norm = kernels.rmsnorm(ROWS, width)
    product = kernels.gemm(ROWS, COLS, 128)
    attend = kernels.flash_attention(ROWS, 128, HEAD)
    gated = kernels.silu_mul(ROWS, COLS)

    def rows(i):
        """Block i; the last one may be short."""
        return slice(i * ROWS, minimum(i * ROWS + ROWS, tokens))

    @workload
    def run(blocks, heads, columns, X, Y, W):
        normed, q, k, v, mixed, up, gate, both = (
            Tensor.temp((tokens, width), F32) for _ in range(8)
        )

        def times(a, matrix, out):
            """out = a @ W[matrix], a tile a task."""
            for i, j in P(blocks, columns):
                part = slice(j * COLS, j * COLS + COLS)
                product[i, j](a[rows(i), 0:width], W[matrix, 0:width, part], out[rows(i), part])

        for i in P(blocks):
            norm[i](X[rows(i)], W[5, 0:1], normed[rows(i)])
        times(normed, 0, q)
        times(normed, 1, k)
        times(normed, 2, v)
        for h, i in P(heads, blocks):
            head = slice(h * HEAD, h * HEAD + HEAD)
            every = (slice(0, tokens), head)
            attend[h, i](q[rows(i), head], k[every], v[every], mixed[rows(i), head], HEAD**-0.5)
        times(mixed, 3, up)
        times(mixed, 4, gate)
        for i, j in P(blocks, columns):
            tile = (rows(i), slice(j * COLS, j * COLS + COLS))
            gated[i, j](gate[tile], up[tile], both[tile])
            add[i, j](both[tile], X[tile], Y[tile])

    return run


def expected(x, w):
    """The same in float64."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    normed = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-6) * w[5, :1]
    q, k, v = (normed @ w[i] for i in range(3))
    mixed = np.zeros_like(x)
    for h in range(0, x.shape[1], HEAD):
        scores = q[:, h : h + HEAD] @ k[:, h : h + HEAD].T * HEAD**-0.5
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        mixed[:, h : h + HEAD] = shares / shares.sum(axis=1, keepdims=True) @ v[:, h : h + HEAD]
    gate = mixed @ w[4]
    return gate / (1 + np.exp(-gate)) * (mixed @ w[3]) + x


def positive(text: str) -> int:
    """An argument that is 1 or more."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return int(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=positive, default=500)
    parser.add_argument("--heads", type=positive, default=4)
    args = parser.parse_args()
    tokens, width = args.tokens, args.heads * HEAD

    rng = np.random.default_rng(0)
    x = rng.standard_normal((tokens, width), np.float32)
    w = rng.standard_normal((6, width, width), np.float32) / np.float32(np.sqrt(width))
    y = np.zeros_like(x)

    blocks, columns = DenseDyn(-(-tokens // ROWS)), DenseDyn(width // COLS)
    given = (Tensor(data=each) for each in (x, y, w))
    work = layer(width, tokens)(blocks, DenseDyn(args.heads), columns, *given)
    with work.compile(num_threads=2) as program:
        program.execute()
        begin = time.perf_counter()
        program.execute()
        took = time.perf_counter() - begin
    wanted = expected(x, w)
    error = np.abs(y - wanted).max() / np.abs(wanted).max()
    print(
        f"{tokens} tokens, {args.heads} heads: {program.stats.tasks} tasks in {took * 1e3:.1f} ms"
    )
    print(f"largest error {error:.1e}: {'ok' if error < 1e-5 else 'WRONG'}")
    return 0 if error < 1e-5 else 1


if __name__ == "__main__":
    sys.exit(main())
