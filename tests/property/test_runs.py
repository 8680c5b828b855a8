"""Random programs give the same bits on the native core as on the reference, whatever the schedule,
and their tasks run in the order that the program demands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pto_wsp import ir
from pto_wsp.backends import registry
from pto_wsp.backends.cpu import backend as cpu_backend
from pto_wsp.kernels import LoadedKernel
from pto_wsp.passes import lower
from pto_wsp.passes import run as run_passes
from pto_wsp.plan import Axis, Plan, WindowUnit
from pto_wsp.runtime.program import Program
from tests.property.kernel_library import loaded
from tests.property.nests import Case, cases
from tests.property.oracle import Order
from tests.property.schedules import fitting, schedules

TRACED = (ir.Directive("TRACE", (1, 1 << 16)),)
# One worker that takes the newest task of a complete graph: a missing dependence always shows.
ADVERSARY = (ir.Directive("READY", (2,)), ir.Directive("START", (1, 0)), *TRACED)


def scheduled(plan: Plan, schedule: tuple[ir.Directive, ...], most: int = 1 << 16) -> Plan:
    """The plan under another schedule, with room for tasks that write up to `most` bytes; the
    tasks are lowered once per case only."""
    loops = {plan.string(axis.name) for axis in plan.records(Axis)}
    fits = fitting(schedule, most, loops)
    return plan.with_schedule_of(lower(ir.Module("schedule", (), (), (), (), fits)))


def program(
    plan: Plan, target: str, kernels: tuple[LoadedKernel, ...] | None = None, **options: Any
) -> Program:
    """The plan on a target, with kernels that were compiled before: by default the library's. It
    has the workers that its schedule names, whatever the options say."""
    if "num_threads" in options:
        options["num_threads"] = max(options["num_threads"], cpu_backend._named_workers(plan)[0])
    backend = registry.get(target)
    backend.check(plan)
    return Program(plan, backend.load(plan, kernels or loaded(), options), target=target)


def check(case: Case, schedule: tuple[ir.Directive, ...], workers: int, seed: int) -> None:
    order = Order(case)
    plan = lower(run_passes(case.module))
    wanted, values = case.bind()
    with program(plan, "reference") as reference:
        reference.execute(**values)
        hashed = reference.task_hash()
    plain = TRACED if seed % 2 else ()
    most = max(order.most_written(), 1)
    for directives, threads in ((ADVERSARY, 1), (schedule, workers), (plain, workers)):
        memory, values = case.bind()
        options = {"num_threads": threads, "seed": seed}
        with program(scheduled(plan, directives, most), "cpu_sim", **options) as tested:
            assert tested.task_hash(**values) == hashed
            tested.execute(hash=True, **case.bind()[1])  # elsewhere; now all workers are awake
            assert tested.task_hash() == hashed
            tested.execute(**values)
            stats = tested.stats
            assert stats.tasks == stats.generated == len(order.tasks)
            assert sum(stats.worker_tasks) == len(order.tasks)
            records, written = _window(directives, most)
            assert stats.live_high <= records
            assert stats.window_bytes_high <= written
            if directives:  # without any there is no trace
                assert order.violations(tested.trace) == []
                assert_edges_hold(tested)
        assert np.array_equal(memory, wanted)


def assert_edges_hold(tested: Program) -> None:
    """Whoever waited for a task has started after its end, and was generated after it."""
    trace = np.sort(tested.trace, order="seq")
    edges = tested.edges
    src, dst = (np.searchsorted(trace["seq"], edges[name]) for name in ("src", "dst"))
    assert (trace["seq"][src] == edges["src"]).all()
    assert (trace["seq"][dst] == edges["dst"]).all()
    assert (edges["src"] < edges["dst"]).all()
    assert (trace["end_ns"][src] <= trace["start_ns"][dst]).all()


def _window(schedule: tuple[ir.Directive, ...], most: int) -> tuple[int, int]:
    """Records and bytes that may be alive at once."""
    for directive in fitting(schedule, most, set()):
        match directive.args:
            case (int(limit), WindowUnit.BYTES, _) if directive.name == "WINDOW":
                return 8192, limit
            case (int(limit), *_) if directive.name == "WINDOW":
                return limit, 0
    return 8192, 0


HOW = (schedules(), st.integers(1, 4), st.integers(0, 3))


@settings(max_examples=100)
@given(cases(), *HOW)
def test_every_schedule_gives_the_reference_result(
    case: Case, schedule: tuple[ir.Directive, ...], workers: int, seed: int
) -> None:
    check(case, schedule, workers, seed)


@settings(max_examples=100)
@given(cases(), schedules(issued=True), *HOW[1:])
def test_every_directive_gives_the_reference_result(
    case: Case, schedule: tuple[ir.Directive, ...], workers: int, seed: int
) -> None:
    check(case, schedule, workers, seed)


@settings(max_examples=50)
@given(cases(only_reads=True), *HOW)
def test_structure_alone_orders_tasks(
    case: Case, schedule: tuple[ir.Directive, ...], workers: int, seed: int
) -> None:
    check(case, schedule, workers, seed)


@pytest.mark.soak
@given(cases(), *HOW)
def test_every_schedule_gives_the_reference_result_soak(
    case: Case, schedule: tuple[ir.Directive, ...], workers: int, seed: int
) -> None:
    check(case, schedule, workers, seed)


@pytest.mark.soak
@given(cases(), schedules(issued=True), *HOW[1:])
def test_every_directive_gives_the_reference_result_soak(
    case: Case, schedule: tuple[ir.Directive, ...], workers: int, seed: int
) -> None:
    check(case, schedule, workers, seed)


@pytest.mark.soak
@given(cases(only_reads=True), *HOW)
def test_structure_alone_orders_tasks_soak(
    case: Case, schedule: tuple[ir.Directive, ...], workers: int, seed: int
) -> None:
    check(case, schedule, workers, seed)
