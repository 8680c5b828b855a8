"""A channel in a search: how many messages are where."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pto_wsp.backends.reference.liveness.skeleton import Link


@dataclass(eq=False, slots=True)
class Flow:
    """A channel at work, as `network.Queue` is one, but told by numbers alone: what each replica
    has sent, taken, and left again."""

    link: Link
    depth: int
    sent: list[int]
    closed: list[bool]
    taken: list[int]
    left: list[int]

    @property
    def buffers(self) -> int:
        return max(self.depth, 1)

    @property
    def in_use(self) -> int:
        return self.link.initial + sum(self.sent) - sum(self.left)

    def copy(self) -> Flow:
        lists = (self.sent[:], self.closed[:], self.taken[:], self.left[:])
        return Flow(self.link, self.depth, *lists)

    def next_sent(self, replica: int) -> int:
        return self.link.initial + replica + self.sent[replica] * self.link.producers

    def next_taken(self, replica: int) -> int:
        return replica + self.taken[replica] * self.link.consumers

    def before(self, message: int) -> tuple[int, int]:
        """The consumer of the message whose buffer a message needs, and its number there."""
        number, replica = divmod(message - self.buffers, self.link.consumers)
        return replica, number

    def has_room(self, replica: int) -> bool:
        message = self.next_sent(replica)
        if message < self.buffers:
            return True
        if self.link.consumers == 0:
            return False
        consumer, number = self.before(message)
        return self.left[consumer] > number

    def source(self, message: int) -> tuple[int, int]:
        """The producer of a message, and its number there."""
        number, replica = divmod(message - self.link.initial, self.link.producers)
        return replica, number

    def is_there(self, message: int) -> bool:
        if message < self.link.initial or self.link.producers == 0:
            return message < self.link.initial
        replica, number = self.source(message)
        return self.sent[replica] > number

    def never_comes(self, message: int) -> bool:
        if self.is_there(message):
            return False
        return self.link.producers == 0 or self.closed[self.source(message)[0]]

    def key(self) -> tuple[object, ...]:
        """Equal where the same can happen next: messages are counted from a round that is over."""
        link = self.link
        round_ = math.lcm(max(link.producers, 1), max(link.consumers, 1), self.buffers)
        taken = round_ // max(link.consumers, 1)
        over = min(self.left, default=0) // taken
        sent = round_ // max(link.producers, 1)
        return (
            *(n - over * sent for n in self.sent),
            *self.closed,
            *(n - over * taken for n in self.taken),
            *(n - over * taken for n in self.left),
        )
