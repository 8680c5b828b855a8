"""Mistakes in control end a run with the error of the reference; the program is usable again."""

# Annotations are values here, and the parameters of workloads symbols.
# pyright: basic, reportInvalidTypeForm=false
from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    DenseDyn,
    DType,
    ExecutionError,
    MemLayout,
    Out,
    P,
    PagedTensor,
    Ragged,
    ReadyPolicy,
    Scalar,
    Sparse,
    Tensor,
    TensorLayout,
    TensorReplicate,
    kernel,
    pto,
    reduce_max,
    reduce_sum,
    select,
    workload,
    workloads,
)
from pto_wsp.backends.cuda import device
from pto_wsp.error_codes import Code

from .conftest import MODE
from .programs import TILE, double, numbers
from .stepping import stepped

F32, R = DType.F32, TensorReplicate()


@kernel
def put(y: Out[TILE], n: Scalar[DType.I32]):
    pto.store(y, pto.zeros((2, 4), F32) + pto.cast(n, F32))


@kernel
def put_small(y: Out[TILE], n: Scalar[DType.U8]):
    pto.store(y, pto.zeros((2, 4), F32) + pto.cast(n, F32))


def out(*shape: int) -> Tensor:
    return Tensor(data=np.zeros((*shape, 2, 4), np.float32), name="y")


def both(
    make: Callable[[], Any], wrong: dict[str, Any], right: dict[str, Any], code: Code
) -> ExecutionError:
    """What both targets say of a mistake; before and after it they run."""
    found: list[ExecutionError] = []
    for target in ("reference", "cuda"):
        program = make().compile(target=target)
        program.execute(**right)
        tasks = program.stats.tasks
        with pytest.raises(ExecutionError) as caught:
            program.execute(**wrong)
        found.append(caught.value)
        program.execute(**right)
        assert program.stats.tasks == tasks
    wanted, mine = found
    assert mine.code is wanted.code is code
    texts = [str(error) for error in found]
    if MODE == "1":  # of several tasks with a mistake, any may be the first
        texts = [re.sub(r"\[\d+\]", "[]", text) for text in texts]
    assert texts[0] == texts[1]
    assert "test_control_faults.py" in str(mine) or mine.loc is None
    return mine


# --- what loops, conditions and lets compute ---


def nested(steps: Any) -> Any:
    y = out(8, 8)

    @workload
    def run(rows, lens, n):
        for i in P(rows):
            for j in P(steps(i, lens, n)):
                put[i, j](y[i, j], j)

    return run(DenseDyn(3), np.array([2, 0, 1]), Scalar(2))


CONTROL = {
    "extent of a length": (
        lambda: nested(lambda i, lens, n: lens[i]),
        {"lens": np.array([1, -2, 0])},
        Code.BINDING_RANGE,
    ),
    "extent of a sum": (
        lambda: nested(lambda i, lens, n: lens[i] + n - 2),
        {"n": 1},
        Code.NEGATIVE_EXTENT,
    ),
    "extent of a number": (
        lambda: nested(lambda i, lens, n: n - 1),
        {"n": 0},
        Code.NEGATIVE_EXTENT,
    ),
    "extent by a loop": (
        lambda: nested(lambda i, lens, n: n - i),
        {"n": 1},
        Code.NEGATIVE_EXTENT,
    ),
    "index of a length": (
        lambda: nested(lambda i, lens, n: lens[i]),
        {"rows": 4},
        Code.LENGTHS,
    ),
    "index behind the array": (
        lambda: nested(lambda i, lens, n: lens[i + n - 2]),
        {"n": 3},
        Code.OUT_OF_BOUNDS,
    ),
    "index before the array": (
        lambda: nested(lambda i, lens, n: lens[i + n - 2]),
        {"n": 1},
        Code.OUT_OF_BOUNDS,
    ),
    "division": (lambda: nested(lambda i, lens, n: 4 // n), {"n": 0}, Code.ARITHMETIC),
    "remainder by a length": (
        lambda: nested(lambda i, lens, n: 5 % select(lens[i] > 1, lens[i] - n, 1)),
        {"n": 2},
        Code.ARITHMETIC,
    ),
    "sum": (
        lambda: nested(lambda i, lens, n: reduce_sum(i + n - 1, lambda k: lens[k])),
        {"n": 4},
        Code.OUT_OF_BOUNDS,
    ),
    "sum of a run": (
        lambda: nested(lambda i, lens, n: reduce_max(n, lambda k: lens[k])),
        {"n": 4},
        Code.OUT_OF_BOUNDS,
    ),
    "product": (lambda: nested(lambda i, lens, n: n * n - 3), {"n": 1 << 40}, Code.ARITHMETIC),
}


@pytest.mark.parametrize("name", CONTROL)
def test_extents(name: str) -> None:
    make, wrong, code = CONTROL[name]
    right = {"rows": 3, "lens": np.array([2, 0, 1]), "n": 2 if "remainder" not in name else 1}
    if name == "division":
        right["n"] = 4
    both(make, wrong, right, code)


def test_many_iterations() -> None:
    """Beyond the first block of them, and in loops in loops."""
    y = out(8)

    @workload
    def run(rows, cols, inner):
        for i in P(rows):
            for j in P(cols):
                for k in P(select(inner[i, j] > 5, -1, inner[i, j])):
                    put[i, j, k](y[0], k)

    def lengths(i: int, j: int, value: int) -> np.ndarray:
        found = np.zeros((300, 3), np.int64)
        found[i, j] = value
        return found

    made = lambda: run(DenseDyn(300), DenseDyn(3), lengths(0, 0, 1))  # noqa: E731
    for i, j in ((0, 0), (131, 2), (299, 1)):
        error = both(
            made, {"inner": lengths(i, j, 9)}, {"inner": lengths(2, 1, 2)}, Code.NEGATIVE_EXTENT
        )
        assert f"at outer indices [{i}, {j}]" in error.message


def test_conditions() -> None:
    y = out(8)

    @workload
    def run(rows, kinds, n):
        for i in P(rows):
            with P.when(kinds[i] // n > 1):
                put[i](y[i], i)

    made = lambda: run(DenseDyn(4), np.array([1, 2, 3, 4]), Scalar(1))  # noqa: E731
    right = {"rows": 4, "kinds": np.array([1, 2, 3, 4]), "n": 1}
    both(made, {"n": 0}, right, Code.ARITHMETIC)
    both(made, {"kinds": np.array([1, 2, 3])}, right, Code.OUT_OF_BOUNDS)


def test_what_a_condition_excludes_is_no_mistake() -> None:
    """Nor what select does not choose, nor what no iteration asks for."""
    y = out(8)

    @workload
    def run(rows, lens, n):
        for i in P(rows):
            with P.when(i > 0):
                for _ in P(lens[i - 1]):
                    put[i](y[lens[i - 1]], select(i < n, lens[i + 1], lens[i]))
            with P.otherwise():
                put[i](y[0], select(n > 9, 1 // (n - 2), 0))
        for j in P(n - 2):
            put[j](y[0], lens[j + 1000] // (n - 2))

    made = lambda: run(DenseDyn(3), np.array([1, 1, 1]), Scalar(2))  # noqa: E731
    reference, program = (made().compile(target=target) for target in ("reference", "cuda"))
    for each in (reference, program):
        each.execute()
    assert program.stats.tasks == reference.stats.tasks == 3
    engine: Any = program._engine
    assert engine.words()[10] == 0  # nothing was asked of the host


def test_temporaries() -> None:
    x = Tensor(data=numbers(4, 2, 4))

    @workload
    def run(rows, lens):
        for i in P(rows):
            parts = Tensor.temp((lens[i], 2, 4), F32, name="parts")
            with P.when(lens[i] > 0):
                double[i](x[i], parts[0])

    made = lambda: run(DenseDyn(3), np.array([1, 0, 2]))  # noqa: E731
    right = {"lens": np.array([1, 0, 2])}
    error = both(made, {"lens": np.array([1, -3, 2])}, right, Code.NEGATIVE_EXTENT)
    assert "temporary 'parts' has the negative extent -3" in error.message


def test_lengths_and_columns() -> None:
    y = out(8)
    rows = DenseDyn(3)

    @workload
    def ragged(rows, tokens):
        for i in P(rows):
            for _ in P(tokens[i]):
                put[i](y[i], i)

    made = lambda: ragged(rows, Ragged(rows, np.array([1, 2, 0])))  # noqa: E731
    error = both(made, {"rows": 2}, {"rows": 3}, Code.LENGTHS)
    assert "has 3 lengths" in error.message

    @workload
    def sparse(rows, routing):
        for i in P(rows):
            for e in P.sel(routing[i]):
                put[i, e](y[e], i)

    def routed() -> Any:
        return sparse(rows, Sparse(rows, np.array([0, 1, 1, 3]), np.array([1, 0, 2])))

    short = {"routing_indices": np.array([1, 0])}
    both(routed, short, {"routing_indices": np.array([1, 0, 2])}, Code.OUT_OF_BOUNDS)


# --- what a task computes ---


def test_regions_and_scalars() -> None:
    y = out(8)

    @workload
    def run(rows, places, n):
        for i in P(rows):
            put[i](y[places[i + n] // (3 - n)], 10 // (2 - n))

    right = {"n": 0}
    made = lambda: run(DenseDyn(3), np.array([3, 6, 7]), Scalar(0))  # noqa: E731
    error = both(made, {"n": 1}, right, Code.OUT_OF_BOUNDS)
    assert "index 3 is outside array 'places' of length 3 in put[2]" in error.message
    both(made, {"n": 2, "rows": 1}, {"n": 0, "rows": 3}, Code.ARITHMETIC)


@pytest.mark.parametrize(("body", "most"), [(put, (1 << 31) - 1), (put_small, 255)])
def test_scalars_that_do_not_fit(body: Any, most: int) -> None:
    y = out(8)

    @workload
    def run(rows, n):
        for i in P(rows):
            body[i](y[i], n + i)

    made = lambda: run(DenseDyn(2), Scalar(0))  # noqa: E731
    error = both(made, {"n": most}, {"n": most - 1}, Code.ARITHMETIC)
    assert f"a scalar argument is {most + 1}, which its type does not hold" in error.message


def test_riders() -> None:
    """Tasks that the last of others run are looked at too."""
    x, y = Tensor(data=np.zeros((4, 2, 4), np.float32)), out(4)

    @workload
    def run(rows, places):
        for i in P(rows):
            put[i](x[i], i)
            double[i](x[i], y[places[i]])

    made = lambda: run(DenseDyn(3), np.array([0, 2, 1]))  # noqa: E731
    both(made, {"places": np.array([0, 2])}, {"places": np.array([0, 2, 1])}, Code.OUT_OF_BOUNDS)


# --- pages ---


def paged(page: Callable[[np.ndarray], None] | None = None) -> Any:
    rng = np.random.default_rng(3)
    table = rng.permutation(4 * 40).astype(np.int32).reshape(4, 40)
    if page is not None:
        page(table)
    k, v = (rng.standard_normal((160, 4, 2, 16)).astype(np.float32) for _ in range(2))
    q = Tensor(data=rng.standard_normal((4, 4, 16)).astype(np.float32))
    result = Tensor(data=np.zeros((4, 4, 16), np.float32))
    return workloads.paged_decode(4, 2, 16, 4, tiers=(workloads.Tier(1000, 8, 8),))(
        *(DenseDyn(4), np.array([3, 0, 150, 7]), Scalar(6), q),
        *(PagedTensor(k, table), PagedTensor(v, table), result),
    )


# The last of the others still merges parts, of which one was not written: memory as it was.
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("number", [-1, 160, 1 << 30])
@pytest.mark.parametrize("place", [(0, 0), (2, 37), (2, 20)])
def test_pages_of_attention(number: int, place: tuple[int, int]) -> None:
    def wrong(table: np.ndarray) -> None:
        table[place] = number

    errors: list[ExecutionError] = []
    for target in ("reference", "cuda"):
        program = paged(wrong).compile(target=target)
        with pytest.raises(ExecutionError) as caught:
            program.execute()
        errors.append(caught.value)
        program.execute(lens=np.array([0, 0, 0, 7]))
    assert errors[1].code is Code.PAGES
    where = f"page {number} for token {4 * place[1]} of sequence {place[0]}"
    assert where in errors[0].message
    assert where in errors[1].message


def test_pages_that_nobody_reads_may_be_anything() -> None:
    def beyond(table: np.ndarray) -> None:
        table[0, 1:] = table[1] = table[2, 38:] = table[3, 2:] = -7

    paged(beyond).compile(target="cuda").execute()


def test_pages_may_be_trusted() -> None:
    """The inner loop is the same, and without the option there is no line about pages."""
    checked = paged().compile(target="cuda")
    trusted = paged().compile(target="cuda", check_pages=False)
    texts = [each._engine.module.text for each in (checked, trusted)]
    assert "pto_pages" in texts[0]
    assert "pto_pages" not in texts[1]

    loops = [
        [part for part in text.split("@triton.jit") if "\ndef decode" in part] for text in texts
    ]
    assert loops[0] == loops[1] != []


@pytest.mark.parametrize("check", [False, True])
def test_decode_trusts_pages_unless_it_is_asked(check: bool) -> None:
    config = workloads.GpuDecode(block=16, chunk=16, check_pages=check)
    program = paged().compile(target="cuda", **config.options)
    assert ("pto_pages" in program._engine.module.text) is check
    assert not workloads.GpuDecode().check_pages


def test_regions_on_one_page() -> None:
    pool, table = numbers(6, 4, 4), np.array([[0, 3], [5, 1]], np.int32)
    y = out(2)

    def made() -> Any:
        pages = PagedTensor(Tensor(data=pool, name="pool"), table, name="pages")

        @workload
        def run(rows, at):
            for i in P(rows):
                double[i](pages[i, at : at + 2], y[i])

        return run(DenseDyn(2), Scalar(2))

    error = both(made, {"at": 3}, {"at": 2}, Code.PAGES)
    assert "tokens 3 to 4, which lie on several pages" in error.message
    both(made, {"at": 7}, {"at": 6}, Code.OUT_OF_BOUNDS)


# --- with schedules ---


@pytest.mark.interpreted
@pytest.mark.parametrize("seed", range(3))
def test_all_blocks_at_a_time(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = nested(lambda i, lens, n: lens[i]).task_graph(ready=ReadyPolicy.work_steal())
    program = made.compile(target="cuda", blocks_per_sm=2)
    with stepped(monkeypatch, seed), pytest.raises(ExecutionError, match="'lens' holds -5"):
        program.execute(lens=np.array([3, -5, 2]))
    with stepped(monkeypatch, seed):
        program.execute(lens=np.array([3, 0, 2]))
    assert program.stats.tasks == 5


def test_a_mistake_that_would_need_too_much_room() -> None:
    """It is told, and not that there is no room for what came of it."""
    error = both(
        lambda: nested(lambda i, lens, n: (1 << 45) // (n - 2)),
        {"n": 2},
        {"n": (1 << 45) + 2},
        Code.ARITHMETIC,
    )
    assert "division by zero" in error.message


def test_asynchronous_runs() -> None:
    program = nested(lambda i, lens, n: lens[i]).compile(target="cuda")
    program.execute_async(lens=np.array([1, -2, 0]))
    with pytest.raises(ExecutionError, match="'lens' holds -2"):
        program.synchronize()
    program.execute(lens=np.array([1, 2, 0]))


def test_of_several_runs_the_one_that_was_wrong_is_told() -> None:
    good, bad = np.array([1, 2, 0]), np.array([1, -2, 0])
    for given in ((good, bad, good), (bad, good), (good, bad)):
        program = nested(lambda i, lens, n: lens[i]).compile(target="cuda")
        for lens in given:
            program.execute_async(lens=lens)
        with pytest.raises(ExecutionError, match="'lens' holds -2"):
            program.synchronize()
        program.execute(lens=good)


def test_runs_that_nobody_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # it may be that the reference finds nothing in the last one
    program = nested(lambda i, lens, n: lens[i]).compile(target="cuda")
    program.enqueue(lens=np.array([1, -2, 0]))
    program.enqueue(lens=np.array([1, 2, 0]))
    with pytest.raises(ExecutionError, match="control of a run before this one had a mistake"):
        program.synchronize()
    program.execute(lens=np.array([1, 2, 0]))
    assert program.stats.tasks == 3


def test_programs_that_are_proved_have_no_line_of_it() -> None:
    y = out(4)

    @workload
    def run():
        for i in P(4):
            put[i](y[i], i % 3)

    engine: Any = run().compile(target="cuda")._engine
    assert "ended == 0" not in engine.module.text
    assert device.is_interpreted() or engine.workers


def test_extents_that_are_expected() -> None:
    x, y = Tensor(shape=(2, 4), dtype=F32, name="x"), out()

    @workload
    def run():
        x.expect(None, 4)
        double(x[:, :4], y)

    error = both(run, {"x": numbers(2, 5)}, {"x": numbers(2, 4)}, Code.BINDING_EXTENT)
    assert "'x' has the extent 5 in dimension 1, the workload is made for 4" in error.message


def test_order_in_memory() -> None:
    layout = TensorLayout((R, R), MemLayout.col_major())
    x = Tensor(shape=(2, 4), dtype=F32, name="x", layout=layout)
    y = out()

    @workload
    def run():
        double(x, y)

    by_columns = np.asfortranarray(numbers(2, 4))
    error = both(run, {"x": numbers(2, 4)}, {"x": by_columns}, Code.BINDING_ORDER)
    assert "'x' has the stride 4 in dimension 0, its layout says 1" in error.message
