"""The IR becomes a plan: the only place that knows both.

Tables first (symbols, tensors, kernels), then the code in one walk of the body, then the schedule.
"""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from pto_wsp import ir, plan
from pto_wsp.dtypes import DType
from pto_wsp.errors import ScheduleError
from pto_wsp.passes.count import lower_count, tasks_of
from pto_wsp.passes.lower_expr import (
    ExprLowering,
    Node,
    column_name,
    loop_variable,
    slot_name,
)

_I64_MAX = 2**63 - 1
_WRITTEN = 1  # Symbol.flags
_UNSEEN = 1  # AccessDim.flags
_PADDED = 1  # Axis.flags

_LOOP_OPS = {
    ir.Order.PARALLEL: plan.Op.PARALLEL_FOR,
    ir.Order.SEQUENTIAL: plan.Op.FOR_EACH,
}
_ARGUMENT_OPS = {
    ir.Mode.IN: plan.Op.IO_INPUT,
    ir.Mode.OUT: plan.Op.IO_OUTPUT,
    ir.Mode.INOUT: plan.Op.IO_INOUT,
    ir.Mode.ACCUM: plan.Op.IO_ACCUM,
}


def lower(module: ir.Module) -> plan.Plan:
    """The plan of a module; CompileError if the module is not legal."""
    ir.verify(module)
    builder = plan.PlanBuilder()
    symbols = _lower_symbols(module, builder)
    tensors = _lower_tensors(module, builder, symbols)
    kernels = {decl.name: _lower_kernel(decl, builder) for decl in module.kernels}
    exprs = ExprLowering(builder, symbols, tensors, {s.name: s for s in module.symbols})
    _Code(builder, exprs, kernels, {k.name: k for k in module.kernels}).main(module.body)
    for directive in module.schedule:
        _lower_directive(directive, builder)
    return builder.build()


# --- tables ---


def number_bits(value: int | float) -> int:
    """The 64 bits of a symbol's default."""
    return ir.float_bits(value) if isinstance(value, float) else value % 2**64


_FLOAT_FORMATS = {DType.F64: "<d", DType.F32: "<f", DType.F16: "<e"}


def value_bits(dtype: DType, value: int | float) -> int:
    """The bits of a constant of a dtype, in the low end of 64."""
    if dtype is DType.BF16:  # the upper half of a float, rounded to even
        bits = value_bits(DType.F32, value)
        return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF
    if dtype in _FLOAT_FORMATS:
        return int.from_bytes(struct.pack(_FLOAT_FORMATS[dtype], value), "little")
    return int(value) % (1 << 8 * dtype.size)


def _lower_symbols(module: ir.Module, builder: plan.PlanBuilder) -> dict[str, int]:
    numbers: dict[str, int] = {}
    extent_arrays = _arrays_in_extents(module)
    for decl in module.symbols:
        low, high = _value_range(decl, decl.name in extent_arrays)
        # Every default has a constant of its own, so that other defaults make no other layout.
        default = plan.NONE
        if decl.default is not None:
            default = builder.add(plan.Const(bits=number_bits(decl.default)))
        record = plan.Symbol(
            name=builder.string(decl.name),
            kind=plan.SymbolKind[decl.kind.name],
            dtype=decl.dtype,
            rank=decl.rank if decl.kind is ir.SymbolKind.ARRAY else 0,
            default_value=default,
            min_value=low,
            max_value=high,
        )
        numbers[decl.name] = builder.add(record)
        builder.debug(plan.Section.SYMBOL, numbers[decl.name], decl.loc)
    return numbers


def _arrays_in_extents(module: ir.Module) -> set[str]:
    """Arrays whose elements are extents as they stand: those cannot be negative."""
    extents = (stmt.extent for stmt in ir.walk(module.body) if isinstance(stmt, ir.Loop))
    return {extent.array for extent in extents if isinstance(extent, ir.ArrayLoad)}


def _value_range(decl: ir.SymbolDecl, counts: bool) -> tuple[int, int]:
    """Smallest and largest legal value of an extent, or of an array's elements."""
    if decl.kind is ir.SymbolKind.EXTENT or counts:
        return 0, _I64_MAX
    if ir.scalar_type(decl.dtype) is ir.ExprType.F64:
        return 0, 0
    if decl.dtype is DType.BOOL:
        return 0, 1
    bits = 8 * decl.dtype.size
    if decl.dtype.name.startswith("U"):
        return 0, min(2**bits - 1, _I64_MAX)
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def _lower_tensors(
    module: ir.Module, builder: plan.PlanBuilder, symbols: dict[str, int]
) -> dict[str, int]:
    """Every tensor has a symbol of its name, a storage of its own, and dimensions bound later."""
    numbers: dict[str, int] = {}
    written = _written_tensors(module)
    for decl in module.tensors:
        name = builder.string(decl.name)
        symbol = plan.Symbol(
            name=name,
            kind=plan.SymbolKind.TENSOR,
            dtype=decl.dtype,
            rank=decl.rank,
            flags=_WRITTEN if decl.name in written else 0,
            min_value=0,
            max_value=0,
        )
        symbols[decl.name] = builder.add(symbol)
        record = plan.Tensor(
            name=name,
            symbol=symbols[decl.name],
            storage=builder.add(plan.Storage(storage_class=plan.StorageClass.BOUND)),
            dtype=decl.dtype,
            dims=builder.count(plan.Section.DIM),
            rank=decl.rank,
        )
        for _ in range(decl.rank):
            builder.add(plan.Dim())
        numbers[decl.name] = builder.add(record)
        builder.debug(plan.Section.SYMBOL, symbols[decl.name], decl.loc)
        builder.debug(plan.Section.TENSOR, numbers[decl.name], decl.loc)
    return numbers


def _written_tensors(module: ir.Module) -> set[str]:
    params = {kernel.name: ir.given_params(kernel) for kernel in module.kernels}
    return {
        arg.tensor
        for call in ir.walk(module.body)
        if isinstance(call, ir.Call)
        for param, arg in zip(params[call.kernel], call.args, strict=True)
        if isinstance(param, ir.ParamDecl)
        and isinstance(arg, ir.Region)
        and param.mode is not ir.Mode.IN
    }


def _lower_param(param: ir.AnyParam, builder: plan.PlanBuilder) -> plan.Param:
    name = builder.string(param.name)
    match param:
        case ir.ScalarDecl(_, dtype):
            return plan.Param(name=name, kind=plan.ParamKind.SCALAR, dtype=dtype)
        case ir.ConstexprDecl(_, dtype, value):
            bits = value_bits(dtype, value)
            return plan.Param(name=name, kind=plan.ParamKind.CONSTEXPR, dtype=dtype, value=bits)
        case ir.ParamDecl(_, mode, dtype, rank, shape):
            record = plan.Param(
                name=name,
                kind=plan.ParamKind.TENSOR if shape is None else plan.ParamKind.TILE,
                dtype=dtype,
                mode=plan.AccessMode[mode.name],
                rank=rank,
            )
            if shape is None:
                return record
            first = builder.count(plan.Section.EXPR_LIST)
            for size in shape:
                builder.add(plan.ExprRef(expr=builder.const(size)))
            return replace(record, shape=first, shape_rank=len(shape))
        case _:
            assert_never(param)


def _lower_kernel(decl: ir.KernelDecl, builder: plan.PlanBuilder) -> int:
    name = builder.string(decl.name)
    params = [_lower_param(param, builder) for param in decl.params]
    signature = [
        (decl.name, p.kind, p.dtype, p.mode, p.rank)
        for decl, p in zip(decl.params, params, strict=True)
    ]
    record = plan.Kernel(
        name=name,
        exec_unit=plan.ExecUnit.ANY,
        domain=plan.Domain.ANY,
        params=builder.count(plan.Section.PARAM),
        num_params=len(decl.params),
        block_dim=1,
        name_hash=plan.name_hash(decl.name),
        abi_hash=plan.abi_hash(signature),
    )
    for param in params:
        builder.add(param)
    number = builder.add(record)
    builder.debug(plan.Section.KERNEL, number, decl.loc)
    builder.body(number, plan.BodyForm[decl.form.name], _body_bytes(decl), decl.loc)
    return number


def _body_bytes(decl: ir.KernelDecl) -> bytes:
    match decl.form:
        case ir.BodyForm.PYTHON:
            return decl.source.encode()
        case ir.BodyForm.CPP:
            parts = {"includes": decl.includes, "source": decl.source}
            text = json.dumps(parts, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
            return text.encode()
        case _:
            assert_never(decl.form)


def _lower_directive(directive: ir.Directive, builder: plan.PlanBuilder) -> None:
    known = plan.Directive.__members__
    if directive.name not in known:
        raise ScheduleError(
            f"there is no schedule directive {directive.name!r}",
            loc=directive.loc,
            fix=f"use one of {', '.join(known)}",
        )
    builder.directive(known[directive.name], directive.args, directive.loc)


# --- code ---


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the walk of the body stands: child numbers from the entry on, and the loops around."""

    path: tuple[int, ...]
    variables: Mapping[str, Node] = field(default_factory=dict[str, Node])
    axes: Mapping[str, int] = field(default_factory=dict[str, int])
    axis: int = plan.NONE  # the innermost loop
    level: int = 0  # loops around

    def child(self, number: int) -> _Place:
        return replace(self, path=(*self.path, number))

    def inside(self, var: str, axis: int) -> _Place:
        variables = {**self.variables, var: loop_variable(self.level)}
        return _Place(self.path, variables, {**self.axes, var: axis}, axis, self.level + 1)

    def having(self, name: str, node: Node) -> _Place:
        """The same place with one more variable: a column or a slot."""
        return replace(self, variables={**self.variables, name: node})


@dataclass(frozen=True, slots=True)
class _Code:
    builder: plan.PlanBuilder
    exprs: ExprLowering
    kernels: Mapping[str, int]
    declared: Mapping[str, ir.KernelDecl]
    # By name and level: slots of one name at one level share a record, in whatever bodies they are.
    slots: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    # By label of a call: its site, and the axes around it.
    labels: dict[str, tuple[int, tuple[int, ...]]] = field(
        default_factory=dict[str, tuple[int, tuple[int, ...]]]
    )

    def main(self, body: ir.Body) -> None:
        entry = self.builder.add(plan.Entry(pc=self.builder.here))
        self.items(body, _Place((entry,)))
        self.builder.emit(plan.Op.HALT)

    def items(self, body: ir.Body, place: _Place) -> None:
        number = 0  # instructions that are children of the block, so far
        for stmt in body:
            if isinstance(stmt, ir.SlotSet | ir.SlotLoad):
                place = self.declare(stmt.slot, place)
            self.item(stmt, place.child(number))
            number += 2 if isinstance(stmt, ir.Cond) and stmt.otherwise else 1

    def declare(self, slot: str, place: _Place) -> _Place:
        """Gives a slot that has no record yet one at the level of the place."""
        if slot_name(slot) in place.variables:
            return place
        record = plan.Slot(
            name=self.builder.string(slot), type=plan.ScalarType.I64, level=place.level
        )
        number = self.slots.setdefault((slot, place.level), self.builder.count(plan.Section.SLOT))
        if number == self.builder.count(plan.Section.SLOT):
            self.builder.add(record)
        return place.having(slot_name(slot), Node(plan.ExprOp.SLOT, entry=number))

    def item(self, stmt: ir.Stmt, place: _Place) -> None:
        match stmt:
            case ir.Loop():
                self.loop(stmt, place)
            case ir.While():
                self.repeat(stmt, place)
            case ir.Cond():
                self.cond(stmt, place)
            case ir.SlotSet(slot, value):
                node = self.exprs.lower(value, place.variables)
                pc = self.builder.emit(plan.Op.SLOT_SET, self.slot(slot, place), node)
                self.builder.debug(plan.Section.CODE, pc, stmt.loc)
            case ir.SlotLoad():
                self.load(stmt, place)
            case ir.Combine(parts):
                self.block(plan.Op.COMBINE, parts, place)
            case ir.Sequential(parts):
                self.block(plan.Op.SEQUENTIAL, parts, place)
            case ir.Call():
                self.call(stmt, place)
            case _:
                assert_never(stmt)

    def end(self, opened: int) -> None:
        """Closes the block that begins at `opened`."""
        self.builder.emit(plan.Op.END)
        self.builder.patch(opened, operand2=self.builder.here)

    def block(self, op: plan.Op, parts: tuple[ir.Body, ...], place: _Place) -> None:
        """Each part is one child; several statements make a child by a block of their own."""
        opened = self.builder.emit(op, len(parts))
        for number, part in enumerate(parts):
            if len(part) == 1 and not isinstance(part[0], ir.Cond):
                self.single(part[0], place.child(number))
            else:
                self.wrapped(part, place.child(number))
        self.end(opened)

    def single(self, stmt: ir.Stmt, place: _Place) -> None:
        if isinstance(stmt, ir.SlotSet | ir.SlotLoad):
            place = self.declare(stmt.slot, place)
        self.item(stmt, place)

    def wrapped(self, part: ir.Body, place: _Place) -> None:
        """Several statements as one child: slots that they set are seen by those behind."""
        opened = self.builder.emit(plan.Op.COMBINE)
        before = self.builder.here
        self.items(part, place)
        children = sum(2 if isinstance(s, ir.Cond) and s.otherwise else 1 for s in part)
        assert self.builder.here > before
        self.builder.patch(opened, operand1=children)
        self.end(opened)

    def slot(self, name: str, place: _Place) -> int:
        return place.variables[slot_name(name)].entry

    def condition(self, expr: ir.Expr, variables: Mapping[str, Node]) -> None:
        self.builder.emit(plan.Op.EXT, operand2=self.exprs.lower(expr, variables))

    def cond(self, cond: ir.Cond, place: _Place) -> None:
        opened = self.builder.emit(plan.Op.COND)
        self.builder.debug(plan.Section.CODE, opened, cond.loc)
        self.condition(cond.condition, place.variables)
        self.items(cond.then, place)
        self.end(opened)
        if cond.otherwise:
            # The ELSE block is a child of its own, behind the COND.
            behind = replace(place, path=(*place.path[:-1], place.path[-1] + 1))
            opened = self.builder.emit(plan.Op.ELSE)
            self.items(cond.otherwise, behind)
            self.end(opened)

    def repeat(self, loop: ir.While, place: _Place) -> None:
        axis = self.builder.count(plan.Section.AXIS)
        inside = place.inside(loop.var, axis)
        record = plan.Axis(
            name=self.builder.string(loop.axis),
            kind=plan.AxisKind.EXPR,
            level=place.level,
            start=self.builder.const(0),
            extent=self.exprs.lower(loop.limit, place.variables),
            body_tasks=lower_count(tasks_of(loop.body), self.exprs, inside.variables),
            outer=place.axis,
        )
        self.builder.add(record)
        self.builder.debug(plan.Section.AXIS, axis, loop.loc)
        opened = self.builder.emit(plan.Op.LOOP_WHILE, axis)
        self.condition(loop.condition, inside.variables)
        self.items(loop.body, inside)
        self.end(opened)

    def load(self, load: ir.SlotLoad, place: _Place) -> None:
        site = plan.Site(
            kernel=plan.NONE,
            pc=self.builder.here,
            kind=plan.TaskKind.LOAD,
            level=place.level,
            axis=place.axis,
            path_hash=plan.path_hash(place.path),
        )
        number = self.builder.add(site)
        self.builder.debug(plan.Section.SITE, number, load.loc)
        self.builder.emit(plan.Op.SLOT_LOAD, self.slot(load.slot, place), number)
        access = self.access(ir.Mode.IN, load.region, place)
        self.builder.emit(plan.Op.IO_INPUT, operand2=access)

    def loop(self, loop: ir.Loop, place: _Place) -> None:
        # The record's own number, so that the count may read the loop's variable.
        axis = self.builder.count(plan.Section.AXIS)
        inside = place.inside(loop.var, axis)
        value = plan.NONE
        if loop.kind is ir.AxisKind.SPARSE:
            own = inside.variables[loop.var]
            column = self.exprs.column(loop, place.variables, own)
            inside = inside.having(column_name(loop.var), column)
            value = self.exprs.emit(column)
        tile = plan.NONE if loop.tile is None else self.exprs.lower(loop.tile, place.variables)
        record = plan.Axis(
            name=self.builder.string(loop.axis),
            kind=plan.AxisKind[loop.kind.name],
            flags=_PADDED if loop.padded else 0,
            tile=tile,
            value=value,
            indices=plan.NONE if loop.indices is None else self.exprs.symbols[loop.indices],
            level=place.level,
            start=self.exprs.lower(loop.start, place.variables),
            extent=self.exprs.lower(loop.extent, place.variables),
            body_tasks=lower_count(tasks_of(loop.body), self.exprs, inside.variables),
            parent=plan.NONE if loop.parent is None else place.axes[loop.parent],
            lengths=plan.NONE if loop.lengths is None else self.exprs.symbols[loop.lengths],
            outer=place.axis,
        )
        self.builder.add(record)
        self.builder.debug(plan.Section.AXIS, axis, loop.loc)
        sparse = loop.kind is ir.AxisKind.SPARSE
        opened = self.builder.emit(plan.Op.SELECT if sparse else _LOOP_OPS[loop.order], axis)
        self.items(loop.body, inside)
        self.end(opened)

    def call(self, call: ir.Call, place: _Place) -> None:
        kernel = self.declared[call.kernel]
        site = plan.Site(
            kernel=self.kernels[call.kernel],
            pc=self.builder.here,
            kind=plan.TaskKind.KERNEL,
            level=place.level,
            axis=place.axis,
            path_hash=plan.path_hash(place.path),
        )
        number = self.builder.add(site)
        self.builder.debug(plan.Section.SITE, number, call.loc)
        if call.label is not None:
            self.labels[call.label] = number, tuple(place.axes.values())
        words = len(call.indices) + len(call.args) + len(call.after)
        self.builder.emit(plan.Op.TASK, words, number)
        for index in call.indices:
            self.identity(index, place)
        for param, arg in zip(ir.given_params(kernel), call.args, strict=True):
            if isinstance(param, ir.ParamDecl) and isinstance(arg, ir.Region):
                access = self.access(param.mode, arg, place)
                self.builder.emit(_ARGUMENT_OPS[param.mode], operand2=access)
            elif not isinstance(arg, ir.Region):
                value = self.exprs.lower(arg, place.variables)
                self.builder.emit(plan.Op.SCALAR, operand2=value)
        for after in call.after:
            self.after(after, place)

    def after(self, after: ir.After, place: _Place) -> None:
        """The loops that both calls are in are the same axes, from the outermost on."""
        site, axes = self.labels[after.label]
        pairs = zip(axes, place.axes.values(), strict=False)
        shared = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))
        if after.indices:
            shared = min(shared, len(axes) - len(after.indices))
        given = len(axes) - shared if after.indices else 0
        # Loops between the shared ones and those that are named stand at the same index.
        middle = [ir.LoopVar(n) for n in list(place.axes)[shared : len(axes) - len(after.indices)]]
        indices = (*middle, *after.indices)[:given] if given else ()
        first = self.builder.count(plan.Section.EXPR_LIST)
        for index in indices:
            node = self.exprs.lower(index, place.variables)
            self.builder.add(plan.ExprRef(expr=node))
        record = plan.After(
            site=site,
            kind=plan.DepKind.AFTER,
            shared_levels=shared,
            indices=first if indices else 0,
            num_indices=len(indices),
        )
        self.builder.emit(plan.Op.AFTER, operand2=self.builder.add(record))

    def identity(self, index: ir.Expr, place: _Place) -> None:
        """A bracket index; the two short forms cover nearly all of them."""
        match index:
            case ir.LoopVar(name):
                level = place.variables[name].arg
                self.builder.emit(plan.Op.PARAM_LOOPVAR, level)
            case ir.Const(value):
                constant = self.builder.add(plan.Const(bits=value % 2**64))
                self.builder.emit(plan.Op.PARAM_CONST, operand2=constant)
            case _:
                expr = self.exprs.lower(index, place.variables)
                self.builder.emit(plan.Op.PARAM_EXPR, operand2=expr)

    def access(self, mode: ir.Mode, region: ir.Region, place: _Place) -> int:
        first = self.builder.count(plan.Section.ACCESS_DIM)
        for dim in region.dims:
            record = plan.AccessDim(
                start=self.exprs.lower(dim.start, place.variables),
                extent=self.exprs.lower(dim.extent, place.variables),
                step=self.exprs.lower(dim.step, place.variables),
                flags=_UNSEEN if dim.dropped else 0,
            )
            self.builder.add(record)
        access = plan.Access(
            tensor=self.exprs.tensors[region.tensor],
            mode=plan.AccessMode[mode.name],
            dims=first,
            rank=len(region.dims),
        )
        return self.builder.add(access)
