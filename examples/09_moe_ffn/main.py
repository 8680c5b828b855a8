"""A mixture of experts as one program: routing, grouping by expert, and the experts themselves.

Tasks choose the experts of each token and sort the choices by expert; control reads where the
tokens of an expert begin and end, and generates tasks for as many as there are. Nothing goes
through Python in between, and another number of tokens or another router needs no new plan.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

from pto_wsp import Tensor, TracePolicy, workloads

EXPERTS, TOP_K, D_MODEL, D_FF, CHUNK = 16, 2, 128, 256, 16
OF_EXPERTS = ["gather_choices", "gated_linear"]


def weights(rng):
    def matrix(*shape):
        return rng.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[-1]))

    return {
        "router": matrix(EXPERTS, D_MODEL),
        "W1": matrix(EXPERTS, D_FF, D_MODEL),
        "W3": matrix(EXPERTS, D_FF, D_MODEL),
        "W2": matrix(EXPERTS, D_MODEL, D_FF),
    }


def expected(x, router, W1, W3, W2):
    """The same in float64, expert by expert; and how many tokens each of them has."""
    x, router, W1, W3, W2 = (each.astype(np.float64) for each in (x, router, W1, W3, W2))
    logits = x @ router.T
    chosen = np.argsort(-logits, axis=1, kind="stable")[:, :TOP_K]
    best = np.take_along_axis(logits, chosen, axis=1)
    shares = np.exp(best - best.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    y = np.zeros_like(x)
    for e in range(EXPERTS):
        token, place = np.nonzero(chosen == e)
        gate = x[token] @ W1[e].T
        hidden = gate / (1 + np.exp(-gate)) * (x[token] @ W3[e].T)
        y[token] += shares[token, place, None] * (hidden @ W2[e].T)
    return y, np.bincount(chosen.ravel(), minlength=EXPERTS)


def rows_per_worker(trace, counts):
    """Rows of the gated product that each of two workers computed."""
    gated = trace[trace["kernel"] == "gated_linear"]
    expert, group = gated["indices"][:, 0], gated["indices"][:, 1]
    rows = np.minimum(CHUNK, counts[expert] - group * CHUNK)
    return [int(rows[gated["worker"] == worker].sum()) for worker in (0, 1)]


def positive(text: str) -> int:
    """An argument that is 1 or more."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return int(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=positive, default=600)
    args = parser.parse_args()

    rng = np.random.default_rng(0)
    given = weights(rng)
    everybody = given["router"].copy()  # prefers experts 3 and 4, whatever the token
    everybody[3:5] = [[2.0], [1.0]]
    # Elements are positive, so that a router can do so.
    x = np.abs(rng.standard_normal((args.tokens, D_MODEL), np.float32))
    y = np.zeros_like(x)

    layer = workloads.moe_ffn(EXPERTS, TOP_K, D_MODEL, D_FF, chunk=CHUNK)
    tensors = {name: Tensor(data=value) for name, value in given.items()}
    work = layer(X=Tensor(data=x), Y=Tensor(data=y), **tensors)
    program = work.task_graph(trace=TracePolicy.timestamps()).compile(num_threads=2)
    # The same on a virtual clock, on which every task takes as long on either worker: how rows are
    # shared out does not depend on what else the machine does.
    clock = TracePolicy.cycles(lambda t: 1)
    even = work.task_graph(trace=clock).compile(num_threads=2)
    print(f"plan      {program.plan.task_bytes} bytes, compiled once")

    right = True
    few = max(1, args.tokens // 7)
    cases = {
        "its router": (args.tokens, given["router"]),
        "few tokens": (few, given["router"]),
        "two for all": (args.tokens, everybody),
    }
    for name, (tokens, router) in cases.items():
        bound = {"X": x[:tokens], "Y": y[:tokens], "router": router}
        even.execute(**bound)
        y[:] = np.nan
        begin = time.perf_counter()
        program.execute(**bound)
        took = time.perf_counter() - begin
        wanted, counts = expected(x[:tokens], **{**given, "router": router})
        error = np.abs(y[:tokens] - wanted).max() / np.abs(wanted).max()
        trace = program.trace
        asked = set(trace["indices"][np.isin(trace["kernel"], OF_EXPERTS), 0])
        right = right and error < 1e-5 and asked == set(np.flatnonzero(counts))
        rows = rows_per_worker(even.trace, counts)
        if router is everybody:
            right = right and abs(rows[0] - rows[1]) <= 4 * CHUNK
        print(
            f"{name:<12}{tokens} tokens to {len(asked)} experts, at most {counts.max()} to one: "
            f"{program.stats.tasks} tasks in {took * 1e3:.1f} ms, "
            f"rows per equal worker {rows}, error {error:.1e}"
        )
    print(
        f"verdict   {'OK' if right else 'WRONG'}: no task for an expert without tokens, "
        "and two experts for all keep both workers busy"
    )
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
