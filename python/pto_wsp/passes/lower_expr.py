"""Expressions on their way into a plan.

A `Node` is an expression node of the plan that has no number yet: it can be measured against the
limits of the format before it takes a place in the EXPR table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from pto_wsp import ir, plan

Variables: TypeAlias = Mapping[str, "Node"]
"""What loop variables stand for at some place."""


@dataclass(frozen=True, slots=True)
class Node:
    """`entry` is the symbol or tensor a leaf reads; `height` and `size` are those of the tree."""

    op: plan.ExprOp
    operands: tuple[Node, ...] = ()
    arg: int = 0
    entry: int = plan.NONE
    value: int = 0
    height: int = 1
    size: int = 1


def constant(value: int) -> Node:
    return Node(plan.ExprOp.CONST, value=value)


def loop_variable(level: int) -> Node:
    return Node(plan.ExprOp.LOOPVAR, arg=level)


def bound_variable(level: int) -> Node:
    return Node(plan.ExprOp.BOUNDVAR, arg=level)


def operation(op: plan.ExprOp, *operands: Node, arg: int = 0, entry: int = plan.NONE) -> Node:
    height = 1 + max(o.height for o in operands)
    return Node(op, operands, arg, entry, height=height, size=1 + sum(o.size for o in operands))


@dataclass(frozen=True, slots=True)
class ExprLowering:
    """Turns IR expressions into nodes and nodes into entries of the EXPR table."""

    builder: plan.PlanBuilder
    symbols: Mapping[str, int]
    tensors: Mapping[str, int]

    def node(self, expr: ir.Expr, variables: Variables) -> Node:
        match expr:
            case ir.Const(value):
                return constant(value)
            case ir.LoopVar(name):
                return variables[name]
            case ir.SymbolRef(name):
                return Node(plan.ExprOp.SYMBOL, entry=self.symbols[name])
            case ir.ShapeOf(tensor, dim):
                return Node(plan.ExprOp.SHAPE, arg=dim, entry=self.tensors[tensor])
            case ir.ArrayLoad(array, index):
                place = self.node(index, variables)
                return operation(plan.ExprOp.LOAD, place, entry=self.symbols[array])
            case ir.Binary(op, lhs, rhs):
                operands = self.node(lhs, variables), self.node(rhs, variables)
                return operation(plan.ExprOp[op.name], *operands)
            case _:
                assert_never(expr)

    def emit(self, node: Node) -> int:
        """The number of a node in the EXPR table; operands get theirs first."""
        add = self.builder.expr
        match node.op:
            case plan.ExprOp.CONST:
                return self.builder.const(node.value)
            case plan.ExprOp.SYMBOL | plan.ExprOp.SHAPE:
                return add(node.op, arg=node.arg, a=node.entry)
            case plan.ExprOp.LOAD:
                return add(node.op, a=node.entry, b=self.emit(node.operands[0]))
            case _:
                numbers = [self.emit(operand) for operand in node.operands]
                a, b, c = (*numbers, plan.NONE, plan.NONE, plan.NONE)[:3]
                return add(node.op, arg=node.arg, a=a, b=b, c=c)

    def lower(self, expr: ir.Expr, variables: Variables) -> int:
        return self.emit(self.node(expr, variables))
