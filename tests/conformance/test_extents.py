"""Extents that a workload is made for, of what it is traced with and of what is bound later."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    DenseDyn,
    DType,
    Graph,
    In,
    Out,
    P,
    PagedTensor,
    Program,
    Tensor,
    combine,
    ir,
    kernel,
    launch,
    workload,
)
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError, ExecutionError

pytestmark = pytest.mark.parametrize("target", ["cpu_sim", "reference"])


@kernel
def double(x: In[Tensor], out: Out[Tensor]):
    out[...] = 2 * x


@workload
def rows_of_four(n: Any, x: Any, out: Any):
    x.expect(None, 4)
    for i in P(n):
        double[i](x[i, :4], out[i, :4])


def array(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def made(target: str, x: Any = None) -> Any:
    given = Tensor(data=array(3, 4) if x is None else x)
    out = Tensor(data=np.zeros((3, 4), np.float32))
    return rows_of_four(DenseDyn(3), given, out).compile(target=target), out.data


@pytest.mark.parametrize("wrong", [(3, 8), (3, 3), (0, 5)])
def test_at_execute(target: str, wrong: tuple[int, ...]) -> None:
    program, out = made(target)
    program.execute(x=array(2, 4), n=2)
    for _ in range(2):  # the second with values that were refused before
        with pytest.raises(ExecutionError) as caught:
            program.execute(x=array(*wrong), n=0)
        assert caught.value.code is Code.BINDING_EXTENT
        assert caught.value.message == (
            f"tensor 'x' has the extent {wrong[1]} in dimension 1, the workload is made for 4"
        )
        assert caught.value.loc is not None
        assert "program.execute(x=array(*wrong)" in caught.value.loc.render()
    program.execute(x=array(3, 4) + 1, n=3)
    assert (out == 2 * (array(3, 4) + 1)).all()


def test_where_it_is_traced(target: str) -> None:
    with pytest.raises(CompileError) as caught:
        made(target, array(3, 5))
    assert caught.value.code is Code.BINDING_EXTENT
    assert caught.value.message == "x has the extent 5 in dimension 1"
    with pytest.raises(CompileError, match="x has 3 dimensions"):
        made(target, array(3, 4, 1))


def test_a_plan_that_was_saved(target: str, tmp_path: Any) -> None:
    program, _ = made(target)
    program.plan.save(tmp_path / "rows.plan")
    again = Program.from_plan(tmp_path / "rows.plan", target=target, kernels={"double": double})
    out = np.zeros((3, 4), np.float32)
    with pytest.raises(ExecutionError, match="is made for 4"):
        again.execute(x=array(3, 8), out=out, n=3)
    again.execute(x=array(3, 4), out=out, n=3)
    assert (out == 2 * array(3, 4)).all()


def test_the_text_form(target: str) -> None:
    work = rows_of_four(DenseDyn(3), Tensor(data=array(3, 4)), Tensor(data=array(3, 4)))
    text = ir.to_text(work.traced().module)
    assert "tensor x: f32[:, :] fixed (none, 4)" in text
    assert ir.parse(text) == work.traced().module
    assert "x: f32[?, 4] bound" in work.compile(target=target).plan.disassemble()


def test_parts_of_a_program_that_agree_and_that_do_not(target: str) -> None:
    @workload
    def columns(n: Any, x: Any, out: Any):
        x.expect(3, None)
        for i in P(n):
            double(x[:, i], out[:, i])

    @workload
    def others(n: Any, x: Any):
        x.expect(None, 5)
        for i in P(n):
            double(x[i, :2], x[i, 2:4])

    x, one, two = (Tensor(data=array(3, 4), name=name) for name in ("x", "one", "two"))
    both = combine(rows_of_four(DenseDyn(3), x, one), columns(DenseDyn(3), x, two))
    assert "x: f32[:, :] fixed (3, 4)" in ir.to_text(both.traced().module)
    unshaped = Tensor(shape=(3, 5), dtype=DType.F32, name="x")
    with pytest.raises(CompileError, match="extents 4 and 5 in dimension 1"):
        combine(rows_of_four(DenseDyn(3), x, one), others(DenseDyn(3), unshaped)).compile(
            target=target
        )


def test_stages(target: str) -> None:
    @workload
    def write(n: Any, given: Any):
        for i in P(n):
            double(given[i, :2], given[i, 2:4])

    x = Tensor(data=array(3, 4))
    out = Tensor(data=np.zeros((3, 4), np.float32))
    stages = Graph("stages").stage("write", write(DenseDyn(3), x))
    graph = stages.stage("read", rows_of_four(DenseDyn(3), x, out))
    program = graph.depends("read.x", "write.given").compile(target=target)
    program.execute()
    with pytest.raises(ExecutionError, match="'given' has the extent 8 in dimension 1"):
        program.execute(given=array(3, 8))


def test_launches(target: str) -> None:
    out = np.zeros((3, 4), np.float32)
    launch(rows_of_four, target=target, n=3, x=array(3, 4), out=out)
    with pytest.raises(ExecutionError, match="is made for 4"):
        launch(rows_of_four, target=target, n=3, x=array(3, 8), out=out)


def test_pages(target: str) -> None:
    @kernel
    def total(x: In[PagedTensor], out: Out[Tensor]):
        out[0] = sum(x[t].sum() for t in range(x.shape[0]))

    @workload
    def totals(lens: Any, k: Any, out: Any):
        k.expect(None, None, 2, page=4)
        for b in P(out.shape[0]):
            total(k[b, : lens[b]], out[b : b + 1])

    table = Tensor(data=np.array([[0, 1]], np.int32), name="table")
    out = np.zeros(1, np.float32)

    def work(*shape: int) -> Any:
        k = PagedTensor(Tensor(data=array(*shape)), table)
        return totals(np.array([5]), k, Tensor(data=out)).compile(target=target)

    program = work(2, 4, 2).execute()
    assert out[0] == array(2, 4, 2).reshape(-1)[:10].sum()
    for wrong, dim in (((2, 8, 2), 1), ((2, 4, 3), 2)):
        with pytest.raises(CompileError, match=f"in dimension {dim}"):
            work(*wrong)
        with pytest.raises(ExecutionError, match=f"'k_pool' has the extent .* dimension {dim}"):
            program.execute(k_pool=array(*wrong))


def test_tensors_that_the_workload_makes(target: str) -> None:
    @workload
    def around(n: Any, width: Any, out: Any):
        x = Tensor.temp((3, width), DType.F32)
        for i in P(3):
            double[i](out[i], x[i, :4])
        rows_of_four(n, x, out)

    out = Tensor(data=array(3, 4))
    around(DenseDyn(3), 4, out).compile(target=target).execute()
    assert (out.data == 4 * array(3, 4)).all()
    with pytest.raises(CompileError, match="has the extent 6 in dimension 1"):
        around(DenseDyn(3), 6, out).compile(target=target)


def test_outside_a_workload(target: str) -> None:
    assert target
    with pytest.raises(CompileError) as caught:
        Tensor(data=array(3, 4)).expect(3, 4)
    assert caught.value.code is Code.OUTSIDE_WORKLOAD
