"""What analysis says of conflicts holds for the tasks of random programs."""

from __future__ import annotations

import pytest
from hypothesis import given, reject, settings

from pto_wsp import ir
from pto_wsp.passes.dependence import Conflict, Dependences, analyse
from pto_wsp.passes.distance import shared_loops
from pto_wsp.passes.sites import SiteUse
from tests.ir.interpreter import Task, tasks
from tests.property.kernel_library import KERNELS
from tests.property.nests import Case, cases

_MODES = {
    kernel.name: [param.mode for param in kernel.params if isinstance(param, ir.ParamDecl)]
    for kernel in KERNELS
}


def elements(start: int, extent: int, step: int) -> set[int]:
    return {start + k * step for k in range(extent)}


def meet(first: Task, second: Task) -> set[str]:
    """The tensors of which two tasks touch the same elements, one of them writing."""
    found: set[str] = set()
    for (a, dims_a), mode_a in zip(first.regions, _MODES[first.kernel], strict=True):
        for (b, dims_b), mode_b in zip(second.regions, _MODES[second.kernel], strict=True):
            written = not mode_a is mode_b is ir.Mode.IN
            if a != b or not written or a in found:
                continue
            pairs = zip(dims_a, dims_b, strict=True)
            if all(elements(*x) & elements(*y) for x, y in pairs):
                found.add(a)
    return found


def allowed(conflict: Conflict, tensor: str, distance: tuple[int, ...]) -> bool:
    return conflict.tensor == tensor and any(
        all(part in (None, d) for part, d in zip(vector, distance, strict=True))
        for vector in conflict.distances
    )


def check(case: Case) -> None:
    found: Dependences = analyse(case.module)
    sites: dict[int, SiteUse] = {id(site.stmt): site for site in found.sites}
    if len(sites) != len(found.sites):
        reject()  # one call object at two places
    by_pair: dict[tuple[int, int], list[Conflict]] = {}
    for conflict in found.conflicts:
        by_pair.setdefault((conflict.source.number, conflict.sink.number), []).append(conflict)
    run = list(tasks(case.module.body, case.bindings))
    for later, second in enumerate(run):
        for first in run[:later]:
            one, other = sites[id(first.call)], sites[id(second.call)]
            depth = len(shared_loops(one, other))
            pairs = zip(second.loop_indices[:depth], first.loop_indices[:depth], strict=True)
            distance = tuple(b - a for b, a in pairs)
            known = by_pair.get((one.number, other.number), [])
            for tensor in meet(first, second):
                assert any(allowed(c, tensor, distance) for c in known), (first, second)
                pair = (min(one.number, other.number), max(one.number, other.number))
                assert pair not in found.independent


@given(cases())
@settings(max_examples=60)
def test_every_conflict_is_foretold(case: Case) -> None:
    check(case)


@pytest.mark.soak
@given(cases())
@settings(max_examples=3000)
def test_every_conflict_is_foretold_soak(case: Case) -> None:
    check(case)
