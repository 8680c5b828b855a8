"""A small LLaMA-like model writes text: a batch of sequences, a token of each in every step.

A step is one run of one plan: embedding, all layers, logits, and the largest of them. Between steps
the host binds the lengths and the page table, both of which have grown; nothing is traced or
compiled again. At the end, logits and tokens are compared with NumPy in float64.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pto_wsp import Program
from pto_wsp.workloads import LlamaModel, LlamaShape, random_model, rope_tables

SHAPE = LlamaShape(d_model=512, heads=8, kv_heads=4, d_ff=1408)
PROMPTS = (5, 40, 130, 250)  # tokens that are in the cache when decoding begins
NEAR = 1e-5  # relative error of logits
TOGETHER = 10  # the last steps are one run


@dataclass
class Record:
    """What the steps left behind, made before them: they are not to need new memory."""

    tokens: Any
    logits: Any
    seconds: list[float] = field(default_factory=list)  # a step
    tasks: list[int] = field(default_factory=list)  # a step
    resident: list[int] = field(default_factory=list)  # bytes after each run
    widths: set[int] = field(default_factory=set)

    @property
    def grown(self) -> float | None:
        """MB by which steps from the tenth on, of one run each, made the process larger; None if
        there are too few of them to say."""
        singles = self.resident[10:-1]
        return (singles[-1] - singles[0]) / 2**20 if len(singles) > 1 else None


def resident_bytes() -> int:
    """Memory of this process that is in use now, where the system says so."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def decode(program: Program, model: LlamaModel, steps: int) -> Record:
    """Steps one by one, and the last of them in one run."""
    count, vocab = len(model.lens), model.logits.shape[2]
    record = Record(np.zeros((steps, count), np.int32), np.zeros((steps, count, vocab), np.float32))
    record.logits.fill(np.nan)
    done = 0
    while done < steps:
        some = 1 if done < steps - TOGETHER else min(TOGETHER, steps - done)
        begin = time.perf_counter()
        bound = model.bindings(some)
        program.execute(**bound)
        new = model.advance(some)
        record.seconds.append((time.perf_counter() - begin) / some)
        record.tasks.append(program.stats.tasks // some)
        record.widths.add(bound["table"].shape[1])
        record.resident.append(resident_bytes())
        done += some
        record.tokens[done - some : done] = new
        record.logits[done - 1] = model.logits[0]
    return record


class Reference:
    """The model in NumPy and float64. It is given all tokens and computes all steps at once, each
    token attending to those before it; it starts from what the model's cache holds."""

    def __init__(self, model: LlamaModel) -> None:
        self.shape, self.weights = model.shape, model.weights
        self.tables = rope_tables(model.positions, model.shape.head_dim)
        layers, cache = range(model.cache.layers), model.cache
        # By layer and sequence: keys and values.
        self.past: list[list[tuple[Any, Any]]] = [
            [cache.tokens(layer, b, n) for b, n in enumerate(model.lens)] for layer in layers
        ]

    def logits(self, tokens: Any) -> Any:
        """Logits `[sequence, step, vocab]` behind tokens `[sequence, step]`."""
        x = self.weights["embed"].astype(np.float64)[tokens]
        for layer, past in enumerate(self.past):
            w = {name: each[layer].astype(np.float64) for name, each in self._of_layers()}
            normed = self.norm(x, w["norm_1"])
            q, k, v = (normed @ w[name].T for name in ("wq", "wk", "wv"))
            mixed = [self.attend(*past[b], q[b], k[b], v[b]) for b in range(len(x))]
            x = x + np.stack(mixed) @ w["wo"].T
            normed = self.norm(x, w["norm_2"])
            gate, up = normed @ w["w_gate"].T, normed @ w["w_up"].T
            x = x + (gate / (1 + np.exp(-gate)) * up) @ w["w_down"].T
        return self.norm(x, self.weights["norm_out"][0]) @ self.weights["head"].astype(x.dtype).T

    def _of_layers(self) -> list[tuple[str, Any]]:
        others = ("embed", "norm_out", "head")
        return [(name, each) for name, each in self.weights.items() if name not in others]

    def norm(self, x: Any, weight: Any) -> Any:
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.shape.eps) * weight

    def turned(self, x: Any, at: Any) -> Any:
        """Rotary embedding of heads `[token, ..., dim]` at these positions."""
        cos, sin = (table[at].astype(np.float64)[:, None] for table in self.tables)
        first, second = np.split(x, 2, axis=-1)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)

    def attend(self, old_keys: Any, old_values: Any, q: Any, k: Any, v: Any) -> Any:
        """The new tokens of one sequence, each to all tokens up to itself."""
        s, new, before = self.shape, len(q), len(old_keys)
        at = np.arange(before, before + new)
        keys = np.concatenate([old_keys, self.turned(k.reshape(new, s.kv_heads, -1), at)])
        values = np.concatenate([old_values, v.reshape(new, s.kv_heads, -1)])
        query = self.turned(q.reshape(new, s.heads, -1), at).reshape(new, s.kv_heads, s.group, -1)
        scores = np.einsum("nhgd,thd->hgnt", query, keys, optimize=True) * s.head_dim**-0.5
        scores[..., np.arange(before + new) > at[:, None]] = -np.inf
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        return np.einsum("hgnt,thd->nhgd", shares, values, optimize=True).reshape(new, -1)


def compare(reference: Reference, first: Any, record: Record) -> tuple[float, int, float]:
    """The largest relative error of a step's logits, how many tokens are not those of float64, and
    the smallest distance between two largest logits, relative to the largest.

    The reference is given the tokens that the model chose, so each step is judged by itself. Where
    that distance is less than the error allowed, either token would be right.
    """
    given = np.concatenate([first[None], record.tokens[:-1]])
    exact = reference.logits(given.T).swapaxes(0, 1)
    size = np.linalg.norm(exact, axis=(1, 2))
    errors = np.linalg.norm(record.logits - exact, axis=(1, 2)) / size
    two = np.sort(exact, axis=2)[:, :, -2:]
    apart = (two[:, :, -1] - two[:, :, 0]) / np.abs(exact).max(axis=2)
    wrong = (exact.argmax(axis=2) != record.tokens) & (apart > NEAR)
    return float(np.nanmax(errors)), int(wrong.sum()), float(apart.min())


def report(program: Program, model: LlamaModel, record: Record, compiled: float) -> None:
    """What the model is, and what its steps took."""
    size = sum(each.size for each in model.weights.values()) / 1e6
    count, layers = len(model.lens), model.cache.layers
    took, tasks = float(np.median(record.seconds)), int(np.median(record.tasks))
    print(f"model    {layers} layers, {size:.1f} M weights, {count} sequences")
    print(f"plan     {program.plan.task_bytes} bytes, compiled once, in {compiled:.1f} s")
    print(f"caches   {PROMPTS} tokens grew to {tuple(model.lens.tolist())};")
    print(f"         page tables of {min(record.widths)} to {max(record.widths)} columns")
    grown = record.grown
    print(f"memory   {'too few steps' if grown is None else f'{grown:+.1f} MB since step 10'}")
    print(
        f"steps    {len(record.tokens)} of about {tasks} tasks: {took * 1e3:.1f} ms each,", end=""
    )
    print(f" {count / took:.0f} tokens/s, {tasks / took / 1e3:.0f} thousand tasks/s")


def positive(text: str) -> int:
    """An argument that is 1 or more."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return int(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=positive, default=100)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--vocab", type=positive, default=4096)
    parser.add_argument("--workers", type=int, default=0, help="0: one per core")
    args = parser.parse_args()

    sizes = {"layers": args.layers, "vocab": args.vocab, "steps": args.steps}
    model = random_model(SHAPE, PROMPTS, **sizes, together=TOGETHER)
    reference, first = Reference(model), model.tokens[0, :, 0].copy()
    begin = time.perf_counter()
    program = model.workload().compile(num_threads=args.workers)
    compiled = time.perf_counter() - begin
    os.environ["PTO_WSP_NO_JIT"] = "1"  # from here on, compiling anything is an error
    record = decode(program, model, args.steps)
    worst, wrong, margin = compare(reference, first, record)

    report(program, model, record, compiled)
    good = worst <= NEAR and wrong == 0 and (record.grown is None or record.grown <= 4)
    print(f"tokens   {wrong} of {record.tokens.size} are not those of float64, whose two largest")
    print(f"         logits are at least {margin:.0e} apart")
    print(f"verdict  {'OK' if good else 'WRONG'}: logits at most {worst:.1e} from float64")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
