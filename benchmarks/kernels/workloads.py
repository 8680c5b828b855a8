"""Workloads made of the kernels of the library."""

from __future__ import annotations

from typing import Any

import numpy as np

from pto_wsp import DenseDyn, DType, P, Tensor, Workload, kernels, workload

PRODUCT_TILE = 256
ROWS = 8
QUERIES, KEYS, DIM = 128, 128, 128


def product(a: Any, b: Any, c: Any) -> Workload:
    size, tile = a.shape[0], PRODUCT_TILE
    gemm = kernels.gemm(tile, tile, 256)

    @workload
    def product(rows, cols, a, b, c):
        for i, j in P(rows, cols):
            y, x = i * tile, j * tile
            gemm[i, j](
                a=a[y : y + tile, 0:size],
                b=b[0:size, x : x + tile],
                c=c[y : y + tile, x : x + tile],
            )

    count = DenseDyn(size // tile)
    return product(count, DenseDyn(size // tile), *(Tensor(data=each) for each in (a, b, c)))


def rows(name: str, x: Any, weight: Any, out: Any) -> Workload:
    cols = x.shape[1]
    softmax, rmsnorm = kernels.softmax(ROWS, cols), kernels.rmsnorm(ROWS, cols)

    @workload
    def soft(blocks, x, out):
        for i in P(blocks):
            at = i * ROWS
            softmax[i](x=x[at : at + ROWS, 0:cols], out=out[at : at + ROWS, 0:cols])

    @workload
    def norm(blocks, x, weight, out):
        for i in P(blocks):
            at = i * ROWS
            rmsnorm[i](x=x[at : at + ROWS, 0:cols], weight=weight, out=out[at : at + ROWS, 0:cols])

    blocks = DenseDyn(x.shape[0] // ROWS)
    if name == "softmax":
        return soft(blocks, Tensor(data=x), Tensor(data=out))
    return norm(blocks, Tensor(data=x), Tensor(data=weight), Tensor(data=out))


def attention(q: Any, k: Any, v: Any, out: Any) -> Workload:
    flash = kernels.flash_attention(QUERIES, KEYS, DIM)
    tokens = q.shape[1]

    @workload
    def attention(heads, blocks, q, k, v, out):
        for h, i in P(heads, blocks):
            at = i * QUERIES
            flash[h, i](
                q=q[h, at : at + QUERIES, 0:DIM],
                k=k[h, 0:tokens, 0:DIM],
                v=v[h, 0:tokens, 0:DIM],
                out=out[h, at : at + QUERIES, 0:DIM],
                scale=DIM**-0.5,
            )

    given = (Tensor(data=each) for each in (q, k, v, out))
    return attention(DenseDyn(q.shape[0]), DenseDyn(tokens // QUERIES), *given)


def ten_kernels() -> Workload:
    """One call of each of ten kernels."""

    def zeros(*shape: int, dtype: Any = np.float32) -> Tensor:
        return Tensor(data=np.zeros(shape, dtype))

    x, y, z, row = zeros(16, 128), zeros(16, 128), zeros(16, 128), zeros(1, 128)
    half, square = zeros(16, 64), zeros(128, 128)
    number, scale = zeros(16, 128, dtype=np.int8), zeros(16, 2)
    part, stats = zeros(16, 128), zeros(16, 2)
    parts, all_stats = zeros(48, 128), zeros(48, 2)
    chosen, shares = zeros(16, 4, dtype=np.int32), zeros(16, 4)

    @workload
    def ten(once):
        for _ in P(once):
            kernels.softmax(16, 128)(x=x, out=y)
            kernels.rmsnorm(16, 128)(x=x, weight=row, out=y)
            kernels.layernorm(16, 128)(x=x, weight=row, bias=row, out=y)
            kernels.rope(16, 128)(x=x, cos=half, sin=half, out=y)
            kernels.silu_mul(16, 128)(gate=x, up=z, out=y)
            kernels.gemm(16, 128, 128)(a=x, b=square, c=y)
            kernels.dequantise(16, 128, 64)(q=number, scale=scale, zero=scale, out=y)
            kernels.decode(16, 64, 128)(q=x, k=square, v=square, part=part, stats=stats, scale=1.0)
            kernels.merge_partials(16, 128)(parts=parts, stats=all_stats, out=y)
            kernels.topk_router(16, 128, 4, DType.F32)(logits=x, chosen=chosen, weights=shares)

    return ten(DenseDyn(1))
