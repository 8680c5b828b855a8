"""A LLaMA-like model with its weights, its cache and the sequences that it continues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pto_wsp import DenseDyn, PagedTensor, Tensor, Workload
from pto_wsp.error_codes import Code
from pto_wsp.errors import ExecutionError
from pto_wsp.workloads.kv_cache import KvCache
from pto_wsp.workloads.llama import LlamaShape, llama_step
from pto_wsp.workloads.refusals import caller, check_counts

Array = npt.NDArray[Any]


def weight_shapes(shape: LlamaShape, layers: int, vocab: int) -> dict[str, tuple[int, ...]]:
    """The weights that `llama_step` takes, by their names; matrices are `[out, in]`."""
    wide, narrow = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    model, ff = shape.d_model, shape.d_ff
    return {
        "embed": (vocab, model),
        "norm_1": (layers, model),
        "wq": (layers, wide, model),
        "wk": (layers, narrow, model),
        "wv": (layers, narrow, model),
        "wo": (layers, model, wide),
        "norm_2": (layers, model),
        "w_gate": (layers, ff, model),
        "w_up": (layers, ff, model),
        "w_down": (layers, model, ff),
        "norm_out": (1, model),
        "head": (vocab, model),
    }


def random_weights(
    shape: LlamaShape, layers: int, vocab: int, rng: np.random.Generator
) -> dict[str, Array]:
    """Weights under which numbers keep their size from layer to layer: matrices of variance
    1 / in, embeddings of variance 1, norms near 1."""

    def draw(name: str, sizes: tuple[int, ...]) -> Array:
        drawn = rng.standard_normal(sizes, np.float32)
        if name.startswith("norm"):
            return 1 + np.float32(0.1) * drawn
        return drawn if name == "embed" else drawn / np.float32(np.sqrt(sizes[-1]))

    return {name: draw(name, sizes) for name, sizes in weight_shapes(shape, layers, vocab).items()}


def rope_tables(positions: int, dim: int, theta: float = 10000.0) -> tuple[Array, Array]:
    """Cosines and sines of the rotary embedding, `[position, dim / 2]`, rounded from float64."""
    angles = np.arange(positions)[:, None] * theta ** (-np.arange(0, dim, 2) / dim)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


@dataclass(slots=True)
class LlamaModel:
    """Sequence b has `lens[b]` tokens in the cache; `tokens[0]` holds the one that follows each of
    them, and a run of n steps writes `tokens[1]` to `tokens[n]`.

        program = model.workload().compile()
        for _ in range(100):
            program.execute(**model.bindings())
            model.advance()

    A run of some sequences takes its own lengths, tokens and logits, and their rows of the page
    table, `cache.rows([2, 0])`: docs/workloads.md has continuous batching.
    """

    shape: LlamaShape
    weights: dict[str, Array]
    cache: KvCache
    lens: Array
    tokens: Array  # [steps + 1, sequences, 1] of i32, for the most steps of one run
    positions: int  # the longest that a sequence becomes
    logits: Array = field(init=False)  # [1, sequences, vocab]: those of the last step

    def __post_init__(self) -> None:
        self.logits = np.zeros((1, len(self.lens), len(self.weights["head"])), np.float32)

    def workload(self) -> Workload:
        """`llama_step` with everything bound."""
        cos, sin = rope_tables(self.positions, self.shape.head_dim)
        table = Tensor(data=self.cache.table, name="table")
        arrays = {**self.weights, "tokens": self.tokens, "logits": self.logits}
        arrays |= {"cos": cos, "sin": sin}
        return llama_step(self.shape)(
            steps=DenseDyn(1),
            layers=DenseDyn(self.cache.layers),
            batch=DenseDyn(len(self.lens)),
            lens=self.lens,
            K=PagedTensor(Tensor(data=self.cache.keys, name="keys"), table),
            V=PagedTensor(Tensor(data=self.cache.values, name="values"), table),
            **{name: Tensor(data=array) for name, array in arrays.items()},
        )

    def bindings(self, steps: int = 1) -> dict[str, Any]:
        """What changes from run to run; the cache gets room for the tokens of this one."""
        if (self.lens + steps > self.positions).any():
            raise ExecutionError(
                Code.BINDING_RANGE,
                f"a sequence would be longer than {self.positions} tokens",
                loc=caller(),
                why="the model has cosines and sines of so many positions",
                fix="make the model with more positions, or start a new sequence",
            )
        return {"steps": steps, "lens": self.lens, "table": self.cache.reserve(self.lens + steps)}

    def advance(self, steps: int = 1) -> Array:
        """After a run: the new tokens are part of the sequences. Returns them."""
        new = self.tokens[1 : steps + 1, :, 0].copy()
        self.lens += steps
        self.tokens[0] = self.tokens[steps]
        return new


def random_model(
    shape: LlamaShape,
    prompts: Sequence[int],
    *,
    layers: int,
    vocab: int,
    steps: int,
    page: int = 16,
    together: int = 1,
    seed: int = 0,
) -> LlamaModel:
    """A model to try things with: random weights, and sequences of which random keys and values are
    in the cache, in place of a prefill. There is room for `steps` more tokens of each, of which one
    run makes at most `together`."""
    check_counts("random_model", vocab=vocab, together=together)
    rng = np.random.default_rng(seed)
    cache = KvCache(
        layers=layers,
        sequences=len(prompts),
        pages=sum(-(-(length + steps) // page) for length in prompts),
        page=page,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
    )
    cache.reserve(prompts)
    for layer in range(layers):
        for b, length in enumerate(prompts):
            token = (shape.kv_heads, shape.head_dim)
            cache.fill(layer, b, *rng.standard_normal((2, length, *token), np.float32))
    tokens = np.zeros((together + 1, len(prompts), 1), np.int32)
    tokens[0] = rng.integers(0, vocab, (len(prompts), 1))
    weights = random_weights(shape, layers, vocab, rng)
    positions = max(prompts, default=0) + steps
    return LlamaModel(shape, weights, cache, np.array(prompts, np.int64), tokens, positions)
