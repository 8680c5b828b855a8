"""Tile kernels as Triton: one function of a kernel, as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.kernels.tile_bounds import find_bounds
from pto_wsp.kernels.tile_expr import is_tile
from pto_wsp.kernels.tile_ir import (
    OPS,
    Group,
    Op,
    RefType,
    Statement,
    TileKernel,
    Value,
    simplify,
    type_text,
)
from pto_wsp.kernels.tile_writer import one_line
from pto_wsp.kernels.triton_code import moves, order, tiles
from pto_wsp.kernels.triton_code.control import Control
from pto_wsp.kernels.triton_code.elementwise import emit_elementwise
from pto_wsp.kernels.triton_code.facts import Numbers, find_whole
from pto_wsp.kernels.triton_code.literals import TYPES
from pto_wsp.kernels.triton_code.memory import Memory
from pto_wsp.kernels.triton_code.options import (
    Role,
    TritonArgument,
    TritonOptions,
    TritonSource,
)
from pto_wsp.kernels.triton_code.writer import (
    Names,
    TensorNames,
    Writer,
    statements,
    with_known_extents,
)

MAX_BLOCK = 1 << 20  # elements: what Triton allows


def unsupported_ops() -> list[str]:
    """The operations that have no Triton form, as the text form spells them."""
    return sorted(op.value for op in Op if _writer_of(op) is None)


def emit_triton(kernel: TileKernel, name: str, options: TritonOptions) -> TritonSource:
    """The function `name`, which runs the kernel once. CompileError, at the line of the statement,
    for what Triton cannot do."""
    _check_options(kernel, options)
    options = _with_whole_tiles(kernel, options)
    kernel = simplify(with_known_extents(kernel, options))
    return _Emitter(kernel, name, options).emit()


class _Emitter:
    def __init__(self, kernel: TileKernel, name: str, options: TritonOptions) -> None:
        self._kernel = kernel
        self._name = name
        self._arguments: list[TritonArgument] = []
        self._w = w = Writer(kernel, options, Names())
        for position, param in enumerate(kernel.params):
            self._declare(position, param)
        for value in _values(kernel):
            w.names.of(value)
        w.bounds = find_bounds(kernel, w.names.of, w.names.fresh)
        self._memory = Memory(w)
        self._control = Control(w, self._memory, self._body)

    def emit(self) -> TritonSource:
        w, kernel = self._w, self._kernel
        numbers = Numbers(w)
        numbers.walk(kernel.body)
        find_whole(w, numbers)
        self._prologue()
        self._fixed_bounds()
        before = len(w.lines)
        self._body(kernel.body)
        body = w.lines
        if len(body) == before == 0:
            w.line("pass")
        if w.faults:
            self._argument("fault", Role.FAULT, -1, dtype=DType.I32)
        arguments = ", ".join(argument.name for argument in self._arguments)
        lines = ["@triton.jit", f"def {self._name}({arguments}):"]
        lines += [f"    # {_title(kernel)}", *w.lane_lines(), *body]
        text = "\n".join(lines) + "\n"
        helpers = tuple(sorted(w.helpers))
        return TritonSource(self._name, text, helpers, tuple(self._arguments), tuple(w.faults))

    # --- arguments ---

    def _argument(
        self, name: str, role: Role, param: int, dim: int = -1, dtype: DType | None = None
    ) -> str:
        self._arguments.append(TritonArgument(name, role, param, dim, dtype))
        return name

    def _declare(self, position: int, param: Value) -> None:
        w, name, kind = self._w, self._w.names.of(param), param.type
        if not isinstance(kind, RefType):
            self._argument(name, Role.SCALAR, position, dtype=kind.dtype)
            w.bind(param, name)
            return
        facts = w.facts(param)

        def number(known: int | None, tail: str, role: Role, dim: int = -1) -> str:
            if known is not None:
                return str(known)
            return self._argument(w.names.fresh(f"{name}_{tail}"), role, position, dim)

        self._argument(name, Role.POINTER, position, dtype=kind.dtype)
        number(None, "off", Role.OFFSET)
        extents = [
            self._extent_of(facts.same_extent(d))
            or number(facts.extent(d), f"n{d}", Role.EXTENT, d)
            for d in range(kind.rank)
        ]
        strides = [number(facts.stride(d), f"s{d}", Role.STRIDE, d) for d in range(kind.rank)]
        w.tensors[param.number] = names = TensorNames(w.names.fresh(f"{name}_at"), extents, strides)
        other = self._tensor_of(facts.pages_of) if kind.paged and facts.pages_of else None
        if other is not None:
            names.table, names.first, names.page = other.table, other.first, other.page
            names.table_stride = other.table_stride
            names.page_stride = number(facts.page_stride, "page_step", Role.PAGE_STRIDE)
        elif kind.paged:
            self._argument(w.names.fresh(f"{name}_table"), Role.TABLE, position, dtype=None)
            number(None, "row", Role.TABLE_OFFSET)
            names.table = w.names.fresh(f"{name}_pages")
            names.table_stride = number(facts.table_stride, "table_step", Role.TABLE_STRIDE)
            names.first = number(None, "first", Role.FIRST)
            names.page = number(facts.page, "page_size", Role.PAGE)
            names.page_stride = number(facts.page_stride, "page_step", Role.PAGE_STRIDE)

    def _extent_of(self, other: tuple[str, int] | None) -> str | None:
        """The extent of a parameter that was declared before."""
        return None if other is None else self._tensor_of(other[0]).extents[other[1]]

    def _tensor_of(self, name: str) -> TensorNames:
        """The arguments of a parameter that was declared before."""
        found = (p for p in self._kernel.params if p.name == name)
        return self._w.tensors[next(found).number]

    def _prologue(self) -> None:
        """Where regions begin; scalars in their dtype."""
        w = self._w
        by_role = {(a.param, a.role): a.name for a in self._arguments}
        for position, param in enumerate(self._kernel.params):
            if not isinstance(param.type, RefType):
                self._scalar_argument(param)
                continue
            names, aligned = w.tensors[param.number], w.facts(param).aligned
            offset = by_role[position, Role.OFFSET]
            if aligned > 1:
                offset = f"tl.multiple_of({offset}, {aligned})"
                for text in names.strides[:-1]:
                    if not text.isdigit():
                        w.line(f"{text} = tl.multiple_of({text}, {aligned})")
            w.line(f"{names.base} = {by_role[position, Role.POINTER]} + {offset}")
            if (position, Role.TABLE) in by_role:
                row = by_role[position, Role.TABLE_OFFSET]
                w.line(f"{names.table} = {by_role[position, Role.TABLE]} + {row}")

    def _scalar_argument(self, param: Value) -> None:
        name, dtype = self._w.text(param), param.type.dtype
        if dtype is DType.BOOL:
            self._w.line(f"{name} = {name} != 0")
        else:
            self._w.line(f"{name} = tl.cast({name}, {TYPES[dtype]})")

    def _fixed_bounds(self) -> None:
        """Bounds that are the same wherever they are asked for."""
        w = self._w
        for key, name in w.bounds.fixed.items():
            if name in w.whole or w.same.get(name, name) != name:
                continue
            extent = w.tensors[key.param.number].extents[key.dim]
            room = extent if key.offset == 0 else f"{extent} - {key.offset}"
            if extent.isdigit():
                known = max(0, min(int(extent) - key.offset, key.size))
                w.line(f"{name} = tl.full([], {known}, tl.int32)")
            else:
                w.line(f"{name} = {w.helper('within')}({room}, {key.size})")

    # --- statements ---

    def _body(self, body: Sequence[Statement]) -> None:
        for stmt in body:
            self._statement(stmt)

    def _statement(self, stmt: Statement) -> None:
        for result in stmt.results:
            self._check_block(stmt, result)
        own: dict[Op, Callable[[Statement], None]] = {
            Op.LOAD: self._memory.load,
            Op.STORE: self._memory.store,
            Op.SCATTER: self._memory.scatter,
            Op.EXTENT: self._extent,
            Op.GATHER: self._gather,
            Op.FOR: self._control.emit,
            Op.WHEN: self._control.emit,
        }
        write = _writer_of(stmt.op)
        if write is None:
            raise _unsupported(stmt)
        if stmt.op in own:
            own[stmt.op](stmt)
        else:
            write(self._w, stmt)

    def _check_block(self, stmt: Statement, result: Value) -> None:
        rows, cols = self._w.blocks(result) if is_tile(result) else (1, 1)
        if rows * cols > MAX_BLOCK:
            raise CompileError(
                Code.TILE_SHAPE,
                f"{stmt.op.value}: a tile of {type_text(result.type)} is too large for a GPU",
                loc=stmt.loc,
                why=f"it is a block of {rows} by {cols}, and Triton takes {MAX_BLOCK} elements",
                fix="use smaller tiles, and more tasks or a loop over parts: pto.for_range",
            )

    def _extent(self, stmt: Statement) -> None:
        w, dim = self._w, stmt.attribute("dim")
        assert isinstance(dim, int)
        extent = w.tensors[stmt.operands[0].number].extents[dim]
        w.define(stmt.results[0], f"tl.cast({extent}, tl.int64)", stmt)

    def _gather(self, stmt: Statement) -> None:
        if is_tile(stmt.operands[0]):
            moves.emit_gather(self._w, stmt)
        else:
            self._memory.gather(stmt)


def _nothing(w: Writer, stmt: Statement) -> None:
    """Constants are written where they are used; the emitter itself knows memory and control."""
    del w, stmt


_Write = Callable[[Writer, Statement], None]
_TILES: dict[Op, _Write] = {
    Op.FULL: tiles.emit_full,
    Op.ARANGE: tiles.emit_arange,
    Op.PAD: tiles.emit_pad,
    Op.TRANSPOSE: tiles.emit_transpose,
    Op.RESHAPE: moves.emit_reshape,
    Op.SLICE: moves.emit_slice,
    Op.CONCAT: moves.emit_concat,
    Op.ITEM: moves.emit_item,
}
_GROUPS: dict[Group, _Write] = {
    Group.CONSTANT: _nothing,
    Group.MEMORY: _nothing,
    Group.CONTROL: _nothing,
    Group.UNARY: emit_elementwise,
    Group.BINARY: emit_elementwise,
    Group.COMPARE: emit_elementwise,
    Group.SELECT: emit_elementwise,
    Group.CAST: emit_elementwise,
    Group.REDUCE: tiles.emit_reduce,
    Group.MATMUL: tiles.emit_product,
    Group.SORT: order.emit_order,
}


def _writer_of(op: Op) -> _Write | None:
    return _TILES.get(op) or _GROUPS.get(OPS[op].group)


def _values(kernel: TileKernel) -> list[Value]:
    found: list[Value] = []
    for stmt in statements(kernel):
        found += [param for block in stmt.blocks for param in block.params]
        found += stmt.results
    return found


def _unsupported(stmt: Statement) -> CompileError:
    return CompileError(
        Code.TILE_ARGUMENT,
        f"{stmt.op.value} has no Triton form",
        loc=stmt.loc,
        why="Triton has nothing that does it",
        fix="compute it another way, or run the kernel on another target",
    )


def _with_whole_tiles(kernel: TileKernel, options: TritonOptions) -> TritonOptions:
    """The extents of whole tiles are known."""
    params = dict(options.params)
    for param in kernel.params:
        facts = params.get(param.name)
        if isinstance(param.type, RefType) and param.type.tile and facts and facts.whole is True:
            given = facts.extents or (None,) * param.type.rank
            pairs = zip(given, param.type.tile, strict=True)
            extents = tuple(size if known is None else known for known, size in pairs)
            params[param.name] = replace(facts, extents=extents)
    return replace(options, params=params)


def _check_options(kernel: TileKernel, options: TritonOptions) -> None:
    tensors = {p.name: p.type for p in kernel.params if isinstance(p.type, RefType)}
    unknown = (set(options.params) | options.shared) - set(tensors)
    if unknown:
        raise ValueError(f"kernel {kernel.name} has no tensor parameter {sorted(unknown)[0]!r}")
    for name, facts in options.params.items():
        kind = tensors[name]
        for given in (facts.extents, facts.strides):
            if len(given) not in (0, kind.rank):
                raise ValueError(f"{name} has {kind.rank} dimensions, not {len(given)}")
        for dim in range(len(facts.extents)):
            _check_same(kernel, name, facts.same_extent(dim))
        if not kind.paged and (facts.page, facts.page_stride, facts.table_stride) != (None,) * 3:
            raise ValueError(f"{name} is not paged")
        if facts.pages_of:
            _check_same(kernel, name, (facts.pages_of, 0))
            other = tensors[facts.pages_of]
            if not (kind.paged and other.paged):
                raise ValueError(f"{name} or {facts.pages_of} is not paged")


def _check_same(kernel: TileKernel, name: str, same: tuple[str, int] | None) -> None:
    """Whether the parameter whose extent another one has stands before it."""
    if same is None:
        return
    for param in kernel.params:
        if param.name == name:
            break
        if param.name == same[0] and isinstance(param.type, RefType) and same[1] < param.type.rank:
            return
    raise ValueError(f"no tensor parameter {same[0]!r} of that rank stands before {name!r}")


def _title(kernel: TileKernel) -> str:
    params = (f"{param.name}: {type_text(param.type)}" for param in kernel.params)
    return one_line(f"{kernel.name}({', '.join(params)})")
