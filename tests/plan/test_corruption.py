"""Damaged files are refused or mean something valid; nothing ever crashes."""

from __future__ import annotations

import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pto_wsp import _core
from pto_wsp.errors import PlanError
from pto_wsp.plan import SECTIONS, Plan, Section, SectionClass
from pto_wsp.plan.container import SectionData, decode, encode
from tests.plan import samples
from tests.plan.draft import Draft, fault_of

HEADER, ENTRY = 80, 32


def entry_at(data: bytes, section: int) -> int:
    """Where the table entry of a section begins."""
    count = int.from_bytes(data[24:28], "little")
    starts = [HEADER + i * ENTRY for i in range(count)]
    return next(at for at in starts if int.from_bytes(data[at : at + 2], "little") == section)


def put(data: bytes, at: int, value: int, size: int = 4) -> bytes:
    out = bytearray(data)
    out[at : at + size] = value.to_bytes(size, "little")
    return bytes(out)


def seal_header(data: bytes) -> bytes:
    """Recompute the checksum of header and section table."""
    end = HEADER + ENTRY * int.from_bytes(data[24:28], "little")
    blank = put(data, 28, 0)
    return put(data, 28, zlib.crc32(blank[:end]))


def read_everything(data: bytes) -> None:
    """Accepted bytes must be a plan in every respect."""
    plan = Plan.from_bytes(data)
    assert Plan.from_bytes(plan.to_bytes()).disassemble() == plan.disassemble()


def test_every_single_byte_matters() -> None:
    """Checksums and ids notice any change of one byte."""
    data = samples.dense().to_bytes()
    for at in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = put(data, at, data[at] ^ flip, 1)
            with pytest.raises(PlanError) as error:
                Plan.from_bytes(damaged)
            assert error.value.offset is None or 0 <= error.value.offset <= len(data)


@pytest.mark.parametrize("name", list(samples.ALL))
def test_every_single_byte_with_good_checksums(name: str) -> None:
    """With the checksums repaired, the contents are refused or mean something valid."""
    container = decode(samples.ALL[name]().to_bytes())
    refused = accepted = 0
    for kind, section in container.sections.items():
        for at in range(len(section.data)):
            for flip in (0x01, 0xFF):
                damaged = put(section.data, at, section.data[at] ^ flip, 1)
                changed = SectionData.of(Section(kind), damaged)
                data = encode(
                    {**container.sections, kind: changed}.values(), container.header.features
                )
                try:
                    read_everything(data)
                    accepted += 1
                except PlanError:
                    refused += 1
    assert refused > accepted


@pytest.mark.parametrize("name", list(samples.ALL))
def test_sections_with_other_records(name: str) -> None:
    """A section is missing, or lacks its last record, or has it twice."""
    plan = samples.ALL[name]()
    for kind, section in Draft(plan).sections.items():
        last = section.data[-section.record_size :]
        shorter = section.data[: -section.record_size]
        for data in (b"", shorter, section.data + last, last + section.data):
            sealed = Draft(plan).data(Section(kind), data).seal()
            fault = _core.plan_validate(sealed)
            if fault is not None:
                assert 0 < fault[0] <= len(sealed)
                continue
            with suppress(PlanError):  # a body's hash is checked by Python alone
                read_everything(sealed)


def test_every_truncation_is_refused() -> None:
    data = samples.dense().to_bytes()
    for length in range(len(data)):
        fault_of(data[:length])
    fault_of(data + b"\0")


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(data: bytes) -> None:
    fault_of(data)
    fault_of(b"PTOW" + data)


def test_header() -> None:
    data = samples.dense().to_bytes()
    assert fault_of(put(data, 0, 0x12345678)) == (
        0,
        "this is not a plan: it does not begin with PTOW",
    )
    assert fault_of(put(data, 4, 2)) == (4, "format version 2; this reader knows version 1")
    offset, message = fault_of(put(data, 72, 5, 8))
    assert (offset, message) == (72, f"the header says 5 bytes, the file has {len(data)}")
    assert fault_of(put(data, 24, 1 << 31))[0] == 24
    assert fault_of(put(data, 28, 0)) == (28, "checksum of header and section table is wrong")
    for at, name in ((8, "CODE"), (12, "AXIS"), (16, "KERNEL"), (20, "TENSOR")):
        offset, message = fault_of(seal_header(put(data, at, 77)))
        assert offset == at
        assert f"the header counts 77 records in {name}" in message


def test_feature_bits_are_those_of_the_contents() -> None:
    data = samples.ragged().to_bytes()
    assert fault_of(seal_header(put(data, 32, 0, 8))) == (32, "feature bit 0 is missing")
    offset, message = fault_of(seal_header(put(data, 32, 1 | 1 << 40, 8)))
    assert (offset, message) == (32, "feature bit 40 is set without cause")


@pytest.mark.parametrize(
    ("field", "size", "value", "message"),
    [
        (2, 2, 2, "AXIS has record version 2"),
        (4, 4, 0, "AXIS has the wrong section flags"),
        (4, 4, 4, "unknown section flags"),
        (8, 4, 24, "AXIS has records of 24 bytes, not 48"),
        (8, 4, 0, "not a multiple of its record size"),
        (8, 4, 49, "not a multiple of its record size"),
        (16, 8, 4, "not a multiple of 8"),
        (16, 8, 8, "overlaps"),
        (16, 8, 1 << 40, "lies outside the file"),
        (24, 8, 1 << 63, "lies outside the file"),
        (0, 2, 1, "ascending order"),
        (0, 2, 7, "ascending order"),
    ],
)
def test_section_entry(field: int, size: int, value: int, message: str) -> None:
    data = samples.dense().to_bytes()
    at = entry_at(data, Section.AXIS)
    offset, found = fault_of(seal_header(put(data, at + field, value, size)))
    assert message in found
    assert at <= offset < at + ENTRY


def test_section_checksum() -> None:
    data = samples.dense().to_bytes()
    start = Draft(data).offset(Section.CODE)
    damaged = put(data, start + 4, 99)
    assert fault_of(damaged) == (start, "checksum of section 2 is wrong")


def test_bytes_between_sections_are_zero() -> None:
    data = samples.dense().to_bytes()
    strings = len(decode(data).sections[Section.STRING].data)
    assert strings % 8 != 0
    at = Draft(data).offset(Section.STRING) + strings
    assert fault_of(put(data, at, 1, 1)) == (at, "bytes between sections must be 0")


def test_unknown_sections() -> None:
    plan = samples.dense()
    draft = Draft(plan)
    draft.sections[77] = SectionData(77, 9, 0, 3, b"abcdef")
    skipped = Plan.from_bytes(draft.seal())
    assert skipped.plan_id == plan.plan_id
    assert skipped.disassemble() == plan.disassemble()
    draft.sections[77] = SectionData(77, 9, 1, 3, b"abcdef")
    offset, message = fault_of(draft.seal())
    assert message == "section 77 is required and unknown to this reader"
    assert offset == entry_at(draft.seal(), 77)


def test_optional_sections_of_another_version_are_skipped() -> None:
    draft = Draft(samples.dense())
    for kind in (Section.KERNEL_BODY, Section.DEBUG_LINE):
        old = draft.sections[kind]
        draft.sections[kind] = SectionData(old.kind, 2, old.flags, old.record_size, old.data)
    plan = Plan.from_bytes(draft.seal())
    assert plan.body(0) is None
    assert plan.loc(Section.SITE, 0) is None


def test_larger_records_are_accepted() -> None:
    """A later version may append fields; this reader steps over them."""
    plan = samples.tiers()
    draft = Draft(plan)
    for kind, section in tuple(draft.sections.items()):
        size = section.record_size
        if size == 1:
            continue
        records = [section.data[i : i + size] for i in range(0, len(section.data), size)]
        grown = b"".join(record + b"\xee" * 8 for record in records)
        draft.sections[kind] = SectionData(kind, 1, section.flags, size + 8, grown)
    grown_plan = Plan.from_bytes(draft.seal())
    assert grown_plan.plan_id != plan.plan_id
    lines, expected = grown_plan.disassemble().splitlines(), plan.disassemble().splitlines()
    assert lines[2:] == expected[2:]


def test_string_sections_have_no_larger_records() -> None:
    draft = Draft(samples.dense())
    old = draft.sections[Section.STRING]
    draft.sections[Section.STRING] = SectionData(old.kind, 1, old.flags, 2, old.data * 2)
    assert "STRING has records of 2 bytes" in fault_of(draft.seal())[1]


def test_empty_sections_count_for_nothing() -> None:
    classes = {cls for cls, _ in SECTIONS.values()}
    assert classes == set(SectionClass)
    plan = samples.dense()
    draft = Draft(plan)
    draft.data(Section.DEPS, b"")
    assert draft.seal() == plan.to_bytes()
