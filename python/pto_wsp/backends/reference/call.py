"""Calls a kernel for a task: NumPy views of its regions, or the C structures around them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, assert_never

from pto_wsp.backends.reference.bound import Array
from pto_wsp.backends.reference.walk import Region, Task
from pto_wsp.dtypes import DType
from pto_wsp.kernels import (
    LoadedKernel,
    NativeCall,
    NativeFunction,
    NativeKernel,
    NativeView,
    PythonKernel,
    scalar_value,
)
from pto_wsp.plan import AccessMode, Kernel, Param, ParamKind, Plan

_ERROR_BYTES = 8192
# Raises if the kernel fails.
Caller = Callable[[Task, Sequence[Array]], None]


class NativeFailure(Exception):
    """A native kernel returned a failure; the message is the one it wrote."""


def region_view(tensor: Array, region: Region) -> Array:
    """The region as an array over the tensor's own memory; read-only if the task only reads."""
    index = tuple(
        dim.start
        if dim.dropped
        else slice(dim.start, dim.start + (dim.extent - 1) * dim.step + 1, dim.step)
        if dim.extent > 0
        else slice(0, 0)
        for dim in region.dims
    )
    view = tensor[(*index, ...)]  # with the ellipsis, even one element is a view
    if region.mode == AccessMode.IN:
        view.flags.writeable = False
    return view


def make_caller(plan: Plan, index: int, kernel: LoadedKernel) -> Caller:
    """What runs the tasks of a kernel."""
    match kernel:
        case PythonKernel():
            return _python_caller(plan, index, kernel)
        case NativeKernel():
            return _native_caller(kernel)
        case _:
            assert_never(kernel)


def _python_caller(plan: Plan, index: int, kernel: PythonKernel) -> Caller:
    record = plan.records(Kernel)[index]
    params = plan.records(Param)[record.params : record.params + record.num_params]

    def call(task: Task, views: Sequence[Array]) -> None:
        view, scalar = iter(views), iter(task.scalars)
        arguments: list[Any] = []
        for param in params:
            match ParamKind(param.kind):
                case ParamKind.SCALAR:
                    arguments.append(scalar_value(DType(param.dtype), next(scalar)))
                case ParamKind.CONSTEXPR:
                    arguments.append(scalar_value(DType(param.dtype), param.value))
                case ParamKind.TENSOR | ParamKind.TILE:
                    arguments.append(next(view))
        kernel.fn(*arguments)

    return call


def _native_caller(kernel: NativeKernel) -> Caller:
    function = NativeFunction(kernel.address)
    message = ctypes.create_string_buffer(_ERROR_BYTES)

    def call(task: Task, views: Sequence[Array]) -> None:
        message.value = b""
        native_views = (NativeView * len(views))(*(_native_view(view) for view in views))
        indices = (ctypes.c_int64 * len(task.indices))(*task.indices)
        scalars = (ctypes.c_uint64 * len(task.scalars))(*task.scalars)
        record = NativeCall(
            views=native_views,
            scalars=scalars,
            indices=indices,
            num_views=len(views),
            num_scalars=len(task.scalars),
            num_indices=len(task.indices),
            site=task.site,
            worker=0,
            error_size=_ERROR_BYTES,
            task_id=task.task_id,
            error=ctypes.addressof(message),
        )
        if function(ctypes.byref(record), None) != 0:
            text = message.value.decode(errors="replace")
            raise NativeFailure(text or "the kernel returned a failure without a message")

    return call


def _native_view(view: Array) -> NativeView:
    native = NativeView(data=view.ctypes.data, rank=view.ndim, dtype=DType.of(view.dtype))
    for d in range(view.ndim):
        native.shape[d] = view.shape[d]
        native.stride[d] = view.strides[d] // view.itemsize
    return native
