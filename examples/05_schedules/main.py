"""One workload under several schedules: which one serves whom how soon.

Requests of different lengths arrive together. Each is a chain of steps, since a step reads what the
one before it wrote. A schedule decides who runs next and never what is computed, so all of these
give the same bytes; what they change is read off a virtual clock, which is the same on every
machine. Then one of them runs for real: checked, recorded and repeated.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

from pto_wsp import (
    DenseDyn,
    DispatchPolicy,
    InOut,
    Interleaved,
    P,
    Program,
    Ragged,
    ReadyPolicy,
    Tensor,
    TracePolicy,
    Workload,
    kernel,
    workload,
)

CYCLES = 100  # of one step


@kernel(cpp_src="for (int k = 0; k < state.shape(0); ++k) state[k] = state[k] * 3 + 1;")
def step(state: InOut[Tensor]): ...


@workload
def serve(requests, steps, state):
    for r in P(requests):
        for _ in P(steps[r]):
            step[r](state[r])


def schedules(work: Workload) -> dict[str, Workload]:
    """The same workload, scheduled."""
    return {
        "as it comes": work,
        "each worker its requests": work.dispatch(DispatchPolicy.affinity(lambda t: t.requests)),
        "oldest request first": work.task_graph(ready=ReadyPolicy.priority(lambda t: -t.requests)),
        "furthest behind first": work.task_graph(ready=ReadyPolicy.priority(lambda t: -t.steps)),
        "at most two at a time": work.pipeline_depth(2),
        "four requests in turn": work.order(requests=Interleaved(4)),
    }


def served(program: Program, requests: int) -> np.ndarray:
    """When each request was done, in cycles."""
    trace = program.trace
    owner = trace["indices"][:, 0]
    return np.array([trace["end_ns"][owner == r].max() for r in range(requests)])


def by_worker(program: Program) -> list[list[int]]:
    """The tasks of each worker, in its order."""
    trace = np.sort(program.trace, order="start_ns")
    return [trace["task_id"][trace["worker"] == w].tolist() for w in range(2)]


def positive(text: str) -> int:
    """An argument that is 1 or more."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return int(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=positive, default=24)
    parser.add_argument("--workers", type=int, default=4, help="how many are simulated")
    args = parser.parse_args()
    lengths = np.random.default_rng(0).integers(4, 120, args.requests).astype(np.int32)

    def make() -> tuple[Workload, np.ndarray]:
        data = np.ones((args.requests, 16), np.int64)
        axis = DenseDyn(args.requests)
        return serve(axis, Ragged(axis, lengths), Tensor(data=data)), data

    work, expected = make()
    work.compile(target="reference").execute()

    print(f"{args.requests} requests, {lengths.sum()} steps, {args.workers} simulated workers")
    print(f"{'schedule':26} {'all done':>9} {'half done':>9} {'first done':>10}   cycles")
    for name in schedules(work):
        mine, data = make()
        timed = schedules(mine)[name].task_graph(trace=TracePolicy.cycles(lambda t: CYCLES))
        with timed.compile(num_threads=args.workers) as program:
            program.execute()
            done = served(program, args.requests)
        assert (data == expected).all(), name
        print(f"{name:26} {done.max():9} {int(np.median(done)):9} {done.min():10}")

    # For real: every pair of tasks that share a request is compared with the times of the run.
    mine, data = make()
    oldest = schedules(mine)["oldest request first"]
    oldest.compile(num_threads=args.workers, verify="schedule").execute()
    assert (data == expected).all()

    traced = oldest.task_graph(trace=TracePolicy.timestamps())
    with tempfile.TemporaryDirectory() as folder, traced.compile(num_threads=2) as program:
        path = Path(folder) / "run.rec"
        program.record(path)
        first = by_worker(program)
        program.replay(path)
        again = by_worker(program)
        size = path.stat().st_size
    same = first == again
    print(f"\nrecorded in {size} bytes; each worker ran the same tasks again: {same}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
