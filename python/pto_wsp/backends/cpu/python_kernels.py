"""Python kernel bodies called from native worker threads."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy.typing as npt

from pto_wsp.dtypes import DType
from pto_wsp.plan import AccessMode, Kernel, Param, ParamKind, Plan

# The low two bits of a dispatcher's result; the rest is the number of the exception.
_FAILED = 1
_INTERRUPTED = 2

Dispatch = Callable[[list[npt.NDArray[Any]], tuple[int, ...]], int]


class Exceptions:
    """Exceptions of Python kernels on their way to whoever waits for the run."""

    _MOST = 64  # several workers may fail at once; only the first failure of a run is asked for

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._kept: dict[int, BaseException] = {}

    def keep(self, error: BaseException) -> int:
        """Stores an exception and returns what a dispatcher has to return for it."""
        with self._lock:
            number = next(self._numbers) & 0xFFFFFF
            self._kept[number] = error
            while len(self._kept) > self._MOST:
                del self._kept[next(iter(self._kept))]
        return number * 4 + (_FAILED if isinstance(error, Exception) else _INTERRUPTED)

    def take(self, message: str) -> BaseException | None:
        """The exception whose number the native error carries as its message."""
        if not message.isdigit():
            return None
        with self._lock:
            return self._kept.pop(int(message), None)


def make_dispatch(
    plan: Plan, kernel: int, fn: Callable[..., None], exceptions: Exceptions
) -> Dispatch:
    """A function that native code calls with the views of one task."""
    record = plan.records(Kernel)[kernel]
    params = plan.records(Param)[record.params : record.params + record.num_params]
    tensors = [p for p in params if p.kind in (ParamKind.TENSOR, ParamKind.TILE)]
    # NumPy has no bfloat16 of its own, so native code hands over the bits.
    recast = [DType(p.dtype).numpy if p.dtype == DType.BF16 else None for p in tensors]
    read_only = [p.mode == AccessMode.IN for p in tensors]

    def dispatch(views: list[npt.NDArray[Any]], indices: tuple[int, ...]) -> int:
        try:
            for i, dtype in enumerate(recast):
                if dtype is not None:
                    views[i] = views[i].view(dtype)
                if read_only[i]:
                    views[i].flags.writeable = False
            fn(*views)
        except BaseException as error:
            return exceptions.keep(error)
        return 0

    return dispatch
