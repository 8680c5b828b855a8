"""Loops and branches. What is carried is one variable, and what a loop gives is that variable."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pto_wsp.kernels.tile_bounds import WORDS
from pto_wsp.kernels.tile_expr import is_tile, tile_type
from pto_wsp.kernels.tile_ir import Block, Op, Statement, Value
from pto_wsp.kernels.triton_code.memory import Memory
from pto_wsp.kernels.triton_code.writer import Writer

EmitBody = Callable[[Sequence[Statement]], None]


class Control:
    """`body` writes the statements of a block."""

    def __init__(self, w: Writer, memory: Memory, body: EmitBody) -> None:
        self._w = w
        self._memory = memory
        self._body = body

    def emit(self, stmt: Statement) -> None:
        if stmt.op is Op.FOR:
            self._loop(stmt)
        else:
            self._branch(stmt)

    # --- loops ---

    def _loop(self, stmt: Statement) -> None:
        w, block = self._w, stmt.blocks[0]
        start, stop, step = (w.text(v) for v in stmt.operands[:3])
        if w.constant(stmt.operands[2]) is None:
            w.fault(f"{step} < 1", "a loop whose step is below 1", stmt)
            step = f"tl.maximum({step}, 1)"
        carried = list(zip(block.params[1:], stmt.operands[3:], stmt.results, strict=True))
        for param, given, result in carried:
            self._begin(param, given, result)
        index = w.names.of(block.params[0])
        counter = w.names.fresh(f"{index}_at")
        stages = w.options.num_stages
        how = "" if stages is None else f", num_stages={stages}"
        w.line(f"for {counter} in tl.range({start}, {stop}, {step}{how}):", stmt)
        self._memory.enter_loop(block)
        with w.inside():
            w.line(f"{index} = tl.cast({counter}, tl.int64)")
            w.bind(block.params[0], index)
            for param in block.params[1:]:
                w.bind(param, w.names.of(param))
            self._body(block.body)
            self._next_iteration(block)
        for param, _, result in carried:
            w.bind(result, w.names.of(param))
        self._settle(stmt, start, stop)

    def _begin(self, param: Value, given: Value, result: Value) -> None:
        w = self._w
        w.line(f"{w.names.of(param)} = {w.tensor(given)}")
        for dim in (0, 1):
            merge = w.bounds.merges.get((result.number, dim))
            if merge is not None and merge.varies and merge.name not in w.whole:
                w.line(f"{merge.name} = {self._scalar(w.least(merge.given, merge.size))}")

    def _scalar(self, text: str) -> str:
        """A bound that may be assigned again: a number needs a dtype."""
        return f"tl.full([], {text}, tl.int32)" if text.isdigit() else text

    def _next_iteration(self, block: Block) -> None:
        """All are read before one is written."""
        w = self._w
        names, texts = list[str](), list[str]()
        for param, made in zip(block.params[1:], block.yields, strict=True):
            if param.number != made.number:
                names.append(w.names.of(param))
                texts.append(w.tensor(made))
            if not is_tile(param):
                continue
            for dim in (0, 1):
                now, new = w.dims(param)[dim], w.dims(made)[dim]
                name = f"{w.names.of(param)}_{WORDS[dim]}"
                if name in now and new != now:
                    names.append(name)
                    size = tile_type(param).shape[dim]
                    texts.append(self._scalar(w.least(new, size)))
        if names:
            w.line(f"{', '.join(names)} = {', '.join(texts)}")

    def _settle(self, stmt: Statement, start: str, stop: str) -> None:
        """The bounds behind a loop: those of its last iteration, if there was one."""
        w, settled = self._w, set[str]()
        for result in stmt.results:
            for dim in (0, 1):
                merge = w.bounds.merges.get((result.number, dim))
                if merge is None or merge.varies or merge.name in settled | w.whole:
                    continue
                settled.add(merge.name)
                made, given = w.least(merge.made, merge.size), w.least(merge.given, merge.size)
                ran = f"tl.cast({start}, tl.int64) < {stop}"
                w.line(f"{merge.name} = tl.where({ran}, {made}, {given})")

    # --- branches ---

    def _branch(self, stmt: Statement) -> None:
        w = self._w
        before = self._memory.pending.copy()
        after = before.copy()
        w.line(f"if {w.tensor(stmt.operands[0])}:", stmt)
        for number, block in enumerate(stmt.blocks):
            if number == 1:
                if not block.body and not stmt.results:
                    break
                w.line("else:")
            self._memory.pending = before.copy()
            with w.inside():
                self._body(block.body)
                given = self._give(stmt, block)
                if not block.body and not given:
                    w.line("pass")
            after.add(self._memory.pending)
        self._memory.pending = after
        for result in stmt.results:
            w.bind(result, w.names.of(result))

    def _give(self, stmt: Statement, block: Block) -> bool:
        w = self._w
        for result, made in zip(stmt.results, block.yields, strict=True):
            w.line(f"{w.names.of(result)} = {w.tensor(made)}")
            if not is_tile(result):
                continue
            for dim in (0, 1):
                merge = w.bounds.merges.get((result.number, dim))
                if merge is not None and merge.name not in w.whole:
                    w.line(f"{merge.name} = {self._scalar(w.least(w.dims(made)[dim], merge.size))}")
        return bool(stmt.results)
