"""Compiles the rivals into a cache, and installs what they need where that is allowed."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
CACHE = ROOT / "build" / "bench" / "rivals"
BASE_FLAGS = ("-std=c++20", "-O3", "-march=native", "-fPIC", "-shared", "-Wall", "-Wextra")


class Unavailable(Exception):
    """A rival cannot be built here; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file that becomes a shared library."""

    name: str
    flags: tuple[str, ...] = ()
    header: str | None = None  # must be found, else `package` (a Debian name) is installed
    package: str | None = None
    optional: bool = False  # used if it is installed, never installed for this
    folder: Path = FOLDER


SOURCES = {
    "spin": Source("spin"),
    "stream": Source("stream", ("-pthread",), folder=ROOT / "benchmarks" / "llm"),
    "pages": Source("pages", ("-pthread",), folder=ROOT / "benchmarks" / "llm"),
    "tbb": Source("tbb", ("-ltbb",), "tbb/flow_graph.h", "libtbb-dev"),
    "omp": Source("omp", ("-fopenmp",), "omp.h"),
    "starpu": Source("starpu", ("-lstarpu-1.3",), "starpu.h", "libstarpu-dev", optional=True),
}


def load(name: str) -> ctypes.CDLL:
    """The compiled library of a source; Unavailable if it cannot be had."""
    source = SOURCES[name]
    compiler = _compiler()
    flags = _flags(source)
    _provide(source, compiler, flags)
    path = _compile(source, compiler, flags)
    return ctypes.CDLL(str(path))


def _compiler() -> str:
    """gcc, since its OpenMP is what is compared with."""
    name = os.environ.get("GXX", "g++")
    found = shutil.which(name)
    if found is None:
        raise Unavailable(f"{name} was not found; install it (Debian: g++), or set GXX")
    return found


def _flags(source: Source) -> tuple[str, ...]:
    if source.name != "starpu":
        return source.flags
    # Debian keeps its headers in a folder of the version, which pkg-config knows.
    try:
        asked = subprocess.run(
            ["pkg-config", "--cflags", "--libs", "starpu-1.3"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return ("-I/usr/include/starpu/1.3", *source.flags)
    return tuple(asked.stdout.split())


def _provide(source: Source, compiler: str, flags: tuple[str, ...]) -> None:
    if source.header is None or _has_header(source.header, compiler, flags):
        return
    if source.package is None:
        raise Unavailable(f"{compiler} does not find {source.header}")
    if source.optional:
        raise Unavailable(f"{source.package} is not installed (optional)")
    done = subprocess.run(
        [str(ROOT / "tools" / "apt-install.sh"), source.package],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0 or not _has_header(source.header, compiler, flags):
        raise Unavailable(
            f"{source.header} was not found: {done.stderr.strip() or 'installing did not help'}"
        )


def _has_header(header: str, compiler: str, flags: tuple[str, ...]) -> bool:
    includes = [flag for flag in flags if flag.startswith(("-I", "-f"))]
    done = subprocess.run(
        [compiler, "-std=c++20", "-E", "-x", "c++", *includes, "-o", os.devnull, "-"],
        input=f"#include <{header}>\n",
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode == 0


def _compile(source: Source, compiler: str, flags: tuple[str, ...]) -> Path:
    file = source.folder / f"{source.name}.cpp"
    version = subprocess.run([compiler, "--version"], capture_output=True, check=True).stdout
    state = hashlib.blake2b(version, digest_size=12)
    for part in (*BASE_FLAGS, *flags):
        state.update(part.encode() + b"\0")
    for text in (file, FOLDER / "graphs.h"):
        state.update(text.read_bytes())
    target = CACHE / f"{source.name}-{state.hexdigest()}.so"
    if target.exists():
        return target
    CACHE.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(f".{os.getpid()}")
    command = [compiler, *BASE_FLAGS, str(file), *flags, "-o", str(partial)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"{source.name}.cpp does not compile:\n{done.stderr[-2000:]}")
    partial.replace(target)  # another process may be doing the same
    return target
