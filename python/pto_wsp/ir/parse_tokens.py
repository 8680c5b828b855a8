"""The tokens of the text form, and what every rule of the parser uses."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Literal, NoReturn, TypeAlias, TypeVar

from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.ir.text import (
    IDENTIFIER,
    KEYWORDS,
)
from pto_wsp.srcloc import SrcLoc

T = TypeVar("T")
E = TypeVar("E", bound=Enum)
TokenKind: TypeAlias = Literal["word", "integer", "string", "sign", "end"]

# How deep the text may nest: more than `verify` lets through, less than Python's own stack.
MAX_BLOCKS = 64
MAX_BRACKETS = 80
MAX_DIGITS = 4000

_TOKEN = re.compile(
    rf"""(?P<space>[ \t\r\n]+|\#[^\n]*)
    |(?P<word>{IDENTIFIER.pattern})
    |(?P<integer>[0-9]+)
    |(?P<string>"(?:[^"\\\n]|\\[^\n])*")
    |(?P<sign>//|[=!<>]=|[-+*%(){{}}\[\],:=@.$?<>])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)")
_SIMPLE_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "t": "\t", "r": "\r"}
_DTYPES = {dtype.text: dtype for dtype in DType}


@dataclass(frozen=True, slots=True)
class Token:
    kind: TokenKind
    text: str
    loc: SrcLoc

    @property
    def shown(self) -> str:
        return "the end of the text" if self.kind == "end" else self.text


def tokens_of(text: str, file: str) -> list[Token]:
    tokens: list[Token] = []
    position = line_start = 0
    line = 1
    while position < len(text):
        found = _TOKEN.match(text, position)
        col = position - line_start + 1
        if found is None:
            fail(f"unexpected character {text[position]!r}", SrcLoc(file, line, col, col + 1))
        part = found[0]
        kind = found.lastgroup
        if kind == "word" or kind == "integer" or kind == "string" or kind == "sign":
            tokens.append(Token(kind, part, SrcLoc(file, line, col, col + len(part))))
        elif "\n" in part:
            line += part.count("\n")
            line_start = position + part.rindex("\n") + 1
        position = found.end()
    col = position - line_start + 1
    tokens.append(Token("end", "", SrcLoc(file, line, col, col + 1)))
    return tokens


def fail(message: str, loc: SrcLoc, fix: str | None = None) -> NoReturn:
    raise CompileError(Code.IR_ILLEGAL, message, loc=loc, fix=fix)


def unescaped(token: Token) -> str:
    def character(found: re.Match[str]) -> str:
        code = found[1]
        if len(code) > 1:
            number = int(code[1:], 16)
            if number > 0x10FFFF:
                fail(f"{found[0]} is not a character", token.loc)
            return chr(number)
        if code not in _SIMPLE_ESCAPES:
            fail(f"unknown escape {found[0]} in a string", token.loc)
        return _SIMPLE_ESCAPES[code]

    return _ESCAPE.sub(character, token.text[1:-1])


@dataclass(slots=True)
class Tokens:
    """Where a parser stands in its text."""

    tokens: list[Token]
    file: str
    place: int = 0
    blocks_open: int = 0
    brackets_open: int = 0

    @property
    def next(self) -> Token:
        return self.tokens[self.place]

    def take(self) -> Token:
        token = self.next
        if token.kind != "end":
            self.place += 1
        return token

    def peek(self, ahead: int) -> str:
        """The spelling of a later token; empty past the end."""
        return self.tokens[min(self.place + ahead, len(self.tokens) - 1)].text

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

    def name(self) -> str:
        """A word that is no keyword, or any name in quotes."""
        if self.next.kind == "string":
            return unescaped(self.take())
        if self.next.kind != "word":
            self.expected("a name")
        token = self.take()
        if token.text in KEYWORDS:
            fix = f'write it in quotes: "{token.text}"'
            fail(f"'{token.text}' is a keyword and cannot be a name", token.loc, fix)
        return token.text

    def optional_name(self) -> str | None:
        return None if self.accept("none") else self.name()

    def string(self) -> str:
        if self.next.kind != "string":
            self.expected("a string")
        return unescaped(self.take())

    def strings(self) -> str:
        """Literals that follow each other are one string."""
        parts = [self.string()]
        while self.next.kind == "string":
            parts.append(self.string())
        return "".join(parts)

    def integer(self) -> int:
        negative = self.accept("-")
        if self.next.kind != "integer":
            self.expected("an integer")
        token = self.take()
        if len(token.text) > MAX_DIGITS:
            fail(f"an integer of more than {MAX_DIGITS} digits", token.loc)
        return -int(token.text) if negative else int(token.text)

    def word(self, enum: type[E]) -> E:
        """One of the spellings of an enumeration."""
        spellings = {member.value: member for member in enum}
        if self.next.kind != "word" or self.next.text not in spellings:
            self.expected("one of " + ", ".join(spellings))
        return spellings[self.take().text]

    def dtype(self) -> DType:
        found = _DTYPES.get(self.next.text)
        if found is None:
            self.expected("a dtype such as f32")
        self.take()
        return found

    def loc(self) -> SrcLoc | None:
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

    def deeper(self, depth: int, limit: int) -> int:
        if depth == limit:
            fail(f"nested more than {limit} levels deep", self.next.loc)
        return depth + 1
