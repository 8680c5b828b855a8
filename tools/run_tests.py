"""Runs the Python tests in two processes, which keeps two cores busy: those of the compiler, of
other targets and of random programs beside those that run programs. The output of the first is
shown when both have ended."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

COMPILER = (
    "tests/backends",
    "tests/frontend",
    "tests/ir",
    "tests/kernels",
    "tests/passes",
    "tests/plan",
    "tests/property",
    "tests/workloads",
)

# `make test-triton` runs it: each operation for each dtype, which takes the interpreter long.
ELSEWHERE = ("tests/kernels/triton/test_elementwise.py",)


def main() -> int:
    # Hundreds of kernels are compiled to run for a moment; benchmarks run what users get.
    os.environ.setdefault("PTO_WSP_CXXFLAGS", "-O0")
    pytest = [sys.executable, "-m", "pytest"]
    with tempfile.TemporaryFile("w+") as output:
        compiler = [*pytest, *COMPILER, *(f"--ignore={path}" for path in ELSEWHERE)]
        beside = subprocess.Popen(compiler, stdout=output, stderr=subprocess.STDOUT)
        others = [f"--ignore={path}" for path in COMPILER]
        programs = subprocess.run([*pytest, *others], check=False)
        beside.wait()
        output.seek(0)
        print(output.read())
    return programs.returncode or beside.returncode


if __name__ == "__main__":
    sys.exit(main())
