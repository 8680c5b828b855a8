"""Every elementwise operation and cast, compiled, against the NumPy meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pto_wsp import pto
from pto_wsp.dtypes import DType
from tests.kernels.tile_cpu.native import Array, Compiled, compile_kernels, out, ref, traced

FLOATS = (DType.F32, DType.F64, DType.F16, DType.BF16)
INTEGERS = (DType.I8, DType.I16, DType.I32, DType.I64, DType.U8, DType.U16, DType.U32, DType.U64)
SHAPE = (6, 37)

_MATH = [
    "exp",
    "exp2",
    "log",
    "sqrt",
    "rsqrt",
    "recip",
    "tanh",
    "sigmoid",
    "erf",
    "sin",
    "cos",
    "gelu",
    "silu",
    "floor",
    "ceil",
]


def float_unary(x: Any, y: Any) -> None:
    a = pto.load(x[0:6, 0:37])
    for number, name in enumerate([*_MATH, "abs", "relu"]):
        pto.store(y[number, 0:6, 0:37], getattr(pto, name)(a))
    pto.store(y[len(_MATH) + 2, 0:6, 0:37], -a)


def float_binary(x: Any, z: Any, y: Any) -> None:
    a, b = pto.load(x[0:6, 0:37]), pto.load(z[0:6, 0:37])
    made = [a + b, a - b, a * b, a / b, pto.maximum(a, b), pto.minimum(a, b)]
    made += [pto.pow(pto.abs(a), b), pto.where(a < b, a, b), a * 3.0 + b, 1.0 - a]
    for number, value in enumerate(made):
        pto.store(y[number, 0:6, 0:37], value)


def integer_ops(x: Any, z: Any, y: Any) -> None:
    a, b = pto.load(x[0:6, 0:37]), pto.load(z[0:6, 0:37])
    made = [a + b, a - b, a * b, a // b, a % b, pto.maximum(a, b), pto.minimum(a, b), a & b, a | b]
    made += [a ^ b, ~a, -a, pto.abs(a), pto.relu(a), pto.where(a > b, a, b), a + 3, a // 3, a % 7]
    for number, value in enumerate(made):
        pto.store(y[number, 0:6, 0:37], value)


def compares(x: Any, z: Any, y: Any) -> None:
    a, b = pto.load(x[0:6, 0:37]), pto.load(z[0:6, 0:37])
    less, more = a < b, a > b
    made = [a == b, a != b, less, a <= b, more, a >= b, less & more, less | more, less ^ more]
    made += [~less, less == more, less != more]
    for number, value in enumerate(made):
        pto.store(y[number, 0:6, 0:37], value)


def casts(*params: Any) -> None:
    x, targets = params[0], params[1:]
    a = pto.load(x[0:6, 0:37])
    for y, dtype in zip(targets, DType, strict=True):
        pto.store(y[0:6, 0:37], pto.cast(a, dtype))


def roundings(x: Any, y: Any) -> None:
    a = pto.load(x[0:6, 0:37])
    for number, mode in enumerate(("nearest", "zero", "floor", "ceil")):
        pto.store(y[number, 0:6, 0:37], pto.cast(a, DType.I32, mode))


def cast_function() -> Callable[..., None]:
    """`casts`, with a parameter for each dtype."""
    names = ["x", *(f"to_{dtype.text}" for dtype in DType)]
    scope: dict[str, Any] = {"casts": casts}
    exec(f"def cast_all({', '.join(names)}): casts({', '.join(names)})", scope)
    return scope["cast_all"]


@pytest.fixture(scope="module")
def compiled() -> dict[tuple[str, DType], Compiled]:
    kernels: dict[tuple[str, DType], Any] = {}
    for dtype in FLOATS:
        kernels["unary", dtype] = traced(float_unary, x=ref(dtype), y=out(dtype, 3))
        both = {"x": ref(dtype), "z": ref(dtype)}
        kernels["binary", dtype] = traced(float_binary, **both, y=out(dtype, 3))
    for dtype in (*INTEGERS, DType.F32, DType.F16, DType.F64):
        both = {"x": ref(dtype), "z": ref(dtype)}
        kernels["compare", dtype] = traced(compares, **both, y=out(DType.BOOL, 3))
    for dtype in INTEGERS:
        both = {"x": ref(dtype), "z": ref(dtype)}
        kernels["integer", dtype] = traced(integer_ops, **both, y=out(dtype, 3))
    cast_all = cast_function()
    for dtype in DType:
        targets = {f"to_{each.text}": out(each) for each in DType}
        kernels["cast", dtype] = traced(cast_all, x=ref(dtype), **targets)
    kernels["rounding", DType.F32] = traced(roundings, x=ref(), y=out(DType.I32, 3))
    return dict(zip(kernels, compile_kernels(list(kernels.values()), level=1), strict=True))


def numbers(dtype: DType, seed: int) -> Array:
    """Random elements, with the hard ones among them."""
    rng = np.random.default_rng(seed)
    if dtype is DType.BOOL:
        return rng.integers(0, 2, SHAPE).astype(bool)
    if dtype in INTEGERS:
        info = np.iinfo(dtype.numpy)
        found = rng.integers(-9, 10, SHAPE).astype(dtype.numpy)
        rare = rng.integers(info.min, info.max, SHAPE, dtype.numpy, endpoint=True)
        found = np.where(rng.random(SHAPE) < 0.5, found, rare)
        found[0, :4] = info.min, info.max, 0, dtype.numpy.type(-1 if info.min else 1)
        return found
    with np.errstate(over="ignore"):
        return _floats(dtype, rng)


def _floats(dtype: DType, rng: np.random.Generator) -> Array:
    found = (rng.standard_normal(SHAPE) * 10 ** rng.uniform(-3, 2, SHAPE)).astype(dtype.numpy)
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 2.5, -2.5, 3.5, 0.5, 1e-40, 6e-8]
    special += [65519.0, 65520.0]
    found[2, : len(special)] = np.array(special).astype(dtype.numpy)
    rng.shuffle(found[2])
    found[3] = np.linspace(-3e9, 3e9, SHAPE[1]).astype(dtype.numpy)
    return found


def close(ours: Array, theirs: Array, dtype: DType, tolerance: float) -> None:
    a, b = (np.asarray(v).astype(np.float64) for v in (ours, theirs))
    np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
    tiny = {DType.F16: 6e-8, DType.BF16: 1e-38, DType.F32: 1e-37, DType.F64: 1e-300}[dtype]
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tiny)


EPS = {DType.F32: 2.0**-23, DType.F64: 2.0**-52, DType.F16: 2.0**-10, DType.BF16: 2.0**-7}


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.text)
def test_float_operations(compiled: dict[tuple[str, DType], Compiled], dtype: DType) -> None:
    x = numbers(dtype, 1)
    y = np.zeros((len(_MATH) + 3, *SHAPE), dtype.numpy)
    (ours,), (theirs,) = compiled["unary", dtype].both(x, y)
    for number, name in enumerate([*_MATH, "abs", "relu", "neg"]):
        exact = name in ("sqrt", "recip", "floor", "ceil", "abs", "relu", "neg")
        if name == "gelu":  # 1 + erf(x) loses digits where x is negative
            with np.errstate(invalid="ignore"):
                off = np.abs(ours[number].astype("f8") - theirs[number].astype("f8"))
                assert not (off > 4 * EPS[dtype] * np.abs(x.astype("f8"))).any()
            continue
        close(ours[number], theirs[number], dtype, 0 if exact else 6 * EPS[dtype])


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.text)
def test_float_pairs(compiled: dict[tuple[str, DType], Compiled], dtype: DType) -> None:
    x, z = numbers(dtype, 1), numbers(dtype, 2)
    (ours,), (theirs,) = compiled["binary", dtype].both(x, z, np.zeros((10, *SHAPE), dtype.numpy))
    for number in range(10):
        exact = number not in (6, 8)
        if number == 8:  # one rounding less where the machine fuses: near 0 that is much
            continue
        close(ours[number], theirs[number], dtype, 0 if exact else 4 * EPS[dtype])


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.text)
def test_integers(compiled: dict[tuple[str, DType], Compiled], dtype: DType) -> None:
    x, z = numbers(dtype, 1), numbers(dtype, 2)
    z[1, :5] = 0
    z[0] = -1 if dtype.name[0] == "I" else 1
    (ours,), (theirs,) = compiled["integer", dtype].both(x, z, np.zeros((18, *SHAPE), dtype.numpy))
    np.testing.assert_array_equal(ours, theirs)


def test_comparisons(compiled: dict[tuple[str, DType], Compiled]) -> None:
    for (what, dtype), kernel in compiled.items():
        if what == "compare":
            x, z = numbers(dtype, 1), numbers(dtype, 2)
            z[:, ::3] = x[:, ::3]
            (ours,), (theirs,) = kernel.both(x, z, np.zeros((12, *SHAPE), bool))
            np.testing.assert_array_equal(ours, theirs, dtype.text)
            assert set(np.unique(ours.view(np.uint8))) <= {0, 1}


@pytest.mark.parametrize("dtype", DType, ids=lambda d: d.text)
def test_casts(compiled: dict[tuple[str, DType], Compiled], dtype: DType) -> None:
    outputs = [np.zeros(SHAPE, each.numpy) for each in DType]
    ours, theirs = compiled["cast", dtype].both(numbers(dtype, 3), *outputs)
    for each, a, b in zip(DType, ours, theirs, strict=True):
        message = f"{dtype.text} to {each.text}"
        if each in FLOATS:
            a, b = a.astype(np.float64), b.astype(np.float64)
        np.testing.assert_array_equal(a, b, message)


def test_roundings(compiled: dict[tuple[str, DType], Compiled]) -> None:
    x = numbers(DType.F32, 4)
    (ours,), (theirs,) = compiled["rounding", DType.F32].both(x, np.zeros((4, *SHAPE), np.int32))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16, DType.I8], ids=lambda d: d.text)
def test_partial_and_strided_regions(
    compiled: dict[tuple[str, DType], Compiled], dtype: DType
) -> None:
    """Rows and columns that do not exist are neither read nor written, wherever columns lie."""
    what = "integer" if dtype in INTEGERS else "binary"
    for rows, cols in ((6, 37), (4, 33), (1, 1), (5, 8), (0, 3), (3, 0)):
        for step in (1, 2):
            x = numbers(dtype, 5).repeat(step, 1)[:rows, ::step][:, :cols]
            z = numbers(dtype, 6)[:rows, :cols]
            bases = [np.full((20, 8, 40 * step), 99, dtype.numpy) for _ in range(2)]
            ours, theirs = (b[:18, 1 : 1 + rows, 1 : 1 + cols * step : step] for b in bases)
            compiled[what, dtype].run(x, z, ours)
            compiled[what, dtype].meaning(x, z, theirs)
            if what == "binary":  # powers and fused sums differ in the last bits
                bases = [np.delete(base, (6, 8), 0) for base in bases]
            np.testing.assert_array_equal(*(base.astype("f8") for base in bases))
