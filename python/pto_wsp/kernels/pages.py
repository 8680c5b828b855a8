"""Paged arguments of Python bodies: NumPy has no view of scattered pages, so the tokens are copied
into one array, and back after the call where the body may have written them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pto_wsp.plan import AccessMode

Array = npt.NDArray[Any]


def gathered(pages: list[Array], mode: AccessMode) -> Array:
    """The tokens of all pages as one array; read-only if the task only reads."""
    array = np.concatenate(pages)
    if mode == AccessMode.IN:
        array.flags.writeable = False
    return array


def scattered(array: Array, pages: list[Array]) -> None:
    """Puts the tokens back onto their pages."""
    first = 0
    for page in pages:
        page[...] = array[first : first + len(page)]
        first += len(page)
