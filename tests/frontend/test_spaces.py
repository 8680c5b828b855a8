"""Spaces, tiers and graphs as they are written, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    AUTO,
    DYNAMIC,
    PAD_LAST,
    CompileError,
    Dense,
    DenseDyn,
    DType,
    Graph,
    In,
    InOut,
    Interleaved,
    Out,
    P,
    PagedTensor,
    Parallel,
    ReadyPolicy,
    Scalar,
    Schedule,
    ScheduleError,
    Space,
    StartPolicy,
    Tensor,
    Tile,
    TracePolicy,
    Workspace,
    axis,
    default,
    kernel,
    launch,
    pto,
    select_tier,
    tier,
    tiers,
    workload,
)
from pto_wsp.error_codes import Code


@kernel(cpp_src="for (int64_t i = 0; i < y.shape(0); ++i) y(i) += s;")
def add(y: InOut[Tensor], s: Scalar[DType.I64]): ...


@kernel(cpp_src="workspace(0) = 1; for (int64_t i = 0; i < y.shape(0); ++i) y(i) += s * 100;")
def add_large(y: InOut[Tensor], s: Scalar[DType.I64], workspace: Out[Tensor]): ...


def test_padded_tiles_reach_beyond_the_end() -> None:
    space = Space("padded", x=axis(3, 13, tile=(4, PAD_LAST)))

    @space.generator
    def generate(s: Any, out: Any) -> None:
        for t in P(s.x):
            s.emit(add, out[t.slice], t)

    out = np.zeros(16)
    launch(space, out=out)
    assert out.tolist() == [0] * 7 + [1] * 4 + [2] * 4 + [0]


def test_tiles_end_with_the_axis() -> None:
    space = Space("exact", x=axis(3, 13, tile=4))

    @space.generator
    def generate(s: Any, out: Any) -> None:
        for t in P(s.x):
            s.emit(add, out[t.slice], t + 1)

    out = np.zeros(16)
    launch(space, out=out)
    assert out.tolist() == [0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 0, 0, 0]


def test_a_constraint_removes_work() -> None:
    space = Space("half", where=lambda i, j: j <= i, i=axis(0, "n"), j=axis(0, "n"))

    @space.generator
    def generate(s: Any, out: Any) -> None:
        for i, j in P(s.i, s.j):
            s.emit(add, out[i, j : j + 1], 1)
            with P.when(i == 0):  # no branch of the constraint
                s.emit(add, out[i, j : j + 1], 10)

    out = np.zeros((4, 4))
    program = launch(space, out=out, n=4)
    assert np.array_equal(out, np.tri(4, dtype=np.int64) + 10 * (np.arange(16).reshape(4, 4) == 0))
    assert program.stats.tasks == 11


def test_tiers_have_a_workspace_of_their_own() -> None:
    variants = tiers(
        "variants", tier(lambda n: n < 3, add), default(add_large, Workspace((4,), DType.I64))
    )
    space = Space("tiered", b=axis(0, "n"))

    @space.generator
    def generate(s: Any, out: Any, lens: Any) -> None:
        for b in P(s.b):
            s.emit(select_tier(variants, lens[b]), out[b : b + 1], lens[b])

    out = np.zeros(4)
    program = launch(space, out=out, lens=np.array([1, 2, 3, 4]), n=4)
    assert out.tolist() == [1, 2, 300, 400]
    assert program.descriptors()["tier"].tolist() == [0, 0, 1, 1]
    assert program.stats.workspace_bytes > 0


def fitted(lens: list[int], blocks: int, least: int) -> int:
    """The seed's binary search, written plainly."""
    low, high = least, max(lens)
    while low < high:
        middle = (low + high) // 2
        if sum(-(-n // middle) for n in lens) > blocks:
            low = middle + 1
        else:
            high = middle
    return min(low, high)


@pytest.mark.parametrize("blocks", [3, 4, 9, 1000])
def test_auto_tiles_are_searched_for(blocks: int) -> None:
    space = Space("fit", b=axis(0, "n"), kv=axis(0, DYNAMIC, tile=AUTO))

    @space.generator
    def generate(s: Any, out: Any, lens: Any, blocks: Any) -> None:
        size = s.kv.fit(blocks, lens, s.b.end, least=16)
        for b in P(s.b):
            for t in P(s.kv(lens[b])):
                s.emit(add, out[b, t : t + 1], t.size, fields={"size": size})

    lens = [700, 0, 90]
    out = np.zeros((3, 64))
    program = launch(space, out=out, lens=np.array(lens), blocks=blocks, n=3)
    size = fitted(lens, blocks, 16)
    assert set(program.descriptors()["size"].tolist()) == {size}
    assert out.sum(axis=1).tolist() == lens
    assert program.stats.tasks == sum(-(-n // size) for n in lens)


def test_a_launch_compiles_once() -> None:
    space = Space("again", b=axis(0, "n"))
    traced: list[int] = []

    @space.generator(Schedule().task_graph(ready=ReadyPolicy.fifo()))
    def generate(s: Any, out: Any, lens: Any, step: Any) -> None:
        traced.append(1)
        for b in P(s.b):
            for t in P(lens[b]):
                s.emit(add, out[b, t : t + 1], step)

    first, second = np.zeros((3, 8)), np.zeros((5, 9))
    program = launch(space, out=first, lens=np.array([1, 2, 3]), step=1, n=3)
    again = launch(space, out=second, lens=np.array([9, 0, 1, 2, 3]), step=7, n=5)
    assert again is program
    assert traced == [1]
    assert first.sum() == 6
    assert second.sum() == 7 * 15
    assert "fifo" in program.explain()
    assert (
        launch(space, out=first, lens=np.array([1, 2, 3]), step=1, n=3, target="reference")
        is not program
    )


def test_options_of_a_launch_are_those_of_compile() -> None:
    @workload
    def fill(rows: Any, out: Any) -> None:
        for i in P(rows):
            add[i](out[i : i + 1], 1)

    out = np.zeros(4)
    for workers in (1, 3, 1):
        program = launch(fill, rows=DenseDyn(4), out=out, options={"num_threads": workers})
        assert program.num_workers == workers
    assert out.tolist() == [3, 3, 3, 3]


def test_a_launch_of_a_workload() -> None:
    @workload
    def fill(rows: Any, out: Any, by: Any) -> None:
        for i in P(rows):
            add[i](out[i : i + 1], by)

    out = np.zeros(6)
    for by in (1, 5):
        launch(fill, rows=DenseDyn(4), out=out, by=by)
    assert out.tolist() == [6] * 4 + [0] * 2


def test_a_schedule_stands_for_itself() -> None:
    schedule = Schedule("decode").order(rows=Interleaved(2), cols=Parallel).prefetch("rows", 1)
    assert repr(schedule).startswith("Schedule('decode').order(")
    assert schedule == Schedule().order(rows=Interleaved(2), cols=Parallel).prefetch("rows", 1)

    @workload
    def fill(rows: Any, cols: Any, out: Any) -> None:
        for i, j in P(rows, cols):
            add[i, j](out[i, j : j + 1], 1)

    work = fill(DenseDyn(4), DenseDyn(3), Tensor(data=np.zeros((4, 3))))
    program = work.under(schedule.task_graph(trace=TracePolicy.timestamps())).compile()
    program.execute()
    order = program.trace[np.argsort(program.trace["seq"])]["indices"][:6].tolist()
    assert order == [[0, 0], [1, 0], [0, 1], [1, 1], [0, 2], [1, 2]]
    with pytest.raises(ScheduleError, match="under"):
        work.under("fifo")  # pyright: ignore[reportArgumentType]


# --- graphs ---


@kernel
def write(x: In[Tile[4, DType.F32]], k: Out[Tile[4, DType.F32]]):
    pto.store(k, x * 2.0)


@kernel(cpp_src="y[0] = 0; for (int64_t i = 0; i < k.shape(0); ++i) y[0] += k(i, 0);")
def attend(k: In[PagedTensor], y: Out[Tensor]): ...


def stages(keys: np.ndarray[Any, Any], table: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    @workload
    def prefill(sequences: Any, lens: Any, X: Any, keys: Any) -> None:
        for b in P(sequences):
            for t in P(lens[b]):
                write[b, t](X[b, t], keys[b, t])

    @workload
    def decode(sequences: Any, lens: Any, cache: Any, out: Any) -> None:
        for b in P(sequences):
            attend[b](cache[b, : lens[b]], out[b : b + 1])

    n = DenseDyn(3)
    lens = np.array([5, 1, 7])
    X = Tensor(data=np.ones((3, 8, 4), np.float32))
    before = prefill(n, lens, X, PagedTensor(keys, table))
    spare = PagedTensor(np.zeros_like(keys), table.copy())
    behind = decode(n, lens, spare, Tensor(data=np.zeros(3, np.float32)))
    return before, behind


def test_a_graph_waits_for_its_own_sequence() -> None:
    keys = np.zeros((8, 4, 4), np.float32)
    table = np.array([[3, 1], [0, 5], [2, 7]], np.int32)
    before, behind = stages(keys, table)
    graph = Graph("serve").stage("prefill", before).stage("decode", behind)
    work = graph.depends("decode.cache", "prefill.keys").workload()
    # Nothing runs before all is generated, so no task has ended that another one waits for.
    held = {"trace": TracePolicy.timestamps(), "start": StartPolicy.after_orchestration()}
    program = work.task_graph(**held).compile(num_threads=2)
    out = np.zeros(3, np.float32)
    program.execute(out=out)
    assert out.tolist() == [10, 2, 14]
    assert set(program.bindings) >= {"keys_pool", "keys_table"}
    assert not any(name.startswith("cache") for name in program.bindings)
    trace = program.trace
    number = {int(row["seq"]): row for row in trace}
    waits = [(number[int(e["src"])], number[int(e["dst"])]) for e in program.edges]
    # Each sequence waits for all of its own keys, and for no others.
    found = sorted((*source["indices"], sink["indices"][0]) for source, sink in waits)
    assert found == [(b, t, b) for b, length in enumerate((5, 1, 7)) for t in range(length)]
    assert program.descriptors()["stage"].tolist() == [0] * 13 + [1] * 3
    seen = work.compile(target="reference")
    other = np.zeros(3, np.float32)
    seen.execute(out=other)
    assert other.tolist() == out.tolist()


def test_a_graph_without_the_dependence_has_two_caches() -> None:
    keys = np.zeros((8, 4, 4), np.float32)
    table = np.array([[3, 1], [0, 5], [2, 7]], np.int32)
    before, behind = stages(keys, table)
    program = Graph("serve").stage("prefill", before).stage("decode", behind).compile()
    out = np.ones(3, np.float32)
    program.execute(out=out)
    assert out.tolist() == [0, 0, 0]


# --- what is refused ---


def refused(wrong: Callable[[], object], code: Code, what: str) -> None:
    with pytest.raises(CompileError) as caught:
        wrong()
    assert what in caught.value.message
    assert caught.value.code is code
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__


def _space() -> Space:
    return Space("s", b=axis(0, "n"), kv=axis(0, DYNAMIC, tile=AUTO), h=axis(0, 2))


def _generated(body: Callable[[Any, Any, Any], None], space: Space | None = None) -> None:
    chosen = space or _space()

    @chosen.generator
    def generate(s: Any, out: Any, lens: Any) -> None:
        body(s, out, lens)

    launch(chosen, out=np.zeros(4), lens=np.array([1, 2]), n=2)


def _no_end(s: Any, out: Any, lens: Any) -> None:
    s.kv.fit(4, lens, s.b.end)
    for t in P(s.kv):
        s.emit(add, out[t : t + 1], 1)


def _no_size(s: Any, out: Any, lens: Any) -> None:
    for t in P(s.kv(4)):
        s.emit(add, out[t : t + 1], 1)


def _fit_in_a_loop(s: Any, out: Any, lens: Any) -> None:
    for b in P(s.b):
        s.kv.fit(4, lens, b)


def _fit_of_nothing(s: Any, out: Any, lens: Any) -> None:
    s.h.fit(4, lens, 2)


def _second_end(s: Any, out: Any, lens: Any) -> None:
    for t in P(s.h(4)):
        s.emit(add, out[t : t + 1], 1)


def _emit_of_a_function(s: Any, out: Any, lens: Any) -> None:
    for h in P(s.h):
        s.emit(print, out[h : h + 1], 1)


def _outside(s: Any, out: Any, lens: Any) -> None:
    s.emit(add, out[0:1], 1)


WRONG: list[tuple[str, Callable[[], object]]] = [
    ("axis(-1, 3", lambda: axis(-1, 3)),
    ("tile=0", lambda: axis(0, 3, tile=0)),
    ("tile=(None", lambda: axis(0, 3, tile=(None, PAD_LAST))),  # pyright: ignore[reportArgumentType]
    ("axis(0, 2.5", lambda: axis(0, 2.5)),  # pyright: ignore[reportArgumentType]
    ("space 's' with b=3", lambda: Space("s", b=3)),  # pyright: ignore[reportArgumentType]
    ("space 's'", lambda: Space("s")),
    ("where=c of space s", lambda: Space("s", where=lambda c: c, b=axis(0, 2))),
    ("has no parameter", lambda: _space().generator(lambda: None)),
    ("axis kv has no end", lambda: _generated(_no_end)),
    ("axis kv has no size", lambda: _generated(_no_size)),
    ("kv.fit(...) inside a loop", lambda: _generated(_fit_in_a_loop)),
    ("axis h has tiles of None", lambda: _generated(_fit_of_nothing)),
    ("axis h is given an end", lambda: _generated(_second_end)),
    ("emit(builtin_function_or_method)", lambda: _generated(_emit_of_a_function)),
    (
        "emit(...) outside a loop over axis h",
        lambda: _generated(
            _outside, Space("s", where=lambda h: h > 0, b=axis(0, "n"), h=axis(0, 2))
        ),
    ),
    ("launch(<space s(b, kv, h)> has no generator)", lambda: launch(_space())),
    ("launch(int)", lambda: launch(3)),  # pyright: ignore[reportArgumentType]
]


@pytest.mark.parametrize(("what", "wrong"), WRONG, ids=[w for w, _ in WRONG])
def test_wrong_spaces(what: str, wrong: Callable[[], object]) -> None:
    refused(wrong, Code.SPACE, what)


WRONG_TIERS: tuple[Callable[[], object], ...] = (
    lambda: tiers("t"),
    lambda: tiers("t", tier(lambda n: n > 1, add)),
    lambda: tiers("t", default(add), default(add)),
    lambda: tiers("t", default(add), tier(lambda n: n > 1, add)),
    lambda: tiers("t", default(print)),  # pyright: ignore[reportArgumentType]
    lambda: tiers("t", add),  # pyright: ignore[reportArgumentType]
)


@pytest.mark.parametrize("wrong", WRONG_TIERS)
def test_wrong_tiers(wrong: Callable[[], object]) -> None:
    refused(wrong, Code.TIERS, "t")


def _graph() -> Graph:
    table = np.zeros((3, 2), np.int32)
    before, behind = stages(np.zeros((8, 4, 4), np.float32), table)
    return Graph("serve").stage("prefill", before).stage("decode", behind)


WRONG_GRAPHS: list[tuple[str, Callable[[], object]]] = [
    ("stage 'decode'", lambda: _graph().stage("decode", _graph().stages[0][1])),
    ("stage x is int", lambda: _graph().stage("x", 3)),  # pyright: ignore[reportArgumentType]
    (
        "stage x has a schedule",
        lambda: _graph().stage("x", _graph().stages[0][1].streams(2)),
    ),
    ("'cache' in a dependence", lambda: _graph().depends("cache", "prefill.keys")),
    ("'x.cache' in a dependence", lambda: _graph().depends("x.cache", "prefill.keys")),
    ("depends on decode.cache", lambda: _graph().depends("prefill.keys", "decode.cache")),
    (
        "decode.nothing in a dependence",
        lambda: _graph().depends("decode.nothing", "prefill.keys").compile(),
    ),
    (
        "decode.cache depends on prefill.X",
        lambda: _graph().depends("decode.cache", "prefill.X").compile(),
    ),
    ("graph g has no stage", lambda: Graph("g").compile()),
]


@pytest.mark.parametrize(("what", "wrong"), WRONG_GRAPHS, ids=[w for w, _ in WRONG_GRAPHS])
def test_wrong_graphs(what: str, wrong: Callable[[], object]) -> None:
    refused(wrong, Code.GRAPH, what)


def test_constant_axes_are_constants() -> None:
    @workload
    def fill(rows: Any, out: Any) -> None:
        for i in P(rows):
            add[i](out[i : i + 1], 1)

    out = np.zeros(6)
    first = launch(fill, rows=Dense[4](), out=out)
    assert launch(fill, rows=Dense[5](), out=out) is not first
    assert out.tolist() == [2, 2, 2, 2, 1, 0]
