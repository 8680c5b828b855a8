"""python -m benchmarks.kernels.child RUNS SCALE WORKERS: prints the measurements as JSON."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.kernels import workloads
from benchmarks.sampling import Protocol, Samples, interleave

Json = dict[str, Any]


def main(runs: int, scale: float, workers: int) -> Json:
    protocol = Protocol(runs=runs, scale=scale)
    torch = _torch()
    size = max(256, round(1024 * scale) // 256 * 256)
    rows = max(64, round(4096 * scale))
    tokens = max(256, round(2048 * scale) // 64 * 64)
    return {
        "compile": {"ten_kernels_s": first_compile()},
        "product": product(protocol, size),
        "softmax": row_kernel(protocol, "softmax", rows, torch),
        "rmsnorm": row_kernel(protocol, "rmsnorm", rows, torch),
        "attention": attention(protocol, tokens, workers, torch),
        "torch": None if torch is None else torch.__version__,
    }


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch


def _timed(function: Callable[[], object]) -> Callable[[], float]:
    def job() -> float:
        begin = time.perf_counter_ns()
        function()
        return (time.perf_counter_ns() - begin) / 1e6

    return job


def _error(found: Any, exact: Any) -> float:
    """The largest difference, by the largest value."""
    return float(np.abs(found - exact).max() / np.abs(exact).max())


def _result(taken: dict[str, Samples], errors: dict[str, float], rivals: dict[str, str]) -> Json:
    """Milliseconds and errors of all, and how many times faster than each rival ours is."""
    out: Json = {f"{name}_ms": each.to_json() for name, each in taken.items()}
    out["errors"] = errors
    for rival, key in rivals.items():
        if rival in taken:
            out[key] = taken["ours"].times_faster_than(taken[rival]).to_json()
    return out


def product(protocol: Protocol, size: int) -> Json:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((size, size), np.float32) for _ in range(2))
    c, expected = np.zeros_like(a), a.astype(np.float64) @ b.astype(np.float64)
    theirs = np.zeros_like(a)
    with workloads.product(a, b, c).compile(num_threads=1) as program:
        jobs = {
            "ours": _timed(program.execute),
            "numpy": _timed(lambda: np.matmul(a, b, out=theirs)),
        }
        taken = interleave(jobs, protocol)
    errors = {"ours": _error(c, expected), "numpy": _error(theirs, expected)}
    out = _result(taken, errors, {"numpy": "vs_numpy"})
    out["gflops"] = 2 * size**3 / taken["ours"].median / 1e6
    return out


def row_kernel(protocol: Protocol, name: str, rows: int, torch: Any) -> Json:
    """Rows of 4096 that do not fit into a cache, on one thread, beside a copy of them."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, 4096), np.float32)
    weight = rng.standard_normal((1, 4096), np.float32)
    out, copy = np.zeros_like(x), np.zeros_like(x)
    wide = x.astype(np.float64)
    if name == "softmax":
        powers = np.exp(wide - wide.max(axis=1, keepdims=True))
        expected = powers / powers.sum(axis=1, keepdims=True)
    else:
        scale = np.sqrt((wide * wide).mean(axis=1, keepdims=True) + 1e-6)
        expected = wide / scale * weight
    with workloads.rows(name, x, weight, out).compile(num_threads=1) as program:
        jobs = {"ours": _timed(program.execute), "copy": _timed(lambda: np.copyto(copy, x))}
        theirs = None
        if torch is not None:
            torch.set_num_threads(1)
            given, factor = torch.from_numpy(x), torch.from_numpy(weight[0])
            theirs = torch.empty_like(given)
            if name == "softmax":
                jobs["torch"] = _timed(lambda: torch.softmax(given, 1, out=theirs))
            else:
                norm = torch.nn.functional.rms_norm
                jobs["torch"] = _timed(lambda: norm(given, (4096,), factor, 1e-6))
        taken = interleave(jobs, protocol)
    errors = {"ours": _error(out, expected)}
    if theirs is not None and name == "softmax":
        errors["torch"] = _error(theirs.numpy(), expected)
    return _result(taken, errors, {"copy": "of_copy", "torch": "vs_torch"})


def attention(protocol: Protocol, tokens: int, workers: int, torch: Any) -> Json:
    """Not causal, 8 heads of 128."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((8, tokens, 128), np.float32) for _ in range(3))
    out = np.zeros_like(q)
    scores = np.einsum("hqd,hkd->hqk", q.astype(np.float64), k.astype(np.float64)) / np.sqrt(128)
    powers = np.exp(scores - scores.max(axis=2, keepdims=True))
    expected = np.einsum("hqk,hkd->hqd", powers / powers.sum(axis=2, keepdims=True), v)
    with workloads.attention(q, k, v, out).compile(num_threads=workers) as program:
        jobs = {"ours": _timed(program.execute)}
        theirs: list[Any] = []
        if torch is not None:
            torch.set_num_threads(workers)
            given = [torch.from_numpy(each[None]) for each in (q, k, v)]
            sdpa = torch.nn.functional.scaled_dot_product_attention
            jobs["torch"] = _timed(lambda: theirs.append(sdpa(*given)))
        taken = interleave(jobs, protocol.fewer(20))
    errors = {"ours": _error(out, expected)}
    if theirs:
        errors["torch"] = _error(theirs[-1][0].numpy(), expected)
    return _result(taken, errors, {"torch": "vs_torch"})


def first_compile() -> float:
    """Seconds until a program with ten kernels is ready, with nothing in the cache."""
    with tempfile.TemporaryDirectory() as folder:
        before = os.environ.get("PTO_WSP_CACHE_DIR")
        os.environ["PTO_WSP_CACHE_DIR"] = folder
        try:
            begin = time.perf_counter()
            workloads.ten_kernels().compile(num_threads=1).close()
            return time.perf_counter() - begin
        finally:
            if before is None:
                del os.environ["PTO_WSP_CACHE_DIR"]
            else:
                os.environ["PTO_WSP_CACHE_DIR"] = before


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))))
