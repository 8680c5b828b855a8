"""Expressions and regions as text."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from pto_wsp.plan.enums import NONE, ExprOp, ReduceOp, ScalarType, Section
from pto_wsp.plan.reader import PlanReader
from pto_wsp.plan.records import Access, AccessDim, Expr, ExprRef, Slot, Symbol, Tensor

# Infix operators with their binding strength; a higher number binds tighter.
_INFIX = {
    ExprOp.OR: ("or", 1),
    ExprOp.AND: ("and", 2),
    ExprOp.EQ: ("==", 4),
    ExprOp.NE: ("!=", 4),
    ExprOp.LT: ("<", 4),
    ExprOp.LE: ("<=", 4),
    ExprOp.GT: (">", 4),
    ExprOp.GE: (">=", 4),
    ExprOp.ADD: ("+", 5),
    ExprOp.SUB: ("-", 5),
    ExprOp.MUL: ("*", 6),
    ExprOp.FLOORDIV: ("//", 6),
    ExprOp.MOD: ("%", 6),
    ExprOp.DIV: ("/", 6),
}
_NOT, _NEG, _ATOM = 3, 7, 8
_REDUCE = {
    ReduceOp.SUM: "sum",
    ReduceOp.MIN: "min",
    ReduceOp.MAX: "max",
    ReduceOp.ANY: "any",
    ReduceOp.ALL: "all",
}
_DROPPED = 1


class ExprText:
    """Prints the expressions of one plan.

    Loop variables are i0, i1, ... by level, variables of reductions x0, x1, ... by nesting.
    """

    def __init__(self, plan: PlanReader, section: Section = Section.EXPR) -> None:
        self._plan = plan
        self._nodes = plan.records(Expr, section)

    def expr(self, index: int) -> str:
        """One expression."""
        return self._text(index)[0]

    def exprs(self, first: int, count: int) -> str:
        """A run of EXPR_LIST, separated by commas."""
        run = self._plan.records(ExprRef)[first : first + count]
        return ", ".join(self.expr(item.expr) for item in run)

    def is_const(self, index: int, value: int) -> bool:
        """Whether an expression is this integer."""
        node = self._nodes[index]
        return node.op is ExprOp.CONST and _const(node) == str(value)

    def region(self, access: Access) -> str:
        """A region like X[i0, 0:+16]: an index is a dimension that the kernel does not see."""
        dims = self._plan.records(AccessDim)[access.dims : access.dims + access.rank]
        name = self._plan.string(self._plan.records(Tensor)[access.tensor].name)
        return f"{name}[{', '.join(self._dim(dim) for dim in dims)}]"

    def _dim(self, dim: AccessDim) -> str:
        start = self.expr(dim.start)
        if dim.flags & _DROPPED:
            return start
        step = "" if self.is_const(dim.step, 1) else f":{self.expr(dim.step)}"
        return f"{start}:+{self.expr(dim.extent)}{step}"

    def _text(self, index: int) -> tuple[str, int]:
        """The text and how tightly it binds."""
        node = self._nodes[index]
        if node.op in _INFIX:
            return self._infix(node)
        if node.op is ExprOp.NEG:
            return f"-{self._operand(node.a, _NEG)}", _NEG
        if node.op is ExprOp.NOT:
            return f"not {self._operand(node.a, _NOT)}", _NOT
        text = self._leaf(node)
        return text if text is not None else self._call(node), _ATOM

    def _infix(self, node: Expr) -> tuple[str, int]:
        sign, strength = _INFIX[node.op]
        # Operators group to the left, so an equal strength on the right needs parentheses.
        left, right = self._operand(node.a, strength), self._operand(node.b, strength + 1)
        return f"{left} {sign} {right}", strength

    def _operand(self, index: int, strength: int) -> str:
        text, own = self._text(index)
        return text if own >= strength else f"({text})"

    def _leaf(self, node: Expr) -> str | None:
        """Nodes without expression operands; None for the others."""
        plan = self._plan
        match node.op:
            case ExprOp.CONST:
                return _const(node)
            case ExprOp.LOOPVAR:
                return f"i{node.arg}"
            case ExprOp.BOUNDVAR:
                return f"x{node.arg}"
            case ExprOp.SYMBOL:
                return plan.string(plan.records(Symbol)[node.a].name)
            case ExprOp.SHAPE:
                return f"{plan.string(plan.records(Tensor)[node.a].name)}.shape[{node.arg}]"
            case ExprOp.SLOT:
                return slot_name(plan, node.a)
            case ExprOp.LETVAR:
                return f"let{node.a}"
            case ExprOp.TASK_AXIS:
                return f"task[{plan.schedule_string(node.a)!r}]"
            case ExprOp.TASK_SITE:
                return "task.site"
            case ExprOp.TASK_ORDINAL:
                return "task.ordinal"
            case _:
                return None

    def _call(self, node: Expr) -> str:
        match node.op:
            case ExprOp.LOAD:
                name = self._plan.string(self._plan.records(Symbol)[node.a].name)
                return f"{name}[{self._args(node.b, node.c)}]"
            case ExprOp.CAST:
                return f"{node.type.name.lower()}({self.expr(node.a)})"
            case ExprOp.REDUCE:
                return self._fold(_REDUCE[ReduceOp(node.arg & 0xFF)], node)
            case ExprOp.SEARCH:
                return self._fold("first", node)
            case _:
                return f"{node.op.name.lower()}({self._args(node.a, node.b, node.c)})"

    def _fold(self, name: str, node: Expr) -> str:
        low, high, body = self.expr(node.a), self.expr(node.b), self.expr(node.c)
        return f"{name}(x{node.arg >> 8} in {low}..{high}: {body})"

    def _args(self, *operands: int) -> str:
        return ", ".join(self.expr(operand) for operand in operands if operand != NONE)


def slot_name(plan: PlanReader, index: int) -> str:
    """A slot's name, or its number."""
    name = plan.records(Slot)[index].name
    return f"slot{index}" if name == NONE else plan.string(name)


def bits_text(bits: int, type: ScalarType) -> str:
    """A 64-bit constant read as a value of a type."""
    match type:
        case ScalarType.I64:
            return str(bits - (1 << 64) if bits >> 63 else bits)
        case ScalarType.F64:
            return repr(struct.unpack("<d", struct.pack("<Q", bits))[0])
        case ScalarType.BOOL:
            return "true" if bits else "false"


def table(rows: Sequence[str], title: str) -> list[str]:
    """A titled list, or nothing if there are no rows; rows are numbered."""
    if not rows:
        return []
    return ["", title, *(f"{number:4} {row}" for number, row in enumerate(rows))]


def _const(node: Expr) -> str:
    return bits_text(node.a | node.b << 32, node.type)
