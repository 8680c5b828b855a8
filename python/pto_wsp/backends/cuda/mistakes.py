"""Mistakes in expressions of control: an index outside its array, a division by zero, a product of
numbers beyond 64 bits. What can be proved from the text is not looked at.

A mistake only sets a word, under the condition that the reference would evaluate the expression at
all; which one it is, and how it is told, the reference says. Until then an element that is not
there is 0, and who divides by zero divides by 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache

from pto_wsp.backends.cuda.code import I64, LANES, Code, Names, Scope, operands
from pto_wsp.backends.cuda.counting import I32
from pto_wsp.backends.cuda.intervals import ANYTHING, TRUTH, Interval, combined, either
from pto_wsp.backends.cuda.keys import constant
from pto_wsp.plan import Axis, Expr, ExprOp, Instr, Op, Plan

_LIMIT = float(1 << 63)
_BEYOND = _LIMIT * (1 + 2.0**-50)  # a product of floats is no larger if that of integers fits
_DIVISIONS = (ExprOp.FLOORDIV, ExprOp.MOD)
_LARGEST_EXTENT = 1 << 48  # of an array; memory has no more


@dataclass(frozen=True, slots=True)
class At:
    """Where expressions are evaluated: `wrong` is the name of what a mistake sets, `mask` whether
    they are evaluated at all ("": always), `seen` the nodes that were looked at."""

    scope: Scope
    wrong: str
    mask: str = ""
    seen: set[int] = field(default_factory=set[int])

    def inside(self, scope: Scope, mask: str) -> At:
        return replace(self, scope=scope, mask=mask, seen={*self.seen})


class Mistakes:
    """Which expressions may have no value, and the lines that find out."""

    def __init__(self, plan: Plan, code: Code) -> None:
        self._plan = plan
        self._code = code
        self._nodes = plan.records(Expr)
        self._lets = {i.operand1: i.operand2 for i in plan.records(Instr) if i.opcode == Op.LET}
        self.flags: dict[int, str] = {}  # by node that has one value in a run: whether it has none
        self.may = cache(self._may)
        self.bounds = cache(self._bounds)

    # --- what is known ---

    def _may(self, node: int) -> bool:
        """Whether it is not proved to have a value."""
        return self._may_itself(node) or any(map(self.may, operands(self._nodes[node])))

    def _may_itself(self, node: int) -> bool:
        e = self._nodes[node]
        if e.op in _DIVISIONS:
            low, high = self.bounds(e.b)
            return low <= 0 <= high
        return e.op == ExprOp.LOAD or self._may_overflow(node)

    def _may_overflow(self, node: int) -> bool:
        """Products of what is given once for a run; those of loop indices are not looked at."""
        if self._nodes[node].op != ExprOp.MUL or not self._code.is_closed(node):
            return False
        low, high = self.bounds(node)
        return low < -_LIMIT or high >= _LIMIT

    def _bounds(self, node: int) -> Interval:
        e = self._nodes[node]
        match e.op:
            case ExprOp.CONST:
                return constant(e), constant(e)
            case ExprOp.LOOPVAR:
                return self._indices(e.arg)
            case ExprOp.LETVAR:
                return self.bounds(self._lets[e.a])
            case ExprOp.SHAPE:
                return 0, _LARGEST_EXTENT
            case op if op in TRUTH:
                return 0, 1
            case ExprOp.SELECT:
                return either(self.bounds(e.b), self.bounds(e.c))
            case ExprOp.LOAD | ExprOp.SYMBOL | ExprOp.BOUNDVAR | ExprOp.REDUCE | ExprOp.SEARCH:
                return ANYTHING
            case ExprOp.NEG | ExprOp.CAST:
                low, high = self.bounds(e.a)
                return (-high, -low) if e.op == ExprOp.NEG else (low, high)
            case _:
                return combined(e.op, self.bounds(e.a), self.bounds(e.b))

    def _indices(self, level: int) -> Interval:
        """Of any loop at that level."""
        starts = [self.bounds(a.start)[0] for a in self._plan.records(Axis) if a.level == level]
        return min(starts, default=-math.inf), math.inf

    def _always(self, node: int) -> list[int]:
        """The operands that are evaluated whenever the node is."""
        e = self._nodes[node]
        asked = {ExprOp.SELECT: 1, ExprOp.REDUCE: 2, ExprOp.SEARCH: 2}
        return operands(e)[: asked.get(e.op)]

    def sure(self, node: int) -> set[int]:
        """The nodes that are evaluated whenever this one is."""
        return {node}.union(*map(self.sure, self._always(node)))

    def once(self, node: int) -> set[int]:
        """The largest of them that have one value in a run, and may have none."""
        if not self.may(node):
            return set()
        if self._code.is_closed(node):
            return {node}
        return set[int]().union(*map(self.once, self._always(node)))

    def closed(self, node: int) -> set[int]:
        """The largest of its parts that have one value in a run, and may have none."""
        if not self.may(node):
            return set()
        if self._code.is_closed(node):
            return {node}
        return set[int]().union(*(self.closed(each) for each in operands(self._nodes[node])))

    def is_left(self, node: int, seen: set[int]) -> bool:
        """Whether it may have no value although those that were looked at have one."""
        if node in seen or not self.may(node):
            return False
        below = operands(self._nodes[node])
        return self._may_itself(node) or any(self.is_left(each, seen) for each in below)

    # --- lines ---

    def also(self, at: At, condition: str) -> str:
        """The mask of what is evaluated only where a condition holds."""
        return self._code.named(f"({at.mask}) & ({condition})" if at.mask else condition, "mask")

    def say(self, at: At, condition: str) -> None:
        """A condition that is a mistake."""
        found = f"({at.mask}) & ({condition})" if at.mask else condition
        self._code.line(f"{at.wrong} = {at.wrong} | tl.where({found}, 1, 0)")

    def look(self, node: int, at: At) -> None:
        """Writes what finds mistakes in an expression."""
        if node in at.seen or not self.may(node):
            return
        at.seen.add(node)
        if node in self.flags:
            self.say(at, f"{self.flags[node]} > 0")
            at.seen.update(self.sure(node))
            return
        e = self._nodes[node]
        match e.op:
            case ExprOp.SELECT:
                self._select(e, at)
            case ExprOp.REDUCE:
                self._reduce(e, at)
            case ExprOp.SEARCH:
                self._search(e, at)
            case _:
                for operand in operands(e):
                    self.look(operand, at)
                if self._may_itself(node):
                    self._operation(e, at)

    def _operation(self, e: Expr, at: At) -> None:
        values = [self._code.value(operand, at.scope) for operand in operands(e)]
        if e.op == ExprOp.LOAD:
            self._code.symbols.add(e.a)
            array = Names.array(e.a)
            for d, index in enumerate(values):
                self.say(at, f"({index} < 0) | ({index} >= {array}_n{d})")
        elif e.op in _DIVISIONS:
            self.say(at, f"{values[1]} == tl.full((), 0, {I64})")
        else:
            a, b = (f"(tl.full((), 0, {I64}) + {value}).to(tl.float64)" for value in values)
            self.say(at, f"tl.abs({a} * {b}) >= {_BEYOND}")

    def _select(self, e: Expr, at: At) -> None:
        self.look(e.a, at)
        if not (self.may(e.b) or self.may(e.c)):
            return
        chosen = self._code.value(e.a, at.scope)
        for side, holds in ((e.b, f"({chosen}) != 0"), (e.c, f"({chosen}) == 0")):
            if chosen in ("0", "1"):
                if (chosen == "1") == (side == e.b):
                    self.look(side, at)
            elif self.may(side):
                self.look(side, at.inside(at.scope, self.also(at, holds)))

    def _inner(self, e: Expr, scope: Scope, name: str) -> Scope:
        """The scope inside a REDUCE or SEARCH, with a name for its variable."""
        inner = scope.inner()
        inner.bound[e.arg >> 8] = name
        inner.known = {k: v for k, v in scope.known.items() if not self._code.is_bound(k, e)}
        return inner

    def _reduce(self, e: Expr, at: At) -> None:
        """By blocks of values where the scope has one of each, else value by value."""
        self.look(e.a, at)
        self.look(e.b, at)
        if not self.may(e.c):
            return
        low, high = (self._code.value(node, at.scope) for node in (e.a, e.b))
        self.each(low, high, at, lambda x, inner: self._body(e, x, inner))

    def _body(self, e: Expr, variable: str, at: At) -> None:
        scope = self._inner(e, at.scope, variable)
        self.look(e.c, replace(at, scope=scope))

    def _search(self, e: Expr, at: At) -> None:
        self.look(e.a, at)
        self.look(e.b, at)
        if not self.may(e.c):
            return
        code, lanes = self._code, at.scope.lanes
        first, last = (code.value(node, at.scope) for node in (e.a, e.b))
        like = f"tl.full(({lanes},), 0, {I64})" if lanes else f"tl.full((), 0, {I64})"
        low, high = code.fresh("low"), code.fresh("high")
        code.line(f"{high} = {like} + {last}")
        code.line(f"{low} = {like} + tl.minimum({first}, {high})")
        again = self._any(at, f"{low} < {high}")
        with code.block(f"while {again}:"):
            middle = code.named(f"({low} + {high}) >> 1", "mid")
            scope = self._inner(e, at.scope, middle)
            inside = at.inside(scope, self.also(at, f"{low} < {high}"))
            self.look(e.c, inside)
            holds = code.value(e.c, scope)
            open_ = f"({low} < {high})"
            code.line(
                f"{low}, {high} = tl.where({open_} & (({holds}) == 0), {middle} + 1, {low}), "
                f"tl.where({open_} & (({holds}) != 0), {middle}, {high})"
            )

    def _any(self, at: At, condition: str) -> str:
        """Whether a condition holds for some value, where anything is evaluated."""
        found = f"({at.mask}) & ({condition})" if at.mask else condition
        return f"tl.max(tl.where({found}, 1, 0), 0) > 0" if at.scope.lanes else found

    def each(self, low: str, high: str, at: At, write: Callable[[str, At], None]) -> None:
        """What `write(numbers, at)` writes, for all numbers from `low` below `high`: a block at a
        time, or one by one where the scope has blocks already."""
        code, lanes = self._code, at.scope.lanes
        x = code.fresh("x")
        if lanes:
            code.line(f"{x} = tl.min(tl.full(({lanes},), 0, {I64}) + {low}, 0)")
            with code.block(f"while {self._any(at, f'{x} < {high}')}:"):
                mask = self.also(at, f"({x} >= {low}) & ({x} < {high})")
                write(x, at.inside(at.scope.inner(), mask))
                code.line(f"{x} += 1")
            return
        bad = code.fresh("bad")
        code.line(f"{x} = tl.full((), 0, {I64}) + {low}")
        with code.block(f"while {self._any(at, f'{x} < {high}')}:"):
            numbers = code.numbers(x)
            code.line(f"{bad} = tl.zeros(({LANES},), {I32})")
            scope = at.scope.inner()
            scope.lanes = LANES
            mask = code.named(f"{numbers} < {high}", "mask")
            write(numbers, replace(at.inside(scope, mask), wrong=bad))
            code.line(f"{at.wrong} = {at.wrong} | tl.max({bad}, 0)")
            code.line(f"{x} += {LANES}")
