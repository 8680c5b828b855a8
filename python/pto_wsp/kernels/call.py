"""Calling compiled kernels from Python: the C structures around arrays and numbers."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from pto_wsp.dtypes import DType
from pto_wsp.kernels.abi import NativeCall, NativeFunction, NativePages, NativeView
from pto_wsp.kernels.load import NativeKernel

Array = npt.NDArray[Any]

_ERROR_BYTES = 8192
_ALIGNMENT = 64
_FIRST_PAGE = np.zeros(1, np.int64)


class NativeFailure(Exception):
    """A native kernel returned a failure; the message is the one it wrote."""


class NativeCaller:
    """A compiled kernel as something to call, from any number of threads at once."""

    def __init__(self, kernel: NativeKernel) -> None:
        self._kernel = kernel  # keeps its library loaded
        self._function = NativeFunction(kernel.address)
        self._memory = threading.local()
        self._made: dict[int, NativeCaller] = {}  # for views that share memory

    def __call__(
        self,
        views: Sequence[NativeView],
        pages: Sequence[NativePages | None],
        scalars: Sequence[int],
        *,
        memory: Sequence[Array | None],
        indices: Sequence[int] = (),
        site: int = 0,
        task_id: int = 0,
    ) -> None:
        """Runs one task. `pages` has a place for each view, `memory` the array that it lies in;
        scalars are given by their bits."""
        shared = self._shared(memory)
        if shared:
            other = self._made_for(shared)
            other(*(views, pages, scalars), memory=(), indices=indices, site=site, task_id=task_id)
            return
        message, scratch = self._thread_memory()
        message.value = b""
        page_records = (NativePages * len(views))()
        for i, each in enumerate(pages):
            if each is not None:
                page_records[i] = each
        record = NativeCall(
            views=(NativeView * len(views))(*views),
            pages=page_records,
            scalars=(ctypes.c_uint64 * len(scalars))(*scalars),
            indices=(ctypes.c_int64 * len(indices))(*indices),
            num_views=len(views),
            num_scalars=len(scalars),
            num_indices=len(indices),
            site=site,
            error_size=_ERROR_BYTES,
            task_id=task_id,
            error=ctypes.addressof(message),
            scratch=scratch,
            scratch_bytes=self._kernel.scratch,
        )
        if self._function(ctypes.byref(record), None) != 0:
            text = message.value.decode(errors="replace")
            raise NativeFailure(text or "the kernel returned a failure without a message")

    def _shared(self, memory: Sequence[Array | None]) -> int:
        """The views of which the kernel is not made for lying in the same memory, as they do."""
        kernel, found = self._kernel, 0
        if kernel.made_for is None:
            return 0
        for (i, a), (j, b) in combinations(enumerate(memory), 2):
            pair = 1 << i | 1 << j
            if a is None or b is None or not kernel.written & pair:
                continue
            if kernel.sharing & pair != pair and np.may_share_memory(a, b):
                found |= pair
        return found

    def _made_for(self, views: int) -> NativeCaller:
        known = self._made.get(views)
        if known is None:
            assert self._kernel.made_for is not None
            made = NativeCaller(self._kernel.made_for(views))
            known = self._made.setdefault(views, made)
        return known

    def _thread_memory(self) -> tuple[Any, int]:
        """Room for a message, and the address of scratch memory, of this thread."""
        known = getattr(self._memory, "known", None)
        if known is None:
            scratch = np.empty(self._kernel.scratch + _ALIGNMENT, np.uint8)
            first = -(-scratch.ctypes.data // _ALIGNMENT) * _ALIGNMENT
            known = ctypes.create_string_buffer(_ERROR_BYTES), first, scratch
            self._memory.known = known
        return known[0], known[1]


def native_view(array: Array) -> NativeView:
    # Not array.ctypes, which makes an object first.
    data = array.__array_interface__["data"][0]
    native = NativeView(data=data, rank=array.ndim, dtype=DType.of(array.dtype))
    for d in range(array.ndim):
        native.shape[d] = array.shape[d]
        native.stride[d] = array.strides[d] // array.itemsize
    return native


def one_page(array: Array) -> NativePages:
    """An array whose first dimension counts tokens, all of them on one page."""
    return NativePages(
        table=_FIRST_PAGE.ctypes.data, table_stride=1, page=max(len(array), 1), wide=1
    )
