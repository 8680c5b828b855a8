"""Random networks give the same bits on the native core as on the reference, whatever the schedule;
those that cannot come to their end are reported, with the same words, and nothing hangs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pto_wsp import ir
from pto_wsp.errors import PtoError
from pto_wsp.kernels import Build, load_kernels
from pto_wsp.passes import lower
from pto_wsp.passes import run as run_passes
from tests.property.networks import Case, cases
from tests.property.schedules import schedules
from tests.property.test_runs import program, scheduled


def run(case: Case, schedule: tuple[ir.Directive, ...] | None, target: str, **options: Any) -> Any:
    """What the network computes, or what it says instead, and the plan."""
    made = case.make()
    traced = made.traced()
    plan = lower(run_passes(traced.module))
    kernels = load_kernels(plan, traced.callables, Build())
    if schedule is not None:
        plan = scheduled(plan, schedule, most=1 << 16)
    with program(plan, target, kernels, **options) as runs:
        try:
            runs.execute(seen=case.seen, totals=case.totals, hash=True)
        except PtoError as error:
            return type(error).__name__, error.message, None
        trace = runs.trace if schedule is not None else None
        stats = runs.stats
        waits = stats.messages, stats.channel_empty, stats.channel_full, stats.channel_high
        return (case.seen, case.totals, waits), runs.task_hash(), trace


def same(wanted: Any, found: Any) -> None:
    assert found[1] == wanted[1]
    if isinstance(wanted[0], str):
        assert found[0] == wanted[0]
        return
    for a, b in zip(wanted[0], found[0], strict=True):
        np.testing.assert_array_equal(a, b)


def check(case: Case, schedule: tuple[ir.Directive, ...] | None, workers: int) -> None:
    wanted = run(case, None, "reference")
    same(wanted, run(case, schedule, "cpu_sim", num_threads=workers))


@given(cases(), st.integers(1, 3))
def test_default_schedule(case: Case, workers: int) -> None:
    check(case, None, workers)


@given(cases(), schedules(issued=False), st.integers(1, 3))
def test_windows_and_starts(case: Case, schedule: tuple[ir.Directive, ...], workers: int) -> None:
    check(case, schedule, workers)


@given(cases(), schedules(issued=True), st.integers(1, 3))
def test_any_schedule(case: Case, schedule: tuple[ir.Directive, ...], workers: int) -> None:
    check(case, schedule, workers)


@pytest.mark.soak
@given(cases(), schedules(issued=True), st.integers(1, 4))
def test_networks_soak(case: Case, schedule: tuple[ir.Directive, ...], workers: int) -> None:
    check(case, schedule, workers)
