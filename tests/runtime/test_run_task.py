"""One task alone: the right one, on copies, with its regions in a file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    DenseDyn,
    DType,
    ExecutionError,
    In,
    InOut,
    KernelError,
    Out,
    P,
    PagedTensor,
    Ragged,
    Scalar,
    Sparse,
    Tensor,
    Token,
    kernel,
    slot_set_u64,
    slot_u64,
    workload,
    workloads,
)
from pto_wsp.backends import registry


@pytest.fixture(params=registry.host_names(), autouse=True)
def target(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: Any) -> str:
    monkeypatch.chdir(tmp_path)
    return request.param


@kernel(cpp_src="out[0] = up[0] + left[0] + s;")
def cell(up: In[Tensor], left: In[Tensor], out: Out[Tensor], s: Scalar[DType.F64] = 1.0): ...


@kernel
def shift(x: InOut[Tensor]):
    x[1:] = x[:-1].copy()


def wave(X: Tensor) -> Any:
    @workload
    def work(rows: Any, cols: Any) -> None:
        for i, j in P(rows, cols):
            cell[i, j](X[i, j + 1], X[i + 1, j], X[i + 1, j + 1])

    return work(DenseDyn(4), DenseDyn(5))


def test_a_task_is_run_on_copies(target: str) -> None:
    X = Tensor(data=np.arange(30.0).reshape(5, 6), name="X")
    assert X.data is not None
    program = wave(X).compile(target=target)
    before = X.data.copy()
    task = program.run_task("cell", rows=3, cols=1)
    assert np.array_equal(X.data, before)
    assert (task.kernel, task.indices) == ("cell", (3, 1))
    assert task.loc is not None
    assert "cell[i, j](X[i, j + 1]" in Path(__file__).read_text().split("\n")[task.loc.line - 1]
    assert task.path == Path("cell-3-1.npz")
    expected = {
        "s": 1.0,
        "up_before": X.data[3, 2],
        "left_before": X.data[4, 1],
        "out_before": X.data[4, 2],
        "out_after": X.data[3, 2] + X.data[4, 1] + 1,
    }
    saved = np.load(task.path)
    assert set(saved) == set(task.arrays) == set(expected)
    for name, value in expected.items():
        assert saved[name] == task.arrays[name] == value
    assert "cell[3, 1]" in str(task)
    assert "out_after: float64[]" in str(task)


def test_indices_by_position_and_other_files(target: str, tmp_path: Path) -> None:
    X = Tensor(data=np.arange(30.0).reshape(5, 6), name="X")
    program = wave(X).compile(target=target)
    task = program.run_task("cell", 0, 4, path=tmp_path / "mine.npz")
    assert task.indices == (0, 4)
    assert (tmp_path / "mine.npz").exists()
    with program.instance() as other:
        assert other.run_task("cell", 0, cols=4).indices == (0, 4)
    other = np.ones((5, 6))
    program.execute(X=other)  # what is bound last counts
    assert program.run_task("cell", 0, 0).arrays["up_before"] == other[0, 1]


def test_regions_that_overlap_stay_so(target: str) -> None:
    Y = Tensor(data=np.arange(8.0), name="Y")

    @kernel
    def smear(a: In[Tensor], b: InOut[Tensor]):
        b[:] = a + 1

    @workload
    def work(rows: Any) -> None:
        for i in P(rows):
            smear[i](Y[i : i + 3], Y[i + 1 : i + 4])
            shift[i](Y[i : i + 4])

    program = work(DenseDyn(3)).compile(target=target)
    arrays = program.run_task("smear", 1).arrays
    assert arrays["b_after"].tolist() == [2.0, 3.0, 4.0]
    assert program.run_task("shift", 2).arrays["x_after"].tolist() == [2.0, 2.0, 3.0, 4.0]


def test_control_on_the_way(target: str) -> None:
    Y = Tensor(data=np.zeros(8), name="Y")

    @kernel
    def put(y: Out[Tensor], s: Scalar[DType.I64]):
        y[:] = s

    @kernel
    def give(y: Out[Tensor], s: Scalar[DType.I64]):
        y[:] = s

    @workload
    def work(rows: Any, lens: Any, routing: Any) -> None:
        slot_set_u64(0, 5)
        for b in P(rows):
            slot_set_u64(1, b * 10)
            for t in P(lens):
                with P.when(t > 0):
                    put[b, t](Y[t : t + 1], slot_u64(0) + slot_u64(1) + t)
            for i in P(2):
                slot_set_u64(0, slot_u64(0) + i)
            for e in P.sel(routing[b]):
                give[b, e](Y[e : e + 1], slot_u64(0))

    rows = DenseDyn(3)
    routing = Sparse(rows, [0, 1, 1, 3], [4, 7, 2])
    program = work(rows, Ragged(rows, [2, 0, 3]), routing).compile(target=target)
    assert program.run_task("put", rows=2, lens=2).arrays["s"] == 5 + 20 + 2
    # The loop over two sets slot 0: once for each row up to this one, here only for this one.
    assert program.run_task("give", rows=2, routing=1).arrays["s"] == 6
    with pytest.raises(ExecutionError, match=r"there is no task put\[0, 0\]") as caught:
        program.run_task("put", 0, 0)
    assert caught.value.why == "a condition around it does not hold for these indices"
    with pytest.raises(ExecutionError, match="axis 'lens' has the indices 0 to 1, not 5"):
        program.run_task("put", 0, 5)


def test_a_kernel_that_fails_leaves_what_it_was_given(target: str) -> None:
    Y = Tensor(data=np.array([3.0, 4.0]), name="Y")

    @kernel(cpp_src='if (y[0] > 3) ptowsp_fail("too much");')
    def guard(y: InOut[Tensor]): ...

    @workload
    def work(rows: Any) -> None:
        for i in P(rows):
            guard[i](Y[i : i + 1])

    program = work(DenseDyn(2)).compile(target=target)
    program.run_task("guard", 0)
    with pytest.raises(KernelError) as caught:
        program.run_task("guard", 1)
    assert caught.value.message == "kernel guard[1] failed: too much"
    assert caught.value.why == "what it was given is in guard-1.npz"
    assert np.load("guard-1.npz")["y_before"].tolist() == [4.0]


def test_pages_and_tokens(target: str) -> None:
    pool = np.arange(64.0).reshape(8, 4, 2)
    table = np.array([[7, 2, 5]], np.int32)
    K = PagedTensor(pool, table)
    G = Token((2,))

    @kernel(cpp_src="for (int64_t i = 0; i < k.shape(0); ++i) k(i, 1) += k(i, 0);")
    def mix(k: InOut[PagedTensor], g: InOut[Token]): ...

    @kernel
    def python_mix(k: InOut[PagedTensor]):
        k[:, 1] += k[:, 0]

    @workload
    def work(rows: Any) -> None:
        for b in P(rows):
            mix[b](K[b, 2:9], G[b])
            python_mix[b](K[b, 2:9])

    program = work(DenseDyn(1)).compile(target=target)
    logical = np.concatenate([pool[7], pool[2], pool[5]])[2:9]
    for name in ("mix", "python_mix"):
        arrays = program.run_task(name, 0).arrays
        assert set(arrays) == {"k_before", "k_after"}
        assert np.array_equal(arrays["k_before"], logical)
        assert np.array_equal(arrays["k_after"][:, 1], logical.sum(axis=1))
    assert np.array_equal(pool, np.arange(64.0).reshape(8, 4, 2))


def test_what_cannot_be_run_alone(target: str) -> None:
    Y = Tensor(data=np.zeros(4), name="Y")

    @kernel
    def put(y: Out[Tensor]):
        y[:] = 7

    @workload
    def work(rows: Any) -> None:
        for i in P(rows):
            T = Tensor.temp((2,), DType.F64)
            put[i](T)
            shift[i](T)
        put(Y[0:2])

    program = work(DenseDyn(3)).compile(target=target)
    with pytest.raises(ExecutionError, match="x is temporary 'tmp', which holds nothing between"):
        program.run_task("shift", 1)
    with pytest.raises(ExecutionError, match="no task of this program runs a kernel 'get'"):
        program.run_task("get")
    with pytest.raises(ExecutionError, match=r"shift stands in the loops \(rows\), not in 'cols'"):
        program.run_task("shift", cols=1)
    with pytest.raises(ExecutionError, match=r"shift stands in the loops \(rows\)"):
        program.run_task("shift")


def choices(error: ExecutionError) -> list[dict[str, int]]:
    """What the error says that can be typed."""
    assert error.fix is not None
    return [{key: int(n)} for key, n in re.findall(r"(line|site)=(\d+)", error.fix)]


def test_one_of_several_calls(target: str) -> None:
    Y = Tensor(data=np.zeros(4), name="Y")

    @kernel
    def put(y: Out[Tensor], s: Scalar[DType.F64]):
        y[:] = s

    @workload
    def work(rows: Any) -> None:
        for i in P(rows):
            with P.when(i < 2):
                put[i](Y[i : i + 1], 1.0)
            put[i](Y[i : i + 1], 2.0)
        for k in range(2):
            put(Y[k : k + 1], 3.0 + k)

    program = work(DenseDyn(3)).compile(target=target)
    assert program.run_task("put", rows=2).arrays["y_after"].tolist() == [2.0]
    with pytest.raises(ExecutionError, match=r"put\[1\] is a task of 2 calls") as caught:
        program.run_task("put", 1)
    found = [program.run_task("put", 1, **each).arrays["s"] for each in choices(caught.value)]
    assert found == [1.0, 2.0]
    # Two calls of one line: the number of the call tells them apart.
    with pytest.raises(ExecutionError, match=r"put\[\] is a task of 2 calls") as caught:
        program.run_task("put")
    found = [program.run_task("put", **each).arrays["s"] for each in choices(caught.value)]
    assert found == [3.0, 4.0]
    with pytest.raises(ExecutionError, match="'put' is not called at line=1") as caught:
        program.run_task("put", 1, line=1)
    assert len(choices(caught.value)) == 4
    with pytest.raises(ExecutionError, match="axis 'rows' has the indices 0 to 2, not 9"):
        program.run_task("put", 9)


def test_tasks_of_a_ready_workload_with_tiers(target: str) -> None:
    table = np.array([[0, 1], [2, 3]], np.int32)
    pool = PagedTensor(np.ones((4, 16, 2, 32), np.float32), table)
    q, out = (Tensor(data=np.ones((2, 4, 32), np.float32)) for _ in range(2))
    decode = workloads.paged_decode(4, 2, 32, 16)
    work = decode(DenseDyn(2), [20, 30], Scalar(4), q, pool, pool, out)
    program = work.compile(target=target)
    (name,) = {program.plan.kernel_names[k] for k in program.descriptors()["kernel"]}
    for kernel_name in ("flash_attention", name):
        task = program.run_task(kernel_name, batch=1, kv=0)
        assert (task.kernel, task.indices) == (name, (1, 0))
        assert task.arrays["k_before"].shape[0] == 30
