"""METG(50 %): the body length at which all workers together reach half of the ideal speed.

The ideal time is tasks * length / workers; building the graph counts as part of the run. A coarse
search finds between which lengths a contender crosses one half; then the lengths around that are
measured in full, and the crossing is interpolated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from benchmarks.context import Bench, Json
from benchmarks.overhead.contenders import compile_ours, our_job
from benchmarks.overhead.workload import GRAPHS, Graph
from benchmarks.sampling import Job, Protocol, Samples, crossing, interleave

NAMES = ("wavefront", "stencil", "attention")
SHORTEST_NS, LONGEST_NS = 16.0, 4_096.0
HALF = 0.5
STEP = 2.0  # between lengths of the coarse search
FINE_STEPS = 2  # lengths measured in full for each factor of STEP

MakeJob = Callable[[int], tuple[Job, Callable[[], None]]]


def measure(bench: Bench) -> Json:
    """Per graph and contender: the length in ns, and the points it was found from."""
    return {name: _measure_graph(bench, GRAPHS[name](bench.protocol.scale)) for name in NAMES}


def _measure_graph(bench: Bench, graph: Graph) -> Json:
    makers: dict[str, MakeJob] = {"ours": lambda iterations: _ours(bench, graph, iterations)}
    if "tbb" in bench.rivals:
        makers["tbb"] = lambda iterations: (
            bench.rivals["tbb"].job(graph, workers=bench.workers, iterations=iterations),
            lambda: None,
        )
    lengths: dict[str, list[int]] = {}
    for name, make in makers.items():
        around = _search(bench, graph, make)
        bench.say(f"METG {graph.name}, {name}: coarse search says {around:.0f} ns")
        lengths[name] = _around(bench, around)
    taken = _measure_points(bench, makers, lengths)
    return {
        name: _result(bench, graph, lengths[name], [taken[name, it] for it in lengths[name]])
        for name in makers
    }


def _ours(bench: Bench, graph: Graph, iterations: int) -> tuple[Job, Callable[[], None]]:
    program: Any = compile_ours(graph, workers=bench.workers, iterations=iterations)
    return our_job(program, graph), program.close


def _efficiency(bench: Bench, graph: Graph, iterations: int, ns: float) -> float:
    return graph.tasks * bench.spinner.length_ns(iterations) / bench.workers / ns


def _search(bench: Bench, graph: Graph, make: MakeJob) -> float:
    """Roughly where the contender crosses one half: few runs, lengths that double."""
    points: list[tuple[float, float]] = []
    length = SHORTEST_NS
    quick = Protocol(3, 1, bench.protocol.pause_s, bench.protocol.scale)
    while length <= LONGEST_NS:
        iterations = bench.spinner.iterations(length)
        job, close = make(iterations)
        ns = interleave({"job": job}, quick)["job"].median
        close()
        efficiency = _efficiency(bench, graph, iterations, ns)
        points.append((bench.spinner.length_ns(iterations), efficiency))
        if efficiency >= HALF:
            break
        length *= STEP
    return crossing(points, HALF) or LONGEST_NS


def _around(bench: Bench, length: float) -> list[int]:
    """Iterations of lengths from about half to twice the given one. They are those of a fixed
    ladder, so that the kernels of an earlier run are found in the cache."""
    nearest = round(FINE_STEPS * math.log(length / SHORTEST_NS, STEP))
    rungs = range(max(0, nearest - FINE_STEPS), max(0, nearest) + FINE_STEPS + 1)
    wanted = [SHORTEST_NS * STEP ** (rung / FINE_STEPS) for rung in rungs]
    return sorted({bench.spinner.iterations(each) for each in wanted})


def _measure_points(
    bench: Bench, makers: dict[str, MakeJob], lengths: dict[str, list[int]]
) -> dict[tuple[str, int], Samples]:
    """All points of all contenders, interleaved."""
    jobs: dict[str, Job] = {}
    closers: list[Callable[[], None]] = []
    keys: dict[str, tuple[str, int]] = {}
    for name, make in makers.items():
        for iterations in lengths[name]:
            label = f"{name} {iterations}"
            jobs[label], close = make(iterations)
            closers.append(close)
            keys[label] = name, iterations
    taken = interleave(jobs, bench.protocol)
    for close in closers:
        close()
    return {keys[label]: samples for label, samples in taken.items()}


def _result(bench: Bench, graph: Graph, lengths: list[int], taken: list[Samples]) -> Json:
    points: list[tuple[float, float]] = []
    rows: list[Json] = []
    for iterations, samples in zip(lengths, taken, strict=True):
        length = bench.spinner.length_ns(iterations)
        efficiency = _efficiency(bench, graph, iterations, samples.median)
        points.append((length, efficiency))
        rows.append({"body_ns": length, "efficiency": efficiency, "run_ns": samples.to_json()})
    # Without a crossing there is no number, and a bar on it fails; the bound says which side.
    bound = None
    if points[0][1] >= HALF:
        bound = "at most"
    found = crossing(points, HALF)
    if found is None:
        bound = "more than"
    return {
        "ns": found,
        "bound": bound,
        "longest_ns": points[-1][0],
        "points": rows,
    }
