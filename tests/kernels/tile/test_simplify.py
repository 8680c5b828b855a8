"""What simplification does, and that it changes no bit of what is computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from pto_wsp.dtypes import DType
from pto_wsp.kernels.numpy_eval import evaluate
from pto_wsp.kernels.numpy_ops import TileFault
from pto_wsp.kernels.tile_ir import TileKernel, from_text, simplify, to_text
from tests.kernels.tile.samples import random_kernels

HEAD = "tile kernel k(%0: inout f32[:, :], %1: i64, %2: f32, %3: inout i32[:, :]) {\n"
ZERO = '%4: i64 = const dtype="i64", value=0\n'
LOAD = ZERO + "%5: f32[4?, 8?] = load %0, %4, %4, sizes=(4, 8)\n"


def simplified(body: str) -> list[str]:
    """The lines of the body."""
    return [
        line.strip() for line in to_text(simplify(from_text(HEAD + body + "}"))).split("\n")[1:-2]
    ]


def test_scalars_of_constants() -> None:
    lines = simplified(
        '%4: i64 = const dtype="i64", value=9223372036854775807\n'
        '%5: i64 = const dtype="i64", value=2\n'
        "%6: i64 = mul %4, %5\n"
        "%7: i64 = floordiv %6, %5\n"
        "store %0, %2, %6, %7, sizes=(0, 0)\n"
    )
    assert lines == [
        '%6: i64 = const dtype="i64", value=-2',
        '%7: i64 = const dtype="i64", value=-1',
        "store %0, %2, %6, %7, sizes=(0, 0)",
    ]


def test_floats_are_left_to_whoever_runs_the_kernel() -> None:
    body = '%4: f32 = const dtype="f32", value=0.1\n%5: f32 = add %4, %4\n'
    lines = simplified(body + "store %0, %5, %1, %1, sizes=(0, 0)\n")
    assert lines[1] == "%5: f32 = add %4, %4"


def test_equal_statements_are_one() -> None:
    lines = simplified(
        LOAD
        + "%6: f32[4?, 8?] = exp %5\n%7: f32[4?, 8?] = exp %5\n%8: f32[4?, 8?] = add %6, %7\n"
        + "store %0, %8, %4, %4, sizes=(4, 8)\n"
    )
    assert "%8: f32[4?, 8?] = add %6, %6" in lines
    assert len(lines) == 5


def test_loads_before_and_after_a_store_differ() -> None:
    again = "%6: f32[4?, 8?] = load %0, %4, %4, sizes=(4, 8)\n"
    both = "%7: f32[4?, 8?] = add %5, %6\nstore %0, %7, %4, %4, sizes=(4, 8)\n"
    assert "%7: f32[4?, 8?] = add %5, %5" in simplified(LOAD + again + both)
    store = "store %0, %2, %4, %4, sizes=(4, 8)\n"
    assert "%7: f32[4?, 8?] = add %5, %6" in simplified(LOAD + store + again + both)
    loop = "for %4, %1, %1 do (%9: i64) {\n" + store + "}\n"
    assert "%7: f32[4?, 8?] = add %5, %6" in simplified(LOAD + loop + again + both)


def test_a_load_in_a_loop_that_stores_stays_in_it() -> None:
    body = (
        LOAD + "store %0, %5, %4, %1, sizes=(4, 8)\n"
        "for %4, %1, %1 do (%9: i64) {\n"
        "%10: f32[4?, 8?] = load %0, %4, %4, sizes=(4, 8)\n"
        "store %0, %10, %1, %1, sizes=(4, 8)\n}\n"
    )
    assert "%10: f32[4?, 8?] = load %0, %4, %4, sizes=(4, 8)" in simplified(body)


def test_what_one_branch_computes_is_not_seen_by_the_other() -> None:
    branch = "do () {{\n%{0}: f32 = exp %2\nstore %0, %{0}, %1, %1, sizes=(0, 0)\n}} "
    lines = simplified(
        "%4: bool = lt %1, %1\nwhen %4 " + branch.format(5) + branch.format(6) + "\n"
    )
    assert "%5: f32 = exp %2" in lines
    assert "%6: f32 = exp %2" in lines


@pytest.mark.parametrize(
    ("statement", "result"),
    [
        ("%6: f32[4?, 8?] = mul %5, %9", "%5"),
        ("%6: f32[4?, 8?] = mul %9, %5", "%5"),
        ("%6: f32[4?, 8?] = div %5, %9", "%5"),
        ("%6: f32[4?, 8?] = add %5, %8", "%6"),  # -0.0 + 0.0 is 0.0
        ("%6: f32[4?, 8?] = div %9, %5", "%6"),
    ],
)
def test_neutral_numbers(statement: str, result: str) -> None:
    constants = '%9: f32 = const dtype="f32", value=1.0\n%8: f32 = const dtype="f32", value=0.0\n'
    store = "store %0, %6, %4, %4, sizes=(4, 8)\n"
    lines = simplified(LOAD + constants + statement + "\n" + store)
    assert lines[-1] == f"store %0, {result}, %4, %4, sizes=(4, 8)"


def test_neutral_numbers_of_integers() -> None:
    body = (
        ZERO + '%5: i32 = const dtype="i32", value=0\n'
        "%6: i32[4?, 8?] = load %3, %4, %4, sizes=(4, 8)\n"
        "%7: i32[4?, 8?] = add %5, %6\n%8: i32[4?, 8?] = sub %7, %5\n%9: i32[4?, 8?] = sub %5, %8\n"
        "store %3, %9, %4, %4, sizes=(4, 8)\n"
    )
    assert "%9: i32[4?, 8?] = sub %5, %6" in simplified(body)


def test_transposes() -> None:
    body = "%6: f32[8?, 4?] = transpose %5\n%7: f32[4?, 8?] = transpose %6\n"
    lines = simplified(LOAD + body + "store %0, %7, %4, %4, sizes=(4, 8)\n")
    assert lines[-1] == "store %0, %5, %4, %4, sizes=(4, 8)"
    assert len(lines) == 3


def test_what_nobody_uses_goes() -> None:
    loop = "%6: f32 = for %4, %1, %1, %2 do (%7: i64, %8: f32) {\n%9: f32 = exp %8\nyield %9\n}\n"
    assert simplified(LOAD + loop) == []
    kept = simplified(LOAD + loop + "store %0, %6, %4, %4, sizes=(0, 0)\n")
    assert kept[0] == ZERO.strip()
    assert "%9: f32 = exp %8" in kept
    assert not any("load" in line for line in kept)


@given(random_kernels())
def test_it_computes_the_same(kernel: TileKernel) -> None:
    found = [_run(each) for each in (kernel, simplify(kernel))]
    if found[0] is None:  # a task that fails may fail no longer: nobody used what it lacked
        return
    assert found[1] is not None
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def _run(kernel: TileKernel) -> list[Any] | None:
    rng = np.random.default_rng(3)
    arrays = [
        rng.normal(size=(5, 2)).astype(np.float32),
        rng.normal(size=(4, 7)).astype(np.float32),
        rng.integers(0, 9, (6, 3)).astype(DType.U8.numpy),
    ]
    try:
        evaluate(kernel, [*arrays, True, 2, 0.5])
    except TileFault:
        return None
    return arrays
