"""The rows of a sparse axis, and the loops over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from pto_wsp import ir, srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.frontend.blocks import OpenLoop
from pto_wsp.frontend.conditions import Branch, when
from pto_wsp.frontend.control_reads import element
from pto_wsp.frontend.nests import Nest, Variables, new_variable
from pto_wsp.frontend.scalar_expr import (
    IntLike,
    SymInt,
    as_int,
    as_symint,
    is_integer,
    lower,
    minimum,
)
from pto_wsp.frontend.tensor import Region, Tensor
from pto_wsp.frontend.tile_vars import TileVar, tile_count
from pto_wsp.frontend.trace import Tracer, current

Rows: TypeAlias = "tuple[SymInt, Row]"


@dataclass(frozen=True, slots=True, eq=False)
class SparseRows:
    """A sparse axis as a workload sees it. An array is a tensor, or the name of one that only
    control reads."""

    name: str | None  # of the parameter, if it is one
    key: object  # the user's axis, to which `pos` refers
    outer: object  # and that of its rows
    outer_name: str | None
    extent: ir.Expr  # of the outer axis
    indptr: Tensor | str
    indices: Tensor | str

    def row(self, index: SymInt) -> Row:
        return Row(self, index)

    def activated(self) -> Nest[Rows]:
        return ActivatedNest(current(f"{self.name or 'Sparse'}.activated()"), self)

    def bounds(self, index: SymInt) -> tuple[SymInt, SymInt]:
        """Where a row begins and ends in the indices; tensors are read here."""
        return entry(self.indptr, index), entry(self.indptr, index + 1)

    def columns(self, part: slice[SymInt, SymInt, None]) -> Region:
        """Some of the indices, for a kernel."""
        if isinstance(self.indices, Tensor):
            return self.indices[part]
        raise CompileError(
            Code.AXIS_KIND,
            f"{self.indices} is an array that control reads",
            loc=srcloc.here(),
            why="a kernel takes regions of tensors",
            fix="make the axis of a tensor: Sparse(outer, indptr, Tensor(data=indices))",
        )


def entry(array: Tensor | str, index: SymInt) -> SymInt:
    """One element of an array of a sparse axis."""
    return as_symint(array[index]) if isinstance(array, Tensor) else element(array, index)


class Row:
    """One row of a sparse axis: `P.sel(row)` loops over its columns, `row.chunks(n)` over groups of
    them. `start` and `stop` are its place in the indices, `slice` is both, `size` how many columns
    it has, `indices` the columns as a region."""

    __slots__ = ("_bounds", "index", "rows")

    def __init__(
        self, rows: SparseRows, index: SymInt, bounds: tuple[SymInt, SymInt] | None = None
    ) -> None:
        self.rows = rows
        self.index = index
        self._bounds = bounds

    @property
    def bounds(self) -> tuple[SymInt, SymInt]:
        # Kept only where activated() read them: a value that is read inside a loop ends with it.
        return self._bounds or self.rows.bounds(self.index)

    @property
    def start(self) -> SymInt:
        return self.bounds[0]

    @property
    def stop(self) -> SymInt:
        return self.bounds[1]

    @property
    def size(self) -> SymInt:
        start, stop = self.bounds
        return stop - start

    @property
    def slice(self) -> slice[SymInt, SymInt, None]:
        return slice(*self.bounds)

    @property
    def indices(self) -> Region:
        return self.rows.columns(self.slice)

    def chunks(self, size: IntLike) -> Nest[Chunk]:
        """`for group in row.chunks(16)`: groups of 16 columns, the last one may be smaller."""
        return ChunkNest(current("chunks(...)"), self, size)


class Chunk(TileVar):
    """Some columns of a row: the number of the group in its row, with its place in the indices."""

    __slots__ = ("_rows",)

    def __init__(self, number: SymInt, start: SymInt, stop: SymInt, rows: SparseRows) -> None:
        super().__init__(number, start, stop)
        self._rows = rows

    @property
    def indices(self) -> Region:
        """The columns, for a kernel."""
        return self._rows.columns(self.slice)


class SelNest(Nest[Variables]):
    """P.sel(...): over the columns of one row."""

    def __init__(self, tracer: Tracer, row: object) -> None:
        super().__init__(tracer, "P.sel(...)", (row,))
        if not isinstance(row, Row):
            raise CompileError(
                Code.AXIS_KIND,
                f"P.sel(...) of {type(row).__name__}",
                loc=self.pending.loc,
                why="it loops over the columns of one row of a sparse axis",
                fix="write P.sel(routing[b]) with a parameter that was given Sparse(...)",
            )
        self.row = row

    def open(self, axis: object, name: str | None) -> tuple[OpenLoop, SymInt]:
        rows, index = self.row.rows, lower(self.row.index)
        var = new_variable(self.tracer, None, f"{rows.name or 'row'}_pos")
        if (
            isinstance(index, ir.LoopVar)
            and isinstance(rows.indptr, str)
            and isinstance(rows.indices, str)
        ):
            head = self._sparse(var, index, rows.indptr, rows.indices)
            loop = self.tracer.open_loop(head, rows.key)
            return loop, loop.column
        return self._general(var)

    def _sparse(self, var: str, row: ir.LoopVar, indptr: str, indices: str) -> ir.Loop:
        end = ir.ArrayLoad(indptr, ir.Binary(ir.BinaryOp.ADD, row, ir.Const(1)))
        extent = ir.Binary(ir.BinaryOp.SUB, end, ir.ArrayLoad(indptr, row))
        kind, loc = ir.AxisKind.SPARSE, self.pending.loc
        return ir.Loop(
            *(var, self.row.rows.name or var, kind, ir.Order.PARALLEL, ir.Const(0), extent, ()),
            *(indptr, row.name, loc, indices),
        )

    def _general(self, var: str) -> tuple[OpenLoop, SymInt]:
        """Rows named by an expression, and arrays that tasks may write: explicit reads."""
        rows = self.row.rows
        first, last = self.row.bounds
        head = _head(var, rows.name, ir.AxisKind.EXPR, lower(last - first), self)
        loop = self.tracer.open_loop(head, rows.key)
        return loop, entry(rows.indices, first + loop.variable)


class ActivatedNest(Nest[Rows]):
    """routing.activated(): over the rows that have columns."""

    def __init__(self, tracer: Tracer, rows: SparseRows) -> None:
        super().__init__(tracer, f"{rows.name or 'routing'}.activated()", (rows,))
        self.rows = rows
        self.branch: Branch | None = None

    @property
    def targets(self) -> int:
        return 2

    def open(self, axis: object, name: str | None) -> tuple[OpenLoop, Any]:
        rows = self.rows
        constant = isinstance(rows.extent, ir.Const)
        kind = ir.AxisKind.DENSE if constant else ir.AxisKind.DENSE_DYN
        var = new_variable(self.tracer, name, rows.outer_name or "row")
        head = _head(var, rows.outer_name, kind, rows.extent, self)
        loop = self.tracer.open_loop(head, rows.outer)
        first, last = rows.bounds(loop.variable)
        self.branch = when(last > first)
        self.branch.__enter__()
        return loop, (loop.variable, Row(rows, loop.variable, (first, last)))

    def close(self, loop: OpenLoop) -> None:
        assert self.branch is not None
        self.branch.__exit__(None, None, None)
        super().close(loop)


class ChunkNest(Nest[Chunk]):
    """row.chunks(size): over groups of the columns of a row."""

    def __init__(self, tracer: Tracer, row: Row, size: IntLike) -> None:
        super().__init__(tracer, "chunks(...)", (row,))
        number = as_int(size)
        if not is_integer(size) or isinstance(size, bool) or (number is not None and number < 1):
            raise CompileError(
                Code.EXTENT,
                f"chunks({size!r})",
                loc=self.pending.loc,
                why="a group holds at least one column",
                fix="pass an integer of at least 1, or an expression",
            )
        self.row = row
        self.size = as_symint(size)

    def open(self, axis: object, name: str | None) -> tuple[OpenLoop, Chunk]:
        rows, size = self.row.rows, self.size
        first, last = self.row.bounds
        var = new_variable(self.tracer, name, rows.name or "chunk")
        extent = lower(tile_count(last - first, size))
        head = _head(var, rows.name, ir.AxisKind.EXPR, extent, self)
        loop = self.tracer.open_loop(head, None)
        start = first + loop.variable * size
        # In this form the number of columns is seen to be no more than `size`, wherever it goes.
        stop = start + minimum(size, last - start)
        return loop, Chunk(loop.variable, start, stop, rows)


def _head(
    var: str, axis: str | None, kind: ir.AxisKind, extent: ir.Expr, nest: Nest[Any]
) -> ir.Loop:
    order, loc = ir.Order.PARALLEL, nest.pending.loc
    return ir.Loop(var, axis or var, kind, order, ir.Const(0), extent, (), None, None, loc)
