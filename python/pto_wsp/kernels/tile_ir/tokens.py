"""The tokens of the text form of tile kernels."""

from __future__ import annotations

import re

from pto_wsp.tokens import SPACE, STRING, TokenReader, fail

MAX_DIGITS = 400

_TOKEN = re.compile(
    rf"""{SPACE}
    |(?P<value>%[0-9]+(?:\.[A-Za-z_][A-Za-z_0-9]*)?)
    |(?P<word>[A-Za-z_][A-Za-z_0-9]*)
    |(?P<number>[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)
    |{STRING}
    |(?P<sign>[-(){{}}\[\],:=@?])""",
    re.VERBOSE,
)


class Tokens(TokenReader):
    """Where a parser stands in its text."""

    def __init__(self, text: str, file: str) -> None:
        super().__init__(text, file, _TOKEN)

    def word(self, what: str) -> str:
        if self.next.kind != "word":
            self.expected(what)
        return self.take().text

    def name(self) -> str:
        return self.string() if self.next.kind == "string" else self.word("a name")

    def number(self) -> int | float:
        """A whole number, or one with a point or an exponent."""
        negative = self.accept("-")
        if self.at("inf", "nan"):
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
