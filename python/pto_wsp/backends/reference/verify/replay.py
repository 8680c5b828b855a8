"""verify="schedule": what a run did, by its trace, against the order that the program asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from pto_wsp.backends.reference.bound import Array, BoundPlan
from pto_wsp.backends.reference.call import kernel_error, make_caller
from pto_wsp.backends.reference.verify.history import Hazard
from pto_wsp.backends.reference.verify.oracle import Oracle
from pto_wsp.backends.reference.verify.private import private
from pto_wsp.backends.reference.verify.record import Event, Record, Recorder
from pto_wsp.backends.reference.verify.report import Pairs
from pto_wsp.error_codes import Code
from pto_wsp.errors import ExecutionError, RaceError
from pto_wsp.kernels import LoadedKernel
from pto_wsp.plan import Feature, Plan, Section
from pto_wsp.runtime.bindings import Bound
from pto_wsp.runtime.engine import Run

_LAST = np.iinfo(np.int64).max


def prepare_replay(
    plan: Plan, kernels: tuple[LoadedKernel, ...], bindings: tuple[Bound, ...]
) -> Callable[[Run], None]:
    """Walks the program before the run; the result compares the run with it."""
    depends_on_data = Feature.DATA_DEPENDENT in plan.features
    bound = BoundPlan(plan, private(plan, bindings) if depends_on_data else bindings)
    walk = Recorder(bound)
    callers = [make_caller(plan, i, k) for i, k in enumerate(kernels)] if depends_on_data else []
    for task in walk.tasks():
        if not depends_on_data:
            continue  # what tasks compute says nothing of the others
        try:
            callers[task.kernel](task, bound)
        except Exception as error:
            raise kernel_error(plan, task, error) from error
    return lambda run: _replay(walk.record, run)


@dataclass(frozen=True, slots=True)
class _Times:
    """By node. Reads by control take no time of their own: they start last and end first, so that
    nothing is after or before them by mistake."""

    start: Array
    end: Array
    worker: Array

    def note(self, a: int, b: int) -> tuple[str, str]:
        return (
            f"on worker {self.worker[a]} until {self.end[a]} ns",
            f"on worker {self.worker[b]} from {self.start[b]} ns",
        )


def _replay(record: Record, run: Run) -> None:
    times = _times(record, run)
    pairs = Pairs(record)
    _check_conflicts(record, times, pairs)
    _check_after(record, times, pairs)
    _check_phases(record, times, pairs)
    if pairs.total > 0:
        raise pairs.error(
            "ran in the wrong order or at the same time:",
            "the schedule or the dependence policy did not order them in this run",
            'compile(verify="full") says whether the policy is to blame',
        )


def _times(record: Record, run: Run) -> _Times:
    dropped = run.stats().trace_dropped
    tasks = sum(node.is_task for node in record.nodes)
    if dropped > 0:
        raise ExecutionError(
            Code.VERIFY,
            f"the trace has lost {dropped} events of {tasks}",
            why='verify="schedule" needs the times of all tasks',
            fix=f"enlarge it: task_graph(trace=TracePolicy.timestamps(capacity={tasks}))",
        )
    trace = run.trace()
    trace = trace[np.argsort(trace["task_id"], kind="stable")]
    nodes = [n for n, node in enumerate(record.nodes) if node.is_task]
    _check_same_tasks(record, nodes, trace)
    count = len(record.nodes)
    start, end = np.full(count, _LAST), np.zeros(count, np.int64)
    worker = np.zeros(count, np.int64)
    start[nodes], end[nodes] = trace["start_ns"], trace["end_ns"]
    worker[nodes] = trace["worker"]
    return _Times(start, end, worker)


def _check_same_tasks(record: Record, nodes: list[int], trace: Array) -> None:
    """Control that reads what tasks write takes another path if it reads too early."""
    if len(nodes) == len(trace) and all(map(partial(_is_row_of, record), nodes, trace)):
        return
    plan = record.bound.plan
    raise RaceError(
        Code.RACE,
        f"the run had other tasks than the program in its order, {len(trace)} and {len(nodes)}",
        loc=plan.loc(Section.SITE, record.nodes[nodes[0]].site) if nodes else None,
        why="control read values that were not those of program order",
        fix='compile(verify="full") says whether a kernel or the dependence policy is to blame',
    )


def _is_row_of(record: Record, n: int, row: Array) -> bool:
    node = record.nodes[n]
    indices = tuple(row["indices"][: len(node.indices)].tolist())
    return (row["task_id"], row["site"], indices) == (node.task_id, node.site, node.indices)


def _check_conflicts(record: Record, times: _Times, pairs: Pairs) -> None:
    oracle = Oracle(record)
    # From each node on, which task starts first: what control waited for has ended by then.
    later = np.minimum.accumulate(times.start[::-1])[::-1]
    for n, node in enumerate(record.nodes):
        for a, conflict in sorted(oracle.conflicts(n).items()):
            b = n
            if not node.is_task:
                if times.end[a] <= later[n]:
                    continue
                b = n + int(np.argmax(times.start[n:] == later[n]))
            ended = times.end[a] <= times.start[b]
            if conflict.hazard is Hazard.APART:
                ended = ended or times.end[b] <= times.start[a]
            if record.nodes[a].is_task and not ended:
                met = conflict if b == n else None
                reason = "control reads in between what the first one writes"
                pairs.add(a, b, met, reason, lambda a=a, b=b: times.note(a, b))
        oracle.add(n)


def _check_after(record: Record, times: _Times, pairs: Pairs) -> None:
    for n, node in enumerate(record.nodes):
        for a in node.after:
            if times.end[a] > times.start[n]:
                pairs.add(a, n, None, "after=", lambda a=a, n=n: times.note(a, n))
        for bundle in node.after_all:
            members = np.array(bundle.members[: bundle.count], np.int64)
            for a in members[times.end[members] > times.start[n]].tolist():
                pairs.add(a, n, None, "after=", lambda a=a, n=n: times.note(a, n))


def _check_phases(record: Record, times: _Times, pairs: Pairs) -> None:
    """The last of a phase to end against the first of the next one to start: one pair for each."""
    for process in sorted({process for events in record.events.values() for process, _ in events}):
        _check_phases_of(process, record, times, pairs)


def _check_phases_of(process: int, record: Record, times: _Times, pairs: Pairs) -> None:
    mine = np.array([n for n, node in enumerate(record.nodes) if node.process == process], np.int64)
    start, end = times.start[mine], times.end[mine]
    open_phases: list[tuple[int, int]] = []  # its first node, and the last to end before it or -1

    def close(n: int) -> int:
        first, before = open_phases[-1]
        if n == first:
            return before
        earliest = first + int(np.argmin(start[first:n]))
        if before >= 0 and end[before] > start[earliest]:
            why = "the phases of P.seq or sequential"
            pair = int(mine[before]), int(mine[earliest])
            note = times.note(*pair)
            pairs.add(*pair, None, why, lambda: note)
        latest = first + int(np.argmax(end[first:n]))
        return latest if before < 0 or end[latest] > end[before] else before

    for at in sorted(record.events):
        n = int(np.searchsorted(mine, at))  # nodes of the process before that
        for event in (event for number, event in record.events[at] if number == process):
            match event:
                case Event.OPEN:
                    open_phases.append((n, -1))
                case Event.NEXT:
                    open_phases[-1] = (n, close(n))
                case Event.CLOSE:
                    close(n)
                    open_phases.pop()
