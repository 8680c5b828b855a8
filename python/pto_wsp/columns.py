"""The names of the columns of work descriptors, as they are written and as they are read."""

from __future__ import annotations

from collections.abc import Iterable

KERNEL, STAGE, TIER, WORKSPACE = "kernel", "stage", "tier", "workspace"
RESERVED: tuple[str, ...] = (KERNEL, STAGE, TIER, WORKSPACE)


def of_loops(axes: Iterable[str]) -> list[str]:
    """The columns of the loops over these axes, outermost first: the second of a name, or one that
    is called like a column of another kind, is name_2."""
    taken = set(RESERVED)
    found: list[str] = []
    for axis in axes:
        name, number = axis, 2
        while name in taken:
            name, number = f"{axis}_{number}", number + 1
        taken.add(name)
        found.append(name)
    return found
