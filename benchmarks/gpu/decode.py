"""Ragged paged decode with the library's workload: one configuration for every batch."""

from __future__ import annotations

import importlib
import statistics
import time
from typing import Any

import numpy as np

from benchmarks.gpu import batches
from benchmarks.gpu.batches import BATCHES, SKEWED, UNIFORM, Batch, Placed, Pool, Recorded, Shape
from benchmarks.gpu.rivals import SDPA, Rivals, all_flashinfer
from benchmarks.gpu.rows import Bar, Json, Report
from benchmarks.gpu.timing import (
    Captured,
    bindable,
    graph_us,
    host_us,
    interpreted,
    program_us,
    sms,
    steps_of,
    tensor_of,
    torch,
)
from pto_wsp import DenseDyn, DType, PagedTensor, Program, Scalar, Tensor
from pto_wsp.workloads import GpuDecode

SECTION = "decode"
SHARE_OF_SKETCH = 1.10
HOST_US = 15.0
_DTYPES = {"bfloat16": DType.BF16, "float16": DType.F16, "float32": DType.F32}
# Each of these is measured on a uniform batch and on a skewed one.
VARIANTS = {
    "64 heads": Shape(heads=64),
    "head 64": Shape(dim=64),
    "head 256": Shape(dim=256),
    "f16": Shape(dtype="float16"),
    "page 1": Shape(page=1),
    "page 64": Shape(page=64),
}
TINY = Shape(heads=2, kv_heads=1, dim=16, page=4)


def compiled(shape: Shape, config: GpuDecode) -> Program:
    """The program; everything is bound when it runs."""
    dtype = _DTYPES[shape.dtype]
    decode = config.workload(shape.heads, shape.kv_heads, shape.dim, shape.page, dtype)

    def empty(name: str, *sizes: int) -> Tensor:
        return Tensor(data=np.zeros(sizes, dtype.numpy), name=name)

    table = Tensor(data=np.zeros((1, 1), np.int32), name="table")
    pools = [empty(n, 1, shape.page, shape.kv_heads, shape.dim) for n in ("keys", "values")]
    return decode(
        batch=DenseDyn(1),
        lens=np.ones(1, np.int32),
        blocks=Scalar(config.blocks(sms() * config.blocks_per_sm, shape.kv_heads)),
        q=empty("q", 1, shape.heads, shape.dim),
        k=PagedTensor(pools[0], table),
        v=PagedTensor(pools[1], table),
        out=empty("out", 1, shape.heads, shape.dim),
    ).compile(target="cuda", **config.options)


def bound(placed: Placed, number: int = 0) -> dict[str, Any]:
    table, out = placed.sets[number]
    arrays = {
        "lens": placed.lens,
        "q": placed.q,
        "out": out,
        "table": table,
        "keys": placed.pool.keys,
        "values": placed.pool.values,
    }
    return {"batch": len(placed.batch.lens), **{n: bindable(a) for n, a in arrays.items()}}


def measure(
    report: Report, config: GpuDecode, *, tiny: bool, seconds: float, variants: bool
) -> None:
    """The six batches, then host time and one graph for ten batches, then other shapes."""
    end = time.monotonic() + seconds
    shape = TINY if tiny else Shape()
    rivals = Rivals(report)
    with report.case(SECTION, "compile"):
        pool = Pool(shape, 4096 if tiny else None)
        began = time.monotonic()
        program = compiled(shape, config)
        first = batches.place(pool, _sized(BATCHES[0], tiny))
        program.execute(**bound(first))
        report.row(SECTION, "compile, first run", time.monotonic() - began, "s")
        for batch in BATCHES:
            with report.case(SECTION, batch.name):
                _batch(report, rivals, program, batches.place(pool, _sized(batch, tiny)))
        for batch in (UNIFORM, SKEWED):
            with report.case(SECTION, f"operator, {batch.name}"):
                _operator(report, batches.place(pool, _sized(batch, tiny)))
        with report.case(SECTION, "host time"):
            _host(report, program, batches.place(pool, _sized(BATCHES[3], tiny)))
        with report.case(SECTION, "one graph"):
            _one_graph(report, program, pool, tiny=tiny)
        program.close()
        del pool
    for name, other in VARIANTS.items() if variants else ():
        if tiny:
            dim, page = max(16, other.dim // 8), min(other.page, 8)
            other = Shape(other.heads // 16, 1, dim, page, other.dtype)
        with report.case(SECTION, name):
            if time.monotonic() > end:
                raise TimeoutError(f"not measured: {seconds:g} s are over")
            _variant(report, rivals, name, other, config, tiny=tiny)


def _sized(batch: Batch, tiny: bool) -> Batch:
    return batch.tiny() if tiny else batch


def _batch(report: Report, rivals: Rivals, program: Program, placed: Placed) -> None:
    """Warm: the same arrays each time. Cold: sets of pages that take turns."""
    batch = placed.batch
    us = program_us(program, [bound(placed)], writes="out")
    wrong = batches.wrong(placed)
    facts: dict[str, Any] = {
        "tokens": sum(batch.lens),
        "tb_per_s": placed.bytes_read / us.median / 1e6,
        "quartiles": us.quartiles,
        "error": batches.error(placed, batch.lens),
    }
    facts["rivals"], facts["forms"] = rivals.compare(placed, [0])
    recorded = batch.recorded
    assert recorded is not None
    report.row(
        *(SECTION, f"{batch.name}, step 1", us.median, "us"),
        rival=("sketch, recorded", recorded.sketch),
        bar=Bar(SHARE_OF_SKETCH, of_ratio=True),
        wrong=wrong,
        **facts,
    )
    report.row(
        *(SECTION, f"{batch.name}, step 2", us.median, "us"),
        rival=_best(with_recorded(facts["rivals"], facts["forms"], recorded)),
        bar=Bar(batch.ratio, of_ratio=True, below=batch.strictly),
        wrong=wrong,
    )
    if len(placed.sets) > 1:
        every = list(range(len(placed.sets)))
        sets = [bound(placed, number) for number in every]
        cold = program_us(program, sets, writes="out")
        wrong = batches.wrong(placed, every[-1])
        times, forms = rivals.compare(placed, every)
        report.row(
            *(SECTION, f"{batch.name}, cold", cold.median, "us"),
            rival=_best(times),
            wrong=wrong,
            rivals=times,
            forms=forms,
            sets=len(every),
        )


def with_recorded(measured: dict[str, float], forms: Json, recorded: Recorded) -> dict[str, float]:
    """Recorded times stand for those that did not run here. The one of FlashInfer is the best of
    its forms, so it stands where any of them is missing."""
    found = dict(measured)
    if not all_flashinfer(forms):
        found["FlashInfer, recorded"] = recorded.flashinfer
    if recorded.sdpa is not None and SDPA not in measured:
        found["SDPA, recorded"] = recorded.sdpa
    return found


def _best(rivals: dict[str, float]) -> tuple[str, float] | None:
    return min(rivals.items(), key=lambda each: each[1], default=None)


def _variant(
    report: Report, rivals: Rivals, name: str, shape: Shape, config: GpuDecode, *, tiny: bool
) -> None:
    pool = Pool(shape, 4096 if tiny else None)
    program = compiled(shape, config)
    for batch in (UNIFORM, SKEWED):
        with report.case(SECTION, f"{name}, {batch.name}"):
            placed = batches.place(pool, _sized(batch, tiny))
            us = program_us(program, [bound(placed)], writes="out", replays=10)
            wrong = batches.wrong(placed)
            times, forms = rivals.compare(placed, [0])
            report.row(
                *(SECTION, f"{name}, {batch.name}", us.median, "us"),
                rival=_best(times),
                wrong=wrong,
                tb_per_s=placed.bytes_read / us.median / 1e6,
                error=batches.error(placed, placed.batch.lens),
                rivals=times,
                forms=forms,
            )
    program.close()


def _operator(report: Report, placed: Placed) -> None:
    """The same step as torch.ops.pto_wsp.paged_decode: in a graph, and what a call costs the host,
    the allocation of the result included."""
    ops = importlib.import_module("pto_wsp.torch_ops")
    (table, out), pool = placed.sets[0], placed.pool

    def step() -> Any:
        given = placed.q, pool.keys, pool.values, table, placed.lens
        return torch().ops.pto_wsp.paged_decode(*given)

    step()
    us = graph_us([step], drain=ops.synchronize)
    captured = Captured([lambda: out.copy_(step())], ops.synchronize)
    out.fill_(float("nan"))  # so that what is looked at below is what the graph computes
    captured.replay()
    ops.synchronize()
    calls: list[float] = []
    for _ in range(2 if interpreted() else 200):
        begin = time.perf_counter_ns()
        step()
        calls.append((time.perf_counter_ns() - begin) / 1e3)
    ops.synchronize()
    report.row(
        *(SECTION, f"operator, {placed.batch.name}", us.median, "us"),
        wrong=batches.wrong(placed),
        host_us=statistics.median(calls),
        tb_per_s=placed.bytes_read / us.median / 1e6,
    )


def _host(report: Report, program: Program, placed: Placed) -> None:
    """What a decode step costs the host: everything lies on the GPU, lengths included."""
    program.execute(**bound(placed))
    us = host_us(program)
    more = {"quartiles": us.quartiles, "most": max(us.values)}
    report.row(SECTION, "host time of a step", us.median, "us", bar=Bar(HOST_US), **more)
    results = [bindable(torch().empty_like(placed.sets[0][1])) for _ in range(2)]
    us = host_us(program, [{"out": result} for result in results])
    report.row(SECTION, "host time, other memory", us.median, "us", quartiles=us.quartiles)


def _one_graph(report: Report, program: Program, pool: Pool, *, tiny: bool) -> None:
    """Ten batches by one captured graph: lengths change in the memory of the GPU, nothing else."""
    most, count, turns = (32, 4, 2) if tiny else (4096, 64, 10)
    rng = np.random.default_rng(5)
    batch = Batch("ten batches", [most] * count)
    placed = batches.place(pool, batch)
    captured = Captured(steps_of(program, [bound(placed)]), program.synchronize)
    worst, different = 0.0, 0
    for turn in range(turns):
        lens = rng.integers(0, most + 1, count)
        lens[: turn + 1] = rng.integers(0, 8, turn + 1)
        placed.lens.copy_(tensor_of(lens.astype(np.int32)))
        placed.sets[0][1].fill_(7.0)
        captured.replay()
        program.synchronize()
        found = placed.sets[0][1].clone()
        worst = max(worst, batches.error(placed, lens.tolist()))
        program.execute(**bound(placed))
        different += int(not torch().equal(found, placed.sets[0][1]))
    allowed = batches.ERRORS[pool.shape.dtype]
    wrong = f"error {worst:.2g}" if worst > allowed else ""
    if different:
        wrong = f"{different} of {turns} batches differ from a run outside the graph"
    report.checked(SECTION, "one graph serves ten batches", wrong, error=worst)
