"""Locations and layouts that a user gives to a tensor, checked where the tensor is made."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from pto_wsp import srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import TypeCheckError
from pto_wsp.ir import Location, MemLayout, TensorLayout

OFF_CHIP = (Location.Global, Location.L2)
_COPY = "np.asfortranarray, np.ascontiguousarray and kernels copy to another order"


def checked_location(form: str, location: object, legal: tuple[Location, ...]) -> Location:
    if location in legal:
        assert isinstance(location, Location)
        return location
    if isinstance(location, Location):
        raise TypeCheckError(
            Code.LOCATION,
            f"{form}(...) in {location.name}",
            loc=srcloc.here(),
            why="UB and L1 are on the chip, where only temporaries lie",
            fix="use Location.Global or Location.L2, or Tensor.temp(...) for an intermediate",
        )
    raise TypeCheckError(
        Code.LOCATION,
        f"{form}(...) with location={location!r}",
        loc=srcloc.here(),
        why="that is no memory",
        fix=f"use {' or '.join(map(repr, legal))}",
    )


def checked_layout(form: str, layout: object, rank: int) -> TensorLayout | None:
    if layout is None:
        return None
    if not isinstance(layout, TensorLayout):
        raise TypeCheckError(
            Code.LAYOUT,
            f"{form} with layout={layout!r}",
            loc=srcloc.here(),
            why="that is no layout",
            fix="write TensorLayout((TensorShard(0), TensorReplicate()))",
        )
    if layout.rank != rank:
        raise TypeCheckError(
            Code.LAYOUT,
            f"{form} with the layout {layout!r}",
            loc=srcloc.here(),
            why=f"the layout has rank {layout.rank}, the tensor {rank}",
            fix="give TensorShard(axis) or TensorReplicate() for each dimension",
        )
    return layout


def check_order(form: str, layout: TensorLayout | None, array: npt.NDArray[Any] | None) -> None:
    """What a layout says of memory must be true of the array."""
    if layout is None or layout.mem is None or array is None:
        return
    strides = [stride // array.itemsize for stride in array.strides]
    if not layout.mem.fits(array.shape, strides):
        raise TypeCheckError(
            Code.LAYOUT,
            f"{form} with the layout {layout!r}",
            loc=srcloc.here(),
            why=f"the array of shape {array.shape} has the strides {tuple(strides)}",
            fix=f"leave mem out, or say {_nearest(array)}; {_COPY}",
        )


def check_temporary_order(form: str, layout: TensorLayout | None) -> None:
    if layout is not None and layout.mem not in (None, MemLayout.row_major()):
        raise TypeCheckError(
            Code.LAYOUT,
            f"{form} with the layout {layout!r}",
            loc=srcloc.here(),
            why="temporaries are made in row-major order",
            fix="leave mem out",
        )


def _nearest(array: npt.NDArray[Any]) -> str:
    """The order that an array has."""
    strides = tuple(stride // array.itemsize for stride in array.strides)
    for mem in (MemLayout.row_major(), MemLayout.col_major()):
        if mem.fits(array.shape, strides):
            return mem.code
    return MemLayout.strided(*strides).code
