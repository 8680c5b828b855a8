"""Which task a fault is about: what the device leaves behind, and what a user is told of it.

Indices are written where the fault is found, since the number of a task says nothing of those that
the last of others runs. Nothing of it is done in a run without a fault, except for kernels that can
fail by themselves: each block has a row for them, which says who runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from pto_wsp.backends.cuda.code import Code
from pto_wsp.backends.cuda.counting import Found
from pto_wsp.backends.cuda.expansion import Table
from pto_wsp.backends.cuda.module import NEED_WORDS, Fault, Module, Word
from pto_wsp.backends.cuda.nest import Call
from pto_wsp.backends.cuda.sync import Wait
from pto_wsp.backends.cuda.timeline import depth_of
from pto_wsp.backends.reference import BoundPlan, find_task
from pto_wsp.backends.reference.walk import Walk
from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code as ErrorCode
from pto_wsp.errors import DeadlockError, ExecutionError, KernelError, PtoError, ScheduleError
from pto_wsp.plan import (
    NONE,
    Axis,
    Instr,
    Op,
    Plan,
    Section,
    Site,
    Symbol,
    SymbolKind,
    Tensor,
)
from pto_wsp.runtime.bindings import Bound
from pto_wsp.runtime.run_errors import run_error

_ROW_HEAD = 2  # the kernel's fault, and the site plus 1, in front of the indices of a block's row


@dataclass(frozen=True, slots=True)
class Places:
    """Words of NEED behind the first ones: the indices of a task that waits or lies outside, those
    of what it waits for, and a row for each block."""

    depth: int

    @staticmethod
    def of(plan: Plan) -> Places:
        return Places(max(1, depth_of(plan)))

    def index(self, level: int) -> int:
        return NEED_WORDS + level

    def awaited(self, level: int) -> int:
        return NEED_WORDS + self.depth + level

    @property
    def rows(self) -> int:
        return NEED_WORDS + 2 * self.depth

    @property
    def row(self) -> int:
        return _ROW_HEAD + self.depth

    def words(self, workers: int) -> int:
        return self.rows + workers * self.row


class FaultLines:
    """Writes the lines that say which task it is."""

    def __init__(self, plan: Plan, code: Code) -> None:
        self._code = code
        self._at = Places.of(plan)

    def outside(self, call: Call, found: Found) -> None:
        code = self._code
        first = code.named(f"pto_fault(CTRL, {Fault.OUTSIDE:d}, {call.site}, t, 0)", "first")
        self._store({self._at.index(k): v for k, v in found.scope.loops.items()}, "NEED", first)

    def wait(self, text: str, found: Found, awaited: dict[int, str]) -> None:
        """A wait, and who waits for whom if it does not end."""
        stuck = self._code.named(text, "stuck")
        mine = {self._at.index(k): v for k, v in found.scope.loops.items()}
        theirs = {self._at.awaited(k): v for k, v in awaited.items()}
        self._store(mine | theirs, "NEED", stuck)

    @property
    def word(self) -> str:
        """Where a kernel of this block says that it failed."""
        return f"NEED + ({self._at.rows} + pid * {self._at.row})"

    def kernel(self, call: Call, found: Found) -> None:
        """In front of a kernel that can fail: who would, unless one of this block has failed.
        Behind it the indices would have to be kept in registers."""
        row = self._code.named(self.word, "row")
        well = self._code.named(f"tl.load({row}) == 0", "well")
        indices = {_ROW_HEAD + k: v for k, v in found.scope.loops.items()}
        self._store({1: str(call.site + 1), **indices}, row, well)

    def end(self) -> None:
        """When a block ends: whether one of its kernels has failed."""
        failed = self._code.named(f"tl.load({self.word}) != 0", "failed")
        self._code.line(f"tl.store(CTRL + {Word.KERNEL:d}, 1, mask={failed})")

    def _store(self, words: dict[int, str], base: str, mask: str) -> None:
        for at, value in words.items():
            self._code.line(f"tl.store({base} + {at}, {value}, mask={mask})")


# --- on the host ---


def told(
    plan: Plan,
    module: Module,
    words: list[int],
    details: list[int],
    inputs: tuple[Bound, ...],
    table: Table | None = None,
) -> PtoError:
    """What a user is told: `words` of CTRL, `details` all of NEED, `inputs` what the run was given,
    of tensors their shapes. `table`: the tasks, where the host has listed them."""
    at = Places.of(plan)
    if words[Word.ERROR] == Fault.NONE:
        return _failed(plan, module, at, details)
    site = words[Word.SITE]
    indices = _indices(plan, site, details[at.index(0) :])
    if words[Word.ERROR] == Fault.OUTSIDE:
        return _outside(plan, site, indices, inputs)
    if words[Word.ERROR] == Fault.NOBODY:
        return ScheduleError(
            ErrorCode.DIRECTIVE_NOT_ENFORCED,
            f"task {words[Word.NUMBER]}, of {plan.site_name(site)!r}, is for block "
            f"{words[Word.DETAIL]}",
            loc=plan.loc(Section.SITE, site),
            why="there are fewer blocks, which are numbered from 0",
            fix="let dispatch_by give one of them, or use DispatchPolicy.affinity(key)",
        )
    if table is not None:
        owner = table.owners.get(details[at.awaited(0)])
        what = "tasks before it" if owner is None else task_text(plan, *table.tasks[owner])
    else:
        what = _awaited(plan, module.waits[words[Word.DETAIL]], words, details)
    return DeadlockError(
        ErrorCode.RUN_NOT_ENDED,
        f"{task_text(plan, site, indices)} waits for {what}: "
        f"{words[Word.SEEN]} of {words[Word.WANTED]} have ended",
        loc=plan.loc(Section.SITE, site),
        why="the others have not ended after some seconds",
        fix="look for a kernel that does not end, or for after= that names a later task",
    )


def _indices(plan: Plan, site: int, words: list[int]) -> tuple[int, ...]:
    return tuple(words[: plan.records(Site)[site].level])


def _failed(plan: Plan, module: Module, at: Places, details: list[int]) -> ExecutionError:
    """The first block with a kernel that failed."""
    rows = [details[k : k + at.row] for k in range(at.rows, len(details), at.row)]
    number, site, *indices = next(row for row in rows if row[0])
    site, own = site - 1, _indices(plan, site - 1, indices)
    name = plan.site_name(site)
    call = f"{name}[{', '.join(map(str, own))}]"
    return KernelError(
        ErrorCode.KERNEL_FAILED,
        f"kernel {call} failed: {module.faults[site][number - 1]}",
        kernel=name,
        indices=own,
        loc=plan.loc(Section.SITE, site),
    )


def _outside(
    plan: Plan, site: int, indices: tuple[int, ...], inputs: tuple[Bound, ...]
) -> ExecutionError:
    """The reference says what is wrong with the regions of a task."""
    try:
        find_task(BoundPlan(plan, inputs), site, indices)
    except ExecutionError as error:
        return error
    message = f"{task_text(plan, site, indices)} touches elements outside its tensors"
    return run_error(ErrorCode.OUT_OF_BOUNDS, message, loc=plan.loc(Section.SITE, site))


def mistake(plan: Plan, inputs: tuple[Bound, ...]) -> ExecutionError | None:
    """What the reference finds wrong, first of all, when it goes through the tasks of a run; None
    if that is nothing: then it was another run."""
    try:
        for _ in Walk(BoundPlan(plan, inputs)).tasks():
            pass
    except ExecutionError as error:
        return error
    return None


def mistake_before() -> ExecutionError:
    """Of a run whose values nobody has any more."""
    return ExecutionError(
        ErrorCode.ARITHMETIC,
        "control of a run before this one had a mistake",
        why="nobody waited for it, and the values that it had are gone",
        fix="use execute() instead of enqueue(), which tells what is wrong with a run",
    )


def _awaited(plan: Plan, wait: Wait, words: list[int], details: list[int]) -> str:
    if wait.group.sites:
        at = Places.of(plan)
        given = {loop.level: details[at.awaited(loop.level)] for loop in wait.group.loops}
        tasks = " and ".join(_tasks_text(plan, s, given) for s in wait.group.sites)
        return f"{tasks} ({wait.why})"
    return f"the {words[Word.WANTED]} tasks before it in {_construct(plan, wait.group.pc)}"


def task_text(plan: Plan, site: int, indices: tuple[int, ...]) -> str:
    """`add[rows=2, cols=1]`."""
    return _tasks_text(plan, site, dict(enumerate(indices)))


def _tasks_text(plan: Plan, site: int, given: dict[int, int]) -> str:
    """The same, with `*` for loops of which all iterations are meant."""
    names = _axis_names(plan, site)
    shown = ", ".join(f"{name}={given.get(level, '*')}" for level, name in enumerate(names))
    return f"{plan.site_name(site)}[{shown}]"


def _axis_names(plan: Plan, site: int) -> list[str]:
    axes, axis = plan.records(Axis), plan.records(Site)[site].axis
    names: list[str] = []
    while axis != NONE:
        names.insert(0, plan.string(axes[axis].name))
        axis = axes[axis].outer
    return names


def _construct(plan: Plan, pc: int) -> str:
    instr = plan.records(Instr)[pc]
    if instr.opcode != Op.FOR_EACH:
        return "the parts of sequential(...)"
    return f"P.seq({plan.string(plan.records(Axis)[instr.operand1].name)})"


def on_host(
    plan: Plan,
    tensors: dict[int, Any],
    numbers: dict[int, int | float],
    arrays: dict[int, npt.NDArray[Any]],
) -> tuple[Bound, ...]:
    """What a run was given, by symbol: numbers, what control reads, and page tables; of other
    tensors how they lie."""
    symbols, records = plan.records(Symbol), plan.records(Tensor)
    tables = {records[t.table].symbol for t in records if t.table != NONE}
    found: list[Bound] = []
    for index, symbol in enumerate(symbols):
        if index in numbers:
            found.append(Bound(index, numbers[index]))
        elif symbol.kind == SymbolKind.ARRAY or index in tables:
            found.append(Bound(index, tensors[index].cpu().numpy()))
        elif index in arrays:
            found.append(Bound(index, _shown(arrays[index])))
        else:
            dtype = DType(symbol.dtype).numpy
            found.append(Bound(index, _without_content(tensors[index], dtype)))
    return tuple(found)


def _shown(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    found = array.view()
    found.setflags(write=False)
    return found


def _without_content(tensor: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """An array that lies as a tensor does. Memory that nobody touches takes no room."""
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    last = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if n)
    flat = np.empty(last + 1, dtype)
    array = as_strided(flat, shape, tuple(s * flat.itemsize for s in strides))
    array.setflags(write=False)
    return array
