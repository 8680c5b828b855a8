"""Every environment variable of the package, typed, in one table.

A variable is read when it is needed, so a change between two calls acts on the second. An empty
value counts as unset.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pto_wsp.error_codes import Code
from pto_wsp.errors import PtoError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Variable(Generic[T]):
    """One environment variable: `parse` raises ValueError for a text that is not `expected`."""

    name: str
    expected: str
    default_text: str
    doc: str
    parse: Callable[[str], T]
    default: Callable[[], T]

    def get(self) -> T:
        """Its value now; PtoError if the text makes no sense."""
        text = os.environ.get(self.name, "").strip()
        if not text:
            return self.default()
        try:
            return self.parse(text)
        except ValueError as error:
            raise PtoError(
                Code.ENVIRONMENT,
                f"environment variable {self.name} is {text!r}: expected {self.expected}",
                why=str(error),
                fix=f"set {self.name} to {self.expected}, or unset it (default: "
                f"{self.default_text})",
            ) from None


def _folder(text: str) -> Path:
    path = Path(text).expanduser()
    if not path.is_absolute():
        raise ValueError("the path is relative, so it would depend on the current folder")
    return path


def _integer(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError("it is not an integer") from None
        if not low <= value <= high:
            raise ValueError(f"it is outside {low} .. {high}")
        return value

    return parse


def _words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ValueError(f"it does not split into words: {str(error).lower()}") from None


def _default_cache_dir() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "pto_wsp"
    # The XDG rule: a relative path there is invalid and is to be ignored.
    base = os.environ.get("XDG_CACHE_HOME", "")
    folder = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return folder / "pto_wsp"


CACHE_DIR = Variable(
    name="PTO_WSP_CACHE_DIR",
    expected="an absolute path",
    default_text="~/.cache/pto_wsp, below XDG_CACHE_HOME if that is set; macOS: ~/Library/Caches",
    doc="Folder that keeps compiled kernels.",
    parse=_folder,
    default=_default_cache_dir,
)
CACHE_MAX_MB = Variable(
    name="PTO_WSP_CACHE_MAX_MB",
    expected="an integer from 1 to 1048576",
    default_text="512",
    doc="Size of that folder above which the kernels used least recently are removed.",
    parse=_integer(1, 1 << 20),
    default=lambda: 512,
)
CXX: Variable[tuple[str, ...]] = Variable(
    name="PTO_WSP_CXX",
    expected="a command",
    default_text="CXX if set, else the first of c++, g++, clang++ on PATH",
    doc="C++20 compiler for kernel bodies; may hold arguments, as in 'ccache g++'.",
    parse=_words,
    default=tuple,
)
CXXFLAGS: Variable[tuple[str, ...]] = Variable(
    name="PTO_WSP_CXXFLAGS",
    expected="compiler arguments",
    default_text="none",
    doc="Arguments added behind the package's own when kernel bodies are compiled.",
    parse=_words,
    default=tuple,
)
NO_JIT = Variable(
    name="PTO_WSP_NO_JIT",
    expected="0 or 1",
    default_text="0",
    doc="1 forbids compiling kernels: what the cache does not hold is an error.",
    parse=_integer(0, 1),
    default=lambda: 0,
)
NUM_THREADS = Variable(
    name="PTO_WSP_NUM_THREADS",
    expected="an integer from 0 to 4096",
    default_text="0",
    doc="Workers of a program compiled without num_threads; 0: one per core.",
    parse=_integer(0, 4096),
    default=lambda: 0,
)
DEBUG = Variable(
    name="PTO_WSP_DEBUG",
    expected="an integer from 0 to 5",
    default_text="0",
    doc="What is told on stderr. 1: compiler runs and cache hits. 3: generated C++ too.",
    parse=_integer(0, 5),
    default=lambda: 0,
)

VARIABLES: tuple[Variable[Any], ...] = (
    CACHE_DIR,
    CACHE_MAX_MB,
    CXX,
    CXXFLAGS,
    NO_JIT,
    NUM_THREADS,
    DEBUG,
)
