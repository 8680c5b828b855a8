"""The cuda target in Triton's interpreter, or on the GPU of this machine (PTO_WSP_TEST_GPU=1), or
compiled for a GPU that is not there (PTO_WSP_TEST_GPU=compile, for what is marked so alone)."""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest

MODE = os.environ.get("PTO_WSP_TEST_GPU", "")
# Tests that are of one mode, by their marker, and why others skip them.
ONLY = {
    "gpu": ("1", "needs a CUDA device"),
    "interpreted": ("", "looks into Triton's interpreter, which runs on the host"),
    "compiled": ("compile", "compiles for a GPU: make test-triton"),
}
if MODE not in ("1", "compile"):
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("torch", reason="the cuda target runs on torch tensors")
pytest.importorskip("triton", reason="needs triton: pip install 'pto-wsp[gpu]'")


@pytest.fixture(autouse=True)
def no_false_alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the device finds a mistake in control, so does the reference, in some run."""
    faults: Any = importlib.import_module("pto_wsp.backends.cuda.faults")

    def nothing() -> None:
        raise AssertionError("the reference finds nothing wrong with control")

    monkeypatch.setattr(faults, "mistake_before", nothing)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for name, (mode, why) in ONLY.items():
        if item.get_closest_marker(name) is not None and mode != MODE:
            pytest.skip(why)
