"""The six graphs with near-empty bodies: PTO-WSP twice, against the rivals."""

from __future__ import annotations

from typing import Any

from benchmarks.context import Bench, Json
from benchmarks.overhead.contenders import compile_ours, our_job
from benchmarks.overhead.workload import GRAPHS, Graph
from benchmarks.sampling import Job, Samples, interleave

# Rivals that are so much slower that they run a part of the graph; rates are compared.
SHARE = {"starpu": 0.02}


def measure(bench: Bench) -> Json:
    """Per graph: both rows, the rivals, ratios, and memory."""
    return {
        name: _measure_graph(bench, make(bench.protocol.scale)) for name, make in GRAPHS.items()
    }


def _measure_graph(bench: Bench, graph: Graph) -> Json:
    bench.say(f"graph {graph.name}: {graph.tasks:,} tasks, {graph.edges:,} edges")
    many = bench.workers
    programs = {
        f"{row}_{workers}": compile_ours(graph, workers=workers, held=row == "held")
        for row in ("pipelined", "held")
        for workers in (1, many)
    }
    jobs: dict[str, Job] = {name: our_job(each, graph) for name, each in programs.items()}
    tasks = dict.fromkeys(programs, graph.tasks)
    for rival in bench.rivals.values():
        part = graph
        if rival.name in SHARE:
            part = GRAPHS[graph.name](bench.protocol.scale * SHARE[rival.name])
        # One OpenMP thread runs each task where it is created, which is no comparison; StarPU is
        # too slow to run it twice.
        for workers in (1, many) if rival.name == "tbb" else (many,):
            jobs[f"{rival.name}_{workers}"] = rival.job(part, workers=workers)
            tasks[f"{rival.name}_{workers}"] = part.tasks
    taken = interleave(jobs, bench.protocol)
    # Per task, so that a rival that runs a part of the graph can be compared.
    per_task = {
        name: Samples(tuple(ns / tasks[name] for ns in samples.values))
        for name, samples in taken.items()
    }
    result: Json = {
        "tasks": graph.tasks,
        "edges": graph.edges,
        "rivals": _rivals(bench, graph.name, per_task, tasks),
    }
    for row in ("pipelined", "held"):
        result[row] = _row(row, bench, graph, programs[f"{row}_{many}"], per_task)
    result["memory"] = _memory(graph, programs[f"held_{many}"])
    for program in programs.values():
        program.close()
    return result


def _rivals(bench: Bench, graph: str, per_task: dict[str, Samples], tasks: dict[str, int]) -> Json:
    found: Json = {}
    for name, samples in per_task.items():
        rival, _, workers = name.rpartition("_")
        if rival not in bench.rivals:
            continue
        teardown = bench.rivals[rival].teardown_ns.get(f"{graph}_{workers}", 0.0)
        found[name] = {
            "ns_per_task": samples.to_json(),
            "tasks_per_ms": 1e6 / samples.median,
            "teardown_ns_per_task": teardown / tasks[name],
        }
    return found


def _row(row: str, bench: Bench, graph: Graph, program: Any, per_task: dict[str, Samples]) -> Json:
    many = bench.workers
    ours = per_task[f"{row}_{many}"]
    stats = program.stats
    result: Json = {
        "ns_per_task": ours.to_json(),
        "ns_per_task_one_worker": per_task[f"{row}_1"].to_json(),
        "tasks_per_ms": 1e6 / ours.median,
        "tasks_per_ms_one_worker": 1e6 / per_task[f"{row}_1"].median,
        "worker_tasks": list(stats.worker_tasks),
        "edges": stats.edges,
    }
    if row == "held":
        result["edges_off_by"] = stats.edges - graph.edges
    for rival in bench.rivals:
        theirs = per_task[f"{rival}_{many}"]
        result[f"vs_{rival}"] = ours.times_faster_than(theirs).to_json()
        alone = per_task.get(f"{rival}_1")
        if alone is not None:
            # Some graphs run faster on one of its workers than on two.
            better = alone if alone.median < theirs.median else theirs
            result[f"vs_{rival}_better"] = ours.times_faster_than(better).to_json()
    return result


def _memory(graph: Graph, held: Any) -> Json:
    """Bytes of ring, edges and map for each task of a window that holds the graph."""
    measured = held.stats.memory_bytes / graph.tasks
    budget = 40 + 16 * graph.accesses / graph.tasks + 8 * graph.edges / graph.tasks
    return {"bytes_per_task": measured, "budget": budget, "of_budget": measured / budget}
