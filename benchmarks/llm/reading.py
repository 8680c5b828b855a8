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
from benchmarks.llm.child import stream, timed
from benchmarks.overhead.build import load
from benchmarks.sampling import Protocol, interleave

THREADS = 2
# Pages of k before those of v, floats that are fetched ahead, whether the next page is fetched.
WAYS = {
    "8 pages of k, 8 of v": (8, 0, False),
    "one page of k, one of v": (1, 0, False),
    "all of k, then v": (1 << 30, 0, False),
    "8 and 8, 512 bytes ahead": (8, 128, False),
    "8 and 8, 2 KB ahead": (8, 512, False),
    "8 and 8, next page ahead": (8, 0, True),
}


def pages_in_order(batch: decode.Batch) -> Any:
    needed = -(-batch.lens // batch.page)
    return np.concatenate([batch.table[b, :count] for b, count in enumerate(needed)])


def reader(batch: decode.Batch, order: Any, way: tuple[int, int, bool]) -> Callable[[], object]:
    read = load("pages").page_sum
    read.restype = ctypes.c_float
    read.argtypes = [
        *[ctypes.c_void_p] * 3,
        *[ctypes.c_int64] * 4,
        *[ctypes.c_int] * 2,
    ]
    block, ahead, following = way
    k, v = batch.k_memory, batch.v_memory
    size = k[0].size
    return lambda: read(
        k.ctypes.data,
        v.ctypes.data,
        order.ctypes.data,
        len(order),
        size,
        min(block, len(order)),
        ahead,
        int(following),
        THREADS,
    )


def main(runs: int) -> None:
    batch = decode.make(16, True, 1.0)
    order = pages_in_order(batch)
    total = batch.k_memory.nbytes + batch.v_memory.nbytes
    with decode.work(batch, THREADS).compile(num_threads=THREADS) as program:
        jobs = {"straight line": stream(batch, THREADS), "the step": timed(program.execute)}
        jobs |= {name: timed(reader(batch, order, way)) for name, way in WAYS.items()}
        taken = interleave(jobs, Protocol(runs=runs))
    limit = taken["straight line"].map(lambda ms: total / ms / 1e6)
    print(f"{'straight line':28} {limit.median:6.1f} GB/s")
    for name in list(jobs)[1:]:
        size = batch.bytes_read if name == "the step" else total
        rate = taken[name].map(lambda ms, size=size: size / ms / 1e6)
        print(f"{name:28} {rate.median:6.1f} GB/s  {rate.median / limit.median:5.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 21)
