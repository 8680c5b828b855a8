"""Every operation of tile kernels, as users get it compiled, against true values.

Kernels of one kind are one translation unit. What was compared is noted, and the last test looks
through the list of operations for what was not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pto_wsp.dtypes import DType
from pto_wsp.kernels.tile_ir import OPS, Group, Op, TileKernel
from pto_wsp.kernels.tile_ir.ops import DTYPES, FLOATS
from tests.kernels.tile_cpu import every_cast, every_elementwise, every_move, every_tile
from tests.kernels.tile_cpu.ledger import SHAPES, Ledger
from tests.kernels.tile_cpu.native import compile_kernels
from tests.kernels.tile_cpu.numbers import kinds_needed
from tools import tile_errors

# These make their results from nothing but scalars, or have none that are elements.
NO_SHAPE = (Op.CONST, Op.ARANGE, Op.WHEN)
NO_KINDS = (Op.EXTENT,)

Check = Callable[..., None]


@pytest.fixture(scope="module")
def ledger() -> Ledger:
    return Ledger()


def run(ledger: Ledger, kernels: dict[Any, TileKernel], check: Check) -> None:
    """One translation unit: each kernel is compared by `check`, which is given its key too."""
    for key, compiled in zip(kernels, compile_kernels(list(kernels.values())), strict=True):
        check(compiled, *key, ledger)


@pytest.mark.parametrize("floats", [True, False], ids=["floats", "others"])
def test_elementwise(ledger: Ledger, floats: bool) -> None:
    dtypes = FLOATS if floats else frozenset(DType) - FLOATS
    run(ledger, every_elementwise.kernels(dtypes), every_elementwise.check)


def test_casts(ledger: Ledger) -> None:
    run(ledger, every_cast.kernels(), every_cast.check)


def test_tiles(ledger: Ledger) -> None:
    parts: dict[Any, TileKernel] = {}
    checks: dict[str, Check] = {}
    for make, check in (
        (every_tile.reductions, every_tile.check_reductions),
        (every_tile.order, every_tile.check_order),
        (every_tile.products, every_tile.check_products),
        (every_tile.spread, every_tile.check_spread),
    ):
        checks[make.__name__] = check
        parts |= {(make.__name__, dtype): make(dtype) for dtype in every_tile.NUMBERS}
    run(ledger, parts, lambda compiled, name, *rest: checks[name](compiled, *rest))


def test_moves_and_control(ledger: Ledger) -> None:
    parts: dict[Any, TileKernel] = {}
    checks: dict[str, Check] = {"rows": every_move.check_rows}
    for make, check in (
        (every_move.moves, every_move.check_moves),
        (every_move.made, every_move.check_made),
        (every_move.control, every_move.check_control),
    ):
        checks[make.__name__] = check
        parts |= {(make.__name__, dtype): make(dtype) for dtype in DType}
    by = [(dtype, DType.I32) for dtype in DType]
    by += [(DType.F32, index) for index in every_move.INDEX if index is not DType.I32]
    parts |= {("rows", *each): every_move.rows_by_number(*each) for each in by}
    run(ledger, parts, lambda compiled, name, *rest: checks[name](compiled, *rest))


def test_nothing_is_left_out(ledger: Ledger) -> None:
    """Each operation, with each dtype that it takes, was compared on all that is hard."""
    missing: list[str] = []
    for op, info in OPS.items():
        for dtype in sorted(DTYPES[info.types]):
            kinds = set() if op in NO_KINDS else kinds_needed(dtype) - ledger.kinds[op, dtype]
            shapes = set() if op in NO_SHAPE else set(SHAPES) - ledger.shapes[op, dtype]
            if (op, dtype) not in ledger.errors and info.group is not Group.CONTROL:
                missing.append(f"{op.value} {dtype.text}: nothing")
            elif kinds or shapes:
                missing.append(f"{op.value} {dtype.text}: {', '.join(sorted(kinds | shapes))}")
    assert not missing, "\n".join(missing)
    tile_errors.save({key: ledger.errors[key] for key in tile_errors.bounds()})
