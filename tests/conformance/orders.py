"""How the order of tasks is made visible: schedules, and what a trace says."""

from __future__ import annotations

from typing import Any

import numpy as np

from pto_wsp import ReadyPolicy, StartPolicy, TracePolicy, Workload

# One worker that takes the newest of all ready tasks once all are generated: whatever nothing
# orders runs backwards. The reference always runs forwards.
BACKWARDS = {
    "ready": ReadyPolicy.work_steal(),
    "start": StartPolicy.after_orchestration(),
    "trace": TracePolicy.timestamps(),
}
SIDE_BY_SIDE = {"ready": ReadyPolicy.fifo(), "trace": TracePolicy.timestamps()}


def compile_on(target: str, work: Workload, schedule: dict[str, Any], workers: int) -> Any:
    options = {"num_threads": workers} if target == "cpu_sim" else {}
    return work.task_graph(**schedule).compile(target=target, **options)


def taken(program: Any) -> list[int]:
    """The tasks by their place in program order, as they were taken."""
    return [int(task) for task in program.trace["task_id"]]


def waits(trace: np.ndarray, second: int, first: int) -> bool:
    """Whether task `second` began after task `first` had ended."""
    rows = {int(row["task_id"]): row for row in trace}
    return bool(rows[first]["end_ns"] <= rows[second]["start_ns"])
