"""Axes and control arrays: what a workload is called with to say how much work there is."""

from __future__ import annotations

from typing import Any, ClassVar, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from pto_wsp import ir, srcloc
from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.frontend.control_reads import place
from pto_wsp.frontend.memory import share
from pto_wsp.frontend.nests import Nest
from pto_wsp.frontend.scalar_expr import SymInt, as_int
from pto_wsp.frontend.sparse_rows import Row, SparseRows
from pto_wsp.frontend.tensor import Tensor
from pto_wsp.frontend.trace import current

IntArray: TypeAlias = npt.NDArray[np.integer[Any]]


class Dense:
    """An axis of an extent fixed in the plan: `Dense[8]()`. `Dense[8]` is a class of its own."""

    extent: ClassVar[int]
    __slots__ = ()
    __match_args__ = ("extent",)

    def __class_getitem__(cls, extent: int) -> type[Dense]:
        number = _extent(extent, "Dense[n]()")
        return type(f"Dense[{number}]", (Dense,), {"extent": number, "__slots__": ()})

    def __init__(self) -> None:
        if not hasattr(type(self), "extent"):
            raise CompileError(
                Code.EXTENT,
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
    __match_args__ = ("extent",)

    def __init__(self, extent: int) -> None:
        self.extent = _extent(extent, "DenseDyn(n)")

    def __repr__(self) -> str:
        return f"DenseDyn({self.extent})"


class Ragged:
    """An axis inside `outer` with an extent of its own for each index of it: `lengths[index]`.
    Inside another ragged axis the lengths have two dimensions: `lengths[row, index]`.

    The lengths are bound at execute by the name of the workload's parameter; those given here are
    the default. A NumPy array is not copied, so later writes to it are seen by later runs. A Tensor
    may be written by tasks: then control waits for them.
    """

    __slots__ = ("lengths", "outer")
    __match_args__ = ("outer", "lengths")

    def __init__(self, outer: Dense | DenseDyn | Ragged, lengths: npt.ArrayLike | Tensor) -> None:
        # Callers without a type checker pass anything, so the declared types are tested too.
        if not isinstance(cast(object, outer), Dense | DenseDyn | Ragged):
            raise CompileError(
                Code.AXIS_PARTS,
                f"Ragged(outer, lengths): outer is {type(outer).__name__}",
                loc=srcloc.here(),
                why="the lengths are indexed by the axis around this one",
                fix="pass the axis object around it first, then the lengths",
            )
        self.outer = outer
        rank = 2 if isinstance(outer, Ragged) else 1
        self.lengths = _control(lengths, "the lengths of Ragged(outer, lengths)", rank)
        if isinstance(outer, Ragged) or isinstance(self.lengths, Tensor):
            return
        if len(self.lengths) < outer.extent:
            raise CompileError(
                Code.LENGTHS,
                f"Ragged has {len(self.lengths)} lengths for an outer axis of {outer.extent}",
                loc=srcloc.here(),
                why="every index of the outer axis needs its length",
                fix="give one length for each index of the outer axis",
            )

    def over(self, lengths: Any) -> Ragged:
        """The same axis with its lengths under another name."""
        other = object.__new__(Ragged)
        other.outer, other.lengths = self.outer, lengths
        return other

    def __repr__(self) -> str:
        return f"Ragged({self.outer!r}, {_count(self.lengths)} lengths)"


class Sparse:
    """Rows of column indices in CSR form, one for each index of `outer`: row b has the columns
    `indices[indptr[b]]` to `indices[indptr[b + 1] - 1]`. `P.sel(axis[b])` loops over them,
    `axis[b].chunks(n)` over groups of them, `axis.activated()` over the rows that have any.

    Execute binds both arrays, as `<parameter>_indptr` and `<parameter>_indices`; Tensors may be
    written by tasks, and then control waits for them. A workload may make the axis itself, of a
    Dense axis and Tensors, temporaries among them.
    """

    __slots__ = ("indices", "indptr", "outer")

    def __init__(
        self,
        outer: Dense | DenseDyn,
        indptr: npt.ArrayLike | Tensor,
        indices: npt.ArrayLike | Tensor,
    ) -> None:
        if not isinstance(cast(object, outer), Dense | DenseDyn):
            raise CompileError(
                Code.AXIS_PARTS,
                f"Sparse(outer, indptr, indices): outer is {type(outer).__name__}",
                loc=srcloc.here(),
                why="the rows are those of the axis around this one",
                fix="pass the Dense or DenseDyn axis object first, then indptr and indices",
            )
        self.outer = outer
        self.indptr = _control(indptr, "indptr of Sparse(outer, indptr, indices)", 1)
        self.indices = _control(indices, "indices of Sparse(outer, indptr, indices)", 1)
        if not isinstance(self.indptr, Tensor) and len(self.indptr) < outer.extent + 1:
            raise CompileError(
                Code.LENGTHS,
                f"Sparse has an indptr of {len(self.indptr)} for an outer axis of {outer.extent}",
                loc=srcloc.here(),
                why="row b goes from indptr[b] to indptr[b + 1]",
                fix="give one more entry than the outer axis has indices",
            )

    def __getitem__(self, index: object) -> Row:
        """One row, inside a workload."""
        return self._rows().row(place("a sparse axis", index))

    def activated(self) -> Nest[tuple[SymInt, Row]]:
        """`for expert, tokens in axis.activated()`: the rows that have columns."""
        return self._rows().activated()

    def _rows(self) -> SparseRows:
        """The axis as a workload sees it that was not given it as an argument."""
        indptr, indices, outer = self.indptr, self.indices, self.outer
        current("a sparse axis")
        if isinstance(outer, Dense) and isinstance(indptr, Tensor) and isinstance(indices, Tensor):
            return SparseRows(None, self, outer, None, ir.Const(outer.extent), indptr, indices)
        raise CompileError(
            Code.AXIS_NOT_PASSED,
            f"{self!r} is not a parameter of the workload",
            loc=srcloc.here(),
            why="execute binds an extent and arrays by the names of parameters",
            fix="pass it as an argument, or make it of Dense[n]() and Tensors",
        )

    def over(self, indptr: Any, indices: Any) -> Sparse:
        """The same axis with its arrays under other names."""
        other = object.__new__(Sparse)
        other.outer, other.indptr, other.indices = self.outer, indptr, indices
        return other

    def __repr__(self) -> str:
        return f"Sparse({self.outer!r}, {_count(self.indices)} indices)"


class Tiled:
    """The tiles of another axis. The loop variable is the number of the tile; its `.start`,
    `.stop`, `.size` and `.slice` bound the elements, exactly for the last tile too unless
    `pad_last`.

    `size` is an integer, or a DenseDyn that is a parameter of the workload as well, to be bound at
    execute.
    """

    __slots__ = ("axis", "pad_last", "size")
    __match_args__ = ("axis", "size", "pad_last")

    def __init__(
        self, axis: Dense | DenseDyn | Ragged, size: int | DenseDyn, *, pad_last: bool = False
    ) -> None:
        if not isinstance(cast(object, axis), Dense | DenseDyn | Ragged):
            raise CompileError(
                Code.AXIS_PARTS,
                f"Tiled(axis, size): axis is {type(axis).__name__}",
                loc=srcloc.here(),
                why="tiles divide a dense or ragged axis",
                fix="pass the axis object first, then the size of a tile",
            )
        self.axis = axis
        self.size = size if isinstance(size, DenseDyn) else _extent(size, "Tiled(axis, n)")
        if self.size == 0:
            raise CompileError(
                Code.EXTENT,
                "Tiled(axis, 0)",
                loc=srcloc.here(),
                why="a tile holds at least one element",
                fix="pass a size of at least 1",
            )
        self.pad_last = pad_last

    def __repr__(self) -> str:
        padded = ", pad_last=True" if self.pad_last else ""
        return f"Tiled({self.axis!r}, {self.size!r}{padded})"


Axis: TypeAlias = Dense | DenseDyn | Ragged | Sparse | Tiled


def _control(value: object, what: str, rank: int) -> IntArray | Tensor:
    if not isinstance(value, Tensor):
        return control_array(value, what, rank)
    if value.dtype.name[0] not in "IU" or value.rank != rank:
        raise _not_integers(what, f"{value!r} is of another type", rank)
    return value


def _count(array: IntArray | Tensor) -> str:
    return repr(array) if isinstance(array, Tensor) else str(array.size)


def control_array(value: object, what: str, rank: int | None = 1) -> IntArray:
    """An integer array that control reads: lists are copied, arrays are shared. Without a rank it
    may have one or two dimensions."""
    if isinstance(value, list | tuple) and rank != 2:
        items = [as_int(item) for item in cast("list[object]", value)]
        if None in items:
            raise _not_integers(what, "it holds something that is not an integer", rank)
        try:
            return np.array(items, dtype=np.int64)
        except OverflowError:
            raise _not_integers(what, "a number does not fit 64 bits", rank) from None
    if isinstance(value, list | tuple):
        value = np.array(value, dtype=np.int64)
    array = share(value, what)
    if array.ndim not in ((1, 2) if rank is None else (rank,)):
        raise _not_integers(what, f"it has {array.ndim} dimensions", rank)
    if array.dtype.kind not in "iu" or not _has_dtype(array):
        raise _not_integers(what, f"its dtype is {array.dtype}", rank)
    return array


def _extent(value: object, form: str) -> int:
    number = None if isinstance(value, bool) else as_int(value)
    if number is None or not 0 <= number < 2**63:
        raise CompileError(
            Code.EXTENT,
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


def _not_integers(what: str, why: str, rank: int | None = 1) -> CompileError:
    shape = "2-D" if rank == 2 else "1-D"
    fix = f"pass a list of ints or a {shape} NumPy array of an integer dtype"
    if rank is None:  # an argument, which could be meant for kernels
        fix = f"wrap it if kernels work on it, Tensor(data=...); for control {fix}"
    return CompileError(
        Code.AXIS_PARTS,
        f"{what} must be a {shape} array of integers",
        loc=srcloc.here(),
        why=why,
        fix=fix,
    )
