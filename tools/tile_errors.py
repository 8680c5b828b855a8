"""How far tile operations may be from the true value, and how far tests have seen them.

The bounds are the constants of core/tile/bounds.h, and two rules: what is not there rounds once,
and a sum of n terms rounds n times. The measured errors come from
tests/kernels/tile_cpu/test_every_operation.py, which leaves them in build/tile_errors.json.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pto_wsp.dtypes import DType
from pto_wsp.kernels.tile_ir import OPS, Op
from pto_wsp.kernels.tile_ir.ops import DTYPES, FLOATS

ROOT = Path(__file__).resolve().parents[1]
HEADER = ROOT / "core" / "tile" / "bounds.h"
MEASURED = ROOT / "build" / "tile_errors.json"

SHOWN = (DType.F32, DType.F64, DType.F16, DType.BF16)
# The one rounding of an f16 or bf16, and the errors of f32 before it.
HALF = 0.51
# How often a sum of n terms rounds, beyond n, and what its error is measured against.
SUMS = {
    Op.SUM_OF: (0, "ε · sum of the sizes of the terms"),
    Op.MEAN_OF: (1, "ε · mean of the sizes"),
    Op.MATMUL: (0, "ε · sum of the sizes of the products"),
    Op.MATMUL_ACC: (1, "ε · sum of the sizes of the terms"),
}
PRODUCTS = (Op.MATMUL, Op.MATMUL_ACC)
ROUNDED = (Op.ARANGE, Op.SQRT, Op.RECIP, Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.CAST)
_CONSTANT = re.compile(r"constexpr UlpBound k(\w+?)(Ulp|OfOperand)\{([\d.]+), ([\d.]+)\};")

Key = tuple[Op, DType]


@dataclass(frozen=True)
class Bound:
    """`fixed` units and `per_term` of them for each term of a sum."""

    fixed: float
    per_term: float = 0.0
    unit: str = "last place"

    def limit(self, terms: int = 0) -> float:
        return self.fixed + self.per_term * terms

    def __str__(self) -> str:
        if self.per_term:
            return "n / 2" if self.fixed == 0 else f"(n + {2 * self.fixed:g}) / 2"
        return f"{self.fixed:g}"


def bounds() -> dict[Key, Bound]:
    """The bound of each operation on floats, by the dtype of its operands. Where the results are
    not floats, and where elements are only moved, it is 0."""
    written = {
        name: match for match in _CONSTANT.finditer(HEADER.read_text()) if (name := match[1])
    }
    found: dict[Key, Bound] = {}
    for op, info in OPS.items():
        match = written.pop(op.name.title(), None)
        for dtype in DTYPES[info.types] & FLOATS:
            half = dtype in (DType.F16, DType.BF16)
            if op in SUMS and (not half or op in PRODUCTS):
                found[op, dtype] = Bound(SUMS[op][0] / 2, 0.5, SUMS[op][1])
            elif op in SUMS:
                found[op, dtype] = Bound(HALF, 0.0, SUMS[op][1])
            elif op in ROUNDED:
                found[op, dtype] = Bound(0.5)
            elif match is None:
                found[op, dtype] = Bound(0.0)
            else:
                number = HALF if half else float(match[3 if dtype is DType.F32 else 4])
                unit = "last place" if match[2] == "Ulp" else "ε · size of x"
                found[op, dtype] = Bound(number, 0.0, unit)
    assert not written, f"{HEADER.name} bounds what is no operation: {', '.join(written)}"
    return found


def save(errors: Mapping[Key, float]) -> None:
    """Leaves the measured errors of a run for the documentation."""
    MEASURED.parent.mkdir(exist_ok=True)
    text = {f"{op.value} {dtype.text}": value for (op, dtype), value in sorted_by_name(errors)}
    MEASURED.write_text(json.dumps(text, indent=1) + "\n")


def sorted_by_name(errors: Mapping[Key, float]) -> list[tuple[Key, float]]:
    return sorted(errors.items(), key=lambda item: (list(Op).index(item[0][0]), item[0][1]))


def coarse(error: float) -> str:
    """Rounded up to halves, so that machines agree."""
    return f"{max(0, math.ceil((error - 0.01) * 2)) / 2:g}"


def table(old_page: str, use_measured: bool) -> str:
    """The rows of the documentation. Measured errors come from the last run on this machine, or
    stay as the page has them."""
    limits = bounds()
    measured: dict[str, float] = {}
    if use_measured and MEASURED.exists():
        measured = json.loads(MEASURED.read_text())
    head = ["operation", "unit", *(f"{d.text} {what}" for d in SHOWN for what in ("bound", "seen"))]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for op in OPS:
        if (op, DType.F32) not in limits or limits[op, DType.F32].limit(1) == 0:
            continue
        old = _old_row(old_page, op)
        cells = [f"`{op.value}`", limits[op, DType.F32].unit]
        for number, dtype in enumerate(SHOWN):
            seen = measured.get(f"{op.value} {dtype.text}")
            kept = old[3 + 2 * number].strip() if len(old) > 3 + 2 * number else ""
            cells += [str(limits[op, dtype]), kept if seen is None else coarse(seen)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _old_row(page: str, op: Op) -> list[str]:
    for line in page.splitlines():
        if line.startswith(f"| `{op.value}` |") and line.count("|") == 3 + 2 * len(SHOWN):
            return line.strip("|").split("|")
    return []
