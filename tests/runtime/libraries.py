"""Arrays as other libraries offer them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

Array = np.ndarray[Any, Any]


class Interface:
    """Offers the array interface and nothing else."""

    def __init__(self, array: Array, **changes: Any) -> None:
        self.array = array
        self.__array_interface__ = {**array.__array_interface__, **changes}


class Capsule:
    """Offers DLPack and nothing else."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class OldCapsule(Capsule):
    """Offers DLPack as it was before version 1."""

    def __dlpack__(self, stream: None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.array.__dlpack__()


@dataclass(frozen=True)
class Library:
    """Makes arrays of its own from NumPy's, and shows what they hold."""

    make: Callable[[Array], Any]
    read: Callable[[Any], Array]


def torch_library() -> Library:
    torch = pytest.importorskip("torch")

    def make(array: Array) -> Any:
        if array.dtype == ml_dtypes.bfloat16:
            return torch.tensor(array.astype(np.float32)).to(torch.bfloat16)
        return torch.tensor(array)

    return Library(make, lambda tensor: tensor.double().numpy())


LIBRARIES: dict[str, Callable[[], Library]] = {
    "numpy": lambda: Library(np.copy, np.asarray),
    "interface": lambda: Library(lambda array: Interface(array.copy()), lambda value: value.array),
    "dlpack": lambda: Library(lambda array: Capsule(array.copy()), lambda value: value.array),
    "torch": torch_library,
}
