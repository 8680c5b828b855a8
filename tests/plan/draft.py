"""Plan files that can be damaged on purpose.

A `Draft` changes fields in place, whatever they then say, and seals the file again: checksums,
header counts and ids are recomputed, so that the validator gets as far as the rule under test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

from pto_wsp import _core
from pto_wsp.plan import Header, Plan, PlanBuilder, Section, SectionEntry
from pto_wsp.plan.container import SectionData, decode, encode

SIZES = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "i64": 8}
TABLES: dict[str, list[dict[str, Any]]] = cast(Any, _core.reflect())
RECORDS = {r["name"]: {f["name"]: f for f in r["fields"]} for r in TABLES["records"]}
RECORD_OF = {s["kind"]: s["record"] for s in TABLES["sections"]}


def field_of(section: Section, field: str) -> tuple[int, int]:
    """Offset and size of a field."""
    found = RECORDS[RECORD_OF[section]][field]
    return found["offset"], SIZES[found["type"]]


class Draft:
    """A plan file under the knife."""

    def __init__(self, source: Plan | bytes) -> None:
        container = decode(source.to_bytes() if isinstance(source, Plan) else source)
        self.sections = dict(container.sections)
        self.features = container.header.features

    def set(self, section: Section, index: int, /, **fields: int) -> Draft:
        """Change fields of a record."""
        old = self.sections[section]
        data = bytearray(old.data)
        for name, value in fields.items():
            offset, size = field_of(section, name)
            at = index * old.record_size + offset
            data[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, "little")
        self.sections[section] = replace(old, data=bytes(data))
        return self

    def get(self, section: Section, index: int, field: str) -> int:
        old = self.sections[section]
        offset, size = field_of(section, field)
        at = index * old.record_size + offset
        return int.from_bytes(old.data[at : at + size], "little")

    def data(self, section: Section, data: bytes) -> Draft:
        """Replace the bytes of a section."""
        self.sections[section] = SectionData.of(section, data)
        return self

    def drop(self, section: Section) -> Draft:
        del self.sections[section]
        return self

    def seal(self) -> bytes:
        return encode(self.sections.values(), self.features)

    def offset(self, section: Section, index: int = 0, field: str | None = None) -> int:
        """Where a field lies in the sealed file."""
        sealed = self.seal()
        header = next(Header.unpack_all(sealed[:80], 80))
        table = sealed[80 : 80 + 32 * header.num_sections]
        entry = next(e for e in SectionEntry.unpack_all(table, 32) if e.kind == section)
        inside = 0 if field is None else field_of(section, field)[0]
        return entry.offset + index * entry.record_size + inside


def fault_of(data: bytes) -> tuple[int, str]:
    """What the validator says of bytes that it must refuse."""
    fault = _core.plan_validate(data)
    assert fault is not None, "the validator accepted the plan"
    return fault


@dataclass(frozen=True)
class Rule:
    """Damage to a sample, and what the validator must say about it."""

    name: str
    sample: Callable[[], Plan]
    damage: Callable[[Draft], object]
    message: str
    at: tuple[Section, int, str | None]

    def check(self) -> None:
        draft = Draft(self.sample())
        self.damage(draft)
        offset, message = fault_of(draft.seal())
        assert self.message in message
        assert offset == draft.offset(*self.at), message


def refuses(
    w: PlanBuilder, text: str, section: Section, index: int, field: str | None = None
) -> None:
    """Check that a plan is refused, with this text, at this field."""
    data = w.encode()
    offset, message = fault_of(data)
    assert text in message
    assert offset == Draft(data).offset(section, index, field), message
