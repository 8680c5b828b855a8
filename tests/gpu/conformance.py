"""Conformance of the cuda target: python -m tests.gpu.conformance --suite FILE --out FILE

Runs the programs of tests/backends/cuda and those of a suite (`python -m tests.gpu.collect`) on a
GPU, and compares results, number of tasks and task hash with `reference`, and a second run with the
first, bit by bit. What is refused is listed with the reason; a program whose result differs, and in
which `verify="full"` finds a race, has promised something that is false. Kernels in Python and C++
have tile operations in their place (`twins`). `--interpret` runs in Triton's interpreter, which
suits programs of a few tasks (`--most 60`). Needs torch, triton, numpy and pto_wsp only.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pto_wsp.sharing import ArrayHolder
from tests.gpu.suite import Entry, read
from tests.gpu.twins import twin

Arrays = dict[str, np.ndarray]
ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass
class Found:
    """What became of a program. `status`: equal, WRONG, FAILED, refused, skipped; "false promise"
    where the program itself has a race; "reference raises" where that finds a mistake that a GPU
    does not look for."""

    name: str
    kind: str
    status: str = ""
    reason: str = ""
    tasks: int = 0
    results: bool | None = None
    hash: bool | None = None
    repeats: bool | None = None
    schedules: int = 0
    schedules_accepted: int = 0
    seconds: float = 0.0


@dataclass
class Runner:
    """How a program is loaded on a target and bound."""

    name: str
    kind: str
    load: Callable[..., Any]  # the target, and options
    bind: Callable[[], dict[str, Any]]
    accepts: list[Callable[[], None]] = field(default_factory=list)
    stop: str = ""  # why it is not tried at all


def of_entry(entry: Entry) -> Runner:
    from pto_wsp import driver
    from pto_wsp.backends import registry
    from pto_wsp.passes import lower
    from pto_wsp.passes import run as run_passes

    plans: dict[tuple[Any, ...], Any] = {}

    def plan(schedule: tuple[Any, ...]) -> Any:
        if schedule not in plans:
            module = replace(twin(entry.module), schedule=schedule)
            plans[schedule] = lower(run_passes(module))
        return plans[schedule]

    def load(target: str, **options: object) -> Any:
        return driver.load(plan(entry.module.schedule), target, {}, options)

    def accept(schedule: tuple[Any, ...]) -> Callable[[], None]:
        return lambda: registry.get("cuda").check(plan(schedule))

    shared = f"{', '.join(entry.shared)} share memory" if entry.shared else ""
    accepts = [accept(schedule) for schedule in entry.schedules]
    return Runner(entry.name, entry.kind, load, entry.bind, accepts, shared)


def of_program(name: str, make: Callable[[], Any]) -> Runner:
    """One of tests/backends/cuda/programs.py; its arrays are found by name."""
    built = make()
    traced = built.workload.traced()
    values = {n: v.data if isinstance(v, ArrayHolder) else v for n, v in traced.defaults.items()}
    entry = Entry(name, "program", traced.module, values)
    return of_entry(entry)


def examine(runner: Runner, most: int) -> Found:
    """Never raises: what goes wrong is the reason."""
    began = time.monotonic()
    found = Found(runner.name, runner.kind)
    try:
        _examine(runner, most, found)
    except Exception as error:
        found.status, found.reason = "FAILED", f"{type(error).__name__}: {_first(error)}"
    found.seconds = round(time.monotonic() - began, 3)
    return found


def _first(error: Exception) -> str:
    """What an error says, and why, in one line."""
    lines = str(error).splitlines() or [""]
    why = next((line.strip() for line in lines if line.strip().startswith("why:")), "")
    return f"{lines[0]} {why}".strip()


def _examine(runner: Runner, most: int, found: Found) -> None:
    from pto_wsp import CompileError, ExecutionError, ScheduleError

    found.schedules = len(runner.accepts)
    for accept in runner.accepts:
        try:
            accept()
            found.schedules_accepted += 1
        except (CompileError, ScheduleError):
            pass
    try:
        program = runner.load("cuda")
    except (CompileError, ScheduleError) as refusal:
        found.status, found.reason = "refused", _first(refusal)
        return
    if runner.stop:
        found.status, found.reason = "refused", runner.stop
        return
    reference = runner.load("reference")
    values = runner.bind()
    # A program that is to fail may have no number of tasks.
    with contextlib.suppress(ExecutionError):
        found.tasks = reference.num_tasks(**values)
    if found.tasks > most:
        found.status, found.reason = "skipped", f"{found.tasks} tasks, more than {most}"
        return
    wanted, error = _outcome(reference, values)
    first, found_error = _outcome(program, runner.bind())
    if error is not None or found_error is not None:
        found.status = "equal" if type(error) is type(found_error) else "WRONG"
        if found_error is None:
            found.status = "reference raises"
        shown = ("nothing" if e is None else _first(e) for e in (error, found_error))
        found.reason = "reference says {}; cuda {}".format(*shown)
        return
    again, _ = _outcome(program, runner.bind())
    found.results = _equal(wanted, first, exactly=False)
    found.repeats = _equal(first, again, exactly=True)
    found.hash = program.task_hash() == reference.task_hash()
    tasks = program.stats.tasks == reference.stats.tasks
    if not tasks:
        found.reason = f"{program.stats.tasks} tasks, not {reference.stats.tasks}"
    if found.results and found.repeats and found.hash and tasks:
        found.status = "equal"
        return
    # Which tasks there are is no matter of their order.
    race = _race(runner) if found.hash and tasks else ""
    found.status, found.reason = ("false promise", race) if race else ("WRONG", found.reason)


def _race(runner: Runner) -> str:
    """Tasks that conflict although the program says that they do not; "" if there are none."""
    from pto_wsp import RaceError

    try:
        runner.load("reference", verify="full").execute(**runner.bind())
    except RaceError as race:
        return _first(race)
    return ""


def _outcome(
    program: Any, values: dict[str, Any]
) -> tuple[dict[str, np.ndarray], Exception | None]:
    from pto_wsp import ExecutionError

    try:
        program.execute(hash=True, **values)
    except ExecutionError as error:
        return {}, error
    return {n: v for n, v in values.items() if isinstance(v, np.ndarray)}, None


def _equal(a: Arrays, b: Arrays, *, exactly: bool) -> bool:
    """Floats of sums may differ in their last bits from those of `reference`."""
    for name, array in a.items():
        if exactly or array.dtype.kind in "iub":
            if array.tobytes() != b[name].tobytes():
                return False
        elif not np.allclose(array.astype("f8"), b[name].astype("f8"), 1e-5, 1e-5, equal_nan=True):
            return False
    return True


# --- all of them ----------------------------------------------------------------------------------


def runners(suite: Path | None, only: str) -> Iterator[Callable[[], Runner]]:
    if "program" in only:
        programs: Any = importlib.import_module("tests.backends.cuda.programs").PROGRAMS
        for name, make in programs.items():
            yield lambda name=name, make=make: of_program(name, make)
    for entry in read(suite) if suite is not None else []:
        if entry.kind in only:
            yield lambda entry=entry: of_entry(entry)


def run_part(options: argparse.Namespace) -> list[Found]:
    part, parts = map(int, options.part.split("/"))
    found: list[Found] = []
    for number, make in enumerate(runners(options.suite, options.only)):
        if number % parts != part:
            continue
        found.append(examine(make(), options.most))
        options.out.write_text(json.dumps({"programs": [asdict(f) for f in found]}, indent=1))
    return found


def run_parts(options: argparse.Namespace) -> list[Found]:
    """Processes side by side: most of the time goes to compilers."""
    outs = [options.out.with_suffix(f".{k}.json") for k in range(options.jobs)]
    command = [sys.executable, "-m", "tests.gpu.conformance", "--only", options.only]
    command += ["--most", str(options.most)]
    command += ["--suite", str(options.suite)] if options.suite else []
    command += ["--interpret"] if options.interpret else []
    children = [
        subprocess.Popen([*command, "--part", f"{k}/{options.jobs}", "--out", str(out)], cwd=ROOT)
        for k, out in enumerate(outs)
    ]
    end = time.monotonic() + options.seconds
    for child in children:
        try:
            child.wait(max(1.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
    found: list[Found] = []
    for out in outs:
        if out.exists():
            found += [Found(**each) for each in json.loads(out.read_text())["programs"]]
            out.unlink()
    return found


def summary(found: list[Found]) -> dict[str, Any]:
    """By kind: how many are accepted, and what became of those."""
    shown: dict[str, Any] = {}
    for kind in dict.fromkeys(f.kind for f in found):
        mine = [f for f in found if f.kind == kind]
        counts = Counter(f.status for f in mine)
        accepted = len(mine) - counts["refused"]
        shown[kind] = {
            "programs": len(mine),
            "accepted": accepted,
            "share": accepted / len(mine),
            **counts,
            "reasons": Counter(f.reason for f in mine if f.status == "refused").most_common(),
        }
        schedules = sum(f.schedules for f in mine)
        if schedules:
            taken = sum(f.schedules_accepted for f in mine)
            shown[kind] |= {"schedules": schedules, "schedules_accepted": taken}
    return shown


def show(found: list[Found]) -> None:
    marks = {True: "yes", False: "NO", None: ""}
    print(f"{'program':<58} {'status':<16} {'tasks':>6} result hash again  reason")
    for f in sorted(found, key=lambda each: (each.kind, each.name)):
        cells = f"{marks[f.results]:<6} {marks[f.hash]:<4} {marks[f.repeats]:<5}"
        print(f"{f.name[:58]:<58} {f.status:<16} {f.tasks:>6} {cells}  {f.reason}"[:200].rstrip())
    for kind, counts in summary(found).items():
        reasons = counts.pop("reasons")
        print(kind, counts)
        for reason, count in reasons:
            print(f"  {count:>4} {reason}"[:200])


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu.conformance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--suite", type=Path, help="of tests.gpu.collect")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu-conformance.json")
    parser.add_argument("--only", default="program,conformance,nest", help="kinds, by comma")
    parser.add_argument("--most", type=int, default=20_000, help="tasks of a program (20000)")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side (1)")
    parser.add_argument("--seconds", type=float, default=280, help="then processes are ended")
    parser.add_argument("--interpret", action="store_true", help="without a GPU")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if options.interpret:  # before Triton is loaded
        os.environ["TRITON_INTERPRET"] = "1"
    options.out.parent.mkdir(parents=True, exist_ok=True)
    if options.part:
        run_part(options)
        return 0
    found = run_parts(options)
    content = {"summary": summary(found), "programs": [asdict(f) for f in found]}
    options.out.write_text(json.dumps(content, indent=1) + "\n")
    show(found)
    return 1 if any(f.status in ("WRONG", "FAILED") for f in found) else 0


if __name__ == "__main__":
    sys.exit(main())
