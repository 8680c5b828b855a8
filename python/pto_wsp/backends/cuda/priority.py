"""Priorities: one pass over the tasks for each, from the largest to the least."""

from __future__ import annotations

from pto_wsp.backends.cuda.intervals import Interval
from pto_wsp.backends.cuda.keys import Keys
from pto_wsp.backends.cuda.nest import Loop, Path, Phases
from pto_wsp.backends.cuda.refused import refusal
from pto_wsp.backends.cuda.schedule import Schedule
from pto_wsp.backends.cuda.sync import Synchronisation
from pto_wsp.plan import Directive, Plan

MOST_LEVELS = 64


def find_levels(
    plan: Plan, schedule: Schedule, keys: Keys, sync: Synchronisation
) -> tuple[int, int] | None:
    """The least and the largest priority; None without any. ScheduleError if there may be too many
    passes, or if a task could wait for one that is handed out after it."""
    key = schedule.priority
    if key is None:
        return None
    entry = schedule.entries[Directive.READY]
    values = {site: keys.interval(key, site) for site in sync.tasks}
    low, high = min(v[0] for v in values.values()), max(v[1] for v in values.values())
    if high - low >= MOST_LEVELS:
        raise refusal(
            plan,
            entry,
            "tasks are handed out by one pass for each priority, and it is not proved that the key "
            f"has at most {MOST_LEVELS} values",
            f"use a key of few values, as minimum(key, {MOST_LEVELS - 1}) or key % 4",
        )
    for sink, source in _waits(sync):
        if not _is_before(values[source], values[sink]):
            raise refusal(
                plan,
                entry,
                f"a task of {plan.site_name(sink)!r} waits for one of {plan.site_name(source)!r}, "
                "whose priority may be smaller, so that it would be handed out too late",
                "use ready=ReadyPolicy.fifo(), or a key that is never smaller where others wait",
            )
    return int(low), int(high)


def _is_before(source: Interval, sink: Interval) -> bool:
    """Whether a task that others wait for is always handed out before those."""
    return source[0] > sink[1] or (source == sink and source[0] == source[1])


def _waits(sync: Synchronisation) -> list[tuple[int, int]]:
    """Calls of which one waits for the other: the one that waits comes first."""
    found: list[tuple[int, int]] = []
    for site, tasks in sync.tasks.items():
        for wait in tasks.waits:
            found += [(site, source) for source in wait.group.sites]
        for other, each in sync.tasks.items():
            if _is_ordered(tasks.path, each.path):
                found.append((site, other))
    return found


def _is_ordered(sink: Path, source: Path) -> bool:
    """Whether the text puts some task of one call behind some of the other."""
    for (item, part), (other, before) in zip(sink, source, strict=False):
        if item is not other:
            return False
        if isinstance(item, Loop) and item.ordered:
            return True
        if part != before:
            return isinstance(item, Phases) and before < part
    return False
