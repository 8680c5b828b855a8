"""The text of Triton kernels; nothing here runs it, so these tests need no Triton."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

from pto_wsp import kernels, pto
from pto_wsp.dtypes import DType
from pto_wsp.errors import CompileError
from pto_wsp.kernels.pto import TracedParam, trace_kernel
from pto_wsp.kernels.tile_ir import RefType, TileKernel
from pto_wsp.kernels.triton_code import (
    HELPER_NAMES,
    HELPERS,
    ParamFacts,
    Role,
    TritonOptions,
    emit_triton,
    helper_text,
    unsupported_ops,
)
from pto_wsp.plan import AccessMode
from tests.conftest import Golden

BF16 = DType.BF16


def decode() -> TileKernel:
    return kernels.decode(4, 64, 128, BF16, paged=True).trace(k=(BF16, 2), v=(BF16, 2))


def facts() -> TritonOptions:
    page = {"page": 16, "table_stride": 1, "page_stride": 16 * 128, "aligned": 8}
    params = {
        "q": ParamFacts(whole=True, strides=(128, 1), aligned=8),
        "k": ParamFacts(extents=(None, 128), strides=(128, 1), **page),
        "v": ParamFacts(extents=(("k", 0), 128), strides=(128, 1), **page),
        "part": ParamFacts(whole=True, strides=(128, 1)),
        "stats": ParamFacts(whole=True, strides=(2, 1)),
    }
    return TritonOptions(params=params, num_stages=3, narrow=True)


def test_decode(golden: Golden) -> None:
    source = emit_triton(decode(), "decode", facts())
    arguments = [f"# {a.name}: {a.role.value}" for a in source.arguments]
    text = re.sub(r"\.py:\d+", ".py", source.text)  # lines of the library may move
    golden.check(None, "\n".join([*arguments, text]))


def test_whatever_is_known_is_no_argument() -> None:
    roles = [a.role for a in emit_triton(decode(), "decode", facts()).arguments]
    assert roles.count(Role.EXTENT) == 1  # the tokens
    assert roles.count(Role.STRIDE) == roles.count(Role.PAGE) == roles.count(Role.PAGE_STRIDE) == 0
    plain = [a.role for a in emit_triton(decode(), "decode", TritonOptions()).arguments]
    assert plain.count(Role.EXTENT) == plain.count(Role.STRIDE) == 10
    assert plain.count(Role.TABLE) == plain.count(Role.PAGE) == plain.count(Role.FIRST) == 2


def test_whole_tiles_have_no_masks() -> None:
    whole = ParamFacts(whole=True)
    softmax = kernels.softmax(8, 64).ir
    text = emit_triton(softmax, "f", TritonOptions(params={"x": whole, "out": whole})).text
    assert "mask" not in text
    assert "where" not in text
    known = ParamFacts(extents=(8, 64))
    assert text.count("tl.load") == 1
    same = emit_triton(softmax, "f", TritonOptions(params={"x": known, "out": known})).text
    assert "mask" not in same


def test_loops_over_known_extents_have_no_masks() -> None:
    gemm = kernels.gemm(16, 32, 64).trace(a=(BF16, 2), b=(BF16, 2))
    params = {"a": ParamFacts(extents=(16, 256)), "b": ParamFacts(extents=(256, 32))}
    params["c"] = ParamFacts(whole=True)
    assert "mask" not in emit_triton(gemm, "f", TritonOptions(params=params)).text
    params["a"] = params["b"] = ParamFacts(extents=(16, 250))
    params["b"] = ParamFacts(extents=(250, 32))
    assert "mask" in emit_triton(gemm, "f", TritonOptions(params=params)).text


def test_user_names_and_lines() -> None:
    def scaled(tl: Any, y: Any) -> None:
        row_most = pto.row_max(pto.load(tl[0:4, 0:8]))
        pto.store(y[0:4, 0:1], row_most)

    given = {"tl": AccessMode.IN, "y": AccessMode.OUT}
    params = [TracedParam(n, RefType(DType.F32, 2, mode)) for n, mode in given.items()]
    text = emit_triton(trace_kernel("scaled", scaled, params), "scaled", TritonOptions()).text
    assert "row_most = tl.reduce(" in text
    assert "test_source.py:" in text
    assert "x_tl" in text  # a word of Triton is not a parameter's name


def test_blocks_that_are_too_large_name_the_line() -> None:
    def large(y: Any) -> None:
        pto.store(y[0:1025, 0:1024], pto.zeros((1025, 1024)))

    params = [TracedParam("y", RefType(DType.F32, 2, AccessMode.OUT))]
    with pytest.raises(CompileError, match="too large for a GPU") as found:
        emit_triton(trace_kernel("large", large, params), "large", TritonOptions())
    assert found.value.loc is not None
    assert found.value.loc.file.endswith("test_source.py")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"z": ParamFacts()}, "no tensor parameter 'z'"),
        ({"x": ParamFacts(strides=(1,))}, "2 dimensions, not 1"),
        ({"x": ParamFacts(page=16)}, "not paged"),
        ({"x": ParamFacts(extents=(("out", 0), None))}, "stands before 'x'"),
    ],
)
def test_facts_that_fit_no_parameter(params: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        emit_triton(kernels.softmax(8, 64).ir, "f", TritonOptions(params=params))


def test_helpers_bring_those_that_they_call() -> None:
    assert "def reciprocal" in helper_text(["silu"])
    assert "def tanh" not in helper_text(["silu"])
    assert helper_text(HELPER_NAMES) == HELPERS


def test_every_operation_has_a_form() -> None:
    assert unsupported_ops() == []


def test_emitting_needs_no_triton() -> None:
    code = (
        "import sys, pto_wsp.kernels.triton_code; assert not {'triton', 'torch'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
