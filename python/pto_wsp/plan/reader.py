"""Reads the contents of a valid plan as typed records, strings, positions and bodies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar, cast

from pto_wsp.plan import records as tables
from pto_wsp.plan.container import RECORD_VERSION, Container, SectionData, decode, hex_id
from pto_wsp.plan.debug import Locations, decode_locations, read_string
from pto_wsp.plan.enums import BodyForm, Feature, Section
from pto_wsp.plan.record import TableRecord
from pto_wsp.plan.records import DebugLine, Expr, Kernel, KernelBody
from pto_wsp.srcloc import SrcLoc

R = TypeVar("R", bound=TableRecord)


@dataclass(frozen=True, slots=True)
class KernelBodyData:
    """A kernel body as it travels in a plan."""

    form: BodyForm
    data: bytes


class PlanReader:
    """A typed view of bytes that have passed the native validator."""

    def __init__(self, data: bytes, locations: Locations | None = None) -> None:
        self._bytes = data
        self._file: Container = decode(data)
        self._records: dict[tuple[int, type[TableRecord]], tuple[TableRecord, ...]] = {}
        self._given_locations = locations

    @property
    def plan_id(self) -> str:
        """Identity of the bytes that say which tasks there are, 32 hex digits.

        Defaults of symbols count; schedule, bodies, proofs and positions do not.
        """
        return hex_id(self._file.header.plan_id_lo, self._file.header.plan_id_hi)

    @property
    def schedule_id(self) -> str:
        """Identity of the schedule, 32 hex digits."""
        return hex_id(self._file.header.schedule_id_lo, self._file.header.schedule_id_hi)

    @property
    def features(self) -> frozenset[Feature]:
        """What a target must be able to do to run the plan."""
        return frozenset(f for f in Feature if self._file.header.features >> f & 1)

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

    def deps_string(self, offset: int) -> str:
        """The same for the reasons of proofs."""
        return read_string(self.blob(Section.DEPS_STRING), offset)

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


_RECORD_OF: dict[Section, type[TableRecord]] = {
    record.SECTION: record
    for record in vars(tables).values()
    if isinstance(record, type) and issubclass(record, TableRecord) and record is not TableRecord
}
_RECORD_OF[Section.SCHEDULE_EXPR] = Expr
