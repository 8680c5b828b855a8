"""Keys: pure expressions of a task, by which schedules place, order and group tasks.

A key is a function of `t`, called once: `lambda t: t.rows % 4`. What it gives is an expression, so
every generator can compute the key of every task, and no Python runs per task.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pto_wsp import ir, srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import ScheduleError
from pto_wsp.frontend.context import Scope
from pto_wsp.frontend.scalar_expr import SymInt, as_int, as_symint, atom, is_integer, lower


@dataclass(frozen=True, slots=True)
class Key:
    """The expression of a key."""

    expr: ir.Expr

    def __str__(self) -> str:
        return ir.expr_text(self.expr)


class TaskProxy:
    """What a key function sees of a task: `t.rows` is its index of the loop over axis `rows`."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def __getattr__(self, axis: str) -> SymInt:
        if axis.startswith("__"):  # Python asks for these by itself
            raise AttributeError(axis)
        return atom(ir.TaskAxis(axis), self._scope)

    def get(self, axis: str, default: int | None = None) -> SymInt:
        """The index of the loop over an axis, or `default` for tasks that are in none."""
        number = as_int(default)
        if isinstance(axis, str) and (default is None or number is not None):  # pyright: ignore[reportUnnecessaryIsInstance]
            return atom(ir.TaskAxis(axis, number), self._scope)
        raise ScheduleError(
            Code.DIRECTIVE_VALUE,
            f"t.get({axis!r}, {default!r})",
            loc=srcloc.here(),
            why="it is the name of an axis, and a number for tasks that are in no loop over it",
            fix='write t.get("rows", 0)',
        )

    @property
    def site(self) -> SymInt:
        """The number of the call that made the task."""
        return atom(ir.TaskSite(), self._scope)

    @property
    def ordinal(self) -> SymInt:
        """The task's number in program order."""
        return atom(ir.TaskOrdinal(), self._scope)


def key_of(function: Callable[[Any], Any] | Key, form: str) -> Key:
    """The key that a function of a task says."""
    if isinstance(function, Key):
        return function
    loc = srcloc.here()
    if not callable(function):
        raise ScheduleError(
            Code.DIRECTIVE_VALUE,
            f"{form}({function!r})",
            loc=loc,
            why="a key is a function of a task",
            fix="write lambda t: t.rows",
        )
    value = function(TaskProxy(Scope("key", form, loc)))
    if not is_integer(value):
        raise ScheduleError(
            Code.DIRECTIVE_VALUE,
            f"the key of {form} is {type(value).__name__}",
            loc=loc,
            why="a key is an integer made of the task's indices, t.site and t.ordinal",
            fix="write lambda t: t.rows; select(condition, 1, 0) makes a number of a condition",
        )
    return Key(lower(as_symint(value)))
