"""Tile kernels as C++ over core/tile/.

The source of a kernel is a function template over one flag: whether all regions are whole. With it,
every extent is a constant. `body` asks the views and calls one of the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.kernels.tile_control import Control
from pto_wsp.kernels.tile_expr import HALVES, TYPES, is_tile, tile_type
from pto_wsp.kernels.tile_ir import Op, RefType, ScalarType, Statement, TileKernel, Value
from pto_wsp.kernels.tile_moves import (
    emit_move,
    emit_paged_load,
    emit_paged_store,
    emit_products,
)
from pto_wsp.kernels.tile_next import Group, find_groups
from pto_wsp.kernels.tile_passes import RowGroup, StoreTarget, is_row_wise
from pto_wsp.kernels.tile_rows import emit_rows
from pto_wsp.kernels.tile_uses import is_pure_scalar, walk
from pto_wsp.kernels.tile_windows import (
    Region,
    address,
    check_offsets,
    declare_bounds,
    emit_scalar,
    emit_window,
    fixed_lines,
    load_names,
    region_of,
    scan_scope,
    store_dims,
    unit_conditions,
)
from pto_wsp.kernels.tile_writer import Place, Writer, one_line
from pto_wsp.plan import AccessMode

MAX_SCRATCH = 1 << 30  # bytes of tiles; far more than any cache
# Headers of core/tile/: those of every kernel, and those that only some need. Products and sorting
# take long to compile.
_HEADERS = ("map.h", "reduce.h", "move.h")
PRODUCT_HEADER = "product.h"
_HEADER_OF = {
    Op.MATMUL: PRODUCT_HEADER,
    Op.MATMUL_ACC: PRODUCT_HEADER,
    Op.TOPK: "sort.h",
    Op.SORT: "sort.h",
}
_PAGED_HEADER = "paged.h"
_SHARING_HEADER = "share.h"
_USING = ("using namespace ptowsp::tile;", "using ptowsp::bf16;", "using ptowsp::f16;")
_SCRATCH = "[[maybe_unused]] std::byte* scratch"


@dataclass(frozen=True, slots=True)
class TileSource:
    """C++ that defines `body(<parameters>, std::byte* scratch)` and kScratchBytes, for a namespace
    of its own, and the headers of core/tile/ that it needs. `scratch_bytes` are those of its tiles;
    products and sorting may need more."""

    text: str
    scratch_bytes: int
    headers: tuple[str, ...]


def emit_tile(kernel: TileKernel, shared: frozenset[int] = frozenset()) -> TileSource:
    """`shared` are the numbers of parameters that may lie in the same memory. Then there is another
    version, which keeps the order of loads and stores, for the calls where they do."""
    plain = _Emitter(kernel, frozenset())
    source = plain.emit()
    pairs = plain.sharing_pairs(shared)
    if not pairs:
        return source
    other = _Emitter(kernel, shared).emit()
    lines = [*_USING]
    for name, text in (("apart", source.text), ("sharing", other.text)):
        lines += [f"namespace {name} {{", text, f"}}  // namespace {name}"]
    declared, names = plain.signature()
    arguments = ", ".join([*names, "scratch"])
    lines.append("constexpr auto kScratchBytes =")
    lines.append("    std::max(apart::kScratchBytes, sharing::kScratchBytes);")
    lines.append(f"inline void body({', '.join([*declared, _SCRATCH])}) {{")
    asked = " || ".join(f"may_share({a}, {b})" for a, b in pairs)
    lines.append(f"  if ({asked}) {{")
    lines.append(f"    sharing::body({arguments});")
    lines.append("  } else {")
    lines.append(f"    apart::body({arguments});")
    lines += ["  }", "}"]
    most = max(source.scratch_bytes, other.scratch_bytes)
    return TileSource("\n".join(lines) + "\n", most, (*source.headers, _SHARING_HEADER))


@dataclass(slots=True)
class _Open:
    """The group that is being collected, and what its store windows need."""

    group: RowGroup
    stored: set[int] = field(default_factory=set[int])


class _Emitter:
    def __init__(self, kernel: TileKernel, shared: frozenset[int]) -> None:
        self._kernel = kernel
        self._w = Writer(kernel, shared)
        self._control = Control(self._w, self._body, self._write)
        self._open: _Open | None = None
        self._decided: set[int] = set()

    def signature(self) -> tuple[list[str], list[str]]:
        """Declarations of the parameters, and their names."""
        names = [self._w.names.of(param) for param in self._kernel.params]
        declared = [
            f"[[maybe_unused]] {_cpp_param(param)} {name}"
            for param, name in zip(self._kernel.params, names, strict=True)
        ]
        return declared, names

    def sharing_pairs(self, shared: frozenset[int]) -> list[tuple[str, str]]:
        """The names of two such parameters each, of which the kernel writes one."""
        names, stored = self._w.names, self._w.uses.stored
        params = [param for param in self._kernel.params if param.number in shared]
        return [
            (names.of(a), names.of(b))
            for a, b in combinations(params, 2)
            if a.number in stored or b.number in stored
        ]

    def emit(self) -> TileSource:
        w, kernel = self._w, self._kernel
        scope = scan_scope(w, kernel.body, 0)
        with w.captured() as inside:
            self._body(kernel.body, scope.decided)
        scratch_bytes = w.scratch.place()
        if scratch_bytes > MAX_SCRATCH:
            raise _too_large(kernel, scratch_bytes)
        declared, names = self.signature()
        lines = [*_USING, ""]
        lines.append(f"constexpr i64 kTileBytes = {scratch_bytes};")
        lines.append(f"constexpr i64 kScratchBytes = kTileBytes + {_most(w.scratch.spares)};")
        lines.append("")
        lines.append(f"// {_title(kernel)}")
        lines.append("template <bool Whole>")
        lines.append(f"void tiles({', '.join([*declared, _SCRATCH])}) {{")
        fixed, fits = fixed_lines(w)
        lines += [*fixed, *w.scratch.resolve("\n".join(inside)).split("\n")]
        lines += ["}", ""]
        lines.append("// Whether all regions are whole, and their columns adjacent.")
        lines.append(f"inline bool is_whole({', '.join(declared)}) {{")
        with w.captured() as checks:
            for stmt in scope.scalars:
                emit_scalar(w, stmt)
        conditions = [*unit_conditions(w, kernel.body), *fits, *scope.conditions]
        lines += checks
        lines.append(f"  return {' && '.join(conditions) or 'true'};")
        lines += ["}", ""]
        lines.append(f"inline void body({', '.join([*declared, _SCRATCH])}) {{")
        arguments = ", ".join([*names, "scratch"])
        lines.append(f"  if (is_whole({', '.join(names)})) {{")
        lines.append(f"    tiles<true>({arguments});")
        lines.append("  } else {")
        lines.append(f"    tiles<false>({arguments});")
        lines += ["  }", "}"]
        return TileSource("\n".join(lines) + "\n", scratch_bytes, _headers(kernel))

    # --- statements ---

    def _body(self, body: Sequence[Statement], decided: set[int]) -> None:
        outer, self._decided = self._decided, self._decided | decided
        together = {id(group[0]): group for group in find_groups(self._w, body)}
        written: set[int] = set()
        last = -1
        for last, stmt in enumerate(body):
            if id(stmt) in together:
                group = together[id(stmt)]
                end = self._w.uses.position[id(group[-1])]
                self._products(group, body[last:end], last)
                written.update(map(id, body[last : end + 1]))
            elif id(stmt) not in written:
                self._statement(stmt, last)
        self._flush(last)
        self._decided = outer

    def _products(self, group: Group, body: Sequence[Statement], position: int) -> None:
        """Products that are computed together, behind what stands between them."""
        w, products = self._w, {id(stmt) for stmt in group}
        self._flush(position - 1)  # what it leaves behind is read by all of them
        for number, stmt in enumerate(body, position):
            if id(stmt) not in products:
                self._statement(stmt, number)
        w.fence()
        emit_products(w, group)
        w.fence()
        w.scratch.now += 1

    def _statement(self, stmt: Statement, position: int) -> None:
        w = self._w
        if is_pure_scalar(stmt):
            if id(stmt) not in w.declared:
                emit_scalar(w, stmt)
        elif stmt.op is Op.LOAD:
            self._load(stmt, position)
        elif stmt.op is Op.STORE:
            self._store(stmt, position)
        elif stmt.results and stmt.results[0].number in w.uses.floating:
            self._floating(stmt, position)
        elif stmt.results and stmt.results[0].number in w.uses.views:
            pass  # read where its operand lies
        elif is_row_wise(stmt):
            self._join(stmt, position)
        else:
            self._flush(position - 1)
            if stmt.op in (Op.FOR, Op.WHEN):
                self._control.emit(stmt)
            else:
                w.fence()
                emit_move(w, stmt)
                w.fence()
            w.scratch.now += 1

    def _join(self, stmt: Statement, position: int) -> None:
        result = stmt.results[0]
        rows, dim = tile_type(result).rows, self._w.bounds.dims(result)[0]
        group = self._group(rows, dim, position)
        group.statements.append(stmt)

    def _group(self, rows: int, dim: frozenset[str], position: int) -> RowGroup:
        if self._open is not None:
            group = self._open.group
            if (group.rows, group.dim) == (rows, dim):
                return group
            self._flush(position - 1)
        self._open = _Open(RowGroup(rows, dim))
        return self._open.group

    def _flush(self, last: int) -> None:
        if self._open is not None:
            group, self._open = self._open.group, None
            self._w.fence()
            emit_rows(self._w, group, last)
            self._w.fence()
            self._w.scratch.now += 1

    def _floating(self, stmt: Statement, position: int) -> None:
        """Computed where it is used; but some users need memory."""
        w, value = self._w, stmt.results[0]
        if any(
            isinstance(user, Statement) and self._reads_memory(user) for user in w.uses.of(value)
        ):
            self._flush(position - 1)
            self._write(value, w.new_tile(value))

    def _reads_memory(self, user: Statement) -> bool:
        """Whether a statement needs its operands in memory, all of their elements."""
        if user.op is Op.STORE:
            return region_of(user).ref.paged
        if user.op is Op.FOR or is_row_wise(user):
            return False
        return not user.results or user.results[0].number not in self._w.uses.floating

    def _write(self, value: Value, place: Place) -> None:
        """Puts a value into a place."""
        w = self._w
        if place.slot is not None:
            w.scratch.touch(place.slot)
        if value.number in w.uses.floating:
            kind = tile_type(value)
            group = RowGroup(kind.rows, w.bounds.dims(value)[0], targets=[(value, place)])
            emit_rows(w, group, -1)
        else:
            w.line(f"TSTORE({place.text}, {w.place(value).text});")

    # --- loads and stores ---

    def _load(self, stmt: Statement, position: int) -> None:
        w, region, value = self._w, region_of(stmt), stmt.results[0]
        copied = w.uses.changes(region.param)
        if copied or region.ref.paged:
            self._flush(position - 1)
        check_offsets(w, stmt, region)
        if not is_tile(value):
            text = self._element(region)
            w.fence()
            w.line(f"const auto {w.names.of(value)} = scalar_of({text});", stmt)
            w.fence()
            return
        declare_bounds(w, region, load_names(w, value), id(stmt) in self._decided)
        if region.ref.paged:
            w.fence()
            emit_paged_load(w, stmt, region, copied)
            w.fence()
            w.scratch.now += 1
            return
        window = w.names.fresh(f"{w.names.of(value)}_tile")
        emit_window(w, region, window, w.rows(value), w.cols(value), stmt)
        w.places[value.number] = Place(window)
        if copied or self._needs_copy(value):
            self._flush(position - 1)
            place = w.new_tile(value)
            w.fence()
            w.line(f"TLOAD({place.text}, {window});")
            w.fence()
            w.scratch.now += 1

    def _needs_copy(self, value: Value) -> bool:
        """Sorting wants rows without gaps."""
        users = self._w.uses.of(value)
        return any(isinstance(u, Statement) and u.op in (Op.TOPK, Op.SORT) for u in users)

    def _element(self, region: Region) -> str:
        w = self._w
        if region.ref.paged:
            indices = ", ".join(w.scalar(v) for v in region.offsets)
            return f"{w.names.of(region.param)}({indices})"
        return f"*({address(w, region)})"

    def _store(self, stmt: Statement, position: int) -> None:
        w, region, value = self._w, region_of(stmt), stmt.operands[1]
        if self._open is not None and not w.uses.sharers(region.param).isdisjoint(
            self._open.stored
        ):
            self._flush(position - 1)  # which of two stores comes last may matter
        check_offsets(w, stmt, region)
        if not any(region.sizes) and not is_tile(value):
            self._flush(position - 1)
            element = TYPES[region.ref.dtype]
            w.line(f"{self._element(region)} = static_cast<{element}>({w.scalar(value)});", stmt)
            return
        base = w.names.fresh(f"{w.names.of(region.param)}_store")
        names, dims = store_dims(w, region, base)
        declare_bounds(w, region, names, id(stmt) in self._decided)
        if is_tile(value):
            own = w.bounds.dims(value)
            dims = dims[0] | own[0], dims[1] | own[1]
        rows, cols = (w.bound(dims[axis], region.shape[axis]) for axis in (0, 1))
        if region.ref.paged:
            self._flush(position - 1)
            emit_paged_store(w, stmt, region, (rows, cols))
            return
        emit_window(w, region, base, rows, cols, stmt)
        group_dim = w.bounds.dims(value)[0] if is_tile(value) else dims[0]
        if is_tile(value) and value.number in w.uses.floating:
            group_dim = dims[0]
        if (
            self._open is not None
            and self._open.group.dim <= dims[0]
            and (self._open.group.rows == region.shape[0])
        ):
            group_dim = self._open.group.dim
        group = self._group(region.shape[0], group_dim, position)
        group.stores.append(StoreTarget(stmt, base, dims, region.shape))
        assert self._open is not None
        self._open.stored.add(region.param.number)


def _headers(kernel: TileKernel) -> tuple[str, ...]:
    more = [_HEADER_OF[stmt.op] for stmt in walk(kernel.body) if stmt.op in _HEADER_OF]
    if any(isinstance(param.type, RefType) and param.type.paged for param in kernel.params):
        more.append(_PAGED_HEADER)
    return (*_HEADERS, *sorted(set(more)))


def _too_large(kernel: TileKernel, scratch_bytes: int) -> CompileError:
    return CompileError(
        Code.TILE_SHAPE,
        f"kernel {kernel.name} needs {scratch_bytes >> 20} MiB for its tiles",
        loc=kernel.loc,
        why=f"each worker keeps them in memory of its own, at most {MAX_SCRATCH >> 20} MiB",
        fix="use smaller tiles, and more tasks or a loop over parts: pto.for_range",
    )


def _most(sizes: list[str]) -> str:
    return f"std::max({{i64{{0}}, {', '.join(sizes)}}})" if sizes else "0"


def _cpp_param(param: Value) -> str:
    kind = param.type
    if isinstance(kind, ScalarType):
        return "float" if kind.dtype in HALVES else TYPES[kind.dtype]
    assert isinstance(kind, RefType)
    const = "const " if kind.mode is AccessMode.IN else ""
    view = "PagedView" if kind.paged else "View"
    return f"ptowsp::{view}<{const}{TYPES[kind.dtype]}, {kind.rank}>"


def _title(kernel: TileKernel) -> str:
    params = [_param_text(param) for param in kernel.params]
    return f"{one_line(kernel.name)}({', '.join(params)})"


def _param_text(param: Value) -> str:
    kind = param.type
    if isinstance(kind, RefType):
        sizes = ", ".join(map(str, kind.tile)) if kind.tile else ", ".join([":"] * kind.rank)
        return f"{param.name}: {kind.mode.name.lower()} {kind.dtype.text}[{sizes}]"
    return f"{param.name}: {kind.dtype.text}"
