"""Finding a kernel in the user's file: its definition, and the first character of its C++ text."""

from __future__ import annotations

import ast
import dis
import functools
import linecache
import re
from types import FunctionType

from pto_wsp.srcloc import SrcLoc

# What is left of a function whose body is `...`, `pass` or a docstring.
_EMPTY_BODY = frozenset(
    ("RESUME", "NOP", "LOAD_CONST", "RETURN_VALUE", "RETURN_CONST", "MAKE_CELL", "COPY_FREE_VARS")
)
_OPENING_QUOTES = re.compile(r"[A-Za-z]*('''|\"\"\"|'|\")")


def has_empty_body(function: FunctionType) -> bool:
    """Whether the body is `...`, `pass` or a docstring, and nothing else."""
    return all(
        instruction.opname in _EMPTY_BODY
        and (instruction.opname not in ("LOAD_CONST", "RETURN_CONST") or instruction.argval is None)
        for instruction in dis.get_instructions(function)
    )


def definition(function: FunctionType) -> SrcLoc:
    """Where the function's `def` stands; the decorator's line if the source cannot be read."""
    node = _node(function)
    if node is None:
        return _decorator_line(function)
    return SrcLoc(function.__code__.co_filename, node.lineno)


def cpp_text(function: FunctionType) -> SrcLoc:
    """Where the text of `cpp_src="..."` begins, so that compiler messages can name the user's
    lines; the decorator's line if it is not written as one string literal."""
    node = _node(function)
    literal = None if node is None else _cpp_literal(node)
    if literal is None:
        return _decorator_line(function)
    file = function.__code__.co_filename
    raw = linecache.getline(file, literal.lineno).encode()
    quotes = _OPENING_QUOTES.match(raw[literal.col_offset :].decode(errors="replace"))
    if quotes is None:
        return _decorator_line(function)
    before = len(raw[: literal.col_offset].decode(errors="replace"))
    return SrcLoc(file, literal.lineno, before + quotes.end() + 1)


def leaves_with(function: FunctionType) -> SrcLoc | None:
    """Where a function leaves a `with` block by return, break or continue; None if nowhere."""
    node = _node(function)
    withs = () if node is None else ast.walk(node)
    for each in withs:
        if isinstance(each, ast.With):
            found = _jump(each.body, ast.Return, ast.Break, ast.Continue)
            if found is not None:
                return SrcLoc(function.__code__.co_filename, found.lineno)
    return None


def _jump(body: list[ast.stmt], *kinds: type[ast.stmt]) -> ast.stmt | None:
    """The first statement of these kinds that leaves the body."""
    for statement in body:
        if isinstance(statement, kinds):
            return statement
        inner = (ast.Return,) if isinstance(statement, ast.For | ast.While) else kinds
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            continue
        for part in ("body", "orelse", "handlers", "finalbody"):
            found = _jump(getattr(statement, part, []), *inner)
            if found is not None:
                return found
    return None


def _decorator_line(function: FunctionType) -> SrcLoc:
    return SrcLoc(function.__code__.co_filename, function.__code__.co_firstlineno)


def _node(function: FunctionType) -> ast.FunctionDef | None:
    """The function's definition in its file: the one that begins, decorators included, at the line
    where the compiled function begins."""
    code = function.__code__
    for node in _definitions("".join(linecache.getlines(code.co_filename))):
        first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        if node.name == code.co_name and first == code.co_firstlineno:
            return node
    return None


@functools.lru_cache(maxsize=8)
def _definitions(source: str) -> tuple[ast.FunctionDef, ...]:
    """A file with many kernels is parsed once."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # a file that changed since it was imported
        return ()
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def _cpp_literal(node: ast.FunctionDef) -> ast.Constant | None:
    for decorator in node.decorator_list:
        keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
        for keyword in keywords:
            value = keyword.value
            if keyword.arg == "cpp_src" and isinstance(value, ast.Constant):
                return value
    return None
