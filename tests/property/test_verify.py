"""Random programs under verify: no false alarm under complete policies, and under promises exactly
the programs in which some order is missing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from pto_wsp import ir
from pto_wsp.backends import registry
from pto_wsp.backends.reference.verify import prepare_replay, verify_full
from pto_wsp.error_codes import Code
from pto_wsp.errors import ExecutionError, RaceError
from pto_wsp.kernels import LoadedKernel
from pto_wsp.passes import lower
from pto_wsp.passes import run as run_passes
from pto_wsp.plan import DepsPolicy, Plan
from pto_wsp.runtime.program import Program
from tests.property import kernel_library, test_data, test_kinds
from tests.property.nests import Case, cases
from tests.property.oracle import Order
from tests.property.test_runs import program, scheduled

EXAMPLES = 25
COMPLETE = (DepsPolicy.AUTO, DepsPolicy.OVERLAP, DepsPolicy.HYBRID)


def deps(policy: DepsPolicy) -> tuple[ir.Directive, ...]:
    return (ir.Directive("DEPS", (int(policy),)),)


def verified(plan: Plan, kernels: tuple[LoadedKernel, ...], how: Any, **options: Any) -> Program:
    backend = registry.get("cpu_sim")
    engine = backend.load(plan, kernels, options)
    return Program(plan, engine, target="cpu_sim", verifier=partial(how, plan, kernels))


def assert_silent(
    plan: Plan,
    kernels: tuple[LoadedKernel, ...],
    memory: Callable[[], dict[str, Any]],
    schedule: tuple[ir.Directive, ...],
    workers: int,
) -> None:
    """Neither way finds anything, and both leave the results alone."""
    wanted = memory()
    with program(plan, "reference", kernels) as reference:
        try:
            reference.execute(**wanted)
        except ExecutionError as error:  # a slot has changed since a temporary got its shape
            if error.code is not Code.OUT_OF_BOUNDS:
                raise
            reject()
        assume(reference.stats.tasks <= 200)
    for how in (verify_full, prepare_replay):
        found = memory()
        tested = scheduled(plan, schedule).with_trace(1 << 16)
        with verified(tested, kernels, how, num_threads=workers) as run:
            run.execute(**found)
        for name, value in wanted.items():
            np.testing.assert_array_equal(found[name], value, name)  # NaN is equal to NaN


complete = st.sampled_from(COMPLETE)
FIFO, STEALS = ir.Directive("READY", (1,)), ir.Directive("READY", (2,))
LAST = ir.Directive("START", (1, 0))
SCHEDULES = ((), (FIFO,), (STEALS,), (STEALS, LAST), (ir.Directive("STREAMS", (2,)), FIFO))
HOW = (st.sampled_from(SCHEDULES), st.integers(1, 3))


@settings(max_examples=EXAMPLES)
@given(cases(), complete, *HOW)
def test_no_alarm(
    case: Case, policy: DepsPolicy, schedule: tuple[ir.Directive, ...], workers: int
) -> None:
    plan = lower(run_passes(case.module))
    schedule = (*deps(policy), *schedule)
    assert_silent(plan, kernel_library.loaded(), lambda: case.bind()[1], schedule, workers)


@settings(max_examples=EXAMPLES)
@given(test_data.modules(), *HOW)
def test_no_alarm_where_control_reads_data(
    module: ir.Module, schedule: tuple[ir.Directive, ...], workers: int
) -> None:
    plan = lower(run_passes(module))
    assert_silent(plan, test_data.loaded(), test_data.memory, schedule, workers)


@settings(max_examples=EXAMPLES)
@given(test_kinds.modules(), test_kinds.tables(), *HOW)
def test_no_alarm_for_any_kind_of_tensor(
    module: ir.Module, table: Any, schedule: tuple[ir.Directive, ...], workers: int
) -> None:
    plan = lower(run_passes(module))
    memory = partial(test_kinds.memory, table)
    assert_silent(plan, test_kinds.loaded(), memory, schedule, workers)


class Closure:
    """All that comes before each task, by what the program says and by equal regions."""

    def __init__(self, case: Case, by_regions: bool) -> None:
        self.order = Order(case)
        modes = {
            k.name: [p.mode for p in k.params if isinstance(p, ir.ParamDecl)]
            for k in case.module.kernels
        }
        self._boxes = [
            [
                (_place(case, tensor), tuple(_normal(d) for d in dims), mode is not ir.Mode.IN)
                for (tensor, dims), mode in zip(task.regions, modes[task.kernel], strict=True)
                if all(extent > 0 for _, extent, _ in dims)
            ]
            for task in self.order.tasks
        ]
        self.before: list[int] = []  # bit sets
        for second in range(len(self.order.tasks)):
            mine = 0
            for first in range(second):
                if self._in_phases(first, second) or (by_regions and self._equal(first, second)):
                    mine |= self.before[first] | 1 << first
            self.before.append(mine)

    def missing(self) -> int:
        """How many pairs of tasks conflict and have no order."""
        count = len(self.order.tasks)
        return sum(
            self._conflicts(first, second) and not self.before[second] >> first & 1
            for second in range(count)
            for first in range(second)
        )

    def _in_phases(self, first: int, second: int) -> bool:
        later = self.order.phases[second]
        return any(later.get(b, n) > n for b, n in self.order.phases[first].items())

    def _equal(self, first: int, second: int) -> bool:
        return any(
            a[:2] == b[:2] and (a[2] or b[2])
            for a in self._boxes[first]
            for b in self._boxes[second]
        )

    def _conflicts(self, first: int, second: int) -> bool:
        reads, writes = self.order.reads, self.order.writes
        return bool(
            writes[first] & (reads[second] | writes[second]) or reads[first] & writes[second]
        )


def _place(case: Case, tensor: str) -> tuple[Any, ...]:
    view = case.views[tensor]
    return view.base, view.shape, view.strides, tensor == "f"


def _normal(dim: tuple[int, int, int]) -> tuple[int, int, int]:
    start, extent, step = dim
    return start, extent, step if extent > 1 else 1


@settings(max_examples=2 * EXAMPLES)
@given(cases(), st.sampled_from([DepsPolicy.EXACT, DepsPolicy.EXPLICIT]))
def test_a_race_is_found_if_there_is_one(case: Case, policy: DepsPolicy) -> None:
    """`numbers` updates commutatively, which nobody has to order."""
    closure = Closure(case, by_regions=policy is DepsPolicy.EXACT)
    assume(all(task.kernel != "numbers" for task in closure.order.tasks))
    missing = closure.missing()
    plan = scheduled(lower(run_passes(case.module)), deps(policy))
    memory, values = case.bind()
    before = memory.copy()
    with verified(plan, kernel_library.loaded(), verify_full, num_threads=1) as run:
        if missing == 0:
            run.execute(**values)
            return
        with pytest.raises(RaceError) as raised:
            run.execute(**values)
    assert len(raised.value.pairs) == min(raised.value.total, 100)
    assert 0 < raised.value.total <= missing
    assert np.array_equal(memory, before)
