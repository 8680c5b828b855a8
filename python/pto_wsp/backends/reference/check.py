"""Which plans the reference runs, and what it needs to know of their schedule."""

from __future__ import annotations

from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError, ScheduleError
from pto_wsp.plan import (
    Directive,
    Expr,
    ExprOp,
    Feature,
    Instr,
    Op,
    Plan,
    ScalarType,
    ScheduleArg,
    ScheduleEntry,
    Section,
    TracePolicy,
)

_FEATURES = frozenset(
    {
        *(Feature.RAGGED, Feature.SPARSE, Feature.COND, Feature.SLOT, Feature.DATA_DEPENDENT),
        *(Feature.ACCUM, Feature.AFTER, Feature.ALLOC, Feature.PAGED, Feature.CHANNEL),
    }
)
_OPS = frozenset(
    {
        *(Op.HALT, Op.NOP, Op.END, Op.PARALLEL_FOR, Op.FOR_EACH, Op.COMBINE, Op.SEQUENTIAL),
        *(Op.SELECT, Op.COND, Op.ELSE, Op.EXT, Op.LOOP_WHILE, Op.SLOT_SET, Op.SLOT_LOAD),
        *(Op.LET, Op.ALLOC, Op.FREE),
        *(Op.RECV, Op.SEND, Op.CLOSE, Op.TAKE, Op.DROP, Op.ROOM),
        *(Op.TASK, Op.PARAM_CONST, Op.PARAM_LOOPVAR, Op.PARAM_EXPR, Op.SCALAR, Op.AFTER),
        *(Op.IO_INPUT, Op.IO_OUTPUT, Op.IO_INOUT, Op.IO_ACCUM),
    }
)
# Expressions beyond these read tasks, or compute with fractions.
_NO_EXPRS = frozenset({ExprOp.DIV, ExprOp.TASK_AXIS, ExprOp.TASK_SITE, ExprOp.TASK_ORDINAL})
# Floating-point values are passed on, never computed with.
_FLOAT_EXPRS = frozenset({ExprOp.CONST, ExprOp.SYMBOL, ExprOp.SELECT})
_DEFAULT_CAPACITY = 1 << 20


def check_plan(plan: Plan) -> None:
    """CompileError or ScheduleError if the plan holds something outside this version."""
    _refuse("features", {feature.name for feature in plan.features - _FEATURES})
    _refuse("instructions", {Op(i.opcode).name for i in plan.records(Instr)} - _names(_OPS))
    nodes = plan.section(Section.EXPR)
    used = {ExprOp(node.op) for node in nodes if isinstance(node, Expr)}
    _refuse("expressions", {op.name for op in used & _NO_EXPRS})
    floats = [n for n in nodes if isinstance(n, Expr) and n.type == ScalarType.F64]
    _refuse("f64 expressions", {ExprOp(n.op).name for n in floats if n.op not in _FLOAT_EXPRS})
    trace_capacity(plan)


def trace_capacity(plan: Plan) -> int:
    """How many events of a run are kept: 0 if the schedule asks for no trace."""
    args = plan.records(ScheduleArg)
    for index, entry in enumerate(plan.records(ScheduleEntry)):
        if entry.id != Directive.TRACE:
            continue
        values = [arg.bits for arg in args[entry.args : entry.args + entry.num_args]]
        match values:
            case [TracePolicy.NONE, *_]:
                return 0
            case [TracePolicy.TIMESTAMPS]:
                return _DEFAULT_CAPACITY
            case [TracePolicy.TIMESTAMPS, capacity, *_]:
                return capacity
            case _:
                raise ScheduleError(
                    Code.DIRECTIVE_NOT_ENFORCED,
                    "the reference target cannot enforce this trace policy",
                    loc=plan.loc(Section.SCHEDULE, index),
                    why="it has no virtual clock, only none() and timestamps()",
                    fix='use TracePolicy.timestamps(), or target="cpu_sim"',
                )
    return 0


def _names(ops: frozenset[Op]) -> set[str]:
    return {op.name for op in ops}


def _refuse(what: str, names: set[str]) -> None:
    if names:
        raise CompileError(
            Code.TARGET_LIMIT,
            f"the reference target does not run plans with the {what} {', '.join(sorted(names))}",
        )
