"""Runs of plans on the reference backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pto_wsp.backends.reference import ReferenceBackend
from pto_wsp.backends.reference.backend import ReferenceEngine
from pto_wsp.kernels import load_kernels
from pto_wsp.plan import Plan, Symbol
from pto_wsp.runtime.bindings import Bound

Array = np.ndarray[Any, Any]


def engine_of(plan: Plan, **kernels: Callable[..., None]) -> ReferenceEngine:
    return ReferenceBackend().load(plan, load_kernels(plan, kernels), {})


def bindings_of(plan: Plan, values: dict[str, Any]) -> tuple[Bound, ...]:
    names = [plan.string(symbol.name) for symbol in plan.records(Symbol)]
    assert sorted(names) == sorted(values)
    return tuple(Bound(i, values[name]) for i, name in enumerate(names))


def execute(plan: Plan, values: dict[str, Any], **kernels: Callable[..., None]) -> None:
    run = engine_of(plan, **kernels).start(bindings_of(plan, values), asynchronous=False)
    assert run.wait(None)


def recorder() -> tuple[list[int], Callable[..., None]]:
    """A kernel of one one-element view that remembers the values it saw."""
    seen: list[int] = []

    def record(x: Array) -> None:
        seen.append(int(x[()]))

    return seen, record
