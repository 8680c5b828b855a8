"""Random programs whose control reads what their tasks write: the same bits, tasks and reads on the
native core as on the reference, whatever the schedule."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from pto_wsp import ir
from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import ExecutionError
from pto_wsp.ir import BinaryOp, Const, Expr, Mode
from pto_wsp.kernels import LoadedKernel, load_kernels
from pto_wsp.passes import lower
from pto_wsp.passes import run as run_passes
from tests.property.schedules import schedules
from tests.property.test_runs import program, scheduled

T = TypeVar("T")
CELLS, WORDS, MOST_TASKS = 8, 64, 400

# `z` holds small numbers that control reads; `y` remembers the order of what was done to it.
TENSORS = (ir.TensorDecl("z", DType.I32, 1), ir.TensorDecl("y", DType.U64, 1))
YIELD = "for (int k = 0; k < int(uint64_t(s) % 3) * 8; ++k) std::this_thread::yield();\n"
KERNELS = (
    ir.KernelDecl(
        "change",
        (ir.ScalarDecl("s", DType.I64), ir.ParamDecl("z", Mode.INOUT, DType.I32, 1)),
        ir.BodyForm.CPP,
        YIELD + "for (int64_t i = 0; i < z.shape(0); ++i) z(i) = (z(i) * 5 + int32_t(s)) & 3;",
        ("#include <thread>",),
    ),
    ir.KernelDecl(
        "note",
        (ir.ScalarDecl("s", DType.I64), ir.ParamDecl("y", Mode.INOUT, DType.U64, 1)),
        ir.BodyForm.CPP,
        YIELD + "for (int64_t i = 0; i < y.shape(0); ++i) y(i) = y(i) * 31 + uint64_t(s);",
        ("#include <thread>",),
    ),
)


@functools.cache
def loaded() -> tuple[LoadedKernel, ...]:
    return load_kernels(lower(ir.Module("kernels", (), (), KERNELS, ())), {})


@dataclass
class Maker:
    draw: st.DrawFn
    loops: list[str] = field(default_factory=list)
    slots: list[str] = field(default_factory=list)
    count: int = 0
    room: int = 12

    def pick(self, *options: T) -> T:
        return options[self.draw(st.integers(0, len(options) - 1))]

    def value(self) -> Expr:
        """From 0 to a few."""
        if self.slots and self.pick(True, True, False):
            return ir.SlotRef(self.pick(*self.slots))
        if self.loops and self.pick(True, True, False):
            return ir.LoopVar(self.pick(*self.loops))
        return Const(self.pick(0, 1, 2, 3))

    def index(self, size: int) -> Expr:
        mixed = ir.Binary(BinaryOp.MUL, self.value(), Const(self.pick(1, 3)))
        return ir.Binary(
            BinaryOp.MOD, ir.Binary(BinaryOp.ADD, mixed, self.value()), Const(size - 3)
        )

    def region(self, tensor: str, size: int) -> ir.Region:
        extent = Const(self.pick(1, 1, 2, 3))
        return ir.Region(tensor, (ir.DimSlice(self.index(size), extent, Const(1)),))

    def condition(self) -> Expr:
        op = self.pick(BinaryOp.EQ, BinaryOp.LT, BinaryOp.NE, BinaryOp.GE)
        return ir.Binary(op, self.value(), Const(self.pick(1, 2)))

    def body(self, depth: int) -> ir.Body:
        known = len(self.slots)
        stmts = [s for _ in range(self.pick(1, 2, 3)) for s in self.stmts(depth)]
        del self.slots[known:]
        return tuple(stmts)

    def stmts(self, depth: int) -> list[ir.Stmt]:
        self.room -= 1
        kinds = ["change", "note", "load", "load"]
        if depth > 0 and self.room > 0:
            kinds += ["loop", "loop", "when", "while", "sequential"]
        match self.pick(*kinds):
            case "load":
                self.count += 1
                name = self.pick(*self.slots, f"slot{self.count}")
                at = ir.DimSlice(self.index(CELLS), Const(1), Const(1), dropped=True)
                load = ir.SlotLoad(name, ir.Region("z", (at,)))
                self.slots += [name] if name not in self.slots else []
                return [load]
            case "loop":
                return [self.loop(depth - 1)]
            case "while":
                self.count += 1
                var = f"w{self.count}"
                below = ir.Binary(BinaryOp.LT, ir.LoopVar(var), Const(3))
                both = ir.Binary(BinaryOp.AND, below, self.condition())
                self.loops.append(var)
                body = self.body(depth - 1)
                self.loops.pop()
                return [ir.While(var, var, both, Const(3), body)]
            case "when":
                other = self.body(depth - 1) if self.pick(True, False) else ()
                return [ir.Cond(self.condition(), self.body(depth - 1), other)]
            case "sequential":
                return [ir.Sequential(tuple(self.body(depth - 1) for _ in range(2)))]
            case "change":
                return [ir.Call("change", (), (self.value(), self.region("z", CELLS)))]
            case _:
                return [ir.Call("note", (), (self.value(), self.region("y", WORDS)))]

    def loop(self, depth: int) -> ir.Loop:
        self.count += 1
        var, order = f"i{self.count}", self.pick(*ir.Order)
        extent = self.value()
        self.loops.append(var)
        body = self.body(depth)
        self.loops.pop()
        return ir.Loop(var, var, ir.AxisKind.EXPR, order, Const(0), extent, body)


@st.composite
def modules(draw: st.DrawFn) -> ir.Module:
    maker = Maker(draw)
    body = (*maker.body(3), *maker.body(3))
    return ir.Module("data", (), TENSORS, KERNELS, body)


def memory() -> dict[str, np.ndarray]:
    z = np.arange(CELLS, dtype=np.int32) * 7 % 4
    return {"z": z, "y": np.arange(WORDS, dtype=np.uint64)}


def check(
    module: ir.Module,
    schedule: tuple[ir.Directive, ...],
    workers: int,
    seed: int,
    kernels: Callable[[], tuple[LoadedKernel, ...]] = loaded,
    memory: Callable[[], dict[str, np.ndarray]] = memory,
) -> None:
    plan = lower(run_passes(module))
    wanted = memory()
    with program(plan, "reference", kernels()) as reference:
        try:
            reference.execute(hash=True, **wanted)
        except ExecutionError as error:  # a slot has changed since a temporary got its shape
            if error.code is not Code.OUT_OF_BOUNDS:
                raise
            reject()
        counted, hashed = reference.stats, reference.task_hash()
    assume(counted.tasks <= MOST_TASKS)
    for directives, threads in (((), workers), (schedule, workers), (schedule, 1)):
        with program(
            scheduled(plan, directives), "cpu_sim", kernels(), num_threads=threads, seed=seed
        ) as tested:
            for repeat in range(2):
                found = memory()
                tested.execute(hash=repeat == 0, **found)
                assert repeat > 0 or tested.task_hash() == hashed
                assert (tested.stats.tasks, tested.stats.loads) == (counted.tasks, counted.loads)
                assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


HOW = (schedules() | schedules(issued=True), st.integers(1, 4), st.integers(0, 3))


@settings(max_examples=100)
@given(modules(), *HOW)
def test_control_reads_what_tasks_have_written(
    module: ir.Module, schedule: tuple[ir.Directive, ...], workers: int, seed: int
) -> None:
    check(module, schedule, workers, seed)


@pytest.mark.soak
@given(modules(), *HOW)
def test_control_reads_what_tasks_have_written_soak(
    module: ir.Module, schedule: tuple[ir.Directive, ...], workers: int, seed: int
) -> None:
    check(module, schedule, workers, seed)
