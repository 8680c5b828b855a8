"""Grids of independent tasks, and what the traces of their runs show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pto_wsp import (
    DenseDyn,
    DType,
    InOut,
    P,
    Scalar,
    Tensor,
    TracePolicy,
    Workload,
    kernel,
    workload,
)

WORKERS = 8
ROWS, COLS = 8, 12


@kernel(cpp_src="for (volatile int k = 0; k < 300; ++k) {} y[0] = y[0] * 3 + s;")
def step(y: InOut[Tensor], s: Scalar[DType.I64]): ...


@kernel(
    cpp_src="std::this_thread::sleep_for(std::chrono::microseconds(300)); y[0] += 1;",
    cpp_includes=["<chrono>", "<thread>"],
)
def nap(y: InOut[Tensor]): ...


def grid(body: Any = step) -> Workload:
    """Independent tasks."""
    Y = Tensor(data=np.zeros(ROWS * COLS, np.int64), name="Y")

    @workload
    def work(rows: Any, cols: Any) -> None:
        for i, j in P(rows, cols):
            place = Y[i * COLS + j : i * COLS + j + 1]
            if body is step:
                step[i, j](place, i)
            else:
                nap[i, j](place)

    traced = TracePolicy.timestamps()
    return work(DenseDyn(ROWS), DenseDyn(COLS)).task_graph(trace=traced)


def run(work: Workload, workers: int = WORKERS) -> tuple[np.ndarray, Any]:
    """The trace in the order in which workers took tasks, and the stats."""
    with work.compile(num_threads=workers) as program:
        program.execute()
        trace = np.sort(program.trace, order="take")
        assert len(trace) == ROWS * COLS
        return trace, program.stats


def by(trace: np.ndarray, key: Callable[[Any], int]) -> dict[int, set[int]]:
    """Which workers ran the tasks of each key."""
    found: dict[int, set[int]] = {}
    for row in trace:
        found.setdefault(key(row), set()).add(int(row["worker"]))
    return found


def most_in_flight(rows: np.ndarray) -> int:
    events = sorted(
        [(int(r["start_ns"]), 1) for r in rows] + [(int(r["end_ns"]), -1) for r in rows],
        key=lambda event: (event[0], event[1]),
    )
    now = most = 0
    for _, change in events:
        now += change
        most = max(most, now)
    return most
