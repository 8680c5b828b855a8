"""Traces of runs: the layout of `program.trace`, and what a run records besides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Trace: TypeAlias = np.ndarray[Any, Any]
Times: TypeAlias = npt.NDArray[np.uint64]
Counts: TypeAlias = npt.NDArray[np.int64]

# An edge: task `dst` waited for task `src`; both are numbers in the column `seq` of the trace.
EDGE = np.dtype([("src", np.uint64), ("dst", np.uint64)])

# What stands for a join in the edges that a target records: not a task, but the end of several.
JOIN = np.uint64(1 << 63)


def trace_dtype(depth: int, kernel_chars: int = 64) -> np.dtype[Any]:
    """One row per executed task. `depth` is the number of loops around the deepest call: a call
    with fewer loops has zeros behind its indices. `kernel_chars` is the longest kernel name.

    Times are nanoseconds since the run began. `take` numbers the tasks in the order in which
    workers took them; `stolen` says that the worker is not the one that made the task ready.
    """
    return np.dtype(
        [
            ("task_id", np.uint64),
            ("seq", np.uint64),
            ("kernel", np.str_, max(1, kernel_chars)),
            ("site", np.uint32),
            ("indices", np.int64, (depth,)),
            ("worker", np.uint32),
            ("stream", np.uint32),
            ("pool", np.uint32),
            ("stolen", np.bool_),
            ("take", np.uint64),
            ("ready_ns", np.uint64),
            ("start_ns", np.uint64),
            ("end_ns", np.uint64),
        ]
    )


@dataclass(frozen=True, slots=True)
class Recorded:
    """Everything that a run recorded. A long trace comes in pieces, of any order."""

    pieces: tuple[Trace, ...]
    edges: Trace = field(default_factory=lambda: np.zeros(0, EDGE))
    counters: dict[str, tuple[Times, Counts]] = field(default_factory=dict[str, Any])
    virtual: bool = False  # times are cycles of a virtual clock
    places: dict[int, str] = field(default_factory=dict[int, str])  # where workers are, if known

    def rows(self) -> Iterator[Trace]:
        yield from (piece for piece in self.pieces if len(piece))


def resolve_joins(edges: Trace, seqs: Times, ends: Times) -> Trace:
    """Edges between tasks, from edges that go through joins as well. What waited for a join waited
    for the last of its tasks to end, so the edge comes from that one. `ends` are the times at which
    the tasks `seqs` ended; edges from or to other tasks are left out."""
    order = np.argsort(seqs, kind="stable")
    seqs, ends = seqs[order], ends[order]
    src, dst = edges["src"], edges["dst"]
    joined, joins = dst >= JOIN, np.unique(np.concatenate([src[src >= JOIN], dst[dst >= JOIN]]))
    last = np.zeros(len(joins), np.uint64)  # by join: the last task to end, and when
    end = np.full(len(joins), -1, np.int64)

    def note(join: npt.NDArray[np.intp], task: Times, at: Counts) -> bool:
        latest = np.lexsort((at, join))
        join, task, at = join[latest], task[latest], at[latest]
        of_join = np.append(join[1:] != join[:-1], True)[: len(join)]
        join, task, at = join[of_join], task[of_join], at[of_join]
        later = at > end[join]
        last[join[later]], end[join[later]] = task[later], at[later]
        return bool(later.any())

    member = joined & (src < JOIN) & _known(seqs, src)
    tasks = src[member]
    at = ends[np.searchsorted(seqs, tasks)].astype(np.int64)
    note(np.searchsorted(joins, dst[member]), tasks, at)
    inner = np.searchsorted(joins, src[joined & (src >= JOIN)])
    outer = np.searchsorted(joins, dst[joined & (src >= JOIN)])
    while note(outer, last[inner], end[inner]):  # as often as joins are nested
        pass
    out = np.zeros(int((~joined).sum()), EDGE)
    out["dst"], froms = dst[~joined], src[~joined].copy()
    through = froms >= JOIN
    which = np.searchsorted(joins, froms[through])
    froms[through] = np.where(end[which] >= 0, last[which], JOIN)
    out["src"] = froms
    return out[_known(seqs, out["src"]) & _known(seqs, out["dst"])]


def _known(sorted_seqs: Times, wanted: Times) -> npt.NDArray[np.bool_]:
    if not len(sorted_seqs):
        return np.zeros(len(wanted), np.bool_)
    at = np.minimum(np.searchsorted(sorted_seqs, wanted), len(sorted_seqs) - 1)
    return sorted_seqs[at] == wanted
