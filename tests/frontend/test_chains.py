"""Chains of conditions: who continues one, and what stands for itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pto_wsp import (
    Channel,
    DenseDyn,
    DType,
    In,
    InOut,
    Out,
    P,
    Scalar,
    Space,
    Sparse,
    Tensor,
    Tile,
    axis,
    combine,
    consume,
    default,
    kernel,
    launch,
    select_tier,
    send,
    sequential,
    tier,
    tiers,
    workload,
)
from pto_wsp.errors import CompileError

pytestmark = pytest.mark.parametrize("target", ["cpu_sim", "reference"])


@kernel
def add(y: InOut[Tensor], s: Scalar[DType.I64]):
    y[...] += s


@kernel
def fill(y: Out[Tensor]):
    y[...] = 1


@kernel
def add_tile(x: In[Tensor], y: InOut[Tensor]):
    y[...] += x


variants = tiers("variants", tier(lambda n: n < 2, add), default(add))


@workload
def tens(out: Any, least: Any) -> None:
    with P.when(out.shape[0] > least):
        add(out[0:1], 10)


@workload
def nothing(out: Any) -> None:
    del out


def emitted(target: str, body: Callable[[Any, Any, Any], None], **space: Any) -> list[float]:
    """What four iterations of the body of a generator add up to."""
    made = Space("made", i=axis(0, 4), **space)

    @made.generator
    def generate(s: Any, out: Any) -> None:
        for i in P(s.i):
            body(s, out, i)

    out = np.zeros(4)
    launch(made, out=out, target=target)
    return out.tolist()


def run(target: str, function: Any, *more: Any) -> npt.NDArray[Any]:
    out = np.zeros(4)
    workload(function)(Tensor(data=out), *more).compile(target=target).execute()
    return out


def test_a_constraint_is_no_branch_of_the_condition_before(target: str) -> None:
    def body(s: Any, out: Any, i: Any) -> None:
        with P.when(i == 0):
            add(out[i : i + 1], 1)
        s.emit(add, out[i : i + 1], 10)

    assert emitted(target, body, where=lambda i: i < 3) == [11, 10, 10, 0]


def test_tiers_are_no_branches_of_the_condition_before(target: str) -> None:
    def body(s: Any, out: Any, i: Any) -> None:
        with P.when(i == 0):
            add(out[i : i + 1], 1)
        s.emit(select_tier(variants, i), out[i : i + 1], 10)

    assert emitted(target, body) == [11, 10, 10, 10]


def test_a_condition_behind_tiers_is_a_chain_of_its_own(target: str) -> None:
    def body(s: Any, out: Any, i: Any) -> None:
        s.emit(select_tier(variants, i), out[i : i + 1], 10)
        with P.when(i == 0):
            add(out[i : i + 1], 1)
        with P.otherwise():
            add(out[i : i + 1], 2)

    assert emitted(target, body) == [11, 12, 12, 12]


def test_what_an_emit_reads_stays_before_it(target: str) -> None:
    @workload
    def reading(out: Any, n: Any) -> None:
        with P.when(out.shape[0] > 2):
            add(out[0:1], 1000)
        tens(out, n[0])

    assert run(target, reading.function, Tensor(data=np.array([1])))[0] == 1010


def test_a_called_workload_is_text_of_its_own(target: str) -> None:
    def calls(out: Any) -> None:
        for i in P(2):
            with P.when(i == 0):
                add(out[0:1], 1)
            tens(out, 0)

    assert run(target, calls)[0] == 21


@pytest.mark.parametrize("compose", [combine, sequential])
def test_composed_workloads_are_no_branches(compose: Any, target: str) -> None:
    def calls(out: Any) -> None:
        with P.when(out.shape[0] > 0):
            add(out[0:1], 1)
        compose(tens(out, 0), tens(out, 1))
        with P.when(out.shape[0] > 1):
            add(out[0:1], 100)

    assert run(target, calls)[0] == 121


def test_loops_and_conditions_around_a_call(target: str) -> None:
    def calls(rows: Any, routing: Any, out: Any) -> None:
        for b in P(rows):
            for e in P.sel(routing[b]):
                with P.when(e == 0):
                    add(out[0:1], 1)
                tens(out, 0)
            with P.when(b == 0):
                with P.when(out.shape[0] > 9):
                    add(out[0:1], 1000)
                tens(out, 0)
            with P.otherwise():
                tens(out, 0)

    rows, out = DenseDyn(2), np.zeros(4)
    work = workload(calls)(rows, Sparse(rows, [0, 2, 3], [0, 1, 3]), Tensor(data=out))
    work.compile(target=target).execute()
    assert out[0] == 1 + 30 + 20


def test_a_call_in_a_process(target: str) -> None:
    def calls(out: Any) -> None:
        ch = Channel[Tile[1, DType.F64]]("ch", depth=1)
        with P.pipe():
            for _ in P(3):
                send(ch, fill())
            with consume(ch) as t:
                with P.when(t.number == 1):
                    add_tile(t, out[0:1])
                tens(out, 0)

    assert run(target, calls)[0] == 31


def _behind(statement: Callable[[Any], object]) -> Callable[[Any], None]:
    def body(out: Any) -> None:
        with P.when(out.shape[0] > 9):
            add(out[0:1], 1)
        statement(out)
        with P.otherwise():
            add(out[0:1], 1)

    return body


@pytest.mark.parametrize("statement", [nothing, lambda out: tens(out, 0)])
def test_a_call_ends_a_chain(statement: Any, target: str) -> None:
    with pytest.raises(CompileError, match=r"P.otherwise\(\) without a P.when"):
        run(target, _behind(statement))


def test_a_pipe_ends_a_chain(target: str) -> None:
    def piped(out: Any) -> None:
        ch = Channel[Tile[1, DType.F64]]("ch", depth=1)
        with P.pipe():
            for _ in P(3):
                send(ch, fill())
            with consume(ch) as t:
                add_tile(t, out[0:1])

    with pytest.raises(CompileError, match=r"P.otherwise\(\) without a P.when"):
        run(target, _behind(piped))
