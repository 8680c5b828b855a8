"""Sums, extremes and searches over ranges of integers, as parts of scalar expressions."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

from pto_wsp import ir, srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.frontend.context import Scope
from pto_wsp.frontend.scalar_expr import (
    BoolLike,
    IntLike,
    SymBool,
    SymInt,
    as_symbool,
    as_symint,
    atom,
    poly_expr,
)
from pto_wsp.frontend.trace import current
from pto_wsp.ir import polynomial as poly

MAX_LEVELS = 4  # of the plan format
T = TypeVar("T")

_level: ContextVar[int] = ContextVar("pto_wsp_reduction_level", default=0)


def reduce_sum(extent: IntLike, value: Callable[[SymInt], IntLike]) -> SymInt:
    """value(0) + value(1) + ... + value(extent - 1)."""
    return _integer(ir.ReduceOp.SUM, extent, value)


def reduce_min(extent: IntLike, value: Callable[[SymInt], IntLike]) -> SymInt:
    """The smallest of value(0) ... value(extent - 1); of none, the largest 64-bit integer."""
    return _integer(ir.ReduceOp.MIN, extent, value)


def reduce_max(extent: IntLike, value: Callable[[SymInt], IntLike]) -> SymInt:
    """The largest of value(0) ... value(extent - 1); of none, the smallest 64-bit integer."""
    return _integer(ir.ReduceOp.MAX, extent, value)


def reduce_any(extent: IntLike, value: Callable[[SymInt], BoolLike]) -> SymBool:
    """Whether value holds for some number below the extent."""
    return _condition(ir.ReduceOp.ANY, extent, value)


def reduce_all(extent: IntLike, value: Callable[[SymInt], BoolLike]) -> SymBool:
    """Whether value holds for every number below the extent."""
    return _condition(ir.ReduceOp.ALL, extent, value)


def search(lo: IntLike, hi: IntLike, holds: Callable[[SymInt], BoolLike]) -> SymInt:
    """The smallest x from lo to hi - 1 for which `holds(x)`, else hi.

    The predicate must be monotone: once it holds, it holds for everything above. It is asked for
    about log2(hi - lo) numbers.
    """
    first, last = as_symint(lo), as_symint(hi)
    level, predicate = _inside("search", lambda x: as_symbool(holds(x)))
    node = ir.Search(level, poly_expr(first), poly_expr(last), predicate.expr)
    return SymInt(poly.of_atom(node), first.scopes | last.scopes | predicate.scopes)


def _integer(op: ir.ReduceOp, extent: IntLike, value: Callable[[SymInt], IntLike]) -> SymInt:
    end = as_symint(extent)
    level, body = _inside(f"reduce_{op.name.lower()}", lambda x: as_symint(value(x)))
    node = ir.Reduce(op, level, ir.Const(0), poly_expr(end), poly_expr(body))
    return SymInt(poly.of_atom(node), end.scopes | body.scopes)


def _condition(op: ir.ReduceOp, extent: IntLike, value: Callable[[SymInt], BoolLike]) -> SymBool:
    end = as_symint(extent)
    level, body = _inside(f"reduce_{op.name.lower()}", lambda x: as_symbool(value(x)))
    node = ir.Reduce(op, level, ir.Const(0), poly_expr(end), body.expr)
    return SymBool(node, end.scopes | body.scopes)


Symbolic = TypeVar("Symbolic", SymInt, SymBool)


def _inside(what: str, trace: Callable[[SymInt], Symbolic]) -> tuple[int, Symbolic]:
    """Traces a function of one variable: its level, and the result without that variable's scope,
    which the node itself binds."""
    current(f"{what}(...)")
    level = _level.get()
    if level == MAX_LEVELS:
        raise CompileError(
            Code.PLAN_LIMIT,
            f"{what} inside {MAX_LEVELS} others",
            loc=srcloc.here(),
            why=f"a plan holds {MAX_LEVELS} of them inside each other",
            fix="compute a part of it into an array that the workload reads",
        )
    scope = Scope("reduction", what, srcloc.here())
    token = _level.set(level + 1)
    try:
        result = trace(atom(ir.BoundVar(level), scope))
    finally:
        _level.reset(token)
        scope.is_open = False
    scopes = result.scopes - {scope}
    if isinstance(result, SymInt):
        return level, SymInt(result.polynomial, scopes)
    return level, SymBool(result.expr, scopes)
