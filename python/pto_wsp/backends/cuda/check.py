"""Which plans the cuda target runs."""

from __future__ import annotations

from pto_wsp.backends.cuda.nest import OPS
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError, ScheduleError
from pto_wsp.plan import (
    BodyForm,
    Directive,
    Expr,
    ExprOp,
    Feature,
    Instr,
    Kernel,
    Op,
    Plan,
    ScheduleEntry,
    Section,
    Storage,
    StorageClass,
    TracePolicy,
)
from pto_wsp.plan.disasm import directive_texts

# By feature: why a GPU cannot run such plans.
_REFUSED = {
    Feature.DATA_DEPENDENT: "which tasks there are depends on what tasks compute, and the number "
    "of a task would not say which one it is",
    Feature.SLOT: "slots are set one after the other, and tasks are found by number",
    Feature.CHANNEL: "processes wait for each other, which needs a place for each of them",
    Feature.COLLECTIVE: "there is one device",
    Feature.MULTI_DOMAIN: "there is one device",
    Feature.ACCUM: "tiles are stored, not added",
    Feature.TIER: "tiers of kernels are branches there",
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
            raise _refused("workspaces of tiers", "temporaries are")
    for index in range(len(plan.records(Kernel))):
        _check_body(plan, index)
    _check_schedule(plan)


def _has_slots(plan: Plan) -> bool:
    slots = (Op.SLOT_SET, Op.SLOT_LOAD, Op.LOOP_WHILE)
    return any(instr.opcode in slots for instr in plan.records(Instr))


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


def _check_schedule(plan: Plan) -> None:
    texts = directive_texts(plan)
    for index, entry in enumerate(plan.records(ScheduleEntry)):
        traced = entry.id == Directive.TRACE
        virtual = traced and plan.policy(Directive.TRACE) == TracePolicy.CYCLES
        if entry.id == Directive.DEPS or (traced and not virtual):
            continue
        why = "its blocks take tasks from one counter, in program order"
        raise ScheduleError(
            Code.DIRECTIVE_NOT_ENFORCED,
            f"the cuda target cannot enforce {texts[index]}",
            loc=plan.loc(Section.SCHEDULE, index),
            why="its blocks run by the clock of the GPU" if virtual else why,
            fix="leave the directive out for this target, or use target='cpu_sim'",
        )


def _refused(what: str, why: str) -> CompileError:
    return CompileError(
        Code.TARGET_LIMIT,
        f"the cuda target does not run {what}",
        why=why,
        fix="use target='cpu_sim'",
    )
