"""The walk of a plan: which tasks there are, in program order.

Bodies run front to back, loops run through their values upwards. Loops that order their iterations
and loops that do not are walked alike, for program order keeps every order there is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pto_wsp.backends.reference.bound import BoundPlan
from pto_wsp.backends.reference.expr import INT64_MAX, Evaluator, ExprFault, Scope
from pto_wsp.errors import ExecutionError
from pto_wsp.plan import (
    NONE,
    Access,
    AccessDim,
    AccessMode,
    Axis,
    AxisKind,
    Entry,
    Instr,
    Op,
    Section,
    Site,
    Tensor,
)

# Argument words that name a region.
REGION_WORDS = frozenset({Op.IO_INPUT, Op.IO_OUTPUT, Op.IO_INOUT, Op.IO_ACCUM})
_DROPPED = 1  # flag of AccessDim


@dataclass(frozen=True, slots=True)
class DimRange:
    """Elements start, start + step, ... (`extent` of them). The kernel does not see a dropped
    dimension."""

    start: int
    extent: int
    step: int
    dropped: bool


@dataclass(frozen=True, slots=True)
class Region:
    """The part of a tensor that a task touches."""

    tensor: int
    mode: AccessMode
    dims: tuple[DimRange, ...]


@dataclass(frozen=True, slots=True)
class Task:
    """One kernel call. `indices` are those of all enclosing loops, outermost first; `regions` are
    in parameter order."""

    task_id: int
    site: int
    kernel: int
    indices: tuple[int, ...]
    regions: tuple[Region, ...]


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
        self._next_task = 0

    def tasks(self) -> Iterator[Task]:
        """All tasks in program order."""
        yield from self._block(self._plan.records(Entry)[0].pc, ())

    def _block(self, pc: int, indices: tuple[int, ...]) -> Iterator[Task]:
        """The tasks from `pc` up to the END or HALT of that block."""
        while True:
            instr = self._code[pc]
            match instr.opcode:
                case Op.END | Op.HALT:
                    return
                case Op.NOP:
                    pc += 1
                case Op.PARALLEL_FOR | Op.FOR_EACH:
                    for value in self._range(instr.operand1, indices):
                        yield from self._block(pc + 1, (*indices, value))
                    pc = instr.operand2
                case Op.COMBINE | Op.SEQUENTIAL:
                    yield from self._block(pc + 1, indices)
                    pc = instr.operand2
                case Op.TASK:
                    yield self._task(instr.operand2, indices)
                    pc += 1 + instr.operand1
                case op:
                    raise AssertionError(f"check() lets no {op.name} pass")

    def _range(self, axis: int, indices: tuple[int, ...]) -> range:
        record = self._axes[axis]
        name = self._plan.string(record.name)
        try:
            scope = Scope(indices)
            start = self._evaluator.value(record.start, scope)
            extent = self._evaluator.value(record.extent, scope)
        except ExprFault as fault:
            raise self._axis_error(axis, indices, f"the extent of axis {name!r}: {fault}") from None
        if extent < 0:
            raise self._axis_error(axis, indices, f"axis {name!r} has the negative extent {extent}")
        if start + extent > INT64_MAX:
            raise self._axis_error(axis, indices, f"axis {name!r} ends beyond 64 bits")
        if extent > 0 and not self._evaluator.reads_loops((record.start, record.extent)):
            self._check_lengths(axis, name, start + extent)
        return range(start, start + extent)

    def _check_lengths(self, axis: int, name: str, iterations: int) -> None:
        """Ragged axes below this loop have one length per iteration, no more and no fewer."""
        for inner in self._axes:
            if inner.kind != AxisKind.RAGGED or inner.parent != axis or inner.lengths == NONE:
                continue
            lengths = len(self._bound.array(inner.lengths))
            if lengths != iterations:
                raise self._bound.error(
                    inner.lengths,
                    f"array {self._bound.symbol_name(inner.lengths)!r} has {lengths} lengths, "
                    f"but axis {name!r} has {iterations} iterations",
                )

    def _task(self, site: int, indices: tuple[int, ...]) -> Task:
        record = self._sites[site]
        words = self._code[record.pc + 1 : record.pc + 1 + self._code[record.pc].operand1]
        scope = Scope(indices)
        try:
            regions = tuple(
                self._region(word.operand2, scope) for word in words if word.opcode in REGION_WORDS
            )
        except ExprFault as fault:
            name = self._plan.kernel_names[record.kernel]
            raise ExecutionError(
                f"{fault} in {call_text(name, indices)}",
                loc=self._plan.loc(Section.SITE, site),
                why=fault.why,
            ) from None
        task = Task(self._next_task, site, record.kernel, indices, regions)
        self._next_task += 1
        return task

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
            name = self._plan.string(self._tensors[tensor].name)
            where = f"dimension {d} of tensor {name!r}"
            raise ExprFault(problem.format(where), why=f"the shape of {name!r} is {shape}")
        return found

    def _axis_error(self, axis: int, indices: tuple[int, ...], message: str) -> ExecutionError:
        at = f" at outer indices {list(indices)}" if indices else ""
        return ExecutionError(message + at, loc=self._plan.loc(Section.AXIS, axis))


def _problem(dim: DimRange, length: int) -> str | None:
    """What is wrong with a range in a dimension of that length; {} stands for the place."""
    if dim.step < 1:
        return f"a region of step {dim.step} in {{}}"
    if dim.extent < 0:
        return f"a region of negative extent {dim.extent} in {{}}"
    last = dim.start + (dim.extent - 1) * dim.step
    # No element, no bounds: an empty slice may begin anywhere.
    if dim.extent > 0 and not 0 <= dim.start <= last < length:
        return f"elements {dim.start} to {last} of {{}} are outside its extent {length}"
    return None


def call_text(kernel: str, indices: tuple[int, ...]) -> str:
    """A task as the user would write it: `cell[3, 1]`."""
    return f"{kernel}[{', '.join(str(i) for i in indices)}]"
