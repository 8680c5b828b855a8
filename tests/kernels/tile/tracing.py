"""Traces functions into tile kernels, and runs them, without @kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pto_wsp.dtypes import DType
from pto_wsp.kernels.numpy_eval import evaluate
from pto_wsp.kernels.pto import TracedParam, trace_kernel
from pto_wsp.kernels.tile_ir import RefType, ScalarType, TileKernel
from pto_wsp.plan import AccessMode

F32 = DType.F32


def tile(*shape: int, dtype: DType = F32, mode: AccessMode = AccessMode.IN) -> RefType:
    return RefType(dtype, len(shape), mode, shape)


def out(*shape: int, dtype: DType = F32) -> RefType:
    return tile(*shape, dtype=dtype, mode=AccessMode.OUT)


def tensor(rank: int, dtype: DType = F32, mode: AccessMode = AccessMode.IN) -> RefType:
    return RefType(dtype, rank, mode)


def scalar(dtype: DType = F32) -> ScalarType:
    return ScalarType(dtype)


def traced(function: Callable[..., Any], **params: Any) -> TileKernel:
    """Parameters in the order of the function; constants are numbers."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    given = [TracedParam(name, params[name]) for name in names]
    return trace_kernel(function.__name__, function, given)


def run(kernel: TileKernel, *arguments: Any) -> None:
    evaluate(kernel, arguments)


def compute(
    function: Callable[..., Any],
    *inputs: np.ndarray[Any, Any],
    result: DType,
    shape: tuple[int, int],
    tiles: Sequence[tuple[int, ...]] | None = None,
    whole: tuple[int, int] | None = None,
) -> np.ndarray[Any, Any]:
    """What `function` makes of tiles. `tiles` are the shapes that the kernel is made for, `whole`
    that of its result: larger ones make the arrays partial."""
    from pto_wsp.kernels import pto

    def kernel(y: Any, *parts: Any) -> None:
        pto.store(y, function(*parts))

    shapes = tiles or [each.shape for each in inputs]
    params = [TracedParam("y", out(*(whole or shape), dtype=result))]
    params += [
        TracedParam(f"x{i}", tile(*of_tile, dtype=DType.of(each.dtype)))
        for i, (each, of_tile) in enumerate(zip(inputs, shapes, strict=True))
    ]
    found = np.zeros(shape, result.numpy)
    evaluate(trace_kernel("kernel", kernel, params), [found, *inputs])
    return found
