"""Expressions that are sums of loop variables."""

from __future__ import annotations

from dataclasses import dataclass, field

from pto_wsp.plan import Expr, ExprOp, Plan


@dataclass(frozen=True, slots=True)
class Linear:
    """constant + the sum of by_level[l] × the variable of loop l."""

    constant: int = 0
    by_level: dict[int, int] = field(default_factory=dict[int, int])

    def own(self, shared: int) -> dict[int, int]:
        """The part of loops that are not among the outermost `shared` ones."""
        return {level: by for level, by in self.by_level.items() if level >= shared and by}

    def rest(self, shared: int) -> tuple[int, dict[int, int]]:
        return self.constant, {k: v for k, v in self.by_level.items() if k < shared and v}

    def at_most(self, limit: int) -> bool:
        return not any(self.by_level.values()) and self.constant <= limit


def linear(plan: Plan, node: int) -> Linear | None:
    """None if the expression is anything else."""
    e = plan.records(Expr)[node]
    match e.op:
        case ExprOp.CONST:
            bits = e.a | e.b << 32
            return Linear(bits - (1 << 64) if bits >> 63 else bits)
        case ExprOp.LOOPVAR:
            return Linear(0, {e.arg: 1})
        case ExprOp.ADD | ExprOp.SUB | ExprOp.MUL:
            a, b = linear(plan, e.a), linear(plan, e.b)
            return None if a is None or b is None else _combined(e.op, a, b)
        case _:
            return None


def _combined(op: ExprOp, a: Linear, b: Linear) -> Linear | None:
    if op == ExprOp.MUL:
        if not a.by_level:
            a, b = b, a
        if b.by_level:
            return None
        by = {level: by * b.constant for level, by in a.by_level.items()}
        return Linear(a.constant * b.constant, by)
    sign = -1 if op == ExprOp.SUB else 1
    levels = {*a.by_level, *b.by_level}
    by = {k: a.by_level.get(k, 0) + sign * b.by_level.get(k, 0) for k in levels}
    return Linear(a.constant + sign * b.constant, by)


def factored(plan: Plan, node: int) -> tuple[int, int]:
    """A node as a constant times another one."""
    e = plan.records(Expr)[node]
    if e.op == ExprOp.MUL:
        for one, other in ((e.a, e.b), (e.b, e.a)):
            constant = linear(plan, one)
            if constant is not None and not constant.by_level and constant.constant > 0:
                factor, rest = factored(plan, other)
                return constant.constant * factor, rest
    return 1, node
