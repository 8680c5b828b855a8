"""One program bound again and again: every run is what a new program would do with its values."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pto_wsp import (
    DenseDyn,
    DType,
    ExecutionError,
    In,
    InOut,
    KernelError,
    Out,
    P,
    Program,
    Ragged,
    Scalar,
    Tensor,
    kernel,
    workload,
)
from pto_wsp.runtime.engine import QuickEngine
from tests.runtime.scripts import run_script

Array = npt.NDArray[Any]
ROWS, COLUMNS = 4, 5


@kernel(cpp_src="y() = y() * 3 + x() * 5 + w() * 7 + (uint64_t)s;")
def mix(x: In[Tensor], w: In[Tensor], y: InOut[Tensor], s: Scalar[DType.I64]): ...


@workload
def mixed(rows, lens, X, W, Y, s):
    for i in P(rows):
        for j in P(lens[i]):
            mix[i, j](x=X[i, j], w=W[j], y=Y[i, j], s=s)


@kernel(cpp_src='if (y() == 666) ptowsp_fail("no luck"); y() = y() + x();')
def add(x: In[Tensor], y: InOut[Tensor]): ...


@workload
def added(n, X, Y):
    for i in P(n):
        add[i](x=X[i], y=Y[i])


def make_mixed(target: str = "cpu_sim", **options: Any) -> Program:
    rows = DenseDyn(ROWS)
    shapes = {"X": (ROWS, COLUMNS), "W": (COLUMNS,), "Y": (ROWS, COLUMNS)}
    tensors = {name: Tensor(data=np.ones(shape, np.uint64)) for name, shape in shapes.items()}
    lens = Ragged(rows, np.array([5, 0, 3, 2]))
    return mixed(rows, lens, **tensors, s=Scalar(1)).compile(target=target, **options)


def make_added(n: int = 4, **options: Any) -> Program:
    tensors = {name: Tensor(data=np.ones(n, np.uint64)) for name in "XY"}
    return added(DenseDyn(n), **tensors).compile(**options)


# --- any sequence of bindings --------------------------------------------------------------------


def window(memory: Array, at: int, rows: int, columns: int, kind: str) -> Array:
    """A rows x columns view that begins somewhere in memory."""
    part = memory[at : at + 2 * rows * columns]
    match kind:
        case "plain":
            return part[: rows * columns].reshape(rows, columns)
        case "transposed":
            return part[: rows * columns].reshape(columns, rows).T
        case "every other":
            return part.reshape(rows, 2 * columns)[:, ::2]
        case "reversed":
            return part[: rows * columns].reshape(rows, columns)[::-1, ::-1]
        case _:
            return np.broadcast_to(part[:columns], (rows, columns))


# Many places and few kinds, so that often nothing but an address changes.
places = st.sampled_from([0, 10, 20, 60, 100, 140, 180])
kinds = st.sampled_from(["plain"] * 6 + ["transposed", "every other", "reversed", "broadcast"])
matrices = st.tuples(places, st.just(ROWS), st.sampled_from([COLUMNS] * 6 + [COLUMNS + 1]), kinds)
steps = st.fixed_dictionaries(
    {},
    optional={
        "X": matrices,
        "Y": matrices,
        "W": st.tuples(places, st.just(1), st.just(COLUMNS), kinds),
        "s": st.integers(-3, 3),
        "in place": st.tuples(st.integers(0, ROWS - 1), st.integers(0, COLUMNS + 1)),
        "lens": st.lists(st.integers(0, COLUMNS), min_size=3, max_size=4),
        "rows": st.sampled_from([ROWS, ROWS, 3]),
        "hash": st.booleans(),
    },
)


def values_of(step: dict[str, Any], memory: Array) -> dict[str, Any]:
    """A step as keyword arguments over some memory."""
    values = {k: v for k, v in step.items() if k not in ("X", "Y", "W", "in place", "lens")}
    for name in ("X", "Y"):
        if name in step:
            values[name] = window(memory, *step[name])
    if "W" in step:
        values["W"] = window(memory, *step["W"])[0]
    if "lens" in step:
        values["lens"] = np.array(step["lens"])
    return values


def outcome(program: Program, values: dict[str, Any]) -> str:
    try:
        program.execute(**values)
    except ExecutionError as error:
        return type(error).__name__
    return str(program.stats.tasks)


@settings(max_examples=60, deadline=None)
@given(st.lists(steps, min_size=2, max_size=6), st.sampled_from([1, 2, 4]))
def test_every_run_equals_the_reference(steps: list[dict[str, Any]], workers: int) -> None:
    """Shapes, strides, lengths in place, and who shares memory with whom: all may change."""
    memory = {target: np.arange(300, dtype=np.uint64) for target in ("cpu_sim", "reference")}
    with (
        make_mixed(num_threads=workers) as program,
        make_mixed(target="reference") as reference,
    ):
        for step in [{"X": (0, 4, 5, "plain"), "Y": (60, 4, 5, "plain")}, *steps]:
            found: list[str] = []
            for each in (reference, program):
                if "in place" in step:
                    place, length = step["in place"]
                    lens = each.bindings["lens"]
                    assert isinstance(lens, np.ndarray)
                    lens[place % len(lens)] = length
                found.append(outcome(each, values_of(step, memory[each.target])))
            assert found[0] == found[1]
            if found[0].endswith("Error"):
                return  # the reference finds out while it runs, and has changed something
            assert (memory["cpu_sim"] == memory["reference"]).all()


# --- arrays that change between runs --------------------------------------------------------------


def test_an_output_in_the_place_of_an_input_and_back() -> None:
    """What was independent becomes a chain, and the other way round."""
    memory = np.ones(64, np.uint64)
    with make_added(40, num_threads=2) as program:
        apart, shifted = np.ones(40, np.uint64), memory[1:41]
        for _ in range(3):
            program.execute(X=apart, Y=memory[:40])
            assert memory[:40].tolist() == [2] * 40
            memory[:] = 1
            program.execute(X=memory[:40], Y=shifted)  # y[i] += y[i - 1]
            assert shifted.tolist() == list(range(2, 42))
            memory[:] = 1
            program.execute(X=memory[:40], Y=memory[:40])
            assert memory[:40].tolist() == [2] * 40
            memory[:] = 1


def test_a_bound_array_reshaped_in_place() -> None:
    x = np.arange(12, dtype=np.uint64).reshape(4, 3)
    with make_mixed() as program:
        y = np.zeros((4, 3), np.uint64)
        program.execute(X=x, Y=y, W=np.zeros(3, np.uint64), lens=[3, 3, 3, 3], s=0)
        assert (y == x * 5).all()
        x.shape = 3, 4
        with pytest.raises(ExecutionError, match="outside its extent"):
            program.execute()
        x.shape = 12
        with pytest.raises(ExecutionError, match="'X' must be bound to 2 dimensions, not 1"):
            program.execute()


def test_a_bound_array_that_gets_other_memory() -> None:
    x = np.ones(4, np.uint64)
    with make_added() as program:
        y = np.zeros(4, np.uint64)
        program.execute(X=x, Y=y)
        x.resize(1 << 16, refcheck=False)
        x[:] = 7
        program.execute()
        assert y.tolist() == [8] * 4


def test_an_output_that_becomes_read_only() -> None:
    y = np.zeros(4, np.uint64)
    with make_added() as program:
        program.execute(Y=y)
        y.flags.writeable = False
        with pytest.raises(ExecutionError, match="tensor 'Y' is read-only, but tasks write it"):
            program.execute()
        assert y.tolist() == [1] * 4
        y.flags.writeable = True
        program.execute()
        assert y.tolist() == [2] * 4


def test_an_input_may_be_read_only() -> None:
    x, y = np.full(4, 5, np.uint64), np.zeros(4, np.uint64)
    x.flags.writeable = False
    with make_added() as program:
        program.execute(X=x, Y=y)
        program.execute(X=np.broadcast_to(np.uint64(1), 4))
    assert y.tolist() == [6] * 4


# --- what is looked at without Python -------------------------------------------------------------


class Sub(np.ndarray[Any, Any]):
    pass


FOUR = np.full(4, 5, np.uint64)
PLAIN: dict[str, dict[str, Any]] = {
    "nothing": {},
    "array": {"X": FOUR},
    "both": {"X": FOUR, "Y": np.ones(4, np.uint64)},
    "number": {"n": 3},
    "backwards": {"X": FOUR[::-1]},
    "every other": {"X": np.full(8, 5, np.uint64)[::2]},
    "broadcast": {"X": np.broadcast_to(np.uint64(5), 4)},
    "longer": {"X": np.full(100, 5, np.uint64)},
}
LEFT_TO_PYTHON: dict[str, dict[str, Any]] = {
    "tensor": {"X": Tensor(data=FOUR)},
    "numpy number": {"n": np.int64(3)},
    "hash": {"hash": True},
    "unknown name": {"Z": FOUR},
    "list": {"X": [5, 5, 5, 5]},
    "bytes": {"X": memoryview(FOUR)},
    "nothing at all": {"X": None},
    "dtype": {"X": FOUR.astype(np.int64)},
    "byte order": {"X": FOUR.astype(">u8")},
    "rank": {"X": FOUR.reshape(2, 2)},
    "subclass": {"X": FOUR.view(Sub)},
    "unaligned": {"X": np.frombuffer(bytearray(33), np.uint64, 4, 1)},
    "odd strides": {"X": np.ndarray((4,), np.uint64, bytearray(99), 0, (9,))},
    "bool": {"n": True},
    "negative": {"n": -1},
    "huge": {"n": 1 << 70},
    "text": {"n": "3"},
    "array for a number": {"n": FOUR},
    "number for an array": {"X": 3},
    "refused by the core": {"Y": np.broadcast_to(np.uint64(5), 4)},
}


def quick(program: Program, values: dict[str, Any]) -> Any:
    engine = program._engine
    assert isinstance(engine, QuickEngine)
    return engine.start_quick(program._binder.values, values, asynchronous=False)


@pytest.mark.parametrize("name", PLAIN)
def test_plain_values_need_no_python(name: str) -> None:
    with make_added() as program:
        run, values = quick(program, PLAIN[name])
        assert run.wait(None)
        names = list(program.bindings)
        for key, value in PLAIN[name].items():
            assert values[names.index(key)] is value
        assert run.stats().tasks == PLAIN[name].get("n", 4)


def test_bfloat16_needs_no_python() -> None:
    @kernel(cpp_src="y() = x();")
    def copy(x: In[Tensor], y: Out[Tensor]): ...

    @workload
    def work(n, X, Y):
        for i in P(n):
            copy[i](x=X[i], y=Y[i])

    zeros = np.zeros(3, ml_dtypes.bfloat16)
    with work(DenseDyn(3), Tensor(data=zeros), Tensor(data=zeros.copy())).compile() as program:
        x, y = np.array([1.5, 2, -3], ml_dtypes.bfloat16), np.zeros(6, ml_dtypes.bfloat16)
        assert quick(program, {"X": x, "Y": y[::2]}) is not None
        assert y.tolist() == [1.5, 0, 2, 0, -3, 0]
        assert quick(program, {"X": x.view(np.uint16)}) is None
        assert quick(program, {"X": x.astype(np.float16)}) is None


@pytest.mark.parametrize("name", LEFT_TO_PYTHON)
def test_anything_else_is_left_to_python(name: str) -> None:
    with make_added() as program:
        y = program.bindings["Y"]
        assert isinstance(y, np.ndarray)
        before = y.copy()
        assert quick(program, LEFT_TO_PYTHON[name]) is None
        assert (y == before).all()  # and nothing has run


def test_floats() -> None:
    @kernel(cpp_src="y() = s;")
    def put(y: Out[Tensor], s: Scalar[DType.F32]): ...

    @workload
    def work(s, Y):
        put(Y[0], s)

    y = np.zeros(1, np.float32)
    with work(Scalar(1.5), Tensor(data=y)).compile() as program:
        for value in (1.5, -2.25, 7, np.float32(3.5), 0.0):
            program.execute(s=value)
            assert y[0] == value
            assert program.bindings["s"] == value
        assert quick(program, {"s": 2.5}) is not None
        assert quick(program, {"s": 2}) is None


# --- what a run leaves behind ---------------------------------------------------------------------


def test_arrays_live_as_long_as_somebody_needs_them() -> None:
    gate = threading.Event()

    @kernel
    def wait(y: InOut[Tensor]):
        gate.wait()
        y += 1

    @workload
    def work(n, Y):
        for i in P(n):
            wait[i](y=Y[i])

    with work(DenseDyn(1), Tensor(data=np.zeros(1))).compile(num_threads=2) as program:
        first, second = np.zeros(1), np.zeros(1)
        lives = weakref.ref(first)
        program.execute_async(Y=first)
        program.execute_async(Y=second)
        del first
        gc.collect()
        assert lives() is not None
        gate.set()
        program.synchronize()
        assert second[0] == 1
        gc.collect()
        assert lives() is None


def test_a_run_in_flight_that_nobody_wants_any_more() -> None:
    with make_added(1 << 18, num_threads=2) as program:
        for _ in range(50):
            program.execute_async(X=np.ones(1 << 18, np.uint64), Y=np.ones(1 << 18, np.uint64))
            program._pending.clear()
        program.execute()


def test_stats_of_a_run_outlive_the_next_ones() -> None:
    with make_added(num_threads=2) as program:
        runs = [quick(program, {"n": n})[0] for n in (1, 2, 3, 4, 0)]
        assert [run.stats().tasks for run in runs] == [1, 2, 3, 4, 0]
        assert [sum(run.stats().worker_tasks) for run in runs] == [1, 2, 3, 4, 0]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failed_run_leaves_nothing(workers: int) -> None:
    with make_added(num_threads=workers) as program:
        for _ in range(3):
            y = np.ones(4, np.uint64)
            program.execute(Y=y)
            y[2] = 666
            with pytest.raises(KernelError, match="no luck"):
                program.execute()
            y[:] = 1
            program.execute()
            assert y.tolist() == [2] * 4


def test_hashes_of_runs_in_turn() -> None:
    with make_mixed(num_threads=2) as program, make_mixed(target="reference") as reference:
        wanted = reference.task_hash()
        for hashed in (False, True, False, True, True):
            x = np.ones((ROWS, COLUMNS), np.uint64)
            program.execute(X=x, Y=x.copy(), hash=hashed)
            assert program.task_hash() == wanted


def bound(program: Program, name: str) -> Array:
    value = program.bindings[name]
    assert isinstance(value, np.ndarray)
    return value


def in_threads(count: int, body: Callable[[int], None]) -> None:
    errors: list[BaseException] = []

    def guarded(i: int) -> None:
        try:
            body(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


@pytest.mark.parametrize("options", [{}, {"hash": True}], ids=["plain", "hashed"])
@pytest.mark.parametrize("target", ["cpu_sim", "reference"])
def test_values_of_a_run_that_fails_are_forgotten(target: str, options: Any) -> None:
    program = make_mixed(target)
    before = dict(program.bindings)
    with pytest.raises(ExecutionError, match="outside its extent"):
        program.execute(lens=np.array([5, 0, 3, 9]), **options)
    assert all(program.bindings[name] is value for name, value in before.items())
    program.execute()


def test_values_with_which_a_kernel_fails_are_forgotten() -> None:
    unlucky = np.full(4, 666, np.uint64)
    with make_added() as program:
        with pytest.raises(KernelError):
            program.execute(Y=unlucky)
        assert np.array_equal(bound(program.execute(), "Y"), [2] * 4)


def test_seeds_and_recordings_behind_plain_runs(tmp_path: Path) -> None:
    """Several workers generate iterations of plain runs, one those of the others."""

    @workload
    def twice(n: Any, X: Any, Y: Any):
        for i in P(n):
            add[i](x=X[i], y=Y[i])
            add[i](x=X[i], y=Y[i])

    tensors = {name: Tensor(data=np.ones(4, np.uint64)) for name in "XY"}
    with twice(DenseDyn(4), **tensors).compile(num_threads=2) as program:
        for k in range(5):
            program.execute()
            program.execute(seed=k)
            program.execute()
            program.record(tmp_path / "run.rec")
            program.execute()
            program.replay(tmp_path / "run.rec")
        assert np.array_equal(bound(program, "Y"), [1 + 5 * 6 * 2] * 4)


def test_threads_that_share_a_program() -> None:
    with make_added(64, num_threads=2) as program:

        def body(i: int) -> None:
            for k in range(100):
                x, y = np.full(64, i, np.uint64), np.full(64, k, np.uint64)
                program.execute(X=x, Y=y)
                assert y.tolist() == [i + k] * 64

        in_threads(4, body)


def test_a_run_for_which_there_is_no_memory(tmp_path: Path) -> None:
    """It is an error of that run; those behind it and after it go on."""
    script = """
    import pathlib, resource
    program = wide(DenseDyn(10**6), *[Tensor(data=np.ones(64, np.uint64)) for _ in range(2)])
    program = program.task_graph(window=TaskWindow(1 << 24)).compile(num_threads=2)
    used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 28), hard))
    for run in (program.execute, program.execute, lambda: program.execute_async().synchronize()):
        try:
            run()
        except ExecutionError as error:
            print(error.code.value, error.why)
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    print(program.execute(n=10).stats.tasks)
    """
    assert run_script(script, tmp_path) == "PTO508 std::bad_alloc\n" * 3 + "10\n"
