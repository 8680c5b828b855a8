"""A step of a server: new sequences are prefilled while all sequences decode, as one graph.

Three stages are ready workloads: attention of the new sequences to themselves, writing keys and
values of all new tokens into the pages of their sequences, and decode from these pages. A
dependence says that decode reads the pages that are written. Each sequence then waits for its own
pages, and for nothing of the others.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from pto_wsp import (
    DenseDyn,
    Graph,
    PagedTensor,
    Program,
    ReadyPolicy,
    Scalar,
    StartPolicy,
    Tensor,
    TracePolicy,
    Workload,
    select,
    workloads,
)

HEADS, KV_HEADS, DIM, PAGE, BLOCKS = 8, 2, 64, 16, 32
CYCLES = 100  # of every task, on a virtual clock
STAGES = ["prefill", "append", "decode"]


class Step:
    """New sequences, which have no past, in front of running ones, which get one token each."""

    def __init__(self, prompts: np.ndarray, running: np.ndarray, rng: np.random.Generator) -> None:
        self.new = len(prompts)
        count = self.new + len(running)
        self.past = np.concatenate([np.zeros(self.new, np.int64), running])
        tokens = np.concatenate([prompts, np.ones(len(running), np.int64)])
        self.starts = np.concatenate([[0], np.cumsum(tokens)])
        self.lens = self.past + tokens
        self.cache = workloads.KvCache(
            layers=1,
            sequences=count,
            pages=int((-(-self.lens // PAGE)).sum()),
            page=PAGE,
            kv_heads=KV_HEADS,
            head_dim=DIM,
        )
        self.table = self.cache.reserve(self.lens)
        shape = (2, KV_HEADS, DIM)  # of a token: keys and values
        self.old = [rng.standard_normal((n, *shape), np.float32) for n in self.past.tolist()]
        self.forget()
        self.k, self.v = rng.standard_normal((2, int(tokens.sum()), *shape[1:]), np.float32)
        self.prompt_q = rng.standard_normal((int(prompts.sum()), HEADS, DIM), np.float32)
        self.prompt_out = np.zeros_like(self.prompt_q)
        self.q = rng.standard_normal((count, HEADS, DIM), np.float32)
        self.out = np.zeros_like(self.q)

    def forget(self) -> None:
        """The cache as it is before the step."""
        self.cache.keys.fill(np.nan)
        self.cache.values.fill(np.nan)
        for b, old in enumerate(self.old):
            self.cache.fill(0, b, old[:, 0], old[:, 1])

    def workload(self) -> Workload:
        """The graph. Names of prefill are "prefill.batch" and so on, since decode has a batch and
        queries of its own."""
        table = Tensor(data=self.table, name="table")
        pages = {
            "keys": PagedTensor(Tensor(data=self.cache.keys, name="keys_pool"), table),
            "values": PagedTensor(Tensor(data=self.cache.values, name="values_pool"), table),
        }
        ends = self.starts[: self.new + 1]
        prefill = workloads.ragged_prefill(HEADS, KV_HEADS, DIM)(
            batch=DenseDyn(self.new),
            q_starts=ends,
            k_starts=ends,
            q=Tensor(data=self.prompt_q),
            k=Tensor(data=self.k),
            v=Tensor(data=self.v),
            out=Tensor(data=self.prompt_out),
        )
        append = workloads.paged_append(DIM, PAGE)(
            batch=DenseDyn(len(self.lens)),
            starts=self.starts,
            past=self.past,
            k=Tensor(data=self.k),
            v=Tensor(data=self.v),
            **pages,
        )
        decode = workloads.paged_decode(HEADS, KV_HEADS, DIM, PAGE)(
            batch=DenseDyn(len(self.lens)),
            lens=self.lens,
            blocks=Scalar(BLOCKS),
            q=Tensor(data=self.q),
            k=pages["keys"],
            v=pages["values"],
            out=Tensor(data=self.out),
        )
        return (
            Graph("serve")
            .stage("prefill", prefill, qualified=True)
            .stage("append", append)
            .stage("decode", decode)
            .depends("decode.k", "append.keys")
            .depends("decode.v", "append.values")
            .depends("decode.batch", "append.batch")
            .workload()
        )

    def bindings(self) -> dict[str, object]:
        """What another step binds."""
        ends = self.starts[: self.new + 1]
        of_prefill = {"batch": self.new, "q_starts": ends, "k_starts": ends, "k": self.k}
        of_prefill |= {"v": self.v, "q": self.prompt_q, "out": self.prompt_out}
        names = ("starts", "past", "k", "v", "lens", "q", "out", "table")
        return {
            "batch": len(self.lens),
            "keys_pool": self.cache.keys,
            "values_pool": self.cache.values,
            **{name: getattr(self, name) for name in names},
            **{f"prefill.{name}": value for name, value in of_prefill.items()},
        }

    def error(self) -> float:
        """The largest difference from NumPy in float64, relative to the largest number."""
        worst = largest = 0.0
        for b, old in enumerate(self.old):
            mine = slice(self.starts[b], self.starts[b + 1])
            keys = np.concatenate([old[:, 0], self.k[mine]])
            values = np.concatenate([old[:, 1], self.v[mine]])
            found, wanted = [self.out[b : b + 1]], [attend(self.q[b : b + 1], keys, values)]
            if b < self.new:
                found.append(self.prompt_out[mine])
                wanted.append(attend(self.prompt_q[mine], keys, values))
            for ours, exact in zip(found, wanted, strict=True):
                worst = max(worst, float(np.abs(ours - exact).max(initial=0)))
                largest = max(largest, float(np.abs(exact).max(initial=0)))
        return worst / max(largest, 1e-30)


def attend(q: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Attention of the last tokens of a sequence, each to those before it, in float64."""
    k, v = (np.repeat(x.astype(np.float64), HEADS // KV_HEADS, axis=1) for x in (keys, values))
    at = np.arange(len(k) - len(q), len(k))
    seen = np.arange(len(k)) <= at[:, None]
    scores = np.where(seen, np.einsum("qhd,khd->hqk", q, k) / np.sqrt(DIM), -np.inf)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    return np.einsum("hqk,khd->qhd", weights, v)


def stages_of(program: Program) -> np.ndarray:
    """For each row of the trace, which stage its task is of."""
    return program.descriptors()["stage"][program.trace["task_id"]]


def waits(program: Program) -> np.ndarray:
    """Who waits for whom: rows of stage and sequence of both, the one that waits first."""
    trace = program.trace
    rows = np.zeros((int(trace["seq"].max()) + 1, 2), np.int64)
    rows[trace["seq"]] = np.stack([stages_of(program), trace["indices"][:, 0]], axis=1)
    edges = program.edges
    return np.concatenate([rows[edges["dst"]], rows[edges["src"]]], axis=1)


def own_pages_only(found: np.ndarray, step: Step) -> bool:
    """Whether decode waits for the pages of its own sequence, each of them, and for no others."""
    decode, append = STAGES.index("decode"), STAGES.index("append")
    of_decode = found[(found[:, 0] == decode) & (found[:, 2] != decode)]
    own = (of_decode[:, 1] == of_decode[:, 3]) & (of_decode[:, 2] == append)
    return bool(own.all()) and set(of_decode[:, 1].tolist()) == set(range(len(step.lens)))


def report(program: Program, step: Step) -> bool:
    """What became of the sequences on the virtual clock; whether nobody waited for others."""
    if not len(step.lens):
        return True
    trace, stage, found = program.trace, stages_of(program), waits(program)
    sequence = trace["indices"][:, 0]
    print("sequence  tokens  prefilled  written  decoded   in cycles")
    ends = np.zeros((len(step.lens), len(STAGES)), np.int64)
    np.maximum.at(ends, (sequence, stage), trace["end_ns"])
    for b, (prefilled, written, decoded) in enumerate(ends.tolist()):
        print(f"{b:8} {step.lens[b]:7} {prefilled or '':10} {written:8} {decoded:8}")
    begun = trace["start_ns"][stage == STAGES.index("decode")].min()
    late = int((ends[:, 0] > begun).sum())
    print(f"decode begins when {late} of {step.new} new sequences are not prefilled yet")
    return own_pages_only(found, step) and late == step.new


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--new", type=int, default=4, help="sequences that are prefilled")
    parser.add_argument("--running", type=int, default=5, help="sequences that only decode")
    parser.add_argument("--longest", type=positive, default=300, help="tokens of a sequence")
    parser.add_argument("--workers", type=positive, default=4, help="how many are simulated")
    args = parser.parse_args()

    rng = np.random.default_rng(0)
    sizes = ((args.new, args.running), (args.new // 2, args.running + 2))
    steps = [Step(*(rng.integers(1, args.longest + 1, n) for n in each), rng) for each in sizes]
    # What others wait for comes first: prefill, alone in having an axis of heads, comes last.
    first = ReadyPolicy.priority(lambda t: select(t.get("head", -1) < 0, 1, 0))
    costs = TracePolicy.cycles(lambda t: CYCLES)
    held = StartPolicy.after_orchestration()  # so that no wait is over before it is seen
    work = steps[0].workload().task_graph(ready=first, trace=costs, start=held)
    program = work.compile(num_threads=args.workers)
    print(f"plan      {program.plan.task_bytes} bytes, which bind {len(program.bindings)} names")
    worst, good = 0.0, True
    for step in steps:
        program.execute(**step.bindings())
        worst = max(worst, step.error())
        print(f"step      {program.stats.tasks} tasks on {program.num_workers} simulated workers")
        good &= report(program, step)
    with steps[0].workload().compile(num_threads=2, verify="full") as program:
        steps[0].forget()
        steps[0].out.fill(np.nan)
        program.execute()
    worst = max(worst, steps[0].error())
    print(f"for real  {program.stats.tasks} tasks on 2 workers")
    good &= worst < 1e-5
    print(f"verdict   {'OK' if good else 'WRONG'}: at most {worst:.1e} from NumPy in float64")
    return 0 if good else 1


def positive(text: str) -> int:
    """An argument that is 1 or more."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
