"""The part of a tensor that a task touches, and the parameters that get such parts."""

from __future__ import annotations

from dataclasses import dataclass

from pto_wsp.plan import AccessMode, Kernel, Param, ParamKind, Plan


@dataclass(frozen=True, slots=True)
class DimRange:
    """Elements start, start + step, ... (`extent` of them). The kernel does not see a dropped
    dimension."""

    start: int
    extent: int
    step: int
    dropped: bool


@dataclass(frozen=True, slots=True)
class Region:
    """The part of a tensor that a task touches, and the parameters that get such parts."""

    tensor: int
    mode: AccessMode
    dims: tuple[DimRange, ...]
    pages: tuple[int, ...] = ()  # of a paged tensor: where its tokens lie, in their order


def params_of(plan: Plan, kernel: int) -> tuple[Param, ...]:
    record = plan.records(Kernel)[kernel]
    return plan.records(Param)[record.params : record.params + record.num_params]


def region_params(plan: Plan, kernel: int) -> list[Param]:
    """The parameters of a kernel that are regions, in order."""
    values = (ParamKind.SCALAR, ParamKind.CONSTEXPR)
    return [param for param in params_of(plan, kernel) if param.kind not in values]
