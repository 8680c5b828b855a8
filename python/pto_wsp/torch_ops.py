"""Operators of PyTorch: `import pto_wsp.torch_ops`, then `torch.ops.pto_wsp.paged_decode(...)`.

They have a schema and a kernel for fake tensors, so that `torch.compile(fullgraph=True)` and
`torch.export` take them as they are. A program is compiled once for each class of arguments, for
the device where they lie: `cuda` on a GPU, `cpu_sim` on the host, and with TRITON_INTERPRET=1
`cuda` as well, in Triton's interpreter.

On a GPU they are put into the current stream, which nobody waits for: `synchronize()` does, and
raises what went wrong. In a CUDA graph they can be captured after one call outside of it with the
same class, batch and width of the page table, which makes room for all lengths.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pto_wsp import DenseDyn, DType, PagedTensor, Scalar, Tensor, workloads
from pto_wsp.backends.cuda import device

if TYPE_CHECKING:
    from pto_wsp.runtime.program import Program

torch: Any = importlib.import_module("torch")
_DTYPES = {
    torch.float32: DType.F32,
    torch.float16: DType.F16,
    torch.bfloat16: DType.BF16,
    torch.int32: DType.I32,
    torch.int64: DType.I64,
}
_INTEGERS = (torch.int32, torch.int64)
GPU = workloads.GpuDecode()
_running = threading.Lock()
_programs: list[Program] = []


@dataclass(frozen=True, slots=True)
class _Class:
    """What a program is compiled for; `index` is the GPU."""

    target: str
    index: int | None
    heads: int
    kv_heads: int
    dim: int
    page: int
    dtype: DType
    table: DType
    lens: DType
    scale: float | None


def synchronize() -> None:
    """Waits for all operators of this module, and raises what went wrong in one of them."""
    for program in _programs:
        program.synchronize()


def _check(q: Any, k_pool: Any, v_pool: Any, page_table: Any, lens: Any) -> None:
    """ValueError if these are not the arguments of a decode step."""
    ranks = {"q": (q, 3), "k_pool": (k_pool, 4), "v_pool": (v_pool, 4)}
    ranks |= {"page_table": (page_table, 2), "lens": (lens, 1)}
    for name, (tensor, rank) in ranks.items():
        if tensor.dim() != rank:
            raise ValueError(f"paged_decode: {name} has {tensor.dim()} dimensions, not {rank}")
        if tensor.device != q.device:
            raise ValueError(f"paged_decode: {name} is on {tensor.device}, q on {q.device}")
    if q.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError(f"paged_decode: q is {q.dtype}, not float32, float16 or bfloat16")
    for name, pool in (("k_pool", k_pool), ("v_pool", v_pool)):
        if pool.dtype != q.dtype:
            raise ValueError(f"paged_decode: {name} is {pool.dtype}, q is {q.dtype}")
        if pool.shape[3] != q.shape[2] or pool.shape[1:3] != k_pool.shape[1:3]:
            raise ValueError(
                f"paged_decode: {name} is {list(pool.shape)}, not [pages, tokens a page, "
                f"KV heads, {q.shape[2]}] as k_pool is"
            )
    if q.shape[1] % k_pool.shape[2]:
        raise ValueError(f"paged_decode: {q.shape[1]} heads do not share {k_pool.shape[2]} evenly")
    for name, array in (("page_table", page_table), ("lens", lens)):
        if array.dtype not in _INTEGERS:
            raise ValueError(f"paged_decode: {name} is {array.dtype}, not int32 or int64")
        if array.shape[0] != q.shape[0]:
            raise ValueError(f"paged_decode: {name} is for {array.shape[0]} of {q.shape[0]}")


@functools.cache
def _decode_program(made_for: _Class) -> Program:
    c = made_for
    sizes = (c.heads, c.kv_heads, c.dim, c.page, c.dtype)
    on_gpu = c.target == "cuda"
    make = GPU.workload if on_gpu else workloads.paged_decode
    decode = make(*sizes, scale=c.scale)
    q = np.zeros((1, c.heads, c.dim), c.dtype.numpy)
    pool = np.zeros((1, c.page, c.kv_heads, c.dim), c.dtype.numpy)
    table = np.zeros((1, 1), c.table.numpy)
    made = decode(
        *(DenseDyn(1), np.zeros(1, c.lens.numpy), Scalar(1)),
        *(Tensor(data=q), PagedTensor(pool, table), PagedTensor(pool.copy(), table.copy())),
        Tensor(data=q.copy()),
    )
    program = made.compile(target=c.target, **(GPU.options if on_gpu else {}))
    _programs.append(program)
    return program


def paged_decode(
    q: Any,
    k_pool: Any,
    v_pool: Any,
    page_table: Any,
    lens: Any,
    blocks: int = 0,
    scale: float | None = None,
) -> Any:
    """One decode step of `workloads.paged_decode`: q [batch, heads, dim] against pools [pages,
    tokens a page, KV heads, dim]; `page_table` has a row of page numbers for each sequence, `lens`
    its tokens. `blocks`: chunks that all sequences together may be cut into; 0: enough for all
    workers, on a GPU as `workloads.GpuDecode` says. `scale`: 1 / sqrt(dim) if it is left out. No
    gradients."""
    _check(q, k_pool, v_pool, page_table, lens)
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    if q.shape[0] == 0:
        return out
    target = "cuda" if q.is_cuda or device.is_interpreted() else "cpu_sim"
    (_, heads, dim), (_, page, kv_heads, _) = q.shape, k_pool.shape
    dtypes = {"dtype": q.dtype, "table": page_table.dtype, "lens": lens.dtype}
    types = {name: _DTYPES[dtype] for name, dtype in dtypes.items()}
    sizes = (heads, kv_heads, dim, page)
    made_for = _Class(target, q.device.index, *sizes, **types, scale=scale)
    where: Any = torch.cuda.device(q.device) if q.is_cuda else contextlib.nullcontext()
    with _running, where:
        program = _decode_program(made_for)
        table = page_table.detach()
        bound = {
            "batch": q.shape[0],
            "blocks": blocks or _blocks(program, made_for),
            "lens": lens.detach(),
            "q": q.detach(),
            "k_pool": k_pool.detach(),
            "k_table": table,
            "v_pool": v_pool.detach(),
            "v_table": table,
            "out": out,
        }
        if not q.is_cuda:
            program.execute(**bound)
            return out
        _reserve(program, made_for, bound)
        program.enqueue(**bound)
    return out


def _blocks(program: Program, made_for: _Class) -> int:
    if made_for.target == "cuda":
        return GPU.blocks(program.num_workers, made_for.kv_heads)
    return max(1, 2 * program.num_workers // made_for.kv_heads)


_reserved: set[tuple[object, ...]] = set()


def _reserve(program: Program, made_for: _Class, bound: dict[str, Any]) -> None:
    """Room for sequences of every length that the page table has room for, and a kernel for tensors
    that lie like these: a run that finds no room computes nothing, and nobody waits for it here."""
    batch, width = bound["k_table"].shape
    strides = tuple(bound[name].stride() for name in ("q", "k_pool", "v_pool", "k_table", "lens"))
    key = (made_for, batch, width, bound["blocks"], strides)
    if key in _reserved:
        return
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            f"paged_decode: a batch of {batch} with page tables of {width} pages is new; "
            "call it once before it is captured in a CUDA graph"
        )
    for longest in GPU.longest_cut(made_for.page, width * made_for.page, bound["blocks"]):
        lens = torch.zeros_like(bound["lens"])
        lens[0] = longest
        program.reserve(**{**bound, "lens": lens})
    _reserved.add(key)


def _fake(
    q: Any,
    k_pool: Any,
    v_pool: Any,
    page_table: Any,
    lens: Any,
    blocks: int = 0,
    scale: float | None = None,
) -> Any:
    del blocks, scale
    _check(q, k_pool, v_pool, page_table, lens)
    return torch.empty_like(q, memory_format=torch.contiguous_format)


_SCHEMA = (
    "(Tensor q, Tensor k_pool, Tensor v_pool, Tensor page_table, Tensor lens, int blocks=0, "
    "float? scale=None) -> Tensor"
)
_NAME = "pto_wsp::paged_decode"

torch.library.define(_NAME, _SCHEMA, tags=(torch.Tag.pt2_compliant_tag,))
torch.library.impl(_NAME, ("CPU", "CUDA"), paged_decode)
torch.library.register_fake(_NAME, _fake)
