"""Policies that other packages register, as installed packages do it: by entry points."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from pto_wsp import (
    DenseDyn,
    DispatchPolicy,
    InOut,
    P,
    ReadyPolicy,
    ScheduleError,
    Tensor,
    TracePolicy,
    Workload,
    kernel,
    workload,
)

MODULE = """
from pto_wsp import DispatchPolicy, ReadyPolicy

def diagonal(width=2):
    return DispatchPolicy.dispatch_by(lambda t: (t.rows + t.cols) % width)

def last_first():
    return ReadyPolicy.priority(lambda t: t.ordinal)

def nothing():
    return 42

number = 7
"""
ENTRIES = {
    "diagonal": "wsp_extras:diagonal",
    "last_first": "wsp_extras:last_first",
    "nothing": "wsp_extras:nothing",
    "number": "wsp_extras:number",
    "gone": "wsp_extras:gone",
    "no_module": "wsp_nowhere:f",
}


def install(folder: Path, name: str, entries: dict[str, str]) -> None:
    """What pip leaves of a package in site-packages."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [f"{key} = {value}" for key, value in entries.items()]
    (info / "entry_points.txt").write_text("\n".join(["[pto_wsp.policies]", *lines, ""]))


@pytest.fixture
def extras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "wsp_extras.py").write_text(MODULE)
    install(tmp_path, "wsp_extras", ENTRIES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "wsp_extras", raising=False)
    return tmp_path


@kernel(cpp_src="x[0] += 1;")
def count(x: InOut[Tensor]): ...


def grid() -> Workload:
    X = Tensor(data=np.zeros((6, 5)))

    @workload
    def cells(rows, cols):
        for i, j in P(rows, cols):
            count[i, j](X[i, j])

    return cells(DenseDyn(6), DenseDyn(5)).task_graph(trace=TracePolicy.timestamps())


def test_a_registered_policy_acts(extras: Path) -> None:
    policy = DispatchPolicy.named("diagonal", width=3)
    assert policy == DispatchPolicy.dispatch_by(lambda t: (t.rows + t.cols) % 3)
    with grid().dispatch(policy).compile(num_threads=3) as program:
        for row in program.execute().trace:
            assert row["worker"] == sum(row["indices"]) % 3
    ready = ReadyPolicy.named("last_first")
    with grid().task_graph(ready=ready).compile(num_threads=1) as program:
        assert program.execute().trace["task_id"].tolist() == list(range(29, -1, -1))


def refused(form: object, match: str) -> None:
    assert callable(form)
    with pytest.raises(ScheduleError, match=match) as caught:
        form()
    assert caught.value.code.value == "PTO320"
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__


def test_names_that_are_not_there(extras: Path) -> None:
    with pytest.raises(ScheduleError, match="no installed package has an entry point") as caught:
        DispatchPolicy.named("digonal")
    assert caught.value.fix is not None
    assert "there are: diagonal, gone," in caught.value.fix


def test_entries_that_give_no_policy(extras: Path) -> None:
    refused(lambda: ReadyPolicy.named("diagonal"), "has to return a ReadyPolicy")
    refused(lambda: DispatchPolicy.named("nothing"), "it gives 42")
    refused(lambda: DispatchPolicy.named("number"), "is not a function")
    refused(lambda: DispatchPolicy.named("gone"), "wsp_extras:gone cannot be loaded")
    refused(lambda: DispatchPolicy.named("no_module"), "No module named 'wsp_nowhere'")


def test_one_name_of_two_packages(extras: Path) -> None:
    install(extras, "wsp_others", {"diagonal": "wsp_others:diagonal"})
    refused(lambda: DispatchPolicy.named("diagonal"), "several packages register that name")
