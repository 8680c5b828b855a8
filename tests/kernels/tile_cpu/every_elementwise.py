"""Kernels with every elementwise operation of a dtype, and their comparison with true values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pto_wsp import pto
from pto_wsp.dtypes import DType
from pto_wsp.kernels.tile_ir import OPS, Op, TileKernel
from pto_wsp.kernels.tile_ir.ops import DTYPES, FLOATS
from tests.kernels.tile.operations import BINARY, COMPARE, UNARY
from tests.kernels.tile_cpu.exact import wide, wrapped
from tests.kernels.tile_cpu.ledger import Ledger, shapes_in
from tests.kernels.tile_cpu.native import Array, Compiled, out, ref, traced
from tests.kernels.tile_cpu.numbers import random, special

Shape = tuple[int, int]
# Whole vectors, and single elements of rows, which are scalars in registers. For a few dtypes one
# row by its type, and a constant width that no vector divides.
WHOLE, COLUMN, ROW, ODD = (4, 128), (9, 1), (1, 19), (3, 37)
MORE_SHAPES = (DType.F32, DType.I8, DType.BOOL)
PARTS = {
    WHOLE: ((1, 128), (4, 1), (3, 5), (2, 33), (4, 127), (1, 1), (3, 2), (0, 4), (3, 0)),
    COLUMN: ((5, 1), (1, 1)),
    ROW: ((1, 7), (1, 1)),
    ODD: ((3, 36), (2, 3)),
}
BULK = 24  # whole tiles of one shape


@dataclass(frozen=True)
class Item:
    """One result of a kernel: how it is spelled, of which operands, and its true value."""

    op: Op
    spelled: Callable[..., Any]
    exact: Callable[..., Any]
    operands: str  # of x, z and the mask c


def items(dtype: DType) -> list[Item]:
    """All elementwise operations that take the dtype."""
    found = [
        Item(op, spelled, exact, operands)
        for table, operands in ((UNARY, "x"), (BINARY, "xz"), (COMPARE, "xz"))
        for op, (spelled, exact) in table.items()
        if dtype in DTYPES[OPS[op].types]
    ]
    found.append(Item(Op.WHERE, pto.where, np.where, "cxz"))
    return found


def kernel(dtype: DType, shape: Shape) -> TileKernel:
    """Loads x, z and a mask once, and stores what each operation makes of them."""
    rows, cols = shape

    def elementwise(x: Any, z: Any, c: Any, y: Any, m: Any) -> None:
        tiles = {
            name: pto.load(memory[0:rows, 0:cols])
            for name, memory in zip("xzc", (x, z, c), strict=True)
        }
        for number, item in enumerate(items(dtype)):
            made = item.spelled(*(tiles[name] for name in item.operands))
            pto.store((m if item.op in COMPARE else y)[number, 0:rows, 0:cols], made)

    operands = {"x": ref(dtype), "z": ref(dtype), "c": ref(DType.BOOL)}
    return traced(elementwise, **operands, y=out(dtype, 3), m=out(DType.BOOL, 3))


def kernels(dtypes: frozenset[DType]) -> dict[tuple[DType, Shape], TileKernel]:
    return {
        (dtype, shape): kernel(dtype, shape)
        for dtype in sorted(dtypes)
        for shape in (WHOLE, COLUMN, ROW, ODD)
        if shape in (WHOLE, COLUMN) or dtype in MORE_SHAPES
    }


class Feed:
    """Pairs of operands: each special number with each other, then random ones."""

    def __init__(self, dtype: DType, seed: int) -> None:
        self._dtype, self._rng = dtype, np.random.default_rng([seed, dtype])
        hard = special(dtype)
        self._x, self._z = hard.repeat(len(hard)), np.tile(hard, len(hard))

    def take(self, shape: Shape) -> tuple[Array, Array, Array]:
        """The next x and z, and a mask."""
        count = shape[0] * shape[1]
        missing = max(0, count - len(self._x))
        more = (random(self._dtype, missing, self._rng) for _ in range(2))
        x, z = (np.concatenate(both) for both in zip((self._x, self._z), more, strict=True))
        self._x, self._z = x[count:], z[count:]
        mask = self._rng.integers(0, 2, shape).astype(bool)
        return x[:count].reshape(shape), z[:count].reshape(shape), mask


@dataclass
class Run:
    """The operands of one call, and what it wrote, result by result."""

    operands: dict[str, Array]
    results: list[Array]


def call(compiled: Compiled, dtype: DType, given: tuple[Array, ...], tile: Shape, odd: bool) -> Run:
    """Calls the machine code. The results are windows of arrays that must not change elsewhere; of
    odd calls they are wider than the operands, and columns of all of them lie two apart."""
    (rows, cols), step = given[0].shape, 2 if odd else 1
    spread = [np.repeat(each, step, axis=1)[:, ::step] for each in given]
    wanted = items(dtype)
    frames, windows = [], []
    for kind in (dtype, DType.BOOL):
        frame = np.full((len(wanted), tile[0] + 2, (tile[1] + 2) * step), 1, kind.numpy)
        room = tile if odd else (rows, cols)
        windows.append(frame[:, 1 : 1 + room[0], step : step + room[1] * step : step])
        frames.append(frame)
    compiled.run(*spread, *windows)
    results = [
        windows[item.op in COMPARE][number, :rows, :cols].copy()
        for number, item in enumerate(wanted)
    ]
    for window, frame in zip(windows, frames, strict=True):
        window[:, :rows, :cols] = 1
        assert (frame == 1).all(), f"{dtype.text} {given[0].shape}: written outside"
    return Run(dict(zip("xzc", given, strict=True)), results)


def compare(item: Item, dtype: DType, operands: list[Array], found: Array, ledger: Ledger) -> None:
    with np.errstate(all="ignore"):
        exact = np.asarray(item.exact(*(wide(each) for each in operands)))
        if item.op is Op.GELU:
            size = np.abs(wide(operands[0]))
            ledger.relative(item.op, dtype, found, exact, size)
        elif dtype in FLOATS and item.op not in COMPARE:
            ledger.near(item.op, dtype, found, exact, operands)
        elif item.op in COMPARE:
            ledger.same(item.op, dtype, found, exact.astype(bool))
        else:
            ledger.same(item.op, dtype, found, wrapped(exact, dtype))


def check(compiled: Compiled, dtype: DType, tile: Shape, ledger: Ledger) -> None:
    """All operations of one kernel, on whole and on partial tiles."""
    feed = Feed(dtype, tile[0])
    extents = [tile] * BULK + list(PARTS[tile])
    runs = [
        call(compiled, dtype, feed.take(extent), tile, odd=number % 2 == 1)
        for number, extent in enumerate(extents)
    ]
    shapes = set[str]().union(*(shapes_in(dtype, extent, tile) for extent in extents))
    joined = {name: np.concatenate([run.operands[name].ravel() for run in runs]) for name in "xzc"}
    for number, item in enumerate(items(dtype)):
        operands = [joined[name] for name in item.operands]
        found = np.concatenate([run.results[number].ravel() for run in runs])
        compare(item, dtype, operands, found, ledger)
        ledger.note(item.op, dtype, operands, shapes)
