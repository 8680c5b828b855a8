"""What the cuda target computes is what the reference does: results, tasks and their hash."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp.backends.cuda.code import _folded
from pto_wsp.backends.cuda.module import Kind

from .programs import PROGRAMS, meeting, paged


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_run_equals_the_reference(name: str) -> None:
    wanted, found = PROGRAMS[name](), PROGRAMS[name]()
    reference = wanted.workload.compile(target="reference")
    program = found.workload.compile(target="cuda")
    reference.execute(hash=True)
    program.execute(hash=True)
    for a, b in zip(wanted.outputs, found.outputs, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-6)
    assert program.stats.tasks == reference.stats.tasks
    assert program.task_hash() == reference.task_hash()


def test_a_program_runs_again_with_other_lengths() -> None:
    """One kernel, whose counters and workspace are used again."""
    built = paged()
    program = built.workload.compile(target="cuda")
    for lengths in ([3, 0, 70, 7], [0, 0, 0, 0], [1, 64, 65, 0]):
        other = paged()
        reference = other.workload.compile(target="reference")
        reference.execute(lens=np.array(lengths))
        built.outputs[0][...] = 5.0
        program.execute(lens=np.array(lengths))
        np.testing.assert_allclose(built.outputs[0], other.outputs[0], rtol=1e-5, atol=1e-6)
        assert program.stats.tasks == reference.stats.tasks


def test_rows_of_page_tables_may_have_any_length() -> None:
    """Triton would compile another kernel for lengths that are no multiple of 16."""
    module = paged().workload.compile(target="cuda")._engine.module
    head = next(line for line in module.text.splitlines() if "do_not_specialize" in line)
    strides = {a.dim: a.name for a in module.arguments if a.kind is Kind.STRIDE and a.number == 2}
    assert repr(strides[0]) in head
    assert repr(strides[1]) not in head


def test_loops_that_are_never_entered_are_not_written() -> None:
    """Triton fails to compile some in which it sees that."""
    program = PROGRAMS["never"]().workload.compile(target="cuda")
    assert " < 0:" not in program._engine.module.text
    assert program.execute().stats.tasks == 3


@pytest.mark.parametrize(
    ("a", "op", "b", "text"),
    [("c", "|", "1", "1"), ("0", "|", "c", "c"), ("1", "&", "c", "c"), ("c", "&", "0", "0")],
)
def test_conditions_stay_conditions(a: str, op: str, b: str, text: str) -> None:
    """With a number in it, one would be a number, which Triton does not take for a condition."""
    assert _folded(a, op, b) == text


def test_loops_that_are_ordered_are_named() -> None:
    """A GPU infers nothing while it runs: where regions may meet at any distance, iterations run
    one after the other."""
    with meeting().workload.compile(target="cuda") as program:
        shown = program.explain()
    assert "parallel loop 'steps': one iteration after the other" in shown
    assert "parallel loop 'rows'" not in shown
