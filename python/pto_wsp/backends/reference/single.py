"""One task alone: found by its indices, run on copies of its regions, written to a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from pto_wsp.backends.reference.bound import Array, BoundPlan
from pto_wsp.backends.reference.call import (
    kernel_error,
    make_caller,
    page_views,
    paged,
    region_view,
)
from pto_wsp.backends.reference.region import DimRange, Region, params_of, region_params
from pto_wsp.backends.reference.walk import Task, Walk, call_text
from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import ExecutionError
from pto_wsp.kernels import LoadedKernel, scalar_value
from pto_wsp.plan import (
    NONE,
    Access,
    AccessMode,
    Axis,
    Channel,
    Instr,
    Op,
    ParamKind,
    Plan,
    Section,
    Site,
    Storage,
    StorageClass,
    TaskKind,
    Tensor,
)
from pto_wsp.runtime.engine import TaskDump

_LOOPS = (Op.PARALLEL_FOR, Op.FOR_EACH, Op.SELECT, Op.LOOP_WHILE)
_CONTROL = (Op.SLOT_SET, Op.SLOT_LOAD, Op.LET)


def run_task(
    bound: BoundPlan,
    kernels: tuple[LoadedKernel, ...],
    site: int,
    indices: tuple[int, ...],
    path: Path | None,
) -> TaskDump:
    """Runs the task of a site at those loop indices on copies of what it touches."""
    task = find_task(bound, site, indices)
    plan = bound.plan
    copies = Copies(bound, task)
    alone = replace(task, regions=copies.regions)
    arrays = _scalars(plan, task) | copies.shown("before")
    name = plan.kernel_names[task.kernel]
    where = path or Path("-".join([name, *map(str, indices)]) + ".npz")
    loc = plan.loc(Section.SITE, site)
    try:
        make_caller(plan, task.kernel, kernels[task.kernel])(alone, copies)
        arrays |= copies.shown("after", written=True)
    except Exception as error:
        why = f"what it was given is in {where}"
        raise kernel_error(plan, task, error, why) from error
    finally:
        np.savez(where, allow_pickle=False, **arrays)
    return TaskDump(name, indices, loc, where, arrays)


def choose_task(
    bound: BoundPlan,
    kernel: str,
    given: tuple[int, ...],
    named: Mapping[str, int],
    *,
    line: int | None,
    site: int | None,
) -> tuple[int, tuple[int, ...]]:
    """A call of a kernel, by the name that the user gave it, and the indices of its loops. Of
    several calls, the one that has a task there."""
    plan = bound.plan
    calls = _calls(plan, kernel)
    chosen = [i for i in calls if line in (None, _line(plan, i)) and site in (None, i)]
    if not chosen:
        asked = {"line": line, "site": site}
        where = ", ".join(f"{key}={value}" for key, value in asked.items() if value is not None)
        raise _ambiguous(plan, calls, f"kernel {kernel!r} is not called at {where}")
    if len(chosen) == 1:
        return chosen[0], loop_indices(plan, chosen[0], given, named)
    found: list[tuple[int, tuple[int, ...]]] = []
    refused: list[ExecutionError] = []
    for call in chosen:
        try:
            indices = loop_indices(plan, call, given, named)
            _check_there(bound, call, indices)
            found.append((call, indices))
        except ExecutionError as error:
            refused.append(error)
    if not found:
        raise refused[0]
    if len(found) == 1:
        return found[0]
    there = [call for call, _ in found]
    task = call_text(kernel, found[0][1])
    raise _ambiguous(plan, there, f"{task} is a task of {len(found)} calls")


def _calls(plan: Plan, kernel: str) -> list[int]:
    names, sites = plan.kernel_names, plan.records(Site)
    calls = [i for i, s in enumerate(sites) if kernel in (_plain(names, s), _full(names, s))]
    if calls:
        return calls
    known = ", ".join(sorted({_plain(names, s) for s in sites} - {""}))
    what = f"no task of this program runs a kernel {kernel!r}"
    raise ExecutionError(Code.RUN_TASK, what, fix=f"use one of: {known}")


def _ambiguous(plan: Plan, calls: list[int], what: str) -> ExecutionError:
    """Lines, where they tell the calls apart; a loop of Python calls many times in one."""
    lines = [_line(plan, call) for call in calls]
    if len(set(lines)) == len(calls):
        choices = [f"line={line}" for line in lines]
    else:
        choices = [
            f"site={call} ({plan.site_name(call)}, line {line})"
            for call, line in zip(calls, lines, strict=True)
        ]
    return ExecutionError(Code.RUN_TASK, what, fix=f"say which: {', '.join(choices)}")


def _check_there(bound: BoundPlan, site: int, indices: tuple[int, ...]) -> None:
    """ExecutionError if a site has no task at those indices. One whose regions are wrong is there:
    running it says what is wrong."""
    try:
        find_task(bound, site, indices)
    except ExecutionError as error:
        if error.code is Code.RUN_TASK:
            raise


def _line(plan: Plan, site: int) -> int:
    """The line of a call; inside of a ready workload, where one of the user's stands for many, that
    of the workload."""
    loc = plan.loc(Section.SITE, site)
    if loc is None:
        return 0
    return loc.line if loc.inside is None else loc.inside.line


def _full(names: tuple[str, ...], site: Site) -> str:
    return "" if site.kind != TaskKind.KERNEL else names[site.kernel]


def _plain(names: tuple[str, ...], site: Site) -> str:
    """The name of a kernel without the number of its specialisation."""
    return _full(names, site).rsplit(".", 1)[0]


def loop_indices(
    plan: Plan, site: int, given: tuple[int, ...], named: Mapping[str, int]
) -> tuple[int, ...]:
    """The indices of a task's loops, outermost first, from what the user gave."""
    axes = plan.records(Axis)
    names: list[str] = []
    axis = plan.records(Site)[site].axis
    while axis != NONE:
        names.insert(0, plan.string(axes[axis].name))
        axis = axes[axis].outer
    if _reads_message(plan, site) or plan.records(Site)[site].level > len(names):
        raise ExecutionError(
            Code.RUN_TASK,
            f"{plan.site_name(site)} has a message",
            loc=plan.loc(Section.SITE, site),
            why="what a message holds is known while its process runs",
            fix="trace a run, or run the kernel alone: k.run(...)",
        )
    what = f"{plan.site_name(site)} stands in the loops ({', '.join(names)})"
    unknown = sorted(set(named) - set(names))
    if unknown:
        raise _bad_indices(plan, site, f"{what}, not in {unknown[0]!r}", names)
    values = dict(enumerate(given))
    for level, name in enumerate(names):
        if name in named:
            values[level] = named[name]
    missing = [name for level, name in enumerate(names) if level not in values]
    if missing or len(given) > len(names):
        raise _bad_indices(plan, site, what, names)
    return tuple(values[level] for level in range(len(names)))


def _reads_message(plan: Plan, site: int) -> bool:
    messages = {channel.element for channel in plan.records(Channel)}
    pc, code = plan.records(Site)[site].pc, plan.records(Instr)
    words = code[pc + 1 : pc + 1 + code[pc].operand1]
    reads = [word.operand2 for word in words if word.opcode in (Op.IO_INPUT, Op.IO_INOUT)]
    return any(plan.records(Access)[access].tensor in messages for access in reads)


def _bad_indices(plan: Plan, site: int, what: str, names: list[str]) -> ExecutionError:
    return ExecutionError(
        Code.RUN_TASK,
        what,
        loc=plan.loc(Section.SITE, site),
        why="a task is one iteration of each of them",
        fix=f"give an index for each: {', '.join(f'{name}=0' for name in names)}",
    )


def _scalars(plan: Plan, task: Task) -> dict[str, Array]:
    named = [p for p in params_of(plan, task.kernel) if p.kind == ParamKind.SCALAR]
    return {
        plan.string(p.name): np.array(scalar_value(DType(p.dtype), bits))
        for p, bits in zip(named, task.scalars, strict=True)
    }


# --- finding it ---


def find_task(bound: BoundPlan, site: int, indices: tuple[int, ...]) -> Task:
    """The task of a site at those loop indices; ExecutionError if there is none, or something is
    wrong with its regions."""
    for task in _Path(bound, site, indices).tasks():
        if task.site == site and task.indices == indices:
            return task
    name = call_text(bound.plan.site_name(site), indices)
    raise ExecutionError(
        Code.RUN_TASK,
        f"there is no task {name}",
        loc=bound.plan.loc(Section.SITE, site),
        why="a condition around it does not hold for these indices",
    )


class _Path(Walk):
    """The walk straight to one task: of the loops around it only the one iteration, of the others
    only those that set slots, and no task but the one."""

    def __init__(self, bound: BoundPlan, site: int, indices: tuple[int, ...]) -> None:
        super().__init__(bound)
        code = bound.plan.records(Instr)
        pc = bound.plan.records(Site)[site].pc
        loops = {i: instr for i, instr in enumerate(code) if instr.opcode in _LOOPS}
        around = [instr for i, instr in loops.items() if i < pc < instr.operand2]
        self._site, self._wanted = site, indices
        self._levels = {
            instr.operand1: level
            for level, instr in enumerate(around)
            if instr.opcode != Op.LOOP_WHILE
        }
        # Axes whose iterations change nothing that the task could see.
        self._idle = {
            instr.operand1
            for i, instr in loops.items()
            if instr not in around
            and not any(code[k].opcode in _CONTROL for k in range(i, instr.operand2))
        }

    def _range(self, axis: int, indices: tuple[int, ...], *, limit: bool = False) -> range:
        if axis in self._idle:
            return range(0)
        values = super()._range(axis, indices, limit=limit)
        if axis not in self._levels:
            return values
        index = self._wanted[self._levels[axis]]
        if index in values:
            return range(index, index + 1)
        name = self._plan.string(self._axes[axis].name)
        message = f"axis {name!r} has the indices {values.start} to {values.stop - 1}, not {index}"
        raise self._axis_error(Code.RUN_TASK, axis, indices, message)

    def _task(self, site: int, indices: tuple[int, ...]) -> Task:
        if site == self._site and indices == self._wanted:
            return super()._task(site, indices)
        return Task(0, site, 0, indices, ())


# --- running it ---


class Copies:
    """The memory of one task: of each tensor it touches, a copy of the smallest box around its
    regions, or of the pages they lie on. Regions that overlap stay so."""

    def __init__(self, bound: BoundPlan, task: Task) -> None:
        self.plan = bound.plan
        self._bound = bound
        self._params = region_params(bound.plan, task.kernel)
        self.tensors: dict[int, Array] = {}
        self._pools: dict[int, Array] = {}
        self._tables: dict[int, Array] = {}
        self._check_temporaries(task)
        regions = list(task.regions)
        for tensor in {region.tensor for region in regions}:
            mine = [i for i, region in enumerate(regions) if region.tensor == tensor]
            copied = self._copy(tensor, [regions[i] for i in mine])
            for i, region in zip(mine, copied, strict=True):
                regions[i] = region
        self.regions = tuple(regions)

    def pool(self, paged: Tensor) -> Array:
        return self._pools[paged.pool]

    def table(self, paged: Tensor) -> Array:
        return self._tables[paged.table]

    def shown(self, when: str, *, written: bool = False) -> dict[str, Array]:
        """The regions as arrays, by parameter: those that the task writes, or all."""
        out: dict[str, Array] = {}
        for param, region in zip(self._params, self.regions, strict=True):
            if param.kind == ParamKind.TOKEN or (written and region.mode == AccessMode.IN):
                continue
            name = f"{self.plan.string(param.name)}_{when}"
            parts = list(self._parts(region))
            out[name] = parts[0].copy() if len(parts) == 1 else np.concatenate(parts)
        return out

    def _parts(self, region: Region) -> Iterator[Array]:
        if self.plan.records(Tensor)[region.tensor].pool == NONE:
            yield region_view(self.tensors[region.tensor], region)
        else:
            yield from page_views(paged(self, region))

    def _check_temporaries(self, task: Task) -> None:
        storages, tensors = self.plan.records(Storage), self.plan.records(Tensor)
        for param, region in zip(self._params, task.regions, strict=True):
            tensor = tensors[region.tensor]
            is_temp = storages[tensor.storage].storage_class == StorageClass.TEMP
            if is_temp and region.mode != AccessMode.OUT:
                name, what = self.plan.string(tensor.name), self.plan.string(param.name)
                raise ExecutionError(
                    Code.RUN_TASK,
                    f"{what} is temporary {name!r}, which holds nothing between runs",
                    loc=self.plan.loc(Section.SITE, task.site),
                    fix="make it a Tensor of the program while you look at it",
                )

    def _copy(self, tensor: int, regions: list[Region]) -> list[Region]:
        record = self.plan.records(Tensor)[tensor]
        if record.pool != NONE:
            return self._copy_pages(record, regions)
        full = [region for region in regions if all(dim.extent > 0 for dim in region.dims)]
        box = [
            (min(r.dims[d].start for r in full), max(_last(r.dims[d]) for r in full) + 1)
            for d in range(record.rank if full else 0)
        ]
        self.tensors[tensor] = self._bound.tensors[tensor]
        if self.plan.records(Storage)[record.storage].storage_class != StorageClass.TOKEN and full:
            part = self.tensors[tensor][(*(slice(lo, hi) for lo, hi in box), ...)]
            self.tensors[tensor] = part.copy()
        return [_moved(region, [lo for lo, _ in box]) for region in regions]

    def _copy_pages(self, record: Tensor, regions: list[Region]) -> list[Region]:
        """The pages that the regions lie on, in a pool of their own; tokens keep their places."""
        pool, table = self._bound.pool(record), self._bound.table(record)
        used = sorted({page for region in regions for page in region.pages})
        self._pools[record.pool] = pool[used].copy()
        renumbered = {page: k for k, page in enumerate(used)}
        small = np.zeros_like(table)
        for region in regions:
            first = region.dims[1].start // pool.shape[1]
            for k, page in enumerate(region.pages):
                small[region.dims[0].start, first + k] = renumbered[page]
        self._tables[record.table] = small
        return [
            replace(region, pages=tuple(renumbered[page] for page in region.pages))
            for region in regions
        ]


def _last(dim: DimRange) -> int:
    return dim.start + (dim.extent - 1) * dim.step


def _moved(region: Region, by: list[int]) -> Region:
    if not by:
        return region
    dims = tuple(
        replace(dim, start=dim.start - lo if dim.extent > 0 else 0)
        for dim, lo in zip(region.dims, by, strict=True)
    )
    return replace(region, dims=dims)
