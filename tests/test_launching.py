"""`launch`: what counts as the same program, what is bound, and inputs that are refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pto_wsp import (
    CompileError,
    Dense,
    DenseDyn,
    DType,
    In,
    InOut,
    Out,
    P,
    PagedTensor,
    Ragged,
    Scalar,
    Space,
    Sparse,
    Tensor,
    Tiled,
    Token,
    axis,
    kernel,
    launch,
    minimum,
    workload,
)
from pto_wsp.error_codes import Code
from pto_wsp.launching import MAX_PROGRAMS


@kernel(cpp_src="for (int64_t i = 0; i < y.shape(0); ++i) y(i) += s;")
def add(y: InOut[Tensor], s: Scalar[DType.I64]): ...


@kernel(body="python")
def copy(x: In[Tensor], y: Out[Tensor]) -> None:
    y[...] = x


@kernel(body="python")
def in_turn(y: InOut[Tensor], turn: InOut[Token]) -> None:
    y[...] += 1


def rows() -> Any:
    @workload
    def work(n: Any, out: Any) -> None:
        for i in P(n):
            add[i](out[i : i + 1], 1)

    return work


def ragged() -> Any:
    @workload
    def work(rows: Any, lens: Any, out: Any) -> None:
        for b in P(rows):
            for t in P(lens):
                add[b, t](out[b, t : t + 1], 1)

    return work


def ragged_lengths() -> Any:
    @workload
    def work(n: Any, lens: Any, out: Any) -> None:
        for b in P(n):
            for t in P(lens[b]):
                add[b, t](out[b, t : t + 1], 1)

    return work


def sparse() -> Any:
    @workload
    def work(rows: Any, routing: Any, out: Any) -> None:
        for b in P(rows):
            for e in P.sel(routing[b]):
                add[b, e](out[b, e : e + 1], 1)

    return work


# --- the same program, or another one ---


@pytest.mark.parametrize("name", [None, "foo"])
def test_tensors_with_names_of_their_own(name: str | None) -> None:
    work, first, second = rows(), np.zeros(3), np.zeros(3)
    program = launch(work, n=DenseDyn(3), out=Tensor(data=first, name=name))
    assert launch(work, n=DenseDyn(2), out=Tensor(data=second, name=name)) is program
    assert (first.tolist(), second.tolist()) == ([1, 1, 1], [1, 1, 0])
    other = launch(work, n=DenseDyn(1), out=Tensor(data=second, name="bar"))
    assert second.tolist() == [2, 1, 0]
    assert other is not program


def test_tokens() -> None:
    @workload
    def work(n: Any, turn: Any, out: Any) -> None:
        for b in P(n):
            in_turn[b](out[b : b + 1], turn[0])

    out = np.zeros(3)
    program = launch(work, n=DenseDyn(3), turn=Token((1,)), out=out)
    assert launch(work, n=DenseDyn(3), turn=Token((1,)), out=out) is program
    assert launch(work, n=DenseDyn(3), turn=Token((2,)), out=out) is not program
    assert out.tolist() == [3, 3, 3]


@pytest.mark.parametrize("outer", [DenseDyn, lambda n: Dense[n]()])
def test_ragged_axes(outer: Any) -> None:
    work, programs = ragged(), list[Any]()
    for dtype in (np.int64, np.int32, np.int64, np.int32):
        out, n = np.zeros((2, 4)), outer(2)
        lens = Ragged(n, np.array([1, 3], dtype))
        programs.append(launch(work, rows=n, lens=lens, out=out))
        assert out.sum() == 4
    assert programs[0] is programs[2]
    assert programs[1] is programs[3]
    assert programs[0] is not programs[1]
    out, n = np.zeros((2, 4)), outer(2)
    launch(work, rows=n, lens=Ragged(n, Tensor(data=np.array([2, 0]))), out=out)
    assert out.sum() == 2


def test_an_outer_axis_has_to_be_an_input_each_time() -> None:
    work, n, out = ragged(), DenseDyn(2), np.zeros((2, 4))
    launch(work, rows=n, lens=Ragged(n, [1, 2]), out=out)
    with pytest.raises(CompileError, match="outer axis of Ragged"):
        launch(work, rows=n, lens=Ragged(DenseDyn(2), [1, 2]), out=out)


def test_sparse_axes() -> None:
    work, found = sparse(), list[Any]()
    arrays: list[Callable[[list[int]], Any]] = [
        list,
        lambda x: np.array(x, np.int32),
        lambda x: Tensor(data=np.array(x)),
        list,
    ]
    for make in arrays:
        n, out = DenseDyn(2), np.zeros((2, 4))
        routing = Sparse(n, make([0, 2, 3]), make([0, 1, 3]))
        found.append(launch(work, rows=n, routing=routing, out=out))
        assert out.tolist() == [[1, 1, 0, 0], [0, 0, 0, 1]]
    assert len(set(map(id, found))) == 3
    assert found[0] is found[3]


def test_tiled_axes() -> None:
    @workload
    def work(n: Any, out: Any) -> None:
        for i in P(n):
            add[i](out[i.slice], 1 + i)

    out = np.zeros(12)
    program = launch(work, n=Tiled(DenseDyn(10), 4), out=out)
    assert out.tolist() == [1] * 4 + [2] * 4 + [3, 3, 0, 0]
    assert launch(work, n=Tiled(DenseDyn(5), 4), out=out) is program
    assert out.tolist() == [2] * 4 + [4] + [2] * 3 + [3, 3, 0, 0]
    assert launch(work, n=Tiled(DenseDyn(5), 5), out=out) is not program
    assert launch(work, n=Tiled(DenseDyn(5), 4, pad_last=True), out=out) is not program


def test_tiles_of_an_axis_and_of_a_size_that_are_inputs() -> None:
    @workload
    def work(n: Any, size: Any, tiles: Any, out: Any) -> None:
        for i in P(tiles):
            add[i](out[i.slice], 1 + i)

    for n, size in ((5, 2), (4, 3)):
        out, whole, of = np.zeros(6), DenseDyn(n), DenseDyn(size)
        launch(work, n=whole, size=of, tiles=Tiled(whole, of), out=out)
        assert out.tolist() == [1 + i // size if i < n else 0 for i in range(6)]


def test_paged_tensors() -> None:
    @workload
    def work(n: Any, K: Any, out: Any) -> None:
        for b in P(n):
            copy[b](K[b, 0], out[b])

    programs: list[Any] = []
    for value, names in ((1.0, False), (2.0, False), (3.0, True), (4.0, True)):
        pool, table = np.full((2, 4, 3), value), np.array([[0], [1]], np.int32)
        out = np.zeros((2, 3))
        K = PagedTensor(pool, table)
        if names:
            K = PagedTensor(Tensor(data=pool, name="Q"), Tensor(data=table, name="T"))
        programs.append(launch(work, n=DenseDyn(2), K=K, out=out))
        assert (out == value).all()
    assert programs[0] is programs[1]
    assert programs[2] is programs[3]


def test_a_closed_program_is_made_anew() -> None:
    work, out = rows(), np.zeros(3)
    with launch(work, n=DenseDyn(3), out=out) as program:
        assert not program.closed
    assert program.closed
    again = launch(work, n=DenseDyn(3), out=out)
    assert again is not program
    assert launch(work, n=DenseDyn(3), out=out) is again
    assert out.tolist() == [3, 3, 3]


def test_so_many_programs_are_kept() -> None:
    work, out = rows(), np.zeros(MAX_PROGRAMS + 1)
    first, second = (launch(work, n=Dense[n](), out=out) for n in (1, 2))
    for n in range(3, MAX_PROGRAMS + 1):
        launch(work, n=Dense[n](), out=out)
    assert launch(work, n=Dense[1](), out=out) is first
    launch(work, n=Dense[MAX_PROGRAMS + 1](), out=out)
    assert launch(work, n=Dense[1](), out=out) is first
    assert launch(work, n=Dense[2](), out=out) is not second


def test_launches_from_several_threads() -> None:
    """Everyone's values are their own, and one program is compiled."""
    work, outs = rows(), [np.zeros(50) for _ in range(6)]
    programs: list[Any] = []
    begin = threading.Barrier(len(outs))

    def go(out: npt.NDArray[Any]) -> None:
        begin.wait()
        programs.extend(launch(work, n=DenseDyn(50), out=out) for _ in range(10))

    threads = [threading.Thread(target=go, args=(out,)) for out in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(programs) == 60
    assert len(set(map(id, programs))) == 1
    assert all((out == 10).all() for out in outs)


# --- inputs ---


def control() -> Any:
    @workload
    def work(lens: Any, out: Any) -> None:
        for i in P(2):
            for j in P(lens[i]):
                add[i, j](out[i : i + 1], 1)

    return work


def test_lists_are_what_control_reads() -> None:
    work, out = control(), np.zeros(2)
    program = launch(work, lens=[1, 2], out=out)
    assert launch(work, lens=(np.int32(3), 4), out=out) is program
    assert launch(work, lens=np.array([1, 1]), out=out) is program
    assert out.tolist() == [5, 7]

    @workload
    def table(lens: Any, out: Any) -> None:
        for j in P(lens[1, 0]):
            add[j](out[0:1], 1)

    launch(table, lens=[[1, 2], [3, 4]], out=out)
    assert out.tolist() == [8, 7]


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("input lens is a list of float", {"lens": [0.5, 1.5]}),
    ("input lens is a list of float", {"lens": [1, 1.0]}),
    ("input lens is a list of str", {"lens": ["a"]}),
    ("input lens is a list of bool", {"lens": [True, False]}),
    ("input lens is a list of bool", {"lens": [1, True]}),
    ("input lens is a list of NoneType", {"lens": [None]}),
    ("input lens is a list of integers that do not fit 64 bits", {"lens": [1, 1 << 70]}),
    ("input lens is a list of integers that do not fit 64 bits", {"lens": [1, 1 << 63]}),
    ("input lens is a list of lists of float", {"lens": [[1, 0.5]]}),
    ("input lens holds lists of different lengths", {"lens": [[1], [2, 3]]}),
    ("input out is None", {"out": None}),
    ("input out is a Tensor without data", {"out": Tensor(shape=(2,), dtype=DType.F64)}),
]


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize(("what", "wrong"), WRONG, ids=[str(w) for _, w in WRONG])
def test_inputs_that_are_refused(what: str, wrong: dict[str, Any], second: bool) -> None:
    good: dict[str, Any] = {"lens": [1, 2], "out": np.zeros(2)}
    work = control()
    if second:
        launch(work, **good)
    with pytest.raises(CompileError) as caught:
        launch(work, **(good | wrong))
    assert caught.value.message == what
    assert caught.value.code is Code.WORKLOAD_ARGUMENT
    assert caught.value.why
    assert caught.value.fix
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_tensors_of_torch_are_read_by_control(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    work, out = ragged_lengths(), np.zeros((2, 4))
    lens = torch.tensor([3, 1], dtype=getattr(torch, dtype))
    program = launch(work, n=2, lens=lens, out=out)
    assert out.sum(axis=1).tolist() == [3, 1]
    same = launch(work, n=2, lens=np.array([0, 4], dtype), out=out)
    assert same is program
    assert out.sum(axis=1).tolist() == [3, 5]


def test_arrays_that_kernels_work_on() -> None:
    @workload
    def work(x: Any, y: Any) -> None:
        copy(x, y)

    with pytest.raises(CompileError, match="kernel copy: x is an array of integers") as caught:
        launch(work, x=np.arange(3), y=np.zeros(3, np.int64))
    assert "Tensor(data=x)" in (caught.value.fix or "")
    y = np.zeros(3, np.int64)
    launch(work, x=Tensor(data=np.arange(3)), y=Tensor(data=y))
    assert y.tolist() == [0, 1, 2]


def test_a_pool_without_its_table() -> None:
    @kernel(body="python")
    def use(k: In[PagedTensor], y: Out[Tensor]) -> None:
        y[...] = k[0]

    @workload
    def work(k: Any, y: Any) -> None:
        use(k[0, 0:2], y)

    with pytest.raises(
        CompileError, match="'k' of kernel 'use' is paged, 'k' is a tensor"
    ) as found:
        launch(work, k=np.zeros((2, 4)), y=np.zeros(()))
    assert (found.value.fix or "").startswith("pass PagedTensor(k, table)")


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"n": 2.0}, "P(...) over a floating-point number"),
        ({"first": 0.5}, "first, a floating-point number, in a scalar expression"),
        ({"out": 3}, "out is a number and is indexed"),
    ],
)
def test_numbers_where_others_are_wanted(wrong: dict[str, Any], what: str) -> None:
    @workload
    def work(n: Any, first: Any, out: Any) -> None:
        for i in P(n):
            add[i](out[i], minimum(i + 1, first))

    with pytest.raises(CompileError) as caught:
        launch(work, **{"n": 2, "first": 1, "out": np.zeros(3), **wrong})
    assert caught.value.message == what
    assert "SymFloat" not in str(caught.value)


@pytest.mark.parametrize("out", ["x", {}, object()])
def test_what_is_no_tensor(out: Any) -> None:
    with pytest.raises(CompileError, match="input out: Tensor") as caught:
        launch(control(), lens=[1, 2], out=out)
    assert caught.value.code is Code.MEMORY_NOT_SHARED


@pytest.mark.parametrize(
    "options", [3, "num_threads", ["num_threads"], {3: 1}, {"num_threads": [1]}, {"threads": 1}]
)
def test_options_that_make_no_sense(options: Any) -> None:
    with pytest.raises(CompileError) as caught:
        launch(control(), lens=[1, 2], out=np.zeros(2), options=options)
    assert caught.value.code is Code.TARGET_OPTION
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__


def test_options_that_are_equal_and_not_the_same() -> None:
    work, out = control(), np.zeros(2)
    launch(work, lens=[1, 2], out=out, options={"num_threads": 1})
    with pytest.raises(CompileError, match="num_threads=True"):
        launch(work, lens=[1, 2], out=out, options={"num_threads": True})


def test_targets_that_are_none() -> None:
    for target in (3, ["cpu_sim"], "nothing"):
        with pytest.raises(CompileError) as caught:
            launch(control(), lens=[1, 2], out=np.zeros(2), target=target)  # pyright: ignore[reportArgumentType]
        assert caught.value.code is Code.TARGET_OPTION


def test_inputs_with_the_names_of_parameters_of_launch() -> None:
    space = Space("s", i=axis(0, "target"))

    @space.generator
    def generate(s: Any, out: Any) -> None:
        for i in P(s.i):
            s.emit(add, out[i : i + 1], 1)

    with pytest.raises(CompileError, match="an input target") as caught:
        launch(space, out=np.zeros(3), target=3)  # pyright: ignore[reportArgumentType]
    assert caught.value.code is Code.SPACE


def test_a_launch_inside_a_workload() -> None:
    inner = rows()

    @workload
    def work(n: Any, out: Any) -> None:
        launch(inner, n=n, out=out)

    with pytest.raises(CompileError) as caught:
        launch(work, n=DenseDyn(1), out=np.zeros(1))
    assert caught.value.code is Code.INSIDE_WORKLOAD
