"""What a backend is: something that runs plans. It sees the plan and loaded kernels, nothing else.

A backend has a name, says which options it takes, refuses plans it cannot run (`check`), and makes
engines from the others. An engine is a plan ready to run with any bindings; a run is one execution.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pto_wsp.kernels import LoadedKernel
from pto_wsp.plan import Plan
from pto_wsp.runtime.bindings import Bound as Bound
from pto_wsp.runtime.engine import Engine as Engine
from pto_wsp.runtime.engine import Generated as Generated
from pto_wsp.runtime.engine import Run as Run
from pto_wsp.runtime.stats import Stats as Stats


class Backend(Protocol):
    """A target. `options` are the names that `load` understands."""

    name: str
    options: frozenset[str]

    def check(self, plan: Plan) -> None:
        """Raises CompileError, or ScheduleError for a directive, if the plan cannot run here."""
        ...

    def load(
        self, plan: Plan, kernels: tuple[LoadedKernel, ...], options: Mapping[str, object]
    ) -> Engine:
        """An engine for a plan that `check` accepts; `kernels` are in KERNEL table order."""
        ...
