"""Arrays of other libraries, in the memory of the GPU: used where they lie."""

# pyright: basic
from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from pto_wsp import ExecutionError

from .programs import dense, numbers

torch: Any = importlib.import_module("torch")


class Interface:
    """An array that offers the CUDA array interface and nothing else, as Numba's do."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor
        self.__cuda_array_interface__ = tensor.__cuda_array_interface__


class Capsule:
    """An array that offers DLPack and nothing else, as JAX's do."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __dlpack__(self, **options: Any) -> Any:
        return self._tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._tensor.__dlpack_device__()


@pytest.mark.gpu
@pytest.mark.parametrize("offer", [Interface, Capsule, lambda tensor: tensor])
def test_arrays_on_the_device(offer: Any) -> None:
    program = dense().workload.compile(target="cuda")
    x, y = (torch.from_numpy(numbers(6, 8)).cuda() for _ in range(2))
    program.execute(tx=offer(x), ty=offer(y))
    torch.testing.assert_close(y, 2 * x + 1)


@pytest.mark.interpreted
def test_arrays_that_only_say_they_are_on_a_device() -> None:
    """Without a GPU there is nothing to share."""

    class Claim:
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            return {"shape": (6, 8), "typestr": "<f4", "data": (0, False), "version": 3}

    program = dense().workload.compile(target="cuda")
    with pytest.raises(ExecutionError, match="must be bound to an array that can be used in place"):
        program.execute(tx=Claim())


def test_dlpack_of_the_host_is_copied_and_comes_back() -> None:
    program = dense().workload.compile(target="cuda")
    x, y = torch.from_numpy(numbers(6, 8)), torch.zeros(6, 8)
    program.execute(tx=Capsule(x), ty=Capsule(y))
    np.testing.assert_allclose(y, 2 * x + 1, rtol=1e-6)
