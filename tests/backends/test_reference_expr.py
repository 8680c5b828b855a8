"""Values of expressions on the reference backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pto_wsp.errors import ExecutionError, KernelError
from pto_wsp.plan import ExprOp, ReduceOp, ScalarType
from tests.backends.reference_runs import execute, recorder
from tests.kernels.sketch import P, Sketch


def value_of(make: Callable[[Sketch], int], **symbols: Any) -> int:
    """The value of an expression, seen through the start of a region of a large tensor."""
    s = Sketch()
    x = s.tensor("X", 1)
    node = make(s)
    kernel = s.kernel("k", [P("x", rank=0)])
    base = s.add(node, s.const(50))
    s.call(kernel, [(x, [base])])
    seen, record = recorder()
    execute(s.build(), {"X": np.arange(100, dtype=np.float32), **symbols}, k=record)
    return seen[0] - 50


@pytest.mark.parametrize(
    ("op", "a", "b", "expected"),
    [
        (ExprOp.ADD, 3, -5, -2),
        (ExprOp.SUB, 3, -5, 8),
        (ExprOp.MUL, -3, 5, -15),
        (ExprOp.FLOORDIV, -7, 2, -4),
        (ExprOp.FLOORDIV, 7, -2, -4),
        (ExprOp.FLOORDIV, -7, -2, 3),
        (ExprOp.MOD, -7, 3, 2),
        (ExprOp.MOD, 7, -3, -2),
        (ExprOp.MIN, 4, -4, -4),
        (ExprOp.MAX, 4, -4, 4),
        (ExprOp.EQ, 2, 2, 1),
        (ExprOp.NE, 2, 2, 0),
        (ExprOp.LT, 2, 2, 0),
        (ExprOp.LE, 2, 2, 1),
        (ExprOp.GT, 3, 2, 1),
        (ExprOp.GE, 1, 2, 0),
    ],
)
def test_binary_operators(op: ExprOp, a: int, b: int, expected: int) -> None:
    kind = ScalarType.BOOL if op >= ExprOp.EQ else ScalarType.I64

    def make(s: Sketch) -> int:
        node = s.b.expr(op, type=kind, a=s.const(a), b=s.const(b))
        return node if kind == ScalarType.I64 else s.b.expr(ExprOp.CAST, a=node)

    assert value_of(make) == expected


def test_leaves() -> None:
    assert value_of(lambda s: s.const(-7)) == -7
    assert value_of(lambda s: s.extent("n"), n=13) == 13


def test_shape_and_load() -> None:
    def shape(s: Sketch) -> int:
        return s.op(ExprOp.SUB, s.b.expr(ExprOp.SHAPE, a=0, arg=0), s.const(90))

    assert value_of(shape) == 10
    loaded = value_of(lambda s: s.load(s.array("A", low=-9), s.const(2)), A=np.array([1, 2, -3]))
    assert loaded == -3


def test_logic_and_select() -> None:
    def holds(s: Sketch, op: ExprOp, a: int, b: int) -> int:
        one = s.const(1)
        true, false = (
            s.b.expr(ExprOp.EQ, type=ScalarType.BOOL, a=one, b=s.const(k)) for k in (1, 2)
        )
        values = [true if v else false for v in (a, b)]
        operands = {"a": values[0]} if op == ExprOp.NOT else {"a": values[0], "b": values[1]}
        return s.b.expr(ExprOp.CAST, a=s.b.expr(op, type=ScalarType.BOOL, **operands))

    assert value_of(lambda s: holds(s, ExprOp.AND, 1, 0)) == 0
    assert value_of(lambda s: holds(s, ExprOp.OR, 1, 0)) == 1
    assert value_of(lambda s: holds(s, ExprOp.NOT, 0, 0)) == 1

    def select(s: Sketch) -> int:
        condition = s.b.expr(ExprOp.LT, type=ScalarType.BOOL, a=s.const(1), b=s.const(2))
        wrong = s.op(ExprOp.FLOORDIV, s.const(1), s.const(0))  # must not be evaluated
        return s.b.expr(ExprOp.SELECT, a=condition, b=s.const(5), c=wrong)

    assert value_of(select) == 5


def fold(s: Sketch, op: ExprOp, arg: int, low: int, high: int, body: int) -> int:
    return s.b.expr(op, arg=arg, a=s.const(low), b=s.const(high), c=body)


@pytest.mark.parametrize(
    ("op", "low", "high", "expected"),
    [
        (ReduceOp.ANY, 0, 3, 0),
        (ReduceOp.ANY, 0, 4, 1),
        (ReduceOp.ANY, 4, 4, 0),
        (ReduceOp.ALL, 3, 9, 1),
        (ReduceOp.ALL, 2, 9, 0),
        (ReduceOp.ALL, 2, 2, 1),
    ],
)
def test_any_and_all(op: ReduceOp, low: int, high: int, expected: int) -> None:
    """Of the statement x >= 3."""

    def make(s: Sketch) -> int:
        x = s.b.expr(ExprOp.BOUNDVAR, arg=0)
        body = s.b.expr(ExprOp.GE, type=ScalarType.BOOL, a=x, b=s.const(3))
        bounds = {"a": s.const(low), "b": s.const(high), "c": body}
        return s.b.expr(
            ExprOp.CAST, a=s.b.expr(ExprOp.REDUCE, type=ScalarType.BOOL, arg=op, **bounds)
        )

    assert value_of(make) == expected


@pytest.mark.parametrize(
    ("op", "low", "high", "expected"),
    [
        (ReduceOp.SUM, 1, 5, 1 + 4 + 9 + 16),
        (ReduceOp.SUM, 5, 1, 0),
        (ReduceOp.MIN, -2, 3, 0),
        (ReduceOp.MAX, -2, 3, 4),
    ],
)
def test_reduce(op: ReduceOp, low: int, high: int, expected: int) -> None:
    def make(s: Sketch) -> int:
        x = s.b.expr(ExprOp.BOUNDVAR, arg=0)
        return fold(s, ExprOp.REDUCE, op, low, high, s.op(ExprOp.MUL, x, x))

    assert value_of(make) == expected


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(0, 20, 7), (9, 20, 9), (0, 5, 5), (3, 3, 3), (6, 2, 2)]
)
def test_search(low: int, high: int, expected: int) -> None:
    def make(s: Sketch) -> int:
        x = s.b.expr(ExprOp.BOUNDVAR, arg=0)
        holds = s.b.expr(ExprOp.GE, type=ScalarType.BOOL, a=x, b=s.const(7))
        return fold(s, ExprOp.SEARCH, 0, low, high, holds)

    assert value_of(make) == expected


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda s: s.add(s.const(2**63 - 1), s.const(1)),
            "integer overflow in an index expression: 9223372036854775808 does not fit 64 bits",
        ),
        (
            lambda s: s.op(ExprOp.FLOORDIV, s.const(-(2**63)), s.const(-1)),
            "integer overflow in an index expression: 9223372036854775808 does not fit 64 bits",
        ),
        (
            lambda s: s.op(ExprOp.NEG, s.const(-(2**63))),
            "integer overflow in an index expression: 9223372036854775808 does not fit 64 bits",
        ),
        (
            lambda s: s.op(ExprOp.MOD, s.const(1), s.const(0)),
            "division by zero in an index expression",
        ),
    ],
)
def test_expressions_without_a_value(make: Callable[[Sketch], int], message: str) -> None:
    with pytest.raises(ExecutionError) as caught:
        value_of(make)
    assert not isinstance(caught.value, KernelError)
    assert caught.value.message == f"{message} in k[]"


@pytest.mark.parametrize("index", [-1, 3])
def test_load_outside_the_array(index: int) -> None:
    with pytest.raises(ExecutionError) as caught:
        value_of(lambda s: s.load(s.array("A"), s.const(index)), A=np.array([1, 2, 3]))
    assert caught.value.message == f"index {index} is outside array 'A' of length 3 in k[]"


def test_shared_nodes_are_evaluated_once() -> None:
    """Sixty doublings of one node are sixty steps, not two to the sixtieth."""

    def make(s: Sketch) -> int:
        node = s.const(0)
        for _ in range(14):
            node = s.add(node, node)
        return node

    assert value_of(make) == 0
