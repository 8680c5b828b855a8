"""The same programs give the same results on every target: each is compared with what a plain
Python program computes."""

from __future__ import annotations

import numpy as np
import pytest

from pto_wsp import (
    Dense,
    DenseDyn,
    DType,
    In,
    InOut,
    Out,
    P,
    Ragged,
    Tensor,
    combine,
    kernel,
    maximum,
    minimum,
    sequential,
    workload,
)
from tests.conformance.orders import BACKWARDS, SIDE_BY_SIDE, compile_on


@kernel
def update(x: In[Tensor], y: InOut[Tensor]):
    y[...] = y * 3 + x


@kernel
def copy(x: In[Tensor], y: Out[Tensor]):
    y[...] = x


@kernel
def total(x: In[Tensor], y: Out[Tensor]):
    y[...] = x.sum()


@kernel(
    cpp_src="""
    for (int64_t i = 0; i < y.shape(0); ++i)
        y(i) = static_cast<int64_t>(y(i)) * 3 + x(i % x.shape(0));
    """
)
def native_update(x: In[Tensor], y: InOut[Tensor]): ...


@pytest.fixture(params=["backwards", "side by side"])
def run(request: pytest.FixtureRequest, target: str):
    """Runs a workload once and returns the program."""
    schedule, workers = (BACKWARDS, 1) if request.param == "backwards" else (SIDE_BY_SIDE, 3)

    def execute(work, **bindings):
        return compile_on(target, work, schedule, workers).execute(**bindings)

    return execute


def test_dense(run) -> None:
    X = Tensor(data=np.arange(12).reshape(3, 4))
    Y = Tensor(data=np.ones((3, 4), np.int64))

    @workload
    def work(rows, cols):
        for i, j in P(rows, cols):
            update[i, j](x=X[i, j], y=Y[i, j])

    program = run(work(Dense[3](), DenseDyn(4)))
    assert (Y.data == 3 + np.arange(12).reshape(3, 4)).all()
    assert program.stats.tasks == 12
    assert sorted(map(tuple, program.trace["indices"].tolist())) == [
        (i, j) for i in range(3) for j in range(4)
    ]


def test_dense_dyn_with_another_extent(run) -> None:
    X, Y = Tensor(data=np.arange(6)), Tensor(data=np.zeros(6, np.int64))

    @workload
    def work(n):
        for i in P(n):
            copy[i](x=X[i : i + 1], y=Y[i : i + 1])

    assert run(work(DenseDyn(2)), n=5).stats.tasks == 5
    assert Y.data.tolist() == [0, 1, 2, 3, 4, 0]


def test_ragged(run) -> None:
    lengths = np.array([2, 0, 3], np.int32)
    X, Y = Tensor(data=np.arange(9).reshape(3, 3)), Tensor(data=np.ones(3, np.int64))

    @workload
    def work(rows, cols):
        for i in P(rows):
            for j in P(cols):
                update[i, j](x=X[i, j], y=Y[i])

    rows = DenseDyn(3)
    assert run(work(rows, Ragged(rows, lengths))).stats.tasks == 5
    expected = [1, 1, 1]
    for i, length in enumerate(lengths):
        for j in range(length):
            expected[i] = expected[i] * 3 + 3 * i + j
    assert Y.data.tolist() == expected


def test_extents_of_expressions_and_arrays(run) -> None:
    Y = Tensor(data=np.zeros((5, 5), np.int64))
    X = Tensor(data=np.ones(1, np.int64))

    @workload
    def work(n, limits):
        for i in P(n):
            for j in P(minimum(i + 1, limits[i])):
                for _ in P(maximum(2 - i, 0)):
                    update(x=X[0], y=Y[i, j])

    run(work(DenseDyn(5), [3, 1, 9, 2, 0]))
    # Two updates where i is 0, one where it is 1, none elsewhere.
    assert Y.data[0].tolist() == [4, 0, 0, 0, 0]
    assert Y.data[1].tolist() == [1, 0, 0, 0, 0]
    assert not Y.data[2:].any()


def test_zero_extent_generates_nothing(run) -> None:
    Y = Tensor(data=np.ones(2, np.int64))

    @workload
    def work(n):
        for i in P(n):
            update[i](x=Y[i], y=Y[i])

    program = run(work(DenseDyn(0)))
    assert (program.stats.tasks, program.num_tasks(), program.task_hash()) == (0, 0, (0, 0))
    assert len(program.trace) == 0


def test_seq_scan(run) -> None:
    Y = Tensor(data=np.arange(8))

    @workload
    def work(n):
        for i in P.seq(n):
            update[i](x=Y[i], y=Y[i + 1])

    run(work(DenseDyn(7)))
    expected = list(range(8))
    for i in range(7):
        expected[i + 1] = expected[i + 1] * 3 + expected[i]
    assert Y.data.tolist() == expected


def test_scan_without_seq_is_ordered_by_its_data(run) -> None:
    Y = Tensor(data=np.arange(8))

    @workload
    def work(n):
        for i in P(n):
            update[i](x=Y[i], y=Y[i + 1])

    run(work(DenseDyn(7)))
    expected = list(range(8))
    for i in range(7):
        expected[i + 1] = expected[i + 1] * 3 + expected[i]
    assert Y.data.tolist() == expected


def test_wavefront(run) -> None:
    n = 5
    X = Tensor(data=np.ones((n + 1, n + 1), np.int64))

    @kernel
    def cell(up: In[Tensor], left: In[Tensor], out: Out[Tensor]):
        out[...] = up + left

    @workload
    def wave(rows, cols):
        for i, j in P(rows, cols):
            cell[i, j](up=X[i, j + 1], left=X[i + 1, j], out=X[i + 1, j + 1])

    program = run(wave(DenseDyn(n), DenseDyn(n)))
    expected = np.ones((n + 1, n + 1), np.int64)
    for i in range(n):
        for j in range(n):
            expected[i + 1, j + 1] = expected[i, j + 1] + expected[i + 1, j]
    assert (X.data == expected).all()
    if program.target == "cpu_sim" and program.num_workers == 1:  # all generated before any ran
        assert program.stats.edges == 2 * n * (n - 1)


def test_shifted_stencil(run) -> None:
    """Both sweeps read neighbours, so the second overwrites what the first still reads."""
    A, B = Tensor(data=np.arange(10.0)), Tensor(data=np.zeros(10))

    @kernel
    def blur(x: In[Tensor], y: Out[Tensor]):
        y[...] = x[0] * 0.25 + x[1] * 0.5 + x[2] * 0.25

    @workload
    def work(times, n):
        for _ in P(times):
            for i in P(n):
                blur[i](x=A[i : i + 3], y=B[i + 1 : i + 2])
            for i in P(n):
                blur[i](x=B[i : i + 3], y=A[i + 1 : i + 2])

    run(work(DenseDyn(3), DenseDyn(8)))
    a, b = np.arange(10.0), np.zeros(10)
    for _ in range(3):
        b[1:9] = a[0:8] * 0.25 + a[1:9] * 0.5 + a[2:10] * 0.25
        a[1:9] = b[0:8] * 0.25 + b[1:9] * 0.5 + b[2:10] * 0.25
    assert (A.data == a).all()
    assert (B.data == b).all()


def test_strided_regions(run) -> None:
    X, Y = Tensor(data=np.arange(12)), Tensor(data=np.zeros(12, np.int64))

    @workload
    def work(phases):
        for k in P(phases):
            copy[k](x=X[k::3], y=Y[k::3])
        for k in P(2):
            update[k](x=X[6 * k : 6 * k + 6], y=Y[k::2])

    run(work(DenseDyn(3)))
    expected = np.arange(12)
    for k in range(2):
        expected[k::2] = expected[k::2] * 3 + np.arange(12)[6 * k : 6 * k + 6]
    assert (Y.data == expected).all()


def test_inout_chain(run) -> None:
    Y = Tensor(data=np.array([1]))
    X = Tensor(data=np.arange(20))

    @workload
    def work(n):
        for i in P(n):
            update[i](x=X[i], y=Y[0])

    run(work(DenseDyn(20)))
    expected = 1
    for i in range(20):
        expected = expected * 3 + i
    assert Y.data[0] == expected


def test_several_calls_in_a_body(run) -> None:
    X, Y = Tensor(data=np.arange(16).reshape(4, 4)), Tensor(data=np.zeros(4, np.int64))
    Z = Tensor(data=np.zeros(1, np.int64))

    @workload
    def work(n):
        for i in P(n):
            total[i](x=X[i], y=Y[i])
            update[i](x=Y[i], y=Z[0])
            total[i](x=Y, y=X[i, 0])

    run(work(DenseDyn(4)))
    x, y, z = np.arange(16).reshape(4, 4), np.zeros(4, np.int64), 0
    for i in range(4):
        y[i] = x[i].sum()
        z = z * 3 + y[i]
        x[i, 0] = y.sum()
    assert (X.data == x).all()
    assert Z.data[0] == z


def test_combine_and_sequential(run) -> None:
    X, Y = Tensor(data=np.arange(4)), Tensor(data=np.ones(4, np.int64))

    @workload
    def add(n):
        for i in P(n):
            update[i](x=X[i], y=Y[i])

    @workload
    def turn(m):
        for i in P(m):
            copy[i](x=Y[3 - i], y=X[i])

    run(sequential(add(DenseDyn(4)), combine(turn(DenseDyn(4)), add(DenseDyn(4)))))
    x, y = np.arange(4), np.ones(4, np.int64)
    y = y * 3 + x
    for i in range(4):
        x[i] = y[3 - i]
    y = y * 3 + x
    assert X.data.tolist() == x.tolist()
    assert Y.data.tolist() == y.tolist()


def test_python_and_native_kernels_in_one_program(run) -> None:
    X, Y = Tensor(data=np.arange(6)), Tensor(data=np.ones(6, np.int64))

    @workload
    def work(n):
        for i in P(n):
            update[i](x=X[i : i + 1], y=Y[0:6])
            native_update[i](x=Y[i : i + 1], y=X[::2])

    run(work(DenseDyn(6)))
    x, y = np.arange(6), np.ones(6, np.int64)
    for i in range(6):
        y[:] = y * 3 + x[i]
        x[::2] = x[::2] * 3 + y[i]
    assert X.data.tolist() == x.tolist()
    assert Y.data.tolist() == y.tolist()


def test_every_dtype(target: str) -> None:
    """Python and C++ kernels see the values of the arrays, and write them."""
    types = [dtype.numpy for dtype in DType]
    sources = [Tensor(data=np.array([1, 0, 1]).astype(t), name=f"X{t}") for t in types]
    middle = [Tensor(data=np.zeros(3).astype(t), name=f"Y{t}") for t in types]
    results = [Tensor(data=np.zeros(3).astype(t), name=f"Z{t}") for t in types]
    seen = []

    @kernel
    def look(x: In[Tensor], y: Out[Tensor]):
        seen.append((x.dtype, x.flags.writeable, y.dtype, y.flags.writeable))
        y[...] = x

    @kernel(cpp_src="for (int64_t i = 0; i < y.shape(0); ++i) y(i) = x(i);")
    def native_copy(x: In[Tensor], y: Out[Tensor]): ...

    @workload
    def work(n):
        for _ in P(n):
            for x, y, z in zip(sources, middle, results, strict=True):
                look(x=x, y=y)
                native_copy(x=y, y=z)

    program = compile_on(target, work(DenseDyn(1)), SIDE_BY_SIDE, 1).execute()
    assert seen == [(t, False, t, True) for t in types]
    assert program.stats.tasks == 2 * len(types)
    for x, z in zip(sources, results, strict=True):
        assert x.data.tobytes() == z.data.tobytes(), x.name


def test_ranks_from_nought_to_eight(target: str) -> None:
    """A region may drop any of the dimensions of its tensor."""
    data = np.arange(256).reshape((2,) * 8)
    X, Y = Tensor(data=data), Tensor(data=np.zeros((2,) * 8, np.int64))

    @workload
    def work(n):
        for i in P(n):
            copy(x=X[i], y=Y[i])
            update(x=X[..., i], y=Y[..., i])
            update(x=X[i, :, i, 0:2, i, ...], y=Y[i, :, i, 0:2, i, ...])
            update(x=X[i, i, i, i, i, i, i, i], y=Y[i, i, i, i, i, i, i, i])

    compile_on(target, work(DenseDyn(2)), SIDE_BY_SIDE, 2).execute()
    x, y = np.arange(256).reshape((2,) * 8), np.zeros((2,) * 8, np.int64)
    for i in range(2):
        y[i] = x[i]
        y[..., i] = y[..., i] * 3 + x[..., i]
        y[i, :, i, :, i] = y[i, :, i, :, i] * 3 + x[i, :, i, :, i]
        y[(i,) * 8] = y[(i,) * 8] * 3 + x[(i,) * 8]
    assert (Y.data == y).all()


def test_the_task_hash_is_the_same_everywhere(target: str) -> None:
    X, Y = Tensor(data=np.arange(9).reshape(3, 3)), Tensor(data=np.ones(3, np.int64))

    @workload
    def work(rows, cols):
        for i in P(rows):
            for j in P.seq(cols[i]):
                update[i, j](x=X[i, j::2], y=Y[i : i + 1])

    rows = DenseDyn(3)
    nest = work(rows, Ragged(rows, [3, 1, 2]))
    program = compile_on(target, nest, SIDE_BY_SIDE, 2)
    reference = nest.compile(target="reference")
    for lengths, tasks in (([3, 1, 2], 6), ([3, 2, 2], 7), ([0, 0, 0], 0)):
        assert program.task_hash(cols=lengths) == reference.task_hash(cols=lengths)
        assert program.num_tasks(cols=lengths) == tasks
    assert program.task_hash() != program.task_hash(cols=[3, 2, 1]) != (0, 0)
