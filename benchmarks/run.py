"""Runs the benchmarks: python -m benchmarks.run

Prints tables and writes all medians and quartiles, with machine and commit, as JSON. The sections
are graphs, bodies, metg, chains, overlap, schedule, network, kernels, llm, llm_model and host; see
benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import report
from benchmarks.context import ROOT, Bench, Json, calibrated, describe
from benchmarks.host import measure as host
from benchmarks.kernels import measure as kernels
from benchmarks.llm import measure as llm
from benchmarks.llm_model import measure as llm_model
from benchmarks.overhead import bodies, limits, metg, network, rows, schedule
from benchmarks.overhead.build import SOURCES
from benchmarks.overhead.contenders import load_rivals
from benchmarks.sampling import Protocol

SECTIONS = (
    "graphs",
    "bodies",
    "metg",
    "chains",
    "overlap",
    "schedule",
    "network",
    "kernels",
    "llm",
    "llm_model",
    "host",
)
RIVALS = tuple(name for name in SOURCES if name not in ("spin", "stream"))
LONG_TASKS = 100_000_000


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=20, help="interleaved runs of each (20)")
    parser.add_argument("--quick", action="store_true", help="5 runs")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the graphs (1.0)")
    parser.add_argument("--workers", type=int, default=2, help="workers compared with one (2)")
    parser.add_argument(
        "--only", type=_names(SECTIONS), default=SECTIONS, help="sections, by comma"
    )
    parser.add_argument(
        "--rivals",
        type=_names(RIVALS),
        default=("tbb", "omp"),
        help=f"rivals by comma, of {', '.join(RIVALS)}; 'none' for none (tbb,omp)",
    )
    parser.add_argument(
        "--chain-length",
        type=int,
        default=10_000,
        help="tasks in each of the 64 long chains; must exceed the window of 8192 (10000)",
    )
    parser.add_argument("--long", action="store_true", help="also a run of 100 M tasks")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "bench" / "overhead.json", help="the JSON"
    )
    options = parser.parse_args(arguments)
    if options.runs < 1 or options.workers < 2 or not 0 < options.scale <= 1:
        parser.error("needs runs >= 1, workers >= 2 and 0 < scale <= 1")
    return options


def _names(known: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    def convert(text: str) -> tuple[str, ...]:
        if text == "none":
            return ()
        chosen = tuple(text.split(","))
        unknown = [name for name in chosen if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]} is none of {', '.join(known)}")
        return chosen

    return convert


def main_to_file(arguments: list[str] | None) -> Path:
    """Runs what the arguments ask for; the path of the JSON."""
    options = parse(arguments)
    rivals, missing = load_rivals(options.rivals)
    protocol = Protocol(runs=5 if options.quick else options.runs, scale=options.scale)
    bench = Bench(protocol, calibrated(), rivals, options.workers)
    for name, reason in missing.items():
        bench.console.print(f"[yellow]without {name}: {reason}[/]", highlight=False)
    result: Json = {
        "machine": describe(bench),
        "protocol": {"runs": protocol.runs, "scale": protocol.scale, "workers": options.workers},
        "rivals_missing": missing,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    shown = report.console()
    shown.print(report.machine(result))
    for name, measure in _sections(options).items():
        begin = time.perf_counter()
        result[name] = measure(bench)
        result.setdefault("seconds", {})[name] = time.perf_counter() - begin
        # After each section, so that a run that is interrupted leaves what it has.
        options.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
        for part in report.section(name, result[name]):
            shown.print(part)
    bench.say(f"written to {options.out}")
    return options.out


def _sections(options: argparse.Namespace) -> dict[str, Callable[[Bench], Json]]:
    chain_length = max(100, round(options.chain_length * options.scale))
    long_tasks = round(LONG_TASKS * options.scale)
    every: dict[str, Callable[[Bench], Json]] = {
        "graphs": rows.measure,
        "bodies": bodies.measure,
        "metg": metg.measure,
        "chains": lambda bench: limits.long_chains(bench, chain_length),
        "overlap": limits.rows_and_columns,
        "schedule": schedule.measure,
        "network": network.measure,
        "kernels": kernels.measure,
        "llm": llm.measure,
        "llm_model": llm_model.measure,
        "host": host.measure,
    }
    chosen = {name: every[name] for name in SECTIONS if name in options.only}
    if options.long:
        chosen["long"] = lambda bench: limits.long_run(bench, long_tasks)
    return chosen


def main(arguments: list[str] | None = None) -> int:
    main_to_file(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
