"""Constant folding: what it gives, and that it changes no value."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pto_wsp import ir
from pto_wsp.passes.simplify import Simplify, simplify
from tests.ir.interpreter import Bindings, evaluate, tasks
from tests.ir.samples import SAMPLES
from tests.ir.strategies import Case, any_exprs, cases


def parsed(text: str) -> ir.Expr:
    """An expression from its text form; `a` to `c` are symbols."""
    (call,) = ir.parse(f"module m body {{ k[{text}]() }}").body
    assert isinstance(call, ir.Call)
    return call.indices[0]


@pytest.mark.parametrize(
    ("text", "simple"),
    [
        ("1 + 2 * 3", "7"),
        ("-7 // 2", "-4"),
        ("-7 % 3", "2"),
        ("min(3, 5) + max(3, 5)", "8"),
        ("a + 0", "a"),
        ("0 + a", "a"),
        ("a - 0", "a"),
        ("a * 1", "a"),
        ("1 * a", "a"),
        ("a // 1", "a"),
        ("1 + a + 2 - 3", "a"),
        ("a + 1 + 1", "a + 2"),
        ("a - 1 - 1", "a - 2"),
        ("a - 1 + 3", "a + 2"),
        ("a + 1 - 3", "a - 2"),
        ("a + -1", "a - 1"),
        ("a - -1", "a + 1"),
        ("2 * a * 3", "a * 6"),
        ("2 + a", "a + 2"),
        ("3 - a", "3 - a"),
        ("min(2, min(a, 3))", "min(a, 2)"),
        ("max(a, a)", "a"),
        ("x[0 + a] + 0", "x[a]"),
        ("min(a, min(2, 3 - 1))", "min(a, 2)"),
        ("(a + 1) * 2 + 0", "(a + 1) * 2"),
        # what might fail at run time stays
        ("a * 0", "a * 0"),
        ("a - a", "a - a"),
        ("a % 1", "a % 1"),
        ("1 // 0", "1 // 0"),
        ("1 % 0", "1 % 0"),
        ("a // (1 - 1)", "a // 0"),
        ("9223372036854775807 + 1", "9223372036854775807 + 1"),
        ("a + 9223372036854775807 + 1", "a + 9223372036854775807 + 1"),
        ("a - -9223372036854775808", "a - -9223372036854775808"),
        ("a + -9223372036854775808", "a + -9223372036854775808"),
        ("-9223372036854775808 // -1", "-9223372036854775808 // -1"),
    ],
)
def test_simplify(text: str, simple: str) -> None:
    assert ir.expr_text(simplify(parsed(text))) == simple


# Few names and few constants, so that every rule meets every operand soon.
small_exprs: st.SearchStrategy[ir.Expr] = st.recursive(
    st.builds(ir.Const, st.integers(-2, 2)) | st.builds(ir.SymbolRef, st.sampled_from("ab")),
    lambda inner: st.builds(ir.Binary, st.sampled_from(ir.BinaryOp), inner, inner),
    max_leaves=6,
)


def value(expr: ir.Expr, a: int, b: int) -> int | str:
    try:
        return evaluate(expr, Bindings(extents={"a": a, "b": b}), {})
    except ZeroDivisionError:
        return "division by zero"


@settings(max_examples=1000)
@given(small_exprs)
def test_values_stay(expr: ir.Expr) -> None:
    simple = simplify(expr)
    for a in (-7, 0, 1, 5):
        for b in (-1, 3):
            assert value(simple, a, b) == value(expr, a, b)


@given(any_exprs)
def test_twice_is_once(expr: ir.Expr) -> None:
    once = simplify(expr)
    assert simplify(once) == once


@given(cases())
def test_tasks_stay(case: Case) -> None:
    module = Simplify().apply(case.module)
    ir.verify(module)
    assert list(tasks(module.body, case.bindings)) == list(tasks(case.module.body, case.bindings))


def test_everything_but_expressions_stays() -> None:
    for sample in SAMPLES.values():
        module: ir.Module = sample()
        assert repr(Simplify().apply(module)) == repr(module)
