"""One symbolic run of a workload function: collects statements and declarations."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from dataclasses import replace
from types import CodeType
from typing import TYPE_CHECKING, Any

from pto_wsp import ir, srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.frontend import context
from pto_wsp.frontend.blocks import OpenBlock, OpenLoop, Pending
from pto_wsp.frontend.bounds import Place
from pto_wsp.frontend.context import Scope
from pto_wsp.frontend.declarations import Declarations, KernelNames
from pto_wsp.frontend.names import variable_of
from pto_wsp.frontend.scalar_expr import SymInt, atom, lower
from pto_wsp.frontend.tensor import Message, Temporary, Tensor
from pto_wsp.frontend.tensor_kinds import PagedTensor, Token

if TYPE_CHECKING:
    from pto_wsp.srcloc import SrcLoc


class CallResult:
    """What a kernel call gives back: no value, so a workload that is a lambda may return it."""

    __slots__ = ()


class Tracer:
    """The trace under way. Everything that adds to it first reports a P loop that was left early:
    Python tells us that only in a finaliser, which cannot raise."""

    def __init__(self, name: str, code: CodeType, loc: SrcLoc | None) -> None:
        self.scope = Scope("workload", name, loc)
        self.declared = Declarations()
        self.depth = 0  # of workloads that call each other
        self.kernels = KernelNames[Hashable]()
        self.blocks: list[OpenBlock] = [OpenBlock(self.scope)]
        self._code = code
        self._names: set[str] = set()  # of slots
        self._labels: set[str] = set()  # of calls
        self.used_labels: set[str] = set()  # those that other calls wait for
        self._tensor_names: dict[int, tuple[Tensor, str]] = {}
        self._parts: dict[str, tuple[Tensor, Tensor]] = {}  # of paged tensors
        self._channels: dict[int, tuple[object, str]] = {}
        self._processes: list[ir.Process] = []
        self._pending: list[Pending] = []
        self._left_early: CompileError | None = None

    def tensor_name(self, tensor: Any, loc: SrcLoc | None = None) -> str:
        """Declare a tensor under the name by which `execute` binds it. `loc` is where a clash is
        reported, by default the user's line."""
        self.check()
        assert isinstance(tensor, Tensor)
        seen, tensor = tensor, tensor.base
        known = self._tensor_names.get(id(tensor))
        if known is not None:
            _check_alive(tensor, known[1])
            return known[1]
        name = tensor.name or variable_of(tensor, self._code) or variable_of(seen, self._code)
        if isinstance(tensor, Token) and name is None:
            name = self.new_name("token")
        if name is None:
            raise _unnamed(tensor)
        if isinstance(tensor, PagedTensor):
            self._parts[name] = (
                self._part(tensor.pool, f"{name}_pool"),
                self._part(tensor.table, f"{name}_table"),
            )
            pool, table = (self.tensor_name(part, loc) for part in self._parts[name])
            decl = tensor.paged_declaration(name, pool, table)
        else:
            decl = tensor.declaration(name)
        default = None if tensor.data is None else tensor
        self.declared.add_tensor(decl, default, loc or srcloc.here())
        # The table keeps the tensor alive, so that its id stays its own.
        self._tensor_names[id(tensor)] = (tensor, name)
        return name

    def parts(self, paged: PagedTensor) -> tuple[Tensor, Tensor]:
        """The pool and the table of a paged tensor, under their names."""
        return self._parts[self.tensor_name(paged)]

    def expect(self, tensor: str, extents: tuple[int | None, ...], loc: SrcLoc | None) -> None:
        """Whatever `execute` binds to that name has to have these extents; None: any."""
        self.declared.fix_extents(tensor, extents, loc)

    def _part(self, tensor: Tensor, name: str) -> Tensor:
        """A tensor that the function need not refer to: it has another name, or this one."""
        known = tensor.name or variable_of(tensor, self._code)
        return tensor if known is not None else tensor.named(name)

    def new_name(self, base: str) -> str:
        """A name that no tensor or symbol has yet."""
        name, number = base, 2
        while name in self.declared.tensors or name in self.declared.symbols:
            name, number = f"{base}_{number}", number + 1
        return name

    def alloc(self, tensor: Any, shape: tuple[ir.Expr, ...]) -> Scope:
        """Make a temporary at this place."""
        self.check()
        assert isinstance(tensor, Temporary)
        name = self.new_name(tensor.name or "tmp")
        self.declared.add_tensor(tensor.declaration(name), None, tensor.loc)
        self._tensor_names[id(tensor)] = (tensor, name)
        self.emit(ir.Alloc(name, shape, tensor.loc))
        return self.block.scope

    # --- channels and processes ---

    def channel_name(self, channel: Any, declare: Callable[[str], ir.TensorDecl]) -> str:
        """Declare a channel under its name, or that of the variable that holds it."""
        self.check()
        known = self._channels.get(id(channel))
        if known is not None:
            return known[1]
        name = channel.name or variable_of(channel, self._code) or self.new_name("channel")
        if any(other == name for _, other in self._channels.values()):
            raise CompileError(
                Code.NAME_CLASH,
                f"two channels are called {name}",
                loc=srcloc.here(),
                why="reports and ports call a channel by its name",
                fix='give them different names: Channel[...]("first", ...)',
            )
        self.declared.add_tensor(declare(name), None, srcloc.here())
        self._channels[id(channel)] = (channel, name)
        return name

    def channels(self) -> list[object]:
        """Those that are declared so far."""
        return [channel for channel, _ in self._channels.values()]

    def hold(self, message: Message) -> None:
        """A message is there, under the name of its channel."""
        self._tensor_names[id(message)] = (message, message.name or "")

    def earlier_calls(self) -> tuple[ir.After, ...]:
        """All calls so far in the innermost body."""
        labels = [
            stmt.label for stmt in ir.walk(tuple(self.block.body)) if isinstance(stmt, ir.Call)
        ]
        return self._waits([label for label in labels if label is not None])

    def gates(self) -> tuple[ir.After, ...]:
        """What every call at this place waits for."""
        return self._waits([label for block in self.blocks for label in block.gates])

    def _waits(self, labels: list[str]) -> tuple[ir.After, ...]:
        self.used_labels.update(labels)
        return tuple(ir.After(label) for label in labels)

    @property
    def num_processes(self) -> int:
        return len(self._processes)

    def add_process(self, process: ir.Process) -> None:
        names = {each.name for each in self._processes} | {"main"}
        name, number = process.name, 2
        while name in names:
            name, number = f"{process.name}_{number}", number + 1
        self._processes.append(replace(process, name=name))

    @property
    def loops(self) -> list[OpenLoop]:
        return [block for block in self.blocks if isinstance(block, OpenLoop)]

    @property
    def block(self) -> OpenBlock:
        """The innermost body."""
        return self.blocks[-1]

    def place(self) -> Place:
        """What is known here about loops and symbols."""
        symbols = self.declared.symbols.values()
        counts = (s.name for s in symbols if s.kind is ir.SymbolKind.EXTENT)
        heads = [block.head for block in self.blocks[1:] if isinstance(block, OpenLoop)]
        loops = tuple((head.var, head.extent) for head in heads if isinstance(head, ir.Loop))
        return Place(loops, frozenset(counts), conditional=len(loops) + 1 < len(self.blocks))

    def emit(self, stmt: ir.Stmt) -> None:
        self.check()
        self.block.body.append(stmt)

    def open_loop(self, head: ir.Loop | ir.While | ir.Consume, axis: object) -> OpenLoop:
        self.check()
        loop = OpenLoop(Scope("loop", head.var, head.loc), head=head, axis=axis)
        self.blocks.append(loop)
        return loop

    def close_loop(self, loop: OpenLoop) -> None:
        self.check()
        head = loop.head
        assert head is not None
        if self.block is not loop:
            raise CompileError(
                Code.LOOP_LEFT_EARLY,
                "P loops are interleaved",
                loc=head.loc,
                why="a loop ended while something that began inside it was still open",
                fix="use P(...) in `for` statements only; P(a, b) loops over two axes",
            )
        self.blocks.pop()
        loop.close()
        self.emit(replace(head, body=tuple(loop.body)))

    @contextmanager
    def apart(self) -> Generator[None]:
        """What is traced in between is a text of its own: its conditions continue no chain of the
        text around it, and none behind it continues theirs."""
        block = self.block
        block.chain = None
        yield
        block.chain = None

    def open_branch(self, loc: SrcLoc | None) -> OpenBlock:
        self.check()
        branch = OpenBlock(Scope("condition", f"at {loc}", loc))
        self.blocks.append(branch)
        return branch

    def close_branch(self, branch: OpenBlock, loc: SrcLoc | None) -> ir.Body:
        """The body of a branch."""
        self.check()
        if self.block is not branch:
            raise CompileError(
                Code.LOOP_LEFT_EARLY,
                "P.when ends inside a loop that began in it",
                loc=loc,
                why="a loop or condition that began inside it was still open",
                fix="use P.when(...) in `with` statements only",
            )
        self.blocks.pop()
        branch.close()
        return tuple(branch.body)

    def new_label(self, kernel: str) -> str:
        """A label for a call that no other has."""
        label, number = kernel, 2
        while label in self._labels:
            label, number = f"{kernel}_{number}", number + 1
        self._labels.add(label)
        return label

    # --- slots ---

    def load(self, region: ir.Region, loc: SrcLoc | None) -> SymInt:
        """The value of one element of a tensor, read here."""
        self.check()
        _check_read_alone(region, loc)
        name, scope = self._hidden_slot(region.tensor, loc)
        self.emit(ir.SlotLoad(name, region, loc))
        return atom(ir.SlotRef(name), scope)

    def frozen(self, value: SymInt, loc: SrcLoc | None) -> SymInt:
        """A value as it is here, whatever later happens to the slots that it reads."""
        expr = lower(value)
        if not any(isinstance(node, ir.SlotRef) for node in ir.walk_expr(expr)):
            return value
        name, scope = self._hidden_slot("extent", loc)
        self.emit(ir.SlotSet(name, expr, loc))
        return atom(ir.SlotRef(name), scope)

    def _hidden_slot(self, base: str, loc: SrcLoc | None) -> tuple[str, Scope]:
        """A slot that nobody else sets, and the scope in which it has a value."""
        name, number = base, 2
        while name in self._names:
            name, number = f"{base}_{number}", number + 1
        self._names.add(name)
        scope = Scope("condition", f"at {loc}", loc)
        self.block.loads[name] = scope
        return name, scope

    def set_slot(self, name: str) -> None:
        """A slot is about to be set: it belongs to the innermost body unless one around has it."""
        self._names.add(name)
        if not any(name in block.slots for block in self.blocks):
            self.block.slots.add(name)

    def slot(self, name: str) -> SymInt:
        """The value of a slot; CompileError if nothing around has set it."""
        self.check()
        for block in reversed(self.blocks):
            if name in block.slots:
                return atom(ir.SlotRef(name), block.scope)
        raise CompileError(
            Code.SLOT,
            f"{name} has no value here",
            loc=srcloc.here(),
            why="nothing before has set it in this iteration or around it",
            fix="set it first: slot_set_u64(0, value)",
        )

    def expect_use(self, what: str, fix: str, error: CompileError | None = None) -> Pending:
        """Remember something that must be used before the trace ends."""
        self.check()
        pending = Pending(what, fix, srcloc.here(), error=error)
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
        if len(self.blocks) > 1:
            raise _left_early(self.block.scope.loc)
        self.check_uses()
        body = self.blocks[0].body
        if self._processes:
            body = [*body, ir.Network(tuple(self._processes), self.scope.loc)]
        return ir.map_stmts(tuple(body), self._unlabelled)

    def check_uses(self) -> None:
        """What was begun so far is used."""
        for pending in self._pending:
            if not pending.used and pending.error is not None:
                raise pending.error
            if not pending.used:
                raise CompileError(
                    Code.UNUSED,
                    f"{pending.what} is not used",
                    loc=pending.loc,
                    why="by itself it generates no task",
                    fix=pending.fix,
                )

    def _unlabelled(self, stmt: ir.Stmt) -> ir.Stmt:
        """Calls that nobody waits for have no label."""
        if not isinstance(stmt, ir.Call) or stmt.label in self.used_labels:
            return stmt
        return replace(stmt, label=None)


def current(what: str) -> Tracer:
    """The trace under way; CompileError if there is none, since `what` needs one."""
    trace = context.active.get()
    if not isinstance(trace, Tracer):
        raise CompileError(
            Code.OUTSIDE_WORKLOAD,
            f"{what} outside a workload",
            loc=srcloc.here(),
            why="tasks are generated by a workload that is traced, never directly",
            fix="move it into a function decorated with @workload",
        )
    return trace


def active() -> Tracer | None:
    """The trace under way, if there is one."""
    trace = context.active.get()
    return trace if isinstance(trace, Tracer) else None


def refuse_inside_workload(what: str, fix: str) -> None:
    """CompileError if a workload is being traced."""
    trace = context.active.get()
    if trace is not None:
        raise CompileError(
            Code.INSIDE_WORKLOAD,
            f"{what} inside workload {trace.scope.name}",
            loc=srcloc.here(),
            why="a workload that is called inside another becomes a part of it",
            fix=fix,
        )


def run(tracer: Tracer, function: Callable[..., object], arguments: dict[str, object]) -> ir.Body:
    """Run the user's function once under the tracer; its values mean nothing afterwards."""
    token = context.active.set(tracer)
    try:
        result = srcloc.call_for(tracer.scope.loc, function, arguments)
        body = tracer.finish()
    finally:
        context.active.reset(token)
        for block in tracer.blocks:
            block.close()
    if result is not None and not isinstance(result, CallResult):
        raise CompileError(
            Code.WORKLOAD_FUNCTION,
            f"workload {tracer.scope.name} returns a value",
            loc=tracer.scope.loc,
            why="a workload generates tasks and has no result",
            fix="remove the return value; tasks write their results to tensors",
        )
    return body


def _check_read_alone(region: ir.Region, loc: SrcLoc | None) -> None:
    """Control reads an element at one line; which ones a reduction asks for is not known there."""
    parts = (part for dim in region.dims for part in (dim.start, dim.extent))
    if any(isinstance(node, ir.BoundVar) for part in parts for node in ir.walk_expr(part)):
        raise CompileError(
            Code.UNTRACEABLE,
            f"tensor {region.tensor} is read inside a reduction or a search",
            loc=loc,
            why="control reads single elements of a tensor, once the tasks that write them have "
            "ended",
            fix=f"pass an array of integers for {region.tensor}, without Tensor(...), or reduce it "
            "in a kernel and read the result",
        )


def _unnamed(tensor: Tensor) -> CompileError:
    what, fix = "tensor", 'give it one: Tensor(data=array, name="X")'
    if isinstance(tensor, PagedTensor):
        what = "PagedTensor"
        fix = "make it outside and pass it, as launch(..., k=PagedTensor(pool, table)) does; or "
        fix += 'give it a name: PagedTensor(pool, table, name="k")'
    return CompileError(
        Code.TENSOR_UNNAMED,
        f"a {what} without a name",
        loc=srcloc.here(),
        why="execute binds tensors by name, and the workload uses this one through neither a "
        "variable outside of it nor an attribute",
        fix=fix,
    )


def _check_alive(tensor: object, name: str) -> None:
    if not isinstance(tensor, Temporary | Message) or tensor.scope.is_open:
        return
    if isinstance(tensor, Message):
        raise CompileError(
            Code.CHANNEL,
            f"a message of channel {name} is used outside its scope",
            loc=srcloc.here(),
            why="its buffer goes back when the body ends in which it was received",
            fix="use it inside, or write what is needed of it to a Tensor",
        )
    raise CompileError(
        Code.TEMPORARY_ESCAPED,
        f"temporary {name} is used outside its scope",
        loc=srcloc.here(),
        why=f"it ends with the {tensor.scope.kind} {tensor.scope.name} in which it was made",
        fix="make it around the loop or condition, or write the result to a Tensor",
    )


def _left_early(loc: SrcLoc | None) -> CompileError:
    return CompileError(
        Code.LOOP_LEFT_EARLY,
        "a P loop is left before its end",
        loc=loc,
        why="its body is traced once for all iterations; break, return or an exception would end "
        "all of them",
        fix="bound the loop by its extent, P(n), or put what depends on a test under P.when(...)",
    )
