"""python -m benchmarks.llm.reading [RUNS]: what is the most that a decode step over these pages
could read? Each way is given as a share of what two threads read in a straight line, beside the
step itself. docs/investigations/0001-decode-bandwidth.md has a run."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.llm import decode
from benchmarks.llm.child import POOLS, stream, timed
from benchmarks.overhead.build import load
from benchmarks.sampling import Protocol, interleave

THREADS = 2
KEYS_AT_A_TIME = 128  # of a sequence of middle length: `block` of workloads.Tier
# Into which cache what comes next is asked for, 0 for none, and whether all is multiplied as often
# as the step does.
WAYS = {
    "only added up": (0, False),
    "asked for, first cache, added up": (1, False),
    "asked for, second cache, added up": (2, False),
    "asked for, first cache, multiplied by four rows": (1, True),
    "asked for, second cache, multiplied by four rows": (2, True),
}


def pages_in_order(batch: decode.Batch) -> Any:
    needed = -(-batch.lens // batch.page)
    return np.concatenate([batch.table[b, :count] for b, count in enumerate(needed)])


def reader(batch: decode.Batch, way: tuple[int, bool]) -> Callable[[], object]:
    read = load("pages").page_sum
    read.restype = ctypes.c_float
    read.argtypes = [*[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 3, *[ctypes.c_int] * 3]
    order = pages_in_order(batch)
    k, v = batch.k_memory, batch.v_memory
    floats = decode.KV_HEADS * batch.page * decode.DIM
    shape = (len(order), floats, max(1, KEYS_AT_A_TIME // batch.page))
    pools = (k.ctypes.data, v.ctypes.data, order.ctypes.data)
    # The function keeps the array alive whose address it passes.
    return lambda order=order: read(*pools, *shape, *map(int, way), THREADS)


def one_pool(name: str, runs: int) -> None:
    batch = decode.make(*POOLS[name], 1.0)
    total = batch.k_memory.nbytes + batch.v_memory.nbytes
    with decode.work(batch, THREADS).compile(num_threads=THREADS) as program:
        jobs = {"straight line": stream(batch, THREADS), "the step": timed(program.execute)}
        jobs |= {way: timed(reader(batch, how)) for way, how in WAYS.items()}
        taken = interleave(jobs, Protocol(runs=runs))
    limit = taken["straight line"].map(lambda ms: total / ms / 1e6)
    print(f"{name}\n  {'straight line':48} {limit.median:6.1f} GB/s")
    for job in list(jobs)[1:]:
        size = batch.bytes_read if job == "the step" else total
        rate = taken[job].map(lambda ms, size=size: size / ms / 1e6)
        share = limit.times_faster_than(rate)
        print(f"  {job:48} {rate.median:6.1f} GB/s  {share.median:5.2f}")


def main(runs: int) -> None:
    for name, (_, by_head) in POOLS.items():
        if by_head:
            one_pool(name, runs)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 21)
