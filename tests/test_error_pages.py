"""docs/errors.md: every code has a section, whose example prints exactly what the section shows."""

from __future__ import annotations

import linecache
import os
import re
import subprocess
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest

from pto_wsp.error_codes import Code
from pto_wsp.errors import PtoError

PAGE = Path(__file__).parent.parent / "docs" / "errors.md"
_HEADING = re.compile(r"^## (PTO\d+): (.*)$", re.MULTILINE)
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CONTENTS = re.compile(r"(?<=<!-- contents -->\n)(.*?)(?=<!-- end of contents -->)", re.DOTALL)
# These change what their process may do, so they get one of their own.
_OWN_PROCESS = {Code.MACHINE_RESOURCES}
_LIMIT = 120  # seconds; only so that a hang ends the test


@dataclass(frozen=True)
class Section:
    """A section: prose, an example, its output, and perhaps a correction that runs after it."""

    number: str
    title: str
    body: str
    start: int  # of the body in the page

    @property
    def prose(self) -> str:
        return _FENCE.sub("", self.body).strip()

    def blocks(self, language: str) -> list[re.Match[str]]:
        return [m for m in _FENCE.finditer(self.body) if m[1] == language]


def sections(page: str) -> list[Section]:
    headings = list(_HEADING.finditer(page))
    ends = [heading.start() for heading in headings[1:]] + [len(page)]
    return [
        Section(heading[1], heading[2], page[heading.end() : end], heading.end())
        for heading, end in zip(headings, ends, strict=True)
    ]


def section(code: Code) -> Section:
    return next(s for s in sections(PAGE.read_text("utf-8")) if s.number == code.value)


def beginning() -> str:
    """The lines that all examples begin with: the first block of the page."""
    first = _FENCE.search(PAGE.read_text("utf-8"))
    assert first is not None
    return first[2]


def execute(file: str, source: str, names: dict[str, object]) -> None:
    Path(file).write_text(source, "utf-8")
    linecache.clearcache()  # it keeps relative names, and every example has the same one
    exec(compile(source, file, "exec"), names)


def shown(error: PtoError) -> str:
    """What Python prints of an error at the end of a traceback."""
    return "".join(traceback.format_exception_only(error))


def run_in_own_process(source: str) -> str:
    Path("start.py").write_text(beginning(), "utf-8")
    Path("example.py").write_text(source, "utf-8")
    run = "from start import *\nexec(compile(open('example.py').read(), 'example.py', 'exec'))"
    done = subprocess.run(
        [sys.executable, "-c", run], capture_output=True, text=True, timeout=_LIMIT, check=False
    )
    before, name, rest = done.stderr.rpartition("\npto_wsp.errors.")
    assert before, done.stdout + done.stderr
    return name.strip() + rest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new folder to run an example in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PTO_WSP_CXX", "g++")  # other compilers say the same in other words
    return tmp_path


def test_each_code_has_a_section_and_each_section_a_code() -> None:
    found = [(s.number, s.title) for s in sections(PAGE.read_text("utf-8"))]
    assert found == [(code.value, code.title) for code in Code]


def test_codes_are_in_order() -> None:
    numbers = [code.value for code in Code]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("code", Code, ids=lambda code: code.value)
def test_section_has_the_same_parts(code: Code) -> None:
    found = section(code)
    languages = [m[1] for m in _FENCE.finditer(found.body)]
    assert languages in (["python", "text"], ["python", "text", "python"])
    assert found.prose
    # A loose fence would hide a block.
    assert "```" not in found.prose


@pytest.mark.parametrize("code", Code, ids=lambda code: code.value)
@pytest.mark.usefixtures("folder")
def test_example(code: Code, request: pytest.FixtureRequest) -> None:
    """The example fails with this code and prints what the page shows; the correction runs."""
    found = section(code)
    example, *corrections = found.blocks("python")
    names: dict[str, object] = {"__name__": "example"}
    with patch.dict(os.environ):
        if code in _OWN_PROCESS:
            output = run_in_own_process(example[2])
        else:
            execute("start.py", beginning(), names)
            with pytest.raises(PtoError) as raised:
                execute("example.py", example[2], names)
            output = shown(raised.value)
            assert raised.value.code is code, output
    if request.config.getoption("--update-golden"):
        page = PAGE.read_text("utf-8")
        (old,) = found.blocks("text")
        at = found.start + old.start(2)
        PAGE.write_text(page[:at] + output + page[at + len(old[2]) :], "utf-8")
    else:
        assert output == found.blocks("text")[0][2]
    for correction in corrections:
        execute("corrected.py", correction[2], names)


def test_contents(request: pytest.FixtureRequest) -> None:
    page = PAGE.read_text("utf-8")
    lines = [f"- [{code.value}](#{anchor(code)}): {code.title}\n" for code in Code]
    if request.config.getoption("--update-golden"):
        PAGE.write_text(_CONTENTS.sub(lambda _: "".join(lines), page), "utf-8")
        return
    found = _CONTENTS.search(page)
    assert found is not None
    assert found[1] == "".join(lines)


def anchor(code: Code) -> str:
    """What a heading is called in links to it."""
    kept = re.sub(r"[^\w\- ]", "", f"{code.value}: {code.title}".lower())
    return kept.replace(" ", "-")
