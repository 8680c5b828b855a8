"""Numbers the values of a kernel in the order of their definitions, for people who read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pto_wsp.kernels.tile_ir.nodes import Block, Statement, TileKernel, Value


def renumber(kernel: TileKernel, names: Mapping[int, str] | None = None) -> TileKernel:
    """The same kernel with numbers from 0 on; `names` gives names to values that have none, by
    their old numbers."""
    return _Renumbering(names or {}).kernel(kernel)


class _Renumbering:
    def __init__(self, names: Mapping[int, str]) -> None:
        self._names = names
        self._values: dict[int, Value] = {}

    def kernel(self, kernel: TileKernel) -> TileKernel:
        params = self._defined(kernel.params)
        return replace(kernel, params=params, body=self._body(kernel.body))

    def _body(self, body: Sequence[Statement]) -> tuple[Statement, ...]:
        return tuple(self._statement(each) for each in body)

    def _statement(self, statement: Statement) -> Statement:
        operands = self._used(statement.operands)
        blocks = tuple(self._block(block) for block in statement.blocks)
        results = self._defined(statement.results)
        return replace(statement, operands=operands, blocks=blocks, results=results)

    def _block(self, block: Block) -> Block:
        params = self._defined(block.params)
        body = self._body(block.body)
        return Block(params, body, self._used(block.yields))

    def _used(self, values: Sequence[Value]) -> tuple[Value, ...]:
        return tuple(self._values[value.number] for value in values)

    def _defined(self, values: Sequence[Value]) -> tuple[Value, ...]:
        for value in values:
            name = value.name or self._names.get(value.number, "")
            self._values[value.number] = Value(len(self._values), value.type, name)
        return self._used(values)
