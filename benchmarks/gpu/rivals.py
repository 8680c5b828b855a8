"""What others make of a batch, in the same run and checked alike: torch's SDPA and FlashInfer, its
decode and its persistent kernel."""

from __future__ import annotations

import importlib
import statistics
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.gpu import batches
from benchmarks.gpu.batches import Placed, Shape
from benchmarks.gpu.rows import Json, Report
from benchmarks.gpu.timing import (
    Captured,
    Step,
    graph_us,
    synchronize,
    tensor_of,
    torch,
    where,
)

SDPA, FLASHINFER, PERSISTENT = "SDPA", "FlashInfer", "FlashInfer persistent"
_SPACE = 256 << 20  # bytes for the partial results of a step
PLANS = 7


@dataclass(frozen=True, slots=True)
class Form:
    """One way to take a step, which gives its result. `plan` is what the host does before, for
    these lengths; it is outside of the graph."""

    step: Callable[[], Any]
    plan: Step | None = None


def _sdpa(placed: Placed, number: int, *, rows: bool) -> Form:
    """scaled_dot_product_attention on keys that were gathered before, heads apart. Heads that share
    keys are `rows` of one query, or shared by `enable_gqa`."""
    shape, lens = placed.pool.shape, placed.batch.lens
    each = [placed.keys(b, lens[b], placed.sets[number][0]) for b in range(len(lens))]
    keys, values = (
        torch().stack([pair[i] for pair in each]).transpose(1, 2).contiguous() for i in (0, 1)
    )
    heads = shape.kv_heads if rows else shape.heads
    q = placed.q.reshape(len(lens), heads, -1, shape.dim)
    attend = torch().nn.functional.scaled_dot_product_attention
    return Form(lambda: attend(q, keys, values, enable_gqa=not rows))


def _decode(placed: Placed, number: int, *, tensor_cores: bool) -> Form:
    shape, q = placed.pool.shape, placed.q
    starts, pages = _pages(placed, number)
    last = [(n - 1) % shape.page + 1 for n in placed.batch.lens]
    given = starts, pages, tensor_of(np.array(last, np.int32))
    wrapper = importlib.import_module("flashinfer").BatchDecodeWithPagedKVCacheWrapper(
        torch().empty(_SPACE, dtype=torch().uint8, device=where()),
        "NHD",
        use_tensor_cores=tensor_cores,
    )
    sizes = shape.heads, shape.kv_heads, shape.dim, shape.page
    cache, out = (placed.pool.keys, placed.pool.values), torch().empty_like(q)
    return Form(
        lambda: wrapper.run(q, cache, out=out),
        lambda: wrapper.plan(*given, *sizes, q_data_type=q.dtype, kv_data_type=q.dtype),
    )


def _persistent(placed: Placed, number: int) -> Form:
    shape, q = placed.pool.shape, placed.q
    firsts = tensor_of(np.arange(len(placed.batch.lens) + 1, dtype=np.int32))
    given = firsts, *_pages(placed, number), placed.lens
    wrapper = importlib.import_module("flashinfer").BatchAttention("NHD", where())
    sizes = shape.heads, shape.kv_heads, shape.dim, shape.dim, shape.page
    cache, out = (placed.pool.keys, placed.pool.values), torch().empty_like(q)
    sums = torch().empty(q.shape[:2], dtype=torch().float32, device=where())
    return Form(
        lambda: wrapper.run(q, cache, out=out, lse=sums)[0],
        lambda: wrapper.plan(*given, *sizes, q_data_type=q.dtype, kv_data_type=q.dtype),
    )


def _pages(placed: Placed, number: int) -> tuple[Any, Any]:
    """Where the pages of each sequence begin in a list of all of them, and that list."""
    table = placed.sets[number][0]
    counts = [-(-n // placed.pool.shape.page) for n in placed.batch.lens]
    starts = tensor_of(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
    return starts, torch().cat([table[b, :n] for b, n in enumerate(counts)])


_Made = Callable[[Placed, int], Form]
_FORMS: dict[tuple[str, str], _Made] = {
    (SDPA, "shared heads"): lambda placed, number: _sdpa(placed, number, rows=False),
    (SDPA, "heads as rows"): lambda placed, number: _sdpa(placed, number, rows=True),
    (FLASHINFER, "decode"): lambda placed, number: _decode(placed, number, tensor_cores=False),
    (FLASHINFER, "tensor cores"): lambda placed, number: _decode(placed, number, tensor_cores=True),
    (PERSISTENT, "BatchAttention"): _persistent,
}


class Rivals:
    """Those that run here. What fails is noted, and not tried again for the shape: it may be a long
    compilation that fails."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._failed: set[tuple[str, str, Shape]] = set()
        self._absent: set[str] = set()
        try:
            found: Any = importlib.import_module("flashinfer")
            report.content["machine"]["flashinfer"] = found.__version__
        except Exception as error:
            self._absent = {FLASHINFER, PERSISTENT}
            report.note(f"no FlashInfer, its recorded times stand for it: {_reason(error)}")

    def compare(self, placed: Placed, sets: list[int]) -> tuple[dict[str, float], Json]:
        """By name: the best time of each whose result is right; and what is known of each form."""
        best: dict[str, float] = {}
        forms: Json = {}
        for rival, how in _FORMS:
            if rival in self._absent or (rival, how, placed.pool.shape) in self._failed:
                continue
            if rival == SDPA and not placed.batch.uniform:
                continue
            facts = forms[f"{rival}, {how}"] = self._facts(rival, how, placed, sets)
            if _counts(facts):
                best[rival] = min(facts["us"], best.get(rival, facts["us"]))
        return best, forms

    def _facts(self, rival: str, how: str, placed: Placed, sets: list[int]) -> Json:
        try:
            facts = _measured([_FORMS[rival, how](placed, number) for number in sets], placed, sets)
        except Exception as error:
            self._failed.add((rival, how, placed.pool.shape))
            self._report.note(f"{rival}, {how}: {placed.batch.name}: {_reason(error)}")
            return {"failed": traceback.format_exc()[-4000:]}
        if facts["wrong"]:
            self._report.note(f"{rival}, {how}: {placed.batch.name}: not counted: {facts['wrong']}")
        return facts


def all_flashinfer(forms: Json) -> bool:
    """Whether each form of it ran and is right."""
    names = [f"{rival}, {how}" for rival, how in _FORMS if rival != SDPA]
    return all(name in forms and _counts(forms[name]) for name in names)


def _counts(facts: Json) -> bool:
    return "us" in facts and not facts["wrong"]


def _measured(forms: list[Form], placed: Placed, sets: list[int]) -> Json:
    plans = [form.plan for form in forms if form.plan is not None]
    for plan in plans:
        plan()
    facts: Json = {"plan_us": _plan_us(plans[0])} if plans else {}
    facts["us"] = graph_us([form.step for form in forms]).median
    facts["wrong"] = batches.wrong(placed, sets[-1], _replayed(forms[-1].step))
    return facts


def _plan_us(plan: Step) -> float:
    """How long it keeps the host, lengths on the GPU."""
    taken: list[float] = []
    for _ in range(PLANS):
        synchronize()
        begin = time.perf_counter_ns()
        plan()
        taken.append((time.perf_counter_ns() - begin) / 1e3)
    return statistics.median(taken)


def _replayed(step: Callable[[], Any]) -> Any:
    """What a replay of the step leaves, which is what was measured."""
    found: list[Any] = []
    captured = Captured([lambda: found.append(step())])
    for each in found:
        each.zero_()
    captured.replay()
    synchronize()
    return found[0].clone()


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
