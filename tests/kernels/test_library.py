"""The ready kernels against NumPy in float64, whole and partial tiles, on both targets."""

from __future__ import annotations

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


def call(target: str, *calls: tuple[Any, dict[str, Any]]) -> None:
    """One task of each kernel, with whole arrays as its regions: one program, compiled once."""
    given = [
        {
            name: Tensor(data=v, name=f"{name}_{n}") if isinstance(v, np.ndarray) else v
            for name, v in arguments.items()
        }
        for n, (_, arguments) in enumerate(calls)
    ]

    @workload
    def once(axis):
        for i in P(axis):
            for (kernel, _), arguments in zip(calls, given, strict=True):
                # Functions make regions, which exist inside a workload only.
                kernel[i](**{name: v() if callable(v) else v for name, v in arguments.items()})

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
@pytest.mark.parametrize("shape", [(8, 40), (5, 33), (1, 1)])
def test_norms(target: str, shape: tuple[int, int]) -> None:
    calls: list[tuple[Any, dict[str, Any]]] = []
    exact: list[Any] = []
    for dtype in HALF:
        x = numbers(*shape, dtype=dtype)
        weight, bias = (numbers(1, shape[1], dtype=dtype, seed=s) for s in (1, 2))
        wide, w, b = (each.astype(np.float64) for each in (x, weight, bias))
        out = [np.zeros(shape, HALF[dtype]) for _ in range(3)]
        scaled = {"x": x, "weight": weight}
        calls += [
            (kernels.softmax(8, 40, dtype), {"x": x, "out": out[0]}),
            (kernels.rmsnorm(8, 40, dtype), {**scaled, "out": out[1], "eps": 1e-5}),
            (kernels.layernorm(8, 40, dtype), {**scaled, "bias": bias, "out": out[2]}),
        ]
        centred = wide - wide.mean(axis=1, keepdims=True)
        deviation = np.sqrt((centred * centred).mean(axis=1, keepdims=True) + 1e-5)
        exact += [
            softmax(wide),
            wide / np.sqrt((wide * wide).mean(axis=1, keepdims=True) + 1e-5) * w,
            centred / deviation * w + b,
        ]
    call(target, *calls)
    for (kernel, arguments), wanted in zip(calls, exact, strict=True):
        found = arguments["out"]
        assert is_near(found, wanted, DType.of(found.dtype)), kernel


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rows", [6, 4])
def test_pointwise(target: str, rows: int) -> None:
    gate, up, angle = numbers(rows, 24), numbers(rows, 24, seed=1), numbers(rows, 12, seed=2)
    product, turned = np.zeros_like(gate), np.zeros_like(gate)
    cos, sin = np.cos(angle), np.sin(angle)
    call(
        target,
        (kernels.silu_mul(6, 24), {"gate": gate, "up": up, "out": product}),
        (kernels.rope(6, 24), {"x": gate, "cos": cos, "sin": sin, "out": turned}),
    )
    wide = gate.astype(np.float64)
    assert is_near(product, wide / (1 + np.exp(-wide)) * up)
    first, second = wide[:, :12], wide[:, 12:]
    halves = first * cos - second * sin, second * cos + first * sin
    assert is_near(turned, np.concatenate(halves, axis=1))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("depth", [1, 32, 70])
@pytest.mark.parametrize(("rows", "cols"), [(12, 20), (7, 3)])
def test_gemm(target: str, depth: int, rows: int, cols: int) -> None:
    calls: list[tuple[Any, dict[str, Any]]] = []
    for dtype in HALF:
        a, b = numbers(rows, depth, dtype=dtype), numbers(depth, cols, dtype=dtype, seed=1)
        c = np.zeros((rows, cols), np.float32)
        calls.append((kernels.gemm(12, 20, 32), {"a": a, "b": b, "c": c}))
    call(target, *calls)
    for _, given in calls:
        exact = given["a"].astype(np.float64) @ given["b"].astype(np.float64)
        assert is_near(given["c"], exact)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("rows", "cols", "depth"), [(6, 16, 64), (5, 9, 70)])
def test_linear(target: str, rows: int, cols: int, depth: int) -> None:
    x, up = numbers(rows, depth), numbers(cols, depth, seed=1)
    gate, before = numbers(cols, depth, seed=2), numbers(rows, cols, seed=3)
    plain, added, gated = (np.zeros((rows, cols), np.float32), before.copy(), before.copy())
    call(
        target,
        (kernels.linear(6, 16, 32), {"x": x, "weight": up, "out": plain}),
        (kernels.linear(6, 16, 32, add=True), {"x": x, "weight": up, "out": added}),
        (kernels.gated_linear(6, 16, 32), {"x": x, "gate": gate, "up": up, "out": gated}),
    )
    wide, product = x.astype(np.float64), x.astype(np.float64) @ up.T
    opened = wide @ gate.T
    assert is_near(plain, product)
    assert is_near(added, before + product)
    assert is_near(gated, opened / (1 + np.exp(-opened)) * product)


@pytest.mark.parametrize("target", TARGETS)
def test_embedding_and_argmax(target: str) -> None:
    table, rows = numbers(10, 12), np.zeros((3, 12), np.float32)
    tokens = np.array([[7], [0], [11]], np.int32)  # there is no row 11
    scores, places = numbers(3, 21), np.full((3, 1), -1, np.int32)
    scores[1, [3, 9, 20]] = 5.0  # of equal ones the first, also in another block
    scores[2] = -np.inf
    scores[2, 20] = -1e30
    call(
        target,
        (kernels.embedding(4, 12), {"tokens": tokens, "table": table, "out": rows}),
        (kernels.argmax(4, 8), {"x": scores, "out": places}),
    )
    assert np.array_equal(rows, [table[7], table[0], np.zeros(12)])
    assert places[:, 0].tolist() == scores.argmax(axis=1).tolist() == [places[0, 0], 3, 20]


@pytest.mark.parametrize("target", TARGETS)
def test_dequantise_and_router(target: str) -> None:
    q = np.random.default_rng(0).integers(-128, 128, (5, 32)).astype(np.int8)
    scale, zero, out = numbers(5, 4), numbers(5, 4, seed=1), np.zeros((5, 32), np.float32)
    logits = numbers(9, 16)
    logits[2, 3] = logits[2, 7] = 5.0  # of equal ones the first
    chosen, weights = np.zeros((9, 4), np.int32), np.zeros((9, 4), np.float32)
    call(
        target,
        (kernels.dequantise(8, 32, 8), {"q": q, "scale": scale, "zero": zero, "out": out}),
        (
            kernels.topk_router(12, 16, 4),
            {"logits": logits, "chosen": chosen, "weights": weights},
        ),
    )
    wide = q.reshape(5, 4, 8) - zero[:, :, None].astype(np.float64)
    assert is_near(out, (wide * scale[:, :, None]).reshape(5, 32))
    order = np.argsort(-logits, axis=1, kind="stable")[:, :4]
    assert (chosen == order).all()
    best = np.take_along_axis(logits, order, axis=1).astype(np.float64)
    assert is_near(weights, softmax(best))


def test_shapes_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="33 columns are no whole number of groups of 8"):
        kernels.dequantise(8, 33, 8)
    with pytest.raises(ValueError, match="7 is odd"):
        kernels.rope(8, 7)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("tokens", [1, 16, 37])
@pytest.mark.parametrize("rows", [8, 3])
def test_flash_attention(target: str, tokens: int, rows: int) -> None:
    q, k, v = numbers(rows, 24), numbers(tokens, 24, seed=1), numbers(tokens, 24, seed=2)
    out = np.zeros_like(q)
    given = {"q": q, "k": k, "v": v, "out": out, "scale": 0.2}
    call(target, (kernels.flash_attention(8, 16, 24), given))
    assert is_near(out, attend(*(each.astype(np.float64) for each in (q, k, v)), scale=0.2))


def split(target: str, q: Any, keys: list[dict[str, Any]], paged: bool, at_once: int = 1) -> Any:
    """Attention by `decode` of each chunk and `merge_partials`."""
    parts = np.zeros((len(keys), 4, 24), np.float32)
    stats = np.zeros((len(keys), 4, 2), np.float32)
    out = np.zeros((4, 24), np.float32)
    kernel = kernels.decode(4, 8, 24, paged=paged)
    for c, chunk in enumerate(keys):
        given = {"q": q, **chunk, "part": parts[c], "stats": stats[c], "scale": 0.3}
        call(target, (kernel, given))
    rows = {"parts": parts.reshape(-1, 24), "stats": stats.reshape(-1, 2)}
    call(target, (kernels.merge_partials(4, 24, at_once=at_once), {**rows, "out": out}))
    return out


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("tokens", [5, 32, 45])
def test_several_kv_heads_at_once(target: str, tokens: int) -> None:
    q, out = numbers(6, 24), np.zeros((6, 24), np.float32)
    k, v = numbers(tokens, 3, 24, seed=1), numbers(tokens, 3, 24, seed=2)
    given = {"q": q, "k": k, "v": v, "out": out, "scale": 0.3}
    call(target, (kernels.flash_attention(6, 16, 24, kv_heads=3), given))
    for h in range(3):
        mine = slice(2 * h, 2 * h + 2)
        exact = (each.astype(np.float64) for each in (q[mine], k[:, h], v[:, h]))
        assert is_near(out[mine], attend(*exact, scale=0.3))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rows", [1, 3, 5])
def test_several_kv_heads_and_too_few_rows(target: str, rows: int) -> None:
    """Rows that are not there belong to the last heads."""
    q, out = numbers(rows, 24), np.zeros((rows, 24), np.float32)
    k, v = numbers(20, 3, 24, seed=1), numbers(20, 3, 24, seed=2)
    given = {"q": q, "k": k, "v": v, "out": out, "scale": 0.3}
    call(target, (kernels.flash_attention(6, 16, 24, kv_heads=3), given))
    for row in range(rows):
        mine, h = slice(row, row + 1), row // 2
        exact = (each.astype(np.float64) for each in (q[mine], k[:, h], v[:, h]))
        assert is_near(out[mine], attend(*exact, scale=0.3))


def test_query_heads_have_to_share_kv_heads_evenly() -> None:
    with pytest.raises(ValueError, match="4 query heads do not share 3 KV heads evenly"):
        kernels.decode(4, 16, 24, kv_heads=3)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("at_once", [1, 2, 8])
def test_decode_in_chunks(target: str, at_once: int) -> None:
    q, k, v = numbers(4, 24), numbers(45, 24, seed=1), numbers(45, 24, seed=2)
    keys = [{"k": k[i : i + 20], "v": v[i : i + 20]} for i in range(0, 45, 20)]
    found = split(target, q, keys, paged=False, at_once=at_once)
    assert is_near(found, attend(*(each.astype(np.float64) for each in (q, k, v)), scale=0.3))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("at_once", [1, 2, 4])
def test_any_number_of_chunks(target: str, heads: int, at_once: int) -> None:
    """No multiples of those that are merged at a time, of one row as well; none gives zeros."""
    merge = kernels.merge_partials(heads, 24, at_once=at_once)
    for chunks in (0, 1, 3, 4, 5):
        parts = numbers(chunks, heads, 24, seed=chunks)
        stats = np.abs(numbers(chunks, heads, 2, seed=9)) - [1, 0]
        out = np.full((heads, 24), np.nan, np.float32)
        rows = {"parts": parts.reshape(-1, 24), "stats": stats.astype(np.float32).reshape(-1, 2)}
        call(target, (merge, {**rows, "out": out}))
        weights = np.exp(stats[..., :1])
        total = (weights * stats[..., 1:]).sum(axis=0)
        assert is_near(out, (weights * parts).sum(axis=0) / (total if chunks else 1))


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
    keys = [
        {"k": lambda: paged_k[0, 0:13], "v": lambda: paged_v[0, 0:13]},
        {"k": lambda: paged_k[0, 13:21], "v": lambda: paged_v[0, 13:21]},
    ]
    found = split(target, q, keys, paged=True)
    assert is_near(found, attend(q.astype(np.float64), k[:21], v[:21], 0.3))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("page", "by_head"), [(1, False), (5, True), (8, False), (64, True)])
def test_kv_heads_of_pages_at_once(target: str, page: int, by_head: bool) -> None:
    """All heads of a page before the next page, to the bit what each head gives by itself."""
    heads, dim, block = 3, 24, 16
    for tokens in (1, 15, 37, 160):
        first, q = 3, numbers(4 * heads, dim)
        count = -(-(first + tokens) // page)
        table = np.random.default_rng(tokens).permutation(count).astype(np.int32)[None]
        shape = (count, heads, page, dim) if by_head else (count, page, heads, dim)
        pools = [numbers(*shape, seed=s) for s in (1, 2)]
        k, v = (
            PagedTensor(Tensor(data=p.swapaxes(1, 2) if by_head else p), table, page=page, name=n)
            for p, n in zip(pools, "kv", strict=True)
        )
        span = slice(first, first + tokens)
        together, alone = np.zeros((2, *q.shape), np.float32)
        many = kernels.flash_attention(4 * heads, block, dim, paged=True, kv_heads=heads)
        one = kernels.flash_attention(4, block, dim, paged=True)
        given = {"k": lambda s=span, k=k: k[0, s], "v": lambda s=span, v=v: v[0, s], "scale": 0.3}
        calls = [(many, {"q": q, "out": together, **given})]
        for h in range(heads):
            own = {n: lambda s=span, t=t, h=h: t[0, s, h] for n, t in (("k", k), ("v", v))}
            mine = slice(4 * h, 4 * h + 4)
            calls.append((one, {"q": q[mine], "out": alone[mine], **own, "scale": 0.3}))
        call(target, *calls)
        assert np.array_equal(together, alone), tokens
