"""@kernel with tile code: what counts as one, tracing, running alone and in programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    Constexpr,
    DenseDyn,
    DType,
    In,
    InOut,
    Out,
    P,
    PagedTensor,
    Program,
    Scalar,
    Tensor,
    Tile,
    Token,
    kernel,
    pto,
    workload,
)
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError, KernelError, PlanError, TypeCheckError
from pto_wsp.kernels import load_kernels
from pto_wsp.kernels.tile_ir import from_text
from pto_wsp.plan import BodyForm
from tests.kernels.sketch import Sketch, out

TARGETS = ["reference", "cpu_sim"]


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


@kernel(body="tile")
def add_rows(x: In[Tensor], y: InOut[Tensor], order: InOut[Token]):
    assert order is None
    for i in pto.for_range(0, x.shape[0], 4):
        pto.store(y[i : i + 4], pto.load(y[i : i + 4]) + pto.load(x[i : i + 4]))


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)


def test_tiles_mean_tile_code() -> None:
    assert scale.form.value == "tile"
    assert repr(scale).startswith("<kernel scale(x: in Tile[4, 8, f32]")

    @kernel(body="python")
    def plain(x: InOut[Tile[4, 8, DType.F32]]):
        x[...] += 1

    @kernel(cpp_src="x(0, 0) = 1;")
    def native(x: InOut[Tile[4, 8, DType.F32]]): ...

    assert (plain.form.value, native.form.value) == ("python", "cpp")


def test_ir() -> None:
    assert scale.ir is scale.ir  # traced once
    assert scale.trace(N=3) is not scale.ir
    assert [p.name for p in scale.ir.params] == ["x", "y", "s"]
    assert sum(each.op.value == "mul" for each in scale.trace(N=3).body) == 3
    given = add_rows.trace(x=(DType.F64, 1), y=np.zeros(3))
    assert given is add_rows.trace(x=np.ones(7), y=(DType.F64, 1))
    with pytest.raises(TypeCheckError, match="kernel add_rows: x is not known"):
        _ = add_rows.ir
    with pytest.raises(CompileError, match="an unknown argument z"):
        add_rows.trace(z=1)


def test_kernels_that_are_not_tile_code() -> None:
    @kernel
    def plain(x: In[Tensor]): ...

    with pytest.raises(CompileError, match=r"plain\.reference of a kernel with a python body"):
        plain.reference(x=numbers(2))
    with pytest.raises(CompileError, match="with body='rust'"):
        kernel(body="rust")(lambda: None)
    with pytest.raises(CompileError, match="with body='cpp'"):

        @kernel(body="cpp")
        def lacks(x: In[Tensor]): ...

    with pytest.raises(CompileError, match="with body='tile'"):

        @kernel(body="tile", cpp_src="x;")
        def has(x: In[Tensor]): ...


def test_leaving_a_condition_in_the_middle() -> None:
    with pytest.raises(CompileError, match="leaves a `with` block in the middle") as caught:

        @kernel
        def leaves(x: InOut[Tile[4, 8, DType.F32]], n: Scalar[DType.I64]):
            with pto.when(n > 0):
                return
            pto.store(x, x + 1)

    assert caught.value.code is Code.LOOP_LEFT_EARLY
    assert caught.value.loc.render().split("|")[1].strip() == "return"

    @kernel
    def stays(x: InOut[Tile[4, 8, DType.F32]], n: Scalar[DType.I64]):
        with pto.when(n > 0):
            for k in range(9):
                if k == 2:
                    break
                pto.store(x, x + 1)


def test_workloads_have_no_place_in_tile_code() -> None:
    @kernel
    def nested(x: InOut[Tile[4, 8, DType.F32]]):
        for _ in P(4):
            pto.store(x, x + 1)

    X = Tensor(data=numbers(4, 8))

    @workload
    def w():
        nested(X)

    with pytest.raises(CompileError, match="outside a workload"):
        w().compile()


@pytest.mark.parametrize("target", TARGETS)
def test_programs(target: str) -> None:
    X, Y = Tensor(data=numbers(10, 8)), Tensor(data=np.zeros((10, 8), np.float32))

    @workload
    def scaled(tiles):
        for t in P(tiles):
            scale[t](X[4 * t : 4 * t + 3], Y[4 * t : 4 * t + 3], s=2.0)
            scale[t](X[4 * t : 4 * t + 1], Y[4 * t + 1 : 4 * t + 2], N=3)

    program = scaled(DenseDyn(2)).compile(target=target)
    program.execute()
    wanted = np.zeros((10, 8), np.float32)
    for t in (0, 4):
        wanted[t : t + 3] = 2 * X.data[t : t + 3]
        wanted[t + 1] = 8 * X.data[t]
    np.testing.assert_array_equal(Y.data, wanted)
    assert program.plan.kernel_names == ("scale", "scale.2")


@pytest.mark.parametrize("target", TARGETS)
def test_pages(target: str) -> None:
    pool = np.zeros((5, 4, 2), np.float32)
    table = np.array([[3, 0, 2], [4, 1, 1]], np.int32)
    tokens = numbers(10, 2)
    for token in range(10):
        pool[table[0, token // 4], token % 4] = tokens[token]
    K, Y = PagedTensor(pool, table), Tensor(data=np.zeros((1, 2), np.float32))

    @kernel(body="tile")
    def attend(k: InOut[PagedTensor], y: InOut[Tile[1, 2, DType.F32]], KT: Constexpr[int] = 3):
        for pos in pto.for_range(0, k.shape[0], KT):
            part = pto.load(k[pos : pos + KT, 0:2])
            pto.store(y, y + pto.col_sum(part))
            pto.store(k[pos : pos + KT, 0:2], part + 1.0)

    @workload
    def decode(lens):
        for b in P(1):
            attend(K[b, : lens[b]], Y)

    decode(np.array([9])).compile(target=target).execute()
    np.testing.assert_array_equal(Y.data[0], tokens[:9].sum(0))
    assert pool[2, 0, 0] == tokens[8, 0] + 1
    assert pool[2, 1, 0] == tokens[9, 0]


@pytest.mark.parametrize("target", TARGETS)
def test_plans_carry_tile_code(target: str) -> None:
    A, B = Tensor(data=numbers(6)), Tensor(data=np.ones(6, np.float32))
    turn = Token((1,))

    @workload
    def sums(A, B):
        add_rows(A, B, turn[0])

    plan = sums(A, B).compile().plan
    body = plan.body(0)
    assert body is not None
    assert body.form is BodyForm.TILE_IR
    text = body.data.decode()
    assert 'test_hook.py":' in text
    assert "/" not in text  # no folder of this machine
    assert from_text(text) == add_rows.trace(x=A, y=B)
    # Nothing of Python is needed to run it again.
    result = np.ones(6, np.float32)
    Program.from_plan(plan, target=target).execute(A=numbers(6), B=result)
    np.testing.assert_array_equal(result, numbers(6) + 1)


@pytest.mark.parametrize("target", TARGETS)
def test_a_task_that_fails(target: str) -> None:
    @kernel(body="tile")
    def pick(x: In[Tensor], y: Out[Tensor], at: Scalar[DType.I64]):
        pto.store(y[0], pto.load(x[at]))

    X, Y = Tensor(data=numbers(4)), Tensor(data=numbers(4))

    @workload
    def picks(n):
        for i in P(n):
            pick[i](X, Y[i : i + 1], i + 2)

    with pytest.raises(KernelError, match="index 4 of dimension 0, which has 4 elements"):
        picks(DenseDyn(3)).compile(target=target).execute()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"\xff", "it is not text"),
        (b"tile kernel", "expected a name"),
        (b"tile kernel k(%0: out f32[:]) { %1: f32 = neg %0 }", "neg of a parameter"),
        (b"tile kernel k() { }", "are for other parameters"),
        (b"tile kernel k(%0: in f32[]) { }", "are for other parameters"),
    ],
)
def test_damaged_plans(text: bytes, message: str) -> None:
    sketch = Sketch()
    index = sketch.kernel("k", [out("o")], form=None)
    sketch.b.body(index, BodyForm.TILE_IR, text)
    with pytest.raises(PlanError, match=message) as caught:
        load_kernels(sketch.build(), {})
    assert "the tile operations of kernel 'k'" in caught.value.message
