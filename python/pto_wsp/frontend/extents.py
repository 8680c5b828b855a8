"""Extents that a workload is made for: of what it is traced with, and of what is bound later."""

from __future__ import annotations

from typing import Any

from pto_wsp import ir, srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError, TypeCheckError
from pto_wsp.frontend import context
from pto_wsp.frontend.scalar_expr import as_symint
from pto_wsp.srcloc import SrcLoc

Extents = tuple[int | None, ...]  # None: any


def expect(tensor: Any, extents: Extents) -> None:
    """What is bound to the `Tensor`, now or at execute, has to have these; of one that is made in
    the workload, what is known is compared."""
    trace = context.active.get()
    if trace is None:
        raise CompileError(
            Code.OUTSIDE_WORKLOAD,
            "Tensor.expect outside a workload",
            loc=srcloc.here(),
            why="it is a workload that is made for certain extents",
            fix="call it inside the @workload function that takes the tensor",
        )
    tensor = tensor.base
    name = trace.tensor_name(tensor)
    if len(extents) != tensor.rank:
        raise TypeCheckError(
            Code.BINDING_EXTENT,
            f"{name} has {tensor.rank} dimensions",
            loc=srcloc.here(),
            why=f"the workload is made for {len(extents)}",
            fix="pass a tensor that fits, array.reshape(...)",
        )
    known = [as_symint(extent).polynomial for extent in tensor.extents()]
    for dim, (size, found) in enumerate(zip(extents, known, strict=True)):
        if size is not None and found.is_constant and size != found.constant:
            raise CompileError(
                Code.BINDING_EXTENT,
                f"{name} has the extent {found.constant} in dimension {dim}",
                loc=srcloc.here(),
                why=f"the workload is made for {size}",
                fix="make it for the extents that there are, or pass a tensor that fits",
            )
    if tensor.kind is ir.TensorKind.BOUND:
        trace.expect(name, extents, srcloc.here())


def joined(name: str, a: Extents, b: Extents, loc: SrcLoc | None) -> Extents:
    """What two declarations ask of one tensor."""
    if not a or not b:
        return a or b
    for dim, (one, other) in enumerate(zip(a, b, strict=True)):
        if None not in (one, other) and one != other:
            raise CompileError(
                Code.BINDING_EXTENT,
                f"{name} is to have the extents {one} and {other} in dimension {dim}",
                loc=loc,
                why="two parts of the program take this tensor, made for different extents",
                fix="make both for one extent, or give each a tensor of its own",
            )
    return tuple(two if one is None else one for one, two in zip(a, b, strict=True))
