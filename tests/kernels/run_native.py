"""Calls a loaded C++ kernel with arrays, as the runtime would."""

from __future__ import annotations

from typing import Any

import numpy as np

from pto_wsp.backends.reference import ReferenceBackend
from pto_wsp.kernels import load_kernels
from pto_wsp.plan import Plan, Symbol
from pto_wsp.runtime.bindings import Bound


def run(plan: Plan, **arrays: np.ndarray[Any, Any]) -> None:
    """Executes a plan whose symbols are these arrays; raises what the run raises."""
    symbols = [plan.string(symbol.name) for symbol in plan.records(Symbol)]
    bindings = tuple(Bound(i, arrays[name]) for i, name in enumerate(symbols))
    engine = ReferenceBackend().load(plan, load_kernels(plan, {}), {})
    engine.start(bindings, asynchronous=False).wait(None)
