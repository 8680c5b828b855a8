"""The processes of a skeleton as lists of steps, which a search can stand at."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pto_wsp.backends.reference.liveness.skeleton import (
    Body,
    Choice,
    Loop,
    Messages,
    Node,
    Skeleton,
    Talk,
)
from pto_wsp.plan import Op


@dataclass(frozen=True, slots=True)
class Step:
    """An instruction of a process. Loops have a head, PARALLEL_FOR or RECV, and end with a NOP that
    goes back to it; a NOP ends the first branch of a COND as well."""

    op: Op
    channel: int = 0
    pc: int = 0
    target: int = 0  # where a NOP goes on, and a head where its body is skipped
    level: int = 0  # of the counter of a loop
    low: int = 0  # iterations
    high: int | None = None


class Flattener:
    def __init__(self, skeleton: Skeleton, empty: frozenset[int], limit: int) -> None:
        self._extents = skeleton.extents
        self._empty = empty
        self._limit = limit
        self.steps: list[Step] = []

    def body(self, body: Body, level: int = 0) -> int:
        """Appends the steps of a body; about how many of them are taken."""
        return sum(self._node(node, level) for node in body)

    def _node(self, node: Node, level: int) -> int:
        match node:
            case Talk():
                self.steps.append(Step(node.op, node.channel, node.pc))
                return 1
            case Messages():
                head = self._open(Step(Op.RECV, node.channel, node.pc))
                weight = self.body(node.body, level)
                self.steps.append(Step(Op.DROP, node.channel, node.pc))
                self._close(head)
                return weight + 2
            case Loop():
                return self._loop(node, level)
            case Choice():
                head = self._open(Step(Op.COND))
                weight = self.body(node.body, level)
                end = self._open(Step(Op.NOP))
                self._skip_to_here(head)
                weight += self.body(node.other, level)
                self._skip_to_here(end)
                return weight

    def _loop(self, loop: Loop, level: int) -> int:
        symbol = None if loop.extent is None else self._extents.symbol(loop.extent)
        known = None if loop.extent is None else self._extents.known(loop.extent)
        if symbol in self._empty or (known is not None and known <= 0):
            return 0
        head = self._open(Step(Op.PARALLEL_FOR, level=level))
        weight = self.body(loop.body, level + 1) + 2
        self._close(head)
        low, high = (0 if symbol is None else 1), None
        if known is not None:
            low = min(known, max(self._limit // weight, 1))
            high = known if low == known else None
        self.steps[head] = replace(self.steps[head], low=low, high=high)
        return weight * max(low, 1)

    def _open(self, step: Step) -> int:
        self.steps.append(step)
        return len(self.steps) - 1

    def _close(self, head: int) -> None:
        self.steps.append(Step(Op.NOP, target=head))
        self._skip_to_here(head)

    def _skip_to_here(self, at: int) -> None:
        self.steps[at] = replace(self.steps[at], target=len(self.steps))
