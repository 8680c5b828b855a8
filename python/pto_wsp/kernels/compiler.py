"""The C++ compiler of this machine: how it is found, asked and called."""

from __future__ import annotations

import functools
import itertools
import os
import platform
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pto_wsp import config

SHARED = "-shared"  # one of the base flags; only where there is something to link
_CANDIDATES = ("c++", "g++", "clang++")


@dataclass(frozen=True, slots=True)
class Compiler:
    """A compiler that answers. `command` may hold more than the program, as in `ccache g++`."""

    command: tuple[str, ...]
    version: str

    @property
    def is_clang(self) -> bool:
        return "clang" in self.version

    @property
    def identity(self) -> str:
        """Two compilers with one identity produce the same code."""
        return "\0".join((*self.command, self.version))


@dataclass(frozen=True, slots=True)
class NoCompiler:
    """No usable compiler, and the reason."""

    reason: str


def find_compiler() -> Compiler | NoCompiler:
    """PTO_WSP_CXX, else CXX, else the first of c++, g++ and clang++ on PATH."""
    chosen = config.CXX.get()
    if chosen:
        return _answering(chosen, f"{config.CXX.name} is set to it")
    from_environment = tuple(shlex.split(os.environ.get("CXX", "")))
    if from_environment:
        return _answering(from_environment, "CXX is set to it")
    for name in _CANDIDATES:
        found = _answering((name,), "it is on PATH")
        if isinstance(found, Compiler):
            return found
    names = ", ".join(_CANDIDATES)
    return NoCompiler(f"none of {names} is on PATH, and neither {config.CXX.name} nor CXX is set")


def _answering(command: tuple[str, ...], source: str) -> Compiler | NoCompiler:
    program = shutil.which(command[0])
    if program is None:
        return NoCompiler(f"{command[0]!r} was not found ({source})")
    try:
        changed = os.stat(program).st_mtime_ns
        return Compiler((program, *command[1:]), _version((program, *command[1:]), changed))
    except (OSError, subprocess.SubprocessError) as error:
        return NoCompiler(f"{shlex.join(command)!r} does not answer to --version: {error}")


@functools.cache
def _version(command: tuple[str, ...], changed: int) -> str:
    """What the compiler says of itself; asked again only when the program file has changed."""
    del changed
    done = run((*command, "--version"))
    done.check_returncode()
    return done.stdout.strip()


def run(command: tuple[str, ...], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a compiler, with its messages in English."""
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )


@dataclass(frozen=True, slots=True)
class Build:
    """How kernel bodies are compiled."""

    level: int = 3  # -O
    debug: bool = False  # symbols, and nothing that a debugger could not follow


def base_flags(build: Build) -> tuple[str, ...]:
    """Flags of every kernel build. Nothing here lets the compiler change a result's bits from one
    task to another: no -ffast-math; errno and floating-point traps are not results."""
    return (
        "-std=c++20",
        f"-O{build.level}",
        *(("-g", "-fno-omit-frame-pointer") if build.debug else ()),
        *_native_flags(),
        "-fPIC",
        SHARED,
        "-fvisibility=hidden",
        "-fno-math-errno",
        "-fno-trapping-math",
    )


def _native_flags() -> tuple[str, ...]:
    match platform.machine().lower():
        case "x86_64" | "amd64" | "i686":
            return ("-march=native",)
        case "aarch64" | "arm64":
            return ("-mcpu=native",)
        case _:
            return ()


def num_cpus() -> int:
    """How many compilers may run at the same time."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def machine_isa() -> str:
    """What `native` means here. A cache folder may be shared by machines, so keys hold this."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            # One block per core; the first is enough, and there may be hundreds.
            block = [line.strip() for line in itertools.takewhile(str.strip, lines)]
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("flags", "Features", "model name", "CPU part", "CPU implementer", "isa")
    return "\n".join([platform.machine(), *(line for line in block if line.startswith(wanted))])
