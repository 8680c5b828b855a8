"""Files and functions stay small enough to read in one sitting."""

import ast
from collections.abc import Iterator
from pathlib import Path

from repo import Finding, files_in, is_generated, relative, text_lines

SUFFIXES = (".py", ".c", ".cpp", ".h", ".def", ".cu", ".cuh")
FILE_SOFT_CAP = 500
FILE_HARD_CAP = 800
FUNCTION_CAP = 80


def check() -> Iterator[Finding]:
    for path in files_in(suffixes=SUFFIXES):
        lines = text_lines(path)
        if is_generated(lines):
            continue
        yield from check_file(path, len(lines))
        if path.suffix == ".py":
            yield from check_functions(path, "\n".join(lines))


def check_file(path: Path, count: int) -> Iterator[Finding]:
    if count > FILE_HARD_CAP:
        yield Finding(relative(path), 1, f"{count} lines; the cap is {FILE_HARD_CAP}: split it")
    elif count > FILE_SOFT_CAP:
        message = f"{count} lines; aim for at most {FILE_SOFT_CAP}"
        yield Finding(relative(path), 1, message, soft=True)


def check_functions(path: Path, source: str) -> Iterator[Finding]:
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        yield Finding(relative(path), error.lineno or 1, f"does not parse: {error.msg}")
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        count = (node.end_lineno or node.lineno) - node.lineno + 1
        if count > FUNCTION_CAP:
            message = f"{node.name} has {count} lines; the cap is {FUNCTION_CAP}"
            yield Finding(relative(path), node.lineno, message)
