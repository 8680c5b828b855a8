"""The examples run, and so does the Python code in the documentation."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted(ROOT.glob("examples/*/main.py"))
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md")])
LIMIT = 300  # seconds; only so that a hang ends the test

# Arguments that make an example small, where it is not small by itself.
SMALL: dict[str, list[str]] = {
    "01_ragged_attention": ["--sequences", "6", "--heads", "2", "--longest", "12"],
    "02_moe_routing": ["--tokens", "300", "--workers", "3"],
    "03_tiered_attention": ["--sequences", "12", "--longest", "3000", "--long", "600"],
    "07_paged_decode": ["--sequences", "8", "--longest", "3000"],
    "08_ragged_prefill": ["--sequences", "6", "--longest", "200"],
    "11_llama_decode": ["--steps", "40", "--layers", "2", "--vocab", "500"],
}
# Small and odd ones.
ODD: list[tuple[str, list[str]]] = [
    ("01_ragged_attention", ["--sequences", "1", "--heads", "1", "--longest", "1"]),
    ("03_tiered_attention", ["--sequences", "3", "--longest", "3"]),
    ("04_python_kernels", ["--tiles", "1", "--size", "3"]),
    ("04_python_kernels", ["--tiles", "3", "--size", "1"]),
    ("07_paged_decode", ["--sequences", "5", "--longest", "100", "--workers", "3", "--page", "7"]),
    ("09_moe_ffn", ["--tokens", "6"]),
    ("10_sparse_attention", ["--sequences", "1", "--longest", "3", "--steps", "1"]),
    ("11_llama_decode", ["--steps", "1", "--layers", "0", "--vocab", "1"]),
    ("12_descriptors", ["--rows", "1", "--blocks", "4"]),
]
_BLOCK = re.compile(r"^```python[ \t]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def run(args: list[str], folder: Path) -> str:
    environment = {**os.environ, "MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, "-W", "error", *args],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        cwd=folder,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def test_plan_of_the_c_example(tmp_path: Path) -> None:
    """The C tests run grid.c with the plan in the repository, which must be what grid.py writes."""
    run(["examples/c/grid.py", str(tmp_path / "grid.plan")], ROOT)
    kept = (ROOT / "examples/c/grid.plan").read_bytes()
    assert (tmp_path / "grid.plan").read_bytes() == kept, "run python examples/c/grid.py"


def test_plans_of_the_cpp_tests(tmp_path: Path) -> None:
    """Plans in tests/cpp/plans must be what the scripts beside them write."""
    for script in sorted((ROOT / "tests/cpp/plans").glob("*.py")):
        run([str(script.relative_to(ROOT)), str(tmp_path / "new.plan")], ROOT)
        kept = script.with_suffix(".plan").read_bytes()
        assert (tmp_path / "new.plan").read_bytes() == kept, f"run python {script}"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.parent.name)
def test_example(path: Path, tmp_path: Path) -> None:
    args = SMALL.get(path.parent.name, [])
    if path.parent.name == "17_gpu":
        pytest.importorskip("triton", reason="the example needs triton: pip install 'pto-wsp[gpu]'")
    if "--trace" in path.read_text("utf-8"):
        args = [*args, "--trace", str(tmp_path / "trace.json")]
    assert "WRONG" not in run([str(path), *args], tmp_path)


@pytest.mark.parametrize(("name", "args"), ODD, ids=[" ".join([n[:2], *a]) for n, a in ODD])
def test_odd_arguments(name: str, args: list[str], tmp_path: Path) -> None:
    path = ROOT / "examples" / name / "main.py"
    if "--trace" in path.read_text("utf-8"):
        args = [*args, "--trace", str(tmp_path / "trace.json")]
    assert "WRONG" not in run([str(path), *args], tmp_path)


def test_memory_of_a_model_is_watched(tmp_path: Path) -> None:
    """With fewer steps the example has nothing to compare."""
    path, args = ROOT / "examples/11_llama_decode/main.py", SMALL["11_llama_decode"]
    assert "MB since step 10" in run([str(path), *args], tmp_path)


# Runs a script whose programs are all compiled with verify=<first argument>.
_VERIFIED = """
import runpy, sys
from pto_wsp import driver
mode, script = sys.argv[1:3]
sys.argv[:3] = [script]
plain = driver.compile_workload
driver.compile_workload = lambda *args, **options: plain(*args, **{**options, "verify": mode})
runpy.run_path(script, run_name="__main__")
"""


# A virtual clock has no real times to verify; those examples verify by themselves. Tests of the
# cuda target verify what it does.
VERIFIABLE = [
    path
    for path in EXAMPLES
    if "TracePolicy.cycles" not in path.read_text("utf-8") and path.parent.name != "17_gpu"
]


@pytest.mark.parametrize("mode", ["full", "schedule"])
@pytest.mark.parametrize("path", VERIFIABLE, ids=lambda p: p.parent.name)
def test_verify_finds_nothing_in_examples(path: Path, mode: str, tmp_path: Path) -> None:
    args = SMALL.get(path.parent.name, [])
    assert "WRONG" not in run(["-c", _VERIFIED, mode, str(path), *args], tmp_path)


def code_of(page: Path) -> str:
    """All blocks of a page as one script, since later ones use the names of earlier ones. Lines
    stay where they are, so that errors point into the page."""
    text = page.read_text("utf-8")
    lines = [""] * (text.count("\n") + 2)
    for block in _BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(1))
        for offset, line in enumerate(block[1].splitlines()):
            lines[first + offset] = line
    return "\n".join(lines)


# tests/test_error_pages.py runs that page: each of its examples fails, on purpose.
WITH_CODE = [
    page
    for page in PAGES
    if page.name != "errors.md" and page.exists() and _BLOCK.search(page.read_text("utf-8"))
]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda p: str(p.relative_to(ROOT)))
def test_code_of_page(page: Path, tmp_path: Path) -> None:
    if page.name == "gpu.md":
        pytest.importorskip("triton", reason="the page needs triton: pip install 'pto-wsp[gpu]'")
    script = tmp_path / f"{page.stem}.py"
    script.write_text(code_of(page), "utf-8")
    run([str(script)], tmp_path)


def test_code_is_found_and_keeps_its_lines(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# T\n\n```python\na = 1\n```\ntext\n```sh\nls\n```\n```python\nb = a\n```\n")
    assert code_of(page).splitlines()[3] == "a = 1"
    assert code_of(page).splitlines()[10] == "b = a"
    assert "ls" not in code_of(page)
