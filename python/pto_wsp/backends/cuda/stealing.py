"""Blocks that have tasks of their own, and take those of others when these are used up.

Each block has a counter, which stands for its own tasks by growing number: those of a range of
numbers, or what a key places there. Whoever takes a task adds 1 to the counter of the block that it
belongs to, so that there is none that all of them share.

Progress, if all blocks run at a time. A block takes a task, runs it, and only then takes the next;
it takes from others once all of its own are taken. Let m be the smallest task that has not ended:
all that it waits for has. If somebody has taken it, that block is at it, and it ends. If nobody
has, its owner has yet to come to it, and is held up by nothing: its own tasks before m have ended,
and it takes from nobody else. A thief that waits holds nothing back but the task that it has taken.
"""

from __future__ import annotations

from collections.abc import Callable

from pto_wsp.backends.cuda.code import I64, Code
from pto_wsp.backends.cuda.counting import I32, Counter
from pto_wsp.backends.cuda.keys import Keys
from pto_wsp.backends.cuda.module import MOST_TASKS, Need
from pto_wsp.backends.cuda.orders import Turns
from pto_wsp.backends.cuda.schedule import Owner, Schedule
from pto_wsp.backends.cuda.taking import ZERO, Taking
from pto_wsp.backends.cuda.waiting import Counters
from pto_wsp.plan import Plan

_SPREAD = 32  # words from one counter to the next, so that each has a cache line
_STOLEN = 1  # the word behind the first counter, which counts what was taken from others

STEALING = f'''
@triton.jit
def pto_range(block, total, crew):
    """The first number of a block's range, and how many it has: as many as any other, or one
    more."""
    each = total // crew
    more = total - each * crew
    return block * each + tl.minimum(block, more), each + tl.where(block < more, 1, 0)


@triton.jit
def pto_victim(ranges, sizes, crew, seed, STRIDE: tl.constexpr, WIDTH: tl.constexpr):
    """One of the blocks whose counters are below `sizes`, any of them by the seed, and whether
    there is one. Counters only grow: who has nothing left now never will."""
    block = tl.arange(0, WIDTH)
    taken = tl.load(ranges + block * STRIDE, mask=block < crew, other=0, volatile=True)
    left = ((block < crew) & (taken < sizes)).to(tl.int32)
    count = tl.sum(left, 0)
    nth = (pto_splitmix(seed) % tl.maximum(count, 1)).to(tl.int32)
    drawn = (left > 0) & (tl.cumsum(left, 0) == nth + 1)
    return tl.sum(tl.where(drawn, block, 0), 0), count > 0


@triton.jit
def pto_next(ranges, total, crew, victim, seed, STRIDE: tl.constexpr, WIDTH: tl.constexpr):
    """The next number of a block's range or, if that is used up, of another one's, and whose it
    is. If all are used up, a number that no task has."""
    first, size = pto_range(victim, total, crew)
    taken = tl.atomic_add(ranges + victim * STRIDE, 1, sem="relaxed")
    there = tl.full((), 1, tl.int1)
    while (taken >= size) & there:
        _, sizes = pto_range(tl.arange(0, WIDTH), total, crew)
        victim, there = pto_victim(ranges, sizes, crew, seed, STRIDE, WIDTH)
        first, size = pto_range(victim, total, crew)
        taken = tl.atomic_add(ranges + victim * STRIDE, 1, sem="relaxed", mask=there)
    return tl.where(there, first + taken, {MOST_TASKS}), victim
'''


class Stealing(Taking):
    """`workers`: how many blocks there are."""

    stolen = "(victim != me)"
    whose = "victim"

    def __init__(
        self,
        plan: Plan,
        schedule: Schedule,
        code: Code,
        counter: Counter,
        counters: Counters,
        turns: Turns,
        keys: Keys,
        workers: int,
    ) -> None:
        super().__init__(plan, schedule, code, counter, counters, turns, keys, None)
        self._by_key = schedule.dispatch.owner is not Owner.ANY
        self.walks = self._counts = self._by_key or schedule.pools > 1
        self._number = workers
        self._stride = schedule.pools * _SPREAD  # between blocks of a pool
        self._width = 1 << (workers - 1).bit_length()

    def place(self) -> None:
        """A counter for each block."""
        with self._code.in_prelude():
            self._first = self._counters.used
            words = self._number * _SPREAD
            self._counters.used = self._code.named(f"{self._first} + {words}", "first")

    def write(self, find: Callable[[], None]) -> None:
        code, pools = self._code, self._schedule.pools
        self._crew()
        pool = f" + pool * {_SPREAD}" if pools > 1 else ""
        code.line(f"ranges = counters + {self._first}{pool}")
        code.line("victim = me")
        code.line(f"stolen = tl.full((), 0, {I32})")
        if self.walks:
            self._walk(find)
        else:
            self._ranges(find)

    def end(self) -> None:
        at = f"counters + {self._first} + {_STOLEN}"
        self._code.line(f'tl.atomic_add({at}, stolen, sem="relaxed", mask=fits)')

    def end_last(self) -> None:
        at = f"counters + {self._first} + {_STOLEN}"
        self._code.line(f"stolen = tl.atomic_add({at}, 0, mask=fits)")
        self._code.line(f"tl.store(NEED + {Need.STOLEN:d}, stolen, mask=fits)")

    # --- ranges ---

    def _ranges(self, find: Callable[[], None]) -> None:
        code = self._code
        lanes = f"{self._seed}, {self._stride}, {self._width}"
        following = f"t, victim = pto_next(ranges, total, crew, victim, {lanes})"
        code.line(f"t = tl.full((), {MOST_TASKS}, {I32})")
        with code.block("if total > 0:"):  # else there may be no counters
            code.line(following)
        with code.block("while t < total:"):
            code.line(f"stolen += {self.stolen}.to({I32})")
            find()
            self._heed("total")
            code.line(following)

    @property
    def _seed(self) -> str:
        return f"(t).to({I64}) * blocks + pid"

    # --- walks ---

    def _walk(self, find: Callable[[], None]) -> None:
        """Over the block's own tasks, then over those of others."""
        code = self._code
        first, end = self._span()
        code.line(f"t = {first}")
        code.line(f"end = {end}")
        for name in ("seen", "mine"):
            code.line(f"{name} = tl.full((), 0, {I32})")
        with code.block("if total > 0:"):
            self._take()
        used_up = "if (t >= end) & (total > 0):"
        if not self._by_key:
            with code.block(used_up):
                self._move()
        with code.block("while t < end:"):
            code.line(f"ahead = tl.full((), 1, {I32})")
            find()
            code.line("t += ahead")
            with code.block(used_up):
                self._move()

    def _span(self) -> tuple[str, str]:
        """The numbers among which the tasks of a block are: the first, and the end."""
        if self._by_key:
            return ZERO, "total"
        self._code.line("first, size = pto_range(victim, total, crew)")
        return "first", "first + size"

    def _take(self) -> None:
        at = f"ranges + victim * {self._stride}"
        self._code.line(f'mine = tl.atomic_add({at}, 1, sem="relaxed")')

    def _has_run(self) -> None:
        super()._has_run()
        self._code.line("end = tl.minimum(end, total)")
        self._code.line(f"stolen += {self.stolen}.to({I32})")

    def _move(self) -> None:
        """Whoever has walked to the end knows that these tasks are all taken, and says so; then on
        to those of another block."""
        code = self._code
        code.line(f'tl.atomic_max(ranges + victim * {self._stride}, {MOST_TASKS}, sem="relaxed")')
        if self._by_key:
            code.line(f"sizes = tl.full(({self._width},), {MOST_TASKS}, {I32})")
        else:  # ranges without numbers have nothing
            code.line(f"_, sizes = pto_range(tl.arange(0, {self._width}), total, crew)")
            code.line(f"sizes = tl.minimum(sizes, 1) * {MOST_TASKS}")
        lanes = f"{self._seed}, {self._stride}, {self._width}"
        code.line(f"victim, there = pto_victim(ranges, sizes, crew, {lanes})")
        first, end = self._span()
        code.line(f"t = tl.where(there, {first}, total)")
        code.line(f"end = tl.where(there, {end}, 0)")
        code.line(f"seen = tl.full((), 0, {I32})")
        with code.block("if there:"):
            self._take()
