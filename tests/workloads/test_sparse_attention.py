"""Sparse attention to a latent cache against torch in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pto_wsp import PagedTensor, Program, StartPolicy, Tensor, TracePolicy, workloads

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # its matrices are small, and others want the cores

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
WEIGHTS = {
    "Wdq": (SHAPE.q_rank, SHAPE.d_model),
    "q_norm": (1, SHAPE.q_rank),
    "Wuq": (SHAPE.heads, SHAPE.nope + SHAPE.rope, SHAPE.q_rank),
    "Wdkv": (SHAPE.width, SHAPE.d_model),
    "kv_norm": (1, SHAPE.kv_rank),
    "Wuk": (SHAPE.heads, SHAPE.nope, SHAPE.kv_rank),
    "Wuv": (SHAPE.heads, SHAPE.v_dim, SHAPE.kv_rank),
    "Wo": (SHAPE.d_model, SHAPE.heads * SHAPE.v_dim),
    "Wiq": (SHAPE.index_heads, SHAPE.index_dim, SHAPE.q_rank),
    "Wik": (SHAPE.index_dim, SHAPE.d_model),
    "index_norm": (1, SHAPE.index_dim),
    "index_bias": (1, SHAPE.index_dim),
    "Wiw": (SHAPE.index_heads, SHAPE.d_model),
}
# Calls of kernels in the order of the program: those of the two prologs.
MAIN, INDEX = range(2, 5), range(5, 9)


def numbers(rng: Any, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


class Layer:
    """A layer with random weights, and caches for some sequences in pages in any order."""

    def __init__(self, sequences: int, seed: int = 0) -> None:
        rng = self.rng = np.random.default_rng(seed)
        self.weights = {n: numbers(rng, *s) / s[-1] ** 0.5 for n, s in WEIGHTS.items()}
        angles = np.outer(np.arange(LONGEST), 10.0 ** -np.arange(SHAPE.rope // 2))
        self.cos, self.sin = np.cos(angles), np.sin(angles)
        table = rng.permutation(sequences * PAGES).reshape(sequences, PAGES).astype(np.int32)
        self.latent = PagedTensor(numbers(rng, sequences * PAGES, PAGE, SHAPE.width), table)
        self.index_keys = PagedTensor(numbers(rng, sequences * PAGES, PAGE, SHAPE.index_dim), table)
        self.table = table

    def work(self) -> Any:
        tensors = {
            **self.weights,
            "cos": self.cos.astype(np.float32),
            "sin": self.sin.astype(np.float32),
            "X": np.zeros((1, SHAPE.d_model), np.float32),
            "Y": np.zeros((1, SHAPE.d_model), np.float32),
        }
        caches = {"latent": self.latent, "index_keys": self.index_keys}
        given = {name: Tensor(data=value) for name, value in tensors.items()}
        places = {"sequence": np.zeros(1, np.int32), "position": np.zeros(1, np.int32)}
        return workloads.sparse_attention(SHAPE)(**given, **caches, **places)

    def cached(self, paged: PagedTensor) -> Any:
        """The tokens of each sequence in a row, in float64."""
        pool = paged.pool.data
        assert pool is not None
        return torch.tensor(pool[self.table].reshape(len(self.table), LONGEST, -1)).double()

    def check(self, program: Program, sequence: list[int], position: list[int]) -> None:
        x = numbers(self.rng, len(sequence), SHAPE.d_model)
        y = np.zeros_like(x)
        latent, keys = self.cached(self.latent), self.cached(self.index_keys)
        expected = exact(self, torch.tensor(x).double(), sequence, position, latent, keys)
        places = {"sequence": np.int32(sequence), "position": np.int32(position)}
        program.execute(X=x, Y=y, **places)
        assert np.abs(y - expected.numpy()).max() <= NEAR * expected.abs().max()
        for found, wanted in ((self.latent, latent), (self.index_keys, keys)):
            assert (self.cached(found) - wanted).abs().max() <= NEAR * wanted.abs().max()


def turn(x: Any, cos: Any, sin: Any) -> Any:
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def rms(x: Any, weight: Any) -> Any:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + SHAPE.eps) * weight


def exact(layer: Layer, x: Any, sequence: Any, position: Any, latent: Any, keys: Any) -> Any:
    """Token by token, with keys and values made of the latents; the caches are filled as well."""
    w = {name: torch.tensor(value).double() for name, value in layer.weights.items()}
    rank, nope, rope = SHAPE.kv_rank, SHAPE.nope, SHAPE.rope
    out = []
    for token, s, p in zip(x, sequence, position, strict=True):
        cos, sin = torch.tensor(layer.cos[p]), torch.tensor(layer.sin[p])
        kv = w["Wdkv"] @ token
        latent[s, p] = torch.cat([rms(kv[:rank], w["kv_norm"][0]), turn(kv[rank:], cos, sin)])
        k = torch.nn.functional.layer_norm(
            w["Wik"] @ token, (SHAPE.index_dim,), w["index_norm"][0], w["index_bias"][0], SHAPE.eps
        )
        keys[s, p] = torch.cat([turn(k[:rope], cos, sin), k[rope:]])
    for token, s, p in zip(x, sequence, position, strict=True):
        cos, sin = torch.tensor(layer.cos[p]), torch.tensor(layer.sin[p])
        q_latent = rms(w["Wdq"] @ token, w["q_norm"][0])
        iq = w["Wiq"] @ q_latent
        iq = torch.cat([turn(iq[:, :rope], cos, sin), iq[:, rope:]], dim=1)
        scores = (w["Wiw"] @ token) @ torch.relu(iq @ keys[s, : p + 1].T)
        best, chosen = torch.sort(scores, descending=True, stable=True)
        if p + 1 > SHAPE.top_k:  # rounding must not decide who is chosen; zeros are exact
            gap = best[SHAPE.top_k - 1] - best[SHAPE.top_k]
            assert gap > 1e-4 * best.abs().max() or best[SHAPE.top_k] == gap == 0
        seen = latent[s, chosen[: SHAPE.top_k]]
        q = w["Wuq"] @ q_latent
        heads = []
        for h in range(SHAPE.heads):
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


def test_verified() -> None:
    layer = Layer(2, seed=3)
    layer.check(layer.work().compile(verify="full"), [0, 1], [9, 40])


def test_short_sequences_ask_no_indexer() -> None:
    layer = Layer(2, seed=4)
    program = layer.work().task_graph(trace=TracePolicy.timestamps()).compile()
    layer.check(program, [0, 1], [SHAPE.top_k - 1, SHAPE.top_k])
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
    layer.check(program, [0, 1, 2, 3], [3, 30, 40, 50])
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
