"""Random programs with temporaries, tokens and paged tensors: the same bits, tasks and reads on the
native core as on the reference, whatever the schedule."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pto_wsp import ir
from pto_wsp.dtypes import DType
from pto_wsp.ir import BinaryOp, Const, Expr, Mode, TensorKind, ViewKind
from pto_wsp.kernels import LoadedKernel, load_kernels
from pto_wsp.passes import lower
from tests.property import test_data
from tests.property.schedules import schedules
from tests.property.test_data import CELLS, YIELD, Maker, check

SEQUENCES, PAGES, PAGE = 3, 3, 4

BOUND = (
    *test_data.TENSORS,
    ir.TensorDecl("pool", DType.U64, 3),
    ir.TensorDecl("table", DType.I32, 2),
    ir.TensorDecl("k", DType.U64, 3, kind=TensorKind.PAGED, pages=ir.Pages("pool", "table")),
    ir.TensorDecl("g", DType.BOOL, 1, kind=TensorKind.TOKEN, shape=(Const(4),)),
)


def cpp(name: str, source: str, *params: ir.AnyParam) -> ir.KernelDecl:
    scalar = ir.ScalarDecl("s", DType.I64)
    form = ir.BodyForm.CPP
    return ir.KernelDecl(name, (scalar, *params), form, YIELD + source, ("#include <thread>",))


def param(name: str, mode: Mode, dtype: DType, view: ViewKind = ViewKind.STRIDED) -> ir.ParamDecl:
    return ir.ParamDecl(name, mode, dtype, 1, None, view)


KERNELS = (
    *test_data.KERNELS,
    cpp(
        "fill",
        "for (int64_t i = 0; i < t.shape(0); ++i) t(i) = int32_t(s + i) & 3;",
        param("t", Mode.OUT, DType.I32),
    ),
    cpp(
        "fold",
        "for (int64_t i = 0; i < t.shape(0); ++i) y(0) = y(0) * 31 + uint64_t(t(i)) + uint64_t(s);",
        param("t", Mode.IN, DType.I32),
        param("y", Mode.INOUT, DType.U64),
    ),
    cpp(
        "append",
        "for (int64_t i = 0; i < k.shape(0); ++i) k(i) = k(i) * 7 + uint64_t(s) + uint64_t(i);",
        param("k", Mode.INOUT, DType.U64),
    ),
    cpp(
        "read",
        "for (int64_t p = 0; p < k.pages(); ++p) { auto part = k.page(p);"
        " for (int64_t i = 0; i < part.shape(0); ++i) y(0) = y(0) * 13 + part(i); }"
        " for (int64_t i = 0; i < k.shape(0); ++i) y(0) ^= k(i) + uint64_t(s);",
        param("k", Mode.IN, DType.U64, ViewKind.PAGED),
        param("y", Mode.INOUT, DType.U64),
    ),
    cpp(
        "mix",
        "for (int64_t i = 0; i < k.shape(0); ++i) k(i) = k(i) * 3 + uint64_t(s);",
        param("k", Mode.INOUT, DType.U64, ViewKind.PAGED),
    ),
    cpp(
        "guarded",
        "y(0) = y(0) * 5 + uint64_t(s);",
        param("g", Mode.INOUT, DType.BOOL, ViewKind.TOKEN),
        param("y", Mode.INOUT, DType.U64),
    ),
)


@functools.cache
def loaded() -> tuple[LoadedKernel, ...]:
    return load_kernels(lower(ir.Module("kernels", (), (), KERNELS, ())), {})


@dataclass
class KindMaker(Maker):
    """Temporaries are filled where they are made: what they hold before is nobody's business."""

    temps: list[tuple[str, Expr]] = field(default_factory=list)  # with their extents
    made: list[ir.TensorDecl] = field(default_factory=list)

    def body(self, depth: int) -> ir.Body:
        known = len(self.temps)
        body = super().body(depth)
        del self.temps[known:]
        return body

    def stmts(self, depth: int) -> list[ir.Stmt]:
        kinds: list[Callable[[int], list[ir.Stmt]]] = [self.alloc, self.page, self.guard]
        if self.temps:
            kinds += [self.fold, self.fold, self.refill, self.load_temp]
        if self.pick(True, False):
            return self.pick(*kinds)(depth)
        return super().stmts(depth)

    def alloc(self, _: int) -> list[ir.Stmt]:
        self.count += 1
        name = f"t{self.count}"
        extent = self.pick(Const(2), Const(3), ir.Binary(BinaryOp.ADD, self.value(), Const(1)))
        extent = ir.Binary(BinaryOp.MIN, extent, Const(6))  # slots have no bound by themselves
        self.made.append(ir.TensorDecl(name, DType.I32, 1, kind=TensorKind.TEMP))
        fill = ir.Call("fill", (), (self.value(), whole(name, extent)))
        self.temps.append((name, extent))
        return [ir.Alloc(name, (extent,)), fill]

    def fold(self, _: int) -> list[ir.Stmt]:
        name, extent = self.pick(*self.temps)
        part = self.pick(whole(name, extent), ir.Region(name, (span(Const(0), Const(1)),)))
        y = ir.Region("y", (span(self.index(8), Const(1)),))
        return [ir.Call("fold", (), (self.value(), part, y))]

    def refill(self, _: int) -> list[ir.Stmt]:
        name, _extent = self.pick(*self.temps)
        first = ir.Region(name, (span(Const(0), Const(1)),))
        return [ir.Call("change", (), (self.value(), first))]

    def load_temp(self, _: int) -> list[ir.Stmt]:
        self.count += 1
        name, _extent = self.pick(*self.temps)
        self.slots.append(f"slot{self.count}")
        at = ir.DimSlice(Const(0), Const(1), Const(1), dropped=True)
        return [ir.SlotLoad(self.slots[-1], ir.Region(name, (at,)))]

    def page(self, _: int) -> list[ir.Stmt]:
        sequence = ir.Binary(BinaryOp.MOD, self.value(), Const(SEQUENCES))
        b = ir.DimSlice(sequence, Const(1), Const(1), dropped=True)
        column = ir.DimSlice(Const(self.pick(0, 1)), Const(1), Const(1), dropped=True)
        value = self.value()
        y = ir.Region("y", (span(self.index(8), Const(1)),))
        match self.pick("append", "append", "read", "mix"):
            case "append":
                token = self.pick(
                    span(self.index(PAGE * PAGES), Const(1)), span(Const(4), Const(3))
                )
                return [ir.Call("append", (), (value, ir.Region("k", (b, token, column))))]
            case "read":
                tokens = span(self.index(PAGE), Const(self.pick(0, 1, 5, 9)))
                return [ir.Call("read", (), (value, ir.Region("k", (b, tokens, column)), y))]
            case _:
                tokens = span(self.index(PAGE + 3), Const(self.pick(2, 5)))
                return [ir.Call("mix", (), (value, ir.Region("k", (b, tokens, column))))]

    def guard(self, _: int) -> list[ir.Stmt]:
        g = ir.Region("g", (span(self.index(4), Const(self.pick(1, 2))),))
        y = ir.Region("y", (span(self.index(CELLS), Const(1)),))
        return [ir.Call("guarded", (), (self.value(), g, y))]


def span(start: Expr, extent: Expr) -> ir.DimSlice:
    return ir.DimSlice(start, extent, Const(1))


def whole(tensor: str, extent: Expr) -> ir.Region:
    return ir.Region(tensor, (span(Const(0), extent),))


@st.composite
def modules(draw: st.DrawFn) -> ir.Module:
    maker = KindMaker(draw)
    body = (*maker.body(3), *maker.body(3))
    return ir.Module("kinds", (), (*BOUND, *maker.made), KERNELS, body)


@st.composite
def tables(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    """Pages in any order, none of them twice."""
    pages = draw(st.permutations(range(SEQUENCES * PAGES)))
    return np.array(pages, np.int32).reshape(SEQUENCES, PAGES)


def memory(table: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    shape = SEQUENCES * PAGES, PAGE, 2
    pool = np.arange(np.prod(shape), dtype=np.uint64).reshape(shape)
    return {**test_data.memory(), "pool": pool, "table": table.copy()}


HOW = (tables(), schedules() | schedules(issued=True), st.integers(1, 4), st.integers(0, 3))


@settings(max_examples=100)
@given(modules(), *HOW)
def test_every_kind_of_tensor_gives_the_reference_result(
    module: ir.Module,
    table: np.ndarray[Any, Any],
    schedule: tuple[ir.Directive, ...],
    workers: int,
    seed: int,
) -> None:
    check(module, schedule, workers, seed, loaded, lambda: memory(table))


@pytest.mark.soak
@given(modules(), *HOW)
def test_every_kind_of_tensor_gives_the_reference_result_soak(
    module: ir.Module,
    table: np.ndarray[Any, Any],
    schedule: tuple[ir.Directive, ...],
    workers: int,
    seed: int,
) -> None:
    check(module, schedule, workers, seed, loaded, lambda: memory(table))
