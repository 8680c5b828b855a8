"""What a schedule costs: streams, depth and priority together, and a trace, against the same
workload without them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.context import Bench, Json
from benchmarks.overhead.contenders import WrongResult
from benchmarks.overhead.workload import make_step
from benchmarks.sampling import Samples, interleave
from pto_wsp import (
    DenseDyn,
    In,
    InOut,
    P,
    ReadyPolicy,
    Tensor,
    TracePolicy,
    Workload,
    kernel,
    workload,
)

ROWS, COLS = 300, 1000


@kernel(cpp_src="x() += a() + b() > 0 ? 1 : 0;")
def cell(a: In[Tensor], b: In[Tensor], x: InOut[Tensor]): ...


def _grid(data: np.ndarray[Any, Any], rows: int) -> Workload:
    step = make_step(0)

    @workload
    def grid(rows, cols, x):
        for i, j in P(rows, cols):
            step[i, j](x=x[i + 1, j + 1])

    return grid(DenseDyn(rows), DenseDyn(COLS), Tensor(data=data))


def _wavefront(data: np.ndarray[Any, Any], rows: int) -> Workload:
    @workload
    def wavefront(rows, cols, x):
        for i, j in P(rows, cols):
            cell[i, j](a=x[i, j + 1], b=x[i + 1, j], x=x[i + 1, j + 1])

    return wavefront(DenseDyn(rows), DenseDyn(COLS), Tensor(data=data))


def _ordered(work: Workload) -> Workload:
    return (
        work.streams(16)
        .stream_by(lambda t: t.rows)
        .pipeline_depth(8)
        .task_graph(ready=ReadyPolicy.priority(lambda t: -t.cols))
    )


SCHEDULES = {
    "plain": lambda work: work,
    "ordered": _ordered,
    "traced": lambda work: work.task_graph(trace=TracePolicy.timestamps()),
}


def measure(bench: Bench) -> Json:
    """Nanoseconds a task that each schedule adds, by graph and number of workers."""
    rows = max(8, round(ROWS * bench.protocol.scale))
    return {
        graph: {
            str(workers): _compare(bench, graph, build, rows, workers)
            for workers in (1, bench.workers)
        }
        for graph, build in {"grid": _grid, "wavefront": _wavefront}.items()
    }


def _compare(bench: Bench, graph: str, build: Any, rows: int, workers: int) -> Json:
    bench.say(f"schedules of a {graph} of {rows * COLS:,} tasks, {workers} workers")
    data = np.ones((rows + 1, COLS + 1), np.int32)
    programs = {
        name: schedule(build(data, rows)).compile(num_threads=workers)
        for name, schedule in SCHEDULES.items()
    }

    def job(program: Any) -> float:
        data.fill(1)
        begin = time.perf_counter_ns()
        program.execute()
        took = time.perf_counter_ns() - begin
        if not (data[1:, 1:] == 2).all():
            raise WrongResult(f"{graph}: the result is wrong")
        return took / (rows * COLS)

    jobs = {name: (lambda each=each: job(each)) for name, each in programs.items()}
    taken = interleave(jobs, bench.protocol)
    for program in programs.values():
        program.close()
    plain = taken["plain"]
    return {
        "plain_ns": plain.to_json(),
        "ordered_adds_ns": _more(taken["ordered"], plain).to_json(),
        "traced_adds_ns": _more(taken["traced"], plain).to_json(),
    }


def _more(taken: Samples, plain: Samples) -> Samples:
    """Round by round, so that a slow phase of the machine slows both."""
    return Samples(tuple(a - b for a, b in zip(taken.values, plain.values, strict=True)))
