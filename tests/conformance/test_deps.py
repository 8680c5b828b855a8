"""The dependence policies: what each one orders, and what stays safe under promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    Accum,
    CompileError,
    DenseDyn,
    Deps,
    DType,
    ExecutionError,
    In,
    InOut,
    Out,
    P,
    Scalar,
    Tensor,
    kernel,
    sequential,
    slot_load_u64,
    slot_u64,
    workload,
)
from pto_wsp.error_codes import Code
from tests.conformance.orders import BACKWARDS, compile_on, taken, waits

# Between reading and writing there is time for somebody else.
SLOW = "for (int k = 0; k < 20; ++k) std::this_thread::yield();\n"


@kernel(cpp_src="x[0] = x[0] * 3 + 1;")
def change(x: InOut[Tensor]): ...


@kernel(cpp_src=f"auto old = x[0]; {SLOW} x[0] = old + 1;", cpp_includes=["<thread>"])
def update(x: Accum[Tensor]): ...


@kernel(
    cpp_src=f"{SLOW} for (int64_t i = 0; i < t.shape(0); ++i) t[i] = s;", cpp_includes=["<thread>"]
)
def fill(t: Out[Tensor], s: Scalar[DType.I64]): ...


@kernel(cpp_src=f"{SLOW} for (int64_t i = 0; i < t.shape(0); ++i) y[0] += t[i];",
        cpp_includes=["<thread>"])  # fmt: skip
def fold(t: In[Tensor], y: InOut[Tensor]): ...


def integers(*shape: int) -> Tensor:
    return Tensor(data=np.zeros(shape, np.int64), name="X")


@workload
def plain(n: Any, X: Any):
    for i in P(n):
        change[i](X[0:1])


@workload
def in_steps(n: Any, X: Any):
    for i in P.seq(n):
        change[i](X[0:1])


@workload
def chained(n: Any, X: Any):
    for i in P(n):
        h = change[i](X[0:1])
        change[i](X[0:1], after=h)


def order_of(work: Any, deps: Deps) -> tuple[list[int], Any]:
    program = compile_on("cpu_sim", work, {**BACKWARDS, "deps": deps}, 1).execute()
    return taken(program), program


def test_explicit_infers_nothing() -> None:
    order, program = order_of(plain(DenseDyn(4), integers(1)), Deps.explicit())
    assert order == [3, 2, 1, 0]
    assert program.stats.edges == 0


@pytest.mark.parametrize("deps", [Deps.explicit(), Deps.hybrid()], ids=str)
def test_structure_counts_under_every_policy(deps: Deps) -> None:
    order, _ = order_of(in_steps(DenseDyn(4), integers(1)), deps)
    assert order == [0, 1, 2, 3]
    X = integers(1)
    both = sequential(plain(DenseDyn(2), X), plain(DenseDyn(2), X))
    assert {*order_of(both, deps)[0][:2]} == {0, 1}


def test_explicit_counts_after() -> None:
    order, program = order_of(chained(DenseDyn(3), integers(1)), Deps.explicit())
    assert order == [4, 5, 2, 3, 0, 1]
    assert all(waits(program.trace, second=k + 1, first=k) for k in (0, 2, 4))


def test_hybrid_infers_and_counts_after() -> None:
    assert order_of(chained(DenseDyn(3), integers(1)), Deps.hybrid())[0] == [0, 1, 2, 3, 4, 5]

    @workload
    def apart(n, X):
        for i in P(n):
            h = change[i](X[i : i + 1])
            with P.when(i > 0):
                change[i](X[8:9], after=h[i - 1])

    order, _ = order_of(apart(DenseDyn(3), integers(9)), Deps.hybrid())
    assert order.index(0) < order.index(2) < order.index(4)


@pytest.mark.parametrize("policy", ["infer_tensor_map_exact", "explicit"])
def test_explain_marks_promises(policy: str) -> None:
    work = plain(DenseDyn(4), integers(1))
    promised = work.task_graph(deps=getattr(Deps, policy)()).compile().explain()
    assert "trusted" in promised
    assert 'verify="full"' in promised
    assert "trusted" not in work.task_graph(deps=Deps.hybrid()).compile().explain()


def test_explicit_keeps_updates_apart() -> None:
    """No program can say the order of updates, so nobody promises it."""
    X = integers(2)

    @workload
    def work(n):
        for i in P(n):
            update[i](X[i % 2 : i % 2 + 1])

    compile_on("cpu_sim", work(DenseDyn(200)), {"deps": Deps.explicit()}, 4).execute()
    assert X.data.tolist() == [100, 100]


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("policy", ["explicit", "infer_tensor_map_exact"])
def test_temporaries_are_recycled_when_their_tasks_have_ended(policy: str, workers: int) -> None:
    y = Tensor(data=np.zeros(400, np.int64), name="y")

    @workload
    def work(n):
        for i in P(n):
            T = Tensor.temp((8,), DType.I64)
            h = fill[i](T, i)
            fold[i](T, y[i : i + 1], after=h)

    schedule = {"deps": getattr(Deps, policy)()}
    program = compile_on("cpu_sim", work(DenseDyn(400)), schedule, workers).execute()
    assert y.data.tolist() == [8 * i for i in range(400)]
    program.execute()
    assert y.data.tolist() == [16 * i for i in range(400)]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("policy", ["explicit", "infer_tensor_map_exact"])
def test_control_waits_for_what_it_reads(policy: str, workers: int) -> None:
    """The tasks write more than the one element that is read: no equal regions."""
    Z = Tensor(data=np.zeros((6, 4), np.int64), name="Z")
    seen = Tensor(data=np.zeros(6, np.int64), name="seen")

    @workload
    def work(n):
        for i in P(n):
            fill[i](Z[i], i + 5)
            slot_load_u64(0, Z[i, 2])
            fill[i](seen[i : i + 1], slot_u64(0))

    schedule = {"deps": getattr(Deps, policy)()}
    compile_on("cpu_sim", work(DenseDyn(6)), schedule, workers).execute()
    assert seen.data.tolist() == [5, 6, 7, 8, 9, 10]


# --- after= that names later tasks ---


@pytest.mark.parametrize("ahead", [1, 3])
def test_after_a_later_iteration_is_refused_when_traced(ahead: int) -> None:
    X = integers(8)

    @workload
    def work(n):
        for i in P(n):
            h = change[i](X[i : i + 1])
            change[i](X[i : i + 1], after=h[i + ahead])

    with pytest.raises(CompileError, match="later") as raised:
        work(DenseDyn(4)).compile()
    assert raised.value.code is Code.AFTER_LATER
    assert raised.value.loc is not None
    assert raised.value.loc.file.endswith("test_deps.py")


def test_after_an_inner_loop_that_has_ended_may_name_any_iteration() -> None:
    X = integers(8)

    @workload
    def work(n, m):
        for i in P(n):
            for j in P(m):
                h = change[i, j](X[j : j + 1])
            for j in P(m):
                change[i, j](X[j : j + 1], after=h[j + 1])
                change[i, j](X[j : j + 1], after=h[i - 1, j + 5])

    for target in ("cpu_sim", "reference"):
        work(DenseDyn(3), DenseDyn(4)).compile(target=target).execute()


def test_after_a_loop_one_of_its_tasks(target: str) -> None:
    X = integers(8)

    @workload
    def work(n):
        for i in P(n):
            h = change[i](X[i : i + 1])
        change(X[2:3], after=h[2])

    compile_on(target, work(DenseDyn(4)), {}, 2).execute()
    assert X.data.tolist() == [1, 1, 4, 1, 0, 0, 0, 0]


@workload
def told(n: Any, X: Any, order: Any):
    for i in P(n):
        h = change[i](X[i : i + 1])
        change[i](X[i : i + 1], after=h[order[i]])


@pytest.mark.parametrize("workers", [1, 2])
def test_after_a_later_task_is_refused_when_it_is_met(target: str, workers: int) -> None:
    orders = {"earlier": [0, 0, 1, 2], "none": [-1, 9, 4, -7], "later": [0, 1, 3, 2]}
    work = told(DenseDyn(4), integers(4), np.array(orders["earlier"]))
    program = compile_on(target, work, {}, workers).execute()
    program.execute(order=np.array(orders["none"]))
    with pytest.raises(ExecutionError, match=r"after= names change\[3\]") as raised:
        program.execute(order=np.array(orders["later"]))
    assert raised.value.code is Code.AFTER_LATER
    assert "change[2]" in str(raised.value)
    program.execute(order=np.array(orders["earlier"]))
