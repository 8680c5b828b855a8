"""What users install: the wheel holds what it should and works on a machine without a compiler.

The wheel is made in this tree, where the core is built already. `make wheel` makes it from the
source distribution alone; that nothing is missing there is tested below, from what the compiler
has read.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "python" / "pto_wsp"
HEADERS = (
    "ptowsp/ptowsp.h",
    "ptowsp/enums.def",
    "ptowsp/stats.def",
    "ptowsp_kernel/ptowsp_kernel.h",
    *(f"ptowsp_tile/{header.name}" for header in sorted((ROOT / "core" / "tile").glob("*.h"))),
)
LIMIT = 600  # seconds; only so that a hang ends the test


def run(command: list[str], cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT, check=False, cwd=cwd, env=env
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # finds cmake and ninja
    command = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps"]
    run([*command, "-w", str(folder), str(ROOT)], env={**os.environ, "PATH": path})
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the source distribution by their names."""
    folder = tmp_path_factory.mktemp("sdist")
    code = f"from scikit_build_core.build import build_sdist; build_sdist({str(folder)!r})"
    run([sys.executable, "-c", code], cwd=ROOT)
    (made,) = folder.glob("*.tar.gz")
    files: dict[str, bytes] = {}
    with tarfile.open(made) as archive:
        for member in archive.getmembers():
            content = archive.extractfile(member)
            if content is not None:
                files[member.name.partition("/")[2]] = content.read()
    return files


def test_contents_of_the_wheel(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    info = {name for name in names if ".dist-info/" in name}
    core = {name for name in names if re.fullmatch(r"pto_wsp/_core\.[\w-]*\.?so", name)}
    sources = {
        f"pto_wsp/{path.relative_to(PACKAGE)}"
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {"pto_wsp/py.typed", "pto_wsp/_core.pyi"} <= sources
    assert len(core) == 1
    assert names - info - core - sources == {f"pto_wsp/include/{name}" for name in HEADERS}
    assert not sources - names
    written = {name.partition("/")[2] for name in info}
    assert written == {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}


def test_tag_of_the_wheel(wheel: Path) -> None:
    """One wheel for all Pythons from 3.12 on; 3.11 has one of its own."""
    python, abi, _ = wheel.stem.split("-")[-3:]
    stable = sys.version_info >= (3, 12)
    assert (python, abi) == (("cp312", "abi3") if stable else ("cp311", "cp311"))


def test_source_distribution(sdist: dict[str, bytes]) -> None:
    """Everything that the compiler has read of this tree, and that the wheel takes from it."""
    built = max(ROOT.glob("build/cp*/.ninja_deps"), key=lambda path: path.stat().st_mtime).parent
    ninja = Path(sys.executable).parent / "ninja"
    lines = run([str(ninja), "-C", str(built), "-t", "deps"]).splitlines()
    read = {(built / line.strip()).resolve() for line in lines if line.startswith("    ")}
    used = {path for path in read if path.is_relative_to(ROOT / "core")}
    assert ROOT / "core/src/run.cpp" in used
    used |= {p for p in PACKAGE.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    used |= {ROOT / name for name in ("CMakeLists.txt", "pyproject.toml", "README.md", "LICENSE")}
    used |= set((ROOT / "core/kernel").iterdir())
    for path in sorted(used):
        assert sdist.get(str(path.relative_to(ROOT))) == path.read_bytes(), path
    tops = {name.partition("/")[0] for name in sdist}
    assert not tops & {".ci", ".venv", "build", "dist", ".git"}
    assert not [name for name in sdist if name.endswith((".so", ".pyc"))]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a fresh environment with the wheel and what it depends on."""
    folder = tmp_path_factory.mktemp("installed") / "env"
    venv.create(folder, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    run([*pip, "install", "--quiet", "--no-compile", str(wheel)])
    return folder / "bin"


def away(installed: Path, home: Path, *more: str) -> dict[str, str]:
    """An environment that knows neither this tree nor a compiler."""
    path = os.pathsep.join([str(installed), *more])
    return {"PATH": path, "HOME": str(home), "PTO_WSP_CACHE_DIR": str(home / "cache")}


def test_without_a_compiler(installed: Path, tmp_path: Path) -> None:
    python = str(installed / "python")
    environment = away(installed, tmp_path)
    example = ROOT / "examples/04_python_kernels/main.py"
    text = run([python, "-W", "error", str(example)], cwd=tmp_path, env=environment)
    assert "equal to numpy.linalg.cholesky" in text

    cpp = [python, str(ROOT / "examples/01_ragged_attention/main.py"), "--sequences", "2"]
    done = subprocess.run(
        cpp, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )
    assert done.returncode != 0
    assert "[PTO310] a C++ compiler is needed" in done.stderr
    assert "none of c++, g++, clang++ is on PATH" in done.stderr


def test_headers_of_the_wheel_are_enough(installed: Path, tmp_path: Path) -> None:
    args = ["--sequences", "4", "--heads", "2", "--longest", "8", "--trace", "trace.json"]
    command = [str(installed / "python"), str(ROOT / "examples/01_ragged_attention/main.py"), *args]
    environment = away(installed, tmp_path, *os.environ["PATH"].split(os.pathsep))
    assert "WRONG" not in run(command, cwd=tmp_path, env=environment)


def test_command_line(installed: Path, tmp_path: Path) -> None:
    plan = ROOT / "examples/c/grid.plan"
    command = [str(installed / "pto-wsp"), "disasm", str(plan)]
    assert "cell" in run(command, cwd=tmp_path, env=away(installed, tmp_path))
