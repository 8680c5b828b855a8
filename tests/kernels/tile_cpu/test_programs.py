"""Tile kernels in programs on cpu_sim: pages, scratch of workers, C++ bodies with the library."""

from __future__ import annotations

import numpy as np

from pto_wsp import (
    DenseDyn,
    DType,
    In,
    InOut,
    Out,
    P,
    PagedTensor,
    Scalar,
    Tensor,
    Tile,
    kernel,
    pto,
    workload,
)


@kernel(body="tile")
def pick(k: In[PagedTensor], out: Out[Tensor], head: Scalar[DType.I64]):
    s = pto.carry(total=pto.zeros((1, 8)))
    for token in pto.for_range(0, k.shape[0], 4):
        tokens = pto.load(k[token : token + 4, head, 0:8])
        s.total = s.total + pto.col_sum(tokens) + pto.item(tokens, 0, 1)
    pto.store(out[0:8], s.total)


def test_tokens_come_through_the_page_table() -> None:
    rng = np.random.default_rng(0)
    pool = rng.standard_normal((9, 4, 2, 8)).astype(np.float32)
    table = np.array([[3, 1, 7], [0, 8, 2]], np.int32)
    lengths = np.array([9, 12], np.int64)
    result = np.zeros((2, 8), np.float32)
    keys = PagedTensor(Tensor(data=pool, name="pool"), Tensor(data=table, name="table"))
    y, lens = Tensor(data=result, name="y"), lengths

    @workload
    def attend(batch, lengths):
        for b in P(batch):
            pick[b](k=keys[b, 0 : lengths[b]], out=y[b], head=1)

    attend(DenseDyn(2), lens).compile(target="cpu_sim").execute()
    for b in range(2):
        tokens = pool[table[b]].reshape(-1, 2, 8)[: lengths[b], 1]
        extra = tokens[0::4, 1].sum()
        np.testing.assert_allclose(result[b], tokens.sum(0) + extra, rtol=1e-5)


@kernel(body="tile")
def read_pages(k: In[PagedTensor], out: Out[Tensor]):
    s = pto.carry(total=pto.zeros((1, 8)))
    for i in pto.for_range(0, k.shape[0], 4):  # the source has counters of its own
        s.total = s.total + pto.pad(pto.col_sum(pto.load(k[i : i + 4, 0:8])), 0.0)
    for column in pto.for_range(0, k.shape[0], 8):
        s.total = s.total + pto.pad(pto.load(k[column : column + 8, 2]), 0.0)
    found = pto.gather(k, pto.arange((3, 1), axis=0) * 5, cols=8)
    pto.store(out[0:8], s.total + pto.col_sum(found))


@kernel(body="tile")
def write_pages(x: In[Tensor], k: InOut[PagedTensor], row: Scalar[DType.I64]):
    given = pto.load(x[0:8])
    pto.store(k[row : row + 2, 0:8], given + pto.zeros((2, 1)))
    pto.store(k[row + 2 : row + 4, 0:8], 3.0)
    pto.store(k[row + 4 : row + 6, 0:7], pto.zeros((2, 7)))
    pto.store(k[row : row + 8, 7], given)
    pto.store(k[row + 5, 6], 9.0)
    pto.scatter(k, pto.arange((3, 1), axis=0) * 11, given * 2.0 + pto.zeros((3, 1)))


def pages_after(target: str) -> tuple[np.ndarray, np.ndarray]:
    """The pool of pages and what was read from it."""
    pool = np.arange(9 * 4 * 8, dtype=np.float32).reshape(9, 4, 8)
    table, result = np.array([[3, 1, 7], [0, 8, 2]], np.int32), np.zeros((2, 8), np.float32)
    keys = PagedTensor(Tensor(data=pool, name="pool"), Tensor(data=table, name="table"))
    y, x = Tensor(data=result, name="y"), Tensor(data=np.arange(8, dtype=np.float32), name="x")

    @workload
    def pages(batch, lengths):
        for b in P(batch):
            read_pages[b](k=keys[b, 0 : lengths[b]], out=y[b])
            write_pages[b](x=x[:], k=keys[b, 0 : lengths[b]], row=1)

    pages(DenseDyn(2), np.array([7, 12], np.int64)).compile(target=target).execute()
    return pool, result


def test_pages_are_read_and_written_like_memory() -> None:
    (pool, read), (pool_meant, read_meant) = pages_after("cpu_sim"), pages_after("reference")
    np.testing.assert_array_equal(pool, pool_meant)
    np.testing.assert_allclose(read, read_meant)


@kernel(
    cpp_includes=["<ptowsp_tile/map.h>", "<ptowsp_tile/move.h>", "<ptowsp_tile/reduce.h>"],
    cpp_src="""
    using namespace ptowsp::tile;
    alignas(64) std::byte room[Tile<float, 4, 20>::kBytes];
    alignas(64) std::byte column[Tile<float, 4, 1>::kBytes];
    const Window<const float> from{x.data(), x.stride(0), x.stride(1), x.shape(0), x.shape(1)};
    Window<float> to{y.data(), y.stride(0), y.stride(1), y.shape(0), y.shape(1)};
    Tile<float, 4, 20> t(room);
    Tile<float, 4, 1> high(column);
    TLOAD(t, from);
    TROWMAX(high, t);
    TROWEXPANDSUB(t, t, high);
    TEXP(t, t);
    TSTORE(to, t);
    """,
)
def by_hand(x: In[Tensor], y: Out[Tensor]): ...


@kernel
def by_trace(x: In[Tile[4, 20, DType.F32]], y: Out[Tile[4, 20, DType.F32]]):
    t = pto.load(x)
    pto.store(y, pto.exp(t - pto.row_max(t)))


def test_bodies_in_cpp_and_tile_code_agree() -> None:
    rng = np.random.default_rng(1)
    data = rng.standard_normal((8, 20)).astype(np.float32)
    first, second = np.zeros_like(data), np.zeros_like(data)
    x, y, z = Tensor(data=data), Tensor(data=first), Tensor(data=second)

    @workload
    def both(parts):
        for i in P(parts):
            by_hand[i](x=x[4 * i : 4 * i + 4], y=y[4 * i : 4 * i + 4])
            by_trace[i](x=x[4 * i : 4 * i + 4], y=z[4 * i : 4 * i + 4])

    both(DenseDyn(2)).compile(target="cpu_sim", num_threads=2).execute()
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, np.exp(data - data.max(1, keepdims=True)), rtol=1e-6)


def test_the_source_can_be_read() -> None:
    text = by_trace.source("cpu")
    assert "TROWMAX<4, 4>" in text
    assert "test_programs.py:" in text
