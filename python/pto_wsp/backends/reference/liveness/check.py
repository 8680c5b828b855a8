"""Networks that can never come to their end are refused before anything runs."""

from __future__ import annotations

from itertools import chain, combinations

from pto_wsp.backends.reference.liveness.counts import constant, plus
from pto_wsp.backends.reference.liveness.depths import smallest
from pto_wsp.backends.reference.liveness.explore import LIMIT, Exploration, Explorer, Found
from pto_wsp.backends.reference.liveness.rates import Imbalance, find_imbalance
from pto_wsp.backends.reference.liveness.skeleton import (
    Skeleton,
    Talk,
    nodes_of,
    skeleton_of,
)
from pto_wsp.backends.reference.network import TAKING, Wait, at_line, closed_text, wait_text
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.plan import Channel, Op, Plan, Section
from pto_wsp.srcloc import SrcLoc

_BUDGET = 10_000  # steps of one search
_MOST_SYMBOLS = 4  # each may be 0 or not
_DEEPEST = 12  # how often depths are doubled in search of some that help
_ALL = 1 << 62  # iterations
_FIX = "change the order in which messages are sent and received"


def check_liveness(plan: Plan) -> None:
    """CompileError if the network of a plan cannot come to its end whatever is bound, unless all of
    its extents are 0. What depends on values is left to the run."""
    if not plan.records(Channel):
        return
    skeleton = skeleton_of(plan)
    if skeleton is None:
        return
    imbalance = find_imbalance(skeleton)
    if imbalance is not None:
        raise _rate_error(skeleton, imbalance)
    stuck = find_stuck(skeleton, [link.depth for link in skeleton.links])
    if stuck.result.found is Found.STUCK:
        raise _stuck_error(skeleton, stuck)


def find_stuck(
    skeleton: Skeleton, depths: list[int], *, limit: int = LIMIT, budget: int = _BUDGET
) -> Explorer:
    """A search that has found an end, or the first one if none of them has. One is made for each
    set of extents that may be 0; all of them at once would say nothing about a network."""
    symbols = skeleton.symbols
    sizes = range(len(symbols) or 1)
    first = Explorer(skeleton, depths, frozenset(), limit)
    for empty in chain.from_iterable(combinations(symbols, size) for size in sizes):
        explorer = Explorer(skeleton, depths, frozenset(empty), limit) if empty else first
        explorer.explore(budget)
        if explorer.result.found is Found.STUCK and len(symbols) > _MOST_SYMBOLS:
            explorer.result.found = Found.UNKNOWN
        if explorer.result.found is not Found.STUCK:
            return explorer
    return first


def _rate_error(skeleton: Skeleton, found: Imbalance) -> CompileError:
    link, text = skeleton.links[found.channel], skeleton.extents.text
    op = Op.TAKE if found.too_few else Op.SEND
    ends = skeleton.shape.consumer if found.too_few else skeleton.shape.producer
    process = ends[found.channel]
    assert process is not None
    talks = (node for node in nodes_of(skeleton.bodies[process]) if isinstance(node, Talk))
    pc = next(talk.pc for talk in talks if (talk.op, talk.channel) == (op, found.channel))
    loc = skeleton.plan.loc(Section.CODE, pc)
    sent = text(plus(found.there, constant(link.initial), -1))
    message = f"{text(found.taken)} messages are received from channel {link.name!r}, to which"
    message += f" {sent} are sent"
    message += f" and {link.initial} are there at the start" if link.initial else ""
    if found.too_few:
        return CompileError(
            Code.NETWORK_STUCK,
            message,
            loc=loc,
            why="receive(...) wants a message, and one that never comes is an error",
            fix="send as many messages as are received, or take what there is with consume(...)",
        )
    return CompileError(
        Code.NETWORK_STUCK,
        message,
        loc=loc,
        why=f"it holds {link.depth} that nobody receives, and the next one waits for ever",
        fix="receive as many messages as are sent, or take what there is with consume(...)",
    )


def _stuck_error(skeleton: Skeleton, explorer: Explorer) -> CompileError:
    report = _Report(skeleton, explorer)
    fix = _deeper(skeleton) or report.fix()
    lines = "\n  ".join(["this network can never come to its end", *report.lines()])
    return CompileError(Code.NETWORK_STUCK, lines, loc=report.loc(), why=report.why(), fix=fix)


def _deeper(skeleton: Skeleton) -> str | None:
    """Depths with which there is an end; None if none were found."""

    def search(depths: list[int]) -> Found:
        # Loops are played in full: a long one may need as many buffers as it has iterations.
        return find_stuck(skeleton, depths, limit=_ALL, budget=8 * _BUDGET).result.found

    given = [link.depth for link in skeleton.links]
    steps = [1 << k for k in range(_DEEPEST)]
    helps = (more for more in steps if search([depth + more for depth in given]) is Found.END)
    more = next(helps, None)
    if more is None:
        return None
    depths = smallest(given, [depth + more for depth in given], lambda d: search(d) is Found.END)
    texts = [
        f"channel {link.name!r} depth {depth} (it has {link.depth})"
        for link, depth in zip(skeleton.links, depths, strict=True)
        if depth > link.depth
    ]
    return f"give {', '.join(texts)}"


class _Report:
    """Who waits for what in the first state in which a search was stuck."""

    def __init__(self, skeleton: Skeleton, explorer: Explorer) -> None:
        self._skeleton = skeleton
        self._explorer = explorer
        self._result: Exploration = explorer.result

    def lines(self) -> list[str]:
        waiting = [a for a, wait in enumerate(self._result.waits) if wait is not None]
        ended = [a for a, wait in enumerate(self._result.waits) if wait is None]
        if self._result.closed is not None:
            return [self._line(self._result.closed)]
        lines = [self._line(actor) for actor in waiting]
        return lines + [f"process {self._name(actor)} has come to its end" for actor in ended]

    def loc(self) -> SrcLoc | None:
        return self._skeleton.plan.loc(Section.CODE, self._wait(self._first).pc)

    def why(self) -> str:
        if self._result.closed is not None:
            return "receive(...) wants a message, and its producers have ended"
        cycle = self._cycle()
        if cycle:
            return f"they wait for each other: {' -> '.join(map(self._name, cycle))}"
        return "every process that has not ended waits for another one"

    def fix(self) -> str:
        """Where more buffers do not help."""
        if self._result.closed is not None:
            return "send as many messages as are received, or take what there is with consume(...)"
        cycle = [self._wait(actor) for actor in self._cycle()]
        full = [wait for wait in cycle if wait.op not in TAKING]
        names = dict.fromkeys(self._skeleton.links[w.channel].name for w in full or cycle)
        channels = " or ".join(repr(name) for name in names)
        if full:
            return f"give channel {channels} more buffers, or {_FIX}"
        if cycle:
            return f"give channel {channels} messages to begin with: Channel[...](initial=1)"
        return _FIX

    @property
    def _first(self) -> int:
        if self._result.closed is not None:
            return self._result.closed
        return next(a for a, wait in enumerate(self._result.waits) if wait is not None)

    def _wait(self, actor: int) -> Wait:
        wait = self._result.waits[actor]
        assert wait is not None
        return wait

    def _name(self, actor: int) -> str:
        process, replica = self._explorer.actors[actor]
        name, _, count = self._skeleton.shape.processes[process]
        return f"{name!r}" + (f" replica {replica}" if count > 1 else "")

    def _line(self, actor: int) -> str:
        wait, replica = self._wait(actor), self._explorer.actors[actor][1]
        assert self._result.state is not None
        flow = self._result.state.flows[wait.channel]
        message = flow.next_taken(replica) if wait.op in TAKING else 0
        text = wait_text(wait.op, flow.link.name, flow.in_use, flow.buffers, message)
        if actor == self._result.closed:
            text = closed_text(flow.link.name, message)
        return f"process {self._name(actor)} {text}{at_line(self._skeleton.plan, wait.pc)}"

    def _cycle(self) -> list[int]:
        """Actors that wait for each other, the first one once more at the end; or nobody."""
        path: list[int] = []
        actor: int | None = self._first
        while actor is not None and actor not in path:
            path.append(actor)
            actor = self._explorer.waits_for(actor)
        return [] if actor is None else [*path[path.index(actor) :], actor]
