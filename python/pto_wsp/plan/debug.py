"""Source positions: the DEBUG_LINE and DEBUG_STRING sections."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from pto_wsp.error_codes import Code
from pto_wsp.errors import PlanError
from pto_wsp.plan.container import SectionData
from pto_wsp.plan.enums import Section
from pto_wsp.plan.records import DebugLine
from pto_wsp.srcloc import Inside, SrcLoc

# Where the record (section, index) comes from.
Locations: TypeAlias = Mapping[tuple[int, int], SrcLoc]

_IN = ", "  # between the function that the user called and the file in which the record is
_MAX_COLUMN = 0xFFFF
_MAX_STRING = 0xFFFF


class StringTable:
    """Strings as {u16 length, UTF-8 bytes} entries, each stored once."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._offsets: dict[bytes, int] = {}

    def add(self, text: str) -> int:
        """The offset of a string; PlanError if it is too long for the format."""
        raw = text.encode()
        if len(raw) > _MAX_STRING:
            raise PlanError(Code.PLAN_LIMIT, f"a string of {len(raw)} bytes is too long for a plan")
        found = self._offsets.setdefault(raw, len(self._data))
        if found == len(self._data):
            self._data += len(raw).to_bytes(2, "little") + raw
        return found

    def to_bytes(self) -> bytes:
        """The section's bytes."""
        return bytes(self._data)


def read_string(data: bytes, offset: int) -> str:
    """The string that begins at a byte of a string section."""
    length = int.from_bytes(data[offset : offset + 2], "little")
    return data[offset + 2 : offset + 2 + length].decode()


def portable_path(path: str) -> str:
    """A path that means the same on another machine: relative to here, or the bare file name."""
    here = os.getcwd()
    full = os.path.abspath(path)
    if full.startswith(here + os.sep):
        return os.path.relpath(full, here).replace(os.sep, "/")
    return os.path.basename(path)


def encode_locations(locations: Locations) -> list[SectionData]:
    """Both debug sections."""
    strings = StringTable()
    lines = bytearray()
    for (section, index), loc in sorted(locations.items()):
        record = DebugLine(
            section=section,
            column=loc.col if loc.col <= _MAX_COLUMN else 0,
            index=index,
            file=strings.add(portable_path(loc.file)),
            line=loc.line,
            end_column=loc.end_col,
        )
        lines += record.pack()
        if loc.inside is not None:
            lines += _inside(section, index, loc.inside, strings).pack()
    return [
        SectionData.of(Section.DEBUG_LINE, bytes(lines)),
        SectionData.of(Section.DEBUG_STRING, strings.to_bytes()),
    ]


def _inside(section: int, index: int, inside: Inside, strings: StringTable) -> DebugLine:
    """A second line for a record: where it is in a ready workload or kernel."""
    return DebugLine(
        section=section,
        column=0,
        index=index,
        file=strings.add(f"{inside.function}{_IN}{inside.file}"),
        line=inside.line,
        end_column=0,
    )


def decode_locations(lines: Iterable[DebugLine], strings: bytes) -> dict[tuple[int, int], SrcLoc]:
    """The positions that a file holds."""
    found: dict[tuple[int, int], SrcLoc] = {}
    for line in lines:
        key, file = (line.section, line.index), read_string(strings, line.file)
        if key in found:
            function, _, file = file.rpartition(_IN)
            found[key] = replace(found[key], inside=Inside(function, file, line.line))
        else:
            found[key] = SrcLoc(file, line.line, line.column, line.end_column)
    return found
