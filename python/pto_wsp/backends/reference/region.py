"""The part of a tensor that a task touches."""

from __future__ import annotations

from dataclasses import dataclass

from pto_wsp.plan import AccessMode


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
    """The part of a tensor that a task touches."""

    tensor: int
    mode: AccessMode
    dims: tuple[DimRange, ...]
    pages: tuple[int, ...] = ()  # of a paged tensor: where its tokens lie, in their order
