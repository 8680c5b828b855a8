"""Memory that tensors and axes look at."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from pto_wsp import sharing, srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import TypeCheckError


def share(value: object, what: str) -> npt.NDArray[Any]:
    """A NumPy array over the memory of `value`; TypeCheckError if it cannot be used in place."""
    try:
        return sharing.share(value)
    except sharing.NotShared as refusal:
        raise TypeCheckError(
            Code.MEMORY_NOT_SHARED,
            f"{what} cannot share the memory of {refusal.what}",
            loc=srcloc.here(),
            why=refusal.why,
            fix=refusal.fix,
        ) from refusal


def same_memory(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> bool:
    """Two arrays that look at the same elements in the same way."""
    if a is b:
        return True
    start_a, start_b = a.__array_interface__["data"][0], b.__array_interface__["data"][0]
    return (start_a, a.shape, a.strides, a.dtype) == (start_b, b.shape, b.strides, b.dtype)
