"""The decisions of a run, as `Program.record` writes them: docs/design/0008-replay.md has the
layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

DECISION = np.dtype([("task_id", np.uint64), ("worker", np.uint32), ("ends", np.bool_)])

_FIXED = 6 + 5 * 8  # magic, version, flags; plan, schedule, task hash
_CHECKSUM = 8


def decisions(recording: bytes) -> npt.NDArray[Any]:
    """One row per event in order: a worker starts a task, or ends it. The bytes come from the core,
    which has checked them."""
    body = recording[: len(recording) - _CHECKSUM]
    _, at = _varint(body, _FIXED)  # tasks
    workers, at = _varint(body, at)
    last = [0] * workers
    busy = [False] * workers
    rows: list[tuple[int, int, bool]] = []
    while at < len(body):
        worker, at = _varint(body, at)
        if not busy[worker]:
            folded, at = _varint(body, at)
            last[worker] += (folded >> 1) ^ -(folded & 1)
        rows.append((last[worker], worker, busy[worker]))
        busy[worker] = not busy[worker]
    return np.array(rows, DECISION)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while data[at] >= 0x80:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
    return value | data[at] << shift, at + 1
