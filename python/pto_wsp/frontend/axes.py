"""Axes and control arrays: what a workload is called with to say how much work there is."""

from __future__ import annotations

from typing import Any, ClassVar, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from pto_wsp import srcloc
from pto_wsp.dtypes import DType
from pto_wsp.errors import CompileError
from pto_wsp.frontend.memory import share
from pto_wsp.frontend.scalar_expr import as_int

IntArray: TypeAlias = npt.NDArray[np.integer[Any]]


class Dense:
    """An axis of an extent fixed in the plan: `Dense[8]()`. `Dense[8]` is a class of its own."""

    extent: ClassVar[int]
    __slots__ = ()

    def __class_getitem__(cls, extent: int) -> type[Dense]:
        number = _extent(extent, "Dense[n]()")
        return type(f"Dense[{number}]", (Dense,), {"extent": number, "__slots__": ()})

    def __init__(self) -> None:
        if not hasattr(type(self), "extent"):
            raise CompileError(
                "Dense() without an extent",
                loc=srcloc.here(),
                why="a dense axis is fixed in the plan",
                fix="write Dense[8](), or DenseDyn(n) for an extent bound at execute",
            )

    def __repr__(self) -> str:
        return f"Dense[{self.extent}]()"


class DenseDyn:
    """An axis whose extent is bound at execute, by the name of the workload's parameter;
    `extent` is the default."""

    __slots__ = ("extent",)

    def __init__(self, extent: int) -> None:
        self.extent = _extent(extent, "DenseDyn(n)")

    def __repr__(self) -> str:
        return f"DenseDyn({self.extent})"


class Ragged:
    """An axis inside `outer` with an extent of its own for each index of it: `lengths[index]`.

    The lengths are bound at execute by the name of the workload's parameter; those given here are
    the default. A NumPy array is not copied, so later writes to it are seen by later runs.
    """

    __slots__ = ("lengths", "outer")

    def __init__(self, outer: Dense | DenseDyn, lengths: npt.ArrayLike) -> None:
        # Callers without a type checker pass anything, so the declared types are tested too.
        if not isinstance(cast(object, outer), Dense | DenseDyn):
            raise CompileError(
                f"Ragged(outer, lengths): outer is {type(outer).__name__}",
                loc=srcloc.here(),
                why="the lengths are indexed by the axis around this one",
                fix="pass the Dense or DenseDyn axis object first, then the lengths",
            )
        self.outer = outer
        self.lengths = control_array(lengths, "the lengths of Ragged(outer, lengths)")
        if len(self.lengths) < outer.extent:
            raise CompileError(
                f"Ragged has {len(self.lengths)} lengths for an outer axis of {outer.extent}",
                loc=srcloc.here(),
                why="every index of the outer axis needs its length",
                fix="give one length for each index of the outer axis",
            )

    def __repr__(self) -> str:
        return f"Ragged({self.outer!r}, {len(self.lengths)} lengths)"


Axis: TypeAlias = Dense | DenseDyn | Ragged


def control_array(value: object, what: str) -> IntArray:
    """A 1-D integer array that control reads: lists are copied, arrays are shared."""
    if isinstance(value, list | tuple):
        items = [as_int(item) for item in cast("list[object]", value)]
        if None in items:
            raise _not_integers(what, "it holds something that is not an integer")
        try:
            return np.array(items, dtype=np.int64)
        except OverflowError:
            raise _not_integers(what, "a number does not fit 64 bits") from None
    array = share(value, what)
    if array.ndim != 1:
        raise _not_integers(what, f"it has {array.ndim} dimensions")
    if array.dtype.kind not in "iu" or not _has_dtype(array):
        raise _not_integers(what, f"its dtype is {array.dtype}")
    return array


def _extent(value: object, form: str) -> int:
    number = None if isinstance(value, bool) else as_int(value)
    if number is None or not 0 <= number < 2**63:
        raise CompileError(
            f"{form}: n is {value!r}",
            loc=srcloc.here(),
            why="an extent is a non-negative integer",
            fix="pass the number of iterations",
        )
    return number


def _has_dtype(array: npt.NDArray[Any]) -> bool:
    try:
        DType.of(array.dtype)
    except TypeError:  # for example the other byte order
        return False
    return True


def _not_integers(what: str, why: str) -> CompileError:
    return CompileError(
        f"{what} must be a 1-D array of integers",
        loc=srcloc.here(),
        why=why,
        fix="pass a list of ints or a 1-D NumPy array of an integer dtype",
    )
