"""Loops whose values are generated several at a time, one task of each in turn."""

from __future__ import annotations

from pto_wsp.backends.cuda.code import I64, Code, Scope
from pto_wsp.backends.cuda.counting import I32, Counter
from pto_wsp.backends.cuda.nest import Loop
from pto_wsp.backends.cuda.refused import refusal
from pto_wsp.backends.cuda.schedule import Order, Schedule
from pto_wsp.backends.cuda.sync import Synchronisation, Tasks, Wait
from pto_wsp.error_codes import Code as ErrorCode
from pto_wsp.plan import Axis, Plan


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
        """From the end of one iteration to the next, all lanes take turns: those are passed at
        once. A lane that has ended takes the next iteration that has tasks."""
        code, counter, lanes = self._code, self._counter, self.lanes(loop)
        size = 1 << (lanes - 1).bit_length()
        lane, at, left, done = (code.fresh(s) for s in ("lane", "at", "left", "done"))
        next_, rest, free, open_ = (code.fresh(s) for s in ("next", "rest", "free", "open"))
        extent = code.named(f"({counter.extent(loop, scope)} + tl.full((), 0, {I64})).to({I32})")
        code.line(f"{lane} = tl.arange(0, {size})")
        for name in (at, left, done):
            code.line(f"{name} = tl.zeros(({size},), {I32})")
        code.line(f"{next_} = tl.full((), 0, {I32})")
        code.line(f"{rest} = {number} + tl.full((), 0, {I32})")
        code.line(f"{open_} = tl.full((), 0, {I32})")
        code.line(f"{names[1]} = tl.full((), 0, {I32})")
        code.line(f"{free} = tl.full((), 0, {I32})")  # the first lane that has no iteration
        span = code.fresh("span")
        code.line(f"{span} = tl.full((), 0, {I32})")
        with code.block(f"while {rest} >= {span}:"):
            code.line(f"{rest} -= {span}")
            code.line(f"{done} += {names[1]}")
            code.line(f"{left} = tl.maximum({left} - {names[1]}, 0)")
            idle = f"tl.min(tl.where({left} > 0, {size}, {lane}), 0)"
            code.line(f"{free} = {idle}")
            with code.block(f"while ({free} < {lanes}) & ({next_} < {extent}):"):
                k = code.named(f"{next_}.to({I64})", "k")
                inner = code.enter(scope, loop.level, counter.variable(loop, k, scope))
                count = counter.count(loop.body, inner)
                here = code.named(f"{lane} == {free}", "here")
                code.line(f"{at} = tl.where({here}, {next_}, {at})")
                code.line(f"{left} = tl.where({here}, ({count}), {left}).to({I32})")
                code.line(f"{done} = tl.where({here}, 0, {done})")
                code.line(f"{next_} += 1")
                code.line(f"{free} = {idle}")
            code.line(f"{open_} = tl.sum(({left} > 0).to({I32}), 0)")
            code.line(f"{names[1]} = tl.min(tl.where({left} > 0, {left}, {1 << 30}), 0)")
            code.line(f"{span} = {names[1]} * {open_}")
        working = code.named(f"({left} > 0).to({I32})", "on")
        place = f"tl.cumsum({working}, 0) == {rest} % {open_} + 1"
        mine = code.named(f"({place}) & ({left} > 0)", "mine")
        code.line(f"{names[0]} = tl.sum(tl.where({mine}, {at}, 0), 0)")
        code.line(f"{names[1]} = tl.sum(tl.where({mine}, {done}, 0), 0) + {rest} // {open_}")


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
