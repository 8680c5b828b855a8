"""python -m benchmarks.llm_model.child RUNS SCALE WORKERS: prints the measurements as JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.sampling import Protocol, interleave
from pto_wsp import Program
from pto_wsp.workloads import LlamaModel, LlamaShape, random_model

Json = dict[str, Any]

SHAPE = LlamaShape(d_model=512, heads=8, kv_heads=4, d_ff=1408)
PROMPTS, VOCAB, STEPS = (5, 40, 130, 250), 4096, 100


def main(runs: int, scale: float, workers: int) -> Json:
    protocol = Protocol(runs=runs, scale=scale)
    layers = max(1, round(8 * scale))
    try:
        import torch
    except ImportError:
        torch = None
    return {
        "step": step(protocol, layers, workers, torch),
        "decode": None if torch is None else decode(layers, workers, torch),
        "torch": None if torch is None else torch.__version__,
    }


def _model(layers: int, steps: int) -> LlamaModel:
    return random_model(SHAPE, PROMPTS, layers=layers, vocab=VOCAB, steps=steps)


def _torch_model(model: LlamaModel, dtype: Any) -> Any:
    from benchmarks.llm_model.torch_model import TorchLlama

    return TorchLlama(model, dtype)


def _timed(function: Callable[[], object]) -> Callable[[], float]:
    def job() -> float:
        begin = time.perf_counter_ns()
        function()
        return (time.perf_counter_ns() - begin) / 1e6

    return job


def step(protocol: Protocol, layers: int, workers: int, torch: Any) -> Json:
    """A step of both, in turns: the sequences of both grow by one token in each round."""
    rounds = protocol.warmup + protocol.runs
    model = _model(layers, rounds)
    theirs = None if torch is None else _torch_model(model, torch.float32)
    with model.workload().compile(num_threads=workers) as program:

        def ours() -> None:
            program.execute(**model.bindings())
            model.advance()

        jobs = {"ours": _timed(ours)}
        if theirs is not None:
            torch.set_num_threads(workers)
            tokens = torch.from_numpy(model.tokens[0, :, 0].copy()).long()

            def eager() -> None:
                nonlocal tokens
                with torch.inference_mode():
                    tokens = theirs.step(tokens).argmax(dim=1)

            jobs["torch"] = _timed(eager)
        taken = interleave(jobs, protocol)
        tasks = program.stats.tasks
    out: Json = {f"{name}_ms": each.to_json() for name, each in taken.items()}
    out |= {"tasks": tasks, "tasks_per_s": 1e3 * tasks / taken["ours"].median}
    read = sum(each.nbytes for name, each in model.weights.items() if name != "embed")
    out["weights_gb_per_s"] = read / taken["ours"].median / 1e6
    if "torch" in taken:
        out["vs_torch"] = taken["ours"].times_faster_than(taken["torch"]).to_json()
    return out


def decode(layers: int, workers: int, torch: Any) -> Json:
    """A hundred steps beside torch in float64, which is given the same tokens."""
    model = _model(layers, STEPS)
    exact = _torch_model(model, torch.float64)
    found = np.full((STEPS, len(PROMPTS), VOCAB), np.nan, np.float32)
    chosen = np.zeros((STEPS + 1, len(PROMPTS)), np.int64)
    chosen[0] = model.tokens[0, :, 0]
    with model.workload().compile(num_threads=workers) as program:
        grown = _hundred_steps(program, model, found, chosen[1:])
    errors: list[float] = []
    margins: list[float] = []
    wrong = 0
    for logits, given, next_tokens in zip(found, chosen, chosen[1:], strict=False):
        with torch.inference_mode():
            wanted = exact.step(torch.from_numpy(given)).numpy()
        errors.append(float(np.linalg.norm(logits - wanted) / np.linalg.norm(wanted)))
        two = np.sort(wanted, axis=1)[:, -2:]
        margins.append(float(((two[:, 1] - two[:, 0]) / np.abs(wanted).max(axis=1)).min()))
        wrong += int((wanted.argmax(axis=1) != next_tokens).sum())
    return {
        "steps": STEPS,
        "largest_error": max(errors),
        "wrong_tokens": wrong,
        "smallest_margin": min(margins),
        "grown_mb": grown,
    }


def _hundred_steps(program: Program, model: LlamaModel, found: Any, chosen: Any) -> float:
    """Decodes with compiling forbidden; MB by which the process grew after step 10."""
    before = os.environ.get("PTO_WSP_NO_JIT")
    os.environ["PTO_WSP_NO_JIT"] = "1"
    sizes: list[int] = []
    for at in range(STEPS):
        program.execute(**model.bindings())
        chosen[at] = model.advance()[0]
        found[at] = model.logits[0]
        sizes.append(int(Path("/proc/self/statm").read_text().split()[1]))
    if before is None:
        del os.environ["PTO_WSP_NO_JIT"]
    else:
        os.environ["PTO_WSP_NO_JIT"] = before
    return (sizes[-1] - sizes[10]) * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))))
