"""What the Triton emitter knows while it writes: names, blocks, bounds, lines.

A tile is a block whose extents are powers of two. Lanes beyond the elements that there are hold
anything; whoever looks at all lanes masks them first. `fills` remembers what the lanes beyond hold,
if that is known, so that nothing is masked twice.
"""

from __future__ import annotations

import keyword
import os
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from pto_wsp.dtypes import DType
from pto_wsp.kernels.tile_bounds import Bounds, Dim
from pto_wsp.kernels.tile_expr import dtype_of, is_tile, tile_type
from pto_wsp.kernels.tile_ir import Op, RefType, Statement, TileKernel, Value, type_text
from pto_wsp.kernels.tile_uses import walk
from pto_wsp.kernels.tile_writer import one_line
from pto_wsp.kernels.triton_code.helpers import HELPER_NAMES
from pto_wsp.kernels.triton_code.literals import beside, typed
from pto_wsp.kernels.triton_code.options import ParamFacts, TritonOptions

_WORDS = frozenset({*keyword.kwlist, *keyword.softkwlist, *HELPER_NAMES})
_OWN = frozenset({"tl", "triton", "float", "range", "print", "True", "False", "fault"})


class Names:
    """Python names of values: the user's where possible, each used once. The bounds of a tile are
    named after it, so those names are its own too."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._of: dict[int, str] = {}

    def of(self, value: Value) -> str:
        if value.number not in self._of:
            base = value.name or f"v{value.number}"
            tails = ("_rows", "_cols") if is_tile(value) else ()
            self._of[value.number] = self.fresh(base, tails)
        return self._of[value.number]

    def fresh(self, wanted: str, tails: Sequence[str] = ()) -> str:
        base = re.sub(r"[^0-9A-Za-z_]", "_", wanted)
        own = base in _WORDS or base in _OWN or re.fullmatch(r"[rc]\d+", base)
        if own or not base or not base[0].isalpha():
            base = f"x_{base}"
        name, number = base, 1
        while not self._taken.isdisjoint({name, *(name + tail for tail in tails)}):
            number += 1
            name = f"{base}_{number}"
        self._taken.update({name, *(name + tail for tail in tails)})
        return name


Fill = str | None
Fills = tuple[Fill, Fill]
UNKNOWN: Fills = (None, None)


@dataclass(slots=True)
class Scope:
    """What holds from here to the end of the block."""

    texts: dict[int, str] = field(default_factory=dict[int, str])
    fills: dict[int, Fills] = field(default_factory=dict[int, Fills])
    pages: dict[tuple[str, ...], tuple[str, str]] = field(
        default_factory=dict[tuple[str, ...], tuple[str, str]]
    )


@dataclass(slots=True)
class TensorNames:
    """The arguments of a tensor parameter: names, or numbers where they are known."""

    base: str
    extents: list[str]
    strides: list[str]
    table: str = ""
    first: str = ""
    page: str = ""
    page_stride: str = ""
    table_stride: str = ""


class Writer:
    """The source of one kernel as it grows."""

    def __init__(self, kernel: TileKernel, options: TritonOptions, names: Names) -> None:
        self.kernel = kernel
        self.options = options
        self.names = names
        self.bounds = Bounds()
        self.whole: set[str] = set()  # bounds that are those of the type
        self.same: dict[str, str] = {}  # bounds that equal another one
        self.constants: dict[int, float] = {}
        self.definitions: dict[int, Statement] = {}
        self.not_negative: set[int] = set()  # scalars that are at least 0
        self.tensors: dict[int, TensorNames] = {}
        self.faults: list[str] = []
        self.helpers: set[str] = set()
        self.scope = Scope()
        self._least_blocks = _least_blocks(kernel)
        self._lanes: set[str] = set()
        self._lines: list[str] = []
        self._depth = 1

    # --- lines ---

    def line(self, text: str, stmt: Statement | None = None, types: str = "") -> None:
        where = "" if stmt is None else self.where(stmt)
        comment = " ".join(part for part in (types, where) if part)
        self._lines.append("    " * self._depth + text + (f"  # {comment}" if comment else ""))

    def where(self, stmt: Statement) -> str:
        if stmt.loc is None:
            return ""
        return f"{one_line(os.path.basename(stmt.loc.file))}:{stmt.loc.line}"

    @contextmanager
    def inside(self) -> Generator[None, None, None]:
        """A block: indented, and what is learnt in it is forgotten behind it."""
        outer = self.scope
        self.scope = Scope(dict(outer.texts), dict(outer.fills))
        self._depth += 1
        yield
        self._depth -= 1
        self.scope = outer

    @property
    def lines(self) -> list[str]:
        return self._lines

    def lane_lines(self) -> list[str]:
        """The numbers of rows and columns that the source speaks of."""
        found: list[str] = []
        for name in sorted(self._lanes, key=lambda n: (n[0], int(n[1:]))):
            spread = "[:, None]" if name[0] == "r" else "[None, :]"
            found.append(f"    {name} = tl.arange(0, {name[1:]}){spread}")
        return found

    def helper(self, name: str) -> str:
        self.helpers.add(name)
        return name

    # --- blocks ---

    def block(self, size: int) -> int:
        """The extent of the block that holds so many elements."""
        return max(1 << (size - 1).bit_length(), self._least_blocks.get(size, 1))

    def blocks(self, value: Value) -> tuple[int, int]:
        rows, cols = tile_type(value).shape
        return self.block(rows), self.block(cols)

    def shape(self, value: Value) -> str:
        rows, cols = self.blocks(value)
        return f"[{rows}, {cols}]"

    def lane(self, axis: int, size: int) -> str:
        """The number of each row (axis 0) or column of a block; 0 where there is one."""
        block = self.block(size)
        if block == 1:
            return "0"
        name = f"{'rc'[axis]}{block}"
        self._lanes.add(name)
        return name

    # --- values ---

    def facts(self, param: Value) -> ParamFacts:
        return self.options.params.get(param.name, ParamFacts())

    def ref(self, param: Value) -> RefType:
        assert isinstance(param.type, RefType)
        return param.type

    def text(self, value: Value) -> str:
        """A value as an operand beside others of its dtype: a constant is a plain number."""
        if value.number in self.constants:
            return beside(self.constants[value.number], dtype_of(value))
        return self.scope.texts[value.number]

    def tensor(self, value: Value) -> str:
        """A value that has its dtype wherever it stands."""
        if value.number in self.constants:
            return typed(self.constants[value.number], dtype_of(value))
        return self.scope.texts[value.number]

    def define(self, value: Value, text: str, stmt: Statement, fills: Fills = UNKNOWN) -> None:
        """A line that gives a value its name."""
        name = self.names.of(value)
        self.line(f"{name} = {text}", stmt, type_text(value.type) if is_tile(value) else "")
        self.bind(value, name, fills)

    def bind(self, value: Value, text: str, fills: Fills = UNKNOWN) -> None:
        self.scope.texts[value.number] = text
        self.scope.fills[value.number] = fills

    def is_constant(self, value: Value) -> bool:
        return value.number in self.constants

    def constant(self, value: Value) -> int | None:
        found = self.constants.get(value.number)
        return found if isinstance(found, int) else None

    # --- bounds ---

    def dims(self, value: Value) -> tuple[Dim, Dim]:
        rows, cols = self.bounds.dims(value)
        return self.kept(rows), self.kept(cols)

    def kept(self, dim: Dim) -> Dim:
        """The bounds that have a name in the source."""
        return frozenset(self.same.get(name, name) for name in dim - self.whole) - self.whole

    def least(self, dim: Dim, size: int) -> str:
        """How many there are: a number, a named bound, or the least of several."""
        names = sorted(self.kept(dim))
        if not names:
            return str(size)
        text = names[0]
        for name in names[1:]:
            text = f"tl.minimum({text}, {name})"
        return text

    def extent(self, value: Value, axis: int) -> str:
        return self.least(self.dims(value)[axis], tile_type(value).shape[axis])

    def has_outside(self, dim: Dim, size: int) -> bool:
        """Whether a block may have lanes without elements."""
        return bool(self.kept(dim)) or self.block(size) != size

    def inside_text(self, axis: int, dim: Dim, size: int) -> str | None:
        """The mask of lanes that have elements; None if all have."""
        if not self.has_outside(dim, size):
            return None
        return f"({self.lane(axis, size)} < {self.least(dim, size)})"

    def mask(self, value: Value, axes: Sequence[int] = (0, 1)) -> str | None:
        kind = tile_type(value)
        parts = [self.inside_text(axis, self.dims(value)[axis], kind.shape[axis]) for axis in axes]
        return both(parts)

    def filled(self, value: Value, fill: str, axes: Sequence[int], dims: dict[int, Dim]) -> str:
        """The name of a tile whose lanes beyond `dims` hold `fill`, a number as it is spelled."""
        kind, own = tile_type(value), self.dims(value)
        fills = self.scope.fills.get(value.number, UNKNOWN)
        missing: list[int] = []
        for axis in axes:
            dim = self.kept(dims.get(axis, own[axis]))
            known = fills[axis] == fill and dim == own[axis]
            if self.has_outside(dim, kind.shape[axis]) and not known:
                missing.append(axis)
        if not missing:
            return self.text(value)
        parts = [
            self.inside_text(axis, dims.get(axis, own[axis]), kind.shape[axis]) for axis in missing
        ]
        name = self.names.fresh(f"{self.names.of(value)}_in")
        other = f"tl.full([], {fill}, tl.float32).to(tl.bfloat16)"
        other = other if kind.dtype is DType.BF16 else fill
        self.line(f"{name} = tl.where({both(parts)}, {self.text(value)}, {other})")
        if all(self.kept(dims.get(axis, own[axis])) == own[axis] for axis in missing):
            after = [fill if axis in missing or fills[axis] == fill else None for axis in (0, 1)]
            self.bind(value, name, (after[0], after[1]))
        return name

    # --- faults ---

    def fault(self, bad: str, message: str, stmt: Statement) -> None:
        """The task fails where `bad` holds; what follows still touches no memory but its own."""
        if not self.options.faults:
            return
        where = self.where(stmt)
        self.faults.append(f"{message} ({where})" if where else message)
        self.line(f"{self.helper('fault_if')}(fault, {bad}, {len(self.faults)})", stmt)


def both(parts: Sequence[str | None]) -> str | None:
    """Conditions that all have to hold."""
    given = [part for part in parts if part is not None]
    return " & ".join(given) if given else None


def statements(kernel: TileKernel) -> Iterator[Statement]:
    return walk(kernel.body)


DOT_DTYPES = frozenset({DType.F64, DType.F32, DType.F16, DType.BF16, DType.I8})


def is_dot(stmt: Statement) -> bool:
    """Whether a product is one of the matrix units: no side is a single row or column."""
    if stmt.op not in (Op.MATMUL, Op.MATMUL_ACC):
        return False
    a, b = (tile_type(operand) for operand in stmt.operands[-2:])
    return a.dtype in DOT_DTYPES and min(a.rows, a.cols, b.cols) > 1


def _least_blocks(kernel: TileKernel) -> dict[int, int]:
    """Matrix units take blocks of at least 16; of bytes, 32 inner elements."""
    found: dict[int, int] = {}
    for stmt in statements(kernel):
        if is_dot(stmt):
            a, b = (tile_type(operand) for operand in stmt.operands[-2:])
            inner = 32 if a.dtype.size == 1 else 16
            for size, least in ((a.rows, 16), (b.cols, 16), (a.cols, inner)):
                found[size] = max(found.get(size, 1), least)
    return found


def with_known_extents(kernel: TileKernel, options: TritonOptions) -> TileKernel:
    """Extents that are known become constants, so that what is computed from them is known too."""

    def body(given: Sequence[Statement]) -> tuple[Statement, ...]:
        return tuple(one(stmt) for stmt in given)

    def one(stmt: Statement) -> Statement:
        if stmt.blocks:
            blocks = (replace(block, body=body(block.body)) for block in stmt.blocks)
            return replace(stmt, blocks=tuple(blocks))
        if stmt.op is not Op.EXTENT:
            return stmt
        dim = stmt.attribute("dim")
        assert isinstance(dim, int)
        facts = options.params.get(stmt.operands[0].name)
        extent = None if facts is None else facts.extent(dim)
        if extent is None:
            return stmt
        known = (("dtype", "i64"), ("value", extent))
        return Statement(Op.CONST, stmt.results, (), known, (), stmt.loc)

    return replace(kernel, body=body(kernel.body))
