"""Pools by execution unit: who runs vector and cube kernels, judged by the trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    DenseDyn,
    InOut,
    P,
    Pools,
    StartPolicy,
    Tensor,
    TracePolicy,
    Workload,
    kernel,
    workload,
)
from tests.conformance.grids import WORKERS, by, grid, most_in_flight, nap, run

ROWS = 24
_NAP = "std::this_thread::sleep_for(std::chrono::microseconds(200)); y[0] += 1;"
_HEADERS = ["<chrono>", "<thread>"]


@kernel(cpp_src=_NAP, cpp_includes=_HEADERS, exec_unit="vector")
def vector(y: InOut[Tensor]): ...


@kernel(cpp_src=_NAP, cpp_includes=_HEADERS, exec_unit="cube")
def cube(y: InOut[Tensor]): ...


@kernel(cpp_src=_NAP, cpp_includes=_HEADERS, exec_unit="any")
def either(y: InOut[Tensor]): ...


def mixed() -> tuple[Workload, np.ndarray]:
    """On each row a vector, a cube and another task, one after the other."""
    Y = Tensor(data=np.zeros(ROWS, np.int64), name="Y")

    @workload
    def work(rows: Any) -> None:
        for i in P(rows):
            vector[i](Y[i : i + 1])
            cube[i](Y[i : i + 1])
            either[i](Y[i : i + 1])

    pools = {"trace": TracePolicy.timestamps(), "pools": Pools.by_exec_unit()}
    return work(DenseDyn(ROWS)).task_graph(**pools), Y.data


def traced(workers: int, **more: Any) -> np.ndarray:
    work, y = mixed()
    with work.task_graph(**more).compile(num_threads=workers) as program:
        program.execute()
        assert y.tolist() == [3] * ROWS
        return np.sort(program.trace, order="take")


@pytest.mark.directive("pools_by_exec_unit")
@pytest.mark.parametrize("workers", [2, 3, WORKERS])
def test_each_unit_has_workers_of_its_own(workers: int) -> None:
    trace = traced(workers)
    is_cube = trace["task_id"] % 3 == 1
    assert trace["pool"].tolist() == is_cube.astype(int).tolist()
    assert (trace["worker"] % 2 == trace["pool"]).all()


def test_both_units_work_at_once() -> None:
    trace = traced(WORKERS)
    assert most_in_flight(trace[trace["pool"] == 0]) > 1
    assert len(set(trace["worker"][trace["pool"] == 1].tolist())) > 1


def test_one_worker_takes_turns() -> None:
    trace = traced(1, start=StartPolicy.after_orchestration())
    assert set(trace["worker"].tolist()) == {0}
    pools = trace["pool"].tolist()
    both = pools.index(1)  # from here on, cube tasks are ready as well
    assert pools[both : both + 12] == [1, 0] * 6


def test_depth_by_unit() -> None:
    work, _ = mixed()
    with work.pipeline_depth(1, scope="per_pool").compile(num_threads=WORKERS) as program:
        program.execute()
        trace = program.trace
    for pool in (0, 1):
        assert most_in_flight(trace[trace["pool"] == pool]) == 1


def test_without_cube_kernels_their_workers_rest() -> None:
    work = grid(nap).task_graph(pools=Pools.by_exec_unit())
    trace, stats = run(work)
    assert set(by(trace, lambda r: int(r["pool"]))[0]) <= {0, 2, 4, 6}
    assert stats.worker_tasks[1::2] == (0, 0, 0, 0)
    with work.compile(num_threads=2) as program:
        assert "no kernel is for cube workers, which rest" in program.explain()


def test_explained() -> None:
    with mixed()[0].compile(num_threads=2) as program:
        assert "pools(by_exec_unit)" in program.explain()
        assert "rest" not in program.explain()
        assert "unit aic" in program.plan.disassemble()
