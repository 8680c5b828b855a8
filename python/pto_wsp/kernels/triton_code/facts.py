"""What is known of numbers before a kernel runs: who is never negative, which bounds are whole."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from pto_wsp.kernels.tile_bounds import WORDS
from pto_wsp.kernels.tile_expr import is_tile
from pto_wsp.kernels.tile_ir import Op, Statement
from pto_wsp.kernels.tile_windows import region_of
from pto_wsp.kernels.triton_code.writer import Writer, statements

_KEEP_SIGN = frozenset({Op.ADD, Op.MUL, Op.MIN, Op.FLOORDIV, Op.MOD, Op.AND, Op.CAST})


class Numbers:
    """Facts about scalars, found in one walk: definitions stand before uses."""

    def __init__(self, w: Writer) -> None:
        self._w = w
        self.multiple: dict[int, int] = {}  # of what a scalar is a multiple; 0: it is 0
        self.below: dict[int, int] = {}  # a number that a scalar is less than

    def walk(self, body: Sequence[Statement]) -> None:
        for stmt in body:
            for result in stmt.results:
                self._w.definitions[result.number] = stmt
            self._statement(stmt)
            for block in stmt.blocks:
                self.walk(block.body)

    def _statement(self, stmt: Statement) -> None:
        w = self._w
        if stmt.op is Op.CONST:
            value = stmt.attribute("value")
            assert isinstance(value, int | float)
            number = stmt.results[0].number
            w.constants[number] = value
            if isinstance(value, int):
                self.multiple[number] = abs(value)
                if value >= 0:
                    w.not_negative.add(number)
        elif stmt.op is Op.EXTENT:
            w.not_negative.add(stmt.results[0].number)
        elif stmt.op is Op.FOR:
            self._loop(stmt)
        elif len(stmt.results) == 1 and not is_tile(stmt.results[0]):
            self._scalar(stmt)

    def _scalar(self, stmt: Statement) -> None:
        numbers, result = [v.number for v in stmt.operands], stmt.results[0].number
        known = all(number in self._w.not_negative for number in numbers)
        if stmt.op in _KEEP_SIGN and known and not _may_wrap(stmt):
            self._w.not_negative.add(result)
        if stmt.op is Op.MAX and any(number in self._w.not_negative for number in numbers):
            self._w.not_negative.add(result)
        if stmt.op in (Op.ADD, Op.SUB):
            self.multiple[result] = gcd(*(self.multiple.get(number, 1) for number in numbers))
        elif stmt.op is Op.MUL:
            a, b = (self.multiple.get(number, 1) for number in numbers)
            self.multiple[result] = a * b

    def _loop(self, stmt: Statement) -> None:
        start, stop, step = stmt.operands[:3]
        index = stmt.blocks[0].params[0].number
        if start.number in self._w.not_negative:
            self._w.not_negative.add(index)
        if step.number in self._w.constants:
            first = self.multiple.get(start.number, 1)
            self.multiple[index] = gcd(first, int(self._w.constants[step.number]))
        if stop.number in self._w.constants:
            self.below[index] = int(self._w.constants[stop.number])


def _may_wrap(stmt: Statement) -> bool:
    """A conversion to fewer bits may change the sign; sums of indices do not reach 64 bits."""
    return stmt.op is Op.CAST and stmt.results[0].type.dtype.size < 8


def find_whole(w: Writer, numbers: Numbers) -> None:
    """Bounds that need no name, since they are the extents of the type."""
    for key, name in w.bounds.fixed.items():
        facts = w.facts(key.param)
        extent = facts.extent(key.dim)
        if facts.is_whole(key.dim) or (extent is not None and extent >= key.offset + key.size):
            w.whole.add(name)
    for stmt in statements(w.kernel):
        if stmt.op is Op.LOAD and is_tile(stmt.results[0]):
            _whole_load(w, numbers, stmt)
    _find_same(w, w.kernel.body)
    while True:
        found = {
            merge.name
            for merge in w.bounds.merges.values()
            if not (merge.given | merge.made) - w.whole - {merge.name}
        }
        if found <= w.whole:
            return
        w.whole |= found


def _whole_load(w: Writer, numbers: Numbers, stmt: Statement) -> None:
    region = region_of(stmt)
    facts = w.facts(region.param)
    for axis in (0, 1):
        dim = region.dim(axis)
        if dim < 0:
            continue
        at, size, extent = region.offsets[dim].number, region.sizes[dim], facts.extent(dim)
        fits = (
            extent is not None
            and extent % size == 0
            and numbers.multiple.get(at, 1) % size == 0
            and numbers.below.get(at, extent + 1) <= extent
            and at in w.not_negative
        )
        if facts.is_whole(dim) or fits:
            w.whole.add(f"{w.names.of(stmt.results[0])}_{WORDS[axis]}")


def _find_same(w: Writer, body: Sequence[Statement]) -> None:
    """Loads of one block, from the same place on, of dimensions that have the same extent."""
    fixed: dict[tuple[str, int, int], str] = {}
    for key, name in w.bounds.fixed.items():
        place = w.tensors[key.param.number].extents[key.dim], key.offset, key.size
        w.same[name] = fixed.setdefault(place, name)
    found: dict[tuple[str, int, int], str] = {}
    for stmt in body:
        for block in stmt.blocks:
            _find_same(w, block.body)
        if stmt.op is not Op.LOAD or not is_tile(stmt.results[0]):
            continue
        region = region_of(stmt)
        for axis in (0, 1):
            dim = region.dim(axis)
            name = f"{w.names.of(stmt.results[0])}_{WORDS[axis]}"
            if dim >= 0 and name in w.bounds.dims(stmt.results[0])[axis]:
                extent = w.tensors[region.param.number].extents[dim]
                place = extent, region.offsets[dim].number, region.sizes[dim]
                w.same[name] = found.setdefault(place, name)
