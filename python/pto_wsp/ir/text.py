"""Prints a module in its text form, which `parse` reads back.

    module wave

    symbol rows: extent = 8
    symbol lens: array i32
    tensor X: f32[:, :]
    kernel cell(up: in f32[], out: out f32[]) python "wave.cell"

    body {
      parallel i in rows: dense_dyn 0:+rows {
        sequential t in tokens: ragged(lens, i) 0:+lens[i] {
          cell[i, t](up = X[i, t], out = X[i, t + 1])
        }
      }
    }

    schedule {
      WINDOW(8192, 0, 0)
    }

`0:+rows` is a start and an extent, in loops and in regions; a third part is a step other than 1. A
dimension the kernel does not see stands as its start alone. `combine { } and { }` and `sequential
{ } then { }` hold branches and steps. A bare name in an expression is the enclosing loop variable
of that name, else a symbol; `$name` is a symbol that a loop variable hides, `?name` a loop variable
that no loop binds. `@ "file":line:col-end` is a source position, `#` starts a comment.

The form is total: a module that `verify` refuses prints and parses back too, so that it can be
shown and looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import assert_never

from pto_wsp.dtypes import DType
from pto_wsp.ir.nodes import (
    ArrayLoad,
    Binary,
    BinaryOp,
    Body,
    Call,
    Combine,
    Const,
    DimSlice,
    Directive,
    Expr,
    KernelDecl,
    Loop,
    LoopVar,
    Module,
    ParamDecl,
    Region,
    Sequential,
    ShapeOf,
    Stmt,
    SymbolDecl,
    SymbolRef,
    TensorDecl,
)
from pto_wsp.srcloc import SrcLoc

IDENTIFIER = re.compile(r"[^\W\d]\w*")

# Words with a meaning of their own; a name spelled like one is written in quotes.
KEYWORDS = frozenset(
    {"module", "symbol", "tensor", "kernel", "include", "body", "schedule", "drop"}
) | {"combine", "and", "sequential", "then", "parallel", "in", "none", "min", "max"}

# How tightly the infix operators bind, as in Python; MIN and MAX are written as calls.
PRECEDENCE = {
    BinaryOp.ADD: 1,
    BinaryOp.SUB: 1,
    BinaryOp.MUL: 2,
    BinaryOp.FLOORDIV: 2,
    BinaryOp.MOD: 2,
}

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
        case ArrayLoad(array, index):
            return f"{name_text(array)}[{_infix(index, scope, 0)}]"
        case Binary(BinaryOp.MIN | BinaryOp.MAX as op, lhs, rhs):
            return f"{op.value}({_infix(lhs, scope, 0)}, {_infix(rhs, scope, 0)})"
        case Binary(op, lhs, rhs):
            own = PRECEDENCE[op]
            text = f"{_infix(lhs, scope, own)} {op.value} {_infix(rhs, scope, own + 1)}"
            return f"({text})" if own < outer else text
        case _:
            assert_never(expr)


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
        dtype = "" if decl.dtype is DType.I64 else f" {decl.dtype.text}"
        default = "" if decl.default is None else f" = {decl.default}"
        head = f"symbol {name_text(decl.name)}: {decl.kind.value}{dtype}{default}"
        return head + self.loc(decl.loc)

    def tensor(self, decl: TensorDecl) -> str:
        return f"tensor {name_text(decl.name)}: {_array(decl.dtype, decl.rank)}{self.loc(decl.loc)}"

    def kernel(self, decl: KernelDecl) -> str:
        params = ", ".join(_param(p) for p in decl.params)
        head = f"kernel {name_text(decl.name)}({params}) {decl.form.value}"
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
            case Combine(branches):
                return self.blocks("combine", "and", branches, stmt.loc)
            case Sequential(steps):
                return self.blocks("sequential", "then", steps, stmt.loc)
            case Call():
                return self.call(stmt)
            case _:
                assert_never(stmt)

    def loop(self, loop: Loop) -> str:
        kind = loop.kind.value
        if loop.lengths is not None or loop.parent is not None:
            kind += f"({_optional_name(loop.lengths)}, {_optional_name(loop.parent)})"
        head = f"{loop.order.value} {name_text(loop.var)} in {name_text(loop.axis)}: {kind}"
        span = f"{self.expr(loop.start)}:+{self.expr(loop.extent)}"
        inside = replace(self, scope=self.scope | {loop.var})
        return f"{head} {span}{self.loc(loop.loc)} {inside.block(loop.body)}"

    def blocks(self, word: str, link: str, bodies: tuple[Body, ...], loc: SrcLoc | None) -> str:
        if not bodies:
            return f"{word} none{self.loc(loc)}"
        blocks = f" {link} ".join(self.block(b) for b in bodies)
        return f"{word}{self.loc(loc)} {blocks}"

    def call(self, call: Call) -> str:
        indices = f"[{', '.join(self.expr(i) for i in call.indices)}]" if call.indices else ""
        regions = [self.region(r) for r in call.args]
        kernel = self.kernels.get(call.kernel)
        if kernel is not None and len(kernel.params) == len(regions):
            names = (name_text(p.name) for p in kernel.params)
            regions = [f"{n} = {r}" for n, r in zip(names, regions, strict=True)]
        return f"{name_text(call.kernel)}{indices}({', '.join(regions)}){self.loc(call.loc)}"

    def region(self, region: Region) -> str:
        return f"{name_text(region.tensor)}[{', '.join(self.dim(d) for d in region.dims)}]"

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


def _param(param: ParamDecl) -> str:
    return f"{name_text(param.name)}: {param.mode.value} {_array(param.dtype, param.rank)}"


def _optional_name(name: str | None) -> str:
    return "none" if name is None else name_text(name)


def _directive_arg(arg: int | str | None) -> str:
    match arg:
        case None:
            return "none"
        case str():
            return string_text(arg)
        case int():
            return str(int(arg))
        case _:
            assert_never(arg)


def _source_lines(source: str) -> list[str]:
    """One literal per line of the source; literals that follow each other are one string."""
    return re.findall(r"[^\n]*\n|[^\n]+", source) or [""]


def _indent(text: str) -> str:
    # String literals never hold a line break, so every line break is one between lines.
    return "\n".join("  " + line for line in text.split("\n"))
