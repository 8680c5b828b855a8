"""The trace layout and its Perfetto form."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_wsp.runtime.perfetto import to_perfetto
from pto_wsp.runtime.trace import EDGE, JOIN, Recorded, Trace, resolve_joins, trace_dtype


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
    to_perfetto(Recorded((rows(3),)), path, name='say "hi"')
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
    to_perfetto(Recorded((rows(2),)), path)
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
    to_perfetto(Recorded((trace,)), path)
    ready = [e["args"]["tasks"] for e in events(path) if e["name"] == "ready"]
    assert len(ready) <= 4100
    assert max(ready) == 8
    assert ready[-1] == 0


def test_several_blocks_hold_every_task_once(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    to_perfetto(Recorded((rows(70_000),)), path)
    ids = [e["args"]["task_id"] for e in events(path) if e["ph"] == "X"]
    assert ids == list(range(70_000))


@pytest.mark.parametrize("count", [0, 5])
def test_compressed_file_has_the_same_text(tmp_path: Path, count: int) -> None:
    plain, packed = tmp_path / "trace.json", tmp_path / "trace.json.gz"
    to_perfetto(Recorded((rows(count),)), plain)
    to_perfetto(Recorded((rows(count),)), str(packed))
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    assert len([e for e in events(plain) if e["ph"] == "X"]) == count


def edges(*pairs: tuple[int, int]) -> Trace:
    return np.array(list(pairs), EDGE)


def test_arrows_go_from_ends_to_starts(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    to_perfetto(Recorded((rows(4),), edges((100, 101), (100, 103), (101, 102))), path)
    found = events(path)
    begins = [(e["id"], e["tid"], e["ts"]) for e in found if e["ph"] == "s"]
    ends = [(e["id"], e["tid"], e["ts"], e["bp"]) for e in found if e["ph"] == "f"]
    # Slices end at 1.4, 2.4, ...: an arrow begins in the last nanosecond of its slice.
    assert begins == [(0, 0, 1.399), (1, 0, 1.399), (2, 1, 2.399)]
    assert ends == [(0, 1, 1.5, "e"), (1, 1, 3.5, "e"), (2, 0, 2.5, "e")]
    to_perfetto(Recorded((rows(4),), edges((100, 101))), path, arrows=False)
    assert not [e for e in events(path) if e["ph"] in "sf"]


def test_pieces_and_other_data(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    whole = rows(10)
    counters = {"window": (np.array([0, 700], np.uint64), np.array([3, 1]))}
    to_perfetto(Recorded((whole[5:], whole[:5]), edges((101, 108)), counters, virtual=True), path)
    content = json.loads(path.read_text("utf-8"))
    assert content["otherData"] == {"clock": "virtual cycles", "makespan": 10_400, "tasks": 10}
    found = content["traceEvents"]
    assert sorted(e["args"]["task_id"] for e in found if e["ph"] == "X") == list(range(10))
    assert [e["ts"] for e in found if e["ph"] in "sf"] == [2.399, 8.5]
    window = [(e["ts"], e["args"]["tasks"]) for e in found if e["name"] == "window"]
    assert window == [(0.0, 3), (0.7, 1)]


def test_joins_stand_for_the_task_that_ends_last() -> None:
    seqs = np.array([3, 0, 1, 2, 9], np.uint64)
    ends = np.array([10, 40, 30, 20, 99], np.uint64)
    j, k = int(JOIN) + 5, int(JOIN) + 2
    raw = edges((0, 1), (1, j), (2, j), (3, k), (j, k), (j, 9), (k, 9), (7, 9), (int(JOIN), 9))
    # Join j ends with task 1, and so does k, which waits for it; task 7 was overwritten, and of the
    # last join nothing is left.
    found = resolve_joins(raw, seqs, ends)
    assert found.tolist() == [(0, 1), (1, 9), (1, 9)]
    assert len(resolve_joins(edges(), seqs, ends)) == 0
    assert len(resolve_joins(raw, seqs[:0], ends[:0])) == 0
