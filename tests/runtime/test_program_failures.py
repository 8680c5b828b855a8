"""Kernels that fail: the run ends, the error says which task and where, the program can go on."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    DenseDyn,
    InOut,
    KernelError,
    P,
    Program,
    ReadyPolicy,
    Tensor,
    kernel,
    workload,
)
from pto_wsp.backends import registry
from pto_wsp.error_codes import Code
from pto_wsp.errors import ExecutionError, PlanError, PtoError
from pto_wsp.srcloc import SrcLoc


@pytest.fixture(params=registry.host_names())
def target(request: pytest.FixtureRequest) -> str:
    return request.param


@kernel
def python_fails(y: InOut[Tensor]):
    if y[()] == 13:
        raise ValueError("unlucky")
    y += 1


@kernel
def python_fails_silently(y: InOut[Tensor]):
    if y[()] == 13:
        raise ValueError
    y += 1


@kernel(cpp_src='if (y() == 13) throw std::runtime_error("unlucky"); y() += 1;')
def native_throws(y: InOut[Tensor]): ...


@kernel(cpp_src='if (y() == 13) ptowsp_fail("unlucky " + std::to_string(y.size())); y() += 1;')
def native_fails(y: InOut[Tensor]): ...


@kernel(cpp_src="if (y() == 13) throw 13; y() += 1;")
def native_throws_a_number(y: InOut[Tensor]): ...


@kernel(cpp_src='if (y() == 13) throw std::runtime_error(""); y() += 1;')
def native_says_nothing(y: InOut[Tensor]): ...


@kernel(cpp_src="if (y() == 13) throw std::runtime_error(std::string(100000, 'x')); y() += 1;")
def native_says_much(y: InOut[Tensor]): ...


@workload
def work(n, m, Y):
    for i in P(n):
        for j in P(m):
            python_fails[i, j](y=Y[0, i, j])  # python_fails
            python_fails_silently[i, j](y=Y[1, i, j])  # python_fails_silently
            native_throws[i, j](y=Y[2, i, j])  # native_throws
            native_fails[i, j](y=Y[3, i, j])  # native_fails
            native_throws_a_number[i, j](y=Y[4, i, j])  # native_throws_a_number
            native_says_nothing[i, j](y=Y[5, i, j])  # native_says_nothing
            native_says_much[i, j](y=Y[6, i, j])  # native_says_much


REASONS = {
    "python_fails": "ValueError: unlucky",
    "python_fails_silently": "ValueError",
    "native_throws": "unlucky",
    "native_fails": "unlucky 1",
    "native_throws_a_number": "unknown C++ exception",
    "native_says_nothing": "the kernel returned a failure without a message",
}


@pytest.fixture
def program(target: str) -> Program:
    return work(DenseDyn(4), DenseDyn(3), Tensor(data=np.zeros((7, 4, 3)))).compile(target=target)


def run_with_13(program: Program, number: int, *, asynchronous: bool) -> KernelError:
    y = np.zeros((7, 4, 3))
    y[number, 2, 1] = 13
    if asynchronous:
        program.execute_async(Y=y)
        with pytest.raises(KernelError) as raised:
            program.synchronize()
    else:
        with pytest.raises(KernelError) as raised:
            program.execute(Y=y)
    return raised.value


@pytest.mark.parametrize("asynchronous", [False, True], ids=["execute", "execute_async"])
@pytest.mark.parametrize("name", REASONS)
def test_a_kernel_fails(program: Program, name: str, asynchronous: bool) -> None:
    error = run_with_13(program, list(REASONS).index(name), asynchronous=asynchronous)
    assert error.message == f"kernel {name}[2, 1] failed: {REASONS[name]}"
    assert (error.kernel, error.indices) == (name, (2, 1))
    assert error.loc is not None
    assert error.loc.file == __file__
    with open(__file__, encoding="utf-8") as file:
        assert file.readlines()[error.loc.line - 1].strip().endswith(f"# {name}")
    assert f"{name}[i, j](y=Y[" in str(error)
    if name.startswith("python"):
        cause = error.__cause__
        assert type(cause) is ValueError
        assert cause.__traceback__ is not None  # the user's own line is in the traceback
        lines = []
        step = cause.__traceback__
        while step is not None:
            lines.append(step.tb_frame.f_code.co_name)
            step = step.tb_next
        assert lines[-1] == name
    y = np.zeros((7, 4, 3))
    program.execute(Y=y)
    assert (y == 1).all()
    assert program.stats.tasks == 84


def test_a_long_message_is_cut(program: Program) -> None:
    error = run_with_13(program, 6, asynchronous=False)
    head, _, tail = error.message.partition("failed: ")
    assert head == "kernel native_says_much[2, 1] "
    assert 1000 < len(tail) < 100000
    assert set(tail) == {"x"}


def test_a_failed_run_does_not_stop_later_ones(program: Program) -> None:
    bad, good = np.zeros((7, 4, 3)), np.zeros((7, 4, 3))
    bad[0, 0, 0] = 13
    program.execute_async(Y=good).execute_async(Y=bad).execute_async(Y=good)
    program.execute_async(Y=bad)
    with pytest.raises(KernelError, match="python_fails"):
        program.synchronize()
    assert (good == 2).all()
    program.synchronize()
    assert program.is_complete()


def test_stats_of_a_failed_run(target: str) -> None:
    """What had run until then is counted; nothing is left running."""

    @workload
    def scan(n, Y):
        for i in P.seq(n):
            python_fails[i](y=Y[i])

    y = np.zeros(6)
    y[3] = 13
    program = scan(DenseDyn(6), Tensor(data=y)).compile(target=target)
    with pytest.raises(KernelError):
        program.execute()
    assert y.tolist() == [1, 1, 1, 13, 0, 0]
    assert program.stats.tasks == 3


def test_many_kernels_fail_at_once(target: str) -> None:
    """One of the failures is reported; the others do not disturb anything."""
    meeting = threading.Barrier(4 if target == "cpu_sim" else 1, timeout=60)

    @kernel
    def fail_together(y: InOut[Tensor]):
        meeting.wait()
        raise ValueError(f"number {int(y[()])}")

    @workload
    def all_fail(n, Y):
        for i in P(n):
            fail_together[i](y=Y[i])

    options: dict[str, Any] = {"num_threads": 4} if target == "cpu_sim" else {}
    program = all_fail(DenseDyn(4), Tensor(data=np.arange(4.0))).compile(target=target, **options)
    for _ in range(100):
        with pytest.raises(KernelError) as raised:
            program.execute()
        index = raised.value.indices[0]
        assert (
            raised.value.message
            == f"kernel fail_together[{index}] failed: ValueError: number {index}"
        )


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
def test_exceptions_that_are_no_failures_pass_through(target: str, error: BaseException) -> None:
    """They come out as they are, once, and the program can go on."""
    raise_it = True

    @kernel
    def leave(y: InOut[Tensor]):
        if raise_it:
            raise error
        y += 1

    @workload
    def leaving(n, Y):
        for i in P(n):
            leave[i](y=Y[i])

    y = np.zeros(2)
    program = leaving(DenseDyn(2), Tensor(data=y)).compile(target=target)
    with pytest.raises(type(error)):
        program.execute()
    program.execute_async()
    with pytest.raises(type(error)):
        program.synchronize()
    program.synchronize()
    raise_it = False
    assert program.execute().stats.tasks == 2
    assert program.execute_async().synchronize().stats.tasks == 2
    assert y.tolist() == [2, 2]


def test_a_failure_with_tasks_in_flight(target: str) -> None:
    """The run ends when the kernels that had begun have ended; nothing new begins."""
    begun: list[int] = []

    @kernel
    def slow_or_bad(y: InOut[Tensor]):
        begun.append(int(y[()]))
        if y[()] == 0:
            raise ValueError("first")

    @workload
    def wide(n, Y):
        for i in P(n):
            slow_or_bad[i](y=Y[i])

    options: dict[str, Any] = {"num_threads": 3} if target == "cpu_sim" else {}
    work = wide(DenseDyn(1000), Tensor(data=np.arange(1000)))
    program = work.task_graph(ready=ReadyPolicy.fifo()).compile(target=target, **options)
    with pytest.raises(KernelError, match="first"):
        program.execute()
    known = len(begun)
    assert known < 1000
    with pytest.raises(KernelError, match="first"):
        program.execute()
    assert len(begun) < 2000


def test_errors_are_one_family() -> None:
    error = KernelError(Code.KERNEL_FAILED, "m", kernel="k", indices=(1,))
    assert isinstance(error, PtoError)
    assert str(error) == "[PTO501] m"


@pytest.mark.parametrize(
    "error",
    [
        KernelError(Code.KERNEL_FAILED, "m", kernel="k", indices=(1,), loc=SrcLoc("a.py", 3)),
        PlanError(Code.PLAN_DAMAGED, "bad", offset=3),
        ExecutionError(Code.LENGTHS, "m", why="w", fix="f"),
    ],
)
def test_errors_can_be_pickled(error: PtoError) -> None:
    """Worker processes of a test runner or a cluster send them."""
    other = pickle.loads(pickle.dumps(error))
    assert type(other) is type(error)
    assert str(other) == str(error)
    assert vars(other) == vars(error)


def test_native_errors_do_not_mix_with_kept_exceptions() -> None:
    """Exceptions of Python kernels are kept under numbers; a C++ message may be a number too."""
    bad = True

    @kernel
    def python(y: InOut[Tensor]):
        if bad:
            raise ValueError("python")

    @kernel(cpp_src="ptowsp_fail(std::to_string(static_cast<int>(y())));")
    def native(y: InOut[Tensor]): ...

    @workload
    def both(n, Y):
        for i in P.seq(n):
            python[i](y=Y[i])
            native[i](y=Y[i])

    program = both(DenseDyn(1), Tensor(data=np.ones(1))).compile(num_threads=1)
    with pytest.raises(KernelError, match="python"):
        program.execute()
    bad = False
    for number in (1, 2, 3, 64):
        with pytest.raises(KernelError) as raised:
            program.execute(Y=np.full(1, float(number)))
        assert raised.value.message == f"kernel native[0] failed: {number}"
        assert raised.value.__cause__ is None
