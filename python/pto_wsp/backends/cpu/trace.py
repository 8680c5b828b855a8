"""What the native core recorded of a run, and what that means: ticks become nanoseconds, sites
kernels, joins the tasks that end last. Formats: ptowsp_traced, _edge, _sample in ptowsp.h."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pto_wsp import _core
from pto_wsp.plan import (
    NONE,
    Directive,
    Entry,
    Plan,
    Process,
    Site,
    TraceCounter,
    TracePolicy,
)
from pto_wsp.runtime.trace import (
    EDGE,
    Counts,
    Recorded,
    Times,
    Trace,
    resolve_joins,
    trace_dtype,
)

_TASKS, _EDGES, _SAMPLES = range(3)
_TASK = [
    *((name, np.uint64) for name in ("task_id", "seq", "ready", "start", "end", "take")),
    *((name, np.uint32) for name in ("site", "stream", "worker")),
    *(("pool", np.uint16), ("stolen", np.uint8), ("num_loops", np.uint8)),
]
_SAMPLE = np.dtype([("ticks", np.uint64), ("counter", np.uint32), ("value", np.uint32)])
_BLOCK = np.dtype([("kind", np.uint32), ("reserved", np.uint32), ("bytes", np.uint64)])

_COUNTERS = {
    TraceCounter.WINDOW: "window",
    TraceCounter.WINDOW_FULL: "window full",
    TraceCounter.CONTROL_WAITS: "control waits",
}


def read_trace(plan: Plan, native: _core.NativeRun, file: Path | None) -> Recorded:
    """The trace of a run that has ended; `file` is where it was written to, if not to memory."""
    first, ns_per_tick, levels, ordered = native.trace_info()
    task = np.dtype([*_TASK, ("indices", np.int64, (levels,))])
    blocks: dict[int, list[Trace]] = {_TASKS: [], _EDGES: [], _SAMPLES: []}
    types = {_TASKS: task, _EDGES: EDGE, _SAMPLES: _SAMPLE}
    if ns_per_tick == 0:  # nothing was asked for
        return Recorded(tuple(_rows(plan, part, task) for part in _empty(task)))
    for kind, found in blocks.items():
        found.append(np.frombuffer(native.trace_block(kind), dtype=types[kind]))
    for kind, data in () if file is None else _file_blocks(file):
        blocks[kind].append(data.view(types[kind]))

    def ns(ticks: Trace) -> Trace:
        passed = np.maximum((ticks - np.uint64(first)).astype(np.int64), 0)
        return (passed * ns_per_tick).astype(np.uint64)

    pieces: list[Trace] = []
    for part in blocks[_TASKS]:
        rows = _rows(plan, part, task)
        for column in ("ready", "start", "end"):
            rows[f"{column}_ns"] = ns(part[column])
        pieces.append(rows)
    if not ordered:
        _number_takes(pieces)
    seqs = np.concatenate([piece["seq"] for piece in pieces])
    ends = np.concatenate([piece["end_ns"] for piece in pieces])
    edges = resolve_joins(np.concatenate(blocks[_EDGES]), seqs, ends)
    samples = np.concatenate(blocks[_SAMPLES])
    counters: dict[str, tuple[Times, Counts]] = {}
    for counter, name in _COUNTERS.items():
        found = samples[samples["counter"] == counter]
        if len(found):
            counters[name] = ns(found["ticks"]), found["value"].astype(np.int64)
    if "window" in counters:
        counters["window"] = _until_empty(*counters["window"], ends)
    virtual = plan.policy(Directive.TRACE) == TracePolicy.CYCLES
    places = _processes(plan, pieces) if virtual else {}
    return Recorded(tuple(pieces), edges, counters, virtual, places)


def _processes(plan: Plan, pieces: list[Trace]) -> dict[int, str]:
    """By worker, the process that all of its tasks are of, if that is one; of a replicated one
    the replica too, which is the first index of its tasks."""
    processes = [plan.string(process.name) for process in plan.records(Process)]
    if not processes:
        return {}
    entries = sorted((entry.pc, entry.process) for entry in plan.records(Entry))
    starts, owners = np.array(entries).T
    sites = np.array([site.pc for site in plan.records(Site)])
    owner = owners[np.searchsorted(starts, sites, "right") - 1]
    seen: dict[int, set[tuple[int, int]]] = {}  # process and first index, by worker
    for piece in pieces:
        firsts = piece["indices"][:, 0] if piece["indices"].shape[1] else 0 * piece["worker"]
        rows = np.stack([piece["worker"], owner[piece["site"]], firsts], axis=1).astype(np.int64)
        for worker, process, first in np.unique(rows, axis=0).tolist():
            seen.setdefault(worker, set()).add((process, first))
    ran = {worker: {process for process, _ in found} for worker, found in seen.items()}
    names: dict[int, str] = {}
    for worker, found in seen.items():
        process, first = min(found)
        if len(ran[worker]) > 1 or process == NONE:
            continue
        alike = sum(process in others for others in ran.values()) > 1 and len(found) == 1
        names[worker] = processes[process] + (f" {first}" if alike else "")
    return names


def _until_empty(times: Times, counts: Counts, ends: Times) -> tuple[Times, Counts]:
    """The window is sampled while tasks are generated; from then on each end makes it emptier."""
    later = np.sort(ends[ends > times[-1]])
    left = np.arange(len(later) - 1, -1, -1, dtype=np.int64)
    return np.concatenate([times, later]), np.concatenate([counts, left])


def _empty(task: np.dtype[Any]) -> Iterator[Trace]:
    yield np.zeros(0, task)


def _file_blocks(file: Path) -> Iterator[tuple[int, Trace]]:
    """The blocks of a trace file, mapped: the system reads what is looked at."""
    content = np.memmap(file, np.uint8, "r") if file.stat().st_size else np.zeros(0, np.uint8)
    at = 0
    while at + _BLOCK.itemsize <= len(content):
        head = content[at : at + _BLOCK.itemsize].view(_BLOCK)[0]
        at += _BLOCK.itemsize
        yield int(head["kind"]), content[at : at + int(head["bytes"])]
        at += int(head["bytes"])


def _rows(plan: Plan, part: Trace, task: np.dtype[Any]) -> Trace:
    sites = plan.records(Site)
    # Reads by control are no tasks of a trace.
    of = ["" if s.kernel == NONE else plan.kernel_names[s.kernel] for s in sites]
    names = np.array(of or [""])
    depth = max((s.level for s in sites), default=0)
    rows = np.zeros(len(part), trace_dtype(depth, names.dtype.itemsize // 4))
    for name in ("task_id", "seq", "take", "site", "stream", "worker", "pool", "stolen"):
        rows[name] = part[name]
    used = min(depth, task["indices"].shape[0])
    # An entry has room for the indices of the deepest call, and only its own are written.
    own = np.arange(used) < part["num_loops"][:, None]
    rows["indices"][:, :used] = np.where(own, part["indices"][:, :used], 0)
    rows["kernel"] = names[part["site"]]
    return rows


def _number_takes(pieces: list[Trace]) -> None:
    """Where workers take tasks by themselves, the order is the one in which they started."""
    starts = np.concatenate([piece["start_ns"] for piece in pieces])
    takes = np.empty(len(starts), np.uint64)
    takes[np.argsort(starts, kind="stable")] = np.arange(len(starts), dtype=np.uint64)
    at = 0
    for piece in pieces:
        piece["take"] = takes[at : at + len(piece)]
        at += len(piece)
