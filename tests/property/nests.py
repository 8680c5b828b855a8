"""Random programs that can run: nests of loops and blocks with calls of the kernel library, values
for their extents and arrays, and memory in which their tensors may overlap."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st

from pto_wsp import ir
from pto_wsp.dtypes import DType
from pto_wsp.ir import BinaryOp, Const, Expr
from tests.ir.interpreter import Bindings, evaluate, tasks
from tests.property.kernel_library import KERNELS

T = TypeVar("T")
MAX_DEPTH = 4
MAX_TASKS = 300
_STARTS = ("var", "+", "0", "%", "//", "*", "max", "load", "sum", "n")
_DIMS = ("one", "some", "tile", "whole", "strided", "halved", "triangle", "none")
ROWS = 8  # length of arrays that are read at more places than a loop has iterations

# The first few share memory often; `read` is never written and may be read-only.
TENSORS = (
    ir.TensorDecl("a", DType.U64, 1),
    ir.TensorDecl("b", DType.U64, 2),
    ir.TensorDecl("c", DType.U64, 2),
    ir.TensorDecl("d", DType.U64, 3),
    ir.TensorDecl("read", DType.U64, 2),
    ir.TensorDecl("f", DType.F32, 2),
)
_BY_NAME = {tensor.name: tensor for tensor in TENSORS}


@dataclass(frozen=True)
class View:
    """Where a tensor lies in the memory of a case: all in bytes, `base` of its first element."""

    base: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    writeable: bool = True


@dataclass(frozen=True)
class Case:
    """A module without a schedule, and what to bind to its names."""

    module: ir.Module
    bindings: Bindings
    views: dict[str, View]
    memory: int  # bytes

    def bind(self) -> tuple[np.ndarray, dict[str, Any]]:
        """Fresh memory, and values for all names, the tensors being views of that memory."""
        memory = (np.arange(self.memory, dtype=np.uint64) * 0x9E3779B1 >> 7).astype(np.uint8)
        values: dict[str, Any] = dict(self.bindings.extents)
        for name, array in self.bindings.arrays.items():
            values[name] = np.array(array, np.int64)
        for name, view in self.views.items():
            values[name] = array_of(memory, view, _BY_NAME[name].dtype.numpy)
        values["f"][...] = 0.5
        return memory, values


def array_of(memory: np.ndarray, view: View, dtype: np.dtype[Any]) -> np.ndarray:
    array = np.ndarray(view.shape, dtype, memory, view.base, view.strides)
    array.flags.writeable = view.writeable
    return array


@dataclass
class _Loop:
    var: str
    rows: int  # how many lengths a ragged loop inside it needs
    sparse: bool = False


@dataclass
class _Maker:
    """Draws one case; `loops` are those around the current place."""

    draw: st.DrawFn
    only_reads: bool = False
    loops: list[_Loop] = field(default_factory=list)
    arrays: dict[str, list[int]] = field(default_factory=dict)
    slots: list[str] = field(default_factory=list)
    count: int = 0
    room: int = 10  # statements that may still be drawn

    def __post_init__(self) -> None:
        # Each case has only some of the forms: what is rare among all of them is then common in
        # some cases.
        self.starts = self.some(*_STARTS)
        self.dims = self.some(*_DIMS)
        self.sizes = [self.pick(3, 2), *self.some(2, 0, 1, 4)]
        self.kernels = [self.pick(*KERNELS), *self.some(*KERNELS)]
        self.wide = not self.only_reads and self.pick(False, False, True)
        if self.only_reads:
            self.sizes = [2, 0, *self.sizes]
            tensors = [[p for p in k.params if isinstance(p, ir.ParamDecl)] for k in KERNELS]
            self.kernels = [
                k
                for k, params in zip(KERNELS, tensors, strict=True)
                if all(p.mode is ir.Mode.IN for p in params)
            ]
        self.tensors = [*self.some("a", "b", "c"), "d", "read", "f"]
        self.tile = self.pick(2, 3)  # equal sizes: regions that are aligned are whole tiles
        self.repeats = self.pick(False, False, False, True)
        self.shared = self.draw(st.booleans())
        if self.pick(False, False, False, True):  # nearly tiles: one size, in and out of line
            self.starts = self.some("*", "0", "var", "+")
            self.dims = self.some("tile", "some", "strided")
            self.tensors = [self.pick("a", "b"), "d", "f"]
            self.shared = False
        self.extents = {"n": self.size(), "m": self.size()}
        self.arrays["offsets"] = self.draw(
            st.lists(st.integers(0, 3), min_size=ROWS, max_size=ROWS)
        )

    def pick(self, *options: T) -> T:
        return options[self.draw(st.integers(0, len(options) - 1))]

    def some(self, *options: T) -> list[T]:
        return self.draw(st.lists(st.sampled_from(options), min_size=1, max_size=3, unique=True))

    def size(self) -> int:
        """A small extent."""
        return self.pick(*self.sizes)

    # --- expressions: small, never negative ---

    def var(self) -> Expr:
        """A loop variable, mostly of an inner loop, a column, a slot; a number outside of loops."""
        sparse = [loop.var for loop in self.loops if loop.sparse]
        if sparse and self.pick(True, True, False):
            return ir.Column(self.pick(*sparse))
        if self.slots and self.pick(True, False, False):
            return ir.SlotRef(self.pick(*self.slots))
        if not self.loops:
            return Const(self.pick(0, 1, 2))
        if self.wide and self.pick(True, True, False):
            return ir.LoopVar(self.loops[0].var)
        return ir.LoopVar(self.loops[-1 - min(self.pick(0, 0, 1, 2), len(self.loops) - 1)].var)

    def start(self) -> Expr:
        var = self.var()
        match self.pick(*self.starts):
            case "var":
                return var
            case "+":
                return ir.Binary(BinaryOp.ADD, var, Const(self.pick(1, 2)))
            case "0":
                return Const(self.pick(0, 1, 3))
            case "%" | "//" as op:
                return ir.Binary(BinaryOp(op), var, Const(self.pick(2, 3)))
            case "*":
                return ir.Binary(BinaryOp.MUL, var, Const(2))
            case "max":  # runs backwards
                return ir.Binary(BinaryOp.MAX, ir.Binary(BinaryOp.SUB, Const(3), var), Const(0))
            case "load":
                return ir.ArrayLoad("offsets", ir.Binary(BinaryOp.MOD, var, Const(ROWS)))
            case "sum":
                return ir.Binary(BinaryOp.ADD, var, self.var())
            case _:
                return ir.Binary(BinaryOp.MIN, var, ir.SymbolRef(self.pick("n", "m")))

    def condition(self) -> Expr:
        op = self.pick(*sorted(ir.COMPARISONS, key=lambda op: op.value))
        test = ir.Binary(op, self.var(), self.pick(Const(1), Const(2), ir.SymbolRef("n")))
        match self.pick("plain", "plain", "not", "any", "both"):
            case "not":
                return ir.Not(test)
            case "both":
                joined = self.pick(BinaryOp.AND, BinaryOp.OR)
                return ir.Binary(joined, test, ir.Binary(BinaryOp.NE, self.var(), Const(0)))
            case "any":
                load = ir.ArrayLoad("offsets", ir.BoundVar(0))
                hit = ir.Binary(BinaryOp.EQ, load, self.var())
                return ir.Reduce(ir.ReduceOp.ANY, 0, Const(0), Const(3), hit)
            case _:
                return test

    # --- statements ---

    def body(self, depth: int) -> ir.Body:
        known = len(self.slots)
        body = tuple(self.stmt(depth) for _ in range(self.pick(1, 2, 1) if self.room > 0 else 1))
        del self.slots[known:]
        return body

    def stmt(self, depth: int) -> ir.Stmt:
        self.room -= 1
        if depth == 0 or self.room < 0:
            return self.call()
        kinds = ("loop", "loop", "sequential", "combine", "when", "set", "while", "call")
        match self.pick(*kinds[: -1 if depth == MAX_DEPTH else None]):
            case "when":
                otherwise = self.body(depth - 1) if self.pick(True, False) else ()
                return ir.Cond(self.condition(), self.body(depth - 1), otherwise)
            case "set":
                return self.set_slot()
            case "while":
                return self.repeat(depth - 1)
            case "loop":
                return self.loop(depth - 1)
            case "call":
                return self.call()
            case "combine":
                return ir.Combine(self.parts(depth - 1))
            case _:
                return ir.Sequential(self.parts(depth - 1))

    def set_slot(self) -> ir.SlotSet:
        value = ir.Binary(BinaryOp.MIN, self.start(), Const(3))
        if self.slots and self.pick(True, False):
            return ir.SlotSet(self.pick(*self.slots), value)
        self.count += 1
        self.slots.append(f"slot{self.count}")
        return ir.SlotSet(self.slots[-1], value)

    def repeat(self, depth: int) -> ir.While:
        self.count += 1
        var, rounds = f"w{self.count}", self.pick(1, 2, 3)
        below = ir.Binary(BinaryOp.LT, ir.LoopVar(var), Const(rounds))
        condition = ir.Binary(BinaryOp.AND, below, self.condition())
        self.loops.append(_Loop(var, ROWS))
        body = self.body(depth)
        self.loops.pop()
        return ir.While(var, var, self.pick(below, condition), Const(rounds), body)

    def parts(self, depth: int) -> tuple[ir.Body, ...]:
        return tuple(self.body(depth) for _ in range(self.pick(2, 3) if self.room > 0 else 1))

    def loop(self, depth: int) -> ir.Loop:
        self.count += 1
        var = f"i{self.count}"
        start: Expr = Const(0)
        lengths = parent = indices = tile = None
        kind = self.pick(*ir.AxisKind)
        if kind in (ir.AxisKind.RAGGED, ir.AxisKind.SPARSE) and not self.loops:
            kind = ir.AxisKind.DENSE_DYN
        order = self.pick(*ir.Order)
        match kind:
            case ir.AxisKind.DENSE:
                extent: Expr = Const(self.size())
            case ir.AxisKind.DENSE_DYN:
                extent = ir.SymbolRef(self.pick("n", "m"))
            case ir.AxisKind.RAGGED:
                outer = self.pick(*self.loops)
                lengths, parent = f"lens{self.count}", outer.var
                row = st.sampled_from([min(size, 3) for size in (*self.sizes, 0, 2)])
                self.arrays[lengths] = self.draw(
                    st.lists(row, min_size=outer.rows, max_size=outer.rows)
                )
                extent = ir.ArrayLoad(lengths, ir.LoopVar(parent))
            case ir.AxisKind.SPARSE:
                outer = self.pick(*self.loops)
                lengths, indices, parent = f"ptr{self.count}", f"col{self.count}", outer.var
                rows = self.draw(
                    st.lists(st.integers(0, 2), min_size=outer.rows, max_size=outer.rows)
                )
                self.arrays[lengths] = [sum(rows[:k]) for k in range(outer.rows + 1)]
                columns = st.lists(st.integers(0, 4), min_size=sum(rows), max_size=sum(rows))
                self.arrays[indices] = self.draw(columns)
                row, order = ir.LoopVar(parent), ir.Order.PARALLEL
                end = ir.ArrayLoad(lengths, ir.Binary(BinaryOp.ADD, row, Const(1)))
                extent = ir.Binary(BinaryOp.SUB, end, ir.ArrayLoad(lengths, row))
            case ir.AxisKind.TILED:
                tile = Const(self.tile)
                whole = ir.Binary(BinaryOp.ADD, ir.SymbolRef("n"), Const(self.tile - 1))
                extent = ir.Binary(BinaryOp.FLOORDIV, whole, tile)
            case ir.AxisKind.EXPR:
                start = Const(self.pick(0, 1, 2))
                extent = ir.Binary(BinaryOp.MIN, self.start(), Const(3))
        self.loops.append(_Loop(var, self.rows(start, extent), indices is not None))
        body = self.body(depth)
        self.loops.pop()
        return ir.Loop(
            *(var, var, kind, order, start, extent, body, lengths, parent, None, indices, tile)
        )

    def wide_loop(self) -> ir.Loop:
        """A parallel loop that is the whole program, with as many iterations as workers could
        share; where they are independent, the core need not track anything."""
        count = self.draw(st.integers(8, 16))
        self.room = self.pick(1, 2, 4)
        self.loops.append(_Loop("w", count))
        body = self.body(2)
        kind, order = ir.AxisKind.DENSE, ir.Order.PARALLEL
        return ir.Loop("w", "w", kind, order, Const(0), Const(count), body)

    def rows(self, start: Expr, extent: Expr) -> int:
        """One past the last index; where that depends on outer loops, enough for every case."""
        bound = Bindings(self.extents, self.arrays)
        try:
            return evaluate(start, bound, {}) + evaluate(extent, bound, {})
        except KeyError:
            return ROWS

    def call(self) -> ir.Call:
        kernel = self.pick(*self.kernels)
        args = tuple(self.argument(param) for param in ir.given_params(kernel))
        return ir.Call(kernel.name, tuple(ir.LoopVar(loop.var) for loop in self.loops), args)

    def argument(self, param: ir.ParamDecl | ir.ScalarDecl) -> ir.Argument:
        if isinstance(param, ir.ParamDecl):
            return self.region(param)
        return self.condition() if param.dtype is DType.BOOL else self.start()

    def region(self, param: ir.ParamDecl) -> ir.Region:
        fits = [
            tensor
            for tensor in TENSORS
            if tensor.name in self.tensors
            and tensor.dtype is param.dtype
            and tensor.rank >= param.rank
            and (tensor.name != "read" or param.mode is ir.Mode.IN)
        ]
        tensor = self.pick(*fits)
        turn = self.pick(*range(tensor.rank))
        dropped = {(turn + d) % tensor.rank for d in range(tensor.rank - param.rank)}
        dims = (self.dim(tensor, d, d in dropped) for d in range(tensor.rank))
        return ir.Region(tensor.name, tuple(dims))

    def dim(self, tensor: ir.TensorDecl, d: int, dropped: bool) -> ir.DimSlice:
        if dropped:
            return ir.DimSlice(self.start(), Const(1), Const(1), dropped=True)
        whole = ir.ShapeOf(tensor.name, d)
        match self.pick(*self.dims):
            case "one":
                return ir.DimSlice(self.start(), Const(1), Const(1))
            case "some":
                return ir.DimSlice(self.start(), Const(self.tile), Const(1))
            case "whole":
                return ir.DimSlice(Const(0), whole, Const(1))
            case "strided":
                return ir.DimSlice(self.start(), Const(self.tile), Const(self.pick(2, 3)))
            case "tile":
                start = ir.Binary(BinaryOp.MUL, self.var(), Const(self.tile))
                return ir.DimSlice(start, Const(self.tile), Const(1))
            case "halved":
                half = ir.Binary(BinaryOp.FLOORDIV, whole, Const(2))
                return ir.DimSlice(Const(self.pick(0, 1)), half, Const(2))
            case "triangle":
                step = ir.Binary(BinaryOp.ADD, self.var(), Const(1))
                return ir.DimSlice(self.start(), self.var(), step)
            case _:
                return ir.DimSlice(
                    ir.Binary(BinaryOp.ADD, self.start(), Const(90)), Const(0), Const(1)
                )

    # --- values ---

    def case(self) -> Case:
        if self.wide:
            body = (self.wide_loop(),)
        else:
            body = tuple(self.stmt(MAX_DEPTH) for _ in range(self.pick(1, 2, 3)))
        extent = ir.SymbolKind.EXTENT
        symbols = (
            *(ir.SymbolDecl(name, extent) for name in self.extents),
            *(ir.SymbolDecl(name, ir.SymbolKind.ARRAY) for name in self.arrays),
        )
        module = ir.Module("random", symbols, TENSORS, KERNELS, body)
        shapes = self.shapes(module)
        views, memory = self.layout(shapes)
        return Case(module, Bindings(self.extents, self.arrays, shapes), views, memory)

    def shapes(self, module: ir.Module) -> dict[str, list[int]]:
        """The smallest shapes that hold all regions, and sometimes a bit more."""
        shapes = {t.name: [0] * t.rank for t in TENSORS}
        bound = Bindings(self.extents, self.arrays, {name: list(s) for name, s in shapes.items()})
        for number, task in enumerate(tasks(module.body, bound)):
            if number == MAX_TASKS:
                reject()
            for tensor, dims in task.regions:
                for d, (start, extent, step) in enumerate(dims):
                    if extent > 0:
                        last = start + (extent - 1) * step
                        shapes[tensor][d] = max(shapes[tensor][d], last + 1)
        slack = self.pick(lambda rank: 0, lambda rank: 1, lambda rank: 36 // rank**2)
        return {
            name: [extent + slack(len(shape)) for extent in shape] for name, shape in shapes.items()
        }

    def layout(self, shapes: dict[str, list[int]]) -> tuple[dict[str, View], int]:
        """Places for the tensors: in one pool, where they overlap, or each for itself."""
        views: dict[str, View] = {}
        end = 0
        for tensor in TENSORS:
            shape, item = tuple(shapes[tensor.name]), tensor.dtype.size
            strides = self.strides(shape, may_repeat=self.repeats or tensor.name == "read")
            reaches = [(n - 1) * stride for n, stride in zip(shape, strides, strict=True) if n]
            low, high = sum(min(r, 0) for r in reaches), sum(max(r, 0) for r in reaches)
            together = self.shared and self.pick(True, True, False)
            first = self.pick(0, 1, 5, end // item // 2) if together else -(-end // item)
            writeable = tensor.name != "read" or self.draw(st.booleans())
            strides = tuple(stride * item for stride in strides)
            views[tensor.name] = View((first - low) * item, shape, strides, writeable)
            end = max(end, (first - low + high + 1) * item)
        return views, -(-end // 8) * 8

    def strides(self, shape: tuple[int, ...], *, may_repeat: bool) -> tuple[int, ...]:
        """In elements: packed or with gaps, of any order of dimensions, backwards or not; with
        `may_repeat` also views in which elements meet one another."""
        strides = [0] * len(shape)
        packed = 1
        for d in self.draw(st.permutations(range(len(shape)))):
            strides[d] = packed * self.pick(1, 1, 2)
            packed = max(packed, strides[d] * max(shape[d], 1))
            if may_repeat:
                strides[d] = self.pick(strides[d], 0, 1)
            strides[d] *= self.pick(1, 1, -1)
        return tuple(strides)


@st.composite
def cases(draw: st.DrawFn, *, only_reads: bool = False) -> Case:
    """Nests up to four loops deep; at most 300 tasks. Those that only read are ordered by nothing
    but P.seq and sequential."""
    return _Maker(draw, only_reads).case()


def pick_from(*options: T) -> st.SearchStrategy[T]:
    return st.sampled_from(options)
