"""What the emitter of tile kernels knows while it writes: names, places of values, lines."""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from pto_wsp.kernels.cpp_words import CPP_WORDS
from pto_wsp.kernels.tile_bounds import Bounds, Dim, find_bounds
from pto_wsp.kernels.tile_expr import TYPES, dtype_of, is_tile, literal, tile_type
from pto_wsp.kernels.tile_ir import Op, Statement, TileKernel, TileType, Value
from pto_wsp.kernels.tile_scratch import Scratch, Slot, tile_bytes
from pto_wsp.kernels.tile_uses import Uses, find_uses, walk

TOP_FLAG = "Whole"

# Words that the source uses itself, and small macros of the headers it includes; what begins with v
# or a capital letter is checked below.
_WORDS = """
    apart assert at bf16 body bound by call cast choose column columns_from errno f16 i16 i32 i64 i8
    in_order inside is_whole iteration least linux math_errhandling matmul_scratch_bytes may_share
    need need_index offsetof on_scalars ptowsp row scalar_of scratch sharing sort_scratch_bytes std
    stderr stdin stdout tiles to_half u16 u32 u64 u8 unix
"""
OWN_WORDS = frozenset(_WORDS.split())


@dataclass(slots=True)
class Place:
    """Where the elements of a value lie: a C++ object, and the scratch it owns, if any."""

    text: str
    slot: Slot | None = None


class Names:
    """C++ names of values: the user's where possible, each used once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._of: dict[int, str] = {}

    def of(self, value: Value) -> str:
        if value.number not in self._of:
            self._of[value.number] = self.fresh(value.name or f"v{value.number}")
        return self._of[value.number]

    def fresh(self, wanted: str) -> str:
        base = re.sub(r"\W", "_", wanted)
        if base in OWN_WORDS | CPP_WORDS or not base or not (base[0].isalpha() and base.isascii()):
            base = f"x_{base}"
        if re.match(r"v[a-z]+\d*$|[A-Z]\w*$", base):  # functions and types of the library
            base = f"{base}_"
        name, number = base, 1
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name


class Writer:
    """The source of one kernel as it grows."""

    def __init__(self, kernel: TileKernel, shared: frozenset[int]) -> None:
        self.names = Names()
        for param in kernel.params:
            self.names.of(param)
        self.uses: Uses = find_uses(kernel, shared)
        # Compilers may take elements of two types for different memory.
        self.has_fences = len({dtype_of(p) for p in kernel.params if p.number in shared}) > 1
        for stmt in walk(kernel.body):
            for block in stmt.blocks:
                for param in block.params:
                    self.names.of(param)
            for result in stmt.results:
                self.names.of(result)
        self.bounds: Bounds = find_bounds(kernel, self.names.of, self.names.fresh)
        self.scratch = Scratch()
        self.places: dict[int, Place] = {}
        self.scalars: dict[int, str] = {}
        self.flag = TOP_FLAG  # says whether the tiles of this scope are whole
        self.declared: set[int] = set()  # scalar statements that have been written, by id
        self.read_next: dict[int, str] = {}  # what is read behind a product, by the statement's id
        self.block = 0
        self._lines: list[str] = []
        self._depth = 1

    # --- lines ---

    def line(self, text: str, stmt: Statement | None = None) -> None:
        comment = "" if stmt is None else self.where(stmt)
        tail = f"  // {comment}" if comment else ""
        self._lines.append("  " * self._depth + text + tail if text else "")

    def fence(self) -> None:
        """Before and after memory is read or written that has several types."""
        if self.has_fences:
            self.line("in_order();")

    @contextmanager
    def indented(self) -> Generator[None, None, None]:
        self._depth += 1
        yield
        self._depth -= 1

    @contextmanager
    def captured(self, extra: int = 0) -> Generator[list[str], None, None]:
        """Collects the lines written inside instead of keeping them."""
        outer, self._lines = self._lines, []
        self._depth += extra
        yield self._lines
        self._depth -= extra
        self._lines = outer

    def extend(self, lines: list[str]) -> None:
        self._lines.extend(lines)

    @property
    def lines(self) -> list[str]:
        return self._lines

    def where(self, stmt: Statement) -> str:
        if stmt.loc is None:
            return ""
        return f"{one_line(os.path.basename(stmt.loc.file))}:{stmt.loc.line}"

    # --- values ---

    def scalar(self, value: Value) -> str:
        """A scalar: a literal, or the name of a variable."""
        known = self.scalars.get(value.number)
        if known is None:
            made = self.uses.definitions.get(value.number)
            if made is not None and made.op is Op.CONST:
                number = made.attribute("value")
                assert isinstance(number, int | float)
                known = literal(number, dtype_of(value))
            else:
                known = self.names.of(value)
            self.scalars[value.number] = known
        return known

    def bound(self, dim: Dim, size: int) -> str:
        """An extent: a constant, a named bound, or the least of several."""
        names = sorted(dim)
        if not names:
            return f"Const<{size}>()"
        return names[0] if len(names) == 1 else f"least({', '.join(names)})"

    def rows(self, value: Value) -> str:
        return self.bound(self.bounds.dims(value)[0], tile_type(value).rows)

    def cols(self, value: Value) -> str:
        return self.bound(self.bounds.dims(value)[1], tile_type(value).cols)

    # --- places ---

    def place(self, value: Value) -> Place:
        """Where a value lies; whoever asks is about to use it."""
        place = self.places[value.number]
        if place.slot is not None:
            self.scratch.touch(place.slot)
        return place

    def new_tile(self, value: Value, slot: Slot | None = None, name: str | None = None) -> Place:
        """Declares a tile in scratch for a value, in a given slot or one of its own."""
        kind = tile_type(value)
        slot = slot or self.scratch.take(tile_bytes(kind.dtype, kind.rows, kind.cols))
        self.scratch.touch(slot)
        text = name or self.names.fresh(f"{self.names.of(value)}_tile")
        self.line(f"{cpp_tile(kind)} {text}({slot.text}, {self.rows(value)}, {self.cols(value)});")
        place = Place(text, slot)
        self.places[value.number] = place
        return place

    def dying_slot(self, value: Value, last: int) -> Slot | None:
        """The scratch of a value that nobody needs behind a statement of this block."""
        if not is_tile(value) or not self.uses.dies_in(value, last, self.block):
            return None
        place = self.places.get(value.number)
        return None if place is None else place.slot


def one_line(text: str) -> str:
    """A name that may come from anywhere, for a comment or a string of the source."""
    return re.sub(r'[\\"]|[^\w\s\x20-\x7e]|[^\S ]', "?", text)


def cpp_tile(kind: TileType) -> str:
    return f"Tile<{TYPES[kind.dtype]}, {kind.rows}, {kind.cols}>"
