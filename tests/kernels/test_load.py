"""Which kernels a plan gets, and what is said when one is missing."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from pto_wsp.errors import CompileError
from pto_wsp.kernels import NativeKernel, PythonKernel, load_kernels
from pto_wsp.plan import BodyForm, Section
from pto_wsp.srcloc import SrcLoc
from tests.kernels.sketch import P, Sketch, out


def nothing(*args: object) -> None:
    del args


def test_kernels_come_in_table_order(cache_dir: Path) -> None:
    sketch = Sketch()
    sketch.kernel("first", [out("o")], "o[0] = 1;")
    sketch.kernel("second", [P("a")])
    sketch.kernel("third", [out("o")], "o[0] = 3;")
    first, second, third = load_kernels(sketch.build(), {"second": nothing})
    assert second == PythonKernel("second", nothing)
    assert isinstance(first, NativeKernel)
    assert isinstance(third, NativeKernel)
    assert (first.name, third.name) == ("first", "third")
    assert first.address != third.address
    assert isinstance(first.library, ctypes.CDLL)
    assert first.library is third.library


def test_python_kernels_need_no_compiler(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    sketch = Sketch()
    sketch.kernel("cell", [P("a")])
    assert load_kernels(sketch.build(), {"cell": nothing}) == (PythonKernel("cell", nothing),)
    assert not cache_dir.exists()


def test_missing_python_functions() -> None:
    sketch = Sketch()
    sketch.b.debug(Section.KERNEL, sketch.kernel("cell", [P("a")]), SrcLoc("elsewhere.py", 4))
    sketch.kernel("given", [P("a")])
    sketch.kernel("row", [P("a")])
    with pytest.raises(CompileError) as caught:
        load_kernels(sketch.build(), {"given": nothing})
    assert str(caught.value) == (
        "[PTO313] no Python function was given for kernels 'cell', 'row'\n"
        "  --> elsewhere.py:4\n"
        "  why: a plan carries the names of Python kernels, not their code\n"
        "  fix: pass kernels={'cell': cell_function, 'row': row_function}"
    )


def test_form_of_another_version() -> None:
    sketch = Sketch()
    sketch.kernel("fused", [P("a")], form=BodyForm.SYMBOL)
    with pytest.raises(CompileError) as caught:
        load_kernels(sketch.build(), {})
    assert str(caught.value) == (
        "[PTO903] kernel 'fused' has a body of form SYMBOL\n"
        "  why: this version runs Python, C++ and tile bodies"
    )


def test_kernel_without_a_body_comes_from_the_caller() -> None:
    sketch = Sketch()
    sketch.kernel("bare", [P("a")], form=None)
    plan = sketch.build()
    assert load_kernels(plan, {"bare": nothing}) == (PythonKernel("bare", nothing),)
    with pytest.raises(CompileError, match=r"kernels=\{'bare': bare\}"):
        load_kernels(plan, {})
