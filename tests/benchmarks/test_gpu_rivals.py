"""Who counts as a rival of the paged decode: who runs and is right. FlashInfer is played by torch
on the CPU, which takes what its wrappers take."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.gpu import batches, rivals
from benchmarks.gpu.batches import Batch, Pool, Recorded, Shape
from benchmarks.gpu.decode import with_recorded
from benchmarks.gpu.rivals import FLASHINFER, PERSISTENT, SDPA, Rivals
from benchmarks.gpu.rows import Report

SHAPE = Shape(heads=4, kv_heads=2, dim=16, page=4)


class Wrapper:
    """Attends as planned; `off` is added to the result, `plans` counts."""

    off = 0.0
    plans = 0

    def _planned(self, starts: Any, pages: Any, lens: list[int]) -> None:
        type(self).plans += 1
        self._starts, self._pages, self._lens = starts.tolist(), pages.long(), lens

    def run(self, q: Any, cache: tuple[Any, Any], *, out: Any) -> Any:
        torch = pytest.importorskip("torch")
        for b, length in enumerate(self._lens):
            mine = self._pages[self._starts[b] : self._starts[b + 1]]
            keys, values = (each[mine].flatten(0, 1)[:length].transpose(0, 1) for each in cache)
            attend = torch.nn.functional.scaled_dot_product_attention
            out[b] = attend(q[b][:, None], keys, values, enable_gqa=True)[:, 0] + self.off
        return out


class Decode(Wrapper):
    def __init__(self, space: Any, layout: str, *, use_tensor_cores: bool) -> None:
        assert layout == "NHD"
        self._fails = use_tensor_cores

    def plan(self, starts: Any, pages: Any, last: Any, *sizes: int, **dtypes: Any) -> None:
        if self._fails:
            raise RuntimeError("no compiler\nand more")
        page = sizes[3]
        full = (starts[1:] - starts[:-1] - 1) * page
        self._planned(starts, pages, (full + last).tolist())


class Persistent(Wrapper):
    def __init__(self, layout: str, device: str) -> None:
        assert (layout, device) == ("NHD", "cpu")

    def plan(
        self, firsts: Any, starts: Any, pages: Any, lens: Any, *sizes: int, **dtypes: Any
    ) -> None:
        assert firsts.tolist() == list(range(len(lens) + 1))
        self._planned(starts, pages, lens.tolist())

    def run(self, q: Any, cache: tuple[Any, Any], *, out: Any, lse: Any) -> Any:
        return super().run(q, cache, out=out), lse


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> Report:
    pytest.importorskip("torch")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    return Report(None, {}, to=io.StringIO(), judged=False)


@pytest.fixture
def flashinfer(monkeypatch: pytest.MonkeyPatch) -> Any:
    class OwnPersistent(Persistent):
        pass

    found = SimpleNamespace(
        __version__="1.0", BatchDecodeWithPagedKVCacheWrapper=Decode, BatchAttention=OwnPersistent
    )
    monkeypatch.setitem(sys.modules, "flashinfer", found)
    return found


def placed(*lens: int) -> batches.Placed:
    return batches.place(Pool(SHAPE, 256), Batch("some", list(lens)))


def test_flashinfer_is_measured_beside_sdpa(report: Report, flashinfer: Any):
    best, forms = Rivals(report).compare(placed(9, 9), [0])
    assert best.keys() == {SDPA, FLASHINFER, PERSISTENT}
    assert forms["FlashInfer, decode"]["plan_us"] > 0
    assert best[SDPA] == min(
        forms[f"SDPA, {how}"]["us"] for how in ("shared heads", "heads as rows")
    )
    assert report.content["machine"]["flashinfer"] == "1.0"


def test_what_fails_is_noted_once(report: Report, flashinfer: Any):
    those = Rivals(report)
    _, first = those.compare(placed(9, 1, 16), [0])
    assert "and more" in first["FlashInfer, tensor cores"]["failed"]
    _, second = those.compare(placed(4, 5), [0])
    assert "FlashInfer, tensor cores" not in second
    assert report.content["notes"] == ["FlashInfer, tensor cores: some: RuntimeError: no compiler"]


def test_a_wrong_result_does_not_count(report: Report, flashinfer: Any):
    flashinfer.BatchAttention.off = 1.0
    best, forms = Rivals(report).compare(placed(9, 1, 16), [0])
    assert best.keys() == {FLASHINFER}
    assert "error" in forms["FlashInfer persistent, BatchAttention"]["wrong"]
    assert any("not counted" in note for note in report.content["notes"])


def test_not_a_number_is_an_error(report: Report):
    where = placed(9, 1, 16)
    assert "inf" in batches.wrong(where, 0, where.q * float("nan"))


def test_without_flashinfer_there_is_a_note(report: Report, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    best, _ = Rivals(report).compare(placed(9, 9), [0])
    assert best.keys() == {SDPA}
    assert report.content["notes"][0].startswith("no FlashInfer")


def test_a_plan_is_timed_outside_of_the_step(report: Report, flashinfer: Any):
    Rivals(report).compare(placed(9, 1, 16), [0])
    assert flashinfer.BatchAttention.plans == 1 + rivals.PLANS


def test_recorded_times_stand_for_who_is_missing():
    recorded = Recorded(flashinfer=20.0, sketch=1.0, sdpa=30.0)
    assert with_recorded({}, {}, recorded).keys() == {"FlashInfer, recorded", "SDPA, recorded"}
    names = (
        f"{FLASHINFER}, decode",
        f"{FLASHINFER}, tensor cores",
        f"{PERSISTENT}, BatchAttention",
    )
    forms = {name: {"us": 30.0, "wrong": ""} for name in names}
    measured = {FLASHINFER: 30.0, PERSISTENT: 30.0, SDPA: 29.0}
    assert with_recorded(measured, forms, recorded) == measured
    forms[names[1]]["wrong"] = "error 1"
    assert "FlashInfer, recorded" in with_recorded(measured, forms, recorded)
