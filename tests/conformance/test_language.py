"""Programs with every form of control, on every target, against plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    CompileError,
    Constexpr,
    DenseDyn,
    DType,
    ExecutionError,
    In,
    InOut,
    Out,
    P,
    Ragged,
    ReadyPolicy,
    Scalar,
    Sparse,
    StartPolicy,
    TaskWindow,
    Tensor,
    Tiled,
    TracePolicy,
    kernel,
    minimum,
    reduce_all,
    reduce_any,
    reduce_max,
    reduce_min,
    reduce_sum,
    search,
    select,
    slot_load_u64,
    slot_u64,
    workload,
)

SCHEDULES: dict[str, dict[str, Any]] = {
    "default": {},
    "fifo": {"ready": ReadyPolicy.fifo()},
    "steal": {"ready": ReadyPolicy.work_steal()},
    "held": {"start": StartPolicy.after_orchestration()},
    "narrow": {"window": TaskWindow(3)},
}
RUNS = [("reference", 1, "default"), ("cpu_sim", 1, "default")]
RUNS += [("cpu_sim", 3, name) for name in SCHEDULES]


@pytest.fixture(params=RUNS, ids=lambda run: "-".join(map(str, run)))
def run(request: pytest.FixtureRequest) -> Any:
    """Compiles a workload for one of the targets, under one of the schedules."""
    target, workers, schedule = request.param

    def compiled(work: Any) -> Any:
        options = {} if target == "reference" else {"num_threads": workers}
        if schedule != "default":
            work = work.task_graph(**SCHEDULES[schedule])
        return work.compile(target=target, **options)

    return compiled


@kernel(cpp_src="out[0] = s + f * N;")
def put(
    out: Out[Tensor], s: Scalar[DType.I32], f: Scalar[DType.F32] = 0.0, N: Constexpr[int] = 1
): ...


@kernel(cpp_src="y[0] = y[0] * 3 + s;")
def note(y: InOut[Tensor], s: Scalar[DType.I64]): ...


@workload
def mixed(rows: Any, lens: Any, scale: Any, routing: Any, tiles: Any, Y: Any):
    for i in P(rows):
        for j in P(lens[i]):
            with P.when(j % 2 == 0):
                put[i, j](Y[i, j], i * 10 + j, scale)
            with P.when(j == 3):
                put[i, j](Y[i, j], s=7)
            with P.otherwise():
                put[i, j](Y[i, j], s=-1, f=scale, N=10)
        for e in P.sel(routing[i]):
            put[i, e](Y[i, 8 + e], routing.pos, 0.5)
    for t in P(tiles):
        put[t](Y[t.start, 15], t.size)


def expected_mixed(lens: Any, scale: float, indptr: Any, indices: Any, extent: int) -> Any:
    want = np.zeros((8, 16), np.float32)
    for i, length in enumerate(lens):
        for j in range(length):
            want[i, j] = i * 10 + j + scale if j % 2 == 0 else 7 if j == 3 else -1 + scale * 10
        for pos in range(indptr[i + 1] - indptr[i]):
            want[i, 8 + indices[indptr[i] + pos]] = pos + 0.5
    for t in range(-(-extent // 3)):
        want[t * 3, 15] = min(3, extent - t * 3)
    return want


def test_static_control(run: Any) -> None:
    rows = DenseDyn(4)
    lens, indptr, indices = [1, 5, 4, 0], [0, 2, 2, 5, 6], [1, 3, 0, 2, 4, 5]
    Y = np.zeros((8, 16), np.float32)
    tensor = Tensor(data=Y)
    sparse, tiles = Sparse(rows, indptr, indices), Tiled(DenseDyn(7), 3)
    with run(mixed(rows, lens, Scalar(1.5), sparse, tiles, tensor)) as program:
        program.execute()
        assert np.array_equal(Y, expected_mixed(lens, 1.5, indptr, indices, 7))
        Y[:] = 0
        lens, indices = np.array([0, 2, 5, 6]), np.array([5, 4, 3, 2, 1, 0])
        program.execute(lens=lens, scale=-2.0, routing_indices=indices, tiles=5)
        assert np.array_equal(Y, expected_mixed(lens, -2.0, indptr, indices, 5))


@kernel(cpp_src="out[0] = (s * 7) % 5; out[1] = (s * 3 + 1) % 5;")
def route(out: Out[Tensor], s: Scalar[DType.I64]): ...


@kernel(cpp_src="out[0] = s % 4;")
def length(out: Out[Tensor], s: Scalar[DType.I64]): ...


@kernel(cpp_src="c[0] = c[0] - 1;")
def count_down(c: InOut[Tensor]): ...


@workload
def experts(tokens: Any, routing: Any, toks: Any, idx: Any, L: Any, Y: Any, C: Any):
    for t in P(tokens):
        route[t](idx[2 * t : 2 * t + 2], t)
        length[t](L[t], t)
    for t in P(tokens):
        for e in P.sel(routing[t]):
            note[t, e](Y[e], t + 1)
        for j in P(toks):
            note[t, j](Y[j], 100)
        with P.when(L[t] == 3):
            note[t](Y[4], 1000)
        with P.when(idx[2 * t] == 2):
            note[t](Y[4], 5000)
    slot_load_u64(0, C[:], col=0)
    for i in P.loop_while(lambda: slot_u64(0) > 0, max_iterations=10):
        count_down[i](C[0])
        note[i](Y[0], slot_u64(0))
        slot_load_u64(0, C[:], col=0)


def expected_experts(n: int, count: int) -> list[int]:
    y = [0] * 5

    def noted(at: int, s: int) -> None:
        y[at] = (y[at] * 3 + s + 2**63) % 2**64 - 2**63

    for t in range(n):
        picked = [(t * 7) % 5, (t * 3 + 1) % 5]
        for e in picked:
            noted(e, t + 1)
        for j in range(t % 4):
            noted(j, 100)
        if t % 4 == 3:
            noted(4, 1000)
        elif picked[0] == 2:
            noted(4, 5000)
    for left in range(count, 0, -1):
        noted(0, left)
    return y


def test_control_that_reads_data(run: Any) -> None:
    n = 20
    tokens = DenseDyn(n)
    idx, L = Tensor(data=np.zeros(2 * n, np.int32)), Tensor(data=np.zeros(n, np.int64))
    Y, C = np.zeros(5, np.int64), np.array([5], np.int64)
    routing, toks = Sparse(tokens, np.arange(0, 2 * n + 1, 2), idx), Ragged(tokens, L)
    work = experts(tokens, routing, toks, idx, L, Tensor(data=Y), Tensor(data=C))
    with run(work) as program:
        program.execute()
        assert Y.tolist() == expected_experts(n, 5)
        assert program.stats.loads == 2 * n + n + n + n - 5 + 6
        Y[:], C[0] = 0, 2
        program.execute()
        assert Y.tolist() == expected_experts(n, 2)


@workload
def chunked(batch: Any, lens: Any, blocks: Any, Y: Any):
    """The chunk size of split-KV: the smallest that gives at most `blocks` chunks."""
    chunk = search(1, 1000, lambda c: reduce_sum(3, lambda k: (lens[k] + c - 1) // c) <= blocks)
    for b in P(batch):
        for c in P((lens[b] + chunk - 1) // chunk):
            put[b, c](Y[b, c], select(c == 0, chunk, -c))


def test_searches(run: Any) -> None:
    Y = np.zeros((3, 12), np.float32)
    lens = np.array([5, 11, 2])
    with run(chunked(DenseDyn(3), lens, Scalar(6), Tensor(data=Y))) as program:
        for blocks in (6, 3, 18):
            Y[:] = 0
            program.execute(blocks=blocks)
            chunk = next(c for c in range(1, 1000) if sum(-(-n // c) for n in lens) <= blocks)
            want = np.zeros_like(Y)
            for b, n in enumerate(lens):
                for c in range(-(-n // chunk)):
                    want[b, c] = chunk if c == 0 else -c
            assert np.array_equal(Y, want)


@workload
def endless(Y: Any):
    for _ in P.loop_while(lambda: Y.shape[0] > 0, max_iterations=7):
        note(Y[0], 1)


@workload
def divides(rows: Any, d: Any, Y: Any):
    for i in P(rows):
        with P.when(i // d == 1):
            note(Y[0], 1)


@workload
def reads_outside(rows: Any, lens: Any, Y: Any):
    for i in P(rows):
        note(Y[lens[i + 1]], 1)


def test_errors_name_the_line(run: Any) -> None:
    Y = Tensor(data=np.zeros(4, np.int64))
    with run(endless(Y)) as program, pytest.raises(ExecutionError) as caught:
        program.execute()
    assert "still holds after max_iterations=7" in caught.value.message
    assert "loop_while(lambda: Y.shape[0] > 0" in str(caught.value)

    with (
        run(divides(DenseDyn(2), Scalar(0), Y)) as program,
        pytest.raises(ExecutionError) as caught,
    ):
        program.execute()
    assert caught.value.message == "division by zero in an index expression at outer indices [0]"
    assert "with P.when(i // d == 1):" in str(caught.value)

    with run(reads_outside(DenseDyn(2), [0, 1], Y)) as program:
        with pytest.raises(ExecutionError) as caught:
            program.execute()
        assert caught.value.message == "index 2 is outside array 'lens' of length 2 in note[1]"
        assert "note(Y[lens[i + 1]], 1)" in str(caught.value)
        program.execute(rows=1)  # and is usable again


@workload
def moe(tokens: Any, routing: Any, idx: Any, X: Any, Y: Any):
    for t in P(tokens):
        route[t](idx[2 * t : 2 * t + 2], t)
    for t in P(tokens):
        for e in P.sel(routing[t]):
            scaled[t, e](X[t], Y[routing.pos, t], e)


@kernel(cpp_src="y[0] = x[0] * (s + 1);")
def scaled(x: In[Tensor], y: Out[Tensor], s: Scalar[DType.I64]): ...


def test_moe_with_routing_computed_by_tasks(run: Any) -> None:
    n = 300
    tokens = DenseDyn(n)
    idx = Tensor(data=np.zeros(2 * n, np.int32))
    X, Y = np.arange(n, dtype=np.float32), np.zeros((2, n), np.float32)
    routing = Sparse(tokens, np.arange(0, 2 * n + 1, 2), idx)
    with run(moe(tokens, routing, idx, Tensor(data=X), Tensor(data=Y))) as program:
        program.execute()
    t = np.arange(n)
    assert np.array_equal(Y[0], X * ((t * 7) % 5 + 1))
    assert np.array_equal(Y[1], X * ((t * 3 + 1) % 5 + 1))


@kernel(cpp_src="for (volatile int k = 0; k < 500; k = k + 1) {}")
def spin(x: In[Tensor]): ...


@kernel(cpp_src="(void)x;")
def look(x: In[Tensor]): ...


@workload
def explicit(rows: Any, cols: Any, X: Any):
    for i in P(rows):
        for j in P(cols):
            first = spin[i, j](X[0])
            with P.when(j > 0):
                second = look[i, j](X[1], after=first[j - 1])
        look[i](X[2], after=[first, second])
        for k in P(3):
            look[i, k](X[3], after=first)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("workers", [1, 4])
def test_explicit_dependences(schedule: str, workers: int) -> None:
    """Nothing but `after=` orders these tasks; the trace shows that it does."""
    rows, cols = 5, 20
    work = explicit(DenseDyn(rows), DenseDyn(cols), Tensor(data=np.zeros(4, np.float32)))
    work = work.task_graph(trace=TracePolicy.timestamps(), **SCHEDULES[schedule])
    with work.compile(num_threads=workers) as program:
        program.execute()
        trace = program.trace
    times = {
        (int(row["site"]), *(int(i) for i in row["indices"])): (row["start_ns"], row["end_ns"])
        for row in trace
    }
    assert len(times) == rows * (cols + cols - 1 + 1 + 3)
    for (site, i, j), (start, _) in times.items():
        waited = {
            0: [],
            1: [(0, i, j - 1)],
            2: [(0, i, k) for k in range(cols)] + [(1, i, k) for k in range(1, cols)],
            3: [(0, i, k) for k in range(cols)],
        }[site]
        assert all(times[before][1] <= start for before in waited), (site, i, j)


@kernel
def fill(
    k: Scalar[DType.U8],
    out: Out[Tensor],
    flag: Scalar[DType.BOOL],
    half: Scalar[DType.F32] = 0.5,
    N: Constexpr[float] = 2,
    on: Constexpr[bool] = True,
):
    assert isinstance(k, int)
    assert isinstance(flag, bool)
    assert on is True
    out[...] = k + half * N + (100 if flag else 0)


@workload
def filled(rows: Any, Y: Any):
    for i in P(rows):
        fill[i](i * 2, Y[i], i > 1, N=3.0)


@workload
def too_large(rows: Any, Y: Any):
    for i in P(rows):
        fill[i](i * 200, Y[i], flag=False)


def test_python_bodies_get_numbers(run: Any) -> None:
    Y = np.zeros(4)
    with run(filled(DenseDyn(4), Tensor(data=Y))) as program:
        program.execute()
    assert Y.tolist() == [1.5, 3.5, 105.5, 107.5]
    work = too_large(DenseDyn(3), Tensor(data=Y))
    with run(work) as program, pytest.raises(ExecutionError) as caught:
        program.execute()
    message = "a scalar argument is 400, which its type does not hold in fill[2]"
    assert caught.value.message == message


@workload
def nested(docs: Any, pages: Any, words: Any, table: Any, Y: Any):
    for d in P(docs):
        for p in P(pages):
            for w in P(words):
                note[d, p, w](Y[table[d, p] + w], d * 10 + p)


def test_arrays_of_two_dimensions(run: Any) -> None:
    docs = DenseDyn(2)
    lengths, words = np.array([2, 1]), np.array([[3, 1], [2, 0]])
    table, Y = np.array([[0, 3], [4, 9]], np.int16), np.zeros(6, np.int64)
    pages = Ragged(docs, lengths)
    with run(nested(docs, pages, Ragged(pages, words), table, Tensor(data=Y))) as program:
        program.execute()
        assert Y.tolist() == [0, 0, 0, 1, 10, 10]
        program.execute(table=np.array([[3, 0], [4, 9]], np.int16))
        assert Y.tolist() == [1, 0, 0, 3, 100, 100]
        with pytest.raises(ExecutionError, match="outside array 'words' of length 1"):
            program.execute(words=words[:, :1])


@workload
def tiled(size: Any, exact: Any, padded: Any, rows: Any, routing: Any, Y: Any):
    for t in P(exact):
        put[t](Y[0, t], t.start * 100 + t.size)
    for t in P(padded):
        put[t](Y[1, t], t.start * 100 + t.size)
    for b in P(rows):
        for e in P.sel(routing[rows_minus(b)]):
            put[b, e](Y[2 + b, routing.pos], e)
    del size


def rows_minus(b: Any) -> Any:
    return 2 - b


def test_tiles_and_rows_by_expression(run: Any) -> None:
    size, rows = DenseDyn(4), DenseDyn(3)
    exact, padded = Tiled(DenseDyn(10), size), Tiled(DenseDyn(10), 4, pad_last=True)
    routing = Sparse(rows, [0, 1, 1, 3], [7, 8, 9])
    Y = np.zeros((5, 5), np.float32)
    with run(tiled(size, exact, padded, rows, routing, Tensor(data=Y))) as program:
        program.execute()
        assert Y[0].tolist() == [4, 404, 802, 0, 0]
        assert Y[1].tolist() == [4, 404, 804, 0, 0]
        assert Y[2:, :2].tolist() == [[8, 9], [0, 0], [7, 0]]
        Y[:] = 0
        program.execute(size=3)
        assert Y[0].tolist() == [3, 303, 603, 901, 0]
        with pytest.raises(ExecutionError, match="division by zero"):
            program.execute(size=0)


@workload
def reduced(lens: Any, n: Any, Y: Any):
    put(Y[0], reduce_sum(n, lambda k: lens[k]))
    put(Y[1], reduce_min(n, lambda k: lens[k]))
    put(Y[2], reduce_max(n, lambda k: lens[k] - k))
    put(Y[3], select(reduce_any(n, lambda k: lens[k] == 5), 1, 0))
    put(Y[4], select(reduce_all(n, lambda k: lens[k] > 1), 1, 0))
    put(Y[5], minimum(reduce_sum(n, lambda a: reduce_max(n, lambda b: lens[b] % (a + 1))), 99))


def test_reductions(run: Any) -> None:
    lens, Y = np.array([4, 2, 5, 3]), np.zeros(6, np.float32)
    with run(reduced(lens, Scalar(4), Tensor(data=Y))) as program:
        for n in (4, 2):
            program.execute(n=n)
            seen = lens[:n].tolist()
            nested_sum = sum(max(x % (a + 1) for x in seen) for a in range(n))
            best = max(x - k for k, x in enumerate(seen))
            flags = [int(5 in seen), int(min(seen) > 1)]
            assert Y.tolist() == [sum(seen), min(seen), best, *flags, nested_sum]


def test_a_start_policy_lets_go_for_control() -> None:
    """Nothing starts before all tasks are known, and some are known only after others have run."""
    n = 4
    tokens = DenseDyn(n)
    idx = Tensor(data=np.zeros(2 * n, np.int32))
    X, Y = np.ones(n, np.float32), np.zeros((2, n), np.float32)
    work = moe(tokens, Sparse(tokens, np.arange(0, 9, 2), idx), idx, Tensor(data=X), Tensor(data=Y))
    held = work.task_graph(start=StartPolicy.after_orchestration())
    with held.compile(num_threads=2) as program:
        program.execute()
        assert program.stats.start_released == 1
        assert program.stats.control_waits > 0
    assert np.array_equal(Y[0], np.arange(n) * 7 % 5 + 1)


def test_slots_beyond_what_a_target_keeps() -> None:
    def many(Y: Any):
        for k in range(33):
            with P.when(Y[k] == 0):
                note(Y[k], 1)
            note(Y[0], 0)

    work = workload(many)(Tensor(data=np.zeros(40, np.int64)))
    work.compile(target="reference").execute()
    with pytest.raises(CompileError) as caught:
        work.compile()
    assert caught.value.message == "more than 32 slots, temporaries and channels in one plan"
