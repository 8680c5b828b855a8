"""How often loops run, as far as a plan tells: sums of products of what is bound at execute."""

from __future__ import annotations

from typing import TypeAlias

from pto_wsp.backends.reference.expr import operands
from pto_wsp.plan import Expr, ExprOp, Plan, Symbol
from pto_wsp.plan.exprtext import ExprText

# By product of EXPR nodes, in ascending order: how often it is taken. The constant is at ().
Count: TypeAlias = dict[tuple[int, ...], int]

_VARIABLES = frozenset({ExprOp.LOOPVAR, ExprOp.SLOT, ExprOp.LETVAR, ExprOp.BOUNDVAR})


def constant(value: int) -> Count:
    return {(): value} if value else {}


def plus(a: Count, b: Count, times: int = 1) -> Count:
    """a + times * b."""
    total = dict(a)
    for product, number in b.items():
        total[product] = total.get(product, 0) + times * number
    return {product: number for product, number in total.items() if number}


def multiply(a: Count, b: Count) -> Count:
    total: Count = {}
    for p, m in a.items():
        for q, n in b.items():
            total = plus(total, {tuple(sorted((*p, *q))): m * n})
    return total


class Extents:
    """The expressions of a plan, seen as counts."""

    def __init__(self, plan: Plan) -> None:
        self._nodes = plan.records(Expr)
        self._symbols = plan.records(Symbol)
        self._text = ExprText(plan)

    def count(self, node: int) -> Count | None:
        """None if it may differ from iteration to iteration."""
        return None if self._varies(node) else self._count(node)

    def known(self, node: int) -> int | None:
        """The value of a constant."""
        count = self.count(node)
        return count.get((), 0) if count is not None and not count.keys() - {()} else None

    def symbol(self, node: int) -> int | None:
        """The node of the name whose value an extent is, or is in tiles: it is 0 or more, and 0
        where that is."""
        e = self._nodes[node]
        if e.op is ExprOp.SHAPE or (e.op is ExprOp.SYMBOL and self._symbols[e.a].min_value == 0):
            return node
        if e.op is not ExprOp.FLOORDIV or self._nodes[e.a].op is not ExprOp.ADD:
            return None
        above, tile = self._nodes[e.a], self.known(e.b)
        rounds_up = tile is not None and self.known(above.b) == tile - 1
        return self.symbol(above.a) if rounds_up else None

    def text(self, count: Count) -> str:
        """`2 * n + 1`."""
        parts: list[str] = []
        for product, number in sorted(count.items(), key=lambda item: -len(item[0])):
            factors = [f"({t})" if " " in t else t for t in map(self._text.expr, product)]
            size = [str(abs(number))] if abs(number) != 1 or not factors else []
            sign = ("-" if number < 0 else "") if not parts else (" - " if number < 0 else " + ")
            parts.append(sign + " * ".join(size + factors))
        return "".join(parts) or "0"

    def _varies(self, node: int) -> bool:
        e = self._nodes[node]
        return e.op in _VARIABLES or any(self._varies(each) for each in operands(e))

    def _count(self, node: int) -> Count:
        e = self._nodes[node]
        match e.op:
            case ExprOp.CONST:
                bits = e.a | e.b << 32
                return constant(bits - (1 << 64) if bits >> 63 else bits)
            case ExprOp.ADD:
                return plus(self._count(e.a), self._count(e.b))
            case ExprOp.SUB:
                return plus(self._count(e.a), self._count(e.b), -1)
            case ExprOp.MUL:
                return multiply(self._count(e.a), self._count(e.b))
            case _:
                return {(node,): 1}
