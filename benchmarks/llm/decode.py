"""A decode step over 64 ragged sequences, ours and torch's, on the same pages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pto_wsp import (
    DenseDyn,
    DispatchPolicy,
    Interleaved,
    PagedTensor,
    Program,
    ReadyPolicy,
    Scalar,
    Tensor,
    Workload,
    workloads,
)

SEQUENCES, HEADS, KV_HEADS, DIM = 64, 32, 8, 128
SHORTEST, LONGEST = 128, 8192
BLOCKS = 128
LANES = 4


@dataclass
class Batch:
    """`k` and `v` are [page, token, KV head, element]; `k_memory` and `v_memory` the same bytes in
    the order of memory. Every page is in use."""

    page: int
    lens: Any
    table: Any
    k_memory: Any
    v_memory: Any
    k: Any
    v: Any
    q: Any
    out: Any

    @property
    def bytes_read(self) -> int:
        return int(self.lens.sum()) * KV_HEADS * DIM * 4 * 2

    def tokens(self, pool: Any, b: int) -> Any:
        pages = self.table[b, : -(-int(self.lens[b]) // self.page)]
        return pool[pages].reshape(-1, KV_HEADS, DIM)[: self.lens[b]]


def make(page: int, by_head: bool, scale: float) -> Batch:
    rng = np.random.default_rng(0)
    longest = max(2 * SHORTEST, round(LONGEST * scale))
    lens = np.exp(rng.uniform(np.log(SHORTEST), np.log(longest), SEQUENCES)).astype(np.int64)
    needed = -(-lens // page)
    numbers = rng.permutation(int(needed.sum())).astype(np.int32)
    table = np.zeros((SEQUENCES, int(needed.max())), np.int32)
    for row, count in enumerate(needed):
        table[row, :count], numbers = numbers[:count], numbers[count:]
    inner = (KV_HEADS, page, DIM) if by_head else (page, KV_HEADS, DIM)
    memory = [workloads.page_pool((int(needed.sum()), *inner)) for _ in range(2)]
    for each in memory:
        rng.standard_normal(out=each, dtype=np.float32)
    k, v = (each.swapaxes(1, 2) if by_head else each for each in memory)
    q = rng.standard_normal((SEQUENCES, HEADS, DIM), np.float32)
    return Batch(page, lens, table, *memory, k, v, q, np.zeros_like(q))


def work(batch: Batch, workers: int, *, stealing: bool = True) -> Workload:
    """Each worker is given an equal part of every sequence, of which it reads whole pages. With
    `stealing`, who is done first, because the machine let it, takes something of what is left."""
    decode = workloads.paged_decode(
        HEADS, KV_HEADS, DIM, batch.page, together=KV_HEADS, shares=workers, exact=False
    )
    return (
        decode(
            DenseDyn(SEQUENCES),
            batch.lens,
            Scalar(BLOCKS),
            Tensor(data=batch.q),
            PagedTensor(batch.k, batch.table),
            PagedTensor(batch.v, batch.table),
            Tensor(data=batch.out),
        )
        .order(batch=Interleaved(LANES))
        .dispatch(DispatchPolicy.affinity(lambda t: t.batch + t.get("chunk", 0)))
        .task_graph(ready=ReadyPolicy.work_steal() if stealing else None)
    )


def by_torch(torch: Any, batch: Batch) -> Any:
    """Gathers the pages of each sequence, then attends to them."""
    k, v, q = (torch.from_numpy(each) for each in (batch.k, batch.v, batch.q))
    table = torch.from_numpy(batch.table).long()
    attend = torch.nn.functional.scaled_dot_product_attention
    found = torch.empty_like(q)
    lens = batch.lens.tolist()

    def step() -> None:
        for b, length in enumerate(lens):
            pages = table[b, : -(-length // batch.page)]
            keys, values = (
                pool[pages].reshape(-1, KV_HEADS, DIM)[:length].transpose(0, 1)[None]
                for pool in (k, v)
            )
            found[b] = attend(q[b][None, :, None], keys, values, enable_gqa=True)[0, :, 0]

    return step, found


def exact(batch: Batch) -> Any:
    """The result in float64."""
    wanted = np.zeros((SEQUENCES, HEADS, DIM))
    group = HEADS // KV_HEADS
    for b in range(SEQUENCES):
        keys, values = (
            batch.tokens(pool, b).astype(np.float64).swapaxes(0, 1) for pool in (batch.k, batch.v)
        )
        query = batch.q[b].astype(np.float64).reshape(KV_HEADS, group, DIM)
        scores = query @ keys.swapaxes(1, 2) / math.sqrt(DIM)
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        found = weights / weights.sum(axis=2, keepdims=True) @ values
        wanted[b] = found.reshape(HEADS, DIM)
    return wanted


def unevenness(program: Program, lens: Any, workers: int) -> float:
    """The bytes of the busiest worker over the mean, in the last run."""
    rows = program.descriptors(lens=lens)
    tokens = (rows["stop"] - rows["start"]).astype(np.int64)
    ran = program.trace
    read = np.bincount(ran["worker"], tokens[ran["task_id"]], workers)
    assert read.sum() == lens.sum()
    return float(read.max() / read.mean())
