"""Work descriptors: what the tasks of a program are, before any of them runs."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pto_wsp import (
    DYNAMIC,
    CompileError,
    DenseDyn,
    DType,
    ExecutionError,
    Out,
    P,
    Scalar,
    Space,
    Tensor,
    Workspace,
    axis,
    default,
    kernel,
    select_tier,
    slot_set_u64,
    tier,
    tiers,
    workload,
)

ABSENT = 0xFFFF_FFFF


@kernel(cpp_src="y[0] = 1;")
def short(y: Out[Tensor], s: Scalar[DType.I64]): ...


@kernel(cpp_src="y[0] = 2;")
def long(y: Out[Tensor], s: Scalar[DType.I64]): ...


variants = tiers("variants", tier(lambda n: n <= 5, short), default(long))
space = Space("work", batch=axis(0, "batch_size"), kv=axis(0, DYNAMIC, tile=4), head=axis(2, 5))


@space.generator
def generate(s: Any, out: Any, lens: Any) -> None:
    for b in P(s.batch):
        for c in P(s.kv(lens[b])):
            for h in P(s.head):
                selected = select_tier(variants, lens[b])
                fields = {"start": c.start, "stop": c.stop, "which": selected.index}
                s.emit(selected, out[b, c, h : h + 1], c.start, fields=fields)
    for b in P(s.batch):
        short(out[b, 0, 0:1], b)


def compiled(lens: npt.NDArray[np.int64], target: str) -> Any:
    out = Tensor(data=np.zeros((len(lens), 16, 8)))
    return generate(out, lens, batch_size=len(lens)).compile(target=target)


def expected(lens: npt.NDArray[np.int64]) -> list[tuple[int, ...]]:
    rows: list[tuple[int, ...]] = []
    for b, n in enumerate(int(each) for each in lens):
        which = 0 if n <= 5 else 1
        for c in range(-(-n // 4)):
            bounds = 4 * c, min(4 * c + 4, n), which
            rows += [(which, b, c, h, which, *bounds) for h in range(2, 5)]
    nothing = (ABSENT,) * 6
    return rows + [(0, b, *nothing) for b in range(len(lens))]


def test_rows(target: str) -> None:
    lens = np.array([3, 0, 9, 5])
    found = compiled(lens, target).descriptors()
    names = ("kernel", "batch", "kv", "head", "tier", "start", "stop", "which")
    assert found.dtype.names == names
    assert found.tolist() == expected(lens)
    assert found.dtype.itemsize == 32


@functools.cache
def any_target() -> list[Any]:
    return [compiled(np.array([1]), target) for target in ("cpu_sim", "reference")]


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6))
def test_any_lengths(lens: list[int]) -> None:
    array, out = np.array(lens), np.zeros((len(lens), 16, 8))
    for program in any_target():
        rows = program.descriptors(lens=array, out=out, batch_size=len(lens))
        assert rows.tolist() == expected(array)


def test_new_values_need_no_compile(target: str) -> None:
    program = compiled(np.array([3, 0, 9, 5]), target)
    lens, out = np.array([17, 2]), np.zeros((2, 16, 8))
    again = program.descriptors(lens=lens, out=out, batch_size=2)
    assert again.tolist() == expected(lens)


def test_rows_are_the_tasks_that_run() -> None:
    lens = np.array([3, 0, 9, 5])
    program = compiled(lens, "cpu_sim").execute()
    assert program.stats.tasks == len(program.descriptors())


def test_a_number_that_does_not_fit(target: str) -> None:
    narrow = Space("narrow", row=axis(0, 3))

    @narrow.generator
    def bad(s: Any, out: Any) -> None:
        for i in P(s.row):
            s.emit(short, out[i : i + 1], i, fields={"back": 1 - i})

    program = bad(Tensor(data=np.zeros(3))).compile(target=target)
    with pytest.raises(ExecutionError, match="descriptor field 'back' is -1") as caught:
        program.descriptors()
    assert "short[2]" in caught.value.message
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__
    program.execute()  # nothing but looking at it is affected


def test_tasks_that_depend_on_data(target: str) -> None:
    n = Tensor(data=np.array([2]))

    @kernel(cpp_src="y[0] = 3;")
    def count(y: Out[Tensor]): ...

    @workload
    def grow() -> None:
        count(n[0:1])
        for i in P(n[0]):
            short[i](Y[i : i + 1], i)

    Y = Tensor(data=np.zeros(4))
    with pytest.raises(CompileError, match="depends on data"):
        grow().compile(target=target).descriptors()


def test_temporaries_of_tasks_that_depend_on_data(target: str) -> None:
    n = Tensor(data=np.array([2]))

    @workload
    def grow() -> None:
        for i in P(n[0]):
            T = Tensor.temp((8,), DType.F64)
            short[i](T[0:1], i)

    with pytest.raises(CompileError, match="depends on data") as caught:
        grow().compile(target=target).descriptors()
    assert "TracePolicy.timestamps()" in (caught.value.fix or "")
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__


def test_workspace() -> None:
    """Offsets are multiples of what a copy takes, and copies come round."""

    @workload
    def temps(rows: Any) -> None:
        for i in P(rows):
            T = Tensor.temp((8,), DType.F64)
            short[i](T[0:1], i)
            long[i](T[1:2], i)

    found = temps(DenseDyn(100)).compile(num_threads=2).descriptors()
    offsets = found["workspace"].reshape(100, 2)
    assert (offsets[:, 0] == offsets[:, 1]).all()
    assert (offsets % 64 == 0).all()
    copies = len(np.unique(offsets))
    assert 2 <= copies < 100
    assert (offsets[copies:] == offsets[:-copies]).all()


@kernel(cpp_src="y[0] = 3; workspace[0] = 3;")
def roomy(y: Out[Tensor], s: Scalar[DType.I64], workspace: Out[Tensor]): ...


def test_tasks_of_one_tier_take_its_copies_in_turn() -> None:
    """Whether a tier has a whole loop of tasks at a time or one now and then."""
    mixed = tiers(
        "mixed",
        tier(lambda n: n < 3, roomy, Workspace((20,), DType.F64)),
        tier(lambda n: n < 6, short),
        default(roomy, Workspace((100,), DType.F64)),
    )
    work = Space("work", batch=axis(0, "batch_size"), row=axis(0, 40))

    @work.generator
    def by_loop(s: Any, out: Any, lens: Any) -> None:
        for b in P(s.batch):
            selected = select_tier(mixed, lens[b])
            for r in P(s.row):
                s.emit(selected, out[b, r : r + 1], r)
        for b in P(s.batch):
            for r in P(s.row):
                s.emit(select_tier(mixed, lens[b] + r % 2), out[b, r : r + 1], r)

    lens = np.array([1, 7, 2, 4, 9, 2])
    made = by_loop(Tensor(data=np.zeros((6, 40))), lens, batch_size=6)
    with made.compile(num_threads=2) as program:
        rows = program.descriptors()
        program.execute()
        assert program.stats.tasks == len(rows) == 480
    wanted = [n for n in lens for _ in range(40)] + [n + r % 2 for n in lens for r in range(40)]
    assert rows["tier"].tolist() == [0 if n < 3 else 1 if n < 6 else 2 for n in wanted]
    assert (rows["workspace"][rows["tier"] == 1] == 2**64 - 1).all()
    # A call in a loop is a site, and each site has copies of its own.
    for part in (rows[:240], rows[240:]):
        for number, size in ((0, 20 * 8), (2, 100 * 8)):
            offsets = part["workspace"][part["tier"] == number].astype(np.int64)
            size = -(-size // 64) * 64
            first = offsets.min()
            copies = int((offsets.max() - first) // size) + 1
            turns = (offsets - first) // size
            assert (turns == (turns[0] + np.arange(len(turns))) % copies).all()


def test_only_rows_that_are_there_have_to_fit(target: str) -> None:
    some = Space("some", row=axis(0, 5), where=lambda row: row <= 2)
    high = Space("high", row=axis(0, 5), where=lambda row: row >= 2)

    @some.generator
    def down(s: Any, out: Any) -> None:
        for i in P(s.row):
            s.emit(short, out[i : i + 1], i, fields={"left": 2 - i, "square": (2 - i) * i})

    @high.generator
    def up(s: Any, out: Any) -> None:
        for i in P(s.row):
            s.emit(short, out[i : i + 1], i, fields={"above": i - 3})

    out = Tensor(data=np.zeros(5))
    rows = down(out).compile(target=target).descriptors()
    assert rows["left"].tolist() == [2, 1, 0]
    assert rows["square"].tolist() == [0, 1, 0]
    with pytest.raises(ExecutionError, match=r"'above' is -1.* in short\[2\]"):
        up(out).compile(target=target).descriptors()


def test_a_number_that_fits_no_more_in_the_middle_of_a_loop(target: str) -> None:
    rows = Space("rows", row=axis(0, 3000))

    @rows.generator
    def bad(s: Any, out: Any) -> None:
        for i in P(s.row):
            s.emit(short, out[i : i + 1], i, fields={"back": 2000 - i})

    with pytest.raises(ExecutionError, match=r"'back' is -1.* in short\[2001\]"):
        bad(Tensor(data=np.zeros(3000))).compile(target=target).descriptors()


def test_a_program_without_calls_has_no_rows(target: str) -> None:
    @workload
    def nothing(n: Any) -> None:
        for _ in P(n):
            slot_set_u64(0, 1)

    rows = nothing(DenseDyn(3)).compile(target=target).descriptors()
    assert len(rows) == 0
    assert rows.dtype.names == ("kernel",)
