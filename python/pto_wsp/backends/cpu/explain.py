"""How `cpu_sim` enforces each directive, and what that cost in the last run."""

from __future__ import annotations

from collections.abc import Callable

from pto_wsp.plan import (
    DepsPolicy,
    Directive,
    ExecUnit,
    Kernel,
    Plan,
    PoolPolicy,
    ScheduleArg,
    ScheduleEntry,
    Section,
    TracePolicy,
)
from pto_wsp.plan.disasm import directive_texts
from pto_wsp.runtime.engine import Explained
from pto_wsp.runtime.stats import Stats

_VIRTUAL = "; one thread plays all workers, on a clock that counts the cycles of the key"

_CUBE = (ExecUnit.AIC, ExecUnit.AIC_AIV)
# The policies that are promises of the user.
_TRUSTED = {
    DepsPolicy.EXACT: "only equal regions are taken to meet (trusted: a promise that no others "
    'overlap; compile(verify="full") checks it)',
    DepsPolicy.EXPLICIT: "P.seq, sequential and after= alone (trusted: a promise that they say "
    'everything; compile(verify="full") checks it); control waits for all tasks before it reads',
}

_HOW: dict[Directive, str] = {
    Directive.DEPS: "regions are compared where nothing is proved, when tasks are generated",
    Directive.READY: "one order of ready tasks, or a queue for each worker that others take from",
    Directive.START: "ready tasks are held back until then, or until nothing else could go on",
    Directive.WINDOW: "generation waits for a free record, and for room where bytes are counted",
    Directive.TRACE: "a ring of tasks for each worker, and one of what tasks waited for",
    Directive.DISPATCH: "a queue for each worker, from which only that worker takes",
    Directive.DISPATCH_THRESHOLD: "the level is chosen where a task is generated; then as dispatch",
    Directive.STREAMS: "an edge from each task of a stream to the next",
    Directive.STREAM_BY: "the key is computed where a task is generated",
    Directive.TIMING: "ready tasks are held in front of the queues, as the policy says",
    Directive.POOLS: "queues for each pool; a worker takes from its own pool only",
    Directive.ORDER: "a cursor for each value that is generated at a time; running follows seq",
    Directive.BATCH_DEPS: "each worker keeps ended tasks; whoever would idle releases them all",
    Directive.AFFINITY: "a queue for each worker or group of workers, from which only they take",
    Directive.PREFETCH: "prefetch instructions before each task, for the one that many further on",
    Directive.PIPELINE_DEPTH: "a counter, taken before a task is queued and given back at its end",
}
_COST: dict[Directive, Callable[[Stats], str]] = {
    Directive.DEPS: lambda s: f"{s.edges} edges, at most {s.map_high} map entries",
    Directive.START: lambda s: f"let go {s.start_released} times before its time",
    Directive.WINDOW: lambda s: (
        f"{s.window_stalls} stalls of {s.window_stall_ns / 1e6:.3f} ms in all, "
        f"at most {s.live_high} records"
        + (f" and {s.window_bytes_high} bytes" if s.window_bytes_high else "")
    ),
    Directive.READY: lambda s: f"at most {s.ready_high} tasks waited, {s.stolen} were stolen",
    Directive.TRACE: lambda s: f"{s.trace_dropped} events were overwritten",
    Directive.TIMING: lambda s: f"let go {s.timing_released} times because nothing else could run",
    Directive.PIPELINE_DEPTH: lambda s: f"{s.gate_stalls} tasks met a full gate",
    Directive.BATCH_DEPS: lambda s: (
        f"{s.dep_batches} batches, {s.dep_flushes} of them before they were full"
    ),
    Directive.PREFETCH: lambda s: f"{s.prefetch_bytes} bytes before {s.prefetch_tasks} tasks",
    Directive.DISPATCH: lambda s: f"tasks by worker: {', '.join(map(str, s.worker_tasks))}",
    Directive.AFFINITY: lambda s: f"tasks by worker: {', '.join(map(str, s.worker_tasks))}",
}


def _empty_pools(plan: Plan, entry: ScheduleEntry) -> str:
    """Which workers have nothing to do, as far as the kernels say."""
    if plan.records(ScheduleArg)[entry.args].bits != PoolPolicy.BY_EXEC_UNIT:
        return ""
    cube = [kernel.exec_unit in _CUBE for kernel in plan.records(Kernel)]
    lacks = [name for name, found in (("cube", any(cube)), ("vector", not all(cube))) if not found]
    return "".join(f"; no kernel is for {name} workers, which rest" for name in lacks)


def explain(plan: Plan, stats: Stats | None) -> list[Explained]:
    """One entry for each directive of the schedule."""
    texts = directive_texts(plan)
    out: list[Explained] = []
    for index, entry in enumerate(plan.records(ScheduleEntry)):
        how = _HOW[Directive(entry.id)]
        if entry.id == Directive.DEPS:
            policy = plan.records(ScheduleArg)[entry.args].bits
            how = _TRUSTED.get(DepsPolicy(policy), how)
        if entry.id == Directive.POOLS:
            how += _empty_pools(plan, entry)
        if entry.id == Directive.TRACE:
            policy = plan.records(ScheduleArg)[entry.args].bits
            how += _VIRTUAL if policy == TracePolicy.CYCLES else ""
        cost = _COST.get(Directive(entry.id))
        spent = "" if cost is None or stats is None else cost(stats)
        out.append(Explained(texts[index], how, spent, plan.loc(Section.SCHEDULE, index)))
    return out
