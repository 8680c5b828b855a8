"""The graphs are what their closed forms say, at sizes at which that can be counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.overhead import workload
from benchmarks.overhead.contenders import compile_ours, our_job
from benchmarks.overhead.workload import GRAPHS

TINY = 1e-4


@pytest.mark.parametrize("name", GRAPHS)
def test_tasks_edges_and_result(name: str):
    graph = GRAPHS[name](TINY)
    with compile_ours(graph, workers=2, held=True) as program:
        our_job(program, graph)()  # raises if the result or the number of tasks is wrong
        assert program.stats.edges == graph.edges
        assert program.num_tasks() == graph.tasks


@pytest.mark.parametrize("name", GRAPHS)
def test_a_result_without_order_is_noticed(name: str):
    graph = GRAPHS[name](TINY)
    graph.reset()
    assert not graph.is_right()


def test_full_sizes():
    sizes = {name: (graph.tasks, graph.edges) for name, graph in _full()}
    assert sizes == {
        "independent": (1_000_000, 0),
        "chain": (1_000_000, 999_999),
        "attention": (8192 * 65, 8192 * 64),
        "wavefront": (1_000_000, 1_998_000),
        "stencil": (1_000_000, 999 * 2998),
        "tree": (2**21 - 1, 2**21 - 2),
    }


def _full():
    return ((name, make(1.0)) for name, make in GRAPHS.items())


def test_rivals_spin_in_the_same_loop():
    header = Path(workload.__file__).with_name("graphs.h").read_text("utf-8")
    for line in workload.SPIN.strip().splitlines():
        assert line.strip().replace("ITERATIONS", "iterations") in header
