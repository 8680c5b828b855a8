"""Regions of parameters in the source of a tile kernel: windows, their bounds, and the question
whether all of them are whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pto_wsp.kernels.tile_bounds import WORDS, Dim, FixedBound, kept_dims
from pto_wsp.kernels.tile_expr import TYPES, expression, scalar_type
from pto_wsp.kernels.tile_ir import Op, RefType, Statement, Value
from pto_wsp.kernels.tile_uses import is_pure_scalar
from pto_wsp.kernels.tile_writer import TOP_FLAG, Writer
from pto_wsp.plan import AccessMode


@dataclass(slots=True)
class Region:
    """What a load or store names: the parameter, an offset per dimension, and the dimensions that
    are the rows and columns of the tile; -1 if there is none."""

    param: Value
    offsets: tuple[Value, ...]
    sizes: tuple[int, ...]
    row_dim: int
    col_dim: int

    @property
    def ref(self) -> RefType:
        assert isinstance(self.param.type, RefType)
        return self.param.type

    @property
    def shape(self) -> tuple[int, int]:
        rows = 1 if self.row_dim < 0 else self.sizes[self.row_dim]
        return rows, 1 if self.col_dim < 0 else self.sizes[self.col_dim]

    def dim(self, axis: int) -> int:
        return self.col_dim if axis else self.row_dim


def region_of(stmt: Statement) -> Region:
    first = 1 if stmt.op is Op.LOAD else 2
    sizes = stmt.attribute("sizes")
    assert isinstance(sizes, tuple)
    return Region(stmt.operands[0], stmt.operands[first:], sizes, *kept_dims(sizes))


@dataclass(slots=True)
class Scope:
    """What makes the tiles of a loop body, or of the kernel, whole: conditions on scalars, and the
    scalar statements that these need. `decided` are the loads and stores they are about."""

    conditions: list[str] = field(default_factory=list[str])
    scalars: list[Statement] = field(default_factory=list[Statement])
    decided: set[int] = field(default_factory=set[int])


def scan_scope(w: Writer, body: Sequence[Statement], block: int) -> Scope:
    """The loads and stores of a block, branches included, whose offsets are known before it."""
    scope = Scope()
    needed: dict[int, Statement] = {}
    for stmt in _accesses(body):
        region = region_of(stmt)
        cone: dict[int, Statement] = {}
        if not all(_is_known(w, offset, block, cone) for offset in region.offsets):
            continue
        scope.decided.add(id(stmt))
        needed |= cone
        for axis in (0, 1):
            dim = region.dim(axis)
            least = 0 if stmt.op is Op.STORE else 1
            if dim >= 0 and region.sizes[dim] > least and fixed_bound(w, region, dim) is None:
                scope.conditions.append(_fits(w, region, dim))
    scope.conditions = list(dict.fromkeys(scope.conditions))
    scope.scalars = [stmt for stmt in body if id(stmt) in needed]
    return scope


def _accesses(body: Sequence[Statement]) -> list[Statement]:
    found: list[Statement] = []
    for stmt in body:
        if stmt.op in (Op.LOAD, Op.STORE):
            found.append(stmt)
        if stmt.op is Op.WHEN:
            for block in stmt.blocks:
                found += _accesses(block.body)
    return found


def _is_known(w: Writer, value: Value, block: int, cone: dict[int, Statement]) -> bool:
    home = w.uses.home[value.number]
    made = w.uses.definitions.get(value.number)
    if home != block:
        # Outside: known, unless it is of an inner block, or the kernel itself asks.
        return block != 0 and home not in _inner_blocks(w, block)
    if made is None:
        return True  # a parameter of the block
    if not is_pure_scalar(made):
        return False
    cone[id(made)] = made
    return made.op is Op.EXTENT or all(_is_known(w, v, block, cone) for v in made.operands)


def _inner_blocks(w: Writer, block: int) -> set[int]:
    """The blocks inside of a block, by id."""
    inner: set[int] = set()
    for number, owner in w.uses.parents.items():
        at = owner
        while at != 0 and at != block:
            at = w.uses.parents.get(at, 0)
        if at == block:
            inner.add(number)
    return inner


def _fits(w: Writer, region: Region, dim: int) -> str:
    offset, size = plain(w.scalar(region.offsets[dim])), region.sizes[dim]
    return f"{offset} + {size} <= {w.names.of(region.param)}.shape({dim})"


def fixed_bound(w: Writer, region: Region, dim: int) -> str | None:
    """The name of a bound that is known from the start."""
    text = w.scalar(region.offsets[dim])
    if not text.startswith("i64{") or text.startswith("i64{-"):
        return None
    key = FixedBound(region.param, dim, int(text[4:-1]), region.sizes[dim])
    return w.bounds.fixed.get(key)


def plain(text: str) -> str:
    """A constant index without its type, where the type does not matter."""
    return text[4:-1] if text.startswith("i64{") else text


def fixed_lines(w: Writer) -> tuple[list[str], list[str]]:
    """Definitions of the bounds at constant offsets, and what makes all of them whole."""
    lines: list[str] = []
    conditions: list[str] = []
    for key, name in w.bounds.fixed.items():
        room = f"{w.names.of(key.param)}.shape({key.dim})"
        less = f" - {key.offset}" if key.offset else ""
        unused = "[[maybe_unused]] "
        lines.append(f"  {unused}const auto {name} = bound<{TOP_FLAG}, {key.size}>({room}{less});")
        conditions.append(f"{room} >= {key.offset + key.size}")
    return lines, conditions


def unit_conditions(w: Writer, body: Sequence[Statement]) -> list[str]:
    """That the columns of all windows lie next to each other."""
    found: list[str] = []
    for stmt in body:
        if stmt.op in (Op.LOAD, Op.STORE):
            region = region_of(stmt)
            if region.shape[1] > 1 and not region.ref.paged:
                found.append(f"{w.names.of(region.param)}.stride({region.col_dim}) == 1")
        for block in stmt.blocks:
            found += unit_conditions(w, block.body)
    return list(dict.fromkeys(found))


def emit_scalar(w: Writer, stmt: Statement) -> None:
    """A scalar from scalars; constants stand where they are used."""
    if stmt.op is Op.CONST:
        return
    result = stmt.results[0]
    w.line(
        f"const {scalar_type(result.type.dtype)} {w.names.of(result)} = {scalar_text(w, stmt)};",
        stmt,
    )


def scalar_text(w: Writer, stmt: Statement) -> str:
    if stmt.op is Op.EXTENT:
        return f"{w.names.of(stmt.operands[0])}.shape({stmt.attribute('dim')})"
    return expression(stmt, [w.scalar(v) for v in stmt.operands], is_vector=False)


def check_offsets(w: Writer, stmt: Statement, region: Region) -> None:
    """The task fails on offsets that make no sense."""
    name = w.names.of(region.param)
    what = f"{stmt.op.value} of {region.param.name or name}"
    where = f"{what}, {w.where(stmt)}" if stmt.loc is not None else what
    for dim, (offset, size) in enumerate(zip(region.offsets, region.sizes, strict=True)):
        text = w.scalar(offset)
        is_known = text.startswith("i64{") and not text.startswith("i64{-")
        extent = f"{name}.shape({dim})"
        if size == 0 or (size == 1 and stmt.op is Op.LOAD):
            w.line(f'need_index({plain(text)}, {extent}, {extent}, {dim}, "{where}");')
        elif not is_known:
            highest = "std::numeric_limits<i64>::max()"
            w.line(f'need_index({plain(text)}, {highest}, {extent}, {dim}, "{where}");')


def declare_bounds(
    w: Writer, region: Region, names: tuple[str | None, str | None], decided: bool
) -> None:
    """Named bounds of a region: how much of it lies inside of the parameter."""
    for axis in (0, 1):
        name, dim = names[axis], region.dim(axis)
        if name is None or name in w.bounds.fixed.values():
            continue
        flag = w.flag if decided else "false"
        room = f"{w.names.of(region.param)}.shape({dim}) - {w.scalar(region.offsets[dim])}"
        w.line(f"const auto {name} = bound<{flag}, {region.sizes[dim]}>({room});")


def address(w: Writer, region: Region) -> str:
    """The address of the first element."""
    name = w.names.of(region.param)
    text = f"{name}.data()"
    for dim, offset in enumerate(region.offsets):
        if w.scalar(offset) != "i64{0}":
            text += f" + {plain(w.scalar(offset))} * {name}.stride({dim})"
    return text


def element_type(region: Region) -> str:
    const = "const " if region.ref.mode is AccessMode.IN else ""
    return const + TYPES[region.ref.dtype]


def paged_window(w: Writer, region: Region, what: tuple[Sequence[str], str, str]) -> str:
    """The text of a window of tokens, or of a part of one token: offsets, rows and columns."""
    offsets, rows, cols = what
    name = w.names.of(region.param)
    inside = [
        f"{plain(text)} * {name}.stride({dim})"
        for dim, text in enumerate(offsets)
        if dim > 0 and text != "i64{0}"
    ]
    col_stride = f"{name}.stride({region.col_dim})" if region.col_dim > 0 else "1"
    return (
        f"PagedWindow<{element_type(region)}, {region.ref.rank}>{{{name}, {plain(offsets[0])}, "
        f"{' + '.join(inside) or '0'}, {col_stride}, {rows}, {cols}}}"
    )


def emit_window(
    w: Writer, region: Region, window: str, rows: str, cols: str, stmt: Statement
) -> None:
    """Declares a window: nothing is copied."""
    name = w.names.of(region.param)
    row_stride = f"{name}.stride({region.row_dim})" if region.row_dim >= 0 else "0"
    col_stride = f"{name}.stride({region.col_dim})" if region.col_dim >= 0 else "1"
    unit = TOP_FLAG if region.shape[1] > 1 else "false"
    w.line(
        f"const Window<{element_type(region)}, {unit}> {window}{{{address(w, region)}, "
        f"{row_stride}, {col_stride}, {rows}, {cols}}};",
        stmt,
    )


def store_dims(
    w: Writer, region: Region, base: str
) -> tuple[tuple[str | None, str | None], tuple[Dim, Dim]]:
    """Names for the bounds of a store's window."""
    names: list[str | None] = []
    for axis in (0, 1):
        dim = region.dim(axis)
        if dim < 0:
            names.append(None)
        else:
            names.append(fixed_bound(w, region, dim) or w.names.fresh(f"{base}_{WORDS[axis]}"))
    dims = tuple(frozenset({n}) if n is not None else frozenset[str]() for n in names)
    return (names[0], names[1]), (dims[0], dims[1])


def load_names(w: Writer, value: Value) -> tuple[str | None, str | None]:
    """The names of the bounds of a loaded tile, where it may be partial."""
    rows, cols = (next(iter(dim), None) for dim in w.bounds.dims(value))
    return rows, cols
