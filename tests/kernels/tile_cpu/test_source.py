"""The source of tile kernels: goldens, and what must and must not be in it."""

from __future__ import annotations

from typing import Any

from pto_wsp import pto
from pto_wsp.dtypes import DType
from pto_wsp.kernels.emit_tile import emit_tile
from pto_wsp.kernels.tile_ir import ScalarType
from tests.conftest import Golden
from tests.kernels.tile_cpu.native import out, ref, traced
from tests.kernels.tile_cpu.test_tiles import flash

F32 = DType.F32


def softmax(x: Any, y: Any) -> None:
    t = pto.load(x[0:16, 0:512])
    e = pto.exp(t - pto.row_max(t))
    pto.store(y[0:16, 0:512], e / pto.row_sum(e))


def chain(x: Any, y: Any) -> None:
    t = pto.load(x[0:16, 0:512])
    pto.store(y[0:16, 0:512], pto.relu(t * 2.0 + 1.0) - t)


def test_softmax(golden: Golden) -> None:
    golden.check("softmax", emit_tile(traced(softmax, x=ref(), y=out())).text)


def test_flash_attention(golden: Golden) -> None:
    attention = {"q": ref(), "k": ref(), "v": ref(), "y": out()}
    kernel = traced(flash, **attention, n=ScalarType(DType.I64), scale=ScalarType(F32))
    source = emit_tile(kernel)
    golden.check("flash", source.text)
    # What is carried is never copied: the product adds to the place that the loop keeps.
    loop = source.text[source.text.index("for (i64 j") :]
    assert "TSTORE" not in loop
    assert "TLOAD" not in loop


def test_a_chain_is_one_pass_without_scratch() -> None:
    source = emit_tile(traced(chain, x=ref(), y=out()))
    assert source.scratch_bytes == 0
    assert source.text.count("TMAP<") == 1


def test_slots_are_shared() -> None:
    """A value that has ended leaves its place to the next one."""

    def many(x: Any, y: Any) -> None:
        t = pto.load(x[0:16, 0:16])
        for _ in range(10):
            t = pto.matmul(t, t)
        pto.store(y[0:16, 0:16], t)

    assert emit_tile(traced(many, x=ref(), y=out())).scratch_bytes == 2 * 16 * 16 * 4
