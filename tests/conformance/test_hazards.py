"""Data order: each kind of hazard between two tasks, for each way in which regions can meet.

The first task is slow, so a second one that does not wait for it is seen in the result, in the
trace, and in the number of dependences.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from pto_wsp import DenseDyn, Deps, In, InOut, Out, P, Tensor, kernel, workload
from tests.conformance.orders import BACKWARDS, SIDE_BY_SIDE, compile_on, taken, waits

SLOW = 0.01  # seconds


@kernel
def slow_read(x: In[Tensor], log: Out[Tensor]):
    time.sleep(SLOW)
    log[...] = x.sum()


@kernel
def read(x: In[Tensor], log: Out[Tensor]):
    log[...] = x.sum()


@kernel
def slow_write(x: Out[Tensor]):
    time.sleep(SLOW)
    x[...] = 5


@kernel
def write(x: Out[Tensor]):
    x[...] = 7


@kernel
def slow_change(x: InOut[Tensor]):
    time.sleep(SLOW)
    x[...] = x * 3 + 5


@kernel
def change(x: InOut[Tensor]):
    x[...] = x * 3 + 7


# The first and the second region, as slices of an array of 12.
MEETINGS = {
    "exact": (slice(2, 6), slice(2, 6)),
    "shifted": (slice(2, 6), slice(4, 8)),
    "contained": (slice(2, 9), slice(4, 6)),
    "containing": (slice(4, 6), slice(2, 9)),
    "whole": (slice(0, 12), slice(11, 12)),
    "strided": (slice(1, 12, 3), slice(0, 12, 2)),  # they share 4 and 10
    "strided and dense": (slice(0, 12, 4), slice(3, 6)),
    "one element": (slice(2, 5), slice(4, 8)),
}
APART = {
    "beside": (slice(2, 6), slice(6, 8)),
    "interleaved": (slice(0, 12, 2), slice(1, 12, 2)),
    "strided apart": (slice(0, 12, 3), slice(2, 12, 6)),
    "empty": (slice(0, 12), slice(4, 4)),
}
HAZARDS = {
    "read after write": (slow_write, read),
    "write after read": (slow_read, write),
    "write after write": (slow_write, write),
    "change after change": (slow_change, change),
    "read after change": (slow_change, read),
    "change after read": (slow_read, change),
}


def two_tasks(kernels: tuple[Any, Any], slices: tuple[slice, slice], second: Tensor, first: Tensor):
    """A workload of one task after the other, on regions of the two tensors."""
    logs = [Tensor(data=np.zeros(1, np.int64), name=f"log{k}") for k in range(2)]

    @workload
    def pair(n):
        for _ in P(n):
            for body, tensor, part, log in zip(kernels, (first, second), slices, logs, strict=True):
                if body in (slow_read, read):
                    body(x=tensor[part], log=log)
                else:
                    body(x=tensor[part])

    return pair(DenseDyn(1)), [log.data for log in logs]


def run_pair(
    target: str,
    kernels: tuple[Any, Any],
    slices: tuple[slice, slice],
    views: tuple[Any, Any],
    schedule: dict[str, Any],
    workers: int,
) -> tuple[Any, list[np.ndarray]]:
    """The program after its run, and all that it wrote."""
    memory = np.arange(12)
    tensors = [Tensor(data=view(memory), name=f"X{k}") for k, view in enumerate(views)]
    if views[0] is views[1]:
        tensors[1] = tensors[0]
    work, logs = two_tasks(kernels, slices, second=tensors[1], first=tensors[0])
    program = compile_on(target, work, schedule, workers).execute()
    return program, [memory, *logs]


def forwards(array: np.ndarray) -> np.ndarray:
    return array


def backwards(array: np.ndarray) -> np.ndarray:
    return array[::-1]


def tail(array: np.ndarray) -> np.ndarray:
    return array[1:]


def every_other(array: np.ndarray) -> np.ndarray:
    return np.lib.stride_tricks.as_strided(array, (12,), (8,))[::1]


def assert_ordered(target: str, kernels: Any, slices: Any, views: Any, **more: Any) -> None:
    expected = run_pair("reference", kernels, slices, views, {}, 1)[1]
    for schedule, workers in ((BACKWARDS, 1), (SIDE_BY_SIDE, 2)):
        program, found = run_pair(target, kernels, slices, views, {**schedule, **more}, workers)
        assert [a.tolist() for a in found] == [a.tolist() for a in expected]
        assert taken(program) == [0, 1]
        assert waits(program.trace, second=1, first=0)
        if target == "cpu_sim" and schedule is BACKWARDS:
            assert program.stats.edges == 1


@pytest.mark.parametrize("meeting", MEETINGS)
@pytest.mark.parametrize("hazard", HAZARDS)
def test_hazard(target: str, hazard: str, meeting: str) -> None:
    assert_ordered(target, HAZARDS[hazard], MEETINGS[meeting], (forwards, forwards))


# Two arrays over the same bytes: the same element has another index in each.
ALIASES = {
    "two names": ((forwards, every_other), (slice(2, 6), slice(2, 6))),
    "shifted view": ((forwards, tail), (slice(2, 6), slice(4, 5))),  # element 5 is 4 of the tail
    "reversed view": ((forwards, backwards), (slice(0, 3), slice(9, 12))),
    "both reversed": ((backwards, backwards), (slice(0, 3), slice(2, 4))),
    "whole of a view": ((tail, forwards), (slice(0, 11), slice(0, 12))),
}


@pytest.mark.parametrize("alias", ALIASES)
@pytest.mark.parametrize("hazard", HAZARDS)
def test_hazard_between_names_of_the_same_memory(target: str, hazard: str, alias: str) -> None:
    views, slices = ALIASES[alias]
    assert_ordered(target, HAZARDS[hazard], slices, views)


@pytest.mark.parametrize("apart", APART)
@pytest.mark.parametrize("hazard", HAZARDS)
def test_what_does_not_meet_is_not_ordered(target: str, hazard: str, apart: str) -> None:
    kernels, slices = HAZARDS[hazard], APART[apart]
    program, _ = run_pair(target, kernels, slices, (forwards, forwards), BACKWARDS, 1)
    if target == "cpu_sim":
        assert program.stats.edges == 0
        assert taken(program) == [1, 0]


def test_reads_are_not_ordered(target: str) -> None:
    slices = MEETINGS["exact"]
    program, _ = run_pair(target, (slow_read, read), slices, (forwards, forwards), BACKWARDS, 1)
    if target == "cpu_sim":
        assert program.stats.edges == 0
        assert taken(program) == [1, 0]


@pytest.mark.parametrize("hazard", HAZARDS)
def test_exact_matching_orders_equal_regions(target: str, hazard: str) -> None:
    exact = Deps.infer_tensor_map_exact()
    both = (forwards, forwards)
    assert_ordered(target, HAZARDS[hazard], MEETINGS["exact"], both, deps=exact)


@pytest.mark.parametrize("meeting", [name for name in MEETINGS if name != "exact"])
@pytest.mark.parametrize("hazard", HAZARDS)
def test_exact_matching_is_a_promise_that_others_do_not_meet(
    target: str, hazard: str, meeting: str
) -> None:
    """The native core takes the user's word, and the reference needs no word."""
    exact = {**BACKWARDS, "deps": Deps.infer_tensor_map_exact()}
    kernels, slices = HAZARDS[hazard], MEETINGS[meeting]
    program, _ = run_pair(target, kernels, slices, (forwards, forwards), exact, 1)
    if target == "cpu_sim":
        assert program.stats.edges == 0
    assert taken(program) == ([1, 0] if target == "cpu_sim" else [0, 1])


@pytest.mark.parametrize("policy", [Deps.auto(), Deps.infer_bytes_overlap()], ids=str)
def test_a_broadcast_view_meets_itself(target: str, policy: Deps) -> None:
    """All rows of the view are the same bytes as the one row that is written."""
    row = np.arange(4)
    X, R = Tensor(data=row), Tensor(data=np.broadcast_to(row, (3, 4)))
    out = Tensor(data=np.zeros(3, np.int64))

    @workload
    def work(n):
        for i in P(n):
            read[i](x=R[i], log=out[i])
            change[i](x=X)

    schedule = {**BACKWARDS, "deps": policy}
    compile_on(target, work(DenseDyn(3)), schedule, 1).execute()
    x, expected = np.arange(4), []
    for _ in range(3):
        expected.append(x.sum())
        x = x * 3 + 7
    assert out.data.tolist() == expected
    assert row.tolist() == x.tolist()
