"""The source of tile kernels: goldens, and what must and must not be in it."""

from __future__ import annotations

from typing import Any

import pytest

from pto_wsp import pto
from pto_wsp.dtypes import DType
from pto_wsp.errors import CompileError
from pto_wsp.kernels.emit_tile import emit_tile
from pto_wsp.kernels.tile_ir import RefType, ScalarType, check, from_text
from pto_wsp.plan import AccessMode
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


def heads(q: Any, k: Any, y: Any, n: Any) -> None:
    """Three heads of pages, each attended to by rows of its own."""
    parts = [pto.load(q[2 * h : 2 * h + 2, 0:32]) for h in range(3)]
    sums = pto.carry(
        a=pto.zeros((2, 32), F32), b=pto.zeros((2, 32), F32), c=pto.zeros((2, 32), F32)
    )
    for at in pto.for_range(0, n, 16):
        keys = [pto.load(k[at : at + 16, h, 0:32]) for h in range(3)]
        scores = [pto.matmul(part, each.T) for part, each in zip(parts, keys, strict=True)]
        values = [pto.load(k[at : at + 16, h, 0:32]) for h in range(3)]
        sums.a = pto.matmul_acc(sums.a, scores[0], values[0])
        sums.b = pto.matmul_acc(sums.b, scores[1], values[1])
        sums.c = pto.matmul_acc(sums.c, scores[2], values[2])
    for h, each in enumerate([sums.a, sums.b, sums.c]):
        pto.store(y[2 * h : 2 * h + 2, 0:32], each)


def pages(rank: int = 3) -> RefType:
    return RefType(F32, rank, AccessMode.IN, None, paged=True)


def test_products_with_heads_of_the_same_pages_are_one_instruction() -> None:
    text = emit_tile(traced(heads, q=ref(), k=pages(), y=out(), n=ScalarType(DType.I64))).text
    assert text.count("TMATMUL_EACH(") == 1
    assert text.count("TMATMUL_ACC_EACH(") == 1
    assert text.count("by(") == 6
    # Each asks for what the next one reads: the last one for the next iteration.
    first = text[text.index("TMATMUL_EACH(") :]
    assert "{k, x_at, " in first[: first.index(";")]
    last = text[text.index("TMATMUL_ACC_EACH(") :]
    assert "{k, (x_at + 16), " in last[: last.index(";")]


def apart(q: Any, k: Any, y: Any) -> None:
    """The second product needs the first, the third one reads other tokens."""
    first = pto.matmul(pto.load(q[0:4, 0:32]), pto.load(k[0:32, 0, 0:32]).T)
    second = pto.matmul(first, pto.load(k[0:32, 1, 0:32]))
    third = pto.matmul(second, pto.load(k[8:40, 1, 0:32]))
    pto.store(y[0:4, 0:32], third)


def test_products_that_do_not_belong_together_stay_apart() -> None:
    text = emit_tile(traced(apart, q=ref(), k=pages(), y=out())).text
    assert text.count("TMATMUL(") == 3
    assert "_EACH(" not in text


def stops(q: Any, k: Any, y: Any) -> None:
    """Between two products the result of the first one is used."""
    row = pto.load(q[0:4, 0:32])
    first = pto.matmul(row, pto.load(k[0:32, 0, 0:32]))
    pto.store(y[0:4, 0:32], first * 2.0)
    pto.store(y[4:8, 0:32], pto.matmul(row, pto.load(k[0:32, 1, 0:32])))


def test_what_stands_between_products_keeps_them_apart() -> None:
    text = emit_tile(traced(stops, q=ref(), k=pages(), y=out())).text
    assert text.count("TMATMUL(") == 2
    assert "_EACH(" not in text


def test_names_stay_inside_comments_and_strings() -> None:
    """A plan may come from anywhere, and files may be called anything."""
    kernel = from_text(
        r"""tile kernel "a\nint b;"(%0.x: inout f32[:], %1.n: i64) {
          %2: f32 = load %0.x, %1.n, sizes=(0) @ "c\" << d\\.py":3:1-2
          store %0.x, %2, %1.n, sizes=(0) @ "e\nf.py":3:1-2
        }"""
    )
    check(kernel)
    text = emit_tile(kernel).text
    assert "// a?int b;(" in text
    assert '"load of x, c? << d?.py:3"' in text
    assert '"store of x, e?f.py:3"' in text


def test_scratch_has_an_end() -> None:
    def large(x: Any, y: Any) -> None:
        pto.store(y[0:65536, 0:65536], pto.load(x[0:65536, 0:65536]).T)

    with pytest.raises(CompileError, match="kernel large needs 16384 MiB for its tiles"):
        emit_tile(traced(large, x=ref(), y=out()))
