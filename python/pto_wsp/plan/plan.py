"""A plan: the bytes that every target runs."""

from __future__ import annotations

import hashlib
import struct
from functools import cached_property
from pathlib import Path

from pto_wsp import _core
from pto_wsp.error_codes import Code
from pto_wsp.errors import PlanError
from pto_wsp.plan.container import SectionData, encode, plan_digest, schedule_digest
from pto_wsp.plan.debug import Locations, encode_locations
from pto_wsp.plan.disasm import disassemble
from pto_wsp.plan.enums import NONE, ArgTag, Directive, ExprOp, Section, TracePolicy
from pto_wsp.plan.reader import PlanReader
from pto_wsp.plan.record import SectionClass
from pto_wsp.plan.records import (
    SECTIONS,
    Access,
    Expr,
    Instr,
    KernelBody,
    Mesh,
    Place,
    ScheduleArg,
    ScheduleEntry,
    Site,
    Symbol,
    Tensor,
)

_PLAN_ID_OFFSET = 40
_SCHEDULE_ID_OFFSET = 56
_DETACHED = frozenset({SectionClass.BODY, SectionClass.DEBUG})


class Plan(PlanReader):
    """A valid plan. Immutable; equal when the bytes are.

    `locations` are the positions of records as the compiler knew them; without them the plan
    answers from its DEBUG section, whose paths are relative.
    """

    def __init__(self, data: bytes, *, locations: Locations | None = None) -> None:
        fault = _core.plan_validate(data)
        if fault is not None:
            offset, message = fault
            raise PlanError(Code.PLAN_DAMAGED, message, offset=offset)
        super().__init__(data, locations)
        self._check_identities()

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

    def disassemble(self) -> str:
        """The plan as readable text."""
        return disassemble(self)

    @cached_property
    def task_bytes(self) -> int:
        """Bytes of the file without kernel bodies and debug positions."""
        kept = [s for s in self._file.sections.values() if _class(s) not in _DETACHED]
        return len(encode(kept, self._file.header.features))

    def with_schedule_of(self, other: Plan) -> Plan:
        """This plan under another plan's schedule; `plan_id` and kernels stay."""
        self._check_same_names(other)
        self._check_same_places(other)
        replaced = {SectionClass.SCHEDULE, SectionClass.DEBUG}
        mine = [s for s in self._file.sections.values() if _class(s) not in replaced]
        theirs = [s for s in other._file.sections.values() if _class(s) is SectionClass.SCHEDULE]
        locations = {k: v for k, v in self._locations.items() if not _is_schedule(k[0])}
        locations |= {k: v for k, v in other._locations.items() if _is_schedule(k[0])}
        sections = [*mine, *theirs, *encode_locations(locations)]
        return Plan(encode(sections, self._file.header.features), locations=locations)

    def policy(self, directive: Directive) -> int | None:
        """The first argument of a directive of the schedule, which is its policy; None without
        such a directive."""
        args = self.records(ScheduleArg)
        given = [args[e.args].bits for e in self.records(ScheduleEntry) if e.id == directive]
        return given[-1] if given else None

    @property
    def is_traced(self) -> bool:
        """Whether its schedule has a trace."""
        return self.policy(Directive.TRACE) not in (None, TracePolicy.NONE)

    def with_trace(self, capacity: int) -> Plan:
        """This plan with a trace of `capacity` events; itself, if its schedule has a trace."""
        entries, args = list(self.records(ScheduleEntry)), list(self.records(ScheduleArg))
        mine = [i for i, entry in enumerate(entries) if entry.id == Directive.TRACE]
        if self.is_traced:
            return self
        trace = ScheduleEntry(id=Directive.TRACE, args=len(args), num_args=2)
        entries[mine[0] if mine else len(entries) :] = [
            trace,
            *(entries[mine[0] + 1 :] if mine else []),
        ]
        args += [ScheduleArg(tag=ArgTag.INT, bits=n) for n in (TracePolicy.TIMESTAMPS, capacity)]
        tables = {Section.SCHEDULE: entries, Section.SCHEDULE_ARG: args}
        kept = [s for s in self._file.sections.values() if s.kind not in tables]
        changed = [
            SectionData.of(section, b"".join(record.pack() for record in records))
            for section, records in tables.items()
        ]
        return Plan(
            encode([*kept, *changed], self._file.header.features), locations=self._locations
        )

    def site_name(self, site: int) -> str:
        """What a site calls: its kernel, or the tensor that control reads there."""
        record = self.records(Site)[site]
        if record.kernel != NONE:
            return self.kernel_names[record.kernel]
        access = self.records(Access)[self.records(Instr)[record.pc + 1].operand2]
        return f"a read of {self.string(self.records(Tensor)[access.tensor].name)}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self._bytes == other._bytes

    def __hash__(self) -> int:
        return hash(self._bytes)

    def __repr__(self) -> str:
        names = ", ".join(self.kernel_names)
        return f"<Plan {self.plan_id[:8]} of {len(self._bytes)} bytes: {names}>"

    def __reduce__(self) -> tuple[type[Plan], tuple[bytes]]:
        return Plan, (self._bytes,)

    def _check_same_names(self, other: Plan) -> None:
        """Schedule keys name symbols and tensors by number: both plans must mean the same ones."""
        for node in other.records(Expr, Section.SCHEDULE_EXPR):
            record = _NAMED_OPERAND.get(node.op)
            if record is None:
                continue
            mine, theirs = self.records(record), other.records(record)
            name = other.string(theirs[node.a].name)
            if node.a >= len(mine) or self.string(mine[node.a].name) != name:
                raise PlanError(
                    Code.PLAN_DAMAGED,
                    f"the schedule reads {name!r}, which this plan does not have there",
                )

    def _check_same_places(self, other: Plan) -> None:
        """Places name sites and meshes by number: both plans must mean the same ones."""
        sites, meshes = self.records(Site), self.records(Mesh)
        for place in other.records(Place):
            path = other.records(Site)[place.site].path_hash
            if place.site >= len(sites) or sites[place.site].path_hash != path:
                raise PlanError(
                    Code.PLAN_DAMAGED,
                    f"the schedule places site {place.site}, which is another one here",
                )
            name = other.string(other.records(Mesh)[place.mesh].name)
            if place.mesh >= len(meshes) or self.string(meshes[place.mesh].name) != name:
                raise PlanError(
                    Code.PLAN_DAMAGED,
                    f"the schedule uses mesh {name!r}, which this plan does not have",
                )

    def _check_identities(self) -> None:
        """The checks that need blake2b, which the core does not have."""
        header, sections = self._file.header, self._file.sections.values()
        if plan_digest(sections) != (header.plan_id_lo, header.plan_id_hi):
            raise PlanError(
                Code.PLAN_DAMAGED, "the plan id is not that of the contents", offset=_PLAN_ID_OFFSET
            )
        if schedule_digest(sections) != (header.schedule_id_lo, header.schedule_id_hi):
            raise PlanError(
                Code.PLAN_DAMAGED,
                "the schedule id is not that of the contents",
                offset=_SCHEDULE_ID_OFFSET,
            )
        self._check_bodies()

    def _check_bodies(self) -> None:
        found = self._section(Section.KERNEL_BODY)
        if found is None:
            return
        known: dict[tuple[int, int], tuple[int, int]] = {}
        for index, record in enumerate(self.records(KernelBody)):
            run = (record.bytes, record.num_bytes)
            if run not in known:
                known[run] = body_hash(self._body_bytes(record))
            if known[run] != (record.hash_lo, record.hash_hi):
                name = self.kernel_names[record.kernel]
                raise PlanError(
                    Code.PLAN_DAMAGED,
                    f"the body of kernel {name!r} does not have the hash it claims",
                    offset=found.offset + index * found.record_size,
                )


def body_hash(data: bytes) -> tuple[int, int]:
    """KernelBody.hash_lo and hash_hi."""
    low, high = struct.unpack("<QQ", hashlib.blake2b(data, digest_size=16).digest())
    return low, high


def _is_schedule(kind: int) -> bool:
    known = SECTIONS.get(kind)
    return known is not None and known[0] is SectionClass.SCHEDULE


def _class(section: SectionData) -> SectionClass | None:
    known = SECTIONS.get(section.kind)
    return None if known is None else known[0]


_NAMED_OPERAND: dict[ExprOp, type[Symbol] | type[Tensor]] = {
    ExprOp.SYMBOL: Symbol,
    ExprOp.LOAD: Symbol,
    ExprOp.SHAPE: Tensor,
}
