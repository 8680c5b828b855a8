"""Temporaries, tokens and paged tensors on every target; what orders their tasks is read off the
trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    CompileError,
    DenseDyn,
    Deps,
    DType,
    ExecutionError,
    In,
    InOut,
    Out,
    P,
    PagedTensor,
    Ragged,
    Scalar,
    StartPolicy,
    TaskWindow,
    Tensor,
    Token,
    TracePolicy,
    TypeCheckError,
    kernel,
    minimum,
    sequential,
    slot_load_u64,
    slot_set_u64,
    slot_u64,
    workload,
)


@kernel(cpp_src="for (int64_t i = 0; i < t.shape(0); ++i) t(i) = s + i;")
def fill(t: Out[Tensor], s: Scalar[DType.I64]): ...


@kernel(cpp_src="for (int64_t i = 0; i < t.shape(0); ++i) y[0] += t(i);")
def total(t: In[Tensor], y: InOut[Tensor]): ...


@kernel
def python_total(t: In[Tensor], y: InOut[Tensor]):
    y += t.sum()


def zeros(count: int) -> Tensor:
    return Tensor(data=np.zeros(count, np.int64), name="Y")


# --- temporaries ---


def sums(lens: list[int], body: Any = total) -> tuple[Any, Tensor]:
    Y = zeros(len(lens))

    @workload
    def work(rows: Any, lens: Any) -> None:
        for b in P(rows):
            T = Tensor.temp((lens[b],), DType.I64)
            fill[b](T, b)
            body[b](T, Y[b : b + 1])

    return work(DenseDyn(len(lens)), np.array(lens)), Y


@pytest.mark.parametrize("body", [total, python_total], ids=["cpp", "python"])
def test_each_iteration_has_a_temporary_of_its_own(target: str, body: Any) -> None:
    lens = [3, 0, 7, 1, 4] * 40
    work, Y = sums(lens, body)
    work.compile(target=target).execute()
    assert Y.data is not None
    assert Y.data.tolist() == [sum(range(b, b + n)) for b, n in enumerate(lens)]


def test_buffers_are_used_again() -> None:
    work, Y = sums([1000] * 2000)
    with work.compile(num_threads=2) as program:
        program.execute()
        once = program.stats.workspace_bytes
        assert 0 < once <= 2 * 16 * 8192 < 2000 * 8000
        program.execute()
        assert program.stats.workspace_bytes == once
    assert Y.data is not None
    assert Y.data[7] == 2 * sum(range(7, 1007))


def test_there_are_no_more_buffers_than_iterations() -> None:
    work, Y = sums([1000] * 3)
    with work.compile(num_threads=2) as program:
        program.execute()
        assert 3 * 8000 <= program.stats.workspace_bytes < 3 * 8192
        y = np.zeros(5, np.int64)
        program.execute(lens=np.array([10, 20, 500, 7, 1]), rows=5, Y=y)
        assert program.stats.workspace_bytes < 3 * 8192  # the most that was needed so far
    assert y.tolist() == [sum(range(b, b + n)) for b, n in enumerate([10, 20, 500, 7, 1])]
    assert Y.data is not None
    assert Y.data[2] == sum(range(2, 1002))


def test_a_limit_takes_copies_away_and_then_refuses() -> None:
    work, Y = sums([1000] * 50)
    with work.compile(num_threads=2, workspace_limit=20_000) as program:  # a copy takes 8,000
        program.execute()
        assert program.stats.workspace_bytes <= 20_000
    assert Y.data is not None
    assert Y.data[7] == sum(range(7, 1007))
    with work.compile(num_threads=2, workspace_limit=10_000) as program:
        with pytest.raises(ExecutionError, match="workspace_limit is 10000"):
            program.execute()
        program.execute(lens=np.array([500] * 50))  # smaller ones fit


@pytest.mark.parametrize(
    "schedule",
    [
        {},
        {"window": TaskWindow(3)},
        {"start": StartPolicy.after_orchestration()},
        {"deps": Deps.infer_tensor_map_exact()},
        {"deps": Deps.infer_tensor_map_exact(), "start": StartPolicy.after_orchestration()},
    ],
    ids=["default", "narrow", "held", "exact", "exact-held"],
)
def test_recycling_is_safe_under_every_schedule(schedule: dict[str, Any]) -> None:
    """More iterations than copies, with regions of other shapes in the same copy: what an exact
    policy would not see."""
    lens = [1 + b * 7 % 13 for b in range(300)]
    work, Y = sums(lens)
    with work.task_graph(**schedule).compile(num_threads=3) as program:
        for _ in range(3):
            program.execute()
    assert Y.data is not None
    assert Y.data.tolist() == [3 * sum(range(b, b + n)) for b, n in enumerate(lens)]


def test_one_iteration_is_not_held_up_by_another() -> None:
    """Tasks of different iterations share no edge, since their temporaries are different ones."""
    work, _ = sums([4] * 20)
    held = work.task_graph(start=StartPolicy.after_orchestration())
    with held.compile(num_threads=2) as program:
        program.execute()
        assert program.stats.edges == 20  # fill before total, nothing else


def test_temporaries_nest_and_carry_control(target: str) -> None:
    Y = zeros(4)

    @workload
    def work(rows: Any) -> None:
        counts = Tensor.temp(4, DType.I64)
        fill(counts, 0)
        for b in P(rows):
            inner = Tensor.temp((counts[b] + 1,), DType.I64)  # its size is read from data
            fill[b](inner, 10)
            with P.when(counts[b] > 1):
                more = Tensor.temp((2,), DType.I64)
                fill[b](more, 100)
                total[b](more, Y[b : b + 1])
            total[b](inner, Y[b : b + 1])

    bounded = work(DenseDyn(4))
    with pytest.raises(ExecutionError, match="nothing bounds the size of temporary 'tmp_2'"):
        bounded.compile(num_threads=1).execute()

    @workload
    def limited(rows: Any) -> None:
        counts = Tensor.temp(4, DType.I64)
        fill(counts, 0)
        for b in P(rows):
            inner = Tensor.temp((minimum(counts[b] + 1, 8),), DType.I64)
            fill[b](inner, 10)
            with P.when(counts[b] > 1):
                more = Tensor.temp((2,), DType.I64)
                fill[b](more, 100)
                total[b](more, Y[b : b + 1])
            total[b](inner, Y[b : b + 1])

    limited(DenseDyn(4)).compile(target=target).execute()
    assert Y.data is not None
    assert Y.data.tolist() == [10, 21, 33 + 201, 46 + 201]


def test_the_shape_stays_what_it_was_when_slots_change(target: str) -> None:
    Y = zeros(1)
    N = Tensor(data=np.array([3]), name="N")

    @workload
    def work() -> None:
        slot_load_u64(0, N[:])
        T = Tensor.temp((minimum(slot_u64(0), 5),), DType.I64)
        slot_set_u64(0, 1)
        fill(T, 0)
        total(T, Y[0:1])
        total(T[0 : slot_u64(0)], Y[0:1])

    work().compile(target=target).execute()
    assert Y.data is not None
    assert Y.data[0] == 0 + 1 + 2 + 0


def test_composed_workloads_have_their_own(target: str) -> None:
    first, Y = sums([3, 4])
    second, Z = sums([5, 1])
    assert Z.data is not None
    both = sequential(first, sums([3, 4])[0]) if Y is Z else None
    assert both is None  # one name, two arrays: composing those is refused
    sequential(first, first).compile(target=target).execute()
    assert Y.data is not None
    assert Y.data.tolist() == [2 * 3, 2 * (1 + 2 + 3 + 4)]
    second.compile(target=target).execute()


def test_regions_outside_a_temporary(target: str) -> None:
    Y = zeros(4)

    @workload
    def work(rows: Any, lens: Any) -> None:
        for b in P(rows):
            T = Tensor.temp((lens[b],), DType.I64)
            fill[b](T, 0)
            total[b](T[0:3], Y[b : b + 1])

    program = work(DenseDyn(3), np.array([3, 4, 2])).compile(target=target)
    with pytest.raises(ExecutionError) as caught:
        program.execute()
    assert "elements 0 to 2 of dimension 0 of tensor 'tmp' are outside its extent 2" in str(
        caught.value
    )
    assert "total[2]" in str(caught.value)
    program.execute(lens=np.array([3, 3, 3]))
    with pytest.raises(ExecutionError, match="'tmp' has the negative extent -1"):
        program.execute(lens=np.array([3, -1, 3]))


def test_a_temporary_is_used_outside_its_loop() -> None:
    Y = zeros(4)

    @workload
    def work(rows: Any) -> None:
        for b in P(rows):
            T = Tensor.temp((2,), DType.I64)
            fill[b](T, 0)
        total(T, Y[0:1])

    with pytest.raises(CompileError, match="temporary tmp is used outside its scope"):
        work(DenseDyn(3)).compile()


def test_a_temporary_outside_a_workload() -> None:
    with pytest.raises(CompileError, match=r"Tensor\.temp outside a workload"):
        Tensor.temp((2,), DType.I64)


# --- tokens ---


@kernel(cpp_src="y[0] += s;")
def add(y: InOut[Tensor], s: Scalar[DType.I64], g: InOut[Token]): ...


@kernel
def python_add(y: InOut[Tensor], g: In[Token]):
    assert g is None
    y += 1


def follows(trace: Any, later: tuple[int, ...], earlier: tuple[int, ...]) -> bool:
    """Whether one task began when another had ended."""
    rows = {tuple(row["indices"]): row for row in trace}
    return bool(rows[later]["start_ns"] >= rows[earlier]["end_ns"])


def test_tokens_order_tasks(target: str) -> None:
    Y = zeros(8)
    G = Token((4,))

    @workload
    def work(rows: Any) -> None:
        for i in P(rows):
            add[i](Y[i : i + 1], i, G[i // 2])

    traced = work(DenseDyn(8)).task_graph(trace=TracePolicy.timestamps())
    program = traced.compile(target=target)
    program.execute()
    assert Y.data is not None
    assert Y.data.tolist() == list(range(8))
    for i in range(0, 8, 2):
        assert follows(program.trace, (i + 1,), (i,))


def test_tokens_are_the_only_edges() -> None:
    Y = zeros(8)

    @workload
    def work(rows: Any, n: Any) -> None:
        G = Token((n, 2))
        for i in P(rows):
            add[i](Y[i : i + 1], i, G[i // 2])
        for i in P(rows):
            python_add[i](Y[i : i + 1], G[i // 2, 1])

    held = work(DenseDyn(8), Scalar(4)).task_graph(start=StartPolicy.after_orchestration())
    with held.compile(num_threads=2) as program:
        program.execute()
        # Pairs within the first loop; then each task waits for the second of its pair, and the
        # first of each pair for its own element of Y as well.
        assert program.stats.edges == 4 + 8 + 4
        with pytest.raises(ExecutionError, match="of tensor 'token' are outside its extent 3"):
            program.execute(n=3)
    assert Y.data is not None
    assert Y.data[5] == 6


def test_a_token_where_data_is_wanted() -> None:
    G = Token((4,))

    @workload
    def work() -> None:
        total(G, G)

    with pytest.raises(TypeCheckError, match="'G' is a token"):
        work().compile()


# --- paged tensors ---


@kernel(cpp_src="for (int64_t j = 0; j < k.shape(0); ++j) k(j) = s;")
def append(k: Out[Tensor], s: Scalar[DType.F32]): ...


@kernel(
    cpp_src="""
    for (int64_t p = 0; p < k.pages(); ++p) {
      auto part = k.page(p);
      for (int64_t i = 0; i < part.shape(0); ++i) y[0] += part(i, 0);
    }
    for (int64_t i = 0; i < k.shape(0); ++i) y[0] += k(i, 1) + k[i](1);
    """
)
def attend(k: In[PagedTensor], y: InOut[Tensor]): ...


@kernel
def python_attend(k: In[PagedTensor], y: InOut[Tensor]):
    y += k[:, 0].sum() + 2 * k[:, 1].sum()


@kernel
def halve(k: InOut[PagedTensor]):
    k /= 2


def cache(dtype: Any = np.int32) -> tuple[np.ndarray, np.ndarray]:
    table = np.array([[7, 6, 5], [0, 1, -1], [2, 3, 4]], dtype)
    return np.zeros((8, 4, 2), np.float32), table


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("reader", [attend, python_attend], ids=["cpp", "python"])
def test_pages_hold_the_tokens_of_a_sequence(target: str, reader: Any, dtype: Any) -> None:
    pool, table = cache(dtype)
    K = PagedTensor(pool, table)
    Y = Tensor(data=np.zeros(3, np.float32), name="Y")
    lens = np.array([11, 6, 0])

    @workload
    def decode(sequences: Any, tokens: Any, lens: Any) -> None:
        for b in P(sequences):
            for t in P(tokens):
                append[b, t](K[b, t], 2.0)
            with P.when(lens[b] > 0):
                halve[b](K[b, 1 : lens[b]])
            reader[b](K[b, : lens[b]], Y[b : b + 1])

    sequences = DenseDyn(3)
    program = decode(sequences, Ragged(sequences, lens), lens).compile(target=target)
    program.execute()
    assert Y.data is not None
    assert Y.data.tolist() == [3 * (n + 1) if n else 0 for n in lens]
    assert pool[6].tolist() == [[1.0, 1.0]] * 4
    assert pool[5].tolist() == [[1.0, 1.0]] * 3 + [[0.0, 0.0]]
    assert set(program.bindings) == {"sequences", "tokens", "lens", "K_pool", "K_table", "Y"}


def test_appending_orders_readers_of_that_sequence_only() -> None:
    pool, table = cache()
    K = PagedTensor(pool, table, 4)
    Y = Tensor(data=np.zeros(3, np.float32), name="Y")

    @workload
    def step(sequences: Any) -> None:
        for b in P(sequences):
            append[b](K[b, 5], 1.0)
        for b in P(sequences):
            attend[b](K[b, 0:6], Y[b : b + 1])
        for b in P(sequences):
            append[b](K[b, 7], 1.0)

    held = step(DenseDyn(3)).task_graph(start=StartPolicy.after_orchestration())
    with held.compile(num_threads=2) as program:
        program.execute()
        assert program.stats.edges == 3  # token 7 is none of those that are read


def test_other_pools_and_tables_are_bound_by_name(target: str) -> None:
    pool, table = cache()
    K = PagedTensor(pool, table, page=4)
    Y = Tensor(data=np.zeros(1, np.float32), name="Y")

    @workload
    def read() -> None:
        attend(K[0, 0:5], Y[0:1])

    program = read().compile(target=target)
    other = np.ones((3, 4, 2), np.float32)
    program.execute(K_pool=other, K_table=np.array([[2, 0]], np.int32))
    assert Y.data is not None
    assert Y.data[0] == 15
    with pytest.raises(ExecutionError, match="'K' has 4 tokens a page, its pool has 2"):
        program.execute(K_pool=np.ones((3, 2, 2), np.float32))


def test_errors_of_pages(target: str) -> None:
    pool, table = cache()
    K = PagedTensor(pool, table)
    Y = Tensor(data=np.zeros(1, np.float32), name="Y")

    @workload
    def outside(b: Any, n: Any) -> None:
        attend(K[b, 0:n], Y[0:1])

    program = outside(Scalar(1), Scalar(9)).compile(target=target)
    with pytest.raises(ExecutionError) as caught:
        program.execute()
    assert "page -1 for token 8 of sequence 1 is outside the pool of paged tensor 'K'" in str(
        caught.value
    )
    assert caught.value.fix is not None
    assert caught.value.fix.startswith("bind a larger pool")
    with pytest.raises(ExecutionError) as caught:
        program.execute(n=13)
    assert caught.value.message == (
        "elements 0 to 12 of dimension 1 of tensor 'K' are outside its extent 12 "
        "(3 columns of 4 tokens in its page table) in attend[]"
    )
    assert caught.value.why == "a sequence has no more tokens than fit the pages of its row"
    assert caught.value.fix == "bind a page table with more columns, or lower the lengths"
    with pytest.raises(ExecutionError) as caught:
        program.execute(b=3, n=1)
    assert "'K' are outside its extent 3 (rows of its page table)" in caught.value.message
    assert caught.value.why == "a page table has a row for each sequence"

    @workload
    def torn(t: Any) -> None:
        append(K[0, t : t + 2, 0], 1.0)

    program = torn(Scalar(2)).compile(target=target)
    program.execute()
    with pytest.raises(ExecutionError, match="tokens 3 to 4, which lie on several pages") as caught:
        program.execute(t=3)
    assert (caught.value.fix or "").startswith("take the region as In[PagedTensor]")
    frozen = pool.copy()
    frozen.flags.writeable = False
    with pytest.raises(ExecutionError, match="read-only, but tasks write it"):
        program.execute(K_pool=frozen)


def test_a_page_table_is_not_written(target: str) -> None:
    pool, table = cache(np.int64)
    T = Tensor(data=table, name="T")
    K = PagedTensor(pool, T)
    Y = Tensor(data=np.zeros(1, np.float32), name="Y")

    @workload
    def remap() -> None:
        fill(T[0], 1)
        attend(K[0, 0:4], Y[0:1])

    with pytest.raises(TypeCheckError, match="it is the page table of 'K'"):
        remap().compile()

    other = Tensor(data=table[0], name="other")

    @workload
    def aliased() -> None:
        fill(other, 1)
        attend(K[0, 0:4], Y[0:1])

    with pytest.raises(ExecutionError, match="page table 'T' shares memory with a tensor"):
        aliased().compile(target=target).execute()


def test_a_pool_that_tasks_use_directly_is_compared_by_bytes(target: str) -> None:
    pool, table = cache()
    pages = Tensor(data=pool, name="pages")
    K = PagedTensor(pages, table)
    Y = Tensor(data=np.zeros(1, np.float32), name="Y")

    @workload
    def mixed() -> None:
        append(pages[7, 0], 3.0)
        attend(K[0, 0:2], Y[0:1])
        append(pages[7, 1], 5.0)

    program = mixed().task_graph(start=StartPolicy.after_orchestration()).compile(target=target)
    program.execute()
    assert Y.data is not None
    assert Y.data[0] == 9
    assert target == "reference" or program.stats.edges == 2


def test_what_a_paged_region_must_be() -> None:
    pool, table = cache()
    K = PagedTensor(pool, table)
    Y = Tensor(data=np.zeros((8, 2), np.float32), name="Y")

    @workload
    def several() -> None:
        append(K[:, 0, 0], 1.0)

    @workload
    def plain() -> None:
        attend(Y[0:4], Y[0, 0:1])

    @workload
    def strided() -> None:
        attend(K[0, 0:4:2], Y[0, 0:1])

    for work, message in (
        (several, "several sequences of 'K'"),
        (plain, "'Y' is a tensor"),
        (strided, "tokens of 'K' are not a range"),
    ):
        with pytest.raises(TypeCheckError, match=message):
            work().compile()


@pytest.mark.parametrize(
    ("pool", "table", "why"),
    [
        (np.zeros(4), np.zeros((1, 1), int), "the pool has rank 1"),
        (np.zeros((4, 4)), np.zeros((1, 1)), "the table is"),
        (np.zeros((4, 4)), np.zeros(1, int), "the table is"),
    ],
)
def test_pools_and_tables_that_do_not_fit(pool: Any, table: Any, why: str) -> None:
    with pytest.raises(TypeCheckError) as caught:
        PagedTensor(pool, table)
    assert why in str(caught.value)
    with pytest.raises(TypeCheckError, match="PagedTensor"):
        PagedTensor(np.zeros((4, 4)), np.zeros((1, 1), int), page=8)
