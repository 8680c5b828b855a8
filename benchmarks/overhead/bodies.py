"""Bodies of 1 and 10 microseconds: what the second worker brings, under the default schedule."""

from __future__ import annotations

from benchmarks.context import Bench, Json
from benchmarks.overhead.contenders import compile_ours, our_job
from benchmarks.overhead.workload import GRAPHS, PARALLEL
from benchmarks.sampling import interleave

# Length in ns, its name, and the share of the graph that is run: 0.2 s and 0.5 s on one worker.
LENGTHS = ((1_000.0, "1us", 0.2), (10_000.0, "10us", 0.05))


def measure(bench: Bench) -> Json:
    """Per graph that has parallelism and per length: speed-up and the share of the ideal speed."""
    return {name: _measure_graph(bench, name) for name in PARALLEL}


def _measure_graph(bench: Bench, name: str) -> Json:
    result: Json = {}
    for length, label, share in LENGTHS:
        graph = GRAPHS[name](bench.protocol.scale * share)
        iterations = bench.spinner.iterations(length)
        bench.say(f"bodies of {label}: {name}, {graph.tasks:,} tasks")
        programs = {
            workers: compile_ours(graph, workers=workers, iterations=iterations)
            for workers in (1, bench.workers)
        }
        jobs = {str(workers): our_job(each, graph) for workers, each in programs.items()}
        taken = interleave(jobs, bench.protocol)
        one, many = taken["1"], taken[str(bench.workers)]
        ideal = graph.tasks * bench.spinner.length_ns(iterations) / bench.workers
        result[label] = {
            "tasks": graph.tasks,
            "speedup": many.times_faster_than(one).to_json(),
            "of_ideal": ideal / many.median,
            "ms_one_worker": one.median / 1e6,
            "ms": many.median / 1e6,
            "worker_tasks": list(programs[bench.workers].stats.worker_tasks),
        }
        for program in programs.values():
            program.close()
    return result
