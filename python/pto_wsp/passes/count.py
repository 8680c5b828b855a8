"""How many tasks a body generates, as an expression of symbols and outer loop variables.

A loop whose iterations are all alike counts extent × body. Otherwise the count is a sum over the
loop's index, a REDUCE in the plan, with start + bound variable in the place of the loop variable.
Conditions are SELECTs. Slots that the body itself sets are not known before it runs; others are,
when an iteration begins.
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
    column_name,
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
    """The sum of body over the values of a loop."""

    loop: ir.Loop
    body: Total


@dataclass(frozen=True, slots=True)
class Choice:
    """One of two counts."""

    condition: ir.Expr
    then: Total
    otherwise: Total


Term: TypeAlias = Repeat | Sum | Choice


@dataclass(frozen=True, slots=True)
class Total:
    """A constant and terms, added up."""

    constant: int = 0
    terms: tuple[Term, ...] = ()


ZERO = Total()


class Unknown(Exception):
    """The count depends on what the tasks compute."""


def tasks_of(body: ir.Body) -> Total | None:
    """The number of tasks of a body; None if nobody knows before it runs."""
    set_inside = {stmt.slot for stmt in ir.walk(body) if isinstance(stmt, ir.SlotSet | ir.SlotLoad)}
    try:
        return _total(body, set_inside)
    except Unknown:
        return None


def _total(body: ir.Body, changing: set[str]) -> Total:
    parts = list(_parts(body, changing))
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


def _parts(body: ir.Body, changing: set[str]) -> Iterator[int | Term]:
    """What the statements of a body add; the children of a block count as if they stood alone.
    `changing` are slots whose values nobody knows before."""
    for stmt in body:
        match stmt:
            case ir.Call():
                yield 1
            case ir.SlotSet() | ir.SlotLoad() | ir.Alloc() | ir.Receive() | ir.Close():
                continue
            case ir.Send(_, inner):
                yield from _parts(inner, changing)
            case ir.Network(processes):
                for process in processes:
                    yield from _parts(process.body, changing)
            case ir.Combine(parts) | ir.Sequential(parts):
                for part in parts:
                    yield from _parts(part, changing)
            case ir.Loop():
                inner = _total(stmt.body, changing)
                if inner == ZERO:
                    continue
                _check_known(changing, stmt.start, stmt.extent)
                if stmt.var in variables(inner):
                    yield Sum(stmt, inner)
                else:
                    yield Repeat(stmt.extent, inner)
            case ir.Cond(condition, then, otherwise):
                choice = Choice(condition, _total(then, changing), _total(otherwise, changing))
                if choice.then == choice.otherwise:  # as of tiers, a task whatever is chosen
                    yield choice.then.constant
                    yield from choice.then.terms
                    continue
                _check_known(changing, condition)
                yield choice
            case ir.While() | ir.Consume():
                if _total(stmt.body, changing) != ZERO:
                    raise Unknown
            case _:
                assert_never(stmt)


def _check_known(changing: set[str], *exprs: ir.Expr) -> None:
    for expr in exprs:
        for node in ir.walk_expr(expr):
            if isinstance(node, ir.SlotRef) and node.slot in changing:
                raise Unknown


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
        match term:
            case Repeat(extent, body):
                found |= variables(body) | ir.loop_vars(extent)
            case Sum(loop, body):
                found |= variables(body) - {loop.var}
                found |= ir.loop_vars(loop.start) | ir.loop_vars(loop.extent)
                if loop.kind is ir.AxisKind.SPARSE and loop.parent is not None:
                    found.add(loop.parent)  # its columns are read in the row
            case Choice(condition, then, otherwise):
                found |= ir.loop_vars(condition) | variables(then) | variables(otherwise)
            case _:
                assert_never(term)
    return frozenset(found)


def lower_count(total: Total | None, lowering: ExprLowering, values: Variables) -> int:
    """The count's entry in the EXPR table; NONE if it is unknown or the format cannot hold it."""
    if total is None:
        return plan.NONE
    node = _node(total, lowering, values, 0)
    if node.height > MAX_HEIGHT or node.size > MAX_SIZE or _depth(node) > MAX_BOUND_VARIABLES:
        return plan.NONE
    return lowering.emit(node)


def _depth(node: Node) -> int:
    """How many reductions and searches stand inside each other."""
    inner = max((_depth(operand) for operand in node.operands), default=0)
    return inner + (node.op in (plan.ExprOp.REDUCE, plan.ExprOp.SEARCH))


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
    match term:
        case Repeat(extent, Total(1, ())):
            return lowering.node(extent, values, level)
        case Repeat(extent, body):
            inner = _node(body, lowering, values, level)
            return operation(plan.ExprOp.MUL, lowering.node(extent, values, level), inner)
        case Sum(loop, body):
            return _sum_node(loop, body, lowering, values, level)
        case Choice(condition, then, otherwise):
            return operation(
                plan.ExprOp.SELECT,
                lowering.node(condition, values, level),
                _node(then, lowering, values, level),
                _node(otherwise, lowering, values, level),
            )
        case _:
            assert_never(term)


def _sum_node(
    loop: ir.Loop, body: Total, lowering: ExprLowering, values: Variables, level: int
) -> Node:
    index = bound_variable(level)
    if loop.start != ir.Const(0):
        index = operation(plan.ExprOp.ADD, lowering.node(loop.start, values, level), index)
    inside = {**values, loop.var: index}
    if loop.kind is ir.AxisKind.SPARSE:
        inside[column_name(loop.var)] = lowering.column(loop, values, index)
    inner = _node(body, lowering, inside, level + 1)
    extent = lowering.node(loop.extent, values, level)
    arg = plan.ReduceOp.SUM | level << 8
    return operation(plan.ExprOp.REDUCE, constant(0), extent, inner, arg=arg)
