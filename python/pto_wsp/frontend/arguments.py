"""What a workload is called with, turned into symbols, tensors and constants."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pto_wsp import ir
from pto_wsp.dtypes import DType
from pto_wsp.errors import CompileError
from pto_wsp.frontend.axes import Dense, DenseDyn, Ragged, control_array
from pto_wsp.frontend.declarations import Default
from pto_wsp.frontend.loops import ArrayParam, AxisParam
from pto_wsp.frontend.tensor import Tensor
from pto_wsp.srcloc import SrcLoc


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter: the value that the function sees while it is traced, and what is declared."""

    name: str
    value: object
    symbol: ir.SymbolDecl | None = None
    default: Default | None = None
    tensor: Tensor | None = None


def bind(
    function: Callable[..., object],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    loc: SrcLoc | None,
) -> tuple[Argument, ...]:
    """The arguments of a workload call, in the order of the parameters."""
    name = function.__name__
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise CompileError(
            f"workload {name} is called with other arguments than it has parameters",
            loc=loc,
            why=str(error),
            fix=f"it is defined as {name}{inspect.signature(function)}",
        ) from None
    bound.apply_defaults()
    for value in bound.arguments.values():
        if isinstance(value, Ragged):
            _check_outer(name, value, bound.arguments, loc)
    return tuple(_argument(key, value, loc) for key, value in bound.arguments.items())


def _argument(name: str, value: object, loc: SrcLoc | None) -> Argument:
    match value:
        case Dense():
            return Argument(name, AxisParam(name, value))
        case DenseDyn():
            extent = ir.SymbolDecl(name, ir.SymbolKind.EXTENT, DType.I64, value.extent, loc)
            return Argument(name, AxisParam(name, value), extent, value.extent)
        case Ragged():
            return _array(name, AxisParam(name, value), value.lengths, loc)
        case Tensor():
            tensor = value.named(name)
            return Argument(name, tensor, tensor=tensor)
        case int():
            return Argument(name, value)
        case np.integer():
            return Argument(name, int(value))
        case _ if _is_array(value):
            return _array(name, ArrayParam(name), control_array(value, f"argument {name}"), loc)
        case _:
            raise CompileError(
                f"argument {name} is {type(value).__name__}",
                loc=loc,
                why="a workload takes axes, 1-D integer arrays, Tensors and plain integers",
                fix="wrap data in Tensor(data=...), and sizes in DenseDyn(n)",
            )


def _is_array(value: object) -> bool:
    shared = hasattr(value, "__dlpack__") or hasattr(value, "__array_interface__")
    return shared or isinstance(value, list | tuple)


def _array(name: str, value: object, array: np.ndarray[Any, Any], loc: SrcLoc | None) -> Argument:
    dtype = DType.of(array.dtype)
    symbol = ir.SymbolDecl(name, ir.SymbolKind.ARRAY, dtype, None, loc)
    return Argument(name, value, symbol, array)


def _check_outer(
    workload: str, axis: Ragged, arguments: dict[str, Any], loc: SrcLoc | None
) -> None:
    if any(other is axis.outer for other in arguments.values()):
        return
    raise CompileError(
        f"the outer axis of {axis!r} is not an argument of workload {workload}",
        loc=loc,
        why="rows are chosen by the loop over that same axis object",
        fix="b = DenseDyn(n); then pass both: work(b, Ragged(b, lengths))",
    )
