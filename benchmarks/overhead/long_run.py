"""One long run in a fresh process: python -m benchmarks.overhead.long_run TASKS WORKERS"""

from __future__ import annotations

import contextlib
import json
import resource
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.overhead.workload import make_step
from pto_wsp import DenseDyn, P, Tensor, workload

CELLS = 8000  # one sweep is about one default window


def main(tasks: int, workers: int) -> int:
    """Sweeps over some cells again and again. Memory is what the core counts, and by how much the
    process grew, which also holds what the core does not count."""
    sweeps = max(1, tasks // CELLS)
    data = np.zeros(CELLS, np.int32)
    step = make_step(0)

    @workload
    def sweep(sweeps, cells, x):
        for s, c in P(sweeps, cells):
            step[s, c](x=x[c])

    work = sweep(DenseDyn(sweeps), DenseDyn(CELLS), Tensor(data=data))
    program = work.compile(num_threads=workers)
    _reset_peak()
    before = _peak_bytes()
    begin = time.perf_counter()
    program.execute()
    seconds = time.perf_counter() - begin
    grown = _peak_bytes() - before
    if not (data == sweeps).all():
        print("the result is wrong", file=sys.stderr)
        return 1
    counted = program.stats.memory_bytes
    result = {
        "tasks": sweeps * CELLS,
        "seconds": seconds,
        "tasks_per_s": sweeps * CELLS / seconds,
        "counted_mb": counted / 1e6,
        "process_grew_mb": grown / 1e6,
        "mb": max(counted, grown) / 1e6,
    }
    print(json.dumps(result))
    return 0


def _reset_peak() -> None:
    """Forget the peak of imports and compiling, where the system can."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak_bytes() -> int:
    """Most memory that the process has had, since the last reset where there is one."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
