"""Channels and processes as tables of a plan."""

from __future__ import annotations

from collections.abc import Mapping

from pto_wsp import ir, plan
from pto_wsp.passes.lower_tables import lower_location, lower_shaped

_ALIGN = 64  # bytes, of a message


def lower_channels(
    module: ir.Module, builder: plan.PlanBuilder, tensors: dict[str, int]
) -> dict[str, int]:
    """A CHANNEL for each, and the tensor that is the message a process sends or has received."""
    numbers: dict[str, int] = {}
    for decl in module.tensors:
        if decl.slots is None:
            continue
        where = lower_location(decl)
        sizes = [size.value for size in decl.shape if isinstance(size, ir.Const)]
        bytes_ = decl.dtype.size
        for size in sizes:
            bytes_ *= size
        alloc = plan.Alloc(
            size=builder.const(bytes_),
            align=_ALIGN,
            location=where,
            level=0,
            copies=max(decl.slots.depth, 1),
        )
        storage = plan.Storage(
            storage_class=plan.StorageClass.CHANNEL, location=where, alloc=builder.add(alloc)
        )
        shape = [builder.const(size) for size in sizes]
        tensors[decl.name] = lower_shaped(decl, builder, builder.add(storage), shape)
        channel = plan.Channel(
            name=builder.string(decl.name),
            element=tensors[decl.name],
            depth=builder.const(decl.slots.depth),
            initial=decl.slots.initial,
            latency=decl.slots.latency,
        )
        numbers[decl.name] = builder.add(channel)
        builder.debug(plan.Section.CHANNEL, numbers[decl.name], decl.loc)
    return numbers


def lower_process(
    process: ir.Process, builder: plan.PlanBuilder, channels: Mapping[str, int]
) -> int:
    """The PROCESS whose code begins here, and its ENTRY; the number of the entry."""
    number = builder.count(plan.Section.PROCESS)
    entry = builder.add(plan.Entry(pc=builder.here, process=number))
    replicas = 1
    if process.replicated:
        loop = process.body[0]
        assert isinstance(loop, ir.Loop)
        assert isinstance(loop.extent, ir.Const)
        replicas = loop.extent.value
    consumes = _used(process, (ir.Consume, ir.Receive))
    produces = _used(process, (ir.Send, ir.Close))
    first = builder.count(plan.Section.CHANNEL_LIST)
    for name in (*consumes, *produces):
        builder.add(plan.ChannelRef(channel=channels[name]))
    record = plan.Process(
        name=builder.string(process.name),
        entry=entry,
        replicas=builder.const(replicas),
        consumes=first if consumes else 0,
        num_consumes=len(consumes),
        produces=first + len(consumes) if produces else 0,
        num_produces=len(produces),
    )
    builder.add(record)
    builder.debug(plan.Section.PROCESS, number, process.loc)
    return entry


def _used(process: ir.Process, kinds: tuple[type, ...]) -> list[str]:
    found = (
        stmt.channel
        for stmt in ir.walk(process.body)
        if isinstance(stmt, ir.Send | ir.Close | ir.Consume | ir.Receive)
        and isinstance(stmt, kinds)
    )
    return list(dict.fromkeys(found))
