"""Python stays in core/bind/; public headers need the standard library and each other only."""

import re
from collections.abc import Iterator

from repo import Finding, files_in, relative, text_lines

SUFFIXES = (".c", ".cpp", ".h", ".def", ".cu", ".cuh")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
PYTHON = re.compile(r"^(nanobind/|Python\.h$|structmember\.h$|pybind11/)")

# Headers of standard C++20 have no dot, except those shared with C.
STANDARD = re.compile(
    r"[a-z_]+|(assert|complex|ctype|errno|fenv|float|inttypes|iso646|limits|locale|math|setjmp"
    r"|signal|stdalign|stdarg|stdatomic|stdbool|stddef|stdint|stdio|stdlib|string|tgmath|time"
    r"|uchar|wchar|wctype)\.h"
)


def check() -> Iterator[Finding]:
    for path in files_in("core", "tests", "examples", "benchmarks", suffixes=SUFFIXES):
        name = relative(path)
        for number, line in enumerate(text_lines(path), start=1):
            match = INCLUDE.match(line)
            if match is None:
                continue
            message = verdict(name, quote=match[1], header=match[2])
            if message:
                yield Finding(name, number, message)


def verdict(name: str, quote: str, header: str) -> str | None:
    """Why file `name` may not include `header`, or None when it may."""
    if PYTHON.match(header) and not name.startswith("core/bind/"):
        return f"{header} belongs in core/bind/ only"
    if not name.startswith("core/include/"):
        return None
    if quote == '"' and not header.startswith("ptowsp/"):
        return f'spell "{header}" from the include root: "ptowsp/..."'
    if quote == "<" and not STANDARD.fullmatch(header):
        return f"<{header}> is not in the standard library; include it in core/src/ instead"
    return None
