"""The six graphs, written with the public API.

| graph | tasks | edges, each inferred from regions |
|---|---|---|
| independent | n | 0 |
| chain | n | n - 1 |
| attention | c (m + 1) | c m: m - 1 in each chain, one into its merge |
| wavefront | n m | n (m - 1) + (n - 1) m |
| stencil | s w | (s - 1) (3 w - 2): the ends of a row have two neighbours |
| tree | 2 n - 1 | 2 n - 2: every node but the root has one parent |

No element is written after another task has read it, except by its own chain, so that there are no
other hazards. Bodies compute the length of the longest path to the task: a run whose tasks did not
wait for each other gives another result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pto_wsp import DenseDyn, In, InOut, Out, P, Tensor, Workload, kernel, workload

Array = npt.NDArray[np.int32]

# The same loop as in graphs.h. Each round waits for the multiplication before it, so that its speed
# depends neither on how the compiler lays it out nor on what the other thread of the core does.
SPIN = """
    std::uint64_t v = 1;
    for (std::int64_t k = 0; k < ITERATIONS; ++k) {
      v = v * 6364136223846793005u + 1442695040888963407u;
      asm volatile("" : "+r"(v));
    }
"""


@dataclass(frozen=True, slots=True)
class Graph:
    """One graph of a given size, with its data and what is known about it in closed form."""

    name: str
    n: int
    m: int
    tasks: int
    edges: int
    accesses: int  # region accesses of all tasks together
    x: Array
    out: Array
    expected: Array  # what x, or out where it is used, must hold after a run
    build: Callable[[Graph, int], Workload]

    def workload(self, iterations: int = 0) -> Workload:
        """The workload; `iterations` of the spin loop lengthen each body, 0 is one increment."""
        return self.build(self, iterations)

    def reset(self) -> None:
        self.x.fill(0)
        self.out.fill(0)

    def is_right(self) -> bool:
        """Whether the data is what running every task in order gives."""
        result = self.out if self.name == "attention" else self.x
        return np.array_equal(result, self.expected)


def spinning(statement: str, iterations: int) -> str:
    """A C++ body that goes round before its statement."""
    spin = SPIN.replace("ITERATIONS", str(iterations)) if iterations else ""
    return f"{spin}    {statement}"


def make_step(iterations: int) -> Any:
    """x += 1"""

    @kernel(cpp_src=spinning("x() += 1;", iterations))
    def step(x: InOut[Tensor]): ...

    return step


def _make_after_one(iterations: int) -> Any:
    @kernel(cpp_src=spinning("out() = a() + 1;", iterations))
    def after_one(a: In[Tensor], out: Out[Tensor]): ...

    return after_one


def _make_after_two(iterations: int) -> Any:
    @kernel(cpp_src=spinning("out() = std::max(a(), b()) + 1;", iterations))
    def after_two(a: In[Tensor], b: In[Tensor], out: Out[Tensor]): ...

    return after_two


def _make_after_three(iterations: int) -> Any:
    @kernel(cpp_src=spinning("out() = std::max({a(), b(), c()}) + 1;", iterations))
    def after_three(a: In[Tensor], b: In[Tensor], c: In[Tensor], out: Out[Tensor]): ...

    return after_three


def independent(scale: float = 1.0) -> Graph:
    """1 M tasks that have nothing to do with each other."""
    n = _scaled(1_000_000, scale)
    x = np.zeros(n, np.int32)
    return Graph("independent", n, 1, n, 0, n, x, _none(), np.ones_like(x), _independent)


def _independent(graph: Graph, iterations: int) -> Workload:
    step = make_step(iterations)

    @workload
    def independent_tasks(n, x):
        for i in P(n):
            step[i](x=x[i])

    return independent_tasks(DenseDyn(graph.n), Tensor(data=graph.x))


def chain(scale: float = 1.0) -> Graph:
    """1 M tasks, one after the other."""
    n = _scaled(1_000_000, scale)
    x = np.zeros(1, np.int32)
    return Graph("chain", n, 1, n, n - 1, n, x, _none(), np.full_like(x, n), _chain)


def _chain(graph: Graph, iterations: int) -> Workload:
    step = make_step(iterations)

    @workload
    def one_chain(n, x):
        for i in P(n):
            step[i](x=x[0])

    return one_chain(DenseDyn(graph.n), Tensor(data=graph.x))


def attention(scale: float = 1.0, length: int = 64) -> Graph:
    """8,192 chains of 64 tasks, as of the tiles of one query, and a merge behind each."""
    chains = _scaled(8192, scale)
    x, out = np.zeros(chains, np.int32), np.zeros(chains, np.int32)
    tasks, edges = chains * (length + 1), chains * length
    accesses = chains * (length + 2)
    wanted = np.full_like(out, length + 1)
    return Graph("attention", chains, length, tasks, edges, accesses, x, out, wanted, _attention)


def _attention(graph: Graph, iterations: int) -> Workload:
    step, merge = make_step(iterations), _make_after_one(iterations)

    @workload
    def attention_chains(chains, length, acc, out):
        for c in P(chains):
            for t in P(length):
                step[c, t](x=acc[c])
            merge[c](a=acc[c], out=out[c])

    sizes = DenseDyn(graph.n), DenseDyn(graph.m)
    return attention_chains(*sizes, Tensor(data=graph.x), Tensor(data=graph.out))


def wavefront(scale: float = 1.0) -> Graph:
    """A 1000 x 1000 grid; each cell needs the one above and the one to the left."""
    n = m = _scaled(1000, math.sqrt(scale))
    x = np.zeros((n + 1, m + 1), np.int32)
    wanted = np.zeros_like(x)
    wanted[1:, 1:] = np.add.outer(np.arange(n), np.arange(m)) + 1
    edges = n * (m - 1) + (n - 1) * m
    return Graph("wavefront", n, m, n * m, edges, 3 * n * m, x, _none(), wanted, _wavefront)


def _wavefront(graph: Graph, iterations: int) -> Workload:
    cell = _make_after_two(iterations)

    @workload
    def grid(rows, cols, x):
        for i, j in P(rows, cols):
            cell[i, j](a=x[i, j + 1], b=x[i + 1, j], out=x[i + 1, j + 1])

    return grid(DenseDyn(graph.n), DenseDyn(graph.m), Tensor(data=graph.x))


def stencil(scale: float = 1.0) -> Graph:
    """1000 steps over 1000 points; each needs three neighbours of the step before."""
    steps = width = _scaled(1000, math.sqrt(scale))
    x = np.zeros((steps + 1, width + 2), np.int32)
    wanted = np.zeros_like(x)
    wanted[:, 1:-1] = np.arange(steps + 1)[:, None]
    tasks, edges = steps * width, (steps - 1) * (3 * width - 2)
    return Graph("stencil", steps, width, tasks, edges, 4 * tasks, x, _none(), wanted, _stencil)


def _stencil(graph: Graph, iterations: int) -> Workload:
    point = _make_after_three(iterations)

    # A row per step: with two buffers taking turns, writing would have to wait for reading.
    @workload
    def three_points(steps, width, x):
        for t, i in P(steps, width):
            point[t, i](a=x[t, i], b=x[t, i + 1], c=x[t, i + 2], out=x[t + 1, i + 1])

    return three_points(DenseDyn(graph.n), DenseDyn(graph.m), Tensor(data=graph.x))


def tree(scale: float = 1.0) -> Graph:
    """A reduction of 2^20 leaves by twos."""
    leaves = 1 << max(1, round(20 + math.log2(scale)))
    x = np.zeros(2 * leaves - 1, np.int32)
    wanted = np.empty_like(x)
    first, width, level = 0, leaves, 1
    while width:
        wanted[first : first + width] = level
        first, width, level = first + width, width // 2, level + 1
    tasks, edges = 2 * leaves - 1, 2 * leaves - 2
    accesses = leaves + 3 * (leaves - 1)
    return Graph("tree", leaves, 1, tasks, edges, accesses, x, _none(), wanted, _tree)


def _tree(graph: Graph, iterations: int) -> Workload:
    leaf, node = make_step(iterations), _make_after_two(iterations)
    leaves = graph.n

    # The levels lie one behind the other, leaves first, so inner node k is element leaves + k and
    # its children are elements 2 k and 2 k + 1: one loop, whatever the level.
    @workload
    def reduction(bottom, inner, x):
        for i in P(bottom):
            leaf[i](x=x[i])
        for k in P(inner):
            node[k](a=x[2 * k], b=x[2 * k + 1], out=x[leaves + k])

    return reduction(DenseDyn(leaves), DenseDyn(leaves - 1), Tensor(data=graph.x))


GRAPHS: dict[str, Callable[[float], Graph]] = {
    "independent": independent,
    "chain": chain,
    "attention": attention,
    "wavefront": wavefront,
    "stencil": stencil,
    "tree": tree,
}
# One worker is as good as two on a chain.
PARALLEL = tuple(name for name in GRAPHS if name != "chain")


def _scaled(size: int, scale: float) -> int:
    return max(4, round(size * scale))


def _none() -> Array:
    return np.zeros(0, np.int32)
