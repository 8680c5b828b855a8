"""Tile operations in a plan as a kernel that can be called, and as one that can be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError, PlanError
from pto_wsp.kernels.numpy_eval import evaluate
from pto_wsp.kernels.tile_ir import RefType, ScalarType, TileKernel, check, from_text
from pto_wsp.plan import Kernel, Param, ParamKind, Plan

# What a tile kernel does not see: constants are part of its text, a token has no elements.
_UNSEEN = (ParamKind.CONSTEXPR, ParamKind.TOKEN)


def tile_kernel(plan: Plan, index: int) -> TileKernel:
    """The tile operations of a kernel; PlanError if they are not legal or not for its
    parameters."""
    body = plan.body(index)
    assert body is not None
    name = plan.kernel_names[index]
    try:
        kernel = from_text(body.data.decode(), f"<kernel {name}>")
        check(kernel)
    except (CompileError, UnicodeDecodeError) as error:
        why = error.message if isinstance(error, CompileError) else "it is not text"
        raise PlanError(
            Code.PLAN_DAMAGED, f"the tile operations of kernel {name!r}: {why}"
        ) from error
    seen = [param for param in kernel_params(plan, index) if param.kind not in _UNSEEN]
    found = [_shown(param.type) for param in kernel.params]
    if found != [_declared(param) for param in seen]:
        message = f"the tile operations of kernel {name!r} are for other parameters"
        raise PlanError(Code.PLAN_DAMAGED, message)
    return kernel


def tile_function(plan: Plan, index: int) -> Callable[..., None]:
    """A function of the arguments that a Python body gets."""
    kernel = tile_kernel(plan, index)
    seen = [i for i, param in enumerate(kernel_params(plan, index)) if param.kind not in _UNSEEN]

    def run(*arguments: Any) -> None:
        evaluate(kernel, [arguments[i] for i in seen])

    return run


def kernel_params(plan: Plan, index: int) -> tuple[Param, ...]:
    """The parameters of a kernel, in their order."""
    record = plan.records(Kernel)[index]
    return plan.records(Param)[record.params : record.params + record.num_params]


def _declared(param: Param) -> tuple[object, ...]:
    if param.kind == ParamKind.SCALAR:
        return (DType(param.dtype),)
    return DType(param.dtype), param.rank, param.mode, param.kind == ParamKind.PAGED


def _shown(of_type: object) -> tuple[object, ...]:
    if isinstance(of_type, ScalarType):
        return (of_type.dtype,)
    assert isinstance(of_type, RefType)  # check says so
    return of_type.dtype, of_type.rank, of_type.mode, of_type.paged
