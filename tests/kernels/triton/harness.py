"""Tile kernels through Triton. PTO_WSP_TEST_GPU says how: its interpreter if it is not set, "1" on
the GPU of this machine, "compile" into code for one, which is not run (NumPy says what it means).

A region lies somewhere in a storage of its own, with gaps between its rows: whatever a kernel
writes beside it is found. Numbers travel as 64-bit words, as a kernel that decodes tasks gets them.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from pto_wsp.backends.cuda import interpreter
from pto_wsp.dtypes import DType
from pto_wsp.kernels.numpy_eval import evaluate
from pto_wsp.kernels.pto import TracedParam, trace_kernel
from pto_wsp.kernels.tile_ir import RefType, TileKernel
from pto_wsp.kernels.triton_code import (
    HEADER,
    Role,
    TritonArgument,
    TritonOptions,
    emit_triton,
    helper_text,
)
from pto_wsp.plan import AccessMode

MODE = os.environ.get("PTO_WSP_TEST_GPU", "")
NATIVE, COMPILES = MODE == "1", MODE == "compile"
if not MODE:
    os.environ["TRITON_INTERPRET"] = "1"
torch = pytest.importorskip("torch", reason="Triton runs on torch tensors")
triton = pytest.importorskip("triton", reason="needs triton: pip install 'pto-wsp[gpu]'")

Array = np.ndarray[Any, Any]
GUARD = 7  # what lies around a region
_FOLDER = tempfile.TemporaryDirectory(prefix="pto-wsp-triton-")
_TORCH_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_TORCH = {DType.F64: torch.float64, DType.F32: torch.float32, DType.F16: torch.float16}
_TORCH |= {DType.BF16: torch.bfloat16, DType.BOOL: torch.bool, DType.U8: torch.uint8}
_TORCH |= {DType.U16: torch.uint16, DType.U32: torch.uint32, DType.U64: torch.uint64}


def tensor_of(array: Array) -> Any:
    """The same elements as a torch tensor, on the device."""
    dtype = DType.of(array.dtype)
    bits = torch.from_numpy(array.view(f"i{array.itemsize}"))
    found = bits.view(_TORCH.get(dtype, _TORCH_BITS[dtype.size]))
    return found.cuda() if NATIVE else found


def array_of(tensor: Any, dtype: DType) -> Array:
    bits = tensor.cpu().view(_TORCH_BITS[dtype.size]).numpy()
    return bits.view(dtype.numpy)


if not MODE:
    interpreter.repair()


@dataclass
class Region:
    """An array in a storage: where it begins, and how it lies there."""

    array: Array
    offset: int = 0
    storage: Array = field(init=False)
    strides: tuple[int, ...] = ()
    tensor: Any = None

    def __post_init__(self) -> None:
        shape, gap = self.array.shape, 3
        self.offset = 5
        strides = [1] * len(shape)
        for dim in reversed(range(len(shape) - 1)):
            strides[dim] = strides[dim + 1] * (shape[dim + 1] + gap)
        self.strides = tuple(strides)
        count = self.offset + sum(s * max(n - 1, 0) for s, n in zip(strides, shape, strict=True))
        self.storage = np.full(count + 1 + gap, GUARD).astype(self.array.dtype)
        self.view()[...] = self.array
        self.tensor = tensor_of(self.storage)

    def view(self) -> Array:
        size = self.storage.itemsize
        return np.lib.stride_tricks.as_strided(
            self.storage[self.offset :], self.array.shape, [s * size for s in self.strides]
        )

    def finish(self) -> None:
        """Brings the results back; nothing else may have changed."""
        self.storage = array_of(self.tensor, DType.of(self.array.dtype))
        self.array[...] = self.view()
        kept = self.view().copy()
        self.view()[...] = np.array(GUARD).astype(self.array.dtype)
        assert np.all(self.storage == np.array(GUARD).astype(self.array.dtype)), "outside"
        self.view()[...] = kept

    def number(self, argument: TritonArgument) -> int:
        match argument.role:
            case Role.OFFSET:
                return self.offset
            case Role.EXTENT:
                return self.array.shape[argument.dim]
            case _:
                return self.strides[argument.dim]


class PagedRegion(Region):
    """Tokens on pages in random order, the region beginning in the middle of one."""

    def __init__(self, array: Array, page: int = 4, first: int = 3) -> None:
        self.array, self.page, self.first = array, page, first
        pages = (first + len(array) + page - 1) // page
        self.table = np.random.default_rng(5).permutation(pages + 2)[: max(pages, 1)].astype("i4")
        pool = np.full((pages + 2, page, *array.shape[1:]), GUARD).astype(array.dtype)
        for token, row in enumerate(array):
            at = first + token
            pool[self.table[at // page], at % page] = row
        self.pool = pool
        self.strides = tuple(s // array.itemsize for s in pool.strides[1:])
        self.page_stride = pool.strides[0] // array.itemsize
        self.tensor = tensor_of(pool.reshape(-1))
        self.table_tensor = tensor_of(np.concatenate([np.zeros(2, "i4"), self.table]))

    def finish(self) -> None:
        pool = array_of(self.tensor, DType.of(self.array.dtype)).reshape(self.pool.shape).copy()
        for token in range(len(self.array)):
            at = self.first + token
            self.array[token] = pool[self.table[at // self.page], at % self.page]
            pool[self.table[at // self.page], at % self.page] = GUARD
        assert np.all(pool == np.array(GUARD).astype(pool.dtype)), "outside"

    def number(self, argument: TritonArgument) -> int:
        match argument.role:
            case Role.OFFSET:
                return 0
            case Role.TABLE_OFFSET:
                return 2
            case Role.TABLE_STRIDE:
                return 1
            case Role.FIRST:
                return self.first
            case Role.PAGE:
                return self.page
            case Role.PAGE_STRIDE:
                return self.page_stride
            case _:
                return super().number(argument)


def run(
    kernel: TileKernel,
    arguments: Sequence[Any],
    options: TritonOptions | None = None,
    num_warps: int = 4,
) -> str | None:
    """Runs the Triton form once, on arrays (or a PagedRegion each) and numbers. The fault, if the
    task fails."""
    source = emit_triton(kernel, "body", options or TritonOptions())
    regions = {
        position: given if isinstance(given, Region) else Region(given)
        for position, given in enumerate(arguments)
        if isinstance(given, Region | np.ndarray)
        and not np.isscalar(given)
        and isinstance(kernel.params[position].type, RefType)
    }
    words: list[int] = []
    pointers: list[Any] = []
    passed = [
        _passed(argument, kernel, arguments, regions, pointers, words)
        for argument in source.arguments
    ]
    fault = tensor_of(np.zeros(1, "i4"))
    names = [f"p{n}" for n in range(len(pointers))]
    entry = f"@triton.jit\ndef entry({', '.join([*names, 'words', 'fault'])}):\n"
    entry += f"    body({', '.join(passed)})\n"
    module = _module("\n\n".join([HEADER, helper_text(source.helpers), source.text, entry]))
    numbers = tensor_of(np.array(words or [0], "u8").view("i8"))
    if COMPILES:
        _compile(module, [*pointers, numbers, fault], num_warps)
        evaluate(kernel, [regions[i].array if i in regions else a for i, a in enumerate(arguments)])
        return None
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of NumPy, which computes as asked
        module.entry[(1,)](*pointers, numbers, fault, num_warps=num_warps)
    for region in regions.values():
        region.finish()
    number = int(fault.cpu()[0])
    return source.faults[number - 1] if number else None


def _compile(module: ModuleType, arguments: Sequence[Any], num_warps: int) -> None:
    """Down to machine code for a GPU that need not be there."""
    backends: Any = importlib.import_module("triton.backends.compiler")
    compiler: Any = importlib.import_module("triton.compiler")
    names = module.entry.arg_names
    types = {n: _POINTERS[a.dtype] for n, a in zip(names, arguments, strict=True)}
    source = compiler.ASTSource(fn=module.entry, signature=types, constexprs={})
    target = backends.GPUTarget("cuda", 90, 32)
    triton.compile(source, target=target, options={"num_warps": num_warps})


_POINTERS = {torch.float64: "*fp64", torch.float32: "*fp32", torch.float16: "*fp16"}
_POINTERS |= {torch.bfloat16: "*bf16", torch.bool: "*i1"}
_POINTERS |= {torch.int8: "*i8", torch.int16: "*i16", torch.int32: "*i32", torch.int64: "*i64"}
_POINTERS |= {torch.uint8: "*u8", torch.uint16: "*u16", torch.uint32: "*u32", torch.uint64: "*u64"}


def _passed(
    argument: TritonArgument,
    kernel: TileKernel,
    arguments: Sequence[Any],
    regions: Mapping[int, Region],
    pointers: list[Any],
    words: list[int],
) -> str:
    if argument.role is Role.FAULT:
        return "fault"
    if argument.role in (Role.POINTER, Role.TABLE):
        region: Any = regions[argument.param]
        is_table = argument.role is Role.TABLE
        pointers.append(region.table_tensor if is_table else region.tensor)
        return f"p{len(pointers) - 1}"
    word = f"tl.load(words + {len(words)})"
    if argument.role is not Role.SCALAR:
        words.append(regions[argument.param].number(argument))
        return word
    dtype = kernel.params[argument.param].type.dtype
    data = np.asarray(arguments[argument.param], dtype.numpy).tobytes()
    words.append(int.from_bytes(data, "little"))
    text = f"tl.{ {1: 'int8', 2: 'int16', 4: 'int32', 8: 'int64'}[dtype.size] }"
    found = f"{word}.to({text})"
    spelled = {DType.F64: "float64", DType.F32: "float32", DType.F16: "float16"}
    spelled |= {DType.BF16: "bfloat16"}
    if dtype in spelled:
        return f"{found}.to(tl.{spelled[dtype]}, bitcast=True)"
    return f"{found}.to(tl.u{text[3:]})" if dtype.name.startswith("U") else found


_MODULES: dict[str, ModuleType] = {}


def _module(text: str) -> ModuleType:
    """Triton reads the source of its functions from their file."""
    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    if key not in _MODULES:
        path = Path(_FOLDER.name) / f"kernel_{key}.py"
        path.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(f"triton_kernel_{key}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        _MODULES[key] = module
    return _MODULES[key]


# --- kernels and what they mean ------------------------------------------------------------------


def ref(dtype: DType = DType.F32, rank: int = 2, mode: AccessMode = AccessMode.IN) -> RefType:
    return RefType(dtype, rank, mode)


def out(dtype: DType = DType.F32, rank: int = 2) -> RefType:
    return RefType(dtype, rank, AccessMode.OUT)


def traced(function: Callable[..., None], **params: Any) -> TileKernel:
    """The tile operations of a function whose parameters have these types, or are numbers."""
    given = [TracedParam(name, kind) for name, kind in params.items()]
    return trace_kernel(function.__name__, function, given)


def both(
    kernel: TileKernel, arguments: Sequence[Any], options: TritonOptions | None = None
) -> tuple[list[Array], list[Array]]:
    """What Triton and NumPy write, of the same arguments."""
    plain = [each.array if isinstance(each, Region) else each for each in arguments]
    theirs = [each.copy() if isinstance(each, np.ndarray) else each for each in plain]
    assert run(kernel, arguments, options) is None
    evaluate(kernel, theirs)
    written = [
        i
        for i, param in enumerate(kernel.params)
        if isinstance(param.type, RefType) and param.type.mode is not AccessMode.IN
    ]
    return [plain[i] for i in written], [theirs[i] for i in written]


EPSILON = {DType.F64: 2.0**-52, DType.F32: 2.0**-23, DType.F16: 2.0**-10, DType.BF16: 2.0**-7}


def assert_same(found: Array, wanted: Array, ulps: float = 0.0, floor: float = 0.0) -> None:
    """Equal, NaN to NaN; or within so many last places of the wanted numbers, or of `floor`."""
    dtype = DType.of(found.dtype)
    if dtype not in EPSILON:
        np.testing.assert_array_equal(found, wanted)
        return
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
    with np.errstate(invalid="ignore"):
        near = np.abs(a - b) <= ulps * EPSILON[dtype] * np.maximum(np.abs(b), floor)
    wrong = ~((a == b) | np.isnan(b) | near)
    assert not wrong.any(), f"{a[wrong][:5]} instead of {b[wrong][:5]}"
