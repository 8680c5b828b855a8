"""`fit`: the size of AUTO tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pto_wsp import (
    AUTO,
    DYNAMIC,
    CompileError,
    DenseDyn,
    DType,
    In,
    InOut,
    P,
    Ragged,
    Scalar,
    Space,
    Tensor,
    axis,
    kernel,
    launch,
    reduce_sum,
    workload,
)
from pto_wsp.error_codes import Code

ROOM = 1000


@kernel(cpp_src="for (int64_t i = 0; i < y.shape(0); ++i) y(i) += s;")
def add(y: InOut[Tensor], s: Scalar[DType.I64]): ...


@kernel(cpp_src="for (int64_t i = 0; i < x.shape(0); ++i) y(i) = x(i);")
def copy(x: In[Tensor], y: InOut[Tensor]): ...


def made(start: int = 0) -> Space:
    space = Space("fitted", b=axis(0, "n"), kv=axis(start, DYNAMIC, tile=AUTO))

    @space.generator
    def generate(s: Any, out: Any, lens: Any, blocks: Any, least: Any) -> None:
        size = s.kv.fit(blocks, lens, s.b.end, least)
        copy(out[0, 0:1], out[0, 0:1])
        for b in P(s.b):
            with P.when(lens[b] > start):
                for t in P(s.kv(lens[b])):
                    s.emit(add, out[b, t.slice], 1, fields={"size": size})

    return space


SPACES = {start: made(start) for start in (0, 7, 100)}


def fitted(rows: list[int], blocks: int, least: int) -> int:
    """The smallest size, tried one by one."""
    longest = max([*rows, 0])
    for size in range(least, max(longest, least)):
        if sum(-(-n // size) for n in rows) <= blocks:
            return size
    return max(longest, least)


def check(lens: list[int], blocks: int, least: int, start: int, target: str = "cpu_sim") -> int:
    out = np.zeros((max(len(lens), 1), ROOM))
    program = launch(
        SPACES[start],
        out=out,
        lens=np.array(lens, np.int64),
        blocks=blocks,
        least=least,
        n=len(lens),
        target=target,
    )
    rows = [max(n - start, 0) for n in lens]
    size = fitted(rows, blocks, least)
    tasks = program.descriptors()[1:]
    assert set(tasks["size"].tolist()) <= {size}
    assert len(tasks) == sum(-(-n // size) for n in rows)
    assert out.sum(axis=1)[: len(rows)].tolist() == rows
    return size


@pytest.mark.parametrize("target", ["cpu_sim", "reference"])
@pytest.mark.parametrize(
    ("lens", "blocks", "least", "start", "size"),
    [
        ([110, 120], 4, 1, 100, 10),  # from the start of the axis on
        ([90, 120, 100], 4, 1, 100, 5),  # rows that end before it have no element
        ([0, 0, 0], 4, 256, 0, 256),  # no work
        ([], 4, 256, 0, 256),
        ([110, 120], 4, 256, 0, 256),  # `least` beyond all lengths
        ([700, 5, 9], 2, 16, 0, 700),  # a row is a tile at least
        ([700, 0, 9], 2, 16, 0, 700),
        ([700, 5, 9], 0, 16, 0, 700),
        ([700, 5, 9], -1, 1, 0, 700),
        ([700, 5, 9], 3, 1, 0, 700),
        ([700, 5, 9], 4, 1, 0, 350),
        ([3, 3], 0, 256, 0, 256),
    ],
)
def test_sizes(
    lens: list[int], blocks: int, least: int, start: int, size: int, target: str
) -> None:
    assert check(lens, blocks, least, start, target) == size


@given(
    st.lists(st.integers(0, 200), max_size=6),
    st.integers(-2, 60),
    st.integers(1, 40),
    st.sampled_from(sorted(SPACES)),
)
def test_any_lengths(lens: list[int], blocks: int, least: int, start: int) -> None:
    check(lens, blocks, least, start)


def test_lengths_of_a_ragged_axis() -> None:
    space = Space("ragged", kv=axis(0, DYNAMIC, tile=AUTO))

    @space.generator
    def generate(s: Any, rows: Any, lens: Any, out: Any) -> None:
        s.kv.fit(5, lens, 3, least=1)
        for b in P(rows):
            for t in P(s.kv(lens[b])):
                s.emit(add, out[b, t : t + 1], t.size)

    out, rows = np.zeros((3, 8)), DenseDyn(3)
    program = launch(space, rows=rows, lens=Ragged(rows, [9, 1, 4]), out=out)
    assert out.sum(axis=1).tolist() == [9, 1, 4]
    assert program.stats.tasks == 5


def _fit_of(lens: Any, *more: Any) -> None:
    space = Space("fitted", kv=axis(0, DYNAMIC, tile=AUTO))

    @space.generator
    def generate(s: Any, lens: Any) -> None:
        s.kv.fit(4, lens, 2, *more)

    launch(space, lens=lens)


@pytest.mark.parametrize(
    ("lens", "more", "what"),
    [
        (Tensor(data=np.array([1, 2])), (), "kv.fit(...) of lengths that are a tensor"),
        (np.array([1.0, 2.0]), (), "kv.fit(...) of lengths that are f64"),
        (np.array([[1, 2]]), (), "kv.fit(...) of lengths that are a tensor"),
        (3, (), "kv.fit(...) of lengths that are an integer"),
        (np.array([1, 2]), (0,), "kv.fit(...) with least=0"),
        (np.array([1, 2]), (-3,), "kv.fit(...) with least=-3"),
        (np.array([1, 2]), (True,), "kv.fit(...) with least=True"),
    ],
)
def test_what_is_not_fitted(lens: Any, more: tuple[Any, ...], what: str) -> None:
    with pytest.raises(CompileError) as caught:
        _fit_of(lens, *more)
    assert caught.value.message == what
    assert caught.value.code is Code.SPACE
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__


def test_a_tensor_inside_a_reduction() -> None:
    @workload
    def work(lens: Any, out: Any) -> None:
        for _ in P(reduce_sum(2, lambda i: lens[i])):
            add(out, 1)

    with pytest.raises(CompileError, match="tensor lens is read inside a reduction") as caught:
        work(Tensor(data=np.array([1, 2])), Tensor(data=np.zeros(1))).compile()
    assert caught.value.code is Code.UNTRACEABLE
    assert "without Tensor" in (caught.value.fix or "")


def test_an_element_that_a_reduction_does_not_choose() -> None:
    out = np.zeros(1)

    @workload
    def work(n: Any, lens: Any, out: Any) -> None:
        for _ in P(reduce_sum(2, lambda i: lens[i] * n[0])):
            add(out, 1)

    arrays = Tensor(data=np.array([3])), np.array([1, 2]), Tensor(data=out)
    work(*arrays).compile().execute()
    assert out[0] == 9
