"""Runs the Python tests in two processes, which keeps two cores busy: those of the compiler beside
those that run programs. The output of the first is shown when both have ended."""

from __future__ import annotations

import subprocess
import sys
import tempfile

COMPILER = ("tests/frontend", "tests/ir", "tests/kernels", "tests/passes", "tests/plan")


def main() -> int:
    pytest = [sys.executable, "-m", "pytest"]
    with tempfile.TemporaryFile("w+") as output:
        beside = subprocess.Popen([*pytest, *COMPILER], stdout=output, stderr=subprocess.STDOUT)
        others = [f"--ignore={path}" for path in COMPILER]
        programs = subprocess.run([*pytest, *others], check=False)
        beside.wait()
        output.seek(0)
        print(output.read())
    return programs.returncode or beside.returncode


if __name__ == "__main__":
    sys.exit(main())
