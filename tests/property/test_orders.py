"""Random orders of random programs are kept, with the reference's results, or refused."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from pto_wsp import ir
from pto_wsp.error_codes import Code
from pto_wsp.errors import ScheduleError
from pto_wsp.passes import lower
from pto_wsp.passes import run as run_passes
from pto_wsp.passes.sites import sites_of
from pto_wsp.plan import OrderPolicy
from tests.ir.interpreter import Task
from tests.property.nests import Case, cases
from tests.property.oracle import Order
from tests.property.schedules import schedules
from tests.property.test_runs import program, scheduled

Visit = tuple[object, ...]  # one run of a loop: which loop, and where the loops around it stand


def visit(task: Task, levels: dict[int, int]) -> tuple[Visit | None, int]:
    """The visit of the ordered loop that a task belongs to, and its iteration there."""
    level = levels.get(id(task.call), -1)
    if level < 0:
        return None, 0
    return (level, task.loop_indices[:level]), task.loop_indices[level]


def interleaved(groups: list[list[int]], lanes: int) -> Iterator[int]:
    """Groups in turns of one; a lane whose group is over goes on with the next one."""
    waiting = iter(groups)
    at_work = [iter(group) for group in itertools.islice(waiting, lanes)]
    while at_work:
        for lane in list(at_work):
            task = next(lane, None)
            if task is None:
                place = at_work.index(lane)
                group = next(waiting, None)
                if group is None:
                    at_work.remove(lane)
                    continue
                at_work[place] = iter(group)
                task = next(at_work[place])
            yield task


def wanted_order(run: list[Task], axis: str, module: ir.Module, lanes: int) -> list[int]:
    levels: dict[int, int] = {}
    for site in sites_of(module):
        names = [a.stmt.axis for a in site.loops if not isinstance(a.stmt, ir.Consume)]
        levels[id(site.stmt)] = names.index(axis) if axis in names else -1
    order: list[int] = []
    numbered = list(enumerate(run))
    for key, some in itertools.groupby(numbered, lambda pair: visit(pair[1], levels)[0]):
        part = list(some)
        if key is None:
            order += [number for number, _ in part]
            continue
        by_iteration = itertools.groupby(part, lambda pair: visit(pair[1], levels)[1])
        groups = [[number for number, _ in group] for _, group in by_iteration]
        order += interleaved(groups, lanes)
    return order


@st.composite
def ordered(draw: st.DrawFn, only_reads: bool) -> tuple[Case, str, OrderPolicy, int]:
    case = draw(cases(only_reads=only_reads))
    found = [s.axis for s in ir.walk(case.module.body) if isinstance(s, ir.Loop)]
    assume(found)
    policy = draw(st.sampled_from(OrderPolicy))
    return case, draw(st.sampled_from(found)), policy, draw(st.sampled_from([1, 2, 3, 8]))


def check(
    given: tuple[Case, str, OrderPolicy, int],
    schedule: tuple[ir.Directive, ...],
    workers: int,
) -> None:
    case, axis, policy, lanes = given
    count = (lanes,) if policy is OrderPolicy.INTERLEAVED else ()
    directives = (*schedule, ir.Directive("ORDER", (axis, policy, *count)))
    plan = lower(run_passes(case.module))
    memory, values = case.bind()
    try:
        with program(scheduled(plan, directives), "cpu_sim", num_threads=workers) as tested:
            tested.execute(**values)
            trace = tested.trace
    except ScheduleError as error:
        event("refused")
        if error.code is not Code.ORDER_NOT_PROVED:
            raise
        assert policy is not OrderPolicy.SEQUENTIAL
        return
    event("kept")
    order = Order(case)
    wanted, values = case.bind()
    with program(plan, "reference") as reference:
        reference.execute(**values)
    assert np.array_equal(memory, wanted)
    assert order.violations(trace) == []
    by_seq = trace[np.argsort(trace["seq"])]["task_id"].tolist()
    if policy is OrderPolicy.INTERLEAVED:
        assert by_seq == wanted_order(order.tasks, axis, case.module, lanes)
    else:
        assert sorted(by_seq) == list(range(len(order.tasks)))
        assert policy is OrderPolicy.PARALLEL or by_seq == sorted(by_seq)


@settings(max_examples=50)
@given(ordered(only_reads=True), schedules(), st.integers(1, 4))
def test_orders_are_kept(
    given: tuple[Case, str, OrderPolicy, int], schedule: tuple[ir.Directive, ...], workers: int
) -> None:
    check(given, schedule, workers)


@settings(max_examples=60)
@given(ordered(only_reads=False), schedules(), st.integers(1, 4))
def test_orders_keep_results_or_are_refused(
    given: tuple[Case, str, OrderPolicy, int], schedule: tuple[ir.Directive, ...], workers: int
) -> None:
    check(given, schedule, workers)


@pytest.mark.soak
@given(st.booleans().flatmap(lambda reads: ordered(reads)), schedules(), st.integers(1, 4))
def test_orders_keep_results_or_are_refused_soak(
    given: tuple[Case, str, OrderPolicy, int], schedule: tuple[ir.Directive, ...], workers: int
) -> None:
    check(given, schedule, workers)
