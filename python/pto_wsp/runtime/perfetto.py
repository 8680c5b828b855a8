"""Traces in the Chrome trace event format, which ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

import gzip
import json
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import IO

import numpy as np

from pto_wsp.runtime.trace import Counts, Recorded, Times, Trace

_BLOCK = 1 << 16  # events formatted at a time
_COUNTER_POINTS = 4096  # points of a counter track; more are not visible
_STOLEN = ',"stolen":true'


def to_perfetto(
    recorded: Recorded, path: str | PathLike[str], *, name: str = "pto_wsp", arrows: bool = True
) -> None:
    """Writes what a run recorded. A path that ends with .gz is compressed.

    Each task is a slice on the track of its worker; arrows go from the end of a task to the start
    of one that waited for it. Counters show how many tasks run, how many are ready and wait for a
    worker, how full the window is, and when generation had to wait. One cycle of a virtual clock is
    shown as a nanosecond.
    """
    columns = _Columns(recorded)
    with _text_file(Path(path)) as out:
        other = {"clock": "virtual cycles" if recorded.virtual else "ns"}
        other |= {"makespan": columns.makespan, "tasks": len(columns.start)}
        out.write(f'{{"displayTimeUnit":"ns","otherData":{json.dumps(other)},"traceEvents":[\n')
        out.write(",\n".join(_names(columns, recorded.places, name)))
        for block in _blocks(recorded, columns, arrows):
            out.write(",\n")
            out.write(block)
        out.write("\n]}\n")


class _Columns:
    """What is needed of all tasks at once."""

    def __init__(self, recorded: Recorded) -> None:
        pieces = list(recorded.rows())

        def column(name: str) -> Trace:
            found = [piece[name] for piece in pieces]
            return np.concatenate(found) if found else np.zeros(0, np.uint64)

        self.seq: Times = column("seq")
        self.ready: Times = column("ready_ns")
        self.start: Times = column("start_ns")
        self.end: Times = column("end_ns")
        self.worker = column("worker")
        self.makespan = int(self.end.max()) if len(self.end) else 0


def _blocks(recorded: Recorded, columns: _Columns, arrows: bool) -> Iterator[str]:
    for piece in recorded.rows():
        for first in range(0, len(piece), _BLOCK):
            yield ",\n".join(_tasks(piece[first : first + _BLOCK]))
    if arrows:
        yield from _flows(recorded.edges, columns)
    if not len(columns.start):
        return
    counters: list[tuple[str, Iterable[tuple[int, int]]]] = [
        ("running", _open_intervals(columns.start, columns.end)),
        ("ready", _open_intervals(columns.ready, columns.start)),
    ]
    counters += [(track, _samples(*found)) for track, found in recorded.counters.items()]
    for track, points in counters:
        head = f'{{"ph":"C","pid":0,"name":"{track}"'
        yield ",\n".join(
            f'{head},"ts":{time / 1000:.3f},"args":{{"tasks":{count}}}}}' for time, count in points
        )


@contextmanager
def _text_file(path: Path) -> Generator[IO[str], None, None]:
    if path.suffix == ".gz":
        # Level 1: traces shrink tenfold at any level, and higher ones take seconds.
        with gzip.open(path, "wt", compresslevel=1, encoding="utf-8") as out:
            yield out
    else:
        with open(path, "w", encoding="utf-8") as out:
            yield out


def _names(columns: _Columns, places: dict[int, str], name: str) -> Iterator[str]:
    """Events that name the process and the worker tracks."""
    yield json.dumps({"ph": "M", "pid": 0, "name": "process_name", "args": {"name": name}})
    for worker in np.unique(columns.worker).tolist():
        place = f", {places[worker]}" if worker in places else ""
        args = {"name": f"worker {worker}{place}"}
        yield json.dumps({"ph": "M", "pid": 0, "tid": worker, "name": "thread_name", "args": args})


def _tasks(rows: Trace) -> list[str]:
    """The slices of many tasks at a time: a dictionary per event would cost seconds."""
    kernels, which = np.unique(rows["kernel"], return_inverse=True)
    quoted = [json.dumps(str(kernel)) for kernel in kernels]
    start = rows["start_ns"].astype(np.int64)
    # Clocks tick in 10 ns and more: a slice without length has no place for an arrow.
    lasts = np.maximum(rows["end_ns"].astype(np.int64) - start, 1)
    columns = zip(
        which.tolist(),
        rows["worker"].tolist(),
        (start / 1000).tolist(),
        (lasts / 1000).tolist(),
        rows["task_id"].tolist(),
        rows["seq"].tolist(),
        rows["indices"].tolist(),
        ((start - rows["ready_ns"].astype(np.int64)) / 1000).tolist(),
        rows["stolen"].tolist(),
        strict=True,
    )
    return [
        f'{{"ph":"X","pid":0,"tid":{worker},"name":{quoted[kernel]},"ts":{ts:.3f},"dur":{dur:.3f},'
        f'"args":{{"task_id":{task_id},"seq":{seq},"indices":{indices},"waiting_us":{wait:.3f}'
        f"{_STOLEN if stolen else ''}}}}}"
        for kernel, worker, ts, dur, task_id, seq, indices, wait, stolen in columns
    ]


def _flows(edges: Trace, columns: _Columns) -> Iterator[str]:
    """An arrow for each edge. It begins in the last nanosecond of its slice: at the very end, the
    viewer would take it for one of the slice that follows."""
    order = np.argsort(columns.seq, kind="stable")
    seqs = columns.seq[order]
    for first in range(0, len(edges), _BLOCK):
        part = edges[first : first + _BLOCK]
        src = order[np.searchsorted(seqs, part["src"])]
        dst = order[np.searchsorted(seqs, part["dst"])]
        begin = columns.start[src].astype(np.int64)
        leaves = np.maximum(begin, columns.end[src].astype(np.int64) - 1)
        numbers = range(first, first + len(part))
        head = '{"pid":0,"name":"waits for","cat":"dependence","id":'
        yield ",\n".join(
            f'{head}{n},"ph":"s","tid":{tid},"ts":{ts:.3f}}},\n'
            f'{head}{n},"ph":"f","bp":"e","tid":{to},"ts":{at:.3f}}}'
            for n, tid, ts, to, at in zip(
                numbers,
                columns.worker[src].tolist(),
                (leaves / 1000).tolist(),
                columns.worker[dst].tolist(),
                (columns.start[dst] / 1000).tolist(),
                strict=True,
            )
        )


def _open_intervals(begin: Times, end: Times) -> Iterable[tuple[int, int]]:
    """How many intervals are open at each time."""
    times = np.concatenate([begin, end])
    steps = np.repeat(np.array([1, -1], np.int64), [len(begin), len(end)])
    order = np.argsort(times, kind="stable")
    return _samples(times[order], np.cumsum(steps[order]), last=0)


def _samples(times: Times, counts: Counts, last: int | None = None) -> Iterable[tuple[int, int]]:
    """The points of a counter, thinned to what a screen can show: each point then stands for the
    largest count of its share, and `last` comes behind them."""
    # Of several changes at one time only the last count lasts.
    lasting = np.append(times[1:] != times[:-1], True)[: len(times)]
    times, counts = times[lasting], counts[lasting]
    if len(times) > _COUNTER_POINTS:
        end = times[-1]
        edges = np.linspace(0, len(times), _COUNTER_POINTS, endpoint=False).astype(np.int64)
        final = counts[-1] if last is None else last
        times, counts = times[edges], np.maximum.reduceat(counts, edges)
        times, counts = np.append(times, end), np.append(counts, final)
    return zip(times.tolist(), counts.tolist(), strict=True)
