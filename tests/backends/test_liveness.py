"""Networks that can never come to their end are refused before they run, and no others."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pto_wsp import Program
from pto_wsp.backends.reference import liveness
from pto_wsp.backends.reference.liveness import check_liveness
from pto_wsp.backends.reference.liveness.check import find_stuck
from pto_wsp.backends.reference.liveness.explore import Found
from pto_wsp.backends.reference.liveness.skeleton import skeleton_of
from pto_wsp.error_codes import Code
from pto_wsp.errors import ChannelError, CompileError, DeadlockError
from tests.backends.talks import (
    All,
    Body,
    Get,
    If,
    Net,
    Put,
    Times,
    extents_of,
    get,
    mark,
    net,
    put,
)

VALUES = [{"n": n, "m": m, "flag": flag} for n, m, flag in product((2, 1, 3, 0), (2, 1, 0), (0, 1))]


def n(*body: Any) -> Body:
    return (Times("n", body),)


def refusal(made: Net) -> str:
    with pytest.raises(CompileError) as raised:
        made.workload().compile(target="reference")
    assert raised.value.code is Code.NETWORK_STUCK
    assert raised.value.loc is not None
    return str(raised.value)


CYCLE = net({"a": 2, "b": 1}, one=n(Get("b"), Put("a")), two=n(Get("a"), Put("b")))
LATER = (*n(Times(3, (Put("a"),)), Times(3, (Put("b"),))),)
FAN = net({"a": 1, "b": 1}, one=LATER, two=n(Times(3, (Get("a"), Get("b")))))

LIVE = {
    "chain": net(
        {"a": 2, "b": 0}, one=n(Put("a")), two=(All("a", (Put("b"),)),), three=(All("b"),)
    ),
    "counted chain": net({"a": 0}, one=n(Put("a")), two=n(Get("a"))),
    "long": net({"a": 1}, one=(Times(10**9, (Put("a"),)),), two=(Times(10**9, (Get("a"),)),)),
    "nest": net(
        {"a": 1},
        one=(Times(500, (Times(300, (Put("a"),)),)),),
        two=(Times(300, (Times(500, (Get("a"),)),)),),
    ),
    "cycle": net({"a": 0, "b": (1, 1)}, one=n(Get("b"), Put("a")), two=n(Get("a"), Put("b"))),
    "cycle that begins with a send": net(
        {"a": 1, "b": 1}, one=n(Put("a"), Get("b")), two=n(Get("a"), Put("b"))
    ),
    "fan": net({"a": 3, "b": 1}, one=LATER, two=n(Times(3, (Get("a"), Get("b"))))),
    "fan for one iteration": net(
        {"a": 1, "b": 1}, one=(*n(Put("a")), *n(Put("b"))), two=n(Get("a"), Get("b"))
    ),
    "condition": net(
        {"a": 1, "b": 1}, one=n(If(1, (Put("a"),), (Put("b"),))), two=(All("a"), All("b"))
    ),
    "condition on both sides": net(
        {"a": 0}, one=n(If(1, (Put("a"),))), two=n(If(1, (Get("a"),), ()))
    ),
    "live where one side is empty": net(
        {"a": 1, "b": 1},
        one=(*n(Get("b")), Times("m", (Put("a"),))),
        two=(Times("m", (Get("a"),)), *n(Put("b"))),
    ),
    "live where an extent is 0": net(
        {"a": 1, "b": 1},
        one=(*n(Get("b")), Times("m", (Put("a"),))),
        two=(Times("m", (Get("a"),)), Times("n", (Put("b"), Put("b"), Put("b")))),
    ),
    "more than is received": net(
        {"a": 3}, one=(Times(5, (Put("a"),)),), two=(Times(2, (Get("a"),)),)
    ),
    "twice as many": net({"a": 1}, one=n(Put("a"), Put("a")), two=n(Get("a"))),
    "other extents": net({"a": 1}, one=n(Put("a")), two=(Times("m", (Get("a"),)), Get("a"))),
    "replicas": net(
        {"a": 1, "b": 1},
        {"two": 3},
        one=n(Put("a")),
        two=(All("a", (Put("b"),)),),
        three=(All("b"),),
    ),
    "only initial messages": net({"a": (2, 2)}, one=n(Get("a")), two=n(Put("a"))),
}

STUCK = {
    "cycle": (CYCLE, "'one' -> 'two' -> 'one'", "channel 'b' or 'a' messages to begin with"),
    "fan": (FAN, "'a' (1 of 1 in use)", "give channel 'a' depth 3 (it has 1)"),
    "long fan": (
        net(
            {"a": 2, "b": 1},
            one=(Times(500, (Put("a"),)), Times(500, (Put("b"),))),
            two=(Times(500, (Get("a"), Get("b"))),),
        ),
        "waits for message 0 of channel 'b'",
        "give channel 'a' depth 500 (it has 2)",
    ),
    "very long fan": (
        net(
            {"a": 2, "b": 1},
            one=(Times(10**6, (Put("a"),)), Times(10**6, (Put("b"),))),
            two=(Times(10**6, (Get("a"), Get("b"))),),
        ),
        "waits for message 0 of channel 'b'",
        "give channel 'a' more buffers, or",
    ),
    "rendezvous": (
        net({"a": 0, "b": 0}, one=n(Put("a"), Put("b")), two=n(Get("b"), Get("a"))),
        "waits for a receiver at channel 'a' (rendezvous)",
        "give channel 'a' depth 1 (it has 0)",
    ),
    "cycle of three": (
        net(
            {"a": 1, "b": 1, "c": 1},
            one=n(Get("c"), Put("a")),
            two=(All("a", (Put("b"),)),),
            three=n(Get("b"), Put("c")),
        ),
        "'one' -> 'three' -> 'two' -> 'one'",
        "channel 'c' or 'b' or 'a' messages to begin with",
    ),
    "cycle with too few": (
        net(
            {"a": 1, "b": (1, 1)},
            one=n(Times(2, (Get("b"),)), Put("a")),
            two=n(Get("a"), Times(2, (Put("b"),))),
        ),
        "message 1 of channel 'b'",
        "messages to begin with",
    ),
    "one too few": (
        net({"a": 1}, one=n(Put("a")), two=(*n(Get("a")), Get("a"))),
        "n + 1 messages are received from channel 'a', to which n are sent",
        "send as many",
    ),
    "half": (
        net({"a": 1}, one=n(Put("a")), two=n(Times(2, (Get("a"),)))),
        "2 * n messages are received from channel 'a', to which n are sent",
        "send as many",
    ),
    "through another process": (
        net(
            {"a": 1, "b": 1},
            one=n(Times("m", (Put("a"),))),
            two=(All("a", (Times(2, (Put("b"),)),)),),
            three=(*n(Times("m", (Times(2, (Get("b"),)),))), Get("b")),
        ),
        "2 * n * m + 1 messages are received from channel 'b', to which 2 * n * m are sent",
        "send as many",
    ),
    "too many": (
        net({"a": (3, 2)}, one=n(Times(9, (Put("a"),))), two=n(Get("a"))),
        "n messages are received from channel 'a', to which 9 * n are sent and 2 are there",
        "receive as many",
    ),
    "closed": (
        net({"a": 1}, one=(Put("a"), If(1, (Put("a"),))), two=(Times(3, (Get("a"),)),)),
        "receives message 2 of channel 'a', which is closed",
        "send as many",
    ),
    "replicas": (
        net(
            {"a": 1, "b": 1, "c": 1},
            {"two": 2},
            one=(Times(4, (Put("a"), Put("c"))),),
            two=(All("a", (Put("b"),)),),
            three=(Times(4, (Get("b"),)), Times(4, (Get("c"),))),
        ),
        "waits for a free buffer of channel 'c'",
        "give channel 'c' depth 3 (it has 1)",
    ),
}


@pytest.mark.parametrize("name", LIVE)
def test_live(name: str) -> None:
    with LIVE[name].workload().compile(target="reference") as program:
        if name not in ("long", "nest"):
            assert any(_completes(program, values) for values in _bound(LIVE[name]))


@pytest.mark.parametrize("name", STUCK)
def test_stuck(name: str) -> None:
    made, who, fix = STUCK[name]
    text = refusal(made)
    assert who in text
    assert fix in text.partition("fix: ")[2]
    assert "talks.py" in text
    if "very long" in name:
        return
    with made.program() as program:
        assert not any(_completes(program, values) for values in _bound(made))


@pytest.mark.parametrize("name", ["fan", "long fan", "rendezvous", "replicas"])
def test_depths_in_the_advice_help(name: str) -> None:
    made, _, fix = STUCK[name]
    channel, depth = fix.split()[2].strip("'"), int(fix.split()[4])
    index = list(made.channels).index(channel)
    for given_depth, helps in ((depth, True), (depth - 1, False)):
        depths: list[Any] = list(made.channels.values())
        depths[index] = given_depth
        assert made.with_depths(depths).completes() is helps


def test_saved_plans_are_checked() -> None:
    with CYCLE.program() as program:
        data = program.plan.to_bytes()
    kernels = {"put": put.fn, "get": get.fn, "mark": mark.fn}
    with pytest.raises(CompileError, match="never come to its end"):
        Program.from_plan(data, kernels, target="reference")


def test_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A workload has one plan; compiling it again only loads that."""
    checked: list[object] = []
    monkeypatch.setattr(liveness, "check_liveness", checked.append)
    made = LIVE["chain"].workload()
    for _ in range(2):
        made.compile(target="reference").close()
    assert len(checked) == 1


@pytest.mark.parametrize("name", ["chain", "long", "nest", "replicas"])
def test_cost(name: str) -> None:
    """Few steps, however long the loops are."""
    with LIVE[name].program() as program:
        skeleton = skeleton_of(program.plan)
    assert skeleton is not None
    search = find_stuck(skeleton, [link.depth for link in skeleton.links]).result
    assert search.found is Found.END
    assert search.steps < 2000


def test_too_much_to_look_at_is_not_refused() -> None:
    skeleton = skeleton_of(FAN.program().plan)
    assert skeleton is not None
    assert find_stuck(skeleton, [1, 1], budget=3).result.found is Found.UNKNOWN


def _bound(made: Net) -> list[dict[str, int]]:
    """Values for which not all loops are empty."""
    used = extents_of(item for body in made.processes.values() for item in body)
    return [values for values in VALUES if not used or any(values[name] for name in used)]


def _completes(program: Program, values: dict[str, int]) -> bool:
    flag = np.array([values["flag"]])
    try:
        program.execute(n=values["n"], m=values["m"], flag=flag)
    except (DeadlockError, ChannelError):
        return False
    return True


# --- random networks ---


@st.composite
def bodies(draw: st.DrawFn, uses: list[Any]) -> Body:
    """The uses of channels in some order, in some loops and conditions."""
    items: list[Any] = list(draw(st.permutations(uses)))
    kind = draw(st.sampled_from(("plain", "one", "each", "split")))
    counts = st.sampled_from((1, 2, 3, "n", "m"))
    if kind == "one":
        return (Times(draw(counts), tuple(items)),)
    if kind == "each":
        items = [draw(st.sampled_from((item, Times(draw(counts), (item,))))) for item in items]
    if kind == "split" and len(items) > 1:
        half = len(items) // 2
        items = [
            Times(draw(counts), tuple(items[:half])),
            draw(st.sampled_from((If(1, tuple(items[half:])), Times(2, tuple(items[half:]))))),
        ]
    return (Times(draw(counts), tuple(items)),) if draw(st.booleans()) else tuple(items)


@st.composite
def networks(draw: st.DrawFn, most: int = 3) -> Net:
    names = ["one", "two", "three"][: draw(st.integers(2, 3))]
    uses: dict[str, list[Any]] = {name: [] for name in names}
    channels: dict[str, tuple[int, int]] = {}
    for channel in "abc"[: draw(st.integers(1, most))]:
        producer, consumer = draw(st.permutations(names))[:2]
        depth = draw(st.sampled_from((0, 1, 1, 2)))
        channels[channel] = depth, draw(st.integers(0, min(depth, 1)))
        uses[producer].append(Put(channel))
        uses[consumer].append(draw(st.sampled_from((Get, Get, All)))(channel))
    return Net({name: draw(bodies(each)) for name, each in uses.items()}, channels, {})


def check_refusals(made: Net) -> None:
    """What is refused cannot end, for any values."""
    with made.program() as program:
        try:
            check_liveness(program.plan)
        except CompileError:
            assert not any(_completes(program, values) for values in _bound(made))


def check_depths(made: Net) -> None:
    """No depths are found below those, and with those the network ends."""
    tried = [(0 if not made.channels[c][1] else 1, 1, 2, 3) for c in made.channels]
    works = {depths for depths in product(*tried) if made.with_depths(depths).completes()}
    with made.program() as program:
        try:
            found = program.min_depths()
        except (DeadlockError, ChannelError):
            assert not works
            return
    depths = tuple(found[name] for name in made.channels)
    assert made.with_depths(depths).completes()
    smaller = {each for each in works if all(a <= b for a, b in zip(each, depths, strict=True))}
    assert smaller <= {depths}


@settings(max_examples=40)
@given(networks())
def test_refused_networks_never_end(made: Net) -> None:
    check_refusals(made)


@settings(max_examples=6)
@given(networks(most=2))
def test_depths_of_random_networks(made: Net) -> None:
    check_depths(made)


@pytest.mark.soak
@given(networks())
def test_refusals_soak(made: Net) -> None:
    check_refusals(made)


@pytest.mark.soak
@given(networks(most=2))
def test_depths_soak(made: Net) -> None:
    check_depths(made)
