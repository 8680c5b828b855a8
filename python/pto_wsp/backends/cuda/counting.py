"""How many tasks a block has, and which of them is the n-th.

Tasks are numbered in program order. A loop whose iterations have equally many is divided by that
number; of any other the counts of its iterations are added up, a block of them at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol, assert_never

from pto_wsp.backends.cuda.code import I64, LANES, SUM, Code, Scope, chosen
from pto_wsp.backends.cuda.nest import (
    Block,
    Branch,
    Call,
    Item,
    Let,
    Loop,
    Path,
    Phases,
    Temporary,
)
from pto_wsp.plan import Axis, Plan

I32 = "tl.int32"


@dataclass(frozen=True, slots=True)
class Found:
    """Where a task is: the scope of its loops; for each open loop its iteration number by level;
    for each ordered construct (by pc) how many tasks of it come before this part; for each loop
    (by pc) its number among the tasks of that loop."""

    scope: Scope
    iterations: dict[int, str]
    before: dict[int, str]
    path: Path = ()
    numbers: dict[int, str] = field(default_factory=dict[int, str])

    def inside(self, scope: Scope, item: Loop | Branch | Phases, part: int = 0) -> Found:
        return replace(self, scope=scope, path=(*self.path, (item, part)))


class InTurns(Protocol):
    """What says of loops whose iterations come in turns which one a task is of."""

    def lanes(self, loop: Loop) -> int: ...

    def write(self, loop: Loop, number: str, scope: Scope, names: tuple[str, str, str]) -> None: ...


class Slanted(Protocol):
    """What says of two loops that they are numbered along diagonals."""

    def inner(self, loop: Loop) -> Loop | None: ...

    def count(self, loop: Loop, scope: Scope) -> str: ...

    def cell(self, loop: Loop, number: str, scope: Scope) -> tuple[str, str, str, str]: ...


class Counter:
    """Writes counts and searches. `weight(call, scope)` is how many tickets a call takes, mostly 1,
    and `weighed(call)` the levels of the loops that this depends on."""

    def __init__(
        self,
        plan: Plan,
        code: Code,
        weight: Callable[[Call, Scope], str],
        weighed: Callable[[Call], frozenset[int]] = lambda call: frozenset(),
    ) -> None:
        self._axes = plan.records(Axis)
        self._code = code
        self._weight = weight
        self._weighed = weighed
        self._lets: dict[int, frozenset[int]] = {}
        self.slanted: Slanted | None = None  # program order where there is none

    # --- what is known ---

    def depends(self, block: Block) -> frozenset[int]:
        """The levels of loops on which the number of tasks of a block depends."""
        found: frozenset[int] = frozenset()
        for item in block:
            match item:
                case Let():
                    self._lets[item.number] = self.node_depends(item.value)
                case Temporary():
                    pass
                case Call():
                    found |= self._weighed(item)
                case Branch():
                    found |= self.node_depends(item.condition)
                    found |= self.depends(item.then) | self.depends(item.other)
                case Phases():
                    for child in item.children:
                        found |= self.depends(child)
                case Loop():
                    found |= self.node_depends(self._axes[item.axis].extent)
                    found |= self.depends(item.body) - {item.level}
                case _:
                    assert_never(item)
        return found

    def node_depends(self, node: int) -> frozenset[int]:
        """The levels of loops that an expression reads, through lets."""
        found = self._code.depends(node)
        lets = [self._lets.get(-1 - k, frozenset[int]()) for k in found if k < 0]
        return frozenset(k for k in found if k >= 0).union(*lets)

    def varies(self, loop: Loop) -> bool:
        """Whether its iterations have different numbers of tasks."""
        return loop.level in self.depends(loop.body)

    def is_same_range(self, a: Loop, b: Loop) -> bool:
        """Whether two loops have the same iterations, as far as their text tells."""
        nodes = [(self._axes[loop.axis].start, self._axes[loop.axis].extent) for loop in (a, b)]
        return all(
            one == other and not self.node_depends(one) for one, other in zip(*nodes, strict=True)
        )

    def is_closed(self, loop: Loop) -> bool:
        """Whether the counts of its iterations depend on no other loop."""
        outer = self.depends(loop.body) - {loop.level}
        return not outer and not self.node_depends(self._axes[loop.axis].extent)

    # --- counts ---

    def extent_node(self, loop: Loop) -> int:
        return self._axes[loop.axis].extent

    def start_node(self, loop: Loop) -> int:
        return self._axes[loop.axis].start

    def extent(self, loop: Loop, scope: Scope) -> str:
        return self._code.named(_at_least(self._code.value(self._axes[loop.axis].extent, scope)))

    def start(self, loop: Loop, scope: Scope) -> str:
        return self._code.value(self._axes[loop.axis].start, scope)

    def variable(self, loop: Loop, iteration: str, scope: Scope) -> str:
        """The value of a loop's variable in an iteration."""
        start = self.start(loop, scope)
        return iteration if start == "0" else self._code.named(f"{iteration} + {start}", "i")

    def count(self, block: Block, scope: Scope) -> str:
        """A number or name of type i64. Lets of the block become known to the scope."""
        total = 0
        terms: list[str] = []
        for item in block:
            term = self._count_item(item, scope)
            if term.isdigit():
                total += int(term)
            else:
                terms.append(term)
        if total or not terms:
            terms.append(str(total))
        return self._code.named(" + ".join(terms), "n")

    def _count_item(self, item: Item, scope: Scope) -> str:
        match item:
            case Call():
                return self._weight(item, scope)
            case Let():
                self._code.let(item.number, item.value, scope)
                return "0"
            case Branch():
                condition = self._code.value(item.condition, scope)
                then = self.count(item.then, scope.inner())
                other = self.count(item.other, scope.inner())
                if then == other:
                    return then
                return self._code.named(chosen(condition, then, other), "n")
            case Phases():
                return self.count(tuple(i for child in item.children for i in child), scope)
            case Loop():
                return self._count_loop(item, scope)
            case _:
                return "0"

    def _count_loop(self, loop: Loop, scope: Scope) -> str:
        if self.slanted is not None and self.slanted.inner(loop) is not None:
            return self.slanted.count(loop, scope)
        extent = self.extent(loop, scope)
        if not self.varies(loop):
            inner = self._code.enter(scope, loop.level, self.start(loop, scope))
            each = self.count(loop.body, inner)
            if "0" in (each, extent):
                return "0"
            return extent if each == "1" else self._code.named(f"{extent} * {each}", "n")
        return self.total(loop, scope, lambda inner: self.count(loop.body, inner))

    def total(self, loop: Loop, scope: Scope, of: Callable[[Scope], str]) -> str:
        """The sum of what `of` says of each iteration: a block of them at a time, or, where the
        scope has blocks already, one after the other."""
        code, extent = self._code, self.extent(loop, scope)

        def each(numbers: str) -> str:
            variable = self.variable(loop, numbers, scope)
            return of(code.enter(scope, loop.level, variable, lanes=LANES))

        if not scope.lanes:
            return code.fold(SUM, "0", extent, each)
        total, at = code.fresh("n"), code.fresh("j")
        code.line(f"{total} = tl.full(({scope.lanes},), 0, {I64})")
        code.line(f"{at} = tl.full((), 0, {I64})")
        with code.block(f"while {at} < {code.named(f'tl.max({total} + {extent}, 0)')}:"):
            code.line(f"{total} += tl.where({at} < {extent}, {each(at)}, 0)")
            code.line(f"{at} += 1")
        return total


def _at_least(extent: str) -> str:
    """An extent is never negative."""
    return extent if extent.isdigit() else f"tl.maximum({extent}, 0)"


class Finder:
    """Writes the search for the task of a number: what of `nest` it is, and in which iterations."""

    def __init__(
        self, code: Code, counter: Counter, leaf: Callable[[Call, Found], None], turns: InTurns
    ) -> None:
        self._code = code
        self._counter = counter
        self._leaf = leaf
        self._turns = turns

    def find(self, block: Block, number: str, found: Found) -> None:
        """The task `number` (i32) of a block; `number` is less than the block's count."""
        code, counter = self._code, self._counter
        while block and isinstance(block[0], Let | Temporary):
            if isinstance(block[0], Let):
                code.let(block[0].number, block[0].value, found.scope)
            block = block[1:]
        if not block:
            return
        item, rest = block[0], block[1:]
        if all(isinstance(each, Let | Temporary) for each in rest):
            self._item(item, number, found)
            return
        count = counter.count((item,), found.scope.inner())
        if count == "0":
            self.find(rest, number, found)
            return
        short = count if count.isdigit() else code.named(f"({count}).to({I32})", "n")
        with code.block(f"if {number} < {short}:"):
            self._item(item, number, _inner(found))
        with code.block("else:"):
            self.find(rest, code.named(f"{number} - {short}", "r"), _inner(found))

    def _item(self, item: Item, number: str, found: Found) -> None:
        match item:
            case Call():
                self._leaf(item, found)
            case Branch():
                condition = self._code.value(item.condition, found.scope)
                if not item.other:
                    self.find(item.then, number, found.inside(found.scope, item))
                    return
                with self._code.block(f"if {condition}:"):
                    self.find(item.then, number, found.inside(found.scope.inner(), item))
                with self._code.block("else:"):
                    self.find(item.other, number, found.inside(found.scope.inner(), item, 1))
            case Phases():
                self._phases(item, number, found)
            case Loop():
                self._loop(item, number, found)
            case _:
                raise AssertionError(item)

    def _phases(self, item: Phases, number: str, found: Found) -> None:
        """Each part knows how many tasks the parts before it have."""
        code, scope, done, opened = self._code, found.scope, "0", 0
        for part, child in enumerate(item.children):
            before = {**found.before, item.pc: done}
            inner = replace(found, before=before).inside(scope, item, part)
            rest = code.named(f"{number} - {done}", "r")
            if part == len(item.children) - 1:
                self.find(child, rest, inner)
                break
            count = self._counter.count(child, scope)
            end = code.named(f"(tl.full((), 0, {I64}) + {done} + {count}).to({I32})", "n")
            with code.block(f"if {number} < {end}:"):
                self.find(child, rest, _inner(inner))
            code.open("else:")
            opened += 1
            scope, done = scope.inner(), end
        for _ in range(opened):
            code.close()

    def _loop(self, loop: Loop, number: str, found: Found) -> None:
        code, counter = self._code, self._counter
        inner = None if counter.slanted is None else counter.slanted.inner(loop)
        if counter.slanted is not None and inner is not None:
            there, row, column, rest = counter.slanted.cell(loop, number, found.scope)
            with code.block(f"if {there}:"):
                inside = self._enter(loop, row, number, "", _inner(found))
                self.find(inner.body, rest, self._enter(inner, column, number, "", inside))
            return
        iteration, rest, done = code.fresh("k"), code.fresh("r"), code.fresh("d")
        if self._turns.lanes(loop):
            self._turns.write(loop, number, found.scope, (iteration, rest, done))
        elif counter.varies(loop):
            self._scan(loop, number, found.scope, (iteration, rest, done))
        else:
            start = counter.start(loop, found.scope)
            inner = code.enter(found.scope, loop.level, start)
            each = counter.count(loop.body, inner)
            short = each if each.isdigit() else code.named(f"({each}).to({I32})", "n")
            code.line(
                f"{iteration} = {number} // {short}" if short != "1" else f"{iteration} = {number}"
            )
            code.line(f"{done} = {iteration} * {short}")
            code.line(f"{rest} = {number} - {done}")
        self.find(loop.body, rest, self._enter(loop, iteration, number, done, found))

    def _enter(self, loop: Loop, iteration: str, number: str, done: str, found: Found) -> Found:
        """One iteration of a loop; `done` tasks of the loop come before it."""
        code = self._code
        wide = code.named(f"({iteration}).to({I64})", "k")
        variable = self._counter.variable(loop, wide, found.scope)
        scope = code.enter(found.scope, loop.level, variable)
        outer = {k: v for k, v in found.iterations.items() if k < loop.level}
        before = {**found.before, loop.pc: done} if loop.ordered else found.before
        numbers = {**found.numbers, loop.pc: number}
        inside = Found(scope, {**outer, loop.level: wide}, before, found.path, numbers)
        return inside.inside(scope, loop)

    def _scan(self, loop: Loop, number: str, scope: Scope, names: tuple[str, str, str]) -> None:
        """Counts of iterations, a block at a time, until the block that has the task."""
        code = self._code
        iteration, rest, done = names
        at, ends, all_ = (code.fresh(s) for s in ("at", "ends", "all"))
        if self._counter.is_closed(loop):
            with code.in_prelude():
                first = self._block(loop, "0", code.closed)
        else:
            first = self._block(loop, "0", scope)
        code.line(f"{at} = tl.full((), 0, {I32})")
        code.line(f"{rest} = {number} + tl.full((), 0, {I32})")
        code.line(f"{ends}, {all_} = {', '.join(first)}")
        with code.block(f"while {rest} >= {all_}:"):
            code.line(f"{rest} -= {all_}")
            code.line(f"{at} += {LANES}")
            code.line(f"{ends}, {all_} = {', '.join(self._block(loop, at, scope))}")
        # Ends do not fall: of the last one that is not beyond the task, both parts are largest.
        before = code.named(f"tl.max(tl.where(({ends} >> 32) <= {rest}, {ends}, 0), 0)")
        code.line(f"{rest} -= ({before} >> 32).to({I32})")
        code.line(f"{iteration} = {at} + (({before}) & 0xFFFFFFFF).to({I32})")
        code.line(f"{done} = {number} - {rest}")

    def _block(self, loop: Loop, at: str, scope: Scope) -> tuple[str, str]:
        """Of a block of iterations from `at` on: for each the tasks up to its end, and in the lower
        half of the word the number of iterations; and how many tasks there are in all."""
        code, counter = self._code, self._counter
        numbers = code.numbers(at)
        extent = counter.extent(loop, scope)
        inner = code.enter(scope, loop.level, "", lanes=LANES)
        inner.loops[loop.level] = counter.variable(loop, numbers, scope)
        count = counter.count(loop.body, inner)
        counts = f"tl.where({numbers} < {extent}, {count}, 0)"
        all_ = code.named(f"tl.sum({counts}, 0)", "all")
        ends = code.named(f"tl.cumsum({counts}.to({I32}), 0).to({I64})", "ends")
        places = f"(tl.arange(0, {LANES}) + 1)"
        return code.named(f"({ends} << 32) | {places}", "ends"), code.named(f"({all_}).to({I32})")


def _inner(found: Found) -> Found:
    return replace(found, scope=found.scope.inner())
