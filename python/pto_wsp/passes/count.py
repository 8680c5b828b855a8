"""How many tasks a body generates, as an expression of symbols and outer loop variables.

A loop whose iterations are all alike counts extent × body. Otherwise the count is a sum over the
loop's index, a REDUCE in the plan, with start + bound variable in the place of the loop variable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from pto_wsp import ir, plan
from pto_wsp.passes.lower_expr import (
    ExprLowering,
    Node,
    Variables,
    bound_variable,
    constant,
    operation,
)

# Limits of the plan format (plan.h). A count beyond them is left out: it stays unknown until the
# loop runs, which the format allows.
MAX_HEIGHT = 64
MAX_SIZE = 1 << 16
MAX_BOUND_VARIABLES = 4

_I64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Repeat:
    """extent × body."""

    extent: ir.Expr
    body: Total


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of body over start .. start + extent - 1."""

    var: str
    start: ir.Expr
    extent: ir.Expr
    body: Total


Term: TypeAlias = Repeat | Sum


@dataclass(frozen=True, slots=True)
class Total:
    """A constant and terms, added up."""

    constant: int = 0
    terms: tuple[Term, ...] = ()


ZERO = Total()


def tasks_of(body: ir.Body) -> Total:
    """The number of tasks of a body."""
    parts = list(_parts(body))
    total = sum(part for part in parts if isinstance(part, int))
    terms: list[Term] = []
    for part in parts:
        if isinstance(part, int):
            continue
        value = _constant_value(part)
        if value is None or total + value > _I64_MAX:
            terms.append(part)
        else:
            total += value
    return Total(total, tuple(terms))


def _parts(body: ir.Body) -> Iterator[int | Term]:
    """What the statements of a body add; the children of a block count as if they stood alone."""
    for stmt in body:
        match stmt:
            case ir.Call():
                yield 1
            case ir.Combine(parts) | ir.Sequential(parts):
                for part in parts:
                    yield from _parts(part)
            case ir.Loop():
                inner = tasks_of(stmt.body)
                if inner == ZERO:
                    continue
                if stmt.var in variables(inner):
                    yield Sum(stmt.var, stmt.start, stmt.extent, inner)
                else:
                    yield Repeat(stmt.extent, inner)
            case _:
                assert_never(stmt)


def _constant_value(term: Term) -> int | None:
    """The value of a term that is constant and fits 64 bits."""
    match term:
        case Repeat(ir.Const(extent), Total(count, ())) if extent * count <= _I64_MAX:
            return extent * count
        case _:
            return None


def variables(total: Total) -> frozenset[str]:
    """The loop variables that a count depends on."""
    found: set[str] = set()
    for term in total.terms:
        inner = variables(term.body)
        if isinstance(term, Sum):
            inner = (inner - {term.var}) | ir.loop_vars(term.start)
        found |= inner | ir.loop_vars(term.extent)
    return frozenset(found)


def lower_count(total: Total, lowering: ExprLowering, values: Variables) -> int:
    """The count's entry in the EXPR table; NONE if the format cannot hold it."""
    if _depth(total) > MAX_BOUND_VARIABLES:
        return plan.NONE
    node = _node(total, lowering, values, 0)
    if node.height > MAX_HEIGHT or node.size > MAX_SIZE:
        return plan.NONE
    return lowering.emit(node)


def _depth(total: Total) -> int:
    """How many sums stand inside each other."""
    return max((isinstance(t, Sum) + _depth(t.body) for t in total.terms), default=0)


def _node(total: Total, lowering: ExprLowering, values: Variables, level: int) -> Node:
    nodes = [_term_node(term, lowering, values, level) for term in total.terms]
    if total.constant or not nodes:
        nodes.append(constant(total.constant))
    return _added(nodes)


def _added(nodes: Sequence[Node]) -> Node:
    """The sum as a balanced tree: many terms must not make a high one."""
    if len(nodes) == 1:
        return nodes[0]
    middle = (len(nodes) + 1) // 2
    return operation(plan.ExprOp.ADD, _added(nodes[:middle]), _added(nodes[middle:]))


def _term_node(term: Term, lowering: ExprLowering, values: Variables, level: int) -> Node:
    extent = lowering.node(term.extent, values)
    match term:
        case Repeat(_, Total(1, ())):
            return extent
        case Repeat(_, body):
            return operation(plan.ExprOp.MUL, extent, _node(body, lowering, values, level))
        case Sum(var, start, _, body):
            index = bound_variable(level)
            if start != ir.Const(0):
                index = operation(plan.ExprOp.ADD, lowering.node(start, values), index)
            inner = _node(body, lowering, {**values, var: index}, level + 1)
            arg = plan.ReduceOp.SUM | level << 8
            return operation(plan.ExprOp.REDUCE, constant(0), extent, inner, arg=arg)
        case _:
            assert_never(term)
