"""Paged decode attention against torch in float64: ragged, tiny and odd sizes, every tier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pto_wsp import (
    DenseDyn,
    DispatchPolicy,
    DType,
    Interleaved,
    PagedTensor,
    Scalar,
    Tensor,
    TracePolicy,
    Workload,
    workloads,
)
from pto_wsp.workloads import DECODE_TIERS, Tier

# Tiers of small limits, so that small sequences reach all of them.
SMALL = (Tier(40, 16, 0), Tier(160, 32, 64), Tier(640, 64, 128))
NEAR = {DType.F32: 2e-6, DType.F16: 2e-3, DType.BF16: 1e-2}
NUMPY = {DType.F32: np.float32, DType.F16: np.float16, DType.BF16: ml_dtypes.bfloat16}


@dataclass
class Batch:
    """Sequences whose pages are mixed up; the pools hold exactly the pages that are needed."""

    lens: Any
    q: Any
    k: Any
    v: Any
    table: Any
    out: Any


def make(
    lens: list[int],
    heads: int,
    kv_heads: int,
    dim: int,
    page: int,
    *,
    dtype: DType = DType.F32,
    head_major: bool = False,
) -> Batch:
    rng = np.random.default_rng(len(lens) + dim)
    pages = [-(-length // page) for length in lens]
    order = rng.permutation(sum(pages))
    table = np.full((len(lens), max([*pages, 1])), 1 << 20, np.int32)  # no page has that number
    for b, count in enumerate(pages):
        table[b, :count], order = order[:count], order[count:]

    def pool() -> Any:
        shape = (max(sum(pages), 1), page, kv_heads, dim)
        made = rng.standard_normal(shape).astype(NUMPY[dtype])
        return np.ascontiguousarray(made.swapaxes(1, 2)).swapaxes(1, 2) if head_major else made

    q = rng.standard_normal((len(lens), heads, dim)).astype(NUMPY[dtype])
    return Batch(np.array(lens), q, pool(), pool(), table, np.full_like(q, np.nan))


def work(
    batch: Batch,
    blocks: int = 64,
    tiers: tuple[Tier, ...] = SMALL,
    together: int = 1,
    *,
    exact: bool = True,
    uneven: int = 1,
    shares: int = 1,
    merged: int = 1,
) -> Workload:
    _, heads, dim = batch.q.shape
    _, page, kv_heads, _ = batch.k.shape
    dtype = next(d for d, kind in NUMPY.items() if kind == batch.q.dtype)
    function = workloads.paged_decode(
        *(heads, kv_heads, dim, page, dtype),
        tiers=tiers,
        together=together,
        exact=exact,
        uneven=uneven,
        shares=shares,
        merged=merged,
    )
    return function(
        DenseDyn(len(batch.lens)),
        batch.lens,
        Scalar(blocks),
        Tensor(data=batch.q),
        PagedTensor(batch.k, batch.table),
        PagedTensor(batch.v, batch.table),
        Tensor(data=batch.out),
    )


def expected(batch: Batch) -> Any:
    """By torch, in float64; zeros where there are no tokens."""
    torch = pytest.importorskip("torch")
    _, page, kv_heads, dim = batch.k.shape
    wanted = np.zeros(batch.q.shape)
    for b, length in enumerate(batch.lens):
        if length == 0:
            continue
        pages = batch.table[b, : -(-length // page)]

        def tokens(pool: Any, pages: Any = pages, length: int = length) -> Any:
            rows = pool[pages].astype(np.float64).reshape(-1, kv_heads, dim)[:length]
            return torch.from_numpy(np.ascontiguousarray(rows)).transpose(0, 1)

        query = torch.from_numpy(batch.q[b].astype(np.float64))[:, None]
        found = torch.nn.functional.scaled_dot_product_attention(
            query[None], tokens(batch.k)[None], tokens(batch.v)[None], enable_gqa=True
        )
        wanted[b] = found[0, :, 0].numpy()
    return wanted


def error(batch: Batch) -> float:
    wanted = expected(batch)
    difference = np.abs(batch.out.astype(np.float64) - wanted).max()
    return float(difference / max(np.abs(wanted).max(), 1e-30))


# Every tier and its edges, nothing, one token, and page ends.
LENS = [0, 1, 3, 16, 17, 40, 41, 64, 100, 160, 161, 500, 640, 2000]


@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim", "page", "head_major"),
    [(8, 2, 32, 16, False), (8, 2, 32, 16, True), (7, 1, 20, 5, True), (4, 1, 16, 1, False)],
)
def test_ragged_batches(heads: int, kv_heads: int, dim: int, page: int, head_major: bool) -> None:
    batch = make(LENS, heads, kv_heads, dim, page, head_major=head_major)
    with work(batch).compile(num_threads=2) as program:
        for blocks in (1, 17, 40, 400):
            batch.out.fill(np.nan)
            program.execute(blocks=blocks)
            assert error(batch) < NEAR[DType.F32], blocks


def test_even_chunks() -> None:
    """Without a search: all chunks of a sequence are of one size, near that of all in the mean."""
    batch = make(LENS, 8, 2, 32, 16)
    made = work(batch, tiers=(Tier(1 << 20, 32, 64),), exact=False)
    with made.task_graph(trace=TracePolicy.timestamps()).compile(num_threads=2) as program:
        for blocks in (1, 17, 40, 400):
            batch.out.fill(np.nan)
            program.execute(blocks=blocks)
            assert error(batch) < NEAR[DType.F32], blocks
            size = max(-(-sum(LENS) // (blocks * 64)), 1) * 64
            for b, length in enumerate(LENS):
                chunks = {at[1] for name, at in tasks(program) if name == "decode" and at[0] == b}
                assert length / max(len(chunks), 1) <= 1.25 * size + 64
                assert not chunks or length / len(chunks) >= 0.6 * size


def test_more_chunks_where_lengths_differ() -> None:
    """Chunks and merges; a sequence of one chunk is one task."""
    wanted = {(640,) * 4: (12, 12), (1600, 320, 320, 320): (9, 19)}
    for lens, counts in wanted.items():
        for uneven, count in zip((1, 2), counts, strict=True):
            batch, tiers = make(list(lens), 2, 1, 8, 16), (Tier(1 << 20, 32, 64),)
            made = work(batch, 8, tiers, exact=False, uneven=uneven)
            assert made.compile(target="reference").num_tasks() == count


def tokens_of_chunks(length: int, count: int) -> Any:
    """Of a sequence of so many chunks, with shares."""
    edges = np.arange(count + 1) * -(-length // 64) // count * 64
    return np.diff(np.minimum(edges, length))


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("shares", [2, 3])
def test_workers_with_a_share_of_every_sequence(shares: int, exact: bool) -> None:
    batch = make(LENS, 8, 2, 32, 16)
    made = work(batch, shares=shares, exact=exact, together=2)
    placed = made.dispatch(DispatchPolicy.affinity(lambda t: t.batch + t.get("chunk", 0)))
    traced = placed.task_graph(trace=TracePolicy.timestamps())
    with traced.compile(num_threads=shares, verify="full") as program:
        for blocks in (1, 17, 40, 400):
            batch.out.fill(np.nan)
            program.execute(blocks=blocks)
            assert error(batch) < NEAR[DType.F32], blocks
            for b, length in enumerate(LENS):
                rows = program.trace[program.trace["indices"][:, 0] == b]
                rows = rows[[str(name).startswith("decode") for name in rows["kernel"]]]
                units = -(-length // 64)
                assert (
                    len(rows) == 0 if units < 2 else len(rows) % shares == 0 or (len(rows) == units)
                )
                assert [row["worker"] for row in rows] == [
                    (b + row["indices"][1]) % shares for row in rows
                ]


def test_lengths_that_are_shared_out_are_even() -> None:
    lens = [2000, 1999, 1500, 700, 650, 300, 129]
    batch = make(lens, 4, 1, 16, 16)
    placed = work(batch, shares=2).dispatch(
        DispatchPolicy.affinity(lambda t: t.batch + t.get("chunk", 0))
    )
    with placed.task_graph(trace=TracePolicy.timestamps()).compile(num_threads=2) as program:
        program.execute()
        chunks = program.trace
    chunks = chunks[[str(name).startswith("decode") for name in chunks["kernel"]]]
    read = np.zeros(2)
    for b, length in enumerate(lens):
        mine = chunks[chunks["indices"][:, 0] == b]
        sizes = tokens_of_chunks(length, len(mine))
        assert max(sizes) - min(sizes) <= 2 * 64
        read += np.bincount(mine["worker"], sizes[mine["indices"][:, 1]])
    assert read.sum() == sum(lens)
    assert read.max() / read.mean() < 1.03


def test_tiers_that_are_never_cut() -> None:
    batch = make([0, 5, 90, 700], 4, 2, 16, 16)
    with work(batch, tiers=(Tier(64, 16, 0), Tier(1 << 20, 32, 0))).compile() as program:
        program.execute()
        assert program.stats.tasks == 8
    assert error(batch) < NEAR[DType.F32]


def tasks(program: Any) -> list[tuple[str, tuple[int, ...]]]:
    """Kernel and indices of all tasks of the last run."""
    trace = program.trace
    names = [name.split(".")[0] for name in trace["kernel"]]
    return [(name, tuple(map(int, at))) for name, at in zip(names, trace["indices"], strict=True)]


@pytest.mark.parametrize(("together", "head_major"), [(2, True), (4, False)])
def test_several_kv_heads_are_one_task(together: int, head_major: bool) -> None:
    batch = make(LENS, 12, 4, 24, 5, head_major=head_major)
    with work(batch, together=together).compile(num_threads=2) as program:
        for blocks in (1, 17, 400):
            batch.out.fill(np.nan)
            program.execute(blocks=blocks)
            assert error(batch) < NEAR[DType.F32], blocks


@pytest.mark.parametrize("together", [1, 2])
def test_half_precision_caches(together: int) -> None:
    batch = make([0, 5, 33, 170, 700], 8, 2, 48, 16, dtype=DType.BF16)
    tiers = (Tier(40, 32, 0), Tier(160, 32, 64))
    with work(batch, tiers=tiers, together=together).compile(num_threads=2) as program:
        program.execute()
    assert error(batch) < NEAR[DType.BF16]


def test_the_reference_says_the_same() -> None:
    batch = make([0, 1, 50, 200], 8, 2, 32, 16)
    with work(batch, blocks=8).compile(target="reference") as program:
        program.execute()
        wanted = program.task_hash()
    assert error(batch) < NEAR[DType.F32]
    with work(batch, blocks=8).compile(num_threads=2) as program:
        assert program.task_hash() == wanted


def test_nothing_races() -> None:
    batch = make([0, 9, 100, 300], 8, 2, 32, 16)
    with work(batch, blocks=6).compile(verify="full", num_threads=2) as program:
        program.execute()
    assert error(batch) < NEAR[DType.F32]


def test_lengths_change_at_every_step_without_a_new_plan() -> None:
    batch = make([700, 300, 41, 12, 1], 8, 2, 32, 16)
    rng = np.random.default_rng(3)
    with work(batch, blocks=12).compile(num_threads=2) as program:
        plan = program.plan.to_bytes()
        longest = batch.lens.copy()
        for _ in range(20):
            batch.lens = rng.integers(0, longest + 1)
            batch.q = rng.standard_normal(batch.q.shape).astype(np.float32)
            batch.out.fill(np.nan)
            program.execute(lens=batch.lens, q=batch.q)
            assert error(batch) < NEAR[DType.F32]
        assert program.plan.to_bytes() == plan


def test_the_tiers_of_long_sequences() -> None:
    lens = [2048, 2049, 8192, 8200, 65536, 65537, 140_000]
    batch = make(lens, 2, 1, 16, 64)
    with work(batch, blocks=60, tiers=DECODE_TIERS).compile(num_threads=2) as program:
        program.execute()
        assert error(batch) < NEAR[DType.F32]


def traced(batch: Batch, blocks: int, together: int = 1) -> Any:
    """The trace of a scheduled run. Each tier has kernels of its own, with a number behind the
    name, which is left out here."""
    scheduled = (
        work(batch, blocks, together=together)
        .order(batch=Interleaved(3))
        .dispatch(DispatchPolicy.affinity(lambda t: t.batch + t.kv))
        .task_graph(trace=TracePolicy.timestamps())
    )
    with scheduled.compile(num_threads=2) as program:
        program.execute()
        trace = program.trace
    trace["kernel"] = [name.split(".")[0] for name in trace["kernel"]]
    return trace


@pytest.mark.parametrize("blocks", [9, 20, 33])
def test_there_are_no_more_chunks_than_blocks(blocks: int) -> None:
    batch = make([3, 90, 200, 0, 900, 1500, 640], 8, 2, 32, 16)
    trace = traced(batch, blocks)
    assert error(batch) < NEAR[DType.F32]
    names = trace["kernel"]
    chunks = np.sum((names == "decode") | (names == "flash_attention")) // 2  # two KV heads
    assert chunks <= blocks
    # A sequence of one chunk is written at once; every other one is merged, for each KV head.
    cut = {int(row["indices"][0]) for row in trace[names == "decode"]}
    merged = [int(row["indices"][0]) for row in trace[names == "merge_partials"]]
    assert sorted(merged) == sorted(2 * list(cut))
    alone = {int(row["indices"][0]) for row in trace[names == "flash_attention"]}
    assert not alone & cut
    assert 3 not in alone | cut


@pytest.mark.parametrize(("kv_heads", "together"), [(2, 1), (4, 2)])
def test_chunks_are_interleaved_and_bytes_balanced(kv_heads: int, together: int) -> None:
    batch = make([1200, 1000, 900, 300, 64, 10], 8, kv_heads, 32, 16)
    trace = traced(batch, 40, together)
    assert error(batch) < NEAR[DType.F32]
    first = trace[np.argsort(trace["seq"])][:9]
    assert first["indices"][:, 0].tolist() == [0, 1, 2] * 3
    # The KV heads of a chunk have equal lengths, and each worker has one half of them.
    tasks = trace[np.isin(trace["kernel"], ["decode", "flash_attention"])]
    counts = np.bincount(tasks["worker"], minlength=2)
    assert counts[0] == counts[1]


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("shares", [1, 3])
def test_fewer_blocks_than_sequences(shares: int, exact: bool) -> None:
    batch = make([0, 1, 65, 700, 2000], 4, 2, 16, 16)
    with work(batch, shares=shares, exact=exact, together=2, merged=2).compile() as program:
        for blocks in (-1, 0, 1, 3):
            batch.out.fill(np.nan)
            program.execute(blocks=blocks)
            assert error(batch) < NEAR[DType.F32], blocks


@pytest.mark.parametrize("merged", [2, 3, 8])
def test_a_query_head_for_each_kv_head(merged: int) -> None:
    """Numbers of chunks that are no multiples of those that are merged at a time."""
    batch = make([0, 1, 65, 200, 330, 700], 4, 4, 16, 16)
    with work(batch, merged=merged).compile(num_threads=2) as program:
        for blocks in (1, 9, 40):
            batch.out.fill(np.nan)
            program.execute(blocks=blocks)
            assert error(batch) < NEAR[DType.F32], blocks


@pytest.mark.parametrize("length", [3000, 30011])
def test_settings_for_a_gpu_on_other_targets(length: int) -> None:
    batch = make([length], 8, 8, 64, 16)
    made = workloads.GpuDecode().workload(8, 8, 64, 16, DType.F32)(
        DenseDyn(1),
        batch.lens,
        Scalar(50),
        Tensor(data=batch.q),
        PagedTensor(batch.k, batch.table),
        PagedTensor(batch.v, batch.table),
        Tensor(data=batch.out),
    )
    with made.compile(num_threads=2) as program:
        program.execute()
    assert error(batch) < NEAR[DType.F32]
