"""Memory cut into cells, so that every region of a record is a set of whole cells.

A tensor that shares its memory with no other is cut along its dimensions, where regions begin and
end. Where tensors share memory, or elements of one do, bytes are cut. Both are exact.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import product
from typing import Any, Protocol

import numpy as np

from pto_wsp.backends.reference.bound import Array, BoundPlan
from pto_wsp.backends.reference.call import Paged, page_views, region_view
from pto_wsp.backends.reference.region import DimRange, Region
from pto_wsp.backends.reference.verify.private import byte_span
from pto_wsp.plan import NONE, Tensor

Range = tuple[int, int, int]  # start, extent, step
Key = tuple[Any, ...]


class Space(Protocol):
    def add(self, piece: Any) -> None:
        """Every piece, before the first call of `cells`."""
        ...

    def cells(self, piece: Any) -> list[int]: ...


class BoxSpace:
    """Pieces are boxes: a Range for each dimension."""

    def __init__(self) -> None:
        self._seen: list[dict[Range, list[int]]] = []
        self._cuts: list[list[int]] | None = None
        self._strides: list[int] = []

    def add(self, piece: tuple[Range, ...]) -> None:
        if not self._seen:
            self._seen = [{} for _ in piece]
        for seen, part in zip(self._seen, piece, strict=True):
            seen.setdefault(part, [])

    def cells(self, piece: tuple[Range, ...]) -> list[int]:
        if self._cuts is None:
            self._cut()
        if not piece:
            return [0]
        found = self._seen[0][piece[0]]
        for seen, part in zip(self._seen[1:], piece[1:], strict=True):
            found = [a + b for a, b in product(found, seen[part])]
        return found

    def _cut(self) -> None:
        """Turns each range that was seen into cells; the number of a cell is the sum of one number
        for each dimension."""
        self._cuts = []
        stride = 1
        for seen in self._seen:
            cuts: set[int] = set()
            for part in seen:
                for begin, end in _stretches(part):
                    cuts |= {begin, end}
            places = sorted(cuts)
            for part in seen:
                seen[part] = [
                    stride * k
                    for begin, end in _stretches(part)
                    for k in range(bisect_left(places, begin), bisect_left(places, end))
                ]
            stride *= len(places) + 1
            self._cuts.append(places)


def _stretches(part: Range) -> list[tuple[int, int]]:
    start, extent, step = part
    if step == 1 or extent == 1:
        return [(start, start + extent)]
    return [(start + k * step, start + k * step + 1) for k in range(extent)]


class ByteSpace:
    """Pieces are arrays."""

    def __init__(self) -> None:
        self._cuts: set[int] = set()
        self._places: list[int] = []

    def add(self, piece: Array) -> None:
        starts, length = byte_runs(piece)
        self._cuts.update(starts)
        self._cuts.update(s + length for s in starts)

    def cells(self, piece: Array) -> list[int]:
        if not self._places:
            self._places = sorted(self._cuts)
        starts, length = byte_runs(piece)
        places = self._places
        return [
            k
            for s in starts
            for k in range(bisect_left(places, s), bisect_left(places, s + length))
        ]


def byte_runs(array: Array) -> tuple[list[int], int]:
    """Where the bytes of an array lie: stretches of one length, by their first bytes."""
    length = array.itemsize
    starts = np.array([byte_span(array)[0]], np.int64)
    steps = sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1)
    for stride, n in steps:
        if stride == length and len(starts) == 1:
            length *= n
        elif stride > 0:
            starts = (starts[:, None] + np.arange(n, dtype=np.int64) * stride).reshape(-1)
    return np.unique(starts).tolist(), length


class Spaces:
    """Which space each tensor of a bound plan lies in. Tokens and temporaries have their own; what
    lies on pages lies in the pool."""

    def __init__(self, bound: BoundPlan) -> None:
        self._bound = bound
        self._tensors = bound.plan.records(Tensor)
        self._keys: dict[int, Key] = {}
        self._in_bytes: set[Key] = set()
        self._join()
        self._found: dict[Key, Space] = {}

    def geometry(self, region: Region, copy: int) -> Key:
        """Equal for regions whose coordinates mean the same elements."""
        return self._same[region.tensor], copy

    def pieces(self, region: Region, copy: int) -> tuple[Key, list[Any]]:
        """The space of a region, and the pieces it consists of."""
        tensor = self._tensors[region.tensor]
        if any(dim.extent == 0 for dim in region.dims):
            return (), []
        if tensor.pool == NONE:
            key = (*self._keys.get(region.tensor, ("own", region.tensor)), copy)
            if key[:-1] in self._in_bytes:
                return key, [region_view(self._bound.tensors[region.tensor], region)]
            return key, [box(region.dims)]
        pool, table = self._bound.pool(tensor), self._bound.table(tensor)
        key = (*self._keys.get(tensor.pool, ("own", tensor.pool)), copy)
        if key[:-1] in self._in_bytes:
            return key, [v for v in page_views(Paged(pool, table, region)) if v.size]
        return key, _on_pages(region, pool.shape[1])

    def space(self, key: Key) -> Space:
        found = self._found.get(key)
        if found is None:
            found = ByteSpace() if key[:-1] in self._in_bytes else BoxSpace()
            self._found[key] = found
        return found

    def _join(self) -> None:
        """Tensors whose bytes meet lie in one space."""
        bound = [i for i, t in enumerate(self._tensors) if t.symbol != NONE]
        spans = sorted((byte_span(self._bound.tensors[i]), i) for i in bound)
        shapes = {i: _shape_of(self._bound.tensors[i]) for i in bound}
        first = {shape: i for i, shape in reversed(shapes.items())}
        self._same = {i: first[shapes[i]] if i in shapes else i for i in range(len(self._tensors))}
        end, number = 0, 0
        groups: dict[int, list[int]] = {}
        for (low, high), i in spans:
            if low >= end:
                number += 1
            end = max(end, high)
            groups.setdefault(number, []).append(i)
            self._keys[i] = ("memory", number)
        for number, members in groups.items():
            if len({shapes[i] for i in members}) > 1 or any(
                _meets_itself(self._bound.tensors[i]) for i in members
            ):
                self._in_bytes.add(("memory", number))


def box(dims: tuple[DimRange, ...]) -> tuple[Range, ...]:
    return tuple((d.start, d.extent, d.step if d.extent > 1 else 1) for d in dims)


def _on_pages(region: Region, page: int) -> list[tuple[Range, ...]]:
    """A region of a paged tensor as boxes of its pool."""
    tokens, rest = region.dims[1], box(region.dims[2:])
    begin, end = tokens.start, tokens.start + (tokens.extent - 1) * tokens.step + 1
    boxes: list[tuple[Range, ...]] = []
    for k, number in enumerate(region.pages):
        base = (tokens.start // page + k) * page
        first = max(begin, base)
        first += (begin - first) % tokens.step
        last = min(end, base + page)
        count = -(-(last - first) // tokens.step)
        if count > 0:
            step = tokens.step if count > 1 else 1
            boxes.append(((number, 1, 1), (first - base, count, step), *rest))
    return boxes


def _shape_of(array: Array) -> tuple[Any, ...]:
    return array.ctypes.data, array.shape, array.strides, array.itemsize


def _meets_itself(array: Array) -> bool:
    """Whether two indices may be one element."""
    reach = array.itemsize
    for stride, n in sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True)):
        if n > 1 and stride < reach:
            return True
        reach += (n - 1) * stride
    return False
