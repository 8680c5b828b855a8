"""C++ kernels to loaded machine code, through a cache keyed by all that decides the result."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from pto_wsp import config
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.kernels.cache import KernelCache, hold
from pto_wsp.kernels.compiler import (
    SHARED,
    Build,
    Compiler,
    NoCompiler,
    base_flags,
    find_compiler,
    machine_isa,
    num_cpus,
    run,
)
from pto_wsp.kernels.diagnostics import compile_error
from pto_wsp.kernels.emit_cpp import UNIT_NAME, CppUnit
from pto_wsp.kernels.parts import split
from pto_wsp.plan import Plan

# Headers of the package: what a unit includes, and what that leads to.
_OWN_INCLUDE = re.compile(
    r'^\s*#\s*include\s*[<"](ptowsp(?:_kernel|_tile)?/[\w./]+|[\w.]+\.h)[>"]', re.MULTILINE
)
# Said on every system, because a plan may come from another one.
_INSTALL = (
    "install one (Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++; macOS: "
    "xcode-select --install), or set PTO_WSP_CXX, or give these kernels Python bodies"
)

_LIBRARY = "kernels.so"
_FIND_INCLUDES = ("-MMD", "-MF", "deps")

# A library stays loaded for the life of the process: threads may be inside it.
_libraries: dict[Path, ctypes.CDLL] = {}


def compile_unit(plan: Plan, unit: CppUnit, build: Build) -> ctypes.CDLL:
    """The loaded library of a unit: from the cache, or compiled now."""
    if config.DEBUG.get() >= 3:
        print(unit.text, file=sys.stderr)
    headers = _read_headers(unit.text)
    flags = (*base_flags(build), *config.CXXFLAGS.get())
    header_texts = [part for item in sorted(headers.items()) for part in item]
    source_key = _key([unit.text, *flags, machine_isa(), *header_texts])
    cache = KernelCache(config.CACHE_DIR.get() / "kernels", config.CACHE_MAX_MB.get() << 20)
    compiler = find_compiler()
    compiler_key = _key([compiler.identity])[:16] if isinstance(compiler, Compiler) else None

    library = _load_cached(cache.find(source_key, compiler_key))
    if library is not None:
        return library
    names = ", ".join(plan.kernel_names[i] for i in unit.kernels)
    if config.NO_JIT.get() == 1:
        raise CompileError(
            Code.KERNEL_NOT_COMPILED,
            f"the kernels of this program have not been compiled yet: {names}",
            why=f"{config.NO_JIT.name} is 1, and the cache does not hold them",
            fix=f"run the program once with {config.NO_JIT.name}=0 and the same "
            f"{config.CACHE_DIR.name}, compiler and machine",
        )
    if isinstance(compiler, NoCompiler):
        raise CompileError(
            Code.CPP_COMPILER_MISSING,
            f"a C++ compiler is needed for the C++ kernels of this program: {names}",
            why=f"there is none: {compiler.reason}",
            fix=_INSTALL,
        )
    try:
        with cache.scratch() as folder:
            built = _compile(plan, unit, headers, compiler, flags, folder)
            if _has_foreign_includes(folder, headers):
                # The key does not cover files of the user, so this result cannot be kept.
                return _load_once(built)
            return _load(cache.store(source_key, str(compiler_key), built))
    except OSError as error:
        raise CompileError(
            Code.KERNEL_LIBRARY,
            "compiled kernels cannot be stored",
            why=str(error),
            fix=f"set {config.CACHE_DIR.name} to a folder that can be written",
        ) from error


def _key(parts: Iterable[str]) -> str:
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode()
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


def _read_headers(unit: str) -> dict[str, str]:
    """The texts of the package's headers that a unit needs, by their names in `#include`."""
    texts: dict[str, str] = {}
    waiting = [name for name in _OWN_INCLUDE.findall(unit) if name.startswith("ptowsp")]
    while waiting:
        name = waiting.pop()
        path = _header_path(name)
        if name in texts or not path.is_file():
            continue  # a body may include what there is not: that is for the compiler to say
        texts[name] = path.read_text("utf-8")
        for found in _OWN_INCLUDE.findall(texts[name]):
            folder = name.rpartition("/")[0]
            waiting.append(found if "/" in found else f"{folder}/{found}")  # beside it
    return texts


_FOLDERS = {"ptowsp_kernel": "kernel", "ptowsp_tile": "tile"}


def _header_path(name: str) -> Path:
    """In the source tree if this is one, else beside the installed core."""
    folder, _, rest = name.partition("/")
    tree = Path(__file__).resolve().parents[3] / "core"
    path = tree / _FOLDERS.get(folder, f"include/{folder}") / rest
    return path if path.is_file() else _installed_headers() / name


def _installed_headers() -> Path:
    core = importlib.util.find_spec("pto_wsp._core")
    assert core is not None
    assert core.origin is not None  # plans cannot be read without the core
    return Path(core.origin).parent / "include"


def _compile(
    plan: Plan,
    unit: CppUnit,
    headers: Mapping[str, str],
    compiler: Compiler,
    flags: tuple[str, ...],
    folder: Path,
) -> Path:
    # The headers are copied, so that the result is of exactly the texts that the key covers.
    for name, text in headers.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    columns = () if compiler.is_clang else ("-fdiagnostics-column-unit=byte",)
    start = (*compiler.command, *flags, *columns, "-fdiagnostics-color=never", "-I.")
    texts = split(unit, num_cpus())
    names = [UNIT_NAME, *(f"part-{i}.cpp" for i in range(1, len(texts)))]
    for name, text in zip(names, texts, strict=True):
        (folder / name).write_text(text, "utf-8")
    if len(texts) == 1:
        commands = [(*start, *_FIND_INCLUDES, UNIT_NAME, "-o", _LIBRARY)]
    else:
        apart = (*(flag for flag in start if flag != SHARED), "-c")
        # Only the first part can include files of the user.
        commands = [
            (*apart, *(_FIND_INCLUDES if name == UNIT_NAME else ()), name, "-o", f"{name}.o")
            for name in names
        ]
        commands.append((*start, *(f"{name}.o" for name in names), "-o", _LIBRARY))
    _run_all(plan, unit, commands[: len(names)], folder)
    _run_all(plan, unit, commands[len(names) :], folder)
    return folder / _LIBRARY


def _run_all(plan: Plan, unit: CppUnit, commands: list[tuple[str, ...]], folder: Path) -> None:
    """Runs commands at the same time."""
    for command in commands:
        _tell(shlex.join(command))
    with ThreadPoolExecutor(max(1, len(commands))) as pool:
        done = list(pool.map(partial(run, cwd=folder), commands))
    for command, each in zip(commands, done, strict=True):
        if each.returncode != 0:
            raise compile_error(plan, unit, each.stderr, shlex.join(command))


def _has_foreign_includes(folder: Path, headers: Mapping[str, str]) -> bool:
    """Whether bodies included files that are neither the system's nor the package's own."""
    rule = (folder / "deps").read_text("utf-8").replace("\\\n", " ")
    _, _, names = rule.partition(":")
    own = {UNIT_NAME, *headers}
    return any(name.removeprefix("./") not in own for name in shlex.split(names))


def _load_cached(path: Path | None) -> ctypes.CDLL | None:
    """The library in a file of the cache; None if another process has evicted it by now."""
    if path is None:
        return None
    try:
        library = _load(path)
    except CompileError:
        if path.exists():
            raise
        return None
    _tell(f"cached kernels: {path}")
    return library


def _load(path: Path) -> ctypes.CDLL:
    hold(path)
    library = _libraries.get(path)
    if library is None:
        library = _libraries.setdefault(path, _load_once(path))
    return library


def _load_once(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        reason = str(error).replace(f"{path}: ", "")
        raise CompileError(
            Code.KERNEL_LIBRARY,
            "the compiled kernels cannot be loaded",
            why=reason,
            fix="if a function or library is missing, name it in PTO_WSP_CXXFLAGS (-l..., -L...)",
        ) from error


def _tell(text: str) -> None:
    if config.DEBUG.get() >= 1:
        print(f"pto_wsp: {text}", file=sys.stderr)
