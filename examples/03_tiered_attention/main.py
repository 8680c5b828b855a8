"""Tiered attention: how a sequence is attended to depends on its length.

One token of each sequence looks at the keys and values that the sequence has so far. Short ones are
one task, medium ones a task per 256 tokens and a merge; long ones are cut into chunks of a size
that control searches for, so that there are at most `blocks` of them in all. Lengths, thresholds
and `blocks` are bound at each run; the plan stays the same.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

from pto_wsp import (
    Constexpr,
    In,
    Out,
    P,
    Program,
    ReadyPolicy,
    Scalar,
    Tensor,
    TracePolicy,
    kernel,
    minimum,
    reduce_sum,
    search,
    select,
    slot_set_u64,
    slot_u64,
    workload,
)

HEADS, DIM = 8, 64
MEDIUM_CHUNK = 256  # tokens of a task of a medium sequence
TIERS = ("short", "medium", "long")

# All heads of one sequence share its keys and values. Ends inside the loop over heads.
ATTEND = """
    const float scale = 1.0f / std::sqrt(static_cast<float>(D));
    static thread_local std::vector<float> weight;
    weight.resize(k.shape(0));
    for (int64_t h = 0; h < q.shape(0); ++h) {
        float top = -std::numeric_limits<float>::infinity();
        for (int64_t t = 0; t < k.shape(0); ++t) {
            float lane[8] = {};
            for (int d = 0; d < D; d += 8)
                for (int l = 0; l < 8; ++l) lane[l] += q(h, d + l) * k(t, d + l);
            weight[t] = std::accumulate(lane, lane + 8, 0.0f) * scale;
            top = std::max(top, weight[t]);
        }
        float sum = 0.0f;
        float acc[D] = {};
        for (int64_t t = 0; t < k.shape(0); ++t) {
            const float w = std::exp(weight[t] - top);
            for (int d = 0; d < D; ++d) acc[d] += w * v(t, d);
            sum += w;
        }
        for (int d = 0; d < D; ++d) out(h, d) = acc[d] / sum;
"""
INCLUDES = ["<cmath>", "<numeric>", "<vector>"]


@kernel(cpp_includes=INCLUDES, cpp_src=ATTEND + "}")
def whole(
    q: In[Tensor], k: In[Tensor], v: In[Tensor], out: Out[Tensor], D: Constexpr[int] = DIM
): ...


@kernel(cpp_includes=INCLUDES, cpp_src=ATTEND + "lse(h) = top + std::log(sum); }")
def partial(
    q: In[Tensor],
    k: In[Tensor],
    v: In[Tensor],
    out: Out[Tensor],
    lse: Out[Tensor],
    D: Constexpr[int] = DIM,
): ...


@kernel(
    cpp_includes=INCLUDES,
    cpp_src="""
    for (int64_t h = 0; h < out.shape(0); ++h) {
        float top = -std::numeric_limits<float>::infinity();
        for (int64_t c = 0; c < part.shape(0); ++c) top = std::max(top, lse(c, h));
        float sum = 0.0f;
        float acc[D] = {};
        for (int64_t c = 0; c < part.shape(0); ++c) {
            const float w = std::exp(lse(c, h) - top);
            for (int d = 0; d < D; ++d) acc[d] += w * part(c, h, d);
            sum += w;
        }
        for (int d = 0; d < D; ++d) out(h, d) = acc[d] / sum;
    }
    """,
)
def merge(part: In[Tensor], lse: In[Tensor], out: Out[Tensor], D: Constexpr[int] = DIM): ...


@workload
def decode(lens, first, short, long, blocks, Q, K, V, part, lse, out):
    """Sequence b has tokens first[b] to first[b] + lens[b] of K and V."""

    def split(b, chunk):
        chunks = (lens[b] + chunk - 1) // chunk
        for c in P(chunks):
            begin = first[b] + c * chunk
            end = minimum(begin + chunk, first[b] + lens[b])
            partial[b, c](Q[b], K[begin:end], V[begin:end], part[b, c], lse[b, c])
        merge[b](part[b, 0:chunks], lse[b, 0:chunks], out[b])

    def long_chunks(size):
        return reduce_sum(
            Q.shape[0], lambda b: select(lens[b] > long, (lens[b] + size - 1) // size, 0)
        )

    # Searched for once: a slot is a variable of control.
    slot_set_u64(0, search(MEDIUM_CHUNK, K.shape[0], lambda size: long_chunks(size) <= blocks))
    for b in P(Q.shape[0]):
        with P.when(lens[b] <= short):
            tokens = slice(first[b], first[b] + lens[b])
            whole[b](Q[b], K[tokens], V[tokens], out[b])
        with P.when(lens[b] <= long):
            split(b, MEDIUM_CHUNK)
        with P.otherwise():
            split(b, slot_u64(0))


def batch(lengths: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """What a batch of these lengths binds."""
    count = len(lengths)
    return {
        "lens": lengths,
        "first": np.cumsum(lengths) - lengths,
        "Q": rng.standard_normal((count, HEADS, DIM), np.float32),
        "out": np.zeros((count, HEADS, DIM), np.float32),
    }


def draw(count: int, longest: int, rng: np.random.Generator) -> np.ndarray:
    """Lengths, log-uniform, as request lengths tend to be."""
    return np.exp(rng.uniform(np.log(min(16, longest)), np.log(longest), count)).astype(np.int64)


def build(bound: dict[str, np.ndarray], K: np.ndarray, V: np.ndarray, args: argparse.Namespace):
    """The program, with room for as many partial results as a sequence can have."""
    count = len(bound["lens"])
    chunks = max(args.blocks, -(-args.long // MEDIUM_CHUNK))
    part = np.zeros((count, chunks, HEADS, DIM), np.float32)
    lse = np.zeros((count, chunks, HEADS), np.float32)
    tensors = {"Q": bound["Q"], "K": K, "V": V, "part": part, "lse": lse, "out": bound["out"]}
    return (
        decode(
            bound["lens"],
            bound["first"],
            Scalar(args.short),
            Scalar(args.long),
            Scalar(args.blocks),
            **{name: Tensor(data=array) for name, array in tensors.items()},
        )
        .task_graph(ready=ReadyPolicy.work_steal(), trace=TracePolicy.timestamps())
        .compile(num_threads=args.workers)
    )


def best(program: Program, **bindings: object) -> tuple[float, np.ndarray]:
    """The shortest of five runs: milliseconds and trace."""
    runs: list[tuple[float, np.ndarray]] = []
    for _ in range(5):
        begin = time.perf_counter()
        program.execute(**bindings)
        runs.append(((time.perf_counter() - begin) * 1e3, program.trace))
    return min(runs, key=lambda run: run[0])


def table(trace: np.ndarray, lengths: np.ndarray, args: argparse.Namespace) -> None:
    """What a trace says of each tier."""
    tier = np.digitize(lengths, [args.short + 1, args.long + 1])
    tier_of_task = tier[trace["indices"][:, 0]]
    print("tier    sequences    tokens    tasks   time of tasks")
    for number, name in enumerate(TIERS):
        rows = trace[tier_of_task == number]
        busy = (rows["end_ns"] - rows["start_ns"]).sum() / 1e6
        count, tokens = (tier == number).sum(), lengths[tier == number].sum()
        print(f"{name:8}{count:9}{tokens:10}{len(rows):9}{busy:13.2f} ms")


def error(bound: dict[str, np.ndarray], K: np.ndarray, V: np.ndarray) -> float:
    """The largest difference from NumPy."""
    worst = 0.0
    for b, (first, length) in enumerate(zip(bound["first"], bound["lens"], strict=True)):
        keys, values = K[first : first + length], V[first : first + length]
        scores = bound["Q"][b] @ keys.T / np.sqrt(DIM)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        wanted = weights @ values / weights.sum(axis=1, keepdims=True)
        worst = max(worst, float(np.abs(bound["out"][b] - wanted).max()))
    return worst


def positive(text: str) -> int:
    """An argument that is 1 or more."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return int(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=32)
    parser.add_argument("--longest", type=positive, default=65536, help="tokens of a sequence")
    parser.add_argument("--short", type=int, default=256, help="longest that is one task")
    parser.add_argument("--long", type=int, default=4096, help="longest that is cut by 256")
    parser.add_argument("--blocks", type=int, default=48, help="chunks of all long sequences")
    parser.add_argument("--workers", type=int, default=0, help="0: one per core")
    args = parser.parse_args()

    rng = np.random.default_rng(0)
    lengths = draw(args.sequences, args.longest, rng)
    others = draw(args.sequences // 2, args.longest, rng)
    tokens = int(max(lengths.sum(), others.sum()))
    K = rng.standard_normal((tokens, DIM), np.float32)
    V = rng.standard_normal((tokens, DIM), np.float32)
    bound, other = batch(lengths, rng), batch(others, rng)

    program = build(bound, K, V, args)
    took, trace = best(program)
    worst = error(bound, K, V)
    one_each, _ = best(program, short=args.longest)
    worst = max(worst, error(bound, K, V))
    other_took, _ = best(program, short=args.short, **other)
    worst = max(worst, error(other, K, V))

    table(trace, lengths, args)
    print(f"plan     {program.plan.task_bytes} bytes, {program.num_workers} workers")
    print(f"tiers    {len(trace)} tasks in {took:.1f} ms")
    print(f"rebound  short={args.longest}, one task per sequence, in {one_each:.1f} ms")
    print(
        f"rebound  {len(others)} other lengths: {program.stats.tasks} tasks in {other_took:.1f} ms"
    )
    equal = worst < 1e-4
    print(f"verdict  {'OK' if equal else 'WRONG'}: at most {worst:.1e} from NumPy, three times")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
