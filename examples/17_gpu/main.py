"""A program on a GPU, and decode attention as an operator of PyTorch.

Lengths lie on the device and change between runs; the kernel stays the same. Without a GPU
everything runs in Triton's interpreter, which takes its time: sizes are small unless told.
"""

# The parameters of workloads are symbols, annotations of kernels values.
# pyright: basic, reportInvalidTypeForm=false
from __future__ import annotations

import argparse
import os
import sys

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before anything of Triton is loaded

import numpy as np

import pto_wsp.torch_ops
from pto_wsp import DenseDyn, DType, In, Out, P, Program, Tensor, Tile, kernel, pto, workload

WHERE = "cuda" if torch.cuda.is_available() else "cpu"
ROWS, COLS = 16, 64
TILE = Tile[ROWS, COLS, DType.F32]


@kernel
def softmax(x: In[TILE], y: Out[TILE]):
    shares = pto.exp(pto.load(x) - pto.row_max(x))
    pto.store(y, shares * pto.recip(pto.row_sum(shares)))


@workload
def by_rows(batch, lens, x, y):
    for b in P(batch):
        for t in P(lens[b]):
            rows = slice(ROWS * t, ROWS * t + ROWS)
            softmax[b, t](x[b, rows], y[b, rows])


def build(batch: int) -> Program:
    """Arrays are bound when it runs."""
    empty = np.zeros((1, ROWS, COLS), np.float32)
    x, y = Tensor(data=empty, name="x"), Tensor(data=empty.copy(), name="y")
    return by_rows(DenseDyn(batch), np.zeros(batch, np.int32), x, y).compile(target="cuda")


def run(batch: int, longest: int) -> bool:
    """Two runs with other lengths; what no task writes stays what it was."""
    x = torch.randn(batch, ROWS * longest, COLS, device=WHERE)
    right = True
    with build(batch) as program:
        for turn in range(2):
            lens = torch.randint(0, longest + 1, (batch,), dtype=torch.int32, device=WHERE)
            y = torch.zeros_like(x)
            program.execute(lens=lens, x=x, y=y)
            wanted = x.softmax(2)
            for b, length in enumerate(lens.tolist()):
                wanted[b, ROWS * length :] = 0.0
            right &= torch.allclose(y, wanted, atol=1e-6)
            print(f"run {turn}: {program.stats.tasks} tasks in {program.num_workers} blocks")
        print(program.explain())
    return right


def attention(q, k_pool, v_pool, table, lens) -> torch.Tensor:
    """What the operator is to give, sequence by sequence."""
    found = []
    for b, length in enumerate(lens.tolist()):
        k, v = (pool[table[b].long()].flatten(0, 1)[:length] for pool in (k_pool, v_pool))
        group = q.shape[1] // k.shape[1]
        k, v = (each.repeat_interleave(group, 1).transpose(0, 1) for each in (k, v))
        scores = torch.einsum("hd,htd->ht", q[b], k) / q.shape[2] ** 0.5
        found.append(torch.einsum("ht,htd->hd", scores.softmax(1), v))
    return torch.stack(found)


def decode(sequences: int, longest: int) -> bool:
    """One decode step from pages in random order."""
    heads, kv_heads, dim, page = (32, 8, 128, 16) if WHERE == "cuda" else (2, 1, 16, 16)
    width = -(-longest // page)
    table = torch.randperm(sequences * width, device=WHERE, dtype=torch.int32)
    table = table.reshape(sequences, width)
    pools = [torch.randn(len(table) * width, page, kv_heads, dim, device=WHERE) for _ in range(2)]
    q = torch.randn(sequences, heads, dim, device=WHERE)
    lens = torch.randint(1, longest + 1, (sequences,), device=WHERE)
    out = torch.ops.pto_wsp.paged_decode(q, *pools, table, lens)
    pto_wsp.torch_ops.synchronize()  # nobody else waits, and raises what went wrong
    error = float((out - attention(q, *pools, table, lens)).abs().max())
    print(f"decode of {int(lens.sum())} tokens: largest difference {error:.1e}")
    return error < 1e-4


def positive(text: str) -> int:
    """An argument that is 1 or more."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return int(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=positive, default=64 if WHERE == "cuda" else 2)
    parser.add_argument("--longest", type=positive, default=4096 if WHERE == "cuda" else 40)
    options = parser.parse_args()
    torch.manual_seed(7)
    print("on", torch.cuda.get_device_name() if WHERE == "cuda" else "Triton's interpreter")
    right = run(options.sequences, max(1, options.longest // ROWS))
    right &= decode(options.sequences, options.longest)
    print("all as it should be" if right else "WRONG")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
