"""Arrays that a workload reads without being given them: values that it takes from them are in the
plan, so a change of the array is an error, and never an old result."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    CompileError,
    Dense,
    DenseDyn,
    ExecutionError,
    InOut,
    P,
    Ragged,
    TaskWindow,
    Tensor,
    Workload,
    kernel,
    reduce_sum,
    sequential,
    workload,
)
from pto_wsp.error_codes import Code

X = Tensor(data=np.zeros(64))
LENS = np.array([2, 3, 1])
TABLES = {"lens": LENS}
SETTINGS = SimpleNamespace(lens=LENS, deeper=SimpleNamespace(lens=LENS))
COUNTS = Tensor(data=LENS)


class Model:
    __slots__ = ("lens",)

    def __init__(self) -> None:
        self.lens = LENS

    def first(self) -> int:
        return int(self.lens[0])


MODEL = Model()


@kernel
def touch(x: InOut[Tensor]):
    assert LENS is not None  # what a kernel does with arrays is its own business
    x += 1


@pytest.fixture(autouse=True)
def first_lens() -> None:
    LENS[:] = [2, 3, 1]


def first_of_lens() -> int:
    return int(LENS[0])


def first_of_any() -> int:
    return first_of_lens()


@workload
def part(n: Any):
    for i in P(int(LENS[0])):
        touch[i](X[i])


def reading(function: Callable[[], int]) -> Workload:
    """A workload of as many tasks as the function says while it is traced."""

    @workload
    def reads():
        for i in P(function()):
            touch[i](X[i])

    return reads()


def closure() -> Workload:
    lens = LENS

    @workload
    def reads():
        for i in P(int(lens[0])):
            touch[i](X[i])

    return reads()


def through_a_lambda() -> Workload:
    @workload
    def reads():
        for i in P(reduce_sum(int(LENS[0]), lambda k: k - k + LENS[1] // 3)):
            touch[i](X[i])

    return reads()


def called_inside() -> Workload:
    @workload
    def reads(n: Any):
        part(n)

    return reads(DenseDyn(1))


READS: list[Callable[[], Workload]] = [
    closure,
    through_a_lambda,
    called_inside,
    lambda: part(DenseDyn(1)),
    lambda: sequential(part(DenseDyn(1))),
    lambda: reading(lambda: int(LENS[0])),
    lambda: reading(lambda: LENS.tolist()[0]),
    lambda: reading(lambda: int(np.min(LENS) + 1)),
    lambda: reading(lambda: sum(1 for n in LENS if n > 1)),
    lambda: reading(lambda: int(TABLES["lens"][0])),
    lambda: reading(lambda: int(SETTINGS.lens[0])),
    lambda: reading(lambda: int(SETTINGS.deeper.lens[0])),
    lambda: reading(lambda: int(MODEL.lens[0])),
    lambda: reading(lambda: MODEL.first()),
    lambda: reading(MODEL.first),
    lambda: reading(first_of_any),
    lambda: reading(lambda: int(COUNTS.data[0])),
]


@pytest.mark.parametrize("make", READS)
def test_a_change_is_an_error_at_the_next_run(make: Callable[[], Workload]) -> None:
    program = make().compile(target="reference")
    for _ in range(2):
        assert program.execute().stats.tasks == 2
    LENS[0] = 5
    for run in (program.execute, program.execute_async, program.num_tasks, program.task_hash):
        with pytest.raises(ExecutionError) as raised:
            run()
        error = raised.value
        assert error.code is Code.ARRAY_CHANGED
        assert error.loc is not None
        assert error.loc.file == __file__
        with open(__file__) as file:
            line = file.readlines()[error.loc.line - 1]
        assert line[error.loc.col - 1 : error.loc.end_col - 1] in str(error)
    LENS[0] = 2
    assert program.execute().stats.tasks == 2


def test_the_error_names_the_array_and_the_place() -> None:
    program = reading(lambda: int(SETTINGS.lens[0])).compile()  # read here
    LENS[1] = 5
    with pytest.raises(ExecutionError) as raised:
        program.execute()
    assert raised.value.message == "array SETTINGS.lens has changed since the workload was traced"
    assert "# read here" in str(raised.value)


def test_a_change_is_an_error_at_the_next_compile() -> None:
    work = part(DenseDyn(1))
    scheduled = work.task_graph(window=TaskWindow(8))
    work.compile()
    LENS[0] = 5
    for again in (work, scheduled):
        with pytest.raises(CompileError) as raised:
            again.compile()
        assert raised.value.code is Code.ARRAY_CHANGED
    assert part(DenseDyn(1)).compile().execute().stats.tasks == 5


def test_instances_are_checked_too() -> None:
    with part(DenseDyn(1)).compile() as program, program.instance() as other:
        LENS[0] = 5
        with pytest.raises(ExecutionError):
            other.execute()


def test_other_views_of_the_array_and_other_shapes() -> None:
    program = part(DenseDyn(1)).compile()
    LENS[::-1][2:] = 4
    with pytest.raises(ExecutionError):
        program.execute()
    LENS[0] = 2
    program.execute()
    table = np.zeros((2, 2), np.int64)
    program = reading(lambda: table.tolist()[0][0]).compile()
    table.shape = (4, 1)
    with pytest.raises(ExecutionError):
        program.execute()


def test_another_array_under_the_same_name_is_no_change() -> None:
    """Then the names of a loop can be used again for the next program."""
    programs = []
    for n in (2, 3):
        lens = np.array([n])
        programs.append(reading(lambda lens=lens: int(lens[0])).compile())
    assert [program.execute().stats.tasks for program in programs] == [2, 3]


def no_values(data: np.ndarray) -> list[Workload]:
    """Workloads that use an array, and nothing that it holds."""
    tensor = Tensor(data=data)
    arrays = [data]

    @workload
    def shape():
        for i in P(data.shape[0]):
            touch[i](tensor[i])

    @workload
    def length():
        for i in P(len(data)):
            touch[i](tensor[i])

    @workload
    def inside():
        for i in P(arrays[0].shape[0] + len(arrays) - 1):
            touch[i](tensor[i])

    @workload
    def made_here():
        own = Tensor(data=data, name="own")
        for i in P(4):
            touch[i](own[i])

    @workload
    def given(data: Any):
        for i in P(4):
            touch[i](data[i])

    return [shape(), length(), inside(), made_here(), given(tensor)]


@pytest.mark.parametrize("which", range(5))
def test_tasks_may_write_an_array_of_which_only_the_shape_is_used(which: int) -> None:
    data = np.zeros(4)
    program = no_values(data)[which].compile()
    for _ in range(3):
        program.execute()
    assert data.tolist() == [3.0] * 4


def test_arrays_that_are_arguments_are_read_in_each_run() -> None:
    """They are shared, and not copied: a change is seen by the next run."""

    @workload
    def ragged(batch: Any, toks: Any, lens: Any):
        for b in P(batch):
            for t in P(toks):
                touch[b, t](X[t])
            for t in P(lens[b]):
                touch[b, t](X[t])

    lens, batch = np.array([2, 3]), DenseDyn(2)
    program = ragged(batch, Ragged(batch, lens), lens).compile()
    assert program.execute().stats.tasks == 10
    lens[:] = [0, 4]
    assert program.execute().stats.tasks == 8
    assert program.num_tasks() == 8


def test_arrays_of_tensors_are_shared() -> None:
    data = np.array([1.0, 2.0])
    Y = Tensor(data=data)

    @workload
    def once(rows: Any):
        for i in P(rows):
            touch[i](Y[i])

    program = once(Dense[2]()).compile()
    program.execute()
    data[:] = 10
    program.execute()
    assert data.tolist() == [11.0, 11.0]
