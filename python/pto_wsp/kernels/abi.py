"""The structures that cross from the runtime into a native kernel, as ctypes (see ptowsp.h)."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from pto_wsp.dtypes import DType

MAX_RANK = 8


class NativeView(ctypes.Structure):
    """`ptowsp_view`: a region as a kernel sees it. Strides count elements."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("shape", ctypes.c_int64 * MAX_RANK),
        ("stride", ctypes.c_int64 * MAX_RANK),
        ("rank", ctypes.c_uint32),
        ("dtype", ctypes.c_uint32),
    ]


class NativePages(ctypes.Structure):
    """`ptowsp_pages`: how the tokens of a paged view lie in memory."""

    _fields_ = [
        ("table", ctypes.c_void_p),
        ("table_stride", ctypes.c_int64),
        ("page", ctypes.c_int64),
        ("first", ctypes.c_int64),
        ("page_stride", ctypes.c_int64),
        ("wide", ctypes.c_uint64),
    ]


class NativeCall(ctypes.Structure):
    """`ptowsp_call`: one task, as handed to a kernel."""

    _fields_ = [
        ("views", ctypes.POINTER(NativeView)),
        ("pages", ctypes.POINTER(NativePages)),
        ("scalars", ctypes.POINTER(ctypes.c_uint64)),
        ("indices", ctypes.POINTER(ctypes.c_int64)),
        ("num_views", ctypes.c_uint32),
        ("num_scalars", ctypes.c_uint32),
        ("num_indices", ctypes.c_uint32),
        ("site", ctypes.c_uint32),
        ("worker", ctypes.c_uint32),
        ("error_size", ctypes.c_uint32),
        ("task_id", ctypes.c_uint64),
        ("error", ctypes.c_void_p),
        ("scratch", ctypes.c_void_p),
        ("scratch_bytes", ctypes.c_uint64),
    ]


def scalar_value(dtype: DType, bits: int) -> Any:
    """A scalar argument as a Python number, from its bits in the low end of a word."""
    data = bits.to_bytes(8, "little")[: dtype.size]
    return np.frombuffer(data, dtype.numpy)[0].item()


# ptowsp_kernel_fn
NativeFunction = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(NativeCall), ctypes.c_void_p)
