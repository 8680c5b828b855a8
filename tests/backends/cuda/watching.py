"""Who runs which task, and when: kernels say so as the generated code calls them.

Tasks are told apart by their last argument, the scalar `number` of the kernels here.
"""

# Annotations are values here, and the parameters of workloads symbols.
# pyright: basic, reportInvalidTypeForm=false
from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from pto_wsp import DenseDyn, DType, In, Out, P, Scalar, Tensor, Tile, kernel, pto, workload
from pto_wsp.backends.cuda import device

from .stepping import stepped

TILE = Tile[1, 4, DType.F32]
BLOCKS = 4  # as many as there are in the interpreter


@kernel
def mark(y: Out[TILE], number: Scalar[DType.I32]):
    pto.store(y, pto.zeros((1, 4), DType.F32) + pto.cast(number, DType.F32))


@kernel(exec_unit="cube")
def mark_cube(y: Out[TILE], number: Scalar[DType.I32]):
    pto.store(y, pto.zeros((1, 4), DType.F32) - pto.cast(number, DType.F32))


@kernel
def follow(x: In[TILE], y: Out[TILE], number: Scalar[DType.I32]):
    pto.store(y, pto.load(x) + pto.cast(number, DType.F32))


@dataclass
class Table:
    """Tasks in rows and columns; the number of one is 100 times its row plus its column."""

    workload: Any
    outputs: list[np.ndarray]


def table(rows: int = 5, cols: int = 2) -> Table:
    y = np.zeros((rows, cols, 4), np.float32)
    ty = Tensor(data=y)

    @workload
    def run(rows, cols):
        for i, j in P(rows, cols):
            mark[i, j](ty[i, j : j + 1], 100 * i + j)

    return Table(run(DenseDyn(rows), DenseDyn(cols)), [y])


def ragged(lengths: list[int]) -> Table:
    y = np.zeros((len(lengths), 8, 4), np.float32)
    ty = Tensor(data=y)

    @workload
    def run(rows, lens):
        for i in P(rows):
            for j in P(lens[i]):
                mark[i, j](ty[i, j : j + 1], 100 * i + j)

    return Table(run(DenseDyn(len(lengths)), np.array(lengths)), [y])


def grouped(lengths: list[list[int]]) -> Table:
    """Rows of groups of tasks; the number of one is 100 times its row plus 10 times its group plus
    its place there. A row is like any other, or says how long its groups are."""
    y = np.zeros((2, len(lengths[0]), 4, 4), np.float32)
    ty = Tensor(data=y)

    @workload
    def alike(rows, groups, lens):
        for i in P(rows):
            for g in P(groups):
                for j in P(lens[g]):
                    mark[i, g, j](ty[i, g, j : j + 1], 100 * i + 10 * g + j)

    @workload
    def unlike(rows, groups, lens):
        for i in P(rows):
            for g in P(groups):
                for j in P(lens[i, g]):
                    mark[i, g, j](ty[i, g, j : j + 1], 100 * i + 10 * g + j)

    given = DenseDyn(2), DenseDyn(len(lengths[0]))
    if len(lengths) == 1:
        return Table(alike(*given, np.array(lengths[0])), [y])
    return Table(unlike(*given, np.array(lengths)), [y])


def followed(rows: int = 3, cols: int = 2) -> Table:
    """Two tasks for each place, of which the second one reads what the first one wrote."""
    x, y = (np.zeros((rows, cols, 4), np.float32) for _ in range(2))
    tx, ty = Tensor(data=x), Tensor(data=y)

    @workload
    def run(rows, cols):
        for i, j in P(rows, cols):
            mark[i, j](tx[i, j : j + 1], 100 * i + j)
        for i, j in P(rows, cols):
            follow[i, j](tx[i, j : j + 1], ty[i, j : j + 1], 100 * i + j)

    return Table(run(DenseDyn(rows), DenseDyn(cols)), [x, y])


def units(rows: int = 3) -> Table:
    """Tasks for either kind of core, in two loops."""
    x, y = (np.zeros((rows, 1, 4), np.float32) for _ in range(2))
    tx, ty = Tensor(data=x), Tensor(data=y)

    @workload
    def run(rows):
        for i in P(rows):
            mark[i](tx[i], 100 * i)
            mark_cube[i](ty[i], 100 * i)

    return Table(run(DenseDyn(rows)), [x, y])


@dataclass
class Watched:
    """What was run: (block, name of the kernel, number), in the order of starts."""

    program: Any
    ran: list[tuple[int, str, int]] = field(default_factory=list)
    most: int = 0  # tasks that ran at a time

    @property
    def numbers(self) -> list[int]:
        return [number for _, _, number in self.ran]

    def of(self, block: int) -> list[int]:
        return [number for b, _, number in self.ran if b == block]


def watch(
    built: Callable[[], Table],
    directed: Callable[[Any], Any],
    monkeypatch: pytest.MonkeyPatch,
    *,
    seed: int | None = None,
    **options: int,
) -> Watched:
    """A run under a schedule, whose results, tasks and hash are those of the reference. With a seed
    all blocks run at a time, else one after the other."""
    wanted, found = built(), built()
    reference = directed(wanted.workload).compile(target="reference")
    program = directed(found.workload).compile(target="cuda", **options)
    watched = Watched(program)
    reference.execute(hash=True)
    with monkeypatch.context() as patch:
        _watch_kernels(watched, patch)
        if seed is None:
            program.execute(hash=True)
        else:
            program._engine.tries = 100_000
            with stepped(patch, seed):
                program.execute(hash=True)
    for a, b in zip(wanted.outputs, found.outputs, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-6)
    assert program.stats.tasks == reference.stats.tasks == len(watched.ran)
    assert program.task_hash() == reference.task_hash()
    return watched


def _watch_kernels(watched: Watched, patch: pytest.MonkeyPatch) -> None:
    """Kernels of modules that are loaded from now on say who calls them."""
    builder = importlib.import_module("triton.runtime.interpreter").interpreter_builder
    load, running = device.load_source, [0]

    def watching(name: str, plain: Any) -> Any:
        def call(*args: Any) -> None:
            number = int(np.asarray(args[-1].handle.data).item())
            watched.ran.append((int(builder.grid_idx[0]), name, number))
            running[0] += 1
            watched.most = max(watched.most, running[0])
            plain(*args)
            running[0] -= 1

        return call

    def load_watched(text: str) -> Any:
        persistent = load(text)
        names = persistent.fn.__globals__
        for name in [n for n in names if n.startswith(("mark", "follow"))]:
            patch.setitem(names, name, watching(name.rsplit("_", 1)[0], names[name]))
        return persistent

    patch.setattr(device, "load_source", load_watched)
