"""python -m benchmarks.llm.child RUNS SCALE WORKERS: prints the measurements as JSON."""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.llm import decode
from benchmarks.overhead.build import load
from benchmarks.sampling import Protocol, Samples, interleave
from pto_wsp import TracePolicy

Json = dict[str, Any]
# Tokens of a page, and whether the tokens of one head lie next to each other in it. 128 is what
# servers take by default on a CPU, 16 what they take on a GPU.
POOLS = {
    "page_128": (128, True),
    "page_64": (64, True),
    "page_16": (16, True),
    "page_16_by_token": (16, False),
}


def main(runs: int, scale: float, workers: int) -> Json:
    protocol = Protocol(runs=runs, scale=scale)
    try:
        import torch
    except ImportError:
        torch = None
    else:
        torch.set_num_threads(workers)
    pools = {name: one_pool(protocol, pool, workers, torch) for name, pool in POOLS.items()}
    return {"decode": pools, "torch": None if torch is None else torch.__version__}


def one_pool(protocol: Protocol, pool: tuple[int, bool], workers: int, torch: Any) -> Json:
    batch = decode.make(*pool, protocol.scale)
    work = decode.work(batch, workers)
    with work.compile(num_threads=workers) as program:
        jobs = {"ours": timed(program.execute), "stream": stream(batch, workers)}
        theirs = None
        if torch is not None:
            step, theirs = decode.by_torch(torch, batch)
            jobs["torch"] = timed(step)
        taken = interleave(jobs, protocol)
        tasks = program.stats.tasks
    wanted = decode.exact(batch)
    rate = taken["ours"].map(lambda ms: batch.bytes_read / ms / 1e6)
    streamed = batch.k_memory.nbytes + batch.v_memory.nbytes
    limit = taken["stream"].map(lambda ms: streamed / ms / 1e6)
    out: Json = {f"{name}_ms": each.to_json() for name, each in taken.items()}
    out |= {"tasks": tasks, "bytes": batch.bytes_read}
    out |= {"gb_per_s": rate.to_json(), "stream": limit.to_json()}
    out["of_stream"] = limit.times_faster_than(rate).to_json()
    out["errors"] = {"ours": _error(batch.out, wanted)}
    if theirs is not None:
        out["errors"]["torch"] = _error(theirs.numpy(), wanted)
        out["vs_torch"] = taken["ours"].times_faster_than(taken["torch"]).to_json()
    # What the schedule gives each worker shows without stealing. With it, what the machine then let
    # each of them do is in it as well.
    _, out["unevenness"] = _steps(batch, protocol, workers, 0.0, stealing=False)
    found = _steps(batch, protocol, workers, 0.0)
    out["first_task_of_next_step_us"], out["unevenness_with_stealing"] = found
    out["first_task_after_pause_us"], _ = _steps(batch, protocol, workers, protocol.pause_s)
    return out


def _steps(
    batch: decode.Batch, protocol: Protocol, workers: int, pause_s: float, *, stealing: bool = True
) -> tuple[Json, Json]:
    """How long after the call the first task starts, and the bytes of the busiest worker over the
    mean, with sequences one token longer at each call: a step right behind another one, as a server
    takes them, or after a pause."""
    first: list[float] = []
    uneven: list[float] = []
    work = decode.work(batch, workers, stealing=stealing)
    traced = work.task_graph(trace=TracePolicy.timestamps())
    turns = protocol.warmup + protocol.runs
    with traced.compile(num_threads=workers) as program:
        for turn in range(turns):
            lens = batch.lens - (turns - turn)
            if pause_s > 0:
                time.sleep(pause_s)
            else:  # looking at a trace takes longer than anything between two steps
                program.execute(lens=lens - 1)
            begin = time.monotonic_ns()
            program.execute(lens=lens)
            if turn < protocol.warmup:
                continue
            before = program.stats.began_ns - begin
            first.append((before + int(program.trace["start_ns"].min())) / 1e3)
            uneven.append(decode.unevenness(program, lens, workers))
    return Samples(tuple(first)).to_json(), Samples(tuple(uneven)).to_json()


def timed(function: Callable[[], object]) -> Callable[[], float]:
    def job() -> float:
        begin = time.perf_counter_ns()
        function()
        return (time.perf_counter_ns() - begin) / 1e6

    return job


def stream(batch: decode.Batch, threads: int) -> Callable[[], float]:
    read = load("stream").stream_sum
    read.restype = ctypes.c_float
    read.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int]
    k, v = batch.k_memory, batch.v_memory
    return timed(lambda: read(k.ctypes.data, v.ctypes.data, k.size, threads))


def _error(found: Any, exact: Any) -> float:
    """The largest difference, by the largest value."""
    return float(np.abs(found - exact).max() / np.abs(exact).max())


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))))
