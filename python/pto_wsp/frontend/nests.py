"""What stands behind a `for` statement of a workload: loops that are opened and closed again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from types import CodeType
from typing import Any, Generic, TypeVar, cast

from pto_wsp import srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.frontend.blocks import OpenLoop
from pto_wsp.frontend.names import loop_targets
from pto_wsp.frontend.trace import Tracer

Variables = TypeVar("Variables")


class Nest(ABC, Generic[Variables]):
    """Nested loops over some axes, for one `for` statement; the body is traced once."""

    def __init__(self, tracer: Tracer, form: str, axes: tuple[object, ...]) -> None:
        self.pending = tracer.expect_use(form, f"write `for i in {form}:` with calls in its body")
        if not axes:
            raise CompileError(
                Code.EXTENT,
                f"{form} without an axis",
                loc=self.pending.loc,
                why="a loop needs an extent",
                fix="pass axes, extents, or elements of an array: P(rows), P(8), P(lens[b])",
            )
        self.tracer = tracer
        self.axes = axes

    def __iter__(self) -> Iterator[Variables]:
        self.pending.used = True
        return _NestIterator(self)

    @property
    def targets(self) -> int:
        """How many names the `for` statement has for an item."""
        return len(self.axes)

    @abstractmethod
    def open(self, axis: object, name: str | None) -> tuple[OpenLoop, Any]:
        """Opens the loop over one axis; what the user gets for it."""

    def close(self, loop: OpenLoop) -> None:
        self.tracer.close_loop(loop)


class _NestIterator(Iterator[Variables]):
    """Opens the loops at the first step and closes them at the second. If there is no second, the
    loop was left early: the interpreter then drops this object while it stands at that line."""

    def __init__(self, nest: Nest[Variables]) -> None:
        self._nest = nest
        self._open: list[OpenLoop] = []
        self._code: CodeType | None = None  # the user's function that holds the `for` statement
        self._begun = False

    def __next__(self) -> Variables:
        nest = self._nest
        if not self._begun:
            self._begun = True
            frame = srcloc.user_frame()
            self._code = None if frame is None else frame.f_code
            targets = loop_targets(frame, nest.targets)
            variables: list[Any] = []
            for position, axis in enumerate(nest.axes):
                name = targets[position] if targets is not None else None
                loop, variable = nest.open(axis, name)
                self._open.append(loop)
                variables.append(variable)
            item = variables[0] if len(variables) == 1 else tuple(variables)
            return cast(Variables, item)
        while self._open:
            nest.close(self._open[-1])
            self._open.pop()
        raise StopIteration

    def __del__(self) -> None:
        if not self._open or not self._open[0].scope.is_open:
            return
        frame = srcloc.user_frame()
        at_the_loop = frame is not None and frame.f_code is self._code
        loc = srcloc.here() if at_the_loop else self._nest.pending.loc
        self._nest.tracer.left_early(loc)


def new_variable(tracer: Tracer, name: str | None, axis: str | None) -> str:
    """A name for a loop variable that no loop around has."""
    wanted = name if name is not None and name.strip("_") else axis or "i"
    taken = {loop.var for loop in tracer.loops}
    var, number = wanted, 2
    while var in taken:
        var, number = f"{wanted}_{number}", number + 1
    return var
