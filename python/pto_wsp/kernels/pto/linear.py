"""Integers as sums of traced values and constants: how `pos + 64` minus `pos` is known to be 64."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Linear:
    """`constant` + the sum of factor * value, by the values' numbers; no factor is 0."""

    factors: tuple[tuple[int, int], ...] = ()
    constant: int = 0

    @staticmethod
    def of(number: int) -> Linear:
        """One traced value."""
        return Linear(((number, 1),))

    def plus(self, other: Linear, sign: int = 1) -> Linear:
        factors = dict(self.factors)
        for number, factor in other.factors:
            factors[number] = factors.get(number, 0) + sign * factor
        kept = tuple(sorted((n, f) for n, f in factors.items() if f != 0))
        return Linear(kept, self.constant + sign * other.constant)

    def minus(self, other: Linear) -> Linear:
        return self.plus(other, -1)

    def times(self, other: Linear) -> Linear | None:
        """None if the product is not linear."""
        one, many = (self, other) if not self.factors else (other, self)
        if one.factors:
            return None
        scale = one.constant
        kept = tuple((n, f * scale) for n, f in many.factors if scale != 0)
        return Linear(kept, many.constant * scale)

    @property
    def number(self) -> int | None:
        """The value, if it is a constant."""
        return None if self.factors else self.constant
