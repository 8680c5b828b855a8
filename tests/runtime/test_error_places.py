"""Where errors point: at the user's call that gave a value, or that led into a ready workload."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    CompileError,
    DenseDyn,
    DType,
    In,
    Out,
    P,
    PagedTensor,
    Program,
    Scalar,
    Space,
    Tensor,
    axis,
    kernel,
    kernels,
    launch,
    workload,
    workloads,
)
from pto_wsp.errors import ExecutionError, PtoError
from pto_wsp.plan import Plan, Section
from pto_wsp.workloads import LlamaShape, random_model

LINES = Path(__file__).read_text("utf-8").split("\n")


def marked(error: PtoError, mark: str) -> None:
    """The error points at the line of this file that ends with that mark."""
    assert error.loc is not None
    assert error.loc.file == __file__
    assert LINES[error.loc.line - 1].endswith(f"# {mark}"), str(error)


@kernel(cpp_src="out(0) = n;")
def put(out: Out[Tensor], n: Scalar[DType.I64]): ...


@kernel(cpp_src="y(0) = x(0);")
def copy(x: In[Tensor], y: Out[Tensor]): ...


@workload
def steps(rows: Any, lens: Any, out: Any) -> None:
    for i in P(rows):
        for j in P(lens[i]):
            put[i, j](out[i : i + 1], j)


def program(target: str) -> Program:
    out = Tensor(data=np.zeros(3))
    work = steps(DenseDyn(3), np.array([1, 2, 3]), out)  # declared
    return work.compile(target=target)


# --- values ---

BAD: list[tuple[str, dict[str, Any]]] = [
    ("PTO401", {"nothing": 3}),
    ("PTO403", {"rows": 1.5}),
    ("PTO403", {"out": np.zeros(3, np.float32)}),
    ("PTO404", {"out": np.zeros((3, 3))}),
    ("PTO405", {"rows": -1}),
    ("PTO405", {"lens": np.array([1, -2, 3])}),
    ("PTO406", {"lens": np.array([1, 2])}),
    ("PTO215", {"out": [1.0, 2.0, 3.0]}),
]
CALLS: list[Callable[..., object]] = [
    lambda p, **bad: p.execute(**bad),  # execute
    lambda p, **bad: p.execute_async(**bad),  # execute_async
    lambda p, **bad: p.descriptors(**bad),  # descriptors
    lambda p, **bad: p.num_tasks(**bad),  # num_tasks
    lambda p, **bad: p.instance().execute(**bad),  # instance
]
MARKS = ["execute", "execute_async", "descriptors", "num_tasks", "instance"]


@pytest.mark.parametrize("target", ["cpu_sim", "reference"])
@pytest.mark.parametrize(("call", "mark"), list(zip(CALLS, MARKS, strict=True)), ids=MARKS)
def test_the_call_that_gives_a_value_is_named(target: str, call: Any, mark: str) -> None:
    if target == "reference" and mark == "execute_async":
        pytest.skip("it looks at lengths while it runs, in a thread of its own")
    with program(target) as made:
        made.execute()
        for code, bad in BAD:
            with pytest.raises(ExecutionError) as caught:
                call(made, **bad)
            assert caught.value.code.value == code
            marked(caught.value, mark)
            assert code == "PTO401" or "declared at" in (caught.value.note or "")
        made.execute(lens=np.array([3, 2, 1]))


def test_a_later_launch_is_named() -> None:
    space = Space("s", i=axis(0, "n"))

    @space.generator
    def generate(s: Any, out: Any, lens: Any) -> None:
        for i in P(s.i):
            for j in P(lens[i]):
                s.emit(put, out[i : i + 1], j)

    launch(space, out=np.zeros(3), lens=np.array([1, 2, 3]), n=3)  # first launch
    with pytest.raises(ExecutionError) as caught:
        launch(space, out=np.zeros(3), lens=np.array([1, -2, 3]), n=3)  # later launch
    marked(caught.value, "later launch")
    first = next(n for n, line in enumerate(LINES, 1) if line.endswith("# first launch"))
    assert caught.value.note == f"declared at {__file__}:{first}:5"
    assert f"  note: {caught.value.note}\n  why: " in str(caught.value)


def test_run_task_is_named() -> None:
    with program("cpu_sim") as made:
        for wrong in ({"rows": 0, "i": 1}, {"rows": 0}, {"rows": 7, "j": 0}):
            with pytest.raises(ExecutionError) as caught:
                made.run_task("put", **wrong)  # run_task
            marked(caught.value, "run_task")
        with pytest.raises(ExecutionError) as caught:
            made.run_task("get", rows=0)  # no such kernel
        marked(caught.value, "no such kernel")


def test_what_has_no_value_is_named_where_it_is_needed() -> None:
    @workload
    def one(x: Any, y: Any) -> None:
        copy(x, y)

    empty = Tensor(shape=(1,), dtype=DType.F64)
    made = one(empty, empty).compile()
    with pytest.raises(ExecutionError) as caught:
        made.execute(x=np.zeros(1))  # y has no value
    marked(caught.value, "y has no value")


def test_errors_of_threads_keep_what_they_point_at() -> None:
    """A thread has no line of the user's on its stack."""
    raised: list[PtoError] = []

    def run() -> None:
        with program("reference") as made:
            made.execute(lens=np.array([1, -2, 3]))  # in a thread

    def kept() -> None:
        try:
            run()
        except PtoError as error:
            raised.append(error)

    thread = threading.Thread(target=kept)
    thread.start()
    thread.join()
    marked(raised[0], "in a thread")
    again = pickle.loads(pickle.dumps(raised[0]))
    assert str(again) == str(raised[0])


# --- ready workloads ---

HEADS, KV, DIM, PAGE = 4, 2, 32, 16


def decode(**wrong: Any) -> Any:
    """paged_decode of two sequences, with something wrong."""
    rng = np.random.default_rng(0)
    table = np.array([[3, 1], [0, 2]], np.int32)
    pools = (rng.standard_normal((4, PAGE, KV, DIM), np.float32) for _ in range(2))
    given = {
        "batch": DenseDyn(2),
        "lens": np.array([20, 32]),
        "blocks": Scalar(8),
        "q": Tensor(data=np.zeros((2, HEADS, DIM), np.float32)),
        "out": Tensor(data=np.zeros((2, HEADS, DIM), np.float32)),
    }
    given |= {
        name: PagedTensor(pool, table) for name, pool in zip("kv", pools, strict=True)
    } | wrong
    attend = workloads.paged_decode(HEADS, KV, DIM, PAGE)
    return attend(**given)  # paged_decode


def noted(error: PtoError, function: str, file: str) -> None:
    assert error.loc is not None
    assert error.loc.inside is not None
    assert error.loc.inside.function == f"pto_wsp.{function}"
    assert error.loc.inside.file == file
    assert f"\n  note: in pto_wsp.{function}, {file}:{error.loc.inside.line}\n" in str(error)


@pytest.mark.parametrize("target", ["cpu_sim", "reference"])
@pytest.mark.parametrize(
    ("code", "bad"),
    [
        ("PTO502", {"lens": np.array([20, 200])}),
        ("PTO509", {"k_table": np.array([[3, 1], [0, 900]], np.int32)}),
    ],
)
def test_values_that_no_ready_workload_can_take(target: str, code: str, bad: Any) -> None:
    with decode().compile(target=target) as made:
        with pytest.raises(ExecutionError) as caught:
            made.execute(**bad)  # wrong values
        assert caught.value.code.value == code
        marked(caught.value, "wrong values")
        noted(caught.value, "workloads.paged_decode", "attention.py")
        assert (caught.value.note or "").startswith(f"called at {__file__}:")


@pytest.mark.parametrize("target", ["cpu_sim", "reference"])
@pytest.mark.parametrize("shape", [(2, 2, DIM), (2, HEADS, 64), (2, HEADS, DIM // 2)])
def test_extents_that_no_ready_workload_can_take(target: str, shape: Any) -> None:
    with decode().compile(target=target) as made:
        with pytest.raises(ExecutionError) as caught:
            made.execute(q=np.zeros(shape, np.float32))  # wrong values
        assert caught.value.code.value == "PTO411"
        marked(caught.value, "wrong values")
    with pytest.raises(CompileError) as caught:
        decode(q=Tensor(data=np.zeros(shape, np.float32))).compile()
    assert caught.value.code.value == "PTO411"
    marked(caught.value, "paged_decode")
    noted(caught.value, "workloads.paged_decode", "attention.py")


@pytest.mark.parametrize("target", ["cpu_sim", "reference"])
def test_the_call_that_started_a_run_is_named(target: str) -> None:
    with decode().compile(target=target) as made:
        made.execute_async(lens=np.array([20, 30]))
        made.execute_async(lens=np.array([20, 200]))  # asynchronous
        made.execute_async(lens=np.array([1, 2]))
        with pytest.raises(ExecutionError) as caught:
            made.synchronize()
        assert caught.value.code.value == "PTO502"
        marked(caught.value, "asynchronous")
        noted(caught.value, "workloads.paged_decode", "attention.py")
        assert (caught.value.note or "").startswith(f"called at {__file__}:")
        made.execute(lens=np.array([1, 2]))
    with program("reference") as made:
        made.execute_async(lens=np.array([1, 2]))  # lengths
        with pytest.raises(ExecutionError) as caught:
            made.synchronize()
        marked(caught.value, "lengths")


def test_types_that_no_ready_workload_can_take() -> None:
    wrong = decode(q=Tensor(data=np.zeros((2, HEADS, DIM))))
    with pytest.raises(CompileError) as caught:
        wrong.compile()
    marked(caught.value, "paged_decode")
    noted(caught.value, "workloads.paged_decode", "attention.py")


def test_a_workload_of_the_users_that_calls_a_ready_one() -> None:
    @workload
    def mine(x: Any, router: Any, w1: Any, w3: Any, w2: Any, y: Any) -> None:
        workloads.moe_ffn(3, 2, 32, 48, depth=1 << 21)(x, router, w1, w3, w2, y)  # inside

    shapes = ((5, 32), (3, 32), (3, 48, 32), (3, 48, 32), (3, 32, 48), (5, 32))
    with pytest.raises(CompileError) as caught:
        mine(*(Tensor(data=np.ones(shape, np.float32)) for shape in shapes)).compile()
    marked(caught.value, "inside")
    noted(caught.value, "workloads.moe_ffn", "library/linear.py")


def test_parameters_of_ready_workloads_and_kernels() -> None:
    with pytest.raises(CompileError, match="ragged_prefill: rows is 0") as caught:
        workloads.ragged_prefill(4, 2, 64, rows=0)  # no rows
    marked(caught.value, "no rows")
    with pytest.raises(CompileError) as caught:
        kernels.linear(0, 4)  # linear
    marked(caught.value, "linear")
    noted(caught.value, "kernels.linear", "library/linear.py")


def test_a_model_is_named_by_its_call() -> None:
    shape = LlamaShape(d_model=32, heads=2, kv_heads=1, d_ff=32, head_dim=32, cols=32)
    model = random_model(shape, [3], layers=1, vocab=20, steps=2)
    made = model.workload().compile(target="reference")  # workload()
    bound = model.bindings()
    bound["lens"] = np.array([90])
    with pytest.raises(ExecutionError) as caught:
        made.execute(**bound)  # a long sequence
    marked(caught.value, "a long sequence")
    noted(caught.value, "workloads.llama_step", "llama.py")


def test_plans_know_both_places() -> None:
    """Without a path of this machine, and from bytes as well."""
    made = decode().compile()
    data = made.plan.to_bytes()
    read = Plan.from_bytes(data)
    assert read.disassemble() == made.plan.disassemble()
    loc = read.loc(Section.SITE, 0)
    assert loc is not None
    assert loc.inside is not None
    assert loc.file == Path(__file__).name or not Path(loc.file).is_absolute()
    assert LINES[loc.line - 1].endswith("# paged_decode")
    assert str(loc.inside).startswith("in pto_wsp.workloads.paged_decode, attention.py:")
    assert f"{loc.place} {loc.inside}" in read.disassemble()
    assert str(Path(workloads.__file__).parent.parent).encode() not in data


def test_tasks_of_ready_workloads_are_told_apart_by_its_lines(tmp_path: Path) -> None:
    shape = LlamaShape(d_model=32, heads=2, kv_heads=1, d_ff=32, head_dim=32, cols=32)
    model = random_model(shape, [3], layers=1, vocab=20, steps=2)
    made = model.workload().compile(target="reference")
    made.execute(**model.bindings())
    with pytest.raises(ExecutionError, match="'rmsnorm' is not called at line=1") as caught:
        made.run_task("rmsnorm", 0, 0, 0, line=1, path=tmp_path / "task.npz")
    lines = [int(part.rpartition("=")[2]) for part in (caught.value.fix or "").split(", ")]
    assert len(set(lines)) == 3
    with pytest.raises(ExecutionError, match="is a task of 2 calls") as caught:
        made.run_task("rmsnorm", 0, 0, 0, path=tmp_path / "task.npz")
    assert caught.value.fix == f"say which: line={lines[0]}, line={lines[1]}"
    with pytest.raises(ExecutionError, match="x is temporary") as caught:
        made.run_task("rmsnorm", 0, 0, line=lines[2], path=tmp_path / "task.npz")
    assert (caught.value.note or "").endswith(
        f"in pto_wsp.workloads.llama_step, llama.py:{lines[2]}"
    )
