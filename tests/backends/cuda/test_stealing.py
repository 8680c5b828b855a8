"""Blocks that take the tasks of others when their own are used up: who runs what, that each task
runs once, and that the trace says which were stolen."""

# Annotations are values here, and the parameters of workloads symbols.
# pyright: basic, reportInvalidTypeForm=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    DenseDyn,
    DispatchPolicy,
    DType,
    ExecutionError,
    Interleaved,
    Out,
    P,
    Pools,
    ReadyPolicy,
    Scalar,
    ScheduleError,
    Tensor,
    TracePolicy,
    kernel,
    pto,
    workload,
)
from pto_wsp.backends.cuda import device

from .programs import PROGRAMS, dense
from .stepping import stepped
from .watching import BLOCKS, TILE, Table, followed, table, watch

pytestmark = pytest.mark.interpreted
STEAL = ReadyPolicy.work_steal()
KEYED = DispatchPolicy.affinity(lambda t: t.rows)
POOLED = Pools.custom(lambda t: t.cols, 2)
SEEDS = range(4)
ROWS, COLS, LONG = 8, 2, 12
# Of 16 tasks, in ranges of 4: the rows that are block 0's, and the row that its key places there.
FIRST = {"ranges": {0, 1}, "keys": {0, 4}}


@kernel
def mark_slow(y: Out[TILE], rounds: Scalar[DType.I32], number: Scalar[DType.I32]):
    s = pto.carry(sum=pto.zeros((1, 4), DType.F32))
    for _ in pto.for_range(0, rounds):
        pto.store(y, s.sum)
        s.sum = s.sum + pto.cast(number, DType.F32)
    pto.store(y, s.sum)


def uneven(slow: set[int]) -> Table:
    """Tasks of some rows take much longer than others."""
    y = np.zeros((ROWS, COLS, 4), np.float32)
    ty, rounds = Tensor(data=y), np.array([LONG if i in slow else 0 for i in range(ROWS)])

    @workload
    def run(rows, cols, rounds):
        for i, j in P(rows, cols):
            mark_slow[i, j](ty[i, j : j + 1], rounds[i], 100 * i + j)

    return Table(run(DenseDyn(ROWS), DenseDyn(COLS), rounds), [y])


def steals(work: Any) -> Any:
    return work.task_graph(ready=STEAL)


def steals_keys(work: Any) -> Any:
    return work.dispatch(KEYED).task_graph(ready=STEAL)


HOW = {"ranges": steals, "keys": steals_keys}


def owner(how: str, number: int) -> int:
    """The block that a task of `uneven` is placed at."""
    row, col = divmod(number, 100)
    return row % BLOCKS if how == "keys" else (COLS * row + col) // (ROWS * COLS // BLOCKS)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("seed", SEEDS)
def test_own_tasks_first_then_those_of_others(how, seed, monkeypatch) -> None:
    run = watch(lambda: uneven(FIRST[how]), HOW[how], monkeypatch, seed=seed)
    taken = [(block, number) for block, _, number in run.ran if owner(how, number) != block]
    assert taken
    assert run.program.stats.stolen == len(taken)
    assert {owner(how, number) for _, number in taken} >= {0}  # who has most is helped
    for block in range(BLOCKS):
        mine = [number for number in run.of(block) if owner(how, number) == block]
        assert run.of(block)[: len(mine)] == sorted(mine)  # before any other
    assert sorted(run.numbers) == [100 * i + j for i in range(ROWS) for j in range(COLS)]


@pytest.mark.parametrize("seed", SEEDS)
def test_thieves_take_what_comes_first(seed, monkeypatch) -> None:
    """The tasks of a block are taken by growing number, whoever takes them."""
    run = watch(lambda: uneven({0, 1}), steals, monkeypatch, seed=seed)
    for block in range(BLOCKS):
        for thief in range(BLOCKS):
            mine = [n for n in run.of(thief) if owner("ranges", n) == block]
            assert mine == sorted(mine)


def without_stealing(patch: pytest.MonkeyPatch) -> None:
    """From now on a block whose range is used up ends."""
    load = device.load_source

    def broken(text: str) -> Any:
        changed = text.replace("while (taken >= size) & there:", "while (size < 0) & there:")
        changed = changed.replace("tl.where(there, first +", "tl.where(taken < size, first +")
        assert changed != text
        return load(changed)

    patch.setattr(device, "load_source", broken)


def test_that_nobody_steals_is_seen(monkeypatch) -> None:
    with monkeypatch.context() as patch:
        without_stealing(patch)
        with pytest.raises(AssertionError):
            test_own_tasks_first_then_those_of_others("ranges", 0, patch)


def test_fewer_tasks_than_blocks(monkeypatch) -> None:
    for rows in range(BLOCKS):
        for directed in (steals, steals_keys, lambda w: steals(w).task_graph(pools=POOLED)):
            run = watch(lambda rows=rows: table(rows, 1), directed, monkeypatch, seed=0)
            assert len(run.ran) == rows


@pytest.mark.parametrize("seed", SEEDS)
def test_blocks_of_a_pool_take_from_each_other(seed, monkeypatch) -> None:
    work = lambda w: w.task_graph(ready=STEAL, pools=POOLED)  # noqa: E731
    run = watch(lambda: uneven({0, 1, 2, 3}), work, monkeypatch, seed=seed)
    assert all(block % 2 == number % 100 % 2 for block, _, number in run.ran)
    halves = [number // 100 >= ROWS // 2 for _, _, number in run.ran]
    taken = [b for (b, _, _), half in zip(run.ran, halves, strict=True) if b // 2 != half]
    assert run.program.stats.stolen == len(taken) > 0
    assert "takes from blocks of that pool only" in run.program.explain()


def test_ranges_are_those_of_the_order_of_generation(monkeypatch) -> None:
    work = lambda w: steals(w).order(rows=Interleaved(2))  # noqa: E731
    run = watch(lambda: table(4, 2), work, monkeypatch, seed=1)
    firsts = [run.of(block)[0] for block in range(BLOCKS)]
    assert firsts == [0, 1, 200, 201]


# --- the trace ---


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("seed", SEEDS[:2])
def test_the_trace_says_what_was_stolen(how, seed, monkeypatch) -> None:
    made = HOW[how](uneven(FIRST[how]).workload).task_graph(trace=TracePolicy.timestamps())
    program = made.compile(target="cuda")
    with stepped(monkeypatch, seed):
        program.execute()
    trace = program.trace
    assert len(trace) == ROWS * COLS
    for row in trace:
        number = 100 * int(row["indices"][0]) + int(row["indices"][1])
        assert row["stolen"] == (row["worker"] != owner(how, number))
    assert trace["stolen"].sum() == program.stats.stolen > 0
    assert f"{program.stats.stolen} tasks were stolen" in program.explain()


def test_who_makes_a_task_ready_runs_it_and_steals_nothing(monkeypatch) -> None:
    made = steals(followed(5, 2).workload).task_graph(trace=TracePolicy.timestamps())
    program = made.compile(target="cuda", verify="schedule")
    engine: Any = program._engine
    engine.tries = 100_000
    with stepped(monkeypatch, 1):
        program.execute()
    workers = {(row["kernel"], *row["indices"]): row["worker"] for row in program.trace}
    assert len(workers) == 20
    for (name, *indices), worker in workers.items():
        assert workers["mark" if name == "follow" else "follow", *indices] == worker
    followers = program.trace["kernel"] == "follow"
    assert not program.trace["stolen"][followers].any()
    assert program.trace["stolen"].any()
    assert "the last of the tasks that another one waits for runs that one" in program.explain()


# --- waits, room and faults ---


@pytest.mark.parametrize("name", ["steps", "chains", "two_parts", "wavefront", "by_data"])
@pytest.mark.parametrize("how", [steals, lambda w: w.dispatch(BY_NUMBER).task_graph(ready=STEAL)])
def test_tasks_that_wait(name, how, monkeypatch) -> None:
    """Whoever has taken what: twice, so that counters have been cleared."""
    wanted, found = PROGRAMS[name](), PROGRAMS[name]()
    reference = wanted.workload.compile(target="reference")
    program = how(found.workload).compile(target="cuda", blocks_per_sm=2)
    engine: Any = program._engine
    engine.tries = 100_000
    for seed in SEEDS:
        with stepped(monkeypatch, seed):
            reference.execute(hash=True)
            program.execute(hash=True)
        for a, b in zip(wanted.outputs, found.outputs, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-6)
        assert program.task_hash() == reference.task_hash()


BY_NUMBER = DispatchPolicy.affinity(lambda t: t.ordinal)


def test_blocks_that_cannot_run_at_a_time() -> None:
    program = steals(PROGRAMS["chains"]().workload).compile(target="cuda")
    with pytest.raises(ExecutionError, match="4 blocks would have to run at a time"):
        program.execute()
    assert "all blocks have to run at a time" in program.explain()


def test_rows_that_wait_are_numbered_row_by_row() -> None:
    """Along diagonals, one range would have all that could run at a time."""
    program = steals(PROGRAMS["wavefront"]().workload).compile(target="cuda")
    assert "tasks are numbered row by row" in program.explain()
    assert "row by row" not in PROGRAMS["wavefront"]().workload.compile(target="cuda").explain()


def test_room_for_counters() -> None:
    built = table()
    program = steals(built.workload).compile(target="cuda")
    engine: Any = program._engine
    engine._events = engine._events[:2]
    for _ in range(3):
        program.execute()
    assert program.stats.tasks == 10
    assert built.outputs[0][4, 1, 0] == 401.0


@pytest.mark.parametrize("how", HOW)
def test_faults_end_the_run(how, monkeypatch) -> None:
    program = HOW[how](dense().workload).compile(target="cuda")
    with pytest.raises(ExecutionError, match=r"in double\["), stepped(monkeypatch, 0):
        program.execute(rows=9)
    with stepped(monkeypatch, 0):
        program.execute(rows=3)
    assert program.stats.tasks == 6


# --- with other directives ---


def test_how_it_is_kept_is_said() -> None:
    explained = steals(table().workload).compile(target="cuda").explain()
    assert "the numbers are cut into 4 ranges, one for each block" in explained
    both = table().workload.dispatch(DispatchPolicy.work_steal()).task_graph(ready=STEAL)
    assert "any block may run a task" in both.compile(target="cuda").explain()
    keyed = steals_keys(table().workload).compile(target="cuda").explain()
    assert "its own tasks go first, then those of others" in keyed


def test_streams_are_not_stolen_from() -> None:
    for directed in (
        lambda w: w.streams(2),
        lambda w: w.streams(2).stream_by(lambda t: t.rows),
    ):
        with pytest.raises(ScheduleError, match="cannot enforce ready") as caught:
            steals(directed(table().workload)).compile(target="cuda")
        assert "a stream is a block" in str(caught.value)
        assert "DispatchPolicy.affinity(key)" in str(caught.value)


def test_tasks_that_the_host_lists(monkeypatch) -> None:
    """They have numbers, and so ranges; keys would have to be looked at one by one."""
    wanted, found = PROGRAMS["meeting"](), PROGRAMS["meeting"]()
    wanted.workload.compile(target="reference").execute()
    program = steals(found.workload).compile(target="cuda", allow_host_expand=True)
    engine: Any = program._engine
    assert engine.module.expanded
    engine.tries = 100_000
    with stepped(monkeypatch, 0):
        program.execute()
    for a, b in zip(wanted.outputs, found.outputs, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-6)
    assert program.stats.tasks == 18
    robin = PROGRAMS["meeting"]().workload.dispatch(DispatchPolicy.round_robin(2))
    robin = robin.compile(target="cuda", allow_host_expand=True)
    with pytest.raises(ExecutionError, match="2 blocks would have to run at a time"):
        robin.execute()
    keyed = PROGRAMS["meeting"]().workload.dispatch(BY_NUMBER)
    with pytest.raises(ScheduleError, match="the host lists the tasks"):
        keyed.compile(target="cuda", allow_host_expand=True)
