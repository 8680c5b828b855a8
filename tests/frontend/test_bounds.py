"""Regions that leave their tensors for certain are refused while the workload is traced; what may
be legal in some run is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    CompileError,
    Dense,
    DenseDyn,
    DType,
    InOut,
    P,
    PagedTensor,
    Ragged,
    Scalar,
    Tensor,
    Token,
    TypeCheckError,
    kernel,
    slot_load_u64,
    slot_set_u64,
    slot_u64,
    workload,
)
from pto_wsp.error_codes import Code

Refused = Callable[..., CompileError]

X = Tensor(data=np.zeros((8, 6), np.float32))
N = Tensor(data=np.zeros(8, np.int64))
K = PagedTensor(np.zeros((4, 2), np.float32), np.zeros((3, 2), np.int32))


@kernel
def touch(x: InOut[Tensor]):
    x[...] += 1


@kernel
def paged(x: InOut[PagedTensor]):
    x[...] += 1


@kernel
def turn(t: InOut[Token]): ...


def trace(function: Any, *args: Any) -> None:
    workload(function)(*args).traced()


def at_once(use: Callable[[Any, Any], Any]) -> None:
    """Uses a temporary of [n, 4], where n is an extent of X, outside any loop."""

    def w() -> None:
        n = X.shape[0]
        touch(use(Tensor.temp((n, 4), DType.F32, name="T"), n))

    trace(w)


OUTSIDE = [
    (lambda T, n: T[0, 4], "element 4 of dimension 1 of 'T' is outside its extent 4"),
    (lambda T, n: T[0, 9], "element 9 of dimension 1 of 'T' is outside its extent 4"),
    (lambda T, n: T[n, 0], "element n of dimension 0 of 'T' is outside its extent n"),
    (lambda T, n: T[n + n, 0], "element n * 2 of dimension 0 of 'T' is outside its extent n"),
    (lambda T, n: T[n * n + n], "element n * n + n of dimension 0 of 'T' is outside its extent n"),
    (lambda T, n: T[0, 2:6], "elements 2 to 5 of dimension 1 of 'T' are outside its extent 4"),
    (lambda T, n: T[0, ::8], None),  # element 0 alone
    (lambda T, n: T[0, 0:9:4], "elements 0 to 8 of dimension 1 of 'T' are outside its extent 4"),
    (lambda T, n: T[0, -5], "element -1 of dimension 1 of 'T' is outside its extent 4"),
    (lambda T, n: T[0, -6:], "elements -2 to 3 of dimension 1 of 'T' are outside its extent 4"),
    (lambda T, n: T[: n + 1, 0], "elements 0 to n of dimension 0 of 'T' are outside its extent n"),
    (lambda T, n: T[-1 - n], "element -1 - n of dimension 0 of 'T' is outside its extent n"),
    # Legal in some run.
    (lambda T, n: T[0, 3], None),
    (lambda T, n: T[0, -4:], None),
    (lambda T, n: T[0], None),
    (lambda T, n: T[7], None),
    (lambda T, n: T[n - 1], None),
    (lambda T, n: T[-9], None),
    (lambda T, n: T[n - 5 :], None),
    (lambda T, n: T[5:n], None),
    (lambda T, n: T[n - 1 : 2 * n - 1], None),  # nothing, if n is 0
    # No element, no bounds.
    (lambda T, n: T[0, 9:9], None),
    (lambda T, n: T[0, 9:2], None),
    (lambda T, n: T[n : n + 0], None),
    (lambda T, n: T[n : 2 * n], None),
]


@pytest.mark.parametrize(("use", "message"), OUTSIDE)
def test_indices_of_a_temporary(use: Callable[[Any, Any], Any], message: str | None) -> None:
    if message is None:
        at_once(use)
        return
    with pytest.raises(TypeCheckError) as raised:
        at_once(use)
    assert raised.value.message.replace("X.shape[0]", "n") == message
    assert raised.value.code is Code.OUT_OF_BOUNDS
    assert raised.value.loc is not None
    assert raised.value.loc.file == __file__


def test_the_error_has_both_sides_and_the_line(refused: Refused) -> None:
    def case() -> None:
        @workload
        def w(rows: Any):
            for i in P(rows):
                T = Tensor.temp((4, 4), DType.F32)
                touch[i](T[i, 4])  #!

        w(DenseDyn(3)).traced()

    error = refused(
        case, "element 4 of dimension 1 of 'tmp' is outside its extent 4", TypeCheckError
    )
    assert error.why == "its indices are 0 to 3"
    assert error.fix == (
        "index inside it, or make it larger; what is inside only sometimes belongs under "
        "P.when(...)"
    )


def test_bound_tensors_know_only_their_own_shape() -> None:
    def at(index: Callable[[], Any]) -> Callable[[], None]:
        return lambda: trace(lambda: touch(index()))

    at(lambda: X[100])()
    at(lambda: X[-100, :9])()
    at(lambda: X[X.shape[1]])()
    for index, what in [
        (lambda: X[X.shape[0]], "element X.shape[0] of dimension 0 of 'X' is"),
        (lambda: X[-1 - X.shape[0]], "element -1 - X.shape[0] of dimension 0 of 'X' is"),
        (lambda: X[0, : X.shape[1] + 1], "elements 0 to X.shape[1] of dimension 1 of 'X' are"),
    ]:
        with pytest.raises(TypeCheckError) as raised:
            at(index)()
        assert raised.value.message.startswith(f"{what} outside its extent X.shape[")


def test_tokens_and_paged_tensors() -> None:
    G = Token((4,), name="G")
    trace(lambda: turn(G[3]))
    with pytest.raises(TypeCheckError, match="element 4 of dimension 0 of 'G'"):
        trace(lambda: turn(G[4]))
    trace(lambda: paged(K[2, 0:4]))
    with pytest.raises(TypeCheckError, match=r"element K_table.shape\[0\] of dimension 0 of 'K'"):
        trace(lambda: paged(K[K.shape[0], 0:1]))


def test_control_reads_inside() -> None:
    with pytest.raises(TypeCheckError, match=r"element N.shape\[0\] of dimension 0 of 'N'"):
        trace(lambda: slot_load_u64(0, N[N.shape[0] :], col=0))

    def w() -> None:
        for _ in P(N[N.shape[0]]):
            touch(X)

    with pytest.raises(TypeCheckError, match=r"element N.shape\[0\] of dimension 0 of 'N'"):
        trace(w)


def test_regions_that_nobody_uses() -> None:
    def w() -> None:
        T = Tensor.temp((4,), DType.F32)
        T[4]  # pyright: ignore[reportUnusedExpression]
        touch(T)

    trace(w)


# --- loops ---


def loops(*extents: Any) -> Callable[..., None]:
    """Traces a use of a temporary of [4] inside loops of these extents: numbers, the parameters n
    and k, or functions of the variables of the loops around."""

    def run(use: Callable[..., Any]) -> None:
        def w(n: Any, k: Any) -> None:
            def inside(rest: tuple[Any, ...], indices: tuple[Any, ...]) -> None:
                if not rest:
                    touch(use(Tensor.temp((4,), DType.F32, name="T"), *indices))
                    return
                extent = rest[0](*indices) if callable(rest[0]) else rest[0]
                params = {"n": n, "k": k}
                for i in P(params[extent] if isinstance(extent, str) else extent):
                    inside(rest[1:], (*indices, i))

            inside(extents, ())

        trace(w, DenseDyn(3), Scalar(2))

    return run


@pytest.mark.parametrize(
    ("extents", "use"),
    [
        ((8,), lambda T, i: T[i]),
        ((5,), lambda T, i: T[i]),
        ((4,), lambda T, i: T[i + 1]),
        ((4,), lambda T, i: T[i - 1]),
        ((4,), lambda T, i: T[i : i + 2]),
        ((2, 3), lambda T, i, j: T[3 * i + j]),
        ((2, 3), lambda T, i, j: T[3 * i - j]),
        ((2, 2), lambda T, i, j: T[1 - i - j]),
        ((5, lambda i: i + 1), lambda T, i, j: T[j]),  # a triangle
        ((2, lambda i: i + 1), lambda T, i, j: T[j + 3]),
        # Whatever the variable is.
        (("n",), lambda T, i: T[4]),
    ],
)
def test_iterations_that_come_for_certain(extents: Any, use: Any) -> None:
    with pytest.raises(TypeCheckError, match="outside its extent 4"):
        loops(*extents)(use)


@pytest.mark.parametrize(
    ("extents", "use"),
    [
        ((4,), lambda T, i: T[i]),
        ((3,), lambda T, i: T[i : i + 2]),
        ((2, 2), lambda T, i, j: T[2 * i + j]),
        ((2, 2), lambda T, i, j: T[1 + i - j]),
        ((4, lambda i: i + 1), lambda T, i, j: T[j]),
        ((4, lambda i: 4 - i), lambda T, i, j: T[i + j]),
        # These loops may have no iteration.
        (("n",), lambda T, i: T[i + 4]),
        ((8, "n"), lambda T, i, j: T[i]),
        (("k", 8), lambda T, i, j: T[j]),
        ((8, lambda i: i), lambda T, i, j: T[i]),
        # and these have none.
        ((0,), lambda T, i: T[i + 4]),
        ((0,), lambda T, i: T[9]),
        ((8, 0), lambda T, i, j: T[i]),
        # nothing is known of these
        ((8,), lambda T, i: T[i % 4]),
        ((8,), lambda T, i: T[i * i]),
        ((8, 8), lambda T, i, j: T[i * j]),
    ],
)
def test_iterations_that_may_not_come(extents: Any, use: Any) -> None:
    loops(*extents)(use)


def test_loops_of_symbolic_extent() -> None:
    def w() -> None:
        T = Tensor.temp((N.shape[0],), DType.F32, name="T")
        for i in P(N.shape[0] + 1):
            touch(T[i])

    with pytest.raises(TypeCheckError) as raised:
        trace(w)
    assert raised.value.message == (
        "element i of dimension 0 of 'T' is outside its extent N.shape[0]"
    )
    assert raised.value.why == (
        "its indices are 0 to N.shape[0] - 1, and i runs from 0 to N.shape[0]"
    )

    def fits() -> None:
        T = Tensor.temp((N.shape[0] + 1,), DType.F32)
        for i in P(N.shape[0] + 1):
            touch(T[i])
            touch(T[N.shape[0] - i])

    trace(fits)


def test_nothing_is_certain_under_a_condition() -> None:
    def w(size: Any, rows: Any, lens: Any) -> None:
        T = Tensor.temp((4,), DType.F32)
        with P.when(size > 4):
            touch(T[4])
        with P.when(size > 5):
            touch(T[-5])
        with P.otherwise():
            for i in P(8):
                touch(T[i])
        slot_set_u64(0, 0)
        for _ in P.loop_while(lambda: slot_u64(0) > 0, max_iterations=3):
            touch(T[4])
        for b in P(rows):
            for t in P(lens):
                touch(T[t + b + 4])

    rows = DenseDyn(2)
    trace(w, 4, rows, Ragged(rows, [0, 0]))


def test_dense_axes() -> None:
    def w(rows: Any) -> None:
        T = Tensor.temp((4,), DType.F32)
        for i in P(rows):
            touch(T[i])

    trace(w, Dense[4]())
    trace(w, Dense[0]())
    trace(w, DenseDyn(8))
    with pytest.raises(TypeCheckError, match="element i of dimension 0") as raised:
        trace(w, Dense[8]())
    assert raised.value.why == "its indices are 0 to 3, and i runs from 0 to 7"
