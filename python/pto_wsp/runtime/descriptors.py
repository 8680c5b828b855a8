"""Work descriptors: what the tasks of a plan are, as rows of numbers without pointers.

A row is a task: its kernel, the indices of its loops, the fields that `emit` gave it, and where its
temporaries lie in the workspace. Everything but the last has 32 bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from pto_wsp import columns
from pto_wsp.columns import KERNEL, STAGE, WORKSPACE
from pto_wsp.plan import NONE, Alloc, Axis, Descriptor, Plan, Site, TaskKind

ABSENT = 0xFFFF_FFFF  # the task has no such number


class Cell(IntEnum):
    """What stands in a column of a site's tasks; as in ptowsp.h."""

    CONSTANT = 0
    LOOP = 1
    FIELD = 2
    WORKSPACE_LOW = 3
    WORKSPACE_HIGH = 4


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a plan's descriptors. `cells[site, column]` is (Cell, argument)."""

    dtype: np.dtype[Any]
    cells: npt.NDArray[np.uint32]

    @property
    def words(self) -> int:
        return self.cells.shape[1]

    def rows(self, words: npt.NDArray[np.uint32]) -> npt.NDArray[Any]:
        """Rows of words under their names."""
        return words.view(self.dtype).reshape(len(words))


def layout_of(plan: Plan) -> Layout:
    sites = [_site_cells(plan, number, site) for number, site in enumerate(plan.records(Site))]
    names = _merged(sites) or [KERNEL]  # a program may have no calls
    fields = {plan.string(record.name) for record in plan.records(Descriptor)}
    names.sort(key=lambda name: (name == WORKSPACE, name in fields, name != KERNEL, name != STAGE))
    words = [(name, half) for name in names for half in range(2 if name == WORKSPACE else 1)]
    cells = np.zeros((len(sites), len(words), 2), np.uint32)
    for number, known in enumerate(sites):
        for column, (name, half) in enumerate(words):
            if name in known:
                kind, arg = known[name]
                cells[number, column] = kind + half, arg
            else:
                cells[number, column] = Cell.CONSTANT, ABSENT
    dtype = np.dtype([(name, np.uint64 if name == WORKSPACE else np.uint32) for name in names])
    return Layout(dtype, cells)


def _merged(sites: list[dict[str, tuple[int, int]]]) -> list[str]:
    """The columns of all sites; what stands behind a column in one of them does so here."""
    names: list[str] = []
    for cells in sites:
        at = 0
        for name in cells:
            if name not in names:
                names.insert(at, name)
            at = names.index(name) + 1
    return names


def _site_cells(plan: Plan, number: int, site: Site) -> dict[str, tuple[int, int]]:
    """What is known of the tasks of a site, by column."""
    if site.kind != TaskKind.KERNEL:
        return {}
    cells: dict[str, tuple[int, int]] = {KERNEL: (Cell.CONSTANT, site.kernel)}
    if site.stage != NONE:
        cells[STAGE] = Cell.CONSTANT, site.stage
    for level, name in _loops(plan, site):
        cells[name] = Cell.LOOP, level
    for index, record in enumerate(plan.records(Descriptor)):
        if record.site == number:
            cells[plan.string(record.name)] = Cell.FIELD, index
    if plan.records(Alloc):
        cells[WORKSPACE] = Cell.WORKSPACE_LOW, 0  # and the high word behind it
    return cells


def _loops(plan: Plan, site: Site) -> Iterator[tuple[int, str]]:
    """The loops around a site, outermost first: their levels and columns. Messages that are
    consumed have a level and no axis."""
    axes: list[Axis] = []
    axis = site.axis
    while axis != NONE:
        axes.insert(0, plan.records(Axis)[axis])
        axis = axes[0].outer
    names = columns.of_loops(plan.string(each.name) for each in axes)
    yield from zip((each.level for each in axes), names, strict=True)
