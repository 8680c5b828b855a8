"""Sources hold what works today: plans go to the issue tracker, stubs nowhere."""

import re
from collections.abc import Iterator

from repo import Finding, files_in, relative, text_lines

MARK = re.compile(r"\b(TODO|FIXME|XXX|HACK|NotImplementedError)\b")


def check() -> Iterator[Finding]:
    for path in files_in("python", "core"):
        for number, line in enumerate(text_lines(path), start=1):
            if match := MARK.search(line):
                yield Finding(relative(path), number, f"{match[0]}: finish it or leave it out")
