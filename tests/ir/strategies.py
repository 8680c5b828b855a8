"""Random modules for property tests.

`cases()` gives well-formed modules with bindings under which every region lies inside its tensor;
`wild_modules()` gives modules that need not make any sense.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from hypothesis import strategies as st

from pto_wsp import ir
from pto_wsp.dtypes import DType
from pto_wsp.ir import BinaryOp, Const, Expr
from pto_wsp.srcloc import SrcLoc
from tests.ir.interpreter import Bindings, tasks

T = TypeVar("T")

MAX_DEPTH = 4
ARRAY_LENGTH = 64

# Names that the text form must quote or keep apart, and ordinary ones.
NAMES = (
    *("n", "m", "i", "j", "k", "rows", "cols", "tile", "A", "B", "C", "q_proj", "x1", "_", "größe"),
    *(
        "at",
        "layout",
        "R",
        "S",
        "row_major",
        "min",
        "max",
        "in",
        "body",
        "sequential",
        "none",
        "drop",
        "module",
        "shape",
        "extent",
        "f32",
    ),
    *("a b", "wave.cell", "1st", "-", '"', "\\", "\n", "#", "0", "tab\t", "\u2028", "λ λ", "\x7f"),
)

locs = st.none() | st.builds(
    SrcLoc,
    st.sampled_from(["wave.py", "dir/a b.py", 'quote".py', "é\n.py"]),
    st.integers(1, 10**6),
    st.integers(0, 200),
    st.integers(0, 200),
)

directives = st.one_of(
    st.builds(lambda p: ir.Directive("DEPS", (p,)), st.integers(0, 4)),
    st.builds(lambda p: ir.Directive("READY", (p,)), st.integers(0, 2)),
    st.builds(lambda n: ir.Directive("START", (2, n)), st.integers(0, 100)),
    st.builds(lambda n: ir.Directive("WINDOW", (n, 0, 0)), st.integers(1, 1 << 20)),
)


def _layouts(rank: int) -> tuple[ir.TensorLayout | None, ...]:
    """Layouts of which any two join: one mesh axis for each place, counted from the last one."""
    shards = tuple(ir.TensorShard(axis) for axis in reversed(range(rank)))
    replicated = (ir.TensorReplicate(),) * rank
    mixed = (*replicated[:-1], *shards[-1:])
    rows = ir.MemLayout.row_major()
    dims = (shards, replicated, mixed)
    return (None, *map(ir.TensorLayout, dims), ir.TensorLayout(mixed, rows))


_SCALARS = (
    ir.ScalarDecl("s", DType.I64),
    ir.ConstexprDecl("c", DType.F64, 1.5),
    ir.ScalarDecl("t", DType.BOOL),
    ir.ConstexprDecl("k", DType.I64, -3),
    ir.ScalarDecl("u", DType.F32),
)


@dataclass(frozen=True)
class Case:
    """A well-formed module and something to run it with."""

    module: ir.Module
    bindings: Bindings


@dataclass
class _Maker:
    """Draws one module; the variables of the loops around the current place are in `loops`."""

    draw: st.DrawFn
    names: list[str]
    loops: list[str] = field(default_factory=list)
    sparse: list[str] = field(default_factory=list)  # loops that have a column
    slots: list[str] = field(default_factory=list)
    kernels: dict[tuple[ir.AnyParam, ...], ir.KernelDecl] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.extents = [self.name(), self.name()]
        self.lengths, self.offsets = self.name(), self.name()
        self.indptr, self.columns = self.name(), self.name()
        # Regions never lie in the first tensor, so that its shape can be chosen beforehand.
        self.shaped = self.name()
        self.tensors = [
            ir.TensorDecl(
                *(self.name(), dtype, rank, self.draw(locs)),
                location=self.pick(ir.Location.Global, ir.Location.L2),
                layout=self.pick(*_layouts(rank)),
            )
            for dtype, rank in ((DType.F32, 1), (DType.F32, 2), (DType.I32, 3), (DType.F64, 0))
        ]

    def name(self) -> str:
        """A name that nothing else has; plain ones when the supply runs out."""
        if self.names and self.often():
            return self.names.pop(self.draw(st.integers(0, len(self.names) - 1)))
        self.count = getattr(self, "count", 0) + 1
        return f"name{self.count}"

    def pick(self, *options: T) -> T:
        return options[self.draw(st.integers(0, len(options) - 1))]

    def make(self, *makers: Callable[[], T]) -> T:
        """What one of the makers makes; the others draw nothing."""
        return self.pick(*makers)()

    def often(self) -> bool:
        return self.draw(st.integers(0, 3)) < 3

    def const(self, low: int, high: int) -> Const:
        return Const(self.draw(st.integers(low, high)))

    # --- expressions; all values are small and not negative ---

    def atom(self) -> Expr:
        if self.sparse and self.draw(st.booleans()):
            return ir.Column(self.pick(*self.sparse))
        if self.slots and self.draw(st.booleans()):
            return ir.SlotRef(self.pick(*self.slots))
        if self.loops and self.often():
            return ir.LoopVar(self.pick(*self.loops))
        return self.make(
            lambda: self.const(0, 3),
            lambda: ir.SymbolRef(self.pick(*self.extents)),
            lambda: ir.ShapeOf(self.shaped, self.pick(0, 1)),
        )

    def expr(self, depth: int = 2) -> Expr:
        if depth == 0 or self.draw(st.booleans()):
            return self.atom()
        lhs = self.expr(depth - 1)
        match self.pick("+", "-", "*", "//", "%", "min", "max", "load", "select", "reduce"):
            case "select":
                return ir.Select(self.condition(depth - 1), lhs, self.expr(depth - 1))
            case "reduce":
                return self.reduction(lhs)
            case "-":
                rhs = self.expr(depth - 1)
                return ir.Binary(BinaryOp.MAX, ir.Binary(BinaryOp.SUB, lhs, rhs), Const(0))
            case "*":
                return self.swapped(BinaryOp.MUL, lhs, self.const(0, 2))
            case "//" | "%" as op:
                return ir.Binary(BinaryOp(op), lhs, self.const(1, 3))
            case "load":
                return self.load(lhs)
            case op:
                return self.swapped(BinaryOp(op), lhs, self.expr(depth - 1))

    def reduction(self, lhs: Expr) -> Expr:
        """Over a short range; its variable stands inside the body only."""
        x = ir.BoundVar(0)
        short = ir.Binary(BinaryOp.MIN, self.atom(), Const(3))
        match self.pick("sum", "largest", "any", "search"):
            case "sum":
                body = ir.Binary(BinaryOp.ADD, x, self.atom())
                total = ir.Reduce(ir.ReduceOp.SUM, 0, Const(0), short, body)
                return ir.Binary(BinaryOp.MIN, total, Const(4))
            case "largest":
                most = ir.Reduce(ir.ReduceOp.MAX, 0, Const(0), short, self.load(x))
                return ir.Binary(BinaryOp.MAX, most, Const(0))
            case "any":
                test = ir.Binary(BinaryOp.EQ, self.load(x), Const(2))
                either = ir.Reduce(
                    self.pick(ir.ReduceOp.ANY, ir.ReduceOp.ALL), 0, Const(0), short, test
                )
                return ir.Select(either, Const(1), self.atom())
            case _:
                return ir.Search(0, Const(0), short, ir.Binary(BinaryOp.GE, x, self.atom()))

    def condition(self, depth: int = 1) -> Expr:
        match self.pick("compare", "compare", "and", "not") if depth > 0 else "compare":
            case "and":
                op = self.pick(BinaryOp.AND, BinaryOp.OR)
                return ir.Binary(op, self.condition(depth - 1), self.condition(depth - 1))
            case "not":
                return ir.Not(self.condition(depth - 1))
            case _:
                op = self.pick(*sorted(ir.COMPARISONS, key=lambda op: op.value))
                return ir.Binary(op, self.expr(depth), self.atom())

    def swapped(self, op: BinaryOp, lhs: Expr, rhs: Expr) -> Expr:
        return ir.Binary(op, lhs, rhs) if self.draw(st.booleans()) else ir.Binary(op, rhs, lhs)

    def load(self, index: Expr) -> Expr:
        inside = ir.Binary(BinaryOp.MOD, index, Const(ARRAY_LENGTH))
        return ir.ArrayLoad(self.offsets, inside)

    # --- statements ---

    def body(self, depth: int, smallest: int = 0) -> ir.Body:
        size = self.pick(1, 2) if smallest or self.often() or self.often() else 0
        known = len(self.slots)
        body = tuple(self.stmt(depth) for _ in range(size))
        del self.slots[known:]
        return body

    def size(self) -> int:
        """A small extent, seldom 0."""
        return self.pick(2, 3, 2, 1, 3, 2, 1, 0)

    def stmt(self, depth: int) -> ir.Stmt:
        if depth == 0:
            return self.call()
        match self.pick(
            "loop", "loop", "loop", "call", "combine", "sequential", "when", "set", "while"
        ):
            case "when":
                then = self.body(depth - 1, smallest=1)
                other = self.body(depth - 1)
                return ir.Cond(self.condition(), then, other, self.draw(locs))
            case "set":
                return self.set_slot()
            case "while":
                return self.repeat(depth - 1)
            case "loop":
                return self.loop(depth - 1)
            case "call":
                return self.call()
            case "combine":
                return ir.Combine(self.parts(depth - 1), self.draw(locs))
            case _:
                return ir.Sequential(self.parts(depth - 1), self.draw(locs))

    def set_slot(self) -> ir.SlotSet:
        value = ir.Binary(BinaryOp.MIN, self.expr(), Const(3))
        slot = self.pick(*self.slots) if self.slots and self.draw(st.booleans()) else self.name()
        if slot not in self.slots:
            self.slots.append(slot)
        return ir.SlotSet(slot, value, self.draw(locs))

    def repeat(self, depth: int) -> ir.While:
        var = self.name()
        below = ir.Binary(BinaryOp.LT, ir.LoopVar(var), Const(self.size()))
        condition = self.pick(below, ir.Binary(BinaryOp.AND, below, self.condition()))
        limit = ir.Binary(BinaryOp.ADD, self.atom(), Const(4))
        self.loops.append(var)
        body = self.body(depth)
        self.loops.pop()
        return ir.While(var, self.pick(var, "loop"), condition, limit, body, self.draw(locs))

    def parts(self, depth: int) -> tuple[ir.Body, ...]:
        return tuple(self.body(depth, smallest=1) for _ in range(self.pick(1, 2, 3)))

    def loop(self, depth: int) -> ir.Loop:
        rows = (ir.AxisKind.RAGGED, ir.AxisKind.SPARSE)
        kinds = [k for k in ir.AxisKind if self.loops or k not in rows]
        kind = self.pick(*kinds)
        start: Expr = Const(0) if self.often() else self.const(0, 2)
        lengths = parent = indices = tile = None
        order = self.pick(*ir.Order)
        match kind:
            case ir.AxisKind.DENSE:
                extent: Expr = Const(self.size())
            case ir.AxisKind.DENSE_DYN:
                symbol = ir.SymbolRef(self.pick(*self.extents))
                extent = self.pick(symbol, ir.Binary(BinaryOp.MIN, symbol, Const(2)))
            case ir.AxisKind.RAGGED:
                lengths, parent = self.lengths, self.pick(*self.loops)
                extent = ir.ArrayLoad(lengths, ir.LoopVar(parent))
            case ir.AxisKind.SPARSE:
                lengths, indices, parent = self.indptr, self.columns, self.pick(*self.loops)
                row, start, order = ir.LoopVar(parent), Const(0), ir.Order.PARALLEL
                end = ir.ArrayLoad(lengths, ir.Binary(BinaryOp.ADD, row, Const(1)))
                extent = ir.Binary(BinaryOp.SUB, end, ir.ArrayLoad(lengths, row))
            case ir.AxisKind.TILED:
                tile = self.const(1, 3)
                whole = ir.Binary(BinaryOp.ADD, ir.SymbolRef(self.pick(*self.extents)), tile)
                extent = ir.Binary(
                    BinaryOp.FLOORDIV, ir.Binary(BinaryOp.SUB, whole, Const(1)), tile
                )
            case ir.AxisKind.EXPR:
                start = self.atom()
                length = self.expr()
                if self.often():
                    length = ir.Binary(BinaryOp.ADD, length, Const(1))
                extent = ir.Binary(BinaryOp.MIN, length, Const(3))
        var = self.name()
        axis = self.pick(var, "axis", "in")
        self.loops.append(var)
        if indices is not None:
            self.sparse.append(var)
        body = self.body(depth)
        self.loops.pop()
        if indices is not None:
            self.sparse.pop()
        loc, padded = self.draw(locs), tile is not None and self.draw(st.booleans())
        return ir.Loop(
            *(var, axis, kind, order, start, extent, body, lengths, parent, loc),
            *(indices, tile, padded),
        )

    def call(self) -> ir.Call:
        count = self.pick(1, 2, 3, 0)
        regions = tuple(self.region(self.pick(*self.tensors)) for _ in range(count))
        params: tuple[ir.AnyParam, ...] = tuple(
            self.param(f"p{number}", region) for number, region in enumerate(regions)
        )
        args: tuple[ir.Argument, ...] = regions
        if self.draw(st.booleans()):
            params = (*params, *self.pick(_SCALARS, _SCALARS[:1], _SCALARS[1:]))
            args = (*args, *self.scalars(params))
        if params not in self.kernels:
            self.kernels[params] = self.kernel(params)
        indices = self.make(
            lambda: tuple(ir.LoopVar(v) for v in self.loops),
            lambda: tuple(self.expr(1) for _ in range(self.pick(0, 1, 2))),
        )
        fields: tuple[tuple[str, Expr], ...] = ()
        stage = None
        if self.pick(False, False, False, True):
            values = (Const(3), *(ir.LoopVar(v) for v in self.loops))
            fields = (("tier", Const(1)), ("start", self.pick(*values)))
            stage = self.pick(None, "prefill", "stage")
        name, loc = self.kernels[params].name, self.draw(locs)
        return ir.Call(name, indices, args, loc, fields=fields, stage=stage)

    def scalars(self, params: tuple[ir.AnyParam, ...]) -> tuple[Expr, ...]:
        values = {
            DType.I64: self.expr,
            DType.BOOL: self.condition,
            DType.F32: lambda: ir.FloatConst(ir.float_bits(self.pick(0.5, -1.5))),
        }
        return tuple(values[p.dtype]() for p in params if isinstance(p, ir.ScalarDecl))

    def region(self, tensor: ir.TensorDecl) -> ir.Region:
        dims = tuple(self.dim() for _ in range(tensor.rank))
        return ir.Region(tensor.name, dims, self.pick(None, None, *_layouts(tensor.rank)))

    def dim(self) -> ir.DimSlice:
        start = self.expr()
        if self.draw(st.booleans()):
            return ir.DimSlice(start, Const(1), Const(1), dropped=True)
        extent = self.make(lambda: self.const(0, 3), self.atom)
        step = self.make(
            lambda: Const(1),
            lambda: self.const(1, 3),
            lambda: ir.Binary(BinaryOp.ADD, self.atom(), Const(1)),
        )
        return ir.DimSlice(start, extent, step)

    def param(self, name: str, region: ir.Region) -> ir.ParamDecl:
        dtype = next(t.dtype for t in self.tensors if t.name == region.tensor)
        rank = sum(not d.dropped for d in region.dims)
        return ir.ParamDecl(name, self.pick(*ir.Mode), dtype, rank)

    def kernel(self, params: tuple[ir.AnyParam, ...]) -> ir.KernelDecl:
        name, loc, unit = self.name(), self.draw(locs), self.pick(*ir.ExecUnit)
        if self.draw(st.booleans()):
            source = f"module.{name}"
            return ir.KernelDecl(name, params, ir.BodyForm.PYTHON, source, (), loc, unit)
        source = self.pick("", "p0[0] = 1;", 'int x = 0;\nthrow "no";\n', "\n\n// λ\t\\\n")
        includes = self.pick((), ("<cmath>", '"mine.h"'))
        return ir.KernelDecl(name, params, ir.BodyForm.CPP, source, includes, loc, unit)

    # --- the whole ---

    def case(self) -> Case:
        body = self.body(MAX_DEPTH, smallest=1)
        defaults = [self.draw(st.none() | st.integers(0, 100)) for _ in self.extents]
        symbols = (
            *(
                ir.SymbolDecl(name, ir.SymbolKind.EXTENT, DType.I64, default, self.draw(locs))
                for name, default in zip(self.extents, defaults, strict=True)
            ),
            ir.SymbolDecl(self.lengths, ir.SymbolKind.ARRAY, self.pick(DType.I32, DType.I64)),
            ir.SymbolDecl(self.offsets, ir.SymbolKind.ARRAY, self.pick(DType.U8, DType.I64)),
            ir.SymbolDecl(self.indptr, ir.SymbolKind.ARRAY),
            ir.SymbolDecl(self.columns, ir.SymbolKind.ARRAY, DType.I16),
        )
        module = ir.Module(
            self.name(),
            symbols,
            (ir.TensorDecl(self.shaped, DType.F16, 2), *self.tensors),
            tuple(self.kernels.values()),
            body,
            tuple(self.draw(st.lists(directives, max_size=2, unique_by=lambda d: d.name))),
        )
        return Case(module, self.bindings(module))

    def bindings(self, module: ir.Module) -> Bindings:
        extents = {name: self.size() for name in self.extents}
        pattern = st.lists(st.sampled_from([2, 1, 3, 0]), min_size=8, max_size=8)
        arrays = {
            self.lengths: self.draw(pattern) * (ARRAY_LENGTH // 8),
            self.offsets: self.draw(pattern) * (ARRAY_LENGTH // 8),
            self.columns: self.draw(pattern) * (2 * ARRAY_LENGTH // 8),
        }
        rows = self.draw(pattern)
        arrays[self.indptr] = [0]
        for row in range(ARRAY_LENGTH):
            arrays[self.indptr].append(min(arrays[self.indptr][-1] + rows[row % 8], 120))
        shaped = {self.shaped: (self.size(), self.size())}
        bound = Bindings(extents, arrays, shaped)
        shapes = {t.name: [0] * t.rank for t in self.tensors}
        for task in tasks(module.body, bound):
            for tensor, dims in task.regions:
                for d, (start, extent, step) in enumerate(dims):
                    end = start + max(extent - 1, 0) * step + 1
                    shapes[tensor][d] = max(shapes[tensor][d], end)
        return replace(bound, shapes={**shaped, **shapes})


@st.composite
def cases(draw: st.DrawFn, *, plain_names: bool = False) -> Case:
    """Nests up to four loops deep, with every kind of axis, region and block."""
    return _Maker(draw, [] if plain_names else list(NAMES)).case()


# --- modules that need not make sense ---

any_names = st.sampled_from(NAMES) | st.text(max_size=6)
any_ints = st.integers(-5, 5) | st.integers()
any_exprs: st.SearchStrategy[Expr] = st.recursive(
    st.one_of(
        st.builds(Const, any_ints),
        st.builds(ir.LoopVar, any_names),
        st.builds(ir.SymbolRef, any_names),
        st.builds(ir.ShapeOf, any_names, any_ints),
        st.builds(ir.Column, any_names),
        st.builds(ir.SlotRef, any_names),
        st.builds(ir.BoundVar, any_ints),
        st.builds(ir.FloatConst, st.integers(0, 2**64 - 1)),
    ),
    lambda inner: st.one_of(
        st.builds(ir.ArrayLoad, any_names, inner, st.none() | inner),
        st.builds(ir.Binary, st.sampled_from(BinaryOp), inner, inner),
        st.builds(ir.Not, inner),
        st.builds(ir.Select, inner, inner, inner),
        st.builds(ir.Reduce, st.sampled_from(ir.ReduceOp), any_ints, inner, inner, inner),
        st.builds(ir.Search, any_ints, inner, inner, inner),
    ),
    max_leaves=8,
)
any_shapes = st.lists(any_exprs, max_size=2).map(tuple)
any_dims = st.builds(ir.DimSlice, any_exprs, any_exprs, any_exprs, st.booleans())


@st.composite
def any_layouts(draw: st.DrawFn) -> ir.TensorLayout:
    axes = draw(st.lists(st.none() | st.integers(0, 7), max_size=4))
    axes = [None if axis in axes[:place] else axis for place, axis in enumerate(axes)]
    dims = tuple(ir.TensorReplicate() if a is None else ir.TensorShard(a) for a in axes)
    strides = tuple(draw(st.integers(-5, 5)) for _ in dims)
    strided = ir.MemLayout.strided(*strides)
    orders = [None, ir.MemLayout.row_major(), ir.MemLayout.col_major(), strided]
    return ir.TensorLayout(dims, draw(st.sampled_from(orders)))


any_locations = st.sampled_from(ir.Location)
any_regions = st.builds(
    ir.Region,
    any_names,
    st.lists(any_dims, max_size=2).map(tuple),
    st.none() | any_layouts(),
)
_any_call = st.one_of(
    st.builds(
        ir.Call,
        any_names,
        st.lists(any_exprs, max_size=2).map(tuple),
        st.lists(any_regions | any_exprs, max_size=2).map(tuple),
        locs,
        st.none() | any_names,
        st.lists(
            st.builds(ir.After, any_names, st.lists(any_exprs, max_size=2).map(tuple)), max_size=2
        ).map(tuple),
    ),
    st.builds(ir.SlotSet, any_names, any_exprs, locs),
    st.builds(ir.SlotLoad, any_names, any_regions, locs),
    st.builds(ir.Alloc, any_names, any_shapes, locs),
)


@st.composite
def _calls(draw: st.DrawFn) -> ir.Stmt:
    """Composite, because its name is short when the strategies made of it are printed."""
    return draw(_any_call)


any_calls = _calls()


def _any_compound(body: st.SearchStrategy[ir.Body]) -> st.SearchStrategy[ir.Body]:
    parts = st.lists(body, max_size=3).map(tuple)
    loop = st.builds(
        ir.Loop,
        any_names,
        any_names,
        st.sampled_from(ir.AxisKind),
        st.sampled_from(ir.Order),
        any_exprs,
        any_exprs,
        body,
        st.none() | any_names,
        st.none() | any_names,
        locs,
        st.none() | any_names,
        st.none() | any_exprs,
        st.booleans(),
    )
    loop |= st.builds(ir.While, any_names, any_names, any_exprs, any_exprs, body, locs)
    loop |= st.builds(ir.Cond, any_exprs, body, body, locs)
    stmt = loop | st.builds(ir.Combine, parts, locs) | st.builds(ir.Sequential, parts, locs)
    return st.lists(stmt | any_calls, max_size=3).map(tuple)


any_bodies = st.recursive(st.lists(any_calls, max_size=2).map(tuple), _any_compound, max_leaves=4)
any_dtypes = st.sampled_from(DType)
any_ranks = st.integers(-2, 10)


def wild_modules() -> st.SearchStrategy[ir.Module]:
    """Modules of the right types and nothing more."""
    symbol = st.builds(
        ir.SymbolDecl,
        any_names,
        st.sampled_from(ir.SymbolKind),
        any_dtypes,
        st.none() | any_ints | st.floats(allow_nan=False),
        locs,
        any_ranks,
    )
    tensor = st.builds(
        ir.TensorDecl,
        any_names,
        any_dtypes,
        any_ranks,
        locs,
        st.sampled_from(ir.TensorKind),
        any_shapes,
        st.none() | st.builds(ir.Pages, any_names, any_names, st.none() | any_ints),
        any_locations,
        st.none() | any_layouts(),
        st.none(),
        st.lists(st.none() | any_ints, max_size=3).map(tuple),
    )
    sizes = st.none() | st.lists(any_ints, max_size=2).map(tuple)
    param = st.one_of(
        st.builds(
            ir.ParamDecl,
            any_names,
            st.sampled_from(ir.Mode),
            any_dtypes,
            any_ranks,
            sizes,
            st.sampled_from(ir.ViewKind),
            st.none() | any_locations,
        ),
        st.builds(ir.ScalarDecl, any_names, any_dtypes),
        st.builds(ir.ConstexprDecl, any_names, any_dtypes, any_ints | st.floats(allow_nan=False)),
    )
    kernel = st.builds(
        ir.KernelDecl,
        any_names,
        st.lists(param, max_size=2).map(tuple),
        st.sampled_from(ir.BodyForm),
        st.text(),
        st.lists(st.text(), max_size=2).map(tuple),
        locs,
        st.sampled_from(ir.ExecUnit),
    )
    args = st.lists(st.none() | any_ints | st.text(), max_size=3).map(tuple)
    return st.builds(
        ir.Module,
        any_names,
        st.lists(symbol, max_size=2).map(tuple),
        st.lists(tensor, max_size=3).map(tuple),
        st.lists(kernel, max_size=2).map(tuple),
        any_bodies,
        st.lists(st.builds(ir.Directive, any_names, args, locs), max_size=2).map(tuple),
    )
