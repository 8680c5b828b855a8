"""From one worker to many on a larger machine: python -m benchmarks.overhead.scaling

Needs neither a network nor a rival: only the package and a C++ compiler. Writes JSON that
benchmarks.check takes with --from.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from rich.table import Table

from benchmarks import report
from benchmarks.context import ROOT, Bench, Json, calibrated, describe
from benchmarks.overhead.contenders import compile_ours, our_job
from benchmarks.overhead.workload import GRAPHS, PARALLEL
from benchmarks.sampling import Protocol, interleave

# Length of the body in ns, its name, and the share of the graph that is run.
LENGTHS = ((0.0, "increment", 1.0), (1_000.0, "1us", 0.2), (10_000.0, "10us", 0.1))


def measure(bench: Bench, counts: tuple[int, ...]) -> Json:
    """Per graph and body: times for each number of workers, and speed-ups over one."""
    return {name: _measure_graph(bench, name, counts) for name in PARALLEL}


def _measure_graph(bench: Bench, name: str, counts: tuple[int, ...]) -> Json:
    result: Json = {}
    for length, label, share in LENGTHS:
        graph = GRAPHS[name](bench.protocol.scale * share)
        bench.say(f"{name}, {label}: {graph.tasks:,} tasks on {counts} workers")
        iterations = bench.spinner.iterations(length) if length else 0
        programs = {n: compile_ours(graph, workers=n, iterations=iterations) for n in counts}
        taken = interleave(
            {str(n): our_job(program, graph) for n, program in programs.items()}, bench.protocol
        )
        ideal = graph.tasks * bench.spinner.length_ns(iterations)
        one = taken[str(counts[0])]
        result[label] = {
            "tasks": graph.tasks,
            "run_ns": {n: samples.to_json() for n, samples in taken.items()},
            "ns_per_task_one_worker": one.median / graph.tasks,
            "speedup": {n: each.times_faster_than(one).median for n, each in taken.items()},
            "of_ideal": {n: ideal / int(n) / each.median for n, each in taken.items()},
            "worker_tasks": {str(n): list(p.stats.worker_tasks) for n, p in programs.items()},
        }
        for program in programs.values():
            program.close()
    # One worker may run the tasks as they come, without inference; two cannot. The time of both on
    # near-empty bodies bounds what generation and inference cost a task.
    fewest = str(counts[min(1, len(counts) - 1)])
    cost = int(fewest) * result["increment"]["run_ns"][fewest]["median"]
    cost /= result["increment"]["tasks"]
    for _, label, _ in LENGTHS[1:]:
        result[label]["overhead_share"] = cost / result[label]["ns_per_task_one_worker"]
    return result


def table(result: Json, counts: tuple[int, ...]) -> Table:
    shown = Table(title="speed-up over one worker", title_justify="left")
    for column in ("graph", "body", *(str(n) for n in counts), "overhead"):
        shown.add_column(column, justify="left" if column in ("graph", "body") else "right")
    for name, graph in result.items():
        for label, entry in graph.items():
            share = entry.get("overhead_share")
            shown.add_row(
                name,
                label,
                *(f"{entry['speedup'][str(n)]:.2f}" for n in counts),
                "" if share is None else f"{100 * share:.2f}%",
            )
    return shown


def main(arguments: list[str] | None = None) -> int:
    cores = os.cpu_count() or 1
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overhead.scaling",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--most", type=int, default=min(16, cores), help="most workers")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench" / "scaling.json")
    options = parser.parse_args(arguments)
    counts = (*(n for n in (1, 2, 4, 8, 12, 16, 32, 64) if n < options.most), options.most)
    bench = Bench(
        Protocol(options.runs, 1, scale=options.scale), calibrated(), workers=options.most
    )
    # Names of its own, so that benchmarks.check can take it beside a result of benchmarks.run.
    result: Json = {
        "scaling_machine": describe(bench),
        "scaling_ceiling": {n: bench.spinner.ceiling(n, repeats=3) for n in counts},
        "scaling": measure(bench, counts),
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    console = report.console()
    console.print(table(result["scaling"], counts))
    ceilings = ", ".join(f"{n}: {each:.2f}" for n, each in result["scaling_ceiling"].items())
    console.print(f"plain threads that share nothing: {ceilings}")
    bench.say(f"written to {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
