"""Python kernel bodies called from native worker threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt

from pto_wsp.dtypes import DType
from pto_wsp.plan import AccessMode, Kernel, Param, ParamKind, Plan

Dispatch = Callable[[list[npt.NDArray[Any]], tuple[int, ...]], None]


def make_dispatch(plan: Plan, kernel: int, fn: Callable[..., None]) -> Dispatch:
    """A function that native code calls with the views of one task."""
    record = plan.records(Kernel)[kernel]
    params = plan.records(Param)[record.params : record.params + record.num_params]
    tensors = [p for p in params if p.kind in (ParamKind.TENSOR, ParamKind.TILE)]
    # NumPy has no bfloat16 of its own, so native code hands over the bits.
    recast = [DType(p.dtype).numpy if p.dtype == DType.BF16 else None for p in tensors]
    read_only = [p.mode == AccessMode.IN for p in tensors]

    def dispatch(views: list[npt.NDArray[Any]], indices: tuple[int, ...]) -> None:
        for i, dtype in enumerate(recast):
            if dtype is not None:
                views[i] = views[i].view(dtype)
            if read_only[i]:
                views[i].flags.writeable = False
        fn(*views)

    return dispatch
