"""What axes and arrays are inside a workload: their parameters as the traced function sees them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NoReturn

from pto_wsp import ir, srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError, MissingAttribute
from pto_wsp.frontend.axes import Axis, Dense, DenseDyn, Ragged, Sparse, Tiled
from pto_wsp.frontend.blocks import OpenLoop
from pto_wsp.frontend.control_reads import element, place
from pto_wsp.frontend.nests import Nest
from pto_wsp.frontend.refusal import (
    COMPUTING,
    EQUALITY,
    refuse,
)
from pto_wsp.frontend.scalar_expr import SymInt, as_symint, atom
from pto_wsp.frontend.sparse_rows import Row, SparseRows
from pto_wsp.frontend.tensor import Tensor
from pto_wsp.frontend.tile_vars import tile_count
from pto_wsp.frontend.trace import Tracer, current

if TYPE_CHECKING:
    from pto_wsp.srcloc import SrcLoc


@refuse(
    COMPUTING,
    EQUALITY,
    code=Code.PARAMETER_AS_VALUE,
    message="a workload's array has no values while it is traced ({op})",
    why="the array is bound at execute, and may be another one in each run",
    fix="read one element, lens[i], as an index or as an extent: P(lens[i])",
)
class ArrayParam:
    """An array parameter inside a workload: `lens[i]` and `table[i, j]` are symbolic integers."""

    __slots__ = ("name", "rank")
    known_as = "an array of integers"

    def __init__(self, name: str, rank: int = 1) -> None:
        self.name = name
        self.rank = rank

    def __getitem__(self, index: object) -> SymInt:
        return element(self.name, index, self.rank)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # Python and NumPy ask for these by themselves
            raise AttributeError(name)
        raise MissingAttribute(
            Code.PARAMETER_AS_VALUE,
            f"array {self.name} has no .{name} in a workload",
            loc=srcloc.here(),
            why="it is bound at execute, and control reads single elements of it",
            fix=f"read {self.name}[i]; pass a length as an input of its own: n=len({self.name})",
        )

    def __repr__(self) -> str:
        return f"<array {self.name}>"


@refuse(
    COMPUTING,
    EQUALITY,
    code=Code.PARAMETER_AS_VALUE,
    message="an axis is not a number or a sequence ({op})",
    why="its extent is bound at execute",
    fix="loop over it with `for i in P(axis)`; pass sizes that are constants as plain integers",
)
class AxisParam:
    """An axis parameter inside a workload. `toks[b]` is the length of row b of a ragged one,
    `routing[b]` the row of a sparse one, `routing.activated()` gives those that have columns, and
    `routing.pos` is the place in the row of P.sel."""

    __slots__ = ("axis", "key", "name", "names")
    known_as = "an axis"

    def __init__(
        self,
        name: str,
        axis: Axis,
        names: dict[str, str] | None = None,
        key: Axis | None = None,
    ) -> None:
        self.name = name
        self.axis = axis
        self.key = axis if key is None else key  # the user's object, to which other axes refer
        # The symbols of its parts, where one name is not enough: "indices", "extent", "outer".
        self.names = names or {}

    def __getitem__(self, index: object) -> SymInt | Row:
        match self.axis:
            case Ragged(lengths=Tensor() as lengths):
                return as_symint(lengths[index])
            case Ragged(outer=outer):
                return element(self.name, index, 2 if isinstance(outer, Ragged) else 1)
            case Sparse():
                return self._rows("a row").row(place(self.name, index))
            case Tiled():
                raise self._indexed("its tiles are numbered", f"P({self.name})")
            case _:
                raise self._indexed(f"{self.axis!r} has one extent", f"P({self.name})")

    def activated(self) -> Nest[tuple[SymInt, Row]]:
        """`for expert, tokens in routing.activated()`: the rows that have columns."""
        return self._rows("activated()").activated()

    def _rows(self, what: str) -> SparseRows:
        if not isinstance(self.axis, Sparse):
            raise CompileError(
                Code.AXIS_KIND,
                f"{what} of axis {self.name}",
                loc=srcloc.here(),
                why=f"{self.axis!r} has no rows of columns",
                fix="pass Sparse(outer, indptr, indices) for it",
            )
        outer, names = self.axis.outer, self.names
        constant = ir.Const(outer.extent) if isinstance(outer, Dense) else None
        parts = {"indptr": self.axis.indptr, "indices": self.axis.indices}
        arrays = [a if isinstance(a, Tensor) else names[part] for part, a in parts.items()]
        extent = constant or ir.SymbolRef(names["outer"])
        return SparseRows(self.name, self.key, outer, names["outer"], extent, *arrays)

    @property
    def pos(self) -> SymInt:
        """The place in its row at which the innermost P.sel over this axis stands."""
        for loop in reversed(current(f"{self.name}.pos").loops):
            if loop.axis is self.key:
                return loop.variable
        raise CompileError(
            Code.ROW_UNKNOWN,
            f"{self.name}.pos outside a loop over it",
            loc=srcloc.here(),
            why="it is the place in a row of the P.sel loop around",
            fix=f"write it inside `for e in P.sel({self.name}[b])`",
        )

    def _indexed(self, why: str, fix: str) -> CompileError:
        return CompileError(
            Code.AXIS_KIND,
            f"axis {self.name} is indexed",
            loc=srcloc.here(),
            why=why,
            fix=f"write {fix}; Ragged and Sparse axes have rows",
        )

    def __repr__(self) -> str:
        return f"<axis {self.name}: {self.axis!r}>"


class LoopAxis(ABC):
    """An axis with a name and parts that are known where it is looped over."""

    name: str
    padded: bool
    key: object  # what loops over it have in common

    @property
    @abstractmethod
    def first(self) -> int: ...

    @property
    @abstractmethod
    def end(self) -> SymInt: ...

    @property
    @abstractmethod
    def tile(self) -> SymInt | None:
        """Elements of a tile; None if there are no tiles."""


def extent_of(tracer: Tracer, param: AxisParam, loc: SrcLoc | None) -> SymInt:
    """The extent of an axis at this place."""
    match param.axis:
        case Dense(extent=extent):
            return as_symint(extent)
        case DenseDyn():
            return atom(ir.SymbolRef(param.name), tracer.scope)
        case Ragged():
            rows = [loop.variable for loop in row_loops(tracer, param.name, param.axis, loc)]
            length = param[tuple(rows) if len(rows) > 1 else rows[0]]
            assert isinstance(length, SymInt)
            return length
        case Tiled(axis=inner, size=size):
            whole = extent_of(tracer, AxisParam(param.names["extent"], inner), loc)
            return tile_count(whole, tile_size(tracer, param, size))
        case Sparse():
            raise CompileError(
                Code.AXIS_KIND,
                f"P({param.name}) over a sparse axis",
                loc=loc,
                why="its rows have columns, which P.sel gives",
                fix=f"write `for e in P.sel({param.name}[b])`",
            )


def tile_size(tracer: Tracer, param: AxisParam, size: int | DenseDyn) -> SymInt:
    if isinstance(size, DenseDyn):
        return atom(ir.SymbolRef(param.names["size"]), tracer.scope)
    return as_symint(size)


def row_loops(tracer: Tracer, name: str, axis: Ragged, loc: SrcLoc | None) -> list[OpenLoop]:
    """The innermost open loops over the axes around a ragged one, outermost first."""
    outer = axis.outer
    for loop in reversed(tracer.loops):
        if loop.axis is outer:
            around = row_loops(tracer, name, outer, loc) if isinstance(outer, Ragged) else []
            return [*around, loop]
    raise CompileError(
        Code.ROW_UNKNOWN,
        f"ragged axis {name} outside a loop over its outer axis",
        loc=loc,
        why=f"its extent is one of the lengths, chosen by the index of {outer!r}",
        fix=f"loop over the outer axis first, or name the row: P({name}[b])",
    )
