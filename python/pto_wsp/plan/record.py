"""What every record class has: packing to bytes and back."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from enum import Enum, IntEnum
from functools import cache
from typing import ClassVar, Self, TypeAlias

from pto_wsp.error_codes import Code
from pto_wsp.errors import PlanError
from pto_wsp.plan.enums import Section

# Fields of a record that hold a value of an enumeration.
Enums: TypeAlias = Mapping[str, type[IntEnum]]


class SectionClass(Enum):
    """What covers a section: the plan id, the schedule id, or neither."""

    TASK = "Task"
    SCHEDULE = "Schedule"
    BODY = "Body"
    DERIVED = "Derived"
    DEBUG = "Debug"


@dataclass(frozen=True, slots=True)
class Record:
    """A record of fixed layout. Reserved fields are zero on disk and do not appear in Python."""

    _format: ClassVar[str] = "<"
    _enums: ClassVar[Enums] = {}

    @classmethod
    def packed_size(cls) -> int:
        """Bytes of one record."""
        return struct.calcsize(cls._format)

    def pack(self) -> bytes:
        """The record's bytes; PlanError if a value does not fit its field."""
        values = tuple(getattr(self, name) for name in _names(type(self)))
        try:
            return struct.pack(self._format, *values)
        except struct.error as error:
            raise PlanError(Code.PLAN_LIMIT, f"{self} does not fit its layout: {error}") from None

    @classmethod
    def unpack_all(cls, data: bytes, stride: int) -> Iterator[Self]:
        """The records in `data`, each `stride` bytes; bytes past the known fields are skipped."""
        layout = struct.Struct(cls._format)
        names, enums = _names(cls), cls._enums
        for offset in range(0, len(data), stride):
            values = dict(zip(names, layout.unpack_from(data, offset), strict=True))
            for name, enum in enums.items():
                values[name] = enum(values[name])
            yield cls(**values)


@dataclass(frozen=True, slots=True)
class TableRecord(Record):
    """A record that has a section of its own."""

    SECTION: ClassVar[Section]


@cache
def _names(record: type[Record]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(record))
