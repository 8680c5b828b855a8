"""Prints a module in its text form, which `parse` reads back.

    module wave

    symbol rows: extent = 8
    symbol lens: array i32
    tensor X: f32[:, :] fixed (none, 64)
    temp T: f32[:]
    token G: bool[:] of (rows)
    paged K: f32[:, :, :] in (pool, table, 16)
    tensor W: f32[:, :] at l2 layout [S(0), R] in row_major
    channel c: f32[:, :] of (16, 64) depth 2 initial 1 latency 5
    kernel cell(up: in f32[], out: out f32[]) python "wave.cell"

    body {
      parallel i in rows: dense_dyn 0:+rows {
        sequential t in tokens: ragged(lens, i) 0:+lens[i] {
          when t > 0 {
            cell[i, t](up = X[i, t], out = X[i, t + 1], s = value t * 2)
          } otherwise {
          }
        }
      }
    }

    schedule {
      WINDOW(8192, 0, 0)
      DISPATCH(2, key task(rows) % 4)
    }

`0:+rows` is a start and an extent, in loops and in regions; a third part is a step other than 1. A
dimension the kernel does not see stands as its start alone. `combine { } and { }` and `sequential
{ } then { }` hold branches and steps. A bare name in an expression is the enclosing loop variable
of that name, else a symbol; `$name` is a symbol that a loop variable hides, `?name` a loop variable
that no loop binds. `column(i)` is the column of a sparse loop, `slot(n)` the value that `set n = 1`
or `load n = X[i]` gave, `var(0)` the variable of the outermost `reduce` or `search` around, and
`float(bits)` a floating-point constant by its bits. `alloc T(n)` makes a temporary of that shape.
`kernel k() on cube cpp "..."` is for that kind of core. `at ub` is a location; `layout [S(0), R]`
says of each dimension whether it is sharded along a mesh axis or replicated, and behind a region
that the tensor counts as laid out so there.
`send c { k(...) }` passes the message that the call writes, `consume c as m { }` stands for each
message with its number m, `receive c` for one, `close c` for no more. `network { process p { } }`
holds processes, of which `process p each { }` is several alike.
`@ "file":line:col-end` is a source position, `#` starts a comment.

The form is total: a module that `verify` refuses prints and parses back too, so that it can be
shown and looked at.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import assert_never

from pto_wsp.dtypes import DType
from pto_wsp.ir.layout import Location, TensorLayout
from pto_wsp.ir.nodes import (
    After,
    Alloc,
    AnyParam,
    Argument,
    ArrayLoad,
    Binary,
    BinaryOp,
    Body,
    BoundVar,
    Call,
    Close,
    Column,
    Combine,
    Cond,
    Const,
    ConstexprDecl,
    Consume,
    DimSlice,
    Directive,
    DirectiveArg,
    ExecUnit,
    Expr,
    FloatConst,
    KernelDecl,
    Loop,
    LoopVar,
    Module,
    Network,
    Not,
    ParamDecl,
    Process,
    Receive,
    Reduce,
    Region,
    ScalarDecl,
    Search,
    Select,
    Send,
    Sequential,
    ShapeOf,
    SlotLoad,
    SlotRef,
    SlotSet,
    Stmt,
    SymbolDecl,
    SymbolRef,
    TaskAxis,
    TaskOrdinal,
    TaskSite,
    TensorDecl,
    TensorKind,
    ViewKind,
    While,
)
from pto_wsp.srcloc import SrcLoc

IDENTIFIER = re.compile(r"[^\W\d]\w*")

# Words with a meaning of their own; a name spelled like one is written in quotes.
_WORDS = """
    module symbol tensor kernel include body schedule drop combine and sequential then parallel in
    none min max when otherwise while limit set load value column slot var select reduce search
    float not or tile padded of scalar constexpr label after temp token paged alloc
    task task_site task_ordinal key at layout fields stage
    channel send consume receive close network process fixed
"""
KEYWORDS = frozenset(_WORDS.split())

# How tightly the infix operators bind, as in Python; MIN and MAX are written as calls. Comparisons
# do not chain: both sides of one are sums.
PRECEDENCE = {
    BinaryOp.OR: 1,
    BinaryOp.AND: 2,
    BinaryOp.EQ: 4,
    BinaryOp.NE: 4,
    BinaryOp.LT: 4,
    BinaryOp.LE: 4,
    BinaryOp.GT: 4,
    BinaryOp.GE: 4,
    BinaryOp.ADD: 5,
    BinaryOp.SUB: 5,
    BinaryOp.MUL: 6,
    BinaryOp.FLOORDIV: 6,
    BinaryOp.MOD: 6,
}
NOT_PRECEDENCE = 3

ONE = Const(1)


def to_text(module: Module, *, locs: bool = True) -> str:
    """The text form of a module; `locs=False` leaves source positions out."""
    return _Printer(locs, {k.name: k for k in module.kernels}).module(module)


def expr_text(expr: Expr, loop_vars: Iterable[str] = ()) -> str:
    """The text form of an expression below the loops that bind `loop_vars`."""
    return _infix(expr, frozenset(loop_vars), 0)


def name_text(name: str) -> str:
    """A name, in quotes where it would not read as one."""
    plain = IDENTIFIER.fullmatch(name) is not None and name not in KEYWORDS
    return name if plain else string_text(name)


def string_text(text: str) -> str:
    """A string literal on one line."""
    return '"' + "".join(_escaped(c) for c in text) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    return char if char.isprintable() else char.encode("unicode_escape").decode()


def _infix(expr: Expr, scope: frozenset[str], outer: int) -> str:
    """`outer` is the precedence that an operator needs to stand here without parentheses."""
    match expr:
        case Const(value):
            return str(int(value))
        case LoopVar(name):
            return name_text(name) if name in scope else "?" + name_text(name)
        case SymbolRef(name):
            return "$" + name_text(name) if name in scope else name_text(name)
        case ShapeOf(tensor, dim):
            return f"{name_text(tensor)}.shape[{dim}]"
        case ArrayLoad(array, index, column):
            second = "" if column is None else f", {_infix(column, scope, 0)}"
            return f"{name_text(array)}[{_infix(index, scope, 0)}{second}]"
        case FloatConst(bits):
            return f"float({bits})"
        case Column(loop):
            return f"column({name_text(loop)})"
        case SlotRef(slot):
            return f"slot({name_text(slot)})"
        case BoundVar(level):
            return f"var({level})"
        case TaskAxis(axis, default):
            other = "" if default is None else f", {default}"
            return f"task({name_text(axis)}{other})"
        case TaskSite():
            return "task_site()"
        case TaskOrdinal():
            return "task_ordinal()"
        case Not(operand):
            text = f"not {_infix(operand, scope, NOT_PRECEDENCE)}"
            return f"({text})" if outer > NOT_PRECEDENCE else text
        case Select(condition, then, otherwise):
            return f"select({_listed((condition, then, otherwise), scope)})"
        case Reduce(op, level, lo, hi, body):
            return f"reduce({op.value}, {level}, {_listed((lo, hi, body), scope)})"
        case Search(level, lo, hi, predicate):
            return f"search({level}, {_listed((lo, hi, predicate), scope)})"
        case Binary(BinaryOp.MIN | BinaryOp.MAX as op, lhs, rhs):
            return f"{op.value}({_infix(lhs, scope, 0)}, {_infix(rhs, scope, 0)})"
        case Binary(op, lhs, rhs):
            own = PRECEDENCE[op]
            left = own + 1 if own == PRECEDENCE[BinaryOp.EQ] else own
            text = f"{_infix(lhs, scope, left)} {op.value} {_infix(rhs, scope, own + 1)}"
            return f"({text})" if own < outer else text
        case _:
            assert_never(expr)


def _listed(exprs: tuple[Expr, ...], scope: frozenset[str]) -> str:
    return ", ".join(_infix(expr, scope, 0) for expr in exprs)


@dataclass(frozen=True, slots=True)
class _Printer:
    """Prints below some loops; `scope` is what they bind."""

    locs: bool
    kernels: dict[str, KernelDecl]
    scope: frozenset[str] = frozenset()

    def module(self, module: Module) -> str:
        declarations = [
            *(self.symbol(s) for s in module.symbols),
            *(self.tensor(t) for t in module.tensors),
            *(self.kernel(k) for k in module.kernels),
        ]
        parts = [f"module {name_text(module.name)}"]
        if declarations:
            parts.append("\n".join(declarations))
        parts.append(f"body {self.block(module.body)}")
        if module.schedule:
            lines = "\n".join(_indent(self.directive(d)) for d in module.schedule)
            parts.append(f"schedule {{\n{lines}\n}}")
        return "\n\n".join(parts) + "\n"

    # --- declarations ---

    def symbol(self, decl: SymbolDecl) -> str:
        dtype = "" if decl.dtype is DType.I64 and decl.rank == 1 else f" {decl.dtype.text}"
        if decl.rank != 1:
            dtype += f"[{', '.join(':' * decl.rank) if decl.rank >= 0 else decl.rank}]"
        default = "" if decl.default is None else f" = {_number(decl.default)}"
        head = f"symbol {name_text(decl.name)}: {decl.kind.value}{dtype}{default}"
        return head + self.loc(decl.loc)

    def tensor(self, decl: TensorDecl) -> str:
        head = f"{decl.kind.value} {name_text(decl.name)}: {_array(decl.dtype, decl.rank)}"
        if decl.kind is TensorKind.TOKEN or decl.shape:
            head += f" of ({_listed(decl.shape, self.scope)})"
        if decl.fixed:
            sizes = ("none" if size is None else str(size) for size in decl.fixed)
            head += f" fixed ({', '.join(sizes)})"
        if decl.pages is not None:
            page = "none" if decl.pages.page is None else str(decl.pages.page)
            names = f"{name_text(decl.pages.pool)}, {name_text(decl.pages.table)}"
            head += f" in ({names}, {page})"
        if decl.slots is not None:
            head += f" depth {decl.slots.depth}"
            head += f" initial {decl.slots.initial}" if decl.slots.initial else ""
            head += f" latency {decl.slots.latency}" if decl.slots.latency else ""
        if decl.location is not Location.Global:
            head += f" at {decl.location.value}"
        head += _layout(decl.layout)
        return head + self.loc(decl.loc)

    def kernel(self, decl: KernelDecl) -> str:
        params = ", ".join(_param(p) for p in decl.params)
        unit = "" if decl.exec_unit is ExecUnit.ANY else f" on {decl.exec_unit.value}"
        head = f"kernel {name_text(decl.name)}({params}){unit} {decl.form.value}"
        source = [string_text(line) for line in _source_lines(decl.source)]
        if len(source) == 1 and not decl.includes:
            return f"{head} {source[0]}{self.loc(decl.loc)}"
        lines = [*(f"include {string_text(i)}" for i in decl.includes), *source]
        inner = "\n".join(_indent(line) for line in lines)
        return f"{head} {{\n{inner}\n}}{self.loc(decl.loc)}"

    def directive(self, directive: Directive) -> str:
        args = ", ".join(_directive_arg(a) for a in directive.args)
        return f"{name_text(directive.name)}({args}){self.loc(directive.loc)}"

    def loc(self, loc: SrcLoc | None) -> str:
        if loc is None or not self.locs:
            return ""
        columns = f":{loc.col}-{loc.end_col}" if loc.col or loc.end_col else ""
        return f" @ {string_text(loc.file)}:{loc.line}{columns}"

    # --- statements ---

    def block(self, body: Body) -> str:
        if not body:
            return "{\n}"
        lines = "\n".join(_indent(self.stmt(s)) for s in body)
        return f"{{\n{lines}\n}}"

    def stmt(self, stmt: Stmt) -> str:
        match stmt:
            case Loop():
                return self.loop(stmt)
            case While():
                return self.repeat(stmt)
            case Cond():
                head = f"when {self.expr(stmt.condition)}{self.loc(stmt.loc)}"
                other = f" otherwise {self.block(stmt.otherwise)}" if stmt.otherwise else ""
                return f"{head} {self.block(stmt.then)}{other}"
            case SlotSet():
                value = self.expr(stmt.value)
                return f"set {name_text(stmt.slot)} = {value}{self.loc(stmt.loc)}"
            case SlotLoad():
                region = self.region(stmt.region)
                return f"load {name_text(stmt.slot)} = {region}{self.loc(stmt.loc)}"
            case Alloc():
                shape = _listed(stmt.shape, self.scope)
                return f"alloc {name_text(stmt.tensor)}({shape}){self.loc(stmt.loc)}"
            case Combine(branches):
                return self.blocks("combine", "and", branches, stmt.loc)
            case Sequential(steps):
                return self.blocks("sequential", "then", steps, stmt.loc)
            case Call():
                return self.call(stmt)
            case Send():
                head = f"send {name_text(stmt.channel)}{self.loc(stmt.loc)}"
                return f"{head} {self.block(stmt.body)}"
            case Consume():
                inside = replace(self, scope=self.scope | {stmt.var})
                head = f"consume {name_text(stmt.channel)} as {name_text(stmt.var)}"
                return f"{head}{self.loc(stmt.loc)} {inside.block(stmt.body)}"
            case Receive():
                return f"receive {name_text(stmt.channel)}{self.loc(stmt.loc)}"
            case Close():
                return f"close {name_text(stmt.channel)}{self.loc(stmt.loc)}"
            case Network(processes):
                parts = "\n".join(_indent(self.process(process)) for process in processes)
                return f"network{self.loc(stmt.loc)} {{\n{parts}\n}}"
            case _:
                assert_never(stmt)

    def process(self, process: Process) -> str:
        each = " each" if process.replicated else ""
        head = f"process {name_text(process.name)}{each}{self.loc(process.loc)}"
        return f"{head} {self.block(process.body)}"

    def loop(self, loop: Loop) -> str:
        kind = loop.kind.value
        names = (loop.lengths, loop.parent, loop.indices)
        if names != (None, None, None):
            shown = names if loop.indices is not None else names[:2]
            kind += f"({', '.join(_optional_name(name) for name in shown)})"
        if loop.tile is not None:
            kind += f" tile {self.expr(loop.tile)}"
        if loop.padded:
            kind += " padded"
        head = f"{loop.order.value} {name_text(loop.var)} in {name_text(loop.axis)}: {kind}"
        span = f"{self.expr(loop.start)}:+{self.expr(loop.extent)}"
        inside = replace(self, scope=self.scope | {loop.var})
        return f"{head} {span}{self.loc(loop.loc)} {inside.block(loop.body)}"

    def repeat(self, loop: While) -> str:
        inside = replace(self, scope=self.scope | {loop.var})
        head = f"while {name_text(loop.var)} in {name_text(loop.axis)}:"
        condition = f"{inside.expr(loop.condition)} limit {self.expr(loop.limit)}"
        return f"{head} {condition}{self.loc(loop.loc)} {inside.block(loop.body)}"

    def blocks(self, word: str, link: str, bodies: tuple[Body, ...], loc: SrcLoc | None) -> str:
        if not bodies:
            return f"{word} none{self.loc(loc)}"
        blocks = f" {link} ".join(self.block(b) for b in bodies)
        return f"{word}{self.loc(loc)} {blocks}"

    def call(self, call: Call) -> str:
        indices = f"[{', '.join(self.expr(i) for i in call.indices)}]" if call.indices else ""
        args = [self.argument(arg) for arg in call.args]
        kernel = self.kernels.get(call.kernel)
        params = () if kernel is None else given_params(kernel)
        if len(params) == len(args):
            names = (name_text(p.name) for p in params)
            args = [f"{n} = {r}" for n, r in zip(names, args, strict=True)]
        label = "" if call.label is None else f"label {name_text(call.label)}: "
        after = "".join(f" after {self.waited(a)}" for a in call.after)
        head = f"{label}{name_text(call.kernel)}{indices}({', '.join(args)})"
        fields = ", ".join(f"{name_text(name)} = {self.expr(e)}" for name, e in call.fields)
        fields = f" fields({fields})" if fields else ""
        stage = "" if call.stage is None else f" stage {name_text(call.stage)}"
        return f"{head}{after}{fields}{stage}{self.loc(call.loc)}"

    def waited(self, after: After) -> str:
        indices = f"[{', '.join(self.expr(i) for i in after.indices)}]" if after.indices else ""
        return name_text(after.label) + indices

    def argument(self, arg: Argument) -> str:
        return self.region(arg) if isinstance(arg, Region) else f"value {self.expr(arg)}"

    def region(self, region: Region) -> str:
        dims = ", ".join(self.dim(d) for d in region.dims)
        return f"{name_text(region.tensor)}[{dims}]{_layout(region.layout)}"

    def dim(self, dim: DimSlice) -> str:
        start = self.expr(dim.start)
        if dim.dropped and dim.extent == ONE and dim.step == ONE:
            return start
        drop = "drop " if dim.dropped else ""
        step = "" if dim.step == ONE else f":{self.expr(dim.step)}"
        return f"{drop}{start}:+{self.expr(dim.extent)}{step}"

    def expr(self, expr: Expr) -> str:
        return _infix(expr, self.scope, 0)


def _array(dtype: DType, rank: int) -> str:
    """`f32[:, :]`; a rank that cannot be drawn stands as a number."""
    return f"{dtype.text}[{', '.join(':' * rank) if rank >= 0 else rank}]"


def _layout(layout: TensorLayout | None) -> str:
    return "" if layout is None else f" layout {layout!r}"


def given_params(kernel: KernelDecl) -> tuple[ParamDecl | ScalarDecl, ...]:
    """The parameters that a call gives something to."""
    return tuple(p for p in kernel.params if not isinstance(p, ConstexprDecl))


def _param(param: AnyParam) -> str:
    match param:
        case ParamDecl(name, mode, dtype, rank, shape, view, location):
            seen = "" if view is ViewKind.STRIDED else f"{view.value} "
            of = "" if shape is None else f" of ({', '.join(map(str, shape))})"
            where = "" if location is None else f" at {location.value}"
            return f"{name_text(name)}: {mode.value} {seen}{_array(dtype, rank)}{of}{where}"
        case ScalarDecl(name, dtype):
            return f"{name_text(name)}: scalar {dtype.text}"
        case ConstexprDecl(name, dtype, value):
            return f"{name_text(name)}: constexpr {dtype.text} = {_number(value)}"
        case _:
            assert_never(param)


def _number(value: int | float) -> str:
    return f"float({float_bits(value)})" if isinstance(value, float) else str(int(value))


def float_bits(value: float) -> int:
    """The 64 bits of a floating-point number."""
    return int.from_bytes(struct.pack("<d", value), "little")


def _optional_name(name: str | None) -> str:
    return "none" if name is None else name_text(name)


def _directive_arg(arg: DirectiveArg) -> str:
    match arg:
        case None:
            return "none"
        case str():
            return string_text(arg)
        case int():
            return str(int(arg))
        case _:
            return f"key {expr_text(arg)}"


def _source_lines(source: str) -> list[str]:
    """One literal per line of the source; literals that follow each other are one string."""
    return re.findall(r"[^\n]*\n|[^\n]+", source) or [""]


def _indent(text: str) -> str:
    # String literals never hold a line break, so every line break is one between lines.
    return "\n".join("  " + line for line in text.split("\n"))
