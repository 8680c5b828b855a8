"""prefetch(axis, depth): which tasks ask for which bytes, judged by the counts of a run."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    Dense,
    DenseDyn,
    DType,
    In,
    InOut,
    Out,
    P,
    PagedTensor,
    Ragged,
    ReadyPolicy,
    ScheduleError,
    Sparse,
    Tensor,
    TracePolicy,
    Workload,
    kernel,
    sequential,
    slot_set_u64,
    slot_u64,
    workload,
)
from tests.conformance.grids import COLS, ROWS, WORKERS, grid

# One worker runs tasks where they are generated, several split the outermost loop; a ready policy
# makes records of them.
MODES = [
    pytest.param(1, {}, id="inline"),
    pytest.param(2, {}, id="split"),
    pytest.param(2, {"ready": ReadyPolicy.fifo()}, id="flow"),
    pytest.param(WORKERS, {"trace": TracePolicy.timestamps()}, id="traced"),
]


@kernel(cpp_src="for (int64_t i = 0; i < x.shape(0); ++i) y[0] += x[i];")
def total(x: In[Tensor], y: InOut[Tensor]): ...


@kernel(cpp_src="for (int64_t i = 0; i < x.shape(0); ++i) y[0] += x(i, 0);")
def gather(x: In[PagedTensor], y: InOut[Tensor]): ...


@kernel(cpp_src="y[0] = 1;")
def fill(y: Out[Tensor]): ...


def counted(work: Workload, workers: int = 2, **graph: Any) -> tuple[int, int]:
    """Tasks that prefetched something, and bytes."""
    with work.task_graph(**graph).compile(num_threads=workers) as program:
        program.execute()
        program.execute()
        return program.stats.prefetch_tasks, program.stats.prefetch_bytes


def sums(width: int, rows: int = 24) -> Workload:
    """Task i reads a row of `width` numbers and updates one."""
    X = Tensor(data=np.ones((rows, width), np.int64), name="X")
    Y = Tensor(data=np.zeros(rows, np.int64), name="Y")

    @workload
    def work(rows: Any) -> None:
        for i in P(rows):
            total[i](X[i], Y[i : i + 1])

    return work(DenseDyn(rows))


@pytest.mark.parametrize(("workers", "graph"), MODES)
@pytest.mark.parametrize("depth", [1, 3, 23, 24])
def test_regions_that_are_read(workers: int, graph: dict[str, Any], depth: int) -> None:
    tasks = max(24 - depth, 0)
    assert counted(sums(10).prefetch("rows", depth), workers, **graph) == (tasks, tasks * 88)


def test_nothing_without_the_directive() -> None:
    assert counted(sums(10)) == (0, 0)


@pytest.mark.parametrize(("workers", "graph"), MODES)
def test_along_one_of_two_loops(workers: int, graph: dict[str, Any]) -> None:
    rows = counted(grid().prefetch("rows", 2), workers, **graph)
    assert rows == ((ROWS - 2) * COLS, (ROWS - 2) * COLS * 8)
    cols = counted(grid().prefetch("cols", 5), workers, **graph)
    assert cols == (ROWS * (COLS - 5), ROWS * (COLS - 5) * 8)
    both = counted(grid().prefetch("rows", 2).prefetch("cols", 5), workers, **graph)
    assert both == (rows[0] + cols[0], rows[1] + cols[1])
    again = counted(grid().prefetch("rows", 7).prefetch("rows", 2), workers, **graph)
    assert again == rows


def test_a_task_asks_for_so_much_and_no_more() -> None:
    assert counted(sums(3000).prefetch("rows", 1)) == (23, 23 * 16 * 1024)


def test_what_is_only_written_is_not_asked_for() -> None:
    Y = Tensor(data=np.zeros(8, np.int64), name="Y")

    @workload
    def work(rows: Any) -> None:
        for i in P(rows):
            fill[i](Y[i : i + 1])

    assert counted(work(DenseDyn(8)).prefetch("rows", 1)) == (0, 0)


@pytest.mark.directive("prefetch")
def test_strided_regions() -> None:
    """A column of a wide matrix is a line for each row, a column of a narrow one a single run."""
    for width, bytes_of_one in ((64, 10 * 8), (2, 9 * 16 + 8)):
        X = Tensor(data=np.ones((10, width), np.int64), name="X")
        Y = Tensor(data=np.zeros(width, np.int64), name="Y")

        @workload
        def work(cols: Any, X: Any = X, Y: Any = Y) -> None:
            for j in P(cols):
                total[j](X[:, j], Y[j : j + 1])

        found = counted(work(Dense[2]()).prefetch("cols", 1))
        assert found == (1, bytes_of_one + 8)


def test_iterations_that_inner_loops_have_not() -> None:
    lengths = [3, 1, 0, 5]
    X = Tensor(data=np.ones((4, 8), np.int64), name="X")
    Y = Tensor(data=np.zeros((4, 8), np.int64), name="Y")

    @workload
    def work(rows: Any, lens: Any) -> None:
        for i in P(rows):
            for j in P(lens):
                total[i, j](X[i, j : j + 1], Y[i, j : j + 1])

    rows = DenseDyn(4)
    ragged = work(rows, Ragged(rows, lengths))
    tasks = sum(min(a, b) for a, b in pairwise(lengths))
    assert counted(ragged.prefetch("rows", 1)) == (tasks, 16 * tasks)
    tasks = sum(max(n - 2, 0) for n in lengths)
    assert counted(ragged.prefetch("lens", 2)) == (tasks, 16 * tasks)


def test_columns_of_sparse_loops() -> None:
    X = Tensor(data=np.ones((5, 8), np.int64), name="X")
    Y = Tensor(data=np.zeros((3, 8), np.int64), name="Y")

    @workload
    def work(rows: Any, routing: Any) -> None:
        for i in P(rows):
            for e in P.sel(routing[i]):
                total[i, e](X[e], Y[i, e : e + 1])

    rows = DenseDyn(3)
    routing = Sparse(rows, [0, 2, 2, 5], [4, 0, 1, 2, 3])
    found = counted(work(rows, routing).prefetch("routing", 1))
    assert found == (3, 3 * (64 + 8))


def test_regions_that_nobody_knows_yet_are_left_out() -> None:
    X = Tensor(data=np.ones(64, np.int64), name="X")
    Y = Tensor(data=np.zeros(64, np.int64), name="Y")

    @workload
    def work(rows: Any) -> None:
        for i in P(rows):
            slot_set_u64(0, i * 3)
            part = Tensor.temp(shape=(2,), dtype=DType.I64)
            fill[i](part)
            total[i](part, Y[i : i + 1])
            total[i](X[slot_u64(0) : slot_u64(0) + 1], Y[i : i + 1])

    assert counted(work(DenseDyn(8)).prefetch("rows", 1)) == (14, 14 * 8)


def test_only_calls_that_stand_in_the_loop() -> None:
    Y = Tensor(data=np.zeros(12, np.int64), name="Y")

    @workload
    def one(rows: Any) -> None:
        for i in P(rows):
            total[i](Y[i : i + 1], Y[i : i + 1])

    @workload
    def other(cols: Any) -> None:
        for j in P(cols):
            total[j](Y[j : j + 1], Y[j : j + 1])

    both = sequential(one(DenseDyn(4)), other(DenseDyn(12)))
    assert counted(both.prefetch("rows", 1)) == (3, 48)


def test_regions_outside_their_tensor_are_left_out() -> None:
    X = Tensor(data=np.ones(6, np.int64), name="X")
    Y = Tensor(data=np.zeros(8, np.int64), name="Y")

    @workload
    def work(rows: Any) -> None:
        for i in P(rows):
            with P.when(i < 6):
                total[i](X[i : i + 1], Y[i : i + 1])

    assert counted(work(DenseDyn(8)).prefetch("rows", 1)) == (6, 5 * 16 + 8)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_pages(dtype: Any) -> None:
    pool = Tensor(data=np.ones((4, 2, 3), np.int64), name="pool")
    table = Tensor(data=np.array([[3, 1], [0, 2], [1, 1]], dtype), name="table")
    K = PagedTensor(pool, table, page=2)
    Y = Tensor(data=np.zeros(3, np.int64), name="Y")

    @workload
    def work(rows: Any) -> None:
        for i in P(rows):
            gather[i](K[i, 0:3], Y[i : i + 1])

    assert counted(work(DenseDyn(3)).prefetch("rows", 1)) == (2, 2 * (3 * 24 + 8))


def test_explained() -> None:
    with sums(10).prefetch("rows", 4).compile(num_threads=2) as program:
        program.execute()
        assert "prefetch('rows', 4)" in program.explain()
        assert "1760 bytes before 20 tasks" in program.explain()


def test_refused() -> None:
    with pytest.raises(ScheduleError, match="prefetch names the loop 'deep'") as caught:
        grid().prefetch("deep", 1).compile()
    assert caught.value.fix == "use one of 'cols', 'rows'"
    assert caught.value.loc is not None
    with pytest.raises(ScheduleError, match="depth"):
        grid().prefetch("rows", 0)
    with pytest.raises(ScheduleError, match="an axis is given by its name"):
        grid().prefetch(3, 1)  # pyright: ignore[reportArgumentType]
