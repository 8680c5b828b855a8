"""A group of row-wise statements as one C++ loop over the rows."""

from __future__ import annotations

from dataclasses import dataclass, field

from pto_wsp.kernels.tile_expr import (
    EXPENSIVE,
    HALVES,
    TYPES,
    dtype_of,
    expression,
    is_tile,
    register_size,
    scalar_type,
    tile_type,
)
from pto_wsp.kernels.tile_ir import Op, Statement, Value
from pto_wsp.kernels.tile_passes import Pass, Passes, RowGroup, StoreTarget
from pto_wsp.kernels.tile_scratch import Slot, tile_bytes
from pto_wsp.kernels.tile_writer import Place, Writer

_FOLDS = {Op.SUM_OF: "TROWSUM", Op.MEAN_OF: "TROWSUM", Op.MAX_OF: "TROWMAX", Op.MIN_OF: "TROWMIN"}


@dataclass(slots=True)
class _Body:
    """The inside of a pass: its lines, the names of what they compute, and the sizes in it."""

    lines: list[tuple[str, Statement | None]] = field(
        default_factory=list[tuple[str, Statement | None]]
    )
    names: dict[int, tuple[str, bool]] = field(
        default_factory=dict[int, tuple[str, bool]]
    )  # text, whether it has lanes
    writes: bool = False  # into scratch, maybe in the place of an operand: those are read first
    bytes: int = 1
    is_dear: bool = False

    def note(self, value: Value) -> None:
        self.bytes = max(self.bytes, register_size(dtype_of(value)))


def emit_rows(w: Writer, group: RowGroup, last: int) -> None:
    """Writes the loop of a group whose last statement has that position in its block."""
    _RowEmitter(w, group, last).emit()


class _RowEmitter:
    def __init__(self, w: Writer, group: RowGroup, last: int) -> None:
        self._w = w
        self._group = group
        self._last = last
        self._passes = Passes(w, group)
        self._row = "row" if group.rows > 1 else "0"
        self._places: dict[int, Place] = {v.number: place for v, place in group.targets}
        self._above: list[str] = []  # written before the loop
        self._pre: list[tuple[str, Statement | None]] = []  # written before the next pass
        self._lines: dict[str, str] = {}  # rows of tiles that have a name, by the tile's
        self._kept: dict[int, str] = {}  # values whose row lies in memory by now
        self._scalars: dict[int, str] = {}  # values with one column
        self._prefetched = False

    def emit(self) -> None:
        w, group = self._w, self._group
        self._take_places()
        with w.captured() as body, w.indented():
            for each in self._passes.list:
                self._emit_pass(each)
            columns = [v for v in self._passes.results() if tile_type(v).cols == 1]
            texts = [self._narrow(value) for value in columns]
            self._flush()  # all are read before one is written, which may be in the same place
            for value, text in zip(columns, texts, strict=True):
                w.line(f"{self._places[value.number].text}.set({self._row}, 0, {text});")
        for text in self._above:
            w.line(text)
        limit = w.bound(group.dim, group.rows)
        head = f"for (i64 row = 0; row < {limit}; ++row) "
        if group.rows == 1:
            head = f"if (0 < {limit}) " if group.dim else ""  # a store may have no row at all
        w.line(f"{head}{{")
        w.extend(body)
        w.line("}")

    # --- places ---

    def _take_places(self) -> None:
        w, passes = self._w, self._passes
        written_in = {v.number: n for n, each in enumerate(passes.list) for v in each.writes}
        taken: set[int] = set()
        for value in passes.escaping:
            if value.number in self._places:
                continue
            slot = self._reusable(value, written_in.get(value.number, len(passes.list)), taken)
            if slot is not None:
                taken.add(slot.number)
            self._places[value.number] = w.new_tile(value, slot)
        for each in passes.list:
            for value in each.writes:
                if value.number in passes.kept:
                    self._keep_row(value)

    def _keep_row(self, value: Value) -> None:
        """One row of memory, for a value that later passes read again."""
        w, kind = self._w, tile_type(value)
        name = w.names.fresh(f"{w.names.of(value)}_row")
        slot = w.scratch.take(tile_bytes(kind.dtype, 1, kind.cols))
        row = f"Tile<{TYPES[kind.dtype]}, 1, {kind.cols}>({slot.text}).row(0)"
        self._above.append(f"const auto {name} = {row};  // one row, from pass to pass")
        self._places[value.number] = Place(name)
        self._lines[name] = name

    def _reusable(self, value: Value, written_in: int, taken: set[int]) -> Slot | None:
        """The scratch of an operand that ends here and is not read behind the writing pass."""
        kind = tile_type(value)
        for stmt in self._group.statements:
            for operand in stmt.operands:
                slot = self._w.dying_slot(operand, self._last)
                if slot is None or slot.number in taken:
                    continue
                same = tile_type(operand).shape == kind.shape and dtype_of(operand) == kind.dtype
                if same and self._passes.reads.get(operand.number, -1) <= written_in:
                    return slot
        return None

    # --- passes ---

    def _flush(self) -> None:
        for text, stmt in self._pre:
            self._w.line(text, stmt)
        self._pre.clear()

    def _emit_pass(self, each: Pass) -> None:
        w = self._w
        limits = [f"{self._row} < {w.bound(each.guard, 0)}"] if each.guard else []
        if each.width == 1 and each.cols:
            limits.append(f"0 < {w.bound(each.cols, 1)}")
        guard = f"if ({' && '.join(limits)}) " if limits else ""
        if each.width == 1:
            for target in each.stores:
                text = self._narrow(target.stmt.operands[1])
                self._flush()
                row = self._row if target.shape[0] > 1 else "0"
                w.line(f"{guard}{target.window}.set({row}, 0, {text});", target.stmt)
            return
        body = _Body(writes=bool(each.writes))
        roots = [self._wide(root, body)[0] for root in each.roots]
        for target, root in zip(each.stores, roots, strict=False):
            body.note(target.stmt.operands[0])
            line = self._line(target.window, target.shape[0])
            body.lines.append((f"{line}.set(at, {root});", target.stmt))
        for value in each.writes:
            body.note(value)
            line = self._line(self._places[value.number].text, tile_type(value).rows)
            body.lines.append((f"{line}.set(at, {self._wide(value, body)[0]});", None))
            self._kept[value.number] = line
        if body.is_dear:
            self._prefetch(each, body)
        self._prefetch_stores(each, body)
        self._flush()
        if each.reduction is None and not body.lines:
            return  # an earlier pass has written it
        cols = w.bound(each.cols, each.width)
        if each.reduction is not None:
            self._emit_fold(each.reduction, body, roots[0], cols)
            return
        w.line(f"{guard}TMAP<{body.bytes}>({cols}, [&](auto at) {{")
        self._emit_inside(body)
        w.line("});")

    def _prefetch(self, each: Pass, body: _Body) -> None:
        """A pass that computes for long asks for the next row of what an earlier one has read."""
        if self._group.rows == 1 or self._prefetched or each is self._passes.list[0]:
            return
        self._prefetched = True
        for value in self._passes.read_first:
            place, kind = self._w.places[value.number], tile_type(value)
            if place.slot is None and kind.rows > 1 and kind.cols == each.width:
                body.lines.append((f"{place.text}.prefetch(row + 1, at);", None))

    def _prefetch_stores(self, each: Pass, body: _Body) -> None:
        """Asks for what stores will overwrite: else each of them waits until the memory has been
        read. While a row is stored, for the next one: nothing else needs the memory then. For the
        first row, in the pass before its store."""
        passes = self._passes.list
        at = next(i for i, other in enumerate(passes) if other is each)
        if at > 0 and self._group.rows > 1:
            for target in each.stores:
                if target.shape == (self._group.rows, each.width):
                    ask = f"{target.window}.prefetch_to_write(row + 1, at);"
                    body.lines.append((ask, None))
        if each.stores or at + 1 == len(passes):
            return
        first = "if (row == 0) " if self._group.rows > 1 else ""
        for target in passes[at + 1].stores:
            if target.shape[1] == each.width:
                ask = f"{first}{target.window}.prefetch_to_write({self._row}, at);"
                body.lines.append((ask, None))

    def _emit_inside(self, body: _Body) -> None:
        with self._w.indented():
            for text, stmt in body.lines:
                self._w.line(text, stmt)

    def _emit_fold(self, stmt: Statement, body: _Body, root: str, cols: str) -> None:
        w, result = self._w, stmt.results[0]
        name, dtype = w.names.of(result), dtype_of(result)
        half = dtype in HALVES and stmt.op in (Op.SUM_OF, Op.MEAN_OF)
        mean = f" / static_cast<{scalar_type(dtype)}>({cols})" if stmt.op is Op.MEAN_OF else ""
        opening = f"to_half<{TYPES[dtype]}>(" if half else ""
        fold = "" if body.is_dear else ", 4"
        head = f"const {scalar_type(dtype)} {name} = {opening}"
        head += f"{_FOLDS[stmt.op]}<{body.bytes}{fold}>({cols}, [&](auto at) {{"
        end = f"}}){mean}{')' if half else ''};"
        if body.lines:
            w.line(head, stmt)
            self._emit_inside(body)
            w.line(f"  return {root};")
            w.line(end)
        else:
            w.line(f"{head} return {root}; {end}", stmt)
        self._scalars[result.number] = name

    # --- values ---

    def _line(self, place: str, rows: int) -> str:
        """The name of this row of a tile or window; of the only one, if it has one."""
        if place not in self._lines:
            name = self._w.names.fresh(f"{place}_row")
            self._lines[place] = name
            if rows > 1:
                self._pre.append((f"const auto {name} = {place}.row({self._row});", None))
            else:
                self._above.append(f"const auto {name} = {place}.row(0);")
        return self._lines[place]

    def _wide(self, value: Value, body: _Body) -> tuple[str, bool]:
        """A value inside a pass, and whether it has lanes there: a scalar has none."""
        if not is_tile(value):
            body.note(value)
            return self._w.scalar(value), False
        if tile_type(value).cols == 1:
            body.note(value)
            return self._narrow(value), False
        if value.number not in body.names:
            body.note(value)
            body.names[value.number] = self._computed(value, body)
        return body.names[value.number]

    def _computed(self, value: Value, body: _Body) -> tuple[str, bool]:
        if value.number in self._kept:
            return f"{self._kept[value.number]}(at)", True
        stmt = self._passes.definition(value)
        if stmt is None:
            line = self._line(self._w.place(value).text, tile_type(value).rows)
            if body.writes or self._uses_in_body(value) > 1:
                name = self._w.names.fresh(f"{self._w.names.of(value)}_at")
                body.lines.append((f"const auto {name} = {line}(at);", None))
                return name, True
            return f"{line}(at)", True
        if stmt.op is Op.FULL:
            return self._w.scalar(stmt.operands[0]), False
        if stmt.op is Op.ARANGE:
            return self._arange(stmt)
        args = [self._wide(operand, body) for operand in stmt.operands]
        is_vector = any(has_lanes for _, has_lanes in args)
        body.is_dear = body.is_dear or stmt.op in EXPENSIVE
        name = self._w.names.fresh(self._w.names.of(value) + "_v")
        text = expression(stmt, [text for text, _ in args], is_vector)
        body.lines.append((f"const auto {name} = {text};", stmt))
        return name, is_vector

    def _uses_in_body(self, value: Value) -> int:
        return sum(
            operand.number == value.number
            for stmt in self._group.statements
            for operand in stmt.operands
        )

    def _arange(self, stmt: Statement) -> tuple[str, bool]:
        kind, start = tile_type(stmt.results[0]), self._w.scalar(stmt.operands[0])
        if stmt.attribute("axis") == 1:
            text, has_lanes = f"columns_from<{TYPES[kind.dtype]}>({start}, at)", True
        else:
            row = self._row if kind.rows > 1 else "0"
            number = f"static_cast<{scalar_type(kind.dtype)}>({row})"
            text, has_lanes = f"vadd({start}, {number})", False
        return f"to_half<{TYPES[kind.dtype]}>({text})" if kind.dtype in HALVES else text, has_lanes

    def _narrow(self, value: Value) -> str:
        """A value with one column: a scalar of this row."""
        if not is_tile(value):
            return self._w.scalar(value)
        if value.number not in self._scalars:
            self._scalars[value.number] = self._narrow_text(value)
        return self._scalars[value.number]

    def _narrow_text(self, value: Value) -> str:
        w, stmt = self._w, self._passes.definition(value)
        row = self._row if tile_type(value).rows > 1 else "0"
        name = w.names.fresh(w.names.of(value) + "_s")
        if stmt is None:
            text = f"{w.place(value).text}.get({row}, 0)"
        elif stmt.op is Op.FULL:
            return w.scalar(stmt.operands[0])
        elif stmt.op is Op.ARANGE:
            kind, start = tile_type(value), w.scalar(stmt.operands[0])
            if stmt.attribute("axis") == 1 or kind.rows == 1:
                return start
            text = self._arange(stmt)[0]
        elif stmt.op in _FOLDS:  # of one column: that element
            return self._narrow(stmt.operands[0])
        else:
            text = expression(stmt, [self._narrow(v) for v in stmt.operands], is_vector=False)
        self._pre.append((f"const {scalar_type(dtype_of(value))} {name} = {text};", stmt))
        return name


__all__ = ["Pass", "RowGroup", "StoreTarget", "emit_rows"]
