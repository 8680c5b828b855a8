"""Attention in two stages: scores and softmax on the vector pool, their product with V on the cube.

The stages are processes that are joined by a channel of weights. While the cube multiplies the
weights of one block of queries, the vector unit makes those of the next. Which worker runs what is
the schedule's business: kernels say which unit they are for, and `Pools.by_exec_unit()` divides the
workers. The result is compared with NumPy in float64.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

from pto_wsp import (
    Channel,
    DenseDyn,
    DType,
    In,
    Out,
    P,
    Pools,
    Scalar,
    Tensor,
    Tile,
    TracePolicy,
    Workload,
    kernel,
    pto,
    receive,
    select,
    send,
    workload,
)

ROWS, TOKENS, HEAD = 32, 256, 64
F32 = DType.F32
Queries = Tile[ROWS, HEAD, F32]
Keys = Tile[TOKENS, HEAD, F32]
Weights = Tile[ROWS, TOKENS, F32]


@kernel(exec_unit="vector")
def weigh(q: In[Queries], k: In[Keys], weights: Out[Weights], scale: Scalar[F32]):
    scores = pto.matmul(q, k.T) * scale
    e = pto.exp(scores - pto.row_max(scores))
    pto.store(weights, e / pto.row_sum(e))


@kernel(exec_unit="cube")
def mix(weights: In[Weights], v: In[Keys], out: Out[Queries]):
    pto.store(out, pto.matmul(weights, v))


def attention(data: dict[str, np.ndarray], depth: int) -> Workload:
    """The two stages, with `depth` blocks of weights between them. Both have the same loops, so the
    second one knows which block a message is."""
    Q, K, V, Y = (Tensor(data=data[name], name=name) for name in "QKVY")

    @workload
    def stages(heads, blocks):
        weights = Channel[Weights]("weights", depth=depth)
        with P.pipe():
            for h, i in P(heads, blocks):
                q = Q[h, i * ROWS : (i + 1) * ROWS]
                send(weights, weigh[h, i](q=q, k=K[h], scale=HEAD**-0.5))
            for h, i in P(heads, blocks):
                out = Y[h, i * ROWS : (i + 1) * ROWS]
                mix[h, i](weights=receive(weights), v=V[h], out=out)

    heads, tokens, _ = data["Q"].shape
    return stages(DenseDyn(heads), DenseDyn(tokens // ROWS))


def expected(data: dict[str, np.ndarray]) -> np.ndarray:
    """The same in float64."""
    q, k, v = (data[name].astype(np.float64) for name in "QKV")
    scores = q @ k.swapaxes(1, 2) * HEAD**-0.5
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    return weights / weights.sum(axis=2, keepdims=True) @ v


def median(trace: np.ndarray, name: str) -> int:
    """How long a task of the kernel took, in ns."""
    mine = trace[trace["kernel"] == name]
    return int(np.median(mine["end_ns"] - mine["start_ns"]))


def simulated(work: Workload, vector: int, cube: int) -> int:
    """Cycles of a run on a virtual clock, with one worker for each unit."""
    costs = TracePolicy.cycles(lambda t: select(t.site == 0, vector, cube))
    with work.task_graph(trace=costs).compile(num_threads=2) as program:
        program.execute()
        return int(program.trace["end_ns"].max())


def positive(text: str) -> int:
    """An argument that is 1 or more."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return int(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--heads", type=positive, default=8)
    parser.add_argument("--trace", type=Path, default=None, help="where the Perfetto trace goes")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    shape = (args.heads, TOKENS, HEAD)
    data = {name: rng.standard_normal(shape, np.float32) for name in "QKV"}
    data["Y"] = np.zeros(shape, np.float32)

    work = attention(data, depth=2).task_graph(pools=Pools.by_exec_unit())
    traced = work.task_graph(trace=TracePolicy.timestamps())
    with traced.compile(num_threads=2, verify="full") as program:
        program.execute()
        trace = program.trace
        path = args.trace or Path(tempfile.gettempdir()) / "pto_wsp_attention.json.gz"
        program.save_trace(path)
    stats = program.stats
    vector, cube = median(trace, "weigh"), median(trace, "mix")
    placed = all(
        set(trace["pool"][trace["kernel"] == name]) == {pool}
        for pool, name in enumerate(("weigh", "mix"))
    )
    worst = float(np.abs(data["Y"] - expected(data)).max())

    print(f"{args.heads} heads of {TOKENS} tokens: {stats.tasks} tasks, {stats.messages} messages")
    print(f"vector pool  weigh, {vector / 1000:.1f} us a task")
    print(f"cube pool    mix, {cube / 1000:.1f} us a task")
    alone = stats.messages * (vector + cube) / 1000
    for depth in (1, 2):
        pooled = attention(data, depth).task_graph(pools=Pools.by_exec_unit())
        cycles = simulated(pooled, vector, cube) / 1000
        print(f"depth {depth}      {cycles:.0f} us with a core for each; {alone:.0f} us on one")
    good = worst < 1e-5 and placed
    print(f"verdict      {'OK' if good else 'WRONG'}: at most {worst:.1e} from NumPy in float64")
    print(f"timeline     {path} (open it at https://ui.perfetto.dev)")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
