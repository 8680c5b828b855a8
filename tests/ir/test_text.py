"""The text form: what it looks like, and that it reads back as the same module."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from pto_wsp import ir
from pto_wsp.errors import CompileError
from pto_wsp.ir import Binary, BinaryOp, Const, LoopVar, SymbolRef
from tests.conftest import Golden
from tests.ir.samples import SAMPLES, dense
from tests.ir.strategies import Case, any_exprs, cases, wild_modules


def check_round_trip(module: ir.Module) -> None:
    text = ir.to_text(module)
    # Positions do not take part in ==, so compare the representations, which show them.
    assert repr(ir.parse(text)) == repr(module)
    assert ir.parse(ir.to_text(module, locs=False)) == module
    assert ir.to_text(ir.parse(text)) == text


@pytest.mark.parametrize("name", SAMPLES)
def test_print(name: str, golden: Golden) -> None:
    module = SAMPLES[name]()
    golden.check(name, ir.to_text(module))
    check_round_trip(module)


def test_print_without_locs(golden: Golden) -> None:
    golden.check(None, ir.to_text(SAMPLES["wave"](), locs=False))


@given(cases())
def test_well_formed_modules_read_back(case: Case) -> None:
    check_round_trip(case.module)


@given(wild_modules())
def test_any_module_reads_back(module: ir.Module) -> None:
    check_round_trip(module)


@pytest.mark.soak
@given(wild_modules())
def test_any_module_reads_back_soak(module: ir.Module) -> None:
    check_round_trip(module)


@given(any_exprs)
def test_text_of_an_expression_stands_in_its_module(expr: ir.Expr) -> None:
    call = ir.Call("f", (expr,), ())
    module = ir.Module("m", (), (), (), (call,))
    assert f"[{ir.expr_text(expr)}]()" in ir.to_text(module)


A, B, C = SymbolRef("a"), SymbolRef("b"), SymbolRef("c")


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (Binary(BinaryOp.SUB, Binary(BinaryOp.SUB, A, B), C), "a - b - c"),
        (Binary(BinaryOp.SUB, A, Binary(BinaryOp.SUB, B, C)), "a - (b - c)"),
        (Binary(BinaryOp.ADD, Binary(BinaryOp.MUL, A, B), C), "a * b + c"),
        (Binary(BinaryOp.MUL, A, Binary(BinaryOp.ADD, B, C)), "a * (b + c)"),
        (Binary(BinaryOp.MUL, A, Binary(BinaryOp.FLOORDIV, B, C)), "a * (b // c)"),
        (Binary(BinaryOp.MOD, Binary(BinaryOp.MUL, A, B), C), "a * b % c"),
        (Binary(BinaryOp.MIN, A, Binary(BinaryOp.MAX, B, C)), "min(a, max(b, c))"),
        (Binary(BinaryOp.SUB, A, Const(-1)), "a - -1"),
        (Binary(BinaryOp.MUL, Const(-2), A), "-2 * a"),
        (ir.ArrayLoad("a", Binary(BinaryOp.ADD, B, Const(1))), "a[b + 1]"),
        (ir.ShapeOf("a", 1), "a.shape[1]"),
        (ir.ShapeOf("a b", 0), '"a b".shape[0]'),
        (LoopVar("a"), "?a"),
        (SymbolRef("min"), '"min"'),
    ],
)
def test_expressions(expr: ir.Expr, text: str) -> None:
    assert ir.expr_text(expr) == text


def test_names_in_scope() -> None:
    assert ir.expr_text(LoopVar("a"), ["a"]) == "a"
    assert ir.expr_text(SymbolRef("a"), ["a"]) == "$a"


def test_loop_variable_hides_a_symbol_in_its_loop_only() -> None:
    def call(index: ir.Expr) -> ir.Call:
        return ir.Call("k", (index,), ())

    inside = (call(LoopVar("n")), call(SymbolRef("n")))
    body = (call(SymbolRef("n")), dense("n", 2, *inside), call(SymbolRef("n")), call(LoopVar("n")))
    module = ir.Module("m", (), (), (), body)
    assert ir.to_text(module) == (
        "module m\n\nbody {\n  k[n]()\n  parallel n in n: dense 0:+2 {\n"
        "    k[n]()\n    k[$n]()\n  }\n  k[n]()\n  k[?n]()\n}\n"
    )
    check_round_trip(module)


def test_comments_and_layout_do_not_matter() -> None:
    text = 'module m # "a name"\nbody{k[1](X[0]) # }\n k ( X [ 0 : + 2 : 3 ] , X[0:+2])}'
    module = ir.parse(text)
    assert ir.to_text(module) == ("module m\n\nbody {\n  k[1](X[0])\n  k(X[0:+2:3], X[0:+2])\n}\n")


KERNEL = 'kernel k(a: in f32[]) python "k"'


@pytest.mark.parametrize(
    ("text", "message", "line", "col"),
    [
        ("", "expected 'module', found the end of the text", 1, 1),
        ("modul m", "expected 'module', found modul", 1, 1),
        ("module in", "'in' is a keyword and cannot be a name", 1, 8),
        ("module m\nthing", "expected a declaration or 'body', found thing", 2, 1),
        (
            "module m\n  symbol n: size",
            "expected one of extent, scalar, array, tensor, found size",
            2,
            13,
        ),
        ("module m symbol n: array f33", "expected a dtype such as f32, found f33", 1, 26),
        ("module m symbol n: extent =", "expected an integer, found the end of the text", 1, 28),
        ("module m kernel k() on gpu", "expected one of any, vector, cube, found gpu", 1, 24),
        ("module m tensor X: f32[:, 2]", "expected ':', found 2", 1, 27),
        ("module m tensor X: f32[:] at l3", "expected one of global, l2, ub, l1, found l3", 1, 30),
        ("module m tensor X: f32[:] layout [T]", "expected 'R' or 'S', found T", 1, 35),
        (
            "module m tensor X: f32[:, :] layout [S(1), S(1)]",
            "TensorLayout([S(1), S(1)]): a mesh axis shards at most one dimension",
            1,
            37,
        ),
        (
            "module m tensor X: f32[:] layout [R] in strided(1, 2)",
            "1 dimensions and 2 strides",
            1,
            34,
        ),
        ("module m tensor X: f32[:] layout [R] in order", "expected one of row_major, ", 1, 41),
        ("module m body { }\n\n}", "expected the end of the text, found }", 3, 1),
        ("module m body {", "expected a statement or '}', found the end of the text", 1, 16),
        ("module m body {\n k[1 + ](X[0]) }", "expected an expression, found ]", 2, 8),
        ("module m body { k[1 2]() }", "expected ']', found 2", 1, 21),
        ("module m body { k[a.size[0]]() }", "expected 'shape', found size", 1, 21),
        ("module m body { k[-n]() }", "expected an integer, found n", 1, 20),
        ("module m body { k(X[0:2]) }", "expected '+', found 2", 1, 23),
        ("module m body { k(X[drop 0]) }", "expected ':', found ]", 1, 27),
        ("module m body { parallel i in x: dance 0:+1 { } }", "expected one of dense, ", 1, 34),
        (f"module m {KERNEL} body {{\n k(b = X[]) }}", "argument 'b' where the kernel", 2, 4),
        (
            f"module m {KERNEL} body {{\n k(X[], c = X[]) }}",
            "where the kernel has no further",
            2,
            9,
        ),
        ("module m body { ! }", "unexpected character '!'", 1, 17),
        ('module "abc\n', "unexpected character '\"'", 1, 8),
        ('module "a\\qb"', "unknown escape \\q in a string", 1, 8),
        ('module "\\UFFFFFFFF"', "\\UFFFFFFFF is not a character", 1, 8),
        (f"module m body {{ k[{'1' * 5000}]() }}", "an integer of more than 4000 digits", 1, 19),
        (f"module m body {{ k[{'(' * 300}", "nested more than 80 levels deep", 1, 99),
        ("module m body { sequential " + "{ combine " * 300, "nested more than 64", 1, 658),
        ("module m schedule { }", "expected a declaration or 'body'", 1, 10),
        ("module m body { } schedule { A(x) }", "expected an integer, found x", 1, 32),
        ('module m body { } schedule { A() @ "f" }', "expected ':', found }", 1, 40),
    ],
)
def test_parse_errors(text: str, message: str, line: int, col: int) -> None:
    with pytest.raises(CompileError) as caught:
        ir.parse(text, file="plan.txt")
    assert message in caught.value.message
    assert caught.value.loc is not None
    where = caught.value.loc
    assert (where.file, where.line, where.col) == ("plan.txt", line, col)
    assert f"plan.txt:{line}:{col}" in str(caught.value)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_cut_of_a_text_is_an_error(name: str) -> None:
    module = replace(SAMPLES[name](), schedule=())
    text = ir.to_text(module).rstrip()
    for end in range(len(text)):
        with pytest.raises(CompileError):
            ir.parse(text[:end])
