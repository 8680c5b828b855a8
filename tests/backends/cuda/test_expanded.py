"""Plans whose dependences only a run can find, with a list of tasks from the host."""

# pyright: basic, reportInvalidTypeForm=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    CompileError,
    DeadlockError,
    DenseDyn,
    P,
    Tensor,
    TracePolicy,
    minimum,
    sequential,
    workload,
)
from pto_wsp.backends.cuda import backend, device

from .programs import F32, PROGRAMS, Built, add, double, grow, numbers
from .stepping import stepped


def in_place() -> Built:
    """Every task changes the same tile: only their order in the text says which comes first."""
    x = numbers(2, 4)
    tx = Tensor(data=x)

    @workload
    def run(rows):
        for i in P(rows):
            grow[i](tx[0:2], i)

    return Built(run(DenseDyn(5)), [x])


def scattered() -> Built:
    """Rows that an array names, some of them several times."""
    x = numbers(6, 2, 4)
    tx = Tensor(data=x)

    @workload
    def run(steps, rows):
        for i in P(steps):
            grow[i](tx[rows[i]], i)

    return Built(run(DenseDyn(7), np.array([3, 0, 3, 5, 0, 3, 1])), [x])


def gathered() -> Built:
    """Sums of rows that other tasks write, by an array, within ordered parts."""
    x, y = numbers(5, 2, 4), np.zeros((5, 2, 4), np.float32)
    z = np.zeros((5, 2, 4), np.float32)
    tx, ty, tz = Tensor(data=x), Tensor(data=y), Tensor(data=z)

    @workload
    def first(rows, at):
        for i in P(rows):
            parts = Tensor.temp((1, 2, 4), F32, name="parts")
            double[i](tx[at[i]], parts[0])
            add[i](parts[0], tx[i], ty[at[i]])

    @workload
    def second(rows, twice, at):
        for s in P.seq(twice):
            for i in P(rows):
                add[s, i](ty[at[i]], tz[minimum(at[i] + s, 4)], tz[i])

    rows, at = DenseDyn(5), np.array([1, 1, 4, 0, 2])
    return Built(sequential(first(rows, at), second(rows, DenseDyn(2), at)), [y, z])


MADE: dict[str, Callable[[], Built]] = {f.__name__: f for f in (in_place, scattered, gathered)}


def _explained(program: Any) -> list[str]:
    return str(program.explain()).splitlines()


@pytest.mark.parametrize("name", MADE)
def test_a_run_equals_the_reference(name: str) -> None:
    plain = MADE[name]().workload.compile(target="cuda")
    assert any("one iteration after the other" in line for line in _explained(plain))
    wanted, found = MADE[name](), MADE[name]()
    reference = wanted.workload.compile(target="reference")
    program = found.workload.compile(target="cuda", allow_host_expand=True)
    assert not any("one iteration after the other" in line for line in _explained(program))
    for _ in range(2):
        reference.execute(hash=True)
        program.execute(hash=True)
        for a, b in zip(wanted.outputs, found.outputs, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-6)
        assert program.stats.tasks == reference.stats.tasks
        assert program.task_hash() == reference.task_hash()


@pytest.mark.interpreted
@pytest.mark.parametrize("name", MADE)
def test_any_interleaving_gives_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, found = MADE[name](), MADE[name]()
    wanted.workload.compile(target="reference").execute()
    made = found.workload.task_graph(trace=TracePolicy.timestamps())
    options = {"allow_host_expand": True, "blocks_per_sm": 2, "verify": "schedule"}
    program = made.compile(target="cuda", **options)
    engine: Any = program._engine
    engine.tries = 10_000
    with stepped(monkeypatch, 3) as turns:
        program.execute()
    assert turns.switches > 10
    for a, b in zip(wanted.outputs, found.outputs, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-6)


def test_other_values_are_expanded_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    from pto_wsp.backends.cuda import expansion

    counted: list[int] = []
    plain = expansion.expand

    def expand(*given: Any) -> Any:
        counted.append(1)
        return plain(*given)

    monkeypatch.setattr(expansion, "expand", expand)
    wanted, found = scattered(), scattered()
    reference = wanted.workload.compile(target="reference")
    program = found.workload.compile(target="cuda", allow_host_expand=True)
    for rows, expanded in (([3, 0, 3, 5, 0, 3, 1], 1), ([2] * 7, 2), ([2] * 7, 2)):
        reference.execute(rows=np.array(rows))
        program.execute(rows=np.array(rows))
        np.testing.assert_allclose(found.outputs[0], wanted.outputs[0], rtol=1e-6)
        assert len(counted) == expanded


@pytest.mark.parametrize("name", ["explicit", "two_parts", "chains", "temporaries", "branches"])
def test_tables_say_what_counters_say(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans that need no table, run by one."""

    def refuse(*given: Any) -> Any:
        from pto_wsp.error_codes import Code

        raise CompileError(Code.TARGET_LIMIT, "refused")

    wanted, found = PROGRAMS[name](), PROGRAMS[name]()
    reference = wanted.workload.compile(target="reference")
    reference.execute(hash=True)
    monkeypatch.setattr(backend, "write_module", refuse)
    program = found.workload.compile(target="cuda", allow_host_expand=True)
    program.execute(hash=True)
    for a, b in zip(wanted.outputs, found.outputs, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-6)
    assert program.task_hash() == reference.task_hash()


def test_a_wait_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = device.load_source
    broken = '0, sem="release")'
    monkeypatch.setattr(
        device, "load_source", lambda text: plain(text.replace('1, sem="release")', broken))
    )
    program = scattered().workload.compile(target="cuda", allow_host_expand=True)
    engine: Any = program._engine
    engine.tries = min(engine.tries, 1 << 12)
    told = r"grow\[steps=2\] waits for grow\[steps=0\]: 0 of 1 have ended"
    if not device.is_interpreted():  # any task that waits may be the first to give up
        told = r"grow\[steps=[245]\] waits for grow\[steps=[012]\]: 0 of 1 have ended"
    with pytest.raises(DeadlockError, match=told):
        program.execute()


def test_programs_that_need_no_table_have_none() -> None:
    program = PROGRAMS["chains"]().workload.compile(target="cuda", allow_host_expand=True)
    engine: Any = program._engine
    assert not engine.module.expanded
    program.execute()
