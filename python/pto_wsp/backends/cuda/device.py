"""The device: PyTorch's memory and streams, Triton's compiler.

With TRITON_INTERPRET=1 the same kernels run in this process, on arrays of the host.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from pto_wsp import config
from pto_wsp.backends.cuda import interpreter
from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.sharing import DeviceArray

_POLL_S = 0.0001
_CUDA_DEVICE = 2  # kDLCUDA
_TORCH = {
    DType.F64: "float64",
    DType.F32: "float32",
    DType.F16: "float16",
    DType.BF16: "bfloat16",
    DType.I8: "int8",
    DType.I16: "int16",
    DType.I32: "int32",
    DType.I64: "int64",
    DType.U8: "uint8",
    DType.U16: "uint16",
    DType.U32: "uint32",
    DType.U64: "uint64",
    DType.BOOL: "bool",
}


@cache
def torch() -> Any:
    """PyTorch; CompileError if there is none, or no Triton, or no GPU."""
    try:
        found: Any = importlib.import_module("torch")
        importlib.import_module("triton")
    except ImportError as error:
        raise _unavailable(f"{error.name} is not installed", "pip install 'pto-wsp[gpu]'") from None
    if not is_interpreted() and not found.cuda.is_available():
        raise _unavailable(
            "PyTorch finds no CUDA device", "run on a machine with one, or set TRITON_INTERPRET=1"
        )
    if is_interpreted():
        interpreter.repair()
    return found


def _unavailable(why: str, fix: str) -> CompileError:
    return CompileError(Code.TARGET_LIMIT, "the cuda target is not available", why=why, fix=fix)


def is_interpreted() -> bool:
    """Whether kernels run in Triton's interpreter, without a GPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def name() -> str:
    return "cpu" if is_interpreted() else "cuda"


def num_sms() -> int:
    """Multiprocessors; in the interpreter, which runs one block after the other, a few."""
    if is_interpreted():
        return 2
    return torch().cuda.get_device_properties(torch().cuda.current_device()).multi_processor_count


def runs_together() -> bool:
    """Whether blocks of a launch run at a time, as far as there is room."""
    return not is_interpreted()


def capturing() -> Callable[[], bool]:
    """What says whether the current stream is being captured in a CUDA graph."""
    if is_interpreted():
        return lambda: False
    return torch().cuda.is_current_stream_capturing


def synchronize() -> None:
    if not is_interpreted():
        torch().cuda.synchronize()


def has_ended(seconds: float) -> bool:
    """Whether all work of the current stream ends within that time."""
    if is_interpreted():
        return True
    end = time.monotonic() + seconds
    while not torch().cuda.current_stream().query():
        if time.monotonic() >= end:
            return False
        time.sleep(_POLL_S)
    return True


def num_bytes(tensor: Any) -> int:
    """From the first to the last element of a tensor."""
    if tensor.numel() == 0:
        return 0
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def overlap(a: Any, b: Any) -> bool:
    """Whether the bytes from the first to the last element of two tensors meet."""
    first, second = a.data_ptr(), b.data_ptr()
    return first < second + num_bytes(b) and second < first + num_bytes(a)


def lies_like(value: object, tensor: Any) -> bool:
    """Whether a kernel compiled for `tensor` takes `value`, at another address, as well."""
    found: Any = value
    return (
        type(found) is type(tensor)
        and found.dtype == tensor.dtype
        and found.shape == tensor.shape
        and found.stride() == tensor.stride()
        and found.device == tensor.device
        and not found.requires_grad
        # Triton compiles in whether an address is a multiple of 16.
        and (found.data_ptr() - tensor.data_ptr()) % 16 == 0
    )


def _is_heard(hook: Any) -> bool:
    """Whether somebody listens: a chain of calls, a call, or nothing."""
    return bool(getattr(hook, "calls", hook))


def launcher(compiled: Any, workers: int) -> Callable[..., None]:
    """Launches a compiled kernel with arguments of the types that it was compiled for, addresses as
    numbers: what Triton asks of arguments at each launch is known of these."""
    usual = compiled[(workers, 1, 1)]
    version: str = importlib.import_module("triton").__version__
    run: Any = compiled.run
    if not version.startswith("3.6.") or run.global_scratch_size or run.profile_scratch_size:
        return usual
    # The launcher itself, which takes the stream and, for hooks of profilers, None if nobody
    # listens. The way to it costs as much as the launch.
    hooks: Any = importlib.import_module("triton").knobs.runtime
    stream: Any = torch()._C._cuda_getCurrentRawStream
    current: Any = torch()._C._cuda_getDevice
    function, metadata = compiled.function, compiled.packed_metadata
    grid, how = (workers, 1, 1), (run.launch_cooperative_grid, run.launch_pdl, None, None)
    launch: Any = run.launch

    def direct(*arguments: Any) -> None:
        if _is_heard(hooks.launch_enter_hook) or _is_heard(hooks.launch_exit_hook):
            usual(*arguments)
            return
        at = stream(current())
        launch(*grid, at, function, *how, metadata, None, None, None, *arguments)

    return direct


def dtype_of(dtype: DType) -> Any:
    return getattr(torch(), _TORCH[dtype])


def to_device(array: np.ndarray[Any, Any]) -> Any:
    """A copy, in C order."""
    dtype = DType.of(array.dtype)
    raw = np.ascontiguousarray(array)
    if dtype is DType.BF16:
        raw = raw.view(np.int16)
    found = torch().from_numpy(raw.copy()).to(name())
    return found.view(dtype_of(dtype)) if dtype is DType.BF16 else found


def from_device(tensor: Any, array: np.ndarray[Any, Any]) -> None:
    """Back into the array that it was copied from."""
    if DType.of(array.dtype) is DType.BF16:
        array[...] = tensor.view(torch().int16).cpu().numpy().view(array.dtype)
    else:
        array[...] = tensor.cpu().numpy()


def adopt(value: object) -> DeviceArray | None:
    """An array that lies on the device: PyTorch's own, or anything that offers DLPack or the CUDA
    array interface there."""
    found: Any = value if isinstance(value, torch().Tensor) else _of_others(value)
    if found is None or not found.is_cuda:
        return None
    dtype = _from_torch().get(found.dtype)
    if dtype is None:
        return None
    return DeviceArray(found.detach(), dtype.numpy, tuple(found.shape))


def _of_others(value: object) -> Any:
    """A tensor over the memory of another library's array; None if it is not on the device."""
    where = getattr(value, "__dlpack_device__", None)
    if where is not None:
        return torch().from_dlpack(value) if where()[0] == _CUDA_DEVICE else None
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is None or is_interpreted():
        return None
    stream = interface.get("stream")
    if stream is not None:  # what the array waits for
        torch().cuda.current_stream().wait_stream(torch().cuda.ExternalStream(stream))
    return torch().as_tensor(value, device="cuda")


@cache
def _from_torch() -> dict[Any, DType]:
    return {dtype_of(dtype): dtype for dtype in DType}


def load_source(text: str) -> Callable[..., Any]:
    """The function `persistent` of a module, which is kept for reading."""
    key = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    path = config.CACHE_DIR.get() / "cuda" / f"plan_{key}.py"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_suffix(f".{os.getpid()}")
        scratch.write_text(text)
        scratch.replace(path)
    return _import(path).persistent


@cache
def _import(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"pto_wsp_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
