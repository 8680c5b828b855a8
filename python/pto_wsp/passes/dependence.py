"""What the text of a module says of conflicts between its tasks: independent, at a constant
distance, or unknown with the reason.

Tensors of different names count as different memory. Bound tensors may still share bytes: whoever
uses a proof checks that when a program runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pto_wsp import ir, plan
from pto_wsp.passes.distance import Distance, meetings, shared_loops
from pto_wsp.passes.sites import Access, Around, SiteUse, sites_of

# Pairs of sites to look at. A program with more is so large that a part of its proofs must do.
_MOST_PAIRS = 4096


@dataclass(frozen=True, slots=True)
class Conflict:
    """Tasks of `sink` that come behind tasks of `source` and touch the same elements."""

    source: SiteUse
    sink: SiteUse
    tensor: str
    hazard: plan.HazardKind
    distances: tuple[Distance, ...]
    every: bool  # they meet at every value of an open component
    reason: str | None  # why a distance is open, where nobody knows
    commutes: bool  # both only add to it: any order will do

    def carried_by(self, loop: Around) -> bool:
        """Whether tasks of different iterations of the loop, all else around it being equal, may
        conflict."""
        shared = shared_loops(self.source, self.sink)
        if loop not in shared:
            return False
        level = shared.index(loop)
        return any(
            all(part in (0, None) for part in vector[:level]) and vector[level] != 0
            for vector in self.distances
        )


@dataclass(frozen=True, slots=True)
class Dependences:
    sites: tuple[SiteUse, ...]
    conflicts: tuple[Conflict, ...]
    independent: tuple[tuple[int, int], ...]  # pairs of sites that share a tensor and never meet

    def loops(self) -> Iterator[Around]:
        """Every loop with a site in it, once, outermost first."""
        seen: set[int] = set()
        for site in self.sites:
            for loop in site.loops:
                if id(loop) not in seen:
                    seen.add(id(loop))
                    yield loop

    def carried(self, loop: Around) -> Conflict | None:
        """A conflict between iterations of the loop that forbids another order of them."""
        found = (c for c in self.conflicts if not c.commutes and c.carried_by(loop))
        return next(found, None)


def analyse(module: ir.Module) -> Dependences:
    """Of a network nothing is said: channels order its processes, and buffers come round."""
    sites = sites_of(module)
    if module.body and isinstance(module.body[-1], ir.Network):
        return Dependences(sites, (), ())
    conflicts: list[Conflict] = []
    independent: list[tuple[int, int]] = []
    for first, second in _pairs(sites):
        both = [*_conflicts(first, second)]
        if first is not second:
            both += _conflicts(second, first)
        conflicts += both
        if not both:
            independent.append((first.number, second.number))
    return Dependences(sites, tuple(conflicts), tuple(independent))


def _pairs(sites: tuple[SiteUse, ...]) -> list[tuple[SiteUse, SiteUse]]:
    """Pairs of sites of which one writes what the other touches, in the order of the text."""
    users: dict[str, list[SiteUse]] = defaultdict(list)
    for site in sites:
        for tensor in dict.fromkeys(access.tensor for access in site.accesses):
            users[tensor].append(site)
    found: dict[tuple[int, int], None] = {}
    for tensor, using in users.items():
        writers = {s.number for s in using if _writes(s, tensor)}
        for i, first in enumerate(using):
            for second in using[i:]:
                if first.number in writers or second.number in writers:
                    found[first.number, second.number] = None
                if len(found) == _MOST_PAIRS:
                    return [(sites[a], sites[b]) for a, b in sorted(found)]
    return [(sites[a], sites[b]) for a, b in sorted(found)]


def _writes(site: SiteUse, tensor: str) -> bool:
    return any(access.tensor == tensor and access.writes for access in site.accesses)


def _conflicts(source: SiteUse, sink: SiteUse) -> Iterator[Conflict]:
    for a in source.accesses:
        for b in sink.accesses:
            if a.tensor != b.tensor or not (a.writes or b.writes):
                continue
            found = meetings(source, a, sink, b)
            if found.vectors:
                yield Conflict(
                    source,
                    sink,
                    a.tensor,
                    _hazard(a, b),
                    found.vectors,
                    found.every,
                    found.reason,
                    commutes=a.mode is b.mode is ir.Mode.ACCUM,
                )


def _hazard(a: Access, b: Access) -> plan.HazardKind:
    if not a.writes:
        return plan.HazardKind.WAR
    return plan.HazardKind.RAW if b.reads else plan.HazardKind.WAW


# --- as a section of the plan ---


def lower_dependences(found: Dependences, builder: plan.PlanBuilder) -> None:
    """DEPS: a record per conflict and distance, and one per pair that never meets."""
    for source, sink in found.independent:
        builder.add(
            plan.Deps(
                source=source,
                sink=sink,
                proof=plan.ProofKind.INDEPENDENT,
                hazard=plan.HazardKind.RAW,
            )
        )
    told: set[tuple[object, ...]] = set()
    for conflict in found.conflicts:
        for vector in conflict.distances:
            key = (conflict.source.number, conflict.sink.number, conflict.hazard, vector)
            if key not in told:
                told.add(key)
                _lower_distance(conflict, vector, builder)


def _lower_distance(conflict: Conflict, vector: Distance, builder: plan.PlanBuilder) -> None:
    proof, reason = plan.ProofKind.DISTANCE, plan.NONE
    if not vector:
        proof, reason = plan.ProofKind.UNKNOWN, builder.deps_string("no loop is around both")
    elif None in vector and conflict.every:
        proof = plan.ProofKind.EVERY
    elif None in vector:
        assert conflict.reason is not None
        proof, reason = plan.ProofKind.UNKNOWN, builder.deps_string(conflict.reason)
    first = builder.count(plan.Section.DEPS_DISTANCE)
    for part in vector:
        builder.add(plan.DepsDistance(value=part or 0, open=int(part is None)))
    builder.add(
        plan.Deps(
            source=conflict.source.number,
            sink=conflict.sink.number,
            proof=proof,
            hazard=conflict.hazard,
            distance=first if vector else 0,
            num_distance=len(vector),
            reason=reason,
        )
    )
