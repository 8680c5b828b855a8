"""Writes which tasks a block takes, where a schedule says so.

Numbers of the order of generation are dealt out by division, and parts of them are ranges. What a
key says is found by a walk: every block goes through the numbers, looks at each task's key, and
runs those that are its own; where the tasks of a loop have one key, they are passed at once.

A block goes through its tasks by growing number. The smallest task that has not ended is therefore
always the next one of its block, and if all blocks run at a time, waits come to an end.
stealing.py says what else there is where blocks take tasks of others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pto_wsp.backends.cuda.code import I64, Code
from pto_wsp.backends.cuda.counting import I32, Counter, Found
from pto_wsp.backends.cuda.keys import Keys, reads_ordinal
from pto_wsp.backends.cuda.module import Fault, Word
from pto_wsp.backends.cuda.nest import Call, calls, loops_of
from pto_wsp.backends.cuda.orders import Turns
from pto_wsp.backends.cuda.schedule import Owner, Schedule
from pto_wsp.backends.cuda.waiting import Counters
from pto_wsp.plan import ExecUnit, Kernel, Plan, Site

_CUBE = (ExecUnit.AIC, ExecUnit.AIC_AIV)
_BY_NUMBER = (Owner.NUMBER, Owner.ORDINAL, Owner.PARTS, Owner.SPREAD)

# The first number. Triton (3.6) fails to compile some loops over numbers that it knows to begin
# with 0; that this is one it does not see.
ZERO = "tl.minimum(total, 0)"

SPLITMIX = '''
@triton.jit
def pto_splitmix(z):
    """Mixes a key, as every target does."""
    z = z.to(tl.uint64)
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    return ((z ^ (z >> 31)) >> 1).to(tl.int64)
'''


class Taking:
    """`levels` are the least and the largest priority."""

    stolen = ""  # the text of whether a task is another block's
    whose = "me"  # whose tasks a block looks for

    def __init__(
        self,
        plan: Plan,
        schedule: Schedule,
        code: Code,
        counter: Counter,
        counters: Counters,
        turns: Turns,
        keys: Keys,
        levels: tuple[int, int] | None,
    ) -> None:
        self._plan = plan
        self._schedule = schedule
        self._code = code
        self._counter = counter
        self._counters = counters
        self._turns = turns
        self._keys = keys
        self._levels = levels
        self._first = ""
        dispatch = schedule.dispatch
        alone = schedule.pools == 1 and schedule.priority is None
        self.walks = not (alone and dispatch.key is None and dispatch.owner in _BY_NUMBER[:3])
        self._counts = self.walks and dispatch.owner is Owner.ANY  # own counters hand tasks out

    def place(self) -> None:
        """Counters for each pool and priority, beside those that tasks wait for."""
        if not self._counts:
            return
        low, high = self._levels or (0, 0)
        number = self._schedule.pools * (high - low + 2)  # one more, for whoever is past the last
        with self._code.in_prelude():
            self._first = self._counters.used
            self._counters.used = self._code.named(f"{self._first} + {number}", "first")

    def write(self, find: Callable[[], None]) -> None:
        """The main loop; `find` writes the search for task `t`, whose tasks go through `run`."""
        if self.walks:
            self._walk(find)
        elif self._schedule.dispatch.owner is Owner.PARTS:
            self._part(find)
        else:
            self._code.line("t = pid")
            with self._code.block("while t < total:"):
                find()
                self._code.line("t += blocks")
                self._heed("total")

    def _heed(self, limit: str) -> None:
        """A fault ends the run."""
        fault = f"tl.load(CTRL + {Word.ERROR:d}, volatile=True)"
        self._code.line(f"{limit} = tl.where({fault} == 0, {limit}, 0)")

    def end(self) -> None:
        """What a block does at its end."""

    def end_last(self) -> None:
        """What the last block does when all have ended."""

    def _part(self, find: Callable[[], None]) -> None:
        code, starts = self._code, self._schedule.dispatch.starts
        code.line(f"t = {ZERO}")
        code.line("end = total")
        for block, (start, end) in enumerate(zip(starts, [*starts[1:], None], strict=True)):
            with code.block(f"if pid == {block}:"):
                code.line(f"t += {start}")
                if end is not None:
                    code.line(f"end = tl.minimum(total, {end})")
        with code.block("while t < end:"):
            find()
            code.line("t += 1")
            self._heed("end")

    # --- the walk ---

    def _crew(self) -> None:
        """The number of this block in its pool, and how many blocks that has."""
        code, pools = self._code, self._schedule.pools
        if pools > 1:
            code.line(f"pool = pid % {pools}")
            code.line(f"crew = (blocks - pool + {pools - 1}) // {pools}")
            code.line(f"me = pid // {pools}")
        else:
            code.line("crew = blocks")
            code.line("me = pid")

    def _walk(self, find: Callable[[], None]) -> None:
        code = self._code
        self._crew()
        code.line(f"t = {ZERO}")
        head = "t < total"
        if self._levels is not None:
            code.line(f"level = tl.full((), {self._levels[1]}, {I64})")
            head = f"({head}) & (level >= {self._levels[0]})"
        if self._counts:
            code.line(f"seen = tl.full((), 0, {I32})")
            code.line(f"mine = tl.full((), 0, {I32})")
            with code.block("if total > 0:"):
                self._take()
        with code.block(f"while {head}:"):
            code.line(f"ahead = tl.full((), 1, {I32})")
            find()
            code.line("t += ahead")
            if self._levels is not None:
                with code.block("if t >= total:"):
                    self._next_level()

    def _has_run(self) -> None:
        """What follows a task of a walk that counts."""
        self._heed("total")

    def _next_level(self) -> None:
        code = self._code
        code.line("level -= 1")
        code.line(f"t = {ZERO}")
        if self._counts:
            code.line(f"seen = tl.full((), 0, {I32})")
            with code.block("if total > 0:"):
                self._take()

    def _take(self) -> None:
        """`mine` is the next number of this pool and priority."""
        at = [f"counters + {self._first}"]
        if self._levels is not None:
            at.append(f"({self._levels[1]} - level) * {self._schedule.pools}")
        if self._schedule.pools > 1:
            at.append("pool")
        self._code.line(f'mine = tl.atomic_add({" + ".join(at)}, 1, sem="relaxed")')

    def run(self, call: Call, found: Found, run: Callable[[], None]) -> None:
        """Writes the task that was found, if it is for this block."""
        if not self.walks:
            run()
            return
        code = self._code
        here = replace(found, scope=found.scope.inner())  # without what the task makes known
        conditions = [
            *self._pool(call, found),
            *self._owner(call, found),
            *self._level(call, found),
        ]
        with code.block(f"if {' & '.join(conditions)}:"):
            if self._counts:
                with code.block("if seen == mine:"):
                    run()
                    self._has_run()
                    self._take()
                    code.line("seen += 1")
                with code.block("else:"):
                    left = self._left(call, here)
                    if left != "1":
                        code.line(f"ahead = tl.minimum({left}, mine - seen)")
                    code.line("seen += ahead")
            else:
                run()
                self._heed("total")
        with code.block("else:"):
            code.line(f"ahead = {self._left(call, here)} + tl.full((), 0, {I32})")

    def _pool(self, call: Call, found: Found) -> list[str]:
        schedule = self._schedule
        if schedule.pools == 1:
            return []
        if schedule.pool_key is None:
            kernel = self._plan.records(Site)[call.site].kernel
            cube = self._plan.records(Kernel)[kernel].exec_unit in _CUBE
            return [f"(pool == {int(cube)})"]
        key = self._keys.text(schedule.pool_key, call, found, self._code)
        return [f"(pto_mod({key}, {schedule.pools}) == pool)"]

    def _level(self, call: Call, found: Found) -> list[str]:
        if self._schedule.priority is None:
            return []
        return [f"({self._keys.text(self._schedule.priority, call, found, self._code)} == level)"]

    def _owner(self, call: Call, found: Found) -> list[str]:
        dispatch, code = self._schedule.dispatch, self._code
        if dispatch.owner is Owner.ANY:
            return []
        if dispatch.axis and self._keys.loop(call.site, dispatch.axis) is None:
            return ["(t % crew == me)"]  # anywhere
        match dispatch.owner:
            case Owner.NUMBER | Owner.ORDINAL:
                return [f"(t % {dispatch.count} % crew == me)"]
            case Owner.PARTS:
                part = " + ".join(["0", *(f"(t >= {s}).to({I32})" for s in dispatch.starts[1:])])
                return [f"(({part}) % crew == me)"]
            case Owner.SPREAD:
                return [f"(pto_splitmix(t.to({I64})) % crew == me)"]
            case Owner.HASH:
                return [f"(pto_splitmix({self._key(call, found)}) % crew == me)"]
            case Owner.BLOCK:
                key = self._key(call, found)
                with code.block(f"if ({key} < 0) | ({key} >= crew):"):
                    code.line(f"pto_fault(CTRL, {Fault.NOBODY:d}, {call.site}, t, {key})")
                    code.line("total = total * 0")
                return [f"({key} == me)"]
            case _:
                return [f"(pto_mod({self._key(call, found)}, crew) == {self.whose})"]

    def _key(self, call: Call, found: Found) -> str:
        dispatch = self._schedule.dispatch
        if dispatch.key is not None:
            return self._keys.text(dispatch.key, call, found, self._code)
        loop = self._keys.loop(call.site, dispatch.axis)
        assert loop is not None, "tasks outside of the loop run anywhere"
        return found.scope.loops[loop.level]

    # --- tasks that are passed at once ---

    def _left(self, call: Call, found: Found) -> str:
        """How many tasks from this one on have the same keys: those that are left of the outermost
        loop that no key reads and that has no other call."""
        levels = self._read(call)
        if levels is None:
            return "1"
        for loop in loops_of(found.path):
            if loop.level > max(levels, default=-1):
                if len(list(calls((loop,)))) != 1:
                    return "1"
                count = self._counter.count((loop,), found.scope.inner())
                left = f"({count} - {found.numbers[loop.pc]}).to({I32})"
                return self._code.named(left, "left")
            if self._turns.lanes(loop):
                return "1"  # values of other iterations come in between
        return "1"

    def _read(self, call: Call) -> set[int] | None:
        """The levels of loops that the keys read; None if they read numbers."""
        schedule, levels = self._schedule, set[int]()
        if schedule.dispatch.owner in _BY_NUMBER:
            return None
        if schedule.dispatch.axis:
            loop = self._keys.loop(call.site, schedule.dispatch.axis)
            if loop is None:
                return None
            levels.add(loop.level)
        for key in (schedule.dispatch.key, schedule.pool_key, schedule.priority):
            if key is None:
                continue
            if reads_ordinal(self._plan, key):
                return None
            levels |= self._keys.levels(key, call.site)
        return levels
