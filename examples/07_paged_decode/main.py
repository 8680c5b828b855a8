"""One decode step of a batch whose sequences have very different lengths.

The cache lies on pages that are in no order, as an allocator leaves them. Long sequences are cut
into chunks, which are merged; the schedule takes sequences in turns and gives each worker the same
number of bytes. Lengths are bound at each step; the plan stays the same. The result is compared
with NumPy, and the timeline written for Perfetto.
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
    DispatchPolicy,
    Interleaved,
    PagedTensor,
    Program,
    Scalar,
    Tensor,
    TracePolicy,
    workloads,
)

HEADS, KV_HEADS, DIM = 32, 8, 128
LANES = 4  # sequences that are generated in turns


def draw(count: int, longest: int, rng: np.random.Generator) -> np.ndarray:
    """Lengths, log-uniform, as request lengths tend to be."""
    return np.exp(rng.uniform(np.log(longest / 64), np.log(longest), count)).astype(np.int64)


def page_table(lengths: np.ndarray, page: int, rng: np.random.Generator) -> np.ndarray:
    """Pages for all sequences, drawn without order from as many as are needed."""
    needed = -(-lengths // page)
    numbers = rng.permutation(int(needed.sum())).astype(np.int32)
    table = np.zeros((len(lengths), int(needed.max())), np.int32)
    for row, count in enumerate(needed):
        table[row, :count], numbers = numbers[:count], numbers[count:]
    return table


def pool(pages: int, page: int, rng: np.random.Generator) -> np.ndarray:
    """[page, token, KV head, element]. In memory the tokens of one head are next to each other,
    which is how a task reads them."""
    by_head = workloads.page_pool((pages, KV_HEADS, page, DIM))
    rng.standard_normal(out=by_head, dtype=np.float32)
    return by_head.swapaxes(1, 2)


def build(data: dict[str, np.ndarray], page: int, blocks: int, workers: int) -> Program:
    """The program, with its schedule.

    Each sequence is cut into chunks of one size, as many as a multiple of the workers, who take
    them in turns: everyone reads the same number of bytes, whatever the lengths are. A task has all
    KV heads of its chunk, so it reads whole pages; the sequence is in the key so that what is left
    over is not always the same worker's gain. Sequences take turns, so that chunks of a long one
    are spread over the step instead of coming in a row.
    """
    decode = workloads.paged_decode(HEADS, KV_HEADS, DIM, page, together=KV_HEADS, shares=workers)
    return (
        decode(
            DenseDyn(len(data["lens"])),
            data["lens"],
            Scalar(blocks),
            Tensor(data=data["q"]),
            PagedTensor(data["k"], data["table"]),
            PagedTensor(data["v"], data["table"]),
            Tensor(data=data["out"]),
        )
        .order(batch=Interleaved(LANES))
        .dispatch(DispatchPolicy.affinity(lambda t: t.batch + t.get("chunk", 0)))
        .task_graph(trace=TracePolicy.timestamps())
        .compile(num_threads=workers)
    )


def error(data: dict[str, np.ndarray], page: int) -> float:
    """The largest difference from NumPy in float64, relative to the largest number."""
    worst = largest = 0.0
    group = HEADS // KV_HEADS
    for b, length in enumerate(data["lens"]):
        pages = data["table"][b, : -(-length // page)]
        keys, values = (data[name][pages].reshape(-1, KV_HEADS, DIM)[:length] for name in "kv")
        query = data["q"][b].reshape(KV_HEADS, group, DIM).astype(np.float64)
        scores = np.einsum("hgd,thd->hgt", query, keys, optimize=True) / np.sqrt(DIM)
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        weights /= weights.sum(axis=2, keepdims=True)
        wanted = np.einsum("hgt,thd->hgd", weights, values, optimize=True)
        worst = max(worst, float(np.abs(data["out"][b] - wanted.reshape(HEADS, DIM)).max()))
        largest = max(largest, float(np.abs(wanted).max()))
    return worst / largest


def bytes_per_worker(program: Program, lengths: np.ndarray, workers: int) -> np.ndarray:
    """What each worker read of the cache: descriptors say which tokens a task attends to, the trace
    who ran it. Tasks that attend to none have the same number in both columns."""
    rows = program.descriptors(lens=lengths)
    tokens = (rows["stop"] - rows["start"]).astype(np.int64)
    ran = program.trace
    return np.bincount(ran["worker"], tokens[ran["task_id"]], workers) * KV_HEADS * DIM * 4 * 2


def positive(text: str) -> int:
    """An argument that is 1 or more."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return int(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=positive, default=64)
    parser.add_argument("--longest", type=positive, default=8192, help="tokens of a sequence")
    parser.add_argument("--page", type=positive, default=16, help="tokens of a page")
    parser.add_argument("--blocks", type=int, default=256, help="chunks of all sequences together")
    parser.add_argument("--workers", type=positive, default=2)
    parser.add_argument(
        "--steps", type=positive, default=5, help="decode steps, a token longer each"
    )
    parser.add_argument("--trace", type=Path, default=None, help="where the Perfetto trace goes")
    args = parser.parse_args()

    rng = np.random.default_rng(0)
    lengths = draw(args.sequences, args.longest, rng)
    table = page_table(lengths + args.steps, args.page, rng)
    pages = int(table.max()) + 1
    data = {"lens": lengths, "table": table}
    data |= {"k": pool(pages, args.page, rng), "v": pool(pages, args.page, rng)}
    data["q"] = rng.standard_normal((args.sequences, HEADS, DIM), np.float32)
    data["out"] = np.zeros_like(data["q"])

    program = build(data, args.page, args.blocks, args.workers)
    taken: list[float] = []
    for _ in range(args.steps):
        data["lens"] = data["lens"] + 1  # each sequence has grown by a token; nothing is compiled
        begin = time.perf_counter()
        program.execute(lens=data["lens"])
        taken.append(time.perf_counter() - begin)
    read = bytes_per_worker(program, data["lens"], args.workers)
    skew = 100 * (read.max() / read.mean() - 1)

    print(
        f"plan      {program.plan.task_bytes} bytes, {args.sequences} sequences of "
        f"{data['lens'].min()} to {data['lens'].max()} tokens on {pages} pages"
    )
    print(f"step      {program.stats.tasks} tasks on {args.workers} workers")
    print(f"          {min(taken) * 1e3:.1f} ms, {read.sum() / min(taken) / 1e9:.1f} GB/s of cache")
    print(
        f"bytes     {', '.join(f'{each / 1e6:.0f} MB' for each in read)}: {skew:.1f} % above even"
    )
    worst = error(data, args.page)
    verdict = "OK" if worst < 1e-5 else "WRONG"
    print(f"verdict   {verdict}: at most {worst:.1e} from NumPy in float64")
    trace = args.trace or Path(tempfile.gettempdir()) / "pto_wsp_paged_decode.json.gz"
    program.save_trace(trace)
    print(f"timeline  {trace} (open it at https://ui.perfetto.dev)")
    return 0 if verdict == "OK" else 1


if __name__ == "__main__":
    sys.exit(main())
