"""What tracing refuses as out of bounds would fail in every run that gets there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pto_wsp import (
    CompileError,
    DenseDyn,
    DType,
    ExecutionError,
    InOut,
    P,
    Tensor,
    TypeCheckError,
    Workload,
    kernel,
    workload,
)
from pto_wsp.error_codes import Code


@kernel
def touch(x: InOut[Tensor]):
    pass


@dataclass(frozen=True)
class Form:
    """constant + factor * m + sum(factors * variables of the loops around)"""

    constant: int
    of_m: int = 0
    of_loops: tuple[int, ...] = ()

    def value(self, m: Any, variables: tuple[Any, ...]) -> Any:
        total = self.constant + self.of_m * m
        for factor, variable in zip(self.of_loops, variables, strict=False):
            total = total + factor * variable
        return total


@dataclass(frozen=True)
class Level:
    """A loop over a number, over n, or over a form; or a condition."""

    kind: str
    extent: Form


@dataclass(frozen=True)
class Program:
    """One call under some levels, on a part of a temporary of extent `size`."""

    levels: tuple[Level, ...]
    size: Form
    start: Form
    length: int | None  # none: one element

    def work(self, n: int, m: int) -> Workload:
        X = Tensor(data=np.zeros(m), name="X")

        def inside(axis: Any, levels: tuple[Level, ...], variables: tuple[Any, ...]) -> None:
            m: Any = X.shape[0]
            if not levels:
                self.call(m, variables)
                return
            extent = levels[0].extent.value(m, variables)
            if levels[0].kind == "when":
                with P.when(m >= extent):
                    inside(axis, levels[1:], variables)
                return
            for i in P(axis if levels[0].kind == "axis" else extent):
                inside(axis, levels[1:], (*variables, i))

        @workload
        def work(axis: Any):
            inside(axis, self.levels, ())

        return work(DenseDyn(n))

    def call(self, m: Any, variables: tuple[Any, ...]) -> None:
        T = Tensor.temp((self.size.value(m, variables),), DType.U8)
        start = self.start.value(m, variables)
        touch(T[start] if self.length is None else T[start : start + self.length])


counts = st.builds(Form, st.integers(0, 4), st.sampled_from([0, 0, 1]))
forms = st.builds(
    Form,
    st.integers(-3, 6),
    st.sampled_from([0, 0, 1, -1]),
    st.lists(st.integers(-2, 2), max_size=2).map(tuple),
)
growing = st.builds(
    Form, st.integers(0, 3), st.sampled_from([0, 1]), st.lists(st.integers(0, 1)).map(tuple)
)
levels = st.one_of(
    st.builds(Level, st.just("number"), st.builds(Form, st.integers(0, 5))),
    st.builds(Level, st.just("axis"), st.just(Form(0))),
    st.builds(Level, st.just("form"), growing),
    st.builds(Level, st.just("when"), counts),
)
programs = st.builds(
    Program,
    st.lists(levels, max_size=3).map(tuple),
    counts,
    forms,
    st.none() | st.integers(0, 3),
)


def unchecked(program: Program, n: int, m: int) -> int | None:
    """How many tasks a run has; none if one of them leaves its tensor. Nothing is refused under a
    condition, here one that always holds."""
    always = Level("when", Form(0))
    work = replace(program, levels=(always, *program.levels)).work(n, m)
    compiled = work.compile(target="reference")
    try:
        return compiled.execute().stats.tasks
    except ExecutionError as error:
        return _none_for(error)


def _none_for(error: CompileError | ExecutionError) -> None:
    assert error.code is Code.OUT_OF_BOUNDS, error


@given(programs)
def test_no_legal_program_is_refused(program: Program) -> None:
    refused = ""
    try:
        program.work(1, 1).traced()
    except TypeCheckError as error:
        _none_for(error)
        refused = str(error)
    for n, m in ((0, 0), (0, 3), (1, 0), (2, 1), (3, 5)):
        tasks = unchecked(program, n, m)
        if not refused or tasks is None:
            continue
        # No task was legal; and what is said of a loop is said of one that runs.
        assert tasks == 0
        assert "runs from" not in refused
