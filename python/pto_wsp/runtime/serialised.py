"""Loops that a program calls parallel and whose iterations wait for each other all the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pto_wsp.plan import (
    NONE,
    Axis,
    Deps,
    DepsDistance,
    Directive,
    Instr,
    Op,
    Plan,
    ProofKind,
    Section,
    Site,
)
from pto_wsp.plan.enums import DepsPolicy
from pto_wsp.runtime.trace import Trace


@dataclass(frozen=True, slots=True)
class Conflict:
    """Tasks of `sink` wait for tasks of `source` in other iterations of the loop at `level`."""

    axis: int
    level: int
    source: int
    sink: int
    distance: tuple[int | None, ...]


def serialised(plan: Plan, trace: Trace | None) -> list[str]:
    """One line for each such loop: where it is, which two calls, and what share of its tasks waits,
    if a trace shows the tasks."""
    if plan.policy(Directive.DEPS) == DepsPolicy.EXPLICIT:
        return []  # regions order nothing
    lines: list[str] = []
    told: set[int] = set()
    for conflict in _conflicts(plan):
        if conflict.axis not in told:
            told.add(conflict.axis)
            lines.append(_line(plan, conflict, trace))
    return lines


def _conflicts(plan: Plan) -> Iterator[Conflict]:
    """What is proved to conflict from iteration to iteration of a parallel loop."""
    distances = plan.records(DepsDistance)
    parallel = {i.operand1 for i in plan.records(Instr) if i.opcode == Op.PARALLEL_FOR}
    for deps in plan.records(Deps):
        parts = distances[deps.distance : deps.distance + deps.num_distance]
        vector = tuple(None if part.open else part.value for part in parts)
        if deps.proof not in (ProofKind.DISTANCE, ProofKind.EVERY):
            continue
        around = _axes(plan, plan.records(Site)[deps.sink])
        for level, part in enumerate(vector):
            if part == 0:
                continue
            if around[level] in parallel:
                yield Conflict(around[level], level, deps.source, deps.sink, vector)
            break


def _axes(plan: Plan, site: Site) -> list[int]:
    """The loops around a site, outermost first."""
    found: list[int] = []
    axis = site.axis
    while axis != NONE:
        found.insert(0, axis)
        axis = plan.records(Axis)[axis].outer
    return found


def _line(plan: Plan, conflict: Conflict, trace: Trace | None) -> str:
    name = plan.string(plan.records(Axis)[conflict.axis].name)
    loop = f"P over '{name}'{_where(plan, Section.AXIS, conflict.axis)}"
    pair = f"{_call(plan, conflict.sink)} waits for {_call(plan, conflict.source)}"
    part = conflict.distance[conflict.level]
    how = "of every iteration before it" if part is None else f"{part} iterations before it"
    share = "" if trace is None else f"; {_share(conflict, trace):.0%} of these tasks do"
    return f"{loop} does not run in parallel: {pair} {how}{share}"


def _call(plan: Plan, site: int) -> str:
    kernel = plan.records(Site)[site].kernel
    name = "control" if kernel == NONE else plan.kernel_names[kernel]
    return name + _where(plan, Section.SITE, site)


def _where(plan: Plan, section: Section, index: int) -> str:
    loc = plan.loc(section, index)
    return "" if loc is None else f" ({loc})"


def _share(conflict: Conflict, trace: Trace) -> float:
    """The share of the sink's tasks that have such a task before them."""
    depth = len(conflict.distance)
    fixed = [level for level in range(depth) if conflict.distance[level] is not None]
    free = [level for level in range(depth) if conflict.distance[level] is None]
    sources = trace["indices"][trace["site"] == conflict.source]
    sinks = trace["indices"][trace["site"] == conflict.sink]
    if not len(sinks):
        return 0.0
    wanted = sinks.copy()
    wanted[:, :depth] -= np.array([part or 0 for part in conflict.distance])
    groups = _numbers(np.concatenate([sources, wanted])[:, fixed])
    places = _numbers(np.concatenate([sources, wanted])[:, free])
    first = np.full(groups.max() + 1, len(trace))  # of each group: the first source in it
    np.minimum.at(first, groups[: len(sources)], places[: len(sources)])
    last = places[len(sources) :] + (0 if free else 1)
    return float((first[groups[len(sources) :]] < last).mean())


def _numbers(rows: Trace) -> Trace:
    """The rank of each row among the different ones."""
    return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)
