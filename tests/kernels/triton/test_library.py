"""The ready kernels as Triton, whole and partial, with and without facts about their arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pto_wsp import kernels
from pto_wsp.dtypes import DType
from pto_wsp.kernels.triton_code import ParamFacts, TritonOptions
from tests.kernels.triton.harness import Array, PagedRegion, assert_same, both

F32, F16, BF16, I32 = DType.F32, DType.F16, DType.BF16, DType.I32


def numbers(*shape: int, dtype: DType = F32, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype.numpy)


def check(
    kernel: Any, arguments: list[Any], ulps: float, options: Any = None, **types: Any
) -> None:
    ir = kernel.trace(**types) if types else kernel.ir
    for mine, meant in zip(*both(ir, arguments, options), strict=True):
        finite = np.nan_to_num(meant.astype("f8"), posinf=0, neginf=0)
        assert_same(mine, meant, ulps, np.abs(finite).max(initial=1e-30))


@pytest.mark.parametrize("dtype", [F32, BF16], ids=lambda d: d.text)
@pytest.mark.parametrize("shape", [(3, 40), (2, 33)], ids=str)
def test_rows(dtype: DType, shape: tuple[int, int]) -> None:
    x, weight, bias = (numbers(*s, dtype=dtype) for s in (shape, (1, shape[1]), (1, shape[1])))
    new = np.zeros(shape, dtype.numpy)
    whole = ParamFacts(extents=shape, strides=(None, 1)) if shape == (3, 40) else ParamFacts()
    facts = TritonOptions(params={"x": whole, "out": whole})
    check(kernels.softmax(3, 40, dtype), [x, new.copy()], 8, facts)
    check(kernels.rmsnorm(3, 40, dtype), [x, weight, new.copy(), 1e-5], 8, facts)
    check(kernels.layernorm(3, 40, dtype), [x, weight, bias, new.copy(), 1e-5], 8, facts)
    check(kernels.silu_mul(3, 40, dtype), [x, x[:, ::-1].copy(), new.copy()], 8)
    half = (shape[0], 20)
    if shape[1] == 40:
        angles = numbers(*half, seed=3), numbers(*half, seed=4)
        check(kernels.rope(3, 40, dtype), [x, *angles, new.copy()], 4)


@pytest.mark.parametrize("dtype", [F32, F16], ids=lambda d: d.text)
@pytest.mark.parametrize("shape", [(8, 16, 40), (5, 9, 20)], ids=str)
def test_products(dtype: DType, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b, w = (numbers(*s, dtype=dtype, seed=7) for s in ((m, k), (k, n), (n, k)))
    both_2 = {"a": (dtype, 2), "b": (dtype, 2)}
    check(kernels.gemm(8, 16, 16), [a, b, np.zeros((m, n), "f4")], 40, **both_2)
    options = TritonOptions(num_stages=2, params={"weight": ParamFacts(extents=(n, ("x", 1)))})
    linear = kernels.linear(8, 16, 16, dtype, add=True)
    types = {"x": (dtype, 2), "weight": (dtype, 2)}
    check(linear, [a, w, numbers(m, n, dtype=dtype)], 40, options, **types)
    gated = kernels.gated_linear(8, 16, 16, dtype)
    types = {"x": (dtype, 2), "gate": (dtype, 2), "up": (dtype, 2)}
    check(gated, [a, w, w[:, ::-1].copy(), np.zeros((m, n), dtype.numpy)], 40, **types)


def test_dequantise() -> None:
    q = np.random.default_rng(2).integers(-128, 128, (3, 24)).astype("i1")
    scale, zero = numbers(3, 3), numbers(3, 3, seed=1)
    check(kernels.dequantise(4, 24, 8, BF16), [q, scale, zero, np.zeros((3, 24), BF16.numpy)], 1)


@pytest.mark.parametrize("dtype", [F32, BF16], ids=lambda d: d.text)
@pytest.mark.parametrize("keys", [32, 21, 3])
def test_attention(dtype: DType, keys: int) -> None:
    q, k, v = (numbers(n, 24, dtype=dtype, seed=n) for n in (5, keys, keys))
    types = {"k": (dtype, 2), "v": (dtype, 2)}
    options = TritonOptions(params={"v": ParamFacts(extents=(("k", 0), None))}, num_stages=3)
    flash = kernels.flash_attention(8, 16, 24, dtype)
    check(flash, [q, k, v, np.zeros((5, 24), dtype.numpy), 0.3], 40, options, **types)
    masked = kernels.masked_attention(8, 16, 24, dtype, window=7)
    check(masked, [q, k, v, np.zeros((5, 24), dtype.numpy), 0.3, keys - 5], 40, **types)


@pytest.mark.parametrize("keys", [32, 21])
@pytest.mark.parametrize("heads", [1, 4, 8])
def test_split_decode_of_pages(keys: int, heads: int) -> None:
    q = numbers(heads, 16, dtype=BF16)
    k, v = (PagedRegion(numbers(keys, 16, dtype=BF16, seed=n), page=8) for n in (1, 2))
    known = ParamFacts(page=8, table_stride=1, extents=(None, 16), strides=(16, 1))
    params = {"q": ParamFacts(whole=True, strides=(None, 1)), "k": known}
    params["v"] = ParamFacts(
        page=8, page_stride=128, table_stride=1, extents=(("k", 0), 16), strides=(16, 1)
    )
    options = TritonOptions(params=params, num_stages=2)
    part, stats = np.zeros((heads, 16), "f4"), np.zeros((heads, 2), "f4")
    decode = kernels.decode(heads, 16, 16, BF16, paged=True)
    check(decode, [q, k, v, part, stats, 0.25], 40, options, k=(BF16, 2), v=(BF16, 2))
    parts, stats = numbers(3 * heads, 16), np.abs(numbers(3 * heads, 2)) + 1
    types = {"parts": (F32, 2), "stats": (F32, 2)}
    for at_once in (1, 8):
        merge = kernels.merge_partials(heads, 16, BF16, at_once=at_once)
        check(merge, [parts, stats, np.zeros((heads, 16), BF16.numpy)], 2, **types)


def test_tokens() -> None:
    logits = numbers(3, 11)
    chosen, weights = np.zeros((3, 3), "i4"), np.zeros((3, 3), "f4")
    check(kernels.topk_router(4, 11, 3), [logits, chosen, weights], 8)
    tokens, table = np.array([[2], [9], [-1]], "i4"), numbers(5, 12)
    check(kernels.embedding(4, 12), [tokens, table, np.ones((3, 12), "f4")], 0, table=(F32, 2))
    check(kernels.argmax(3, 8), [numbers(2, 19), np.zeros((2, 1), "i4")], 0, x=(F32, 2))
    scores = numbers(37)
    check(kernels.select_topk(5, 16), [scores, np.zeros(5, "i4")], 0, scores=(F32, 1))


def test_choices() -> None:
    """Counting with loads and stores of single elements; rows there and back."""
    chosen = np.random.default_rng(3).integers(0, 4, (5, 2)).astype("i4")
    empty = [np.zeros(5, "i4"), np.zeros(10, "i4"), np.zeros((5, 2), "i4")]
    types = {name: (I32, rank) for name, rank in (("chosen", 2), ("indices", 1), ("places", 2))}
    check(kernels.group_choices(4, 2), [chosen, *empty], 0, **types)
    x, choices = numbers(5, 6), np.arange(7, dtype="i4")
    gather = kernels.gather_choices(8, 6, 2)
    check(gather, [x, choices, np.zeros((7, 6), "f4")], 0, x=(F32, 2))
    places, weights = np.array([[0, 3], [9, 4], [1, 1]], "i4"), numbers(3, 2)
    combine = kernels.combine_choices(4, 6, 2)
    check(combine, [x, places, weights, np.zeros((3, 6), "f4")], 2, x=(F32, 2))
