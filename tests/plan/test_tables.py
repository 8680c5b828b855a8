"""The tables of the core, of Python and of the docs are one table."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import pto_wsp.plan as package
from pto_wsp import _core
from pto_wsp.dtypes import DType
from pto_wsp.plan import SECTIONS, Op, Record, Section, hashing, records
from tests.plan.draft import TABLES

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("tool", ["gen_tables.py", "gen_docs.py"])
def test_generated_files_are_current(tool: str) -> None:
    command = [sys.executable, str(ROOT / "tools" / tool), "--check"]
    found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert found.returncode == 0, found.stdout + found.stderr


def test_the_check_can_fail(tmp_path: Path) -> None:
    copy = tmp_path / "tools"
    copy.mkdir()
    for name in ("gen_docs.py", "tile_errors.py", "bytecode.template.md"):
        text = (ROOT / "tools" / name).read_text(encoding="utf-8")
        (copy / name).write_text(text, encoding="utf-8")
    command = [sys.executable, str(copy / "gen_docs.py")]
    assert subprocess.run([*command, "--check"], capture_output=True).returncode == 1
    assert subprocess.run(command, capture_output=True).returncode == 0
    assert subprocess.run([*command, "--check"], capture_output=True).returncode == 0


def test_dtypes_have_the_core_s_numbers() -> None:
    core = next(enum for enum in TABLES["enums"] if enum["name"] == "DType")
    assert {v["name"]: v["number"] for v in core["values"]} == {d.name: d.value for d in DType}


def test_enums_and_opcodes_have_the_core_s_numbers() -> None:
    assert {o["name"]: o["number"] for o in TABLES["opcodes"]} == {o.name: o.value for o in Op}
    for enum in TABLES["enums"]:
        mirror = DType if enum["name"] == "DType" else getattr(package, enum["name"])
        assert [v["number"] for v in enum["values"]] == [v.value for v in mirror]


def test_numbers_are_used_once() -> None:
    groups = [[v["number"] for v in enum["values"]] for enum in TABLES["enums"]]
    groups.append([o["number"] for o in TABLES["opcodes"]])
    groups.append([s["kind"] for s in TABLES["sections"]])
    for numbers in groups:
        assert len(set(numbers)) == len(numbers)


def test_records_have_the_core_s_sizes() -> None:
    for record in TABLES["records"]:
        if record["name"] == "Byte":
            continue
        mirror: type[Record] = getattr(records, record["name"])
        assert mirror.packed_size() == record["size"]
        ends = [f["offset"] for f in record["fields"][1:]] + [record["size"]]
        for field, end in zip(record["fields"], ends, strict=True):
            size = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "i64": 8}[field["type"]]
            assert field["offset"] + size == end, "no padding between fields"
            assert field["offset"] % size == 0, "fields are aligned"
    assert {s["kind"] for s in TABLES["sections"]} == set(SECTIONS) == set(Section)


def test_axis_kinds_are_the_axis_opcodes() -> None:
    for kind in package.AxisKind:
        assert Op[f"AXIS_{kind.name}"] == kind


def test_limits_are_exported() -> None:
    for name, value in _core.plan_limits().items():
        assert getattr(package, name.upper()) == value


def test_every_table_entry_has_documentation() -> None:
    for opcode in TABLES["opcodes"]:
        assert re.fullmatch(r"[A-Z].*\.", opcode["doc"]), opcode["name"]
    for section in TABLES["sections"]:
        assert section["doc"].endswith(".")


def test_fnv_vectors() -> None:
    """Published values of FNV-1a."""
    assert hashing.fnv1a64(b"") == 0xCBF29CE484222325
    assert hashing.fnv1a64(b"a") == 0xAF63DC4C8601EC8C
    assert hashing.fnv1a64(b"foobar") == 0x85944171F73967E8


def test_mixers_vectors() -> None:
    """SplitMix64 from seed 0, and MurmurHash3's finaliser, against published values."""
    golden = 0x9E3779B97F4A7C15
    assert hashing.splitmix(golden) == 0xE220A8397B1DCDAF
    assert hashing.splitmix(2 * golden % 2**64) == 0x6E789E6AA1B965F4
    assert hashing.fmix(0) == 0
    assert hashing.fmix(1) == 0xB456BCFC34C2CB2C


def test_task_hash_ignores_order_and_wraps() -> None:
    a, b = {0: 1, 8: -1}, {0: 2, 8: 2**64 - 1}
    assert hashing.program_hash([a, b]) == hashing.program_hash([b, a])
    assert hashing.task_lanes({8: -1}) == hashing.task_lanes({8: 2**64 - 1})
    assert hashing.program_hash([]) == (0, 0)
    assert hashing.task_lanes({}) == (0, 0)
    assert hashing.task_lanes({8: 1}) != hashing.task_lanes({9: 1})
