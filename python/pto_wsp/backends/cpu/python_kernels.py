"""Python kernel bodies called from native worker threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt

from pto_wsp.dtypes import DType
from pto_wsp.kernels import scalar_value
from pto_wsp.plan import AccessMode, Kernel, Param, ParamKind, Plan

Dispatch = Callable[[list[npt.NDArray[Any]], list[int]], None]


def make_dispatch(plan: Plan, kernel: int, fn: Callable[..., None]) -> Dispatch:
    """A function that native code calls with the views and the scalars of one task."""
    record = plan.records(Kernel)[kernel]
    params = plan.records(Param)[record.params : record.params + record.num_params]
    tensors = [p for p in params if p.kind in (ParamKind.TENSOR, ParamKind.TILE)]
    # NumPy has no bfloat16 of its own, so native code hands over the bits.
    recast = [DType(p.dtype).numpy if p.dtype == DType.BF16 else None for p in tensors]
    read_only = [p.mode == AccessMode.IN for p in tensors]
    arrange = None if len(tensors) == len(params) else _arrange(params)

    def dispatch(views: list[npt.NDArray[Any]], scalars: list[int]) -> None:
        for i, dtype in enumerate(recast):
            if dtype is not None:
                views[i] = views[i].view(dtype)
            if read_only[i]:
                views[i].flags.writeable = False
        fn(*(views if arrange is None else arrange(views, scalars)))

    return dispatch


def _arrange(params: tuple[Param, ...]) -> Callable[[list[npt.NDArray[Any]], list[int]], list[Any]]:
    """Puts views, scalars and constants into the order of the parameters."""

    def arrange(views: list[npt.NDArray[Any]], scalars: list[int]) -> list[Any]:
        view, scalar = iter(views), iter(scalars)
        out: list[Any] = []
        for param in params:
            if param.kind == ParamKind.SCALAR:
                out.append(scalar_value(DType(param.dtype), next(scalar)))
            elif param.kind == ParamKind.CONSTEXPR:
                out.append(scalar_value(DType(param.dtype), param.value))
            else:
                out.append(next(view))
        return out

    return arrange
