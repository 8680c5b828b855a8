"""Mixture of experts: tasks choose two experts for each token, and control reads their choice.

The routing table is a tensor that `route` writes. Which `expert` tasks there are is known only when
it is there; generation waits for the entries it reads and for nothing else, and no Python runs per
task.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

from pto_wsp import DenseDyn, DType, In, Out, P, Scalar, Sparse, Tensor, kernel, workload

EXPERTS = 64
CHOSEN = 2


@kernel(
    cpp_src="""
    int best = logits(1) > logits(0) ? 1 : 0;
    int next = 1 - best;
    for (int e = 2; e < logits.shape(0); ++e) {
        if (logits(e) > logits(best)) {
            next = best;
            best = e;
        } else if (logits(e) > logits(next)) {
            next = e;
        }
    }
    chosen(0) = best;
    chosen(1) = next;
    """
)
def route(logits: In[Tensor], chosen: Out[Tensor]): ...


@kernel(cpp_src="y[0] = x[0] * (e + 1);")
def expert(x: In[Tensor], y: Out[Tensor], e: Scalar[DType.I32]): ...


@workload
def moe(tokens, routing, logits, chosen, X, Y):
    for t in P(tokens):
        route[t](logits[t], chosen[CHOSEN * t : CHOSEN * (t + 1)])
    for t in P(tokens):
        for e in P.sel(routing[t]):
            expert[t, e](X[t], Y[t, routing.pos], e)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=0, help="0: one per core")
    args = parser.parse_args()

    n = args.tokens
    logits = np.random.default_rng(0).standard_normal((n, EXPERTS), np.float32)
    X, Y = np.ones(n, np.float32), np.zeros((n, CHOSEN), np.float32)
    chosen = Tensor(data=np.zeros(CHOSEN * n, np.int32))
    tokens = DenseDyn(n)
    routing = Sparse(tokens, np.arange(0, CHOSEN * n + 1, CHOSEN), chosen)
    work = moe(tokens, routing, Tensor(data=logits), chosen, Tensor(data=X), Tensor(data=Y))
    with work.compile(num_threads=args.workers) as program:
        program.execute()
        begin = time.perf_counter()
        program.execute()
        took = time.perf_counter() - begin
        stats = program.stats

    top = np.argsort(-logits, axis=1, kind="stable")[:, :CHOSEN]
    equal = np.array_equal(Y, top + 1)
    print(f"plan     {program.plan.task_bytes} bytes")
    print(f"run      {stats.tasks} tasks, {stats.loads} reads by control in {took * 1e3:.0f} ms")
    print(f"verdict  {'OK' if equal else 'WRONG'}: top-{CHOSEN} of {EXPERTS} for {n} tokens")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
