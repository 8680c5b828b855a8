"""Cutting a dimension into parts, one for each task."""

# Sizes are numbers or symbols, indices what a workload indexes tensors with.
# pyright: basic
import dataclasses
from typing import Any

from pto_wsp import Kernel, P, minimum
from pto_wsp.frontend.scalar_expr import IntLike
from pto_wsp.workloads.refusals import check_counts


def parts(total, size: int):
    """How many parts of `size` elements there are, the last of which may be smaller."""
    return (total + size - 1) // size


def part(number, size: int, total) -> slice:
    """The elements of one part."""
    end = number * size + size
    is_whole = isinstance(total, int) and total % size == 0  # what is known need not be computed
    return slice(number * size, end if is_whole else minimum(end, total))


def check_sizes(shape: Any) -> None:
    """CompileError unless all sizes of a shape, which is a dataclass, are 1 or more."""
    sizes = (field.name for field in dataclasses.fields(shape) if field.type in (int, "int"))
    check_counts(type(shape).__name__, **{name: getattr(shape, name) for name in sizes})


class Product:
    """out = x @ weight.T by tasks of `cols` columns, with `kernels.linear(rows, cols)`."""

    def __init__(self, linear: Kernel, cols: int) -> None:
        self.linear = linear
        self.cols = cols

    def __call__(
        self, task: tuple, x, weight: tuple, out: tuple, total: int, first: IntLike = 0
    ) -> None:
        """The weight is `(W, *indices)`, of which each task takes some of the `total` rows that
        follow; `(Y, *indices)` is where they go, to columns from `first` on."""
        W, *of_weight = weight
        Y, *of_out = out
        for c in P(parts(total, self.cols)):
            at = part(c, self.cols, total)
            columns = slice(at.start + first, at.stop + first)
            self.linear[(*task, c)](x, W[(*of_weight, at)], Y[(*of_out, columns)])
