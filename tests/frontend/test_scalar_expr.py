"""Scalar expressions: the normal form, and that it means what Python means."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, assert_never

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pto_wsp import ir
from pto_wsp.frontend import maximum, minimum
from pto_wsp.frontend.context import Scope
from pto_wsp.frontend.scalar_expr import SymInt, atom, lower

SCOPE = Scope("loop", "i", None)
I = atom(ir.LoopVar("i"), SCOPE)  # noqa: E741
J, T = (atom(ir.LoopVar(name), SCOPE) for name in "jt")
N = atom(ir.SymbolRef("n"), SCOPE)
D = atom(ir.ShapeOf("X", 0), SCOPE)
LEN = atom(ir.ArrayLoad("lens", ir.LoopVar("i")), SCOPE)

VALUES = {"i": 3, "j": -7, "t": 5, "n": 11, "X": 13, "lens": -4}


def text(value: SymInt) -> str:
    return ir.expr_text(lower(value), ["i", "j", "t"])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (I + 1, "i + 1"),
        (1 + I, "i + 1"),
        (I - 1, "i - 1"),
        (T * 64, "t * 64"),
        (64 * T, "t * 64"),
        ((T + 1) * 64, "t * 64 + 64"),
        (J + I, "i + j"),
        (I * 2 + J - 1 - I, "i + j - 1"),
        (-I, "0 - i"),
        (5 - I, "5 - i"),
        (-I - 1, "-1 - i"),
        (D - I - 1, "X.shape[0] - i - 1"),
        (LEN - 1 + I, "i + lens[i] - 1"),
        (N * I, "i * n"),
        ((I + 1) * N, "i * n + n"),
        (I * J * 4, "i * j * 4"),
        (I // 2, "i // 2"),
        (I % 2, "i % 2"),
        ((T * 64 + 63) // 64, "t"),
        ((T * 64 + I) // 64, "t + i // 64"),
        ((T * 64 + I + 130) % 64, "(i + 2) % 64"),
        ((T * 6 + 2) // 4, "(t * 3 + 1) // 2"),
        (I // N, "i // n"),
        (100 // N, "100 // n"),
        (-(-N // 64), "0 - (0 - n) // 64"),
        (minimum(I + 4, I), "i"),
        (maximum(I + 4, I), "i + 4"),
        (minimum(64, N - T), "min(n - t, 64)"),
        (maximum(J, I), "max(i, j)"),
        (I - I, "0"),
        ((T + 1) * N - T * N, "n"),
    ],
)
def test_reads_as_one_would_write_it(value: SymInt, expected: str) -> None:
    assert text(value) == expected


def test_a_tile_has_a_constant_extent() -> None:
    assert lower((T + 1) * 64 - T * 64) == ir.Const(64)


def test_same_sum_same_node() -> None:
    assert lower(2 * (I + J) - J) == lower(J + I + I)


def test_numpy_integers_are_integers() -> None:
    np = pytest.importorskip("numpy")
    assert lower(np.int64(2) * I + np.int8(1)) == lower(I * 2 + 1)


Pair = tuple["SymInt | int", int]
LEAVES: list[Pair] = [
    (I, VALUES["i"]),
    (J, VALUES["j"]),
    (N, VALUES["n"]),
    (D, VALUES["X"]),
    (LEN, VALUES["lens"]),
]
OPERATIONS: list[tuple[Callable[..., Any], Callable[..., int]]] = [
    (operator.add, operator.add),
    (operator.sub, operator.sub),
    (operator.mul, operator.mul),
    (operator.floordiv, operator.floordiv),
    (operator.mod, operator.mod),
    (minimum, min),
    (maximum, max),
]


def is_defined(data: tuple[Pair, Pair, int]) -> bool:
    return data[1][1] != 0 or OPERATIONS[data[2]][1] not in (operator.floordiv, operator.mod)


def apply(data: tuple[Pair, Pair, int]) -> Pair:
    """An operation on two pairs of a symbolic value and its number."""
    (a, x), (b, y), which = data
    symbolic, plain = OPERATIONS[which]
    return symbolic(a, b), plain(x, y)


def pairs() -> st.SearchStrategy[Pair]:
    numbers = st.integers(-70, 70).map(lambda n: (n, n))
    leaves = st.sampled_from(LEAVES) | numbers
    which = st.integers(0, len(OPERATIONS) - 1)
    return st.recursive(
        leaves,
        lambda inner: st.tuples(inner, inner, which).filter(is_defined).map(apply),
        max_leaves=10,
    )


def evaluate(expr: ir.Expr) -> int:
    match expr:
        case ir.Const(value):
            return value
        case ir.LoopVar(name) | ir.SymbolRef(name):
            return VALUES[name]
        case ir.ShapeOf(tensor, _):
            return VALUES[tensor]
        case ir.ArrayLoad(array, index):
            assert index == ir.LoopVar("i")
            return VALUES[array]
        case ir.Binary(op, lhs, rhs):
            a, b = evaluate(lhs), evaluate(rhs)
            match op:
                case ir.BinaryOp.ADD:
                    return a + b
                case ir.BinaryOp.SUB:
                    return a - b
                case ir.BinaryOp.MUL:
                    return a * b
                case ir.BinaryOp.FLOORDIV:
                    return a // b
                case ir.BinaryOp.MOD:
                    return a % b
                case ir.BinaryOp.MIN:
                    return min(a, b)
                case ir.BinaryOp.MAX:
                    return max(a, b)
                case _:
                    assert_never(op)
        case _:
            assert_never(expr)


@given(pairs())
def test_normal_form_keeps_the_value(pair: Pair) -> None:
    value, number = pair
    if isinstance(value, SymInt):
        assert evaluate(lower(value)) == number
    else:
        assert value == number


@given(pairs(), pairs(), pairs())
def test_equal_sums_have_equal_forms(a: Pair, b: Pair, c: Pair) -> None:
    left = I + (a[0] + b[0]) * c[0]
    right = c[0] * b[0] + (a[0] * c[0] + I)
    assert lower(left) == lower(right)


def test_refuses_expressions_that_grow_without_end(refused: Callable[..., object]) -> None:
    def case() -> None:
        value = I
        for _ in range(64):
            value = minimum(value * 2 + J, value)  #!

    refused(case, "a scalar expression is too large")

    def products() -> None:
        value = I + J
        for _ in range(64):
            value = value * value  #!

    refused(products, "a scalar expression is too large")


def test_refuses_constants_beyond_64_bits(refused: Callable[..., object]) -> None:
    def case() -> None:
        lower(I * 2**63)  #!

    refused(case, "a constant in a scalar expression does not fit 64 bits")
    assert lower(I * 2**63 - I * 2**63 + 1) == ir.Const(1)


def test_refuses_division_by_zero(refused: Callable[..., object]) -> None:
    def case() -> None:
        _ = I // (J - J)  #!

    refused(case, "division by zero in a scalar expression")


def test_refuses_what_is_no_integer(refused: Callable[..., object]) -> None:
    def case() -> None:
        _ = I * 0.5  #!  # pyright: ignore[reportOperatorIssue]

    refused(case, "float in a scalar expression")

    def divided() -> None:
        _ = I / 2  #!

    refused(divided, "/ of a symbolic value cannot be traced")

    def power() -> None:
        _ = I**2  #!  # pyright: ignore[reportOperatorIssue]

    refused(power, "** of a symbolic value cannot be traced")
