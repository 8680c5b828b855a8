"""Prefill of packed sequences against torch in float64: causal, sliding windows, prefixes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from pto_wsp import CompileError, DenseDyn, Tensor, TracePolicy, Workload, workloads

HEADS, KV_HEADS, DIM = 4, 2, 24
QUERIES = [0, 1, 7, 31, 32, 33, 100]


def starts(lengths: list[int]) -> Any:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


class Batch:
    def __init__(self, queries: list[int], keys: list[int]) -> None:
        rng = np.random.default_rng(len(queries))
        self.q_starts, self.k_starts = starts(queries), starts(keys)
        self.q = rng.standard_normal((self.q_starts[-1], HEADS, DIM), np.float32)
        self.k, self.v = (
            rng.standard_normal((self.k_starts[-1], KV_HEADS, DIM), np.float32) for _ in range(2)
        )
        self.out = np.full_like(self.q, np.nan)

    def work(self, *, causal: bool = True, window: int = 0) -> Workload:
        function = workloads.ragged_prefill(
            HEADS, KV_HEADS, DIM, causal=causal, window=window, rows=32, cols=16
        )
        arrays = (Tensor(data=each) for each in (self.q, self.k, self.v, self.out))
        sequences = DenseDyn(len(self.q_starts) - 1)
        return function(sequences, self.q_starts, self.k_starts, *arrays)

    def expected(self, *, causal: bool = True, window: int = 0) -> Any:
        torch = pytest.importorskip("torch")
        wanted = np.zeros(self.q.shape)
        spans = zip(pairwise(self.q_starts), pairwise(self.k_starts), strict=True)
        for (a, b), (c, d) in spans:
            own = np.arange(b - a)[:, None] + (d - c) - (b - a)
            key = np.arange(d - c)[None]
            seen = (key <= own) & ((key > own - window) if window else True) if causal else key >= 0
            seen = np.broadcast_to(seen, (b - a, d - c))
            q, k, v = (
                torch.from_numpy(x.astype(np.float64)).transpose(0, 1)[None]
                for x in (self.q[a:b], self.k[c:d], self.v[c:d])
            )
            found = torch.nn.functional.scaled_dot_product_attention(
                q, k, v, attn_mask=torch.from_numpy(seen.copy()), enable_gqa=True
            )
            found = found[0].transpose(0, 1).numpy()
            wanted[a:b] = np.where(seen.any(axis=1)[:, None, None], found, 0)
        return wanted

    def error(self, **mask: Any) -> float:
        wanted = self.expected(**mask)
        return float(np.abs(self.out - wanted).max() / np.abs(wanted).max())


@pytest.mark.parametrize(
    "mask", [{}, {"window": 1}, {"window": 20}, {"causal": False}], ids=["causal", "1", "20", "all"]
)
def test_masks(mask: dict[str, Any]) -> None:
    # Alone, behind a prefix, and with fewer keys than queries.
    for keys in (QUERIES, [n + 45 for n in QUERIES], [max(n - 3, 0) for n in QUERIES]):
        batch = Batch(QUERIES, keys)
        with batch.work(**mask).compile(num_threads=2) as program:
            program.execute()
        assert batch.error(**mask) < 2e-6, keys


def test_the_reference_says_the_same() -> None:
    batch = Batch([3, 40], [30, 40])
    with batch.work(window=20).compile(target="reference") as program:
        program.execute()
    assert batch.error(window=20) < 2e-6


def test_nothing_races() -> None:
    batch = Batch([3, 40], [30, 40])
    with batch.work().compile(verify="full", num_threads=2) as program:
        program.execute()
    assert batch.error() < 2e-6


def test_hidden_keys_are_not_read() -> None:
    # With a window the keys far before a query may hold anything, NaN included.
    batch = Batch([64], [200])
    wanted = batch.expected(window=20)
    batch.k[:117] = batch.v[:117] = np.nan  # the first query stands at key 136
    with batch.work(window=20).compile(num_threads=2) as program:
        program.execute()
    assert np.abs(batch.out - wanted).max() < 1e-5


def test_other_lengths_need_no_other_plan() -> None:
    batch, other = Batch([5, 70], [5, 70]), Batch([64, 1, 40], [64, 90, 41])
    traced = batch.work().task_graph(trace=TracePolicy.timestamps())
    with traced.compile(num_threads=2) as program:
        program.execute()
        assert len(program.trace) == (1 + 3) * HEADS
        names = ("q_starts", "k_starts", "q", "k", "v", "out")
        program.execute(batch=3, **{name: getattr(other, name) for name in names})
        assert len(program.trace) == (2 + 1 + 2) * HEADS
    assert max(batch.error(), other.error()) < 2e-6


def test_a_window_takes_causal() -> None:
    with pytest.raises(CompileError, match="8 keys without causal"):
        workloads.ragged_prefill(4, 2, 16, causal=False, window=8)
