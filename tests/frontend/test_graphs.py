"""Graphs of stages: what dependences join, and what names are bound."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    CompileError,
    DenseDyn,
    DType,
    ExecutionError,
    Graph,
    In,
    InOut,
    Out,
    P,
    PagedTensor,
    Scalar,
    StartPolicy,
    Tensor,
    Token,
    TracePolicy,
    kernel,
    workload,
)
from pto_wsp.error_codes import Code


@kernel(cpp_src="for (int64_t i = 0; i < y.shape(0); ++i) y(i) = s;")
def put(y: Out[Tensor], s: Scalar[DType.I64]): ...


@kernel(cpp_src="for (int64_t i = 0; i < y.shape(0); ++i) y(i) = 2 * y(i) + 1;")
def change(y: InOut[Tensor]): ...


@kernel(cpp_src="for (int64_t i = 0; i < y.shape(0); ++i) y(i) = x(i);")
def copy(x: In[Tensor], y: Out[Tensor]): ...


@workload
def fill(n: Any, z: Any) -> None:
    for i in P(n):
        put[i](z[i : i + 1], 7 + i)


@workload
def adjust(n: Any, y: Any) -> None:
    for i in P(n):
        change[i](y[i : i + 1])


@workload
def result(n: Any, x: Any, out: Any) -> None:
    for i in P(n):
        copy[i](x[i : i + 1], out[i : i + 1])


def zeros(*shape: int, dtype: Any = np.float64) -> Tensor:
    return Tensor(data=np.zeros(shape or (3,), dtype))


def chain(out: Any) -> Graph:
    """a writes, b and c change it in place, d copies it."""
    n = DenseDyn(3)
    return (
        Graph("chain")
        .stage("a", fill(n, zeros()))
        .stage("b", adjust(n, zeros()))
        .stage("c", adjust(n, zeros()))
        .stage("d", result(n, zeros(), Tensor(data=out)))
    )


CHAIN = (("b.y", "a.z"), ("c.y", "b.y"), ("d.x", "c.y"))


@pytest.mark.parametrize("order", list(permutations(CHAIN)))
def test_dependences_may_be_given_in_any_order(order: tuple[tuple[str, str], ...]) -> None:
    out = np.zeros(3)
    graph = chain(out)
    for each in order:
        graph = graph.depends(*each)
    program = graph.compile(num_threads=2)
    assert sorted(program.bindings) == ["n", "out", "z"]
    z = np.zeros(3)
    program.execute(z=z)
    assert out.tolist() == z.tolist() == [31, 35, 39]


@pytest.mark.parametrize("order", list(permutations((0, 1, 2, 3))))
def test_a_diamond_is_one_tensor(order: tuple[int, ...]) -> None:
    out = np.zeros(3)
    graph = chain(out)
    edges = (("b.y", "a.z"), ("c.y", "a.z"), ("d.x", "b.y"), ("d.x", "c.y"))
    for number in order:
        graph = graph.depends(*edges[number])
    program = graph.compile(num_threads=2).execute()
    assert sorted(program.bindings) == ["n", "out", "z"]
    assert out.tolist() == [31, 35, 39]


def test_tasks_wait_along_a_chain() -> None:
    graph = chain(np.zeros(3))
    for each in reversed(CHAIN):
        graph = graph.depends(*each)
    held = {"trace": TracePolicy.timestamps(), "start": StartPolicy.after_orchestration()}
    program = graph.workload().task_graph(**held).compile(num_threads=2).execute()
    rows = {int(row["seq"]): row for row in program.trace}
    waits = {
        (int(rows[src]["site"]), int(rows[dst]["site"]))
        for src, dst in program.edges.tolist()
        if rows[src]["indices"][0] == rows[dst]["indices"][0]
    }
    assert len(program.edges) == 9
    assert waits == {(0, 1), (1, 2), (2, 3)}


def both_write(first: Tensor, second: Tensor, out: Any) -> Graph:
    """Two stages write what a third one reads."""
    n = DenseDyn(3)
    return (
        Graph("two writers")
        .stage("a", fill(DenseDyn(3), first))
        .stage("b", adjust(n, second))
        .stage("c", result(n, zeros(), Tensor(data=out)))
        .depends("c.x", "b.y")
        .depends("c.x", "a.z")
    )


def test_two_writers_of_one_reader_write_one_tensor() -> None:
    shared, out = np.zeros(3), np.zeros(3)
    empty = Tensor(shape=(3,), dtype=DType.F64)
    for given in (
        (Tensor(data=shared), Tensor(data=shared)),
        (empty, Tensor(data=shared)),
        (Tensor(data=shared), empty),
    ):
        shared[:] = out[:] = 0
        program = both_write(*given, out).compile(num_threads=2).execute()
        assert sorted(program.bindings) == ["n", "out", "z"]
        assert out.tolist() == shared.tolist() == [15, 17, 19]


def test_stages_of_other_extents_have_names_of_their_own() -> None:
    first, second = np.zeros(3), np.zeros(5)
    graph = (
        Graph("g")
        .stage("a", fill(DenseDyn(3), Tensor(data=first)))
        .stage("b", fill(DenseDyn(5), Tensor(data=second)))
    )
    program = graph.compile(num_threads=2).execute()
    assert first.tolist() == [7, 8, 9]
    assert second.tolist() == [7, 8, 9, 10, 11]
    assert sorted(program.bindings) == ["a.n", "a.z", "b.n", "b.z"]
    other = np.zeros(4)
    program.execute(**{"b.n": 2, "b.z": other, "a.n": 0})
    assert other.tolist() == [7, 8, 0, 0]
    assert "bound for one stage: a.n, a.z, b.n, b.z" in program.explain()
    with pytest.raises(ExecutionError, match="no name 'n' to bind") as caught:
        program.execute(n=3)
    assert "stages have it as 'a.n' or 'b.n': execute(**{'a.n': ...})" in str(caught.value)


def test_the_reference_binds_the_same_names() -> None:
    first, second = np.zeros(3), np.zeros(5)
    graph = (
        Graph("g")
        .stage("a", fill(DenseDyn(3), Tensor(data=first)))
        .stage("b", fill(DenseDyn(5), Tensor(data=second)))
    )
    program = graph.compile(target="reference")
    program.execute(**{"b.n": 4})
    assert second.tolist() == [7, 8, 9, 10, 0]
    assert program.task_hash() == graph.compile().task_hash(**{"b.n": 4})


def test_equal_names_that_were_given_equal_things_are_one_binding() -> None:
    shared, other, out = np.zeros(3), np.zeros(3), np.zeros(3)
    graph = (
        Graph("g")
        .stage("a", fill(DenseDyn(3), Tensor(data=shared)))
        .stage("b", adjust(DenseDyn(3), Tensor(data=shared, name="z")))
        .stage("c", fill(DenseDyn(2), Tensor(data=other)))
        .stage("d", result(DenseDyn(3), Tensor(data=shared, name="z"), Tensor(data=out)))
    )
    program = graph.compile(num_threads=2).execute()
    assert out.tolist() == [15, 17, 19]
    assert other.tolist() == [7, 8, 0]
    # What several stages have is called by the first of them.
    assert sorted(program.bindings) == ["a.n", "a.z", "c.n", "c.z", "out"]
    assert "a.n is bound for a.n, b.n, d.n" in program.explain()
    program.execute(**{"a.n": 1})
    assert program.stats.tasks == 3 + 2


def test_a_tensor_without_data_goes_with_the_only_one_that_has_some() -> None:
    empty = Tensor(shape=(3,), dtype=DType.F64)
    n = DenseDyn(3)
    graph = Graph("g").stage("a", fill(n, zeros())).stage("b", fill(n, empty))
    assert sorted(graph.compile().bindings) == ["n", "z"]
    unbound = graph.stage("c", fill(n, zeros())).compile()
    assert sorted(unbound.bindings) == ["a.z", "c.z", "n"]
    with pytest.raises(ExecutionError, match=r"nothing is bound to 'b\.z'"):
        unbound.execute()


def test_a_qualified_stage_has_names_of_its_own() -> None:
    """Whatever numbers stages begin with, the names stay the same."""
    for count in (2, 3):
        graph = (
            Graph("g")
            .stage("a", fill(DenseDyn(3), zeros()), qualified=True)
            .stage("b", adjust(DenseDyn(count), zeros()))
            .depends("b.y", "a.z")
        )
        assert sorted(graph.compile().bindings) == ["a.n", "a.z", "n"]


def test_arrays_axes_and_scalars_are_joined_as_well() -> None:
    @workload
    def steps(rows: Any, counts: Any, by: Any, out: Any) -> None:
        for i in P(rows):
            for _ in P(counts[i]):
                put(out[i : i + 1], by)

    @workload
    def others(n: Any, lens: Any, by: Any, out: Any) -> None:
        for i in P(n):
            with P.when(lens[i] > 0):
                put[i](out[i : i + 1], by)

    first, second = np.zeros(3), np.zeros(3)
    graph = (
        Graph("g")
        .stage("a", steps(DenseDyn(3), np.array([1, 0, 2]), Scalar(4), Tensor(data=first)))
        .stage("b", others(DenseDyn(3), np.array([9, 9, 9]), Scalar(5), Tensor(data=second)))
        .depends("b.lens", "a.counts")
        .depends("b.n", "a.rows")
    )
    program = graph.compile().execute()
    assert sorted(program.bindings) == ["a.by", "a.out", "b.by", "b.out", "counts", "rows"]
    assert first.tolist() == [4, 0, 4]
    assert second.tolist() == [5, 0, 5]
    program.execute(counts=np.array([0, 1]), rows=2, **{"a.by": 6})
    assert first.tolist() == [4, 6, 4]
    assert second.tolist() == [5, 5, 5]


def test_pages_of_two_stages() -> None:
    """Paged tensors of one name and different pools are apart; equal pools are one binding."""

    @workload
    def write(n: Any, k: Any) -> None:
        for i in P(n):
            put[i](k[i, 0], 3)

    pools = [np.zeros((4, 2, 1)) for _ in range(2)]
    table = np.array([[1], [0], [3]], np.int32)
    pages = [PagedTensor(pool, table) for pool in pools]
    n = DenseDyn(3)
    graph = Graph("g").stage("a", write(n, pages[0])).stage("b", write(n, pages[1]))
    program = graph.compile().execute()
    assert sorted(program.bindings) == ["a.k_pool", "b.k_pool", "k_table", "n"]
    assert [pool.sum() for pool in pools] == [9, 9]
    same = (
        Graph("g").stage("a", write(n, pages[0])).stage("b", write(n, PagedTensor(pools[0], table)))
    )
    assert sorted(same.compile().bindings) == ["k_pool", "k_table", "n"]


def test_tokens_of_shapes_that_stages_share() -> None:
    order = Token((3,))

    @kernel
    def touch(y: InOut[Tensor], turn: InOut[Token]):
        y += 1

    @workload
    def ticks(n: Any, y: Any) -> None:
        for i in P(n):
            touch[i](y[0:1], order[i])

    n, y = DenseDyn(3), zeros()
    graph = Graph("g").stage("a", ticks(n, y)).stage("b", ticks(n, y)).depends("b.order", "a.order")
    assert graph.compile().execute().stats.tasks == 6


def test_graphs_are_stages_of_graphs() -> None:
    out = np.zeros(3)
    inner = (
        Graph("inner")
        .stage("a", fill(DenseDyn(3), zeros()))
        .stage("b", fill(DenseDyn(2), zeros()))
        .workload()
    )
    graph = (
        Graph("outer")
        .stage("make", inner)
        .stage("use", result(DenseDyn(3), zeros(), Tensor(data=out)))
        .depends("use.x", "make.a.z")
    )
    program = graph.compile().execute()
    assert sorted(program.bindings) == ["a.n", "a.z", "b.n", "b.z", "n", "out"]
    assert out.tolist() == [7, 8, 9]


# --- what is refused ---


def _pair(second: Any, depends: tuple[str, str] = ("c.x", "a.z")) -> Graph:
    return Graph("g").stage("a", fill(DenseDyn(3), zeros())).stage("c", second).depends(*depends)


def _result(x: Any, n: Any = None) -> Any:
    return result(DenseDyn(3) if n is None else n, x, zeros())


@workload
def by_length(n: Any, lens: Any, out: Any) -> None:
    for i in P(n):
        for _ in P(lens[i]):
            change(out[i : i + 1])


REFUSED: list[tuple[str, str, Callable[[], Graph]]] = [
    (
        "c.x is tensor of f32, rank 1, a.z tensor of f64, rank 1",
        "stages c and a",
        lambda: _pair(_result(zeros(3, dtype=np.float32))),
    ),
    ("c.x is of shape (5,), a.z of shape (3,)", "c and a", lambda: _pair(_result(zeros(5)))),
    (
        "c.n is 4, a.n 3",
        "c and a",
        lambda: _pair(_result(zeros(), DenseDyn(4)), ("c.n", "a.n")),
    ),
    (
        "c.lens is array of i64, a.z tensor of f64, rank 1",
        "to stage c as a Tensor, for which control waits",
        lambda: _pair(by_length(DenseDyn(3), np.zeros(3, np.int64), zeros()), ("c.lens", "a.z")),
    ),
    (
        "a.z and b.y are one tensor by that, and stages a and b were given different memory",
        "give both the same array",
        lambda: both_write(zeros(), zeros(), np.zeros(3)),
    ),
    (
        "stage c has x, out, n",
        "use one of them",
        lambda: _pair(_result(zeros()), ("c.y", "a.z")),
    ),
]


@pytest.mark.parametrize(("why", "fix", "made"), REFUSED, ids=[why for why, _, _ in REFUSED])
def test_what_cannot_be_one(why: str, fix: str, made: Callable[[], Graph]) -> None:
    graph = made()
    with pytest.raises(CompileError) as caught:
        graph.compile()
    assert caught.value.code is Code.GRAPH
    assert why in (caught.value.why or "")
    assert fix in (caught.value.fix or "")
    assert caught.value.loc in [each.loc for each in graph.dependences]  # not that of compile
