"""Targets and options of `compile`: each acts, or is refused with the reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pto_wsp import (
    CompileError,
    DenseDyn,
    InOut,
    P,
    Program,
    ScheduleError,
    Tensor,
    TracePolicy,
    Workload,
    kernel,
    workload,
)
from pto_wsp.options import COMMON, ELSEWHERE, OPTIONS

ROOT = Path(__file__).parent.parent


def work(statement: str = "x[0] += 1;") -> Workload:
    @kernel(cpp_src=statement)
    def body(x: InOut[Tensor]): ...

    X = Tensor(data=np.zeros(8))

    @workload
    def line(n):
        for i in P(n):
            body[i](X[i])

    return line(DenseDyn(8))


# --- targets ---


def test_auto_takes_the_first_target_and_says_so() -> None:
    with work().compile(target="auto", num_threads=2) as program:
        assert program.target == "cpu_sim"
        assert program.chosen == "cpu_sim is the first that runs this plan"
        first = program.explain().splitlines()[0]
        assert first == f'cpu_sim, 2 workers (target="auto": {program.chosen})'
        assert program.instance().chosen == program.chosen
    with work().compile() as program:
        assert program.chosen == ""
        assert "auto" not in program.explain()


def test_auto_passes_over_targets_that_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference comes first here and has neither workers nor a virtual clock."""
    from pto_wsp.backends import registry

    turned = dict(reversed(registry._BACKENDS.items()))
    monkeypatch.setattr(registry, "_BACKENDS", turned)
    with work().compile(target="auto") as program:
        assert program.target == "reference"
    with work().compile(target="auto", num_threads=1) as program:
        assert program.target == "cpu_sim"
        assert "reference has no option 'num_threads'; " in program.chosen
        assert "; cpu_sim is the first" in program.chosen
    virtual = work().task_graph(trace=TracePolicy.cycles(lambda t: 1))
    with virtual.compile(target="auto") as program:
        assert program.target == "cpu_sim"
        assert program.chosen.startswith("reference: the reference target cannot enforce")


def test_auto_where_nothing_fits() -> None:
    with pytest.raises(CompileError, match="no target runs this program") as caught:
        work().compile(target="auto", grid=(2, 2))
    assert caught.value.code.value == "PTO903"
    reasons = [f"{target} has no option 'grid'" for target in ("cpu_sim", "cuda", "reference")]
    assert caught.value.why == "; ".join(reasons)


@pytest.mark.parametrize(
    ("name", "target"),
    [("ascend_910b", "ascend_npu"), ("ascend_950", "ascend_npu"), ("xdna2", "amd_aie")],
)
def test_machines_of_targets_that_are_not_there(name: str, target: str) -> None:
    with pytest.raises(CompileError, match=f"there is no target '{name}'") as caught:
        work().compile(target=name)
    assert caught.value.why is not None
    assert f"of target '{target}', which this version lacks" in caught.value.why
    assert caught.value.fix == "use one of: auto, cpu_sim, cuda, reference"
    with pytest.raises(CompileError, match="there is no target 'gpu9000'"):
        work().compile(target="gpu9000")


# --- options ---


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("optimization_level", 4),
        ("optimization_level", True),
        ("enable_debug", 1),
        ("enable_profiling", "yes"),
        ("num_threads", -1),
        ("num_threads", 4097),
        ("num_threads", 2.0),
        ("seed", 2**64),
        ("seed", "0"),
    ],
)
def test_values_that_make_no_sense(name: str, value: object) -> None:
    (option,) = (option for option in OPTIONS if option.name == name)
    with pytest.raises(CompileError) as caught:
        work().compile(**{name: value})
    assert caught.value.code.value == "PTO902"
    assert caught.value.message == f"compile({name}={value!r}): expected {option.expected}"
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__


@pytest.mark.parametrize("name", [*ELSEWHERE, "threads"])
def test_options_that_are_not_there(name: str) -> None:
    for target in ("cpu_sim", "reference"):
        with pytest.raises(CompileError, match=f"has no option '{name}'") as caught:
            work().compile(target=target, **{name: 2})
        usual = "an option that is ignored would change nothing"
        assert caught.value.why == ELSEWHERE.get(name, (usual,))[0]
    with pytest.raises(CompileError, match="has no option 'num_threads'"):
        work().compile(target="reference", num_threads=2)


def flags_of(capfd: pytest.CaptureFixture[str], **options: object) -> list[str]:
    work().compile(**options).close()
    return capfd.readouterr().err.split()


def test_levels_reach_the_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PTO_WSP_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PTO_WSP_DEBUG", "1")
    assert "-O3" in flags_of(capfd)
    assert "-O1" in flags_of(capfd, optimization_level=1)
    debug = flags_of(capfd, enable_debug=True)
    assert {"-g", "-O0"} <= set(debug)
    assert {"-g", "-O2"} <= set(flags_of(capfd, enable_debug=True, optimization_level=2))
    assert "cached" in flags_of(capfd, enable_debug=True)


def test_profiling_traces_unless_the_schedule_says() -> None:
    with work().compile(enable_profiling=True) as program:
        assert len(program.execute().trace) == 8
    kept = work().task_graph(trace=TracePolicy.timestamps(capacity=3))
    with kept.compile(enable_profiling=True, num_threads=1) as program:
        assert len(program.execute().trace) == 3
    with work().compile() as program:
        plan = program.plan
        assert len(program.execute().trace) == 0
    with pytest.raises(CompileError, match="enable_profiling of a plan"):
        Program.from_plan(plan, enable_profiling=True)


def test_options_of_a_plan() -> None:
    with work().compile() as program:
        plan = program.plan
    with Program.from_plan(plan, target="auto", optimization_level=1, num_threads=2) as program:
        assert (program.target, program.num_workers) == ("cpu_sim", 2)


def test_every_option_is_documented() -> None:
    text = (ROOT / "docs/schedule.md").read_text("utf-8")
    for option in OPTIONS:
        assert f"| `{option.name}` | {option.expected} | `{option.default}` |" in text
    assert all(f"`{name}`" in text for name in ELSEWHERE)
    assert {option.name for option in COMMON} < {option.name for option in OPTIONS}


def test_refusals_of_schedules_are_not_hidden_by_auto() -> None:
    with pytest.raises(ScheduleError, match="there is no folder"):
        work().task_graph(trace=TracePolicy.timestamps("/nowhere/at/all.json")).compile("auto")
