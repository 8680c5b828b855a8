"""In which order the values of axes are generated, judged by what the trace shows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    DenseDyn,
    DType,
    In,
    InOut,
    Interleaved,
    OrderPolicy,
    Out,
    P,
    Parallel,
    ScheduleError,
    Sequential,
    StartPolicy,
    TaskWindow,
    Tensor,
    TracePolicy,
    Workload,
    kernel,
    workload,
)
from pto_wsp.error_codes import Code

WORKERS = 8
ROWS, COLS = 8, 12


def run(work: Workload) -> np.ndarray:
    """The trace in the order in which workers took tasks."""
    with work.compile(num_threads=WORKERS) as program:
        program.execute()
        return np.sort(program.trace, order="take")


@kernel(cpp_src="for (volatile int k = 0; k < 300; ++k) {} x[0] += 1;")
def visit(x: InOut[Tensor]): ...


def table(order: dict[str, OrderPolicy], **axes: Any) -> Workload:
    """Independent tasks in rows and columns of a table."""
    X = Tensor(data=np.zeros((ROWS, COLS), np.int64), name="X")

    @workload
    def work(rows: Any, cols: Any) -> None:
        for i in P(rows):
            for j in P(cols):
                visit[i, j](X[i, j])

    traced = work(DenseDyn(ROWS), axes.get("cols", DenseDyn(COLS))).order(**order)
    return traced.task_graph(trace=TracePolicy.timestamps())


@pytest.mark.directive("order_interleaved")
def test_order_interleaved() -> None:
    """Three rows at a time, one task of each in turn; the order of running is the same."""
    trace = run(table({"rows": Interleaved(3)}))
    groups = [range(3), range(3, 6), range(6, 8)]
    expected = [(i, j) for group in groups for j in range(COLS) for i in group]
    in_order = np.sort(trace, order="seq")
    assert [tuple(r["indices"].tolist()) for r in in_order] == expected
    assert [int(r["task_id"]) for r in in_order] == [i * COLS + j for i, j in expected]
    assert trace["seq"].tolist() == sorted(trace["seq"].tolist())


def test_order_interleaved_lane_takes_the_next_value() -> None:
    """Rows of unequal length: a lane whose row has ended goes on with the next one."""
    lengths = [1, 3, 2]
    X = Tensor(data=np.zeros((3, 4), np.int64), name="X")

    @workload
    def work(rows: Any, lens: Any) -> None:
        for i in P(rows):
            for j in P(lens[i]):
                visit[i, j](X[i, j])

    made = work(DenseDyn(3), np.array(lengths)).order(rows=Interleaved(2))
    with made.task_graph(trace=TracePolicy.timestamps()).compile(num_threads=WORKERS) as program:
        program.execute()
        rows = np.sort(program.trace, order="seq")["indices"].tolist()
    assert rows == [[0, 0], [1, 0], [2, 0], [1, 1], [2, 1], [1, 2]]


@pytest.mark.directive("window_tasks")
@pytest.mark.directive("order_parallel")
def test_order_parallel() -> None:
    """A row of a chain of tasks does not keep the window from the other rows."""
    C = Tensor(data=np.zeros(ROWS, np.int64), name="C")

    @workload
    def work(rows: Any, cols: Any) -> None:
        for i in P(rows):
            for _ in P(cols):
                visit[i](C[i])

    chains = work(DenseDyn(ROWS), DenseDyn(COLS)).order(rows=Parallel)
    window = TaskWindow(ROWS)  # smaller than a row
    held = StartPolicy.after_orchestration()  # until the window is full
    trace = run(chains.task_graph(trace=TracePolicy.timestamps(), window=window, start=held))
    first = np.sort(trace, order="seq")[:ROWS]
    assert len({int(r["indices"][0]) for r in first}) > 1


@pytest.mark.directive("order_sequential")
def test_order_sequential() -> None:
    """Rows are generated and begun one after the other, where otherwise workers take ranges."""
    trace = run(table({"rows": Sequential}))
    assert trace["task_id"].tolist() == list(range(ROWS * COLS))
    assert trace["seq"].tolist() == list(range(ROWS * COLS))


@pytest.mark.parametrize("order", [{"rows": Parallel}, {"rows": Interleaved(2)}])
def test_order_of_iterations_that_conflict_is_refused(order: dict[str, OrderPolicy]) -> None:
    Y = Tensor(data=np.zeros(COLS, np.int64), name="Y")

    @workload
    def work(rows: Any, cols: Any) -> None:
        for _i in P(rows):
            for j in P(cols):
                visit[j](Y[j])

    with pytest.raises(ScheduleError, match=r"tasks of visit \(.*\) and of visit") as refused:
        work(DenseDyn(ROWS), DenseDyn(COLS)).order(**order).compile()
    assert refused.value.code is Code.ORDER_NOT_PROVED
    work(DenseDyn(ROWS), DenseDyn(COLS)).order(cols=next(iter(order.values()))).compile()


def test_order_of_a_sequential_loop_is_refused() -> None:
    X = Tensor(data=np.zeros((ROWS, COLS), np.int64), name="X")

    @workload
    def work(rows: Any, cols: Any) -> None:
        for i in P.seq(rows):
            for j in P(cols):
                visit[i, j](X[i, j])

    with pytest.raises(ScheduleError, match=r"P\.seq"):
        work(DenseDyn(ROWS), DenseDyn(COLS)).order(rows=Parallel).compile()


def test_order_of_tensors_that_share_memory_is_refused_when_they_are_bound() -> None:
    memory = np.zeros((ROWS, COLS), np.int64)
    A, B = Tensor(data=memory, name="A"), Tensor(data=memory[::-1], name="B")

    @workload
    def work(rows: Any) -> None:
        for i in P(rows):
            visit[i](A[i])
            visit[i](B[i])

    with work(DenseDyn(ROWS)).order(rows=Interleaved(2)).compile() as program:
        with pytest.raises(ScheduleError, match="share memory"):
            program.execute()
        program.execute(B=np.zeros((ROWS, COLS), np.int64))


@kernel(cpp_src="y[0] = x[0];")
def move(x: In[Tensor], y: Out[Tensor]): ...


@kernel(cpp_src="t[0] = x[0];")
def stage(x: In[Tensor], t: Out[Tensor]): ...


@pytest.mark.parametrize("rows", [0, 1, 3, 9])
def test_any_number_of_rows_may_be_interleaved(rows: int) -> None:
    """Arrays without elements share nothing, and few rows need few temporaries."""

    @workload
    def work(n: Any, x: Any, y: Any) -> None:
        for i in P(n):
            T = Tensor.temp((2,), DType.F64)
            for j in P(3):
                stage[i, j](x[i, j : j + 1], T[0:1])
                move[i, j](T[0:1], y[i, j : j + 1])

    tensors = [Tensor(data=np.ones((4, 3))), Tensor(data=np.zeros((4, 3)))]
    made = work(DenseDyn(4), *tensors).order(n=Interleaved(4))
    with made.compile(num_threads=2) as program:
        for _ in range(2):
            x, y = np.full((rows, 3), 7.0), np.zeros((rows, 3))
            program.execute(n=rows, x=x, y=y)
            assert (y == 7).all()
            program.execute(n=0, x=x[:0], y=x[:0])  # within other memory, too
