"""A plan with the values of its symbols."""

from __future__ import annotations

import struct
from typing import Any, TypeAlias

import numpy as np

from pto_wsp.error_codes import Code
from pto_wsp.errors import ExecutionError
from pto_wsp.plan import NONE, Access, AccessMode, Plan, Section, Symbol, SymbolKind, Tensor
from pto_wsp.runtime.bindings import Bound
from pto_wsp.runtime.run_errors import run_error

Array: TypeAlias = np.ndarray[Any, Any]


def shape_only(shape: tuple[int, ...]) -> Array:
    """An array that has a shape and takes no memory."""
    return np.broadcast_to(np.False_, shape)


class BoundPlan:
    """What names mean in one run. `tensors` is in TENSOR table order: the arrays of those that are
    bound, and arrays without memory of their own, which only have a shape, for tokens and paged
    tensors. What the walk makes, tokens and temporaries, has no elements yet.

    Kinds, dtypes and ranks were checked when the user's values became bindings; what is left to
    check is what the plan says of the values themselves.
    """

    def __init__(self, plan: Plan, bindings: tuple[Bound, ...]) -> None:
        self.plan = plan
        self._symbols = plan.records(Symbol)
        self._values = [binding.value for binding in bindings]
        self.tensors = [self._tensor(tensor) for tensor in plan.records(Tensor)]
        for index in range(len(self._symbols)):
            self._check_range(index)
        self._check_writes(bindings)

    def _tensor(self, tensor: Tensor) -> Array:
        if tensor.symbol != NONE:
            return self.array(tensor.symbol)
        if tensor.pool == NONE:
            return shape_only((0,) * tensor.rank)
        pool, table = self.pool(tensor), self.table(tensor)
        return shape_only((table.shape[0], table.shape[1] * pool.shape[1], *pool.shape[2:]))

    def pool(self, paged: Tensor) -> Array:
        return self.array(self.plan.records(Tensor)[paged.pool].symbol)

    def table(self, paged: Tensor) -> Array:
        return self.array(self.plan.records(Tensor)[paged.table].symbol)

    def number(self, symbol: int) -> int:
        """The value of an EXTENT, SCALAR or FACT; the bits of a floating-point one."""
        value = self._values[symbol]
        if isinstance(value, float):
            return int.from_bytes(struct.pack("<d", value), "little", signed=True)
        assert isinstance(value, int)
        return value

    def array(self, symbol: int) -> Array:
        """The value of an ARRAY or TENSOR."""
        value = self._values[symbol]
        assert isinstance(value, np.ndarray)
        return value

    def symbol_name(self, symbol: int) -> str:
        return self.plan.string(self._symbols[symbol].name)

    def error(self, code: Code, symbol: int, message: str) -> ExecutionError:
        """An error that points at the declaration of a name."""
        return run_error(code, message, loc=self.plan.loc(Section.SYMBOL, symbol))

    def _check_range(self, index: int) -> None:
        symbol = self._symbols[index]
        if symbol.kind == SymbolKind.TENSOR or isinstance(self._values[index], float):
            return
        values = np.asarray(self._values[index])
        low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
        legal = range(symbol.min_value, symbol.max_value + 1)
        if not values.size or (low in legal and high in legal):
            return
        bad = high if low in legal else low
        raise self.error(
            Code.BINDING_RANGE,
            index,
            f"{self.symbol_name(index)!r} holds {bad}, legal are {symbol.min_value} to "
            f"{symbol.max_value}",
        )

    def _check_writes(self, bindings: tuple[Bound, ...]) -> None:
        """Tasks write what may be written, and never what control reads."""
        tensors = self.plan.records(Tensor)
        accesses = self.plan.records(Access)
        named = {tensors[a.tensor] for a in accesses if a.mode != AccessMode.IN}
        pools = {tensors[t.pool].symbol for t in named if t.pool != NONE}
        written = {t.symbol for t in named if t.symbol != NONE} | pools
        tables = {tensors[t.table].symbol for t in tensors if t.table != NONE}
        for symbol in sorted(written):
            for table in tables:
                if np.may_share_memory(self.array(symbol), self.array(table)):
                    raise self.error(
                        Code.ARRAY_WRITTEN,
                        table,
                        f"page table {self.symbol_name(table)!r} shares memory with a tensor that "
                        "tasks write; the pages of a run must stay where they are",
                    )
            name = self.symbol_name(symbol)
            if bindings[symbol].read_only:
                message = f"tensor {name!r} is read-only, but tasks write it"
                raise self.error(Code.READ_ONLY, symbol, message)
            for index, record in enumerate(self._symbols):
                if record.kind != SymbolKind.ARRAY:
                    continue
                if np.may_share_memory(self.array(symbol), self.array(index)):
                    raise self.error(
                        Code.ARRAY_WRITTEN,
                        index,
                        f"array {self.symbol_name(index)!r} shares memory with tensor {name!r}, "
                        "which tasks write; control may only read arrays that no task writes",
                    )
