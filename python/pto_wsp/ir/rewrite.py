"""Walking and rebuilding the IR: what passes, lowering and the frontend share.

Walks visit a node before its children, in program order. Maps rebuild from the leaves up and keep
source positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias, assert_never

from pto_wsp.ir.nodes import (
    ArrayLoad,
    Binary,
    Body,
    Call,
    Combine,
    Const,
    DimSlice,
    Expr,
    Loop,
    LoopVar,
    Region,
    Sequential,
    ShapeOf,
    Stmt,
    SymbolRef,
)

ExprMap: TypeAlias = Callable[[Expr], Expr]
StmtMap: TypeAlias = Callable[[Stmt], Stmt]

# --- expressions ---


def operands(expr: Expr) -> tuple[Expr, ...]:
    """The expressions directly inside an expression."""
    match expr:
        case Binary(_, lhs, rhs):
            return (lhs, rhs)
        case ArrayLoad(_, index):
            return (index,)
        case Const() | LoopVar() | SymbolRef() | ShapeOf():
            return ()
        case _:
            assert_never(expr)


def walk_expr(expr: Expr) -> Iterator[Expr]:
    """An expression and everything in it. Uses no recursion, so any depth will do."""
    pending = [expr]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(operands(node)))


def map_expr(expr: Expr, change: ExprMap) -> Expr:
    """Rebuilds an expression, applying `change` to every node after its operands."""
    match expr:
        case Binary(op, lhs, rhs):
            return change(Binary(op, map_expr(lhs, change), map_expr(rhs, change)))
        case ArrayLoad(array, index):
            return change(ArrayLoad(array, map_expr(index, change)))
        case Const() | LoopVar() | SymbolRef() | ShapeOf():
            return change(expr)
        case _:
            assert_never(expr)


def loop_vars(expr: Expr) -> frozenset[str]:
    """The loop variables that an expression reads."""
    return frozenset(node.name for node in walk_expr(expr) if isinstance(node, LoopVar))


# --- statements ---


def bodies(stmt: Stmt) -> tuple[Body, ...]:
    """The bodies directly inside a statement."""
    match stmt:
        case Loop():
            return (stmt.body,)
        case Combine(branches):
            return branches
        case Sequential(steps):
            return steps
        case Call():
            return ()
        case _:
            assert_never(stmt)


def exprs(stmt: Stmt) -> Iterator[Expr]:
    """The expressions of a statement itself, without those of statements inside it."""
    match stmt:
        case Loop():
            yield stmt.start
            yield stmt.extent
        case Call():
            yield from stmt.indices
            for region in stmt.args:
                for dim in region.dims:
                    yield from (dim.start, dim.extent, dim.step)
        case Combine() | Sequential():
            return
        case _:
            assert_never(stmt)


def walk(body: Body) -> Iterator[Stmt]:
    """Every statement of a body, at any depth."""
    for stmt in body:
        yield stmt
        for inner in bodies(stmt):
            yield from walk(inner)


def map_stmts(body: Body, change: StmtMap) -> Body:
    """Rebuilds a body, applying `change` to every statement after those inside it."""
    return tuple(change(_with_bodies(s, lambda inner: map_stmts(inner, change))) for s in body)


def map_exprs(body: Body, change: ExprMap) -> Body:
    """Rebuilds a body, applying `change` once to every expression that a statement holds."""
    return map_stmts(body, lambda stmt: _with_exprs(stmt, change))


def _with_bodies(stmt: Stmt, change: Callable[[Body], Body]) -> Stmt:
    match stmt:
        case Loop():
            return replace(stmt, body=change(stmt.body))
        case Combine(branches):
            return replace(stmt, branches=tuple(change(b) for b in branches))
        case Sequential(steps):
            return replace(stmt, steps=tuple(change(s) for s in steps))
        case Call():
            return stmt
        case _:
            assert_never(stmt)


def _with_exprs(stmt: Stmt, change: ExprMap) -> Stmt:
    match stmt:
        case Loop():
            return replace(stmt, start=change(stmt.start), extent=change(stmt.extent))
        case Call():
            indices = tuple(change(i) for i in stmt.indices)
            return replace(stmt, indices=indices, args=tuple(_region(a, change) for a in stmt.args))
        case Combine() | Sequential():
            return stmt
        case _:
            assert_never(stmt)


def _region(region: Region, change: ExprMap) -> Region:
    dims = (
        DimSlice(change(d.start), change(d.extent), change(d.step), d.dropped) for d in region.dims
    )
    return Region(region.tensor, tuple(dims))


# --- loop variables ---


def free_vars(body: Body) -> frozenset[str]:
    """The loop variables that a body reads and does not bind."""
    free: set[str] = set()
    for stmt in body:
        inner: set[str] = set()
        inner.update(*(free_vars(b) for b in bodies(stmt)))
        if isinstance(stmt, Loop):
            inner.discard(stmt.var)
            if stmt.parent is not None:
                inner.add(stmt.parent)
        free.update(inner, *(loop_vars(e) for e in exprs(stmt)))
    return frozenset(free)


def substitute_expr(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """Replaces loop variables by expressions, all at once."""
    return map_expr(expr, lambda e: values.get(e.name, e) if isinstance(e, LoopVar) else e)


def substitute(body: Body, values: Mapping[str, Expr]) -> Body:
    """Replaces loop variables that a body does not bind by expressions.

    ValueError where that cannot be said: a loop of the body would capture a variable of the new
    expression, or a ragged loop is indexed by a variable that gets something else than a variable.
    """
    if not values:
        return body
    return tuple(_substitute(stmt, values) for stmt in body)


def _substitute(stmt: Stmt, values: Mapping[str, Expr]) -> Stmt:
    changed = _with_exprs(stmt, lambda e: substitute_expr(e, values))
    if not isinstance(changed, Loop):
        return _with_bodies(changed, lambda b: substitute(b, values))
    inner = {name: value for name, value in values.items() if name != changed.var}
    read = free_vars(changed.body)
    for name, value in inner.items():
        if name in read and changed.var in loop_vars(value):
            raise ValueError(f"loop variable {changed.var} would capture a part of {name}'s value")
    parent = changed.parent
    if parent is not None and parent in values:
        value = values[parent]
        if not isinstance(value, LoopVar):
            raise ValueError(f"ragged axis {changed.axis} needs a loop variable for {parent}")
        parent = value.name
    return replace(changed, body=substitute(changed.body, inner), parent=parent)


def rename(body: Body, names: Mapping[str, str]) -> Body:
    """Renames loop variables where loops bind them and where expressions read them."""

    def name(old: str) -> str:
        return names.get(old, old)

    def in_expr(node: Expr) -> Expr:
        return LoopVar(name(node.name)) if isinstance(node, LoopVar) else node

    def in_stmt(stmt: Stmt) -> Stmt:
        stmt = _with_exprs(stmt, lambda e: map_expr(e, in_expr))
        if not isinstance(stmt, Loop):
            return stmt
        parent = None if stmt.parent is None else name(stmt.parent)
        return replace(stmt, var=name(stmt.var), parent=parent)

    return map_stmts(body, in_stmt)
