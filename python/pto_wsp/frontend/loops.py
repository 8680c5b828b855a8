"""P: the loops of a workload, and the parameters that they run over."""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType
from typing import Any, Generic, NoReturn, TypeAlias, TypeVar, cast, overload

import numpy as np

from pto_wsp import ir, srcloc
from pto_wsp.errors import CompileError
from pto_wsp.frontend.axes import Axis, Dense, DenseDyn, Ragged
from pto_wsp.frontend.names import loop_targets
from pto_wsp.frontend.refusal import (
    ARITHMETIC,
    COMPARISONS,
    CONVERSIONS,
    EQUALITY,
    ITERATION,
    TRUTH,
    UNTRACED_ARITHMETIC,
    refuse,
)
from pto_wsp.frontend.scalar_expr import SymInt, as_int, as_symint, atom, lower
from pto_wsp.frontend.trace import OpenLoop, Tracer, current
from pto_wsp.srcloc import SrcLoc

_NOT_IN_THIS_VERSION = ("sel", "when", "otherwise", "loop_while")


def _element(array: str, index: object) -> SymInt:
    """array[index], for control."""
    tracer = current(f"{array}[...]")
    number = as_int(index)
    if number is not None and number < 0:
        raise CompileError(
            f"{array}[{index}] cannot be traced",
            loc=srcloc.here(),
            why="the length of an array may change from run to run, so there is no counting from "
            "its end",
            fix="use an index of at least 0",
        )
    if isinstance(index, bool) or (number is None and not isinstance(index, SymInt)):
        raise CompileError(
            f"{array} is indexed with {type(index).__name__}",
            loc=srcloc.here(),
            why="control reads one element at a time",
            fix=f"write {array}[i] with a loop variable, an integer or an expression of them",
        )
    position = as_symint(index)
    return atom(ir.ArrayLoad(array, lower(position)), tracer.scope, *position.scopes)


@refuse(
    ARITHMETIC,
    UNTRACED_ARITHMETIC,
    COMPARISONS,
    EQUALITY,
    CONVERSIONS,
    TRUTH,
    ITERATION,
    message="a workload's array has no values while it is traced ({op})",
    why="the array is bound at execute, and may be another one in each run",
    fix="read one element, lens[i], as an index or as an extent: P(lens[i])",
)
class ArrayParam:
    """An array parameter inside a workload: `lens[i]` is a symbolic integer."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __getitem__(self, index: object) -> SymInt:
        return _element(self.name, index)

    def __repr__(self) -> str:
        return f"<array {self.name}>"


@refuse(
    ARITHMETIC,
    UNTRACED_ARITHMETIC,
    COMPARISONS,
    EQUALITY,
    CONVERSIONS,
    TRUTH,
    ITERATION,
    message="an axis is not a number or a sequence ({op})",
    why="its extent is bound at execute",
    fix="loop over it with `for i in P(axis)`; pass sizes that are constants as plain integers",
)
class AxisParam:
    """An axis parameter inside a workload; `toks[b]` is the length of row b of a ragged one."""

    __slots__ = ("axis", "name")

    def __init__(self, name: str, axis: Dense | DenseDyn | Ragged) -> None:
        self.name = name
        self.axis = axis

    def __getitem__(self, index: object) -> SymInt:
        if not isinstance(self.axis, Ragged):
            raise CompileError(
                f"axis {self.name} is indexed",
                loc=srcloc.here(),
                why=f"{self.axis!r} has one extent",
                fix=f"write P({self.name}); a Ragged axis has an extent for each row",
            )
        return _element(self.name, index)

    def __repr__(self) -> str:
        return f"<axis {self.name}: {self.axis!r}>"


# Inside a workload an axis is an AxisParam; users may annotate the parameter with what they pass.
Loopable: TypeAlias = AxisParam | Axis | SymInt | int | np.integer[Any]
Variables = TypeVar("Variables")
Two: TypeAlias = tuple[SymInt, SymInt]
Three: TypeAlias = tuple[SymInt, SymInt, SymInt]


class Nest(Generic[Variables]):
    """Nested loops over some axes, for one `for` statement; the body is traced once."""

    def __init__(self, tracer: Tracer, axes: tuple[object, ...], order: ir.Order) -> None:
        form = "P(...)" if order is ir.Order.PARALLEL else "P.seq(...)"
        self.pending = tracer.expect_use(form, f"write `for i in {form}:` with calls in its body")
        if not axes:
            raise CompileError(
                f"{form} without an axis",
                loc=self.pending.loc,
                why="a loop needs an extent",
                fix="pass axes, extents, or elements of an array: P(rows), P(8), P(lens[b])",
            )
        self.tracer = tracer
        self.axes = axes
        self.order = order

    def __iter__(self) -> Iterator[Variables]:
        self.pending.used = True
        return _NestIterator(self)


class _NestIterator(Iterator[Variables]):
    """Opens the loops at the first step and closes them at the second. If there is no second, the
    loop was left early: the interpreter then drops this object while it stands at that line."""

    def __init__(self, nest: Nest[Variables]) -> None:
        self._nest = nest
        self._open: list[OpenLoop] = []
        self._code: CodeType | None = None  # the user's function that holds the `for` statement
        self._begun = False

    def __next__(self) -> Variables:
        nest = self._nest
        if not self._begun:
            self._begun = True
            frame = srcloc.user_frame()
            self._code = None if frame is None else frame.f_code
            targets = loop_targets(frame, len(nest.axes))
            for position, axis in enumerate(nest.axes):
                name = targets[position] if targets is not None else None
                head, of_axis = _head(nest, axis, name)
                self._open.append(nest.tracer.open_loop(head, of_axis))
            variables = [loop.variable for loop in self._open]
            item = variables[0] if len(variables) == 1 else tuple(variables)
            return cast(Variables, item)
        while self._open:
            nest.tracer.close_loop(self._open[-1])
            self._open.pop()
        raise StopIteration

    def __del__(self) -> None:
        if not self._open or not self._open[0].scope.is_open:
            return
        frame = srcloc.user_frame()
        at_the_loop = frame is not None and frame.f_code is self._code
        loc = srcloc.of_frame(frame) if at_the_loop else self._nest.pending.loc
        self._nest.tracer.left_early(loc)


class LoopForms:
    """`P(a, b, ...)`: loops with no order among iterations; `P.seq(a, ...)`: each iteration waits
    for the one before it. An axis is a parameter of the workload, an extent (an integer or an
    expression) or an element of an array parameter."""

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
        return Nest(current("P(...)"), axes, ir.Order.PARALLEL)

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
        return Nest(current("P.seq(...)"), axes, ir.Order.SEQUENTIAL)

    def __getattr__(self, name: str) -> NoReturn:
        if name in _NOT_IN_THIS_VERSION:
            raise CompileError(
                f"P.{name} is not in this version",
                loc=srcloc.here(),
                why="workloads have P(...) and P.seq(...) loops",
                fix="decide inside a kernel, or bind extents and arrays that say the same",
            )
        raise AttributeError(name)


P = LoopForms()


def _head(nest: Nest[Any], axis: object, name: str | None) -> tuple[ir.Loop, Axis | None]:
    """The loop over one axis, without its body, and the axis object that it runs over."""
    loc = nest.pending.loc
    match axis:
        case AxisParam(axis=Dense() as dense):
            return _loop(nest, name, axis.name, ir.AxisKind.DENSE, ir.Const(dense.extent)), dense
        case AxisParam(axis=DenseDyn() as dense):
            extent = ir.SymbolRef(axis.name)
            return _loop(nest, name, axis.name, ir.AxisKind.DENSE_DYN, extent), dense
        case AxisParam(axis=Ragged() as ragged):
            parent = _row_variable(nest.tracer, axis.name, ragged, loc)
            return _ragged(nest, name, ir.ArrayLoad(axis.name, parent), parent.name), None
        case Dense():
            return _loop(nest, name, None, ir.AxisKind.DENSE, ir.Const(axis.extent)), axis
        case SymInt():
            return _symbolic(nest, axis, name), None
        case DenseDyn() | Ragged():
            raise CompileError(
                f"{axis!r} is not a parameter of the workload",
                loc=loc,
                why="execute binds its extent by the name of the parameter",
                fix="pass the axis to the workload as an argument",
            )
        case _:
            return _loop(nest, name, None, ir.AxisKind.DENSE, _number(axis, loc)), None


def _symbolic(nest: Nest[Any], extent: SymInt, name: str | None) -> ir.Loop:
    """A loop over an expression; an array element at the place of a loop variable is ragged."""
    expr = lower(extent)
    match expr:
        case ir.ArrayLoad(_, ir.LoopVar(parent)):
            return _ragged(nest, name, expr, parent)
        case ir.Const(value):
            return _loop(nest, name, None, ir.AxisKind.DENSE, _number(value, nest.pending.loc))
        case ir.ArrayLoad(array, _):
            return _loop(nest, name, array, ir.AxisKind.EXPR, expr)
        case _:
            return _loop(nest, name, None, ir.AxisKind.EXPR, expr)


def _ragged(nest: Nest[Any], name: str | None, extent: ir.ArrayLoad, parent: str) -> ir.Loop:
    array = extent.array
    kind = ir.AxisKind.RAGGED
    return _loop(nest, name, array, kind, extent, lengths=array, parent=parent)


def _loop(
    nest: Nest[Any],
    name: str | None,
    axis: str | None,
    kind: ir.AxisKind,
    extent: ir.Expr,
    *,
    lengths: str | None = None,
    parent: str | None = None,
) -> ir.Loop:
    wanted = name if name is not None and name.strip("_") else axis or "i"
    taken = {loop.head.var for loop in nest.tracer.loops}
    var, number = wanted, 2
    while var in taken:
        var, number = f"{wanted}_{number}", number + 1
    loc = nest.pending.loc
    return ir.Loop(
        var, axis or var, kind, nest.order, ir.Const(0), extent, (), lengths, parent, loc
    )


def _row_variable(tracer: Tracer, name: str, axis: Ragged, loc: SrcLoc | None) -> ir.LoopVar:
    """The variable of the innermost open loop over the outer axis of a ragged one."""
    for loop in reversed(tracer.loops):
        if loop.axis is axis.outer:
            return ir.LoopVar(loop.head.var)
    raise CompileError(
        f"ragged axis {name} outside a loop over its outer axis",
        loc=loc,
        why=f"its extent is one of the lengths, chosen by the index of {axis.outer!r}",
        fix=f"loop over the outer axis first, or name the row: P({name}[b])",
    )


def _number(value: object, loc: SrcLoc | None) -> ir.Const:
    number = None if isinstance(value, bool) else as_int(value)
    if number is None or not 0 <= number < 2**63:
        shown = value if number is not None else type(value).__name__
        raise CompileError(
            f"P(...) over {shown}",
            loc=loc,
            why="a loop runs over an axis, or over an extent of at least 0",
            fix="pass an axis parameter, an integer, or an element of an array parameter",
        )
    return ir.Const(number)
