"""What every measurement is given: how to run, against whom, and where to say what happens."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from rich.console import Console

from benchmarks.overhead.build import Unavailable
from benchmarks.overhead.contenders import Rival, Spinner
from benchmarks.sampling import Protocol

ROOT = Path(__file__).resolve().parent.parent
Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Bench:
    """One run of the benchmarks."""

    protocol: Protocol
    spinner: Spinner
    rivals: dict[str, Rival] = field(default_factory=dict[str, Rival])
    workers: int = 2
    # Stderr, so that the tables can be piped.
    console: Console = field(default_factory=lambda: Console(stderr=True))

    def say(self, text: str) -> None:
        self.console.print(f"[dim]{text}[/dim]", highlight=False)


def calibrated() -> Spinner:
    """The calibrated loop; without a compiler there is nothing to measure."""
    try:
        return Spinner.calibrate()
    except Unavailable as error:
        raise SystemExit(f"error: {error}") from None


def describe(bench: Bench) -> Json:
    """Machine, commit and versions: a number means nothing without them."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "system": f"{platform.system()} {platform.release()}",
        "load_at_start": _load(),
        "parallel_ceiling": bench.spinner.ceiling(bench.workers),
        "spin_ns_per_iteration": bench.spinner.ns_per_iteration,
        "commit": _git("rev-parse", "HEAD"),
        "changed_files": len((_git("status", "--porcelain") or "").splitlines()),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "pto_wsp": metadata.version("pto-wsp"),
        "rivals": {name: rival.version for name, rival in bench.rivals.items()},
    }


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return platform.processor()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1] if found else platform.machine()


def _load() -> list[float] | None:
    return list(os.getloadavg()) if hasattr(os, "getloadavg") else None


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
