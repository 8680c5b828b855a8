"""Axes, arrays, arguments and nesting: what is refused, at which line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    CompileError,
    Dense,
    DenseDyn,
    InOut,
    P,
    Ragged,
    Tensor,
    combine,
    kernel,
    sequential,
    workload,
)

X = Tensor(data=np.zeros((8, 8), np.float32))

Refused = Callable[..., CompileError]


@kernel
def touch(x: InOut[Tensor]):
    x[...] += 1


def trace(function: Any, *args: Any) -> None:
    workload(function)(*args).traced()


def test_axes_are_no_numbers(refused: Refused) -> None:
    def iterated() -> None:
        def w(rows: Any):
            for i in rows:  #!
                touch[i](X[i])

        trace(w, DenseDyn(1))

    refused(iterated, "an axis is not a number or a sequence (iteration)")

    def added() -> None:
        def w(rows: Any):
            for i in P(rows - 1):  #!
                touch[i](X[i])

        trace(w, DenseDyn(1))

    refused(added, "an axis is not a number or a sequence (-)")

    def indexed() -> None:
        def w(rows: Any):
            for i in P(rows[0]):  #!
                touch[i](X[i])

        trace(w, DenseDyn(1))

    refused(indexed, "axis rows is indexed")

    def compared() -> None:
        def w(rows: Any):
            if rows == 4:  #!
                touch(X)

        trace(w, DenseDyn(1))

    refused(compared, "an axis is not a number or a sequence (==)")


def test_arrays_have_no_values(refused: Refused) -> None:
    def length() -> None:
        def w(lens: Any):
            for i in P(len(lens)):  #!
                touch[i](X[i])

        trace(w, [1])

    refused(length, "a workload's array has no values while it is traced (len())")

    def from_the_end() -> None:
        def w(lens: Any):
            for i in P(lens[-1]):  #!
                touch[i](X[i])

        trace(w, [1])

    refused(from_the_end, "lens[-1] cannot be traced")

    def sliced() -> None:
        def w(lens: Any):
            lens[1:]  #!

        trace(w, [1])

    refused(sliced, "lens is indexed with slice")


ANY: Any = P  # as seen without a type checker
OVER = [
    (lambda: ANY(-1), "P(...) over -1"),
    (lambda: ANY(2.5), "P(...) over float"),
    (lambda: ANY(True), "P(...) over bool"),
    (lambda: ANY(X), "P(...) over Tensor"),
    (lambda: ANY([1, 2]), "P(...) over list"),
    (lambda: ANY(DenseDyn(3)), "DenseDyn(3) is not a parameter of the workload"),
]


@pytest.mark.parametrize(("over", "message"), OVER)
def test_loops_over_what_is_no_axis(over: Callable[[], Any], message: str) -> None:
    def w():
        for _ in over():
            touch(X)

    with pytest.raises(CompileError) as raised:
        trace(w)
    assert raised.value.message == message
    assert raised.value.loc is not None
    assert raised.value.loc.line == over.__code__.co_firstlineno


def test_loops_over_nothing(refused: Refused) -> None:
    def case() -> None:
        def w():
            for _ in ANY():  #!
                touch(X)

        trace(w)

    refused(case, "P(...) without an axis")


def test_a_ragged_axis_needs_its_row(refused: Refused) -> None:
    def case() -> None:
        def w(batch: Any, toks: Any):
            for t in P(toks):  #!
                touch[t](X[t])

        batch = DenseDyn(1)
        trace(w, batch, Ragged(batch, [1]))

    refused(case, "ragged axis toks outside a loop over its outer axis")


def test_p_outside_a_workload(refused: Refused) -> None:
    def parallel() -> None:
        P(3)  #!

    refused(parallel, "P(...) outside a workload")

    def in_order() -> None:
        P.seq(3)  #!

    refused(in_order, "P.seq(...) outside a workload")


def test_axes_that_are_none(refused: Refused) -> None:
    def negative() -> None:
        DenseDyn(-1)  #!

    refused(negative, "DenseDyn(n): n is -1")

    def not_an_int() -> None:
        DenseDyn("8")  #!  # pyright: ignore[reportArgumentType]

    refused(not_an_int, "DenseDyn(n): n is '8'")

    def dense() -> None:
        Dense[-8]()  #!

    refused(dense, "Dense[n](): n is -8")

    def no_extent() -> None:
        Dense()  #!

    refused(no_extent, "Dense() without an extent")

    def outer() -> None:
        Ragged(4, [1])  #!  # pyright: ignore[reportArgumentType]

    refused(outer, "Ragged(outer, lengths): outer is int")

    def too_few() -> None:
        Ragged(DenseDyn(3), [1, 2])  #!

    refused(too_few, "Ragged has 2 lengths for an outer axis of 3")


LENGTHS = "the lengths of Ragged(outer, lengths) must be a 1-D array of integers"


@pytest.mark.parametrize(
    "lengths",
    [[1.5], ["1"], [2**70], np.zeros(2), np.zeros((2, 2), np.int64), np.zeros(2, ">i4")],
)
def test_lengths_that_are_no_integers(lengths: Any, refused: Refused) -> None:
    def case() -> None:
        Ragged(DenseDyn(1), lengths)  #!

    refused(case, LENGTHS)


# --- calling and nesting workloads --------------------------------------------------------------


@workload
def simple(rows: Any):
    for i in P(rows):
        touch[i](X[i])


def test_arguments_that_do_not_fit(refused: Refused) -> None:
    def missing() -> None:
        simple()  #!

    error = refused(
        missing, "workload simple is called with other arguments than it has parameters"
    )
    assert error.why == "missing a required argument: 'rows'"

    def other_kind() -> None:
        simple("rows")  #!

    refused(other_kind, "argument rows is str")

    def floats() -> None:
        simple(np.zeros(3))  #!

    error = refused(floats, "argument rows must be a 1-D array of integers")
    assert (error.fix or "").startswith("wrap it if kernels work on it, Tensor(data=...); ")

    def stranger() -> None:
        def w(batch: Any, toks: Any):
            pass

        workload(w)(DenseDyn(1), Ragged(DenseDyn(1), [1]))  #!

    message = "the outer axis of Ragged(DenseDyn(1), 1 lengths) is not an argument of workload w"
    refused(stranger, message)


def test_functions_that_are_no_workloads(refused: Refused) -> None:
    def star() -> None:
        def w(*rows: Any):
            pass

        workload(w)  #!

    refused(star, "workload w: *rows: 'Any' is variadic positional")

    def generator() -> None:
        def w() -> Any:
            yield

        workload(w)  #!

    refused(generator, "workload w is a generator or coroutine")

    def no_function() -> None:
        workload(3)  #!  # pyright: ignore[reportArgumentType]

    refused(no_function, "@workload on int")

    def result() -> None:
        def w() -> Any:
            return 3

        workload(w)().traced()  #!

    refused(result, "workload w returns a value")


def test_workloads_inside_workloads(refused: Refused) -> None:
    def call() -> None:
        def w():
            simple()  #!

        trace(w)

    refused(call, "workload simple is called with other arguments than it has parameters")

    value = simple(DenseDyn(3))

    def traced() -> None:
        def w():
            value.traced()  #!

        trace(w)

    refused(traced, "traced() inside workload w")

    for form in (combine, sequential):

        def composed(form: Any = form) -> None:
            def w():
                form(value)  #!

            trace(w)

        error = refused(composed, f"{form.__name__}(...) inside a workload")
        assert error.why == "it composes calls of workloads that stand in it"
