"""Planted races, each found by verify; and programs in which there is nothing to find."""

from __future__ import annotations

import time
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
    PagedTensor,
    Program,
    RaceError,
    ReadyPolicy,
    Scalar,
    StartPolicy,
    Tensor,
    Token,
    TracePolicy,
    kernel,
    slot_load_u64,
    slot_u64,
    workload,
)
from pto_wsp.error_codes import Code

EXACT, EXPLICIT = Deps.infer_tensor_map_exact(), Deps.explicit()


def compiled(target: str, work: Any, verify: str = "full", **schedule: Any) -> Program:
    options = {"num_threads": 2} if target == "cpu_sim" else {}
    return work.task_graph(**schedule).compile(target=target, verify=verify, **options)


# --- kernels that do what they do not say ---


@kernel
def copy_py(x: In[Tensor], y: Out[Tensor]):
    y[...] = x * 2


@kernel(cpp_src="for (int64_t i = 0; i < y.shape(0); ++i) y[i] = x[i] * 2;")
def copy_cpp(x: In[Tensor], y: Out[Tensor]): ...


@kernel
def in_writes_py(x: In[Tensor], y: Out[Tensor]):
    y[...] = x
    x[0] = 7


@kernel
def in_sneaks_py(x: In[Tensor], y: Out[Tensor]):
    y[...] = x
    x.flags.writeable = True
    x[0] = 7


@kernel(
    cpp_src="""for (int64_t i = 0; i < y.shape(0); ++i) y[i] = x[i];
    const_cast<double*>(x.data())[0] = 7;"""
)
def in_writes_cpp(x: In[Tensor], y: Out[Tensor]): ...


@kernel
def out_reads_py(x: In[Tensor], y: Out[Tensor]):
    y[...] += x


@kernel(cpp_src="for (int64_t i = 0; i < y.shape(0); ++i) y[i] = y[i] > x[i] ? y[i] : x[i];")
def out_reads_cpp(x: In[Tensor], y: Out[Tensor]): ...


@kernel
def leaves_py(x: In[Tensor], y: Out[Tensor]):
    y[1:] = x[1:]


@kernel(cpp_src="for (int64_t i = 1; i < y.shape(0); ++i) y[i] = x[i];")
def leaves_cpp(x: In[Tensor], y: Out[Tensor]): ...


@kernel
def write_beyond_py(x: In[Tensor], y: Out[Tensor]):
    y[...] = x
    np.lib.stride_tricks.as_strided(y, (len(y) + 1,), y.strides)[-1] = 0


@kernel(cpp_src="for (int64_t i = 0; i <= y.shape(0); ++i) y.data()[i] = 1;")
def write_beyond_cpp(x: In[Tensor], y: Out[Tensor]): ...


@kernel(
    cpp_src="""for (int64_t i = 0; i < y.shape(0); ++i) y[i] = x[i];
    y.data()[-1] = 3;"""
)
def write_before_cpp(x: In[Tensor], y: Out[Tensor]): ...


@kernel
def read_beyond_py(x: In[Tensor], y: Out[Tensor]):
    y[...] = np.lib.stride_tricks.as_strided(x, (len(x) + 1,), x.strides)[1:]


@kernel(cpp_src="for (int64_t i = 0; i < y.shape(0); ++i) y[i] = x.data()[i - 1];")
def read_before_cpp(x: In[Tensor], y: Out[Tensor]): ...


@kernel
def random_py(x: In[Tensor], y: Out[Tensor]):
    y[...] = np.random.default_rng().random(y.shape)


BROKEN = {
    in_writes_py: "x is declared In",
    in_sneaks_py: "writes x, which is declared In",
    in_writes_cpp: "writes x, which is declared In",
    out_reads_py: "reads y, which is declared Out",
    out_reads_cpp: "reads y, which is declared Out",
    leaves_py: "leaves elements of y",
    leaves_cpp: "leaves elements of y",
    write_beyond_py: "writes outside its regions: 0 bytes behind the end of y",
    write_beyond_cpp: "writes outside its regions: 0 bytes behind the end of y",
    write_before_cpp: "writes outside its regions: 8 bytes before y begins",
    read_beyond_py: "reads outside its regions",
    read_before_cpp: "reads outside its regions",
    random_py: "not deterministic",
}


def rows(body: Any, columns: slice = slice(0, 6)) -> Any:
    X = Tensor(data=np.arange(24.0).reshape(4, 6), name="X")
    Y = Tensor(data=np.zeros((4, 6)), name="Y")

    @workload
    def work(n):
        for i in P(n):
            body[i](X[i, columns], Y[i, columns])

    return work(DenseDyn(4)), X.data, Y.data


@pytest.mark.parametrize("columns", [slice(0, 6), slice(2, 4)], ids=str)
@pytest.mark.parametrize("body", BROKEN, ids=lambda body: body.name)
def test_a_kernel_that_does_what_it_does_not_say(target: str, body: Any, columns: slice) -> None:
    work, x, y = rows(body, columns)
    with pytest.raises(RaceError) as raised:
        compiled(target, work).execute()
    assert raised.value.code is Code.DECLARATION
    assert BROKEN[body] in str(raised.value)
    assert f"{body.name}[" in str(raised.value)
    assert raised.value.loc is not None
    assert raised.value.loc.file.endswith("test_verify.py")
    assert x.tolist() == np.arange(24.0).reshape(4, 6).tolist()
    assert not y.any()


@pytest.mark.parametrize("body", [copy_py, copy_cpp], ids=lambda body: body.name)
@pytest.mark.parametrize("verify", ["full", "schedule"])
def test_a_kernel_that_does_what_it_says(target: str, body: Any, verify: str) -> None:
    work, x, y = rows(body, slice(2, 4))
    program = compiled(target, work, verify).execute().execute()
    assert y[:, 2:4].tolist() == (2 * x)[:, 2:4].tolist()
    assert program.stats.tasks == 4


@kernel(
    cpp_src="""for (int64_t i = 0; i < y.shape(0); ++i)
    for (int64_t j = 0; j < y.shape(1); ++j) y(i, j) = x(i, j) + x(i, j + 1);"""
)
def next_column(x: In[Tensor], y: Out[Tensor]): ...


@kernel(
    cpp_src="""for (int64_t i = 0; i < y.shape(0); ++i)
    for (int64_t j = 0; j < y.shape(1); ++j) y(i, j) = x(i, j) + x(i + 1, j);"""
)
def next_row(x: In[Tensor], y: Out[Tensor]): ...


@pytest.mark.parametrize("width", [8, 5000])
@pytest.mark.parametrize("body", [next_column, next_row], ids=lambda body: body.name)
def test_a_kernel_that_reads_the_tile_beside_its_own(body: Any, width: int) -> None:
    """In a wide tensor the rows of a tile lie far apart."""
    X = Tensor(data=np.ones((8, width)), name="X")
    Y = Tensor(data=np.ones((8, width)), name="Y")

    @workload
    def tiles(n):
        for i, j in P(n, n):
            body[i, j](
                X[4 * i : 4 * i + 4, 4 * j : 4 * j + 4], Y[4 * i : 4 * i + 4, 4 * j : 4 * j + 4]
            )

    with pytest.raises(RaceError, match="reads outside its regions"):
        compiled("cpu_sim", tiles(DenseDyn(2))).execute()


@kernel(cpp_src="""for (int64_t i = 0; i < t.shape(0); ++i) y.data()[i] = t.data()[i];""")
def flat(t: In[Tensor], y: Out[Tensor]): ...


@kernel(cpp_src="for (int64_t i = 1; i < x.shape(0); ++i) y[i] += x[i - 1];")
def running(x: In[Tensor], y: InOut[Tensor]): ...


def test_what_a_kernel_may_do() -> None:
    """Rows that lie together do so under verify, too; and one region under two names is one."""
    X = Tensor(data=np.arange(12.0).reshape(3, 4), name="X")
    Y = Tensor(data=np.zeros((3, 4)), name="Y")
    Z = Tensor(data=np.ones(6), name="Z")

    @workload
    def work(n):
        for i in P(n):
            flat[i](X[i], Y[i])
        running(Z[0:6], Z[0:6])
        running(Z[0:5], Z[1:6])

    compiled("cpu_sim", work(DenseDyn(3))).execute()
    expected = np.ones(6)
    for i in range(1, 6):
        expected[i] += expected[i - 1]
    for i in range(1, 5):
        expected[1 + i] += expected[i - 1]
    assert Z.data.tolist() == expected.tolist()
    assert Y.data.tolist() == X.data.tolist()


# --- promises that do not hold ---


@kernel
def bump_py(x: InOut[Tensor]):
    x[...] = x * 3 + 1


@kernel(cpp_src="for (int64_t i = 0; i < x.shape(0); ++i) x[i] = x[i] * 3 + 1;")
def bump_cpp(x: InOut[Tensor]): ...


BUMPS = pytest.mark.parametrize("bump", [bump_py, bump_cpp], ids=lambda body: body.name)


def shifted(bump: Any) -> Any:
    X = Tensor(data=np.zeros(12), name="X")

    @workload
    def work(n):
        for i in P(n):
            bump[i](X[2 * i : 2 * i + 4])

    return work(DenseDyn(5))


@BUMPS
def test_exact_matching_of_shifted_tiles(target: str, bump: Any) -> None:
    with pytest.raises(RaceError, match="nothing orders them") as raised:
        compiled(target, shifted(bump), deps=EXACT).execute()
    error = raised.value
    assert (error.code, error.total, len(error.pairs)) == (Code.RACE, 4, 4)
    pair = error.pairs[0]
    assert (pair.first.kernel, pair.first.indices, pair.first.region) == (bump.name, (0,), "X[0:4]")
    assert (pair.second.indices, pair.second.region) == ((1,), "X[2:6]")
    assert pair.first.loc is not None
    assert pair.first.loc.file.endswith("test_verify.py")
    assert str(pair.second.loc.line) in str(error)
    assert "read after write" in str(error)


@BUMPS
@pytest.mark.parametrize("deps", [Deps.auto(), Deps.hybrid(), Deps.infer_bytes_overlap()], ids=str)
def test_complete_policies_order_shifted_tiles(target: str, bump: Any, deps: Deps) -> None:
    for verify in ("full", "schedule"):
        compiled(target, shifted(bump), verify, deps=deps).execute()


def ordered(bump: Any, how: str) -> Any:
    """Two calls on the same row in each iteration, and one behind them all."""
    X = Tensor(data=np.zeros((4, 2)), name="X")

    @workload
    def work(n):
        for i in P.seq(n) if how == "seq" else P(n):
            h = bump[i](X[i])
            second = bump[i](X[i], after=None if how == "missing" else h)
        if how == "all":
            bump(X[2], after=second)
        if how == "first":
            bump(X[2], after=h)
        if how == "one":
            bump(X[2], after=second[2])
        if how == "other":
            bump(X[2], after=second[1])

    return work(DenseDyn(4))


@BUMPS
@pytest.mark.parametrize(
    ("how", "missing"),
    [("after", 0), ("all", 0), ("one", 0), ("missing", 4), ("first", 1), ("other", 1), ("seq", 0)],
)
def test_explicit_with_an_edge_missing(target: str, bump: Any, how: str, missing: int) -> None:
    program = compiled(target, ordered(bump, how), deps=EXPLICIT)
    if missing == 0:
        program.execute()
        return
    with pytest.raises(RaceError) as raised:
        program.execute()
    assert raised.value.total == missing


def test_a_hundred_pairs_are_shown_and_all_are_counted() -> None:
    X = Tensor(data=np.zeros(1), name="X")

    @workload
    def work(n):
        for i in P(n):
            bump_cpp[i](X)

    program = compiled("cpu_sim", work(DenseDyn(500)), deps=EXPLICIT)
    with pytest.raises(RaceError, match="499 pairs of tasks") as raised:
        program.execute()
    assert (raised.value.total, len(raised.value.pairs)) == (499, 100)
    assert "and 399 more" in str(raised.value)
    program.execute(n=1)


@kernel(cpp_src="y[0] += 1;")
def update(y: Accum[Tensor]): ...


@kernel(cpp_src="y[0] = x[0];")
def look(x: In[Tensor], y: Out[Tensor]): ...


def test_updates_commute() -> None:
    X = Tensor(data=np.zeros(2), name="X")
    Y = Tensor(data=np.zeros(2), name="Y")

    @workload
    def work(n):
        for i in P(n):
            h = update[i](X[0:1])
        look(X[0:1], Y[0:1], after=h)

    for verify in ("full", "schedule"):
        compiled("cpu_sim", work(DenseDyn(20)), verify, deps=EXPLICIT).execute()
    assert Y.data[0] == 40

    @workload
    def early(n):
        for i in P(n):
            h = update[i](X[0:1])
        look(X[0:1], Y[0:1], after=h[3])

    with pytest.raises(RaceError, match="read after write") as raised:
        compiled("cpu_sim", early(DenseDyn(20)), deps=EXPLICIT).execute()
    assert raised.value.total == 19


def test_temporaries_tokens_and_control() -> None:
    """Each iteration has a temporary of its own; a token orders; control waits."""
    X = Tensor(data=np.zeros((4, 2)), name="X")
    Z = Tensor(data=np.zeros(4, np.int64), name="Z")
    T = Token((1,), name="T")

    @kernel(cpp_src="z[0] = s;")
    def number(z: Out[Tensor], s: Scalar[DType.I64]): ...

    @kernel
    def with_token(x: InOut[Tensor], t: InOut[Token]):
        x[...] += 1

    @workload
    def work(n, ordered):
        for i in P(n):
            t = Tensor.temp((2,), DType.F64)
            h = copy_cpp[i](X[i], t)
            copy_cpp[i](t, X[i], after=h)
            number[i](Z[i : i + 1], i)
            slot_load_u64(0, Z[i])
            number[i](Z[i : i + 1], slot_u64(0) + 1)
            with_token[i](X[i], T[0], after=None)

    with pytest.raises(RaceError) as raised:
        compiled("cpu_sim", work(DenseDyn(4), 0), deps=EXPLICIT).execute()
    # copy to X, then with_token; and with_token one after the other.
    found = {(p.first.kernel, p.second.kernel, p.first.region) for p in raised.value.pairs}
    assert ("with_token", "with_token", "T[0]") in found
    assert not any(pair.first.kernel == "number" for pair in raised.value.pairs)
    compiled("cpu_sim", work(DenseDyn(4), 0)).execute()
    compiled("cpu_sim", work(DenseDyn(4), 0), "schedule").execute()


@kernel(cpp_src="for (int64_t i = 0; i < k.shape(0); ++i) k[i] = k[i] + 1;")
def append(k: InOut[Tensor]): ...


@kernel
def total_py(k: In[PagedTensor], y: Out[Tensor]):
    y[...] = k.sum()


@kernel(
    cpp_src="""y[0] = 0;
    for (int64_t i = 0; i < k.shape(0); ++i) y[0] += k(i);"""
)
def total_cpp(k: In[PagedTensor], y: Out[Tensor]): ...


@kernel(
    cpp_src="""y[0] = 0;
    for (int64_t i = 0; i <= k.shape(0); ++i) y[0] += k(i);"""
)
def total_too_far(k: In[PagedTensor], y: Out[Tensor]): ...


def paged(body: Any, table: list[list[int]]) -> Any:
    pool = Tensor(data=np.arange(16.0).reshape(4, 4), name="pool")
    K = PagedTensor(pool, Tensor(data=np.array(table, np.int32), name="table"), page=4)
    Y = Tensor(data=np.zeros((2, 1)), name="Y")

    @workload
    def work(n):
        for s in P(n):
            append[s](K[s, 5:6])
            body[s](K[s, 0:6], Y[s])

    return work(DenseDyn(2)), Y.data


@pytest.mark.parametrize("body", [total_py, total_cpp], ids=lambda body: body.name)
def test_pages(target: str, body: Any) -> None:
    for verify in ("full", "schedule"):
        work, y = paged(body, [[2, 0], [1, 3]])
        compiled(target, work, verify).execute()
        assert y[:, 0].tolist() == [8 + 9 + 10 + 11 + 0 + 2, 4 + 5 + 6 + 7 + 12 + 14]
    work, _ = paged(body, [[2, 0], [1, 3]])
    with pytest.raises(RaceError) as raised:
        compiled(target, work, deps=EXACT).execute()
    assert raised.value.total == 2


def test_tokens_beyond_those_that_were_passed() -> None:
    work, _ = paged(total_too_far, [[2, 0], [1, 3]])
    with pytest.raises(RaceError, match="reads outside its regions"):
        compiled("cpu_sim", work).execute()


def test_pages_that_two_sequences_share() -> None:
    """Tokens are compared by their numbers, so no policy sees that both append to one page."""
    work, _ = paged(total_cpp, [[2, 0], [1, 0]])
    with pytest.raises(RaceError, match="same page") as raised:
        compiled("cpu_sim", work).execute()
    assert raised.value.total > 0


def test_tensors_that_share_memory() -> None:
    """By bytes: every other element of an array, and those between."""
    memory = np.zeros(16)
    even, odd = (Tensor(data=memory[k::2], name=name) for k, name in enumerate(("even", "odd")))
    tail = Tensor(data=memory[4:], name="tail")

    @workload
    def apart(n):
        for i in P(n):
            bump_cpp[i](even[i : i + 1])
            bump_cpp[i](odd[i : i + 1])

    @workload
    def together(n):
        for i in P(n):
            bump_cpp[i](even[i : i + 1])
            bump_cpp[i](tail[i : i + 1])

    for deps in (EXPLICIT, EXACT, Deps.auto()):
        compiled("cpu_sim", apart(DenseDyn(8)), deps=deps).execute()
    with pytest.raises(RaceError) as raised:
        compiled("cpu_sim", together(DenseDyn(8)), deps=EXPLICIT).execute()
    assert raised.value.total == 4  # even[k] is tail[2 * k - 4]
    compiled("cpu_sim", together(DenseDyn(8))).execute()


# --- what a run did ---


@kernel
def slow(x: InOut[Tensor]):
    time.sleep(0.002)
    x[...] = x * 3 + 1


def test_a_schedule_that_broke_a_promise() -> None:
    """One worker that takes the newest ready task runs them backwards."""
    X = Tensor(data=np.zeros(12), name="X")

    @workload
    def work(n):
        for i in P(n):
            slow[i](X[2 * i : 2 * i + 4])

    backwards = {"ready": ReadyPolicy.work_steal(), "start": StartPolicy.after_orchestration()}
    wrong = work(DenseDyn(5)).task_graph(deps=EXACT, **backwards)
    program = wrong.compile(verify="schedule", num_threads=1)
    with pytest.raises(RaceError, match="ran in the wrong order") as raised:
        program.execute()
    assert raised.value.total == 4
    assert "on worker 0 until" in str(raised.value)
    assert raised.value.pairs[0].second.region == "X[2:6]"
    program.execute_async()
    with pytest.raises(RaceError):
        program.synchronize()
    work(DenseDyn(5)).task_graph(**backwards).compile(verify="schedule", num_threads=1).execute()


def test_a_trace_that_is_not_complete(target: str) -> None:
    work, _, _ = rows(copy_cpp)
    short = compiled(target, work, "schedule", trace=TracePolicy.timestamps(capacity=1))
    with pytest.raises(ExecutionError, match="has lost") as raised:
        short.execute()
    assert raised.value.code is Code.VERIFY
    assert "capacity=4" in str(raised.value)
    assert len(compiled(target, work, "schedule").execute().trace) == 4


def test_verify_is_full_schedule_or_nothing(target: str) -> None:
    work, _, _ = rows(copy_cpp)
    with pytest.raises(CompileError, match="verify='some'") as raised:
        compiled(target, work, "some")
    assert raised.value.code is Code.TARGET_OPTION
    plan = work.compile(target=target, verify=None).plan
    Program.from_plan(plan, target=target, verify="full")
    with pytest.raises(CompileError, match="verify=True"):
        Program.from_plan(plan, target=target, verify=True)


def test_instances_and_queued_runs_are_verified() -> None:
    work, x, y = rows(copy_cpp)
    program = compiled("cpu_sim", work)
    program.execute_async().execute_async().synchronize()
    assert y.tolist() == (2 * x).tolist()
    broken, _, _ = rows(in_writes_cpp)
    with pytest.raises(RaceError):
        compiled("cpu_sim", broken).instance().execute()
