"""`program.min_depths()`: how many buffers channels need for the values that are bound."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp import DenseDyn, InOut, P, Program, Tensor, kernel, workload
from pto_wsp.error_codes import Code
from pto_wsp.errors import ChannelClosed, CompileError, DeadlockError, ExecutionError
from tests.backends.talks import All, Get, If, Net, Put, Times, get, mark, net, put

# All of one channel, then all of the other; received in turn.
FAN = net(
    {"a": 4, "b": 2},
    one=(Times("n", (Put("a"),)), Times("n", (Put("b"),))),
    two=(Times("n", (Get("a"), Get("b"))),),
)


@kernel
def add(x: InOut[Tensor]):
    x[...] += 1


def test_values_are_those_bound_at_the_moment() -> None:
    with FAN.workload(n=2).compile(target="reference") as program:
        assert program.min_depths() == {"a": 2, "b": 0}
        assert program.min_depths(n=7) == {"a": 7, "b": 0}
        assert program.min_depths() == {"a": 2, "b": 0}
        program.execute(n=3)
        assert program.min_depths() == {"a": 3, "b": 0}
        assert program.instance().min_depths() == {"a": 3, "b": 0}


@pytest.mark.parametrize("target", ["reference", "cpu_sim"])
def test_every_target_has_it(target: str) -> None:
    with FAN.workload(n=3).compile(target=target) as program:
        assert program.min_depths() == {"a": 3, "b": 0}
        program.execute()


def test_a_run_that_is_stuck_says_who_has_to_get_more() -> None:
    with FAN.workload().compile(target="reference") as program:
        with pytest.raises(DeadlockError, match="waits for a free buffer of channel 'a'"):
            program.execute(n=6)
        needed = program.min_depths(n=6)
    assert FAN.with_depths([needed["a"], needed["b"]]).completes(n=6)
    assert not FAN.with_depths([needed["a"] - 1, 2]).completes(n=6)


@pytest.mark.parametrize(
    ("made", "found"),
    [
        (net({"a": 3}, one=(Times("n", (Put("a"),)),), two=(All("a"),)), {"a": 0}),
        (  # messages at the start need room
            net(
                {"a": 3, "b": (4, 2)},
                one=(Times("n", (Get("b"), Put("a"))),),
                two=(Times("n", (Get("a"), Put("b"))),),
            ),
            {"a": 0, "b": 2},
        ),
        (  # what nobody receives takes a buffer,
            net({"a": 2}, one=(Put("a"), Put("a")), two=(Get("a"),)),
            {"a": 1},
        ),
        (  # and so does what is held
            net({"a": 2, "b": 0}, one=(Times(2, (Put("a"), Put("b"))),), two=(Get("a"), All("b"))),
            {"a": 2, "b": 0},
        ),
        (
            net(
                {"a": 2, "b": 2, "c": 9},
                {"two": 2},
                one=(Times(6, (Put("a"), Put("c"))),),
                two=(All("a", (Put("b"),)),),
                three=(Times(6, (Get("b"),)), Times(6, (Get("c"),))),
            ),
            {"a": 0, "b": 0, "c": 5},
        ),
        (  # a branch is taken or it is not
            net(
                {"a": 1, "b": 1},
                one=(Times("n", (If(0, (Put("a"), Put("b")), (Put("b"), Put("a"))),)),),
                two=(Times("n", (Get("b"), Get("a"))),),
            ),
            {"a": 1, "b": 0},
        ),
    ],
)
def test_depths(made: Net, found: dict[str, int]) -> None:
    with made.workload(n=5).compile(target="reference") as program:
        assert program.min_depths() == found


def test_no_depths_help() -> None:
    cycle = net(
        {"a": 2, "b": 1},
        one=(Times("n", (Get("b"), Put("a"))),),
        two=(If(0, (Put("b"),)), Times("n", (Get("a"), Put("b")))),
    )
    with cycle.workload(n=3).compile(target="reference") as program:
        assert program.min_depths() == {"a": 0, "b": 1}
        with pytest.raises(DeadlockError, match="waits for message 0 of channel 'b'") as raised:
            program.min_depths(flag=np.array([1]))
        assert "Channel[...](initial=1)" in str(raised.value)
        assert raised.value.loc is not None


def test_runs_that_fail_with_any_depths() -> None:
    made = net({"a": 1}, one=(Times("n", (Put("a"),)),), two=(Times("m", (Get("a"),)),))
    with made.workload(n=3, m=3).compile(target="reference") as program:
        with pytest.raises(ChannelClosed, match="receives message 3"):
            program.min_depths(m=4)
        assert program.min_depths(n=5) == {"a": 2}


def test_many_messages() -> None:
    with FAN.workload().compile(target="reference") as program:
        assert program.min_depths(n=500) == {"a": 500, "b": 0}


def test_saved_plan() -> None:
    with FAN.workload(n=2).compile(target="reference") as program:
        data = program.plan.to_bytes()
    kernels = {"put": put.fn, "get": get.fn, "mark": mark.fn}
    bound = {"totals": np.zeros((2, 8, 1), np.int64), "n": 3, "m": 1, "flag": np.array([0])}
    with Program.from_plan(data, kernels, target="reference") as program:
        assert program.min_depths(**bound) == {"a": 3, "b": 0}


def test_without_channels() -> None:
    x = Tensor(data=np.zeros((4, 4)))

    @workload
    def rows(n: DenseDyn) -> None:
        for i in P(n):
            add[i](x[i])

    with rows(DenseDyn(4)).compile() as program:
        assert program.min_depths() == {}


def test_tasks_that_depend_on_data() -> None:
    counts = Tensor(data=np.array([3]))

    @workload
    def some(counts: Tensor) -> None:
        add(counts)
        for _ in P(counts[0]):
            add(counts)

    with some(counts).compile() as program:
        with pytest.raises(CompileError) as raised:
            program.min_depths()
        assert raised.value.code is Code.TASKS_DEPEND_ON_DATA
    with pytest.raises(ExecutionError, match="closed"):
        program.min_depths()
