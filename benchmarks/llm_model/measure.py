"""A small LLaMA that decodes, in a process of its own: torch keeps threads once it has begun."""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks.context import ROOT, Bench, Json


def measure(bench: Bench) -> Json:
    """Milliseconds of a step beside torch, and a hundred steps against float64."""
    bench.say("a small model")
    command = [sys.executable, "-m", "benchmarks.llm_model.child", str(bench.protocol.runs)]
    command += [str(bench.protocol.scale), str(bench.workers)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)
