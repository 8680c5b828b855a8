"""PlanBuilder: puts records, code and strings together into a plan."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pto_wsp.error_codes import Code
from pto_wsp.errors import PlanError
from pto_wsp.plan.container import SectionData, encode
from pto_wsp.plan.debug import StringTable, encode_locations
from pto_wsp.plan.enums import (
    NONE,
    ArgTag,
    BodyForm,
    Directive,
    ExprOp,
    Op,
    ScalarType,
    Section,
)
from pto_wsp.plan.features import features_of
from pto_wsp.plan.plan import Plan, body_hash
from pto_wsp.plan.record import TableRecord
from pto_wsp.plan.records import Expr, Instr, KernelBody, ScheduleArg, ScheduleEntry
from pto_wsp.srcloc import SrcLoc

_LOW = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class ExprArg:
    """A directive's argument that is an expression: a node made by `schedule_expr`."""

    node: int


Argument = int | float | str | ExprArg | None


class PlanBuilder:
    """Collects the parts of a plan. Indices and offsets it returns go into other records."""

    def __init__(self) -> None:
        self._tables: dict[Section, list[TableRecord]] = {}
        self._nodes: dict[tuple[Section, Expr], int] = {}
        self._strings = StringTable()
        self._schedule_strings = StringTable()
        self._deps_strings = StringTable()
        self._bytes = bytearray()
        self._runs: dict[bytes, int] = {}
        self._locations: dict[tuple[int, int], SrcLoc] = {}

    # --- tables ---

    def string(self, text: str) -> int:
        """The offset of a name; equal strings share one."""
        return self._strings.add(text)

    def add(self, record: TableRecord) -> int:
        """Append a record to its section; its index."""
        return self._append(record.SECTION, record)

    def count(self, section: Section) -> int:
        """How many records a section has so far: the index of the next one."""
        return len(self._tables.get(section, ()))

    def expr(
        self,
        op: ExprOp,
        *,
        type: ScalarType = ScalarType.I64,
        arg: int = 0,
        a: int = NONE,
        b: int = NONE,
        c: int = NONE,
    ) -> int:
        """An expression node; equal nodes are one."""
        return self._node(Section.EXPR, Expr(op=op, type=type, arg=arg, a=a, b=b, c=c))

    def const(self, value: int, type: ScalarType = ScalarType.I64) -> int:
        """An expression node that is a 64-bit integer, or has these 64 bits."""
        low, high = _halves(value)
        return self.expr(ExprOp.CONST, type=type, a=low, b=high)

    # --- code ---

    @property
    def here(self) -> int:
        """The program counter of the next instruction."""
        return self.count(Section.CODE)

    def emit(self, op: Op, operand1: int = 0, operand2: int = 0) -> int:
        """Append an instruction; its program counter."""
        return self.add(Instr(opcode=op, operand1=operand1, operand2=operand2))

    def patch(self, pc: int, operand1: int | None = None, operand2: int | None = None) -> None:
        """Change the operands of an instruction that was emitted before."""
        code = self._tables[Section.CODE]
        old = code[pc]
        assert isinstance(old, Instr)
        code[pc] = replace(
            old,
            operand1=old.operand1 if operand1 is None else operand1,
            operand2=old.operand2 if operand2 is None else operand2,
        )

    # --- schedule ---

    def schedule_string(self, text: str) -> int:
        """The offset of a string for use in schedule expressions."""
        return self._schedule_strings.add(text)

    def schedule_expr(
        self,
        op: ExprOp,
        *,
        type: ScalarType = ScalarType.I64,
        arg: int = 0,
        a: int = NONE,
        b: int = NONE,
        c: int = NONE,
    ) -> ExprArg:
        """A node of a key expression; operands are `.node` of earlier ones."""
        node = Expr(op=op, type=type, arg=arg, a=a, b=b, c=c)
        return ExprArg(self._node(Section.SCHEDULE_EXPR, node))

    def schedule_const(self, value: int) -> ExprArg:
        """A 64-bit integer in a key expression."""
        low, high = _halves(value)
        return self.schedule_expr(ExprOp.CONST, a=low, b=high)

    def directive(
        self,
        id: Directive,
        args: Sequence[Argument],
        loc: SrcLoc | None = None,
        version: int = 1,
    ) -> int:
        """Append a schedule directive; its index."""
        first = self.count(Section.SCHEDULE_ARG)
        for arg in args:
            self.add(self._argument(arg))
        entry = ScheduleEntry(id=id, version=version, args=first, num_args=len(args))
        index = self.add(entry)
        self.debug(Section.SCHEDULE, index, loc)
        return index

    # --- bodies, proofs and positions ---

    def deps_string(self, text: str) -> int:
        """The offset of a string for `Deps.reason`."""
        return self._deps_strings.add(text)

    def body(self, kernel: int, form: BodyForm, data: bytes, loc: SrcLoc | None = None) -> int:
        """Attach a kernel's body; its index. Equal bodies are stored once."""
        start = self._runs.setdefault(data, len(self._bytes))
        if start == len(self._bytes):
            self._bytes += data
        low, high = body_hash(data)
        record = KernelBody(
            kernel=kernel, form=form, bytes=start, num_bytes=len(data), hash_lo=low, hash_hi=high
        )
        index = self.add(record)
        self.debug(Section.KERNEL_BODY, index, loc)
        return index

    def debug(self, section: Section, index: int, loc: SrcLoc | None) -> None:
        """Remember where a record comes from; no position is no entry."""
        if loc is not None:
            self._locations[section, index] = loc

    # --- the plan ---

    def build(self) -> Plan:
        """The finished plan. PlanError here means that the parts do not fit together."""
        return Plan(self.encode(), locations=dict(self._locations))

    def encode(self) -> bytes:
        """The file as it stands, unchecked."""
        sections = [
            SectionData.of(section, b"".join(record.pack() for record in records))
            for section, records in self._tables.items()
        ]
        sections.append(SectionData.of(Section.STRING, self._strings.to_bytes()))
        schedule_strings = self._schedule_strings.to_bytes()
        sections.append(SectionData.of(Section.SCHEDULE_STRING, schedule_strings))
        sections.append(SectionData.of(Section.DEPS_STRING, self._deps_strings.to_bytes()))
        sections.append(SectionData.of(Section.KERNEL_BYTES, bytes(self._bytes)))
        sections += encode_locations(self._locations)
        return encode(sections, features_of(self._tables))

    # --- inside ---

    def _append(self, section: Section, record: TableRecord) -> int:
        table = self._tables.setdefault(section, [])
        table.append(record)
        return len(table) - 1

    def _node(self, section: Section, node: Expr) -> int:
        key = (section, node)
        if key not in self._nodes:
            self._nodes[key] = self._append(section, node)
        return self._nodes[key]

    def _argument(self, arg: Argument) -> ScheduleArg:
        match arg:
            case None:
                return ScheduleArg(tag=ArgTag.NONE, bits=0)
            case ExprArg(node):
                return ScheduleArg(tag=ArgTag.EXPR, bits=node)
            case str():
                return ScheduleArg(tag=ArgTag.STRING, bits=self.schedule_string(arg))
            case float():
                (bits,) = struct.unpack("<Q", struct.pack("<d", arg))
                return ScheduleArg(tag=ArgTag.FLOAT, bits=bits)
            case int():
                low, high = _halves(arg)
                return ScheduleArg(tag=ArgTag.INT, bits=low | high << 32)


def _halves(value: int) -> tuple[int, int]:
    """The low and high 32 bits of a signed 64-bit integer."""
    if not -(2**63) <= value < 2**63:
        raise PlanError(Code.PLAN_LIMIT, f"{value} does not fit into 64 bits")
    return value & _LOW, value >> 32 & _LOW
