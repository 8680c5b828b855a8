"""The least and the largest value of expressions, as far as their text tells."""

from __future__ import annotations

import math
from typing import TypeAlias

from pto_wsp.plan import ExprOp

# They may be infinite.
Interval: TypeAlias = tuple[float, float]

ANYTHING: Interval = -math.inf, math.inf
TRUTH = frozenset(
    {
        *(ExprOp.EQ, ExprOp.NE, ExprOp.LT, ExprOp.LE, ExprOp.GT, ExprOp.GE),
        *(ExprOp.AND, ExprOp.OR, ExprOp.NOT),
    }
)


def either(a: Interval, b: Interval) -> Interval:
    return min(a[0], b[0]), max(a[1], b[1])


def combined(op: ExprOp, a: Interval, b: Interval) -> Interval:
    """Of an operation on values of two intervals."""
    match op:
        case ExprOp.ADD:
            return a[0] + b[0], a[1] + b[1]
        case ExprOp.SUB:
            return a[0] - b[1], a[1] - b[0]
        case ExprOp.MIN:
            return min(a[0], b[0]), min(a[1], b[1])
        case ExprOp.MAX:
            return max(a[0], b[0]), max(a[1], b[1])
        case ExprOp.MUL:
            ends = [x * y if x and y else 0 for x in a for y in b]
            return min(ends), max(ends)
        case ExprOp.FLOORDIV if b[0] >= 1 and not math.isinf(b[1]):
            ends = [x if math.isinf(x) else x // y for x in a for y in b]
            return min(ends), max(ends)
        case ExprOp.FLOORDIV if b[0] >= 1 and a[0] >= 0:
            return 0, a[1] if math.isinf(a[1]) else a[1] // b[0]
        case ExprOp.MOD if b[0] >= 1:
            return (0, min(a[1], b[1] - 1)) if a[0] >= 0 else (0, b[1] - 1)
        case _:
            return ANYTHING
