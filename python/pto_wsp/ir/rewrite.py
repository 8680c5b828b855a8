"""Walking and rebuilding the IR: what passes, lowering and the frontend share.

Walks visit a node before its children, in program order. Maps rebuild from the leaves up and keep
source positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias, assert_never

from pto_wsp.ir.nodes import (
    Alloc,
    Argument,
    ArrayLoad,
    Binary,
    Body,
    BoundVar,
    Call,
    Close,
    Column,
    Combine,
    Cond,
    Const,
    Consume,
    DimSlice,
    Expr,
    FloatConst,
    Loop,
    LoopVar,
    Network,
    Not,
    Receive,
    Reduce,
    Region,
    Search,
    Select,
    Send,
    Sequential,
    ShapeOf,
    SlotLoad,
    SlotRef,
    SlotSet,
    Stmt,
    SymbolRef,
    TaskAxis,
    TaskOrdinal,
    TaskSite,
    While,
)

ExprMap: TypeAlias = Callable[[Expr], Expr]
StmtMap: TypeAlias = Callable[[Stmt], Stmt]

# --- expressions ---


def operands(expr: Expr) -> tuple[Expr, ...]:
    """The expressions directly inside an expression."""
    match expr:
        case Binary(_, lhs, rhs):
            return (lhs, rhs)
        case ArrayLoad(_, index, column):
            return (index,) if column is None else (index, column)
        case Not(operand):
            return (operand,)
        case Select(condition, then, otherwise):
            return (condition, then, otherwise)
        case Reduce(_, _, lo, hi, body) | Search(_, lo, hi, body):
            return (lo, hi, body)
        case Const() | FloatConst() | LoopVar() | Column() | SymbolRef() | ShapeOf():
            return ()
        case SlotRef() | BoundVar() | TaskAxis() | TaskSite() | TaskOrdinal():
            return ()
        case _:
            assert_never(expr)


def with_operands(expr: Expr, new: tuple[Expr, ...]) -> Expr:
    """The same operation on other operands, as many as `operands` gave."""
    match expr, new:
        case Binary(op), (lhs, rhs):
            return Binary(op, lhs, rhs)
        case ArrayLoad(array), (index, *column):
            return ArrayLoad(array, index, *column)
        case Not(), (operand,):
            return Not(operand)
        case Select(), (condition, then, otherwise):
            return Select(condition, then, otherwise)
        case Reduce(op, level), (lo, hi, body):
            return Reduce(op, level, lo, hi, body)
        case Search(level), (lo, hi, predicate):
            return Search(level, lo, hi, predicate)
        case _:
            return expr


def walk_expr(expr: Expr) -> Iterator[Expr]:
    """An expression and everything in it. Uses no recursion, so any depth will do."""
    pending = [expr]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(operands(node)))


def map_expr(expr: Expr, change: ExprMap) -> Expr:
    """Rebuilds an expression, applying `change` to every node after its operands."""
    inner = operands(expr)
    if not inner:
        return change(expr)
    return change(with_operands(expr, tuple(map_expr(each, change) for each in inner)))


def loop_vars(expr: Expr) -> frozenset[str]:
    """The loop variables that an expression reads."""
    nodes = list(walk_expr(expr))
    names = {node.name for node in nodes if isinstance(node, LoopVar)}
    return frozenset(names | {node.loop for node in nodes if isinstance(node, Column)})


# --- statements ---


def bodies(stmt: Stmt) -> tuple[Body, ...]:
    """The bodies directly inside a statement."""
    match stmt:
        case Loop() | While() | Send() | Consume():
            return (stmt.body,)
        case Cond(_, then, otherwise):
            return (then, otherwise)
        case Combine(branches):
            return branches
        case Sequential(steps):
            return steps
        case Network(processes):
            return tuple(process.body for process in processes)
        case Call() | SlotSet() | SlotLoad() | Alloc() | Receive() | Close():
            return ()
        case _:
            assert_never(stmt)


def exprs(stmt: Stmt) -> Iterator[Expr]:
    """The expressions of a statement itself, without those of statements inside it."""
    match stmt:
        case Loop():
            yield stmt.start
            yield stmt.extent
            if stmt.tile is not None:
                yield stmt.tile
        case While():
            yield stmt.condition
            yield stmt.limit
        case Cond():
            yield stmt.condition
        case SlotSet():
            yield stmt.value
        case SlotLoad():
            yield from _argument_exprs(stmt.region)
        case Alloc():
            yield from stmt.shape
        case Call():
            yield from stmt.indices
            for arg in stmt.args:
                yield from _argument_exprs(arg)
            for after in stmt.after:
                yield from after.indices
            for _, value in stmt.fields:
                yield value
        case Combine() | Sequential() | Send() | Consume() | Receive() | Close() | Network():
            return
        case _:
            assert_never(stmt)


def _argument_exprs(arg: Argument) -> Iterator[Expr]:
    if not isinstance(arg, Region):
        yield arg
        return
    for dim in arg.dims:
        yield from (dim.start, dim.extent, dim.step)


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
        case Loop() | While() | Send() | Consume():
            return replace(stmt, body=change(stmt.body))
        case Cond(_, then, otherwise):
            return replace(stmt, then=change(then), otherwise=change(otherwise))
        case Combine(branches):
            return replace(stmt, branches=tuple(change(b) for b in branches))
        case Sequential(steps):
            return replace(stmt, steps=tuple(change(s) for s in steps))
        case Network(processes):
            return replace(
                stmt, processes=tuple(replace(p, body=change(p.body)) for p in processes)
            )
        case Call() | SlotSet() | SlotLoad() | Alloc() | Receive() | Close():
            return stmt
        case _:
            assert_never(stmt)


def _with_exprs(stmt: Stmt, change: ExprMap) -> Stmt:
    match stmt:
        case Loop():
            tile = None if stmt.tile is None else change(stmt.tile)
            return replace(stmt, start=change(stmt.start), extent=change(stmt.extent), tile=tile)
        case While():
            return replace(stmt, condition=change(stmt.condition), limit=change(stmt.limit))
        case Cond():
            return replace(stmt, condition=change(stmt.condition))
        case SlotSet():
            return replace(stmt, value=change(stmt.value))
        case SlotLoad():
            return replace(stmt, region=_region(stmt.region, change))
        case Alloc():
            return replace(stmt, shape=tuple(change(size) for size in stmt.shape))
        case Call():
            indices = tuple(change(i) for i in stmt.indices)
            args = tuple(_argument(a, change) for a in stmt.args)
            after = tuple(
                replace(a, indices=tuple(change(i) for i in a.indices)) for a in stmt.after
            )
            fields = tuple((name, change(value)) for name, value in stmt.fields)
            return replace(stmt, indices=indices, args=args, after=after, fields=fields)
        case Combine() | Sequential() | Send() | Consume() | Receive() | Close() | Network():
            return stmt
        case _:
            assert_never(stmt)


def _argument(arg: Argument, change: ExprMap) -> Argument:
    return _region(arg, change) if isinstance(arg, Region) else change(arg)


def _region(region: Region, change: ExprMap) -> Region:
    dims = (
        DimSlice(change(d.start), change(d.extent), change(d.step), d.dropped) for d in region.dims
    )
    return replace(region, dims=tuple(dims))


# --- loop variables ---


def free_vars(body: Body) -> frozenset[str]:
    """The loop variables that a body reads and does not bind."""
    free: set[str] = set()
    for stmt in body:
        inner: set[str] = set()
        inner.update(*(free_vars(b) for b in bodies(stmt)))
        own = {stmt.var} if isinstance(stmt, Loop | While | Consume) else set[str]()
        inner -= own
        if isinstance(stmt, Loop) and stmt.parent is not None:
            inner.add(stmt.parent)
        read = frozenset[str]().union(*(loop_vars(e) for e in exprs(stmt)))
        free.update(inner, read - own if isinstance(stmt, While) else read)
    return frozenset(free)


def substitute_expr(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """Replaces loop variables by expressions, all at once. ValueError for the column of a sparse
    loop whose variable gets something else than a variable."""

    def change(node: Expr) -> Expr:
        match node:
            case LoopVar(name):
                return values.get(name, node)
            case Column(loop) if loop in values:
                value = values[loop]
                if not isinstance(value, LoopVar):
                    raise ValueError(f"the column of {loop} needs a loop variable")
                return Column(value.name)
            case _:
                return node

    return map_expr(expr, change)


def substitute(body: Body, values: Mapping[str, Expr]) -> Body:
    """Replaces loop variables that a body does not bind by expressions.

    ValueError where that cannot be said: a loop of the body would capture a variable of the new
    expression, or a ragged loop is indexed by a variable that gets something else than a variable.
    """
    if not values:
        return body
    return tuple(_substitute(stmt, values) for stmt in body)


def _substitute(stmt: Stmt, values: Mapping[str, Expr]) -> Stmt:
    own = stmt.var if isinstance(stmt, While) else None  # its condition reads its own variable
    outer = {name: value for name, value in values.items() if name != own}
    changed = _with_exprs(stmt, lambda e: substitute_expr(e, outer))
    if not isinstance(changed, Loop | While | Consume):
        return _with_bodies(changed, lambda b: substitute(b, values))
    inner = {name: value for name, value in values.items() if name != changed.var}
    read = free_vars(changed.body)
    for name, value in inner.items():
        if name in read and changed.var in loop_vars(value):
            raise ValueError(f"loop variable {changed.var} would capture a part of {name}'s value")
    if not isinstance(changed, Loop):
        return replace(changed, body=substitute(changed.body, inner))
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
        if isinstance(node, Column):
            return Column(name(node.loop))
        return LoopVar(name(node.name)) if isinstance(node, LoopVar) else node

    def in_stmt(stmt: Stmt) -> Stmt:
        stmt = _with_exprs(stmt, lambda e: map_expr(e, in_expr))
        if isinstance(stmt, While | Consume):
            return replace(stmt, var=name(stmt.var))
        if not isinstance(stmt, Loop):
            return stmt
        parent = None if stmt.parent is None else name(stmt.parent)
        return replace(stmt, var=name(stmt.var), parent=parent)

    return map_stmts(body, in_stmt)
