"""Sparse attention to a latent cache against torch in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pto_wsp import CompileError, PagedTensor, Program, StartPolicy, Tensor, TracePolicy, workloads
from pto_wsp.error_codes import Code

SHAPE = workloads.SparseAttentionShape(
    d_model=48,
    heads=6,
    q_rank=40,
    kv_rank=32,
    nope=16,
    rope=8,
    v_dim=12,
    index_heads=4,
    index_dim=16,
    top_k=20,
    rows=8,
    cols=32,
    head_rows=4,
    keys=8,
    index_block=16,
)
NEAR = 5e-6  # relative to the largest number
PAGE, PAGES, LONGEST = 4, 16, 64
# Calls of kernels in the order of the program: those of the two prologs.
MAIN, INDEX = range(2, 5), range(5, 9)


def numbers(rng: Any, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


def weight_shapes(s: workloads.SparseAttentionShape) -> dict[str, tuple[int, ...]]:
    return {
        "Wdq": (s.q_rank, s.d_model),
        "q_norm": (1, s.q_rank),
        "Wuq": (s.heads, s.nope + s.rope, s.q_rank),
        "Wdkv": (s.width, s.d_model),
        "kv_norm": (1, s.kv_rank),
        "Wuk": (s.heads, s.nope, s.kv_rank),
        "Wuv": (s.heads, s.v_dim, s.kv_rank),
        "Wo": (s.d_model, s.heads * s.v_dim),
        "Wiq": (s.index_heads, s.index_dim, s.q_rank),
        "Wik": (s.index_dim, s.d_model),
        "index_norm": (1, s.index_dim),
        "index_bias": (1, s.index_dim),
        "Wiw": (s.index_heads, s.d_model),
    }


class Layer:
    """A layer with random weights, and caches for some sequences in pages in any order."""

    def __init__(self, sequences: int, seed: int = 0, shape: Any = SHAPE) -> None:
        rng = self.rng = np.random.default_rng(seed)
        self.shape = shape
        sizes = weight_shapes(shape).items()
        self.weights = {name: numbers(rng, *size) / size[-1] ** 0.5 for name, size in sizes}
        angles = np.outer(np.arange(LONGEST), 10.0 ** -np.arange(shape.rope // 2))
        self.cos, self.sin = np.cos(angles), np.sin(angles)
        table = rng.permutation(sequences * PAGES).reshape(sequences, PAGES).astype(np.int32)
        self.latent = PagedTensor(numbers(rng, sequences * PAGES, PAGE, shape.width), table)
        self.index_keys = PagedTensor(numbers(rng, sequences * PAGES, PAGE, shape.index_dim), table)
        self.table = table

    def work(self) -> Any:
        tensors = {
            **self.weights,
            "cos": self.cos.astype(np.float32),
            "sin": self.sin.astype(np.float32),
            "X": np.zeros((1, self.shape.d_model), np.float32),
            "Y": np.zeros((1, self.shape.d_model), np.float32),
        }
        caches = {"latent": self.latent, "index_keys": self.index_keys}
        given = {name: Tensor(data=value) for name, value in tensors.items()}
        places = {"sequence": np.zeros(1, np.int32), "position": np.zeros(1, np.int32)}
        return workloads.sparse_attention(self.shape)(**given, **caches, **places)

    def cached(self, paged: PagedTensor) -> Any:
        """The tokens of each sequence in a row, in float64."""
        pool = paged.pool.data
        assert pool is not None
        return pool[self.table].reshape(len(self.table), LONGEST, -1).astype(np.float64)

    def run(self, program: Program, sequence: list[int], position: list[int]) -> tuple[Any, Any]:
        """One run with random tokens; what it is given, and what it says."""
        x = numbers(self.rng, len(sequence), self.shape.d_model)
        y = np.zeros_like(x)
        places = {"sequence": np.int32(sequence), "position": np.int32(position)}
        program.execute(X=x, Y=y, **places)
        return x, y

    def check(self, program: Program, sequence: list[int], position: list[int]) -> None:
        """The same, and that it is right."""
        torch = pytest.importorskip("torch")
        latent, keys = (torch.tensor(self.cached(each)) for each in (self.latent, self.index_keys))
        x, y = self.run(program, sequence, position)
        expected = exact(self, torch.tensor(x).double(), sequence, position, latent, keys).numpy()
        assert np.abs(y - expected).max() <= NEAR * np.abs(expected).max()
        for found, wanted in ((self.latent, latent.numpy()), (self.index_keys, keys.numpy())):
            assert np.abs(self.cached(found) - wanted).max() <= NEAR * np.abs(wanted).max()


def turn(x: Any, cos: Any, sin: Any) -> Any:
    torch = pytest.importorskip("torch")
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def rms(x: Any, weight: Any) -> Any:
    return x / ((x * x).mean(-1, keepdim=True) + SHAPE.eps) ** 0.5 * weight


def exact(layer: Layer, x: Any, sequence: Any, position: Any, latent: Any, keys: Any) -> Any:
    """Token by token, with keys and values made of the latents; the caches are filled as well."""
    torch = pytest.importorskip("torch")
    w = {name: torch.tensor(value).double() for name, value in layer.weights.items()}
    shape = layer.shape
    rank, nope, rope = shape.kv_rank, shape.nope, shape.rope
    out = []
    for token, s, p in zip(x, sequence, position, strict=True):
        cos, sin = torch.tensor(layer.cos[p]), torch.tensor(layer.sin[p])
        kv = w["Wdkv"] @ token
        latent[s, p] = torch.cat([rms(kv[:rank], w["kv_norm"][0]), turn(kv[rank:], cos, sin)])
        k = torch.nn.functional.layer_norm(
            w["Wik"] @ token, (shape.index_dim,), w["index_norm"][0], w["index_bias"][0], shape.eps
        )
        keys[s, p] = torch.cat([turn(k[:rope], cos, sin), k[rope:]])
    for token, s, p in zip(x, sequence, position, strict=True):
        cos, sin = torch.tensor(layer.cos[p]), torch.tensor(layer.sin[p])
        q_latent = rms(w["Wdq"] @ token, w["q_norm"][0])
        iq = w["Wiq"] @ q_latent
        iq = torch.cat([turn(iq[:, :rope], cos, sin), iq[:, rope:]], dim=1)
        scores = (w["Wiw"] @ token) @ torch.relu(iq @ keys[s, : p + 1].T)
        best, chosen = torch.sort(scores, descending=True, stable=True)
        if p + 1 > shape.top_k:  # rounding must not decide who is chosen; zeros are exact
            gap = best[shape.top_k - 1] - best[shape.top_k]
            assert gap > 1e-4 * best.abs().max() or best[shape.top_k] == gap == 0
        seen = latent[s, chosen[: shape.top_k]]
        q = w["Wuq"] @ q_latent
        heads = []
        for h in range(shape.heads):
            k = seen[:, :rank] @ w["Wuk"][h].T
            dots = k @ q[h, :nope] + seen[:, rank:] @ turn(q[h, nope:], cos, sin)
            shares = torch.softmax(dots * (nope + rope) ** -0.5, dim=0)
            heads.append(shares @ (seen[:, :rank] @ w["Wuv"][h].T))
        out.append(w["Wo"] @ torch.cat(heads))
    return torch.stack(out)


def test_decoding_without_compiling_again() -> None:
    layer = Layer(5)
    with layer.work().compile(num_threads=2) as program:
        lengths = np.array([0, 19, 20, 44, 58])
        for step in range(4):  # the second sequence grows beyond what is taken whole
            layer.check(program, list(range(5)), (lengths + step).tolist())
        layer.check(program, [3], [48])


def test_prefill_and_decode_in_one_run() -> None:
    layer = Layer(3, seed=1)
    program = layer.work().compile(num_threads=2)
    layer.check(program, [0] * 11 + [2] + [1] * 3, [*range(15, 26), 60, 0, 1, 2])


def test_on_the_reference() -> None:
    layer = Layer(2, seed=2)
    layer.check(layer.work().compile(target="reference"), [0, 1], [9, 40])


@pytest.mark.parametrize("sizes", [{"index_dim": SHAPE.rope}, {"rope": 2, "kv_rank": 23}])
def test_other_sizes(sizes: dict[str, int]) -> None:
    layer = Layer(3, seed=6, shape=replace(SHAPE, **sizes))
    layer.check(layer.work().compile(num_threads=2), [0, 1, 2], [0, 25, 60])


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"rope": 3}, "rope is 3, which is odd"),
        ({"index_dim": 6}, "rope is 8, and index_dim 6"),
        ({"top_k": 0}, "SparseAttentionShape: top_k is 0, and has to be at least 1"),
        ({"keys": 2.5}, "keys is 2.5"),
    ],
)
def test_sizes_that_cannot_be(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(CompileError, match=text) as caught:
        replace(SHAPE, **wrong)
    assert caught.value.code is Code.WORKLOAD_ARGUMENT


@pytest.mark.parametrize("name", ["Wuq", "index_norm"])
def test_other_dtypes_are_refused(name: str) -> None:
    layer = Layer(1)
    layer.weights[name] = layer.weights[name].astype(ml_dtypes.bfloat16)
    with pytest.raises(CompileError, match=f"sparse_attention: {name} is bf16"):
        layer.work().compile()


def test_caches_of_another_dtype_are_refused() -> None:
    layer = Layer(1)
    pool = np.zeros((PAGES, PAGE, SHAPE.width), ml_dtypes.bfloat16)
    layer.latent = PagedTensor(pool, layer.table)
    with pytest.raises(CompileError, match="sparse_attention: latent is bf16"):
        layer.work().compile()


def test_verified() -> None:
    layer = Layer(2, seed=3)
    layer.check(layer.work().compile(verify="full"), [0, 1], [9, 40])


def test_short_sequences_ask_no_indexer() -> None:
    layer = Layer(2, seed=4)
    program = layer.work().task_graph(trace=TracePolicy.timestamps()).compile()
    layer.run(program, [0, 1], [SHAPE.top_k - 1, SHAPE.top_k])
    trace = program.trace
    assert set(trace["indices"][trace["kernel"] == "index_scores", 0]) == {1}
    assert set(trace["indices"][trace["kernel"] == "attend_all", 0]) == {0}


def test_the_two_prologs_run_side_by_side() -> None:
    layer = Layer(4, seed=5)
    schedule = {
        "trace": TracePolicy.cycles(lambda t: 10),
        "start": StartPolicy.after_orchestration(),
    }
    program = layer.work().task_graph(**schedule).compile(num_threads=16)
    layer.run(program, [0, 1, 2, 3], [3, 30, 40, 50])
    trace = program.trace
    main, index = (trace[np.isin(trace["site"], sites)] for sites in (MAIN, INDEX))
    assert set(main["kernel"]) == {"absorbed_query", "linear", "latent_row"}
    assert set(index["kernel"]) == {"linear", "index_row"}
    edges = {tuple(edge) for edge in program.edges.tolist()}
    assert edges
    assert not any((a, b) in edges or (b, a) in edges for a in main["seq"] for b in index["seq"])
    together = (main["start_ns"][:, None] < index["end_ns"]) & (
        index["start_ns"] < main["end_ns"][:, None]
    )
    assert together.any()
