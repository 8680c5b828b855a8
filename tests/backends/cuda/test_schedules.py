"""In what order tasks start, how many at a time, and in which pool."""

# pyright: basic
from __future__ import annotations

import pytest

from pto_wsp import (
    DispatchPolicy,
    Interleaved,
    Parallel,
    Pools,
    ReadyPolicy,
    ScheduleError,
    Sequential,
    TaskWindow,
    minimum,
    select,
)
from pto_wsp.backends.cuda.schedule import _Reader
from pto_wsp.error_codes import Code
from pto_wsp.plan import Directive

from .programs import PROGRAMS
from .watching import BLOCKS, followed, grouped, ragged, table, units, watch

pytestmark = pytest.mark.interpreted


def in_turns(lengths: list[int], lanes: int) -> list[int]:
    """Numbers of tasks as the design says: a task of each lane in turn; a lane whose row has ended
    takes the next row that has tasks."""
    rows = [[100 * i + j for j in range(n)] for i, n in enumerate(lengths) if n]
    open_: list[list[int]] = [[] for _ in range(lanes)]
    found: list[int] = []
    while rows or any(open_):
        for lane in range(lanes):
            if not open_[lane] and rows:
                open_[lane] = rows.pop(0)
            if open_[lane]:
                found.append(open_[lane].pop(0))
    return found


# --- order ---


@pytest.mark.parametrize("lanes", [2, 3, 8])
def test_interleaved_rows_of_equal_length(lanes, monkeypatch) -> None:
    run = watch(table, lambda w: w.order(rows=Interleaved(lanes)), monkeypatch)
    assert run.numbers == in_turns([2] * 5, lanes)


@pytest.mark.parametrize("lanes", [2, 3, 8])
def test_interleaved_rows_of_any_length(lanes, monkeypatch) -> None:
    lengths = [3, 0, 1, 2, 0, 0, 4]
    run = watch(lambda: ragged(lengths), lambda w: w.order(rows=Interleaved(lanes)), monkeypatch)
    assert run.numbers == in_turns(lengths, lanes)


def test_parallel_takes_as_many_rows_as_blocks(monkeypatch) -> None:
    lengths = [1, 2, 1, 1, 2, 1]
    run = watch(lambda: ragged(lengths), lambda w: w.order(rows=Parallel), monkeypatch)
    assert run.numbers == in_turns(lengths, BLOCKS)


@pytest.mark.parametrize("lengths", [[[2, 0, 1, 2]], [[1, 2, 1, 0], [0, 2, 3, 1]]])
@pytest.mark.parametrize("lanes", [2, 4])
def test_inner_loops_take_turns_too(lengths, lanes, monkeypatch) -> None:
    """Whether or not groups are as long in every row."""
    run = watch(lambda: grouped(lengths), lambda w: w.order(groups=Interleaved(lanes)), monkeypatch)
    rows = [in_turns(lengths[i % len(lengths)], lanes) for i in range(2)]
    assert run.numbers == [100 * i + n // 10 + n % 10 for i in range(2) for n in rows[i]]


def test_sequential_is_the_order_of_the_program(monkeypatch) -> None:
    """Nobody runs a task for its successor: that would be out of order."""
    plain = watch(followed, lambda w: w, monkeypatch)
    assert [name for _, name, _ in plain.ran][:2] == ["mark", "follow"]
    run = watch(followed, lambda w: w.order(rows=Sequential), monkeypatch)
    assert [name for _, name, _ in run.ran] == ["mark"] * 6 + ["follow"] * 6
    assert run.numbers[:6] == run.numbers[6:] == sorted(run.numbers[:6])


@pytest.mark.parametrize("seed", range(2))
def test_interleaved_rows_whose_tasks_wait(seed, monkeypatch) -> None:
    run = watch(followed, lambda w: w.order(rows=Interleaved(2)), monkeypatch, seed=seed)
    assert sorted(n for _, name, n in run.ran if name == "mark") == sorted(run.numbers)[::2]


def test_orders_that_would_be_wrong() -> None:
    for name, axis in (("wavefront", "rows"), ("steps", "steps"), ("chains", "lens")):
        work = PROGRAMS[name]().workload
        with pytest.raises(ScheduleError, match="the cuda target cannot enforce order") as caught:
            work.order(**{axis: Interleaved(2)}).compile(target="cuda")
        assert caught.value.code is Code.ORDER_NOT_PROVED
        assert "test_schedules.py" in str(caught.value)
    with pytest.raises(ScheduleError, match="no loop over an axis 'lines'"):
        table().workload.order(lines=Interleaved(2)).compile(target="cuda")


def test_numbers_of_the_program_are_not_known_in_another_order() -> None:
    work = table().workload.order(rows=Interleaved(2))
    policy = DispatchPolicy.static_partition([(0, 4), (4, 9)])
    with pytest.raises(ScheduleError, match="in program order"):
        work.dispatch(policy).compile(target="cuda")


def test_order_and_dispatch(monkeypatch) -> None:
    """Round robin counts in the order of generation."""
    work = lambda w: w.order(rows=Interleaved(2)).dispatch(DispatchPolicy.round_robin(3))  # noqa: E731
    run = watch(table, work, monkeypatch)
    for block in range(3):
        assert run.of(block) == in_turns([2] * 5, 2)[block::3]


def test_order_and_priority(monkeypatch) -> None:
    """Each priority goes through the rows from the first one on again."""
    lengths = [2, 1, 0, 3, 1]
    policy = ReadyPolicy.priority(lambda t: t.lens % 2)
    work = lambda w: w.order(rows=Interleaved(2)).task_graph(ready=policy)  # noqa: E731
    run = watch(lambda: ragged(lengths), work, monkeypatch)
    wanted = in_turns(lengths, 2)
    assert run.numbers == [n for odd in (1, 0) for n in wanted if n % 2 == odd]


# --- ready ---


def test_fifo_is_the_order_of_generation(monkeypatch) -> None:
    run = watch(followed, lambda w: w.task_graph(ready=ReadyPolicy.fifo()), monkeypatch)
    assert [name for _, name, _ in run.ran] == ["mark"] * 6 + ["follow"] * 6
    assert not run.program._engine.module.direct


@pytest.mark.parametrize(
    ("built", "inner", "seed"),
    [(table, "cols", 0), (table, "cols", None), (lambda: ragged([2, 0, 1, 3]), "lens", None)],
)
def test_priority(built, inner, seed, monkeypatch) -> None:
    policy = ReadyPolicy.priority(lambda t: t.get(inner) % 2 - minimum(t.rows, 2))
    run = watch(built, lambda w: w.task_graph(ready=policy), monkeypatch, seed=seed)
    keys = [n % 100 % 2 - min(n // 100, 2) for n in run.numbers]
    if seed is None:
        wanted = sorted(zip([-k for k in keys], run.numbers, strict=True))
        assert run.numbers == [number for _, number in wanted]
    else:  # blocks take them so, and start them soon after
        assert {b for b, _, _ in run.ran} == set(range(BLOCKS))
        assert max(keys[:3]) == max(keys)
        assert min(keys[-3:]) == min(keys)


def test_priority_of_rows_is_passed_at_once(monkeypatch) -> None:
    policy = ReadyPolicy.priority(lambda t: minimum(t.rows, 3))
    run = watch(table, lambda w: w.task_graph(ready=policy), monkeypatch)
    rows = [3, 4, 2, 1, 0]
    assert run.numbers == [100 * i + j for i in rows for j in range(2)]
    assert "ahead = left" in run.program._engine.module.text


def test_priorities_of_tasks_that_wait(monkeypatch) -> None:
    """Fine where those that others wait for come first."""

    def policy(sign):
        return ReadyPolicy.priority(lambda t: sign * t.site)

    run = watch(followed, lambda w: w.task_graph(ready=policy(-1)), monkeypatch, seed=0)
    assert not run.program._engine.module.together
    run = watch(followed, lambda w: w.task_graph(ready=policy(-1)), monkeypatch)
    assert [name for _, name, _ in run.ran] == ["mark"] * 6 + ["follow"] * 6
    with pytest.raises(ScheduleError, match="'follow' waits for one of 'mark'"):
        followed().workload.task_graph(ready=policy(1)).compile(target="cuda")
    steps = PROGRAMS["steps"]().workload
    with pytest.raises(ScheduleError, match="waits for one of"):
        steps.task_graph(ready=ReadyPolicy.priority(lambda t: t.ordinal % 2)).compile(target="cuda")


def test_priorities_of_unknown_number() -> None:
    policy = ReadyPolicy.priority(lambda t: -t.cols)
    with pytest.raises(ScheduleError, match=r"at most 64 values") as caught:
        table().workload.task_graph(ready=policy).compile(target="cuda")
    assert "minimum(key, 63)" in str(caught.value)


# --- pools ---


@pytest.mark.parametrize("seed", [None, 0])
def test_pools_of_a_key(seed, monkeypatch) -> None:
    pools = Pools.custom(lambda t: t.rows, 3)
    run = watch(table, lambda w: w.task_graph(pools=pools), monkeypatch, seed=seed)
    assert all(block % 3 == number // 100 % 3 for block, _, number in run.ran)
    if seed is not None:
        assert {block for block, _, _ in run.ran} == set(range(BLOCKS))  # two of them in pool 0


@pytest.mark.parametrize("seed", [None, 1])
def test_pools_of_exec_units(seed, monkeypatch) -> None:
    work = lambda w: w.task_graph(pools=Pools.by_exec_unit())  # noqa: E731
    run = watch(units, work, monkeypatch, seed=seed)
    assert all(block % 2 == (name == "mark_cube") for block, name, _ in run.ran)


@pytest.mark.parametrize("seed", range(2))
def test_pools_that_wait_for_each_other(seed, monkeypatch) -> None:
    pools = Pools.custom(lambda t: t.site, 2)
    run = watch(followed, lambda w: w.task_graph(pools=pools), monkeypatch, seed=seed)
    assert all(block % 2 == (name == "follow") for block, name, _ in run.ran)
    assert run.program._engine.module.together


def test_pools_and_dispatch(monkeypatch) -> None:
    work = lambda w: w.task_graph(pools=Pools.custom(lambda t: t.cols, 2)).dispatch(  # noqa: E731
        DispatchPolicy.affinity(lambda t: t.rows)
    )
    run = watch(table, work, monkeypatch)
    assert all(b == n // 100 % 2 * 2 + n % 100 % 2 for b, _, n in run.ran)


# --- how many at a time ---


def test_depth_is_the_number_of_blocks(monkeypatch) -> None:
    free = watch(table, lambda w: w, monkeypatch, seed=0)
    assert free.most > 2  # the test could fail
    run = watch(table, lambda w: w.pipeline_depth(2), monkeypatch, seed=0)
    assert run.most <= 2
    assert {block for block, _, _ in run.ran} == {0, 1}
    run = watch(table, lambda w: w.task_graph(window=TaskWindow(3)), monkeypatch, seed=0)
    assert run.most <= 3
    assert "3 blocks are launched" in run.program.explain()
    wide = table().workload.pipeline_depth(100).task_graph(window=TaskWindow(8192))
    assert wide.compile(target="cuda")._engine.workers == BLOCKS


def test_depth_of_each_pool(monkeypatch) -> None:
    def work(w):
        pooled = w.task_graph(pools=Pools.custom(lambda t: select(t.rows > 0, 1, 0), 2))
        return pooled.pipeline_depth(1, scope="per_pool")

    run = watch(table, work, monkeypatch, seed=0)
    assert {block for block, _, _ in run.ran} == {0, 1}


def test_directives_that_ask_for_more_blocks_than_others_allow() -> None:
    robin = table().workload.dispatch(DispatchPolicy.round_robin(4))
    with pytest.raises(ScheduleError, match="it names 4 blocks"):
        robin.pipeline_depth(2).compile(target="cuda")
    pooled = table().workload.task_graph(pools=Pools.custom(lambda t: t.rows, 3))
    with pytest.raises(ScheduleError, match="each of 3 pools has a block"):
        pooled.pipeline_depth(2).compile(target="cuda")


UNDONE = {
    Directive.ORDER: lambda m: test_interleaved_rows_of_equal_length(2, m),
    Directive.READY: lambda m: test_priority_of_rows_is_passed_at_once(m),
    Directive.POOLS: lambda m: test_pools_of_a_key(None, m),
    Directive.PIPELINE_DEPTH: lambda m: test_depth_is_the_number_of_blocks(m),
    Directive.WINDOW: lambda m: test_depth_is_the_number_of_blocks(m),
    Directive.DISPATCH: lambda m: test_pools_and_dispatch(m),
}


@pytest.mark.parametrize("directive", UNDONE, ids=lambda d: d.name)
def test_what_is_undone_is_seen(directive, monkeypatch) -> None:
    """These tests fail if a directive is read and not kept."""
    plain = _Reader._directive

    def undone(self, id):
        if id is not directive:
            plain(self, id)

    monkeypatch.setattr(_Reader, "_directive", undone)
    with pytest.raises(AssertionError):
        UNDONE[directive](monkeypatch)
