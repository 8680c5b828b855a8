"""Numbers along diagonals, for two loops whose tasks wait for neighbours in the inner one.

Row by row, each task of a row waits for the one before it, and the blocks that took them wait too.
So rows are numbered some at a time: one task of each row in turn, each row `skew` columns behind
the one above it, which is where what it waits for has ended. Numbers are still topologically
ordered; those that fall beside the rows are those of no task, and cost next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pto_wsp.backends.cuda.code import Code, Scope
from pto_wsp.backends.cuda.counting import I32, Counter
from pto_wsp.backends.cuda.nest import Block, Branch, Loop, Phases, calls
from pto_wsp.backends.cuda.sync import Synchronisation, Wait, is_ordered


@dataclass(frozen=True, slots=True)
class Slant:
    """The rows, the columns, and how many columns a row lies behind the one above it."""

    outer: Loop
    inner: Loop
    skew: int


@dataclass(frozen=True, slots=True)
class _Panel:
    """So many rows at a time, of so many numbers each, which stand for `each` tasks; all texts."""

    rows: str
    cols: str
    height: str
    width: str
    each: str


class Diagonals:
    """Which loops are numbered so, and which task has a number. `workers`: how many blocks."""

    def __init__(
        self, code: Code, counter: Counter, nest: Block, sync: Synchronisation, workers: int
    ) -> None:
        self._code = code
        self._counter = counter
        self._workers = workers
        self.slants: dict[int, Slant] = {}  # by the pc of the outer loop
        for outer, inner in _pairs(nest):
            skew = None if outer in self._inner() else self._skew(outer, inner, sync)
            if skew is not None:
                self.slants[outer.pc] = Slant(outer, inner, skew)

    def _inner(self) -> list[Loop]:
        return [slant.inner for slant in self.slants.values()]

    def inner(self, loop: Loop) -> Loop | None:
        slant = self.slants.get(loop.pc)
        return None if slant is None else slant.inner

    def _skew(self, outer: Loop, inner: Loop, sync: Synchronisation) -> int | None:
        """None if rows are better numbered one after the other, or have to be."""
        counter, sites = self._counter, {call.site for call, _ in calls(inner.body)}
        tasks = [sync.tasks[site] for site in sites]
        starts_apart = outer.level in counter.node_depends(counter.start_node(inner))
        if starts_apart or counter.varies(outer) or counter.varies(inner):
            return None
        if any(is_ordered(each.path) for each in tasks):
            return None
        waits = [wait for each in tasks for wait in each.waits if sites & {*wait.group.sites}]
        vectors = [_vector(wait, outer, inner) for wait in waits]
        known = [vector for vector in vectors if vector is not None]
        if len(known) < len(vectors) or not any(up == 0 and left > 0 for up, left in known):
            return None
        return max(0, *(-((left - 1) // up) for up, left in known if up > 0), 0)

    def _panel(self, slant: Slant, scope: Scope) -> _Panel:
        """Diagonals are no longer than rows or columns are, and there are no more blocks."""
        code, counter = self._code, self._counter
        rows, cols = (counter.extent(loop, scope) for loop in (slant.outer, slant.inner))
        inside = scope
        for loop in (slant.outer, slant.inner):
            inside = code.enter(inside, loop.level, counter.start(loop, inside))
        each = counter.count(slant.inner.body, inside)
        least = f"tl.minimum(tl.minimum({rows}, {cols}), {self._workers})"
        height = code.named(f"tl.maximum({least}, 1)", "height")
        width = code.named(f"{cols} + {slant.skew} * ({height} - 1)", "width")
        return _Panel(rows, cols, height, width, each)

    def count(self, loop: Loop, scope: Scope) -> str:
        """How many numbers there are, those of no task among them."""
        p, code = self._panel(self.slants[loop.pc], scope), self._code
        panels = code.named(f"({p.rows} + {p.height} - 1) // {p.height}", "panels")
        return code.named(f"{panels} * {p.height} * {p.width} * {p.each}", "n")

    def cell(self, loop: Loop, number: str, scope: Scope) -> tuple[str, str, str, str]:
        """Of a number: whether there is a task, in which row and column, and its number there."""
        slant, code = self.slants[loop.pc], self._code
        p = self._panel(slant, scope)
        each = p.each if p.each.isdigit() else code.named(f"({p.each}).to({I32})", "n")
        height = code.named(f"({p.height}).to({I32})", "n")
        size = code.named(f"({p.height} * {p.width}).to({I32})", "n")
        at = code.named(f"{number} // {each}", "at")
        panel = code.named(f"{at} // {size}", "panel")
        inside = code.named(f"{at} - {panel} * {size}", "at")
        below = code.named(f"{inside} % {height}", "below")
        row = code.named(f"{panel} * {height} + {below}", "row")
        column = code.named(f"{inside} // {height} - {slant.skew} * {below}", "column")
        there = f"({row} < {p.rows}) & ({column} >= 0) & ({column} < {p.cols})"
        return there, row, column, code.named(f"{number} - {at} * {each}", "r")


def _pairs(block: Block) -> Iterator[tuple[Loop, Loop]]:
    """Loops that have nothing in them but another one, the outermost first."""
    for item in block:
        match item:
            case Loop(body=body):
                if len(body) == 1 and isinstance(body[0], Loop):
                    yield item, body[0]
                yield from _pairs(body)
            case Branch():
                yield from _pairs(item.then)
                yield from _pairs(item.other)
            case Phases():
                for child in item.children:
                    yield from _pairs(child)
            case _:
                pass


def _vector(wait: Wait, outer: Loop, inner: Loop) -> tuple[int, int] | None:
    """How many rows above and how many columns before a task lies what it waits for."""
    found: list[int] = []
    for loop in (outer, inner):
        for mine, place in zip(wait.group.loops, wait.places, strict=True):
            if mine.pc == loop.pc and place.node is None and place.level == loop.level:
                found.append(place.distance)
    return (found[0], found[1]) if len(found) == 2 else None
