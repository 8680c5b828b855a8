"""Runs small programs in processes of their own, for what cannot be tried in this one."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

_LIMIT = 60  # seconds; only so that a hang ends the test

# What the scripts share. `wide` has small native tasks, `slow` has Python tasks of 10 ms.
_HEAD = """
import gc, os, signal, sys, threading, time
import numpy as np
from pto_wsp import *
from pto_wsp import Program

@kernel(cpp_src="y() = y() * 3 + x();")
def update(x: In[Tensor], y: InOut[Tensor]): ...

@kernel
def sleep(x: In[Tensor], y: InOut[Tensor]):
    time.sleep(0.01)
    y += x

@workload
def wide(n, X, Y):
    for i in P(n):
        update[i](x=X[i % 8], y=Y[i % 64])

@workload
def slow(n, X, Y):
    for i in P(n):
        sleep[i](x=X[i % 8], y=Y[i % 64])

def make(work=wide, n=1000, target="cpu_sim", **options):
    tensors = Tensor(data=np.arange(8, dtype=np.uint64)), Tensor(data=np.ones(64, np.uint64))
    return work(DenseDyn(n), *tensors).compile(target=target, **options)

def checked(program):
    \"\"\"Runs a small size and compares it with plain Python.\"\"\"
    y = np.ones(64, np.uint64)
    program.execute(n=200, Y=y)
    assert program.stats.tasks == 200
    expected = [1] * 64
    for i in range(200):
        scale = 3 if "update" in program.plan.kernel_names else 1
        expected[i % 64] = expected[i % 64] * scale + i % 8
    assert y.tolist() == expected
"""


def run_script(text: str, folder: Path, *args: str, limit: int = _LIMIT) -> str:
    """What the script printed; it must end well and say nothing else."""
    path = folder / "script.py"
    path.write_text(_HEAD + textwrap.dedent(text), "utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path), *args],
        capture_output=True,
        text=True,
        timeout=limit,
        cwd=folder,
    )
    if done.returncode != 0 or done.stderr:
        pytest.fail(f"it ended with {done.returncode} and said {done.stdout}{done.stderr}")
    return done.stdout
