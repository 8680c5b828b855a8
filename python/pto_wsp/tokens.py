"""Tokens of the project's text forms, and where a parser stands in them.

A form gives the pattern of its tokens: groups `space`, which is skipped, `word`, `string`, `sign`
and whatever else it has. Text that is not of the form is a CompileError with line and column.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.srcloc import SrcLoc

T = TypeVar("T")

SPACE = r"(?P<space>[ \t\r\n]+|\#[^\n]*)"
STRING = r'(?P<string>"(?:[^"\\\n]|\\[^\n])*")'
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)")
_DTYPES = {dtype.text: dtype for dtype in DType}
_SIMPLE_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "t": "\t", "r": "\r"}


@dataclass(frozen=True, slots=True)
class Token:
    """`kind` is the group of the pattern, or "end"."""

    kind: str
    text: str
    loc: SrcLoc

    @property
    def shown(self) -> str:
        return "the end of the text" if self.kind == "end" else self.text


def fail(message: str, loc: SrcLoc, fix: str | None = None) -> NoReturn:
    raise CompileError(Code.IR_ILLEGAL, message, loc=loc, fix=fix)


def tokens_of(text: str, file: str, pattern: re.Pattern[str]) -> list[Token]:
    tokens: list[Token] = []
    position = line_start = 0
    line = 1
    while position < len(text):
        found = pattern.match(text, position)
        col = position - line_start + 1
        if found is None:
            fail(f"unexpected character {text[position]!r}", SrcLoc(file, line, col, col + 1))
        part = found[0]
        if found.lastgroup != "space":
            loc = SrcLoc(file, line, col, col + len(part))
            tokens.append(Token(str(found.lastgroup), part, loc))
        elif "\n" in part:
            line += part.count("\n")
            line_start = position + part.rindex("\n") + 1
        position = found.end()
    col = position - line_start + 1
    tokens.append(Token("end", "", SrcLoc(file, line, col, col + 1)))
    return tokens


def unescaped(token: Token) -> str:
    """What a string literal says."""

    def character(found: re.Match[str]) -> str:
        code = found[1]
        if len(code) > 1:
            number = int(code[1:], 16)
            if number > 0x10FFFF or 0xD800 <= number < 0xE000:
                fail(f"{found[0]} is not a character", token.loc)
            return chr(number)
        if code not in _SIMPLE_ESCAPES:
            fail(f"unknown escape {found[0]} in a string", token.loc)
        return _SIMPLE_ESCAPES[code]

    return _ESCAPE.sub(character, token.text[1:-1])


class TokenReader(ABC):
    """Where a parser stands in its text, and what every rule of a parser uses."""

    def __init__(self, text: str, file: str, pattern: re.Pattern[str]) -> None:
        self._tokens = tokens_of(text, file, pattern)
        self._place = 0

    @property
    def next(self) -> Token:
        return self._tokens[self._place]

    def take(self) -> Token:
        token = self.next
        if token.kind != "end":
            self._place += 1
        return token

    def peek(self, ahead: int) -> str:
        """The spelling of a later token; empty past the end."""
        return self._tokens[min(self._place + ahead, len(self._tokens) - 1)].text

    def at(self, *texts: str) -> bool:
        """Whether the next token is one of these words or signs."""
        return self.next.kind in ("word", "sign") and self.next.text in texts

    def accept(self, text: str) -> bool:
        if not self.at(text):
            return False
        self.take()
        return True

    def expect(self, text: str) -> Token:
        if not self.at(text):
            self.expected(f"'{text}'")
        return self.take()

    def expected(self, what: str) -> NoReturn:
        fail(f"expected {what}, found {self.next.shown}", self.next.loc)

    def string(self) -> str:
        if self.next.kind != "string":
            self.expected("a string")
        return unescaped(self.take())

    def dtype(self) -> DType:
        found = _DTYPES.get(self.next.text)
        if found is None:
            self.expected("a dtype such as f32")
        self.take()
        return found

    @abstractmethod
    def integer(self) -> int: ...

    def loc(self) -> SrcLoc | None:
        """A place in the user's files, if one is given: @ "file":line:col-end."""
        if not self.accept("@"):
            return None
        file = self.string()
        self.expect(":")
        line = self.integer()
        if not self.accept(":"):
            return SrcLoc(file, line)
        col = self.integer()
        self.expect("-")
        return SrcLoc(file, line, col, self.integer())

    def listed(self, open_sign: str, item: Callable[[], T], close_sign: str) -> tuple[T, ...]:
        """Items with commas between them, in brackets."""
        self.expect(open_sign)
        items: list[T] = []
        if not self.accept(close_sign):
            items.append(item())
            while self.accept(","):
                items.append(item())
            self.expect(close_sign)
        return tuple(items)
