"""`k.run(...)` runs what a task runs; `k.reference(...)` is what tile code means."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    Constexpr,
    DType,
    In,
    InOut,
    Kernel,
    Out,
    PagedTensor,
    Scalar,
    Tensor,
    Tile,
    Token,
    kernel,
    kernels,
    pto,
)
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError, KernelError, TypeCheckError

Array = np.ndarray[Any, Any]


@kernel
def scale(
    x: In[Tile[4, 8, DType.F32]],
    y: Out[Tile[4, 8, DType.F32]],
    s: Scalar[DType.F32] = 2.0,
    N: Constexpr[int] = 1,
):
    for _ in range(N):  # a constant: ordinary Python
        x = x * s
    pto.store(y, x)


@kernel(cpp_src="for (int64_t i = 0; i < x.shape(0); ++i) y[i] = x[i] + (twice ? 2 * N : N);")
def add(x: In[Tensor], y: Out[Tensor], N: Constexpr[int], twice: Scalar[DType.BOOL] = False): ...


@kernel
def python_add(
    x: In[Tensor], y: InOut[Tensor], order: InOut[Token], n: Scalar[DType.I32], B: Constexpr[bool]
):
    assert (order, type(n), B) == (None, int, True)
    assert not x.flags.writeable
    y[...] = x + n


@kernel(body="tile")
def pick(x: In[Tensor], y: Out[Tensor], at: Scalar[DType.I64]):
    pto.store(y[0], pto.load(x[at]))


@kernel(body="tile")
def turn_pages(k: InOut[PagedTensor], y: Out[Tile[4, 2, DType.F32]]):
    part = pto.load(k[0:4, 0:2])
    pto.store(y, part)
    pto.store(k[0:4, 0:2], -part)


def numbers(*shape: int) -> Array:
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)


def random(*shape: int) -> Array:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def both(which: Kernel, **given: Any) -> tuple[dict[str, Array], dict[str, Array]]:
    """What run and reference leave in the arrays."""
    ours, theirs = (
        {name: v.copy() if isinstance(v, np.ndarray) else v for name, v in given.items()}
        for _ in range(2)
    )
    which.run(**ours)
    which.reference(**theirs)
    return ours, theirs


def test_tile_code() -> None:
    x, y = numbers(3, 8), np.zeros((3, 8), np.float32)
    scale.run(x=x, y=y, s=3.0, N=2)
    np.testing.assert_array_equal(y, 9 * x)
    scale.run(x, y)
    np.testing.assert_array_equal(y, 2 * x)
    scale.run(x=Tensor(data=x), y=Tensor(data=y), s=1.0)
    np.testing.assert_array_equal(y, x)
    scale.reference(x, y, s=0.5)
    np.testing.assert_array_equal(y, x / 2)


@pytest.mark.parametrize(
    ("which", "given"),
    [
        (kernels.softmax(8, 40), {"x": random(7, 33), "out": numbers(7, 33)}),
        (
            kernels.rmsnorm(4, 16),
            {"x": random(4, 16), "weight": random(1, 16), "out": numbers(4, 16)},
        ),
        (scale, {"x": random(4, 8), "y": numbers(4, 8), "s": 0.3, "N": 3}),
        (turn_pages, {"k": random(3, 2), "y": numbers(4, 2)}),
        (pick, {"x": numbers(4).astype(np.int16), "y": np.zeros(1, np.int16), "at": 3}),
        (pick, {"x": numbers(4), "y": np.zeros(1, np.float32), "at": 2}),
    ],
)
def test_compiled_code_does_what_is_meant(which: Kernel, given: dict[str, Any]) -> None:
    ours, theirs = both(which, **given)
    for name, value in ours.items():
        np.testing.assert_allclose(value, theirs[name], rtol=1e-5, atol=1e-6)


def test_other_bodies() -> None:
    x, y = numbers(5), np.zeros(5, np.float32)
    add.run(x, y, N=3)
    np.testing.assert_array_equal(y, x + 3)
    add.run(x=x, y=y, N=3, twice=True)
    np.testing.assert_array_equal(y, x + 6)
    integers = np.zeros(5, np.int64)
    add.run(np.arange(5), integers, N=4)
    np.testing.assert_array_equal(integers, np.arange(5) + 4)
    python_add.run(x, y, Token((1,)), n=7, B=True)
    np.testing.assert_array_equal(y, x + 7)


@pytest.mark.parametrize("strides", ["steps", "turned", "backwards", "one row"])
def test_arrays_of_any_strides(strides: str) -> None:
    x, y = random(16, 16), np.zeros((16, 16), np.float32)
    cut: dict[str, Any] = {
        "steps": lambda a: a[1:12:3, ::2],
        "turned": lambda a: a[:8, :4].T,
        "backwards": lambda a: a[3::-1, 7::-1],
        "one row": lambda a: a[5:6, :8],
    }
    scale.run(cut[strides](x), cut[strides](y), s=3.0)
    wanted = np.zeros_like(y)
    cut[strides](wanted)[...] = 3 * cut[strides](x)
    np.testing.assert_array_equal(y, wanted)
    spread = np.broadcast_to(numbers(8), (4, 8))
    scale.run(spread, y[:4, :8])
    np.testing.assert_array_equal(y[:4, :8], 2 * spread)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": numbers(5, 8)}, "x has shape (5, 8)"),
        ({"x": numbers(8)}, "x is an array of float32 with rank 1"),
        ({"x": numbers(4, 8).astype(np.float64)}, "x is an array of float64 with rank 2"),
        ({"x": [[1.0]]}, "kernel scale: x cannot share the memory of list"),
        ({"x": np.zeros((4, 8), complex)}, "x is an array of complex128"),
        ({"y": np.broadcast_to(np.float32(0), (4, 8))}, "y is read-only"),
        ({"N": 1.5}, "N is float"),
        ({"s": "2"}, "s is str"),
    ],
)
@pytest.mark.parametrize("how", ["run", "reference"])
def test_arguments_that_do_not_fit(arguments: dict[str, Any], message: str, how: str) -> None:
    given = {"x": numbers(4, 8), "y": numbers(4, 8)} | arguments
    with pytest.raises(TypeCheckError) as caught:
        getattr(scale, how)(**given)
    assert message in caught.value.message
    assert "kernel scale" in caught.value.message
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__


def test_kernels_that_fail() -> None:
    x, y = numbers(4), np.zeros(1, np.float32)
    for how in (pick.run, pick.reference):
        for at in (-1, 4):
            with pytest.raises(KernelError, match=f"kernel pick failed: index {at} of") as caught:
                how(x=x, y=y, at=at)
            assert caught.value.kernel == "pick"
            assert caught.value.loc is not None
            assert caught.value.loc.file == __file__
    pick.run(x=x, y=y, at=1)  # it is usable again
    assert y[0] == 1

    @kernel(cpp_src='ptowsp_fail("never");')
    def native(x: In[Tensor]): ...

    with pytest.raises(KernelError, match="kernel native failed: never"):
        native.run(x)
    with pytest.raises(KernelError, match="kernel python_add failed: AssertionError") as caught:
        python_add.run(x, x, None, 1, B=False)
    assert isinstance(caught.value.__cause__, AssertionError)


def test_read_only_means_read_only_in_python() -> None:
    @kernel
    def writes(x: In[Tensor]):
        x[0] = 1

    with pytest.raises(KernelError, match="read-only"):
        writes.run(numbers(4))


def test_compiled_once(cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @kernel
    def twice(x: InOut[Tile[4, 8, DType.F32]], N: Constexpr[int] = 2):
        pto.store(x, x * float(N))

    x = np.ones((4, 8), np.float32)
    twice.run(x)
    assert len(list(cache_dir.rglob("*.so"))) == 1
    # From now on nothing can be compiled or found.
    monkeypatch.setenv("PTO_WSP_CACHE_DIR", str(tmp_path / "other"))
    monkeypatch.setenv("PTO_WSP_NO_JIT", "1")
    twice.run(x[:3])
    assert x[0, 0] == 4
    with pytest.raises(CompileError, match="have not been compiled yet: twice") as caught:
        twice.run(x, N=3)
    assert caught.value.code is Code.KERNEL_NOT_COMPILED
    assert "twice.reference(...)" in str(caught.value.fix)
    twice.reference(x, N=3)
    assert x[0, 0] == 12


def test_no_compiler(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTO_WSP_CXX", "no-such-compiler")
    x = np.ones((4, 8), np.float32)

    @kernel
    def negated(x: InOut[Tile[4, 8, DType.F32]]):
        pto.store(x, -x)

    @kernel(cpp_src="x(0, 0) = 1;")
    def native(x: InOut[Tensor]): ...

    with pytest.raises(CompileError, match="a C\\+\\+ compiler is needed") as caught:
        negated.run(x)
    assert "negated.reference(...) computes the same with NumPy" in str(caught.value.fix)
    with pytest.raises(CompileError, match="a C\\+\\+ compiler is needed") as caught:
        native.run(x)
    assert "reference" not in str(caught.value.fix)


def test_threads() -> None:
    """Many at once, the first of them before anything is compiled: each has its own scratch."""
    softmax = kernels.softmax(8, 48)
    barrier = threading.Barrier(4)
    failures: list[object] = []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).normal(size=(8, 48)).astype(np.float32)
        wanted, out = np.zeros_like(x), np.zeros_like(x)
        softmax.reference(x, wanted)
        barrier.wait()
        for _ in range(200):
            out[...] = 0
            softmax.run(x, out)
            if not np.allclose(out, wanted, rtol=1e-5, atol=1e-7):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failures
