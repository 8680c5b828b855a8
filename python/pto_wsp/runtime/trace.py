"""Traces of runs: the layout of `program.trace`, and its form for the Perfetto viewer."""

from __future__ import annotations

import gzip
import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np

Trace: TypeAlias = np.ndarray[Any, Any]

_BLOCK = 1 << 16  # events formatted at a time
_COUNTER_POINTS = 4096  # points of a counter track; more are not visible
_STOLEN = ',"stolen":true'


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


def to_perfetto(trace: Trace, path: str | PathLike[str], *, name: str = "pto_wsp") -> None:
    """Writes a trace as Chrome trace events, which ui.perfetto.dev and chrome://tracing open.

    Each task is a slice on the track of its worker; two counters show how many tasks run and how
    many are ready and wait for a worker. A path that ends with .gz is compressed.
    """
    with _text_file(Path(path)) as out:
        out.write('{"displayTimeUnit":"ns","traceEvents":[\n')
        out.write(",\n".join(_names(trace, name)))
        for block in _task_blocks(trace):
            out.write(",\n")
            out.write(block)
        for track, begin, end in (
            ("running", trace["start_ns"], trace["end_ns"]),
            ("ready", trace["ready_ns"], trace["start_ns"]),
        ):
            for event in _counter(track, begin, end):
                out.write(",\n")
                out.write(event)
        out.write("\n]}\n")


@contextmanager
def _text_file(path: Path) -> Generator[IO[str], None, None]:
    if path.suffix == ".gz":
        # Level 1: traces shrink tenfold at any level, and higher ones take seconds.
        with gzip.open(path, "wt", compresslevel=1, encoding="utf-8") as out:
            yield out
    else:
        with open(path, "w", encoding="utf-8") as out:
            yield out


def _names(trace: Trace, name: str) -> Iterator[str]:
    """Events that name the process and the worker tracks."""
    yield json.dumps({"ph": "M", "pid": 0, "name": "process_name", "args": {"name": name}})
    for worker in np.unique(trace["worker"]).tolist():
        args = {"name": f"worker {worker}"}
        yield json.dumps({"ph": "M", "pid": 0, "tid": worker, "name": "thread_name", "args": args})


def _task_blocks(trace: Trace) -> Iterator[str]:
    """The slices of the tasks, many at a time: a dictionary per event would cost seconds."""
    for first in range(0, len(trace), _BLOCK):
        yield ",\n".join(_tasks(trace[first : first + _BLOCK]))


def _tasks(rows: Trace) -> list[str]:
    kernels, which = np.unique(rows["kernel"], return_inverse=True)
    quoted = [json.dumps(str(kernel)) for kernel in kernels]
    start = rows["start_ns"].astype(np.int64)
    columns = zip(
        which.tolist(),
        rows["worker"].tolist(),
        (start / 1000).tolist(),
        ((rows["end_ns"].astype(np.int64) - start) / 1000).tolist(),
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


def _counter(track: str, begin: Trace, end: Trace) -> Iterator[str]:
    """How many intervals are open at each time, thinned to what a screen can show: each point then
    stands for the largest count of its share."""
    times = np.concatenate([begin, end])
    steps = np.repeat(np.array([1, -1], np.int64), [len(begin), len(end)])
    order = np.argsort(times, kind="stable")
    times = times[order]
    counts = np.cumsum(steps[order])
    # Of several changes at one time only the last count lasts.
    last = np.append(times[1:] != times[:-1], True)[: len(times)]
    times, counts = times[last], counts[last]
    if len(times) > _COUNTER_POINTS:
        edges = np.linspace(0, len(times), _COUNTER_POINTS, endpoint=False).astype(np.int64)
        times, counts = times[edges], np.maximum.reduceat(counts, edges)
        times = np.append(times, end.max())
        counts = np.append(counts, 0)
    for time, count in zip(times.tolist(), counts.tolist(), strict=True):
        args = f'{{"tasks":{count}}}'
        yield f'{{"ph":"C","pid":0,"name":"{track}","ts":{time / 1000:.3f},"args":{args}}}'
