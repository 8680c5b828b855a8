"""Groups of the columns of sparse rows, against plain Python, whoever wrote the arrays."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pto_wsp import (
    Dense,
    DenseDyn,
    DType,
    In,
    Out,
    P,
    Program,
    Scalar,
    Sparse,
    Tensor,
    kernel,
    workload,
)

ROWS, ROOM = 5, 32

# What a task leaves: the number of its row, of its group, of all columns of the row, and a column.
SEEN = """
for (int64_t i = 0; i < which.shape(0); ++i) seen(i) = ((e * 64 + g) * 64 + n) * 64 + which(i);
"""


@kernel(cpp_src=SEEN)
def note(
    which: In[Tensor],
    seen: Out[Tensor],
    e: Scalar[DType.I64],
    g: Scalar[DType.I64],
    n: Scalar[DType.I64],
): ...


@kernel(cpp_src="for (int64_t i = 0; i < y.shape(0); ++i) y(i) = x(i);")
def copy(x: In[Tensor], y: Out[Tensor]): ...


@workload
def bound(rows: Any, routing: Any, size: Any, seen: Any):
    for e, row in routing.activated():
        for g in row.chunks(size):
            note[e, g](g.indices, seen[g.slice], e, g, row.size)


@workload
def written(begins: Any, columns: Any, size: Any, seen: Any):
    indptr = Tensor.temp((ROWS + 1,), DType.I64)
    indices = Tensor.temp((columns.shape[0],), DType.I32)
    for at in P(ROWS + 1):
        copy[at](begins[at : at + 1], indptr[at : at + 1])
    copy(columns, indices)
    for e, row in Sparse(Dense[ROWS](), indptr, indices).activated():
        for g in row.chunks(size):
            note[e, g](g.indices, seen[g.slice], e, g, row.size)


@functools.cache
def programs() -> list[tuple[str, Program]]:
    rows, begins = DenseDyn(ROWS), np.zeros(ROWS + 1, np.int64)
    columns, seen = np.zeros(ROOM, np.int32), np.zeros(ROOM, np.int64)
    routing = Sparse(rows, begins, Tensor(data=columns))
    static = bound(rows, routing, Scalar(1), Tensor(data=seen))
    dynamic = written(Tensor(data=begins), Tensor(data=columns), Scalar(1), Tensor(data=seen))
    return [
        (form, work.compile(target=target))
        for form, work in (("bound", static), ("written", dynamic))
        for target in ("reference", "cpu_sim")
    ]


@settings(max_examples=50)
@given(st.lists(st.integers(0, 9), min_size=ROWS, max_size=ROWS), st.integers(1, 12), st.data())
def test_groups_of_columns(sizes: list[int], size: int, data: st.DataObject) -> None:
    begins = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    count = int(begins[-1])
    columns = np.array(data.draw(st.permutations(range(count))), np.int32)
    expected = np.zeros(count, np.int64)
    tasks = 0
    for e, length in enumerate(sizes):
        for start in range(0, length, size):
            at = slice(begins[e] + start, begins[e] + min(start + size, length))
            expected[at] = ((e * 64 + start // size) * 64 + length) * 64 + columns[at]
            tasks += 1
    for form, program in programs():
        seen = np.zeros(count, np.int64)
        if form == "bound":
            arrays = {"routing_indptr": begins, "routing_indices": columns}
            assert program.num_tasks(**arrays, size=size, seen=seen) == tasks
        else:
            arrays = {"begins": begins, "columns": columns}
        program.execute(**arrays, size=size, seen=seen)
        assert np.array_equal(seen, expected)
