"""The kernel cache: what is found, what is rebuilt, what is removed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pto_wsp import _core
from pto_wsp.errors import CompileError, PtoError
from pto_wsp.kernels import cache as cache_module
from pto_wsp.kernels import compile as compile_module
from pto_wsp.kernels import load_kernels
from pto_wsp.kernels.cache import KernelCache
from pto_wsp.plan import Plan
from tests.kernels.run_native import run
from tests.kernels.sketch import one_kernel, out

ROOT = Path(__file__).resolve().parents[2]


def plan_that_writes(value: int) -> Plan:
    return one_kernel([out("o")], f"o[0] = {value};", name="k")


def result_of(plan: Plan) -> float:
    o = np.zeros(1, np.float32)
    run(plan, o=o)
    return float(o[0])


def libraries(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.so"))


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The commands that the compiler was called with from now on."""
    commands: list[tuple[str, ...]] = []
    real = compile_module.run

    def counted(command: tuple[str, ...], cwd: Path | None = None) -> object:
        commands.append(command)
        return real(command, cwd)

    monkeypatch.setattr(compile_module, "run", counted)
    return commands


def test_second_load_compiles_nothing(cache_dir: Path, compiles: list[tuple[str, ...]]) -> None:
    assert result_of(plan_that_writes(1)) == 1
    assert result_of(plan_that_writes(1)) == 1
    assert len(compiles) == 1
    assert len(libraries(cache_dir)) == 1
    assert not list(cache_dir.rglob("build-*"))


def test_every_part_of_the_key_counts(
    cache_dir: Path, compiles: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    load_kernels(plan_that_writes(1), {})
    load_kernels(plan_that_writes(2), {})
    assert len(compiles) == 2
    monkeypatch.setenv("PTO_WSP_CXXFLAGS", "-O1")
    load_kernels(plan_that_writes(1), {})
    assert len(compiles) == 3
    monkeypatch.setattr(compile_module, "machine_isa", lambda: "another machine")
    load_kernels(plan_that_writes(1), {})
    assert len(compiles) == 4
    real = compile_module._read_headers
    monkeypatch.setattr(
        compile_module,
        "_read_headers",
        lambda unit: {name: text + "\n" for name, text in real(unit).items()},
    )
    load_kernels(plan_that_writes(1), {})
    assert len(compiles) == 5


def test_hit_without_a_compiler(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_kernels(plan_that_writes(3), {})
    monkeypatch.setenv("PATH", "")
    assert result_of(plan_that_writes(3)) == 3


def test_no_compiler(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CompileError) as caught:
        load_kernels(plan_that_writes(1), {})
    assert str(caught.value) == (
        "[PTO310] a C++ compiler is needed for the C++ kernels of this program: k\n"
        "  why: there is none: none of c++, g++, clang++ is on PATH, and neither PTO_WSP_CXX nor "
        "CXX is set\n"
        "  fix: install one (Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++; macOS: "
        "xcode-select --install), or set PTO_WSP_CXX, or give these kernels Python bodies"
    )


@pytest.mark.parametrize("variable", ["PTO_WSP_CXX", "CXX"])
def test_compiler_that_does_not_exist(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "no-such-compiler -O9")
    with pytest.raises(CompileError) as caught:
        load_kernels(plan_that_writes(1), {})
    assert caught.value.why == (
        f"there is none: 'no-such-compiler' was not found ({variable} is set to it)"
    )


def test_compiler_that_does_not_answer(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTO_WSP_CXX", "false")
    with pytest.raises(CompileError, match="'false' does not answer to --version"):
        load_kernels(plan_that_writes(1), {})


def test_damaged_file_is_rebuilt(cache_dir: Path) -> None:
    """A truncated library would end the process when it is touched, so it is never loaded."""
    script = "from tests.kernels.test_cache import *; print(result_of(plan_that_writes(4)))"
    in_new_process(script)
    (path,) = libraries(cache_dir)
    damaged = path.read_bytes()[:5000]
    path.write_bytes(damaged)
    assert in_new_process(script) == "4.0\n"
    (again,) = libraries(cache_dir)
    assert again.read_bytes() != damaged


def in_new_process(script: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    return subprocess.run(
        [sys.executable, "-c", script], env=environment, check=True, capture_output=True, text=True
    ).stdout


def test_processes_that_compile_at_once(cache_dir: Path) -> None:
    script = "from tests.kernels.test_cache import *; print(result_of(plan_that_writes(5)))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    assert [process.communicate()[0] for process in processes] == ["5.0\n"] * 3
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert libraries(cache_dir)
    assert not list(cache_dir.rglob("build-*"))
    assert result_of(plan_that_writes(5)) == 5


def test_own_headers_are_not_cached(
    cache_dir: Path,
    tmp_path: Path,
    compiles: list[tuple[str, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The key cannot cover a user's header, so a change of it must not meet an old result."""
    header = tmp_path / "mine.h"
    monkeypatch.setenv("PTO_WSP_CXXFLAGS", f"-I{tmp_path}")
    plan = one_kernel([out("o")], "o[0] = MINE;", includes=['"mine.h"'])
    header.write_text("#define MINE 1\n")
    assert result_of(plan) == 1
    header.write_text("#define MINE 2\n")
    assert result_of(plan) == 2
    assert len(compiles) == 2
    assert libraries(cache_dir) == []


def test_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("PTO_WSP_CACHE_DIR", str(blocked))
    with pytest.raises(CompileError, match="compiled kernels cannot be stored") as caught:
        load_kernels(plan_that_writes(1), {})
    assert caught.value.fix == "set PTO_WSP_CACHE_DIR to a folder that can be written"


def test_debug_levels(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PTO_WSP_DEBUG", "3")
    load_kernels(plan_that_writes(6), {})
    first = capfd.readouterr().err
    assert "o[0] = 6;" in first
    assert "-std=c++20" in first
    monkeypatch.setenv("PTO_WSP_DEBUG", "1")
    load_kernels(plan_that_writes(6), {})
    second = capfd.readouterr().err
    (library,) = libraries(cache_dir)
    assert second == f"pto_wsp: cached kernels: {library}\n"


def test_headers_of_an_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Away from the source tree, the headers lie beside the core."""
    unit = "#include <ptowsp_kernel/ptowsp_kernel.h>\n#include <ptowsp_tile/product.h>\n"
    in_tree = compile_module._read_headers(unit)
    assert set(in_tree) > {"ptowsp/ptowsp.h", "ptowsp_kernel/ptowsp_kernel.h"}
    assert set(in_tree) > {"ptowsp_tile/product.h", "ptowsp_tile/vec.h"}
    package = tmp_path / "lib" / "site-packages" / "pto_wsp"
    for name, text in in_tree.items():
        path = package / "include" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n// installed\n")
    monkeypatch.setattr(compile_module, "__file__", str(package / "kernels" / "compile.py"))
    monkeypatch.setattr(compile_module, "_installed_headers", lambda: package / "include")
    installed = compile_module._read_headers(unit)
    assert installed == {name: text + "\n// installed\n" for name, text in in_tree.items()}


def test_installed_headers_lie_beside_the_core() -> None:
    core = Path(str(_core.__file__))
    assert compile_module._installed_headers() == core.parent / "include"


def test_bad_setting_is_an_error(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTO_WSP_CACHE_MAX_MB", "much")
    with pytest.raises(PtoError, match="PTO_WSP_CACHE_MAX_MB"):
        load_kernels(plan_that_writes(1), {})


# --- the store itself ---------------------------------------------------------------------------


def set_age(path: Path, seconds: int) -> None:
    """Makes a file that old, counted back from a day of 2001."""
    os.utime(path, (1_000_000_000 - seconds, 1_000_000_000 - seconds))


def store(cache: KernelCache, key: str, size: int, age: int = 0) -> Path:
    with cache.scratch() as folder:
        built = folder / "kernels.so"
        built.write_bytes(key.encode().ljust(size, b"."))
        path = cache.store(key, "compiler", built)
    set_age(path, age)
    return path


def test_least_recently_used_goes_first(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path, max_bytes=250)
    old = store(cache, "aa", 100, age=10)
    older = store(cache, "bb", 100, age=20)
    assert cache.find("bb", "compiler") == older  # now it is the one used last
    new = store(cache, "cc", 100)
    assert not old.exists()
    assert older.exists()
    assert new.exists()


def test_new_and_loaded_files_stay(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path, max_bytes=50)
    loaded = store(cache, "aa", 100)
    cache_module.hold(loaded)
    other = store(cache, "bb", 100)
    assert loaded.exists()
    assert other.exists()  # too large, yet its maker is about to load it
    store(cache, "cc", 10)
    assert loaded.exists()
    assert not other.exists()


def test_find_asks_for_the_compiler(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path, max_bytes=1000)
    path = store(cache, "aa", 10)
    assert cache.find("aa", "compiler") == path
    assert cache.find("aa", "another") is None
    assert cache.find("aa", None) == path
    assert cache.find("ab", None) is None


@pytest.mark.parametrize("damaged", [b"", b"aa.....", b"aa........x", b"aa.......,"])
def test_damaged_file_is_not_found(tmp_path: Path, damaged: bytes) -> None:
    cache = KernelCache(tmp_path, max_bytes=1000)
    path = store(cache, "aa", 10)
    path.write_bytes(damaged)
    assert cache.find("aa", "compiler") is None
    assert not path.exists()


def test_left_over_build_folders_are_removed(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path, max_bytes=1000)
    dead, alive = tmp_path / "build-dead", tmp_path / "build-alive"
    for folder in (dead, alive):
        folder.mkdir()
        (folder / "x.cpp").write_text("")
    set_age(dead, 0)
    store(cache, "aa", 10)
    assert not dead.exists()
    assert alive.exists()


def test_compiling_can_be_forbidden(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the cache holds still loads; what it does not is an error that says what to do."""
    load_kernels(plan_that_writes(1), {})
    monkeypatch.setenv("PTO_WSP_NO_JIT", "1")
    load_kernels(plan_that_writes(1), {})
    with pytest.raises(CompileError, match="have not been compiled yet: k") as caught:
        load_kernels(plan_that_writes(2), {})
    assert list(cache_dir.glob("kernels/*/*.so"))
    assert "PTO_WSP_NO_JIT=0" in str(caught.value.fix)
