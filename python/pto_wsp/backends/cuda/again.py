"""A launch once more: with the same arguments, or with other memory that lies as the last did.

What a first launch finds out of its arguments (types, layouts, that what tasks write lies apart,
the kernel that fits) holds for these too, so that a step costs the host only the launch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pto_wsp.backends.cuda import device
from pto_wsp.backends.cuda.module import Kind, Module
from pto_wsp.backends.cuda.run import Inputs
from pto_wsp.plan import NONE, Plan, Symbol, Tensor
from pto_wsp.runtime.bindings import Value
from pto_wsp.sharing import DeviceArray

Launch = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Layout:
    """What does not change from launch to launch of a kernel."""

    module: Module
    launch: Launch
    symbols: Mapping[str, int]
    places: Mapping[int, tuple[int, ...]]  # arguments that are the address of a symbol's tensor
    tables: frozenset[int]  # symbols of page tables
    written: frozenset[int]
    sizes: Mapping[int, int]  # bytes from the first to the last element, by symbol

    @staticmethod
    def of(
        plan: Plan, module: Module, inputs: Inputs, written: frozenset[int], launch: Launch
    ) -> Layout:
        tensors = plan.records(Tensor)
        names = {plan.string(s.name): n for n, s in enumerate(plan.records(Symbol))}
        places: dict[int, tuple[int, ...]] = {}
        for index, argument in enumerate(module.arguments):
            if argument.kind is Kind.POINTER:
                symbol = tensors[argument.number].symbol
            elif argument.kind is Kind.ARRAY:
                symbol = argument.number
            else:
                continue
            places[symbol] = (*places.get(symbol, ()), index)
        tables = frozenset(tensors[t.table].symbol for t in tensors if t.table != NONE)
        sizes = {s: device.num_bytes(tensor) for s, tensor in inputs.tensors.items()}
        return Layout(module, launch, names, places, tables, written, sizes)


@dataclass(frozen=True, slots=True)
class Again:
    """The last launch: everything it was given lies on the device. `made_with` is what the engine
    launched then; once it is another (there was no room, and memory of the engine's own is new),
    the arguments are of the past."""

    layout: Layout
    values: tuple[Value, ...]
    inputs: Inputs
    arguments: tuple[Any, ...]
    made_with: object

    def launch(self) -> None:
        self.layout.launch(*self.arguments)

    def is_for(self, values: tuple[Value | None, ...]) -> bool:
        if values is self.values:
            return True
        return all(
            a is b or (isinstance(a, int | float) and a == b)
            for a, b in zip(values, self.values, strict=True)
        )

    def with_memory(self, changed: Mapping[str, object]) -> Again | None:
        """The same with other tensors; None where one does not lie as the last did."""
        moved: dict[int, Any] = {}
        for name, value in changed.items():
            symbol = self.layout.symbols.get(name, -1)
            tensor = self.inputs.tensors.get(symbol)
            if tensor is not None and device.lies_like(value, tensor):
                moved[symbol] = value
            elif type(value) is not int or self.inputs.numbers.get(symbol) != value:
                return None
        if not moved:
            return self
        tensors = {**self.inputs.tensors, **moved}
        if not self._tables_alike(tensors, moved) or not self._apart(tensors, moved):
            return None
        values, arguments = list(self.values), list(self.arguments)
        for symbol, tensor in moved.items():
            before = values[symbol]
            assert isinstance(before, DeviceArray)
            values[symbol] = DeviceArray(tensor, before.dtype, before.shape)
            for place in self.layout.places.get(symbol, ()):
                arguments[place] = tensor.data_ptr()
        inputs = replace(self.inputs, tensors=tensors)
        return replace(self, values=tuple(values), inputs=inputs, arguments=tuple(arguments))

    def _tables_alike(self, tensors: Mapping[int, Any], moved: Mapping[int, Any]) -> bool:
        """Which page tables are one is compiled in."""
        tables = sorted(self.layout.tables)
        if len(tables) < 2 or self.layout.tables.isdisjoint(moved):
            return True
        return _equal(self.inputs.tensors, tables) == _equal(tensors, tables)

    def _apart(self, tensors: Mapping[int, Any], moved: Mapping[int, Any]) -> bool:
        """Whether what tasks write still lies apart from all else."""
        spans = {s: (t.data_ptr(), self.layout.sizes[s]) for s, t in tensors.items()}
        for symbol in self.layout.written & spans.keys():
            first, size = spans[symbol]
            for other, (start, length) in spans.items():
                if other == symbol or (other not in moved and symbol not in moved):
                    continue
                if first < start + length and start < first + size:
                    return False
        return True


def _equal(tensors: Mapping[int, Any], tables: Sequence[int]) -> list[int]:
    """For each table the first one at the same address; that they lie alike is known."""
    places = [tensors[symbol].data_ptr() for symbol in tables]
    return [places.index(place) for place in places]
