"""The tokens of the text form of tile kernels."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NoReturn, TypeAlias

from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.srcloc import SrcLoc

Kind: TypeAlias = Literal["value", "word", "number", "string", "sign", "end"]

MAX_DIGITS = 400

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+|\#[^\n]*)
    |(?P<value>%[0-9]+(?:\.[A-Za-z_][A-Za-z_0-9]*)?)
    |(?P<word>[A-Za-z_][A-Za-z_0-9]*)
    |(?P<number>[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)
    |(?P<string>"(?:[^"\\\n]|\\[^\n])*")
    |(?P<sign>[-(){}\[\],:=@?])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)")
_SIMPLE_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "t": "\t", "r": "\r"}


@dataclass(frozen=True, slots=True)
class Token:
    kind: Kind
    text: str
    loc: SrcLoc

    @property
    def shown(self) -> str:
        return "the end of the text" if self.kind == "end" else self.text


def fail(message: str, loc: SrcLoc) -> NoReturn:
    raise CompileError(
        Code.IR_ILLEGAL, message, loc=loc, why="the text is not that of a tile kernel"
    )


def tokens_of(text: str, file: str) -> list[Token]:
    tokens: list[Token] = []
    position = line_start = 0
    line = 1
    while position < len(text):
        found = _TOKEN.match(text, position)
        col = position - line_start + 1
        if found is None:
            fail(f"unexpected character {text[position]!r}", SrcLoc(file, line, col, col + 1))
        part, kind = found[0], found.lastgroup
        loc = SrcLoc(file, line, col, col + len(part))
        if kind == "value" or kind == "word" or kind == "number" or kind == "string":
            tokens.append(Token(kind, part, loc))
        elif kind == "sign":
            tokens.append(Token("sign", part, loc))
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


class Tokens:
    """Where a parser stands in its text."""

    def __init__(self, text: str, file: str) -> None:
        self._tokens = tokens_of(text, file)
        self._place = 0

    @property
    def next(self) -> Token:
        return self._tokens[self._place]

    @property
    def second(self) -> str:
        """The spelling of the token behind the next one."""
        return self._tokens[min(self._place + 1, len(self._tokens) - 1)].text

    def take(self) -> Token:
        token = self.next
        if token.kind != "end":
            self._place += 1
        return token

    def at(self, text: str) -> bool:
        return self.next.kind in ("word", "sign") and self.next.text == text

    def accept(self, text: str) -> bool:
        if not self.at(text):
            return False
        self.take()
        return True

    def expect(self, text: str) -> None:
        if not self.accept(text):
            self.expected(f"'{text}'")

    def expected(self, what: str) -> NoReturn:
        fail(f"expected {what}, found {self.next.shown}", self.next.loc)

    def word(self, what: str) -> str:
        if self.next.kind != "word":
            self.expected(what)
        return self.take().text

    def string(self) -> str:
        if self.next.kind != "string":
            self.expected("a string")
        return unescaped(self.take())

    def name(self) -> str:
        return self.string() if self.next.kind == "string" else self.word("a name")

    def number(self) -> int | float:
        """A whole number, or one with a point or an exponent."""
        negative = self.accept("-")
        if self.at("inf") or self.at("nan"):
            number: int | float = float(self.take().text)
            return -number if negative else number
        if self.next.kind != "number":
            self.expected("a number")
        token = self.take()
        if len(token.text) > MAX_DIGITS:
            fail(f"a number of more than {MAX_DIGITS} digits", token.loc)
        whole = token.text.isdigit()
        number = int(token.text) if whole else float(token.text)
        return -number if negative else number

    def integer(self) -> int:
        token = self.next
        number = self.number()
        if not isinstance(number, int):
            fail("expected a whole number", token.loc)
        return number

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
