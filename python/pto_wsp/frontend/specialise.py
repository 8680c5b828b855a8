"""Specialisations of a kernel outside of workloads: from arrays, or what is said about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from pto_wsp import ir, srcloc
from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import TypeCheckError
from pto_wsp.frontend.annotations import (
    ConstexprParam,
    Param,
    ScalarParam,
    TensorParam,
    constant_decl,
)
from pto_wsp.frontend.memory import share

Array = npt.NDArray[Any]


def decls_of(
    kernel: str, params: tuple[Param, ...], given: Mapping[str, object]
) -> tuple[ir.AnyParam, ...]:
    """The parameters from what is given: arrays, or (dtype, rank), for tensors, numbers for
    constants. Tiles and scalars say all by themselves."""
    return tuple(_decl(kernel, param, given.get(param.name)) for param in params)


def _decl(kernel: str, param: Param, value: object) -> ir.AnyParam:
    if isinstance(param, ConstexprParam):
        value = param.default if value is None else value
        if value is None:
            raise _lacks(kernel, param, "the constant", f"{param.name}=64")
        return constant_decl(kernel, param, value)
    if isinstance(param, ScalarParam):
        return ir.ScalarDecl(param.name, param.dtype)
    tile, view = param.tile, param.view
    if tile is not None:
        return ir.ParamDecl(
            *(param.name, param.mode, tile.dtype, len(tile.shape), tile.shape),
            location=tile.location,
        )
    if view is ir.ViewKind.TOKEN:
        return ir.ParamDecl(param.name, param.mode, DType.BOOL, 1, None, view)
    dtype, rank = _tensor_type(kernel, param, value)
    return ir.ParamDecl(param.name, param.mode, dtype, rank, None, view)


def _tensor_type(kernel: str, param: TensorParam, value: object) -> tuple[DType, int]:
    match value:
        case (DType() as dtype, int(rank)):
            return dtype, rank
        case None:
            raise _lacks(kernel, param, "its dtype and rank", f"{param.name}=(DType.F32, 2)")
        case _:
            array = as_array(kernel, param.name, value)
            return dtype_of(kernel, param.name, array), array.ndim


def _lacks(kernel: str, param: Param, what: str, example: str) -> TypeCheckError:
    return TypeCheckError(
        Code.KERNEL_ARGUMENT,
        f"kernel {kernel}: {param.name} is not known",
        loc=srcloc.here(),
        why=f"a specialisation needs {what}",
        fix=f"write {kernel}.trace({example})",
    )


def as_array(kernel: str, name: str, value: object) -> Array:
    """The memory of an array-like, where it lies."""
    return share(value, f"kernel {kernel}: {name}")


def dtype_of(kernel: str, name: str, array: Array) -> DType:
    try:
        return DType.of(array.dtype)
    except TypeError as error:
        raise TypeCheckError(
            Code.KERNEL_ARGUMENT,
            f"kernel {kernel}: {name} is an array of {array.dtype}",
            loc=srcloc.here(),
            why=str(error),
            fix="convert the array",
        ) from None


def check_fit(kernel: str, param: TensorParam, array: Array) -> None:
    """Whether a kernel takes an array; TypeCheckError if not."""
    tile = param.tile
    what = why = ""
    if tile is not None and (array.dtype != tile.dtype.numpy or array.ndim != len(tile.shape)):
        what = f"{param.name} is an array of {array.dtype} with rank {array.ndim}"
        why = f"the parameter has {tile.dtype.text} and rank {len(tile.shape)}"
    elif tile is not None and any(a > b for a, b in zip(array.shape, tile.shape, strict=True)):
        what, why = f"{param.name} has shape {array.shape}", f"its tile holds at most {tile.shape}"
    elif param.mode is not ir.Mode.IN and not array.flags.writeable:
        what, why = f"{param.name} is read-only", "the kernel writes it"
    if what:
        raise TypeCheckError(
            Code.TILE_MISFIT,
            f"kernel {kernel}: {what}",
            loc=srcloc.here(),
            why=why,
            fix="pass an array that fits, or a slice of it",
        )
