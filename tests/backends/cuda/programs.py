"""Small programs for the cuda target, one for each thing that it has to get right."""

# Annotations are values here, and the parameters of workloads symbols.
# pyright: basic, reportInvalidTypeForm=false
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pto_wsp import (
    Accum,
    Dense,
    DenseDyn,
    Deps,
    DType,
    In,
    InOut,
    Out,
    P,
    PagedTensor,
    Scalar,
    Sparse,
    Tensor,
    Tile,
    Tiled,
    kernel,
    minimum,
    pto,
    reduce_sum,
    select,
    sequential,
    workload,
    workloads,
)

F32 = DType.F32
TILE = Tile[2, 4, F32]


@dataclass
class Built:
    """A workload over arrays, made anew for each run; `outputs` are what tasks write."""

    workload: Any
    outputs: list[np.ndarray]


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


@kernel
def double(x: In[TILE], y: Out[TILE]):
    pto.store(y, pto.load(x) * 2.0 + 1.0)


@kernel
def triple(x: In[TILE], y: Out[TILE]):
    pto.store(y, pto.load(x) * 3.0)


@kernel
def grow(x: InOut[TILE], by: Scalar[DType.I32]):
    pto.store(x, pto.load(x) * 0.5 + pto.cast(by, F32))


@kernel
def add(a: In[TILE], b: In[TILE], y: Out[TILE]):
    pto.store(y, pto.load(a) + pto.load(b))


def dense() -> Built:
    x, y = numbers(6, 8), np.zeros((6, 8), np.float32)
    tx, ty = Tensor(data=x), Tensor(data=y)

    @workload
    def run(rows, cols):
        for i, j in P(rows, cols):
            double[i, j](
                tx[2 * i : 2 * i + 2, 4 * j : 4 * j + 4], ty[2 * i : 2 * i + 2, 4 * j : 4 * j + 4]
            )

    return Built(run(DenseDyn(3), Dense[2]()), [y])


def tiled() -> Built:
    x, y = numbers(7, 4), np.zeros((7, 4), np.float32)
    tx, ty = Tensor(data=x), Tensor(data=y)

    @workload
    def run(rows):
        for i in P(rows):
            double[i](tx[i.slice], ty[i.slice])

    return Built(run(Tiled(DenseDyn(7), 2)), [y])


def ragged() -> Built:
    lengths = np.array([3, 0, 1, 4])
    x, y = numbers(4, 8, 4), np.zeros((4, 8, 4), np.float32)
    tx, ty = Tensor(data=x), Tensor(data=y)

    @workload
    def run(batch, lens):
        for b in P(batch):
            for t in P(lens[b]):
                double[b, t](tx[b, 2 * t : 2 * t + 2], ty[b, 2 * t : 2 * t + 2])

    return Built(run(DenseDyn(4), lengths), [y])


def ragged_twice() -> Built:
    lengths = np.array([2, 0, 3])
    inner = np.array([[1, 2, 0], [0, 0, 0], [3, 0, 1]])
    x, y = numbers(3, 3, 6, 4), np.zeros((3, 3, 6, 4), np.float32)
    tx, ty = Tensor(data=x), Tensor(data=y)

    @workload
    def run(batch, lens, inner):
        for b in P(batch):
            for c in P(lens[b]):
                for t in P(inner[b, c]):
                    double[b, c, t](tx[b, c, 2 * t : 2 * t + 2], ty[b, c, 2 * t : 2 * t + 2])

    return Built(run(DenseDyn(3), lengths, inner), [y])


def sparse() -> Built:
    indptr, indices = np.array([0, 2, 2, 3, 6]), np.array([1, 3, 0, 0, 2, 3])
    x, y = numbers(4, 2, 4), np.zeros((4, 4, 2, 4), np.float32)
    tx, ty = Tensor(data=x), Tensor(data=y)
    rows = DenseDyn(4)

    @workload
    def run(rows, routing):
        for i in P(rows):
            for e in P.sel(routing[i]):
                double[i, e](tx[i], ty[i, e])

    made = run(rows, Sparse(rows, indptr, indices))
    # Columns come from an array: the user says that they are different ones.
    return Built(made.task_graph(deps=Deps.explicit()), [y])


def branches() -> Built:
    kinds = np.array([0, 1, 2, 1, 0, 2, 7])
    x, y = numbers(7, 2, 4), np.zeros((7, 3, 2, 4), np.float32)
    tx, ty = Tensor(data=x), Tensor(data=y)

    @workload
    def run(rows, kinds):
        for i in P(rows):
            with P.when(kinds[i] == 0):
                double[i](tx[i], ty[i, 0])
            with P.when(kinds[i] == 1):
                triple[i](tx[i], ty[i, 0])
            with P.otherwise():
                for j in P(minimum(kinds[i], 3)):
                    with P.when(j != 1):
                        double[i, j](tx[i], ty[i, j])

    return Built(run(DenseDyn(7), kinds), [y])


def steps() -> Built:
    """Iterations that are ordered, some of them empty."""
    counts = np.array([3, 0, 2, 3])
    x = numbers(3, 2, 4)
    tx = Tensor(data=x)

    @workload
    def run(steps, counts):
        for s in P.seq(steps):
            for i in P(counts[s]):
                grow[s, i](tx[i], s + 1)

    return Built(run(DenseDyn(4), counts), [x])


def chains() -> Built:
    """An ordered loop in each iteration of a parallel one."""
    lengths = np.array([3, 1, 4])
    x = numbers(3, 2, 4)
    tx = Tensor(data=x)

    @workload
    def run(rows, lens):
        for i in P(rows):
            for s in P.seq(lens[i]):
                grow[i, s](tx[i], s + 1)

    return Built(run(DenseDyn(3), lengths), [x])


def two_parts() -> Built:
    x, y, z = numbers(4, 2, 4), np.zeros((4, 2, 4), np.float32), np.zeros((4, 2, 4), np.float32)
    tx, ty, tz = Tensor(data=x), Tensor(data=y), Tensor(data=z)

    @workload
    def first(rows):
        for i in P(rows):
            double[i](tx[i], ty[i])

    @workload
    def second(rows):
        for i in P(rows):
            add[i](ty[i], ty[3 - i], tz[i])

    rows = DenseDyn(4)
    return Built(sequential(first(rows), second(rows)), [y, z])


def by_data() -> Built:
    """The same without a word: what is read was written before."""
    x, y, z = numbers(4, 2, 4), np.zeros((4, 2, 4), np.float32), np.zeros((4, 2, 4), np.float32)
    tx, ty, tz = Tensor(data=x), Tensor(data=y), Tensor(data=z)

    @workload
    def run(rows, again):
        for i in P(rows):
            double[i](tx[i], ty[i])
        for j in P(again):
            add[j](ty[j], ty[3 - j], tz[j])

    return Built(run(DenseDyn(4), DenseDyn(4)), [y, z])


def explicit() -> Built:
    x, y, z = numbers(5, 2, 4), np.zeros((5, 2, 4), np.float32), np.zeros((5, 2, 4), np.float32)
    tx, ty, tz = Tensor(data=x), Tensor(data=y), Tensor(data=z)

    @workload
    def run(rows):
        for i in P(rows):
            h = double[i](tx[i], ty[i])
            triple[i](tx[i], tz[i], after=h)

    return Built(run(DenseDyn(5)), [y, z])


def wavefront() -> Built:
    grid = np.zeros((8, 16), np.float32)
    grid[:2], grid[:, :4] = 1.0, 1.0
    tx = Tensor(data=grid)

    @workload
    def run(rows, cols):
        for i, j in P(rows, cols):
            add[i, j](
                tx[2 * i : 2 * i + 2, 4 * j + 4 : 4 * j + 8],
                tx[2 * i + 2 : 2 * i + 4, 4 * j : 4 * j + 4],
                tx[2 * i + 2 : 2 * i + 4, 4 * j + 4 : 4 * j + 8],
            )

    return Built(run(DenseDyn(3), DenseDyn(3)), [grid])


def slanted() -> Built:
    """Tasks that wait for the one before them and for the one above to the right, in grids of
    different sizes, some of them empty."""
    sizes = np.array([3, 0, 2])
    grid = np.zeros((3, 4, 6, 2, 4), np.float32)
    grid[:, 0], grid[:, :, 0], grid[:, :, 5] = numbers(3, 6, 2, 4), 1.0, 2.0
    tx = Tensor(data=grid)

    @workload
    def run(batch, sizes):
        for b in P(batch):
            for i in P(sizes[b]):
                for j in P(4):
                    add[b, i, j](tx[b, i, j + 2], tx[b, i + 1, j], tx[b, i + 1, j + 1])

    return Built(run(DenseDyn(3), sizes), [grid])


def temporaries() -> Built:
    """Parts that are made, then put together by the last of them."""
    lengths = np.array([1, 3, 0, 2])
    x, y = numbers(4, 6, 4), np.full((4, 2, 4), 9.0, np.float32)
    tx, ty = Tensor(data=x), Tensor(data=y)

    @kernel
    def total(parts: In[Tensor], y: Out[TILE]):
        s = pto.carry(sum=pto.zeros((2, 4), F32))
        for c in pto.for_range(0, parts.shape[0]):
            s.sum = s.sum + pto.load(parts[c, 0:2, 0:4])
        pto.store(y, s.sum)

    @workload
    def run(batch, lens):
        for b in P(batch):
            parts = Tensor.temp((minimum(lens[b], 3), 2, 4), F32, name="parts")
            for c in P(minimum(lens[b], 3)):
                double[b, c](tx[b, 2 * c : 2 * c + 2], parts[c])
            total[b](parts, ty[b])

    return Built(run(DenseDyn(4), lengths), [y])


def updates() -> Built:
    """Sums that several tasks add to, which no promise lets two do at a time."""
    x, y = numbers(6, 2, 4), numbers(2, 2, 4)
    tx, ty = Tensor(data=x), Tensor(data=y)

    @kernel
    def add_to(x: In[TILE], y: Accum[TILE]):
        pto.store(y, pto.load(y) + pto.load(x))

    @workload
    def run(rows):
        for i in P(rows):
            add_to[i](tx[i], ty[i % 2])

    return Built(run(DenseDyn(6)).task_graph(deps=Deps.explicit()), [y])


def meeting() -> Built:
    """Regions that meet at any distance along a parallel loop: those of a sum, and those that an
    array names."""
    places = np.array([1, 0, 2, 0, 1])
    x, y = numbers(3, 2, 4), numbers(2, 4)
    tx, ty = Tensor(data=x), Tensor(data=y)

    @workload
    def run(rows, steps, places):
        for i in P(rows):
            grow[i](tx[i], i)
        for s in P(steps):
            grow[s](tx[places[s]], s)
            add[s](tx[0], tx[places[s]], ty)
            grow[s](ty, s)

    return Built(run(DenseDyn(3), DenseDyn(5), places), [x, y])


def rows_before() -> Built:
    """All tasks of a row wait for all of the row before, whatever their columns."""
    x = numbers(5, 2, 4)
    tx = Tensor(data=x)

    @workload
    def run(rows, cols):
        for i in P(rows):
            for j in P.seq(cols):
                add[i, j](tx[i], tx[i + 1], tx[i + 1])

    return Built(run(DenseDyn(4), DenseDyn(3)), [x])


def riders_elsewhere() -> Built:
    """A loop of its own for tasks that the last of others run, some of which wait for nobody; and
    a number that a condition makes."""
    lengths = np.array([2, 0, 1, 0])
    x, y, z = numbers(4, 2, 2, 4), numbers(4, 2, 2, 4), np.full((4, 2, 4), 9.0, np.float32)
    tx, ty, tz = Tensor(data=x), Tensor(data=y), Tensor(data=z)

    @workload
    def run(batch, lens):
        for b in P(batch):
            for c in P(lens[b]):
                double[b, c](tx[b, c], ty[b, c])
        for b in P(batch):
            triple[b](ty[b, 0], tz[b])
        for b in P(batch):
            grow[b](tz[b], select(lens[b] > 1, 1, 0))

    return Built(run(DenseDyn(4), lengths), [y, z])


def sums() -> Built:
    """Extents that add up what other arrays say."""
    lengths = np.array([1, 0, 3, 2])
    x, y = numbers(12, 4), np.zeros((12, 4), np.float32)
    tx, ty = Tensor(data=x), Tensor(data=y)

    @workload
    def run(batch, lens):
        for b in P(batch):
            before = reduce_sum(b, lambda i: lens[i])
            for t in P(lens[b]):
                at = 2 * (before + t)
                double[b, t](tx[at : at + 2], ty[at : at + 2])

    # What rows are written is known to arrays alone: the user says that they are different ones.
    return Built(run(DenseDyn(4), lengths).task_graph(deps=Deps.explicit()), [y])


def extents() -> Built:
    """Regions that are as long as they are wide, by one expression, and regions of nothing."""
    x, y, nothing = numbers(4, 4), np.zeros((3, 2, 4), np.float32), np.zeros((3, 0), np.float32)
    tx, ty, none = Tensor(data=x), Tensor(data=y), Tensor(data=nothing)

    @kernel(body="tile")
    def rows(x: In[Tensor], none: In[Tensor], y: Out[TILE]):
        s = pto.carry(sum=pto.zeros((2, 4), F32))
        for i in pto.for_range(0, x.shape[0]):
            s.sum = s.sum + pto.load(x[i, 0])
        for i in pto.for_range(0, none.shape[0]):
            s.sum = s.sum + pto.load(none[i])
        pto.store(y, s.sum)

    @workload
    def run(batch, size):
        for b in P(batch):
            rows[b](tx[0:size, 0:size], none[b], ty[b])

    return Built(run(DenseDyn(3), Scalar(3)), [y])


def never() -> Built:
    """A loop without iterations, by its text, around others of all lengths: Triton compiles no
    loop that it sees is never entered."""
    lengths = np.array([2, 0, 1])
    x, y = numbers(4, 2, 4), np.zeros((4, 2, 4), np.float32)
    tx, ty = Tensor(data=x), Tensor(data=y)

    @workload
    def run(rows, lens):
        for s in P(Dense[0]()):
            for i in P(rows):
                for j in P(lens[i] + s):
                    grow[s, i, j](ty[i], j)
        for i in P(rows):
            double[i](tx[i], ty[i])

    return Built(run(DenseDyn(3), lengths), [y])


def paged(tiers: tuple[Any, ...] = (workloads.Tier(8, 4, 0), workloads.Tier(1000, 8, 8))) -> Built:
    rng = np.random.default_rng(3)
    lengths = np.array([3, 0, 150, 7])
    table = rng.permutation(4 * 40).astype(np.int32).reshape(4, 40)
    k, v = (rng.standard_normal((160, 4, 2, 16)).astype(np.float32) for _ in range(2))
    q = rng.standard_normal((4, 4, 16)).astype(np.float32)
    out = np.zeros_like(q)
    decode = workloads.paged_decode(4, 2, 16, 4, tiers=tiers)
    made = decode(
        *(DenseDyn(4), lengths, Scalar(6), Tensor(data=q)),
        *(PagedTensor(k, table), PagedTensor(v, table), Tensor(data=out)),
    )
    return Built(made, [out])


PROGRAMS: dict[str, Callable[[], Built]] = {
    f.__name__: f
    for f in (
        *(dense, tiled, ragged, ragged_twice, sparse, branches, steps, chains, two_parts),
        *(by_data, explicit, wavefront, slanted, temporaries, updates, meeting, rows_before),
        *(riders_elsewhere, sums, extents, never, paged),
    )
}
