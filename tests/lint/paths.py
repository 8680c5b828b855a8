"""Nothing in the project names one machine's folders or a package registry's host."""

import re
from collections.abc import Iterator

from repo import Finding, files_in, relative, text_lines

# The bracketed letters keep this file from matching itself.
RULES = (
    (re.compile(r"(?<![\w.~-])/(wor[k]|roo[t])/"), "a path of one machine"),
    (re.compile(r"(?<![\w.~-])/(hom[e]|User[s])/\w"), "a path of one machine"),
    (re.compile(r"pyp[i]\.org|pythonhoste[d]\.org|npmj[s]\.(org|com)"), "a registry host"),
    (re.compile(r"deb\.debia[n]\.org|archive\.ubunt[u]\.com"), "a registry host"),
    (re.compile(r"\b(extra-)?index-ur[l]\b|\bfind-link[s]\b"), "a registry setting"),
)


def check() -> Iterator[Finding]:
    for path in files_in():
        for number, line in enumerate(text_lines(path), start=1):
            for pattern, what in RULES:
                if match := pattern.search(line):
                    yield Finding(relative(path), number, f"{what}: {match[0]}")
