"""bars.toml says what it means, and the check notices what is missed or missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import check
from benchmarks.bars import Bar, Verdict, load
from benchmarks.bars import check as compare
from benchmarks.overhead.workload import GRAPHS, PARALLEL


def verdicts(bar: Bar, measured: dict) -> list[Verdict]:
    return [outcome.verdict for outcome in compare([bar], measured)]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [(2.9, Verdict.MISSED), (3.0, Verdict.PASS), (4.9, Verdict.PASS), (5.0, Verdict.AIM)],
)
def test_at_least(value: float, wanted: Verdict):
    assert Bar("x", "a", "at least", required=3.0, aim=5.0).judge(value) is wanted


@pytest.mark.parametrize(
    ("value", "wanted"), [(101, Verdict.MISSED), (100, Verdict.PASS), (60, Verdict.AIM)]
)
def test_at_most(value: float, wanted: Verdict):
    assert Bar("x", "a", "at most", required=100, aim=60).judge(value) is wanted


@pytest.mark.parametrize("value", [-1, 1])
def test_equal(value: int):
    bar = Bar("x", "a", "equal", required=0)
    assert bar.judge(0) is Verdict.PASS
    assert bar.judge(value) is Verdict.MISSED


def test_an_aim_alone_never_fails():
    bar = Bar("x", "a", "at least", aim=15)
    assert not bar.judge(1.0).fails
    assert verdicts(bar, {}) == [Verdict.SKIPPED]


def test_star_stands_for_every_name():
    bar = Bar("x", "graphs.*.ratio.median", "at least", required=3.0, count=2)
    measured = {"graphs": {"tree": {"ratio": {"median": 4}}, "chain": {"ratio": {"median": 2}}}}
    outcomes = compare([bar], measured)
    assert [(each.item, each.verdict) for each in outcomes] == [
        ("tree", Verdict.PASS),
        ("chain", Verdict.MISSED),
    ]


def test_missing_values_fail():
    bar = Bar("x", "graphs.*.ratio", "at least", required=3.0, count=2)
    assert verdicts(bar, {}) == [Verdict.MISSING]
    assert verdicts(bar, {"graphs": {"tree": {"ratio": 4}}}) == [Verdict.PASS, Verdict.MISSING]


def test_optional_values_may_be_missing_but_not_in_part():
    bar = Bar("x", "long.*", "at most", required=64, count=2, optional=True)
    assert verdicts(bar, {}) == [Verdict.SKIPPED]
    assert verdicts(bar, {"long": {"a": 1}}) == [Verdict.PASS, Verdict.MISSING]


@pytest.mark.parametrize("value", ["3", True, None, [3], {"median": 3}])
def test_what_is_not_a_number_is_missing(value: object):
    assert verdicts(Bar("x", "a", "at most", required=4), {"a": value}) == [Verdict.MISSING]


def test_bad_bars_are_refused():
    with pytest.raises(ValueError, match="direction"):
        Bar("x", "a", "above", required=1)
    with pytest.raises(ValueError, match="neither"):
        Bar("x", "a", "at least")


def test_the_file_covers_all_graphs():
    bars = load()
    counts = {bar.key: bar.count for bar in bars}
    assert counts["graphs.*.pipelined.vs_tbb.median"] == len(GRAPHS) == 6
    assert counts["bodies.*.10us.speedup.median"] == len(PARALLEL) == 5
    assert len({bar.name for bar in bars}) == len(bars)


def test_exit_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    # Every bar is met exactly, under a made-up name where a star stands.
    measured: dict = {}
    for bar in load():
        for number in range(bar.count):
            *path, last = bar.key.replace("*", f"item{number}").split(".")
            node = measured
            for name in path:
                node = node.setdefault(name, {})
            node[last] = bar.aim if bar.required is None else bar.required
    file = tmp_path / "result.json"
    file.write_text(json.dumps(measured))
    assert check.main(["--from", str(file)]) == 0
    measured["metg"]["wavefront"]["ours"]["ns"] = 100.5
    file.write_text(json.dumps(measured))
    assert check.main(["--from", str(file)]) == 1
    assert "MISSED" in capsys.readouterr().out
