"""What other libraries offer through DLPack, as NumPy arrays over the same memory.

NumPy's own `from_dlpack` knows no bfloat16, and older ones make everything read-only. A capsule
that nobody consumes is freed by its producer when it goes, so it is enough to read and to keep it.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from pto_wsp.dtypes import DType


# The structures of dlpack.h, as far as they are read here.
class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),  # in elements; null: C order
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_READ_ONLY, _IS_COPIED = 1, 2  # of `flags`
_MAJOR = 1  # versions of one major number have one layout
_CODES = {"I": 0, "U": 1, "F": 2, "BF": 4, "BOOL": 6}  # DLDataTypeCode
_DTYPES = {(_CODES[d.name.rstrip("0123456789")], 8 * d.size): d.numpy for d in DType}
_BITS = {size: np.dtype(f"u{size}").str for size in (1, 2, 4, 8)}  # NumPy knows no bfloat16
_HOST = frozenset({1, 3, 11})  # DLDeviceType: CPU, and memory pinned for CUDA and ROCm
_DEVICES = {2: "CUDA", 8: "Metal", 10: "ROCm", 13: "CUDA managed"}

# Prototypes of our own: those of ctypes.pythonapi are shared with everybody who sets them.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class _Memory:
    """Memory of a capsule as the array interface describes it; keeps the capsule."""

    def __init__(self, capsule: object, interface: dict[str, object]) -> None:
        self.capsule = capsule
        self.__array_interface__ = interface


def view(value: Any) -> npt.NDArray[Any]:
    """A NumPy array over the memory of an object that has `__dlpack__`; BufferError if that cannot
    be, or whatever the object itself raises."""
    try:
        capsule = value.__dlpack__(max_version=(_MAJOR, 0))
    except TypeError:  # it knows no version but the first
        capsule = value.__dlpack__()
    tensor, read_only = _read(capsule)
    if tensor.device_type not in _HOST:
        name = _DEVICES.get(tensor.device_type, f"type {tensor.device_type}")
        raise BufferError(f"its memory is on another device ({name})")
    dtype = _DTYPES.get((tensor.code, tensor.bits))
    if dtype is None or tensor.lanes != 1:
        raise BufferError(
            f"there is no DType for its DLPack type (code {tensor.code}, {tensor.bits} bits, "
            f"{tensor.lanes} lanes)"
        )
    strides = None
    if tensor.strides:
        size = dtype.itemsize
        strides = tuple([stride * size for stride in tensor.strides[: tensor.ndim]])
    interface: dict[str, object] = {
        "version": 3,
        "data": ((tensor.data or 0) + tensor.byte_offset, read_only),
        "shape": tuple(tensor.shape[: tensor.ndim]),
        "strides": strides,
        "typestr": _BITS[dtype.itemsize],
    }
    return np.asarray(_Memory(capsule, interface)).view(dtype)


def _read(capsule: object) -> tuple[_Tensor, bool]:
    """The tensor of a capsule, which lives as long as that, and whether it is read-only."""
    if _is_valid(capsule, b"dltensor_versioned"):
        found = _Versioned.from_address(_get_pointer(capsule, b"dltensor_versioned"))
        if found.major != _MAJOR:
            raise BufferError(f"its DLPack has version {found.major}, known is {_MAJOR}")
        if found.flags & _IS_COPIED:
            raise BufferError("its DLPack is a copy")
        return found.tensor, bool(found.flags & _READ_ONLY)
    if not _is_valid(capsule, b"dltensor"):
        raise BufferError("its __dlpack__ gives no DLPack capsule")
    # This version cannot say whether memory may be written, and some of it, JAX's, may not.
    return _Tensor.from_address(_get_pointer(capsule, b"dltensor")), True
