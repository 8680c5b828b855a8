"""Cholesky factorisation by tiles, with kernels in plain Python: no C++ compiler is needed.

The workload says which tiles each task reads and writes; which tasks may run together follows from
that. Nothing here names an order.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

from pto_wsp import DenseDyn, In, InOut, P, Tensor, TracePolicy, kernel, workload


@kernel
def factor(a: InOut[Tensor]):
    a[...] = np.linalg.cholesky(a)


@kernel
def solve(diagonal: In[Tensor], a: InOut[Tensor]):
    a[...] = np.linalg.solve(diagonal, a.T).T


@kernel
def update(a: In[Tensor], b: In[Tensor], c: InOut[Tensor]):
    c[...] -= a @ b.T


@workload
def cholesky(tiles, n, A):
    for k in P(tiles):
        factor[k](A[k, k])
        for i in P(n - k - 1):
            solve[k, i](A[k, k], A[k + 1 + i, k])
        for i in P(n - k - 1):
            for j in P(i + 1):
                update[k, i, j](A[k + 1 + i, k], A[k + 1 + j, k], A[k + 1 + i, k + 1 + j])


def positive(text: str) -> int:
    """An argument that is 1 or more."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return int(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiles", type=positive, default=12, help="tiles in each direction")
    parser.add_argument("--size", type=positive, default=64, help="rows of a tile")
    args = parser.parse_args()
    n, size = args.tiles, args.size

    rng = np.random.default_rng(0)
    half = rng.standard_normal((n * size, n * size))
    matrix = half @ half.T + n * size * np.eye(n * size)
    tiles = matrix.reshape(n, size, n, size).swapaxes(1, 2).copy()

    program = (
        cholesky(DenseDyn(n), n, Tensor(data=tiles))
        .task_graph(trace=TracePolicy.timestamps())
        .compile(num_threads=2)
    )
    start = time.perf_counter()
    program.execute()
    seconds = time.perf_counter() - start

    found = np.tril(tiles.swapaxes(1, 2).reshape(n * size, n * size))
    good = np.allclose(found, np.linalg.cholesky(matrix))
    stats = program.stats
    print(f"{stats.tasks} tasks, {stats.edges} dependences found, {seconds * 1e3:.1f} ms")
    print("equal to numpy.linalg.cholesky" if good else "WRONG")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
