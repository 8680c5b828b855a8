"""Regions that leave their tensors for certain are refused while a workload is traced.

What is certain: extents and shapes are never negative, a loop variable runs from 0 to its extent
minus 1, and a loop whose extent is at least 1 has all these iterations. Nothing is certain under a
condition, and of a loop variable only where every loop around is known to run; what is left is
checked when a run binds its values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TypeAlias

from pto_wsp import ir, srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import TypeCheckError
from pto_wsp.ir import polynomial as poly
from pto_wsp.ir.polynomial import Polynomial, Product

_MOST_NODES = 64  # of an extent that is looked into

# A sum that needs no normal form: coefficients by product of atoms, some of which may be 0.
Terms: TypeAlias = dict[Product, int]


@dataclass(frozen=True, slots=True)
class Span:
    """One dimension of a region, and of its tensor: `length` elements from `start` on."""

    start: Polynomial
    length: Polynomial
    step: int
    extent: Polynomial


class Place:
    """What is known where a region is used: about `loops`, variables and extents from the outermost
    on, and about symbols that are never negative. Nothing, if it is under a condition."""

    def __init__(
        self, loops: tuple[tuple[str, ir.Expr], ...], counts: frozenset[str], conditional: bool
    ) -> None:
        self.loops = loops
        self._counts = counts
        self._conditional = conditional

    def check(self, tensor: str, spans: Sequence[Span]) -> None:
        """TypeCheckError for a dimension that is outside for certain."""
        if self._conditional or self._never_runs:
            return
        for number, span in enumerate(spans):
            if self._is_outside(span):
                raise _outside(tensor, number, span, self)

    def _is_outside(self, span: Span) -> bool:
        if not self._is_count(_sum((span.length, 1), constant=-1)):  # no element, no bounds
            return False
        step = span.step
        below = _sum((span.start, -1), constant=-1)
        above = _sum((span.start, 1), (span.length, step), (span.extent, -1), constant=-step)
        return self._happens(below) or self._happens(above)

    def _happens(self, value: Terms) -> bool:
        """Whether a value is at least 0 in an iteration that is certain to come."""
        if any(factor and _has_loop_variable(product) for product, factor in value.items()):
            if not self._all_run:
                return False
            # Inner loops first: their extents may depend on the variables of outer ones.
            for variable, extent in reversed(self._extents):
                assert extent is not None
                _go_where_it_is_largest(value, variable, extent)
        return self._is_count(value, in_loops=False)

    def _is_count(self, value: Terms, in_loops: bool = True) -> bool:
        """Whether a value is never negative, since nothing in it is."""
        return all(
            factor >= 0 and (factor == 0 or self._counts_up(product, in_loops))
            for product, factor in value.items()
        )

    def _counts_up(self, product: Product, in_loops: bool) -> bool:
        return all(
            isinstance(atom, ir.ShapeOf)
            or (isinstance(atom, ir.SymbolRef) and atom.name in self._counts)
            or (isinstance(atom, ir.LoopVar) and in_loops)
            for atom in product
        )

    @cached_property
    def _extents(self) -> list[tuple[ir.LoopVar, Polynomial | None]]:
        return [(ir.LoopVar(var), _extent(extent)) for var, extent in self.loops]

    @cached_property
    def _never_runs(self) -> bool:
        return any(isinstance(extent, ir.Const) and extent.value <= 0 for _, extent in self.loops)

    @cached_property
    def _all_run(self) -> bool:
        return all(
            extent is not None and self._is_count(_sum((extent, 1), constant=-1))
            for _, extent in self._extents
        )


def _sum(*parts: tuple[Polynomial, int], constant: int) -> Terms:
    terms: Terms = {(): constant}
    for value, factor in parts:
        for product, coefficient in value.terms:
            terms[product] = terms.get(product, 0) + coefficient * factor
    return terms


def _has_loop_variable(product: Product) -> bool:
    return any(isinstance(atom, ir.LoopVar) for atom in product)


def _extent(expr: ir.Expr) -> Polynomial | None:
    """The normal form of an extent; none if it is too large to look into."""
    if len(list(islice(ir.walk_expr(expr), _MOST_NODES + 1))) > _MOST_NODES:
        return None
    return poly.of_expr(expr)


def _go_where_it_is_largest(value: Terms, variable: ir.LoopVar, extent: Polynomial) -> None:
    """The value in the iteration of a loop in which it is largest, where it is linear in it."""
    factor = value.pop((variable,), 0)
    if factor <= 0:
        return
    for product, coefficient in extent.terms:
        value[product] = value.get(product, 0) + coefficient * factor
    value[()] -= factor


def _outside(tensor: str, number: int, span: Span, place: Place) -> TypeCheckError:
    one = poly.of_int(1)
    names = [var for var, _ in place.loops]

    def text(value: Polynomial) -> str:
        return ir.expr_text(poly.to_expr(value), names)

    last = poly.add(span.start, poly.scale(poly.subtract(span.length, one), span.step))
    what, verb = f"elements {text(span.start)} to {text(last)}", "are"
    if span.start == last:
        what, verb = f"element {text(span.start)}", "is"
    reasons = [f"its indices are 0 to {text(poly.subtract(span.extent, one))}"]
    used = set(_variables(span))
    reasons += [
        f"{var} runs from 0 to {text(poly.subtract(poly.of_expr(extent), one))}"
        for var, extent in place.loops
        if var in used
    ]
    return TypeCheckError(
        Code.OUT_OF_BOUNDS,
        f"{what} of dimension {number} of '{tensor}' {verb} outside its extent {text(span.extent)}",
        loc=srcloc.here(),
        why=", and ".join(reasons),
        fix="index inside it, or make it larger; what is inside only sometimes belongs under "
        "P.when(...)",
    )


def _variables(span: Span) -> Iterator[str]:
    for value in (span.start, span.length):
        for product, _ in value.terms:
            yield from (atom.name for atom in product if isinstance(atom, ir.LoopVar))
