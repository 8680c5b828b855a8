"""Which targets there are. A backend is imported when it is first asked for."""

from __future__ import annotations

import importlib
from functools import cache

from pto_wsp import srcloc
from pto_wsp.backends.base import Backend
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError

_BACKENDS = {
    "cpu_sim": "pto_wsp.backends.cpu:CpuBackend",
    "reference": "pto_wsp.backends.reference:ReferenceBackend",
}


def names() -> tuple[str, ...]:
    """The targets that `compile(target=...)` accepts."""
    return tuple(_BACKENDS)


@cache
def get(name: str) -> Backend:
    """The backend of that name."""
    path = _BACKENDS.get(name)
    if path is None:
        raise CompileError(
            Code.TARGET_OPTION,
            f"there is no target {name!r}",
            loc=srcloc.here(),
            why="a target is a registered backend",
            fix=f"use one of: {', '.join(sorted(_BACKENDS))}",
        )
    module, attribute = path.split(":")
    backend: Backend = getattr(importlib.import_module(module), attribute)()
    return backend
