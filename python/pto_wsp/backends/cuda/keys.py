"""Keys of tasks: as text, and what is known of their values while the kernel is written."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pto_wsp.backends.cuda.code import I64, Code, operands
from pto_wsp.backends.cuda.counting import Found
from pto_wsp.backends.cuda.intervals import ANYTHING, TRUTH, Interval, combined, either
from pto_wsp.backends.cuda.linear import linear
from pto_wsp.backends.cuda.nest import Call, Loop
from pto_wsp.backends.cuda.refused import refusal
from pto_wsp.error_codes import Code as ErrorCode
from pto_wsp.plan import NONE, Axis, Expr, ExprOp, Plan, Section


def reads_ordinal(plan: Plan, key: int) -> bool:
    """Whether a key reads the number of a task in program order."""
    return any(node.op == ExprOp.TASK_ORDINAL for node in _nodes(plan, key))


def _nodes(plan: Plan, key: int) -> Iterator[Expr]:
    node = plan.records(Expr, Section.SCHEDULE_EXPR)[key]
    yield node
    for operand in operands(node):
        yield from _nodes(plan, operand)


class Keys:
    """Of the tasks of calls, `loops` being around each, outermost first, by site."""

    def __init__(self, plan: Plan, loops: dict[int, tuple[Loop, ...]]) -> None:
        self._plan = plan
        self._loops = loops
        self._axes = plan.records(Axis)
        self._nodes = plan.records(Expr, Section.SCHEDULE_EXPR)

    def loop(self, site: int, name: str) -> Loop | None:
        """The innermost loop over an axis of that name around a call."""
        for loop in reversed(self._loops[site]):
            if self._plan.string(self._axes[loop.axis].name) == name:
                return loop
        return None

    def _axis(self, node: Expr, site: int) -> Loop | None:
        return self.loop(site, self._plan.schedule_string(node.a))

    def check(self, key: int, entry: int) -> None:
        """ScheduleError if some call does not stand in a loop that the key reads."""
        for node in _nodes(self._plan, key):
            if node.op != ExprOp.TASK_AXIS or node.b != NONE:
                continue
            for site in self._loops:
                if self._axis(node, site) is None:
                    name = self._plan.schedule_string(node.a)
                    raise refusal(
                        self._plan,
                        entry,
                        f"its key reads the loop {name!r}, in which the call of "
                        f"{self._plan.site_name(site)!r} does not stand",
                        f"use t.get({name!r}, 0), which has a value there",
                        ErrorCode.DIRECTIVE_VALUE,
                    )

    def levels(self, key: int, site: int) -> frozenset[int]:
        """The levels of the loops that a key reads at a call."""
        read = [n for n in _nodes(self._plan, key) if n.op == ExprOp.TASK_AXIS]
        loops = [self._axis(node, site) for node in read]
        return frozenset(loop.level for loop in loops if loop is not None)

    # --- as text ---

    def text(self, key: int, call: Call, found: Found, code: Code) -> str:
        """A name for the value of a key, i64. `t` is the number of the task."""
        value = self._text(key, call, found, code)
        return code.named(f"tl.full((), 0, {I64}) + {value}", "key")

    def _text(self, key: int, call: Call, found: Found, code: Code) -> str:
        node = self._nodes[key]
        match node.op:
            case ExprOp.CONST:
                return str(constant(node))
            case ExprOp.TASK_SITE:
                return str(call.site)
            case ExprOp.TASK_ORDINAL:
                return f"t.to({I64})"
            case ExprOp.TASK_AXIS:
                loop = self._axis(node, call.site)
                if loop is not None:
                    return found.scope.loops[loop.level]
                return self._text(node.b, call, found, code)
            case _:
                args = [self._text(operand, call, found, code) for operand in operands(node)]
                return code.operation(node, args)

    # --- what is known ---

    def interval(self, key: int, site: int) -> Interval:
        """The values that a key may have at a call."""
        node = self._nodes[key]
        match node.op:
            case ExprOp.CONST:
                value = constant(node)
                return value, value
            case ExprOp.TASK_SITE:
                return site, site
            case ExprOp.TASK_ORDINAL:
                return 0, math.inf
            case ExprOp.TASK_AXIS:
                loop = self._axis(node, site)
                return self.interval(node.b, site) if loop is None else self._indices(loop)
            case op if op in TRUTH:
                return 0, 1
            case ExprOp.SELECT:
                return either(self.interval(node.b, site), self.interval(node.c, site))
            case _:
                args = [self.interval(operand, site) for operand in operands(node)]
                return combined(node.op, args[0], args[-1])

    def _indices(self, loop: Loop) -> Interval:
        axis = self._axes[loop.axis]
        start, extent = linear(self._plan, axis.start), linear(self._plan, axis.extent)
        if start is None or any(start.by_level.values()):
            return ANYTHING
        if extent is None or any(extent.by_level.values()):
            return start.constant, math.inf
        return start.constant, start.constant + max(extent.constant, 1) - 1


def constant(node: Expr) -> int:
    bits = node.a | node.b << 32
    return bits - (1 << 64) if bits >> 63 else bits
