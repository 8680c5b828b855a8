"""Processes at the border of a network, which stand for the host."""

from __future__ import annotations

from pto_wsp import ir
from pto_wsp.dtypes import DType
from pto_wsp.frontend.annotations import In, Out
from pto_wsp.frontend.channels import Channel
from pto_wsp.frontend.compose import Traced
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
    defaults: dict[str, object] = {end.array: _empty(end.array, shape, channel.dtype)}
    if sends:
        symbols = (ir.SymbolDecl(end.number, ir.SymbolKind.EXTENT, default=0, loc=channel.loc),)
        defaults[end.number] = 0
        made = _call(hand_in, (there, message), channel)
        body: ir.Stmt = ir.Loop(
            *(_VAR, end.number, ir.AxisKind.DENSE_DYN, ir.Order.PARALLEL, ir.Const(0)),
            *(ir.SymbolRef(end.number), (ir.Send(name, (made,), channel.loc),)),
            loc=channel.loc,
        )
        used = hand_in
    else:
        symbols = ()
        tensors.append(ir.TensorDecl(end.seen, DType.BOOL, 1, channel.loc))
        defaults[end.seen] = _empty(end.seen, (count,), DType.BOOL)
        flag = ir.Region(end.seen, (one,))
        body = ir.Consume(
            _VAR, name, (_call(hand_out, (message, there, flag), channel),), channel.loc
        )
        used = hand_out
    decl = _specialised(used, channel)
    module = ir.Module(name, symbols, tuple(tensors), (decl,), (body,))
    return Traced(module, {decl.name: used}, defaults), end  # type: ignore[arg-type]


def _call(used: Kernel, regions: tuple[ir.Region, ...], channel: Channel) -> ir.Call:
    return ir.Call(used.name, (ir.LoopVar(_VAR),), regions, channel.loc)


def _specialised(used: Kernel, channel: Channel) -> ir.KernelDecl:
    rank = len(channel.shape)
    params = [
        ir.ParamDecl(name, ir.Mode.OUT if mode else ir.Mode.IN, channel.dtype, rank)
        for name, mode in (("x", False), ("message", True))
    ]
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
