"""Random programs have the same descriptors on the native core as on the reference."""

from __future__ import annotations

from hypothesis import given

from pto_wsp import CompileError
from pto_wsp.passes import lower
from pto_wsp.passes import run as run_passes
from tests.property.nests import Case, cases
from tests.property.test_runs import program


@given(cases())
def test_the_rows_of_random_programs(case: Case) -> None:
    plan = lower(run_passes(case.module))
    _, values = case.bind()
    found: list[list[tuple[int, ...]]] = []
    for target in ("reference", "cpu_sim"):
        with program(plan, target) as made:
            try:
                rows = made.descriptors(**values)
            except CompileError:  # control reads what tasks write
                found.append([])
                continue
            names = [name for name in rows.dtype.names or () if name != "workspace"]
            found.append(rows[names].tolist())
    assert found[0] == found[1]
