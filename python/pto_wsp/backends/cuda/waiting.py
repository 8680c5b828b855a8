"""Writes counters: where they lie, how many tasks they count, and what waits for them."""

from __future__ import annotations

from collections.abc import Callable

from pto_wsp.backends.cuda.code import LANES, LARGEST, Code, Scope, chosen
from pto_wsp.backends.cuda.counting import Counter, Found
from pto_wsp.backends.cuda.nest import Block, Branch, Let, Loop, Path, Phases
from pto_wsp.backends.cuda.sync import Group, Synchronisation, Tasks, Wait
from pto_wsp.error_codes import Code as ErrorCode
from pto_wsp.errors import CompileError
from pto_wsp.plan import Axis, Plan, Section


class Counters:
    """One for each instance of each group, in one array."""

    def __init__(
        self, plan: Plan, nest: Block, code: Code, counter: Counter, sync: Synchronisation
    ) -> None:
        self._plan = plan
        self._nest = nest
        self._code = code
        self._counter = counter
        self._axes = plan.records(Axis)
        self._sync = sync
        self._bounds: dict[int, str] = {}
        self._loops = {loop.pc: loop for t in sync.tasks.values() for loop in t.loops}
        self._first: dict[int, str] = {}  # counter of a group's first instance
        self.used = "0"  # how many counters there are

    def place(self) -> None:
        """Gives each group its counters."""
        code = self._code
        with code.in_prelude():
            for group in self._sync.groups:
                self._first[group.number] = self.used
                size = code.named(" * ".join(map(self.bound, group.loops)) or "1", "size")
                self.used = code.named(f"{self.used} + {size}", "first")

    def bound(self, loop: Loop) -> str:
        """The most iterations that a loop has."""
        if loop.pc not in self._bounds:
            self._bounds[loop.pc] = self._bound(loop)
        return self._bounds[loop.pc]

    def _bound(self, loop: Loop) -> str:
        depends = self._counter.node_depends(self._axes[loop.axis].extent)
        if not depends:
            return self._counter.extent(loop, self._code.closed)
        outer = [each for each in self._loops.values() if _encloses(each, loop, depends)]
        if len(depends) > 1 or len(outer) != 1:
            raise self._too_ragged(loop)
        return self.largest(outer[0], lambda scope: self._counter.extent(loop, scope))

    def largest(self, loop: Loop, of: Callable[[Scope], str]) -> str:
        """The largest that `of(scope)` is in any iteration of a loop that depends on nothing."""
        code, counter = self._code, self._counter
        if counter.node_depends(self._axes[loop.axis].extent):
            raise self._too_ragged(loop)

        def each(numbers: str) -> str:
            variable = counter.variable(loop, numbers, code.closed)
            return of(code.enter(code.closed, loop.level, variable, lanes=LANES))

        with code.in_prelude():
            return code.fold(LARGEST, "0", counter.extent(loop, code.closed), each)

    def slot(self, group: Group, iterations: list[str]) -> str:
        """The counter of an instance."""
        at = ""
        for loop, iteration in zip(group.loops, iterations, strict=True):
            at = f"({at}) * {self.bound(loop)} + {iteration}" if at else iteration
        first = self._first[group.number]
        if not at:
            return first
        return self._code.named(at if first == "0" else f"{first} + {at}", "slot")

    # --- how many tasks a counter counts ---

    def expected(self, group: Group, given: dict[int, str], scope: Scope, shared: Path = ()) -> str:
        """How many tasks of a group's calls there are in the iterations `given` by level, and in
        all of the other loops. `shared` is around all of them, and `scope` is inside it."""
        counts = [self._expected(self._sync.tasks[s], given, scope, shared) for s in group.sites]
        terms = [count for count in counts if count != "0"]
        return self._code.named(" + ".join(terms), "n") if terms else "0"

    def _expected(self, tasks: Tasks, given: dict[int, str], scope: Scope, shared: Path) -> str:
        depth, block = 0, self._nest
        for (item, part), other in zip(tasks.path, shared, strict=False):
            if (item, part) != other:
                break
            block, depth = inside(item, part), depth + 1
        return self._below(block, tasks.path, depth, given, scope.inner())

    def _below(
        self, block: Block, path: Path, depth: int, given: dict[int, str], scope: Scope
    ) -> str:
        code = self._code
        if depth == len(path):
            return "1"
        item, part = path[depth]
        self.lets(block, item, scope)
        match item:
            case Phases():
                for child in item.children[:part]:
                    self.lets(child, None, scope)
                return self._below(item.children[part], path, depth + 1, given, scope)
            case Branch():
                condition = code.value(item.condition, scope)
                there = self._below(inside(item, part), path, depth + 1, given, scope.inner())
                if there == "0":
                    return "0"
                sides = (there, "0") if part == 0 else ("0", there)
                return code.named(chosen(condition, *sides), "n")
            case Loop():
                return self._below_loop(item, path, depth, given, scope)

    def _below_loop(
        self, loop: Loop, path: Path, depth: int, given: dict[int, str], scope: Scope
    ) -> str:
        code, counter = self._code, self._counter
        extent = counter.extent(loop, scope)
        if loop.level in given:
            at = given[loop.level]
            inner = code.enter(scope, loop.level, counter.variable(loop, at, scope))
            there = self._below(loop.body, path, depth + 1, given, inner)
            return code.named(f"tl.where(({at} >= 0) & ({at} < {extent}), {there}, 0)", "n")
        if loop.level in self._rest_depends(path, depth + 1):
            return counter.total(
                loop, scope, lambda inner: self._below(loop.body, path, depth + 1, given, inner)
            )
        inner = code.enter(scope, loop.level, counter.start(loop, scope))
        there = self._below(loop.body, path, depth + 1, given, inner)
        return extent if there == "1" else code.named(f"{extent} * {there}", "n")

    def _rest_depends(self, path: Path, depth: int) -> frozenset[int]:
        found: frozenset[int] = frozenset()
        for item, _ in path[depth:]:
            if isinstance(item, Branch):
                found |= self._counter.node_depends(item.condition)
            elif isinstance(item, Loop):
                found |= self._counter.node_depends(self._axes[item.axis].extent)
        return found

    def lets(self, block: Block, until: object, scope: Scope) -> None:
        """Lets of a block that stand in front of an item of it."""
        for item in block:
            if item is until:
                return
            if isinstance(item, Let) and item.number not in scope.lets:
                self._code.let(item.number, item.value, scope)

    # --- waits ---

    def instance(self, wait: Wait, found: Found) -> tuple[dict[int, str], dict[int, str]]:
        """The iterations that a task waits for, by level of the group's loops, and the values of
        these loops' variables."""
        code = self._code
        given: dict[int, str] = {}
        scope = code.closed.inner()
        for loop, place in zip(wait.group.loops, wait.places, strict=True):
            if place.node is None:
                own = found.iterations[place.level]
                given[loop.level] = (
                    own if place.distance == 0 else code.named(f"{own} - {place.distance}", "k")
                )
            else:
                value = code.value(place.node, found.scope)
                start = self._counter.start(loop, scope)
                given[loop.level] = code.named(value if start == "0" else f"{value} - {start}", "k")
            variable = self._counter.variable(loop, given[loop.level], scope)
            scope = code.enter(scope, loop.level, variable)
        return given, scope.loops

    def _too_ragged(self, loop: Loop) -> CompileError:
        name = self._plan.string(self._axes[loop.axis].name)
        return CompileError(
            ErrorCode.TARGET_LIMIT,
            f"the cuda target has no counters for the iterations of axis {name!r}",
            loc=self._plan.loc(Section.AXIS, loop.axis),
            why="tasks wait for single iterations of it, and its extent depends on more than one "
            "other loop",
            fix="let the extent depend on one outer loop only, or run on target='cpu_sim'",
        )


def inside(item: Loop | Branch | Phases, part: int) -> Block:
    """A part of what encloses others."""
    match item:
        case Loop():
            return item.body
        case Branch():
            return (item.then, item.other)[part]
        case Phases():
            return item.children[part]


def _encloses(outer: Loop, loop: Loop, levels: frozenset[int]) -> bool:
    """Whether `outer` is the loop around `loop` at one of these levels."""
    if outer.level not in levels:
        return False

    def within(block: Block) -> bool:
        for item in block:
            match item:
                case Loop():
                    if item is loop or within(item.body):
                        return True
                case Branch():
                    if within(item.then) or within(item.other):
                        return True
                case Phases():
                    if any(within(child) for child in item.children):
                        return True
                case _:
                    pass
        return False

    return within(outer.body)
