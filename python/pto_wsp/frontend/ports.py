"""Processes at the border of a network, which stand for the host."""

from __future__ import annotations

from pto_wsp import ir
from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import ChannelFull
from pto_wsp.frontend.annotations import In, Out
from pto_wsp.frontend.channels import Channel
from pto_wsp.frontend.compose import Traced
from pto_wsp.frontend.declarations import Default
from pto_wsp.frontend.kernels import Kernel, kernel
from pto_wsp.frontend.tensor import Tensor
from pto_wsp.host_ends import HostEnd

_VAR = "message"


@kernel
def hand_in(x: In[Tensor], message: Out[Tensor]) -> None:
    message[...] = x


@kernel
def hand_out(message: In[Tensor], y: Out[Tensor], seen: Out[Tensor]) -> None:
    y[...] = message
    seen[...] = True


@kernel
def too_many(message: In[Tensor]) -> None:
    raise ChannelFull(
        Code.CHANNEL_FULL,
        "a run gives the host at most as many messages as the channel has buffers",
        fix="give the channel a larger depth, or send fewer messages in one run",
    )


def border(channel: Channel, name: str, *, sends: bool) -> tuple[Traced, HostEnd]:
    """The process that has the host's end of a channel, and what the program calls its parts."""
    count = max(channel.slots.depth, 1)
    end = HostEnd(name, sends, channel.shape, channel.dtype, count)
    message = ir.Region(name, tuple(_all(size) for size in channel.shape))
    number = ir.LoopVar(_VAR)
    one = ir.DimSlice(number, ir.Const(1), ir.Const(1), dropped=True)
    there = ir.Region(end.array, (one, *(_all(size) for size in channel.shape)))
    rank = len(channel.shape)
    array = ir.TensorDecl(end.array, channel.dtype, rank + 1, channel.loc)
    tensors = [channel.declaration(name), array]
    shape = (count, *channel.shape)
    defaults: dict[str, Default] = {end.array: _empty(end.array, shape, channel.dtype)}
    if sends:
        symbols = (ir.SymbolDecl(end.number, ir.SymbolKind.EXTENT, default=0, loc=channel.loc),)
        defaults[end.number] = 0
        made = _call(hand_in, (there, message), channel)
        body: ir.Stmt = ir.Loop(
            *(_VAR, end.number, ir.AxisKind.DENSE_DYN, ir.Order.PARALLEL, ir.Const(0)),
            *(ir.SymbolRef(end.number), (ir.Send(name, (made,), channel.loc),)),
            loc=channel.loc,
        )
    else:
        symbols = ()
        tensors.append(ir.TensorDecl(end.seen, DType.BOOL, 1, channel.loc))
        defaults[end.seen] = _empty(end.seen, (count,), DType.BOOL)
        flag = ir.Region(end.seen, (one,))
        fits = ir.Binary(ir.BinaryOp.LT, number, ir.Const(count))
        out = _call(hand_out, (message, there, flag), channel)
        fails = _call(too_many, (message,), channel)
        choice = ir.Cond(fits, (out,), (fails,), channel.loc)
        body = ir.Consume(_VAR, name, (choice,), channel.loc)
    used = (hand_in,) if sends else (hand_out, too_many)
    decls = tuple(_specialised(each, channel) for each in used)
    module = ir.Module(name, symbols, tuple(tensors), decls, (body,))
    kernels = {decl.name: each for decl, each in zip(decls, used, strict=True)}
    return Traced(module, kernels, defaults), end


def _call(used: Kernel, regions: tuple[ir.Region, ...], channel: Channel) -> ir.Call:
    return ir.Call(used.name, (ir.LoopVar(_VAR),), regions, channel.loc)


def _specialised(used: Kernel, channel: Channel) -> ir.KernelDecl:
    rank = len(channel.shape)
    params = [
        ir.ParamDecl(name, ir.Mode.OUT if mode else ir.Mode.IN, channel.dtype, rank)
        for name, mode in (("x", False), ("message", True))
    ]
    if used is too_many:
        params = [ir.ParamDecl("message", ir.Mode.IN, channel.dtype, rank)]
    if used is hand_out:
        params = [
            ir.ParamDecl("message", ir.Mode.IN, channel.dtype, rank),
            ir.ParamDecl("y", ir.Mode.OUT, channel.dtype, rank),
            ir.ParamDecl("seen", ir.Mode.OUT, DType.BOOL, 0),
        ]
    return used.decl(tuple(params))


def _all(size: int) -> ir.DimSlice:
    return ir.DimSlice(ir.Const(0), ir.Const(size), ir.Const(1))


def _empty(name: str, shape: tuple[int, ...], dtype: DType) -> Tensor:
    import numpy as np

    return Tensor(data=np.zeros(shape, dtype.numpy), name=name)
