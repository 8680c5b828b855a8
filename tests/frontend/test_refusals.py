"""What a workload cannot do is refused at its line, with the reason and the way out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    CompileError,
    DenseDyn,
    InOut,
    P,
    Tensor,
    TypeCheckError,
    kernel,
    slot_load_u64,
    workload,
)

X = Tensor(data=np.zeros((8, 8), np.float32))

Refused = Callable[..., CompileError]


@kernel
def touch(x: InOut[Tensor]):
    x[...] += 1


def trace(function: Any, *args: Any) -> None:
    workload(function)(*args).traced()


LEFT = "a P loop is left before its end"


def test_break_and_return(refused: Refused) -> None:
    def breaks() -> None:
        def w(rows: Any):
            for i in P(rows):
                touch[i](X[i])
                break  #!
            touch(X)

        trace(w, DenseDyn(3))

    refused(breaks, LEFT)

    def breaks_last() -> None:
        def w(rows: Any):
            for i in P(rows):
                touch[i](X[i])
                break  #!

        trace(w, DenseDyn(3))

    refused(breaks_last, LEFT)

    def breaks_inner() -> None:
        def w(rows: Any):
            for i in P(rows):
                for j in P(rows):
                    touch[i, j](X[i])
                    break  #!

        trace(w, DenseDyn(3))

    refused(breaks_inner, LEFT)

    def returns() -> None:
        def w(rows: Any):
            for i in P(rows):
                touch[i](X[i])
                return  #!

        trace(w, DenseDyn(3))

    refused(returns, LEFT)


def test_an_exception_out_of_a_loop(refused: Refused) -> None:
    def swallowed() -> None:
        def w(rows: Any):
            try:
                for _ in P(rows):
                    raise KeyError  #!
            except KeyError:
                pass
            touch(X)

        trace(w, DenseDyn(3))

    refused(swallowed, LEFT)

    def fails(rows: Any):
        for _ in P(rows):
            raise KeyError("the user's own")

    with pytest.raises(KeyError, match="the user's own"):
        trace(fails, DenseDyn(3))


def test_a_failed_trace_leaves_nothing_behind() -> None:
    def fails(rows: Any):
        for _ in P(rows):
            raise KeyError

    def works(rows: Any):
        for i in P(rows):
            touch[i](X[i])

    value = workload(fails)(DenseDyn(3))
    for _ in range(2):
        with pytest.raises(KeyError):
            value.traced()
    trace(works, DenseDyn(3))
    assert X.shape == (8, 8)


def test_loops_outside_for_statements(refused: Refused) -> None:
    def stepped() -> None:
        def w(rows: Any):
            every = iter(P(rows))  #!
            touch[next(every)](X)

        trace(w, DenseDyn(3))

    refused(stepped, LEFT)

    def kept() -> None:
        alive: list[Any] = []

        def w(rows: Any):
            alive.append(iter(P(rows)))  #!
            touch[next(alive[0])](X)

        trace(w, DenseDyn(3))

    refused(kept, LEFT)

    def zipped() -> None:
        def w(rows: Any, cols: Any):
            for i, j in zip(P(rows), P(cols), strict=False):  #!
                touch[i, j](X[i])

        trace(w, DenseDyn(3), DenseDyn(3))

    refused(zipped, "P loops are interleaved")

    def unused() -> None:
        def w(rows: Any):
            P(rows)  #!

        trace(w, DenseDyn(3))

    refused(unused, "P(...) is not used")

    def unused_seq() -> None:
        def w(rows: Any):
            P.seq(rows)  #!

        trace(w, DenseDyn(3))

    refused(unused_seq, "P.seq(...) is not used")


def test_variables_outside_their_loop(refused: Refused) -> None:
    def region() -> None:
        def w(rows: Any):
            for i in P(rows):
                touch[i](X[i])
            touch(X[i])  #!

        trace(w, DenseDyn(3))

    refused(region, "a value of loop i is used outside of it")

    def derived() -> None:
        def w(rows: Any):
            for i in P(rows):
                later = X[i + 1]
            for i in P(rows):  # the same name, another variable
                touch[i](later)  #!

        trace(w, DenseDyn(3))

    refused(derived, "a value of loop i is used outside of it")

    def combined() -> None:
        def w(rows: Any, lens: Any):
            for b in P(rows):
                later = lens[0] + b
            touch(X[later])  #!

        trace(w, DenseDyn(3), [1, 2, 3])

    refused(combined, "a value of loop b is used outside of it")

    def extent() -> None:
        def w(rows: Any, lens: Any):
            for b in P(rows):
                touch[b](X[b])
            for t in P(lens[b]):  #!
                touch[t](X[t])

        trace(w, DenseDyn(3), [1, 2, 3])

    refused(extent, "a value of loop b is used outside of it")


def test_values_of_another_workload(refused: Refused) -> None:
    kept: list[Any] = []

    def first(lens: Any):
        kept.append(lens[0])

    trace(first, [1])

    def case() -> None:
        def second():
            for i in P(kept[0]):  #!
                touch[i](X[i])

        trace(second)

    refused(case, "a value of workload first is used outside of it")


INDEXED = "a symbolic value indexes something that is not a parameter of the workload"
SYMBOLIC_USES: list[tuple[Callable[[Any], object], str]] = [
    (lambda i: bool(i), "a symbolic value cannot be tested (if, while, and, or, not)"),
    (lambda i: 1 if i else 2, "a symbolic value cannot be tested (if, while, and, or, not)"),
    (lambda i: not i, "a symbolic value cannot be tested (if, while, and, or, not)"),
    (lambda i: 1 if i == 0 else 2, "a symbolic condition cannot be tested (if, while, and, or, not)"),  # noqa: E501
    (lambda i: i > 1 and i < 3, "a symbolic condition cannot be tested (if, while, and, or, not)"),
    (lambda i: min(i, 4), "a symbolic condition cannot be tested (if, while, and, or, not)"),
    (lambda i: (i > 1) + 1, "a symbolic condition is not a number (+)"),
    (lambda i: range(i), "a symbolic value cannot become a Python number (range(), int() or the like)"),  # noqa: E501
    (lambda i: [1, 2][i], INDEXED),
    (lambda i: int(i), "a symbolic value cannot become a Python number (int())"),
    (lambda i: float(i), "a symbolic value cannot become a Python number (float())"),
    (lambda i: np.arange(4)[i], INDEXED),
    (lambda i: np.arange(4)[0:i], INDEXED),
    (lambda i: np.asarray(i), "a symbolic value cannot become a Python number (NumPy)"),
    (lambda i: list(i), "a symbolic value cannot be unpacked or iterated over (iteration)"),
    (lambda i: len(i), "a symbolic value cannot be unpacked or iterated over (len())"),
    (lambda i: i << 1, "<< of a symbolic value cannot be traced"),
    (lambda i: abs(i), "abs() of a symbolic value cannot be traced"),
]  # fmt: skip


@pytest.mark.parametrize(("use", "message"), SYMBOLIC_USES)
def test_symbolic_values_have_no_number(use: Callable[[Any], object], message: str) -> None:
    def w(rows: Any):
        for i in P(rows):
            use(i)

    with pytest.raises(CompileError) as raised:
        trace(w, DenseDyn(3))
    assert raised.value.message == message
    assert raised.value.loc is not None
    assert raised.value.loc.line == use.__code__.co_firstlineno
    assert raised.value.why
    assert raised.value.fix


def test_while_and_if(refused: Refused) -> None:
    def loops() -> None:
        def w(lens: Any):
            while lens[0]:  #!
                touch(X)

        trace(w, [1])

    refused(loops, "a symbolic value cannot be tested (if, while, and, or, not)")

    def unpacks() -> None:
        def w(rows: Any):
            for (i,) in P(rows):  #!  # pyright: ignore[reportGeneralTypeIssues]
                touch[i](X[i])

        trace(w, DenseDyn(1))

    refused(unpacks, "a symbolic value cannot be unpacked or iterated over (iteration)")


def test_slots_hold_one_element(refused: Refused) -> None:
    cube = Tensor(data=np.zeros((2, 2, 2), np.int64), name="cube")

    def loads_a_cube() -> None:
        def w():
            slot_load_u64(0, cube[:])  #!

        trace(w)

    refused(loads_a_cube, "slot_load_u64 of a region of rank 3", TypeCheckError)

    def loads_an_array() -> None:
        def w():
            slot_load_u64(0, np.zeros(3))  #!

        trace(w)

    refused(loads_an_array, "slot_load_u64 of ndarray", TypeCheckError)


def test_a_part_of_a_workload_is_not_compiled(refused: Refused) -> None:
    @workload
    def part(rows: Any):
        for i in P(rows):
            touch[i](X[i])

    def compiles() -> None:
        def w(rows: Any):
            part(rows).compile()  #!

        trace(w, DenseDyn(1))

    refused(compiles, ".compile of a workload inside workload w")

    def asks_for_something_else() -> None:
        def w(rows: Any):
            getattr(part(rows), "speed")  # noqa: B009

        trace(w, DenseDyn(1))

    with pytest.raises(AttributeError):
        asks_for_something_else()


def test_the_message_shows_the_line() -> None:
    def w(rows: Any):
        for i in P(rows):
            if i > 3:
                touch[i](X[i])

    with pytest.raises(CompileError) as raised:
        trace(w, DenseDyn(3))
    text = str(raised.value)
    assert "if i > 3:" in text
    assert "^^^^^" in text
    assert "why: a workload is traced once for all values" in text
    assert "fix: write `with P.when(condition):`" in text
