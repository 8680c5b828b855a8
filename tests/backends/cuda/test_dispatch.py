"""Which block runs which task, and that each goes through its own in order."""

# pyright: basic
from __future__ import annotations

import pytest

from pto_wsp import Affinity, DispatchPolicy, ExecutionError, ScheduleError, select

from .watching import BLOCKS, followed, ragged, table, watch

pytestmark = pytest.mark.interpreted
LENGTHS = [2, 0, 1, 3, 1]


def ordinals(numbers: list[int], cols: int = 2) -> list[int]:
    """Numbers in program order of tasks of a table."""
    return [cols * (n // 100) + n % 100 for n in numbers]


def in_order(numbers: list[int]) -> bool:
    return numbers == sorted(numbers)


@pytest.mark.parametrize("seed", [None, 0])
def test_round_robin(seed, monkeypatch) -> None:
    run = watch(table, lambda w: w.dispatch(DispatchPolicy.round_robin(3)), monkeypatch, seed=seed)
    for block in range(3):
        assert ordinals(run.of(block)) == list(range(block, 10, 3))


def test_static_partition(monkeypatch) -> None:
    parts = DispatchPolicy.static_partition([(0, 4), (4, 5), (5, 6), (6, 7), (7, 9)])
    run = watch(table, lambda w: w.dispatch(parts), monkeypatch)
    wanted = [range(4), [4], [5], [6], range(7, 10)]
    assert [ordinals(run.of(block)) for block in range(5)] == [list(part) for part in wanted]


@pytest.mark.parametrize(("built", "seed"), [(table, 2), (lambda: ragged(LENGTHS), None)])
def test_affinity(built, seed, monkeypatch) -> None:
    policy = DispatchPolicy.affinity(lambda t: t.rows)
    run = watch(built, lambda w: w.dispatch(policy), monkeypatch, seed=seed)
    assert all(block == number // 100 % BLOCKS for block, _, number in run.ran)
    assert all(in_order(run.of(block)) for block in range(BLOCKS))


def test_keys_of_inner_loops_and_of_numbers(monkeypatch) -> None:
    policy = DispatchPolicy.affinity(lambda t: t.rows - 2 * t.cols)
    run = watch(table, lambda w: w.dispatch(policy), monkeypatch)
    assert all(b == (n // 100 - 2 * (n % 100)) % BLOCKS for b, _, n in run.ran)
    policy = DispatchPolicy.affinity(lambda t: t.ordinal // 2)
    run = watch(table, lambda w: w.dispatch(policy), monkeypatch)
    assert all(b == ordinals([n])[0] // 2 % BLOCKS for b, _, n in run.ran)


def splitmix(z: int) -> int:
    mask = (1 << 64) - 1
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return (z ^ (z >> 31)) >> 1


def test_hash(monkeypatch) -> None:
    policy = DispatchPolicy.hash(lambda t: t.rows)
    run = watch(table, lambda w: w.dispatch(policy), monkeypatch)
    assert all(b == splitmix(n // 100) % BLOCKS for b, _, n in run.ran)


def test_dispatch_by(monkeypatch) -> None:
    policy = DispatchPolicy.dispatch_by(lambda t: select(t.rows > 2, 3, 1))
    run = watch(table, lambda w: w.dispatch(policy), monkeypatch)
    assert all(b == (3 if n // 100 > 2 else 1) for b, _, n in run.ran)


def test_dispatch_by_a_block_that_is_not_there() -> None:
    policy = DispatchPolicy.dispatch_by(lambda t: t.rows)
    program = table().workload.dispatch(policy).compile(target="cuda")
    with pytest.raises(ScheduleError, match="task 8, of 'mark', is for block 4"):
        program.execute()
    program.execute(rows=4)  # and the program is usable again
    assert program.stats.tasks == 8


@pytest.mark.parametrize(
    "policy", [Affinity.CORE_LOCAL, Affinity.SPREAD], ids=lambda policy: policy.name
)
def test_affinity_of_an_axis(policy, monkeypatch) -> None:
    run = watch(table, lambda w: w.affinity(rows=policy), monkeypatch)
    for block, _, number in run.ran:
        mixed = splitmix(ordinals([number])[0])
        wanted = number // 100 if policy is Affinity.CORE_LOCAL else mixed
        assert block == wanted % BLOCKS


def test_streams(monkeypatch) -> None:
    """A block for each: its tasks run one after the other."""
    run = watch(table, lambda w: w.streams(2), monkeypatch, seed=0)
    assert [ordinals(run.of(block)) for block in range(2)] == [
        list(range(0, 10, 2)),
        list(range(1, 10, 2)),
    ]
    run = watch(table, lambda w: w.streams(3).stream_by(lambda t: t.rows), monkeypatch)
    assert all(b == n // 100 % 3 for b, _, n in run.ran)
    assert all(in_order(run.of(block)) for block in range(3))


@pytest.mark.parametrize("seed", range(2))
def test_tasks_that_wait_are_pinned_too(seed, monkeypatch) -> None:
    """Those that the last of their predecessors would run otherwise, too."""
    policy = DispatchPolicy.affinity(lambda t: t.cols + t.site)
    run = watch(followed, lambda w: w.dispatch(policy), monkeypatch, seed=seed)
    first = {site: n for n, site in enumerate(("mark", "follow"))}
    assert all(b == (n % 100 + first[name]) % BLOCKS for b, name, n in run.ran)


def test_blocks_that_cannot_run_at_a_time() -> None:
    """Where tasks wait, a block must not wait for one that has not begun."""
    program = followed().workload.dispatch(DispatchPolicy.round_robin(3)).compile(target="cuda")
    with pytest.raises(ExecutionError, match="3 blocks would have to run at a time"):
        program.execute()
    assert "all blocks have to run at a time" in program.explain()
    single = followed().workload.dispatch(DispatchPolicy.round_robin(1)).compile(target="cuda")
    single.execute()
    assert single.stats.tasks == 12


def test_how_it_is_kept_is_said() -> None:
    """And without the directive the generated code is what it was."""
    plain = table().workload.compile(target="cuda")
    any_ = table().workload.dispatch(DispatchPolicy.work_steal()).compile(target="cuda")
    text = [p._engine.module.text.split("\n", 1)[1] for p in (plain, any_)]
    assert text[0] == text[1]
    assert "one counter, from which any idle block takes the next task" in any_.explain()
    robin = table().workload.dispatch(DispatchPolicy.round_robin(3)).compile(target="cuda")
    assert "cuda, 3 workers" in robin.explain()
    assert "a block takes every so-many-th number" in robin.explain()
