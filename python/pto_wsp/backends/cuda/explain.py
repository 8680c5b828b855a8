"""How the cuda target keeps each directive."""

from __future__ import annotations

from pto_wsp.backends.cuda.module import Module
from pto_wsp.backends.cuda.schedule import Order, Owner, Schedule, read_schedule
from pto_wsp.plan import (
    Axis,
    DepsPolicy,
    Directive,
    OrderPolicy,
    Plan,
    PoolPolicy,
    ReadyPolicy,
    ScheduleArg,
    ScheduleEntry,
    Section,
)
from pto_wsp.plan.disasm import directive_texts
from pto_wsp.runtime.engine import Explained
from pto_wsp.runtime.stats import Stats

_OWNERS = {
    Owner.ANY: "one counter, from which any idle block takes the next task",
    Owner.NUMBER: "a block takes every so-many-th number, without a counter",
    Owner.PARTS: "a block goes through its range of numbers, without a counter",
    Owner.KEY: "every block goes through all keys, and runs the tasks that are its own",
    Owner.HASH: "every block goes through all mixed keys, and runs the tasks that are its own",
    Owner.BLOCK: "every block goes through all keys, and runs the tasks that are its own",
    Owner.SPREAD: "every block goes through all numbers, and runs the tasks that are its own",
}
_PLACED = "every block goes through all keys; its own tasks go first, then those of others"
_ANY = "any block may run a task; ready= says who takes which"
_SLANTED = "tasks are numbered along diagonals, since rows wait for their columns"
_BY_ROWS = (
    "tasks are numbered row by row, though rows wait for their columns: diagonals in one range "
    "would be one block's; without work_steal() they are numbered along diagonals"
)
_PINS = (Directive.DISPATCH, Directive.AFFINITY, Directive.STREAMS, Directive.POOLS)
_TOGETHER = "; tasks wait for each other, so that all blocks have to run at a time"


def explain(plan: Plan, module: Module, workers: int, stats: Stats | None) -> list[Explained]:
    """One entry for each directive of the schedule, and for loops whose tasks are not as free as
    the text says, or not numbered in its order. `stats`: of the last run."""
    schedule, texts = read_schedule(plan), directive_texts(plan)
    found: list[Explained] = []
    for index, entry in enumerate(plan.records(ScheduleEntry)):
        policy = plan.records(ScheduleArg)[entry.args].bits
        orders = [order for order in schedule.orders if order.entry == index]
        if orders:
            how = _order_text(orders[0], workers)
        else:
            how = _how(Directive(entry.id), policy, schedule, workers)
        stealing = entry.id == Directive.READY and schedule.steals
        if module.together and (entry.id in _PINS or stealing):
            how += _TOGETHER
        cost = f"{stats.stolen} tasks were stolen" if stealing and stats is not None else ""
        if entry.id == Directive.DEPS and module.expanded:
            how = "the host lists all tasks and what they wait for, again for other values"
        if entry.id == Directive.TRACE and plan.is_traced:
            how = "blocks write a record of each task, with the clock of the GPU"
            cost = f"{0 if stats is None else stats.trace_dropped} records did not fit"
        found.append(Explained(texts[index], how, cost, plan.loc(Section.SCHEDULE, index)))
    return found + _loops(plan, module)


def _loops(plan: Plan, module: Module) -> list[Explained]:
    found = [
        Explained(
            f"parallel loop {loop.axis!r}: one iteration after the other",
            *(str(loop), ""),
            plan.loc(Section.SITE, loop.site),
        )
        for loop in module.ordered
    ]
    for pairs, how in ((module.diagonals, _SLANTED), (module.by_rows, _BY_ROWS)):
        for pair in pairs:
            names = [plan.string(plan.records(Axis)[axis].name) for axis in pair]
            what = f"parallel loops {' and '.join(map(repr, names))}"
            found.append(Explained(what, how, "", plan.loc(Section.AXIS, pair[0])))
    return found


def _how(id: Directive, policy: int, schedule: Schedule, workers: int) -> str:
    match id:
        case Directive.DEPS:
            trusted = policy in (DepsPolicy.EXACT, DepsPolicy.EXPLICIT)
            how = "dependences were found when the kernel was written"
            return f"{how} (trusted: a promise that they are all)" if trusted else how
        case Directive.DISPATCH if schedule.steals:
            return _ANY if schedule.dispatch.owner is Owner.ANY else _PLACED
        case Directive.DISPATCH | Directive.AFFINITY:
            return _OWNERS[schedule.dispatch.owner]
        case Directive.STREAMS:
            return f"{workers} blocks, one for each stream, which runs its tasks one by one"
        case Directive.STREAM_BY:
            return "every block goes through all keys, and runs the tasks of its stream"
        case Directive.POOLS if policy == PoolPolicy.SINGLE:
            return "all blocks take from the same tasks"
        case Directive.POOLS:
            own = ", with a counter of its own" if schedule.dispatch.owner is Owner.ANY else ""
            own = ", and takes from blocks of that pool only" if schedule.steals else own
            return f"block k belongs to pool k modulo {schedule.pools}{own}"
        case Directive.READY if policy == ReadyPolicy.PRIORITY:
            return "a pass over all tasks for each priority, from the largest to the least"
        case Directive.READY if schedule.steals:
            return _steals(schedule, workers)
        case Directive.READY:
            return "one counter hands tasks out in the order of generation"
        case Directive.PIPELINE_DEPTH | Directive.WINDOW:
            return f"{workers} blocks are launched, each of which has one task at a time"
        case Directive.START | Directive.TIMING:
            return "a block runs a task as soon as it has taken it"
        case _:
            return "nothing is recorded"


def _steals(schedule: Schedule, workers: int) -> str:
    if schedule.dispatch.owner is not Owner.ANY:
        return "each block has a counter, from which others take when their tasks are used up"
    rides = ""
    if schedule.rides:
        rides = "; the last of the tasks that another one waits for runs that one"
    return (
        f"the numbers are cut into {workers} ranges, one for each block, with a counter each; a "
        f"block whose range is used up takes from another one, drawn anew when that is{rides}"
    )


def _order_text(order: Order, workers: int) -> str:
    if order.policy is OrderPolicy.SEQUENTIAL:
        return "numbers are those of program order"
    lanes = order.lanes or workers
    return f"numbers go round over {lanes} values of the axis; a value that ends gives way"
