"""Seeing the memory of other array libraries as NumPy arrays, without copying.

A copy would lose what tasks write, so whatever cannot be shared is refused.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from pto_wsp import srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import TypeCheckError


def share(value: object, what: str) -> npt.NDArray[Any]:
    """A NumPy array over the memory of `value`: NumPy, array interface or DLPack (torch)."""
    if isinstance(value, np.ndarray):
        return cast("npt.NDArray[Any]", value)
    if isinstance(value, np.generic | int | float | complex):
        number = cast(object, value)
        raise _refused(number, what, "a number has no memory to share", "pass an array")
    if isinstance(value, list | tuple):
        items = cast(object, value)
        raise _refused(items, what, "a list has no array memory", "pass np.array([...])")
    interface = getattr(value, "__array_interface__", None)
    if interface is not None:
        if not isinstance(interface.get("data"), tuple):  # then it made bytes for us
            raise _refused(value, what, "its array interface is a copy", "pass a NumPy array")
        return np.asarray(cast("npt.NDArray[Any]", value))
    if hasattr(value, "__dlpack__"):
        try:
            return np.from_dlpack(cast(Any, value))
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            fix = "pass a tensor in host memory, detached, of a dtype that NumPy has"
            raise _refused(value, what, str(error), fix) from error
    raise _refused(
        value,
        what,
        "it offers neither __array_interface__ nor __dlpack__",
        "pass a NumPy array, or one made from it",
    )


def same_memory(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> bool:
    """Two arrays that look at the same elements in the same way."""
    if a is b:
        return True
    start_a, start_b = a.__array_interface__["data"][0], b.__array_interface__["data"][0]
    return (start_a, a.shape, a.strides, a.dtype) == (start_b, b.shape, b.strides, b.dtype)


def _refused(value: object, what: str, why: str, fix: str) -> TypeCheckError:
    return TypeCheckError(
        Code.MEMORY_NOT_SHARED,
        f"{what} cannot share the memory of {type(value).__name__}",
        loc=srcloc.here(),
        why=why,
        fix=fix,
    )
