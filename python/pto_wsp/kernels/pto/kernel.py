"""Traces the body of a kernel into tile operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.kernels.pto.refs import Ref
from pto_wsp.kernels.pto.shrinking import refuse_shrinking
from pto_wsp.kernels.pto.trace import Trace, active
from pto_wsp.kernels.pto.values import ScalarValue
from pto_wsp.kernels.tile_ir import RefType, ScalarType, TileKernel, check, simplify
from pto_wsp.kernels.tile_ir.renumber import renumber
from pto_wsp.srcloc import SrcLoc


@dataclass(frozen=True, slots=True)
class TracedParam:
    """A parameter: memory, a scalar, or the constant that it is in this specialisation; None of a
    token, which has no elements."""

    name: str
    type: RefType | ScalarType | int | float | bool | None


def trace_kernel(
    name: str,
    function: Callable[..., Any],
    params: Sequence[TracedParam],
    loc: SrcLoc | None = None,
) -> TileKernel:
    """The tile operations that a function does with its parameters."""
    trace = Trace(name, function.__code__)
    values = [
        trace.value(p.type, p.name) for p in params if isinstance(p.type, RefType | ScalarType)
    ]
    arguments: list[Any] = []
    following = iter(values)
    for param in params:
        match param.type:
            case RefType():
                arguments.append(Ref(trace, next(following), param.type))
            case ScalarType():
                arguments.append(ScalarValue(trace, trace.frame, next(following)))
            case constant:
                arguments.append(constant)
    token = active.set(trace)
    try:
        returned = function(*arguments)
    finally:
        active.reset(token)
    trace.check_ended()
    if returned is not None:
        raise CompileError(
            Code.KERNEL_BODY,
            f"kernel {name} returns a value",
            loc=loc,
            why="a kernel writes what it computes",
            fix="store it: pto.store(y, value)",
        )
    body = tuple(trace.frame.statements)
    trace.frame.is_open = False
    kernel = renumber(TileKernel(name, tuple(values), body, loc), trace.names)
    kernel = renumber(simplify(kernel))
    check(kernel)
    refuse_shrinking(kernel)
    return kernel
