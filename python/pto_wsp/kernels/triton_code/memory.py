"""Loads, stores, rows by number: addresses, masks, and the order of what touches memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pto_wsp.kernels.tile_bounds import FixedBound
from pto_wsp.kernels.tile_expr import dtype_of, is_tile, tile_type
from pto_wsp.kernels.tile_ir import Block, Op, Statement, Value
from pto_wsp.kernels.tile_windows import Region, region_of
from pto_wsp.kernels.triton_code.literals import zero
from pto_wsp.kernels.triton_code.writer import Fills, Writer, both

_READS = frozenset({Op.LOAD, Op.GATHER})
_WRITES = frozenset({Op.STORE, Op.SCATTER})


# What an access touches: the parameter, and first element and count in each dimension if they are
# constants.
Touched = tuple[int, tuple[tuple[int, int] | None, ...]]


@dataclass(slots=True)
class Pending:
    """What was read or written since the threads last met. Another thread may be the one that
    touches the same element next, so they meet before that."""

    reads: set[Touched] = field(default_factory=set[Touched])
    writes: set[Touched] = field(default_factory=set[Touched])

    def copy(self) -> Pending:
        return Pending(set(self.reads), set(self.writes))

    def add(self, other: Pending) -> None:
        self.reads |= other.reads
        self.writes |= other.writes


class Memory:
    """Whatever reads or writes parameters."""

    def __init__(self, w: Writer) -> None:
        self._w = w
        self.pending = Pending()
        shared = {p.number for p in w.kernel.params if p.name in w.options.shared}
        self._sharers = {
            p.number: shared if p.number in shared else {p.number} for p in w.kernel.params
        }

    # --- order ---

    def enter_loop(self, block: Block) -> None:
        """An iteration comes after the one before it."""
        for stmt in block.body:
            for inner in stmt.blocks:
                self.enter_loop(inner)
            if stmt.op in _WRITES:
                self.pending.writes.add(self._touched(stmt))
            elif stmt.op in _READS and not is_tile(stmt.operands[0]):
                self.pending.reads.add(self._touched(stmt))

    def _meet(self, stmt: Statement) -> None:
        touched, writes = self._touched(stmt), stmt.op in _WRITES
        before = self.pending.writes | (self.pending.reads if writes else set[Touched]())
        if any(self._may_meet(touched, other) for other in before):
            self._w.line("tl.debug_barrier()")
            self.pending = Pending()
        (self.pending.writes if writes else self.pending.reads).add(touched)

    def _touched(self, stmt: Statement) -> Touched:
        if stmt.op not in (Op.LOAD, Op.STORE):
            return stmt.operands[0].number, ()
        region, box = region_of(stmt), list[tuple[int, int] | None]()
        for at, size in zip(region.offsets, region.sizes, strict=True):
            known = self._w.constant(at)
            box.append(None if known is None else (known, max(size, 1)))
        return region.param.number, tuple(box)

    def _may_meet(self, one: Touched, other: Touched) -> bool:
        if one[0] != other[0]:
            return other[0] in self._sharers[one[0]]
        for a, b in zip(one[1], other[1], strict=False):
            if a is not None and b is not None and (a[0] + a[1] <= b[0] or b[0] + b[1] <= a[0]):
                return False
        return True

    # --- loads and stores ---

    def load(self, stmt: Statement) -> None:
        w, region, value = self._w, region_of(stmt), stmt.results[0]
        self._meet(stmt)
        exists = self._checks(stmt, region, is_load=True)
        if not is_tile(value):
            pointer = self._pointer(region, exists)
            w.define(value, _load(w, region.param, pointer, both(exists), ""), stmt)
            return
        self._declare_bounds(stmt, region, value)
        mask = both([w.mask(value), *exists])
        other = zero(dtype_of(value))
        lanes = [w.mask(value, (axis,)) for axis in (0, 1)]
        pointer = self._pointer(region, [*_of_tokens(region, lanes), *exists])
        pointer = _spread(w, pointer, tile_type(value).shape)
        fills: Fills = (other, other) if mask is not None else (None, None)
        w.define(value, _load(w, region.param, pointer, mask, other), stmt, fills)

    def _declare_bounds(self, stmt: Statement, region: Region, value: Value) -> None:
        """How many rows and columns there are, where the offset is not the same in every task."""
        w = self._w
        for axis in (0, 1):
            dim = region.dim(axis)
            fixed = set(w.bounds.fixed.values())
            own = w.bounds.dims(value)[axis] & w.dims(value)[axis]  # not that of another load
            for name in own - fixed:
                w.line(f"{name} = {self._room(region, dim)}", stmt)

    def _room(self, region: Region, dim: int) -> str:
        w, at, size = self._w, region.offsets[dim], region.sizes[dim]
        extent = w.tensors[region.param.number].extents[dim]
        if at.number in w.not_negative:
            return f"{w.helper('within')}({extent} - {w.text(at)}, {size})"
        return f"{w.helper('room_at')}({extent}, {w.text(at)}, {size})"

    def _checks(self, stmt: Statement, region: Region, is_load: bool) -> list[str]:
        """Conditions on scalars without which nothing is read or written, and the task fails."""
        w, found = self._w, list[str]()
        facts, tensor = w.facts(region.param), w.tensors[region.param.number]
        for dim, (at, size) in enumerate(zip(region.offsets, region.sizes, strict=True)):
            parts: list[str] = []
            if at.number not in w.not_negative:
                parts.append(f"({w.text(at)} >= 0)")
            picked = size == 0 or (size == 1 and is_load)
            if picked and not facts.is_whole(dim) and not self._is_inside(region, dim):
                parts.append(f"({w.tensor(at)} < {tensor.extents[dim]})")
            if not parts:
                continue
            name = w.names.fresh(f"{w.names.of(region.param)}_has{dim}")
            w.line(f"{name} = {both(parts)}", stmt)
            message = f"{stmt.op.value}: outside of dimension {dim} of {region.param.name}"
            w.fault(f"{name} == 0", message, stmt)
            found.append(name)
        return found

    def _is_inside(self, region: Region, dim: int) -> bool:
        extent = self._w.facts(region.param).extent(dim)
        at = self._w.constant(region.offsets[dim])
        return extent is not None and at is not None and at < extent

    def store(self, stmt: Statement) -> None:
        w, region, value = self._w, region_of(stmt), stmt.operands[1]
        self._meet(stmt)
        exists = self._checks(stmt, region, is_load=False)
        lanes: list[str | None] = []
        for axis in (0, 1):
            dim, size = region.dim(axis), region.shape[axis]
            bound = w.dims(value)[axis] if is_tile(value) else frozenset[str]()
            target = self._store_bound(region, dim) if dim >= 0 else None
            if target is not None:
                name = target[0]
                if target[1] is not None:
                    w.line(f"{name} = {target[1]}", stmt)
                bound = bound | {name}
            if size == 1 and bound:
                lanes.append(f"({w.least(bound, size)} > 0)")
            else:
                lanes.append(w.inside_text(axis, bound, size))
        pointer = self._pointer(region, [*_of_tokens(region, lanes), *exists])
        text = w.tensor(value)
        if any(region.sizes):
            pointer = _spread(w, pointer, region.shape)
        elif is_tile(value):
            pointer = f"{pointer} + tl.zeros([1, 1], tl.int32)"
        mask = both([*lanes, *exists])
        w.line(f"tl.store({pointer}, {text}{f', mask={mask}' if mask else ''})", stmt)

    def _store_bound(self, region: Region, dim: int) -> tuple[str, str | None] | None:
        """The bound of what a store may write: its name, and what it is if nobody has said so."""
        w = self._w
        if w.facts(region.param).is_whole(dim):
            return None
        at = w.constant(region.offsets[dim])
        if at is not None and at >= 0:
            name = w.bounds.fixed[FixedBound(region.param, dim, at, region.sizes[dim])]
            return None if name in w.whole else (w.same.get(name, name), None)
        name = w.names.fresh(f"{w.names.of(region.param)}_room{dim}")
        return name, self._room(region, dim)

    # --- addresses ---

    def _pointer(self, region: Region, exists: Sequence[str | None]) -> str:
        """The elements of a region; `exists` says which tokens there are."""
        w, names = self._w, self._w.tensors[region.param.number]
        scalars, lanes = list[str](), list[str]()
        for dim, at in enumerate(region.offsets):
            axis = {region.row_dim: 0, region.col_dim: 1}.get(dim, -1)
            lane = w.lane(axis, region.sizes[dim]) if axis >= 0 else "0"
            if dim == 0 and region.ref.paged:
                first = f"tl.cast({_sum([names.first, w.text(at)])}, tl.int32)"
                lanes.append(self._token(region.param, _sum([first, lane]), both(exists)))
                continue
            scalars.append(_times(w, at, names.strides[dim]))
            lanes.append(_lane_times(lane, names.strides[dim]))
        return _sum([names.base, *scalars, *lanes])

    def _token(self, param: Value, token: str, mask: str | None) -> str:
        """Where a token lies, relative to the pool."""
        w, names = self._w, self._w.tensors[param.number]
        key = names.table, token, mask or ""
        if key not in w.scope.pages:
            at = w.names.fresh(f"{w.names.of(param)}_token")
            w.line(f"{at} = {token}")
            entry = _lane_times(f"({at} // {names.page})", names.table_stride)
            page = w.names.fresh(f"{w.names.of(param)}_page")
            masked = "" if mask is None else f", mask={mask}, other=0"
            w.line(f"{page} = tl.load({names.table} + {entry}{masked}).to(tl.int64)")
            w.scope.pages[key] = at, page
        at, page = w.scope.pages[key]
        within = _lane_times(f"({at} % {names.page})", names.strides[0])
        return _sum([_lane_times(page, names.page_stride), within])

    # --- rows by number ---

    def gather(self, stmt: Statement) -> None:
        """Rows of a parameter; a row that does not exist is zeros."""
        w, (param, numbers), result = self._w, stmt.operands, stmt.results[0]
        self._meet(stmt)
        names, cols = w.tensors[param.number], tile_type(result).cols
        row, exists = self._rows(param, numbers)
        there: list[str | None] = [exists]
        if cols == 1 and not self._has_column(param):
            has = w.names.fresh(f"{w.names.of(param)}_has1")
            w.line(f"{has} = {names.extents[1]} > 0", stmt)
            w.fault(f"{has} == 0", "gather: rows of nothing", stmt)
            there.append(has)
        address = self._row_address(param, row, exists)
        columns = _lane_times(w.lane(1, cols), names.strides[1])
        pointer = _sum([names.base, address, columns])
        mask = both([*there, w.mask(result, (1,))])
        other = zero(dtype_of(result))
        w.define(result, _load(w, param, pointer, mask, other), stmt, (None, other))

    def _has_column(self, param: Value) -> bool:
        facts = self._w.facts(param)
        return facts.is_whole(1) or (facts.extent(1) or 0) > 0

    def _rows(self, param: Value, numbers: Value) -> tuple[str, str]:
        """The numbers as i64, and which of them there are, in a parameter."""
        w, names = self._w, self._w.tensors[param.number]
        row = w.names.fresh(f"{w.names.of(numbers)}_at")
        w.line(f"{row} = {w.tensor(numbers)}.to(tl.int64)")
        exists = w.names.fresh(f"{w.names.of(numbers)}_there")
        parts = [f"({row} >= 0)", f"({row} < {names.extents[0]})", w.mask(numbers, (0,))]
        w.line(f"{exists} = {both(parts)}")
        return row, exists

    def _row_address(self, param: Value, row: str, exists: str) -> str:
        w, names = self._w, self._w.tensors[param.number]
        if not w.ref(param).paged:
            return _lane_times(row, names.strides[0])
        return self._token(param, _sum([names.first, row]), exists)

    def scatter(self, stmt: Statement) -> None:
        """Of equal row numbers the last counts, so the others are left out."""
        w, (param, numbers, tile) = self._w, stmt.operands
        self._meet(stmt)
        names, kind = w.tensors[param.number], tile_type(tile)
        row, exists = self._rows(param, numbers)
        inside = w.mask(tile, (0,))
        if inside is not None:
            w.line(f"{exists} = {exists} & {inside}")
        if w.block(kind.rows) > 1:
            later = w.names.fresh("later")
            i, j = w.lane(0, kind.rows), w.lane(1, kind.rows)
            same = f"({row} == tl.trans({row})) & tl.trans({exists}) & ({j} > {i})"
            w.line(f"{later} = tl.max(({same}).to(tl.int32), 1, keep_dims=True)")
            w.line(f"{exists} = {exists} & ({later} == 0)")
        width = f"({w.lane(1, kind.cols)} < {names.extents[1]})"
        facts = w.facts(param)
        if facts.is_whole(1) or (facts.extent(1) or 0) >= kind.cols:
            width = None
        mask = both([exists, width, w.mask(tile, (1,))])
        address = self._row_address(param, row, exists)
        columns = _lane_times(w.lane(1, kind.cols), names.strides[1])
        pointer = _sum([names.base, address, columns])
        w.line(f"tl.store({pointer}, {w.text(tile)}, mask={mask})", stmt)


def _of_tokens(region: Region, lanes: Sequence[str | None]) -> list[str | None]:
    """Of masks of rows and columns the one along which the first dimension goes."""
    return [lanes[axis] for axis in (0, 1) if region.dim(axis) == 0]


def _load(w: Writer, param: Value, pointer: str, mask: str | None, other: str) -> str:
    masked = "" if mask is None else f", mask={mask}, other={other or zero(dtype_of(param))}"
    cache = w.facts(param).cache
    return f"tl.load({pointer}{masked}{f', cache_modifier={cache!r}' if cache else ''})"


def _spread(w: Writer, pointer: str, shape: tuple[int, int]) -> str:
    """Pointers for all lanes: an address without row or column numbers lacks that extent."""
    sizes = [w.block(shape[axis]) for axis in (0, 1)]
    if sizes[0] > 1 and sizes[1] > 1:
        return pointer
    return f"{pointer} + tl.zeros([{sizes[0]}, {sizes[1]}], tl.int32)"


def _sum(terms: list[str]) -> str:
    found = [term for term in terms if term != "0"]
    return " + ".join(found) if found else "0"


def _times(w: Writer, at: Value, stride: str) -> str:
    """An offset in elements, in 64 bits."""
    known = w.constant(at)
    if known is not None and stride.isdigit():
        return str(known * int(stride))
    if known == 0:
        return "0"
    if known is not None:
        return f"tl.cast({stride}, tl.int64)" + (f" * {known}" if known != 1 else "")
    return w.text(at) if stride == "1" else f"{w.text(at)} * {stride}"


def _lane_times(lane: str, stride: str) -> str:
    if lane == "0":
        return "0"
    return lane if stride == "1" else f"{lane} * {stride}"
