"""The same model in torch, eager, in any precision: what results and times are compared with.

Its cache is one tensor for each layer, with room for the longest sequence: no pages to look up.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from pto_wsp.workloads import KvCache, LlamaModel, rope_tables


class TorchLlama:
    """`x[sequence, d_model]` through layers, or tokens to logits; starts from the cache of a
    LlamaModel."""

    def __init__(self, model: LlamaModel, dtype: torch.dtype) -> None:
        self.shape, self.dtype = model.shape, dtype
        self.lens = model.lens.tolist()
        self.weights = {name: self._tensor(array) for name, array in model.weights.items()}
        tables = rope_tables(model.positions, model.shape.head_dim)
        self.cos, self.sin = (self._tensor(table) for table in tables)
        self.keys, self.values = _caches(model.cache, self.lens, model.positions, dtype)

    def _tensor(self, array: Any) -> torch.Tensor:
        return torch.from_numpy(array).to(self.dtype)

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """One token of each sequence; the logits of the next."""
        w = self.weights
        x = functional.embedding(tokens, w["embed"])
        for layer in range(len(w["wq"])):
            x = self.layer(layer, x)
        self.lens = [length + 1 for length in self.lens]
        return functional.linear(self.norm(x, w["norm_out"][0]), w["head"])

    def norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, weight.shape, weight, self.shape.eps)

    def layer(self, layer: int, x: torch.Tensor) -> torch.Tensor:
        w = {name: each[layer] for name, each in self.weights.items() if each.shape[0] > layer}
        normed = self.norm(x, w["norm_1"])
        s, rows = self.shape, len(x)
        q = self.turned(functional.linear(normed, w["wq"]).view(rows, s.heads, s.head_dim))
        k = self.turned(functional.linear(normed, w["wk"]).view(rows, s.kv_heads, s.head_dim))
        v = functional.linear(normed, w["wv"]).view(rows, s.kv_heads, s.head_dim)
        mixed = torch.stack([self.attend(layer, b, q[b], k[b], v[b]) for b in range(rows)])
        x = x + functional.linear(mixed.view(rows, -1), w["wo"])
        normed = self.norm(x, w["norm_2"])
        wide = functional.silu(functional.linear(normed, w["w_gate"])) * functional.linear(
            normed, w["w_up"]
        )
        return x + functional.linear(wide, w["w_down"])

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        """Rotary embedding, each sequence at its own position."""
        cos, sin = self.cos[self.lens][:, None], self.sin[self.lens][:, None]
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)

    def attend(
        self, layer: int, b: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> torch.Tensor:
        """Appends a token of one sequence and attends to all of it."""
        at = self.lens[b]
        self.keys[layer, b, :, at], self.values[layer, b, :, at] = k, v
        keys, values = self.keys[layer, b, :, : at + 1], self.values[layer, b, :, : at + 1]
        return functional.scaled_dot_product_attention(q[:, None], keys, values, enable_gqa=True)[
            :, 0
        ]


def _caches(
    cache: KvCache, lens: list[int], positions: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """`[layer, sequence, head, position, dim]`, with what the pages hold."""
    _, _, heads, dim = cache.keys.shape
    sizes = (cache.layers, len(lens), heads, positions, dim)
    keys, values = torch.zeros(sizes, dtype=dtype), torch.zeros(sizes, dtype=dtype)
    for layer in range(cache.layers):
        for b, length in enumerate(lens):
            for to, found in zip((keys, values), cache.tokens(layer, b, length), strict=True):
                to[layer, b, :, :length] = torch.from_numpy(found).transpose(0, 1)
    return keys, values
