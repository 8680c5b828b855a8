"""Every rule of the verifier: a kernel that breaks it, and the message."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from pto_wsp.dtypes import DType
from pto_wsp.errors import CompileError
from pto_wsp.kernels.tile_ir import (
    Block,
    Op,
    RefType,
    ScalarType,
    Statement,
    TileKernel,
    TileType,
    Value,
    check,
    from_text,
)
from pto_wsp.kernels.tile_ir.check import MAX_BLOCKS, MAX_STATEMENTS
from pto_wsp.plan import AccessMode
from pto_wsp.srcloc import SrcLoc
from tests.kernels.tile.samples import kernels

HERE = SrcLoc("here.py", 7)
HEAD = "tile kernel k(%0: in f32[:, :], %1: i64, %2: f32, %3: bool, %4: out f32[4, 8]) {\n"
TILE = "%5: f32[4, 8] = full %2, shape=(4, 8)\n"
YIELD = "do (%9: i64, %10: f32[4, 8]) {\n  yield %10\n}\n"


@pytest.mark.parametrize("name", ["softmax", "rmsnorm", "flash"])
def test_traced_kernels_are_legal(name: str) -> None:
    check(kernels()[name])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        # operand_count_fits
        ("%5: f32 = add %2", "add has 1 operands, it takes 2"),
        ("for %1, %1", "for has 2 operands, it takes at least 3"),
        # attributes_fit
        ("%5: f32[4, 8] = full %2", "full has attributes [], it takes ['shape']"),
        ("%5: f32 = neg %2, axis=1", "neg has attributes ['axis'], it takes []"),
        (TILE + "%6: f32[4, 1] = sum_of %5, axis=true", "attribute axis of sum_of is True"),
        ("%5: f32[4, 8] = full %2, shape=4", "attribute shape of full is 4"),
        # blocks_fit
        ("%5: f32 = neg %2 do () {\n}", "neg has 1 blocks, it takes 0"),
        ("when %3 do () {\n}", "when has 1 blocks, it takes 2"),
        # loop_head_fits
        ("for %1, %1, %2 do (%9: i64) {\n}", "start, stop and step of a loop are i64"),
        ("for %1, %1, %1 do () {\n}", "the first parameter of a loop is its index, i64"),
        ("for %1, %1, %1 do (%9: i64, %10: f32) {\n}", "a loop carries 1 values and is given 0"),
        (
            TILE + "%6: f32[4, 8] = for %1, %1, %1, %2 " + YIELD,
            "a loop is given %2, f32, for f32[4, 8]",
        ),
        # condition_fits
        ("when %2 do () {\n} do () {\n}", "the condition of when is a bool scalar"),
        ("when %3 do (%5: f32) {\n} do () {\n}", "the branches of when have no parameters"),
        # yields_fit, results_have_their_types
        (
            "%5: f32 = when %3 do () {\n yield %2\n} do () {\n}",
            "a block of when yields 0 values of 1",
        ),
        (
            "%5: f32 = when %3 do () {\n yield %1\n} do () {\n yield %2\n}",
            "a block of when yields %1, i64, for f32",
        ),
        ("%5: f32[4, 8] = neg %2", "neg gives f32[4, 8], its type is f32"),
        ("%5: f32 = store %4, %2, %1, %1, sizes=(4, 8)", "store gives f32, its type is nothing"),
        (
            TILE + "%6: f32[4, 9] = for %1, %1, %1, %5 " + YIELD,
            "for gives f32[4, 9], its type is f32[4, 8]",
        ),
        # tiles_have_extents
        (
            "%5: f32[4?, 1?] = when %3 do () {\n yield %2\n} do () {\n yield %2\n}",
            "a block of when yields %2, f32, for f32[4?, 1?]",
        ),
        # what infer says
        ("%5: i64 = exp %1", "[PTO231] exp of i64"),
        ("%5: f32 = add %2, %1", "[PTO231] add of f32 and i64"),
        ("%5: f32[0, 8] = full %2, shape=(0, 8)", "[PTO233] full of shape (0, 8)"),
        (TILE + "%6: f32[4, 1] = sum_of %5, axis=2", "[PTO233] sum_of along axis 2"),
        ("%5: f32 = sum_of %2, axis=1", "[PTO232] sum_of of a scalar"),
        ("%5: f32 = neg %0", "[PTO234] neg of a parameter"),
        ("%5: i64 = extent %0, dim=2", "[PTO234] dimension 2 of a parameter of rank 2"),
        ("%5: i64 = extent %2, dim=0", "[PTO234] extent of a value"),
        ("%5: f32 = load %4, %1, %1, sizes=(0, 0)", "[PTO234] a load of an Out parameter"),
        ("store %0, %2, %1, %1, sizes=(0, 0)", "[PTO234] a store into an In parameter"),
        ("store %4, %1, %1, %1, sizes=(0, 0)", "[PTO231] a store of i64 into f32"),
        ("%5: f32 = load %0, %1, sizes=(0, 0)", "[PTO234] load with 1 offsets and sizes (0, 0)"),
        ("%5: f32 = load %0, %2, %1, sizes=(0, 0)", "[PTO231] load: an offset is f32"),
        (
            TILE + "store %4, %5, %1, %1, sizes=(8, 4)",
            "[PTO232] a store of f32[4, 8] into a region",
        ),
        ('%5: f32 = const dtype="f32", value=1', "[PTO231] the number 1 as f32"),
        ('%5: u8 = const dtype="u8", value=256', "[PTO231] the number 256 as u8"),
        ('%5: f9 = const dtype="f9", value=1', "expected a dtype"),
        ('%5: f32 = const dtype="f9", value=1', "[PTO233] const to f9"),
        ('%5: i8 = cast %2, dtype="i8", rounding="up"', "[PTO233] cast with rounding 'up'"),
        (TILE + "%6: f32[8, 8] = matmul %5, %5", "[PTO232] matmul of f32[4, 8] and f32[4, 8]"),
        (
            TILE + "%6: f32[4, 4] = reshape %5, shape=(4, 4)",
            "[PTO232] reshape of f32[4, 8] to (4, 4)",
        ),
        (
            TILE + "%6: f32[4, 9] = slice %5, %1, %1, shape=(4, 9)",
            "[PTO232] a slice of shape (4, 9)",
        ),
        (TILE + "%6: f32[4, 9], %7: i32[4, 9] = topk %5, k=9", "[PTO233] topk of 9 of 8 columns"),
        (TILE + "%6: f32[4, 8] = where %5, %5, %5", "[PTO231] where with a mask of f32"),
        (TILE + "%6: f32[4, 8] = gather %5, %5, cols=8", "[PTO232] gather by f32[4, 8]"),
    ],
)
def test_rules(body: str, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        check(from_text(f"{HEAD}{body}\n}}"))
    assert message in str(caught.value)


SCALAR = Value(0, ScalarType(DType.F32))
NEG = Statement(Op.NEG, (Value(1, ScalarType(DType.F32)),), (SCALAR,), (), (), HERE)
BASE = TileKernel("k", (SCALAR,), (NEG,), HERE)
INT = ScalarType(DType.I64)
REF = RefType(DType.F32, 2, AccessMode.IN, (4, 8))


def nested(depth: int) -> TileKernel:
    """Conditions inside each other."""
    truth = Value(0, ScalarType(DType.BOOL))
    body: tuple[Statement, ...] = ()
    for _ in range(depth):
        blocks = (Block((), body, ()), Block((), (), ()))
        body = (Statement(Op.WHEN, (), (truth,), (), blocks, HERE),)
    return TileKernel("k", (truth,), body, HERE)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (replace(BASE, name=""), "a kernel without a name"),
        (
            replace(BASE, params=(SCALAR, Value(5, TileType(DType.F32, 4, 8)))),
            "parameter %5 is a tile; parameters are references and scalars",
        ),
        (replace(BASE, params=(Value(0, replace(REF, rank=9)),)), "parameter %0 has rank 9"),
        (replace(BASE, params=(Value(0, replace(REF, rank=1)),)), "has a tile of another rank"),
        (
            replace(BASE, params=(Value(0, replace(REF, tile=(4, 0))),)),
            "has an extent outside 1 to",
        ),
        (
            replace(BASE, params=(Value(0, RefType(DType.F32, 0, AccessMode.IN, None, True)),)),
            "parameter %0 has pages and no dimension",
        ),
        (replace(BASE, body=(NEG, NEG)), "%1 is defined twice"),
        (
            replace(BASE, body=(replace(NEG, operands=(Value(8, SCALAR.type),)),)),
            "neg uses %8, which no statement before it defines",
        ),
        (
            replace(BASE, body=(replace(NEG, operands=(Value(0, INT),)),)),
            "neg uses %0 as i64, but it is f32",
        ),
        (
            replace(
                BASE,
                body=(
                    Statement(
                        Op.FOR,
                        (Value(9, TileType(DType.F32, 1, 8, (True, False))),),
                        (Value(0, INT),) * 3,
                        (),
                        (
                            Block(
                                (Value(4, INT), Value(5, TileType(DType.F32, 1, 8, (True, False)))),
                                (),
                                (),
                            ),
                        ),
                    ),
                ),
                params=(Value(0, INT),),
            ),
            "a loop carries 1 values and is given 0",
        ),
        (nested(MAX_BLOCKS + 1), f"blocks nested more than {MAX_BLOCKS} deep"),
    ],
)
def test_rules_that_no_text_breaks(kernel: TileKernel, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        check(kernel)
    assert message in caught.value.message


def test_an_extent_of_one_is_never_partial() -> None:
    """Only what a block gives can say so: everything else is inferred."""
    one = TileType(DType.F32, 1, 8)
    wrong = TileType(DType.F32, 1, 8, (True, False))
    full = Statement(Op.FULL, (Value(2, one),), (SCALAR,), (("shape", (1, 8)),))
    truth = Value(1, ScalarType(DType.BOOL))
    blocks = (Block((), (), (Value(2, one),)),) * 2
    when = Statement(Op.WHEN, (Value(3, wrong),), (truth,), (), blocks)
    with pytest.raises(CompileError, match="%3 is partial where its extent is 1"):
        check(TileKernel("k", (SCALAR, truth), (full, when)))


def test_a_block_is_not_seen_from_outside() -> None:
    text = HEAD + "when %3 do () {\n %5: f32 = neg %2\n} do () {\n}\n%6: f32 = neg %5\n}"
    with pytest.raises(CompileError, match="neg uses %5, which no statement before it defines"):
        check(from_text(text))


def test_too_many_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_STATEMENTS == 1 << 16
    # As many take seconds to look at, and are counted like a few.
    monkeypatch.setattr(sys.modules["pto_wsp.kernels.tile_ir.check"], "MAX_STATEMENTS", 100)
    made = (Value(number, SCALAR.type) for number in range(1, 102))
    body = tuple(replace(NEG, results=(each,)) for each in made)
    check(replace(BASE, body=body[:-1]))
    with pytest.raises(CompileError, match="more than 100 statements"):
        check(replace(BASE, body=body))
