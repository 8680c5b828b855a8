"""Which targets there are. A backend is imported when it is first asked for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache

from pto_wsp import options, srcloc
from pto_wsp.backends.base import Backend
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError, ScheduleError
from pto_wsp.plan import Plan

AUTO = "auto"

# In the order in which "auto" tries them.
_BACKENDS = {
    "cpu_sim": "pto_wsp.backends.cpu:CpuBackend",
    "cuda": "pto_wsp.backends.cuda:CudaBackend",
    "reference": "pto_wsp.backends.reference:ReferenceBackend",
}
_DEVICES = frozenset({"cuda"})
# A machine by its name: the target, and which of its machine models.
_MACHINES = {
    "ascend_910b": ("ascend_npu", "910b"),
    "ascend_910c": ("ascend_npu", "910c"),
    "ascend_950": ("ascend_npu", "950"),
    "xdna1": ("amd_aie", "xdna1"),
    "xdna2": ("amd_aie", "xdna2"),
}


def names() -> tuple[str, ...]:
    """The targets that `compile(target=...)` accepts."""
    return tuple(_BACKENDS)


def host_names() -> tuple[str, ...]:
    """Those that run kernels of every kind, in the memory of this process."""
    return tuple(name for name in _BACKENDS if name not in _DEVICES)


def get(name: object) -> Backend:
    """The backend of that name."""
    return _get(name if isinstance(name, str) else repr(name))


@cache
def _get(name: str) -> Backend:
    path = _BACKENDS.get(name)
    if path is None:
        target, model = _MACHINES.get(name, (None, None))
        raise CompileError(
            Code.TARGET_OPTION,
            f"there is no target {name!r}",
            loc=srcloc.here(),
            why="a target is a registered backend"
            if target is None
            else f"it is machine model {model!r} of target {target!r}, which this version lacks",
            fix=f"use one of: {', '.join(sorted([*_BACKENDS, AUTO]))}",
        )
    module, attribute = path.split(":")
    backend: Backend = getattr(importlib.import_module(module), attribute)()
    return backend


def choose(plan: Plan, given: Mapping[str, object]) -> tuple[str, str]:
    """The first target that has these options and runs this plan, and why it is that one."""
    refused: list[str] = []
    for name in names():
        unknown = options.refusal(given, get(name).options)
        if unknown is not None:
            refused.append(f"{name} has no option {unknown[0]!r}")
            continue
        try:
            get(name).check(plan)
        except (CompileError, ScheduleError) as error:
            refused.append(f"{name}: {error.message}")
            continue
        return name, "; ".join([*refused, f"{name} is the first that runs this plan"])
    raise CompileError(
        Code.TARGET_LIMIT,
        "no target runs this program",
        loc=srcloc.here(),
        why="; ".join(refused),
        fix="name a target to see its reason in full: compile(target='cpu_sim')",
    )
