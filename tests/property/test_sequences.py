"""One program, many runs: whatever was bound before, each run equals a fresh run on the
reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pto_wsp import (
    DenseDyn,
    In,
    InOut,
    Out,
    P,
    Program,
    Ragged,
    ReadyPolicy,
    StartPolicy,
    TaskWindow,
    Tensor,
    Workload,
    kernel,
    workload,
)

MOST = 6  # rows


@kernel(cpp_src="for (int64_t i = 0; i < y.shape(0); ++i) y(i) = y(i) * 3 + x();")
def update(x: In[Tensor], y: InOut[Tensor]): ...


@kernel(cpp_src="uint64_t s = 1; for (const auto v : x) s = s * 31 + v; out() = s;")
def fold(x: In[Tensor], out: Out[Tensor]): ...


@workload
def nest(rows, cols, starts, X, Y, Z):
    for i in P(rows):
        for j in P.seq(cols[i]):
            update[i, j](x=X[j], y=Y[starts[i] : starts[i] + 2])
        fold[i](x=Y, out=Z[i])
    for i in P(rows):
        update[i](x=Z[i], y=X[i : i + 1])


def make() -> Workload:
    axis = DenseDyn(1)
    tensors = [Tensor(data=np.zeros(16, np.uint64)) for _ in range(3)]
    return nest(axis, Ragged(axis, [1]), [0], *tensors)


@dataclass(frozen=True)
class Step:
    """What one run binds: None keeps what was bound before."""

    lengths: list[int]
    starts: list[int]
    places: tuple[int, int, int]  # where X, Y and Z lie in the shared memory
    steps: tuple[int, int, int]  # their strides; backwards if negative
    asynchronous: bool
    keep: bool  # run again with nothing rebound


steps = st.integers(0, MOST).flatmap(
    lambda rows: st.builds(
        Step,
        st.lists(st.integers(0, 4), min_size=rows, max_size=rows),
        st.lists(st.integers(0, 8), min_size=rows, max_size=rows),
        st.tuples(*[st.integers(0, 20)] * 3),
        st.tuples(*[st.sampled_from([1, 1, 2, -1])] * 3),
        st.booleans(),
        st.booleans(),
    )
)


def bind(step: Step, memory: np.ndarray) -> dict[str, Any]:
    arrays = []
    for place, stride in zip(step.places, step.steps, strict=True):
        view = memory[place : place + 12 * abs(stride)][:: abs(stride)]
        arrays.append(view[::-1] if stride < 0 else view)
    return {
        "rows": len(step.lengths),
        "cols": step.lengths,
        "starts": step.starts,
        **dict(zip("XYZ", arrays, strict=True)),
    }


def fresh_memory() -> np.ndarray:
    return np.arange(1, 49, dtype=np.uint64)


def check(sequence: list[Step], programs: list[Program]) -> None:
    wanted = fresh_memory()
    counts = []
    for step in sequence:
        reference = make().compile(target="reference")
        runs = (reference.execute(**bind(step, wanted)) for _ in range(1 + step.keep))
        counts += [run.stats.tasks for run in runs]
    for program in programs:
        memory, found = fresh_memory(), []
        for step in sequence:
            if step.asynchronous:
                program.execute_async(**bind(step, memory))
                found.append(program.num_tasks(**bind(step, memory)))
            else:
                found.append(program.execute(**bind(step, memory)).stats.tasks)
            if step.keep:
                program.execute_async()
                found.append(program.num_tasks())
        program.synchronize()
        assert found == counts
        assert np.array_equal(memory, wanted)


SCHEDULES: list[dict[str, Any]] = [
    {},
    {"ready": ReadyPolicy.work_steal(), "start": StartPolicy.after_orchestration()},
    {"ready": ReadyPolicy.fifo(), "window": TaskWindow(3)},
    {"ready": ReadyPolicy.work_steal(), "window": TaskWindow(7)},
]


@pytest.fixture(scope="module")
def programs() -> list[Program]:
    """They live through all examples, so every example begins with what the last one left."""
    return [
        make().task_graph(**schedule).compile(num_threads=workers)
        for workers, schedule in zip((2, 1, 3, 4), SCHEDULES, strict=True)
    ]


@settings(max_examples=50)
@given(sequence=st.lists(steps, min_size=1, max_size=4))
def test_every_run_equals_a_fresh_one(programs: list[Program], sequence: list[Step]) -> None:
    check(sequence, programs)


@pytest.mark.soak
@given(sequence=st.lists(steps, min_size=1, max_size=12))
def test_every_run_equals_a_fresh_one_soak(programs: list[Program], sequence: list[Step]) -> None:
    check(sequence, programs)
