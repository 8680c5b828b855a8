"""Positions in the user's source: capture them while tracing, show them in errors."""

from __future__ import annotations

import inspect
import itertools
import linecache
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import CodeType, FrameType
from typing import NamedTuple, TypeVar

PACKAGE_DIR = os.path.dirname(os.path.abspath(__file__)) + os.sep
# Workloads and kernels that come with the package are written like those of users. Names of
# variables are taken from there, but errors point at who called them.
_WORKLOADS = PACKAGE_DIR + "workloads" + os.sep
_LIBRARIES = (_WORKLOADS, PACKAGE_DIR + os.path.join("kernels", "library") + os.sep)
_PACKAGE = __name__.partition(".")[0] + "."
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Inside:
    """Where in a ready workload or kernel something is that a line of the user's led to: the
    function that the user called, and a file of its package."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"in {self.function}, {self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class SrcLoc:
    """A span on one line of a file. Columns count from 1; 0 means unknown. `inside`: that line only
    called what is meant."""

    file: str
    line: int
    col: int = 0
    end_col: int = 0
    inside: Inside | None = None

    def __str__(self) -> str:
        return self.place + ("" if self.inside is None else f" {self.inside}")

    @property
    def place(self) -> str:
        """The user's file, line and column."""
        return f"{self.file}:{self.line}" + (f":{self.col}" if self.col else "")

    def render(self) -> str:
        """The place, its source line, a caret under the span, and what is meant inside of it."""
        lines = [f"  --> {self.place}"]
        # Absolute, since linecache would look for a relative name on sys.path as well.
        text = linecache.getline(os.path.abspath(self.file), self.line).rstrip("\n")
        number = str(self.line)
        if text:
            lines.append(f"  {number} | {text}")
        if text and self.col:
            width = max(1, self.end_col - self.col)
            lead = "".join("\t" if c == "\t" else " " for c in text[: self.col - 1])
            lines.append(f"  {' ' * len(number)} | {lead}{'^' * width}")
        if self.inside is not None:
            lines.append(f"  note: {self.inside}")
        return "\n".join(lines)


class Call(NamedTuple):
    """A call of the user's. Noting it costs less than a SrcLoc, which nobody may ask for."""

    code: CodeType
    offset: int

    @property
    def loc(self) -> SrcLoc | None:
        return of_instruction(self.code, self.offset)


def calling() -> Call | None:
    """The user's call that is under way."""
    frame = inspect.currentframe()
    while frame is not None and _is_package(frame):
        frame = frame.f_back
    return None if frame is None else Call(frame.f_code, frame.f_lasti)


def user_frame() -> FrameType | None:
    """The innermost frame on the stack that writes workloads or calls this package; ready workloads
    count as well."""
    frame = inspect.currentframe()
    while frame is not None and is_ours(frame):
        frame = frame.f_back
    return frame


def is_ours(frame: FrameType) -> bool:
    """Whether a frame runs code of this package, other than of ready workloads."""
    return _is_package(frame) and not frame.f_code.co_filename.startswith(_WORKLOADS)


def _is_package(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    if file != "<string>":
        return file.startswith(PACKAGE_DIR)
    # Methods that dataclasses generate have no file, but the globals of their class's module.
    return str(frame.f_globals.get("__name__", "")).startswith(_PACKAGE)


def of_frame(frame: FrameType | None) -> SrcLoc | None:
    """The position at which a frame stands now, with columns where Python knows them."""
    if frame is None:
        return None
    return of_instruction(frame.f_code, frame.f_lasti) or SrcLoc(
        frame.f_code.co_filename, frame.f_lineno
    )


def of_instruction(code: CodeType, offset: int) -> SrcLoc | None:
    """The position of an instruction, by its offset in the code."""
    position = next(itertools.islice(code.co_positions(), offset // 2, None), None)
    line, end_line, col, end_col = position or (None, None, None, None)
    if line is None:
        return None
    if col is None or end_col is None:
        return SrcLoc(code.co_filename, line)
    if end_line != line:
        end_col = len(linecache.getline(code.co_filename, line).rstrip("\n"))
    # co_positions counts UTF-8 bytes; carets count characters.
    raw = linecache.getline(code.co_filename, line).encode()
    first = len(raw[:col].decode(errors="replace")) + 1
    last = len(raw[:end_col].decode(errors="replace")) + 1
    return SrcLoc(code.co_filename, line, first, last)


def call_for(
    loc: SrcLoc | Call | None, function: Callable[..., Result], arguments: dict[str, object]
) -> Result:
    """Calls a function that the user has called at `loc`, and that runs only now. What it does
    inside this package is the work of that line."""
    return function(**arguments)


def here() -> SrcLoc | None:
    """The user's line that led to this call, with the place in a ready workload or kernel that did,
    if it was one."""
    return _outside(inspect.currentframe(), None)


def of_user(loc: SrcLoc | None, name: str) -> SrcLoc | None:
    """A place; if it is one in kernel `name` of this package, the user's line that led here."""
    if loc is None or not loc.file.startswith(_LIBRARIES):
        return loc
    found = _outside(inspect.currentframe(), _inside(loc.file, loc.line, name))
    return loc if found is None else found


def _outside(frame: FrameType | None, inside: Inside | None) -> SrcLoc | None:
    """The user's line behind a frame, which stands inside there."""
    library: FrameType | None = None
    while frame is not None and _is_package(frame):
        code = frame.f_code
        if code.co_filename.startswith(_LIBRARIES):
            function = code.co_qualname.partition(".")[0].lstrip("_")
            inside = inside or _inside(code.co_filename, frame.f_lineno, function)
            inside, library = _called(inside, code.co_filename, function), library or frame
        if code is call_for.__code__ and frame.f_locals["loc"] is not None:
            called: SrcLoc | Call = frame.f_locals["loc"]
            place = called.loc if isinstance(called, Call) else called
            return None if place is None else replace(place, inside=inside)
        frame = frame.f_back
    if frame is not None and frame.f_globals.get("__name__") == "threading":
        frame = None  # nobody called: a thread of this package, or one that does nothing else
    found = of_frame(frame)
    return of_frame(library) if found is None else replace(found, inside=inside)


def _inside(file: str, line: int, function: str) -> Inside:
    package = file[len(PACKAGE_DIR) :].split(os.sep)[0]
    path = os.path.relpath(file, PACKAGE_DIR + package).replace(os.sep, "/")
    return Inside(f"{_PACKAGE}{package}.{function}", path, line)


def _called(inside: Inside, file: str, function: str) -> Inside:
    """The same, called through a function further out."""
    return replace(inside, function=_inside(file, 0, function).function)
