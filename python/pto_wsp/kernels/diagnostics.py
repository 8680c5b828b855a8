"""Compiler messages about kernel bodies, mapped to the user's file."""

from __future__ import annotations

import linecache
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.kernels.emit_cpp import UNIT_NAME, CppUnit, cpp_body
from pto_wsp.plan import KernelBody, Plan, Section
from pto_wsp.srcloc import SrcLoc

# gcc and clang agree on this form; a column may be missing.
_ERROR = re.compile(
    r"^(?P<file>.+?):(?P<line>\d+):(?:(?P<col>\d+):)? (?:fatal )?error: (?P<text>.*)$"
)
# How an error inside a header says which line of a body led there.
_ORIGIN = re.compile(
    r"^(?P<file>.+?):(?P<line>\d+):(?P<col>\d+):\s+(?:required from|note: in inst)"
)
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One error. `kernel` is None if it is not in a body; lines and byte columns count from 1."""

    kernel: int | None
    line: int
    col: int
    text: str


def parse(output: str, labels: Mapping[str, int]) -> list[Diagnostic]:
    """The errors in a compiler's output; one inside a header counts for the body that used it."""
    lines = output.splitlines()
    matches = [(i, match) for i, line in enumerate(lines) if (match := _ERROR.match(line))]
    found: list[Diagnostic] = []
    for number, (at, match) in enumerate(matches):
        before = matches[number - 1][0] + 1 if number else 0
        after = matches[number + 1][0] if number + 1 < len(matches) else len(lines)
        place = match
        if match["file"] not in labels:
            place = _origin(lines[before:at], lines[at:after], labels) or match
        kernel = labels.get(place["file"])
        if kernel is None and place["file"] != UNIT_NAME:
            found.append(Diagnostic(None, 0, 0, match[0]))
            continue
        found.append(Diagnostic(kernel, int(place["line"]), int(place["col"] or 0), match["text"]))
    return found


def _origin(before: list[str], after: list[str], labels: Mapping[str, int]) -> re.Match[str] | None:
    """The line of a body behind an error in a header: gcc tells it before, clang afterwards."""
    for line in (*reversed(before), *after):
        match = _ORIGIN.match(line)
        if match and match["file"] in labels:
            return match
    return None


def compile_error(plan: Plan, unit: CppUnit, output: str, command: str) -> CompileError:
    """The error to raise for a compiler that failed with this output."""
    found = parse(output, unit.labels)
    if not found:
        tail = output.strip()[-2000:] or "it said nothing"
        return CompileError(
            Code.CPP_ERROR,
            "the C++ kernels do not compile",
            why=f"the compiler failed without naming a line of them:\n{tail}",
            fix=f"the command was: {command}",
        )
    # An error in a body is the user's; one elsewhere is often its consequence.
    found.sort(key=lambda diagnostic: diagnostic.kernel is None)
    first, *others = found
    loc, quoted = _place(plan, unit, first)
    why = [f"in the line: {quoted}"] if quoted else []
    why.extend(_summary(plan, unit, other) for other in others[: _SHOWN - 1])
    if len(found) > _SHOWN:
        why.append(f"and {len(found) - _SHOWN} more")
    return CompileError(
        Code.CPP_ERROR,
        _headline(plan, unit, first),
        loc=loc,
        why="\n       ".join(why) or None,
        fix=_advice(first),
    )


def _headline(plan: Plan, unit: CppUnit, first: Diagnostic) -> str:
    if first.kernel is not None:
        return f"C++ kernel {plan.kernel_names[first.kernel]!r} does not compile: {first.text}"
    names = ", ".join(repr(plan.kernel_names[i]) for i in unit.kernels)
    return f"the C++ of kernels {names} does not compile: {first.text}"


def _advice(first: Diagnostic) -> str | None:
    if "No such file" in first.text or "file not found" in first.text:
        return "correct the include line, or add its folder: PTO_WSP_CXXFLAGS=-I<folder>"
    return None


def _summary(plan: Plan, unit: CppUnit, diagnostic: Diagnostic) -> str:
    loc, quoted = _place(plan, unit, diagnostic)
    where = f"{loc}: " if loc else ""
    return f"also {where}{diagnostic.text}" + (f", in the line: {quoted}" if quoted else "")


def _place(plan: Plan, unit: CppUnit, diagnostic: Diagnostic) -> tuple[SrcLoc | None, str]:
    """Where in the user's file an error is, and the C++ line if that file does not show it."""
    if diagnostic.kernel is None:
        return None, _line_of(unit.text, diagnostic.line).strip()
    body = cpp_body(plan, diagnostic.kernel)
    text = _line_of(body.source if body else "", diagnostic.line)
    start = _body_loc(plan, diagnostic.kernel)
    if start is None:
        return None, text.strip()
    col = len(text.encode()[: max(0, diagnostic.col - 1)].decode(errors="replace"))
    loc = _shifted(start, diagnostic.line, text, col)
    shown = linecache.getline(loc.file, loc.line)
    return loc, "" if text.strip() in shown and shown else text.strip()


def _shifted(start: SrcLoc, line: int, text: str, col: int) -> SrcLoc:
    """The place `col` characters into line `line` of a body that begins at `start`.

    The user's file is asked where that text stands: a body may have lost its indentation, or may
    be one line with escapes, and then the numbers alone would point elsewhere.
    """
    target = start.line + line - 1
    lead = max(0, start.col - 1)
    lines = linecache.getlines(start.file)
    if not lines:
        known = start.col or line > 1
        return SrcLoc(start.file, target, (lead if line == 1 else 0) + col + 1 if known else 0)
    bare = text.strip()
    for number in (target, start.line):
        shown = lines[number - 1] if number <= len(lines) else ""
        at = shown.find(bare, lead if number == start.line else 0)
        if bare and at >= 0:
            first = at + col - (len(text) - len(text.lstrip())) + 1
            word = re.match(r"\w+", text[col:])
            return SrcLoc(start.file, number, first, first + (word.end() if word else 1))
    return start


def _body_loc(plan: Plan, kernel: int) -> SrcLoc | None:
    for index, record in enumerate(plan.records(KernelBody)):
        if record.kernel == kernel:
            return plan.loc(Section.KERNEL_BODY, index)
    return None


def _line_of(text: str, line: int) -> str:
    lines = text.split("\n")
    return lines[line - 1] if 0 < line <= len(lines) else ""
