"""What is legal for channels and processes; `verify` has the rules for the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from pto_wsp.error_codes import Code
from pto_wsp.ir.nodes import (
    Body,
    Call,
    Close,
    Column,
    Const,
    Consume,
    DimSlice,
    Loop,
    LoopVar,
    Mode,
    Module,
    Network,
    Order,
    ParamDecl,
    Receive,
    Region,
    Send,
    SlotRef,
    TensorDecl,
    TensorKind,
)
from pto_wsp.ir.rewrite import walk, walk_expr
from pto_wsp.ir.text import given_params
from pto_wsp.ir.verify_decls import name_faults
from pto_wsp.ir.verify_expr import MAX_RANK, Fault, Faults, Rule, Scope
from pto_wsp.srcloc import SrcLoc

MAX_DEPTH = 0xFFFF  # a 16-bit field counts the buffers
MAX_REPLICAS = 4096
MAIN = "main"  # the process of the statements in front of a network

Holding: TypeAlias = Consume | Receive


def channel_fits(tensor: TensorDecl, _: Scope) -> Faults:
    what = f"{tensor.kind.value} '{tensor.name}'"
    if (tensor.slots is not None) is not (tensor.kind is TensorKind.CHANNEL):
        yield Fault(f"{what} has buffers or lacks them", "channels have them, others have none")
        return
    if tensor.slots is None:
        return
    slots = tensor.slots
    if tensor.rank >= MAX_RANK:
        yield Fault(f"{what} has messages of rank {tensor.rank}", f"at most {MAX_RANK - 1}")
    if len(tensor.shape) != tensor.rank:
        yield Fault(f"{what} has {len(tensor.shape)} extents and rank {tensor.rank}")
    if not all(isinstance(size, Const) and size.value > 0 for size in tensor.shape):
        yield Fault(f"{what} has messages of no fixed size", "extents are positive constants")
    if not 0 <= slots.depth <= MAX_DEPTH:
        yield _channel(f"{what} has depth {slots.depth}", f"it is between 0 and {MAX_DEPTH}")
    if not 0 <= slots.initial <= slots.depth:
        why = f"it has {slots.depth} buffers"
        fix = "give it a depth of at least that"
        yield _channel(f"{what} begins with {slots.initial} messages", why, fix)
    if slots.latency < 0:
        yield _channel(f"{what} has latency {slots.latency}", "it is at least 0")


def _channel(
    message: str, why: str | None = None, fix: str | None = None, loc: SrcLoc | None = None
) -> Fault:
    return Fault(message, why, fix, code=Code.CHANNEL, loc=loc)


def _declared(name: str, scope: Scope) -> Faults:
    tensor = scope.tensors.get(name)
    if tensor is None or tensor.kind is not TensorKind.CHANNEL:
        yield Fault(f"'{name}' is no channel")


def message_is_written_once(stmt: Send, scope: Scope) -> Faults:
    yield from _declared(stmt.channel, scope)
    call = stmt.body[0] if len(stmt.body) == 1 else None
    if not isinstance(call, Call):
        yield Fault(f"what is sent to '{stmt.channel}' is not one call")
        return
    if stmt.channel in scope.temps:
        why = "a process that both receives and sends them would wait for itself"
        yield _channel(f"'{stmt.channel}' is sent to where a message of it is held", why)
    kernel = scope.kernels.get(call.kernel)
    params = () if kernel is None else given_params(kernel)
    modes = [
        param.mode
        for param, arg in zip(params, call.args, strict=False)
        if isinstance(param, ParamDecl) and isinstance(arg, Region) and arg.tensor == stmt.channel
    ]
    if modes != [Mode.OUT]:
        why = "one Out parameter of the call is the message"
        yield _channel(f"kernel '{call.kernel}' does not write the message of a send", why)


def message_is_not_held(stmt: Holding, scope: Scope) -> Faults:
    yield from _declared(stmt.channel, scope)
    if stmt.channel in scope.temps:
        why = "there is a message of it here already, for the rest of this body"
        fix = "receive it in a loop of its own, and keep what is needed in a Tensor.temp"
        yield _channel(f"another message of '{stmt.channel}' is received", why, fix)


def closed_is_a_channel(stmt: Close, scope: Scope) -> Faults:
    yield from _declared(stmt.channel, scope)


def network_has_processes(stmt: Network, _: Scope) -> Faults:
    names: set[str] = set()
    for process in stmt.processes:
        yield from name_faults("process name", process.name)
        if process.name in names or process.name == MAIN:
            why = "reports and keys call a process by its name"
            fix = f"call it something else than '{process.name}'"
            what = f"two processes are called '{process.name}'"
            yield Fault(what, why, fix, code=Code.PROCESS, loc=process.loc)
        names.add(process.name)
        if not process.body:
            yield Fault(f"process '{process.name}' does nothing", code=Code.PROCESS)
        if process.replicated and not _is_replica_loop(process.body):
            yield Fault(f"replicated process '{process.name}' is not one loop over its replicas")
    if not stmt.processes:
        yield Fault("a network without processes", code=Code.PROCESS)


def _is_replica_loop(body: Body) -> bool:
    loop = body[0] if len(body) == 1 else None
    return (
        isinstance(loop, Loop)
        and loop.order is Order.PARALLEL
        and loop.start == Const(0)
        and isinstance(loop.extent, Const)
        and 1 <= loop.extent.value <= MAX_REPLICAS
    )


def network_is_last(module: Module, _: Scope) -> Faults:
    """Processes stand at the end of the whole, and nowhere else."""
    nested = [stmt for stmt in walk(module.body) if isinstance(stmt, Network)]
    if nested and (len(nested) > 1 or nested[0] is not module.body[-1]):
        yield Fault("a network inside of something", "it is the last statement of a module")


def channels_join_two_processes(module: Module, _: Scope) -> Faults:
    """One process sends, one other takes."""
    senders = dict(_users(module, (Send, Close)))
    takers = dict(_users(module, (Consume, Receive)))
    for tensor in module.tensors:
        if tensor.kind is not TensorKind.CHANNEL:
            continue
        sending, taking = senders.get(tensor.name, {}), takers.get(tensor.name, {})
        for process in sending.keys() & taking.keys():
            why = f"process '{process}' would wait for itself"
            fix = "keep the value in a Tensor, or let another process send it back"
            if process == MAIN:
                fix = "make processes of the statements: with P.pipe():"
            what = f"both ends of channel '{tensor.name}' are in one process"
            yield _channel(what, why, fix, taking[process])
        yield from _one("send to", tensor, sending)
        yield from _one("receive from", tensor, taking)
        if not sending and not taking:
            continue
        if not taking:
            fix = f"consume it: with consume({tensor.name}) as message: ..."
            what = f"nobody consumes channel '{tensor.name}'"
            yield _channel(
                what, f"process '{next(iter(sending))}' sends to it", fix, _first(sending)
            )
        if not sending and not (tensor.slots and tensor.slots.initial):
            what = f"nobody sends to channel '{tensor.name}'"
            yield _channel(
                what,
                f"process '{next(iter(taking))}' would wait for a message for ever",
                f"send one: send({tensor.name}, k[...](...))",
                _first(taking),
            )


def processes_do_not_collide(module: Module, scope: Scope) -> Faults:
    """Two processes that no channels join, in either direction, touch the same region for certain,
    and one of them writes it."""
    names = [name for name, _ in processes_of(module)]
    if len(names) == 1:
        return
    touched = [(name, _touched(body, scope)) for name, body in processes_of(module)]
    joined = _joined(module)
    for i, (first, mine) in enumerate(touched):
        for second, theirs in touched[i + 1 :]:
            if second in joined[first]:
                continue
            for region in mine.keys() & theirs.keys():
                if mine[region] or theirs[region]:
                    yield Fault(
                        f"processes '{first}' and '{second}' both touch '{region.tensor}'",
                        "one of them writes it, and no channel says who comes first",
                        "pass it on in a message",
                        code=Code.RACE,
                    )


def _touched(body: Body, scope: Scope) -> dict[Region, bool]:
    """Regions of bound tensors that are the same for every task, and whether they are written."""
    found: dict[Region, bool] = {}
    for call in walk(body):
        if not isinstance(call, Call) or call.kernel not in scope.kernels:
            continue
        for param, arg in zip(given_params(scope.kernels[call.kernel]), call.args, strict=False):
            if not isinstance(param, ParamDecl) or not isinstance(arg, Region):
                continue
            tensor = scope.tensors.get(arg.tensor)
            fixed = not any(_varies(dim) for dim in arg.dims)
            if tensor is not None and tensor.kind is TensorKind.BOUND and fixed:
                found[arg] = found.get(arg, False) or param.mode is not Mode.IN
    return found


def _varies(dim: DimSlice) -> bool:
    nodes = [node for expr in (dim.start, dim.extent, dim.step) for node in walk_expr(expr)]
    return any(isinstance(node, LoopVar | Column | SlotRef) for node in nodes)


def _joined(module: Module) -> dict[str, set[str]]:
    """By process, those that channels lead to or come from, over any number of others."""
    senders = dict(_users(module, (Send, Close)))
    takers = dict(_users(module, (Consume, Receive)))
    joined = {name: {name} for name, _ in processes_of(module)}
    for channel in senders.keys() & takers.keys():
        ends = {*senders[channel], *takers[channel]}
        group = set[str]().union(*(joined[name] for name in ends))
        for name in group:
            joined[name] = group
    return joined


def _one(verb: str, tensor: TensorDecl, users: dict[str, SrcLoc | None]) -> Faults:
    if len(users) > 1:
        names = " and ".join(f"'{name}'" for name in users)
        why = "the order of messages would depend on who is faster"
        fix = "give each of them a channel of its own, or replicate one process"
        what = f"processes {names} {verb} channel '{tensor.name}'"
        yield _channel(what, why, fix, list(users.values())[1])


def _first(users: dict[str, SrcLoc | None]) -> SrcLoc | None:
    return next(iter(users.values()))


def _users(
    module: Module, kinds: tuple[type, ...]
) -> Iterator[tuple[str, dict[str, SrcLoc | None]]]:
    """By channel, the processes that use it in this way, with a place each."""
    found: dict[str, dict[str, SrcLoc | None]] = {}
    for name, body in processes_of(module):
        for stmt in walk(body):
            if isinstance(stmt, kinds) and isinstance(stmt, Send | Close | Consume | Receive):
                found.setdefault(stmt.channel, {}).setdefault(name, stmt.loc)
    yield from found.items()


def processes_of(module: Module) -> Iterator[tuple[str, Body]]:
    """The processes of a module, the statements in front of a network being one."""
    network = module.body[-1] if module.body else None
    if not isinstance(network, Network):
        yield MAIN, module.body
        return
    yield MAIN, module.body[:-1]
    for process in network.processes:
        yield process.name, process.body


SEND_RULES: tuple[Rule[Send], ...] = (message_is_written_once,)
HOLDING_RULES: tuple[Rule[Holding], ...] = (message_is_not_held,)
CLOSE_RULES: tuple[Rule[Close], ...] = (closed_is_a_channel,)
NETWORK_RULES: tuple[Rule[Network], ...] = (network_has_processes,)
MODULE_NETWORK_RULES: tuple[Rule[Module], ...] = (
    network_is_last,
    channels_join_two_processes,
    processes_do_not_collide,
)
