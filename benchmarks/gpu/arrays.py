"""What the benchmarks of layers give to programs: placeholders, and random arrays of bf16."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.gpu.timing import bindable, torch, where
from pto_wsp import DType, Tensor

OPTIONS = {"target": "cuda", "num_warps": 4, "num_stages": 3}  # of programs made of products


def empty(name: str, *sizes: int, dtype: DType = DType.BF16) -> Tensor:
    """Stands for what is bound when the program runs."""
    return Tensor(data=np.zeros(sizes, dtype.numpy), name=name)


def drawing(seed: int = 1) -> Callable[..., Any]:
    """`draw(*sizes)`: standard normal numbers where the benchmark runs."""
    generator = torch().Generator(where()).manual_seed(seed)

    def draw(*sizes: int) -> Any:
        return torch().randn(sizes, dtype=torch().bfloat16, device=where(), generator=generator)

    return draw


def bound(given: dict[str, Any]) -> dict[str, Any]:
    return {name: bindable(array) for name, array in given.items()}
