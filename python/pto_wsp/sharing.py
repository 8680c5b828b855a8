"""Seeing the memory of other array libraries as NumPy arrays, without copying.

A copy would lose what tasks write, so whatever cannot be used in place is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from pto_wsp import dlpack


class NotShared(Exception):
    """The memory of `what` cannot be used in place. Callers make it an error about the name that
    the user gave it."""

    def __init__(self, what: str, why: str, fix: str) -> None:
        super().__init__(f"{what}: {why}")
        self.what = what
        self.why = why
        self.fix = fix


class ArrayHolder:
    """What stands for an array of its own: a Tensor."""

    __slots__ = ()

    @property
    def data(self) -> npt.NDArray[Any] | None:
        """The array; None without one."""
        return None


@dataclass(frozen=True, slots=True, eq=False)
class DeviceArray:
    """An array in the memory of a device; `array` is what the target's own library calls it."""

    array: Any
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def ndim(self) -> int:
        return len(self.shape)


def share(value: object) -> npt.NDArray[Any]:
    """A NumPy array, of no subclass, over the memory of `value`: NumPy, the array interface or
    DLPack. Kernels may use its elements where they lie, whatever the strides; NotShared if not."""
    if type(value) is np.ndarray and value.flags.carray:  # the usual case, which costs little
        return value
    if isinstance(value, ArrayHolder):
        if value.data is None:
            raise NotShared("a Tensor without data", "it has no memory", "pass an array")
        return value.data
    array = _find(value)
    kind = _kind(value)
    for extent, stride in zip(array.shape, array.strides, strict=True):
        if extent > 1 and array.itemsize > 0 and stride % array.itemsize:
            raise NotShared(
                f"{kind} with a stride of {stride} bytes",
                f"that is no whole number of elements, which have {array.itemsize}",
                "pass a copy of it",
            )
    if not array.flags.aligned:
        raise NotShared(
            f"{kind} that is not aligned",
            f"kernels in C++ read {array.dtype} only at addresses that are multiples of "
            f"{array.dtype.alignment}",
            "pass a copy of it",
        )
    return array


def _kind(value: object) -> str:
    """list, numpy.ndarray, torch.Tensor"""
    cls = type(value)
    return cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__name__}"


def _find(value: object) -> npt.NDArray[Any]:
    kind = _kind(value)
    if isinstance(value, np.ma.MaskedArray):
        raise NotShared(
            kind, "tasks would not see its mask", "pass its elements, array.data, or array.filled()"
        )
    if isinstance(value, np.ndarray):
        return np.asarray(cast("npt.NDArray[Any]", value))
    if isinstance(value, np.generic | int | float | complex):
        raise NotShared(kind, "a number has no memory to share", "pass an array")
    if isinstance(value, list | tuple):
        raise NotShared(kind, "a list has no array memory", "pass np.array([...])")
    interface = getattr(value, "__array_interface__", None)
    fix = "pass a NumPy array, or one made from it"
    try:
        if interface is not None:
            return _from_interface(cast(Any, value), interface)
        if hasattr(value, "__dlpack__"):
            fix = "pass a tensor in host memory, detached, of a dtype that DType has"
            return dlpack.view(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise NotShared(kind, str(error), fix) from error
    raise NotShared(kind, "it offers neither __array_interface__ nor __dlpack__", fix)


def _from_interface(value: Any, interface: dict[str, object]) -> npt.NDArray[Any]:
    if not isinstance(interface.get("data"), tuple):  # then it made bytes for us
        raise BufferError("its array interface is a copy")
    if interface.get("mask") is not None:
        raise BufferError("tasks would not see the mask of its array interface")
    return np.asarray(value)
