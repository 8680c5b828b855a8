"""Positions in the user's source: capture them while tracing, show them in errors."""

from __future__ import annotations

import inspect
import itertools
import linecache
import os
from dataclasses import dataclass
from types import CodeType, FrameType

PACKAGE_DIR = os.path.dirname(os.path.abspath(__file__)) + os.sep
# Workloads that come with the package are written like those of users, and count as such.
_WORKLOADS = PACKAGE_DIR + "workloads" + os.sep
_PACKAGE = __name__.partition(".")[0] + "."


@dataclass(frozen=True, slots=True)
class SrcLoc:
    """A span on one line of a file. Columns count from 1; 0 means unknown."""

    file: str
    line: int
    col: int = 0
    end_col: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f":{self.col}" if self.col else "")

    def render(self) -> str:
        """The place, its source line, and a caret under the span."""
        head = f"  --> {self}"
        # Absolute, since linecache would look for a relative name on sys.path as well.
        text = linecache.getline(os.path.abspath(self.file), self.line).rstrip("\n")
        if not text:
            return head
        number = str(self.line)
        lines = [head, f"  {number} | {text}"]
        if self.col:
            width = max(1, self.end_col - self.col)
            lead = "".join("\t" if c == "\t" else " " for c in text[: self.col - 1])
            lines.append(f"  {' ' * len(number)} | {lead}{'^' * width}")
        return "\n".join(lines)


def user_frame() -> FrameType | None:
    """The innermost frame on the stack that is not part of this package."""
    frame = inspect.currentframe()
    while frame is not None and is_ours(frame):
        frame = frame.f_back
    return frame


def is_ours(frame: FrameType) -> bool:
    """Whether a frame runs code of this package."""
    # Methods that dataclasses generate have no file, but the globals of their class's module.
    file = frame.f_code.co_filename
    module = str(frame.f_globals.get("__name__", ""))
    inside = file.startswith(PACKAGE_DIR) and not file.startswith(_WORKLOADS)
    return inside or (file == "<string>" and module.startswith(_PACKAGE))


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


def here() -> SrcLoc | None:
    """The user's line that led to this call."""
    return of_frame(user_frame())
