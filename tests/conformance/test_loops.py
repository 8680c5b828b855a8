"""Whole programs of one or two parallel loops, under the default schedule: a target may share the
iterations among workers without tracking anything, but only where they are independent.

Every kernel reads, waits, and writes, so that tasks which run at the same time although they
depend on each other give another result.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from pto_wsp import DenseDyn, In, InOut, P, Ragged, Tensor, Workload, kernel, workload

N = 24
Y = Tensor(data=np.zeros(3 * N, np.int64))
Z = Tensor(data=np.zeros((N, N), np.int64))


@kernel
def change(y: InOut[Tensor]):
    seen = y.copy()
    time.sleep(0.0002)
    y[...] = seen * 3 + 1


@kernel
def update(x: In[Tensor], y: InOut[Tensor]):
    seen, added = y.copy(), x.sum()
    time.sleep(0.0002)
    y[...] = seen * 3 + added


@workload
def own_element(n):
    for i in P(n):
        change[i](y=Y[i])


@workload
def one_element(n):
    for i in P(n):
        change[i](y=Y[7])


@workload
def own_tiles(n):
    for i in P(n):
        change[i](y=Y[2 * i : 2 * i + 2])


@workload
def overlapping_tiles(n):
    for i in P(n):
        change[i](y=Y[2 * i : 2 * i + 3])


@workload
def read_the_next(n):
    for i in P(n):
        update[i](x=Y[i + 1], y=Y[i])


@workload
def read_the_last(n):
    for i in P(n):
        update[i](x=Y[i], y=Y[i + 1])


@workload
def read_twice_as_far(n):
    for i in P(n):
        update[i](x=Y[2 * i], y=Y[i])


@workload
def write_twice_as_far(n):
    for i in P(n):
        update[i](x=Y[i], y=Y[2 * i])


@workload
def from_both_ends(n):
    for i in P(n):
        update[i](x=Y[N - 1 - i], y=Y[i])


@workload
def strided_tiles(n):
    for i in P(n):
        change[i](y=Y[2 * i : 2 * i + 4 : 3])


@workload
def tiles_out_of_line(n):
    for i in P(n):
        change[i](y=Y[2 * i : 2 * i + 2])
    for i in P(n):
        change[i](y=Y[2 * i + 1 : 2 * i + 3])


@workload
def tiles_in_line(n):
    for i in P(n):
        change[i](y=Y[2 * i : 2 * i + 2])
    for i in P(n):
        update[i](x=Y[2 * i + 2 : 2 * i + 4], y=Y[2 * i : 2 * i + 2])


@workload
def tiles_that_step_by_less(n):
    for i in P(n):
        change[i](y=Y[i : i + 2])


@workload
def tiles_with_gaps(n):
    for i in P(n):
        change[i](y=Y[2 * i : 2 * i + 2])
    for i in P(n):
        change[i](y=Y[2 * i : 2 * i + 3 : 2])


@workload
def tiles_of_two_strides(n):
    for i in P(n):
        change[i](y=Y[2 * i : 2 * i + 2])
    for i in P(n):
        change[i](y=Y[3 * i : 3 * i + 2])


@workload
def own_rows(n, lens):
    for i in P(n):
        for j in P(lens[i]):
            change[i, j](y=Z[i, j])
        for j in P.seq(lens[i]):
            update[i, j](x=Z[i, j], y=Z[i, 0])


@workload
def rows_and_columns(n):
    for i in P(n):
        change[i](y=Z[i, :])
        change[i](y=Z[:, i])


@workload
def rows_in_turn(n):
    for i in P(n):
        change[i](y=Z[i % 5, i])
        update[i](x=Z[i % 5, i], y=Z[(i + 1) % 5, i])


def ragged() -> Workload:
    rows = DenseDyn(N)
    return own_rows(rows, Ragged(rows, [k % 4 for k in range(N)]))


CASES: dict[str, Callable[[], Workload]] = {
    work.function.__name__: (lambda work=work: work(DenseDyn(N)))
    for work in (
        *(own_element, one_element, own_tiles, overlapping_tiles, read_the_next, read_the_last),
        *(
            read_twice_as_far,
            write_twice_as_far,
            from_both_ends,
            strided_tiles,
            tiles_out_of_line,
            tiles_in_line,
        ),
        *(
            tiles_that_step_by_less,
            tiles_with_gaps,
            tiles_of_two_strides,
            rows_and_columns,
            rows_in_turn,
        ),
    )
} | {"own_rows": ragged}


def results(work: Workload, target: str, **options: int) -> list[np.ndarray]:
    y = np.arange(3 * N)
    z = np.arange(N * N).reshape(N, N)
    program = work.compile(target=target, **options)
    program.execute(**{name: {"Y": y, "Z": z}[name] for name in "YZ" if name in program.bindings})
    return [y, z]


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("name", CASES)
def test_loops_give_the_result_of_program_order(target: str, name: str, workers: int) -> None:
    options = {"num_threads": workers} if target == "cpu_sim" else {}
    found = results(CASES[name](), target, **options)
    expected = results(CASES[name](), "reference")
    for a, b in zip(found, expected, strict=True):
        assert np.array_equal(a, b)
