"""Loops whose values are generated several at a time, one task of each in turn."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

from pto_wsp.backends.cuda.code import I64, Code, Scope
from pto_wsp.backends.cuda.counting import I32, Counter
from pto_wsp.backends.cuda.nest import Loop
from pto_wsp.backends.cuda.refused import refusal
from pto_wsp.backends.cuda.schedule import Order, Schedule
from pto_wsp.backends.cuda.sync import Synchronisation, Tasks, Wait
from pto_wsp.error_codes import Code as ErrorCode
from pto_wsp.plan import Axis, Plan


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a task is looked for: in what scope, whether the counts of iterations depend on no loop
    around it, and the names of what is found."""

    scope: Scope
    closed: bool
    names: tuple[str, str, str]


class Turns:
    """Writes which iteration of such a loop the n-th task is of. `workers`: how many blocks."""

    def __init__(
        self, plan: Plan, schedule: Schedule, code: Code, counter: Counter, workers: int
    ) -> None:
        self._plan = plan
        self._schedule = schedule
        self._code = code
        self._counter = counter
        self._workers = workers

    def lanes(self, loop: Loop) -> int:
        """How many values of a loop take turns; 0 if they come one after the other."""
        name = self._plan.string(self._plan.records(Axis)[loop.axis].name)
        order = self._schedule.interleaved(name)
        return 0 if order is None else order.lanes or self._workers

    def write(self, loop: Loop, number: str, scope: Scope, names: tuple[str, str, str]) -> None:
        """`names`: the iteration, the number of the task in it, and how many tasks come before
        it, which nobody asks of a loop that may be generated in another order."""
        if self._counter.varies(loop):
            self._uneven(loop, number, scope, names)
        else:
            self._even(loop, number, scope, names)
        self._code.line(f"{names[2]} = {number} - {names[1]}")

    def _even(self, loop: Loop, number: str, scope: Scope, names: tuple[str, str, str]) -> None:
        """Iterations of equally many tasks: so many of them end together."""
        code, counter, lanes = self._code, self._counter, self.lanes(loop)
        each = counter.count(loop.body, code.enter(scope, loop.level, counter.start(loop, scope)))
        extent = counter.extent(loop, scope)
        size = code.named(
            f"({each} * {lanes}).to({I32})" if not each.isdigit() else str(int(each) * lanes), "n"
        )
        first = code.named(f"{number} // {size} * {lanes}", "first")
        open_ = code.named(f"tl.minimum({lanes}, ({extent} - {first})).to({I32})", "lanes")
        turn = code.named(f"{number} % {size}", "turn")
        code.line(f"{names[0]} = {first} + {turn} % {open_}")
        code.line(f"{names[1]} = {turn} // {open_}")

    def _uneven(self, loop: Loop, number: str, scope: Scope, names: tuple[str, str, str]) -> None:
        code, lanes = self._code, self.lanes(loop)
        extent = self._counter.extent(loop, scope)
        for name in names[:2]:
            code.line(f"{name} = tl.full((), 0, {I32})")
        closed = self._counter.is_closed(loop)
        with code.block(f"if {extent} <= {lanes}:"):
            self._all_at_once(loop, number, _Place(scope.inner(), closed, names))
        with code.block("else:"):
            self._one_by_one(loop, number, _Place(scope.inner(), closed, names))

    def _all_at_once(self, loop: Loop, number: str, place: _Place) -> None:
        """A lane for each iteration. After so many turns, each iteration has had that many tasks,
        or all of its own: how many turns are over is found by bisection."""
        code, size = self._code, _power(self.lanes(loop))
        with code.in_prelude() if place.closed else nullcontext():
            scope = code.closed if place.closed else place.scope
            counts = self._counts(loop, size, scope)
            most = code.named(f"tl.max({counts}, 0)", "most")
        low, high = code.fresh("low"), code.fresh("high")
        code.line(f"{low} = tl.full((), 0, {I32})")
        code.line(f"{high} = {most}")
        with code.block(f"while {low} < {high}:"):
            middle = code.named(f"({low} + {high} + 1) >> 1", "mid")
            fits = code.named(f"tl.sum(tl.minimum({counts}, {middle}), 0) <= {number}", "fits")
            code.line(f"{low} = tl.where({fits}, {middle}, {low})")
            code.line(f"{high} = tl.where({fits}, {high}, {middle} - 1)")
        rest = code.named(f"{number} - tl.sum(tl.minimum({counts}, {low}), 0)", "rest")
        mine = self._nth(f"{counts} > {low}", rest)
        code.line(f"{place.names[0]} = tl.sum(tl.where({mine}, tl.arange(0, {size}), 0), 0)")
        code.line(f"{place.names[1]} = {low}")

    def _counts(self, loop: Loop, size: int, scope: Scope) -> str:
        """How many tasks each iteration has, if there are at most `size`."""
        code, counter = self._code, self._counter
        numbers = code.named(f"tl.arange(0, {size}).to({I64})", "ks")
        inner = code.enter(scope, loop.level, counter.variable(loop, numbers, scope), lanes=size)
        count = counter.count(loop.body, inner)
        inside = f"{numbers} < {counter.extent(loop, scope)}"
        return code.named(f"tl.where({inside}, {count}, 0).to({I32})", "counts")

    def _nth(self, lanes: str, number: str) -> str:
        """The lane that is the n-th of those for which a condition holds."""
        on = self._code.named(f"({lanes}).to({I32})", "on")
        place = f"tl.cumsum({on}, 0) == {number} + 1"
        return self._code.named(f"({place}) & ({on} > 0)", "mine")

    def _one_by_one(self, loop: Loop, number: str, place: _Place) -> None:
        """From the end of one iteration to the next, all lanes take turns: `step` of them, passed
        at once. A lane that has ended takes the next iteration that has tasks. What a
        block knows of a closed loop it keeps for its next number."""
        code, size = self._code, _power(self.lanes(loop))
        vectors = [code.fresh(name) for name in ("at", "left", "done")]
        scalars = [code.fresh(name) for name in ("next", "base", "span", "open", "step")]
        at, left, done = vectors
        _, base, span, open_, step = scalars

        def begin() -> None:
            for name in vectors:
                code.line(f"{name} = tl.zeros(({size},), {I32})")
            for name in scalars:
                code.line(f"{name} = tl.full((), 0, {I32})")

        if place.closed:
            with code.in_prelude():
                begin()
            with code.block(f"if {number} < {base}:"):
                begin()
        else:
            begin()
        with code.block(f"while {number} >= {base} + {span}:"):
            code.line(f"{base} += {span}")
            code.line(f"{done} += {step}")
            code.line(f"{left} = tl.maximum({left} - {step}, 0)")
            self._refill(loop, place.scope, vectors, scalars[0])
            code.line(f"{open_} = tl.sum(({left} > 0).to({I32}), 0)")
            code.line(f"{step} = tl.min(tl.where({left} > 0, {left}, {1 << 30}), 0)")
            code.line(f"{span} = {step} * {open_}")
        rest = code.named(f"{number} - {base}", "rest")
        mine = self._nth(f"{left} > 0", f"{rest} % {open_}")
        code.line(f"{place.names[0]} = tl.sum(tl.where({mine}, {at}, 0), 0)")
        passed = f"tl.sum(tl.where({mine}, {done}, 0), 0)"
        code.line(f"{place.names[1]} = {passed} + {rest} // {open_}")

    def _refill(self, loop: Loop, scope: Scope, vectors: list[str], next_: str) -> None:
        """Gives lanes without an iteration, from the first on, the next that have tasks."""
        code, counter, lanes = self._code, self._counter, self.lanes(loop)
        at, left, done = vectors
        lane = code.named(f"tl.arange(0, {_power(lanes)})", "lane")
        free = code.fresh("free")
        first = f"tl.min(tl.where({left} > 0, {_power(lanes)}, {lane}), 0)"
        code.line(f"{free} = {first}")
        with code.block(f"while ({free} < {lanes}) & ({next_} < {counter.extent(loop, scope)}):"):
            k = code.named(f"{next_}.to({I64})", "k")
            inner = code.enter(scope, loop.level, counter.variable(loop, k, scope))
            count = counter.count(loop.body, inner)
            here = code.named(f"{lane} == {free}", "here")
            code.line(f"{at} = tl.where({here}, {next_}, {at})")
            code.line(f"{left} = tl.where({here}, {count}, {left}).to({I32})")
            code.line(f"{done} = tl.where({here}, 0, {done})")
            code.line(f"{next_} += 1")
            code.line(f"{free} = {first}")


def _power(lanes: int) -> int:
    """Blocks of values have lengths that are powers of two."""
    return 1 << (lanes - 1).bit_length()


def check_orders(plan: Plan, schedule: Schedule, sync: Synchronisation) -> None:
    """ScheduleError if tasks of different iterations of such a loop wait for each other."""
    axes = plan.records(Axis)
    names = [plan.string(axis.name) for axis in axes]
    for order in schedule.orders:
        if order.name not in names:
            raise refusal(
                plan,
                order.entry,
                f"there is no loop over an axis {order.name!r}",
                f"use one of {', '.join(map(repr, sorted(set(names))))}",
                ErrorCode.DIRECTIVE_VALUE,
            )
        if schedule.interleaved(order.name) is not order:
            continue
        for tasks in sync.tasks.values():
            for loop in tasks.loops:
                if names[loop.axis] == order.name:
                    _check_loop(plan, order, loop, tasks, sync)


def _check_loop(plan: Plan, order: Order, loop: Loop, tasks: Tasks, sync: Synchronisation) -> None:
    why = ""
    if loop.ordered:
        why = "the program itself puts its iterations in order (P.seq)"
    for wait in tasks.waits:
        sources = [sync.tasks[site] for site in wait.group.sites]
        if any(loop in source.loops for source in sources) and not _stays(wait, loop):
            name = plan.site_name(wait.group.sites[0])
            why = (
                f"a task of {plan.site_name(tasks.call.site)!r} waits for tasks of {name!r} in "
                f"other iterations ({wait.why})"
            )
    if why:
        raise refusal(
            plan,
            order.entry,
            f"axis {order.name!r} cannot be generated in another order: {why}",
            f"use order({order.name}=Sequential)",
            ErrorCode.ORDER_NOT_PROVED,
        )


def _stays(wait: Wait, loop: Loop) -> bool:
    """Whether what it waits for is in the same iteration of the loop."""
    for each, place in zip(wait.group.loops, wait.places, strict=True):
        if each is loop:
            return place.node is None and place.distance == 0 and place.level == loop.level
    return False
