"""The meaning of a tile kernel: each statement in turn, on NumPy arrays.

A tile is an array of the elements that there are, so partial tiles need no rule of their own: where
operands differ in extent, all are cut to what they have in common. A parameter is an array; a
scalar is an array without dimensions. `numpy_ops` says what each operation computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from pto_wsp.kernels.numpy_ops import COMPUTE, Array, TileFault
from pto_wsp.kernels.tile_ir import Block, Op, RefType, Statement, TileKernel, TileType, Value
from pto_wsp.kernels.tile_ir.operands import tile_shape


def evaluate(kernel: TileKernel, arguments: Sequence[Any]) -> None:
    """Runs a kernel on its arguments, one for each parameter: arrays, which it writes in place, and
    numbers. TileFault if the task fails."""
    values: dict[int, Any] = {}
    for param, argument in zip(kernel.params, arguments, strict=True):
        if isinstance(param.type, RefType):
            values[param.number] = argument
        else:
            values[param.number] = np.asarray(argument, param.type.dtype.numpy)
    with np.errstate(all="ignore"):
        _Evaluation(values).body(kernel.body)


class _Evaluation:
    def __init__(self, values: dict[int, Any]) -> None:
        self._values = values

    def body(self, body: Sequence[Statement]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, statement: Statement) -> None:
        operands = [self._values[operand.number] for operand in statement.operands]
        attributes = dict(statement.attributes)
        results: Any
        if statement.op is Op.FOR:
            results = self._for(statement.blocks[0], operands)
        elif statement.op is Op.WHEN:
            results = self._block(statement.blocks[0 if operands[0] else 1], ())
        elif statement.op in _MEMORY:
            results = _MEMORY[statement.op](operands, attributes)
        else:
            results = COMPUTE[statement.op](statement, operands, attributes)
        values = cast("tuple[Any, ...]", results if isinstance(results, tuple) else (results,))
        for result, value in zip(statement.results, values, strict=True):
            _check_extents(result, value)
            self._values[result.number] = value

    def _for(self, block: Block, operands: list[Any]) -> tuple[Any, ...]:
        start, stop, step = (int(each) for each in operands[:3])
        if step < 1:
            raise TileFault(f"a loop with a step of {step}")
        carried = tuple(operands[3:])
        for index in range(start, stop, step):
            carried = self._block(block, (np.asarray(index, np.int64), *carried))
        return carried

    def _block(self, block: Block, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        for param, value in zip(block.params, arguments, strict=True):
            self._values[param.number] = value
        self.body(block.body)
        return tuple(self._values[value.number] for value in block.yields)


def _load(operands: list[Any], attributes: Mapping[str, Any]) -> Array:
    array, offsets = operands[0], [int(each) for each in operands[1:]]
    sizes: tuple[int, ...] = attributes["sizes"]
    found = np.array(array[_region(array, offsets, sizes)])  # a copy: stores come later
    shape = tile_shape(sizes)
    if shape is None:
        return found
    return found.reshape(1, -1) if found.ndim == 1 else found


def _store(operands: list[Any], attributes: Mapping[str, Any]) -> tuple[()]:
    array, value, offsets = operands[0], operands[1], [int(each) for each in operands[2:]]
    sizes: tuple[int, ...] = attributes["sizes"]
    target = array[(*_region(array, offsets, sizes), ...)]
    if value.ndim == 0:
        target[...] = value
        return ()
    kept = [size for size in sizes if size != 0]
    shaped = value.reshape(value.shape[2 - len(kept) :]) if len(kept) < 2 else value
    common = tuple(slice(min(a, b)) for a, b in zip(target.shape, shaped.shape, strict=True))
    target[common] = shaped[common]
    return ()


def _extent(operands: list[Any], attributes: Mapping[str, Any]) -> Array:
    return np.asarray(operands[0].shape[attributes["dim"]], np.int64)


def _gather(operands: list[Any], attributes: Mapping[str, Any]) -> Array:
    source, index = operands[0], operands[1][:, 0]
    part = source[:, : attributes["cols"]]
    exists = (index >= 0) & (index < len(part))
    rows = np.zeros((len(index), part.shape[1]), part.dtype)
    rows[exists] = part[index[exists]]
    return rows


def _scatter(operands: list[Any], attributes: Mapping[str, Any]) -> tuple[()]:
    array, index, tile = operands[0], operands[1][:, 0], operands[2]
    cols = min(array.shape[1], tile.shape[1])
    for row, number in zip(tile, index, strict=False):  # one by one: the last counts
        if 0 <= number < len(array):
            array[number, :cols] = row[:cols]
    return ()


def _region(array: Array, offsets: Sequence[int], sizes: Sequence[int]) -> tuple[int | slice, ...]:
    """What a load or store touches: the part of it that exists."""
    index: list[int | slice] = []
    for dim, (start, size) in enumerate(zip(offsets, sizes, strict=True)):
        extent = array.shape[dim]
        if start < 0 or (size == 0 and start >= extent):
            raise TileFault(f"index {start} of dimension {dim}, which has {extent} elements")
        index.append(start if size == 0 else slice(start, max(start, min(start + size, extent))))
    return tuple(index)


def _check_extents(result: Value, value: Any) -> None:
    """An extent of 1 is never partial."""
    tile = result.type
    if not isinstance(tile, TileType):
        return
    for axis, (wanted, found) in enumerate(zip(tile.shape, value.shape, strict=True)):
        if found == wanted or (found < wanted and tile.partial[axis]):
            continue
        what = ("row", "column")[axis]
        raise TileFault(f"a tile of {wanted} {what} has {found} here")


_MEMORY: dict[Op, Callable[..., Any]] = {
    Op.LOAD: _load,
    Op.STORE: _store,
    Op.EXTENT: _extent,
    Op.GATHER: _gather,
    Op.SCATTER: _scatter,
}
