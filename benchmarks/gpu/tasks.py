"""What a task costs: tasks that nothing orders, a chain, a wavefront."""

# Annotations are values here, and the parameters of workloads symbols.
# pyright: basic, reportInvalidTypeForm=false
from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.gpu.rows import Bar, Report
from benchmarks.gpu.timing import bindable, graph_us, interpreted, program_us, torch, where
from pto_wsp import (
    DenseDyn,
    DType,
    In,
    InOut,
    Out,
    P,
    Program,
    ReadyPolicy,
    Tensor,
    Tile,
    kernel,
    pto,
    workload,
)

SECTION = "tasks"
TASKS_PER_S = 500e6
HOP_US = 1.3
_SIDE = 16
_TILE = Tile[_SIDE, _SIDE, DType.F32]


@kernel(body="tile")
def nothing(x: In[_TILE]):
    pass


@kernel(body="tile")
def hop(x: InOut[_TILE]):
    pass


@kernel
def increment(x: InOut[_TILE]):
    pto.store(x, pto.load(x) + 1.0)


@kernel
def mean(up: In[_TILE], left: In[_TILE], out: Out[_TILE]):
    pto.store(out, (pto.load(up) + pto.load(left)) * 0.5)


def _compiled(made: Any, **options: int) -> Program:
    return made.compile(target="cuda", **options)


def _grid(rows: int, cols: int) -> Any:
    X = Tensor(data=np.zeros((_SIDE, _SIDE), np.float32), name="X")

    @workload
    def grid(rows, cols):
        for i, j in P(rows, cols):
            nothing[i, j](X[_SIDE * j : _SIDE * j + _SIDE])

    return grid(DenseDyn(rows), DenseDyn(cols))


def _chain(body: Any, length: int) -> Any:
    X = Tensor(data=np.zeros((_SIDE, _SIDE), np.float32), name="X")

    @workload
    def chain(length):
        for s in P.seq(length):
            body[s](X)

    return chain(DenseDyn(length))


def _wavefront(side: int) -> Any:
    X = Tensor(data=np.zeros((2, 2, _SIDE, _SIDE), np.float32), name="X")

    @workload
    def wavefront(rows, cols):
        for i, j in P(rows, cols):
            mean[i, j](X[i, j + 1], X[i + 1, j], X[i + 1, j + 1])

    return wavefront(DenseDyn(side), DenseDyn(side))


def measure(report: Report, *, tiny: bool) -> None:
    rows, cols = (4, 4) if tiny else (4096, 4096)
    for name, directed in _TAKEN.items():
        with report.case(SECTION, f"independent{name}"):
            _independent(report, directed(_grid(rows, cols)), rows, cols, name)
    length = 8 if tiny else 10_000
    for name, body in (("empty", hop), ("with an increment", increment)):
        with report.case(SECTION, f"chain, {name}"):
            _hops(report, name, body, length)
    for side in (4,) if tiny else (64, 512):
        with report.case(SECTION, f"wavefront {side} x {side}"):
            _wave(report, side)


# How blocks take tasks: from one counter, or from a range of their own and then from others.
_TAKEN: dict[str, Callable[[Any], Any]] = {
    "": lambda work: work,
    ", ranges and stealing": lambda work: work.task_graph(ready=ReadyPolicy.work_steal()),
}


def _independent(report: Report, made: Any, rows: int, cols: int, name: str) -> None:
    program = _compiled(made)
    x = torch().zeros((_SIDE * cols, _SIDE), device=where())
    given = {"X": bindable(x)}
    program.execute(**given)
    wrong = "" if program.stats.tasks == rows * cols else f"{program.stats.tasks} tasks"
    more = {"stolen": program.stats.stolen} if name else {}
    us = program_us(program, [given])
    report.row(
        *(SECTION, f"{rows * cols / 1e6:.1f} M empty tasks{name}"),
        *(rows * cols / us.median / 1e-6, "1/s"),
        bar=None if name else Bar(TASKS_PER_S, at_least=True),
        wrong=wrong,
        us=us.median,
        **more,
    )
    program.close()


def _hops(report: Report, name: str, body: Any, length: int) -> None:
    program = _compiled(_chain(body, length))
    x = torch().zeros((_SIDE, _SIDE), device=where())
    given = {"X": bindable(x)}
    program.execute(**given)
    wanted = float(length if body is increment else 0)
    wrong = "" if bool((x == wanted).all()) else f"{float(x[0, 0])}, not {wanted}"
    us = program_us(program, [given]).map(lambda each: each / length)
    rival = _nodes_us(min(length, 4000))
    report.row(
        *(SECTION, f"hop of a chain, {name}", us.median, "us"),
        rival=("node of a CUDA graph", rival) if rival else None,
        bar=Bar(HOP_US) if body is hop else None,
        wrong=wrong,
        quartiles=us.quartiles,
    )
    program.close()


def _wave(report: Report, side: int) -> None:
    """Beside a CUDA graph with a node for each task, in one chain, and beside one with a node for
    each diagonal; their kernels are empty."""
    program = _compiled(_wavefront(side))
    x = torch().zeros((side + 1, side + 1, _SIDE, _SIDE), device=where())
    x[0], x[:, 0] = 1.0, 1.0
    given = {"X": bindable(x)}
    program.execute(**given)
    wrong = "" if bool((x == 1.0).all()) else "a task ran before what it reads was there"
    us = program_us(program, [given])
    count, diagonals = side * side, 2 * side - 1
    each = _nodes_us(min(count, 4000))
    for name, nodes in (("a node for each task", count), ("a node for each diagonal", diagonals)):
        report.row(
            *(SECTION, f"wavefront {side} x {side}", us.median, "us"),
            rival=(name, each * nodes) if each else None,
            wrong=wrong,
            tasks=count,
            us_a_diagonal=us.median / diagonals,
        )
    program.close()


def _nodes_us(count: int) -> float | None:
    """Microseconds of a node in a CUDA graph of empty kernels, one after the other."""
    if interpreted():
        return None
    empty = importlib.import_module("benchmarks.gpu.empty_kernel").empty
    step: Callable[[], object] = lambda: empty[(1,)]()  # noqa: E731
    step()

    def nodes() -> None:
        for _ in range(count):
            step()

    return graph_us([nodes], replays=10).median / count
