"""The IR becomes a plan: the only place that knows both.

Tables first (symbols, tensors, kernels), then the code in one walk of the body, then the schedule.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from pto_wsp import ir, plan
from pto_wsp.dtypes import DType
from pto_wsp.passes.count import lower_count, tasks_of
from pto_wsp.passes.dependence import analyse, lower_dependences
from pto_wsp.passes.lower_expr import (
    ExprLowering,
    Node,
    column_name,
    constant,
    loop_variable,
    operation,
    slot_name,
)
from pto_wsp.passes.lower_layouts import lower_layouts
from pto_wsp.passes.lower_network import lower_channels, lower_process
from pto_wsp.passes.lower_schedule import lower_directive
from pto_wsp.passes.lower_tables import (
    lower_kernel,
    lower_location,
    lower_shaped,
    lower_symbols,
    lower_tensors,
)

_UNSEEN = 1  # AccessDim.flags
_PADDED = 1  # Axis.flags
_ALIGN = 64  # bytes, of temporaries

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
    symbols = lower_symbols(module, builder)
    layouts = lower_layouts(module, builder)
    tensors = lower_tensors(module, builder, symbols, layouts)
    kernels = {decl.name: lower_kernel(decl, builder) for decl in module.kernels}
    exprs = ExprLowering(builder, symbols, tensors, {s.name: s for s in module.symbols})
    declared = {k.name: k for k in module.kernels}
    temps = {t.name: t for t in module.tensors if t.kind is ir.TensorKind.TEMP}
    channels = lower_channels(module, builder, tensors)
    _Code(builder, exprs, kernels, declared, temps, layouts, channels).main(module.body)
    lower_dependences(analyse(module), builder)
    for directive in module.schedule:
        lower_directive(directive, builder)
    return builder.build()


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

    def consuming(self, var: str, pc: int) -> _Place:
        """Inside of a RECV: a loop that has no axis, and is told from others by its place."""
        return replace(self.inside(var, -pc - 1), axis=self.axis)

    def having(self, name: str, node: Node) -> _Place:
        """The same place with one more variable: a column or a slot."""
        return replace(self, variables={**self.variables, name: node})


def _children(stmt: ir.Stmt) -> int:
    """How many children of its block a statement becomes: an ELSE is one of its own, and so are a
    LET, the ROOM and the SEND around a TASK, and the DROP of what TAKE received."""
    match stmt:
        case ir.Alloc():
            return 1 + sum(_reads_slots(size) for size in stmt.shape)
        case ir.Send():
            return 3
        case ir.Receive():
            return 2
        case _:
            return 2 if isinstance(stmt, ir.Cond) and stmt.otherwise else 1


def _reads_slots(expr: ir.Expr) -> bool:
    return any(isinstance(node, ir.SlotRef) for node in ir.walk_expr(expr))


@dataclass(frozen=True, slots=True)
class _Code:
    builder: plan.PlanBuilder
    exprs: ExprLowering
    kernels: Mapping[str, int]
    declared: Mapping[str, ir.KernelDecl]
    temps: Mapping[str, ir.TensorDecl]
    layouts: Mapping[str, int]
    channels: Mapping[str, int]
    lets: list[int] = field(default_factory=list[int])  # numbers given so far
    # By name and level: slots of one name at one level share a record, in whatever bodies they are.
    slots: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    # By label of a call: its site, and the axes around it.
    labels: dict[str, tuple[int, tuple[int, ...]]] = field(
        default_factory=dict[str, tuple[int, tuple[int, ...]]]
    )

    stages: dict[str, int] = field(default_factory=dict[str, int])  # by name

    def main(self, body: ir.Body) -> None:
        network = body[-1] if body and isinstance(body[-1], ir.Network) else None
        entry = self.builder.add(plan.Entry(pc=self.builder.here))
        self.items(body if network is None else body[:-1], _Place((entry,)))
        self.builder.emit(plan.Op.HALT)
        for process in () if network is None else network.processes:
            entry = lower_process(process, self.builder, self.channels)
            self.items(process.body, _Place((entry,)))
            self.builder.emit(plan.Op.HALT)

    def items(self, body: ir.Body, place: _Place) -> None:
        number = 0  # instructions that are children of the block, so far
        received: list[str] = []
        for stmt in body:
            if isinstance(stmt, ir.SlotSet | ir.SlotLoad):
                place = self.declare(stmt.slot, place)
            self.item(stmt, place.child(number))
            if isinstance(stmt, ir.Receive):
                received.append(stmt.channel)  # its DROP comes behind all others
            number += 1 if isinstance(stmt, ir.Receive) else _children(stmt)
        for channel in reversed(received):
            self.builder.emit(plan.Op.DROP, self.channels[channel])

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
            case ir.Alloc():
                self.alloc(stmt, place)
            case ir.Combine(parts):
                self.block(plan.Op.COMBINE, parts, place)
            case ir.Sequential(parts):
                self.block(plan.Op.SEQUENTIAL, parts, place)
            case ir.Call():
                self.call(stmt, place)
            case ir.Send() | ir.Consume() | ir.Receive() | ir.Close():
                self.communicate(stmt, place)
            case ir.Network():
                raise AssertionError("verify lets a network stand at the end only")
            case _:
                assert_never(stmt)

    def communicate(self, stmt: ir.ChannelStmt, place: _Place) -> None:
        channel = self.channels[stmt.channel]
        match stmt:
            case ir.Send(_, (ir.Call() as call,)):
                pc = self.builder.emit(plan.Op.ROOM, channel)
                self.builder.debug(plan.Section.CODE, pc, stmt.loc)
                behind = replace(place, path=(*place.path[:-1], place.path[-1] + 1))
                site = self.call(call, behind)
                pc = self.builder.emit(plan.Op.SEND, channel, site)
                self.builder.debug(plan.Section.CODE, pc, stmt.loc)
            case ir.Consume():
                opened = self.builder.emit(plan.Op.RECV, channel)
                self.builder.debug(plan.Section.CODE, opened, stmt.loc)
                self.items(stmt.body, place.consuming(stmt.var, opened))
                self.end(opened)
            case ir.Receive():
                pc = self.builder.emit(plan.Op.TAKE, channel)
                self.builder.debug(plan.Section.CODE, pc, stmt.loc)
            case ir.Close():
                pc = self.builder.emit(plan.Op.CLOSE, channel)
                self.builder.debug(plan.Section.CODE, pc, stmt.loc)
            case ir.Send():
                raise AssertionError("verify lets a send have one call only")

    def end(self, opened: int) -> None:
        """Closes the block that begins at `opened`."""
        self.builder.emit(plan.Op.END)
        self.builder.patch(opened, operand2=self.builder.here)

    def block(self, op: plan.Op, parts: tuple[ir.Body, ...], place: _Place) -> None:
        """Each part is one child; several statements make a child by a block of their own."""
        opened = self.builder.emit(op, len(parts))
        for number, part in enumerate(parts):
            several = ir.Cond | ir.Alloc | ir.Send | ir.Receive  # become more than one child
            if len(part) == 1 and not isinstance(part[0], several):
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
        opened = self.builder.emit(plan.Op.COMBINE, sum(_children(stmt) for stmt in part))
        self.items(part, place)
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

    def alloc(self, alloc: ir.Alloc, place: _Place) -> None:
        """The shape must stay what it was: extents that read slots, which may change, are LETs."""
        decl = self.temps[alloc.tensor]
        sizes: list[Node] = []
        for size in alloc.shape:
            sizes.append(self.exprs.node(size, place.variables))
            if _reads_slots(size):
                number = self.next_let()
                pc = self.builder.emit(plan.Op.LET, number, self.exprs.emit(sizes[-1]))
                self.builder.debug(plan.Section.CODE, pc, alloc.loc)
                sizes[-1] = Node(plan.ExprOp.LETVAR, entry=number)
        bytes_ = constant(decl.dtype.size)
        for size in sizes:
            bytes_ = operation(plan.ExprOp.MUL, size, bytes_)
        size = self.exprs.emit(bytes_)
        where = lower_location(decl)
        record = plan.Alloc(size=size, align=_ALIGN, location=where, level=place.level, copies=0)
        number = self.builder.add(record)
        storage = plan.Storage(storage_class=plan.StorageClass.TEMP, location=where, alloc=number)
        shape = [self.exprs.emit(size) for size in sizes]
        layout = self.layouts.get(decl.name, plan.NONE)
        self.exprs.tensors[decl.name] = lower_shaped(
            decl, self.builder, self.builder.add(storage), shape, layout
        )
        pc = self.builder.emit(plan.Op.ALLOC, number)
        self.builder.debug(plan.Section.CODE, pc, alloc.loc)

    def next_let(self) -> int:
        self.lets.append(len(self.lets))
        return self.lets[-1]

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

    def call(self, call: ir.Call, place: _Place) -> int:
        """The number of its site."""
        kernel = self.declared[call.kernel]
        site = plan.Site(
            kernel=self.kernels[call.kernel],
            pc=self.builder.here,
            kind=plan.TaskKind.KERNEL,
            level=place.level,
            stage=plan.NONE if call.stage is None else self.stage(call.stage),
            axis=place.axis,
            path_hash=plan.path_hash(place.path),
        )
        number = self.builder.add(site)
        self.builder.debug(plan.Section.SITE, number, call.loc)
        for name, value in call.fields:
            node = self.exprs.lower(value, place.variables)
            text = self.builder.string(name)
            self.builder.add(plan.Descriptor(name=text, site=number, expr=node, dtype=DType.U32))
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
        return number

    def stage(self, name: str) -> int:
        number = self.stages.setdefault(name, self.builder.count(plan.Section.STAGE))
        if number == self.builder.count(plan.Section.STAGE):
            self.builder.add(plan.Stage(name=self.builder.string(name)))
        return number

    def after(self, after: ir.After, place: _Place) -> None:
        """Without indices the loops that both calls are in are shared: the same axes, from the
        outermost on. With them, all but the innermost ones, which the indices are for."""
        site, axes = self.labels[after.label]
        pairs = zip(axes, place.axes.values(), strict=False)
        shared = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))
        if after.indices:
            shared = len(axes) - len(after.indices)
        first = self.builder.count(plan.Section.EXPR_LIST)
        for index in after.indices:
            node = self.exprs.lower(index, place.variables)
            self.builder.add(plan.ExprRef(expr=node))
        record = plan.After(
            site=site,
            kind=plan.DepKind.AFTER,
            shared_levels=shared,
            indices=first if after.indices else 0,
            num_indices=len(after.indices),
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
