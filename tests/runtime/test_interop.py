"""Arrays of other libraries: tasks read and write them where they lie, or they are refused."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from pto_wsp import (
    Accum,
    DenseDyn,
    DType,
    ExecutionError,
    In,
    InOut,
    Out,
    P,
    Program,
    Ragged,
    Tensor,
    kernel,
    workload,
)
from pto_wsp.backends import registry
from tests.runtime.libraries import LIBRARIES, Array, Capsule, Interface, OldCapsule

DTYPES: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


@kernel(cpp_src="for (int64_t j = 0; j < y.shape(0); ++j) y(j) = 2 * x(j) + 1;")
def affine_in_cpp(x: In[Tensor], y: Out[Tensor]): ...


@kernel
def affine_in_python(x: In[Tensor], y: Out[Tensor]):
    assert type(x) is type(y) is np.ndarray
    assert x.dtype == y.dtype
    y[...] = 2 * x + 1


@workload
def cpp(rows, X, Y):
    for i in P(rows):
        affine_in_cpp[i](X[i], Y[i])


@workload
def python(rows, X, Y):
    for i in P(rows):
        affine_in_python[i](X[i], Y[i])


def run(work: Any, target: str, way: str, x: Any, y: Any) -> Program:
    """Y = 2 * X + 1, row by row, with tensors that are bound when made or at execute."""
    one, two = Tensor(data=x), Tensor(data=y)
    rows = DenseDyn(len(one.data))
    if way == "data":
        return work(rows, one, two).compile(target=target).execute()
    shape = Tensor(shape=(1, 1), dtype=one.dtype), Tensor(shape=(1, 1), dtype=two.dtype)
    return work(rows, *shape).compile(target=target).execute(X=x, Y=y)


bodies = pytest.mark.parametrize("work", [cpp, python], ids=["cpp", "python"])
ways = pytest.mark.parametrize("way", ["data", "execute"])


@pytest.fixture(params=registry.host_names())
def target(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize(
    ("library", "dtype"),
    # NumPy exports bfloat16 neither through its interface nor through DLPack.
    [
        (library, dtype)
        for library in LIBRARIES
        for dtype in DTYPES
        if dtype != "bf16" or library not in ("interface", "dlpack")
    ],
)
@bodies
@ways
def test_tasks_write_to_the_object_itself(
    target: str, work: Any, way: str, library: str, dtype: str
) -> None:
    kit = LIBRARIES[library]()
    source = np.arange(12).reshape(4, 3).astype(DTYPES[dtype])
    x, y = kit.make(source), kit.make(np.zeros_like(source))
    program = run(work, target, way, x, y)
    assert np.array_equal(kit.read(y).astype(float), 2 * source.astype(float) + 1)
    program.execute(Y=x)  # the object is kept: nothing else was written
    assert np.array_equal(kit.read(x).astype(float), 2 * source.astype(float) + 1)


# --- what may be written ------------------------------------------------------------------------


@kernel(cpp_src="y() = x();")
def put(x: In[Tensor], y: Out[Tensor]): ...


@kernel(cpp_src="y() = 3 * y() + x();")
def update(x: In[Tensor], y: InOut[Tensor]): ...


@kernel(cpp_src="y() += x();")
def add(x: In[Tensor], y: Accum[Tensor]): ...


def writer(kind: Any) -> Any:
    @workload
    def work(n, X, Y):
        for i in P(n):
            kind[i](X[i], Y[i])

    return work


def read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("kind", [put, update, add], ids=["Out", "InOut", "Accum"])
@pytest.mark.parametrize("wrap", [np.asarray, Interface, Capsule, OldCapsule])
@ways
def test_what_is_read_only_is_only_read(target: str, wrap: Any, kind: Any, way: str) -> None:
    array = np.arange(4.0)
    locked = wrap(array if wrap is OldCapsule else read_only(array))  # old ones cannot say it
    y = np.zeros(4)
    work = writer(kind)
    program = work(DenseDyn(4), Tensor(data=locked), Tensor(data=y)).compile(target=target)
    assert program.execute().bindings["Y"] is y
    assert y.tolist() == [0, 1, 2, 3]
    if way == "data":
        program = work(DenseDyn(4), Tensor(data=y), Tensor(data=locked)).compile(target=target)
    with pytest.raises(ExecutionError) as raised:
        program.execute(**({} if way == "data" else {"Y": locked}))
    assert raised.value.message == "tensor 'Y' is read-only, but tasks write it"
    assert raised.value.loc is not None
    assert raised.value.loc.file == __file__
    assert array.tolist() == [0, 1, 2, 3]


# --- layouts ------------------------------------------------------------------------------------


def fields() -> Array:
    return np.zeros((4, 3), [("a", np.float32), ("b", np.float32)])["b"]


LAYOUTS: dict[str, Callable[[], Array]] = {
    "C order": lambda: np.zeros((4, 3), np.float32),
    "Fortran order": lambda: np.zeros((4, 3), np.float32, order="F"),
    "every second": lambda: np.zeros((8, 9), np.float32)[::2, ::3],
    "backwards": lambda: np.zeros((4, 3), np.float32)[::-1, ::-1],
    "transposed backwards": lambda: np.zeros((3, 8), np.float32).T[::-2],
    "one field of records": fields,
    "one column": lambda: np.zeros((4, 9), np.float32)[:, 5:6],
    "no columns": lambda: np.zeros((4, 0), np.float32),
    "no rows": lambda: np.zeros((0, 3), np.float32)[::-1],
    "subclass": lambda: np.zeros((4, 3), np.float32).view(Contrary),
}


class Contrary(np.ndarray[Any, Any]):
    """A subclass that indexes in a way of its own, as np.matrix does."""

    def __getitem__(self, key: Any) -> Any:
        raise AssertionError("tasks see the memory, not the class")


@pytest.mark.parametrize("name", LAYOUTS)
@bodies
def test_layouts(target: str, work: Any, name: str) -> None:
    out = LAYOUTS[name]()
    x = np.arange(out.size, dtype=np.float32).reshape(out.shape)
    run(work, target, "data", x, out)
    assert np.array_equal(np.asarray(out), 2 * x + 1)
    source, y = LAYOUTS[name](), np.zeros_like(x)
    np.asarray(source)[...] = x
    run(work, target, "execute", source, y)
    assert np.array_equal(y, 2 * x + 1)


@bodies
def test_broadcast_views_are_read(target: str, work: Any) -> None:
    y = np.zeros((4, 3), np.float32)
    run(work, target, "execute", np.broadcast_to(np.arange(3, dtype=np.float32), (4, 3)), y)
    assert y.tolist() == [[1, 3, 5]] * 4


@bodies
def test_elements_that_are_one_are_written_in_program_order(target: str, work: Any) -> None:
    """NumPy makes broadcast views read-only; whoever makes them writable gets the contract."""
    memory = np.zeros(3, np.float32)
    x = np.arange(30, dtype=np.float32).reshape(10, 3)
    run(work, target, "data", x, as_strided(memory, (10, 3), (0, 4)))
    assert np.array_equal(memory, 2 * x[-1] + 1)


@workload
def scalars(X, Y):
    put(X[...], Y[...])


@pytest.mark.parametrize("library", LIBRARIES)
def test_arrays_without_dimensions(target: str, library: str) -> None:
    kit = LIBRARIES[library]()
    x, y = kit.make(np.array(7.5)), kit.make(np.array(0.0))
    scalars(Tensor(data=x), Tensor(data=y)).compile(target=target).execute()
    assert kit.read(y).item() == 7.5


def test_numpy_matrix(target: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        matrix = np.matrix([[1.0, 2.0], [3.0, 4.0]])
        out = np.matrix(np.zeros((2, 2)))
    run(python, target, "data", matrix, out)
    assert out.tolist() == [[3, 5], [7, 9]]


def test_memory_mapped_files(target: str, tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    np.arange(12, dtype=np.float32).tofile(path)
    x = np.memmap(path, np.float32, "r", shape=(4, 3))
    y = np.memmap(tmp_path / "out", np.float32, "w+", shape=(4, 3))
    program = run(cpp, target, "data", x, y)
    y.flush()
    assert np.fromfile(tmp_path / "out", np.float32).tolist() == list(range(1, 25, 2))
    with pytest.raises(ExecutionError, match="tensor 'Y' is read-only"):
        program.execute(Y=x)


# --- torch --------------------------------------------------------------------------------------


@bodies
def test_torch_views(target: str, work: Any) -> None:
    torch = pytest.importorskip("torch")
    weights = torch.nn.Parameter(torch.arange(12.0).reshape(3, 4))
    memory = torch.zeros(8, 9)
    run(work, target, "execute", weights.detach().T, memory[::2, 1::3])
    assert torch.equal(memory[::2, 1::3], 2 * weights.detach().T + 1)
    assert torch.count_nonzero(memory) == 12
    y = torch.zeros(4, 3)
    run(work, target, "data", torch.tensor([1.0, 2.0, 3.0]).expand(4, 3), y)
    assert y.tolist() == [[3, 5, 7]] * 4
    empty = torch.zeros(0, 3)
    assert run(work, target, "data", empty, empty).stats.tasks == 0


@pytest.mark.parametrize("dtype", [d for d in DType if d not in (DType.F16, DType.BF16)])
def test_torch_dtypes(dtype: DType) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.tensor(np.array([0, 1, 1], dtype.numpy))
    shared = Tensor(data=tensor)
    assert shared.dtype == dtype
    assert shared.data.tolist() == tensor.tolist()


# --- control, lifetimes, aliases, instances -----------------------------------------------------


@workload
def rows_of_lengths(n, lens, X, Y):
    for i in P(n):
        for j in P.seq(lens[i]):
            update[i, j](X[j], Y[i])


@pytest.mark.parametrize("library", LIBRARIES)
def test_control_reads_arrays_of_other_libraries(target: str, library: str) -> None:
    kit = LIBRARIES[library]()
    n = DenseDyn(3)
    lengths, y = kit.make(np.array([2, 0, 1])), np.ones(3)
    work = rows_of_lengths(n, Ragged(n, lengths), Tensor(data=np.ones(4)), Tensor(data=y))
    program = work.compile(target=target).execute()
    assert y.tolist() == [13, 1, 4]
    assert program.execute(lens=kit.make(np.array([1, 1, 4]))).stats.tasks == 6
    with pytest.raises(ExecutionError, match="'lens' must be bound to an array that can be used"):
        program.execute(lens=np.frombuffer(bytearray(25), np.int64, offset=1))


def test_memory_is_kept_as_long_as_it_is_bound(target: str) -> None:
    x, y = np.ones((4, 3), np.float32), np.zeros((4, 3), np.float32)
    program = run(python, target, "data", x, y)
    out = np.zeros((4, 3), np.float32)
    alive = weakref.ref(out)
    program.execute_async(Y=Capsule(out))
    del out
    gc.collect()
    assert alive() is not None
    program.synchronize()
    assert np.asarray(program.bindings["Y"]).tolist() == [[3, 3, 3]] * 4
    program.execute(Y=y)
    program.execute()  # the run before is forgotten, too
    gc.collect()
    assert alive() is None


MEMORY = 24  # elements that the aliases below look at


@st.composite
def views(draw: st.DrawFn) -> tuple[int, int]:
    """First element and stride of a view of 5 elements; a stride of 0 is one element five times."""
    stride = draw(st.integers(-4, 4))
    low = max(0, -4 * stride)
    high = MEMORY - 1 - max(0, 4 * stride)
    return draw(st.integers(low, high)), stride


def look(memory: Array, view: tuple[int, int]) -> Array:
    start, stride = view
    return as_strided(memory[start:], (5,), (stride * memory.itemsize,))


@workload
def tangle(n, X, Y, Z):
    for i in P(n):
        update[i](X[i % 5], Y[3 * i % 5])
        update[i](Y[i % 5], X[2 * i % 5])
        narrow[i](Z[i % 5])


@kernel(cpp_src="z() = z() * 5 + 1;")
def narrow(z: InOut[Tensor]): ...


@given(x=views(), y=views(), z=views())
@settings(max_examples=60)
def test_tensors_that_share_bytes(x: Any, y: Any, z: Any) -> None:
    """Whatever looks at the same bytes, also as another dtype: as if the tasks ran in order."""
    results = []
    for target in registry.host_names():
        memory = np.arange(MEMORY, dtype=np.uint32)
        arrays = {"X": look(memory, x), "Y": look(memory, y), "Z": look(memory.view(np.uint16), z)}
        options = {"num_threads": 3} if target == "cpu_sim" else {}
        tensors = {name: Tensor(data=array) for name, array in arrays.items()}
        with tangle(DenseDyn(20), **tensors).compile(target=target, **options) as program:
            program.execute()
        results.append(memory.tolist())
    assert results == [results[0]] * len(results)
    memory = np.arange(MEMORY, dtype=np.uint32)
    a, b, c = look(memory, x), look(memory, y), look(memory.view(np.uint16), z)
    for i in range(20):
        b[3 * i % 5] = (3 * int(b[3 * i % 5]) + int(a[i % 5])) % 2**32
        a[2 * i % 5] = (3 * int(a[2 * i % 5]) + int(b[i % 5])) % 2**32
        c[i % 5] = (5 * int(c[i % 5]) + 1) % 2**16
    assert results[0] == memory.tolist()


@pytest.mark.parametrize("library", LIBRARIES)
def test_instances_in_flight_on_arrays_of_their_own(target: str, library: str) -> None:
    kit = LIBRARIES[library]()
    source = np.arange(600, dtype=np.float32).reshape(200, 3)
    first = run(python, target, "data", source, np.zeros_like(source))
    programs = [first, *(first.instance() for _ in range(3))]
    runs = [
        (kit.make(source + 100 * k), kit.make(np.zeros_like(source))) for k in range(len(programs))
    ]
    for _ in range(3):
        for program, (x, y) in zip(programs, runs, strict=True):
            program.execute_async(X=x, Y=y)
    for k, (program, (_, y)) in enumerate(zip(programs, runs, strict=True)):
        program.synchronize()
        assert np.array_equal(kit.read(y), 2 * (source + 100 * k) + 1)
        program.close()
