"""Tile kernels compiled for this machine, called with arrays; and what they mean, by NumPy."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pto_wsp.dtypes import DType
from pto_wsp.kernels import (
    Build,
    NativeCall,
    NativeFunction,
    NativeKernel,
    NativeView,
    load_kernels,
    native_view,
)
from pto_wsp.kernels.numpy_eval import evaluate
from pto_wsp.kernels.pto import TracedParam, trace_kernel
from pto_wsp.kernels.tile_ir import RefType, ScalarType, TileKernel, to_text
from pto_wsp.plan import AccessMode, BodyForm, ParamKind
from tests.kernels.sketch import P, Sketch

Array = np.ndarray[Any, Any]
F32 = DType.F32


def ref(dtype: DType = F32, rank: int = 2, mode: AccessMode = AccessMode.IN) -> RefType:
    return RefType(dtype, rank, mode)


def out(dtype: DType = F32, rank: int = 2) -> RefType:
    return RefType(dtype, rank, AccessMode.OUT)


def traced(function: Callable[..., None], **params: Any) -> TileKernel:
    """The tile operations of a function whose parameters have these types, or are numbers."""
    given = [TracedParam(name, kind) for name, kind in params.items()]
    return trace_kernel(function.__name__, function, given)


@dataclass(frozen=True)
class Compiled:
    """A kernel, and its machine code."""

    kernel: TileKernel
    native: NativeKernel

    def run(self, *arguments: Any) -> None:
        """Calls the machine code; RuntimeError with the message if the task fails."""
        views: list[NativeView] = []
        scalars: list[int] = []
        for param, given in zip(self.kernel.params, arguments, strict=True):
            if isinstance(param.type, ScalarType):
                data = np.asarray(given, param.type.dtype.numpy).tobytes()
                scalars.append(int.from_bytes(data, "little"))
            else:
                views.append(native_view(given))
        scratch = np.full(self.native.scratch + 64, 0xFF, np.uint8)  # NaN, in every float
        message = ctypes.create_string_buffer(512)
        call = NativeCall(
            views=(NativeView * len(views))(*views),
            scalars=(ctypes.c_uint64 * len(scalars))(*scalars),
            num_views=len(views),
            num_scalars=len(scalars),
            error_size=512,
            error=ctypes.addressof(message),
            scratch=(scratch.ctypes.data + 63) // 64 * 64,
            scratch_bytes=self.native.scratch,
        )
        if NativeFunction(self.native.address)(ctypes.byref(call), None) != 0:
            raise RuntimeError(message.value.decode())

    def meaning(self, *arguments: Any) -> None:
        evaluate(self.kernel, arguments)

    def both(self, *arguments: Any) -> tuple[list[Array], list[Array]]:
        """What the machine code and NumPy write, of the same arguments."""
        written = [
            i
            for i, param in enumerate(self.kernel.params)
            if isinstance(param.type, RefType) and param.type.mode is not AccessMode.IN
        ]
        ours, theirs = list(arguments), list(arguments)
        for i in written:
            ours[i], theirs[i] = arguments[i].copy(), arguments[i].copy()
        self.run(*ours)
        evaluate(self.kernel, theirs)
        return [ours[i] for i in written], [theirs[i] for i in written]


def compile_kernels(kernels: Sequence[TileKernel], level: int = 3) -> list[Compiled]:
    """All of them in one translation unit, at that level of optimisation."""
    sketch = Sketch()
    for number, kernel in enumerate(kernels):
        params = [_param(value.name, value.type) for value in kernel.params]
        index = sketch.kernel(f"{kernel.name}_{number}", params, form=None)
        sketch.b.body(index, BodyForm.TILE_IR, to_text(kernel, folders=False).encode())
    loaded = load_kernels(sketch.build(), {}, Build(level))
    return [
        Compiled(kernel, native)
        for kernel, native in zip(kernels, loaded, strict=True)
        if isinstance(native, NativeKernel)
    ]


def _param(name: str, kind: object) -> P:
    if isinstance(kind, ScalarType):
        return P(name, dtype=kind.dtype, kind=ParamKind.SCALAR)
    assert isinstance(kind, RefType)
    return P(name, kind.mode, kind.dtype, kind.rank)
