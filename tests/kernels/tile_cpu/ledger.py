"""What has been compared with true values: of which operations, how far off, on which operands."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from pto_wsp.dtypes import DType
from pto_wsp.kernels.tile_ir import Op
from pto_wsp.kernels.tile_ir.ops import FLOATS
from tests.kernels.tile_cpu.exact import SLACK, epsilon, ulp_errors
from tests.kernels.tile_cpu.numbers import kinds_in
from tools.tile_errors import Bound, bounds

Array = np.ndarray[Any, Any]
Extent = tuple[int, int]

SHAPES = ("whole", "partial", "1 x n", "n x 1", "odd", "below a vector", "above a vector")
# Which of two zeros these give is left open.
_ANY_ZERO = (Op.MAX, Op.MIN, Op.RELU, Op.MAX_OF, Op.MIN_OF)


def shapes_in(dtype: DType, extent: Extent, tile: Extent) -> set[str]:
    """What is special about the extent of a tile. Vectors have 16 to 64 bytes."""
    rows, cols = extent
    found = {
        "whole": extent == tile,
        "partial": extent != tile,
        "1 x n": rows == 1 and cols > 1,
        "n x 1": rows > 1 and cols == 1,
        "odd": cols > 1 and cols % 2 == 1,
        "below a vector": 1 < cols < 16 // dtype.size + 1,
        "above a vector": cols * dtype.size > 64 or cols > 64,
    }
    return {name for name, holds in found.items() if holds}


class Ledger:
    """Comparisons so far. An error beyond the bound fails at once."""

    def __init__(self) -> None:
        self.errors: dict[tuple[Op, DType], float] = defaultdict(float)
        self.shapes: dict[tuple[Op, DType], set[str]] = defaultdict(set)
        self.kinds: dict[tuple[Op, DType], set[str]] = defaultdict(set)
        self._bounds = bounds()

    def note(self, op: Op, dtype: DType, operands: Sequence[Array], shapes: set[str]) -> None:
        """That an operation was compared on such operands, of dtype `dtype`."""
        self.shapes[op, dtype] |= shapes
        for operand in operands:
            if DType.of(operand.dtype) is dtype:
                self.kinds[op, dtype] |= kinds_in(operand)

    def bound(self, op: Op, dtype: DType) -> Bound:
        return self._bounds.get((op, dtype), Bound(0.0))

    def same(self, op: Op, dtype: DType, found: Array, wanted: Array, note: str = "") -> None:
        """Equal, with the sign of zeros; every NaN is equal to every other."""
        what = f"{op.value} of {dtype.text} {note}"
        if DType.of(found.dtype) in FLOATS:
            with np.errstate(invalid="ignore"):
                found, wanted = found.astype(np.float64), wanted.astype(np.float64)
            if op not in _ANY_ZERO:
                zero = (found == 0) & (wanted == 0)
                np.testing.assert_array_equal(
                    np.signbit(found[zero]), np.signbit(wanted[zero]), f"{what}: sign of zero"
                )
        assert found.shape == wanted.shape, what
        np.testing.assert_array_equal(found, wanted, what)
        self.errors[op, dtype] += 0.0

    def near(
        self, op: Op, dtype: DType, found: Array, exact: Array, operands: Sequence[Array]
    ) -> None:
        """Floats of that dtype within the bound of the operation, in units of the last place."""
        # A denormal sigmoid has lost its last places, and x multiplies what is left.
        errors = ulp_errors(found, exact, dtype, operands[0] if op is Op.SILU else None)
        with np.errstate(invalid="ignore"):
            zeros = (found == 0) if op not in _ANY_ZERO else np.zeros(found.shape, bool)
            wrong = zeros & (np.signbit(found.astype("f8")) != np.signbit(exact.astype("f8")))
        errors = np.where(wrong, np.inf, errors)
        self.worst(op, dtype, errors, SLACK[dtype], 0, (found, exact, *operands))

    def relative(
        self,
        op: Op,
        dtype: DType,
        found: Array,
        exact: Array,
        size: Array,
        terms: int = 0,
        result: DType | None = None,
    ) -> None:
        """Errors in units of epsilon * size, where results cancel. What is not finite must be so in
        both."""
        real = np.longdouble if dtype is DType.F64 else np.float64
        got, want = found.astype(real), exact.astype(real)
        unit = epsilon(result or dtype) * np.maximum(size.astype(real), _tiny(result or dtype))
        with np.errstate(invalid="ignore", over="ignore"):
            errors = np.abs(got - want) / unit
        plain = np.isfinite(got) & np.isfinite(want)
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        errors = np.where(plain, errors, np.where(same, 0, np.inf)).astype(np.float64)
        slack = SLACK[dtype] * (1 + terms)
        self.worst(op, dtype, errors, slack, terms, (found, exact, size))

    def worst(
        self,
        op: Op,
        dtype: DType,
        errors: Array,
        slack: float,
        terms: int,
        shown: Sequence[Array],
    ) -> None:
        if errors.size == 0:
            return
        at = int(np.argmax(errors))
        limit = self.bound(op, dtype).limit(terms)
        numbers = [each.ravel()[at] for each in shown]
        worst = float(errors.ravel()[at])
        assert worst <= limit + slack, f"{op.value} of {dtype.text}: {worst} > {limit}: {numbers}"
        self.errors[op, dtype] = max(self.errors[op, dtype], worst)


def _tiny(dtype: DType) -> float:
    """The least normal number, except of float64, where it would be lost in a unit."""
    return {DType.F64: 1e-290, DType.F32: 2.0**-126, DType.F16: 2.0**-14, DType.BF16: 2.0**-126}[
        dtype
    ]
