"""What a workload is called with, turned into symbols, tensors and constants."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from pto_wsp import ir
from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.frontend.annotations import Scalar
from pto_wsp.frontend.axes import Dense, DenseDyn, Ragged, Sparse, Tiled, control_array
from pto_wsp.frontend.axis_params import ArrayParam, AxisParam
from pto_wsp.frontend.context import Scope
from pto_wsp.frontend.declarations import Default
from pto_wsp.frontend.scalar_expr import SymBool, SymFloat, SymInt, atom, kind_of
from pto_wsp.frontend.tensor import Tensor
from pto_wsp.srcloc import SrcLoc


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name that is declared for an argument, with its default."""

    decl: ir.SymbolDecl
    default: Default


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter: the value that the function sees while it is traced, and what is declared."""

    name: str
    value: object
    symbols: tuple[Symbol, ...] = ()
    tensors: tuple[Tensor, ...] = ()


def bind(
    function: Callable[..., object],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    loc: SrcLoc | None,
) -> tuple[Argument, ...]:
    """The arguments of a workload call, in the order of the parameters."""
    given = match_signature(function, args, kwargs, loc)
    names = {id(value): name for name, value in given.items()}
    return tuple(
        _argument(_Call(function.__name__, names, loc), key, value) for key, value in given.items()
    )


def match_signature(
    function: Callable[..., object],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    loc: SrcLoc | None,
) -> dict[str, Any]:
    """The value of each parameter of a workload function."""
    name = function.__name__
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise CompileError(
            Code.WORKLOAD_CALL,
            f"workload {name} is called with other arguments than it has parameters",
            loc=loc,
            why=str(error),
            fix=f"it is defined as {name}{inspect.signature(function)}",
        ) from None
    bound.apply_defaults()
    return bound.arguments


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a workload: `names` are those of its arguments, by identity."""

    workload: str
    names: dict[int, str]
    loc: SrcLoc | None

    def name_of(self, axis: object, part: str, of: object) -> str:
        """The parameter that an axis was given for, which another axis refers to."""
        found = self.names.get(id(axis))
        if found is not None:
            return found
        raise CompileError(
            Code.AXIS_NOT_PASSED,
            f"the {part} of {of!r} is not an argument of workload {self.workload}",
            loc=self.loc,
            why="rows are chosen by the loop over that same axis object"
            if part == "outer axis"
            else "execute binds it by the name of its own parameter",
            fix="b = DenseDyn(n); then pass both: work(b, Ragged(b, lengths))",
        )


def _argument(call: _Call, name: str, value: object) -> Argument:
    match value:
        case Dense():
            return Argument(name, AxisParam(name, value))
        case DenseDyn():
            return Argument(name, AxisParam(name, value), (_extent(name, value, call.loc),))
        case Ragged() | Sparse():
            return _rows(call, name, value)
        case Tiled():
            return _tiles(call, name, value)
        case Scalar():
            return _scalar(name, value, call.loc)
        case Tensor():
            tensor = value.named(name)
            return Argument(name, tensor, tensors=(tensor,))
        case bool() | int() | float():
            return Argument(name, value)
        case np.integer():
            return Argument(name, int(value))
        case np.floating():
            return Argument(name, float(cast(float, value)))
        case _ if _is_array(value):
            array = control_array(value, f"argument {name}", None)
            return Argument(name, ArrayParam(name, array.ndim), (_array(name, array, call.loc),))
        case _:
            raise CompileError(
                Code.WORKLOAD_ARGUMENT,
                f"argument {name} is {kind_of(value)}",
                loc=call.loc,
                why="a workload takes axes, integer arrays, Tensors, Scalars and plain numbers",
                fix="wrap data in Tensor(data=...), sizes in DenseDyn(n), numbers in Scalar(x)",
            )


def _is_array(value: object) -> bool:
    shared = hasattr(value, "__dlpack__") or hasattr(value, "__array_interface__")
    return shared or isinstance(value, list | tuple)


def _extent(name: str, axis: DenseDyn, loc: SrcLoc | None) -> Symbol:
    decl = ir.SymbolDecl(name, ir.SymbolKind.EXTENT, DType.I64, axis.extent, loc)
    return Symbol(decl, axis.extent)


def _array(name: str, array: np.ndarray[Any, Any], loc: SrcLoc | None) -> Symbol:
    dtype = DType.of(array.dtype)
    decl = ir.SymbolDecl(name, ir.SymbolKind.ARRAY, dtype, None, loc, array.ndim)
    return Symbol(decl, array)


def _rows(call: _Call, name: str, axis: Ragged | Sparse) -> Argument:
    """The arrays of an axis: symbols that control reads, or tensors."""
    outer = call.name_of(axis.outer, "outer axis", axis)
    parts = (
        {name: axis.lengths}
        if isinstance(axis, Ragged)
        else {f"{name}_indptr": axis.indptr, f"{name}_indices": axis.indices}
    )
    symbols = [_array(n, a, call.loc) for n, a in parts.items() if not isinstance(a, Tensor)]
    tensors = [(n, a) for n, a in parts.items() if isinstance(a, Tensor)]
    # Tensors that are arguments themselves keep the name of that argument.
    named = {id(a): a.named(call.names.get(id(a), n)) for n, a in tensors}
    if isinstance(axis, Ragged):
        lengths = named.get(id(axis.lengths), axis.lengths)
        seen: Ragged | Sparse = axis if lengths is axis.lengths else axis.over(lengths)
        names: dict[str, str] = {}
    else:
        arrays = [named.get(id(a), a) for a in (axis.indptr, axis.indices)]
        seen = axis.over(*arrays)
        names = dict(zip(("indptr", "indices", "outer"), (*parts, outer), strict=True))
    param = AxisParam(name, seen, names, axis)
    return Argument(name, param, tuple(symbols), tuple(named.values()))


def _tiles(call: _Call, name: str, axis: Tiled) -> Argument:
    """The extent under tiles has the name of its own parameter, or that of the tiles."""
    symbols: list[Symbol] = []
    names = {"extent": name}
    if id(axis.axis) in call.names or isinstance(axis.axis, Ragged):
        names["extent"] = call.name_of(axis.axis, "axis", axis)
    elif isinstance(axis.axis, DenseDyn):
        symbols.append(_extent(name, axis.axis, call.loc))
    if isinstance(axis.size, DenseDyn):
        names["size"] = call.name_of(axis.size, "size", axis)
    return Argument(name, AxisParam(name, axis, names), tuple(symbols))


def _scalar(name: str, scalar: Scalar, loc: SrcLoc | None) -> Argument:
    decl = ir.SymbolDecl(name, ir.SymbolKind.SCALAR, scalar.dtype, scalar.value, loc)
    return Argument(name, ScalarArgument(name, scalar.dtype), (Symbol(decl, scalar.value),))


@dataclass(frozen=True, slots=True)
class ScalarArgument:
    """Stands for a Scalar argument until the trace has a scope for its value."""

    name: str
    dtype: DType

    def value(self, scope: Scope) -> SymInt | SymBool | SymFloat:
        ref = ir.SymbolRef(self.name)
        match ir.scalar_type(self.dtype):
            case ir.ExprType.F64:
                return SymFloat(ref, frozenset({scope}))
            case ir.ExprType.BOOL:
                return SymBool(ref, frozenset({scope}))
            case ir.ExprType.I64:
                return atom(ref, scope)
