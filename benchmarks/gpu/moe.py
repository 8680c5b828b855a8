"""The experts of a mixture-of-experts layer: two products of ragged groups of rows.

Rows lie grouped by expert, `[expert, row, d_model]`, and how many each has is known to the GPU
alone. Routing, gathering and the weighted sum are not part of it, for nobody.
"""

# Annotations are values here, and the parameters of workloads symbols.
# pyright: basic, reportInvalidTypeForm=false
from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.gpu.arrays import OPTIONS, bound, drawing, empty
from benchmarks.gpu.rows import Report
from benchmarks.gpu.timing import graph_us, interpreted, program_us, tensor_of, torch
from pto_wsp import DenseDyn, DType, P, Program, Tensor, kernels, minimum, workload

SECTION = "moe"
BF16 = DType.BF16
_ERROR = 2e-2  # rounded to 8 bits twice


@dataclass(frozen=True, slots=True)
class Shape:
    experts: int = 32
    top_k: int = 4
    d_model: int = 2048
    d_ff: int = 1024
    rows: int = 64  # of a tile
    cols: int = 128
    depth: int = 64


TINY = Shape(3, 2, 32, 32, 16, 16, 16)


def compiled(shape: Shape) -> Program:
    """For each expert and each `rows` of its tokens: the gated product into a temporary, by tasks
    of `cols` columns, and the product of that."""
    s = shape
    gated = kernels.gated_linear(s.rows, s.cols, s.depth, BF16)
    linear = kernels.linear(s.rows, s.cols, s.depth, BF16)

    @workload
    def experts(count, tokens, X, W1, W3, W2, Y):
        for e in P(count):
            for m in P((tokens[e] + s.rows - 1) // s.rows):
                end = minimum(m * s.rows + s.rows, tokens[e])
                mine = slice(m * s.rows, end)
                hidden = Tensor.temp((s.rows, s.d_ff), BF16, name="hidden")
                some = slice(0, end - m * s.rows)
                for f in P(s.d_ff // s.cols):
                    at = slice(f * s.cols, f * s.cols + s.cols)
                    gated[e, m, f](X[e, mine], W1[e, at], W3[e, at], hidden[some, at])
                for n in P(s.d_model // s.cols):
                    at = slice(n * s.cols, n * s.cols + s.cols)
                    linear[e, m, n](hidden[some], W2[e, at], Y[e, mine, at])

    return experts(
        DenseDyn(s.experts),
        np.zeros(s.experts, np.int32),
        empty("X", s.experts, 1, s.d_model),
        *(empty(name, s.experts, s.d_ff, s.d_model) for name in ("W1", "W3")),
        empty("W2", s.experts, s.d_model, s.d_ff),
        empty("Y", s.experts, 1, s.d_model),
    ).compile(**OPTIONS)


def measure(report: Report, *, tiny: bool) -> None:
    shape = TINY if tiny else Shape()
    with report.case(SECTION, "compile"):
        program = compiled(shape)
        weights = _weights(shape)
        for tokens in (20,) if tiny else (256, 2048):
            with report.case(SECTION, f"{tokens} tokens"):
                _tokens(report, program, shape, weights, tokens)
        program.close()


def _weights(s: Shape) -> dict[str, Any]:
    draw = drawing()
    up, down = (s.experts, s.d_ff, s.d_model), (s.experts, s.d_model, s.d_ff)
    sizes = {"W1": up, "W3": up, "W2": down}
    return {name: draw(*size) / size[2] ** 0.5 for name, size in sizes.items()}


def _tokens(
    report: Report, program: Program, s: Shape, weights: dict[str, Any], tokens: int
) -> None:
    rng = np.random.default_rng(tokens)
    # Experts of different popularity, each token takes top_k of them.
    popular = rng.gumbel(size=(tokens, s.experts)) + rng.normal(0, 0.5, s.experts)
    chosen = np.argsort(-popular, axis=1)[:, : s.top_k]
    counts = np.bincount(chosen.ravel(), minlength=s.experts)
    x = drawing(tokens)(s.experts, int(counts.max()), s.d_model)
    y = torch().zeros_like(x)
    given = {"tokens": tensor_of(counts.astype(np.int32)), "X": x, "Y": y, **weights}
    arrays = bound(given)
    program.execute(**arrays)
    us = program_us(program, [arrays], writes="Y")
    error = _error(x, y, weights, counts)
    rivals = {} if interpreted() else _rivals(x, weights, counts)
    best = min(rivals, key=lambda name: rivals[name], default="")
    flops = 6.0 * float(counts.sum()) * s.d_model * s.d_ff
    report.row(
        *(SECTION, f"{tokens} tokens, top {s.top_k} of {s.experts}", us.median, "us"),
        rival=(best, rivals[best]) if best else None,
        wrong="" if error <= _ERROR else f"error {error:.2g}",
        error=error,
        rivals=rivals,
        tflops=flops / us.median / 1e6,
        rows=counts.tolist(),
    )


def _error(x: Any, y: Any, weights: dict[str, Any], counts: np.ndarray) -> float:
    """Of some experts, to float32."""
    worst = 0.0
    for e in sorted({0, int(counts.argmax()), int(counts.argmin())}):
        if counts[e] == 0:
            continue
        mine = x[e, : counts[e]].float()
        gate, up = (mine @ weights[name][e].float().T for name in ("W1", "W3"))
        hidden = torch().nn.functional.silu(gate) * up
        wanted = hidden @ weights["W2"][e].float().T
        found = y[e, : counts[e]].float()
        worst = max(worst, float((found - wanted).abs().max() / wanted.abs().max()))
    return worst


def _rivals(x: Any, weights: dict[str, Any], counts: np.ndarray) -> dict[str, float]:
    """A loop over experts of torch.mm, in a CUDA graph; and torch's grouped product, where this
    version has one."""
    silu = torch().nn.functional.silu
    w1, w3, w2 = (weights[name].transpose(1, 2) for name in ("W1", "W3", "W2"))

    def loop() -> None:
        for e, count in enumerate(counts.tolist()):
            if count:
                mine = x[e, :count]
                torch().mm(silu(torch().mm(mine, w1[e])) * torch().mm(mine, w3[e]), w2[e])

    found = {"torch.mm by expert, in a graph": graph_us([loop]).median}
    grouped = getattr(torch(), "_grouped_mm", None)
    if grouped is not None:
        rows = torch().cat([x[e, :count] for e, count in enumerate(counts.tolist())])
        ends = tensor_of(np.cumsum(counts).astype(np.int32))

        def together() -> None:
            hidden = silu(grouped(rows, w1, offs=ends)) * grouped(rows, w3, offs=ends)
            grouped(hidden, w2, offs=ends)

        # Not on this GPU, or called otherwise in this version.
        with contextlib.suppress(RuntimeError, TypeError):
            found["torch._grouped_mm, in a graph"] = graph_us([together]).median
    return found
