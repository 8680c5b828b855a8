"""P.when, P.otherwise, and the slots of control."""

from __future__ import annotations

from types import TracebackType

from pto_wsp import ir, srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError, TypeCheckError
from pto_wsp.frontend.blocks import Arm, Chain, OpenBlock
from pto_wsp.frontend.scalar_expr import (
    BoolLike,
    IntLike,
    SymBool,
    SymInt,
    as_int,
    as_symbool,
    as_symint,
    lower,
    lower_bool,
)
from pto_wsp.frontend.tensor import Region
from pto_wsp.frontend.trace import Tracer, current

MAX_SLOTS = 16


class Branch:
    """One branch of a chain of conditions, for a `with` statement."""

    def __init__(self, tracer: Tracer, condition: SymBool | None) -> None:
        form = "P.otherwise()" if condition is None else "P.when(...)"
        self.pending = tracer.expect_use(form, f"write `with {form}:` with calls in its body")
        self._tracer = tracer
        self._condition = condition
        self._open: OpenBlock | None = None

    def __enter__(self) -> None:
        self.pending.used = True
        if self._condition is not None:
            lower_bool(self._condition)
        elif _open_chain(self._tracer.block) is None:
            raise CompileError(
                Code.OTHERWISE_ALONE,
                "P.otherwise() without a P.when before it",
                loc=self.pending.loc,
                why="it is the other branch of the condition directly before it",
                fix="write `with P.when(...):` first, with nothing between the two",
            )
        self._open = self._tracer.open_branch(self.pending.loc)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None or self._open is None:
            return
        loc = self.pending.loc
        body = self._tracer.close_branch(self._open, loc)
        block = self._tracer.block
        chain = _open_chain(block)
        if chain is None:
            chain = block.chain = Chain(len(block.body))
            reads: ir.Body = ()
        else:
            reads = tuple(block.body[chain.end :])
            for stmt in reads:  # from now on they stand in the branch before which they were made
                assert isinstance(stmt, ir.SlotLoad)
                block.loads[stmt.slot].is_open = False
        condition = None if self._condition is None else self._condition.expr
        chain.arms.append(Arm(reads, condition, body, loc))
        block.body[chain.start :] = chain.fold()
        chain.end = len(block.body)


def _open_chain(block: OpenBlock) -> Chain | None:
    """The chain that the next branch goes on: nothing stands behind it but reads that the next
    condition itself has made."""
    chain = block.chain
    if chain is None or chain.arms[-1].condition is None:
        return None
    behind = block.body[chain.end :]
    own = all(isinstance(stmt, ir.SlotLoad) and stmt.slot in block.loads for stmt in behind)
    return chain if own else None


def when(condition: BoolLike) -> Branch:
    tracer = current("P.when(...)")
    return Branch(tracer, as_symbool(condition))


def otherwise() -> Branch:
    return Branch(current("P.otherwise()"), None)


# --- slots ---


def slot_set_u64(slot: int, value: IntLike) -> None:
    """Gives a slot of control a value; it belongs to the innermost iteration that sets it."""
    tracer = current("slot_set_u64(...)")
    name = _slot_name(slot)
    expr = lower(as_symint(value))
    tracer.set_slot(name)
    tracer.emit(ir.SlotSet(name, expr, srcloc.here()))


def slot_load_u64(slot: int, region: Region, row: IntLike = 0, col: IntLike = 0) -> None:
    """Gives a slot the element [row, col] of a region, once the tasks that write it have ended."""
    tracer = current("slot_load_u64(...)")
    name = _slot_name(slot)
    if not isinstance(region, Region):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeCheckError(
            Code.KERNEL_ARGUMENT,
            f"slot_load_u64 of {type(region).__name__}",
            loc=srcloc.here(),
            why="a slot is loaded from one element of a tensor",
            fix="pass X[...] of a Tensor X",
        )
    places = {0: (), 1: (col,), 2: (row, col)}
    if region.rank not in places:
        raise TypeCheckError(
            Code.KERNEL_ARGUMENT,
            f"slot_load_u64 of a region of rank {region.rank}",
            loc=srcloc.here(),
            why="row and col choose one element of at most two dimensions",
            fix="give more indices: X[i, :, :]",
        )
    element = region.element(places[region.rank])
    tracer.set_slot(name)
    tracer.emit(ir.SlotLoad(name, element.lower(tracer.place()), srcloc.here()))


def slot_u64(slot: int) -> SymInt:
    """The value of a slot."""
    return current("slot_u64(...)").slot(_slot_name(slot))


def _slot_name(slot: object) -> str:
    number = None if isinstance(slot, bool) else as_int(slot)
    if number is None or not 0 <= number < MAX_SLOTS:
        raise CompileError(
            Code.SLOT,
            f"slot {slot!r}",
            loc=srcloc.here(),
            why=f"slots are numbered from 0 to {MAX_SLOTS - 1}",
            fix="use such a number",
        )
    return f"slot_{number}"
