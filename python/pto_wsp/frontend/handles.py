"""What a kernel call gives back: a name for its tasks, for `after=` of later calls."""

from __future__ import annotations

from typing import Any, cast

from pto_wsp import ir, srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError, TypeCheckError
from pto_wsp.frontend.context import Scope
from pto_wsp.frontend.scalar_expr import as_symint, is_integer, lower
from pto_wsp.frontend.trace import CallResult, Tracer, current
from pto_wsp.ir import polynomial as poly


class Handle(CallResult):
    """The tasks of one call. `after=h` waits for all of them in the current iteration of the loops
    that both calls are in; `after=h[i - 1]` for the one at these indices of its innermost loops."""

    __slots__ = ("_indices", "_label", "_scopes", "_tracer")

    def __init__(
        self,
        tracer: Tracer,
        label: str,
        scopes: tuple[Scope, ...],
        indices: tuple[ir.Expr, ...] = (),
    ) -> None:
        self._tracer = tracer
        self._label = label
        self._scopes = scopes  # of the loops around the call
        self._indices = indices

    def __getitem__(self, index: Any) -> Handle:
        given = cast("tuple[object, ...]", index) if isinstance(index, tuple) else (index,)
        if not all(is_integer(each) for each in given):
            raise TypeCheckError(
                Code.AFTER,
                f"the handle of {self._label} is indexed with {type(given[0]).__name__}",
                loc=srcloc.here(),
                why="indices name one task by the loops around its call",
                fix="write h[i - 1] with a loop variable, an integer or an expression of them",
            )
        outer = self._scopes[: len(self._scopes) - len(given)]
        if len(given) > len(self._scopes) or not all(scope.is_open for scope in outer):
            raise CompileError(
                Code.AFTER,
                f"the handle of {self._label} has {len(given)} indices",
                loc=srcloc.here(),
                why=f"its call is in {len(self._scopes)} loops, and the ones without an index "
                "must be around this call, too",
                fix="give an index for each loop that has ended, from the outermost of them on",
            )
        exprs = tuple(lower(as_symint(each)) for each in given)
        return Handle(self._tracer, self._label, self._scopes, exprs)

    def __iter__(self) -> Any:
        raise TypeCheckError(
            Code.AFTER,
            f"the handle of {self._label} is unpacked or iterated over",
            loc=srcloc.here(),
            why="it names the tasks of a call",
            fix="pass it on: k2[i](..., after=h)",
        )

    @property
    def label(self) -> str:
        return self._label

    def waits(self) -> tuple[ir.After, ...]:
        """For a call that waits for these tasks."""
        if current("after=") is not self._tracer:
            raise CompileError(
                Code.AFTER,
                f"after= names a call of {self._label} in another workload",
                loc=srcloc.here(),
                why="a handle means something while its own workload is traced",
                fix="write both calls in one workload, or compose with sequential(...)",
            )
        self._check_order()
        self._tracer.used_labels.add(self._label)
        return (ir.After(self._label, self._indices),)

    def _check_order(self) -> None:
        """Of the loops around both calls, the first index that is not this iteration's own decides
        which task comes first. What is no constant here is checked when the program runs."""
        indexed = self._scopes[len(self._scopes) - len(self._indices) :]
        for scope, index in zip(indexed, self._indices, strict=True):
            if not scope.is_open:
                return
            distance = poly.subtract(poly.of_expr(index), poly.of_atom(ir.LoopVar(scope.name)))
            if not distance.is_constant or distance.constant < 0:
                return
            if distance.constant > 0:
                raise CompileError(
                    Code.AFTER_LATER,
                    f"after= names a task of {self._label} that comes later, "
                    f"at {scope.name} + {distance.constant}",
                    loc=srcloc.here(),
                    why="tasks wait for tasks that come before them in program order",
                    fix="wait the other way round: give the later call after=h[i - 1]",
                )


class OneOf(Handle):
    """The tasks of several calls of which at most one is there in each iteration, such as those of
    tiers: `after=` waits for whichever it is."""

    __slots__ = ("_handles",)

    def __init__(self, handles: tuple[Handle, ...]) -> None:
        first = handles[0]
        super().__init__(first._tracer, first._label, first._scopes)
        self._handles = handles

    @staticmethod
    def of(handles: list[Handle]) -> Handle:
        return handles[0] if len(handles) == 1 else OneOf(tuple(handles))

    def __getitem__(self, index: Any) -> Handle:
        return OneOf(tuple(handle[index] for handle in self._handles))

    def waits(self) -> tuple[ir.After, ...]:
        return tuple(after for handle in self._handles for after in handle.waits())


def waits(after: object) -> tuple[ir.After, ...]:
    """The calls that `after=` names: a handle, several, or None for nobody."""
    if after is None:
        return ()
    given = cast("list[object]", after) if isinstance(after, list | tuple) else [after]
    for each in given:
        if not isinstance(each, Handle):
            raise TypeCheckError(
                Code.AFTER,
                f"after= is {type(each).__name__}",
                loc=srcloc.here(),
                why="it names calls by what they returned",
                fix="write h = k[i](...) and then k2[i](..., after=h)",
            )
    handles = [each for each in given if isinstance(each, Handle)]
    return tuple(after for handle in handles for after in handle.waits())
