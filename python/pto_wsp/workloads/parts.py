"""Cutting a dimension into parts, one for each task."""

# Sizes are numbers or symbols.
# pyright: basic
from pto_wsp import minimum


def parts(total, size: int):
    """How many parts of `size` elements there are, the last of which may be smaller."""
    return (total + size - 1) // size


def part(number, size: int, total) -> slice:
    """The elements of one part."""
    return slice(number * size, minimum(number * size + size, total))
