"""A plan with the values of its symbols."""

from __future__ import annotations

import struct
from typing import Any, TypeAlias

import numpy as np

from pto_wsp.error_codes import Code
from pto_wsp.errors import ExecutionError
from pto_wsp.plan import Access, AccessMode, Plan, Section, Symbol, SymbolKind, Tensor
from pto_wsp.runtime.bindings import Bound
from pto_wsp.runtime.run_errors import run_error

Array: TypeAlias = np.ndarray[Any, Any]


class BoundPlan:
    """What names mean in one run. `tensors` is in TENSOR table order.

    Kinds, dtypes and ranks were checked when the user's values became bindings; what is left to
    check is what the plan says of the values themselves.
    """

    def __init__(self, plan: Plan, bindings: tuple[Bound, ...]) -> None:
        self.plan = plan
        self._symbols = plan.records(Symbol)
        self._values = [binding.value for binding in bindings]
        self.tensors = tuple(self.array(tensor.symbol) for tensor in plan.records(Tensor))
        for index in range(len(self._symbols)):
            self._check_range(index)
        self._check_writes(bindings)

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
        written = {tensors[a.tensor].symbol for a in accesses if a.mode != AccessMode.IN}
        for symbol in sorted(written):
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
