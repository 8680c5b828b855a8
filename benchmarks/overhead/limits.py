"""Long chains under a small window, long runs in little memory, regions that overlap in part."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import numpy as np

from benchmarks.context import ROOT, Bench, Json
from benchmarks.overhead.contenders import WrongResult
from benchmarks.overhead.workload import make_step
from benchmarks.sampling import interleave
from pto_wsp import Dense, DenseDyn, InOut, P, Tensor, kernel, workload

CHAINS = 64
TILES = 64


def long_chains(bench: Bench, length: int) -> Json:
    """64 chains longer than the default window, of 10 us tasks: both workers must stay busy."""
    iterations = bench.spinner.iterations(10_000)
    bench.say(f"{CHAINS} chains of {length:,} tasks of 10 us")
    data = np.zeros(CHAINS, np.int32)
    programs = {
        workers: _chains(data, length, iterations, workers) for workers in (1, bench.workers)
    }

    def job(program: Any) -> float:
        data.fill(0)
        begin = time.perf_counter_ns()
        program.execute()
        took = time.perf_counter_ns() - begin
        if not (data == length).all():
            raise WrongResult("64 chains: the result is wrong")
        return float(took)

    jobs = {str(workers): (lambda each=each: job(each)) for workers, each in programs.items()}
    taken = interleave(jobs, bench.protocol.fewer(5))
    one, many = taken["1"], taken[str(bench.workers)]
    stats = programs[bench.workers].stats
    result = {
        "chains": CHAINS,
        "length": length,
        "speedup": many.times_faster_than(one).to_json(),
        "seconds": many.median / 1e9,
        "worker_tasks": list(stats.worker_tasks),
        "window_stalls": stats.window_stalls,
    }
    for program in programs.values():
        program.close()
    return result


def _chains(data: np.ndarray[Any, Any], length: int, iterations: int, workers: int) -> Any:
    step = make_step(iterations)

    @workload
    def chains(many, length, x):
        for c in P(many):
            for t in P(length):
                step[c, t](x=x[c])

    work = chains(DenseDyn(CHAINS), DenseDyn(length), Tensor(data=data))
    return work.compile(num_threads=workers)


def long_run(bench: Bench, tasks: int) -> Json:
    """Many tasks under the default window, in a process of its own: its memory is what counts."""
    bench.say(f"{tasks:,} tasks in one run")
    command = [sys.executable, "-m", "benchmarks.overhead.long_run", str(tasks), str(bench.workers)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise WrongResult(f"long run: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout)


@kernel(cpp_src="tiles(0) += 1;")
def touch(tiles: InOut[Tensor]): ...


def rows_and_columns(bench: Bench) -> Json:
    """Tasks take turns at the rows and at the columns of 64 x 64 tiles: each overlaps 64 others,
    none of which has the same region."""
    rounds = max(2, round(100 * bench.protocol.scale))
    bench.say(f"rows against columns, {rounds} rounds")
    data = np.zeros((TILES, TILES), np.int32)

    @workload
    def crossing_tasks(rounds, tiles, x):
        for r in P(rounds):
            for i in P(tiles):
                touch[r, i](tiles=x[i, :])
            for j in P(tiles):
                touch[r, j](tiles=x[:, j])

    work = crossing_tasks(DenseDyn(rounds), Dense[TILES](), Tensor(data=data))
    program = work.compile(num_threads=bench.workers)
    tasks = 2 * TILES * rounds

    def job() -> float:
        data.fill(0)
        begin = time.perf_counter_ns()
        program.execute()
        took = time.perf_counter_ns() - begin
        if data[0, 0] != 2 * rounds or data.sum() != tasks:
            raise WrongResult("rows against columns: the result is wrong")
        return float(took)

    taken = interleave({"ours": job}, bench.protocol)["ours"]
    edges = program.stats.edges
    program.close()
    return {
        "tasks": tasks,
        "edges_found": edges,
        "tasks_per_s": tasks / taken.median * 1e9,
        "run_ns": taken.to_json(),
    }
