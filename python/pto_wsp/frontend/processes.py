"""Processes, and how they become the network that a program is."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any, TypeAlias, cast

from pto_wsp import ir, srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.frontend.channels import Channel
from pto_wsp.frontend.compose import Traced, merge_parts
from pto_wsp.frontend.ports import border
from pto_wsp.frontend.trace import current
from pto_wsp.frontend.workloads import Workload, WorkloadFunction, network
from pto_wsp.host_ends import HostEnd
from pto_wsp.srcloc import SrcLoc

ProcessBody: TypeAlias = Workload | WorkloadFunction | Callable[..., object]
_REPLICA = "replica"  # the loop variable of a replicated process


@dataclass(frozen=True, slots=True, eq=False)
class Process:
    """A process with its body: see `process`."""

    name: str
    inputs: tuple[Channel, ...]
    outputs: tuple[Channel, ...]
    work: ProcessBody
    loc: SrcLoc | None
    replicas: int | None = None

    def traced(self) -> Traced:
        """The body as a module of its own, in a loop over the replicas if there are such."""
        if isinstance(self.work, Workload):
            found = self.work.source()
            if self.replicas is None:
                return found
            loop = self._loop(found.module.body)
            return replace(found, module=replace(found.module, body=(loop,)))
        work = self.work.function if isinstance(self.work, WorkloadFunction) else self.work
        return WorkloadFunction(self._function(work))().source()

    def _loop(self, body: ir.Body) -> ir.Loop:
        assert self.replicas is not None
        extent = ir.Const(self.replicas)
        order, kind = ir.Order.PARALLEL, ir.AxisKind.DENSE
        zero = ir.Const(0)
        return ir.Loop(_REPLICA, self.name, kind, order, zero, extent, body, None, None, self.loc)

    def _function(self, work: Any) -> FunctionType:
        """A function without parameters, whose body is that of the process."""
        takes_replica = len(inspect.signature(work).parameters) == 1
        if takes_replica and self.replicas is None:
            raise _error(
                f"the body of process {self.name} takes the number of a replica",
                "the process is not replicated",
                f"leave the parameter out, or write replicate({self.name}, n)",
                self.loc,
            )

        @functools.wraps(work)
        def body() -> None:
            if self.replicas is None:
                work()
                return
            tracer = current("a process")
            loop = tracer.open_loop(self._loop(()), None)
            work(loop.variable) if takes_replica else work()
            tracer.close_loop(loop)

        body.__signature__ = inspect.Signature()  # type: ignore[attr-defined]
        return cast(FunctionType, body)


class ProcessBuilder:
    """`process("load").consumes(a).produces(b).body(work)`."""

    def __init__(
        self, name: str, inputs: tuple[Channel, ...], outputs: tuple[Channel, ...]
    ) -> None:
        self._name = name
        self._inputs = inputs
        self._outputs = outputs

    def consumes(self, *channels: Channel) -> ProcessBuilder:
        return ProcessBuilder(self._name, (*self._inputs, *channels), self._outputs)

    def produces(self, *channels: Channel) -> ProcessBuilder:
        return ProcessBuilder(self._name, self._inputs, (*self._outputs, *channels))

    def body(self, work: ProcessBody) -> Process:
        """What the process does: a workload with its arguments, or a function that is traced like
        one. A function of a replicated process may take the number of its replica."""
        return Process(self._name, self._inputs, self._outputs, _checked(work), srcloc.here())


def _checked(work: object) -> ProcessBody:
    if isinstance(work, Workload) and not work.schedule.is_default:
        raise _error(
            "the body of a process has a schedule",
            "a schedule applies to a whole program",
            "schedule the network: connect(...).dispatch(...)",
        )
    if isinstance(work, Workload | WorkloadFunction):
        return work
    if isinstance(work, FunctionType) and len(inspect.signature(work).parameters) <= 1:
        return work
    raise _error(
        f"the body of a process is {type(work).__name__}",
        "a process does what a workload or a function without parameters says",
        "pass a workload with its arguments, load(DenseDyn(n)), or a function",
    )


def process(name: str) -> ProcessBuilder:
    """`process("load").produces(ch).body(load(DenseDyn(n)))`: a part of a network that goes on by
    itself, and waits only where it sends and receives."""
    if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _error("a process without a name", "reports call it by its name", 'process("load")')
    return ProcessBuilder(name, (), ())


def replicate(one: Process, count: int) -> Process:
    """Several processes alike. Messages go to them in turn, number modulo count, and what they send
    is collected in that order; so the result does not depend on who is faster."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _error(
            f"replicate({one.name}, {count!r})", "it is a number of at least 1", "pass an int"
        )
    return replace(one, replicas=count)


def connect(processes: Sequence[Process], channels: Sequence[Channel]) -> Workload:
    """The network of these processes and channels as one workload."""
    loc = srcloc.here()
    for number, channel in enumerate(channels):
        channel.name = channel.name or f"channel_{number}"
    names = [channel.name for channel in channels]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise _error(
            f"two channels are called {twice}",
            "reports and ports call a channel by its name",
            'give them different names: Channel[...]("first", ...)',
        )
    parts = tuple(processes)
    if not parts or not all(isinstance(each, Process) for each in parts):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _error(
            "connect(...) of something else than processes",
            "a network is made of processes that have a body",
            'write connect([process("load").produces(ch).body(work), ...], [ch])',
        )
    return network("network", functools.partial(_network, parts, tuple(channels), loc))


def _network(
    parts: tuple[Process, ...], channels: tuple[Channel, ...], loc: SrcLoc | None
) -> Traced:
    traced = [part.traced() for part in parts]
    for part, found in zip(parts, traced, strict=True):
        _check(part, found, {channel.name for channel in channels})
    names = [(part.name, part.replicas is not None, part.loc) for part in parts]
    ends: list[HostEnd] = []
    for channel in channels:
        if channel.host:
            found, end = _host_end(channel, traced)
            traced.append(found)
            names.append(
                (f"host {'to' if end.sends else 'from'} {end.channel}", False, channel.loc)
            )
            ends.append(end)
    merged, bodies = merge_parts(traced, loc)
    processes = tuple(
        ir.Process(name, body, replicated, at)
        for (name, replicated, at), body in zip(names, bodies, strict=True)
    )
    module = replace(merged.module, name="network", body=(ir.Network(processes, loc),))
    return replace(merged, module=module, host_ends=tuple(ends))


def _host_end(channel: Channel, traced: list[Traced]) -> tuple[Traced, HostEnd]:
    """The host has the end that no process has."""
    stmts = [stmt for part in traced for stmt in ir.walk(part.module.body)]
    sent = any(isinstance(s, ir.Send) and s.channel == channel.name for s in stmts)
    taken = any(isinstance(s, ir.Consume | ir.Receive) and s.channel == channel.name for s in stmts)
    if sent is taken or channel.name is None:
        raise CompileError(
            Code.CHANNEL,
            f"channel {channel.name} has host=True and {'two ends' if sent else 'no end'}",
            loc=channel.loc,
            why="the host has one end, and a process the other",
            fix="leave host=True out, or let one process send to it or receive from it",
        )
    return border(channel, channel.name, sends=taken)


def _check(part: Process, traced: Traced, known: set[str | None]) -> None:
    """A process uses the channels that it says, and no others."""
    body = traced.module.body
    if any(isinstance(stmt, ir.Network) for stmt in body):
        raise _error(
            f"process {part.name} is itself a network",
            "the processes of a program stand beside each other",
            "connect its processes directly",
            part.loc,
        )
    used = [stmt for stmt in ir.walk(body) if isinstance(stmt, ir.Send | ir.Consume | ir.Receive)]
    sends = {stmt.channel for stmt in used if isinstance(stmt, ir.Send)}
    takes = {stmt.channel for stmt in used if not isinstance(stmt, ir.Send)}
    pairs = (("produces", sends, part.outputs), ("consumes", takes, part.inputs))
    for verb, found, said in pairs:
        names = {channel.name for channel in said}
        for name in sorted(found ^ {each for each in names if each is not None}):
            does = f"{verb} {name} without saying so" if name in found else f"never {verb} {name}"
            raise _error(
                f"process {part.name} {does}",
                "what it says of its channels is what the network is drawn by",
                f"write process({part.name!r}).{verb}(...) with the channels that its body uses",
                part.loc,
            )
    for name in sorted(sends | takes):
        if name not in known:
            raise _error(
                f"process {part.name} uses channel {name}, which is not connected",
                "connect(...) gets all channels of the network",
                "add it to the list of channels",
                part.loc,
            )


def _error(what: str, why: str, fix: str, loc: SrcLoc | None = None) -> CompileError:
    return CompileError(Code.PROCESS, what, loc=loc or srcloc.here(), why=why, fix=fix)
