"""One test per rule about calls, slots, channels and collectives."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from pto_wsp.dtypes import DType
from pto_wsp.plan import (
    MAX_BLOCKS,
    MAX_LOOPS,
    MAX_SLOTS,
    NONE,
    AccessMode,
    After,
    Alloc,
    Axis,
    AxisKind,
    Channel,
    ExprOp,
    Op,
    ScalarType,
    Section,
    Site,
    Slot,
    StorageClass,
    SymbolKind,
    TaskKind,
)
from tests.plan.draft import refuses
from tests.plan.writer import P, Writer, io, var

S = Section


def test_calls_count_as_blocks() -> None:
    """A chain of calls cannot overflow a cursor's stack."""
    w = Writer()
    for i in range(MAX_BLOCKS + 2):
        with w.entry():
            if i < MAX_BLOCKS + 1:
                w.item(Op.CALL, 0, i + 1)
    refuses(w, "more than 48 blocks are open", S.CODE, 2 * MAX_BLOCKS)


def test_an_entry_is_called_once() -> None:
    """Two calls would give two tasks one identity."""
    for calls in (1, 2):
        w = Writer()
        pc = 0
        with w.entry():
            for _ in range(calls):
                pc = w.item(Op.CALL, 0, 1)
        with w.entry():
            w.item(Op.NOP)
        if calls == 1:
            w.build()
        else:
            refuses(w, "another CALL goes to the same entry", S.CODE, pc)


def test_loops_reach_through_calls() -> None:
    w = Writer()
    lengths = w.symbol("lengths", SymbolKind.ARRAY, rank=1)
    k = w.kernel("k", [])
    with w.entry(), w.loop(Op.FOR_EACH, "i", w.const(2), AxisKind.DENSE) as i:
        w.item(Op.CALL, 0, 1)
    w.level, w.axis = 1, 0  # of the CALL
    extent = w.load(lengths, i)
    with (
        w.entry(),
        w.loop(Op.FOR_EACH, "j", extent, AxisKind.RAGGED, parent=0, lengths=lengths),
    ):
        first = w.task(k, [])
        after = w.add(After(site=first, shared_levels=2))
        w.task(k, [(Op.AFTER, 0, after)])
    assert [axis.outer for axis in w.build().records(Axis)] == [NONE, 0]


def test_slots() -> None:
    w = Writer()
    slot = w.add(Slot(type=ScalarType.I64, level=0))
    with w.entry():
        yes = w.expr(ExprOp.CONST, type=ScalarType.BOOL, a=1, b=0)
        w.item(Op.SLOT_SET, slot, yes)
    refuses(w, "SLOT_SET must be of type I64, not BOOL", S.CODE, 0)
    w = Writer()
    slot = w.add(Slot(type=ScalarType.F64, level=0))
    x = w.tensor("X", 0, DType.I32)
    with w.entry():
        w.slot_load(slot, w.access(x, AccessMode.IN, []))
    refuses(w, "reads a tensor whose dtype does not fit the slot", S.CODE, 1)


def test_slots_have_a_limit() -> None:
    for count in (MAX_SLOTS, MAX_SLOTS + 1):
        w = Writer()
        for _ in range(count):
            w.add(Slot(type=ScalarType.I64, level=0))
        with w.entry():
            w.item(Op.NOP)
        if count == MAX_SLOTS:
            w.build()
        else:
            refuses(w, "a plan has at most 64 slots", S.SLOT, MAX_SLOTS)


def test_slot_loads_have_one_word() -> None:
    w = Writer()
    slot = w.add(Slot(type=ScalarType.I64, level=0))
    x = w.tensor("X", 0, DType.I32)
    with w.entry():
        w.slot_load(slot, w.access(x, AccessMode.IN, []))
        w.emit(Op.IO_INPUT)
    refuses(w, "IO_INPUT stands only behind the instruction", S.CODE, 2)
    w = Writer()
    slot = w.add(Slot(type=ScalarType.I64, level=0))
    with w.entry():
        w.item(Op.SLOT_LOAD, slot, w.site_here(TaskKind.LOAD))
    refuses(w, "SLOT_LOAD must be followed by an IO_INPUT word", S.CODE, 0)


def test_slots_are_not_read_in_static_places() -> None:
    w = Writer()
    slot = w.add(Slot(type=ScalarType.I64, level=0))
    w.kernel("k", [], cost=w.expr(ExprOp.SLOT, a=slot))
    with w.entry():
        w.item(Op.NOP)
    refuses(w, "Kernel.cost may not read slots", S.KERNEL, 0, "cost")


def receiver() -> tuple[Writer, int]:
    """A writer with a channel; its number."""
    w = Writer()
    alloc = w.add(Alloc(size=w.const(64), align=64, level=0))
    message = w.made("message", StorageClass.CHANNEL, [16], alloc)
    return w, w.add(Channel(name=w.string("c"), element=message, depth=w.const(1)))


def test_messages_are_iterations() -> None:
    """RECV is a loop level without an axis: inside it, its number can be read."""
    w, channel = receiver()
    k = w.kernel("k", [])
    with (
        w.entry(),
        w.loop(Op.FOR_EACH, "i", w.const(2), AxisKind.DENSE),
        w.recv(channel) as number,
        w.loop(Op.FOR_EACH, "j", number, AxisKind.EXPR),
    ):
        w.task(k, [var(0), var(1), var(2)])
    plan = w.build()
    (site,) = plan.records(Site)
    inner = plan.records(Axis)[site.axis]
    assert (site.level, inner.level, inner.outer) == (3, 2, 0)
    assert plan.records(Axis)[inner.outer].outer == NONE
    assert "recv c as i1" in plan.disassemble()
    assert "j> in expr i1" in plan.disassemble()
    w, channel = receiver()
    k = w.kernel("k", [])
    with w.entry(), w.recv(channel):
        w.task(k, [var(1)])
    refuses(w, "PARAM_LOOPVAR names a loop that does not enclose the task", S.CODE, 2)


def test_messages_count_as_loops() -> None:
    for loops in (MAX_LOOPS - 1, MAX_LOOPS):
        w, channel = receiver()
        with w.entry(), ExitStack() as stack:
            for _ in range(loops):
                stack.enter_context(w.loop(Op.FOR_EACH, "i", w.const(1), AxisKind.DENSE))
            stack.enter_context(w.block(Op.RECV, channel))
        if loops < MAX_LOOPS:
            w.build()
        else:
            refuses(w, "more than 16 loops are nested", S.CODE, MAX_LOOPS)


def test_messages_are_shared_levels() -> None:
    """Two sites in one RECV share it; a site behind it does not."""
    for inside in (True, False):
        w, channel = receiver()
        k = w.kernel("k", [])
        with w.entry():
            with w.recv(channel):
                first = w.task(k, [])
                after = w.add(After(site=first, shared_levels=1))
                if inside:
                    w.task(k, [(Op.AFTER, 0, after)])
            if not inside:
                w.task(k, [(Op.AFTER, 0, after)])
        if inside:
            w.build()
        else:
            refuses(w, "counts loops that the sites do not share", S.AFTER, 0, "shared_levels")


def test_sends_stay_in_the_message_of_their_task() -> None:
    w, channel = receiver()
    k = w.kernel("k", [P("t", AccessMode.OUT, rank=1)])
    made = w.access(0, AccessMode.OUT, [(w.const(0), w.const(16))])
    with w.entry():
        with w.recv(channel):
            site = w.task(k, [io(AccessMode.OUT, made)])
        pc = w.item(Op.SEND, channel, site)
    refuses(w, "SEND passes on what no earlier task of its iteration wrote", S.CODE, pc)


def test_collectives_may_be_sent() -> None:
    w, channel = receiver()
    k = w.kernel("k", [P("t", AccessMode.OUT, rank=1)])
    made = w.access(0, AccessMode.OUT, [(w.const(0), w.const(16))])
    with w.entry():
        w.item(Op.ROOM, channel)
        site = w.task(k, [io(AccessMode.OUT, made)], op=Op.COLLECTIVE)
        w.item(Op.SEND, channel, site)
    assert "collective k(t=out message[0:+16])" in w.build().disassemble()


def sender(*, nested: bool, outside: bool) -> tuple[Writer, int]:
    """A process that sends what a task wrote, perhaps after the loop of that task."""
    w = Writer()
    alloc = w.add(Alloc(size=w.const(64), align=64, level=0))
    message = w.made("message", StorageClass.CHANNEL, [16], alloc)
    channel = Channel(name=w.string("c"), element=message, depth=w.const(1))
    pipe = w.add(channel)
    k = w.kernel("k", [P("t", AccessMode.OUT, rank=1)])
    made = w.access(message, AccessMode.OUT, [(w.const(0), w.const(16))])
    pc = 0
    with w.entry():
        with w.loop(Op.FOR_EACH, "i", w.const(2), AxisKind.DENSE):
            w.item(Op.ROOM, pipe)
            site = w.task(k, [io(AccessMode.OUT, made)])
            with w.loop(Op.FOR_EACH, "j", w.const(2), AxisKind.DENSE):
                if nested:
                    pc = w.item(Op.SEND, pipe, site)
            if not nested and not outside:
                pc = w.item(Op.SEND, pipe, site)
        if outside:
            pc = w.item(Op.SEND, pipe, site)
    return w, pc


def test_sends_stay_in_the_iteration_of_their_task() -> None:
    sender(nested=False, outside=False)[0].build()
    w, pc = sender(nested=False, outside=True)
    refuses(w, "SEND passes on what no earlier task of its iteration wrote", S.CODE, pc)
    w, pc = sender(nested=True, outside=False)
    refuses(w, "SEND does not stand in the block of its ROOM", S.CODE, pc)


@pytest.mark.parametrize(
    ("ops", "what"),
    [
        ((Op.TAKE, Op.TAKE), "TAKE takes a second buffer of the channel"),
        ((Op.DROP,), "DROP does not stand in the block of its TAKE"),
        ((Op.TAKE, Op.DROP, Op.DROP), "DROP does not stand in the block of its TAKE"),
        ((Op.ROOM, Op.TAKE), "TAKE takes a second buffer of the channel"),
    ],
)
def test_a_process_has_one_buffer_of_a_channel(ops: tuple[Op, ...], what: str) -> None:
    w, channel = receiver()
    with w.entry():
        pcs = [w.item(op, channel) for op in ops]
    refuses(w, what, S.CODE, pcs[-1])


def test_messages_are_used_where_they_are() -> None:
    w, channel = receiver()
    k = w.kernel("k", [P("t", rank=1)])
    got = w.access(0, AccessMode.IN, [(w.const(0), w.const(16))])
    with w.entry():
        w.item(Op.TAKE, channel)
        w.item(Op.DROP, channel)
        w.task(k, [io(AccessMode.IN, got)])
    refuses(w, "the region lies in a temporary or a message that is not there", S.CODE, 3)


def test_channels_have_buffers_of_their_own() -> None:
    w, _ = receiver()
    second = w.add(Channel(name=w.string("d"), element=0, depth=w.const(1)))
    with w.entry():
        w.item(Op.NOP)
    refuses(w, "another channel has the same buffers", S.CHANNEL, second, "element")
