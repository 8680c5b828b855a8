"""Ragged attention: sequences of very different lengths, one task per (sequence, head, tile).

The tiles of one (sequence, head) update a running softmax, so they are a chain; everything else is
independent. The result is compared element by element with the reference interpreter.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from pto_wsp import (
    DenseDyn,
    In,
    InOut,
    Out,
    P,
    Ragged,
    ReadyPolicy,
    Tensor,
    TracePolicy,
    kernel,
    workload,
)

TILE = 4  # tokens a task reads
DIM = 16  # head dimension


@kernel(
    cpp_includes=["<cmath>"],
    cpp_src="""
    const float scale = 1.0f / std::sqrt(static_cast<float>(q.shape(0)));
    for (int64_t t = 0; t < k.shape(0); ++t) {
        float score = 0.0f;
        for (int64_t d = 0; d < q.shape(0); ++d) score += q(d) * k(t, d);
        score *= scale;
        const float top = score > state(0) ? score : state(0);
        const float keep = std::exp(state(0) - top);
        const float weight = std::exp(score - top);
        for (int64_t d = 0; d < acc.shape(0); ++d) acc(d) = acc(d) * keep + weight * v(t, d);
        state(1) = state(1) * keep + weight;
        state(0) = top;
    }
    """,
)
def attend(
    q: In[Tensor], k: In[Tensor], v: In[Tensor], acc: InOut[Tensor], state: InOut[Tensor]
): ...


@kernel(cpp_src="for (int64_t d = 0; d < out.shape(0); ++d) out(d) = acc(d) / state(1);")
def normalise(acc: In[Tensor], state: In[Tensor], out: Out[Tensor]): ...


@workload
def attention(batch, heads, tiles, Q, K, V, acc, state, out):
    for b, h in P(batch, heads):
        for t in P.seq(tiles[b]):
            attend[b, h, t](
                q=Q[b, h],
                k=K[b, t * TILE : (t + 1) * TILE],
                v=V[b, t * TILE : (t + 1) * TILE],
                acc=acc[b, h],
                state=state[b, h],
            )
        normalise[b, h](acc=acc[b, h], state=state[b, h], out=out[b, h])


def make(sequences: int, heads: int, longest: int) -> dict[str, np.ndarray]:
    """Random inputs; lengths are log-uniform, as request lengths tend to be."""
    rng = np.random.default_rng(0)
    lengths = np.exp(rng.uniform(np.log(min(4, longest)), np.log(longest), sequences)).astype(
        np.int64
    )
    tokens = int(lengths.max()) * TILE
    state = np.zeros((sequences, heads, 2), np.float32)
    state[:, :, 0] = -np.inf
    return {
        "tiles": lengths,
        "Q": rng.standard_normal((sequences, heads, DIM), np.float32),
        "K": rng.standard_normal((sequences, tokens, DIM), np.float32),
        "V": rng.standard_normal((sequences, tokens, DIM), np.float32),
        "acc": np.zeros((sequences, heads, DIM), np.float32),
        "state": state,
        "out": np.zeros((sequences, heads, DIM), np.float32),
    }


def build(data: dict[str, np.ndarray], heads: int, target: str):
    """The workload with its schedule, compiled for a target."""
    batch = DenseDyn(len(data["tiles"]))
    tensors = {name: Tensor(data=data[name]) for name in ("Q", "K", "V", "acc", "state", "out")}
    return (
        attention(batch, DenseDyn(heads), Ragged(batch, data["tiles"]), **tensors)
        .task_graph(ready=ReadyPolicy.work_steal(), trace=TracePolicy.timestamps())
        .compile(target=target)
    )


def positive(text: str) -> int:
    """An argument that is 1 or more."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return int(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=positive, default=80)
    parser.add_argument("--heads", type=positive, default=16)
    parser.add_argument(
        "--longest", type=positive, default=400, help="tiles of the longest sequence"
    )
    parser.add_argument("--trace", type=Path, default=None, help="where the Perfetto trace goes")
    args = parser.parse_args()

    data = make(args.sequences, args.heads, args.longest)
    wanted = {name: array.copy() for name, array in data.items()}

    program = build(data, args.heads, "cpu_sim")
    begin = time.perf_counter()
    program.execute()
    took_ms = (time.perf_counter() - begin) * 1e3
    tasks = program.stats.tasks
    print(
        f"plan       {program.plan.task_bytes} bytes, {len(data['tiles'])} sequences of "
        f"{data['tiles'].min()} to {data['tiles'].max()} tiles"
    )
    print(
        f"cpu_sim    {tasks} tasks on {program.num_workers} workers in {took_ms:.1f} ms: "
        f"{tasks / took_ms:.0f} tasks/ms"
    )
    print(
        f"           per worker {program.stats.worker_tasks}, "
        f"{program.stats.edges} dependences inferred"
    )

    reference = build(wanted, args.heads, "reference")
    begin = time.perf_counter()
    reference.execute()
    print(f"reference  the same plan, one task at a time, in {time.perf_counter() - begin:.1f} s")

    equal = np.array_equal(data["out"], wanted["out"])
    same_tasks = program.task_hash() == reference.task_hash()
    print(
        f"verdict    {'OK' if equal and same_tasks else 'WRONG'}: "
        f"{data['out'].size} elements {'equal bit by bit' if equal else 'DIFFER'}, "
        f"task hash {'equal' if same_tasks else 'DIFFERS'}"
    )

    trace = args.trace or Path(tempfile.gettempdir()) / "pto_wsp_ragged_attention.json.gz"
    program.save_trace(trace)
    print(f"trace      {trace} (open it at https://ui.perfetto.dev)")
    return 0 if equal and same_tasks else 1


if __name__ == "__main__":
    sys.exit(main())
