"""What may be bound to the names of a program, and what is said of what may not."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    Dense,
    DenseDyn,
    DType,
    ExecutionError,
    In,
    InOut,
    Out,
    P,
    PagedTensor,
    Program,
    Ragged,
    Tensor,
    kernel,
    workload,
)
from pto_wsp.backends import registry


@kernel
def update(x: In[Tensor], y: InOut[Tensor]):
    y[...] = y * 3 + x


@workload
def ragged(n, lens, X, Y):
    for i in P(n):
        for j in P.seq(lens[i]):
            update[i, j](x=X[j], y=Y[i])


@pytest.fixture(params=registry.host_names())
def target(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def program(target: str) -> Program:
    rows = DenseDyn(3)
    tensors = {"X": Tensor(data=np.arange(8)), "Y": Tensor(data=np.zeros(3, np.int64))}
    return ragged(rows, Ragged(rows, [1, 2, 3]), **tensors).compile(target=target)  # declared here


def expected(lengths: list[int], x: np.ndarray) -> list[int]:
    y = [0] * len(lengths)
    for i, length in enumerate(lengths):
        for j in range(length):
            y[i] = y[i] * 3 + int(x[j])
    return y


def test_bindings_are_shown_and_kept(program: Program) -> None:
    assert sorted(program.bindings) == ["X", "Y", "lens", "n"]
    assert program.bindings["n"] == 3
    y = np.zeros(2, np.int64)
    program.execute(n=2, lens=[4, 5], Y=y)
    assert y.tolist() == expected([4, 5], np.arange(8))
    assert program.bindings["n"] == 2
    assert program.bindings["Y"] is y
    assert np.asarray(program.bindings["lens"]).tolist() == [4, 5]
    y[:] = 0
    program.execute()
    assert y.tolist() == expected([4, 5], np.arange(8))
    program.bindings["n"] = 9  # a copy
    assert program.bindings["n"] == 2


def test_rebinding_everything(program: Program) -> None:
    for lengths in ([1, 2, 3], [0, 0, 0], [5], [], [2, 2, 2, 2]):
        x, y = np.arange(8) * 2 + 1, np.zeros(len(lengths), np.int64)
        program.execute(n=len(lengths), lens=np.array(lengths, np.int64), X=x, Y=y)
        assert y.tolist() == expected(lengths, x)
        assert program.stats.tasks == sum(lengths) == program.num_tasks()


def test_numbers_of_other_types(program: Program) -> None:
    class Index:
        def __index__(self) -> int:
            return 2

    for n in (2, np.int8(2), np.uint64(2), Index()):
        assert program.execute(n=n, lens=(1, 1)).stats.tasks == 2


def test_views_of_any_strides(program: Program) -> None:
    memory = np.zeros(24, np.int64)
    for y in (memory[::2][:3], memory[::-1][:3], memory.reshape(4, 6).T[0:3, 1], memory[5:8]):
        memory[:] = 0
        program.execute(Y=y, X=np.arange(16).reshape(2, 8).T[:, 0])
        assert y.tolist() == expected([1, 2, 3], np.arange(8))
        assert memory.sum() == y.sum()


def test_lengths_of_any_strides(program: Program) -> None:
    rows = np.array([3, 9, 2, 9, 1, 9])
    y = np.zeros(3, np.int64)
    program.execute(lens=rows[::2], Y=y)
    assert y.tolist() == expected([3, 2, 1], np.arange(8))
    y[:] = 0
    program.execute(lens=rows[4::-2], Y=y)
    assert y.tolist() == expected([1, 2, 3], np.arange(8))


def test_lengths_are_read_where_they_lie(program: Program) -> None:
    lengths = np.array([1, 1, 1])
    assert program.execute(lens=lengths).stats.tasks == 3
    lengths[:] = 2
    assert program.execute().stats.tasks == 6


BIG = 1 << 70
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown name": ({"Z": 1}, "this program has no name 'Z' to bind"),
    "extent is no integer": ({"n": 2.0}, "'n' must be bound to an integer, not float"),
    "extent is a bool": ({"n": True}, "'n' must be bound to an integer, not bool"),
    "extent is text": ({"n": "2"}, "'n' must be bound to an integer, not str"),
    "extent is None": ({"n": None}, "'n' must be bound to an integer, not NoneType"),
    "negative extent": ({"n": -1}, "'n' is -1, legal are 0 to 9223372036854775807"),
    "huge extent": ({"n": BIG}, f"'n' is {BIG}, legal are 0 to 9223372036854775807"),
    "tensor dtype": ({"X": np.zeros(8)}, "'X' must be bound to dtype int64, not float64"),
    "byte order": ({"X": np.zeros(8, ">i8")}, "'X' must be bound to dtype int64, not >i8"),
    "tensor rank": ({"X": np.zeros((8, 1), int)}, "'X' must be bound to 1 dimensions, not 2"),
    "tensor is a list": (
        {"X": [1, 2]},
        "'X' must be bound to an array that can be used in place, not list",
    ),
    "tensor is None": (
        {"X": None},
        "'X' must be bound to an array that can be used in place, not NoneType",
    ),
    "tensor without data": (
        {"X": Tensor(shape=(8,), dtype=DType.I64)},
        "'X' must be bound to an array that can be used in place, not a Tensor without data",
    ),
    "odd strides": (
        {"X": np.ndarray((8,), np.int64, bytearray(128), 0, (9,))},
        "'X' must be bound to an array that can be used in place, "
        "not numpy.ndarray with a stride of 9 bytes",
    ),
    "lengths dtype": ({"lens": np.ones(3)}, "'lens' must be bound to dtype int64, not float64"),
    "lengths rank": ({"lens": np.ones((3, 1), int)}, "'lens' must be bound to 1 dimensions, not 2"),
    "too few lengths": (
        {"lens": [1, 2]},
        "array 'lens' has 2 lengths, but axis 'n' has 3 iterations",
    ),
    "too many lengths": ({"n": 2}, "array 'lens' has 3 lengths, but axis 'n' has 2 iterations"),
    "output is read-only": (
        {"Y": np.broadcast_to(np.int64(1), 3)},
        "tensor 'Y' is read-only, but tasks write it",
    ),
    "tensor too small": (
        {"X": np.arange(2)},
        "elements 2 to 2 of dimension 0 of tensor 'X' are outside its extent 2 in update[2, 2]",
    ),
}
RUN_TIME = {"too few lengths", "too many lengths", "tensor too small"}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_bound(program: Program, name: str) -> None:
    bindings, message = WRONG[name]
    before = program.bindings
    with pytest.raises(ExecutionError) as raised:
        program.execute(**bindings)
    assert raised.value.message == message
    if name == "unknown name":
        assert raised.value.why == "it binds n, lens, X, Y"
        assert raised.value.fix is not None
        assert "cannot be rebound" in raised.value.fix
        assert "did you mean" not in raised.value.fix
    else:
        assert raised.value.loc is not None
        assert raised.value.loc.file == __file__
    if name in RUN_TIME and program.target == "reference":
        program.execute(**{key: before[key] for key in bindings})  # found while it ran
    assert program.bindings.keys() == before.keys()
    program.bindings["Y"][:] = 0
    program.execute(Y=np.zeros(3, np.int64), X=np.arange(8))
    assert program.stats.tasks == 6


@pytest.mark.parametrize("name", [n for n in WRONG if n not in RUN_TIME])
def test_a_refused_value_is_forgotten(program: Program, name: str) -> None:
    before = program.bindings
    for call in (program.execute, program.execute_async, program.task_hash, program.num_tasks):
        with pytest.raises(ExecutionError):
            call(**WRONG[name][0])
    for key, value in program.bindings.items():
        assert value is before[key]
    assert program.execute().stats.tasks == 6


def test_negative_lengths(program: Program) -> None:
    with pytest.raises(ExecutionError, match=re.escape("holds -2, legal are 0 to")) as raised:
        program.execute(lens=[1, -2, 1])
    assert raised.value.loc is not None


def test_counting_does_not_rebind(program: Program) -> None:
    assert program.num_tasks(n=2, lens=[5, 5]) == 10
    assert program.task_hash(n=1, lens=[1]) != program.task_hash()
    assert program.execute().stats.tasks == 6


def test_nothing_is_bound(target: str) -> None:
    @workload
    def work(n, Y):
        for i in P(n):
            update[i](x=Y[i], y=Y[i])

    program = work(DenseDyn(2), Tensor(shape=(4,), dtype=DType.F64)).compile(target=target)
    with pytest.raises(ExecutionError) as raised:
        program.execute()
    assert raised.value.message == "nothing is bound to 'Y'"
    assert raised.value.fix == "pass it to execute(Y=...)"
    y = np.ones(4)
    program.execute(Y=y)
    assert y.tolist() == [4, 4, 1, 1]


def test_what_is_fixed_cannot_be_rebound(target: str) -> None:
    @workload
    def work(n, size, Y):
        for i in P(n):
            update[i](x=Y[size * i], y=Y[size * i])

    program = work(Dense[2](), 3, Tensor(data=np.ones(8))).compile(target=target)
    for name in ("n", "size"):
        with pytest.raises(ExecutionError) as raised:
            program.execute(**{name: 1})
        assert raised.value.message == f"this program has no name {name!r} to bind"
        assert raised.value.why == "it binds Y"


def test_other_names_for_what_can_be_bound(program: Program) -> None:
    for name in ("len", "length", "lenz"):
        with pytest.raises(ExecutionError) as raised:
            program.execute(**{name: [1, 1, 1]})
        assert (raised.value.fix or "").startswith("did you mean 'lens'? ")


def test_paged_tensors_are_bound_by_their_parts(target: str) -> None:
    @kernel
    def use(k: In[PagedTensor], y: Out[Tensor]):
        y[...] = k[0]

    @workload
    def work(K: Any, Y: Any):
        use(K[0, 0:2], Y)

    K = PagedTensor(np.ones((2, 4)), np.array([[1, 0]], np.int32))
    program = work(K, Tensor(data=np.zeros(()))).compile(target=target)
    with pytest.raises(ExecutionError) as raised:
        program.execute(K=np.ones((2, 4)))
    assert raised.value.fix == "it is bound by its parts: K_pool=..., K_table=..."


def test_copies_of_another_dtype(program: Program) -> None:
    copy = "pass a converted copy, array.astype('int64')"
    for name, fix in (("lens", copy), ("X", copy), ("Y", f"{copy}, and look there for results")):
        with pytest.raises(ExecutionError) as raised:
            program.execute(**{name: np.zeros(3)})
        assert raised.value.fix == fix
    torch = pytest.importorskip("torch")
    with pytest.raises(ExecutionError) as raised:
        program.execute(X=torch.zeros(8))
    assert raised.value.fix == "pass a converted copy, tensor.to(torch.int64)"


def test_captured_tensors_are_bound_by_their_variable(target: str) -> None:
    data = Tensor(data=np.ones(2))
    named = Tensor(data=np.ones(2), name="weights")

    @workload
    def work(n):
        for i in P(n):
            update[i](x=named[i], y=data[i])

    program = work(DenseDyn(2)).compile(target=target)
    assert set(program.bindings) == {"n", "data", "weights"}
    y = np.zeros(2)
    program.execute(data=y, weights=np.array([5.0, 6.0]))
    assert y.tolist() == [5, 6]


def test_a_region_out_of_range_names_kernel_indices_and_line(program: Program) -> None:
    with pytest.raises(ExecutionError) as raised:
        program.execute(lens=[1, 9, 3])
    error = raised.value
    assert error.message == (
        "elements 8 to 8 of dimension 0 of tensor 'X' are outside its extent 8 in update[1, 8]"
    )
    assert error.loc is not None
    assert error.loc.file == __file__
    with open(__file__, encoding="utf-8") as file:
        assert "update[i, j](x=X[j], y=Y[i])" in file.readlines()[error.loc.line - 1]
    assert "update[i, j](x=X[j], y=Y[i])" in str(error)


def test_control_never_reads_what_tasks_write(target: str) -> None:
    base = np.ones(8, np.int64)

    @workload
    def work(n, lens, Y):
        for i in P(n):
            for j in P(lens[i]):
                update[i, j](x=Y[0], y=Y[0])

    rows = DenseDyn(4)
    program = work(rows, Ragged(rows, [1] * 4), Tensor(data=base.copy())).compile(target=target)
    message = "array 'lens' shares memory with tensor 'Y', which tasks write"
    for y, lens in (
        (base, base[:4]),
        (base[3:5], base[:4]),
        (base[::-1], base[4:]),
        (base[:2], base[3::-1]),
    ):
        with pytest.raises(ExecutionError, match=message):
            program.execute(Y=y, lens=lens)
    for y, lens in ((base[4:], base[:4]), (base[4:], base[3::-1]), (base[1:4][::-1], base[4:])):
        base[:] = 1
        program.execute(Y=y, lens=lens)
