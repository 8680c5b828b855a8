"""What a decode step says of its tasks before it runs, and which heads and numbers it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    CompileError,
    Dense,
    DenseDyn,
    DType,
    ExecutionError,
    PagedTensor,
    Scalar,
    Tensor,
    launch,
    workload,
    workloads,
)
from pto_wsp.error_codes import Code
from pto_wsp.workloads import DECODE_TIERS, Tier

TIERS = (Tier(40, 16, 0), Tier(160, 32, 64), Tier(640, 64, 128))
LENS = [0, 3, 100, 640, 2000]
PAGE, DIM = 16, 32
ABSENT = 0xFFFF_FFFF


def inputs(lens: list[int], heads: int = 4, kv_heads: int = 2) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    pages = [-(-n // PAGE) for n in lens]
    table = np.zeros((len(lens), max([*pages, 1])), np.int32)
    order = rng.permutation(sum(pages)).astype(np.int32)
    for b, count in enumerate(pages):
        table[b, :count], order = order[:count], order[count:]
    pool = [
        rng.standard_normal((max(sum(pages), 1), PAGE, kv_heads, DIM), np.float32) for _ in range(2)
    ]
    q = rng.standard_normal((len(lens), heads, DIM), np.float32)
    return {
        "batch": DenseDyn(len(lens)),
        "lens": np.array(lens),
        "blocks": Scalar(40),
        "q": Tensor(data=q),
        "k": PagedTensor(pool[0], table),
        "v": PagedTensor(pool[1], table),
        "out": Tensor(data=np.full_like(q, np.nan)),
    }


def expected(given: dict[str, Any], kv_heads: int = 2) -> Any:
    q, table = given["q"].data.astype(np.float64), given["k"].table.data
    wanted = np.zeros(q.shape)
    for b, n in enumerate(given["lens"]):
        if n == 0:
            continue
        rows = table[b, : -(-n // PAGE)]
        k, v = (
            given[name].pool.data[rows].reshape(-1, kv_heads, DIM)[:n].astype(np.float64)
            for name in "kv"
        )
        query = q[b].reshape(kv_heads, -1, DIM)
        scores = np.einsum("hgd,thd->hgt", query, k) / np.sqrt(DIM)
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        weights /= weights.sum(axis=2, keepdims=True)
        wanted[b] = np.einsum("hgt,thd->hgd", weights, v).reshape(q.shape[1:])
    return wanted


def work(given: dict[str, Any], **options: Any) -> Any:
    return workloads.paged_decode(4, 2, DIM, PAGE, **({"tiers": TIERS} | options))(**given)


@pytest.mark.parametrize("target", ["cpu_sim", "reference"])
def test_descriptors(target: str) -> None:
    given = inputs(LENS)
    program = work(given).compile(target=target)
    rows = program.descriptors()
    names = ("kernel", "batch", "chunk", "kv", "tier", "start", "stop", "workspace")
    assert rows.dtype.names == names
    assert rows.dtype.itemsize == 36
    kernels = np.array([name.split(".")[0] for name in program.plan.kernel_names])[rows["kernel"]]
    attending = rows[np.isin(kernels, ["decode", "flash_attention"])]
    for b, n in enumerate(LENS):
        for h in range(2):
            mine = attending[(attending["batch"] == b) & (attending["kv"] == h)]
            edges = mine["start"].tolist() + mine["stop"].tolist()[-1:]
            assert edges == sorted(set(edges))
            assert mine["stop"].tolist()[:-1] == mine["start"].tolist()[1:]
            assert edges == [] if n == 0 else (edges[0], edges[-1]) == (0, n)
            assert len(mine) == 1 or mine["chunk"].tolist() == list(range(len(mine)))
    cut = rows[kernels == "decode"]
    assert set(cut["tier"][cut["batch"] == 2]) == {0}  # of the tiers that are cut
    assert set(cut["tier"][cut["batch"] == 4]) == {1}
    others = rows[~np.isin(kernels, ["decode", "flash_attention"])]
    assert set(others["start"]) == {ABSENT}
    program.execute()
    assert program.stats.tasks == len(rows)


@pytest.mark.parametrize("uneven", [1, 2, 3])
@pytest.mark.parametrize("tiers", [TIERS, DECODE_TIERS, (Tier(1 << 20, 32, 64),)])
def test_uneven_chunks_of_every_tier(tiers: Any, uneven: int) -> None:
    given = inputs([*LENS, 9000])
    with work(given, tiers=tiers, exact=False, uneven=uneven).compile(num_threads=2) as program:
        for blocks in (1, 7, 60):
            given["out"].data.fill(np.nan)
            program.execute(blocks=blocks)
            assert np.abs(given["out"].data - expected(given)).max() < 1e-5


def test_a_sequence_of_fewer_units_than_shares() -> None:
    """It has a chunk for each."""
    given = inputs([64, 65, 190, 500])
    rows = work(given, shares=4).compile().descriptors()
    chunks = [rows["chunk"][(rows["batch"] == b) & (rows["chunk"] != ABSENT)] for b in range(4)]
    assert [len(set(each)) for each in chunks] == [0, 2, 3, 4]


def test_tiers_in_a_list() -> None:
    one, other = (workloads.paged_decode(4, 2, DIM, PAGE, tiers=t) for t in (TIERS, list(TIERS)))
    assert one is other


@pytest.mark.parametrize(
    ("sizes", "options", "what"),
    [
        ((4, 2, 0, 16), {}, "dim is 0"),
        ((4, 2, 32, 0), {}, "page is 0"),
        ((4, 2, -1, 16), {}, "dim is -1"),
        ((4, 0, 32, 16), {}, "kv_heads is 0"),
        ((4, 2.0, 32, 16), {}, "kv_heads is 2.0"),
        ((7, 2, 32, 16), {}, "7 heads do not share 2 KV heads evenly"),
        ((4, 2, 32, 16, "bf16"), {}, "dtype is 'bf16'"),
        ((4, 2, 32, 16, DType.I32), {}, "dtype is i32"),
        ((4, 2, 32, 16), {"together": 0}, "together is 0"),
        ((4, 4, 32, 16), {"together": 3}, "4 KV heads are no multiple of 3 together"),
        ((4, 2, 32, 16), {"shares": 0}, "shares is 0"),
        ((4, 2, 32, 16), {"shares": 1.5}, "shares is 1.5"),
        ((4, 2, 32, 16), {"merged": 0}, "merged is 0"),
        ((4, 2, 32, 16), {"uneven": 0}, "uneven is 0"),
        ((4, 2, 32, 16), {"tiers": ()}, "the tiers are ()"),
        ((4, 2, 32, 16), {"tiers": [(64, 16, 0)]}, "the tiers are [(64, 16, 0)]"),
        ((4, 2, 32, 16), {"tiers": 3}, "the tiers are 3"),
    ],
)
def test_sizes_that_make_no_sense(sizes: Any, options: Any, what: str) -> None:
    with pytest.raises(CompileError) as caught:
        workloads.paged_decode(*sizes, **options)
    assert what in caught.value.message
    assert caught.value.code is Code.WORKLOAD_ARGUMENT
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__
    assert caught.value.loc.inside is None


def test_sizes_of_other_workloads() -> None:
    with pytest.raises(CompileError, match="Tier: block is 0"):
        workloads.Tier(64, 0, 0)
    with pytest.raises(CompileError, match="top_k is 7, of 6 experts"):
        workloads.moe_ffn(6, 7, 32, 48)
    with pytest.raises(CompileError, match="cols is 0, and has to be at least 1"):
        workloads.ragged_prefill(4, 2, 16, cols=0)
    with pytest.raises(CompileError, match="top_k is 0, and has to be at least 1"):
        workloads.moe_ffn(6, 0, 32, 48)
    for make in (workloads.ragged_prefill, workloads.moe_ffn):
        with pytest.raises(CompileError, match=r"not for \[4\]"):
            make([4], 2, 16, 48)  # pyright: ignore[reportArgumentType]


# --- heads ---


@pytest.mark.parametrize(
    ("what", "wrong"),
    [
        ("q has the extent 6 in dimension 1", {"heads": 6}),
        ("k_pool has the extent 4 in dimension 2", {"kv_heads": 4}),
    ],
)
def test_other_heads_are_refused(what: str, wrong: Any) -> None:
    with pytest.raises(CompileError) as caught:
        work(inputs(LENS, **wrong)).compile()
    assert caught.value.message == what
    assert caught.value.code is Code.BINDING_EXTENT
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__


def test_other_heads_inside_a_workload() -> None:
    @workload
    def around(batch: Any, lens: Any, blocks: Any, q: Any, k: Any, v: Any, out: Any):
        decode = workloads.paged_decode(4, 2, DIM, PAGE, tiers=TIERS)
        decode(batch, lens, blocks, q, k, v, out)

    given = inputs(LENS)
    around(**given).compile().execute()
    assert np.abs(given["out"].data - expected(given)).max() < 1e-5
    with pytest.raises(CompileError, match="q has the extent 8") as caught:
        around(**inputs(LENS, heads=8)).compile()
    assert caught.value.loc is not None
    assert "decode(batch, lens" in caught.value.loc.render()


@pytest.mark.parametrize("heads", [3, 8])
@pytest.mark.parametrize("target", ["cpu_sim", "reference"])
def test_other_heads_in_a_run(target: str, heads: int) -> None:
    given = inputs([3, 100, 640])
    program = work(given).compile(target=target)
    other = np.zeros((3, heads, DIM), np.float32)
    with pytest.raises(ExecutionError, match=f"'q' has the extent {heads}") as caught:
        program.execute(q=other, out=other.copy())
    assert caught.value.code is Code.BINDING_EXTENT
    given["out"].data.fill(np.nan)
    program.execute()  # what was refused is forgotten
    assert np.abs(given["out"].data - expected(given)).max() < 1e-5


def test_launches() -> None:
    given = inputs(LENS)
    decode = workloads.paged_decode(4, 2, DIM, PAGE, tiers=TIERS)
    for _ in range(2):
        launch(decode, **(given | {"batch": Dense[len(LENS)]()}))
        assert np.abs(given["out"].data - expected(given)).max() < 1e-5
    launch(decode, **inputs(LENS))


def test_a_window_of_fewer_than_no_keys_is_refused() -> None:
    with pytest.raises(CompileError, match="a window of -1 keys"):
        workloads.ragged_prefill(4, 2, 16, window=-1)
