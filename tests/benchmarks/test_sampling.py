"""The arithmetic behind the numbers that the benchmarks print."""

from __future__ import annotations

import math

import pytest

from benchmarks.sampling import Protocol, Samples, crossing, interleave, two_digits


def test_median_and_quartiles():
    samples = Samples((5.0, 1.0, 3.0, 2.0, 4.0))
    assert samples.median == 3.0
    assert samples.quartiles == (2.0, 4.0)
    assert samples.to_json() == {"median": 3.0, "q1": 2.0, "q3": 4.0, "min": 1.0, "n": 5}


def test_quartiles_of_one_sample():
    assert Samples((7.0,)).quartiles == (7.0, 7.0)


def test_ratios_are_paired():
    # The second round was twice as slow for both; paired, it makes no difference.
    ours, theirs = Samples((1.0, 2.0, 1.0)), Samples((3.0, 6.0, 3.0))
    assert ours.times_faster_than(theirs).values == (3.0, 3.0, 3.0)
    assert theirs.times_faster_than(ours).median == pytest.approx(1 / 3)


def test_interleave_takes_turns_and_drops_the_warm_up():
    order: list[str] = []

    def job(name: str, values: list[float]):
        def run() -> float:
            order.append(name)
            return values.pop(0)

        return run

    jobs = {"a": job("a", [100.0, 1.0, 2.0]), "b": job("b", [100.0, 3.0, 4.0])}
    taken = interleave(jobs, Protocol(runs=2, warmup=1, pause_s=0.0))
    assert taken["a"].values == (1.0, 2.0)
    assert taken["b"].values == (3.0, 4.0)
    assert order == ["a", "b", "b", "a", "a", "b"]


def test_fewer_runs_never_become_more():
    assert Protocol(runs=3).fewer(5).runs == 3
    assert Protocol(runs=20).fewer(5).runs == 5


def test_crossing_interpolates_over_the_logarithm():
    assert crossing([(10, 0.2), (40, 0.8)], 0.5) == pytest.approx(20)
    assert crossing([(40, 0.8), (10, 0.2), (20, 0.4)], 0.5) == pytest.approx(20 * 2**0.25)


def test_crossing_of_the_usual_curve():
    # A task costs `overhead` beside its body on each of two workers: half at length 2 * overhead.
    overhead = 75.0
    lengths = [64 * math.sqrt(2) ** k for k in range(8)]
    points = [(x, x / 2 / (overhead + x / 2)) for x in lengths]
    assert crossing(points, 0.5) == pytest.approx(2 * overhead, rel=0.01)


def test_crossing_outside_the_points():
    assert crossing([(16, 0.7), (32, 0.8)], 0.5) == 16
    assert crossing([(16, 0.1), (32, 0.2)], 0.5) is None
    assert crossing([], 0.5) is None


@pytest.mark.parametrize(
    ("value", "wanted"), [(0.2, 1), (7.4, 7), (38.2, 38), (123.0, 120), (8106.7, 8100), (99.9, 100)]
)
def test_two_digits(value: float, wanted: int):
    assert two_digits(value) == wanted
