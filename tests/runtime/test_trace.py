"""The trace layout and its Perfetto form."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_wsp.runtime.trace import to_perfetto, trace_dtype


def rows(count: int) -> np.ndarray[Any, Any]:
    """Tasks of 900 ns every 1000 ns on two workers in turn, each ready 500 ns before it starts."""
    trace = np.zeros(count, trace_dtype(2, 8))
    numbers = np.arange(count)
    trace["task_id"] = numbers
    trace["seq"] = numbers + 100
    trace["take"] = numbers
    trace["kernel"] = np.where(numbers % 2 == 0, "cell", 'a"b\\c')
    trace["indices"] = np.stack([numbers, -numbers], axis=1)
    trace["worker"] = numbers % 2
    trace["stolen"] = numbers % 3 == 0
    trace["ready_ns"] = numbers * 1000
    trace["start_ns"] = numbers * 1000 + 500
    trace["end_ns"] = numbers * 1000 + 1400
    return trace


def events(path: Path) -> list[dict[str, Any]]:
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["displayTimeUnit"] == "ns"
    return content["traceEvents"]


def test_dtype() -> None:
    dtype = trace_dtype(3, 5)
    assert " ".join(dtype.names or ()) == (
        "task_id seq kernel site indices worker stream pool stolen take ready_ns start_ns end_ns"
    )
    assert dtype["indices"].shape == (3,)
    assert dtype["kernel"] == np.dtype("U5")
    assert trace_dtype(0)["indices"].shape == (0,)


def test_events_of_a_small_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    to_perfetto(rows(3), path, name='say "hi"')
    found = events(path)
    names = [e for e in found if e["ph"] == "M"]
    assert [e["args"]["name"] for e in names] == ['say "hi"', "worker 0", "worker 1"]
    assert [e["tid"] for e in names[1:]] == [0, 1]
    assert [e for e in found if e["ph"] == "X"][:2] == [
        {
            "ph": "X",
            "pid": 0,
            "tid": 0,
            "name": "cell",
            "ts": 0.5,
            "dur": 0.9,
            "args": {
                "task_id": 0,
                "seq": 100,
                "indices": [0, 0],
                "waiting_us": 0.5,
                "stolen": True,
            },
        },
        {
            "ph": "X",
            "pid": 0,
            "tid": 1,
            "name": 'a"b\\c',
            "ts": 1.5,
            "dur": 0.9,
            "args": {"task_id": 1, "seq": 101, "indices": [1, -1], "waiting_us": 0.5},
        },
    ]


def test_counters(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    to_perfetto(rows(2), path)
    counts = {
        name: [(e["ts"], e["args"]["tasks"]) for e in events(path) if e["name"] == name]
        for name in ("running", "ready")
    }
    assert counts["running"] == [(0.5, 1), (1.4, 0), (1.5, 1), (2.4, 0)]
    assert counts["ready"] == [(0.0, 1), (0.5, 0), (1.0, 1), (1.5, 0)]


def test_counters_of_long_traces_keep_their_peaks(tmp_path: Path) -> None:
    trace = rows(20_000)
    trace["ready_ns"][5000:5007] = 3_000_000  # seven tasks are ready long before they start
    path = tmp_path / "trace.json"
    to_perfetto(trace, path)
    ready = [e["args"]["tasks"] for e in events(path) if e["name"] == "ready"]
    assert len(ready) <= 4100
    assert max(ready) == 8
    assert ready[-1] == 0


def test_several_blocks_hold_every_task_once(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    to_perfetto(rows(70_000), path)
    ids = [e["args"]["task_id"] for e in events(path) if e["ph"] == "X"]
    assert ids == list(range(70_000))


@pytest.mark.parametrize("count", [0, 5])
def test_compressed_file_has_the_same_text(tmp_path: Path, count: int) -> None:
    plain, packed = tmp_path / "trace.json", tmp_path / "trace.json.gz"
    to_perfetto(rows(count), plain)
    to_perfetto(rows(count), str(packed))
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    assert len([e for e in events(plain) if e["ph"] == "X"]) == count
