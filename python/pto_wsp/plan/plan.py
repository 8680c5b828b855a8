"""A plan: the bytes that every target runs, and a typed view of them."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar, cast

from pto_wsp import _core
from pto_wsp.errors import PlanError
from pto_wsp.plan import records as tables
from pto_wsp.plan.container import (
    RECORD_VERSION,
    Container,
    SectionData,
    decode,
    encode,
    hex_id,
    plan_digest,
    schedule_digest,
)
from pto_wsp.plan.debug import Locations, decode_locations, encode_locations, read_string
from pto_wsp.plan.disasm import disassemble
from pto_wsp.plan.enums import BodyForm, ExprOp, Feature, Section
from pto_wsp.plan.record import SectionClass, TableRecord
from pto_wsp.plan.records import SECTIONS, DebugLine, Expr, Kernel, KernelBody, Symbol, Tensor
from pto_wsp.srcloc import SrcLoc

R = TypeVar("R", bound=TableRecord)

_PLAN_ID_OFFSET = 40
_SCHEDULE_ID_OFFSET = 56
_DETACHED = frozenset({SectionClass.BODY, SectionClass.DEBUG})


@dataclass(frozen=True, slots=True)
class KernelBodyData:
    """A kernel body as it travels in a plan."""

    form: BodyForm
    data: bytes


class Plan:
    """A valid plan. Immutable; equal when the bytes are.

    `locations` are the positions of records as the compiler knew them; without them the plan
    answers from its DEBUG section, whose paths are relative.
    """

    def __init__(self, data: bytes, *, locations: Locations | None = None) -> None:
        fault = _core.plan_validate(data)
        if fault is not None:
            offset, message = fault
            raise PlanError(message, offset=offset)
        self._bytes = data
        self._file: Container = decode(data)
        self._records: dict[tuple[int, type[TableRecord]], tuple[TableRecord, ...]] = {}
        self._given_locations = locations
        self._check_identities()

    # --- bytes ---

    @classmethod
    def from_bytes(cls, data: bytes) -> Plan:
        """The plan in these bytes; PlanError, with the offset, if they are not one."""
        return cls(bytes(data))

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read a plan from a file."""
        return cls.from_bytes(Path(path).read_bytes())

    def to_bytes(self) -> bytes:
        """The file's bytes."""
        return self._bytes

    def save(self, path: str | Path) -> None:
        """Write the plan to a file."""
        Path(path).write_bytes(self._bytes)

    def validate(self) -> None:
        """Check the bytes once more; PlanError if they are not a plan."""
        Plan(self._bytes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self._bytes == other._bytes

    def __hash__(self) -> int:
        return hash(self._bytes)

    def __repr__(self) -> str:
        return (
            f"<Plan {self.plan_id[:8]} of {len(self._bytes)} bytes: {', '.join(self.kernel_names)}>"
        )

    def __reduce__(self) -> tuple[type[Plan], tuple[bytes]]:
        return Plan, (self._bytes,)

    # --- identity and size ---

    @property
    def plan_id(self) -> str:
        """Identity of the task set, 32 hex digits; schedule, bodies and debug do not count."""
        return hex_id(self._file.header.plan_id_lo, self._file.header.plan_id_hi)

    @property
    def schedule_id(self) -> str:
        """Identity of the schedule, 32 hex digits."""
        return hex_id(self._file.header.schedule_id_lo, self._file.header.schedule_id_hi)

    @property
    def features(self) -> frozenset[Feature]:
        """What a target must be able to do to run the plan."""
        return frozenset(f for f in Feature if self._file.header.features >> f & 1)

    @cached_property
    def task_bytes(self) -> int:
        """Bytes of the file without kernel bodies and debug positions."""
        kept = [s for s in self._file.sections.values() if _class(s) not in _DETACHED]
        return len(encode(kept, self._file.header.features))

    # --- contents ---

    def records(self, record: type[R], section: Section | None = None) -> tuple[R, ...]:
        """The records of one type; `section` chooses where two sections share the type."""
        where = record.SECTION if section is None else section
        key = (int(where), record)
        if key not in self._records:
            found = self._section(where)
            unpacked = record.unpack_all(found.data, found.record_size) if found else ()
            self._records[key] = tuple(unpacked)
        return cast("tuple[R, ...]", self._records[key])

    def section(self, section: Section) -> tuple[TableRecord, ...]:
        """The records of one section; empty if the plan does not have it."""
        return self.records(_RECORD_OF[section], section)

    def blob(self, section: Section) -> bytes:
        """The raw bytes of one section."""
        found = self._section(section)
        return found.data if found else b""

    def string(self, offset: int) -> str:
        """The string at an offset that some record holds."""
        return read_string(self.blob(Section.STRING), offset)

    def schedule_string(self, offset: int) -> str:
        """The same for offsets that schedule directives hold."""
        return read_string(self.blob(Section.SCHEDULE_STRING), offset)

    @cached_property
    def kernel_names(self) -> tuple[str, ...]:
        """Names of the kernels, in table order."""
        return tuple(self.string(kernel.name) for kernel in self.records(Kernel))

    def loc(self, section: Section, index: int) -> SrcLoc | None:
        """Where in the user's files a record comes from."""
        return self._locations.get((section, index))

    def debug_loc(self, section: Section, index: int) -> SrcLoc | None:
        """The same from the DEBUG section alone, with paths that mean the same everywhere."""
        return self._stored_locations.get((section, index))

    def body(self, kernel: int) -> KernelBodyData | None:
        """The body of a kernel, if it travels with the plan."""
        record = self._bodies.get(kernel)
        return None if record is None else KernelBodyData(record.form, self._body_bytes(record))

    def disassemble(self) -> str:
        """The plan as readable text."""
        return disassemble(self)

    # --- schedules ---

    def with_schedule_of(self, other: Plan) -> Plan:
        """This plan under another plan's schedule; `plan_id` and kernels stay."""
        self._check_same_names(other)
        replaced = {SectionClass.SCHEDULE, SectionClass.DEBUG}
        mine = [s for s in self._file.sections.values() if _class(s) not in replaced]
        theirs = [s for s in other._file.sections.values() if _class(s) is SectionClass.SCHEDULE]
        locations = {k: v for k, v in self._locations.items() if k[0] != Section.SCHEDULE}
        locations |= {k: v for k, v in other._locations.items() if k[0] == Section.SCHEDULE}
        debug = encode_locations(locations)
        return Plan(
            encode([*mine, *theirs, *debug], self._file.header.features), locations=locations
        )

    def _check_same_names(self, other: Plan) -> None:
        """Schedule keys name symbols and tensors by number: both plans must mean the same ones."""
        for node in other.records(Expr, Section.SCHEDULE_EXPR):
            record = _NAMED_OPERAND.get(node.op)
            if record is None:
                continue
            mine, theirs = self.records(record), other.records(record)
            name = other.string(theirs[node.a].name)
            if node.a >= len(mine) or self.string(mine[node.a].name) != name:
                raise PlanError(f"the schedule reads {name!r}, which this plan does not have there")

    # --- inside ---

    def _section(self, section: Section) -> SectionData | None:
        found = self._file.sections.get(section)
        return found if found is not None and found.version == RECORD_VERSION else None

    @cached_property
    def _locations(self) -> Locations:
        given = self._given_locations
        return self._stored_locations if given is None else given

    @cached_property
    def _stored_locations(self) -> Locations:
        return decode_locations(self.records(DebugLine), self.blob(Section.DEBUG_STRING))

    @cached_property
    def _bodies(self) -> dict[int, KernelBody]:
        return {record.kernel: record for record in self.records(KernelBody)}

    def _body_bytes(self, record: KernelBody) -> bytes:
        return self.blob(Section.KERNEL_BYTES)[record.bytes : record.bytes + record.num_bytes]

    def _check_identities(self) -> None:
        """The checks that need blake2b, which the core does not have."""
        header, sections = self._file.header, self._file.sections.values()
        if plan_digest(sections) != (header.plan_id_lo, header.plan_id_hi):
            raise PlanError("the plan id is not that of the contents", offset=_PLAN_ID_OFFSET)
        if schedule_digest(sections) != (header.schedule_id_lo, header.schedule_id_hi):
            raise PlanError(
                "the schedule id is not that of the contents", offset=_SCHEDULE_ID_OFFSET
            )
        known: dict[tuple[int, int], tuple[int, int]] = {}
        for record in self._bodies.values():
            run = (record.bytes, record.num_bytes)
            if run not in known:
                known[run] = body_hash(self._body_bytes(record))
            if known[run] != (record.hash_lo, record.hash_hi):
                name = self.kernel_names[record.kernel]
                raise PlanError(f"the body of kernel {name!r} does not have the hash it claims")


def body_hash(data: bytes) -> tuple[int, int]:
    """KernelBody.hash_lo and hash_hi."""
    low, high = struct.unpack("<QQ", hashlib.blake2b(data, digest_size=16).digest())
    return low, high


def _class(section: SectionData) -> SectionClass | None:
    known = SECTIONS.get(section.kind)
    return None if known is None else known[0]


_NAMED_OPERAND: dict[ExprOp, type[Symbol] | type[Tensor]] = {
    ExprOp.SYMBOL: Symbol,
    ExprOp.LOAD: Symbol,
    ExprOp.SHAPE: Tensor,
}

_RECORD_OF: dict[Section, type[TableRecord]] = {
    record.SECTION: record
    for record in vars(tables).values()
    if isinstance(record, type) and issubclass(record, TableRecord) and record is not TableRecord
}
_RECORD_OF[Section.SCHEDULE_EXPR] = Expr
