"""Plan, descriptor, execute: a space of ragged work, tiers, descriptors, and a graph of two stages.

Rows of different lengths are cut into tiles, of a size that is searched for at each launch, and
each tile is added up by the tier that its row's length selects. Then a graph: one stage fills rows
of a cache, a second one adds them up, and each row waits for its own update only.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from pto_wsp import (
    AUTO,
    DYNAMIC,
    DenseDyn,
    DType,
    Graph,
    In,
    Interleaved,
    Out,
    P,
    Parallel,
    Scalar,
    Schedule,
    Space,
    Tensor,
    TracePolicy,
    Workspace,
    axis,
    default,
    kernel,
    launch,
    select_tier,
    tier,
    tiers,
    workload,
)

HEADS, LONGEST = 4, 1 << 13
SUM = "float s = 0; for (int64_t i = 0; i < x.shape(0); ++i) s += x(i);"


@kernel(cpp_src=SUM + "out[0] = s;")
def sum_short(x: In[Tensor], out: Out[Tensor]): ...


@kernel(
    cpp_src="""
    for (int64_t lane = 0; lane < 8; ++lane) {  // shorter sums, so smaller errors
        workspace(lane) = 0;
        for (int64_t i = lane; i < x.shape(0); i += 8) workspace(lane) += x(i);
    }
    out[0] = 0;
    for (int64_t lane = 0; lane < 8; ++lane) out[0] += workspace(lane);
    """
)
def sum_long(x: In[Tensor], out: Out[Tensor], workspace: Out[Tensor]): ...


sums = tiers("sums", tier(lambda n: n <= 512, sum_short), default(sum_long, Workspace((8,))))
rows = Space(
    "rows", batch=axis(0, "batch_size"), kv=axis(0, DYNAMIC, tile=AUTO), head=axis(0, HEADS)
)
schedule = (
    Schedule("rows")
    .order(batch=Interleaved(4), kv=Parallel, head=Parallel)
    .task_graph(trace=TracePolicy.timestamps())
)


@rows.generator(schedule)
def generate(s, x, parts, lens, blocks):
    s.kv.fit(blocks, lens, s.batch.end)
    for b in P(s.batch):
        selected = select_tier(sums, lens[b])
        for c in P(s.kv(lens[b])):
            for h in P(s.head):
                bounds = {"start": c.start, "stop": c.stop}
                s.emit(selected, x[b, h, c.slice], parts[b, h, c : c + 1], fields=bounds)


@kernel(cpp_src="for (int64_t i = 0; i < row.shape(0); ++i) row(i) = value;")
def fill(row: Out[Tensor], value: Scalar[DType.F32]): ...


@workload
def prefill(sequences, keys):
    for b in P(sequences):
        fill[b](keys[b], 2.0)


@workload
def decode(sequences, cache, out):
    for b in P(sequences):
        sum_short[b](cache[b], out[b : b + 1])


def ragged(lengths: np.ndarray, blocks: int, rng: np.random.Generator) -> bool:
    """One launch; whether its sums are right."""
    count = len(lengths)
    x = rng.standard_normal((count, HEADS, LONGEST), np.float32)
    parts = np.zeros((count, HEADS, blocks), np.float32)
    program = launch(rows, x=x, parts=parts, lens=lengths, blocks=blocks, batch_size=count)
    work = program.descriptors()
    used = np.bincount(work["tier"], minlength=2)
    size = (work["stop"] - work["start"]).max()
    first = program.trace[np.argsort(program.trace["seq"])]["indices"][:8, 0]
    print(
        f"launch   {count} rows of {lengths.min()} to {lengths.max()}: tiles of at most {size}, "
        f"{len(work)} descriptors of {work.dtype.itemsize} bytes, by tier {used.tolist()}, "
        f"rows take turns: {first.tolist()}"
    )
    wanted = [x[b, :, :n].sum(axis=1, dtype=np.float64) for b, n in enumerate(lengths)]
    return np.allclose(parts.sum(axis=2, dtype=np.float64), wanted, atol=2e-2)


def staged(count: int) -> bool:
    """A graph of two stages; whether each row waited for its own update, and the sums are right."""
    keys, cache = (Tensor(data=np.zeros((count, 64), np.float32)) for _ in range(2))
    out = np.zeros(count, np.float32)
    n = DenseDyn(count)
    graph = (
        Graph("serve")
        .stage("prefill", prefill(n, keys))
        .stage("decode", decode(n, cache, Tensor(data=out)))
        .depends("decode.cache", "prefill.keys")
    )
    program = graph.compile().execute()
    stages = program.descriptors()["stage"]
    print(f"graph    {np.bincount(stages).tolist()} tasks by stage")
    return bool((out == 128).all())


def positive(text: str) -> int:
    """An argument that is 1 or more."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return int(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=positive, default=24)
    parser.add_argument("--blocks", type=positive, default=64, help="tiles of all rows of a launch")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    good = True
    for count in (args.rows, max(1, args.rows // 2)):  # other lengths and numbers, one plan
        lengths = np.exp(rng.uniform(np.log(64), np.log(LONGEST), count)).astype(np.int64)
        good = ragged(lengths, args.blocks, rng) and good
    good = staged(args.rows) and good
    print(f"verdict  {'OK' if good else 'WRONG'}: sums beside NumPy in float64")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
