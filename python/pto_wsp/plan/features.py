"""Which feature bits a plan's contents call for. The native validator computes the same set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pto_wsp.plan.enums import (
    NONE,
    AccessMode,
    Domain,
    ExprOp,
    Feature,
    Op,
    Section,
    StorageClass,
    TaskKind,
)
from pto_wsp.plan.record import TableRecord
from pto_wsp.plan.records import Access, Axis, Expr, Instr, Kernel, Site, Slot, Storage, Symbol

R = TypeVar("R", bound=TableRecord)
Tables = Mapping[Section, Sequence[TableRecord]]

WRITTEN = 1  # Symbol.flags: some task may write it

# Nodes whose a, b and c are not expression nodes.
LEAVES = frozenset(
    {
        ExprOp.CONST,
        ExprOp.LOOPVAR,
        ExprOp.SYMBOL,
        ExprOp.SHAPE,
        ExprOp.SLOT,
        ExprOp.LETVAR,
        ExprOp.BOUNDVAR,
        ExprOp.TASK_AXIS,
        ExprOp.TASK_SITE,
        ExprOp.TASK_ORDINAL,
    }
)


def operand_nodes(node: Expr) -> tuple[int, ...]:
    """The expression nodes that a node reads."""
    if node.op in LEAVES:
        return ()
    operands = (node.b, node.c) if node.op is ExprOp.LOAD else (node.a, node.b, node.c)
    return tuple(operand for operand in operands if operand != NONE)


def features_of(tables: Tables) -> int:
    """The header's feature bits."""
    found = {feature for feature, section in _BY_SECTION.items() if tables.get(section)}
    code = _records(tables, Instr)
    found |= {_BY_OPCODE[i.opcode] for i in code if i.opcode in _BY_OPCODE}
    found |= _of_tables(tables)
    if _has_ragged(tables, code):
        found.add(Feature.RAGGED)
    return sum(1 << feature for feature in found)


_BY_OPCODE = {
    Op.SELECT: Feature.SPARSE,
    Op.COND: Feature.COND,
    Op.LOOP_WHILE: Feature.COND,
    Op.SLOT_LOAD: Feature.DATA_DEPENDENT,
    Op.COLLECTIVE: Feature.COLLECTIVE,
    Op.LET: Feature.SLOT,
}

_BY_SECTION = {
    Feature.CHANNEL: Section.CHANNEL,
    Feature.ALLOC: Section.ALLOC,
    Feature.SLOT: Section.SLOT,
    Feature.TIER: Section.TIER_SET,
    Feature.AFTER: Section.AFTER,
}


def _records(tables: Tables, record: type[R]) -> list[R]:
    return [item for item in tables.get(record.SECTION, ()) if isinstance(item, record)]


def _of_tables(tables: Tables) -> set[Feature]:
    found: set[Feature] = set()
    symbols = _records(tables, Symbol)
    loads = (e for e in _records(tables, Expr) if e.op is ExprOp.LOAD)
    if any(symbols[e.a].flags & WRITTEN for e in loads if e.a < len(symbols)):
        found.add(Feature.DATA_DEPENDENT)
    if tables.get(Section.PROCESS):
        found.add(Feature.CHANNEL)
    if any(s.storage_class is StorageClass.PAGED for s in _records(tables, Storage)):
        found.add(Feature.PAGED)
    if any(s.kind is TaskKind.COLLECTIVE for s in _records(tables, Site)):
        found.add(Feature.COLLECTIVE)
    if any(a.mode is AccessMode.ACCUM for a in _records(tables, Access)):
        found.add(Feature.ACCUM)
    domains = {k.domain for k in _records(tables, Kernel)}
    if {Domain.HOST, Domain.ACCELERATOR} <= domains:
        found.add(Feature.MULTI_DOMAIN)
    return found


@dataclass(frozen=True, slots=True)
class _Needs:
    """What an expression's value depends on: some loop's iteration, and lets."""

    loop: bool
    lets: frozenset[int]


def _has_ragged(tables: Tables, code: list[Instr]) -> bool:
    """Whether some loop's extent differs between iterations of the loops around it."""
    needs = _needs(_records(tables, Expr), _records(tables, Slot))
    varying: set[int] = set()
    for instr in code:
        if instr.opcode is Op.LET and instr.operand2 < len(needs):
            value = needs[instr.operand2]
            if value.loop or value.lets & varying:
                varying.add(instr.operand1)
    extents = [needs[a.extent] for a in _records(tables, Axis) if a.extent < len(needs)]
    return any(extent.loop or extent.lets & varying for extent in extents)


def _needs(exprs: list[Expr], slots: list[Slot]) -> list[_Needs]:
    out: list[_Needs] = []
    for node in exprs:
        operands = [out[i] for i in operand_nodes(node) if i < len(out)]
        loop = node.op is ExprOp.LOOPVAR or any(o.loop for o in operands)
        if node.op is ExprOp.SLOT and node.a < len(slots):
            loop = slots[node.a].level > 0
        lets = frozenset[int]().union(*(o.lets for o in operands))
        if node.op is ExprOp.LETVAR:
            lets = frozenset({node.a})
        out.append(_Needs(loop, lets))
    return out
