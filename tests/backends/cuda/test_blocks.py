"""Several blocks at a time: whoever is slower or faster, results stay what they are, no block waits
for a task that nobody has taken, and counters are ready for the next run."""

from __future__ import annotations

import numpy as np
import pytest

from .programs import PROGRAMS
from .stepping import stepped

pytestmark = pytest.mark.interpreted
# Those in which tasks wait for each other, or are run by the last of others.
WAITING = (
    *("steps", "chains", "two_parts", "by_data", "explicit", "wavefront", "temporaries"),
    *("updates", "meeting", "rows_before", "slanted"),
)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", WAITING)
def test_any_interleaving_gives_the_same(
    name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, found = PROGRAMS[name](), PROGRAMS[name]()
    reference = wanted.workload.compile(target="reference")
    program = found.workload.compile(target="cuda", blocks_per_sm=2)
    program._engine.tries = 10_000
    with stepped(monkeypatch, seed) as turns:
        for _ in range(2):  # the second run uses the counters that the first one cleared
            reference.execute()
            program.execute()
    assert turns.switches > 10
    for a, b in zip(wanted.outputs, found.outputs, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-6)
