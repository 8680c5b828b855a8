"""The generated translation unit."""

from __future__ import annotations

import pytest

from pto_wsp.dtypes import DType
from pto_wsp.errors import CompileError, PlanError
from pto_wsp.kernels import emit_cpp
from pto_wsp.plan import AccessMode, ParamKind, Plan
from pto_wsp.srcloc import SrcLoc
from tests.kernels.sketch import P, Sketch, one_kernel, out


def text_of(plan: Plan) -> str:
    unit = emit_cpp(plan)
    assert unit is not None
    return unit.text


def test_plan_without_cpp_kernels_has_no_unit() -> None:
    sketch = Sketch()
    sketch.kernel("cell", [P("a")])
    assert emit_cpp(sketch.build()) is None


def test_whole_text() -> None:
    sketch = Sketch()
    sketch.kernel("skipped", [P("a")])
    sketch.kernel("step", [P("a"), out("b", DType.BF16, 2)], "b(0, 0) = a[0];", includes=["<set>"])
    sketch.kernel("twice", [P("x", AccessMode.INOUT)], "x[0] *= 2;", includes=["#include <set>"])
    unit = emit_cpp(sketch.build())
    assert unit is not None
    assert unit.kernels == (1, 2)
    assert unit.labels == {"ptowsp-kernel:step": 1, "ptowsp-kernel:twice": 2}
    assert (
        unit.text
        == """\
#include <ptowsp_kernel/ptowsp_kernel.h>
#include <set>

namespace ptowsp_body_1 {
static inline void body([[maybe_unused]] ptowsp::View<const float, 1> a, \
[[maybe_unused]] ptowsp::View<ptowsp::bf16, 2> b) {
#line 1 "ptowsp-kernel:step"
b(0, 0) = a[0];
#line 9 "ptowsp-kernels.cpp"
}
}  // namespace ptowsp_body_1
PTOWSP_KERNEL ptowsp_kernel_1([[maybe_unused]] const ptowsp_call* call, void*) noexcept {
  return ptowsp::run_body(call, [&] {
    ptowsp_body_1::body(ptowsp::view_argument<const float, 1>(call, 0), \
ptowsp::view_argument<ptowsp::bf16, 2>(call, 1));
  });
}

namespace ptowsp_body_2 {
static inline void body([[maybe_unused]] ptowsp::View<float, 1> x) {
#line 1 "ptowsp-kernel:twice"
x[0] *= 2;
#line 22 "ptowsp-kernels.cpp"
}
}  // namespace ptowsp_body_2
PTOWSP_KERNEL ptowsp_kernel_2([[maybe_unused]] const ptowsp_call* call, void*) noexcept {
  return ptowsp::run_body(call, [&] {
    ptowsp_body_2::body(ptowsp::view_argument<float, 1>(call, 0));
  });
}
"""
    )


def test_scalars_and_constants() -> None:
    sketch = Sketch()
    params = [
        P("s", dtype=DType.F32, kind=ParamKind.SCALAR),
        P("N", dtype=DType.I64, kind=ParamKind.CONSTEXPR, value=(1 << 64) - 3),
        P("h", dtype=DType.F32, kind=ParamKind.CONSTEXPR, value=0x3F000000),
        P("b", dtype=DType.BOOL, kind=ParamKind.CONSTEXPR, value=1),
        P("t", dtype=DType.U8, kind=ParamKind.SCALAR),
    ]
    sketch.kernel("k", params, "")
    text = text_of(sketch.build())
    assert "body([[maybe_unused]] float s, [[maybe_unused]] std::uint8_t t) {" in text
    assert "body(ptowsp::scalar_argument<float>(call, 0), " in text
    assert "ptowsp::scalar_argument<std::uint8_t>(call, 1));" in text
    assert "constexpr std::int64_t N = static_cast<std::int64_t>(0xfffffffffffffffdull);" in text
    assert "constexpr float h = std::bit_cast<float>(std::uint32_t{0x3f000000});" in text
    assert "constexpr bool b = static_cast<bool>(0x1ull);" in text


def test_text_does_not_depend_on_where_the_source_is() -> None:
    plans = [one_kernel([out("o")], "o[0] = 1;", loc=SrcLoc(f, 3)) for f in ("a.py", "b.py")]
    assert text_of(plans[0]) == text_of(plans[1])


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ('a"b', "a_b"),
        ("a\nb", "a_b"),
        ("7", "_7"),
        ("cell<f32>", "cell<f32>"),
        ("zahl_ü", "zahl_ü"),
    ],
)
def test_labels_are_safe(name: str, label: str) -> None:
    unit = emit_cpp(one_kernel([out("o")], "", name=name))
    assert unit is not None
    assert list(unit.labels) == [f"ptowsp-kernel:{label}"]
    assert f'#line 1 "ptowsp-kernel:{label}"' in unit.text.splitlines()


def test_labels_are_unique() -> None:
    sketch = Sketch()
    sketch.kernel("a b", [], "")
    sketch.kernel("a?b", [], "")
    unit = emit_cpp(sketch.build())
    assert unit is not None
    assert unit.labels == {"ptowsp-kernel:a_b": 0, "ptowsp-kernel:a_b#1": 1}


def test_parameter_that_is_a_cpp_word() -> None:
    with pytest.raises(CompileError) as caught:
        emit_cpp(one_kernel([out("default")], "default[0] = 1;"))
    assert str(caught.value) == (
        "[PTO202] kernel 'body': 'default' cannot name a parameter of a C++ body\n"
        "  why: 'default' is a word of C++\n"
        "  fix: rename the parameter"
    )


def test_damaged_body() -> None:
    sketch = Sketch()
    sketch.kernel("k", [], b'{"source": 1}')
    with pytest.raises(PlanError, match=r"the C\+\+ body of kernel 'k' is not understood"):
        emit_cpp(sketch.build())
