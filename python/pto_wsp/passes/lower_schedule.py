"""Directives on their way into the schedule section: keys become its expressions."""

from __future__ import annotations

from pto_wsp import ir, plan
from pto_wsp.error_codes import Code
from pto_wsp.errors import ScheduleError
from pto_wsp.plan.assemble import Argument, ExprArg

_BOOL = plan.ScalarType.BOOL


def lower_directive(directive: ir.Directive, builder: plan.PlanBuilder) -> None:
    known = plan.Directive.__members__
    if directive.name not in known:
        raise ScheduleError(
            Code.DIRECTIVE_VALUE,
            f"there is no schedule directive {directive.name!r}",
            loc=directive.loc,
            fix=f"use one of {', '.join(known)}",
        )
    args = [_argument(arg, directive, builder) for arg in directive.args]
    builder.directive(known[directive.name], args, directive.loc)


def _argument(arg: ir.DirectiveArg, directive: ir.Directive, builder: plan.PlanBuilder) -> Argument:
    if arg is None or isinstance(arg, int | str):
        return arg
    return _key(arg, directive, builder)


def _key(expr: ir.Expr, directive: ir.Directive, builder: plan.PlanBuilder) -> ExprArg:
    """A key: arithmetic on the task's site, indices and number."""

    def node(inner: ir.Expr) -> int:
        return _key(inner, directive, builder).node

    match expr:
        case ir.Const(value):
            return builder.schedule_const(value)
        case ir.TaskAxis(axis, default):
            other = plan.NONE if default is None else builder.schedule_const(default).node
            name = builder.schedule_string(axis)
            return builder.schedule_expr(plan.ExprOp.TASK_AXIS, a=name, b=other)
        case ir.TaskSite():
            return builder.schedule_expr(plan.ExprOp.TASK_SITE)
        case ir.TaskOrdinal():
            return builder.schedule_expr(plan.ExprOp.TASK_ORDINAL)
        case ir.Binary(op, lhs, rhs):
            logical = op in ir.COMPARISONS or op in ir.LOGIC
            kind = _BOOL if logical else plan.ScalarType.I64
            return builder.schedule_expr(plan.ExprOp[op.name], type=kind, a=node(lhs), b=node(rhs))
        case ir.Not(inner):
            return builder.schedule_expr(plan.ExprOp.NOT, type=_BOOL, a=node(inner))
        case ir.Select(condition, then, otherwise):
            parts = node(condition), node(then), node(otherwise)
            return builder.schedule_expr(plan.ExprOp.SELECT, a=parts[0], b=parts[1], c=parts[2])
        case _:
            raise ScheduleError(
                Code.DIRECTIVE_VALUE,
                f"the key {ir.expr_text(expr)} reads more than the task",
                loc=directive.loc,
                why="keys are expressions of a task's call, loop indices and number",
                fix="use t.<axis>, t.site, t.ordinal and arithmetic on them",
            )
