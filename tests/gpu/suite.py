"""Programs as files: nests of the conformance and property tests with what they were bound to, so
that a machine with a GPU needs neither pytest nor hypothesis to run them."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pto_wsp import ir

KEPT = ("DEPS",)  # what of a schedule says which tasks may run, not when and where


@dataclass
class Entry:
    """A nest without its schedule. `schedules` are those that tests give it; `shared` are names of
    tensors that lay in each other's memory, which a copy of them does not."""

    name: str
    kind: str  # "conformance", "nest"
    module: ir.Module
    values: dict[str, Any]
    schedules: list[tuple[ir.Directive, ...]] = field(default_factory=list)
    shared: tuple[str, ...] = ()

    def bind(self) -> dict[str, Any]:
        """Values for one run. Arrays are copies; what is one array stays one."""
        made: dict[int, np.ndarray] = {}
        found: dict[str, Any] = {}
        for name, value in self.values.items():
            if isinstance(value, np.ndarray):
                value = made.setdefault(id(value), value.copy(order="K"))
            found[name] = value
        return found


def plain(module: ir.Module) -> ir.Module:
    """The module without the part of its schedule that any target may do otherwise."""
    return replace(module, schedule=tuple(d for d in module.schedule if d.name in KEPT))


def save(path: Path, entries: list[Entry]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(entries))


def read(path: Path) -> list[Entry]:
    return pickle.loads(path.read_bytes())
