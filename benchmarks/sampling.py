"""How numbers are taken: interleaved runs, medians, paired ratios, and where a curve crosses."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Job = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Protocol:
    """How often and how large everything is run."""

    runs: int = 20
    warmup: int = 2
    pause_s: float = 0.02  # lets the idle threads of the last contender go to sleep
    scale: float = 1.0

    def fewer(self, runs: int) -> Protocol:
        """The same for something long: at most `runs` runs, and one to warm up."""
        return Protocol(min(self.runs, runs), min(self.warmup, 1), self.pause_s, self.scale)


@dataclass(frozen=True, slots=True)
class Samples:
    """Values of one quantity, in the order of the rounds in which they were taken."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def quartiles(self) -> tuple[float, float]:
        if len(self.values) < 2:
            return self.median, self.median
        low, _, high = statistics.quantiles(self.values, n=4, method="inclusive")
        return low, high

    def map(self, function: Callable[[float], float]) -> Samples:
        return Samples(tuple(function(value) for value in self.values))

    def times_faster_than(self, other: Samples) -> Samples:
        """other / self, round by round: a slow phase of the machine slows both, and cancels."""
        return Samples(tuple(b / a for a, b in zip(self.values, other.values, strict=True)))

    def to_json(self) -> dict[str, float | int]:
        low, high = self.quartiles
        return {
            "median": self.median,
            "q1": low,
            "q3": high,
            "min": min(self.values),
            "n": len(self.values),
        }


def interleave(jobs: Mapping[str, Job], protocol: Protocol) -> dict[str, Samples]:
    """Runs every job once per round; each round starts with another one, so that none always
    follows the same neighbour. A job times itself and returns the time."""
    names = list(jobs)
    taken: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(protocol.warmup + protocol.runs):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            time.sleep(protocol.pause_s)
            value = jobs[name]()
            if turn >= protocol.warmup:
                taken[name].append(value)
    return {name: Samples(tuple(values)) for name, values in taken.items()}


def crossing(points: Sequence[tuple[float, float]], level: float) -> float | None:
    """Where a rising curve of (x, y) points first reaches `level`, interpolated over log x.

    The first x if the curve begins at or above the level; None if it never gets there.
    """
    ordered = sorted(points)
    if not ordered or ordered[0][1] >= level:
        return ordered[0][0] if ordered else None
    for (x0, y0), (x1, y1) in itertools.pairwise(ordered):
        if y0 < level <= y1:
            share = (level - y0) / (y1 - y0)
            return math.exp(math.log(x0) + share * (math.log(x1) - math.log(x0)))
    return None


def two_digits(value: float) -> int:
    """Rounded to two significant digits, at least 1. Lengths that differ by noise become equal,
    so that a body compiled for one run serves the next."""
    if value < 1:
        return 1
    unit = 10 ** max(0, math.floor(math.log10(value)) - 1)
    return max(1, round(value / unit) * unit)
