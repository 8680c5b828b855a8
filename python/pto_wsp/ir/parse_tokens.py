"""The tokens of the text form, and what every rule of the parser uses."""

from __future__ import annotations

import re
from enum import Enum
from typing import TypeVar

from pto_wsp.ir.text import (
    IDENTIFIER,
    KEYWORDS,
)
from pto_wsp.tokens import SPACE, STRING, TokenReader, fail, unescaped

E = TypeVar("E", bound=Enum)

# How deep the text may nest: more than `verify` lets through, less than Python's own stack.
MAX_BLOCKS = 64
MAX_BRACKETS = 80
MAX_DIGITS = 4000

_TOKEN = re.compile(
    rf"""{SPACE}
    |(?P<word>{IDENTIFIER.pattern})
    |(?P<integer>[0-9]+)
    |{STRING}
    |(?P<sign>//|[=!<>]=|[-+*%(){{}}\[\],:=@.$?<>])""",
    re.VERBOSE,
)


class Tokens(TokenReader):
    """Where a parser stands in its text."""

    def __init__(self, text: str, file: str) -> None:
        super().__init__(text, file, _TOKEN)
        self.blocks_open = 0
        self.brackets_open = 0

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

    def deeper(self, depth: int, limit: int) -> int:
        if depth == limit:
            fail(f"nested more than {limit} levels deep", self.next.loc)
        return depth + 1
