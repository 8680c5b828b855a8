"""Turns error records of the native core into exceptions with the user's source lines."""

from __future__ import annotations

from dataclasses import dataclass

from pto_wsp import srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import (
    CompileError,
    DeadlockError,
    ExecutionError,
    KernelError,
    PlanError,
    PtoError,
    ScheduleError,
    WindowOverflow,
)
from pto_wsp.options import WORKSPACE_LIMIT
from pto_wsp.plan import NONE, Plan, ScheduleArg, ScheduleEntry, Section, Status, Tensor
from pto_wsp.runtime.run_errors import run_error, tasks_depend_on_data
from pto_wsp.srcloc import SrcLoc

NativeError = tuple[int, str, int, int, int, int, tuple[int, ...], int, int]

# What went wrong in a run, in the words of the user's errors. Statuses that are not here have a
# class of exception of their own.
_CODES = {
    Status.BIND_ERROR: Code.BINDING_TYPE,
    Status.RANGE_ERROR: Code.BINDING_RANGE,
    Status.LENGTH_ERROR: Code.LENGTHS,
    Status.READ_ONLY: Code.READ_ONLY,
    Status.ARRAY_WRITTEN: Code.ARRAY_WRITTEN,
    Status.OUT_OF_BOUNDS: Code.OUT_OF_BOUNDS,
    Status.ARITHMETIC: Code.ARITHMETIC,
    Status.NEGATIVE_EXTENT: Code.NEGATIVE_EXTENT,
    Status.LOOP_LIMIT: Code.LOOP_LIMIT,
    Status.PAGE_SIZE: Code.PAGED_PARTS,
    Status.PAGE_ERROR: Code.PAGES,
    Status.TILE_MISFIT: Code.TILE_MISFIT,
    Status.STRIDE_ERROR: Code.BINDING_ORDER,
    Status.EXTENT_ERROR: Code.BINDING_EXTENT,
    Status.UNBOUNDED: Code.TEMPORARY_SIZE,
    Status.INTERRUPTED: Code.PROGRAM_STATE,
    Status.RECORDING_MISFIT: Code.RECORDING,
    Status.AFTER_LATER: Code.AFTER_LATER,
    Status.CHANNEL_CLOSED: Code.CHANNEL_CLOSED,
    Status.CHANNEL_GAP: Code.CHANNEL_GAP,
}


@dataclass(frozen=True, slots=True)
class Failure:
    """One error record: status, text, and the task, symbol or other record to blame."""

    status: Status
    message: str
    site: int | None
    symbol: int | None
    record: tuple[Section, int] | None
    indices: tuple[int, ...]
    task_id: int
    offset: int

    @classmethod
    def of(cls, native: NativeError) -> Failure:
        status, message, site, symbol, section, record, indices, task_id, offset = native
        return cls(
            Status(status),
            message,
            None if site == NONE else site,
            None if symbol == NONE else symbol,
            None if section == NONE else (Section(section), record),
            indices,
            task_id,
            offset,
        )

    def to_exception(self, plan: Plan) -> PtoError:
        """The exception that a user sees."""
        match self.status:
            case Status.PLAN_ERROR:
                return PlanError(Code.PLAN_DAMAGED, self.message, offset=self.offset)
            case Status.SCHEDULE_ERROR if self.message.startswith("TracePolicy.cycles"):
                return ScheduleError(
                    Code.DIRECTIVE_NOT_ENFORCED,
                    f"{self.message} in {self._task(plan)}",
                    loc=self._loc(plan),
                    why="time does not go backwards",
                    fix="use a key that is 0 or more for every task: maximum(..., 0)",
                )
            case Status.SCHEDULE_ERROR if self.site is not None:
                return ScheduleError(
                    Code.DIRECTIVE_NOT_ENFORCED,
                    self.message + (f" in {self._task(plan)}" if self.indices else ""),
                    loc=self._loc(plan),
                    why=f"{self._directive(plan)} needs it for every task"
                    if self.record is not None
                    else "a task runs on one of the workers there are",
                    fix='give calls in other loops a value: t.get("rows", 0)'
                    if self.record is not None
                    else "use a key of that range, or more workers: compile(num_threads=...)",
                )
            case Status.ORDER_REFUSED:
                return ScheduleError(
                    Code.ORDER_NOT_PROVED,
                    self.message,
                    loc=self._loc(plan),
                    why="results are those of program order, whatever the order of generation",
                    fix="leave this order out, or write to memory of its own in each iteration",
                )
            case Status.SCHEDULE_ERROR if self.record is None:
                return ScheduleError(
                    Code.DIRECTIVE_NOT_ENFORCED,
                    self.message,
                    loc=srcloc.here(),
                    why="the directives and what was asked of this run exclude each other",
                    fix="leave out one of them",
                )
            case Status.SCHEDULE_ERROR:
                return ScheduleError(
                    Code.DIRECTIVE_NOT_ENFORCED,
                    f"{self._directive(plan)} cannot be enforced by cpu_sim",
                    loc=self._loc(plan),
                    why="the target does not know it, or not with these numbers",
                    fix="use smaller numbers, or leave the directive out",
                )
            case Status.UNSUPPORTED:
                return CompileError(
                    Code.TARGET_LIMIT,
                    self.message,
                    loc=self._loc(plan),
                    why="target cpu_sim runs a part of what a plan can hold",
                    fix="write the workload without it, or use another target",
                )
            case Status.DATA_DEPENDENT:
                return tasks_depend_on_data()
            case Status.KERNEL_ERROR:
                return self.kernel_error(plan, self.message)
            case Status.DEADLOCK if self.record is not None and self.record[0] == Section.CODE:
                return run_error(Code.NETWORK_STUCK, self.message, loc=self._loc(plan))
            case Status.DEADLOCK:
                return DeadlockError(
                    Code.RUN_NOT_ENDED,
                    self.message,
                    loc=self._loc(plan),
                    why="every task that is left waits for another one, and nothing runs",
                    fix="report it: loops, conditions and after= cannot make such a run"
                    if self.record is None
                    else f"give {self._directive(plan)} a larger number, and report it",
                )
            case Status.WINDOW_OVERFLOW | Status.TASK_TOO_LARGE:
                return self._window_overflow(plan)
            case _:
                return self._run_error(plan)

    def _window_overflow(self, plan: Plan) -> WindowOverflow:
        if self.status is Status.TASK_TOO_LARGE:
            return WindowOverflow(
                Code.TASK_TOO_LARGE,
                f"{self._task(plan)} writes {self.message}",
                loc=self._loc(plan),
                why="the bytes that a task writes count as long as it lives",
                fix="use a larger TaskWindow, or tasks that write smaller regions",
            )
        return WindowOverflow(
            Code.WINDOW_FULL,
            self.message,
            loc=self._loc(plan),
            fix="use a larger TaskWindow, or mode=WindowMode.STALL",
        )

    def _run_error(self, plan: Plan) -> ExecutionError:
        if self.status is Status.NO_MEMORY and self.record is not None:
            return self._no_room(plan)
        code = _CODES.get(self.status)
        if code is None:  # an exception of the C++ library
            message = "the run needs more threads or memory than the system gives"
            return run_error(Code.MACHINE_RESOURCES, message, why=self.message)
        return run_error(code, self.message + self._where(plan), loc=self._loc(plan))

    def _no_room(self, plan: Plan) -> ExecutionError:
        """For a temporary, or the buffers of a channel."""
        if self.record is None or WORKSPACE_LIMIT.name not in self.message:
            return run_error(
                Code.MACHINE_RESOURCES,
                self.message,
                loc=self._loc(plan),
                why="memory for it is taken before the run, for each worker",
                fix="make it smaller, or use fewer workers: compile(num_threads=2)",
            )
        name = plan.string(plan.records(Tensor)[self.record[1]].name)
        return run_error(
            Code.MACHINE_RESOURCES,
            self.message.replace("these are", f"those of {name!r} are"),
            loc=self._loc(plan),
            why=f"compile({WORKSPACE_LIMIT.name}=...) says how many they may take, and each worker "
            "has a copy",
            fix=f"raise {WORKSPACE_LIMIT.name}, use fewer workers, or make the temporary smaller",
        )

    def _directive(self, plan: Plan) -> str:
        if self.record is None:
            return "a directive"
        entry = plan.records(ScheduleEntry)[self.record[1]]
        args = plan.records(ScheduleArg)[entry.args : entry.args + entry.num_args]
        return f"{entry.id.name.lower()}({', '.join(str(arg.bits) for arg in args)})"

    def kernel_error(self, plan: Plan, reason: str) -> KernelError:
        """A failed kernel, with `reason` in the user's words."""
        reason = reason or "the kernel returned a failure without a message"
        return KernelError(
            Code.KERNEL_FAILED,
            f"kernel {self._task(plan)} failed: {reason}",
            kernel=self._kernel(plan),
            indices=self.indices,
            loc=self._loc(plan),
        )

    def _where(self, plan: Plan) -> str:
        """Which task, or which iteration of the loops around a record."""
        if self.site is not None:
            return f" in {self._task(plan)}"
        if self.record is not None and self.indices:
            return f" at outer indices {list(self.indices)}"
        return ""

    def _kernel(self, plan: Plan) -> str:
        if self.site is None:
            return "?"
        return plan.site_name(self.site)

    def _task(self, plan: Plan) -> str:
        return f"{self._kernel(plan)}[{', '.join(map(str, self.indices))}]"

    def _loc(self, plan: Plan) -> SrcLoc | None:
        if self.site is not None:
            return plan.loc(Section.SITE, self.site)
        if self.record is not None:
            return plan.loc(*self.record)
        if self.symbol is not None:
            return plan.loc(Section.SYMBOL, self.symbol)
        return None
