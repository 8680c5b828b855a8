"""From what a user passes to `execute(...)` to one value per symbol of the plan."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, SupportsIndex, cast

import numpy as np
import numpy.typing as npt

from pto_wsp.dtypes import DType
from pto_wsp.errors import ExecutionError
from pto_wsp.plan import Const, Plan, Section, Symbol, SymbolKind
from pto_wsp.srcloc import SrcLoc

Value = int | npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Bound:
    """What one symbol is bound to for one run."""

    symbol: int
    value: Value
    read_only: bool = False


class Binder:
    """Knows a plan's symbols and what they are bound to when a run names nothing else."""

    def __init__(self, plan: Plan, defaults: Mapping[str, object]) -> None:
        self._plan = plan
        self._symbols = plan.records(Symbol)
        self._names = [plan.string(s.name) for s in self._symbols]
        self._index = {name: i for i, name in enumerate(self._names)}
        self.current: dict[str, Value] = {}
        for name, value in defaults.items():
            if name in self._index:
                self.current[name] = self._accept(self._index[name], value)
        constants = plan.records(Const)
        for i, symbol in enumerate(self._symbols):
            name = self._names[i]
            if name not in self.current and symbol.default_value < len(constants):
                bits = constants[symbol.default_value].bits
                self.current[name] = bits - (bits >> 63 << 64)

    def bind(self, values: Mapping[str, object]) -> tuple[Bound, ...]:
        """One Bound per symbol, in table order; names not given have their current values."""
        accepted: dict[str, Value] = {}
        for name, value in values.items():
            index = self._index.get(name)
            if index is None:
                raise ExecutionError(
                    f"this program has no name {name!r} to bind",
                    why=f"it binds {', '.join(self._names) or 'nothing'}",
                    fix="names fixed at compile time (Dense[...], Python ints) cannot be rebound",
                )
            accepted[name] = self._accept(index, value)
        merged = {**self.current, **accepted}
        for i, name in enumerate(self._names):
            if name not in merged:
                raise ExecutionError(
                    f"nothing is bound to {name!r}",
                    loc=self._loc(i),
                    fix=f"pass it to execute({name}=...)",
                )
        return tuple(self._bound(i, merged[name]) for i, name in enumerate(self._names))

    def keep(self, bound: tuple[Bound, ...]) -> None:
        """Makes these the current values, for later runs."""
        self.current = {name: each.value for name, each in zip(self._names, bound, strict=True)}

    def _bound(self, index: int, value: Value) -> Bound:
        read_only = isinstance(value, np.ndarray) and not value.flags.writeable
        return Bound(index, value, read_only)

    def _accept(self, index: int, value: object) -> Value:
        symbol = self._symbols[index]
        if symbol.kind in (SymbolKind.ARRAY, SymbolKind.TENSOR):
            return self._accept_array(index, symbol, value)
        number = _integer(value)
        if number is None:
            raise self._mismatch(index, f"an integer, not {type(value).__name__}")
        if not symbol.min_value <= number <= symbol.max_value:
            raise ExecutionError(
                f"{self._names[index]!r} is {number}, legal are {symbol.min_value} to "
                f"{symbol.max_value}",
                loc=self._loc(index),
            )
        return number

    def _accept_array(self, index: int, symbol: Symbol, value: object) -> npt.NDArray[Any]:
        if symbol.kind == SymbolKind.ARRAY and isinstance(value, (list, tuple)):
            value = np.asarray(value, dtype=DType(symbol.dtype).numpy)
        array = shared_array(value)
        if array is None:
            raise self._mismatch(
                index, f"an array that can be used in place, not {type(value).__name__}"
            )
        wanted = DType(symbol.dtype)
        if array.dtype != wanted.numpy:
            raise self._mismatch(index, f"dtype {wanted.numpy}, not {array.dtype}")
        if array.ndim != symbol.rank:
            raise self._mismatch(index, f"{symbol.rank} dimensions, not {array.ndim}")
        if any(stride % array.itemsize for stride in array.strides):
            raise self._mismatch(index, "strides that are whole elements")
        return array

    def _mismatch(self, index: int, wanted: str) -> ExecutionError:
        return ExecutionError(
            f"{self._names[index]!r} must be bound to {wanted}", loc=self._loc(index)
        )

    def _loc(self, index: int) -> SrcLoc | None:
        return self._plan.loc(Section.SYMBOL, index)


def _integer(value: object) -> int | None:
    if isinstance(value, (bool, np.bool_)):
        return None
    try:
        return operator.index(cast(SupportsIndex, value))
    except TypeError:
        return None


def shared_array(value: Any) -> npt.NDArray[Any] | None:
    """A NumPy array over the same memory as `value`, or None if that would need a copy."""
    for candidate in (value, getattr(value, "data", None)):  # `data`: a frontend Tensor
        if isinstance(candidate, np.ndarray):
            return cast("npt.NDArray[Any]", candidate)
    if hasattr(value, "__array_interface__"):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    return None
