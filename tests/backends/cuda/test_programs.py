"""What the cuda target computes is what the reference does: results, tasks and their hash."""

from __future__ import annotations

import numpy as np
import pytest

from .programs import PROGRAMS, paged


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
    for lengths in ([3, 0, 150, 7], [0, 0, 0, 0], [150, 150, 150, 150], [1, 64, 65, 128]):
        other = paged()
        reference = other.workload.compile(target="reference")
        reference.execute(lens=np.array(lengths))
        built.outputs[0][...] = 5.0
        program.execute(lens=np.array(lengths))
        np.testing.assert_allclose(built.outputs[0], other.outputs[0], rtol=1e-5, atol=1e-6)
        assert program.stats.tasks == reference.stats.tasks
