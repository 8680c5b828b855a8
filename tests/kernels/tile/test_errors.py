"""What tile code cannot do: each mistake names the user's line, why, and what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.kernels import pto
from tests.kernels.tile.tracing import out, scalar, tensor, tile, traced

F16, F32, I32 = DType.F16, DType.F32, DType.I32
ELSEWHERE: list[Any] = []


def kernel_of(line: str) -> Any:
    """A kernel of one line; it sees x, i (integers), h (halves), y, t (a tensor), n and s."""
    names: dict[str, Any] = {
        "pto": pto,
        "np": np,
        "F16": F16,
        "F32": F32,
        "I32": I32,
        "DType": DType,
    }
    exec(f"def kernel(x, i, h, y, t, n, s):\n    {line}\n", names)
    return names["kernel"]


PARAMS: dict[str, Any] = {
    "x": tile(4, 8),
    "i": tile(4, 8, dtype=I32),
    "h": tile(4, 8, dtype=F16),
    "y": out(4, 8),
    "t": tensor(3),
    "n": scalar(DType.I64),
    "s": scalar(),
}


def refused(function: Any) -> CompileError:
    with pytest.raises(CompileError) as caught:
        traced(function, **PARAMS)
    assert caught.value.loc is not None
    assert caught.value.why
    assert caught.value.fix
    return caught.value


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        # dtypes
        ("x + h", Code.TILE_DTYPE, "add of f32 and f16"),
        ("x + s * i", Code.TILE_DTYPE, "mul of f32 and i32"),
        ("pto.where(x > 0, x, h)", Code.TILE_DTYPE, "where of f32 and f16"),
        ("i / 2", Code.TILE_DTYPE, "div of i32"),
        ("x // 2", Code.TILE_DTYPE, "floordiv of f32"),
        ("x & 1", Code.TILE_DTYPE, "and of f32"),
        ("i + 0.5", Code.TILE_DTYPE, "the number 0.5 as i32"),
        ("i + 2**40", Code.TILE_DTYPE, "the number 1099511627776 as i32"),
        ("x + True", Code.TILE_DTYPE, "the number True as f32"),
        ("pto.exp(i)", Code.TILE_DTYPE, "exp of i32"),
        ("pto.matmul(x, h.T)", Code.TILE_DTYPE, "matmul of f32 and f16"),
        ("pto.matmul_acc(pto.zeros((4, 4), F16), h, h.T)", Code.TILE_DTYPE, "matmul_acc onto f16"),
        ("pto.store(y, i)", Code.TILE_DTYPE, "a store of i32 into f32"),
        ("pto.store(y, 1 + 0 * n)", Code.TILE_DTYPE, "a store of i64 into f32"),
        # shapes
        ("x + x.T", Code.TILE_SHAPE, "add of f32[4?, 8?] and f32[8?, 4?]"),
        ("pto.matmul(x, x)", Code.TILE_SHAPE, "matmul of f32[4?, 8?] and f32[4?, 8?]"),
        ("pto.store(y, pto.row_sum(x))", Code.TILE_SHAPE, "a store of f32[4?, 1] into a region"),
        ("pto.row_sum(s)", Code.TILE_SHAPE, "sum_of of a scalar"),
        ("pto.reshape(pto.pad(x, 0), (5, 5))", Code.TILE_SHAPE, "reshape of f32[4, 8] to (5, 5)"),
        ("pto.concat([pto.pad(x, 0), pto.zeros((1, 7))])", Code.TILE_SHAPE, "concat of f32[4, 8]"),
        ("pto.gather(x, i)", Code.TILE_SHAPE, "gather by i32[4?, 8?]"),
        # arguments
        ("pto.exp(1.0)", Code.TILE_ARGUMENT, "exp of float"),
        ("pto.maximum(1, 2)", Code.TILE_ARGUMENT, "max of int"),
        ("pto.exp('x')", Code.TILE_ARGUMENT, "exp of str"),
        ("pto.exp(np.ones(3))", Code.TILE_ARGUMENT, "exp of ndarray"),
        ("pto.full((2, 2), 1.0)", Code.TILE_ARGUMENT, "full with 1.0"),
        ("pto.zeros((2, 2), 'f32')", Code.TILE_ARGUMENT, "full with str"),
        ("pto.zeros((n, 2))", Code.TILE_ARGUMENT, "full with ScalarValue"),
        ("pto.zeros((0, 2))", Code.TILE_ARGUMENT, "full of shape (0, 2)"),
        ("pto.zeros((1, 2, 3))", Code.TILE_ARGUMENT, "full of shape (1, 2, 3)"),
        ("pto.cast(x, I32, 'up')", Code.TILE_ARGUMENT, "cast with rounding 'up'"),
        ("pto.cast(x, 'i32')", Code.TILE_ARGUMENT, "cast with str"),
        ("pto.topk(x, 9)", Code.TILE_ARGUMENT, "topk of 9 of 8 columns"),
        ("pto.topk(x, n)", Code.TILE_ARGUMENT, "topk with ScalarValue"),
        ("pto.concat(x)", Code.TILE_ARGUMENT, "concat with Ref"),
        ("pto.arange(4, axis=2)", Code.TILE_ARGUMENT, "arange along axis 2"),
        ("pto.scalar('a', F32)", Code.TILE_ARGUMENT, "scalar with str"),
        ("pto.for_range(0, 8, 0)", Code.TILE_ARGUMENT, "for_range with a step of 0"),
        ("pto.for_range(s)", Code.TILE_ARGUMENT, "for_range with ScalarValue"),
        ("pto.when(x > 0)", Code.TILE_ARGUMENT, "when(bool[4?, 8?])"),
        ("pto.when(1)", Code.TILE_ARGUMENT, "when(int)"),
        # memory
        ("pto.store(x, x)", Code.TILE_REFERENCE, "a store into an In parameter"),
        ("pto.load(y)", Code.TILE_REFERENCE, "a load of an Out parameter"),
        ("y + 1", Code.TILE_REFERENCE, "a load of an Out parameter"),
        ("pto.load(t)", Code.TILE_REFERENCE, "load of t, all of it"),
        ("t + 1", Code.TILE_REFERENCE, "add of t, all of it"),
        ("t[0, 0:4, 0:4] + 1", Code.TILE_REFERENCE, "add of a part of the tensor t"),
        ("pto.load(t[0, 0:n, 0:4])", Code.TILE_REFERENCE, "t[...] whose length is not known"),
        ("pto.load(t[0, n:, 0:4])", Code.TILE_REFERENCE, "t[...] to an end that is not known"),
        ("pto.load(t[0, 0:4:2, 0:4])", Code.TILE_REFERENCE, "t[...] with a step"),
        ("pto.load(t[0, 4:4, 0:4])", Code.TILE_REFERENCE, "t[...] of length 0"),
        ("pto.load(t[-1, 0:4, 0:4])", Code.TILE_REFERENCE, "t[...] with the index -1"),
        ("pto.load(t[s, 0:4, 0:4])", Code.TILE_REFERENCE, "t[...] with ScalarValue"),
        ("pto.load(t[0, 0, 0, 0])", Code.TILE_REFERENCE, "t[...] has 4 indices"),
        ("pto.load(t[0:2, 0:4, 0:4])", Code.TILE_SHAPE, "3 dimensions in one tile"),
        ("(x + 0)[0:9]", Code.TILE_REFERENCE, "elements 0 to 8 of 4"),
        ("pto.load(3)", Code.TILE_REFERENCE, "load of int"),
        ("pto.scatter(x + 0, i, x)", Code.TILE_REFERENCE, "scatter into TileValue"),
        ("pto.gather(t, i[:, 0:1])", Code.TILE_REFERENCE, "gather of a parameter of rank 3"),
        ("y[0:4] = x", Code.TILE_REFERENCE, "an assignment to y[...]"),
        # Python
        ("bool(x > 0)", Code.TILE_TESTED, "the truth of a traced value"),
        ("x > 0 and s > 0", Code.TILE_TESTED, "the truth of a traced value"),
        ("range(n)", Code.TILE_TESTED, "a traced value as a Python integer"),
        ("[1, 2][n]", Code.TILE_TESTED, "a traced value as a Python integer"),
        ("float(s)", Code.TILE_TESTED, "a traced value as a Python number"),
        ("int(n)", Code.TILE_TESTED, "a traced value as a Python integer"),
        ("len(x)", Code.TILE_TESTED, "len() of a traced value"),
        ("[a for a in x]", Code.TILE_TESTED, "iteration over a traced value"),
        ("1 in x", Code.TILE_TESTED, "`in` of a traced value"),
        ("np.sqrt(np.asarray(x))", Code.TILE_TESTED, "a NumPy function of a traced value"),
        # carried values
        ("pto.carry(a=1).b", Code.TILE_CARRY, "no carried value b"),
        ("pto.carry(a=1).b = 2", Code.TILE_CARRY, "no carried value b"),
        ("pto.carry(a=x).a = h", Code.TILE_CARRY, "a becomes f16[4?, 8?], it is f32[4?, 8?]"),
        ("pto.carry(a=x).a = x.T", Code.TILE_CARRY, "a becomes f32[8?, 4?]"),
        ("pto.carry(a='x')", Code.TILE_ARGUMENT, "a carried value a of str"),
        ("pto.otherwise()", Code.OTHERWISE_ALONE, "pto.otherwise without pto.when"),
        ("pto.for_range(4)", Code.UNUSED, "pto.for_range(...) of kernel kernel is not used"),
        ("pto.when(n > 0)", Code.UNUSED, "pto.when(...) of kernel kernel is not used"),
        ("return x + 1", Code.KERNEL_BODY, "kernel kernel returns a value"),
    ],
)
def test_mistakes(line: str, code: Code, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        traced(kernel_of(line), **PARAMS)
    assert (caught.value.code, message in caught.value.message) == (code, True), str(caught.value)
    assert caught.value.why
    assert caught.value.fix
    if code is not Code.KERNEL_BODY:
        assert caught.value.loc is not None
        assert caught.value.loc.line == 2


def test_a_value_outside_its_loop() -> None:
    def escapes(x: Any, i: Any, h: Any, y: Any, t: Any, n: Any, s: Any) -> None:
        last = x
        for j in pto.for_range(n):
            last = x * pto.cast(j, F32)
        pto.store(y, last)

    error = refused(escapes)
    assert error.code is Code.TILE_ESCAPED
    assert "store of a value outside the loop it belongs to" in error.message
    assert "pto.store(y, last)" in error.loc.render()


def test_a_value_outside_its_condition() -> None:
    def escapes(x: Any, i: Any, h: Any, y: Any, t: Any, n: Any, s: Any) -> None:
        found = x
        with pto.when(n > 0):
            found = x * 2
        pto.store(y, found)

    error = refused(escapes)
    assert "outside the condition it belongs to" in error.message


def test_what_a_condition_gave_before_otherwise() -> None:
    def grabs(x: Any, i: Any, h: Any, y: Any, t: Any, n: Any, s: Any) -> None:
        c = pto.carry(a=x)
        with pto.when(n > 0):
            c.a = x * 2
        kept = c.a
        with pto.otherwise():
            c.a = x * 3
        pto.store(y, kept)

    assert refused(grabs).code is Code.TILE_ESCAPED


def test_a_value_of_another_kernel() -> None:
    def keeps(x: Any, i: Any, h: Any, y: Any, t: Any, n: Any, s: Any) -> None:
        ELSEWHERE.append(x + 1)
        ELSEWHERE.append(x)

    def uses(index: int) -> Any:
        def kernel(x: Any, i: Any, h: Any, y: Any, t: Any, n: Any, s: Any) -> None:
            pto.store(y, ELSEWHERE[index])

        return kernel

    ELSEWHERE.clear()
    traced(keeps, **PARAMS)
    for index in (0, 1):
        error = refused(uses(index))
        assert error.code is Code.TILE_ESCAPED
        assert "keeps" in error.message


def test_a_loop_that_is_left_early() -> None:
    def leaves(x: Any, i: Any, h: Any, y: Any, t: Any, n: Any, s: Any) -> None:
        for _ in pto.for_range(n):
            pto.store(y, x)
            break

    error = refused(leaves)
    assert error.code is Code.LOOP_LEFT_EARLY
    assert "for _ in pto.for_range(n)" in error.loc.render()


def test_outside_a_kernel() -> None:
    for function in (lambda: pto.exp(1.0), lambda: pto.zeros((1, 1)), lambda: pto.carry(a=1)):
        with pytest.raises(CompileError, match="outside a tile kernel") as caught:
            function()
        assert caught.value.code is Code.TILE_OUTSIDE


def test_an_error_ends_the_trace() -> None:
    with pytest.raises(CompileError):
        traced(kernel_of("x + h"), **PARAMS)
    with pytest.raises(CompileError, match="outside a tile kernel"):
        pto.zeros((1, 1))


def test_a_loop_runs_once() -> None:
    def twice(x: Any, i: Any, h: Any, y: Any, t: Any, n: Any, s: Any) -> None:
        steps = pto.for_range(n)
        for _ in steps:
            pto.store(y, x)
        for _ in steps:
            pto.store(y, x)

    error = refused(twice)
    assert error.code is Code.TILE_ARGUMENT
    assert error.message == "a second loop over one for_range"
