"""Errors of runs, with one way out for each kind, so that every target gives the same advice."""

from __future__ import annotations

from pto_wsp import srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError, ExecutionError
from pto_wsp.srcloc import SrcLoc

_FIXES = {
    Code.BINDING_RANGE: "bind numbers in that range",
    Code.LENGTHS: "bind one length for each iteration, and both names in the same execute(...)",
    Code.READ_ONLY: "bind an array that may be written, or a copy of this one",
    Code.ARRAY_WRITTEN: "pass it to the workload as a Tensor, for which control waits, or bind a "
    "copy",
    Code.OUT_OF_BOUNDS: "correct the index or the extents of the loops, or bind a larger array",
    Code.ARITHMETIC: "leave such cases out with P.when(...), or give them a value with select(...)",
    Code.NEGATIVE_EXTENT: "loop over maximum(n, 0), or correct what the extent is made of",
    Code.LOOP_LIMIT: "raise max_iterations, or let the body change what the condition reads",
    Code.PROGRAM_STATE: "wait for runs in the process that started them, before close()",
    Code.MACHINE_RESOURCES: "use fewer workers, compile(num_threads=2), a smaller window or trace",
}


def run_error(
    code: Code, message: str, *, loc: SrcLoc | None = None, why: str | None = None
) -> ExecutionError:
    """A run that cannot start or cannot go on."""
    return ExecutionError(code, message, loc=loc, why=why, fix=_FIXES.get(code))


def tasks_depend_on_data() -> CompileError:
    """A question that only a run can answer."""
    return CompileError(
        Code.TASKS_DEPEND_ON_DATA,
        "which tasks there are depends on data that tasks compute",
        loc=srcloc.here(),
        why="they are known only while the program runs",
        fix="call execute(hash=True), then task_hash() and stats",
    )
