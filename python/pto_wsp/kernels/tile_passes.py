"""Groups of statements that work row by row, and the passes over a row that they need.

In the loop over the rows, a value with one column is a scalar, and a value with more columns is
computed where it is needed: in a pass that adds up, or in one that writes. It is kept in memory
only if it is dear and two passes need it, or if others need it behind the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pto_wsp.kernels.tile_bounds import Dim
from pto_wsp.kernels.tile_expr import EXPENSIVE, is_tile, tile_type
from pto_wsp.kernels.tile_ir import Statement, Value
from pto_wsp.kernels.tile_uses import is_elementwise, is_row_reduction
from pto_wsp.kernels.tile_writer import Place, Writer


@dataclass(slots=True)
class StoreTarget:
    """A store of the group: the window it writes, and how much of it there is."""

    stmt: Statement
    window: str
    dims: tuple[Dim, Dim]
    shape: tuple[int, int]


@dataclass(slots=True)
class RowGroup:
    rows: int
    dim: Dim
    statements: list[Statement] = field(default_factory=list[Statement])
    stores: list[StoreTarget] = field(default_factory=list[StoreTarget])
    # Values that are written to a place whoever needs them.
    targets: list[tuple[Value, Place]] = field(default_factory=list[tuple[Value, Place]])


@dataclass(slots=True)
class Pass:
    """One walk over a row: what it evaluates, and for whom."""

    roots: list[Value]
    cols: Dim
    width: int
    guard: Dim = frozenset()  # rows that a store has beside those of the group
    reduction: Statement | None = None
    stores: list[StoreTarget] = field(default_factory=list[StoreTarget])
    writes: list[Value] = field(default_factory=list[Value])


def is_row_wise(stmt: Statement) -> bool:
    if is_elementwise(stmt):
        return is_tile(stmt.results[0])
    return is_row_reduction(stmt)


class Passes:
    """The passes of a group, in order: reductions, stores, then what others need."""

    def __init__(self, w: Writer, group: RowGroup) -> None:
        self._w = w
        self._group = group
        self.made = {s.results[0].number: s for s in group.statements}
        members = {id(s) for s in group.statements} | {id(t.stmt) for t in group.stores}
        self.escaping = [
            s.results[0]
            for s in group.statements
            if any(id(user) not in members for user in w.uses.of(s.results[0]))
        ]
        self.reads: dict[int, int] = {}  # memory by value: the last pass that reads it
        self.read_first: list[Value] = []  # memory that the first pass reads
        self.kept: set[int] = set()  # values that are written for later passes only
        self.list = [*self._reductions(), *self._writers()]
        self._decide_writes()

    def definition(self, value: Value) -> Statement | None:
        """The statement that is computed here to get a value; None if it lies in memory."""
        if value.number in self.made:
            return self.made[value.number]
        if value.number in self._w.uses.floating:
            return self._w.uses.definitions[value.number]
        return None

    def results(self) -> list[Value]:
        """The values that go to places behind the group."""
        return [*self.escaping, *(v for v, _ in self._group.targets)]

    def _reductions(self) -> list[Pass]:
        found: list[Pass] = []
        for stmt in self._group.statements:
            operand = stmt.operands[0]
            if is_row_reduction(stmt) and tile_type(operand).cols > 1:
                cols = self._w.bounds.dims(operand)[1]
                found.append(Pass([operand], cols, tile_type(operand).cols, reduction=stmt))
        return found

    def _writers(self) -> list[Pass]:
        """One pass for all that have the same columns."""
        by_key: dict[tuple[int, Dim, Dim], Pass] = {}

        def find(width: int, cols: Dim, guard: Dim) -> Pass:
            return by_key.setdefault((width, cols, guard), Pass([], cols, width, guard))

        for target in self._group.stores:
            found = find(target.shape[1], target.dims[1], target.dims[0] - self._group.dim)
            found.roots.append(target.stmt.operands[1])
            found.stores.append(target)
        for value in self.results():
            width = tile_type(value).cols
            if width > 1:
                found = find(width, self._w.bounds.dims(value)[1], frozenset())
                found.roots.append(value)
        return list(by_key.values())

    def _decide_writes(self) -> None:
        wanted = {v.number for v in self.results()}
        everything = [self._cone(each.roots, set(), None) for each in self.list]
        written: set[int] = set()
        for number, each in enumerate(self.list):
            following = list(zip(self.list, everything, strict=True))[number + 1 :]
            for value in self._cone(each.roots, written, number).values():
                later = [other for other, cone in following if value.number in cone]
                if value.number in wanted:
                    if self._has_all_of(each, value):
                        each.writes.append(value)
                elif later and all(_has_all_for(each, other) for other in later):
                    stmt = self.definition(value)
                    if stmt is not None and stmt.op in EXPENSIVE:
                        each.writes.append(value)
                        self.kept.add(value.number)
            written |= {value.number for value in each.writes}

    def _has_all_of(self, each: Pass, value: Value) -> bool:
        """Whether a pass computes every element of a value: one that stores may end early."""
        return each.cols <= self._w.bounds.dims(value)[1] and not each.guard

    def _cone(
        self, roots: Sequence[Value], written: set[int], number: int | None
    ) -> dict[int, Value]:
        """The values with columns that a pass computes; notes what it reads."""
        found: dict[int, Value] = {}
        seen: set[int] = set()
        waiting = list(roots)
        while waiting:
            value = waiting.pop()
            if not is_tile(value) or value.number in seen:
                continue
            seen.add(value.number)
            stmt = self.definition(value)
            if stmt is None or value.number in written:
                if number is not None:
                    self.reads[value.number] = number
                if number == 0:
                    self.read_first.append(value)
                continue
            if tile_type(value).cols > 1:
                found[value.number] = value
            if not is_row_reduction(stmt):
                waiting.extend(stmt.operands)
        return found


def _has_all_for(each: Pass, later: Pass) -> bool:
    """Whether a pass goes at least as far as a later one, which reads what it has kept."""
    return each.cols <= later.cols and each.guard <= later.guard
