"""The frame of a plan file: header, section table, checksums and the two ids."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from pto_wsp.plan.enums import VERSION, Section
from pto_wsp.plan.record import SectionClass
from pto_wsp.plan.records import SECTIONS, Header, SectionEntry

MAGIC = int.from_bytes(b"PTOW", "little")
RECORD_VERSION = 1
_FLAGS = {
    SectionClass.TASK: 1,
    SectionClass.SCHEDULE: 1,
    SectionClass.BODY: 0,
    SectionClass.DERIVED: 0,
    SectionClass.DEBUG: 2,
}
_HEADER_SIZE = Header.packed_size()
_ENTRY_SIZE = SectionEntry.packed_size()


@dataclass(frozen=True, slots=True)
class SectionData:
    """One section: its entry in the table, and its bytes. `offset` is where they were read."""

    kind: int
    version: int
    flags: int
    record_size: int
    data: bytes
    offset: int = 0

    @classmethod
    def of(cls, section: Section, data: bytes) -> SectionData:
        """A section as this version writes it."""
        section_class, record_size = SECTIONS[section]
        return cls(section, RECORD_VERSION, _FLAGS[section_class], record_size, data)


@dataclass(frozen=True, slots=True)
class Container:
    """A file taken apart."""

    header: Header
    sections: Mapping[int, SectionData]


def digest(
    sections: Iterable[SectionData], covered: Callable[[SectionClass], bool]
) -> tuple[int, int]:
    """A 128-bit identity of the non-empty sections of some classes, as (low, high)."""
    state = hashlib.blake2b(digest_size=16)
    for section in sorted(sections, key=lambda s: s.kind):
        known = SECTIONS.get(section.kind) if section.data else None
        if known is not None and covered(known[0]):
            state.update(struct.pack("<HIQ", section.kind, section.record_size, len(section.data)))
            state.update(section.data)
    low, high = struct.unpack("<QQ", state.digest())
    return low, high


def plan_digest(sections: Iterable[SectionData]) -> tuple[int, int]:
    """The identity of the task set: equal plans generate equal tasks from equal bindings."""
    return digest(sections, lambda cls: cls is SectionClass.TASK)


def schedule_digest(sections: Iterable[SectionData]) -> tuple[int, int]:
    """The identity of the schedule."""
    return digest(sections, lambda cls: cls is SectionClass.SCHEDULE)


def hex_id(low: int, high: int) -> str:
    """An identity as 32 hex digits, in the order of its bytes."""
    return struct.pack("<QQ", low, high).hex()


def encode(sections: Iterable[SectionData], features: int) -> bytes:
    """The file that holds these sections; empty ones are left out."""
    present = sorted((s for s in sections if s.data), key=lambda s: s.kind)
    offset = _HEADER_SIZE + _ENTRY_SIZE * len(present)
    table, body = bytearray(), bytearray()
    for section in present:
        padding = -offset % 8
        body += bytes(padding) + section.data
        offset += padding
        entry = SectionEntry(
            kind=section.kind,
            version=section.version,
            flags=section.flags,
            record_size=section.record_size,
            crc32=zlib.crc32(section.data),
            offset=offset,
            length=len(section.data),
        )
        table += entry.pack()
        offset += len(section.data)
    header = _header(present, features, file_bytes=offset)
    crc = zlib.crc32(table, zlib.crc32(header.pack()))
    return replace(header, header_crc=crc).pack() + bytes(table) + bytes(body)


def decode(data: bytes) -> Container:
    """Take a file apart. The bytes must have passed the native validator."""
    header = next(Header.unpack_all(data[:_HEADER_SIZE], _HEADER_SIZE))
    end = _HEADER_SIZE + _ENTRY_SIZE * header.num_sections
    entries = SectionEntry.unpack_all(data[_HEADER_SIZE:end], _ENTRY_SIZE)
    return Container(header, {entry.kind: _read(entry, data) for entry in entries})


def _header(sections: list[SectionData], features: int, file_bytes: int) -> Header:
    counts = {s.kind: len(s.data) // s.record_size for s in sections}
    plan_lo, plan_hi = plan_digest(sections)
    schedule_lo, schedule_hi = schedule_digest(sections)
    return Header(
        magic=MAGIC,
        version=VERSION,
        num_instructions=counts.get(Section.CODE, 0),
        num_axes=counts.get(Section.AXIS, 0),
        num_kernels=counts.get(Section.KERNEL, 0),
        num_tensors=counts.get(Section.TENSOR, 0),
        num_sections=len(sections),
        header_crc=0,
        features=features,
        plan_id_lo=plan_lo,
        plan_id_hi=plan_hi,
        schedule_id_lo=schedule_lo,
        schedule_id_hi=schedule_hi,
        file_bytes=file_bytes,
    )


def _read(entry: SectionEntry, data: bytes) -> SectionData:
    return SectionData(
        kind=entry.kind,
        version=entry.version,
        flags=entry.flags,
        record_size=entry.record_size,
        data=data[entry.offset : entry.offset + entry.length],
        offset=entry.offset,
    )
