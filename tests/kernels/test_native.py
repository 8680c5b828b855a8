"""C++ bodies: compiled, loaded, called."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pto_wsp.dtypes import DType
from pto_wsp.errors import KernelError
from pto_wsp.kernels.emit_cpp import CPP_TYPES
from pto_wsp.plan import AccessMode, ParamKind
from tests.kernels.run_native import run
from tests.kernels.sketch import P, Sketch, one_kernel, out

pytestmark = pytest.mark.usefixtures("cache_dir")


def test_views_index_like_arrays() -> None:
    plan = one_kernel(
        [P("a", rank=2), out("b", rank=2)],
        """
        for (int i = 0; i < a.shape(0); ++i)
          for (int j = 0; j < a.shape(1); ++j) b[i][j] = 10 * a(i, j) + a.size();
        """,
    )
    a = np.arange(12, dtype=np.float32).reshape(3, 4)[::-1, ::2]  # strides of both signs
    b = np.zeros((2, 3), np.float32).T
    run(plan, a=a, b=b)
    np.testing.assert_array_equal(b, 10 * a + 6)


def test_every_dtype() -> None:
    sketch = Sketch()
    five, zero = sketch.const(5), sketch.const(0)
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for dtype in DType:
        body = f"""
        static_assert(std::is_same_v<decltype(b)::value_type, {CPP_TYPES[dtype]}>);
        static_assert(std::is_const_v<std::remove_reference_t<decltype(a[0])>>);
        for (int i = 0; i < a.shape(0); ++i) b[i] = a[a.shape(0) - 1 - i];
        """
        kernel = sketch.kernel(f"k_{dtype.text}", [P("a", dtype=dtype), out("b", dtype)], body)
        names = f"a_{dtype.text}", f"b_{dtype.text}"
        sketch.call(kernel, [(sketch.tensor(name, 1, dtype), [(zero, five)]) for name in names])
        arrays[names[0]] = (np.arange(5) % (2 if dtype is DType.BOOL else 5)).astype(dtype.numpy)
        arrays[names[1]] = np.zeros(5, dtype.numpy)
    run(sketch.build(), **arrays)
    for dtype in DType:
        a, b = arrays[f"a_{dtype.text}"], arrays[f"b_{dtype.text}"]
        np.testing.assert_array_equal(b, a[::-1], err_msg=dtype.text)
        assert b.any()


def test_range_loops_and_inout() -> None:
    plan = one_kernel([P("x", AccessMode.INOUT)], "for (float& v : x) v += 1; x[1] *= x.stride(0);")
    x = np.arange(6, dtype=np.float32)
    run(plan, x=x[::2])
    assert x.tolist() == [1, 1, 6, 3, 5, 5]


def test_constants_have_their_value() -> None:
    bits = {
        "N": (DType.I32, (-3) & 0xFFFFFFFFFFFFFFFF),
        "h": (DType.F16, 0x3E00),
        "d": (DType.F64, 0x3FE0000000000000),
        "f": (DType.F32, 0x40200000),
        "u": (DType.U64, (1 << 64) - 1),
    }
    constants = [
        P(name, dtype=dtype, kind=ParamKind.CONSTEXPR, value=value)
        for name, (dtype, value) in bits.items()
    ]
    body = "static_assert(f == 2.5f); o[0] = N; o[1] = h; o[2] = d; o[3] = f; o[4] = u / 4.0;"
    plan = one_kernel([out("o", DType.F64), *constants], body)
    o = np.zeros(5)
    run(plan, o=o)
    assert o.tolist() == [-3, 1.5, 0.5, 2.5, (2**64 - 1) / 4]


def test_failures_carry_the_message() -> None:
    body = """
    switch (int(a[0])) {
      case 0: throw std::out_of_range("row 7 of 3");
      case 1: ptowsp_fail("no free page");
      case 2: ptowsp_fail("n = " + std::to_string(a.shape(0)));
      case 3: throw 42;
      case 4: ptowsp_fail("");
      case 5: ptowsp_fail("ungültig");
      case 6: ptowsp_fail(std::string(10000, 'x'));
    }
    """
    plan = one_kernel([P("a")], body, name="k")
    messages = [
        "row 7 of 3",
        "no free page",
        "n = 1",
        "unknown C++ exception",
        "the kernel returned a failure without a message",
        "ungültig",
        "x" * 8191,
    ]
    for number, message in enumerate(messages):
        with pytest.raises(KernelError) as caught:
            run(plan, a=np.array([number], np.float32))
        assert caught.value.message == f"kernel k[] failed: {message}"
    run(plan, a=np.array([7], np.float32))  # the next run is not affected


F16_AND_BF16 = [(DType.F16, np.dtype(np.float16)), (DType.BF16, np.dtype(ml_dtypes.bfloat16))]


@pytest.mark.parametrize(("dtype", "numpy"), F16_AND_BF16, ids=["f16", "bf16"])
def test_halves_read_all_patterns_as_numpy_does(dtype: DType, numpy: np.dtype[Any]) -> None:
    body = "for (int i = 0; i < a.shape(0); ++i) b[i] = a[i];"
    plan = one_kernel([P("a", dtype=dtype), out("b")], body)
    a = np.arange(65536, dtype=np.uint16).view(numpy)
    b = np.zeros(65536, np.float32)
    run(plan, a=a, b=b)
    expected = a.astype(np.float32)
    nan = np.isnan(expected)
    np.testing.assert_array_equal(nan, np.isnan(b))
    np.testing.assert_array_equal(expected[~nan].view(np.uint32), b[~nan].view(np.uint32))
    np.testing.assert_array_equal(np.signbit(expected), np.signbit(b))


@pytest.mark.parametrize(("dtype", "numpy"), F16_AND_BF16, ids=["f16", "bf16"])
def test_halves_round_floats_as_numpy_does(dtype: DType, numpy: np.dtype[Any]) -> None:
    body = "for (int i = 0; i < a.shape(0); ++i) b[i] = a[i];"
    plan = one_kernel([P("a"), out("b", dtype)], body)
    # Every value, its neighbours, the middle between two of them and the middle's neighbours.
    exact = np.arange(65536, dtype=np.uint16).view(numpy).astype(np.float32).view(np.uint32)
    middle = np.uint32(1) << np.uint32(12 if dtype is DType.F16 else 15)
    offsets = np.array([0, 1, 2**32 - 1, middle - 1, middle, middle + 1], np.uint32)
    a = (exact[:, None] + offsets).ravel().view(np.float32)
    random = np.random.default_rng(1).integers(0, 2**32, 200_000, np.uint32).view(np.float32)
    a = np.concatenate([a, random])
    b = np.zeros(len(a), numpy)
    run(plan, a=a, b=b)
    with np.errstate(all="ignore"):
        expected = a.astype(numpy)
    nan = np.isnan(a)
    assert np.isnan(b[nan].astype(np.float32)).all()
    np.testing.assert_array_equal(expected[~nan].view(np.uint16), b[~nan].view(np.uint16))


def test_f16_rounds_doubles_once() -> None:
    plan = one_kernel(
        [P("a", dtype=DType.F64), out("b", DType.F16)],
        "for (int i = 0; i < a.shape(0); ++i) b[i] = a[i];",
    )
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    middles = (halves[1:] + halves[:-1]) / 2
    a = np.concatenate([np.nextafter(middles, 0), middles, np.nextafter(middles, 1e9)])
    b = np.zeros(len(a), np.float16)
    run(plan, a=a, b=b)
    np.testing.assert_array_equal(b.view(np.uint16), a.astype(np.float16).view(np.uint16))


def test_bits_are_those_of_ieee() -> None:
    """No flag lets the compiler reassociate a sum or drop a NaN."""
    body = """
    float sum = 0;
    for (float v : a) sum += v;
    o[0] = sum;
    o[1] = a[0] - a[0];
    o[2] = std::isnan(a[2]) ? 1 : 0;
    """
    plan = one_kernel([P("a"), out("o")], body)
    a = np.random.default_rng(2).standard_normal(1000).astype(np.float32)
    a[0] = np.inf
    o = np.zeros(3, np.float32)
    run(plan, a=a, o=o)
    assert np.isnan(o[1])
    a[0], a[2] = 1e8, np.nan
    run(plan, a=a, o=o)
    assert o[2] == 1
    a[2] = 0
    run(plan, a=a, o=o)
    expected = np.float32(0)
    for v in a:
        expected = np.float32(expected + v)
    assert o[0] == expected
