"""From what a user passes to `execute(...)` to one value per symbol of the plan."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, SupportsIndex, cast

import numpy as np
import numpy.typing as npt

from pto_wsp import srcloc
from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import ExecutionError
from pto_wsp.plan import Const, Plan, Section, Symbol, SymbolKind
from pto_wsp.runtime.run_errors import of_call, run_error
from pto_wsp.sharing import DeviceArray, NotShared, share
from pto_wsp.srcloc import SrcLoc

Value = int | float | npt.NDArray[Any] | DeviceArray
# What a target makes of an array in its device's memory; None of any other.
Adopt = Callable[[object], DeviceArray | None]
_COMPILED = "the program was compiled for what it has here"


@dataclass(slots=True, eq=False)
class Bound:
    """What one symbol is bound to for one run. Never changed once it is made; not frozen, because
    eight of them are made for a call that may last ten microseconds."""

    symbol: int
    value: Value
    read_only: bool = False


class Binder:
    """Knows a plan's symbols and what they are bound to when a run names nothing else."""

    def __init__(
        self, plan: Plan, defaults: Mapping[str, object], adopt: Adopt | None = None
    ) -> None:
        self._plan = plan
        self._adopt = adopt
        self._symbols = plan.records(Symbol)
        self._names = [plan.string(s.name) for s in self._symbols]
        self._index = {name: i for i, name in enumerate(self._names)}
        # By symbol: the dtype and rank of an array, or nothing for a number.
        self._arrays = [
            (DType(s.dtype).numpy, s.rank)
            if s.kind in (SymbolKind.ARRAY, SymbolKind.TENSOR)
            else None
            for s in self._symbols
        ]
        current: list[Value | None] = [None] * len(self._symbols)
        for name, value in defaults.items():
            if name in self._index:
                current[self._index[name]] = self._accept(self._index[name], value).value
        constants = plan.records(Const)
        for i, symbol in enumerate(self._symbols):
            if current[i] is None and symbol.default_value < len(constants):
                bits = constants[symbol.default_value].bits
                current[i] = _number(DType(symbol.dtype), bits)
        #: By what stages of a graph call it, the name under which it is bound.
        self.of_stages: dict[str, str] = {}
        #: By symbol, what a run is given that names nothing else; None: it has to be named.
        self.values: tuple[Value | None, ...] = tuple(current)

    @property
    def current(self) -> dict[str, Value]:
        """What each name is bound to when a run names nothing else."""
        named = zip(self._names, self.values, strict=True)
        return {name: value for name, value in named if value is not None}

    def back(self, values: tuple[Value | None, ...], before: tuple[Value | None, ...]) -> None:
        """A run with these values has failed: they are forgotten, unless another call has come."""
        if self.values is values:
            self.values = before

    def bind(self, values: Mapping[str, object]) -> tuple[Bound, ...]:
        """One Bound per symbol, in table order; names not given have their current values, which
        are looked at again: the shape of an array can be changed in place."""
        merged: list[Bound | None] = [None] * len(self._symbols)
        for name, value in values.items():
            index = self._index.get(name)
            if index is None:
                raise ExecutionError(
                    Code.UNKNOWN_NAME,
                    f"this program has no name {name!r} to bind",
                    loc=srcloc.here(),
                    why=f"it binds {', '.join(self._names) or 'nothing'}",
                    fix=self._other_name(name),
                )
            merged[index] = self._accept(index, value)
        for i, current in enumerate(self.values):
            if merged[i] is None and current is not None:
                merged[i] = self._accept(i, current)
        if None in merged:
            missing = merged.index(None)
            raise of_call(
                ExecutionError(
                    Code.UNBOUND_NAME,
                    f"nothing is bound to {self._names[missing]!r}",
                    loc=self._loc(missing),
                    why="it was made without data, so there is none to begin with",
                    fix=f"pass it to execute({self._names[missing]}=...)",
                )
            )
        return cast("tuple[Bound, ...]", tuple(merged))

    def _other_name(self, name: str) -> str:
        """What to do about a name that is not there."""
        parts = self.of_stages.items()
        found = {bound for part, bound in parts if f".{part}".endswith(f".{name}")}
        if found:
            shown = " or ".join(map(repr, sorted(found)))
            return f"stages have it as {shown}: execute(**{{{min(found)!r}: ...}})"
        if parts := [known for known in self._names if known.startswith(f"{name}_")]:
            return f"it is bound by its parts: {', '.join(f'{part}=...' for part in parts)}"
        close = difflib.get_close_matches(name, self._names, n=1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        return f"{meant}names fixed at compile time (Dense[...], Python ints) cannot be rebound"

    def has(self, name: str) -> bool:
        """Whether execute binds this name."""
        return name in self._index

    def _accept(self, index: int, value: object) -> Bound:
        array = self._arrays[index]
        if array is None:
            return Bound(index, self._accept_number(index, value))
        # What nearly everybody passes, without the detours of _accept_array.
        if (
            type(value) is np.ndarray
            and value.dtype is array[0]
            and value.ndim == array[1]
            and value.flags.carray  # C order, aligned, writable
        ):
            return Bound(index, value)
        found = self._accept_array(index, self._symbols[index], value)
        return Bound(index, found, isinstance(found, np.ndarray) and not found.flags.writeable)

    def _accept_number(self, index: int, value: object) -> int | float:
        symbol = self._symbols[index]
        if symbol.dtype in _FLOATS:
            return self._accept_float(index, value)
        if symbol.dtype == DType.BOOL and isinstance(value, (bool, np.bool_)):
            return 1 if value else 0
        number = _integer(value)
        if number is None:
            raise self._mismatch(index, f"an integer, not {type(value).__name__}", "pass int(...)")
        if not symbol.min_value <= number <= symbol.max_value:
            raise run_error(
                Code.BINDING_RANGE,
                f"{self._names[index]!r} is {number}, legal are {symbol.min_value} to "
                f"{symbol.max_value}",
                loc=self._loc(index),
            )
        return number

    def _accept_float(self, index: int, value: object) -> float:
        numbers = (int, float, np.integer, np.floating)
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers):
            kind = type(cast(object, value)).__name__
            raise self._mismatch(index, f"a number, not {kind}", "pass a Python number")
        return float(cast(float, value))

    def _accept_array(
        self, index: int, symbol: Symbol, value: object
    ) -> npt.NDArray[Any] | DeviceArray:
        if symbol.kind == SymbolKind.ARRAY and isinstance(value, (list, tuple)):
            value = _integers(cast(object, value), DType(symbol.dtype).numpy)
        try:
            array = self._on_device(value) or share(value)
        except NotShared as refusal:
            wanted = f"an array that can be used in place, not {refusal.what}"
            raise self._not_shared(index, wanted, refusal.why, refusal.fix) from refusal
        dtype = DType(symbol.dtype).numpy
        if array.dtype != dtype:
            swapped = array.dtype.newbyteorder() == dtype
            raise self._mismatch(
                index,
                f"dtype {dtype}, not {array.dtype}",
                _converted(value, dtype, is_written=bool(symbol.flags & _WRITTEN)),
                why="its bytes are in the other order" if swapped else _COMPILED,
            )
        if array.ndim != symbol.rank:
            dimensions = f"{symbol.rank} dimensions, not {array.ndim}"
            raise self._mismatch(index, dimensions, "pass array.reshape(...)", Code.BINDING_RANK)
        return array

    def _on_device(self, value: object) -> DeviceArray | None:
        if isinstance(value, DeviceArray):
            return value
        return None if self._adopt is None else self._adopt(value)

    def _mismatch(
        self,
        index: int,
        wanted: str,
        fix: str,
        code: Code = Code.BINDING_TYPE,
        why: str = _COMPILED,
    ) -> ExecutionError:
        message = f"{self._names[index]!r} must be bound to {wanted}"
        return of_call(ExecutionError(code, message, loc=self._loc(index), why=why, fix=fix))

    def _not_shared(self, index: int, wanted: str, why: str, fix: str) -> ExecutionError:
        message = f"{self._names[index]!r} must be bound to {wanted}"
        refused = ExecutionError(
            Code.MEMORY_NOT_SHARED, message, loc=self._loc(index), why=why, fix=fix
        )
        return of_call(refused)

    def _loc(self, index: int) -> SrcLoc | None:
        return self._plan.loc(Section.SYMBOL, index)


_WRITTEN = 1  # Symbol.flags
_FLOATS = frozenset(int(d) for d in (DType.F64, DType.F32, DType.F16, DType.BF16))


def _number(dtype: DType, bits: int) -> int | float:
    """The value of a default, from its bits."""
    if dtype in _FLOATS:
        return float(np.frombuffer(bits.to_bytes(8, "little"), np.float64)[0])
    return bits - (bits >> 63 << 64)


def _converted(value: object, dtype: np.dtype[Any], *, is_written: bool) -> str:
    """What to do about an array of another dtype than `dtype`."""
    is_torch = type(value).__module__.partition(".")[0] == "torch"
    copy = f"tensor.to(torch.{dtype.name})" if is_torch else f"array.astype({dtype.name!r})"
    return f"pass a converted copy, {copy}" + (", and look there for results" * is_written)


def show(value: Value) -> str:
    """A value as people read it: arrays by dtype and shape."""
    if isinstance(value, np.ndarray | DeviceArray):
        return f"{value.dtype}{list(value.shape)}"
    return str(value)


def stage_lines(bound: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Which bindings of a graph several stages have, and which have the name of one."""
    shared = {name: parts for name, parts in bound.items() if len(parts) > 1}
    lines = [f"{name} is bound for {', '.join(parts)}" for name, parts in shared.items()]
    alone = [name for name, parts in bound.items() if parts == (name,)]
    return [*lines, f"bound for one stage: {', '.join(alone)}"] if alone else lines


def _integer(value: object) -> int | None:
    if isinstance(value, (bool, np.bool_)):
        return None
    try:
        return operator.index(cast(SupportsIndex, value))
    except TypeError:
        return None


def _integers(value: object, dtype: np.dtype[Any]) -> object:
    """A list of integers as an array; anything else as it is, to be refused with its own type."""
    try:
        found = np.asarray(value)
    except ValueError:  # lists of different lengths
        return value
    return found.astype(dtype) if found.dtype.kind in "iu" or not found.size else found
