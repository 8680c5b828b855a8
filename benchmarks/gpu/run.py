"""Runs the GPU benchmarks: python -m benchmarks.gpu.run --out gpu.json

Needs torch, triton, numpy and pto_wsp only; FlashInfer is a rival where it can be imported. The
JSON is complete after each row; what fails is a row. `--tiny` runs small shapes in Triton's
interpreter, without a GPU, to see that it all works.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from pto_wsp.workloads import GpuDecode

ROOT = Path(__file__).resolve().parent.parent.parent
SECTIONS = ("decode", "tasks", "moe", "layer")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu.run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, by comma")
    parser.add_argument("--out", type=Path, help="the JSON")
    parser.add_argument("--tiny", action="store_true", help="small shapes in the interpreter")
    parser.add_argument("--seconds", type=float, default=90, help="of decode; then no variants")
    parser.add_argument("--no-variants", action="store_true", help="only the six batches")
    for field in fields(GpuDecode):
        name = field.name.replace("_", "-")
        parser.add_argument(f"--{name}", type=float, help=f"{name} of the decode, for all batches")
    options = parser.parse_args(arguments)
    options.only = options.only.split(",")
    unknown = [name for name in options.only if name not in SECTIONS]
    if unknown:
        parser.error(f"{unknown[0]} is none of {', '.join(SECTIONS)}")
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if options.tiny:  # before Triton is loaded
        os.environ["TRITON_INTERPRET"] = "1"
    from benchmarks.gpu.rows import Report

    report = Report(options.out, _machine(), to=sys.stdout, judged=not options.tiny)
    for name, section in _sections(options).items():
        began = time.monotonic()
        with report.case(name, "all of it"):
            section(report)
        report.content["seconds"][name] = time.monotonic() - began
        report.write()
    print(f"{report.failed} rows failed or are wrong", {**report.content["seconds"]})
    return 1 if report.failed else 0


def _sections(options: argparse.Namespace) -> dict[str, Callable[[Any], None]]:
    from benchmarks.gpu import decode, layer, moe, tasks

    chosen = {f.name: getattr(options, f.name) for f in fields(GpuDecode)}
    given = {name: value for name, value in chosen.items() if value is not None}
    kinds = {"waves": float, "check_pages": bool}
    config = GpuDecode(**{n: kinds.get(n, int)(v) for n, v in given.items()})
    if options.tiny:
        config = GpuDecode(block=16, chunk=16)

    def measure_decode(report: Any) -> None:
        report.content["decode_config"] = {f.name: getattr(config, f.name) for f in fields(config)}
        variants = not options.no_variants
        decode.measure(
            report, config, tiny=options.tiny, seconds=options.seconds, variants=variants
        )

    every: dict[str, Callable[[Any], None]] = {
        "decode": measure_decode,
        "tasks": lambda report: tasks.measure(report, tiny=options.tiny),
        "moe": lambda report: moe.measure(report, tiny=options.tiny),
        "layer": lambda report: layer.measure(report, tiny=options.tiny),
    }
    return {name: every[name] for name in SECTIONS if name in options.only}


def _machine() -> dict[str, Any]:
    """A number means nothing without these."""
    torch: Any = importlib.import_module("torch")
    found: dict[str, Any] = {
        "device": "none, interpreted",
        "commit": _commit(),
        "python": platform.python_version(),
    }
    if os.environ.get("TRITON_INTERPRET") != "1":
        of = torch.cuda.get_device_properties(0)
        found |= {"device": of.name, "sms": of.multi_processor_count, "cuda": torch.version.cuda}
        found |= {"l2_bytes": of.L2_cache_size, "memory_bytes": of.total_memory}
    for name in ("torch", "triton", "numpy"):
        found[name] = importlib.import_module(name).__version__
    return found


def _commit() -> str | None:
    command = ["git", "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
