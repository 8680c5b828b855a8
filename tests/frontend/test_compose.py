"""Composed workloads: one name is one binding, kernels are shared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    CompileError,
    DenseDyn,
    Deps,
    InOut,
    P,
    ScheduleError,
    Tensor,
    Workload,
    combine,
    ir,
    kernel,
    sequential,
    workload,
)

X = Tensor(data=np.zeros((8, 8), np.float32))

Refused = Callable[..., CompileError]


@kernel
def touch(x: InOut[Tensor]):
    x[...] += 1


@workload
def by_row(rows: Any):
    for i in P(rows):
        touch[i](X[i])


@workload
def by_element(rows: Any, cols: Any):
    for i, j in P(rows, cols):
        touch[i, j](X[i, j])


@workload
def with_array(lens: Any):
    for i in P(lens[0]):
        touch[i](X[i])


@workload
def with_tensor(x: Any):
    touch(x)


def text(value: Workload) -> str:
    module = value.traced().module
    ir.verify(module)
    printed = ir.to_text(module, locs=False)
    assert ir.parse(printed) == module
    return printed


def test_composition_is_exactly_this() -> None:
    value = sequential(by_row(DenseDyn(8)), by_element(DenseDyn(8), DenseDyn(4)))
    source = f"{__name__}.touch"
    assert text(value) == (
        'module "sequential"\n'
        "\n"
        "symbol rows: extent = 8\n"
        "symbol cols: extent = 4\n"
        "tensor X: f32[:, :]\n"
        f'kernel touch(x: inout f32[:]) python "{source}"\n'
        f'kernel "touch.2"(x: inout f32[]) python "{source}"\n'
        "\n"
        "body {\n"
        "  sequential {\n"
        "    parallel i in rows: dense_dyn 0:+rows {\n"
        "      touch[i](x = X[i, 0:+X.shape[1]])\n"
        "    }\n"
        "  } then {\n"
        "    parallel i in rows: dense_dyn 0:+rows {\n"
        "      parallel j in cols: dense_dyn 0:+cols {\n"
        '        "touch.2"[i, j](x = X[i, j])\n'
        "      }\n"
        "    }\n"
        "  }\n"
        "}\n"
    )
    assert value.traced().callables == {"touch": touch.fn, "touch.2": touch.fn}
    assert value.traced().defaults == {"rows": 8, "cols": 4, "X": X}


def test_compositions_compose() -> None:
    row, element = by_row(DenseDyn(8)), by_element(DenseDyn(8), DenseDyn(4))
    module = combine(sequential(row, element), element, row).traced().module
    ir.verify(module)
    (stmt,) = module.body
    assert isinstance(stmt, ir.Combine)
    first, second, third = stmt.branches
    assert isinstance(first[0], ir.Sequential)
    assert first[0].steps == (third, second)
    assert [each.name for each in module.kernels] == ["touch", "touch.2"]


def test_kernel_names_follow_the_composition() -> None:
    # Alone, by_element has the first signature of touch; after by_row it has the second.
    element, row = by_element(DenseDyn(8), DenseDyn(4)), by_row(DenseDyn(8))
    assert [k.name for k in element.traced().module.kernels] == ["touch"]
    one, other = sequential(row, element), sequential(element, row)
    for value in (one, other):
        assert [k.name for k in value.traced().module.kernels] == ["touch", "touch.2"]
    assert [getattr(k.params[0], "rank", None) for k in one.traced().module.kernels] == [1, 0]
    assert [getattr(k.params[0], "rank", None) for k in other.traced().module.kernels] == [0, 1]


def test_parts_are_traced_once() -> None:
    runs: list[int] = []

    @workload
    def counted(rows: Any):
        runs.append(1)
        for i in P(rows):
            touch[i](X[i])

    part = counted(DenseDyn(3))
    part.traced()
    combine(part, part).traced()
    sequential(part, combine(part, by_row(DenseDyn(3)))).traced()
    assert runs == [1]


def test_the_position_is_that_of_the_composition() -> None:
    value = combine(by_row(DenseDyn(8)))
    (stmt,) = value.traced().module.body
    assert isinstance(stmt, ir.Combine)
    assert stmt.loc is not None
    with open(__file__, encoding="utf-8") as file:
        assert "value = combine(by_row(DenseDyn(8)))" in file.readlines()[stmt.loc.line - 1]


def test_same_defaults_are_one_binding() -> None:
    lens = np.array([1, 2])
    data = np.zeros(4)
    combine(with_array(lens), with_array(lens[:])).traced()
    combine(with_tensor(Tensor(data=data)), with_tensor(Tensor(data=data))).traced()


def test_a_tensor_without_data_takes_the_default_of_the_other() -> None:
    given = Tensor(data=np.zeros(4))
    later = Tensor(shape=(4,), dtype=given.dtype)
    default = combine(with_tensor(later), with_tensor(given)).traced().defaults["x"]
    assert isinstance(default, Tensor)
    assert default.data is given.data


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (by_row(DenseDyn(8)), by_row(DenseDyn(9)), "two different defaults for rows"),
        (with_array([1, 2]), with_array([1, 2]), "two different defaults for lens"),
        (
            with_array([1, 2]),
            with_array(np.array([1, 2], np.int32)),
            "lens is two things: array of i64 and array of i32",
        ),
        (
            with_tensor(Tensor(data=np.zeros(2))),
            with_tensor(Tensor(data=np.zeros(2))),
            "two different defaults for x",
        ),
        (
            with_tensor(Tensor(data=np.zeros(2))),
            with_tensor(Tensor(data=np.zeros((2, 2)))),
            "x is two things: tensor of f64, rank 1 and tensor of f64, rank 2",
        ),
        (
            with_tensor(Tensor(data=np.zeros(2), name="rows")),
            by_row(DenseDyn(8)),
            "rows is two things: tensor and extent",
        ),
        (
            by_row(DenseDyn(8)),
            with_tensor(Tensor(data=np.zeros(2), name="rows")),
            "rows is two things: extent and tensor",
        ),
        (
            with_array([1]),
            workload(lambda lens: None)(DenseDyn(8)),
            "lens is two things: array and extent",
        ),
    ],
)
def test_refuses_names_that_clash(
    one: Workload, other: Workload, message: str, refused: Refused
) -> None:
    def case() -> None:
        both = combine(one, other)  #!
        both.traced()

    refused(case, message)


def test_refuses_what_cannot_be_composed(refused: Refused) -> None:
    def nothing() -> None:
        combine()  #!

    refused(nothing, "combine() of nothing")

    def not_called() -> None:
        sequential(by_row)  #!  # pyright: ignore[reportArgumentType]

    error = refused(not_called, "sequential(...) of WorkloadFunction")
    assert error.fix == "call the workload first: wave(DenseDyn(n))"

    def other() -> None:
        combine(X)  #!  # pyright: ignore[reportArgumentType]

    refused(other, "combine(...) of Tensor")

    def scheduled() -> None:
        part = by_row(DenseDyn(8)).task_graph(deps=Deps.auto())
        combine(part)  #!

    message = "combine(...) of a workload that has a schedule: task_graph(deps=Deps.auto())"
    refused(scheduled, message, ScheduleError)
