"""A farm of workers behind one queue, whose results come out in the order in which it went in.

Each item takes a different number of steps. `replicate(crew, n)` makes n processes of one:
message m goes to replica m modulo n, and what they send is collected in the same order, so the
output does not depend on who is faster. A virtual clock shows the farm at several sizes, and the
same network then runs for real.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

from pto_wsp import (
    Channel,
    Constexpr,
    DenseDyn,
    DType,
    In,
    InOut,
    Out,
    P,
    Process,
    Program,
    Tensor,
    Tile,
    TracePolicy,
    Workload,
    connect,
    consume,
    kernel,
    process,
    replicate,
    select,
    send,
    workload,
)

Item = Tile[2, DType.U64]  # its number, and what has become of it
STEP = 100  # cycles of one step; passing an item on takes none
ROUNDS, FACTOR, TERM = 2000, 6364136223846793005, 1442695040888963407


@kernel(cpp_src="item[0] = start[0]; item[1] = start[0];")
def issue(start: In[Tensor], item: Out[Tensor]): ...


@kernel(cpp_src="state[0] = item[0]; state[1] = item[1];")
def begin(item: In[Tensor], state: Out[Tensor]): ...


@kernel(cpp_src="for (int k = 0; k < rounds; ++k) state[1] = state[1] * factor + term;")
def step(
    state: InOut[Tensor],
    rounds: Constexpr[int] = ROUNDS,
    factor: Constexpr[int] = FACTOR,
    term: Constexpr[int] = TERM,
): ...


@kernel(cpp_src="done[0] = state[0]; done[1] = state[1];")
def finish(state: In[Tensor], done: Out[Tensor]): ...


@kernel(cpp_src="log(at[0], 0) = done[0]; log(at[0], 1) = done[1]; at[0] += 1;")
def append(done: In[Tensor], log: InOut[Tensor], at: InOut[Tensor]): ...


def farm(steps: np.ndarray, log: np.ndarray, replicas: int, depth: int) -> Workload:
    """A source, `replicas` workers and a sink, with `depth` buffers on either side."""
    count = len(steps)
    starts = Tensor(data=np.arange(count, dtype=np.uint64), name="starts")
    lines, at = Tensor(data=log, name="log"), Tensor(data=np.zeros(1, np.int64), name="at")
    todo = Channel[Item]("todo", depth=depth)
    done = Channel[Item]("done", depth=depth)

    @workload
    def source(items):
        for i in P(items):
            send(todo, issue[i](start=starts[i : i + 1]))

    @workload
    def work(lengths):
        with consume(todo) as item:
            state = Tensor.temp((2,), DType.U64)
            begin[item.number](item=item, state=state)
            for k in P.seq(lengths[item.number]):
                step[item.number, k](state=state)
            send(done, finish[item.number](state=state))

    def sink():
        with consume(done) as item:
            append[item.number](done=item, log=lines, at=at)

    crew = process("crew").consumes(todo).produces(done).body(work(steps))
    processes: list[Process] = [
        process("source").produces(todo).body(source(DenseDyn(count))),
        replicate(crew, replicas),
        process("sink").consumes(done).body(sink),
    ]
    return connect(processes, [todo, done])


def simulated(work: Workload) -> Program:
    """A run on a virtual clock, on which each replica has a worker of its own."""
    costs = TracePolicy.cycles(lambda t: select(t.site == 2, STEP, 0))
    program = work.task_graph(trace=costs).compile()
    program.execute()
    return program


def at_a_time(program: Program) -> int:
    """The most steps that ran at a time."""
    trace = program.trace[program.trace["kernel"] == "step"]
    changes = [(end, -1) for end in trace["end_ns"].tolist()]
    changes += [(start, 1) for start in trace["start_ns"].tolist()]
    return int(np.cumsum([change for _, change in sorted(changes)]).max())


def expected(steps: np.ndarray) -> np.ndarray:
    """What the sink should log: the items in order, each after its steps."""
    factor, term = 1, 0  # of one step, which is ROUNDS times x * FACTOR + TERM
    for _ in range(ROUNDS):
        factor, term = factor * FACTOR % 2**64, (term * FACTOR + TERM) % 2**64
    values = list(range(len(steps)))
    for item, count in enumerate(steps):
        for _ in range(count):
            values[item] = (values[item] * factor + term) % 2**64
    return np.array([[item, value] for item, value in enumerate(values)], np.uint64)


def positive(text: str) -> int:
    """An argument that is 1 or more."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return int(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=positive, default=48)
    parser.add_argument("--trace", type=Path, default=None, help="where the Perfetto trace goes")
    args = parser.parse_args()
    steps = np.random.default_rng(0).integers(1, 40, args.items)
    wanted = expected(steps)
    log = np.zeros_like(wanted)
    path = args.trace or Path(tempfile.gettempdir()) / "pto_wsp_worker_farm.json.gz"

    print(f"{args.items} items of {steps.min()} to {steps.max()} steps, {steps.sum()} in all")
    print("workers  largest share  one buffer  a buffer each  steps at a time")
    good = True
    for replicas in (1, 2, 4, 8):
        share = max(int(steps[replica::replicas].sum()) for replica in range(replicas))
        cycles: list[int] = []
        for depth in (1, replicas):
            log[:] = 0
            program = simulated(farm(steps, log, replicas, depth))
            good &= np.array_equal(log, wanted)
            cycles.append(int(program.trace["end_ns"].max()))
        most = at_a_time(program)
        good &= most == min(replicas, args.items)
        print(f"{replicas:7} {STEP * share:14} {cycles[0]:11} {cycles[1]:14} {most:16}")
        if replicas == 4:
            program.save_trace(path)

    log[:] = 0
    with farm(steps, log, replicas=4, depth=4).compile(num_threads=2, verify="full") as program:
        program.execute()
    good &= np.array_equal(log, wanted)
    stats = program.stats
    print(f"for real   {stats.tasks} tasks, {stats.messages} messages, 2 threads")
    print(f"verdict    {'OK' if good else 'WRONG'}: items came out in order, each with its value")
    print(f"timeline   {path} (open it at https://ui.perfetto.dev)")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
