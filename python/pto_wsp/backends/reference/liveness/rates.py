"""Whether as many messages are received as are sent, where both numbers are known."""

from __future__ import annotations

from dataclasses import dataclass

from pto_wsp.backends.reference.liveness.counts import Count, constant, multiply, plus
from pto_wsp.backends.reference.liveness.skeleton import (
    Body,
    Choice,
    Loop,
    Messages,
    Skeleton,
    Talk,
    nodes_of,
)
from pto_wsp.plan import Op


@dataclass(frozen=True, slots=True)
class Imbalance:
    """`there` counts the messages of a channel, those at its start included."""

    channel: int
    there: Count
    taken: Count
    too_few: bool


def find_imbalance(skeleton: Skeleton) -> Imbalance | None:
    """A channel to which more messages are sent than are received and it can hold, or fewer than
    are received; whatever is bound, as long as not all extents are 0."""
    rates = _Rates(skeleton)
    for channel, link in enumerate(skeleton.links):
        there, taken = rates.sent(channel), rates.taken(channel)
        if there is None or taken is None:
            continue
        left = plus(there, taken, -1)
        values = [rates.value(left, symbol) for symbol in skeleton.symbols or (None,)]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            continue
        # What is left grows with every extent, or falls, so that small ones say all.
        signs = {number > 0 for product, number in left.items() if product}
        if signs <= {False} and max(known) < 0:
            return Imbalance(channel, there, taken, too_few=True)
        if signs <= {True} and min(known) > link.depth:
            return Imbalance(channel, there, taken, too_few=False)
    return None


class _Rates:
    def __init__(self, skeleton: Skeleton) -> None:
        self._skeleton = skeleton
        self._extents = skeleton.extents
        self._asked: set[int] = set()  # channels; a cycle of them has no beginning

    def sent(self, channel: int) -> Count | None:
        """How many messages there are in all; None if that is not known."""
        initial = constant(self._skeleton.links[channel].initial)
        process = self._skeleton.shape.producer[channel]
        if process is None:
            return initial
        sends = self._total(process, Op.SEND, channel)
        return None if sends is None else plus(initial, sends)

    def taken(self, channel: int) -> Count | None:
        """How many are received. A RECV takes what there is."""
        process = self._skeleton.shape.consumer[channel]
        if process is None:
            return constant(0)
        takers = nodes_of(self._skeleton.bodies[process])
        if any(isinstance(node, Messages) and node.channel == channel for node in takers):
            return None
        return self._total(process, Op.TAKE, channel)

    def value(self, count: Count, one: int | None) -> int | None:
        """The value where the extent `one` is 1 and the others are 0; None if there are others than
        plain extents in it."""
        total = 0
        for product, number in count.items():
            symbols = {self._extents.symbol(node) for node in product}
            if None in symbols:
                return None
            total += number if symbols <= {one} else 0
        return total

    def _total(self, process: int, op: Op, channel: int) -> Count | None:
        body = self._skeleton.bodies[process]
        replicas = constant(self._skeleton.shape.processes[process][2])
        total: Count = {}
        for node in body:
            if isinstance(node, Messages):
                each = self._all_messages(node.channel, body)
                more = self._sum(node.body, each, op, channel)
            else:
                more = self._sum((node,), replicas, op, channel)
            if more is None:
                return None
            total = plus(total, more)
        return total

    def _sum(self, body: Body, times: Count | None, op: Op, channel: int) -> Count | None:
        """How often an instruction is reached if its body is `times` times."""
        total: Count = {}
        for node in body:
            more: Count | None = {}
            match node:
                case Talk():
                    if node.op == op and node.channel == channel:
                        more = times
                case Loop():
                    extent = None if node.extent is None else self._extents.count(node.extent)
                    inner = None if extent is None or times is None else multiply(times, extent)
                    more = self._sum(node.body, inner, op, channel)
                case Messages():
                    more = self._sum(node.body, None, op, channel)
                case Choice():
                    more = self._sum(node.body + node.other, None, op, channel)
            if more is None:
                return None
            total = plus(total, more)
        return total

    def _all_messages(self, channel: int, body: Body) -> Count | None:
        """How often the body of a RECV runs, in all replicas; None if it is not the only one."""
        takers = [
            node
            for node in nodes_of(body)
            if (isinstance(node, Messages) or (isinstance(node, Talk) and node.op == Op.TAKE))
            and node.channel == channel
        ]
        producer = self._skeleton.shape.producer[channel]
        others = () if producer is None else nodes_of(self._skeleton.bodies[producer])
        closes = any(
            isinstance(n, Talk) and (n.op, n.channel) == (Op.CLOSE, channel) for n in others
        )
        if len(takers) > 1 or closes or channel in self._asked:
            return None
        self._asked.add(channel)
        sent = self.sent(channel)
        self._asked.discard(channel)
        return sent
