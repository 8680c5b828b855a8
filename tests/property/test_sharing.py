"""Random tile kernels whose parameters lie in the same memory: compiled code does what its
statements mean one after the other, whatever overlaps."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from pto_wsp import In, InOut, Kernel, Tensor, kernel, pto, workload

KERNELS = 8
PLACES = 5  # calls of each kernel
STATEMENTS = 7
ROWS, COLS = 4, 8
SHAPE = 8, 16  # of a region

Array = np.ndarray[Any, Any]


class Drawn:
    """The statements of one kernel, drawn while it is traced."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._tiles: list[Any] = []

    def body(self, x: Any, y: Any, z: Any) -> None:
        self._read, self._written = (x, y, z), (x, y)
        self._load()
        for _ in range(STATEMENTS):
            self._random.choice(
                [
                    *(self._load, self._load, self._compute, self._compute, self._move),
                    *(self._store, self._store, self._loop, self._branch, self._rows, self._pick),
                ]
            )()
        self._store()

    def _window(self, memory: Any, first: Any = None) -> Any:
        """Four rows from anywhere, some of which may not exist."""
        row = self._random.randrange(6) if first is None else first
        column = self._random.choice([0, 0, 1, 8])
        return memory[row : row + ROWS, column : column + COLS]

    def _tile(self) -> Any:
        return self._random.choice(self._tiles)

    def _load(self) -> None:
        self._tiles.append(pto.load(self._window(self._random.choice(self._read))))

    def _store(self) -> None:
        pto.store(self._window(self._random.choice(self._written)), self._tile())

    def _compute(self) -> None:
        a, b = self._tile(), self._tile()
        makers: list[Any] = [
            lambda: a + b,
            lambda: a * 3 - b,
            lambda: pto.maximum(a, b),
            lambda: a - pto.row_max(b),
            lambda: a + pto.row_sum(a),
        ]
        self._tiles.append(self._random.choice(makers)())

    def _move(self) -> None:
        a = self._tile()
        if self._random.random() < 0.5:
            self._tiles.append(pto.transpose(pto.transpose(a) + 1))
        else:
            self._tiles.append(a + pto.col_max(self._tile()))

    def _loop(self) -> None:
        source, target = self._random.choice(self._read), self._random.choice(self._written)
        for i in pto.for_range(0, 3):
            value = pto.load(self._window(source, i + 1))
            pto.store(self._window(target, i), value + pto.load(self._window(target, i)))

    def _branch(self) -> None:
        memory = self._random.choice(self._read)
        with pto.when(pto.load(memory[0, 0]) > 0):
            self._store()

    def _rows(self) -> None:
        numbers = pto.load(self._random.choice(self._read)[0:ROWS, 0:1]) & 7
        if self._random.random() < 0.5:
            self._tiles.append(pto.gather(self._random.choice(self._read), numbers, cols=COLS))
        else:
            pto.scatter(self._random.choice(self._written), numbers, self._tile())

    def _pick(self) -> None:
        memory, target = self._random.choice(self._read), self._random.choice(self._written)
        pto.store(target[self._random.randrange(8), 3], pto.load(memory[2, 5]) + 1)


def drawn(seed: int) -> Kernel:
    @kernel(body="tile")
    def work(x: InOut[Tensor], y: InOut[Tensor], z: In[Tensor]):
        Drawn(seed).body(x, y, z)

    return work


def numbers(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).integers(-9, 9, size=shape, dtype=np.int32)


def placed(seed: int) -> tuple[tuple[int, int], ...]:
    """Where three regions begin: often in the same place, or one a little further."""
    draw = random.Random(seed)
    first = draw.randrange(4), draw.choice([0, 3, 8])
    others = [
        draw.choice([first, (first[0] + draw.randrange(4), first[1]), (first[0], first[1] + 1)])
        for _ in range(2)
    ]
    return first, *others


@pytest.mark.parametrize("seed", range(2))
def test_regions_of_one_tensor(seed: int) -> None:
    """All kernels in one program; each has a plane of its own."""
    made = [drawn(1000 * seed + n) for n in range(KERNELS)]
    before = numbers(seed, KERNELS * PLACES, 16, 32)
    rows, cols = SHAPE
    results: list[Array] = []
    for target in ("reference", "cpu_sim"):
        memory = before.copy()
        X = Tensor(data=memory)

        @workload
        def all_of_them():
            for n in range(KERNELS * PLACES):
                regions = [X[n, r : r + rows, c : c + cols] for r, c in placed(n)]  # noqa: B023
                made[n // PLACES](*regions)

        options = {} if target == "reference" else {"optimization_level": 1}
        all_of_them().compile(target=target, **options).execute()
        results.append(memory)
    assert (results[0] != before).any()
    for n in range(KERNELS * PLACES):
        np.testing.assert_array_equal(
            results[1][n], results[0][n], f"kernel {1000 * seed + n // PLACES} at {placed(n)}"
        )


@pytest.mark.parametrize("seed", range(3))
def test_arrays_of_any_strides(seed: int) -> None:
    work, draw = drawn(seed), random.Random(seed)
    rows, cols = SHAPE

    def view(memory: Array) -> Array:
        # Rows do not meet: which of two elements of one view is written last is nobody's promise.
        stride, step = draw.choice([(16, 1), (16, 1), (24, 1), (40, 1), (40, 2)])
        flat, first = memory.reshape(-1), draw.randrange(30)
        strides = (stride * 4, step * 4)
        found = np.lib.stride_tricks.as_strided(flat[first:], (rows, cols), strides)
        return found[::-1] if draw.random() < 0.2 else found

    for trial in range(40):
        before = numbers(trial, 1024)
        ours, theirs = before.copy(), before.copy()
        state = draw.getstate()
        work.run(*(view(ours) for _ in range(3)))
        draw.setstate(state)
        work.reference(*(view(theirs) for _ in range(3)))
        np.testing.assert_array_equal(ours, theirs)
