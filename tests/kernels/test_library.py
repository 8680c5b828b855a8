"""The ready kernels against NumPy in float64, whole and partial tiles, on both targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pto_wsp import DenseDyn, DType, P, PagedTensor, Tensor, kernels, workload

TARGETS = ("reference", "cpu_sim")
# How far a result may be from the exact one, relative to the largest number in it.
NEAR = {DType.F32: 2e-6, DType.F16: 1e-3, DType.BF16: 8e-3}
HALF = {DType.F32: np.float32, DType.F16: np.float16, DType.BF16: ml_dtypes.bfloat16}


def numbers(*shape: int, dtype: DType = DType.F32, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(HALF[dtype])


def call(kernel: Any, target: str, **arguments: Any) -> None:
    """One task, with whole arrays as its regions."""
    given = {
        name: Tensor(data=value, name=name) if isinstance(value, np.ndarray) else value
        for name, value in arguments.items()
    }

    @workload
    def once(axis):
        for i in P(axis):
            # Functions make regions, which exist inside a workload only.
            kernel[i](**{name: v() if callable(v) else v for name, v in given.items()})

    with once(DenseDyn(1)).compile(target=target) as program:
        program.execute()


def is_near(found: Any, exact: Any, dtype: DType = DType.F32) -> bool:
    difference = np.abs(found.astype(np.float64) - exact).max()
    return bool(difference <= NEAR[dtype] * max(1e-30, np.abs(exact).max()))


def softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def attend(q: Any, k: Any, v: Any, scale: float) -> Any:
    return softmax(q @ k.T * scale) @ v


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("shape", [(8, 40), (5, 33), (1, 1)])
def test_norms(target: str, dtype: DType, shape: tuple[int, int]) -> None:
    x, out = numbers(*shape, dtype=dtype), np.zeros(shape, HALF[dtype])
    weight, bias = (numbers(1, shape[1], dtype=dtype, seed=s) for s in (1, 2))
    wide, w, b = (each.astype(np.float64) for each in (x, weight, bias))

    call(kernels.softmax(8, 40, dtype), target, x=x, out=out)
    assert is_near(out, softmax(wide), dtype)

    call(kernels.rmsnorm(8, 40, dtype), target, x=x, weight=weight, out=out, eps=1e-5)
    mean = (wide * wide).mean(axis=1, keepdims=True)
    assert is_near(out, wide / np.sqrt(mean + 1e-5) * w, dtype)

    call(kernels.layernorm(8, 40, dtype), target, x=x, weight=weight, bias=bias, out=out)
    centred = wide - wide.mean(axis=1, keepdims=True)
    deviation = np.sqrt((centred * centred).mean(axis=1, keepdims=True) + 1e-5)
    assert is_near(out, centred / deviation * w + b, dtype)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rows", [6, 4])
def test_pointwise(target: str, rows: int) -> None:
    gate, up = numbers(rows, 24), numbers(rows, 24, seed=1)
    out = np.zeros_like(gate)
    call(kernels.silu_mul(6, 24), target, gate=gate, up=up, out=out)
    wide = gate.astype(np.float64)
    assert is_near(out, wide / (1 + np.exp(-wide)) * up)

    angle = numbers(rows, 12, seed=2)
    cos, sin = np.cos(angle), np.sin(angle)
    call(kernels.rope(6, 24), target, x=gate, cos=cos, sin=sin, out=out)
    first, second = gate[:, :12], gate[:, 12:]
    turned = np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=1)
    assert is_near(out, turned.astype(np.float64))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("depth", [1, 32, 70])
@pytest.mark.parametrize("dtype", HALF)
def test_gemm(target: str, depth: int, dtype: DType) -> None:
    for rows, cols in ((12, 20), (7, 3)):
        a, b = numbers(rows, depth, dtype=dtype), numbers(depth, cols, dtype=dtype, seed=1)
        c = np.zeros((rows, cols), np.float32)
        call(kernels.gemm(12, 20, 32), target, a=a, b=b, c=c)
        assert is_near(c, a.astype(np.float64) @ b.astype(np.float64))


@pytest.mark.parametrize("target", TARGETS)
def test_dequantise(target: str) -> None:
    q = np.random.default_rng(0).integers(-128, 128, (5, 32)).astype(np.int8)
    scale, zero, out = numbers(5, 4), numbers(5, 4, seed=1), np.zeros((5, 32), np.float32)
    call(kernels.dequantise(8, 32, 8), target, q=q, scale=scale, zero=zero, out=out)
    wide = q.reshape(5, 4, 8) - zero[:, :, None].astype(np.float64)
    assert is_near(out, (wide * scale[:, :, None]).reshape(5, 32))
    with pytest.raises(ValueError, match="33 columns are no whole number of groups of 8"):
        kernels.dequantise(8, 33, 8)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("tokens", [1, 16, 37])
@pytest.mark.parametrize("rows", [8, 3])
def test_flash_attention(target: str, tokens: int, rows: int) -> None:
    q, k, v = numbers(rows, 24), numbers(tokens, 24, seed=1), numbers(tokens, 24, seed=2)
    out = np.zeros_like(q)
    call(kernels.flash_attention(8, 16, 24), target, q=q, k=k, v=v, out=out, scale=0.2)
    assert is_near(out, attend(*(each.astype(np.float64) for each in (q, k, v)), scale=0.2))


def split(
    q: Any, chunks: int, target: str, keys: Callable[[int], dict[str, Any]], paged: bool
) -> Any:
    """Attention by `decode` of each chunk and `merge_partials`."""
    parts = np.zeros((chunks, 4, 24), np.float32)
    stats = np.zeros((chunks, 4, 2), np.float32)
    out = np.zeros((4, 24), np.float32)
    for c in range(chunks):
        kernel = kernels.decode(4, 8, 24, paged=paged)
        call(kernel, target, q=q, **keys(c), part=parts[c], stats=stats[c], scale=0.3)
    call(kernels.merge_partials(4, 24), target, parts=parts, stats=stats, out=out)
    return out


@pytest.mark.parametrize("target", TARGETS)
def test_decode_in_chunks(target: str) -> None:
    q, k, v = numbers(4, 24), numbers(45, 24, seed=1), numbers(45, 24, seed=2)

    def keys(c: int) -> dict[str, Any]:
        return {"k": k[c * 20 : (c + 1) * 20], "v": v[c * 20 : (c + 1) * 20]}

    found = split(q, 3, target, keys, paged=False)
    assert is_near(found, attend(*(each.astype(np.float64) for each in (q, k, v)), scale=0.3))


@pytest.mark.parametrize("target", TARGETS)
def test_decode_through_a_page_table(target: str) -> None:
    q = numbers(4, 24)
    pools = [numbers(6, 8, 24, seed=s) for s in (1, 2)]  # six pages of eight tokens
    table = np.array([[4, 0, 5]], np.int32)
    k, v = (pool[table[0]].reshape(24, 24).astype(np.float64) for pool in pools)
    paged_k, paged_v = (
        PagedTensor(Tensor(data=pool), table, page=8, name=name)
        for pool, name in zip(pools, "kv", strict=True)
    )

    def keys(c: int) -> dict[str, Any]:
        first, last = 13 * c, min(13 * (c + 1), 21)
        return {"k": lambda: paged_k[0, first:last], "v": lambda: paged_v[0, first:last]}

    found = split(q, 2, target, keys, paged=True)
    assert is_near(found, attend(q.astype(np.float64), k[:21], v[:21], 0.3))


@pytest.mark.parametrize("target", TARGETS)
def test_topk_router(target: str) -> None:
    logits = numbers(9, 16)
    logits[2, 3] = logits[2, 7] = 5.0  # of equal ones the first
    chosen, weights = np.zeros((9, 4), np.int32), np.zeros((9, 4), np.float32)
    call(kernels.topk_router(12, 16, 4), target, logits=logits, chosen=chosen, weights=weights)
    order = np.argsort(-logits, axis=1, kind="stable")[:, :4]
    assert (chosen == order).all()
    best = np.take_along_axis(logits, order, axis=1).astype(np.float64)
    assert is_near(weights, softmax(best))
