"""The section `kernels`. It runs in a process of its own, since the threads of a BLAS are set
before it is loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from benchmarks.context import ROOT, Bench, Json


def measure(bench: Bench) -> Json:
    """Products, row kernels and attention: speed against rivals, and the error of each."""
    bench.say("tile kernels")
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.kernels.child", str(bench.protocol.runs)]
    command += [str(bench.protocol.scale), str(bench.workers)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout)
