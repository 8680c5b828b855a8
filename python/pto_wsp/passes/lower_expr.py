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
    type: plan.ScalarType = plan.ScalarType.I64
    height: int = 1
    size: int = 1


def column_name(loop: str) -> str:
    """The key of a sparse loop's column among the variables of a place."""
    return f"column {loop}"


def slot_name(slot: str) -> str:
    """The key of a slot among the variables of a place."""
    return f"slot {slot}"


def constant(value: int) -> Node:
    return Node(plan.ExprOp.CONST, value=value)


def loop_variable(level: int) -> Node:
    return Node(plan.ExprOp.LOOPVAR, arg=level)


def bound_variable(level: int) -> Node:
    return Node(plan.ExprOp.BOUNDVAR, arg=level)


def operation(
    op: plan.ExprOp,
    *operands: Node,
    arg: int = 0,
    entry: int = plan.NONE,
    type: plan.ScalarType = plan.ScalarType.I64,
) -> Node:
    height = 1 + max(o.height for o in operands)
    size = 1 + sum(o.size for o in operands)
    return Node(op, operands, arg, entry, type=type, height=height, size=size)


_TYPES = {
    ir.ExprType.I64: plan.ScalarType.I64,
    ir.ExprType.BOOL: plan.ScalarType.BOOL,
    ir.ExprType.F64: plan.ScalarType.F64,
}


@dataclass(frozen=True, slots=True)
class ExprLowering:
    """Turns IR expressions into nodes and nodes into entries of the EXPR table."""

    builder: plan.PlanBuilder
    symbols: Mapping[str, int]
    tensors: dict[str, int]  # grows: temporaries get their numbers where they are made
    declared: Mapping[str, ir.SymbolDecl]

    def node(self, expr: ir.Expr, variables: Variables, bound: int = 0) -> Node:
        """`bound` is how many reductions stand around the expression already."""
        match expr:
            case ir.Const(value):
                return constant(value)
            case ir.LoopVar(name):
                return variables[name]
            case ir.Column(loop):
                return variables[column_name(loop)]
            case ir.SlotRef(slot):
                return variables[slot_name(slot)]
            case ir.FloatConst(bits):
                signed = bits - (bits >> 63 << 64)
                return Node(plan.ExprOp.CONST, value=signed, type=plan.ScalarType.F64)
            case ir.SymbolRef(name):
                return Node(plan.ExprOp.SYMBOL, entry=self.symbols[name], type=self.type(expr))
            case ir.ShapeOf(tensor, dim):
                return Node(plan.ExprOp.SHAPE, arg=dim, entry=self.tensors[tensor])
            case ir.BoundVar(level):
                return bound_variable(bound + level)
            case ir.ArrayLoad(array, index, column):
                places = (index,) if column is None else (index, column)
                nodes = (self.node(place, variables, bound) for place in places)
                return operation(plan.ExprOp.LOAD, *nodes, entry=self.symbols[array])
            case ir.Binary(op, lhs, rhs):
                operands = (self.node(side, variables, bound) for side in (lhs, rhs))
                return operation(plan.ExprOp[op.name], *operands, type=self.type(expr))
            case ir.Not(inner):
                return operation(
                    plan.ExprOp.NOT, self.node(inner, variables, bound), type=self.type(expr)
                )
            case ir.Select(condition, then, otherwise):
                nodes = (self.node(part, variables, bound) for part in (condition, then, otherwise))
                return operation(plan.ExprOp.SELECT, *nodes, type=self.type(expr))
            case ir.Reduce(op, level, lo, hi, body):
                nodes = (self.node(part, variables, bound) for part in (lo, hi, body))
                arg = plan.ReduceOp[op.name] | (bound + level) << 8
                return operation(plan.ExprOp.REDUCE, *nodes, arg=arg, type=self.type(expr))
            case ir.TaskAxis() | ir.TaskSite() | ir.TaskOrdinal():
                raise AssertionError("verify lets keys stand in schedules only")
            case ir.Search(level, lo, hi, predicate):
                nodes = (self.node(part, variables, bound) for part in (lo, hi, predicate))
                arg = (bound + level) << 8
                return operation(plan.ExprOp.SEARCH, *nodes, arg=arg)
            case _:
                assert_never(expr)

    def column(self, loop: ir.Loop, variables: Variables, index: Node) -> Node:
        """The column of a sparse loop: indices[indptr[row] + index]."""
        assert loop.lengths is not None
        assert loop.parent is not None
        assert loop.indices is not None
        row = operation(plan.ExprOp.LOAD, variables[loop.parent], entry=self.symbols[loop.lengths])
        place = operation(plan.ExprOp.ADD, row, index)
        return operation(plan.ExprOp.LOAD, place, entry=self.symbols[loop.indices])

    def type(self, expr: ir.Expr) -> plan.ScalarType:
        return _TYPES[ir.expr_type(expr, self.declared)]

    def emit(self, node: Node) -> int:
        """The number of a node in the EXPR table; operands get theirs first."""
        add = self.builder.expr
        match node.op:
            case plan.ExprOp.CONST:
                return self.builder.const(node.value, node.type)
            case plan.ExprOp.SYMBOL | plan.ExprOp.SHAPE | plan.ExprOp.SLOT | plan.ExprOp.LETVAR:
                return add(node.op, type=node.type, arg=node.arg, a=node.entry)
            case plan.ExprOp.LOAD:
                b, c = (*(self.emit(operand) for operand in node.operands), plan.NONE)[:2]
                return add(node.op, a=node.entry, b=b, c=c)
            case _:
                numbers = [self.emit(operand) for operand in node.operands]
                a, b, c = (*numbers, plan.NONE, plan.NONE, plan.NONE)[:3]
                return add(node.op, type=node.type, arg=node.arg, a=a, b=b, c=c)

    def lower(self, expr: ir.Expr, variables: Variables) -> int:
        return self.emit(self.node(expr, variables))
