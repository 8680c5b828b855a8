"""Channels: bounded queues of tiles between processes, and how a workload uses them."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Any

from pto_wsp import ir, srcloc
from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError, TypeCheckError
from pto_wsp.frontend.annotations import Tile
from pto_wsp.frontend.blocks import OpenLoop
from pto_wsp.frontend.context import Scope
from pto_wsp.frontend.handles import Handle
from pto_wsp.frontend.kernels import Unsent
from pto_wsp.frontend.nests import new_variable
from pto_wsp.frontend.scalar_expr import as_int
from pto_wsp.frontend.tensor import Message, identifier
from pto_wsp.frontend.trace import Tracer, current

_EXAMPLE = "Channel[Tile[16, 64, DType.F32]](depth=2)"
EVENT_KERNELS = ("recorded", "awaited")  # of record(...) and synchronize(...): events.py


class Channel:
    """`Channel[Tile[16, 64, DType.F32]](depth=2)`: messages go from one process to one other, in
    the order in which they are sent. Each is a tile in one of `depth` buffers that the runtime owns
    and uses again; nothing is copied. With depth 0 a message is passed on only when the receiver
    waits for it.

    `initial` messages of zeros are there at the start, which a cycle of processes needs.
    `latency` is the number of cycles that a message is under way on a virtual clock
    (TracePolicy.cycles). With `host=True` the host has the end that no process has: see
    `program.channel(name)`.
    """

    __slots__ = ("dtype", "host", "loc", "name", "shape", "slots")

    def __class_getitem__(cls, element: Any) -> ChannelType:
        return ChannelType(_tile(element))

    def __init__(
        self,
        name: str | None = None,
        *,
        depth: int = 1,
        initial: int = 0,
        latency: int = 0,
        host: bool = False,
        element: type[Tile] | None = None,
    ) -> None:
        self.loc = srcloc.here()
        self.name = identifier("Channel", name)
        self.host = host
        tile = _tile(element)
        self.shape, self.dtype = tile.shape, tile.dtype
        numbers = [
            _count("depth", depth, self.loc),
            _count("initial", initial, self.loc),
            _count("latency", latency, self.loc),
        ]
        self.slots = ir.Slots(*numbers)

    def __repr__(self) -> str:
        sizes = ", ".join(map(str, self.shape))
        name = "" if self.name is None else f"{self.name!r}, "
        return f"Channel[Tile[{sizes}, {self.dtype.text}]]({name}depth={self.slots.depth})"

    def declaration(self, name: str) -> ir.TensorDecl:
        sizes = tuple(ir.Const(size) for size in self.shape)
        kind = ir.TensorKind.CHANNEL
        rank = len(sizes)
        return ir.TensorDecl(name, self.dtype, rank, self.loc, kind, sizes, slots=self.slots)


@dataclass(frozen=True, slots=True)
class ChannelType:
    """`Channel[Tile[...]]`; calling it makes a channel."""

    element: type[Tile]

    def __call__(
        self,
        name: str | None = None,
        *,
        depth: int = 1,
        initial: int = 0,
        latency: int = 0,
        host: bool = False,
    ) -> Channel:
        return Channel(
            *(name,), depth=depth, initial=initial, latency=latency, host=host, element=self.element
        )


class Event(Channel):
    """A channel that says when, and carries nothing: `record(e)` in one process, `synchronize(e)`
    in another, whose tasks behind it wait for those before the record."""

    __slots__ = ()

    def __init__(self, name: str | None = None, *, latency: int = 0, host: bool = False) -> None:
        super().__init__(name, depth=0, latency=latency, host=host, element=Tile[1, DType.BOOL])


def _tile(element: object) -> type[Tile]:
    if isinstance(element, type) and issubclass(element, Tile) and hasattr(element, "shape"):
        return element
    raise TypeCheckError(
        Code.CHANNEL,
        "a channel whose messages have no type",
        loc=srcloc.here(),
        why="its buffers are made before the first message",
        fix=f"write {_EXAMPLE}",
    )


def _count(name: str, value: object, loc: srcloc.SrcLoc | None) -> int:
    number = None if isinstance(value, bool) else as_int(value)
    if number is None or number < 0:
        raise TypeCheckError(
            Code.CHANNEL,
            f"Channel(..., {name}={value!r})",
            loc=loc,
            why="it is a number of at least 0",
            fix=f"write {_EXAMPLE}",
        )
    return number


def checked(form: str, channel: object, *, event: bool = False) -> Channel:
    wanted = Event if event else Channel
    if isinstance(channel, wanted):
        return channel
    name = wanted.__name__
    raise TypeCheckError(
        Code.CHANNEL,
        f"{form} of {type(channel).__name__}",
        loc=srcloc.here(),
        why=f"it takes an {name}" if event else f"it takes a {name}",
        fix=f"make one: {_EXAMPLE if not event else 'Event()'}",
    )


def name_of(tracer: Tracer, channel: Channel) -> str:
    """The name under which the trace declares a channel."""
    return tracer.channel_name(channel, channel.declaration)


def send(channel: Channel, value: object) -> Handle:
    """`send(ch, k[i](x=X[i]))`: the task writes a buffer of the channel, which is the parameter of
    the call that is left out, and passes it on. Waits for a free buffer."""
    tracer = current("send(...)")
    name = name_of(tracer, checked("send(...)", channel))
    if not isinstance(value, Unsent):
        raise TypeCheckError(
            Code.CHANNEL,
            f"send(...) of {type(value).__name__}",
            loc=srcloc.here(),
            why="a message is what a task writes into a buffer of the channel",
            fix="send a call that leaves one Out parameter out: send(ch, k[i](x=X[i]))",
        )
    return send_call(tracer, name, channel, value)


def send_call(tracer: Tracer, name: str, channel: Channel, value: Unsent) -> Handle:
    body = tracer.block.body
    message = Message(name, channel.shape, channel.dtype, Scope("send", name, srcloc.here()))
    tracer.hold(message)
    handle = value.complete(message)
    message.scope.is_open = False
    body[-1] = ir.Send(name, (body[-1],), srcloc.here())
    return handle


class Consume:
    """`with consume(ch) as t:`."""

    def __init__(self, tracer: Tracer, channel: Channel) -> None:
        self.pending = tracer.expect_use("consume(...)", "write `with consume(ch) as t:`")
        self._tracer = tracer
        self._channel = channel
        self._open: OpenLoop | None = None

    def __enter__(self) -> Message:
        self.pending.used = True
        tracer, channel = self._tracer, self._channel
        name = name_of(tracer, channel)
        head = ir.Consume(new_variable(tracer, None, name), name, (), self.pending.loc)
        self._open = tracer.open_loop(head, None)
        message = Message(name, channel.shape, channel.dtype, self._open.scope)
        message.position = self._open.variable
        tracer.hold(message)
        return message

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None and self._open is not None:
            self._tracer.close_loop(self._open)


def consume(channel: Channel) -> Consume:
    """`with consume(ch) as t:` stands for each message until the channel is closed. `t` is the
    message, to be passed to kernels whole or in part, and `t.number` its number, from 0."""
    return Consume(current("consume(...)"), checked("consume(...)", channel))


def receive(channel: Channel) -> Message:
    """The next message of a channel, for the rest of the body. Unlike consume, it wants one: that
    the channel is closed is an error."""
    tracer = current("receive(...)")
    name = name_of(tracer, checked("receive(...)", channel))
    tracer.emit(ir.Receive(name, srcloc.here()))
    message = Message(name, channel.shape, channel.dtype, tracer.block.scope)
    tracer.hold(message)
    return message


def close(channel: Channel) -> None:
    """No more messages come from this process; at its end it closes its channels anyway."""
    tracer = current("close(...)")
    tracer.emit(ir.Close(name_of(tracer, checked("close(...)", channel)), srcloc.here()))


# --- networks in one workload ---


class Pipe:
    """`with P.pipe():`."""

    def __init__(self, tracer: Tracer) -> None:
        self.pending = tracer.expect_use("P.pipe()", "write `with P.pipe():`")
        self._tracer = tracer
        self._open: Any = None

    def __enter__(self) -> None:
        self.pending.used = True
        if len(self._tracer.blocks) > 1:
            raise CompileError(
                Code.PROCESS,
                "P.pipe() inside a loop or a condition",
                loc=self.pending.loc,
                why="the processes of a program are there from its start to its end",
                fix="put the loop into the processes",
            )
        self._tracer.block.chain = None  # processes stand between conditions, and leave nothing
        self._open = self._tracer.open_branch(self.pending.loc)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None or self._open is None:
            return
        body = self._tracer.close_branch(self._open, self.pending.loc)
        for stmt in body:
            _check_no_host(self._tracer, self.pending.loc)
            self._tracer.add_process(_process(self._tracer, stmt, self.pending.loc))


def _check_no_host(tracer: Tracer, loc: srcloc.SrcLoc | None) -> None:
    if any(isinstance(each, Channel) and each.host for each in tracer.channels()):
        raise CompileError(
            Code.CHANNEL,
            "a channel of the host in P.pipe()",
            loc=loc,
            why="the process that stands for the host is made where processes are connected",
            fix="make the network with connect([...], [...])",
        )


def _process(tracer: Tracer, stmt: ir.Stmt, loc: srcloc.SrcLoc | None) -> ir.Process:
    """A statement of a pipe; it is called like the first kernel that it calls, if there are others
    than those of events."""
    calls = [each for each in ir.walk((stmt,)) if isinstance(each, ir.Call)]
    if isinstance(stmt, ir.SlotSet | ir.SlotLoad | ir.Alloc | ir.Receive) or not calls:
        tracer.check_uses()  # a call that is not sent is why there are none
        raise CompileError(
            Code.PROCESS,
            "a statement of P.pipe() that is no process",
            loc=getattr(stmt, "loc", None) or loc,
            why="each statement of a pipe goes on by itself, and so has tasks",
            fix="put temporaries, slots, receive(...) and synchronize(...) into the loop that uses "
            "them; for _ in P(1): makes one process of several statements",
        )
    names = [call.kernel.partition(".")[0] for call in calls]
    own = [name for name in names if name not in EVENT_KERNELS]
    return ir.Process((own or names)[0], (stmt,), loc=stmt.loc)


def pipe() -> Pipe:
    return Pipe(current("P.pipe()"))
