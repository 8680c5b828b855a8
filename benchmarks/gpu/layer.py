"""One decode step of a layer shaped like those of LLaMA 1B: 16 sequences of 1024 tokens, bf16.

The weights are more than the L2 cache holds, so every run reads them from memory.
"""

# Annotations are values here, and the parameters of workloads symbols.
# pyright: basic, reportInvalidTypeForm=false, reportArgumentType=false
from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.gpu.arrays import OPTIONS, bound, drawing, empty
from benchmarks.gpu.rows import Report
from benchmarks.gpu.timing import (
    graph_us,
    interpreted,
    program_us,
    tensor_of,
    torch,
    where,
)
from pto_wsp import (
    DenseDyn,
    DType,
    In,
    InOut,
    Kernel,
    P,
    PagedTensor,
    Program,
    Tensor,
    Tile,
    kernel,
    kernels,
    minimum,
    pto,
    workload,
)
from pto_wsp.workloads.llama import rotate_and_append

SECTION = "layer"
F32, BF16 = DType.F32, DType.BF16
_ERROR = 3e-2  # rounded to 8 bits half a dozen times
_EPS = 1e-5


@dataclass(frozen=True, slots=True)
class Shape:
    d_model: int = 2048
    heads: int = 32
    kv_heads: int = 8
    dim: int = 64
    d_ff: int = 8192
    batch: int = 16
    context: int = 1024
    page: int = 16
    rows: int = 16  # of a tile
    cols: int = 16  # of a product
    wide: int = 32  # of the gated product
    depth: int = 256
    chunk: int = 256  # keys of a task
    keys: int = 64  # at a time

    @property
    def group(self) -> int:
        return self.heads // self.kv_heads


TINY = Shape(32, 4, 2, 16, 32, 2, 20, 4, 16, 16, 16, 16, 16, 16)


@functools.cache
def add_heads(rows: int, cols: int, dim: int) -> Kernel:
    """`add_heads(x, weight, out)`: out + x @ weight.T, where x is [row, head, dim]."""

    @kernel(body="tile")
    def add_heads(x: In[Tensor], weight: In[Tensor], out: InOut[Tile[rows, cols, BF16]]):
        s = pto.carry(sum=pto.pad(pto.cast(out, F32), 0.0))
        for h in pto.for_range(0, x.shape[1]):
            head = pto.load(x[0:rows, h, 0:dim])
            part = pto.load(weight[0:cols, h * dim : h * dim + dim])
            s.sum = pto.matmul_acc(s.sum, head, part.T)
        pto.store(out, pto.cast(s.sum, BF16))

    return add_heads


def _workload(s: Shape) -> Any:
    norm = kernels.rmsnorm(1, s.d_model, BF16)
    product = kernels.linear(s.rows, s.cols, s.depth, BF16)
    add_product = kernels.linear(s.rows, s.cols, s.depth, BF16, add=True)
    gated = kernels.gated_linear(s.rows, s.wide, s.depth, BF16)
    rotate = rotate_and_append(s.group, s.dim, BF16)
    add_mixed = add_heads(s.rows, s.cols, s.dim)
    partial = kernels.decode(s.group, s.keys, s.dim, BF16, paged=True)
    merge = kernels.merge_partials(s.group, s.dim, BF16, at_once=8)
    scale = s.dim**-0.5

    def tiles(width: int, cols: int, count):
        for j, i in P(width // cols, (count + s.rows - 1) // s.rows):
            rows = slice(i * s.rows, minimum(i * s.rows + s.rows, count))
            yield (j, i), rows, slice(j * cols, j * cols + cols)

    def project(x, matrix, heads: int, out) -> None:
        parts = s.dim // s.cols
        for h, c, i in P(heads, parts, (x.shape[0] + s.rows - 1) // s.rows):
            rows = slice(i * s.rows, minimum(i * s.rows + s.rows, x.shape[0]))
            part, first = slice(c * s.cols, c * s.cols + s.cols), h * s.dim + c * s.cols
            product[h, c, i](x[rows], matrix[first : first + s.cols], out[rows, h, part])

    @workload
    def layer(batch, lens, x, K, V, cos, sin, norm_1, wq, wk, wv, wo, norm_2, w_gate, w_up, w_down):
        count = x.shape[0]
        normed, between = (Tensor.temp((count, s.d_model), BF16) for _ in range(2))
        q, mixed = (Tensor.temp((count, s.heads, s.dim), BF16) for _ in range(2))
        k, v = (Tensor.temp((count, s.kv_heads, s.dim), BF16) for _ in range(2))
        wide = Tensor.temp((count, s.d_ff), BF16)
        for b in P(batch):
            norm[b](x[b : b + 1], norm_1, normed[b : b + 1], _EPS)
        project(normed, wq, s.heads, q)
        project(normed, wk, s.kv_heads, k)
        project(normed, wv, s.kv_heads, v)
        for b, h in P(batch, s.kv_heads):
            at, group = lens[b], slice(h * s.group, h * s.group + s.group)
            here = slice(at, at + 1)
            new = K[b, at, h], V[b, at, h]
            rotate[b, h](q[b, group], k[b, h : h + 1], v[b, h], cos[here], sin[here], *new)
            chunks = at // s.chunk + 1
            parts = Tensor.temp((chunks * s.group, s.dim), F32)
            stats = Tensor.temp((chunks * s.group, 2), F32)
            for c in P(chunks):
                some = (b, slice(c * s.chunk, minimum(c * s.chunk + s.chunk, at + 1)), h)
                mine = slice(c * s.group, (c + 1) * s.group)
                partial[b, h, c](q[b, group], K[some], V[some], parts[mine], stats[mine], scale)
            merge[b, h](parts, stats, mixed[b, group])
        for tile, rows, part in tiles(s.d_model, s.cols, count):
            add_mixed[tile](mixed[rows], wo[part], x[rows, part])
        for b in P(batch):
            norm[b](x[b : b + 1], norm_2, between[b : b + 1], _EPS)
        for tile, rows, part in tiles(s.d_ff, s.wide, count):
            gated[tile](between[rows], w_gate[part], w_up[part], wide[rows, part])
        for tile, rows, part in tiles(s.d_model, s.cols, count):
            add_product[tile](wide[rows], w_down[part], x[rows, part])

    return layer


def weight_shapes(s: Shape) -> dict[str, tuple[int, ...]]:
    wide, narrow = s.heads * s.dim, s.kv_heads * s.dim
    return {
        "norm_1": (1, s.d_model),
        "norm_2": (1, s.d_model),
        "wq": (wide, s.d_model),
        "wk": (narrow, s.d_model),
        "wv": (narrow, s.d_model),
        "wo": (s.d_model, wide),
        "w_down": (s.d_model, s.d_ff),
        "w_gate": (s.d_ff, s.d_model),
        "w_up": (s.d_ff, s.d_model),
    }


def compiled(s: Shape) -> Program:
    table = Tensor(data=np.zeros((1, 1), np.int32), name="table")
    pools = [empty(name, 1, s.page, s.kv_heads, s.dim) for name in ("keys", "values")]
    weights = {name: empty(name, *sizes) for name, sizes in weight_shapes(s).items()}
    return _workload(s)(
        batch=DenseDyn(s.batch),
        lens=np.zeros(s.batch, np.int32),
        x=empty("x", 1, s.d_model),
        K=PagedTensor(pools[0], table),
        V=PagedTensor(pools[1], table),
        cos=empty("cos", 1, s.dim // 2, dtype=F32),
        sin=empty("sin", 1, s.dim // 2, dtype=F32),
        **weights,
    ).compile(**OPTIONS)


def measure(report: Report, *, tiny: bool) -> None:
    s = TINY if tiny else Shape()
    with report.case(SECTION, "decode layer"):
        program = compiled(s)
        given = _inputs(s)
        arrays = bound(given)
        wanted = torch_layer(s, given, torch().float32)()
        program.execute(**arrays)
        error = float((given["x"].float() - wanted).abs().max() / wanted.abs().max())
        wrong = "" if error <= _ERROR else f"error {error:.2g}"
        us = program_us(program, [arrays])
        rivals: dict[str, float] = {}
        if not interpreted():
            step = torch_layer(s, given, torch().bfloat16)
            rivals = {"torch in a CUDA graph": graph_us([step]).median, "torch": _eager_us(step)}
        size = sum(array.numel() for name, array in given.items() if name.startswith("w"))
        read = 2 * size + 4 * s.batch * s.context * s.kv_heads * s.dim
        for name, rival in rivals.items() or [("", 0.0)]:
            report.row(
                *(SECTION, f"{s.batch} x {s.context} tokens", us.median, "us"),
                rival=(name, rival) if name else None,
                wrong=wrong,
                error=error,
                tasks=program.stats.tasks,
                tb_per_s=read / us.median / 1e6,
            )
        program.close()


def _inputs(s: Shape) -> dict[str, Any]:
    drawn = drawing()
    given = {name: drawn(*size) / size[1] ** 0.5 for name, size in weight_shapes(s).items()}
    given |= {name: 1 + 0.1 * drawn(1, s.d_model) for name in ("norm_1", "norm_2")}
    per = s.context // s.page + 1
    numbers = np.random.default_rng(1).permutation(s.batch * per).astype(np.int32)
    given["table"] = tensor_of(numbers.reshape(s.batch, per))
    given |= {n: drawn(s.batch * per, s.page, s.kv_heads, s.dim) for n in ("keys", "values")}
    turns = torch().arange(s.dim // 2, device=where(), dtype=torch().float64) * 2 / s.dim
    angles = torch().arange(s.context + 1, device=where())[:, None] * 10000.0**-turns
    given |= {"cos": angles.cos().float(), "sin": angles.sin().float()}
    given["lens"] = torch().full((s.batch,), s.context, dtype=torch().int32, device=where())
    given["x"] = drawn(s.batch, s.d_model)
    return given


def torch_layer(s: Shape, given: dict[str, Any], dtype: Any) -> Any:
    """The same step with a contiguous cache, which is made before, and one matrix for queries, keys
    and values. Returns what x becomes."""
    functional = torch().nn.functional
    of = {n: a.to(dtype) for n, a in given.items() if n.startswith(("w", "norm", "x"))}
    pages = given["table"].long()
    cache = [
        given[name][pages].reshape(s.batch, -1, s.kv_heads, s.dim)[:, : s.context + 1]
        for name in ("keys", "values")
    ]
    keys, values = (each.transpose(1, 2).contiguous().to(dtype) for each in cache)
    wqkv = torch().cat([of["wq"], of["wk"], of["wv"]])
    cos, sin = (given[name][s.context].to(dtype) for name in ("cos", "sin"))

    def turned(x: Any) -> Any:
        low, high = x.chunk(2, -1)
        return torch().cat([low * cos - high * sin, high * cos + low * sin], -1)

    def step() -> Any:
        x = of["x"]
        normed = functional.rms_norm(x, (s.d_model,), of["norm_1"][0], _EPS)
        heads = functional.linear(normed, wqkv).view(s.batch, -1, s.dim)
        q, k, v = heads.split([s.heads, s.kv_heads, s.kv_heads], 1)
        keys[:, :, s.context], values[:, :, s.context] = turned(k), v
        mixed = functional.scaled_dot_product_attention(
            turned(q)[:, :, None], keys, values, enable_gqa=True
        )
        x = x + functional.linear(mixed.reshape(s.batch, -1), of["wo"])
        between = functional.rms_norm(x, (s.d_model,), of["norm_2"][0], _EPS)
        gate = functional.silu(functional.linear(between, of["w_gate"]))
        return x + functional.linear(gate * functional.linear(between, of["w_up"]), of["w_down"])

    return step


def _eager_us(step: Any) -> float:
    """Calls from Python, one after the other."""
    cuda = torch().cuda
    begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
    for event in (begin, end):
        for _ in range(50):
            step()
        event.record()
    cuda.synchronize()
    return begin.elapsed_time(end) * 1e3 / 50
