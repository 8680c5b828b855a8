"""Structural order: what P.seq and sequential order, and what P and combine leave free. The tasks
share no data, so nothing else orders them."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field

import numpy as np
import pytest

from pto_wsp import (
    DenseDyn,
    InOut,
    P,
    Ragged,
    TaskWindow,
    Tensor,
    Workload,
    combine,
    kernel,
    sequential,
    workload,
)
from tests.conformance.orders import BACKWARDS, SIDE_BY_SIDE, compile_on, taken

X = Tensor(data=np.zeros(64, np.int64))


@kernel
def touch(x: InOut[Tensor]):
    time.sleep(0.0005)  # long enough for another worker to begin
    x += 1


@workload
def free_loop(n):
    for i in P(n):
        touch[i](x=X[i])


@workload
def scan(n):
    for i in P.seq(n):
        touch[i](x=X[16 + i])


@workload
def scan_of_pairs(n):
    for i in P.seq(n):
        for j in P(2):
            touch[i, j](x=X[2 * i + j])


@workload
def pair_of_scans(n):
    for i in P(2):
        for j in P.seq(n):
            touch[i, j](x=X[32 * i + j])


@workload
def other(n):
    for i in P(n):
        touch[i](x=X[32 + i])


@workload
def scan_with_gaps(rows, lens):
    for i in P.seq(rows):
        for j in P(lens[i]):
            touch[i, j](x=X[8 * i + j])


@workload
def scan_in_scan(n):
    for i in P.seq(n):
        for j in P.seq(n):
            for k in P(2):
                touch[i, j, k](x=X[16 * i + 4 * j + k])


NO_ROWS = DenseDyn(0)


def gaps() -> Workload:
    rows = DenseDyn(4)
    return scan_with_gaps(rows, Ragged(rows, [2, 0, 0, 2]))


n = DenseDyn(3)


@dataclass(frozen=True)
class Case:
    """A workload with its chains: all tasks of a phase come before those of the next phase of the
    chain. `free` are pairs that nothing orders: run backwards, the later one is taken first."""

    work: Workload
    chains: list[list[set[int]]] = field(default_factory=list)
    free: list[tuple[int, int]] = field(default_factory=list)


CASES = {
    "P": Case(free_loop(n), [], [(0, 1), (1, 2)]),
    "P.seq": Case(scan(n), [[{0}, {1}, {2}]]),
    "P in P.seq": Case(scan_of_pairs(n), [[{0, 1}, {2, 3}, {4, 5}]], [(0, 1)]),
    "P.seq in P": Case(pair_of_scans(n), [[{0}, {1}, {2}], [{3}, {4}, {5}]], [(0, 3), (2, 3)]),
    "P.seq in P.seq": Case(scan_in_scan(DenseDyn(2)), [[{0, 1}, {2, 3}, {4, 5}, {6, 7}]], [(0, 1)]),
    "iterations without tasks": Case(gaps(), [[{0, 1}, {2, 3}]], [(0, 1)]),
    "combine": Case(combine(free_loop(n), other(n)), [], [(0, 3), (2, 3), (3, 5)]),
    "sequential": Case(
        sequential(free_loop(n), other(n)), [[{0, 1, 2}, {3, 4, 5}]], [(0, 1), (1, 2)]
    ),
    "an empty step": Case(
        sequential(free_loop(n), scan_with_gaps(NO_ROWS, Ragged(NO_ROWS, [])), other(n)),
        [[{0, 1, 2}, {3, 4, 5}]],
    ),
    "sequential in combine": Case(
        combine(sequential(free_loop(n), other(n)), scan(n)),
        [[{0, 1, 2}, {3, 4, 5}], [{6}, {7}, {8}]],
        [(0, 6), (2, 6)],
    ),
    "combine in sequential": Case(
        sequential(combine(free_loop(n), other(n)), scan(n)),
        [[{0, 1, 2, 3, 4, 5}, {6}, {7}, {8}]],
        [(0, 3), (0, 1)],
    ),
}


def assert_chains(case: Case, trace: np.ndarray) -> None:
    starts = {int(row["task_id"]): int(row["start_ns"]) for row in trace}
    ends = {int(row["task_id"]): int(row["end_ns"]) for row in trace}
    assert sorted(starts) == list(range(len(starts)))
    for chain in case.chains:
        for before, after in itertools.pairwise(chain):
            assert max(ends[t] for t in before) <= min(starts[t] for t in after)


@pytest.mark.parametrize("name", CASES)
def test_structural_order(target: str, name: str) -> None:
    case = CASES[name]
    program = compile_on(target, case.work, BACKWARDS, 1).execute()
    assert_chains(case, program.trace)
    order = taken(program)
    for earlier, later in case.free:
        backwards = order.index(later) < order.index(earlier)
        assert backwards == (target == "cpu_sim")


@pytest.mark.parametrize("window", [1, 2, 5])
@pytest.mark.parametrize("name", CASES)
def test_structural_order_under_a_small_window(target: str, name: str, window: int) -> None:
    """Generation stops and goes on; what is ordered stays so."""
    case = CASES[name]
    schedule = {**BACKWARDS, "window": TaskWindow(window)}
    program = compile_on(target, case.work, schedule, 1).execute()
    assert_chains(case, program.trace)
    assert program.stats.live_high <= window
    if window == 1:
        assert taken(program) == list(range(program.num_tasks()))


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("name", CASES)
def test_structural_order_with_several_workers(target: str, name: str, workers: int) -> None:
    case = CASES[name]
    for schedule in (BACKWARDS, SIDE_BY_SIDE):
        assert_chains(case, compile_on(target, case.work, schedule, workers).execute().trace)
