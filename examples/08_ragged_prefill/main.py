"""Prefill of sequences that are packed behind each other, causal or with a sliding window.

A task is a block of queries of one head, and is given the keys that these queries see: what the
mask hides generates no task and is never read. The same plan takes other lengths. Results are
compared with NumPy.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

from pto_wsp import DenseDyn, Tensor, workloads

HEADS, KV_HEADS, DIM = 8, 2, 64


def pack(lengths: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """What a batch of these lengths binds."""
    starts = np.concatenate([[0], np.cumsum(lengths)])
    shapes = {"q": (starts[-1], HEADS, DIM)} | dict.fromkeys("kv", (starts[-1], KV_HEADS, DIM))
    arrays = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    return {"q_starts": starts, "k_starts": starts, **arrays, "out": np.zeros_like(arrays["q"])}


def error(data: dict[str, np.ndarray], window: int) -> float:
    """The largest difference from NumPy in float64."""
    worst = 0.0
    for first, end in zip(data["q_starts"], data["q_starts"][1:], strict=False):
        q, k, v = (data[name][first:end].astype(np.float64) for name in "qkv")
        k, v = (np.repeat(each, HEADS // KV_HEADS, axis=1) for each in (k, v))
        at = np.arange(end - first)
        seen = at[None] <= at[:, None]
        if window:
            seen &= at[None] > at[:, None] - window
        scores = np.where(seen, np.einsum("qhd,khd->hqk", q, k) / np.sqrt(DIM), -np.inf)
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        weights /= weights.sum(axis=2, keepdims=True)
        wanted = np.einsum("hqk,khd->qhd", weights, v)
        worst = max(worst, float(np.abs(data["out"][first:end] - wanted).max()))
    return worst


def positive(text: str) -> int:
    """An argument that is 1 or more."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return int(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=12)
    parser.add_argument("--longest", type=positive, default=1000, help="tokens of a sequence")
    parser.add_argument("--window", type=int, default=128, help="keys that a query sees, of all")
    parser.add_argument("--workers", type=int, default=0, help="0: one per core")
    args = parser.parse_args()

    rng = np.random.default_rng(0)
    batches = [
        pack(np.exp(rng.uniform(0, np.log(args.longest), count)).astype(np.int64), rng)
        for count in (args.sequences, args.sequences // 2)
    ]
    worst = 0.0
    for window in (0, args.window):
        prefill = workloads.ragged_prefill(HEADS, KV_HEADS, DIM, window=window)
        given = dict(batches[0])
        tensors = {name: Tensor(data=given.pop(name)) for name in ("q", "k", "v", "out")}
        made = prefill(DenseDyn(args.sequences), **given, **tensors)
        with made.compile(num_threads=args.workers) as program:
            for data in batches:
                begin = time.perf_counter()
                program.execute(batch=len(data["q_starts"]) - 1, **data)
                took = time.perf_counter() - begin
                worst = max(worst, error(data, window))
                mask = f"the last {window} keys" if window else "all keys before"
                print(
                    f"{mask:20} {len(data['q']):6} tokens of {len(data['q_starts']) - 1} "
                    f"sequences: {program.stats.tasks} tasks in {took * 1e3:.1f} ms"
                )
    print(f"verdict  {'OK' if worst < 1e-5 else 'WRONG'}: at most {worst:.1e} from NumPy")
    return 0 if worst < 1e-5 else 1


if __name__ == "__main__":
    sys.exit(main())
