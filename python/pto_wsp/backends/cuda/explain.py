"""How the cuda target keeps each directive."""

from __future__ import annotations

from pto_wsp.backends.cuda.module import Module
from pto_wsp.backends.cuda.schedule import Order, Owner, Schedule, read_schedule
from pto_wsp.plan import (
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

_OWNERS = {
    Owner.ANY: "one counter, from which any idle block takes the next task",
    Owner.NUMBER: "a block takes every so-many-th number, without a counter",
    Owner.PARTS: "a block goes through its range of numbers, without a counter",
    Owner.KEY: "every block goes through all keys, and runs the tasks that are its own",
    Owner.HASH: "every block goes through all mixed keys, and runs the tasks that are its own",
    Owner.BLOCK: "every block goes through all keys, and runs the tasks that are its own",
    Owner.SPREAD: "every block goes through all numbers, and runs the tasks that are its own",
}
_PINS = (Directive.DISPATCH, Directive.AFFINITY, Directive.STREAMS, Directive.POOLS)
_TOGETHER = "; tasks wait for each other, so that all blocks have to run at a time"


def explain(plan: Plan, module: Module, workers: int, lost: int) -> list[Explained]:
    """One entry for each directive of the schedule. `lost`: records of the last run that did not
    fit."""
    schedule, texts = read_schedule(plan), directive_texts(plan)
    found: list[Explained] = []
    for index, entry in enumerate(plan.records(ScheduleEntry)):
        policy = plan.records(ScheduleArg)[entry.args].bits
        orders = [order for order in schedule.orders if order.entry == index]
        if orders:
            how = _order_text(orders[0], workers)
        else:
            how = _how(Directive(entry.id), policy, schedule, workers)
        if module.together and entry.id in _PINS:
            how += _TOGETHER
        cost = ""
        if entry.id == Directive.DEPS and module.expanded:
            how = "the host lists all tasks and what they wait for, again for other values"
        if entry.id == Directive.TRACE and plan.is_traced:
            how = "blocks write a record of each task, with the clock of the GPU"
            cost = f"{lost} records did not fit"
        found.append(Explained(texts[index], how, cost, plan.loc(Section.SCHEDULE, index)))
    return found


def _how(id: Directive, policy: int, schedule: Schedule, workers: int) -> str:
    match id:
        case Directive.DEPS:
            trusted = policy in (DepsPolicy.EXACT, DepsPolicy.EXPLICIT)
            how = "dependences were found when the kernel was written"
            return f"{how} (trusted: a promise that they are all)" if trusted else how
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
            return f"block k belongs to pool k modulo {schedule.pools}{own}"
        case Directive.READY if policy == ReadyPolicy.PRIORITY:
            return "a pass over all tasks for each priority, from the largest to the least"
        case Directive.READY:
            return "one counter hands tasks out in the order of generation"
        case Directive.PIPELINE_DEPTH | Directive.WINDOW:
            return f"{workers} blocks are launched, each of which has one task at a time"
        case Directive.START | Directive.TIMING:
            return "a block runs a task as soon as it has taken it"
        case _:
            return "nothing is recorded"


def _order_text(order: Order, workers: int) -> str:
    if order.policy is OrderPolicy.SEQUENTIAL:
        return "numbers are those of program order"
    lanes = order.lanes or workers
    return f"numbers go round over {lanes} values of the axis; a value that ends gives way"
