"""Writes the kernel of a plan that is expanded on the host: blocks take numbers as ever, and find
the task and what it waits for in a table (expansion.py)."""

from __future__ import annotations

from dataclasses import replace

from pto_wsp.backends.cuda.code import I64, Code, Known, Scope
from pto_wsp.backends.cuda.counting import Found
from pto_wsp.backends.cuda.expansion import ARGUMENTS, UNSPECIALISED
from pto_wsp.backends.cuda.module import Module, Word
from pto_wsp.backends.cuda.nest import Branch, Call, Loop, Path, Phases, calls
from pto_wsp.backends.cuda.persistent import Writer, module_of
from pto_wsp.backends.cuda.refused import refusal
from pto_wsp.backends.cuda.schedule import Schedule
from pto_wsp.backends.cuda.timeline import depth_of
from pto_wsp.backends.cuda.waiting import inside
from pto_wsp.errors import ScheduleError
from pto_wsp.kernels.triton_code import TritonOptions
from pto_wsp.plan import Directive, Plan


class ExpandedWriter(Writer):
    def __init__(self, plan: Plan, options: TritonOptions, known: Known, workers: int) -> None:
        super().__init__(plan, options, known, workers, expanded=True)
        self._depth = depth_of(plan)
        if self.taking is not None and self.taking.walks:
            raise _refusal(plan, self.schedule)

    def write(self) -> None:
        code = self.code
        if self._recorder is not None:
            self._recorder.begin()
        self.counter.depends(self.nest)  # learns what lets depend on
        self.temps.place()
        self.counters.used = "SLOTS"
        if self.taking is not None:
            self.taking.place()
        with code.in_prelude():
            code.line(f"tickets = tl.full((), 0, {I64}) + TASK_COUNT")
            code.line(f"events = tl.full((), 0, {I64}) + {self.counters.used}")
            code.line(f"space = tl.full((), 0, {I64}) + {self.temps.used}")
            code.line(f"WAIT_AT = TABLE + tickets * {1 + self._depth}")
            code.line("SIGNAL_AT = WAIT_AT + tickets + 1")
            code.line("WAITS = SIGNAL_AT + tickets + 1")
            code.line(f"SIGNALS = WAITS + tl.full((), 2, {I64}) * WAIT_COUNT")
        self._begin()
        if self.taking is not None:
            self.taking.write(self._listed_task)
            self._end()
            return
        take = f't = tl.atomic_add(CTRL + {Word.TICKET:d}, 1, sem="relaxed")'
        with code.block("if DIRECT:"):
            code.line("t = pid")
        with code.block("else:"):
            code.line(take)
        with code.block("while t < total:"):
            self._listed_task()
            code.line(take)
            with code.block("if DIRECT:"):
                code.line("t += blocks")
        self._end()

    def _listed_task(self) -> None:
        code = self.code
        code.line(f"row = TABLE + (t).to({I64}) * {1 + self._depth}")
        code.line("site = tl.load(row)")
        for level in range(self._depth):
            code.line(f"i{level} = tl.load(row + {1 + level})")
        for call, path in calls(self.nest):
            with code.block(f"if site == {call.site}:"):
                code.line(f"# {self._title(call)}")
                found = self._found(call, path)
                self._waits(call, found)
                start = "" if self._recorder is None else self._recorder.start()
                self.calls.write(call, found)
                if self._recorder is not None:
                    self._recorder.end(call, found, start, rides=False)
        code.line("tl.debug_barrier()")
        code.line("at = tl.load(SIGNAL_AT + t)")
        code.line("stop = tl.load(SIGNAL_AT + t + 1)")
        with code.block("while at < stop:"):
            code.line("slot = tl.load(SIGNALS + at)")
            code.line('tl.atomic_add(counters + slot, 1, sem="release")')
            code.line("at += 1")

    def _found(self, call: Call, path: Path) -> Found:
        """Where a task is, from its indices."""
        code: Code = self.code
        scope, block = Scope(lets={**code.closed.lets}), self.nest
        iterations: dict[int, str] = {}
        for item, part in path:
            self.counters.lets(block, item, scope)
            match item:
                case Loop():
                    variable, start = f"i{item.level}", self.counter.start(item, scope)
                    iterations[item.level] = (
                        variable if start == "0" else code.named(f"{variable} - {start}", "k")
                    )
                    scope = code.enter(scope, item.level, variable)
                case Phases():
                    for child in item.children[:part]:
                        self.counters.lets(child, None, scope)
                case Branch():
                    pass
            block = inside(item, part)
        self.counters.lets(block, call, scope)
        return Found(scope, iterations, {}, path)

    def _waits(self, call: Call, found: Found) -> None:
        code = self.code
        code.line("at = tl.load(WAIT_AT + t)")
        code.line("stop = tl.load(WAIT_AT + t + 1)")
        with code.block("while at < stop:"):
            code.line("slot = tl.load(WAITS + 2 * at)")
            code.line("need = tl.load(WAITS + 2 * at + 1)")
            self._faults.wait(
                f"pto_wait(CTRL, counters + slot, need, TRIES, {call.site}, t, 0)",
                found,
                {0: "slot"},
            )
            code.line("at += 1")


def _refusal(plan: Plan, schedule: Schedule) -> ScheduleError:
    """Of a directive by which a block would have to look at every task."""
    entries = schedule.entries
    who = (Directive.POOLS, Directive.READY, Directive.STREAM_BY, Directive.DISPATCH)
    return refusal(
        plan,
        next(entries[each] for each in (*who, Directive.AFFINITY) if each in entries),
        "the host lists the tasks of this program, and a block finds them by number alone",
        "use round_robin(n), static_partition(ranges) or ready=ReadyPolicy.work_steal()",
    )


def write_expanded(plan: Plan, options: TritonOptions, known: Known, workers: int) -> Module:
    """The module of a plan that is given a table of its tasks."""
    writer = ExpandedWriter(plan, options, known, workers)
    made = module_of(plan, writer, *ARGUMENTS, unspecialised=UNSPECIALISED)
    return replace(made, expanded=True, direct=False, together=writer.schedule.together)
