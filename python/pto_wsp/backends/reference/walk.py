"""The walk of a plan: which tasks there are, in program order.

Bodies run front to back, loops run through their values upwards. Loops that order their iterations
and loops that do not are walked alike, for program order keeps every order there is. Slots are
variables of the walk; a SLOT_LOAD reads what the tasks before it have written, so whoever runs the
tasks must do so before asking for the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pto_wsp.backends.reference.bound import BoundPlan
from pto_wsp.backends.reference.expr import INT64_MAX, Evaluator, ExprFault, Scope
from pto_wsp.backends.reference.memory import Memory
from pto_wsp.backends.reference.network import (
    TURN_ENDS,
    Actor,
    Network,
    Step,
    Wait,
    own_tensors,
    shape_of,
)
from pto_wsp.backends.reference.region import DimRange, Region, params_of, region_params
from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import ExecutionError
from pto_wsp.plan import (
    NONE,
    Access,
    AccessDim,
    After,
    Axis,
    AxisKind,
    Channel,
    Entry,
    ExprRef,
    Instr,
    Op,
    Param,
    ParamKind,
    Process,
    Section,
    Site,
    TaskKind,
    Tensor,
)
from pto_wsp.runtime.run_errors import run_error

# Argument words that name a region.
REGION_WORDS = frozenset({Op.IO_INPUT, Op.IO_OUTPUT, Op.IO_INOUT, Op.IO_ACCUM})
_DROPPED = 1  # flag of AccessDim


@dataclass(frozen=True, slots=True)
class Task:
    """One kernel call. `indices` are those of all enclosing loops, outermost first; `regions` are
    in parameter order."""

    task_id: int
    site: int
    kernel: int
    indices: tuple[int, ...]
    regions: tuple[Region, ...]
    scalars: tuple[int, ...] = ()  # as bits of their dtypes


class Walk:
    """Generates the tasks of a bound plan."""

    def __init__(self, bound: BoundPlan) -> None:
        plan = bound.plan
        self._bound = bound
        self._plan = plan
        self._evaluator = Evaluator(bound)
        self._code = plan.records(Instr)
        self._axes = plan.records(Axis)
        self._sites = plan.records(Site)
        self._accesses = plan.records(Access)
        self._access_dims = plan.records(AccessDim)
        self._tensors = plan.records(Tensor)
        self._slots: dict[int, int] = {}
        self._lets: dict[int, int] = {}
        self._next_task = 0
        self._ends: dict[int, int] = {}  # by level of the open loops: the first index past its end
        self._afters = [self._indexed_afters(site) for site in range(len(self._sites))]
        self.loads = 0
        self._memory = Memory(bound, self._evaluator)
        self.network = self._make_network() if plan.records(Channel) else None

    def tasks(self) -> Iterator[Task]:
        """All tasks in program order."""
        self._memory.begin()
        if self.network is None:
            yield from self._block(self._plan.records(Entry)[0].pc, ())
            return
        for actor in self.network.actors:
            entry = self.network.shape.processes[actor.process][1]
            actor.steps = self._process(self._plan.records(Entry)[entry].pc, actor)
            actor.state = ({}, {}, {}, {})
        self._resume(self.network.actor)
        yield from self.network.run()

    # --- processes ---

    def _make_network(self) -> Network:
        constants = Scope(())
        replicas = [
            self._evaluator.value(process.replicas, constants)
            for process in self._plan.records(Process)
        ]
        depths = [
            self._evaluator.value(channel.depth, constants)
            for channel in self._plan.records(Channel)
        ]
        shape = shape_of(self._plan, replicas)
        self._own = own_tensors(self._plan)
        return Network(self._plan, shape, depths, self._switch)

    def _process(self, pc: int, actor: Actor[Step]) -> Iterator[Step]:
        """The steps of a process; of a replica, one iteration of the loop that they are."""
        assert self.network is not None
        if self.network.shape.processes[actor.process][2] > 1:
            yield from self._block(pc + 1, (actor.replica,))
        else:
            yield from self._block(pc, ())

    def _switch(self, old: Actor[Step], new: Actor[Step]) -> None:
        tensors = {index: self._bound.tensors[index] for index in self._own}
        old.state = (self._slots, self._lets, self._ends, tensors)
        self._resume(new)

    def _resume(self, actor: Actor[Step]) -> None:
        self._slots, self._lets, self._ends, tensors = actor.state
        for index, array in tensors.items():
            self._bound.tensors[index] = array

    def _hold(self, channel: int) -> None:
        """The message that the process writes or has is where the channel's element is."""
        assert self.network is not None
        element = self._plan.records(Channel)[channel].element
        buffer = self.network.buffer(channel)
        self._bound.tensors[element] = self._memory.message(channel, buffer)

    def _communicate(self, instr: Instr, pc: int, indices: tuple[int, ...]) -> Iterator[Any]:
        """An instruction of a channel, other than RECV."""
        network = self.network
        assert network is not None
        channel, replica = instr.operand1, network.actor.replica
        queue = network.queues[channel]
        op = Op(instr.opcode)
        wait = Wait(op, channel, pc)
        match op:
            case Op.ROOM:
                if queue.closed[replica]:
                    raise network.sends_closed(wait)
                yield wait
                network.high = max(network.high, queue.in_use + 1)
                self._hold(channel)
            case Op.SEND:
                yield wait
                queue.send(replica)
                network.messages += 1
                yield TURN_ENDS
            case Op.TAKE:
                yield wait
                if not queue.is_there(queue.next_taken(replica)):
                    raise network.closed_error(wait)
                queue.take(replica)
                self._hold(channel)
            case Op.DROP:
                queue.leave(replica)
            case _:
                queue.closed[replica] = True

    def _consume(self, instr: Instr, pc: int, indices: tuple[int, ...]) -> Iterator[Any]:
        """The body of a RECV for each message."""
        network = self.network
        assert network is not None
        replica = network.actor.replica
        queue = network.queues[instr.operand1]
        while True:
            yield Wait(Op.RECV, instr.operand1, pc)
            if not queue.is_there(queue.next_taken(replica)):
                return
            message = queue.take(replica)
            self._hold(instr.operand1)
            self._ends[len(indices)] = message + 1
            yield from self._block(pc + 1, (*indices, message))
            queue.leave(replica)
            yield TURN_ENDS

    # What happens between tasks, for those who want to know. A group is a FOR_EACH or a SEQUENTIAL;
    # each of its phases waits for those before.

    def _open_group(self) -> None: ...

    def _next_phase(self) -> None: ...

    def _close_group(self) -> None: ...

    def _control_reads(self, site: int, indices: tuple[int, ...], region: Region) -> None: ...

    def _block(
        self, pc: int, indices: tuple[int, ...], *, in_phases: bool = False
    ) -> Iterator[Any]:
        """The tasks from `pc` up to the END or HALT of that block, and where a process waits."""
        while True:
            instr = self._code[pc]
            if in_phases and instr.opcode != Op.END:
                self._next_phase()
            match instr.opcode:
                case Op.END | Op.HALT:
                    return
                case Op.NOP:
                    pc += 1
                case Op.PARALLEL_FOR:
                    for value in self._enter(instr.operand1, indices):
                        yield from self._block(pc + 1, (*indices, value))
                    pc = instr.operand2
                case Op.FOR_EACH:
                    self._open_group()
                    for value in self._enter(instr.operand1, indices):
                        self._next_phase()
                        yield from self._block(pc + 1, (*indices, value))
                    self._close_group()
                    pc = instr.operand2
                case Op.SELECT:
                    for value in self._enter(instr.operand1, indices):
                        self._check_column(instr.operand1, (*indices, value))
                        yield from self._block(pc + 1, (*indices, value))
                    pc = instr.operand2
                case Op.LOOP_WHILE:
                    limit = self._enter(instr.operand1, indices, limit=True)
                    for value in self._while(pc, limit, indices):
                        yield from self._block(pc + 2, (*indices, value))
                    pc = instr.operand2
                case Op.COND:
                    other = self._code[instr.operand2]
                    if self._condition(pc, Section.CODE, pc, indices):
                        yield from self._block(pc + 2, indices)
                    elif other.opcode == Op.ELSE:
                        yield from self._block(instr.operand2 + 1, indices)
                    pc = other.operand2 if other.opcode == Op.ELSE else instr.operand2
                case Op.SLOT_SET:
                    self._slots[instr.operand1] = self._control(
                        instr.operand2, Section.CODE, pc, indices
                    )
                    pc += 1
                case Op.LET:
                    self._lets[instr.operand1] = self._control(
                        instr.operand2, Section.CODE, pc, indices
                    )
                    pc += 1
                case Op.ALLOC:
                    self._alloc(instr.operand1, pc, indices)
                    pc += 1
                case Op.FREE:
                    pc += 1
                case Op.RECV:
                    yield from self._consume(instr, pc, indices)
                    pc = instr.operand2
                case Op.ROOM | Op.SEND | Op.TAKE | Op.DROP | Op.CLOSE:
                    yield from self._communicate(instr, pc, indices)
                    pc += 1
                case Op.SLOT_LOAD:
                    self._slots[instr.operand1] = self._load(instr.operand2, pc + 1, indices)
                    pc += 2
                case Op.COMBINE:
                    yield from self._block(pc + 1, indices)
                    pc = instr.operand2
                case Op.SEQUENTIAL:
                    self._open_group()
                    yield from self._block(pc + 1, indices, in_phases=True)
                    self._close_group()
                    pc = instr.operand2
                case Op.TASK:
                    yield self._task(instr.operand2, indices)
                    pc += 1 + instr.operand1
                case op:
                    raise AssertionError(f"check() lets no {op.name} pass")

    def _scope(self, indices: tuple[int, ...]) -> Scope:
        return Scope(indices, self._slots, self._lets)

    def _alloc(self, alloc: int, pc: int, indices: tuple[int, ...]) -> None:
        try:
            self._memory.allocate(alloc, self._scope(indices))
        except ExprFault as fault:
            raise self._control_error(fault, Section.CODE, pc, indices) from None

    def _enter(self, axis: int, indices: tuple[int, ...], *, limit: bool = False) -> range:
        values = self._range(axis, indices, limit=limit)
        self._ends[len(indices)] = values.stop
        return values

    def _range(self, axis: int, indices: tuple[int, ...], *, limit: bool = False) -> range:
        """The values of a loop; the `limit` of a LOOP_WHILE says nothing of its iterations."""
        record = self._axes[axis]
        name = self._plan.string(record.name)
        try:
            scope = self._scope(indices)
            start = self._evaluator.value(record.start, scope)
            extent = self._evaluator.value(record.extent, scope)
        except ExprFault as fault:
            message = f"the extent of axis {name!r}: {fault}"
            raise self._axis_error(fault.code, axis, indices, message) from None
        if extent < 0:
            message = f"axis {name!r} has the negative extent {extent}"
            raise self._axis_error(Code.NEGATIVE_EXTENT, axis, indices, message)
        if start + extent > INT64_MAX:
            message = f"axis {name!r} ends beyond 64 bits"
            raise self._axis_error(Code.ARITHMETIC, axis, indices, message)
        known = not self._evaluator.reads_loops((record.start, record.extent))
        if extent > 0 and known and not limit:
            self._check_lengths(axis, name, start + extent)
        return range(start, start + extent)

    def _while(self, pc: int, limit: range, indices: tuple[int, ...]) -> Iterator[int]:
        """The iterations of a LOOP_WHILE; its condition is asked before each of them."""
        axis = self._code[pc].operand1
        value = limit.start
        while self._condition(pc, Section.AXIS, axis, (*indices, value)):
            if value == limit.stop:
                name = self._plan.string(self._axes[axis].name)
                message = f"loop_while {name!r} still holds after max_iterations={limit.stop}"
                raise self._axis_error(Code.LOOP_LIMIT, axis, indices, message)
            yield value
            value += 1

    def _condition(self, pc: int, section: Section, record: int, indices: tuple[int, ...]) -> bool:
        """The EXT word behind an instruction."""
        return bool(self._control(self._code[pc + 1].operand2, section, record, indices))

    def _control(self, node: int, section: Section, record: int, indices: tuple[int, ...]) -> int:
        """The value of an expression of control; the record is to blame if it has none."""
        try:
            return self._evaluator.value(node, self._scope(indices))
        except ExprFault as fault:
            raise self._control_error(fault, section, record, indices) from None

    def _control_error(
        self, fault: ExprFault, section: Section, record: int, indices: tuple[int, ...]
    ) -> ExecutionError:
        at = f" at outer indices {list(indices)}" if indices else ""
        return run_error(fault.code, f"{fault}{at}", loc=self._plan.loc(section, record))

    def _check_column(self, axis: int, indices: tuple[int, ...]) -> None:
        """Every column of a row exists, whether or not somebody reads it."""
        self._control(self._axes[axis].value, Section.AXIS, axis, indices)

    def _load(self, site: int, word: int, indices: tuple[int, ...]) -> int:
        try:
            region = self._region(self._code[word].operand2, self._scope(indices))
        except ExprFault as fault:
            raise self.task_error(site, indices, fault) from None
        self.loads += 1
        self._control_reads(site, indices, region)
        value = int(self._bound.tensors[region.tensor][tuple(dim.start for dim in region.dims)])
        if value > INT64_MAX:
            fault = ExprFault(Code.ARITHMETIC, "control reads a value beyond 64 signed bits")
            raise self.task_error(site, indices, fault)
        return value

    def _check_lengths(self, axis: int, name: str, iterations: int) -> None:
        """Ragged axes below this loop have one length per iteration, no more and no fewer."""
        for inner in self._axes:
            if inner.kind != AxisKind.RAGGED or inner.parent != axis or inner.lengths == NONE:
                continue
            lengths = len(self._bound.array(inner.lengths))
            if lengths != iterations:
                raise self._bound.error(
                    Code.LENGTHS,
                    inner.lengths,
                    f"array {self._bound.symbol_name(inner.lengths)!r} has {lengths} lengths, "
                    f"but axis {name!r} has {iterations} iterations",
                )

    def _task(self, site: int, indices: tuple[int, ...]) -> Task:
        record = self._sites[site]
        words = self._code[record.pc + 1 : record.pc + 1 + self._code[record.pc].operand1]
        scope = self._scope(indices)
        params = region_params(self._plan, record.kernel)
        accesses = [word.operand2 for word in words if word.opcode in REGION_WORDS]
        try:
            regions = tuple(
                self._argument(access, param, scope)
                for access, param in zip(accesses, params, strict=True)
            )
            nodes = [word.operand2 for word in words if word.opcode == Op.SCALAR]
            scalars = self._scalars(record.kernel, nodes, scope)
            for after, common in self._afters[site]:
                self._check_after(site, after, common, scope)
        except ExprFault as fault:
            raise self.task_error(site, indices, fault) from None
        task = Task(self._next_task, site, record.kernel, indices, regions, scalars)
        self._next_task += 1
        return task

    def _indexed_afters(self, site: int) -> list[tuple[After, int]]:
        """Those that name one task, and how many loops are around both calls."""
        if self._sites[site].kind != TaskKind.KERNEL:
            return []
        pc = self._sites[site].pc
        words = self._code[pc + 1 : pc + 1 + self._code[pc].operand1]
        found = [self._plan.records(After)[w.operand2] for w in words if w.opcode == Op.AFTER]
        mine = self._axes_of(site)
        return [
            (after, sum(a == b for a, b in zip(mine, self._axes_of(after.site), strict=False)))
            for after in found
            if after.num_indices > 0
        ]

    def _axes_of(self, site: int) -> list[int]:
        """The loops around a call, outermost first."""
        axes: list[int] = []
        axis = self._sites[site].axis
        while axis != NONE:
            axes.insert(0, axis)
            axis = self._axes[axis].outer
        return axes

    def _after_indices(self, after: After, scope: Scope) -> tuple[int, ...]:
        nodes = self._plan.records(ExprRef)[after.indices : after.indices + after.num_indices]
        given = (self._evaluator.value(node.expr, scope) for node in nodes)
        return (*scope.loops[: after.shared_levels], *given)

    def _check_after(self, site: int, after: After, common: int, scope: Scope) -> None:
        """ExprFault if the task comes later, or is the one that waits. Indices beyond the end of a
        loop name no task."""
        found, mine = self._after_indices(after, scope), scope.loops
        differs = [level for level in range(common) if found[level] != mine[level]]
        late = after.site == site
        if differs:
            index = found[differs[0]]
            late = mine[differs[0]] < index < self._ends[differs[0]]
        if late:
            name = call_text(self._plan.site_name(after.site), found)
            raise ExprFault(
                Code.AFTER_LATER, f"after= names {name}, which does not come before it,"
            )

    def _argument(self, access: int, param: Param, scope: Scope) -> Region:
        """The region that a parameter gets; ExprFault if it does not fit its tile."""
        region = self._region(access, scope)
        sizes = self._plan.records(ExprRef)[param.shape : param.shape + param.shape_rank]
        seen = [dim for dim in region.dims if not dim.dropped] if sizes else []
        for number, (dim, size) in enumerate(zip(seen, sizes, strict=True)):
            limit = self._evaluator.value(size.expr, scope)
            if dim.extent > limit:
                what = f"{dim.extent} elements in dimension {number} of parameter"
                name = self._plan.string(param.name)
                raise ExprFault(Code.TILE_MISFIT, f"{what} {name!r}, whose tile holds {limit}")
        return self._memory.on_pages(region, ParamKind(param.kind))

    def _scalars(self, kernel: int, nodes: list[int], scope: Scope) -> tuple[int, ...]:
        if not nodes:
            return ()
        params = params_of(self._plan, kernel)
        dtypes = [DType(param.dtype) for param in params if param.kind == ParamKind.SCALAR]
        values = [self._evaluator.value(node, scope) for node in nodes]
        return tuple(scalar_bits(d, v) for d, v in zip(dtypes, values, strict=True))

    def value_at(self, task: Task, node: int) -> int:
        """The value of an expression at the task that was given last."""
        try:
            return self._evaluator.value(node, self._scope(task.indices))
        except ExprFault as fault:
            raise self.task_error(task.site, task.indices, fault) from None

    def task_error(self, site: int, indices: tuple[int, ...], fault: ExprFault) -> ExecutionError:
        return run_error(
            fault.code,
            f"{fault} in {call_text(self._plan.site_name(site), indices)}",
            loc=self._plan.loc(Section.SITE, site),
            why=fault.why,
        )

    def _region(self, access: int, scope: Scope) -> Region:
        record = self._accesses[access]
        dims = tuple(
            self._dim(record.tensor, d, self._access_dims[record.dims + d], scope)
            for d in range(record.rank)
        )
        return Region(record.tensor, record.mode, dims)

    def _dim(self, tensor: int, d: int, dim: AccessDim, scope: Scope) -> DimRange:
        start, extent, step = (
            self._evaluator.value(node, scope) for node in (dim.start, dim.extent, dim.step)
        )
        found = DimRange(start, extent, step, bool(dim.flags & _DROPPED))
        shape = self._bound.tensors[tensor].shape
        problem = _problem(found, shape[d])
        if problem is not None:
            name, table = self._plan.string(self._tensors[tensor].name), self._table(tensor, d)
            what = problem.format(f"dimension {d} of tensor {name!r}", table)
            why = None if table else f"the shape of {name!r} is {shape}"
            raise ExprFault(Code.OUT_OF_BOUNDS, what, why=why)
        return found

    def _table(self, tensor: int, d: int) -> str:
        """Which part of its page table is the extent of a paged tensor, if one is."""
        record = self._tensors[tensor]
        if record.pool == NONE or d > 1:
            return ""
        if d == 0:
            return " (rows of its page table)"
        columns, page = self._bound.table(record).shape[1], self._bound.pool(record).shape[1]
        return f" ({columns} columns of {page} tokens in its page table)"

    def _axis_error(
        self, code: Code, axis: int, indices: tuple[int, ...], message: str
    ) -> ExecutionError:
        at = f" at outer indices {list(indices)}" if indices else ""
        return run_error(code, message + at, loc=self._plan.loc(Section.AXIS, axis))


def _problem(dim: DimRange, length: int) -> str | None:
    """What is wrong with a range in a dimension of that length; {0} stands for the place, {1} for
    more of the extent."""
    if dim.step < 1:
        return f"a region of step {dim.step} in {{0}}"
    if dim.extent < 0:
        return f"a region of negative extent {dim.extent} in {{0}}"
    last = dim.start + (dim.extent - 1) * dim.step
    # No element, no bounds: an empty slice may begin anywhere.
    if dim.extent > 0 and not 0 <= dim.start <= last < length:
        return f"elements {dim.start} to {last} of {{0}} are outside its extent {length}{{1}}"
    return None


def scalar_bits(dtype: DType, value: int) -> int:
    """A value of an expression as the bits of a scalar argument; those of a floating-point one are
    the bits of a double."""
    if dtype in (DType.F64, DType.F32):
        number = np.frombuffer(value.to_bytes(8, "little", signed=True), np.float64)
        with np.errstate(over="ignore"):
            return int.from_bytes(number.astype(dtype.numpy).tobytes(), "little")
    info = np.iinfo(np.uint8 if dtype is DType.BOOL else dtype.numpy)
    if not info.min <= value <= (1 if dtype is DType.BOOL else info.max):
        message = f"a scalar argument is {value}, which its type does not hold"
        raise ExprFault(Code.ARITHMETIC, message)
    return value % (1 << 8 * dtype.size)


def call_text(kernel: str, indices: tuple[int, ...]) -> str:
    """A task as the user would write it: `cell[3, 1]`."""
    return f"{kernel}[{', '.join(str(i) for i in indices)}]"
