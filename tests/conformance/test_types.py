"""Tiles, locations and layouts on every target: what was not proved while tracing is checked by the
run, and what only says where data lies changes nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    DenseDyn,
    DType,
    ExecutionError,
    In,
    InOut,
    Location,
    MemLayout,
    Out,
    P,
    PagedTensor,
    Ragged,
    Scalar,
    Tensor,
    TensorLayout,
    TensorReplicate,
    TensorShard,
    Tile,
    Tiled,
    TracePolicy,
    kernel,
    relayout,
    slot_set_u64,
    slot_u64,
    workload,
)
from pto_wsp.error_codes import Code

R, S = TensorReplicate(), TensorShard
ROWS, COLS = MemLayout.row_major(), MemLayout.col_major()


# --- tiles ---


@kernel(body="python")
def fill(x: Out[Tile[2, 4, DType.I64]], s: Scalar[DType.I64]):
    x[...] = s


@kernel(cpp_src="for (int64_t i = 0; i < x.shape(0); ++i) for (int64_t j = 0; j < x.shape(1); ++j)"
        " x(i, j) = s;")  # fmt: skip
def native_fill(x: Out[Tile[2, 4, DType.I64]], s: Scalar[DType.I64]): ...


FILLS = pytest.mark.parametrize("body", [fill, native_fill], ids=["python", "cpp"])


@FILLS
def test_tiles_of_bound_lengths(target: str, body: Any) -> None:
    X = Tensor(data=np.zeros((3, 2, 9), np.int64))

    @workload
    def work(rows: Any, lens: Any):
        for b in P(rows):
            body[b](X[b, :, 1 : 1 + lens[b]], b + 1)

    lens = np.array([4, 0, 3])
    with work(DenseDyn(3), lens).compile(target=target) as program:
        program.execute()
        assert X.data is not None
        assert X.data.sum(axis=(1, 2)).tolist() == [8, 0, 18]
        with pytest.raises(ExecutionError) as raised:
            program.execute(lens=np.array([4, 1, 5]))
        program.execute(lens=lens)  # and goes on
    error = raised.value
    assert error.code is Code.TILE_MISFIT
    name = body.name
    assert error.message == (
        f"5 elements in dimension 1 of parameter 'x', whose tile holds 4 in {name}[2]"
    )
    assert error.why == "a kernel is made for tiles of at most that shape"
    assert error.fix == "pass a smaller slice; Tiled(axis, size) cuts an axis into tiles"
    assert error.loc is not None
    assert error.loc.file == __file__


@FILLS
def test_dimensions_of_a_tile_are_those_that_it_sees(target: str, body: Any) -> None:
    X = Tensor(data=np.zeros((9, 3, 4), np.int64))

    @workload
    def work(rows: Any, size: Any):
        for b in P(rows):
            body[b](X[0:size, b, :], 1)

    with work(DenseDyn(2), Scalar(2)).compile(target=target) as program:
        program.execute()
        with pytest.raises(ExecutionError, match="3 elements in dimension 0 of parameter 'x'"):
            program.execute(size=3)
        with pytest.raises(ExecutionError, match="7 elements in dimension 1 of parameter 'x'"):
            program.execute(size=1, X=np.zeros((9, 3, 7), np.int64))


def test_a_region_outside_is_the_first_mistake(target: str) -> None:
    X = Tensor(data=np.zeros((2, 5), np.int64))

    @workload
    def work(size: Any):
        fill(X[:, 0:size], 1)

    with work(Scalar(1)).compile(target=target) as program:
        for size, code in ((5, Code.TILE_MISFIT), (6, Code.OUT_OF_BOUNDS)):
            with pytest.raises(ExecutionError) as raised:
                program.execute(size=size)
            assert raised.value.code is code


def test_tiles_that_nobody_reaches(target: str) -> None:
    X = Tensor(data=np.zeros((2, 50), np.int64))

    @workload
    def work(rows: Any, size: Any):
        for _ in P(rows):
            fill(X[:, 0:size], 1)
        with P.when(size < 4):
            fill(X[:, 0:size], 1)

    work(DenseDyn(0), Scalar(50)).compile(target=target).execute()


def test_tiles_of_slots_temporaries_and_rows(target: str) -> None:
    Y = Tensor(data=np.zeros((3, 2, 4), np.int64))

    @workload
    def work(rows: Any, lens: Any, tiles: Any):
        for b in P(rows):
            slot_set_u64(0, lens[b])
            T = Tensor.temp((2, 9), DType.I64)
            fill[b](T[:, 0 : slot_u64(0)], 7)
            for t in P(lens):
                fill[b, t](Y[b, :, t : t + 1], 1)
        for t in P(tiles):
            fill[t](Y[0, :, t.slice], t)

    rows = DenseDyn(3)
    args = rows, Ragged(rows, [4, 2, 0]), Tiled(DenseDyn(4), 3)
    with work(*args).compile(target=target) as program:
        program.execute()
        with pytest.raises(ExecutionError, match=r"whose tile holds 4 in fill\[1\]"):
            program.execute(lens=[4, 5, 0])


def test_proved_tiles_cost_nothing() -> None:
    X = Tensor(data=np.zeros((64, 4), np.int64))

    @workload
    def work(rows: Any, lens: Any):
        for b in P(rows):
            fill[b](X[2 * b : 2 * b + 2], b)
        for b in P(rows):
            fill[b](X[2 * b : 2 * b + 2, 0 : lens[b]], b)

    with work(DenseDyn(32), np.full(32, 4)).compile(num_threads=1) as program:
        assert program.execute().stats.bounds_checked == 0
        small = program.execute(X=np.zeros((64, 3), np.int64), lens=np.full(32, 3))
        assert small.stats.bounds_checked == 0
        with pytest.raises(ExecutionError):
            program.execute(X=np.zeros((64, 5), np.int64), lens=np.full(32, 3))


def test_pages_as_tiles(target: str) -> None:
    pool = np.zeros((4, 3, 4), np.int64)
    K = PagedTensor(pool, np.array([[2, 0]], np.int32))

    @workload
    def work(first: Any, last: Any):
        fill(K[0, first:last], 3)

    with work(Scalar(3), Scalar(5)).compile(target=target) as program:
        program.execute()
        assert pool[0, :2].sum() == 24
        with pytest.raises(ExecutionError, match="3 elements in dimension 0 of parameter 'x'"):
            program.execute(last=6)


# --- locations ---


@kernel(body="python")
def load(x: In[Tensor], t: Out[Tile[8, DType.I64, Location.UB]]):
    t[...] = x


@kernel(body="python")
def store(t: In[Tile[8, DType.I64, Location.UB]], y: Out[Tensor]):
    y[...] = 2 * t


def test_locations_change_no_result(target: str) -> None:
    X = Tensor(data=np.arange(80).reshape(10, 8), location=Location.L2)
    Y = Tensor(data=np.zeros((10, 8), np.int64))

    @workload
    def work(rows: Any):
        for b in P(rows):
            T = Tensor.temp((8,), DType.I64, location=Location.UB)
            load[b](X[b], T)
            store[b](T, Y[b])

    program = work(DenseDyn(10)).compile(target=target).execute()
    assert X.data is not None
    assert np.array_equal(Y.data, 2 * X.data)
    listing = program.plan.disassemble()
    assert "X: i64[?, ?] bound storage 0 in l2" in listing
    assert "tmp: i64[8] temp storage 2 in ub, alloc 0" in listing


# --- layouts ---


@kernel
def add(a: In[Tensor], b: In[Tensor], out: Out[Tensor]):
    out[...] = a + b


@kernel
def halve(x: InOut[Tensor]):
    x //= 2


def test_relayout_keeps_data_and_hazards(target: str) -> None:
    X = Tensor(data=np.arange(40).reshape(5, 8), layout=TensorLayout((S(0), R)))
    Y = Tensor(data=np.zeros((5, 8), np.int64), layout=TensorLayout((R, S(0))))

    @workload
    def work(rows: Any):
        for b in P(rows):
            halve[b](X[b])
            add[b](relayout(X, TensorLayout((R, S(0))))[b], Y[b], Y[b])

    with (
        work(DenseDyn(5)).task_graph(trace=TracePolicy.timestamps()).compile(target=target)
    ) as program:
        program.execute()
        assert sorted(program.bindings) == ["X", "Y", "rows"]
        ends = {(r["kernel"], *r["indices"]): r["end_ns"] for r in program.trace}
        starts = {(r["kernel"], *r["indices"]): r["start_ns"] for r in program.trace}
        assert all(ends["halve", b] <= starts["add", b] for b in range(5))
    assert Y.data is not None
    assert np.array_equal(Y.data, np.arange(40).reshape(5, 8) // 2)


ORDERS = {
    "rows": (ROWS, np.zeros((3, 4)), np.zeros((4, 3)).T, 1, 4),
    "gaps": (ROWS, np.zeros((9, 4)), np.zeros((9, 8))[:, ::2], 8, 4),
    "columns": (COLS, np.zeros((4, 3)).T, np.zeros((3, 4)), 4, 1),
    "strided": (MemLayout.strided(8, 1), np.zeros((5, 8))[:, :3], np.zeros((5, 3)), 3, 8),
}


@pytest.mark.parametrize(("mem", "good", "bad", "has", "says"), ORDERS.values(), ids=ORDERS)
def test_order_in_memory_is_checked_at_execute(
    target: str, mem: MemLayout, good: Any, bad: Any, has: int, says: int
) -> None:
    X = Tensor(shape=(3, 4), dtype=DType.F64, name="X", layout=TensorLayout((R, R), mem))

    @workload
    def work():
        halve(X)

    with work().compile(target=target) as program:
        program.execute(X=good)
        with pytest.raises(ExecutionError) as raised:
            program.execute(X=bad)
        program.execute(X=good)
        program.execute(X=bad[:0])  # nothing lies anywhere
        program.execute(X=bad[:1, :1])
    assert raised.value.code is Code.BINDING_ORDER
    assert raised.value.message == (
        f"tensor 'X' has the stride {has} in dimension 0, its layout says {says}"
    )
    assert raised.value.loc is not None
    assert raised.value.loc.file == __file__
    assert raised.value.note == f"declared at {X.loc}"
    assert raised.value.why
    assert raised.value.fix
