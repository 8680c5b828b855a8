"""P: the loops and conditions of a workload."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias, cast, overload

import numpy as np

from pto_wsp import ir
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.frontend.axes import Axis, Dense, DenseDyn, Ragged, Sparse, Tiled
from pto_wsp.frontend.axis_params import AxisParam, LoopAxis, extent_of, row_loops, tile_size
from pto_wsp.frontend.blocks import OpenLoop
from pto_wsp.frontend.channels import Pipe, pipe
from pto_wsp.frontend.conditions import Branch, otherwise, when
from pto_wsp.frontend.nests import Nest, Variables, new_variable
from pto_wsp.frontend.scalar_expr import (
    BoolLike,
    IntLike,
    ScalarLike,
    SymInt,
    as_int,
    as_symbool,
    as_symint,
    kind_of,
    lower,
    lower_bool,
)
from pto_wsp.frontend.sparse_rows import Row, SelNest
from pto_wsp.frontend.tensor import Tensor
from pto_wsp.frontend.tile_vars import TileVar, tile_count
from pto_wsp.frontend.trace import Tracer, current
from pto_wsp.srcloc import SrcLoc

# Inside a workload an axis is an AxisParam; users may annotate the parameter with what they pass.
Loopable: TypeAlias = AxisParam | LoopAxis | Axis | SymInt | ScalarLike | int | np.integer[Any]
Two: TypeAlias = tuple[SymInt, SymInt]
Three: TypeAlias = tuple[SymInt, SymInt, SymInt]


class AxisNest(Nest[Variables]):
    """P(...) and P.seq(...)."""

    def __init__(self, tracer: Tracer, axes: tuple[object, ...], order: ir.Order) -> None:
        super().__init__(tracer, "P(...)" if order is ir.Order.PARALLEL else "P.seq(...)", axes)
        self.order = order

    def open(self, axis: object, name: str | None) -> tuple[OpenLoop, SymInt]:
        if isinstance(axis, ScalarLike):
            axis = axis.as_scalar()
        if isinstance(axis, LoopAxis):
            return self._named(axis, name)
        head, of_axis = self._head(axis, name)
        loop = self.tracer.open_loop(head, of_axis)
        if isinstance(axis, AxisParam) and isinstance(axis.axis, Tiled):
            return loop, self._tile(axis, axis.axis, loop)
        return loop, loop.variable

    def _named(self, axis: LoopAxis, name: str | None) -> tuple[OpenLoop, SymInt]:
        whole = axis.end - axis.first
        extent = lower(whole if axis.tile is None else tile_count(whole, axis.tile))
        kind = ir.AxisKind.DENSE if isinstance(extent, ir.Const) else ir.AxisKind.EXPR
        head = self._loop(name, axis.name, kind, extent)
        if axis.tile is None:
            loop = self.tracer.open_loop(replace(head, start=ir.Const(axis.first)), axis.key)
            return loop, loop.variable
        loop = self.tracer.open_loop(head, axis.key)
        tiles = axis.tile, axis.end, axis.first
        loop.tile = TileVar.of(loop.variable, *tiles, padded=axis.padded)
        return loop, loop.tile

    def _tile(self, param: AxisParam, tiled: Tiled, loop: OpenLoop) -> TileVar:
        inner = AxisParam(param.names["extent"], tiled.axis)
        extent = extent_of(self.tracer, inner, self.pending.loc)
        size = tile_size(self.tracer, param, tiled.size)
        return TileVar.of(loop.variable, size, extent, padded=tiled.pad_last)

    def _head(self, axis: object, name: str | None) -> tuple[ir.Loop, Axis | None]:
        """The loop over one axis, without its body, and the axis object that it runs over."""
        loc = self.pending.loc
        match axis:
            case AxisParam(axis=Dense() as dense):
                extent = ir.Const(dense.extent)
                return self._loop(name, axis.name, ir.AxisKind.DENSE, extent), dense
            case AxisParam(axis=DenseDyn() as dense):
                extent = ir.SymbolRef(axis.name)
                return self._loop(name, axis.name, ir.AxisKind.DENSE_DYN, extent), dense
            case AxisParam(axis=Ragged() as ragged):
                return self._ragged(axis, ragged, name), axis.key
            case AxisParam(axis=Tiled() as tiled):
                size = lower(tile_size(self.tracer, axis, tiled.size))
                extent = lower(extent_of(self.tracer, axis, loc))
                loop = self._loop(name, axis.name, ir.AxisKind.TILED, extent)
                return replace(loop, tile=size, padded=tiled.pad_last), tiled
            case AxisParam():
                extent_of(self.tracer, axis, loc)  # says why there is none
                raise AssertionError("a sparse axis has no extent")
            case Dense():
                return self._loop(name, None, ir.AxisKind.DENSE, ir.Const(axis.extent)), axis
            case SymInt():
                return self._symbolic(axis, name), None
            case Row():
                raise CompileError(
                    Code.AXIS_KIND,
                    "P(...) over a row of a sparse axis",
                    loc=loc,
                    why="a row has columns, which P.sel gives",
                    fix=f"write P.sel({axis.rows.name or 'routing'}[...])",
                )
            case DenseDyn() | Ragged() | Sparse() | Tiled():
                raise CompileError(
                    Code.AXIS_NOT_PASSED,
                    f"{axis!r} is not a parameter of the workload",
                    loc=loc,
                    why="execute binds its extent by the name of the parameter",
                    fix="pass the axis to the workload as an argument",
                )
            case _:
                return self._loop(name, None, ir.AxisKind.DENSE, _number(axis, loc)), None

    def _ragged(self, param: AxisParam, axis: Ragged, name: str | None) -> ir.Loop:
        rows = row_loops(self.tracer, param.name, axis, self.pending.loc)
        if isinstance(axis.lengths, Tensor) or len(rows) > 1:
            extent = lower(extent_of(self.tracer, param, self.pending.loc))
            return self._loop(name, param.name, ir.AxisKind.EXPR, extent)
        row = rows[0].var
        extent = ir.ArrayLoad(param.name, ir.LoopVar(row))
        loop = self._loop(name, param.name, ir.AxisKind.RAGGED, extent)
        return replace(loop, lengths=param.name, parent=row)

    def _symbolic(self, extent: SymInt, name: str | None) -> ir.Loop:
        """A loop over an expression; an array element at a loop variable is ragged."""
        expr = lower(extent)
        match expr:
            case ir.ArrayLoad(array, ir.LoopVar(parent), None) if self._has_axis(parent):
                loop = self._loop(name, array, ir.AxisKind.RAGGED, expr)
                return replace(loop, lengths=array, parent=parent)
            case ir.Const(value):
                return self._loop(name, None, ir.AxisKind.DENSE, _number(value, self.pending.loc))
            case ir.ArrayLoad(array):
                return self._loop(name, array, ir.AxisKind.EXPR, expr)
            case _:
                return self._loop(name, None, ir.AxisKind.EXPR, expr)

    def _has_axis(self, var: str) -> bool:
        """False for the numbers of messages, which run over no axis."""
        heads = [loop.head for loop in self.tracer.loops if loop.var == var]
        return not isinstance(heads[-1], ir.Consume)

    def _loop(
        self, name: str | None, axis: str | None, kind: ir.AxisKind, extent: ir.Expr
    ) -> ir.Loop:
        var = new_variable(self.tracer, name, axis)
        loc = self.pending.loc
        return ir.Loop(var, axis or var, kind, self.order, ir.Const(0), extent, (), None, None, loc)


class WhileNest(Nest[Variables]):
    """P.loop_while(...)."""

    def __init__(
        self, tracer: Tracer, condition: Callable[..., BoolLike], max_iterations: object
    ) -> None:
        super().__init__(tracer, "P.loop_while(...)", (condition,))
        if not callable(cast(object, condition)):
            raise CompileError(
                Code.LOOP_WHILE,
                "P.loop_while(condition) is not a function",
                loc=self.pending.loc,
                why="the condition is asked again before each iteration",
                fix="write P.loop_while(lambda: slot_u64(0) > 0, max_iterations=n)",
            )
        self.condition = condition
        self.limit = as_symint(max_iterations)

    def open(self, axis: object, name: str | None) -> tuple[OpenLoop, SymInt]:
        var = new_variable(self.tracer, name, "while")
        limit, loc = lower(self.limit), self.pending.loc
        always = ir.Binary(ir.BinaryOp.EQ, ir.Const(0), ir.Const(0))
        loop = self.tracer.open_loop(ir.While(var, var, always, limit, (), loc), None)
        before = len(loop.body)
        condition = lower_bool(as_symbool(self.condition()))
        if len(loop.body) != before:
            raise CompileError(
                Code.LOOP_WHILE,
                "the condition of P.loop_while reads a tensor",
                loc=loc,
                why="it is asked before the iteration, in which the read would stand",
                fix="read it into a slot, before the loop and at the end of its body",
            )
        loop.head = ir.While(var, var, condition, limit, (), loc)
        return loop, loop.variable


class LoopForms:
    """`P(a, b, ...)`: loops with no order among iterations; `P.seq(a, ...)`: each iteration waits
    for the one before it. An axis is a parameter of the workload, an extent (an integer or an
    expression) or an element of an array parameter. `P.sel(routing[b])`: over the columns of a row.
    `P.loop_while(lambda: ..., max_iterations=n)`: while a condition over slots holds.

    `with P.when(condition):` holds tasks that exist only if it is true; `with P.when` and `with
    P.otherwise()` directly behind it are its other branches, of which the first true one is taken.
    """

    @overload
    def __call__(self, a: Loopable, /) -> Nest[SymInt]: ...
    @overload
    def __call__(self, a: Loopable, b: Loopable, /) -> Nest[Two]: ...
    @overload
    def __call__(self, a: Loopable, b: Loopable, c: Loopable, /) -> Nest[Three]: ...
    @overload
    def __call__(
        self, a: Loopable, b: Loopable, c: Loopable, d: Loopable, /, *more: Loopable
    ) -> Nest[tuple[SymInt, ...]]: ...
    def __call__(self, *axes: Loopable) -> Nest[Any]:
        return AxisNest(current("P(...)"), axes, ir.Order.PARALLEL)

    @overload
    def seq(self, a: Loopable, /) -> Nest[SymInt]: ...
    @overload
    def seq(self, a: Loopable, b: Loopable, /) -> Nest[Two]: ...
    @overload
    def seq(self, a: Loopable, b: Loopable, c: Loopable, /) -> Nest[Three]: ...
    @overload
    def seq(
        self, a: Loopable, b: Loopable, c: Loopable, d: Loopable, /, *more: Loopable
    ) -> Nest[tuple[SymInt, ...]]: ...
    def seq(self, *axes: Loopable) -> Nest[Any]:
        """Loops whose iterations run one after the other."""
        return AxisNest(current("P.seq(...)"), axes, ir.Order.SEQUENTIAL)

    def sel(self, row: Any) -> Nest[SymInt]:
        """The columns of one row of a sparse axis: `for e in P.sel(routing[b])`."""
        return SelNest(current("P.sel(...)"), row)

    def loop_while(
        self, condition: Callable[..., BoolLike], *, max_iterations: IntLike
    ) -> Nest[SymInt]:
        """Repeats while the condition holds; going on to hold after the limit is an error."""
        return WhileNest(current("P.loop_while(...)"), condition, max_iterations)

    def when(self, condition: BoolLike) -> Branch:
        """`with P.when(condition):` tasks that exist only if the condition holds."""
        return when(condition)

    def otherwise(self) -> Branch:
        """`with P.otherwise():` directly behind a P.when, for when it does not hold."""
        return otherwise()

    def pipe(self) -> Pipe:
        """`with P.pipe():` each statement of its body is a process, which goes on by itself and
        hears from others through channels."""
        return pipe()


P = LoopForms()


def _number(value: object, loc: SrcLoc | None) -> ir.Const:
    number = None if isinstance(value, bool) else as_int(value)
    if number is None or not 0 <= number < 2**63:
        shown = value if number is not None else kind_of(value)
        raise CompileError(
            Code.EXTENT,
            f"P(...) over {shown}",
            loc=loc,
            why="a loop runs over an axis, or over an extent of at least 0",
            fix="pass an axis parameter, an integer, or an element of an array parameter",
        )
    return ir.Const(number)
