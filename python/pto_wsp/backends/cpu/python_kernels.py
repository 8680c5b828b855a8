"""Python kernel bodies called from native worker threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pto_wsp.dtypes import DType
from pto_wsp.kernels import gathered, scalar_value, scattered
from pto_wsp.plan import AccessMode, Kernel, Param, ParamKind, Plan

# Views are arrays; of a token None, of a paged parameter a list of arrays.
Dispatch = Callable[[list[Any], list[int]], None]

_VALUES = (ParamKind.SCALAR, ParamKind.CONSTEXPR)


def make_dispatch(plan: Plan, kernel: int, fn: Callable[..., None]) -> Dispatch:
    """A function that native code calls with the views and the scalars of one task."""
    record = plan.records(Kernel)[kernel]
    params = plan.records(Param)[record.params : record.params + record.num_params]
    regions = [p for p in params if p.kind not in _VALUES]
    # NumPy has no bfloat16 of its own, so native code hands over the bits.
    recast = [DType(p.dtype).numpy if p.dtype == DType.BF16 else None for p in regions]
    plain = [p.kind in (ParamKind.TENSOR, ParamKind.TILE) for p in regions]
    read_only = [p.mode == AccessMode.IN for p in regions]
    arrange = None if len(regions) == len(params) else _arrange(params)

    def dispatch(views: list[Any], scalars: list[int]) -> None:
        for i, dtype in enumerate(recast):
            if not plain[i]:
                continue
            if dtype is not None:
                views[i] = views[i].view(dtype)
            if read_only[i]:
                views[i].flags.writeable = False
        fn(*(views if arrange is None else arrange(views, scalars)))

    return dispatch if all(plain) else _with_pages(regions, dispatch)


def _with_pages(regions: list[Param], dispatch: Dispatch) -> Dispatch:
    paged = [(i, p) for i, p in enumerate(regions) if p.kind == ParamKind.PAGED]

    def gather(views: list[Any], scalars: list[int]) -> None:
        pages: dict[int, list[Any]] = {}
        for i, param in paged:
            dtype = DType(param.dtype).numpy
            pages[i] = [page.view(dtype) for page in views[i]]
            views[i] = gathered(pages[i], AccessMode(param.mode))
        copies = list(views)
        dispatch(views, scalars)
        for i, param in paged:
            if param.mode != AccessMode.IN:
                scattered(copies[i], pages[i])

    return gather


def _arrange(params: tuple[Param, ...]) -> Callable[[list[Any], list[int]], list[Any]]:
    """Puts views, scalars and constants into the order of the parameters."""

    def arrange(views: list[Any], scalars: list[int]) -> list[Any]:
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
