"""Dependences that the core finds by tile numbers: few numbers, many, tiles of several sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    DenseDyn,
    In,
    InOut,
    Out,
    P,
    ReadyPolicy,
    StartPolicy,
    TaskWindow,
    Tensor,
    kernel,
    workload,
)

SCHEDULES: dict[str, dict[str, Any]] = {
    "default": {},
    "small window": {"window": TaskWindow(64)},
    "work_steal": {"ready": ReadyPolicy.work_steal(), "window": TaskWindow(512)},
    "held": {"start": StartPolicy.after_orchestration(), "window": TaskWindow(100_000)},
}
schedules = pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
threads = pytest.mark.parametrize("threads", [2, 4])


@kernel(cpp_src="out() = a() + b() + 1;")
def cell(a: In[Tensor], b: In[Tensor], out: Out[Tensor]): ...


@kernel(cpp_src="y() = y() * 3 + 1;")
def change(y: InOut[Tensor]): ...


@kernel(cpp_src="y() += x();")
def add(x: In[Tensor], y: InOut[Tensor]): ...


@kernel(cpp_src="for (std::int64_t i = 0; i < x.shape(0); ++i) x(i) = x(i) * 3 + i + 1;")
def mix(x: InOut[Tensor]): ...


@kernel(cpp_src="y(0) = x(0) * 5 + x(1) * 3 + x(2) + 1;")
def smooth(x: In[Tensor], y: Out[Tensor]): ...


@workload
def sparse_grid(rows, cols, x):
    for i, j in P(rows, cols):
        cell[i, j](a=x[i, 128 * j + 128], b=x[i + 1, 128 * j], out=x[i + 1, 128 * j + 128])


@schedules
@threads
def test_more_tiles_than_fit_into_an_index(schedule: dict[str, Any], threads: int) -> None:
    """Cells are found by a hash, and those of ended tasks make room for new ones."""
    rows, cols = 100, 100
    x = np.zeros((rows + 1, 128 * (cols + 1)), np.uint64)
    work = sparse_grid(DenseDyn(rows), DenseDyn(cols), Tensor(data=x)).task_graph(**schedule)
    wanted = [[0] * (cols + 1) for _ in range(rows + 1)]
    for i in range(rows):
        for j in range(cols):
            wanted[i + 1][j + 1] = (wanted[i][j + 1] + wanted[i + 1][j] + 1) % 2**64
    with work.compile(num_threads=threads) as program:
        for _ in range(3):  # the tables serve several runs
            x.fill(0)
            program.execute()
            assert x[:, ::128].tolist() == wanted


@workload
def crossing(rounds, tiles, x):
    for r in P(rounds):
        for i in P(tiles):
            mix[r, i](x=x[i, :])
        for j in P(tiles):
            mix[r, j](x=x[:, j])


@schedules
@threads
def test_rows_against_columns(schedule: dict[str, Any], threads: int) -> None:
    n, rounds = 12, 30
    x = np.zeros((n, n), np.uint64)
    wanted = np.zeros_like(x)
    plus = np.arange(n, dtype=np.uint64) + np.uint64(1)
    for _ in range(rounds):
        wanted = wanted * np.uint64(3) + plus[None, :]
        wanted = wanted * np.uint64(3) + plus[:, None]
    work = crossing(DenseDyn(rounds), DenseDyn(n), Tensor(data=x)).task_graph(**schedule)
    with work.compile(num_threads=threads) as program:
        for _ in range(3):
            x.fill(0)
            program.execute()
            assert np.array_equal(x, wanted)


@workload
def sliding(steps, width, x):
    for t, i in P(steps, width):
        smooth[t, i](x=x[t, i : i + 3], y=x[t + 1, i + 1 : i + 2])


@schedules
@threads
def test_windows_that_overlap(schedule: dict[str, Any], threads: int) -> None:
    """Reads of three tiles against writes of one."""
    steps, width = 80, 90
    x = np.zeros((steps + 1, width + 2), np.uint64)
    x[0] = np.arange(width + 2)
    start = x.copy()
    wanted = x.copy()
    for t in range(steps):
        row = wanted[t]
        wanted[t + 1, 1:-1] = row[:-2] * np.uint64(5) + row[1:-1] * np.uint64(3) + row[2:] + 1
    work = sliding(DenseDyn(steps), DenseDyn(width), Tensor(data=x)).task_graph(**schedule)
    with work.compile(num_threads=threads) as program:
        for _ in range(3):
            x[:] = start
            program.execute()
            assert np.array_equal(x, wanted)


@workload
def many_readers(rounds, readers, x, y):
    for r in P(rounds):
        change[r](y=x[0])
        for i in P(readers):
            add[r, i](x=x[0], y=y[i])


@schedules
@threads
def test_one_tile_that_many_read(schedule: dict[str, Any], threads: int) -> None:
    """A write waits for all readers; in a small window, readers that have ended are forgotten."""
    rounds, readers = 8, 3000
    x, y = np.zeros(1, np.uint64), np.zeros(readers, np.uint64)
    sizes = DenseDyn(rounds), DenseDyn(readers)
    work = many_readers(*sizes, Tensor(data=x), Tensor(data=y)).task_graph(**schedule)
    value, total = 0, 0
    for _ in range(rounds):
        value = value * 3 + 1
        total += value
    with work.compile(num_threads=threads) as program:
        for _ in range(3):
            x.fill(0)
            y.fill(0)
            program.execute()
            assert x[0] == value
            assert (y == total).all()
