"""relayout: the same tensor under another layout."""

from __future__ import annotations

import copy

from pto_wsp import ir, srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import TypeCheckError
from pto_wsp.frontend.placement import check_order, check_temporary_order, checked_layout
from pto_wsp.frontend.tensor import Tensor


def relayout(tensor: Tensor, layout: ir.TensorLayout) -> Tensor:
    """The same tensor under another layout: the same data under the same name, with the same
    hazards. In one memory that takes no work, and memory order cannot be changed by it. Where
    several memories share a tensor, it is the place of a collective.
    """
    form = "relayout(...)"
    if not isinstance(tensor, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _bad(f"relayout of {type(tensor).__name__}", "it is for tensors", "pass a Tensor")
    if tensor.kind in (ir.TensorKind.TOKEN, ir.TensorKind.PAGED):
        why = "tokens have no data, and paged tensors lie where their table says"
        raise _bad(f"relayout of a {type(tensor).__name__}", why, "relayout the pool instead")
    found = checked_layout(form, layout, tensor.rank)
    if found is None:
        raise _bad(f"{form} without a layout", "it says how the tensor lies", "pass a TensorLayout")
    if tensor.kind is ir.TensorKind.TEMP:
        check_temporary_order(form, found)
    elif tensor.data is not None:
        check_order(form, found, tensor.data)
    elif found.mem is not None and found.mem != (tensor.layout and tensor.layout.mem):
        why = "its order in memory is known when it is bound"
        raise _bad(f"{form} to {found!r}", why, "say mem where the tensor is declared")
    other = copy.copy(tensor)
    other.layout = found
    other.origin = tensor.base
    return other


def _bad(what: str, why: str, fix: str) -> TypeCheckError:
    return TypeCheckError(Code.LAYOUT, what, loc=srcloc.here(), why=why, fix=fix)
