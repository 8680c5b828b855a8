"""Compares a run of the benchmarks with the bars: python -m benchmarks.check

Without --from it runs the benchmarks first, with the options of benchmarks.run. Ends with status 1
if a required bar is missed or was not measured.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks import bars, report, run

COLOURS = {
    bars.Verdict.AIM: "bold green",
    bars.Verdict.PASS: "green",
    bars.Verdict.BELOW_AIM: "yellow",
    bars.Verdict.MISSED: "bold red",
    bars.Verdict.MISSING: "bold red",
    bars.Verdict.SKIPPED: "dim",
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.check",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--from",
        dest="files",
        action="append",
        type=Path,
        metavar="JSON",
        help="a result to compare, instead of running; may be given several times",
    )
    options, rest = parser.parse_known_args(arguments)
    if options.files and rest:
        parser.error(f"--from measures nothing, so {rest[0]} has no effect")
    measured: dict[str, Any] = {}
    for path in options.files or [run.main_to_file(rest)]:
        measured |= json.loads(path.read_text("utf-8"))
    outcomes = bars.check(bars.load(), measured)
    console = report.console()
    console.print(table(outcomes))
    failed = sum(outcome.verdict.fails for outcome in outcomes)
    aims = sum(outcome.verdict is bars.Verdict.AIM for outcome in outcomes)
    console.print(f"{failed} of {len(outcomes)} lines fail; {aims} reach the aim")
    return 1 if failed else 0


def table(outcomes: list[bars.Outcome]) -> Table:
    shown = Table(title="bars", title_justify="left")
    for column in ("bar", "item"):
        shown.add_column(column)
    for column in ("required", "aim", "measured"):
        shown.add_column(column, justify="right")
    shown.add_column("verdict")
    for outcome in outcomes:
        bar, colour = outcome.bar, COLOURS[outcome.verdict]
        sign = {"at least": "≥ ", "at most": "≤ ", "equal": "= "}[bar.direction]
        shown.add_row(
            bar.name,
            outcome.item,
            "" if bar.required is None else f"{sign}{bar.required:g}",
            "" if bar.aim is None else f"{sign}{bar.aim:g}",
            "" if outcome.value is None else f"{outcome.value:.4g}",
            f"[{colour}]{outcome.verdict.value}[/]",
        )
    return shown


if __name__ == "__main__":
    sys.exit(main())
