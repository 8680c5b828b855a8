"""The model in NumPy and float64: what the example is compared with.

It is given all tokens and computes all steps at once, each token attending to those before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pto_wsp.workloads import LlamaModel, rope_tables


class Reference:
    """Starts from what the model's cache holds."""

    def __init__(self, model: LlamaModel) -> None:
        self.shape, self.weights = model.shape, model.weights
        self.tables = rope_tables(model.positions, model.shape.head_dim)
        layers, cache = range(model.cache.layers), model.cache
        # By layer and sequence: keys and values.
        self.past: list[list[tuple[Any, Any]]] = [
            [cache.tokens(layer, b, n) for b, n in enumerate(model.lens)] for layer in layers
        ]

    def logits(self, tokens: Any) -> Any:
        """Logits `[sequence, step, vocab]` behind tokens `[sequence, step]`."""
        x = self.weights["embed"].astype(np.float64)[tokens]
        for layer, past in enumerate(self.past):
            w = {name: each[layer].astype(np.float64) for name, each in self._of_layers()}
            normed = self.norm(x, w["norm_1"])
            q, k, v = (normed @ w[name].T for name in ("wq", "wk", "wv"))
            mixed = [self.attend(*past[b], q[b], k[b], v[b]) for b in range(len(x))]
            x = x + np.stack(mixed) @ w["wo"].T
            normed = self.norm(x, w["norm_2"])
            gate, up = normed @ w["w_gate"].T, normed @ w["w_up"].T
            x = x + (gate / (1 + np.exp(-gate)) * up) @ w["w_down"].T
        return self.norm(x, self.weights["norm_out"][0]) @ self.weights["head"].astype(x.dtype).T

    def _of_layers(self) -> list[tuple[str, Any]]:
        others = ("embed", "norm_out", "head")
        return [(name, each) for name, each in self.weights.items() if name not in others]

    def norm(self, x: Any, weight: Any) -> Any:
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.shape.eps) * weight

    def turned(self, x: Any, at: Any) -> Any:
        """Rotary embedding of heads `[token, ..., dim]` at these positions."""
        cos, sin = (table[at].astype(np.float64)[:, None] for table in self.tables)
        first, second = np.split(x, 2, axis=-1)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)

    def attend(self, old_keys: Any, old_values: Any, q: Any, k: Any, v: Any) -> Any:
        """The new tokens of one sequence, each to all tokens up to itself."""
        s, new, before = self.shape, len(q), len(old_keys)
        at = np.arange(before, before + new)
        keys = np.concatenate([old_keys, self.turned(k.reshape(new, s.kv_heads, -1), at)])
        values = np.concatenate([old_values, v.reshape(new, s.kv_heads, -1)])
        query = self.turned(q.reshape(new, s.heads, -1), at).reshape(new, s.kv_heads, s.group, -1)
        scores = np.einsum("nhgd,thd->hgnt", query, keys, optimize=True) * s.head_dim**-0.5
        scores[..., np.arange(before + new) > at[:, None]] = -np.inf
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        return np.einsum("hgnt,thd->nhgd", shares, values, optimize=True).reshape(new, -1)
