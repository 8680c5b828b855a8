"""Random programs with tile kernels give the same on the cuda target, in Triton's interpreter, as
on the reference: results, tasks, their hash. `tests.gpu.conformance` runs more of them on a GPU."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
from hypothesis import given, settings

from pto_wsp import ir
from tests.gpu.conformance import examine, of_entry
from tests.gpu.suite import Entry
from tests.ir.interpreter import tasks
from tests.property.nests import Case, cases

if os.environ.get("PTO_WSP_TEST_GPU") != "1":
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is loaded
pytest.importorskip("torch", reason="the cuda target runs on torch tensors")
pytest.importorskip("triton", reason="needs triton: pip install 'pto-wsp[gpu]'")
_MOST = 60  # elements that tasks touch, each of which costs the interpreter milliseconds


def is_small(case: Case) -> bool:
    regions = [r for task in tasks(case.module.body, case.bindings) for r in task.regions]
    touched = sum(math.prod(extent for _, extent, _ in dims) for _, dims in regions)
    return 0 < touched <= _MOST


@settings(max_examples=20)
@given(cases())
def test_random_nests(case: Case) -> None:
    text = ir.to_text(case.module, locs=False)
    if "slot" in text or "while" in text or not is_small(case):
        return  # refused by design, or too long for here
    _, values = case.bind()
    apart = {
        name: value.copy(order="K") if isinstance(value, np.ndarray) else value
        for name, value in values.items()
    }
    found = examine(of_entry(Entry("random", "nest", case.module, apart)), _MOST)
    assert found.status == "equal", found.reason
