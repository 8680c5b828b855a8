"""Write docs/bytecode.md, the list of directives in docs/schedule.md and those of tile operations
and their errors in docs/kernels.md from the tables they come from.

`python tools/gen_docs.py` rewrites the page; with `--check` it writes nothing and exits with 1 if
the page differs from what it would write.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import tile_errors

from pto_wsp import _core
from pto_wsp.kernels.tile_ir import OPS, Group
from pto_wsp.plan import hashing

ROOT = Path(__file__).resolve().parents[1]
TEXT = ROOT / "tools" / "bytecode.template.md"
PAGE = ROOT / "docs" / "bytecode.md"
SCHEDULE = ROOT / "docs" / "schedule.md"
KERNELS = ROOT / "docs" / "kernels.md"

SIZES = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "i64": 8}
MEANINGS = {
    "Plain": "",
    "Zero": "must be 0",
    "Ref": "index in {}",
    "Opt": "index in {}, or none",
    "Str": "name",
    "OptStr": "string, or none",
    "DebugStr": "string in DEBUG_STRING",
    "DepsStr": "string in DEPS_STRING, or none",
    "Span": "first of a run in {}",
    "Count": "length of that run",
    "Enum": "{}",
    "Bits": "",
}
LIMITS = {
    "max_loops": "loops around one site, RECV included",
    "max_blocks": "open blocks, loops and calls included",
    "max_rank": "dimensions of a tensor or a mesh",
    "max_expr_depth": "height of an expression's tree",
    "max_expr_tree": "nodes of an expression written out as a tree",
    "max_bound_vars": "nested REDUCE and SEARCH nodes",
    "max_tensor_args": "tensor parameters of a kernel",
    "max_scalar_args": "scalar parameters of a kernel",
    "max_arg_words": "argument words behind a TASK or COLLECTIVE, and parameters of a kernel",
    "max_lets": "LET instructions of a plan",
    "max_slots": "SLOT records of a plan",
    "max_name": "bytes of a name",
    "max_records": "records of a section",
}
GROUPS = {
    Group.CONSTANT: "Constants",
    Group.MEMORY: "Memory",
    Group.MAKE: "Tiles from scalars",
    Group.UNARY: "Elementwise, of one operand",
    Group.BINARY: "Elementwise, of two operands",
    Group.COMPARE: "Comparisons",
    Group.SELECT: "Choice",
    Group.CAST: "Other dtypes",
    Group.REDUCE: "Reductions",
    Group.MOVE: "Elements in other places",
    Group.MATMUL: "Products",
    Group.SORT: "Order",
    Group.CONTROL: "Loops and conditions",
}
# Described with the header, not among the records of sections.
FRAME = ("Header", "SectionEntry", "CursorFrame", "CursorState")


def markdown_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |"]
    lines.append("|" + "---|" * len(list(head)))
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def record_table(record: dict[str, Any]) -> str:
    rows = []
    for field in record["fields"]:
        meaning = MEANINGS[field["meaning"]].format(field["target"])
        text = "; ".join(part for part in (meaning, field["doc"]) if part)
        rows.append((str(field["offset"]), str(SIZES[field["type"]]), f"`{field['name']}`", text))
    return markdown_table(("byte", "size", "field", "meaning"), rows)


def records_text(tables: dict[str, list[dict[str, Any]]]) -> str:
    users: dict[str, list[str]] = {}
    for section in tables["sections"]:
        users.setdefault(section["record"], []).append(section["name"])
    parts = []
    for record in tables["records"]:
        if record["name"] in FRAME or record["name"] == "Byte":
            continue
        where = ", ".join(users[record["name"]])
        title = f"### {record['name']}\n\n{record['doc']} {record['size']} bytes, in {where}."
        parts.append(f"{title}\n\n{record_table(record)}")
    return "\n\n".join(parts)


def sections_text(tables: dict[str, list[dict[str, Any]]]) -> str:
    sizes = {r["name"]: r["size"] for r in tables["records"]}
    rows = [
        (str(s["kind"]), s["name"], s["class"], s["record"], str(sizes[s["record"]]), s["doc"])
        for s in tables["sections"]
    ]
    return markdown_table(("number", "name", "class", "record", "bytes", "holds"), rows)


def opcodes_text(tables: dict[str, list[dict[str, Any]]]) -> str:
    rows = [
        (f"0x{o['number']:02X}", o["name"], o["place"], o["operand1"], o["operand2"], o["doc"])
        for o in tables["opcodes"]
    ]
    return markdown_table(("number", "name", "place", "operand1", "operand2", "meaning"), rows)


def enum_table(enum: dict[str, Any]) -> str:
    rows = [(str(v["number"]), v["name"], v["doc"]) for v in enum["values"]]
    return markdown_table(("number", "name", "meaning"), rows)


def enums_text(tables: dict[str, list[dict[str, Any]]]) -> str:
    shown = [e for e in tables["enums"] if e["name"] not in ("ExprOp", "Feature", "Status")]
    parts = [f"### {e['name']}\n\n{e['doc']}\n\n{enum_table(e)}" for e in shown]
    return "\n\n".join(parts)


def limits_text() -> str:
    values = _core.plan_limits()
    return markdown_table(
        ("limit", "value"), [(text, str(values[name])) for name, text in LIMITS.items()]
    )


def vectors_text() -> str:
    """Two tasks and their hashes, worked out by the code that users have."""
    kernel, path = hashing.name_hash("cell"), hashing.path_hash([0, 0, 0, 0])
    plain = {hashing.KERNEL: hashing.name_hash("k"), hashing.PATH: hashing.path_hash([0, 0])}
    region = {
        hashing.KERNEL: kernel,
        hashing.PATH: path,
        hashing.COUNTS: 2 | 1 << 16 | 1 << 32,
        hashing.INDICES: 3,
        hashing.INDICES + 1: 5,
        hashing.SCALARS: 0x3F800000,
    }
    first = hashing.TENSORS
    region |= {first: 2, first + 1: 3, first + 2: 2}
    region |= {first + 4: -1, first + 5: 16, first + 6: 1}
    region |= {first + 7: 5, first + 8: 1, first + 9: 2}
    both = hashing.program_hash([plain, region])
    rows = [
        ("FNV-1a 64 of `cell`", f"`{kernel:016x}`", ""),
        ("path hash of 0, 0, 0, 0", f"`{path:016x}`", ""),
        ("K(lane, 0)", *(f"`{hashing.coefficient(lane, 0):016x}`" for lane in (0, 1))),
        ("K(lane, 64)", *(f"`{hashing.coefficient(lane, 64):016x}`" for lane in (0, 1))),
        ("task A", *(f"`{value:016x}`" for value in hashing.task_lanes(plain))),
        ("task B", *(f"`{value:016x}`" for value in hashing.task_lanes(region))),
        ("program of A and B", *(f"`{value:016x}`" for value in both)),
    ]
    return markdown_table(("value", "lane 0", "lane 1"), rows)


def page() -> str:
    tables = cast("dict[str, list[dict[str, Any]]]", _core.reflect())
    records = {r["name"]: r for r in tables["records"]}
    enums = {e["name"]: e for e in tables["enums"]}
    parts = {
        "header": record_table(records["Header"]),
        "section_entry": record_table(records["SectionEntry"]),
        "sections": sections_text(tables),
        "features": enum_table(enums["Feature"]),
        "opcodes": opcodes_text(tables),
        "expressions": enum_table(enums["ExprOp"]),
        "records": records_text(tables),
        "enums": enums_text(tables),
        "limits": limits_text(),
        "vectors": vectors_text(),
        "cursor": record_table(records["CursorState"]),
        "frame": record_table(records["CursorFrame"]),
    }
    text = TEXT.read_text(encoding="utf-8")
    for name, part in parts.items():
        mark = f"<!-- {name} -->"
        assert text.count(mark) == 1, f"{TEXT.name} must hold {mark} once"
        text = text.replace(mark, part)
    return text


def schedule_page() -> str:
    """docs/schedule.md with its list of directives as the core has it."""
    tables = cast("dict[str, list[dict[str, Any]]]", _core.reflect())
    rows = [(f"`{d['form']}`", d["meaning"]) for d in tables["directives"]]
    table = markdown_table(("directive", "what it does"), rows)
    return between(SCHEDULE.read_text(encoding="utf-8"), "directives", table)


def kernels_page(check: bool) -> str:
    """docs/kernels.md with the operations of tile kernels and their errors. Only the bounds can be
    checked: what is measured differs a little from machine to machine."""
    parts = []
    for group in Group:
        rows = [
            (f"`{op.value}`", info.types.value, info.doc)
            for op, info in OPS.items()
            if info.group is group
        ]
        table = markdown_table(("operation", "dtypes", "what it does"), rows)
        parts.append(f"**{GROUPS[group]}**\n\n{table}")
    old = KERNELS.read_text(encoding="utf-8")
    page = between(old, "operations", "\n\n".join(parts))
    return between(page, "errors", tile_errors.table(old, use_measured=not check))


def between(page: str, name: str, text: str) -> str:
    """A page with a text between the two marks of that name."""
    first, last = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, begin, rest = page.partition(first)
    _, end, after = rest.partition(last)
    assert begin, f"the page must hold {first}"
    assert end, f"the page must hold {last}"
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"


def main() -> int:
    check = "--check" in sys.argv[1:]
    pages = {PAGE: page()}
    if SCHEDULE.exists():
        pages[SCHEDULE] = schedule_page()
    if KERNELS.exists():
        pages[KERNELS] = kernels_page(check)
    old = [p for p in pages if not p.exists() or p.read_text(encoding="utf-8") != pages[p]]
    if check:
        for path in old:
            print(f"{path.relative_to(ROOT)} is out of date: run python tools/gen_docs.py")
        return 1 if old else 0
    for path in old:
        path.parent.mkdir(exist_ok=True)
        path.write_text(pages[path], encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
