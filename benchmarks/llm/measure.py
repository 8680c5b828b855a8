"""The section `llm`. It runs in a process of its own: its arrays are gigabytes, and torch's threads
are set before it is loaded."""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks.context import ROOT, Bench, Json


def measure(bench: Bench) -> Json:
    """Paged decode attention: share of the machine's bandwidth, times torch, balance."""
    bench.say("paged decode attention")
    command = [sys.executable, "-m", "benchmarks.llm.child", str(bench.protocol.runs)]
    command += [str(bench.protocol.scale), str(bench.workers)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)
