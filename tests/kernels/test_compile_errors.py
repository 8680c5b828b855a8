"""Compiler messages name the line in the user's file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pto_wsp.errors import CompileError
from pto_wsp.kernels import emit_cpp, load_kernels
from pto_wsp.kernels.diagnostics import compile_error, parse
from pto_wsp.plan import Plan
from pto_wsp.srcloc import SrcLoc
from tests.kernels.sketch import P, Sketch, one_kernel, out

pytestmark = pytest.mark.usefixtures("cache_dir")

COMPILERS = [name for name in ("g++", "clang++", "clang++-19") if shutil.which(name)]


@pytest.fixture(params=COMPILERS)
def compiler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PTO_WSP_CXX", request.param)
    return request.param


def error_of(plan: Plan) -> CompileError:
    with pytest.raises(CompileError) as caught:
        load_kernels(plan, {})
    return caught.value


def write_user_file(folder: Path, text: str, literal: str) -> tuple[Path, str, SrcLoc]:
    """A user's file, the value of its first string literal that contains `literal`, and where the
    text of that literal begins."""
    path = folder / "user.py"
    path.write_text(text, encoding="utf-8")
    quote = '"""' if '"""' in text else '"'
    start = text.index(quote) + len(quote)
    source = text[start : text.index(quote, start)]
    assert literal in source
    line = text.count("\n", 0, start) + 1
    return path, source, SrcLoc(str(path), line, start - text.rfind("\n", 0, start))


def test_triple_quoted_body(tmp_path: Path, compiler: str) -> None:
    text = '''\
import pto_wsp

@kernel(cpp_src="""
    float x = a[0];
    out[0] = x + missing_name;
""")
def step(a, out): ...
'''
    path, source, loc = write_user_file(tmp_path, text, "missing_name")
    error = error_of(one_kernel([P("a"), out("out")], source, name="step", loc=loc))
    assert error.loc == SrcLoc(str(path), 5, 18, 30)
    assert error.message.startswith("C++ kernel 'step' does not compile: ")
    assert "missing_name" in error.message
    assert str(error).endswith(
        f"  --> {path}:5:18\n"
        "  5 |     out[0] = x + missing_name;\n"
        "    |                  ^^^^^^^^^^^^"
    )


def test_single_line_body_with_unicode_and_tab(tmp_path: Path, compiler: str) -> None:
    text = '@kernel(cpp_src="/* größe */\tout[0] = oops;")\ndef step(out): ...\n'
    path, source, loc = write_user_file(tmp_path, text, "oops")
    assert loc.col == 18
    error = error_of(one_kernel([out("out")], source, loc=loc))
    column = text.index("oops") + 1
    assert error.loc == SrcLoc(str(path), 1, column, column + 4)


def test_body_whose_indentation_was_removed(tmp_path: Path, compiler: str) -> None:
    text = '''\
SRC = """int n = 1;
         out[0] = n + oops;
      """
'''
    path, _, loc = write_user_file(tmp_path, text, "oops")
    error = error_of(one_kernel([out("out")], "int n = 1;\nout[0] = n + oops;\n", loc=loc))
    column = text.splitlines()[1].index("oops") + 1
    assert error.loc == SrcLoc(str(path), 2, column, column + 4)


def test_body_with_escapes(tmp_path: Path, compiler: str) -> None:
    text = 'SRC = "int n = 1;\\nout[0] = n + oops;"\n\n'
    path, _, loc = write_user_file(tmp_path, text, "oops")
    error = error_of(one_kernel([out("out")], "int n = 1;\nout[0] = n + oops;", loc=loc))
    column = text.index("oops") + 1
    assert error.loc == SrcLoc(str(path), 1, column, column + 4)


def test_body_that_was_put_together_points_at_its_start(tmp_path: Path, compiler: str) -> None:
    text = 'SRC = "out[0] = %s;" % NAME\n'
    _, _, loc = write_user_file(tmp_path, text, "%s")
    error = error_of(one_kernel([out("out")], "out[0] = oops;", loc=loc))
    assert error.loc == loc
    assert error.why == "in the line: out[0] = oops;"


def test_unknown_place_shows_the_line(compiler: str) -> None:
    error = error_of(one_kernel([out("o")], "\n  o[0] = first;\n  o[1] = second;\n"))
    assert error.loc is None
    assert "first" in error.message
    assert error.why is not None
    lines = [line.strip() for line in error.why.splitlines()]
    assert lines[0] == "in the line: o[0] = first;"
    assert lines[1].startswith("also ")
    assert lines[1].endswith(", in the line: o[1] = second;")


def test_file_that_is_not_here(compiler: str) -> None:
    loc = SrcLoc("elsewhere/user.py", 10, 5)
    error = error_of(one_kernel([out("o")], "int n = 0;\no[0] = oops;", loc=loc))
    assert error.loc == SrcLoc("elsewhere/user.py", 11, 8)
    assert error.why == "in the line: o[0] = oops;"


def test_error_in_a_header_counts_for_the_body(compiler: str) -> None:
    loc = SrcLoc("elsewhere/user.py", 10, 5)
    error = error_of(one_kernel([out("o", rank=2)], "\no(0) = 1;", loc=loc))
    assert error.loc is not None
    assert (error.loc.file, error.loc.line) == ("elsewhere/user.py", 11)
    assert "one index per dimension" in error.message


def test_writing_an_input(compiler: str) -> None:
    error = error_of(one_kernel([P("a")], "a[0] = 1;", name="step"))
    assert error.message.startswith("C++ kernel 'step' does not compile: ")
    assert "assign" in error.message


def test_missing_include_shows_the_include_line(compiler: str) -> None:
    error = error_of(one_kernel([out("o")], "", name="step", includes=["<no_such_file.h>"]))
    assert error.message.startswith("the C++ of kernels 'step' does not compile: ")
    assert "no_such_file.h" in error.message
    assert error.why == "in the line: #include <no_such_file.h>"
    assert error.fix is not None
    assert "PTO_WSP_CXXFLAGS=-I<folder>" in error.fix


def test_other_kernels_keep_their_lines(compiler: str) -> None:
    sketch = Sketch()
    sketch.kernel("good", [out("o")], "o[0] = 1;\n\n", loc=SrcLoc("elsewhere/good.py", 1))
    sketch.kernel("bad", [out("o")], "\n\no[0] = oops;", loc=SrcLoc("elsewhere/bad.py", 1, 20))
    error = error_of(sketch.build())
    assert error.loc == SrcLoc("elsewhere/bad.py", 3, 8)
    assert error.message.startswith("C++ kernel 'bad' does not compile: ")


def test_many_errors_are_counted() -> None:
    body = "".join(f"o[0] = oops{i};\n" for i in range(9))
    error = error_of(one_kernel([out("o")], body))
    assert error.why is not None
    assert error.why.count("also ") == 4
    assert error.why.endswith("and 4 more")


def test_bad_flag_shows_what_the_compiler_said(
    compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTO_WSP_CXXFLAGS", "-fno-such-flag-exists")
    error = error_of(one_kernel([out("o")], "o[0] = 1;"))
    assert error.message == "the C++ kernels do not compile"
    assert error.why is not None
    assert "-fno-such-flag-exists" in error.why


def test_compiler_that_says_nothing() -> None:
    plan = one_kernel([out("o")], "o[0] = 1;")
    unit = emit_cpp(plan)
    assert unit is not None
    error = compile_error(plan, unit, "", "c++ x.cpp")
    assert str(error) == (
        "[PTO311] the C++ kernels do not compile\n"
        "  why: the compiler failed without naming a line of them:\nit said nothing\n"
        "  fix: the command was: c++ x.cpp"
    )


def test_undefined_function() -> None:
    plan = one_kernel([out("o")], "o[0] = elsewhere();", includes=["float elsewhere();"])
    error = error_of(plan)
    assert error.message == "the compiled kernels cannot be loaded"
    assert error.why is not None
    assert "elsewhere" in error.why


def test_parse_messages_without_columns() -> None:
    labels = {"ptowsp-kernel:k": 3}
    (found,) = parse("ptowsp-kernel:k:7: error: too long\n", labels)
    assert (found.kernel, found.line, found.col, found.text) == (3, 7, 0, "too long")
