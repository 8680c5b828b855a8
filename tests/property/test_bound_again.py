"""One program for many runs gives what a new program gives for each: lengths, page tables and
arrays change in place or for others, temporaries grow and shrink, tensors come to share memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pto_wsp import (
    DenseDyn,
    DispatchPolicy,
    DType,
    ExecutionError,
    In,
    Interleaved,
    Out,
    P,
    PagedTensor,
    Program,
    Scalar,
    Tensor,
    TracePolicy,
    Workload,
    kernel,
    maximum,
    minimum,
    reduce_sum,
    search,
    select,
    workload,
)

# The parameters of a workload are symbols while it is traced.
# pyright: basic

SEQUENCES, PAGES, PAGE, POOL = 5, 4, 4, 24
Ints = npt.NDArray[np.int64]


@kernel(
    cpp_src="""
    int64_t sum = 1;
    for (int64_t i = 0; i < k.shape(0); ++i) sum = sum * 31 % 1000003 + k(i) * w(0);
    part(0) = sum;
    """
)
def partial(k: In[PagedTensor], w: In[Tensor], part: Out[Tensor]): ...


@kernel(
    cpp_src="""
    int64_t sum = n;
    for (int64_t i = 0; i < parts.shape(0); ++i) sum = sum * 17 % 1000003 + parts(i);
    out(0) = sum;
    """
)
def merge(parts: In[Tensor], out: Out[Tensor], n: Scalar[DType.I64]): ...


def _ceil(size, by):
    return (size + by - 1) // by


@workload
def folded(batch, lens, blocks, k, w, out):
    """Each sequence is cut into chunks of a size that all lengths decide."""

    def fits(size):
        return reduce_sum(w.shape[0], lambda b: _ceil(lens[b], size)) <= blocks

    total = reduce_sum(w.shape[0], lambda b: lens[b])
    size = select(fits(2), 2, search(3, maximum(total, 3), fits))
    for b in P(batch):
        with P.when(lens[b] > 0):
            chunks = _ceil(lens[b], size)
            parts = Tensor.temp((chunks,), DType.I64)
            for c in P(chunks):
                span = slice(c * size, minimum((c + 1) * size, lens[b]))
                partial[b, c](k[b, span], w[b : b + 1], parts[c : c + 1])
            merge[b](parts, out[b : b + 1], lens[b])


@dataclass
class Values:
    """What is bound."""

    lens: Ints
    table: npt.NDArray[np.int32]
    pool: Ints
    w: Ints
    out: Ints
    blocks: int = 8

    def wanted(self) -> Ints:
        def fits(size: int) -> bool:
            return sum(-(-n // size) for n in self.lens.tolist()) <= self.blocks

        largest = max(int(self.lens.sum()), 3)
        size = 2 if fits(2) else next((s for s in range(3, largest) if fits(s)), largest)
        found = self.out.copy()
        w, pool = self.w.copy(), self.pool.copy()
        for b, n in enumerate(self.lens.tolist()):
            tokens = [int(pool[self.table[b, t // PAGE], t % PAGE]) for t in range(n)]
            result = n
            for at in range(0, n, size):
                part = 1
                for token in tokens[at : min(at + size, n)]:
                    part = part * 31 % 1000003 + token * int(w[b])
                result = result * 17 % 1000003 + part
            if n > 0:
                found[b] = result
        return found

    def named(self) -> dict[str, Any]:
        return {
            "lens": self.lens,
            "blocks": self.blocks,
            "k_pool": self.pool,
            "k_table": self.table,
            "w": self.w,
            "out": self.out,
        }


def make() -> Values:
    rng = np.random.default_rng(0)
    table = rng.integers(0, POOL, (SEQUENCES, PAGES)).astype(np.int32)
    pool = rng.integers(0, 1000, (POOL, PAGE))
    w = rng.integers(1, 9, SEQUENCES)
    return Values(np.array([3, 0, 8, 1, 16]), table, pool, w, np.zeros(SEQUENCES, np.int64))


def work(values: Values) -> Workload:
    return folded(
        DenseDyn(SEQUENCES),
        values.lens,
        Scalar(values.blocks),
        PagedTensor(values.pool, values.table),
        Tensor(data=values.w),
        Tensor(data=values.out),
    )


def plain(of: Workload) -> Workload:
    return of


def in_turns(of: Workload) -> Workload:
    placed = of.dispatch(DispatchPolicy.affinity(lambda t: t.batch))
    return placed.order(batch=Interleaved(2)).task_graph(trace=TracePolicy.timestamps(capacity=256))


@pytest.fixture(scope="module", params=[(plain, 1), (plain, 2), (in_turns, 2)])
def program(request: pytest.FixtureRequest) -> Iterator[Program]:
    schedule, threads = request.param
    with schedule(work(make())).compile(num_threads=threads) as made:
        yield made


LENGTHS = st.lists(st.integers(0, PAGES * PAGE), min_size=SEQUENCES, max_size=SEQUENCES)
SMALL = st.integers(0, POOL - 1)


def _other(array: npt.NDArray[Any], how: int) -> npt.NDArray[Any]:
    """The same numbers elsewhere: next to each other, apart, or backwards."""
    room = np.zeros((*array.shape, 3), array.dtype)
    found = (np.empty_like(array), room[..., 1], room[::-1, ..., 0])[how]
    found[...] = array
    return found


@st.composite
def changes(draw: st.DrawFn) -> list[tuple[str, Any]]:
    kinds = {
        "nothing": st.none(),
        "lens in place": LENGTHS,
        "one length in place": st.tuples(st.integers(0, SEQUENCES - 1), st.integers(0, 16)),
        "other lens": st.tuples(LENGTHS, st.integers(0, 2)),
        "table in place": st.tuples(st.integers(0, SEQUENCES - 1), st.integers(0, 3), SMALL),
        "other table": st.integers(0, 2),
        "pool in place": SMALL,
        "other pool": st.integers(0, 2),
        "other w": st.integers(0, 2),
        "other out": st.integers(0, 2),
        "blocks": st.integers(5, 30),
    }
    names = draw(st.lists(st.sampled_from(sorted(kinds)), min_size=1, max_size=12))
    return [(name, draw(kinds[name])) for name in names]


def _change(values: Values, kind: str, how: Any) -> None:
    match kind:
        case "lens in place":
            values.lens[:] = how
        case "one length in place":
            values.lens[how[0]] = how[1]
        case "other lens":
            values.lens = _other(np.array(how[0]), how[1])
        case "table in place":
            values.table[how[0], how[1]] = how[2]
        case "other table":
            values.table = _other(values.table, how)
        case "pool in place":
            values.pool[how] += 1
        case "other pool":
            values.pool = _other(values.pool, how)
        case "other w":
            values.w = _other(values.w, how)
        case "other out":
            values.out = _other(values.out, how)
        case "blocks":
            values.blocks = how
        case _:
            pass


@settings(max_examples=40)
@given(steps=changes())
def test_runs_see_what_has_changed(program: Program, steps: list[tuple[str, Any]]) -> None:
    values = make()
    program.execute(**values.named())
    for kind, how in steps:
        _change(values, kind, how)
        wanted = values.wanted()
        program.execute(**values.named())
        assert values.out.tolist() == wanted.tolist(), kind
        assert program.stats.tasks == program.num_tasks()  # which are counted anew


def test_changes_in_place_without_naming_anything(program: Program) -> None:
    values = make()
    program.execute(**values.named())
    for lens in ([1, 1, 1, 1, 1], [16, 16, 16, 16, 16], [0, 0, 0, 0, 0], [16, 0, 0, 0, 2]):
        values.lens[:] = lens
        values.table[:] = (values.table + 5) % POOL
        values.pool[:] += 3
        wanted = values.wanted()
        program.execute()
        assert values.out.tolist() == wanted.tolist()


def test_what_was_proved_is_proved_again(program: Program) -> None:
    """Lengths and pages that were legal a run ago are refused, and the program goes on."""
    values = make()
    program.execute(**values.named())
    values.lens[2] = PAGES * PAGE + 1
    with pytest.raises(ExecutionError, match="outside its extent"):
        program.execute()
    values.lens[2] = 9
    program.execute()
    assert values.out.tolist() == values.wanted().tolist()
    values.table[4, 1] = POOL
    with pytest.raises(ExecutionError, match="outside the pool"):
        program.execute()
    values.table[4, 1] = 0
    program.execute()
    assert values.out.tolist() == values.wanted().tolist()


def test_memory_that_comes_to_be_shared(program: Program) -> None:
    """The table of pages and the lengths must not lie where tasks write."""
    values = make()
    program.execute(**values.named())
    for name in ("lens", "k_table"):
        shared = getattr(values, name.removeprefix("k_"))
        with pytest.raises(ExecutionError, match="shares memory"):
            program.execute(out=shared.view(np.int64).reshape(-1)[:SEQUENCES])
        program.execute(out=values.out)
        assert values.out.tolist() == values.wanted().tolist()


def test_other_dtypes_and_ranks_are_refused(program: Program) -> None:
    values = make()
    program.execute(**values.named())
    for name, value in (
        ("w", values.w.astype(np.int32)),
        ("k_table", values.table.astype(np.int64)),
        ("k_pool", values.pool[0]),
        ("lens", values.lens.astype(np.float64)),
    ):
        with pytest.raises(ExecutionError):
            program.execute(**{name: value})
    program.execute()
    assert values.out.tolist() == values.wanted().tolist()


def test_shapes_that_are_changed_in_place(program: Program) -> None:
    values = make()
    values.w = values.w.reshape(SEQUENCES, 1)[:, 0].copy()
    program.execute(**values.named())
    strided = np.zeros(2 * SEQUENCES, np.int64)
    strided[::2] = values.w
    values.w = strided[::2]
    program.execute(w=values.w)
    assert values.out.tolist() == values.wanted().tolist()
    values.out.resize(SEQUENCES + 2, refcheck=False)
    values.out[:] = 0
    wanted = values.wanted()
    program.execute()
    assert values.out.tolist() == wanted.tolist()
