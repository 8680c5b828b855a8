"""What a GPU cannot do is said before anything runs, and what goes wrong there with its line."""

# pyright: basic, reportInvalidTypeForm=false
from __future__ import annotations

import numpy as np
import pytest

from pto_wsp import (
    Affinity,
    CompileError,
    DenseDyn,
    DispatchPolicy,
    DType,
    ExecutionError,
    In,
    Metric,
    Out,
    P,
    PagedTensor,
    ScheduleError,
    StartPolicy,
    TaskWindow,
    Tensor,
    TimingPolicy,
    WindowMode,
    kernel,
    workload,
)
from pto_wsp.backends.cuda.module import Need

from .programs import add, dense, double, numbers, temporaries
from .watching import units


def test_python_kernels() -> None:
    @kernel
    def copy(x: In[Tensor], y: Out[Tensor]):
        y[...] = x

    x, y = Tensor(data=numbers(4, 4)), Tensor(data=numbers(4, 4))

    @workload
    def run(rows):
        for i in P(rows):
            copy[i](x[i], y[i])

    with pytest.raises(CompileError, match=r"'copy' has a Python body, which a GPU cannot run"):
        run(DenseDyn(4)).compile(target="cuda")


def test_a_pool_that_tasks_use_directly() -> None:
    """By name it is another tensor than the pages in it."""
    pool, table = Tensor(data=numbers(4, 2, 4), name="pool"), np.zeros((1, 2), np.int32)
    x, pages = Tensor(data=numbers(2, 4)), PagedTensor(pool, table, name="pages")

    @workload
    def run(rows):
        for i in P(rows):
            double[i](x, pool[i])
            double[i](pages[0, 0:2], x)

    with pytest.raises(CompileError, match="'pool' and 'pages' share the memory that tasks write"):
        run(DenseDyn(4)).compile(target="cuda")


def test_temporaries_whose_shape_depends_on_two_loops() -> None:
    x = Tensor(data=numbers(4, 2, 4))

    @workload
    def run(rows, steps, lens):
        for i in P(rows):
            for s in P(steps):
                parts = Tensor.temp((lens[i] + s + 1, 2, 4), DType.F32)
                double[i, s](x[i], parts[0])

    made = run(DenseDyn(2), DenseDyn(2), np.array([1, 2]))
    with pytest.raises(CompileError, match="cannot say how large a temporary becomes"):
        made.compile(target="cuda")


ROBIN = DispatchPolicy.round_robin(2)


@pytest.mark.parametrize(
    ("directed", "why", "nearest"),
    [
        (
            lambda w: w.dispatch_threshold(Metric.num_tasks(), [0], [ROBIN]),
            "one way of dealing",
            "use dispatch",
        ),
        (lambda w: w.streams(2).dispatch(ROBIN), "which block", "keep streams"),
        (
            lambda w: w.affinity(rows=Affinity.CORE_GROUP),
            "no neighbours",
            "rows=Affinity.CORE_LOCAL",
        ),
        (lambda w: w.timing(TimingPolicy.batched(4)), "hold these back", "immediate()"),
        (lambda w: w.pipeline_depth(2, on_full="error"), "full gate", "pipeline_depth(2)"),
        (
            lambda w: w.pipeline_depth(2, scope="per_key", key=lambda t: t.rows),
            "tasks of each key",
            "DispatchPolicy.affinity(key)",
        ),
        (lambda w: w.prefetch("rows", 2), "its next task", "num_stages"),
        (lambda w: w.batch_deps(4), "look at a counter", "leave it out"),
        (lambda w: w.task_graph(window=TaskWindow(8, "bytes")), "the bytes", 'unit="tasks"'),
        (
            lambda w: w.task_graph(window=TaskWindow(8, mode=WindowMode.ABORT)),
            "ever full",
            "TaskWindow(8)",
        ),
        (
            lambda w: w.task_graph(start=StartPolicy.after_orchestration()),
            "before they run",
            "StartPolicy.immediate()",
        ),
    ],
)
def test_directives_that_nobody_enforces(directed, why, nearest) -> None:
    """Each with its own reason, the nearest that is kept, and the user's line."""
    with pytest.raises(ScheduleError, match="the cuda target cannot enforce") as caught:
        directed(dense().workload).compile(target="cuda")
    text = str(caught.value)
    assert why in text
    assert nearest in text
    assert "test_refused.py" in text


def test_keys_that_some_task_does_not_have() -> None:
    work = units().workload.dispatch(DispatchPolicy.affinity(lambda t: t.cols))
    with pytest.raises(ScheduleError, match="reads the loop 'cols'"):
        work.compile(target="cuda")


def test_tensors_that_are_one() -> None:
    x = np.zeros((4, 4), np.float32)
    a, b = Tensor(data=x), Tensor(data=numbers(4, 4))

    @workload
    def run(rows):
        for i in P(rows):
            double[i](a[2 * i : 2 * i + 2], b[2 * i : 2 * i + 2])

    program = run(DenseDyn(2)).compile(target="cuda")
    with pytest.raises(ExecutionError, match=r"'b', which tasks write, shares memory with 'a'"):
        program.execute(b=x)
    program.execute()


def test_more_counters_and_workspace_than_there_were() -> None:
    """A run that does not fit is made room for, and nothing of it has run before."""
    n = 300
    x = np.zeros((2 * n + 2, 4 * n + 4), np.float32)
    x[:2], x[:, :4] = 1.0, 1.0
    t = Tensor(data=x)

    @workload
    def run(rows, cols):
        for i in P.seq(rows):
            for j in P(cols):
                add[i, j](
                    t[2 * i : 2 * i + 2, 4 * j + 4 : 4 * j + 8],
                    t[2 * i + 2 : 2 * i + 4, 4 * j : 4 * j + 4],
                    t[2 * i + 2 : 2 * i + 4, 4 * j + 4 : 4 * j + 8],
                )

    program = run(DenseDyn(2), DenseDyn(2)).compile(target="cuda")
    engine = program._engine
    engine._events = engine._events[:2]  # room for one counter
    program.execute()
    assert program.stats.tasks == 4
    assert x[4, 8] == 6.0  # as in Pascal's triangle


@pytest.mark.parametrize("rows", [(2, 40), (40, 2)], ids=["the last", "the first"])
def test_one_of_several_runs_without_room(rows: tuple[int, int]) -> None:
    """Nobody knows which, so all of them are errors: none is run twice, none is lost silently."""
    x = np.ones((80, 16), np.float32)
    t = Tensor(data=x, name="t")

    @workload
    def run(rows, cols):
        for i in P(rows):
            for j in P.seq(cols):  # a counter for each row
                double[i, j](
                    t[2 * i : 2 * i + 2, 4 * j : 4 * j + 4],
                    t[2 * i : 2 * i + 2, 4 * j + 4 : 4 * j + 8],
                )

    program = run(DenseDyn(2), DenseDyn(3)).compile(target="cuda")
    engine = program._engine
    program.execute(rows=2)
    engine._events = engine._events[: 2 * engine.needs()[Need.EVENTS]]
    for n in rows:
        program.execute_async(rows=n)
    with pytest.raises(ExecutionError, match="one of 2 runs found no room for its tasks"):
        program.synchronize()
    program.reserve(rows=max(rows))
    for n in rows:
        program.execute_async(rows=n)
    program.synchronize()
    assert program.stats.tasks == 3 * rows[1]


def test_room_is_made_without_a_run() -> None:
    built = temporaries()
    program = built.workload.compile(target="cuda")
    engine = program._engine
    engine._events, engine._space = engine._events[:2], engine._space[:16]
    program.reserve(lens=np.array([3, 3, 3, 3]))
    assert (built.outputs[0] == 9.0).all()  # nothing has run
    assert len(engine._space) >= 4 * 3 * 2 * 4 * 4
    program.enqueue()
    program.enqueue(lens=np.array([1, 2, 3, 0]))
    assert not program._pending  # only the last is remembered
    program.synchronize()
    wanted = temporaries()
    wanted.workload.compile(target="reference").execute(lens=np.array([1, 2, 3, 0]))
    np.testing.assert_allclose(built.outputs[0], wanted.outputs[0], rtol=1e-6)


def test_graphs_keep_their_memory() -> None:
    """Whatever is needed after a capture lies elsewhere."""
    built = temporaries()
    program = built.workload.compile(target="cuda")
    engine = program._engine
    engine._space = engine._space[:16]
    engine._captured = True
    before = [engine._ctrl, engine._need, engine._events, engine._space]
    program.execute()
    after = [engine._ctrl, engine._need, engine._events, engine._space]
    assert all(a is not b for a, b in zip(before, after, strict=True))
    assert engine._graphs == [tuple(before)]
    program.execute()
    wanted = temporaries()
    wanted.workload.compile(target="reference").execute()
    np.testing.assert_allclose(built.outputs[0], wanted.outputs[0], rtol=1e-6)
