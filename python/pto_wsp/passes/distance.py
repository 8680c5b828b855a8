"""At which distances the regions of two accesses meet.

The regions of a source task and of a sink task meet if they do so in every dimension. In each, the
distance between the two starts is a sum over the loops around both of coefficient × distance along
that loop, where both move alike; it has to lie between minus the extent of the one and the extent
of the other. So each dimension bounds the distances, and what bounds all of them is the answer.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pto_wsp import ir
from pto_wsp.ir import polynomial as poly
from pto_wsp.ir.polynomial import Polynomial, Product
from pto_wsp.passes.sites import Access, Around, Dim, SiteUse

Distance = tuple[int | None, ...]  # one per loop around both, outermost first; None: any

_MOST_VECTORS = 16
_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Apart:
    """The regions never meet."""


@dataclass(frozen=True, slots=True)
class Bound:
    """low < sum of coefficients[l] × distance[l] + constant < high."""

    coefficients: tuple[int, ...]
    constant: int
    low: int
    high: int

    def holds(self, distance: Sequence[int]) -> bool:
        value = sum(c * d for c, d in zip(self.coefficients, distance, strict=True))
        return self.low < value + self.constant < self.high


@dataclass(frozen=True, slots=True)
class Unclear:
    """A dimension that bounds nothing, and why."""

    reason: str


def shared_loops(source: SiteUse, sink: SiteUse) -> tuple[Around, ...]:
    """The loops that are around both, outermost first."""
    pairs = zip(source.loops, sink.loops, strict=False)
    return tuple(a for a, _ in itertools.takewhile(lambda pair: pair[0] is pair[1], pairs))


@dataclass(frozen=True, slots=True)
class Meetings:
    """The distances, sink minus source, at which a task of the sink meets an earlier one of the
    source. Where a component is open: whether they do meet at every value of it, or why nobody
    knows."""

    vectors: tuple[Distance, ...] = ()
    every: bool = False
    reason: str | None = None


def meetings(source: SiteUse, a: Access, sink: SiteUse, b: Access) -> Meetings:
    """Where tasks of two sites meet by these accesses."""
    shared = shared_loops(source, sink)
    own = {around.stmt.var for around in (*source.loops, *sink.loops)}
    own -= {around.stmt.var for around in shared}
    limits = [_limit(around, level < a.private) for level, around in enumerate(shared)]
    bounds: list[Bound] = []
    unclear: list[str] = []
    for first, second in zip(a.dims, b.dims, strict=True):
        found = _bound(first, second, [around.stmt.var for around in shared], own)
        match found:
            case Apart():
                return Meetings()
            case Bound():
                bounds.append(found)
            case Unclear(reason):
                unclear.append(reason)
    ranges = _narrow(limits, bounds)
    if ranges is None:
        return Meetings()
    vectors = tuple(_vectors(ranges, bounds, source.number < sink.number))
    open_ = {level for vector in vectors for level, part in enumerate(vector) if part is None}
    if unclear or not open_:
        return Meetings(vectors, reason=unclear[0] if unclear and open_ else None)
    if any(bound.coefficients[level] != 0 for bound in bounds for level in open_):
        return Meetings(vectors, reason=f"at more than {_MOST_VECTORS} distances")
    return Meetings(vectors, every=True)


# --- one dimension ---


def _bound(a: Dim, b: Dim, shared: Sequence[str], own: set[str]) -> Bound | Apart | Unclear:
    if a.start is None or b.start is None:
        return Unclear("an index is no sum")
    if a.extent is None or b.extent is None or a.step is None or b.step is None:
        return Unclear("an extent is not a constant")
    if a.step < 1 or b.step < 1:
        return Unclear("a region runs backwards")
    one, other = (_linear(start, shared, own) for start in (a.start, b.start))
    if isinstance(one, str):
        return Unclear(one)
    if isinstance(other, str):
        return Unclear(other)
    if one.coefficients != other.coefficients:
        return Unclear("the indices do not move alike")
    between = poly.subtract(other.rest, one.rest)
    parts = [*one.coefficients, between, _span(a), _span(b)]
    numbers = _multiples(parts)
    if numbers is None:
        return Unclear("strides and extents are not multiples of one number")
    *coefficients, constant, reach_a, reach_b = numbers
    if a.step == b.step and _miss(a.step, coefficients, constant):
        return Apart()
    return Bound(tuple(coefficients), constant, -reach_b, reach_a)


def _miss(step: int, coefficients: Sequence[int], constant: int) -> bool:
    """Whether strided regions lie between each other: all distances have another remainder."""
    common = math.gcd(step, *coefficients)
    return common > 1 and constant % common != 0


def _span(dim: Dim) -> Polynomial:
    """The elements from the first to the last one."""
    assert dim.extent is not None
    assert dim.step is not None
    if dim.step == 1 or (dim.extent.is_constant and dim.extent.constant <= 1):
        return dim.extent
    longer = poly.subtract(dim.extent, poly.of_int(1))
    return poly.add(poly.scale(longer, dim.step), poly.of_int(1))


@dataclass(frozen=True, slots=True)
class Linear:
    """A start: a coefficient for each shared loop, and a rest that is equal for all tasks."""

    coefficients: tuple[Polynomial, ...]
    rest: Polynomial


def _linear(start: Polynomial, shared: Sequence[str], own: set[str]) -> Linear | str:
    """A start as such a sum, or why it is none."""
    coefficients: list[list[tuple[Product, int]]] = [[] for _ in shared]
    rest: list[tuple[Product, int]] = []
    for product, factor in start.terms:
        loops = [atom.name for atom in product if isinstance(atom, ir.LoopVar)]
        others = tuple(atom for atom in product if not isinstance(atom, ir.LoopVar))
        for atom in others:
            if not _stable(atom):
                return f"an index reads {ir.expr_text(atom)}, which may differ from task to task"
        if any(name in own for name in loops):
            return f"an index uses the loop variable '{loops[0]}', which only one of them has"
        if len(loops) > 1:
            return "an index multiplies loop variables"
        if loops:
            coefficients[shared.index(loops[0])].append((others, factor))
        else:
            rest.append((product, factor))
    moving = tuple(poly.of_terms(terms) for terms in coefficients)
    return Linear(moving, poly.of_terms(rest))


def _stable(expr: ir.Expr) -> bool:
    """Whether an expression has one value for all tasks of a run."""
    moving = (ir.LoopVar, ir.Column, ir.SlotRef, ir.ShapeOf)
    return not any(isinstance(node, moving) for node in ir.walk_expr(expr))


def _multiples(parts: Sequence[Polynomial]) -> list[int] | None:
    """All parts as multiples of one product, which the extents say is not negative."""
    products = {product for part in parts for product, _ in part.terms}
    if len(products) > 1:
        return None
    return [sum(factor for _, factor in part.terms) for part in parts]


# --- all dimensions ---

Range = tuple[int | None, int | None]  # both ends included; None: open


def _limit(around: Around, private: bool) -> Range:
    if private:
        return 0, 0
    extent = around.extent
    return (None, None) if extent is None else (1 - extent, extent - 1)


def _narrow(limits: Sequence[Range], bounds: Sequence[Bound]) -> list[Range] | None:
    """The limits, as tight as the bounds make them; None if nothing is left."""
    ranges = list(limits)
    for _ in range(_ROUNDS):
        before = list(ranges)
        for bound in bounds:
            if not any(bound.coefficients) and not bound.holds([0] * len(ranges)):
                return None
            for level, coefficient in enumerate(bound.coefficients):
                if coefficient != 0:
                    ranges[level] = _tighter(ranges, bound, level)
        if any(lo is not None and hi is not None and lo > hi for lo, hi in ranges):
            return None
        if ranges == before:
            break
    return ranges


def _tighter(ranges: Sequence[Range], bound: Bound, level: int) -> Range:
    """The range of one distance, given those of the others."""
    least, most = bound.low + 1 - bound.constant, bound.high - 1 - bound.constant
    lows: list[int | None] = []
    highs: list[int | None] = []
    for other, factor in enumerate(bound.coefficients):
        if other != level and factor != 0:
            lo, hi = ranges[other] if factor > 0 else ranges[other][::-1]
            lows.append(None if lo is None else factor * lo)
            highs.append(None if hi is None else factor * hi)
    factor = bound.coefficients[level]
    low = None if None in highs else least - sum(part for part in highs if part is not None)
    high = None if None in lows else most - sum(part for part in lows if part is not None)
    if factor < 0:
        low, high = (None if high is None else -high), (None if low is None else -low)
    old_low, old_high = ranges[level]
    size = abs(factor)
    if low is not None:
        low = -(-low // size)
        old_low = low if old_low is None else max(low, old_low)
    if high is not None:
        high //= size
        old_high = high if old_high is None else min(high, old_high)
    return old_low, old_high


def _vectors(
    ranges: Sequence[Range], bounds: Sequence[Bound], same_iteration: bool
) -> Iterator[Distance]:
    """The distances in these ranges at which the sink comes later. `same_iteration`: so it does at
    distance 0, too."""
    closed = [(lo, hi) for lo, hi in ranges if lo is not None and hi is not None]
    count = math.prod(hi - lo + 1 for lo, hi in closed)
    if len(closed) == len(ranges) and count <= _MOST_VECTORS:
        for vector in itertools.product(*(range(lo, hi + 1) for lo, hi in closed)):
            met = all(bound.holds(vector) for bound in bounds)
            if met and (vector > (0,) * len(vector) or (same_iteration and not any(vector))):
                yield vector
        return
    vector = tuple(lo if lo == hi else None for lo, hi in ranges)
    if _may_be_later(ranges):
        yield vector


def _may_be_later(ranges: Sequence[Range]) -> bool:
    for lo, hi in ranges:
        if hi is not None and hi < 0:
            return False
        if lo is None or hi is None or lo != 0 or hi != 0:
            return True
    return True
