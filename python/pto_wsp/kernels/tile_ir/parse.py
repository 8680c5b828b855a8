"""Reads a tile kernel from its text form (see `text`). Text that is not one is a CompileError with
the line and column in the text; whether the kernel is legal is for `check` to say."""

from __future__ import annotations

import math

from pto_wsp.kernels.tile_ir.nodes import (
    Attribute,
    Block,
    RefType,
    ScalarType,
    Statement,
    TileKernel,
    TileType,
    Type,
    Value,
)
from pto_wsp.kernels.tile_ir.ops import Op
from pto_wsp.kernels.tile_ir.tokens import Tokens
from pto_wsp.plan import AccessMode
from pto_wsp.tokens import fail

MAX_DEPTH = 64  # of blocks: more than `check` lets through, less than Python's own stack

_OPS = {op.value: op for op in Op}
_MODES = {mode.name.lower(): mode for mode in AccessMode}


def from_text(text: str, file: str = "<tile kernel>") -> TileKernel:
    """The kernel that a text says; `file` is its name in messages."""
    parser = _Parser(text, file)
    kernel = parser.kernel()
    if parser.tokens.next.kind != "end":
        parser.tokens.expected("the end of the text")
    return kernel


class _Parser:
    def __init__(self, text: str, file: str) -> None:
        self.tokens = Tokens(text, file)
        self._values: dict[int, Value] = {}
        self._depth = 0

    def kernel(self) -> TileKernel:
        self.tokens.expect("tile")
        self.tokens.expect("kernel")
        name = self.tokens.name()
        params = self.tokens.listed("(", self._defined, ")")
        loc = self.tokens.loc()
        self.tokens.expect("{")
        body = self._statements()
        self.tokens.expect("}")
        return TileKernel(name, params, body, loc)

    def _statements(self) -> tuple[Statement, ...]:
        found: list[Statement] = []
        while not self.tokens.at("}") and not self.tokens.at("yield"):
            found.append(self._statement())
        return tuple(found)

    def _statement(self) -> Statement:
        # Results are seen from the next statement on, so that a block cannot use them.
        results: list[tuple[int, str, Type]] = []
        if self.tokens.next.kind == "value":
            results.append(self._typed())
            while self.tokens.accept(","):
                results.append(self._typed())
            self.tokens.expect("=")
        token = self.tokens.next
        op = _OPS.get(self.tokens.word("an operation"))
        if op is None:
            fail(f"there is no operation {token.text}", token.loc)
        operands, attributes = self._arguments()
        loc = self.tokens.loc()
        blocks: list[Block] = []
        while self.tokens.accept("do"):
            blocks.append(self._block())
        values = tuple(self._define(*each) for each in results)
        return Statement(op, values, operands, attributes, tuple(blocks), loc)

    def _arguments(self) -> tuple[tuple[Value, ...], tuple[tuple[str, Attribute], ...]]:
        """Operands and attributes, with commas between them; there may be none of both."""
        operands: list[Value] = []
        attributes: list[tuple[str, Attribute]] = []
        if self.tokens.next.kind != "value" and not self._at_attribute():
            return (), ()
        while True:
            if self.tokens.next.kind == "value" and not attributes:
                operands.append(self._used())
            else:
                key = self.tokens.word("an attribute")
                self.tokens.expect("=")
                attributes.append((key, self._attribute()))
            if not self.tokens.accept(","):
                return tuple(operands), tuple(attributes)

    def _at_attribute(self) -> bool:
        """An operation without arguments is followed by a block, a place, the next statement or the
        end; of those only a statement begins with a word, and no operation has a `=` behind it."""
        return self.tokens.next.kind == "word" and self.tokens.peek(1) == "="

    def _attribute(self) -> Attribute:
        if self.tokens.accept("true"):
            return True
        if self.tokens.accept("false"):
            return False
        if self.tokens.next.kind == "string":
            return self.tokens.string()
        if self.tokens.at("("):
            return self.tokens.listed("(", self.tokens.integer, ")")
        number = self.tokens.number()
        # One NaN for all, so that kernels that are equal compare equal.
        return math.nan if number != number else number

    def _block(self) -> Block:
        if self._depth == MAX_DEPTH:
            fail(f"blocks nested more than {MAX_DEPTH} deep", self.tokens.next.loc)
        self._depth += 1
        params = self.tokens.listed("(", self._defined, ")")
        self.tokens.expect("{")
        body = self._statements()
        yields: list[Value] = []
        if self.tokens.accept("yield"):
            yields.append(self._used())
            while self.tokens.accept(","):
                yields.append(self._used())
        self.tokens.expect("}")
        self._depth -= 1
        return Block(params, body, tuple(yields))

    # --- values and types ---

    def _number(self) -> tuple[int, str]:
        token = self.tokens.next
        if token.kind != "value":
            self.tokens.expected("a value such as %1")
        self.tokens.take()
        number, _, name = token.text[1:].partition(".")
        if len(number) > 9:
            fail("a value has a number of at most 9 digits", token.loc)
        return int(number), name

    def _used(self) -> Value:
        token = self.tokens.next
        number, name = self._number()
        value = self._values.get(number)
        if value is None:
            fail(f"{token.text} is used before it is defined", token.loc)
        if name != value.name:
            fail(f"%{number} is called {value.name or 'nothing'} elsewhere", token.loc)
        return value

    def _typed(self) -> tuple[int, str, Type]:
        number, name = self._number()
        self.tokens.expect(":")
        return number, name, self._type()

    def _defined(self) -> Value:
        return self._define(*self._typed())

    def _define(self, number: int, name: str, of_type: Type) -> Value:
        if number in self._values:
            fail(f"%{number} is defined twice", self.tokens.next.loc)
        value = self._values[number] = Value(number, of_type, name)
        return value

    def _type(self) -> Type:
        mode = _MODES.get(self.tokens.next.text)
        if mode is not None:
            self.tokens.take()
            return self._ref(mode)
        dtype = self.tokens.dtype()
        if not self.tokens.accept("["):
            return ScalarType(dtype)
        rows, rows_partial = self._extent()
        self.tokens.expect(",")
        cols, cols_partial = self._extent()
        self.tokens.expect("]")
        return TileType(dtype, rows, cols, (rows_partial, cols_partial))

    def _extent(self) -> tuple[int, bool]:
        return self.tokens.integer(), self.tokens.accept("?")

    def _ref(self, mode: AccessMode) -> RefType:
        paged = self.tokens.accept("paged")
        dtype = self.tokens.dtype()
        place = self.tokens.next.loc
        sizes = self.tokens.listed("[", self._size, "]")
        known = tuple(size for size in sizes if size is not None)
        if known and len(known) != len(sizes):
            fail("all extents are known, or none", place)
        return RefType(dtype, len(sizes), mode, known or None, paged)

    def _size(self) -> int | None:
        return None if self.tokens.accept(":") else self.tokens.integer()
