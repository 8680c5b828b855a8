"""Processes and channels: messages a second, and what a pipeline gains from a second worker."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.context import Bench, Json
from benchmarks.overhead.contenders import WrongResult
from benchmarks.overhead.workload import spinning
from benchmarks.sampling import Samples, interleave
from pto_wsp import (
    Channel,
    DenseDyn,
    DType,
    In,
    InOut,
    Kernel,
    Out,
    P,
    Pools,
    Scalar,
    Tensor,
    Tile,
    Workload,
    consume,
    kernel,
    send,
    workload,
)

MESSAGES = 1_000_000
STAGES_US = 10
ELEMENT = Tile[8, DType.F64]  # a cache line


def measure(bench: Bench) -> Json:
    return {"messages": _messages(bench), "pipeline": _pipeline(bench)}


def _messages(bench: Bench) -> Json:
    """One channel of depth 64, bodies of one addition: whoever is free runs a task, or the producer
    is on one worker and the consumer on the other."""
    count = max(1000, round(MESSAGES * bench.protocol.scale))
    bench.say(f"{count:,} messages through one channel")
    total = np.zeros(1)
    work = _stream(count, total, 64, 0)
    pools = Pools.by_exec_unit()
    ways = {"any": work, "apart": work.task_graph(pools=pools)}
    programs = {name: each.compile(num_threads=bench.workers) for name, each in ways.items()}
    jobs = {name: _job(each, total, count) for name, each in programs.items()}
    taken = interleave(jobs, bench.protocol)
    result: Json = {"count": count}
    for name, program in programs.items():
        rate = taken[name].map(lambda ns: count / ns * 1e3)
        result[name] = {
            "million_per_s": rate.to_json(),
            "worker_tasks": list(program.stats.worker_tasks),
        }
        program.close()
    return result


def _pipeline(bench: Bench) -> Json:
    """Two stages of 10 us with two buffers between them, on one worker and on two."""
    count = max(100, round(20_000 * bench.protocol.scale))
    iterations = bench.spinner.iterations(STAGES_US * 1000)
    bench.say(f"a pipeline of two stages of {STAGES_US} us, {count:,} messages")
    total = np.zeros(1)
    work = _stream(count, total, 2, iterations)
    programs = {n: work.compile(num_threads=n) for n in (1, 2)}
    jobs = {str(n): _job(program, total, count) for n, program in programs.items()}
    taken: dict[str, Samples] = interleave(jobs, bench.protocol.fewer(7))
    stats = programs[2].stats
    for program in programs.values():
        program.close()
    return {
        "count": count,
        "speedup": taken["2"].times_faster_than(taken["1"]).to_json(),
        "worker_tasks": list(stats.worker_tasks),
    }


def _job(program: Any, total: Any, count: int) -> Any:
    def job() -> float:
        total.fill(0)
        begin = time.perf_counter_ns()
        program.execute()
        took = time.perf_counter_ns() - begin
        if total[0] != count * (count - 1) / 2:
            raise WrongResult("messages: the sum is wrong")
        return float(took)

    return job


def _stream(count: int, total: Any, depth: int, iterations: int) -> Workload:
    make, add = _kernels(iterations)
    S = Tensor(data=total, name="S")

    @workload
    def stream(n: Any):
        numbers = Channel[ELEMENT]("numbers", depth=depth)
        with P.pipe():
            for i in P(n):
                send(numbers, make(i=i))
            with consume(numbers) as message:
                add(t=message, s=S)

    return stream(DenseDyn(count))


def _kernels(iterations: int) -> tuple[Kernel, Kernel]:
    body = spinning("t[0] = static_cast<double>(i);", iterations)

    @kernel(cpp_src=body, exec_unit="vector")
    def make(t: Out[Tensor], i: Scalar[DType.I64]): ...

    @kernel(cpp_src=spinning("s[0] += t[0];", iterations), exec_unit="cube")
    def add(t: In[Tensor], s: InOut[Tensor]): ...

    return make, add
