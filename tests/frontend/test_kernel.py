"""Kernels: their declarations, their calls, and where their C++ text stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_wsp
from pto_wsp import (
    DenseDyn,
    DType,
    In,
    InOut,
    Out,
    P,
    Tensor,
    Tile,
    TypeCheckError,
    ir,
    kernel,
    workload,
)
from pto_wsp.frontend import Kernel

X = Tensor(data=np.zeros((4, 4), np.float32))
H = Tensor(data=np.zeros((4, 4), np.float16))

Refused = Callable[..., Any]
DEFAULT: Any = None


@kernel
def add(a: In[Tensor], b: InOut[Tensor], out: Out[Tensor]):
    """Adds."""
    out[...] = a + b


@kernel(cpp_src="out[0] = a[0] + 1.0f;", cpp_includes=["<cmath>", '"mine.h"', "#include  <tuple>"])
def step(a: In[Tensor], out: Out[Tensor]): ...


@kernel(
    cpp_src=r"""
        for (int i = 0; i < 4; ++i)
            x[i] += 1;
    """
)
def many_lines(x: InOut[Tensor]):
    """The Python body may be a docstring."""


SOURCE = "x[0] = 1;"


@kernel(cpp_src=SOURCE)
def elsewhere(x: Out[Tensor]):
    pass


def line_of(text: str) -> int:
    with open(__file__, encoding="utf-8") as file:
        return next(n for n, line in enumerate(file, 1) if text in line)


def call_of(function: Callable[[], None]) -> tuple[ir.Module, ir.Call]:
    function.__name__ = "w"
    module = workload(function)().traced().module
    ir.verify(module)
    call = module.body[0]
    assert isinstance(call, ir.Call)
    return module, call


def test_declarations() -> None:
    module, _ = call_of(lambda: step(X[0], X[1]))
    (decl,) = module.kernels
    params = (
        ir.ParamDecl("a", ir.Mode.IN, DType.F32, 1),
        ir.ParamDecl("out", ir.Mode.OUT, DType.F32, 1),
    )
    includes = ("#include <cmath>", '#include "mine.h"', "#include <tuple>")
    source = "out[0] = a[0] + 1.0f;"
    assert decl == ir.KernelDecl("step", params, ir.BodyForm.CPP, source, includes)
    assert add.__doc__ == "Adds."
    assert repr(add) == "<kernel add(a: in, b: inout, out: out)>"


def test_only_python_bodies_are_callables() -> None:
    @workload
    def both():
        step(X[0], X[1])
        add(X, X, X)

    assert both().traced().callables == {"add": add.fn}


@pytest.mark.parametrize(
    ("each", "line", "column"),
    [
        (step, '@kernel(cpp_src="out[0]', 18),
        (many_lines, 'cpp_src=r"""', 17),
        (elsewhere, "@kernel(cpp_src=SOURCE)", 0),
        (add, "def add(", 0),
    ],
)
def test_position_of_the_body(each: Kernel, line: str, column: int) -> None:
    assert each.loc.file == __file__
    assert (each.loc.line, each.loc.col) == (line_of(line), column)


def test_columns_count_characters_not_bytes() -> None:
    wide = {"é": 1}
    del wide

    # fmt: off
    @kernel(cpp_includes=["<é>"], cpp_src="x[0] = 1;")
    def accents(x: Out[Tensor]): ...
    # fmt: on
    with open(__file__, encoding="utf-8") as file:
        line = file.readlines()[accents.loc.line - 1]
    assert line[accents.loc.col - 1 :].startswith("x[0] = 1;")


def test_calls_by_position_and_by_name() -> None:
    module, by_name = call_of(lambda: add[1, 2](out=X[2], b=X[1], a=X[0]))
    _, mixed = call_of(lambda: add[1, 2](X[0], X[1], out=X[2]))
    assert by_name == mixed
    assert by_name.indices == (ir.Const(1), ir.Const(2))
    assert [p.name for p in module.kernels[0].params] == ["a", "b", "out"]
    _, without = call_of(lambda: add(X[0], X[1], X[2]))
    assert without.indices == ()


def test_each_signature_is_a_kernel() -> None:
    @workload
    def several():
        add(X, X, X)
        add(X[0], X[0], X[0])
        add(X, X, X)
        add(H, X, X)

    module = several().traced().module
    assert [k.name for k in module.kernels] == ["add", "add.2", "add.3"]
    calls = [stmt.kernel for stmt in module.body if isinstance(stmt, ir.Call)]
    assert calls == ["add", "add.2", "add", "add.3"]
    assert several().traced().callables == dict.fromkeys(("add", "add.2", "add.3"), add.fn)


def test_two_kernels_of_one_name_stay_apart() -> None:
    def make() -> Kernel:
        @kernel
        def same(x: InOut[Tensor]):
            x[...] += 1

        return same

    one, two = make(), make()

    @workload
    def both():
        one(X)
        two(X)

    assert both().traced().callables == {"same": one.fn, "same.2": two.fn}


def test_annotations_may_need_the_function_around() -> None:
    import pto_wsp as pw

    Reads = In[Tensor]

    @kernel
    def local(
        a: Reads,  # pyright: ignore[reportInvalidTypeForm]
        b: pw.InOut[pw.Tensor],
        c: pto_wsp.Out[Tensor],
    ):
        pass

    assert [str(param) for param in local.params] == ["a: in", "b: inout", "c: out"]


def test_annotations_may_be_objects() -> None:
    def plain(a, b):
        pass

    plain.__annotations__ = {"a": In[Tensor], "b": Out[Tensor]}
    assert [str(param) for param in kernel(plain).params] == ["a: in", "b: out"]


# --- definitions that are refused ---------------------------------------------------------------


def test_refuses_parameters_without_a_meaning(refused: Refused) -> None:
    def no_annotation() -> None:
        @kernel
        def k(a: In[Tensor], n):  #!
            pass

    refused(no_annotation, "kernel k: parameter n has no annotation")

    def other_annotation() -> None:
        @kernel
        def k(a: In[int]):  #!
            pass

    refused(other_annotation, "kernel k: parameter a is annotated In[int]")

    def bare() -> None:
        @kernel
        def k(a: Tensor):  #!
            pass

    refused(bare, "kernel k: parameter a is annotated Tensor")

    def unknown() -> None:
        @kernel
        def k(a: In[Nothing]):  #!  # pyright: ignore[reportUndefinedVariable]  # noqa: F821
            pass

    error = refused(unknown, "kernel k: parameter a: In[Nothing] cannot be evaluated")
    assert error.why == "name 'Nothing' is not defined"

    def bare_tile() -> None:
        @kernel
        def k(a: In[Tile]):  #!
            pass

    refused(bare_tile, "kernel k: parameter a is annotated In[Tile]")

    def default() -> None:
        @kernel
        def k(a: In[Tensor] = DEFAULT):  #!
            pass

    refused(default, "kernel k: parameter a has a default")

    def star() -> None:
        @kernel
        def k(*a: In[Tensor]):  #!
            pass

    refused(star, "kernel k: parameter a is variadic positional")

    def stars() -> None:
        @kernel
        def k(**a: In[Tensor]):  #!
            pass

    refused(stars, "kernel k: parameter a is variadic keyword")

    def keyword() -> None:
        @kernel
        def k(*, a: In[Tensor]):  #!
            pass

    refused(keyword, "kernel k: parameter a is keyword-only")


def test_refuses_two_bodies_and_none(refused: Refused) -> None:
    def two() -> None:
        @kernel(cpp_src="x[0] = 1;")
        def k(x: Out[Tensor]):  #!
            x[0] = 1

    refused(two, "kernel k has a C++ and a Python body")

    def empty() -> None:
        @kernel(cpp_src="  ")  #!
        def k(x: Out[Tensor]): ...

    refused(empty, "cpp_src holds no C++")

    def includes_only() -> None:
        @kernel(cpp_includes=["<cmath>"])  #!
        def k(x: Out[Tensor]): ...

    refused(includes_only, "cpp_includes without cpp_src")

    def generator() -> None:
        @kernel
        def k(x: Out[Tensor]) -> Any:  #!
            yield

    refused(generator, "kernel k is a generator or coroutine")

    def unit() -> None:
        kernel(exec_unit="gpu")  #!

    refused(unit, "@kernel(exec_unit='gpu')")

    def no_function() -> None:
        kernel(print)  #!

    refused(no_function, "@kernel on builtin_function_or_method")


@pytest.mark.parametrize("include", ["cmath", "#define X", "<a>\n<b>", "", 3])
def test_refuses_what_is_no_header(include: Any, refused: Refused) -> None:
    def case() -> None:
        kernel(cpp_src="x[0] = 1;", cpp_includes=[include])  #!

    refused(case, f"cpp_includes holds {include!r}")


def test_refuses_includes_in_one_string(refused: Refused) -> None:
    def case() -> None:
        kernel(cpp_src="x[0] = 1;", cpp_includes="<cmath>")  #!

    refused(case, "cpp_includes is not a list")


# --- calls that are refused ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: add(X, X), "no out"),
        (lambda: add(), "no a, b, out"),
        (lambda: add(X, X, X, X), "4 positional arguments"),
        (lambda: add(X, X, X, a=X), "two values for a"),
        (lambda: add(X, X, X, c=X), "an unknown argument c"),
        (lambda: add(X, X, X, before=None), "an unknown argument before"),
    ],
)
def test_refuses_calls_that_do_not_fit(
    call: Callable[[], None], message: str, refused: Refused
) -> None:
    @workload
    def one():
        call()

    with pytest.raises(TypeCheckError) as raised:
        one().traced()
    assert raised.value.message == f"kernel add is called with {message}"
    assert raised.value.fix == "the parameters are (a, b, out)"
    assert raised.value.loc is not None
    assert raised.value.loc.line == call.__code__.co_firstlineno


@pytest.mark.parametrize(
    ("value", "kind"),
    [(1, "int"), (2.5, "float"), (np.zeros(2), "ndarray"), ([X], "list"), (None, "NoneType")],
)
def test_refuses_arguments_that_are_no_regions(value: Any, kind: str, refused: Refused) -> None:
    def case() -> None:
        @workload
        def one():
            add(X, value, X)  #!

        one().traced()

    error = refused(case, f"kernel add: b is {kind}", TypeCheckError)
    if kind == "ndarray":
        assert "Tensor(data=array)" in error.fix


def test_refuses_a_loop_variable_as_an_argument(refused: Refused) -> None:
    def case() -> None:
        @workload
        def one(rows: Any):
            for i in P(rows):
                add(X, i, X)  #!

        one(DenseDyn(1)).traced()

    refused(case, "kernel add: b is an integer", TypeCheckError)


def test_refuses_other_indices(refused: Refused) -> None:
    def case() -> None:
        @workload
        def one():
            add["a"](X, X, X)  #!

        one().traced()

    refused(case, "kernel add is indexed with str", TypeCheckError)


def test_refuses_calls_outside_a_workload(refused: Refused) -> None:
    def call() -> None:
        add(X, X, X)  #!

    refused(call, "a call of kernel add outside a workload")

    def indexed() -> None:
        add[0](X, X, X)  #!

    refused(indexed, "kernel add[...] outside a workload")


def test_refuses_brackets_without_a_call(refused: Refused) -> None:
    def case() -> None:
        @workload
        def one():
            add[0]  #!

        one().traced()

    refused(case, "add[...] is not used")
