"""The kernel of every program, and of every directive, compiled for a GPU that need not be there:
PTO_WSP_TEST_GPU=compile, which make test-triton sets."""

# pyright: basic
from __future__ import annotations

import importlib
import re
from typing import Any

import pytest

from pto_wsp import Interleaved
from pto_wsp.backends.cuda import device
from pto_wsp.backends.cuda.code import Known
from pto_wsp.backends.cuda.module import Kind
from pto_wsp.backends.cuda.persistent import write_module
from pto_wsp.kernels.triton_code import TritonOptions

from .programs import PROGRAMS
from .test_any_schedule import DIRECTED, HERE
from .test_control_faults import CONTROL
from .watching import grouped, ragged

pytestmark = pytest.mark.compiled
_FIXED = {"CTRL": "*i32", "EVENTS": "*i32", "NEED": "*i64", "SPACE": "*i8"}
TURNS = {
    "rows": lambda: ragged([3, 1]).workload.order(rows=Interleaved(2)),
    "groups": lambda: grouped([[1, 2], [0, 3]]).workload.order(groups=Interleaved(2)),
    "alike": lambda: grouped([[1, 2]]).workload.order(groups=Interleaved(2)),
}
WALKED = ("affinity", "hash", "pools", "priority", "parts", "robin", "steal", "steal keys")
CASES = {
    **{name: lambda name=name: PROGRAMS[name]().workload for name in PROGRAMS},
    **{how: lambda how=how: DIRECTED[how](PROGRAMS[HERE[how]]().workload) for how in HERE},
    **{f"ragged {how}": lambda how=how: DIRECTED[how](ragged([3, 1]).workload) for how in WALKED},
    **{f"alike {how}": lambda how=how: DIRECTED[how](grouped([[2]]).workload) for how in WALKED},
    **{f"turns {name}": made for name, made in TURNS.items()},
    **{f"control, {name}": made for name, (made, _, _) in CONTROL.items()},
}


def _type(name: str, arguments: dict[str, Kind]) -> str:
    match arguments.get(name):
        case Kind.POINTER:
            return "*fp32"
        case Kind.ARRAY:
            return "*i64"
        case Kind.PAGE:
            return "constexpr"
        case None if name in _FIXED:
            return _FIXED[name]
        case None if re.fullmatch("DIRECT|HASH", name):
            return "constexpr"
        case _:
            return "i32"


@pytest.mark.parametrize("case", CASES)
def test_it_compiles(case: str) -> None:
    plan = CASES[case]().compile(target="reference").plan
    module = write_module(plan, TritonOptions(narrow=True), Known(), 4)
    kernel: Any = device.load_source(module.text)
    arguments = {argument.name: argument.kind for argument in module.arguments}
    types = {name: _type(name, arguments) for name in kernel.arg_names}
    known = {
        name: 16 if name.startswith("PAGE") else 1 for name in types if types[name] == "constexpr"
    }
    triton: Any = importlib.import_module("triton")
    backends: Any = importlib.import_module("triton.backends.compiler")
    source = importlib.import_module("triton.compiler").ASTSource(kernel, types, known)
    options = {"num_warps": 4, "launch_cooperative_grid": module.together}
    triton.compile(source, target=backends.GPUTarget("cuda", 90, 32), options=options)
