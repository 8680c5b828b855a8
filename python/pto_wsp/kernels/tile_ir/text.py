"""Prints a tile kernel in its text form, which `from_text` reads back.

    tile kernel scale(%0.x: in f32[16, 128], %1.y: out f32[16, 128], %2.s: f32) {
      %3: i64 = const dtype="i64", value=0
      %4.x: f32[16?, 128?] = load %0.x, %3, %3, sizes=(16, 128) @ "scale.py":5:14-23
      %5: f32[16?, 128?] = mul %4.x, %2.s
      store %1.y, %5, %3, %3, sizes=(16, 128)
    }

A value is a number, unique in the kernel, and perhaps the user's name. Where it is defined its type
follows: a scalar `f32`, a tile `f32[16, 128?]`, whose question mark says that there may be fewer
columns, or a parameter: `in f32[16, 128]`, `out f32[:, :]` without known extents, `in paged
f32[:, :]`. A block follows its statement: `do (parameters) { statements, yield values }`. `@` is
the user's line, `#` starts a comment.
"""

from __future__ import annotations

import math
import os
import re

from pto_wsp.kernels.tile_ir.nodes import Attribute, Block, Statement, TileKernel, Value
from pto_wsp.kernels.tile_ir.operands import type_text
from pto_wsp.srcloc import SrcLoc

NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_INDENT = "  "


def to_text(kernel: TileKernel, *, locs: bool = True, folders: bool = True) -> str:
    """The text form of a kernel; `locs=False` leaves source positions out, `folders=False` the
    folders of files, so that the text is the same wherever the program lies."""
    printer = _Printer(locs, folders)
    params = ", ".join(_defined(param) for param in kernel.params)
    head = f"tile kernel {string_or_name(kernel.name)}({params})"
    return "\n".join(
        [f"{head}{printer.loc(kernel.loc)} {{", *printer.body(kernel.body, 1), "}", ""]
    )


def string_or_name(text: str) -> str:
    return text if NAME.fullmatch(text) else string_text(text)


def string_text(text: str) -> str:
    """A string literal on one line."""
    return '"' + "".join(_escaped(char) for char in text) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    return char if char.isprintable() else char.encode("unicode_escape").decode()


def value_text(value: Value) -> str:
    """`%4.x`: a value where it is used."""
    return f"%{value.number}" + (f".{value.name}" if NAME.fullmatch(value.name) else "")


def _defined(value: Value) -> str:
    return f"{value_text(value)}: {type_text(value.type)}"


def _attribute(value: Attribute) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return "nan" if math.isnan(value) else repr(float(value))
        case str():
            return string_text(value)
        case tuple():
            return f"({', '.join(map(str, value))})"


class _Printer:
    def __init__(self, locs: bool, folders: bool) -> None:
        self._locs = locs
        self._folders = folders

    def body(self, statements: tuple[Statement, ...], depth: int) -> list[str]:
        return [line for each in statements for line in self.statement(each, depth)]

    def statement(self, statement: Statement, depth: int) -> list[str]:
        results = ", ".join(_defined(result) for result in statement.results)
        arguments = [value_text(operand) for operand in statement.operands]
        arguments += [f"{key}={_attribute(value)}" for key, value in statement.attributes]
        call = " ".join(part for part in (statement.op.value, ", ".join(arguments)) if part)
        head = f"{results} = {call}" if results else call
        lines = [_INDENT * depth + head + self.loc(statement.loc)]
        for block in statement.blocks:
            self._block(block, depth, lines)
        return lines

    def _block(self, block: Block, depth: int, lines: list[str]) -> None:
        """The block begins on the line on which the statement, or the block before it, ends."""
        params = ", ".join(_defined(param) for param in block.params)
        lines[-1] += f" do ({params}) {{"
        lines += self.body(block.body, depth + 1)
        if block.yields:
            values = ", ".join(value_text(value) for value in block.yields)
            lines.append(f"{_INDENT * (depth + 1)}yield {values}")
        lines.append(_INDENT * depth + "}")

    def loc(self, loc: SrcLoc | None) -> str:
        if loc is None or not self._locs:
            return ""
        columns = f":{loc.col}-{loc.end_col}" if loc.col or loc.end_col else ""
        file = loc.file if self._folders else os.path.basename(loc.file)
        return f" @ {string_text(file)}:{loc.line}{columns}"
