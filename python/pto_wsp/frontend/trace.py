"""One symbolic run of a workload function: collects statements and declarations."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import TYPE_CHECKING, Any

from pto_wsp import ir, srcloc
from pto_wsp.errors import CompileError
from pto_wsp.frontend import context
from pto_wsp.frontend.context import Scope
from pto_wsp.frontend.declarations import Declarations, KernelNames
from pto_wsp.frontend.names import variable_of
from pto_wsp.frontend.scalar_expr import SymInt, atom
from pto_wsp.frontend.tensor import Tensor

if TYPE_CHECKING:
    from pto_wsp.frontend.axes import Axis
    from pto_wsp.srcloc import SrcLoc


@dataclass(eq=False, slots=True)
class OpenLoop:
    """A P loop whose body is being traced."""

    scope: Scope
    head: ir.Loop  # without its body
    axis: Axis | None  # the user's axis object, to which ragged axes refer
    body: list[ir.Stmt] = field(default_factory=list[ir.Stmt])

    @property
    def variable(self) -> SymInt:
        return atom(ir.LoopVar(self.head.var), self.scope)


@dataclass(eq=False, slots=True)
class Pending:
    """Something that has no effect unless it is used: a P(...) or a kernel[...]."""

    what: str
    fix: str
    loc: SrcLoc | None
    used: bool = False


class Tracer:
    """The trace under way. Everything that adds to it first reports a P loop that was left early:
    Python tells us that only in a finaliser, which cannot raise."""

    def __init__(self, name: str, code: CodeType, loc: SrcLoc | None) -> None:
        self.scope = Scope("workload", name, loc)
        self.declared = Declarations()
        self.kernels = KernelNames[Hashable]()
        self.loops: list[OpenLoop] = []
        self._code = code
        self._body: list[ir.Stmt] = []
        self._tensor_names: dict[int, tuple[Tensor, str]] = {}
        self._pending: list[Pending] = []
        self._left_early: CompileError | None = None

    def tensor_name(self, tensor: Any, loc: SrcLoc | None = None) -> str:
        """Declare a tensor under the name by which `execute` binds it. `loc` is where a clash is
        reported, by default the user's line."""
        self.check()
        known = self._tensor_names.get(id(tensor))
        if known is not None:
            return known[1]
        assert isinstance(tensor, Tensor)
        name = tensor.name or variable_of(tensor, self._code)
        if name is None:
            raise CompileError(
                "a tensor without a name",
                loc=srcloc.here(),
                why="execute binds tensors by name, and the workload uses this one through "
                "neither a variable outside of it nor an attribute",
                fix='give it one: Tensor(data=array, name="X")',
            )
        decl = ir.TensorDecl(name, tensor.dtype, tensor.rank, tensor.loc)
        default = None if tensor.data is None else tensor
        self.declared.add_tensor(decl, default, loc or srcloc.here())
        # The table keeps the tensor alive, so that its id stays its own.
        self._tensor_names[id(tensor)] = (tensor, name)
        return name

    def emit(self, stmt: ir.Stmt) -> None:
        self.check()
        (self.loops[-1].body if self.loops else self._body).append(stmt)

    def open_loop(self, head: ir.Loop, axis: Axis | None) -> OpenLoop:
        self.check()
        loop = OpenLoop(Scope("loop", head.var, head.loc), head, axis)
        self.loops.append(loop)
        return loop

    def close_loop(self, loop: OpenLoop) -> None:
        self.check()
        if not self.loops or self.loops[-1] is not loop:
            raise CompileError(
                "P loops are interleaved",
                loc=loop.head.loc,
                why="a loop ended while a loop that began inside it was still open",
                fix="use P(...) in `for` statements only; P(a, b) loops over two axes",
            )
        self.loops.pop()
        loop.scope.is_open = False
        self.emit(replace(loop.head, body=tuple(loop.body)))

    def expect_use(self, what: str, fix: str) -> Pending:
        """Remember something that must be used before the trace ends."""
        self.check()
        pending = Pending(what, fix, srcloc.here())
        self._pending.append(pending)
        return pending

    def left_early(self, loc: SrcLoc | None) -> None:
        """A P loop was left by break, return or an exception; reported at the next step."""
        self._left_early = self._left_early or _left_early(loc)

    def check(self) -> None:
        if self._left_early is not None:
            raise self._left_early

    def finish(self) -> ir.Body:
        """The traced body; everything that was begun must have been finished."""
        self.check()
        if self.loops:
            raise _left_early(self.loops[-1].head.loc)
        for pending in self._pending:
            if not pending.used:
                raise CompileError(
                    f"{pending.what} is not used",
                    loc=pending.loc,
                    why="by itself it generates no task",
                    fix=pending.fix,
                )
        return tuple(self._body)


def current(what: str) -> Tracer:
    """The trace under way; CompileError if there is none, since `what` needs one."""
    trace = context.active.get()
    if not isinstance(trace, Tracer):
        raise CompileError(
            f"{what} outside a workload",
            loc=srcloc.here(),
            why="tasks are generated by a workload that is traced, never directly",
            fix="move it into a function decorated with @workload",
        )
    return trace


def refuse_inside_workload(what: str, fix: str) -> None:
    """CompileError if a workload is being traced."""
    trace = context.active.get()
    if trace is not None:
        raise CompileError(
            f"{what} inside workload {trace.scope.name}",
            loc=srcloc.here(),
            why="workloads cannot be nested in this version",
            fix=fix,
        )


def run(tracer: Tracer, function: Callable[..., object], arguments: dict[str, object]) -> ir.Body:
    """Run the user's function once under the tracer; its values mean nothing afterwards."""
    token = context.active.set(tracer)
    try:
        result = function(**arguments)
        body = tracer.finish()
    finally:
        context.active.reset(token)
        for scope in (tracer.scope, *(loop.scope for loop in tracer.loops)):
            scope.is_open = False
    if result is not None:
        raise CompileError(
            f"workload {tracer.scope.name} returns a value",
            loc=tracer.scope.loc,
            why="a workload generates tasks and has no result",
            fix="remove the return value; tasks write their results to tensors",
        )
    return body


def _left_early(loc: SrcLoc | None) -> CompileError:
    return CompileError(
        "a P loop is left before its end",
        loc=loc,
        why="its body is traced once for all iterations; break, return or an exception would end "
        "all of them",
        fix="bound the loop by its extent, P(n); an index test belongs in the kernel",
    )
