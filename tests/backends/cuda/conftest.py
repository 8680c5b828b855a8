"""The cuda target in Triton's interpreter, or on the GPU of this machine (PTO_WSP_TEST_GPU=1);
test_compiled.py alone compiles for a GPU that is not there (PTO_WSP_TEST_GPU=compile)."""

from __future__ import annotations

import os

import pytest

if os.environ.get("PTO_WSP_TEST_GPU") not in ("1", "compile"):
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("torch", reason="the cuda target runs on torch tensors")
pytest.importorskip("triton", reason="needs triton: pip install 'pto-wsp[gpu]'")
