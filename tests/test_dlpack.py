"""DLPack capsules, made by hand where no library makes them."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pto_wsp import dlpack

new_capsule = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)(("PyCapsule_New", ctypes.pythonapi))


class Producer:
    """A tensor of two rows and three columns of two bytes each, or what the arguments change."""

    def __init__(self, name: bytes = b"dltensor_versioned", **changes: Any) -> None:
        self.memory = np.arange(12, dtype=np.uint16)
        self.name = name
        self.shape, self.strides = (ctypes.c_int64 * 2)(2, 3), (ctypes.c_int64 * 2)(-4, 1)
        self.record = dlpack._Versioned(major=1, minor=9)
        tensor = self.record.tensor
        tensor.data, tensor.byte_offset = self.memory.ctypes.data, 10
        tensor.device_type, tensor.ndim = 1, 2
        tensor.code, tensor.bits, tensor.lanes = 1, 16, 1
        tensor.shape, tensor.strides = self.shape, self.strides
        for field, value in changes.items():
            setattr(tensor if hasattr(tensor, field) else self.record, field, value)

    def __dlpack__(self, *, max_version: tuple[int, int]) -> Any:
        assert max_version == (1, 0)
        versioned = self.name == b"dltensor_versioned"
        at = self.record if versioned else self.record.tensor
        return new_capsule(ctypes.addressof(at), self.name, None)


def test_offsets_and_strides() -> None:
    producer = Producer()
    array = dlpack.view(producer)
    assert array.tolist() == [[5, 6, 7], [1, 2, 3]]
    array[1, 2] = 99
    assert producer.memory[3] == 99


def test_c_order_needs_no_strides() -> None:
    producer = Producer(strides=ctypes.POINTER(ctypes.c_int64)())
    assert dlpack.view(producer).tolist() == [[5, 6, 7], [8, 9, 10]]


def test_bfloat16() -> None:
    producer = Producer(code=4)
    producer.memory[:] = np.arange(12).astype(ml_dtypes.bfloat16).view(np.uint16)
    array = dlpack.view(producer)
    assert array.dtype == ml_dtypes.bfloat16
    assert array.tolist() == [[5, 6, 7], [1, 2, 3]]


def test_without_dimensions() -> None:
    nothing = ctypes.POINTER(ctypes.c_int64)()
    array = dlpack.view(Producer(ndim=0, shape=nothing, strides=nothing))
    assert array.shape == ()
    assert array.item() == 5


def test_without_memory() -> None:
    producer = Producer(data=None, byte_offset=0)
    producer.shape[1] = 0
    assert dlpack.view(producer).shape == (2, 0)


def test_what_may_be_written() -> None:
    assert dlpack.view(Producer()).flags.writeable
    assert not dlpack.view(Producer(flags=1)).flags.writeable
    assert not dlpack.view(Producer(b"dltensor")).flags.writeable  # it cannot say
    assert dlpack.view(Producer(device_type=3)).flags.writeable  # pinned for CUDA


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"device_type": 2}, "another device (CUDA)"),
        ({"device_type": 77}, "another device (type 77)"),
        ({"code": 5}, "no DType for its DLPack type (code 5, 16 bits, 1 lanes)"),
        ({"bits": 4}, "no DType for its DLPack type (code 1, 4 bits, 1 lanes)"),
        ({"lanes": 4}, "no DType for its DLPack type (code 1, 16 bits, 4 lanes)"),
        ({"major": 2}, "version 2, known is 1"),
        ({"flags": 2}, "is a copy"),
        ({"name": b"used_dltensor_versioned"}, "no DLPack capsule"),
    ],
)
def test_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BufferError) as raised:
        dlpack.view(Producer(**changes))
    assert message in str(raised.value)


def test_what_the_producer_raises() -> None:
    class Broken:
        def __dlpack__(self, **options: Any) -> Any:
            raise ValueError("not today")

    with pytest.raises(ValueError, match="not today"):
        dlpack.view(Broken())


def test_no_capsule() -> None:
    class Liar:
        def __dlpack__(self, **options: Any) -> Any:
            return 3

    with pytest.raises(BufferError, match="no DLPack capsule"):
        dlpack.view(Liar())
