"""Which plans the cuda target runs."""

from __future__ import annotations

from pto_wsp.backends.cuda.nest import OPS
from pto_wsp.backends.cuda.schedule import read_schedule
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.plan import (
    NONE,
    Access,
    AccessMode,
    BodyForm,
    Expr,
    ExprOp,
    Feature,
    Instr,
    Kernel,
    Op,
    Plan,
    Section,
    Storage,
    StorageClass,
    Tensor,
)

# By feature: why a GPU cannot run such plans.
_REFUSED = {
    Feature.DATA_DEPENDENT: "which tasks there are depends on what tasks compute, and the number "
    "of a task would not say which one it is",
    Feature.SLOT: "slots are set one after the other, and tasks are found by number",
    Feature.CHANNEL: "processes wait for each other, which needs a place for each of them",
    Feature.COLLECTIVE: "there is one device",
    Feature.MULTI_DOMAIN: "there is one device",
    Feature.TIER: "a table of variants is no part of the nest; select_tier makes conditions",
}
_NO_EXPRS = frozenset({ExprOp.DIV, ExprOp.TASK_AXIS, ExprOp.TASK_SITE, ExprOp.TASK_ORDINAL})


def check_plan(plan: Plan) -> None:
    """CompileError or ScheduleError if the plan cannot run on a GPU."""
    for feature, why in _REFUSED.items():
        if feature in plan.features and not (feature is Feature.SLOT and not _has_slots(plan)):
            raise _refused(f"plans with {feature.name.lower()}", why)
    for index, instr in enumerate(plan.records(Instr)):
        if instr.opcode not in OPS:
            raise _refused(f"the instruction {Op(instr.opcode).name} at {index}", "no tree has it")
    for node in plan.records(Expr):
        if node.op in _NO_EXPRS:
            raise _refused(f"{ExprOp(node.op).name} in expressions", "control has integers only")
    for storage in plan.records(Storage):
        if storage.storage_class in (StorageClass.WORKSPACE, StorageClass.CHANNEL):
            what = f"{StorageClass(storage.storage_class).name.lower()} storage"
            raise _refused(what, "the nest says of temporaries only where they begin and end")
    for index in range(len(plan.records(Kernel))):
        _check_body(plan, index)
    _check_pools(plan)
    read_schedule(plan)


def _has_slots(plan: Plan) -> bool:
    slots = (Op.SLOT_SET, Op.SLOT_LOAD, Op.LOOP_WHILE)
    return any(instr.opcode in slots for instr in plan.records(Instr))


def _check_pools(plan: Plan) -> None:
    """Pages that tasks write have one name: dependences are found by names."""
    tensors = plan.records(Tensor)
    names: dict[int, set[int]] = {}
    written: set[int] = set()
    for access in plan.records(Access):
        tensor = tensors[access.tensor]
        pool = access.tensor if tensor.pool == NONE else tensor.pool
        names.setdefault(pool, set()).add(access.tensor)
        if access.mode != AccessMode.IN:
            written.add(pool)
    for pool in written:
        if len(names[pool]) > 1:
            shown = " and ".join(repr(plan.string(tensors[t].name)) for t in sorted(names[pool]))
            raise _refused(
                f"plans in which {shown} share the memory that tasks write",
                "a GPU knows dependences by the names of tensors",
            )


def _check_body(plan: Plan, index: int) -> None:
    body = plan.body(index)
    if body is not None and body.form == BodyForm.TILE_IR:
        return
    form = "Python" if body is None else BodyForm(body.form).name.title()
    raise CompileError(
        Code.TARGET_LIMIT,
        f"kernel {plan.kernel_names[index]!r} has a {form} body, which a GPU cannot run",
        loc=plan.loc(Section.KERNEL, index),
        why="the cuda target generates its code from tile operations",
        fix="write the kernel with Tile parameters and pto.*, or use target='cpu_sim'",
    )


def _refused(what: str, why: str) -> CompileError:
    return CompileError(
        Code.TARGET_LIMIT,
        f"the cuda target does not run {what}",
        why=why,
        fix="use target='cpu_sim'",
    )
