"""Numbers and names that are written down in several places are the same everywhere."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from enum import IntEnum
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import pto_wsp
from pto_wsp import _core, dtypes
from pto_wsp.backends.cpu import trace as cpu_trace
from pto_wsp.frontend import policies
from pto_wsp.frontend.schedule import DirectiveSet
from pto_wsp.runtime.stats import Stats


def test_stats_are_those_of_the_core() -> None:
    names = [field.name for field in fields(Stats)]
    assert names == [*(name for name, _ in _core.stat_docs()), "workers", "worker_tasks"]
    assert all(doc for _, doc in _core.stat_docs())


def in_core(enum: str) -> dict[str, int]:
    """The values of an enum of enums.def, as the core was built with it."""
    table = cast("list[dict[str, Any]]", _core.reflect()["enums"])
    (found,) = (each for each in table if each["name"] == enum)
    return {value["name"]: value["number"] for value in found["values"]}


def test_dtype_numbers() -> None:
    assert {d.name: d.value for d in dtypes.DType} == in_core("DType")


RENAMED = {
    "infer_tensor_map_exact": "EXACT",
    "infer_bytes_overlap": "OVERLAP",
    "dispatch_by": "BY_KEY",
    "per_stream": "STREAM",
    "per_pool": "POOL",
    "per_key": "KEY",
}


@pytest.mark.parametrize("policy", policies.NUMBERS)
def test_schedule_numbers(policy: str) -> None:
    """Policies of the frontend are those of the plan, by number and by name."""
    numbers = in_core({"Deps": "DepsPolicy", "Pools": "PoolPolicy"}.get(policy, policy))
    for name, number in policies.NUMBERS[policy].items():
        assert numbers[RENAMED.get(name, name.upper())] == number


@pytest.mark.parametrize("policy", [policies.WindowMode, policies.Affinity])
def test_enumerations(policy: type[IntEnum]) -> None:
    assert {value.name: value.value for value in policy} == in_core(policy.__name__)


def test_directives_have_their_numbers() -> None:
    everything = (
        DirectiveSet()
        .task_graph(
            deps=policies.Deps.auto(),
            window=policies.TaskWindow(),
            pools=policies.Pools.custom(lambda t: t.rows, 2),
            ready=policies.ReadyPolicy.fifo(),
            start=policies.StartPolicy.immediate(),
            trace=policies.TracePolicy.none(),
        )
        .with_dispatch(policies.DispatchPolicy.round_robin(2))
        .with_streams(2)
        .with_stream_by(lambda t: t.rows)
        .with_timing(policies.TimingPolicy.batched(2))
        .with_depth(policies.DepthGate(2))
        .with_batch_deps(2)
        .with_prefetch(policies.Prefetch("rows", 2))
    )
    placed = DirectiveSet().with_affinity({"rows": policies.Affinity.SPREAD})
    names = {d.name for d in (*everything.directives(), *placed.directives())}
    assert len(names) == 14
    assert names <= in_core("Directive").keys()


def test_trace_events_have_the_layout_of_the_core() -> None:
    assert np.dtype(cpu_trace._TASK).itemsize == _core.TRACED_SIZE


def test_the_stub_describes_the_core(tmp_path: Path) -> None:
    """_core.pyi is what nanobind's stub generator writes for the core as it is built now."""
    out = tmp_path / "_core.pyi"
    command = [sys.executable, "-m", "nanobind.stubgen", "-m", "pto_wsp._core", "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    kept = Path(pto_wsp.__file__).parent / "_core.pyi"
    assert kept.read_text("utf-8") == out.read_text("utf-8"), (
        "python -m nanobind.stubgen -m pto_wsp._core -o python/pto_wsp/_core.pyi"
    )
