"""The IR becomes a plan: the only place that knows both.

Tables first (symbols, tensors, kernels), then the code in one walk of the body, then the schedule.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

from pto_wsp import ir, plan
from pto_wsp.errors import ScheduleError
from pto_wsp.passes.count import lower_count, tasks_of
from pto_wsp.passes.lower_expr import ExprLowering, Node, loop_variable

_I64_MAX = 2**63 - 1
_WRITTEN = 1  # Symbol.flags
_UNSEEN = 1  # AccessDim.flags

_LOOP_OPS = {
    ir.Order.PARALLEL: plan.Op.PARALLEL_FOR,
    ir.Order.SEQUENTIAL: plan.Op.FOR_EACH,
}
_ARGUMENT_OPS = {
    ir.Mode.IN: plan.Op.IO_INPUT,
    ir.Mode.OUT: plan.Op.IO_OUTPUT,
    ir.Mode.INOUT: plan.Op.IO_INOUT,
}


def lower(module: ir.Module) -> plan.Plan:
    """The plan of a module; CompileError if the module is not legal."""
    ir.verify(module)
    builder = plan.PlanBuilder()
    symbols = _lower_symbols(module, builder)
    tensors = _lower_tensors(module, builder, symbols)
    kernels = {decl.name: _lower_kernel(decl, builder) for decl in module.kernels}
    exprs = ExprLowering(builder, symbols, tensors)
    _Code(builder, exprs, kernels, {k.name: k for k in module.kernels}).main(module.body)
    for directive in module.schedule:
        _lower_directive(directive, builder)
    return builder.build()


# --- tables ---


def _lower_symbols(module: ir.Module, builder: plan.PlanBuilder) -> dict[str, int]:
    numbers: dict[str, int] = {}
    extent_arrays = _arrays_in_extents(module)
    for decl in module.symbols:
        low, high = _value_range(decl, decl.name in extent_arrays)
        # Every default has a constant of its own, so that other defaults make no other layout.
        default = plan.NONE if decl.default is None else builder.add(plan.Const(bits=decl.default))
        record = plan.Symbol(
            name=builder.string(decl.name),
            kind=plan.SymbolKind[decl.kind.name],
            dtype=decl.dtype,
            rank=1 if decl.kind is ir.SymbolKind.ARRAY else 0,
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
    params = {kernel.name: kernel.params for kernel in module.kernels}
    return {
        region.tensor
        for call in ir.walk(module.body)
        if isinstance(call, ir.Call)
        for param, region in zip(params[call.kernel], call.args, strict=True)
        if param.mode is not ir.Mode.IN
    }


def _lower_kernel(decl: ir.KernelDecl, builder: plan.PlanBuilder) -> int:
    kind = plan.ParamKind.TENSOR
    modes = [plan.AccessMode[param.mode.name] for param in decl.params]
    signature = [
        (p.name, kind, p.dtype, m, p.rank) for p, m in zip(decl.params, modes, strict=True)
    ]
    record = plan.Kernel(
        name=builder.string(decl.name),
        exec_unit=plan.ExecUnit.ANY,
        domain=plan.Domain.ANY,
        params=builder.count(plan.Section.PARAM),
        num_params=len(decl.params),
        block_dim=1,
        name_hash=plan.name_hash(decl.name),
        abi_hash=plan.abi_hash(signature),
    )
    for param, mode in zip(decl.params, modes, strict=True):
        name = builder.string(param.name)
        builder.add(plan.Param(name=name, kind=kind, dtype=param.dtype, mode=mode, rank=param.rank))
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

    @property
    def level(self) -> int:
        return len(self.variables)

    def child(self, number: int) -> _Place:
        return _Place((*self.path, number), self.variables, self.axes, self.axis)

    def inside(self, var: str, axis: int) -> _Place:
        variables = {**self.variables, var: loop_variable(self.level)}
        return _Place(self.path, variables, {**self.axes, var: axis}, axis)


@dataclass(frozen=True, slots=True)
class _Code:
    builder: plan.PlanBuilder
    exprs: ExprLowering
    kernels: Mapping[str, int]
    declared: Mapping[str, ir.KernelDecl]

    def main(self, body: ir.Body) -> None:
        entry = self.builder.add(plan.Entry(pc=self.builder.here))
        self.items(body, _Place((entry,)))
        self.builder.emit(plan.Op.HALT)

    def items(self, body: ir.Body, place: _Place) -> None:
        for number, stmt in enumerate(body):
            self.item(stmt, place.child(number))

    def item(self, stmt: ir.Stmt, place: _Place) -> None:
        match stmt:
            case ir.Loop():
                self.loop(stmt, place)
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
            if len(part) == 1:
                self.item(part[0], place.child(number))
            else:
                self.block(plan.Op.COMBINE, tuple((s,) for s in part), place.child(number))
        self.end(opened)

    def loop(self, loop: ir.Loop, place: _Place) -> None:
        # The record's own number, so that the count may read the loop's variable.
        axis = self.builder.count(plan.Section.AXIS)
        inside = place.inside(loop.var, axis)
        record = plan.Axis(
            name=self.builder.string(loop.axis),
            kind=plan.AxisKind[loop.kind.name],
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
        opened = self.builder.emit(_LOOP_OPS[loop.order], axis)
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
        words = len(call.indices) + len(call.args)
        self.builder.emit(plan.Op.TASK, words, number)
        for index in call.indices:
            self.identity(index, place)
        for param, region in zip(kernel.params, call.args, strict=True):
            access = self.access(param.mode, region, place)
            self.builder.emit(_ARGUMENT_OPS[param.mode], operand2=access)

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
