"""Rows of sparse axes: activated(), chunks() and what stands for them in the IR."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    CompileError,
    Dense,
    DenseDyn,
    DType,
    In,
    InOut,
    P,
    Ragged,
    Scalar,
    ScheduleError,
    Sequential,
    Sparse,
    Tensor,
    TracePolicy,
    kernel,
    workload,
)
from tests.frontend.conftest import Refused
from tests.frontend.test_control import body_of

X = Tensor(data=np.zeros(8, np.float32))
COLUMNS = np.array([4, 5, 6], np.int32)


@kernel(body="python")
def touch(which: In[Tensor], x: InOut[Tensor]):
    x += which


@kernel(body="python")
def put(x: InOut[Tensor], s: Scalar[DType.I64]):
    x += s


def in_groups(experts: Any, routing: Any) -> None:
    for expert, tokens in routing.activated():
        put[expert](X[expert : expert + 1], tokens.size)
        for group in tokens.chunks(2):
            touch[expert, group](group.indices, X[group.slice])


def test_arrays_that_are_bound() -> None:
    experts = DenseDyn(2)
    routing = Sparse(experts, [0, 1, 3], Tensor(data=COLUMNS))
    begin, end = "routing_indptr[expert]", "routing_indptr[expert + 1]"
    group = f"group * 2 + {begin}"
    part = f"[{group}:+min({end} - group * 2 - {begin}, 2)]"
    assert body_of(in_groups, experts, routing) == (
        "parallel expert in experts: dense_dyn 0:+experts {\n"
        f"  when {end} > {begin} {{\n"
        f"    put[expert](x = X[expert:+1], s = value {end} - {begin})\n"
        f"    parallel group in routing: expr 0:+({end} - {begin} + 1) // 2 {{\n"
        f"      touch[expert, group](which = routing_indices{part}, x = X{part})\n"
        "    }\n"
        "  }\n"
        "}"
    )


def test_temporaries_that_tasks_write() -> None:
    def w() -> None:
        begins = Tensor.temp((3,), DType.I32, name="begins")
        columns = Tensor.temp((4,), DType.I32, name="columns")
        in_groups(None, Sparse(Dense[2](), begins, columns))

    text = body_of(w)
    assert "parallel expert in expert: dense 0:+2 {\n" in text
    assert "  load begins = begins[expert]\n  load begins_2 = begins[expert + 1]\n" in text
    assert "  when slot(begins_2) > slot(begins) {\n" in text
    assert "parallel group in group: expr 0:+(slot(begins_2) - slot(begins) + 1) // 2 {" in text


def test_a_row_by_its_number() -> None:
    def w(experts: Any, routing: Any, size: Any) -> None:
        for group in routing[1].chunks(size):
            put[group](X[group.start : group.stop], group.size)
        for e, tokens in routing.activated():
            for t in P.sel(tokens):
                put[e, t](X[t], routing.pos)
            touch(tokens.indices, X[tokens.start : tokens.stop])

    experts = Dense[2]()
    text = body_of(w, experts, Sparse(experts, [0, 1, 3], Tensor(data=COLUMNS)), Scalar(2))
    count = "(size + routing_indptr[2] - routing_indptr[1] - 1) // size"
    assert f"parallel group in routing: expr 0:+{count} {{" in text
    assert "parallel e in experts: dense 0:+2 {" in text
    assert '"put.2"[e, slot(routing_indices)](x = X[slot(routing_indices)]' in text


def test_a_ragged_axis_of_the_same_rows() -> None:
    def w(experts: Any, routing: Any, lens: Any) -> None:
        for e, _ in routing.activated():
            for i in P(lens):
                put[e, i](X[i : i + 1], e)

    experts = DenseDyn(2)
    routing, lens = Sparse(experts, [0, 1, 3], [4, 5, 6]), Ragged(experts, [1, 2])
    assert "ragged(lens, e) 0:+lens[e]" in body_of(w, experts, routing, lens)


def test_schedules_name_the_loops() -> None:
    experts = DenseDyn(2)
    work = workload(in_groups)(experts, Sparse(experts, [0, 1, 3], Tensor(data=COLUMNS)))
    cost = TracePolicy.cycles(lambda t: 1 + 10 * t.experts + t.get("routing", 0))
    program = work.task_graph(trace=cost).compile(num_threads=1)
    program.execute()
    lasted = program.trace["end_ns"] - program.trace["start_ns"]
    assert sorted(lasted.tolist()) == [1, 1, 11, 11]
    with pytest.raises(ScheduleError):
        work.order(group=Sequential).compile()


def test_refused_rows(refused: Refused) -> None:
    experts = DenseDyn(2)
    routing = Sparse(experts, [0, 1, 3], [4, 5, 6])

    def not_sparse() -> None:
        def w(experts: Any) -> None:
            for _, _ in experts.activated():  #!
                pass

        workload(w)(experts).traced()

    refused(not_sparse, "activated() of axis experts")

    def no_tensor() -> None:
        def w(experts: Any, routing: Any) -> None:
            for e, tokens in routing.activated():
                touch[e](tokens.indices, X)  #!

        workload(w)(experts, routing).traced()

    refused(no_tensor, "routing_indices is an array that control reads")

    def not_passed() -> None:
        def w() -> None:
            for _, _ in routing.activated():  #!
                pass

        workload(w)().traced()

    refused(not_passed, "Sparse(DenseDyn(2), 3 indices) is not a parameter of the workload")

    def unused() -> None:
        def w(experts: Any, routing: Any) -> None:
            routing.activated()  #!

        workload(w)(experts, routing).traced()

    refused(unused, "routing.activated() is not used")

    def left() -> None:
        def w(experts: Any, routing: Any) -> None:
            for _, tokens in routing.activated():
                for _ in tokens.chunks(2):
                    break  #!
            put(X, 1)

        workload(w)(experts, routing).traced()

    refused(left, "a P loop is left before its end")


@pytest.mark.parametrize("size", [0, -1, True, 1.5, None])
def test_refused_sizes_of_chunks(refused: Refused, size: Any) -> None:
    def no_size() -> None:
        def w(experts: Any, routing: Any) -> None:
            for _, tokens in routing.activated():
                for _ in tokens.chunks(size):  #!
                    pass

        experts = Dense[1]()
        workload(w)(experts, Sparse(experts, [0, 1], [4])).traced()

    refused(no_size, f"chunks({size!r})")


def test_rows_outside_a_workload() -> None:
    routing = Sparse(Dense[1](), Tensor(data=np.zeros(2, np.int32)), Tensor(data=COLUMNS))
    with pytest.raises(CompileError, match="outside a workload"):
        routing.activated()
    with pytest.raises(CompileError, match="outside a workload"):
        routing[0]
