"""Errors of runs. The advice for each kind is here, so that every target gives the same."""

from __future__ import annotations

from dataclasses import replace

from pto_wsp import srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import (
    ChannelClosed,
    ChannelError,
    ChannelFull,
    CompileError,
    DeadlockError,
    ExecutionError,
)
from pto_wsp.srcloc import SrcLoc

# By code: why it is one, and what to do about it.
_ADVICE = {
    Code.BINDING_RANGE: ("extents and lengths are counts, and scalars have the range of their type",
        "bind numbers in that range"),
    Code.LENGTHS: ("every index of the outer axis needs its length",
        "bind one length for each iteration, and both names in the same execute(...)"),
    Code.READ_ONLY: ("kernels write into the memory that is bound",
        "bind an array that may be written, or a copy of this one"),
    Code.ARRAY_WRITTEN: ("control reads an array at any time of a run",
        "pass it to the workload as a Tensor, for which control waits, or bind a copy"),
    Code.BINDING_ORDER: ("its layout says in what order its elements lie in memory",
        "bind a copy in that order, np.ascontiguousarray(a) or np.asfortranarray(a)"),
    Code.BINDING_EXTENT: ("kernels would take what they find as a part of a tile",
        "bind an array of those extents, or make the workload for others"),
    Code.TILE_MISFIT: ("a kernel is made for tiles of at most that shape",
        "pass a smaller slice; Tiled(axis, size) cuts an axis into tiles"),
    Code.OUT_OF_BOUNDS: ("regions and indices are taken as they are written, and never clipped",
        "correct the index or the extents of the loops, or bind a larger array"),
    Code.ARITHMETIC: ("control computes with 64-bit integers, and every number has to be one",
        "leave such cases out with P.when(...), or give them a value with select(...)"),
    Code.NEGATIVE_EXTENT: ("loops run 0 times or more, and shapes count elements",
        "use maximum(n, 0), maximum(n, start) where an axis has a start, or correct what the "
        "extent is made of"),
    Code.PAGED_PARTS: ("the program was compiled for pages of one size",
        "bind a pool of [pages, tokens a page, ...], or leave page= out of PagedTensor(...)"),
    Code.PAGES: ("a view lies on one page",
        "take the region as In[PagedTensor], or a part of it that lies on one page"),
    Code.TEMPORARY_SIZE: ("buffers are made before the run, as large as they may have to be",
        "give it a limit: Tensor.temp((minimum(n, 4096),), ...)"),
    Code.LOOP_LIMIT: ("that many iterations are taken for a loop that does not end",
        "raise max_iterations, or let the body change what the condition reads"),
    Code.AFTER_LATER: ("tasks wait for tasks that come before them in program order",
        "correct the index, or wait the other way round"),
    Code.PROGRAM_STATE: ("a run ends with its program, and stays in its process",
        "wait for runs in the process that started them, before close()"),
    Code.RECORDING: ("a replay repeats exactly what was recorded, or nothing",
        "replay it with the workload, schedule, workers and values of the recorded run"),
    Code.NETWORK_STUCK: ("every process that has not ended waits for another one",
        "give a channel more buffers, as program.min_depths() says, or change who waits first"),
    Code.CHANNEL_CLOSED: ("no messages come behind close(...) or the end of those who send",
        "send as many messages as are received, or take what there is with consume(...)"),
    Code.CHANNEL_FULL: ("as many messages are there as it has buffers",
        "execute the program, which takes them, or give the channel a larger depth"),
    Code.CHANNEL_GAP: ("a message that one replica does not send hides those of others behind it",
        "let every replica send as many messages as it receives"),
    Code.MACHINE_RESOURCES: ("the system says so",
        "use fewer workers, compile(num_threads=2), or a smaller window or trace"),
}  # fmt: skip

# By code, and by what the message says: more to the point than the advice for the code.
_PARTICULAR = {
    (Code.OUT_OF_BOUNDS, "rows of its page table"):
        ("a page table has a row for each sequence",
        "bind a page table with more rows, or lower the number of sequences"),
    (Code.OUT_OF_BOUNDS, "tokens in its page table"):
        ("a sequence has no more tokens than fit the pages of its row",
        "bind a page table with more columns, or lower the lengths"),
    (Code.PAGES, "outside the pool"):
        ("page numbers are taken from the table, and the pool has its pages from 0 on",
        "bind a larger pool, or a table with the numbers of pages that it has"),
}  # fmt: skip

# What a run was given, or was not: the mistake is in the call that gives it.
_OF_VALUES = frozenset(
    {
        Code.UNBOUND_NAME,
        Code.BINDING_TYPE,
        Code.BINDING_RANK,
        Code.BINDING_RANGE,
        Code.LENGTHS,
        Code.READ_ONLY,
        Code.ARRAY_WRITTEN,
        Code.BINDING_ORDER,
        Code.BINDING_EXTENT,
        Code.PAGED_PARTS,
        Code.MEMORY_NOT_SHARED,
        Code.RUN_TASK,
    }
)

_KINDS: dict[Code, type[ExecutionError]] = {
    Code.NETWORK_STUCK: DeadlockError,
    Code.CHANNEL_CLOSED: ChannelClosed,
    Code.CHANNEL_FULL: ChannelFull,
    Code.CHANNEL_GAP: ChannelError,
}


def run_error(
    code: Code,
    message: str,
    *,
    loc: SrcLoc | None = None,
    why: str | None = None,
    fix: str | None = None,
) -> ExecutionError:
    """A run that cannot start or cannot go on."""
    usual, advice = _advice(code, message)
    kind = _KINDS.get(code, ExecutionError)
    return of_call(kind(code, message, loc=loc, why=why or usual, fix=fix or advice))


def was_closed() -> ExecutionError:
    return ExecutionError(
        Code.PROGRAM_STATE,
        "this program was closed",
        loc=srcloc.here(),
        why="close() has given its threads back",
        fix="compile the workload again",
    )


def _advice(code: Code, message: str) -> tuple[str | None, str | None]:
    for (particular, phrase), found in _PARTICULAR.items():
        if particular is code and phrase in message:
            return found
    return _ADVICE.get(code, (None, None))


def of_call(error: ExecutionError) -> ExecutionError:
    """The same error. If it is about the values of a run, or inside of a ready workload, which is
    right but for its values, it points at the user's call that is under way, with a note of what it
    pointed at."""
    known, call = error.loc, srcloc.here()
    is_value = error.code in _OF_VALUES
    is_inside = known is not None and known.inside is not None
    if call is None or not (is_value or is_inside):
        return error
    error.loc = call if known is None or is_value else replace(call, inside=known.inside)
    if known is not None and (known.file, known.line) != (call.file, call.line):
        is_call = is_inside or error.code is Code.RUN_TASK
        error.note = (
            f"{'called' if is_call else 'declared'} at {known if is_value else known.place}"
        )
    return error


def tasks_depend_on_data(
    fix: str = "call execute(hash=True), then task_hash() and stats",
) -> CompileError:
    """A question that only a run can answer, and how it does."""
    return CompileError(
        Code.TASKS_DEPEND_ON_DATA,
        "which tasks there are depends on data that tasks compute",
        loc=srcloc.here(),
        why="they are known only while the program runs",
        fix=fix,
    )
