"""Loops and branches of tile kernels in C++. What is carried keeps one place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pto_wsp.kernels.tile_bounds import WORDS, Merge
from pto_wsp.kernels.tile_expr import dtype_of, is_tile, scalar_type, tile_type
from pto_wsp.kernels.tile_ir import Block, Op, Statement, Value
from pto_wsp.kernels.tile_next import find_next
from pto_wsp.kernels.tile_scratch import Slot
from pto_wsp.kernels.tile_windows import emit_scalar, plain, scan_scope
from pto_wsp.kernels.tile_writer import Place, Writer

EmitBody = Callable[[Sequence[Statement], set[int]], None]
WriteInto = Callable[[Value, Place], None]


@dataclass(slots=True)
class Control:
    """Loops and branches; the rest of the emitter comes in as functions: `body` writes statements,
    of which some loads are decided, `write` puts a value into a place."""

    w: Writer
    body: EmitBody
    write: WriteInto

    def emit(self, stmt: Statement) -> None:
        if stmt.op is Op.FOR:
            self._loop(stmt)
        else:
            self._branch(stmt)

    # --- loops ---

    def _loop(self, stmt: Statement) -> None:
        w, block = self.w, stmt.blocks[0]
        start, stop, step = (plain(w.scalar(v)) for v in stmt.operands[:3])
        if not step.isdigit() or step == "0":
            w.line(f'need({step} >= 1, "a loop whose step is below 1 ({w.where(stmt)})");')
        carried = list(zip(block.params[1:], stmt.operands[3:], stmt.results, strict=True))
        for _, _, result in carried:
            self._declare_bounds(result)
        for param, given, _ in carried:
            self._begin(stmt, param, given)
        index = w.names.of(block.params[0])
        w.scratch.now += 1
        begin = w.scratch.now
        w.line(f"for (i64 {index} = {start}; {index} < {stop}; {index} += {step}) {{", stmt)
        with w.indented():
            w.read_next |= find_next(w, block, step)
            self._loop_body(block)
        w.line("}")
        w.scratch.keep_through(begin)
        w.scratch.now += 1
        settled: set[str] = set()
        for param, _, result in carried:
            if is_tile(param):
                w.places[result.number] = w.places[param.number]
                self._settle(result, start, stop, settled)
            else:
                w.scalars[result.number] = w.names.of(param)

    def _declare_bounds(self, result: Value) -> None:
        """Bounds that change from iteration to iteration."""
        for dim in (0, 1):
            merge = self.w.bounds.merges.get((result.number, dim))
            if merge is not None and merge.varies:
                self.w.line(f"i64 {merge.name} = {self.w.bound(merge.given, merge.size)};")

    def _begin(self, stmt: Statement, param: Value, given: Value) -> None:
        """The place of a carried value: that of what it begins with, if nobody else needs it."""
        w, name = self.w, self.w.names.of(param)
        if not is_tile(param):
            w.line(f"{scalar_type(dtype_of(param))} {name} = {w.scalar(given)};")
            return
        taken = (
            given.number in w.uses.floating
            or sum(v.number == given.number for v in stmt.operands) > 1
        )
        slot = None if taken else w.dying_slot(given, w.uses.position[id(stmt)])
        place = w.new_tile(param, slot)
        if slot is None:
            self.write(given, place)

    def _settle(self, result: Value, start: str, stop: str, settled: set[str]) -> None:
        """The bounds behind a loop: those of its last iteration, if there was one."""
        w = self.w
        for dim in (0, 1):
            merge = w.bounds.merges.get((result.number, dim))
            if merge is None or merge.varies:
                continue
            kind = f"Bound<{w.flag}, {merge.size}>"
            made, given = (f"i64{{{w.bound(d, merge.size)}}}" for d in (merge.made, merge.given))
            if merge.name not in settled:
                settled.add(merge.name)
                w.line(f"const {kind} {merge.name} = {start} < {stop} ? {made} : {given};")
            w.line(f"{w.places[result.number].text}.{WORDS[dim]} = {merge.name};")

    def _loop_body(self, block: Block) -> None:
        w = self.w
        scope = scan_scope(w, block.body, id(block))
        outer_flag, outer_block = w.flag, w.block
        w.block = id(block)
        for each in scope.scalars:
            emit_scalar(w, each)
            w.declared.add(id(each))
        if scope.conditions:
            index = w.names.of(block.params[0])
            w.flag = w.names.fresh(f"whole_{index}")
            w.line("const auto iteration = [&](auto inside) __attribute__((always_inline)) {")
            with w.indented():
                w.line(f"constexpr bool {w.flag} = decltype(inside)::value;")
                self.body(block.body, scope.decided)
                self._end_of_iteration(block)
            w.line("};")
            w.line(f"choose<{outer_flag}>({' && '.join(scope.conditions)}, iteration);")
        else:
            self.body(block.body, scope.decided)
            self._end_of_iteration(block)
        w.flag, w.block = outer_flag, outer_block

    def _end_of_iteration(self, block: Block) -> None:
        """What the next iteration is given, in the places of the carried values."""
        w = self.w
        pairs = [
            (param, made)
            for param, made in zip(block.params[1:], block.yields, strict=True)
            if param.number != made.number
        ]
        params = {param.number for param, _ in pairs}
        own = {number: w.places[number] for number in params if number in w.places}
        written = [own[p.number].slot for p, m in pairs if is_tile(p) and not self._is_there(p, m)]
        for param, made in pairs:
            # What lies in a place that is about to be written is read first.
            if not is_tile(made):
                if made.number in params:
                    spare = w.names.fresh(f"{w.names.of(made)}_before")
                    w.line(f"const auto {spare} = {w.scalar(made)};")
                    w.scalars[made.number] = spare
            elif made.number in w.places and not self._is_there(param, made):
                before = w.place(made)
                if before.slot is not None and before.slot in written:
                    w.line(f"TSTORE({w.new_tile(made).text}, {before.text});")
        for param, made in pairs:
            if not is_tile(param):
                w.line(f"{w.names.of(param)} = {w.scalar(made)};")
                continue
            if not self._is_there(param, made):
                self.write(made, own[param.number])
        w.places |= own
        self._assign_bounds([(param, made) for param, made in pairs if is_tile(param)])
        for param in block.params[1:]:
            w.scalars.pop(param.number, None)

    def _is_there(self, param: Value, made: Value) -> bool:
        """Whether a value has been made in the place where it is to be."""
        here, there = self.w.places.get(param.number), self.w.places.get(made.number)
        return here is not None and there is not None and here.slot is there.slot is not None

    def _assign_bounds(self, pairs: list[tuple[Value, Value]]) -> None:
        """The next iteration's bounds: all are read before one is written."""
        w = self.w
        changes: list[tuple[str, str, str]] = []
        for param, made in pairs:
            for dim in (0, 1):
                own, new = w.bounds.dims(param)[dim], w.bounds.dims(made)[dim]
                name = f"{w.names.of(param)}_{WORDS[dim]}"
                if name in own and new != own:
                    text = w.bound(new, tile_type(param).shape[dim])
                    changes.append((name, text, f"{w.places[param.number].text}.{WORDS[dim]}"))
        if len(changes) > 1:
            for number, (name, text, field) in enumerate(changes):
                w.line(f"const i64 {name}_next = {text};")
                changes[number] = (name, f"{name}_next", field)
        for name, text, field in changes:
            w.line(f"{field} = {name} = {text};")

    # --- branches ---

    def _branch(self, stmt: Statement) -> None:
        w = self.w
        first, second = stmt.blocks
        for number, result in enumerate(stmt.results):
            if not is_tile(result):
                w.line(f"{scalar_type(dtype_of(result))} {w.names.of(result)};")
                continue
            for dim in (0, 1):
                merge = w.bounds.merges.get((result.number, dim))
                if merge is not None:
                    w.line(f"i64 {merge.name} = {merge.size};")
            w.new_tile(result, self._kept_slot(stmt, second.yields[number]))
        w.scratch.now += 1
        w.line(f"if ({w.scalar(stmt.operands[0])}) {{", stmt)
        self._branch_body(stmt, first)
        if second.body or stmt.results:
            w.line("} else {")
            self._branch_body(stmt, second)
        w.line("}")

    def _kept_slot(self, stmt: Statement, value: Value) -> Slot | None:
        """The scratch of what stays if the condition does not hold, and ends here."""
        w = self.w
        users = w.uses.of(value)
        block, last = w.uses.home.get(value.number), w.uses.position[id(stmt)]
        place = w.places.get(value.number)
        if block != w.block or place is None or value.number in w.uses.floating:
            return None
        inner = {id(b) for b in stmt.blocks}
        for user in users:
            if isinstance(user, Block):
                if id(user) not in inner:
                    return None
            elif (w.uses.owner[id(user)] == block and w.uses.position[id(user)] > last) or (
                w.uses.owner[id(user)] != block and w.uses.owner[id(user)] not in inner
            ):
                return None
        yielded = [v.number for b in stmt.blocks for v in b.yields]
        return place.slot if yielded.count(value.number) == 1 else None

    def _branch_body(self, stmt: Statement, block: Block) -> None:
        w, outer = self.w, self.w.block
        w.block = id(block)
        scalars = dict(w.scalars)
        with w.indented():
            self.body(block.body, set())
            for result, made in zip(stmt.results, block.yields, strict=True):
                self._give(result, made)
        w.block = outer
        w.scalars = scalars

    def _give(self, result: Value, made: Value) -> None:
        w = self.w
        if not is_tile(result):
            w.line(f"{w.names.of(result)} = {w.scalar(made)};")
            return
        place = w.place(result)
        for dim in (0, 1):
            merge: Merge | None = w.bounds.merges.get((result.number, dim))
            if merge is not None:
                w.line(f"{merge.name} = {w.bound(w.bounds.dims(made)[dim], merge.size)};")
                w.line(f"{place.text}.{WORDS[dim]} = {merge.name};")
        there = w.places.get(made.number)
        if there is None or there.slot is not place.slot:
            self.write(made, place)
