"""The only table of element types. Spellings in other languages belong to the backends.

The numbers are those of `enum DType` in core/include/ptowsp/enums.def; a test compares them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import ml_dtypes
import numpy as np


class DType(IntEnum):
    """Element type of tensors, tiles and scalars."""

    F64 = 0
    F32 = 1
    F16 = 2
    BF16 = 3
    I8 = 4
    I16 = 5
    I32 = 6
    I64 = 7
    U8 = 8
    U16 = 9
    U32 = 10
    U64 = 11
    BOOL = 12

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype of the same meaning."""
        return _NUMPY[self]

    @property
    def size(self) -> int:
        """Bytes of one element."""
        return self.numpy.itemsize

    @property
    def text(self) -> str:
        """Spelling in the text form: `f32`, `i64`, `bool`."""
        return self.name.lower()

    @classmethod
    def of(cls, dtype: Any) -> DType:
        """The DType of a NumPy dtype or anything `np.dtype` accepts; TypeError if there is none."""
        if isinstance(dtype, DType):
            return dtype
        key = np.dtype(dtype)
        found = _FROM_NUMPY.get(key)
        if found is None:
            raise TypeError(f"no DType for NumPy dtype {key}{_reason(key)}")
        return found

    @classmethod
    def parse(cls, text: str) -> DType:
        """The inverse of `text`; ValueError if there is none."""
        try:
            return cls[text.upper()]
        except KeyError:
            raise ValueError(f"unknown dtype {text!r}") from None


_NUMPY: dict[DType, np.dtype[Any]] = {
    DType.F64: np.dtype(np.float64),
    DType.F32: np.dtype(np.float32),
    DType.F16: np.dtype(np.float16),
    DType.BF16: np.dtype(ml_dtypes.bfloat16),
    DType.I8: np.dtype(np.int8),
    DType.I16: np.dtype(np.int16),
    DType.I32: np.dtype(np.int32),
    DType.I64: np.dtype(np.int64),
    DType.U8: np.dtype(np.uint8),
    DType.U16: np.dtype(np.uint16),
    DType.U32: np.dtype(np.uint32),
    DType.U64: np.dtype(np.uint64),
    DType.BOOL: np.dtype(np.bool_),
}
_FROM_NUMPY = {dtype: name for name, dtype in _NUMPY.items()}


def _reason(dtype: np.dtype[Any]) -> str:
    """Why there is no DType, where the spelling does not say it."""
    if dtype.newbyteorder() in _FROM_NUMPY:
        return ": its bytes are in the other order"
    return ": its elements are records; each field is an array" if dtype.names else ""
