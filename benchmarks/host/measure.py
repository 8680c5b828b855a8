"""Plan size, compile time, generation rate, cost of a call, time to the first task."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from benchmarks.context import ROOT, Bench, Json
from benchmarks.host.workload import (
    LLAMA_7B,
    make_attention,
    make_decode,
    make_eight,
    make_sparse,
    one_task,
    stamps,
)
from benchmarks.sampling import Job, Samples, interleave
from pto_wsp import DenseDyn, Tensor

SMALL = (1, 1, 4, 4)
CALLS = 200  # calls of which one sample is the mean: one call is too short for the clock


def measure(bench: Bench) -> Json:
    """Everything of the host side."""
    return {
        "plan": _plan(),
        "compile": _compile(bench),
        "fresh": _fresh(bench),
        "generation": _generation(bench),
        "sparse_generation": _sparse_generation(bench),
        "descriptors": _descriptors(bench),
        "execute": _execute(bench),
        "first_task": _first_task(bench),
    }


def _plan() -> Json:
    with make_attention(LLAMA_7B).compile(num_threads=1) as program:
        whole = len(program.plan.to_bytes())
        return {"bytes": program.plan.task_bytes, "bytes_with_bodies_and_debug": whole}


def _timed(action: Callable[[], object]) -> float:
    begin = time.perf_counter_ns()
    action()
    return float(time.perf_counter_ns() - begin)


def _compile(bench: Bench) -> Json:
    """Compiling in a process that has compiled before: the kernels are in the cache."""
    bench.say("compile time")

    def new(extents: tuple[int, int, int, int]) -> Job:
        def job() -> float:
            work = make_attention(extents)
            return _timed(lambda: work.compile(num_threads=1).close())

        return job

    same = make_attention(LLAMA_7B)
    same.compile(num_threads=1).close()

    def again() -> float:
        return _timed(lambda: same.compile(num_threads=1).close())

    jobs = {"large": new(LLAMA_7B), "small": new(SMALL), "again": again}
    taken = interleave(jobs, bench.protocol)
    ms = {name: samples.map(lambda ns: ns / 1e6) for name, samples in taken.items()}
    return {
        "ms": ms["large"].to_json(),
        "ms_small_extents": ms["small"].to_json(),
        "large_over_small": ms["small"].times_faster_than(ms["large"]).to_json(),
        "again_ms": ms["again"].to_json(),
    }


def _fresh(bench: Bench) -> Json:
    """A new process with a warm cache of kernels."""
    bench.say("compile in fresh processes")
    command = [sys.executable, "-m", "benchmarks.host.fresh"]
    found: list[dict[str, float]] = []
    for _ in range(1 + min(bench.protocol.runs, 10)):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        found.append(json.loads(done.stdout))
    warm = found[1:]  # the first may have filled the cache
    return {key: Samples(tuple(each[key] for each in warm)).to_json() for key in warm[0]}


def _generation(bench: Bench) -> Json:
    """Generation alone, on one thread: every task's record written and folded into the hash."""
    share = min(1.0, bench.protocol.scale)
    extents = (*LLAMA_7B[:2], LLAMA_7B[2], max(4, round(LLAMA_7B[3] * share)))
    bench.say("generation rate")
    with make_attention(extents).compile(num_threads=1) as program:
        tasks = program.num_tasks()
        protocol = bench.protocol.fewer(5)
        taken = interleave({"hash": lambda: _timed(program.task_hash)}, protocol)["hash"]
    return {
        "tasks": tasks,
        "seconds": taken.median / 1e9,
        "million_tasks_per_s": taken.map(lambda ns: tasks / ns * 1e3).to_json(),
    }


def _sparse_generation(bench: Bench) -> Json:
    """The same for a conditional, ragged, sparse nest with scalars."""
    bench.say("generation rate of a conditional, ragged, sparse nest")
    with make_sparse(max(8, round(1000 * min(1.0, bench.protocol.scale)))).compile(
        num_threads=1
    ) as program:
        tasks = program.num_tasks()
        protocol = bench.protocol.fewer(5)
        taken = interleave({"hash": lambda: _timed(program.task_hash)}, protocol)["hash"]
    return {
        "tasks": tasks,
        "million_tasks_per_s": taken.map(lambda ns: tasks / ns * 1e3).to_json(),
    }


def _descriptors(bench: Bench) -> Json:
    """Descriptors of ragged decode as an array, few enough for memory that is there already."""
    bench.say("descriptors")
    sequences = max(4, round(32 * min(1.0, bench.protocol.scale)))
    result: Json = {}
    for name, constrained in (("tiers", False), ("constraint", True)):
        work = make_decode(sequences, constrained=constrained)
        with work.compile(num_threads=1) as program:
            rows = program.descriptors()
            count = len(rows)
            job = {name: lambda program=program: _timed(program.descriptors)}
            taken = interleave(job, bench.protocol)[name]
        result[name] = {
            "tasks": count,
            "bytes": rows.dtype.itemsize,
            "million_per_s": taken.map(lambda ns, n=count: n / ns * 1e3).to_json(),
        }
    return result


def _execute(bench: Bench) -> Json:
    """The whole of execute(t0=..., ..., t7=...) on a program of one near-empty task, which is an
    upper bound of what the host adds to a run."""
    bench.say("cost of execute()")
    sets = [make_eight(), make_eight()]  # taking turns, so that every call binds new arrays
    result: Json = {}
    for workers in (1, bench.workers):
        work = one_task(**{name: Tensor(data=array) for name, array in sets[0].items()})
        with work.compile(num_threads=workers) as program:

            def rebound(program=program) -> float:
                begin = time.perf_counter_ns()
                for call in range(CALLS):
                    program.execute(**sets[call & 1])
                return (time.perf_counter_ns() - begin) / CALLS

            def unchanged(program=program) -> float:
                begin = time.perf_counter_ns()
                for _ in range(CALLS):
                    program.execute()
                return (time.perf_counter_ns() - begin) / CALLS

            taken = interleave({"rebound": rebound, "unchanged": unchanged}, bench.protocol)
        suffix = "" if workers == bench.workers else "_one_worker"
        for name, samples in taken.items():
            result[f"{name}_us{suffix}"] = samples.map(lambda ns: ns / 1e3).to_json()
    return result


def _first_task(bench: Bench) -> Json:
    """From just before the call of execute() to the first clock reading inside a body, in a run of
    a million tasks by workers that slept before it."""
    n = max(1000, round(1_000_000 * bench.protocol.scale))
    bench.say("time to the first task")
    at = np.zeros(n, np.int64)
    with stamps(DenseDyn(n), Tensor(data=at)).compile(num_threads=bench.workers) as program:

        def job() -> float:
            at.fill(0)
            begin = time.monotonic_ns()
            program.execute()
            return float(int(at.min()) - begin)

        taken = interleave({"first": job}, bench.protocol)["first"]
    return {"tasks": n, "us": taken.map(lambda ns: ns / 1e3).to_json()}
