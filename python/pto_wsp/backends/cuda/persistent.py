"""Writes the one kernel of a plan: each block of threads takes a number, finds the task that has
it, waits for what that task waits for, runs it, and says so.

Numbers are handed out in program order, so that a block only ever waits for tasks that blocks
before it have taken: it never matters how many blocks run at once, unless the schedule says who
runs what (taking.py). See docs/design/0014-cuda.md.
"""

from __future__ import annotations

from dataclasses import replace

from pto_wsp.backends.cuda import timeline
from pto_wsp.backends.cuda.calls import PAGES, Calls
from pto_wsp.backends.cuda.code import I64, Code, Known, Names, Scope
from pto_wsp.backends.cuda.control import ControlWalk
from pto_wsp.backends.cuda.counting import I32, Counter, Finder, Found
from pto_wsp.backends.cuda.diagonals import Diagonals, Slant
from pto_wsp.backends.cuda.faults import FaultLines
from pto_wsp.backends.cuda.keys import Keys
from pto_wsp.backends.cuda.mistakes import Mistakes
from pto_wsp.backends.cuda.module import (
    FIXED,
    HELPERS,
    MOST_TASKS,
    UNSPECIALISED,
    Argument,
    Fault,
    Kind,
    Module,
    Need,
    Word,
)
from pto_wsp.backends.cuda.nest import Block, Branch, Call, Loop, Path, Phases, read_nest
from pto_wsp.backends.cuda.ordering import synchronise
from pto_wsp.backends.cuda.orders import Turns, check_orders
from pto_wsp.backends.cuda.priority import find_levels
from pto_wsp.backends.cuda.regions import Regions, page_name
from pto_wsp.backends.cuda.schedule import read_schedule
from pto_wsp.backends.cuda.stealing import STEALING, Stealing
from pto_wsp.backends.cuda.sync import Group, Tasks, Wait
from pto_wsp.backends.cuda.taking import SPLITMIX, Taking
from pto_wsp.backends.cuda.temporaries import Temporaries
from pto_wsp.backends.cuda.waiting import Counters, inside
from pto_wsp.dtypes import DType
from pto_wsp.kernels.triton_code import HEADER, TritonOptions, helper_text
from pto_wsp.plan import Plan, Section, Symbol


class Writer:
    """Writes the lines of one kernel. `expanded`: tasks and waits come from a table."""

    def __init__(
        self,
        plan: Plan,
        options: TritonOptions,
        known: Known,
        workers: int,
        *,
        expanded: bool = False,
    ) -> None:
        self._plan = plan
        self._workers = workers
        self.slants: tuple[Slant, ...] = ()
        self.by_rows: tuple[Slant, ...] = ()
        self.schedule = read_schedule(plan)
        self.nest: Block
        self.nest, self.sync, self.ordered = synchronise(
            plan, read_nest(plan), rides=self.schedule.rides, expanded=expanded
        )
        self.code = Code(plan, known)
        self.counter = Counter(plan, self.code, self._weight, self._weighed)
        self.counters = Counters(plan, self.nest, self.code, self.counter, self.sync)
        self.regions = Regions(plan, self.code)
        self.temps = Temporaries(plan, self.nest, self.code, self.counter, self.counters)
        self.mistakes = None if expanded else Mistakes(plan, self.code)
        self.calls = Calls(plan, self.code, self.regions, self.temps, options, self.mistakes)
        self.waits: list[Wait] = []
        self.turns = Turns(plan, self.schedule, self.code, self.counter, workers)
        self.taking = self._make_taking()
        self._faults = FaultLines(plan, self.code)
        self.records: timeline.Shape | None = None
        self._recorder: timeline.Recorder | None = None
        if plan.is_traced:
            self.records = timeline.Shape.of(plan, self.nest, self.sync)
            stolen = "" if self.taking is None else self.taking.stolen
            self._recorder = timeline.Recorder(self.code, self.records, stolen)

    def _make_taking(self) -> Taking | None:
        """How tasks are dealt out, if the schedule says so."""
        plan, schedule, sync = self._plan, self.schedule, self.sync
        check_orders(plan, schedule, sync)
        if schedule.is_plain:
            return None
        keys = Keys(plan, {site: tasks.loops for site, tasks in sync.tasks.items()})
        schedule.check_keys(keys)
        parts = plan, schedule, self.code, self.counter, self.counters, self.turns, keys
        if schedule.steals:
            return Stealing(*parts, self._workers)
        return Taking(*parts, find_levels(plan, schedule, keys, sync))

    def _weight(self, call: Call, scope: Scope) -> str:
        """Tickets of a call: none if the last task it waits for runs it, unless there is none."""
        tasks = self.sync.tasks[call.site]
        if tasks.rides is None:
            return "1"
        group = tasks.rides.group
        given = {
            loop.level: self._iteration(tasks.loops[place.level], scope)
            for loop, place in zip(group.loops, tasks.rides.places, strict=True)
        }
        # Lets of other blocks may not be known here, so that nothing is taken from the scope.
        free = Scope(lets={**self.code.closed.lets}, lanes=scope.lanes)
        need = self.counters.expected(group, given, free)
        if need.isdigit():
            return "0" if int(need) else "1"
        return self.code.named(f"tl.where({need} == 0, 1, 0)", "n")

    def _weighed(self, call: Call) -> frozenset[int]:
        """The levels of the loops around a call on which its tickets depend: those that say how
        many tasks it would wait for."""
        tasks, counter = self.sync.tasks[call.site], self.counter
        if tasks.rides is None:
            return frozenset()
        group, found = tasks.rides.group, set[int]()
        mine = {
            loop.level: tasks.loops[place.level]
            for loop, place in zip(group.loops, tasks.rides.places, strict=True)
        }
        for site in group.sites:
            for item, _ in self.sync.tasks[site].path:
                if isinstance(item, Branch):
                    found |= counter.node_depends(item.condition)
                elif isinstance(item, Loop):
                    found |= counter.node_depends(counter.extent_node(item))
                    other = mine.get(item.level, item)
                    if other is not item and not counter.is_same_range(item, other):
                        found.add(item.level)  # an iteration that only one of them has
        return frozenset(mine[level].level for level in found if level in mine)

    def _iteration(self, loop: Loop, scope: Scope) -> str:
        start, variable = self.counter.start(loop, scope), scope.loops[loop.level]
        return variable if start == "0" else self.code.named(f"{variable} - {start}", "k")

    # --- the main loop ---

    def write(self) -> None:
        code = self.code
        if self._recorder is not None:
            self._recorder.begin()
        self.counter.depends(self.nest)  # learns what lets depend on
        if self.schedule.rides:  # nothing is said of the order of tasks
            self._number_by_diagonals()
        self.counters.place()
        self.temps.place()
        if self.taking is not None:
            self.taking.place()
        with code.in_prelude():
            tickets = self.counter.count(self.nest, code.closed)
            code.line(f"tickets = tl.full((), 0, {I64}) + {tickets}")
            code.line(f"events = tl.full((), 0, {I64}) + {self.counters.used}")
            code.line(f"space = tl.full((), 0, {I64}) + {self.temps.used}")
        self._begin()
        if self.taking is not None:
            self.taking.write(self._find)
            self._end()
            return
        with code.block("if DIRECT:"):
            code.line("t = pid")
        with code.block("else:"):
            code.line(f't = tl.atomic_add(CTRL + {Word.TICKET:d}, 1, sem="relaxed")')
        with code.block("while t < total:"):
            self._find()
            code.line(f't = tl.atomic_add(CTRL + {Word.TICKET:d}, 1, sem="relaxed")')
            with code.block("if DIRECT:"):
                code.line("t += blocks")
        self._end()

    def _number_by_diagonals(self) -> None:
        found = Diagonals(self.code, self.counter, self.nest, self.sync, self._workers)
        if self.schedule.steals:  # a range of numbers along diagonals would be one block's
            self.by_rows = tuple(found.slants.values())
            return
        self.counter.slanted = found
        self.slants = tuple(found.slants.values())
        if self.records is not None:
            self.records = replace(self.records, in_order=not self.slants)

    def _find(self) -> None:
        finder = Finder(self.code, self.counter, self._leaf, self.turns)
        finder.find(self.nest, "t", Found(Scope(lets={**self.code.closed.lets}), {}, {}))

    def _begin(self) -> None:
        """Says what the run needs; without room for it there are no tasks. The counters of the last
        run are cleared: they are those of the next one."""
        code = self.code
        code.line("pid = tl.program_id(0)")
        code.line("blocks = tl.num_programs(0)")
        code.line(f"fits = (tickets < {MOST_TASKS}) & (events <= EVENT_CAP) & (space <= SPACE_CAP)")
        if self._recorder is not None:
            code.line("fits = fits & (tl.minimum(tickets, TRACE_MOST) <= TRACE_CAP)")
        with code.block("if pid == 0:"):
            code.line(f"tasks = tl.full((), 0, {I64}) + {self._tasks()}")
            for word in (Need.TICKETS, Need.EVENTS, Need.SPACE, Need.TASKS):
                code.line(f"tl.store(NEED + {word:d}, {word.name.lower()})")
            with code.block("if fits == 0:"):
                code.line(f"pto_fault(CTRL, {Fault.CAPACITY:d}, 0, 0, 0)")
        code.line(f"total = tl.where(fits, tickets, 0).to({I32})")
        code.line(f"HASHES = NEED + {Need.HASH:d}")
        code.line("counters = EVENTS + (epoch & 1).to(tl.int64) * EVENT_CAP")
        code.line("others = EVENTS + (1 - (epoch & 1)).to(tl.int64) * EVENT_CAP")
        code.line("clear = pid * 1024")
        with code.block("while clear < used:"):
            code.line("at = clear + tl.arange(0, 1024)")
            code.line(f"tl.store(others + at, tl.zeros((1024,), {I32}), mask=at < used)")
            code.line("clear += blocks * 1024")

    def _tasks(self) -> str:
        """How many there are, those without tickets among them."""
        if not self.slants and not any(each.rides for each in self.sync.tasks.values()):
            return "tickets"
        counter = Counter(self._plan, self.code, lambda call, scope: "1")
        return counter.count(self.nest, Scope(lets={**self.code.closed.lets}))

    def _end(self) -> None:
        """The last block to end prepares the next run."""
        code = self.code
        if any(self.calls.faults.values()):
            self._faults.end()
        if self.taking is not None:
            self.taking.end()
        code.line("tl.debug_barrier()")
        code.line(f'ended = tl.atomic_add(CTRL + {Word.ENDED:d}, 1, sem="acq_rel")')
        if self.mistakes is not None:
            ControlWalk(self._plan, code, self.counter, self.mistakes).write(self.nest)
        with code.block("if ended == blocks - 1:"):
            if self.taking is not None:
                self.taking.end_last()
            code.line(f"tl.store(CTRL + {Word.TICKET:d}, 0)")
            code.line(f"tl.store(CTRL + {Word.ENDED:d}, 0)")
            code.line(f"tl.store(CTRL + {Word.EVENTS_USED:d}, tl.where(fits, events, 0).to({I32}))")
            code.line(f"tl.store(CTRL + {Word.EPOCH:d}, epoch + 1)")

    # --- one task ---

    def _leaf(self, call: Call, found: Found) -> None:
        if self.taking is None:
            self._task(call, found)
        else:
            self.taking.run(call, found, lambda: self._task(call, found))

    def _task(self, call: Call, found: Found) -> None:
        tasks = self.sync.tasks[call.site]
        self.code.line(f"# {self._title(call)}")
        if tasks.rides is None:
            self._structural_waits(tasks, found)
            for wait in tasks.waits:
                self._wait(call, wait, found)
        self._run(call, tasks, found)

    def _title(self, call: Call) -> str:
        loc = self._plan.debug_loc(Section.SITE, call.site)
        return f"{self._plan.site_name(call.site)}{'' if loc is None else f' at {loc}'}"

    def _structural_waits(self, tasks: Tasks, found: Found) -> None:
        by_pc = {group.pc: group for group in tasks.signals if not group.sites}
        for item, _ in tasks.path:
            if isinstance(item, Branch) or item.pc not in by_pc:
                continue
            group = by_pc[item.pc]
            before = found.before[item.pc]
            if before == "0":
                continue
            wait = Wait(group, (), "order")
            slot = self.counters.slot(group, [found.iterations[g.level] for g in group.loops])
            self._write_wait(tasks.call, wait, slot, before, found, {})

    def _wait(self, call: Call, wait: Wait, found: Found) -> None:
        given, awaited = self.counters.instance(wait, found)
        if wait.is_here:
            need = self.counters.expected(wait.group, given, found.scope, found.path)
        else:
            free = Scope(lets={**self.code.closed.lets})
            need = self.counters.expected(wait.group, given, free)
        if need == "0":
            return
        slot = self.counters.slot(wait.group, [given[g.level] for g in wait.group.loops])
        self._write_wait(call, wait, slot, need, found, awaited)

    def _write_wait(
        self, call: Call, wait: Wait, slot: str, need: str, found: Found, awaited: dict[int, str]
    ) -> None:
        number = len(self.waits)
        self.waits.append(wait)
        name = self.code.fresh("need")
        self.code.line(f"{name} = tl.full((), 0, {I64}) + {need}")
        with self.code.block(f"if {name} > 0:"):
            self._faults.wait(
                f"pto_wait(CTRL, counters + {slot}, {name}, TRIES, {call.site}, t, {number})",
                found,
                awaited,
            )

    def _run(self, call: Call, tasks: Tasks, found: Found, *, rides: bool = False) -> None:
        """The kernel, and what is said afterwards."""
        code = self.code
        start = "" if self._recorder is None else self._recorder.start()
        self.calls.write(call, found)
        if self._recorder is not None:
            self._recorder.end(call, found, start, rides=rides)
        if not tasks.signals:
            return
        code.line("tl.debug_barrier()")
        for group in tasks.signals:
            slot = self.counters.slot(group, [found.iterations[g.level] for g in group.loops])
            riders = [
                each
                for each in self.sync.tasks.values()
                if each.rides is not None and each.rides.group is group
            ]
            if not riders:
                code.line(f'tl.atomic_add(counters + {slot}, 1, sem="release")')
                continue
            last = code.fresh("last")
            code.line(f'{last} = tl.atomic_add(counters + {slot}, 1, sem="acq_rel") + 1')
            given = {g.level: found.iterations[g.level] for g in group.loops}
            need = self.counters.expected(group, given, found.scope, self._around(group, found))
            with code.block(f"if {last} == {need}:"):
                for rider in riders:
                    self._ride(rider, found)

    @staticmethod
    def _around(group: Group, found: Found) -> Path:
        """What is around a task up to the first loop that does not number the group's instances."""
        path: list[tuple[Loop | Branch | Phases, int]] = []
        for item, part in found.path:
            if isinstance(item, Loop) and item not in group.loops:
                break
            path.append((item, part))
        return tuple(path)

    def _ride(self, rider: Tasks, source: Found) -> None:
        """A task that is run by the last of those it waits for."""
        assert rider.rides is not None
        code = self.code
        pairs = zip(rider.rides.group.loops, rider.rides.places, strict=True)
        mine = {place.level: source.iterations[loop.level] for loop, place in pairs}
        code.line(f"# then, as the last: {self._title(rider.call)}")
        scope, block, opened = Scope(lets={**code.closed.lets}), self.nest, 0
        for item, part in rider.path:
            self.counters.lets(block, item, scope)
            match item:
                case Loop():
                    variable = self.counter.variable(item, mine[item.level], scope)
                    scope = code.enter(scope, item.level, variable)
                case Branch():
                    condition = code.value(item.condition, scope)
                    code.open(f"if {condition}:" if part == 0 else f"if ({condition}) == 0:")
                    opened += 1
                case Phases():
                    pass
            block = inside(item, part)
        self.counters.lets(block, rider.call, scope)
        self._run(rider.call, rider, Found(scope, mine, {}, rider.path), rides=True)
        for _ in range(opened):
            code.close()

    # --- the module ---

    def arguments(self) -> tuple[Argument, ...]:
        code, regions = self.code, self.regions
        found: list[Argument] = []
        for tensor in sorted(regions.tensors | {tensor for tensor, _ in code.shapes}):
            record = regions.record(tensor)
            if tensor in regions.tensors:
                found.append(Argument(Names.tensor(tensor), Kind.POINTER, tensor))
            for d in range(record.rank):
                found.append(Argument(Names.extent(tensor, d), Kind.EXTENT, tensor, d))
                if tensor in regions.tensors:
                    found.append(Argument(Names.stride(tensor, d), Kind.STRIDE, tensor, d))
        found += [Argument(page_name(pool), Kind.PAGE, pool, 1) for pool in sorted(regions.pages)]
        for symbol in sorted(code.symbols):
            found += self._symbol_arguments(symbol)
        return tuple(found)

    def is_integer(self, argument: Argument) -> bool:
        if argument.kind is Kind.NUMBER:
            dtype = DType(self._plan.records(Symbol)[argument.number].dtype)
            return dtype not in (DType.F64, DType.F32, DType.F16, DType.BF16)
        return argument.kind in _WIDE

    def grows(self, argument: Argument) -> bool:
        """Whether it is as long as rows of a tensor are, and Triton is not to compile another
        kernel for one that is no multiple of 16, or is 1."""
        if argument.kind is not Kind.STRIDE:
            return False
        return argument.dim < self.regions.record(argument.number).rank - 1

    def _symbol_arguments(self, symbol: int) -> list[Argument]:
        rank = self.code.rank(symbol)
        if rank == 0:
            return [Argument(Names.number(symbol), Kind.NUMBER, symbol)]
        array = Names.array(symbol)
        found = [Argument(array, Kind.ARRAY, symbol)]
        for d in range(rank):
            found.append(Argument(f"{array}_n{d}", Kind.ARRAY_EXTENT, symbol, d))
            found.append(Argument(f"{array}_s{d}", Kind.ARRAY_STRIDE, symbol, d))
        return found


_WIDE = (Kind.EXTENT, Kind.NUMBER, Kind.ARRAY_EXTENT)  # never compiled in


def write_module(plan: Plan, options: TritonOptions, known: Known, workers: int) -> Module:
    """The module of a plan that `check` accepts, for tensors of which that is known. `workers`:
    how many blocks there will be."""
    return module_of(plan, Writer(plan, options, known, workers))


def module_of(
    plan: Plan, writer: Writer, *more: str, unspecialised: tuple[str, ...] = ()
) -> Module:
    """What a writer makes of a plan. `more` are arguments besides those that every kernel has."""
    writer.write()
    arguments = writer.arguments()
    plain = [a for a in arguments if a.kind is not Kind.PAGE]
    declared = [a.name for a in plain] + [
        f"{a.name}: tl.constexpr" for a in arguments if a.kind is Kind.PAGE
    ]
    counts = [a.name for a in plain if a.kind in _WIDE or writer.grows(a)]
    counts += [*UNSPECIALISED, *unspecialised]
    traced = writer.records is not None
    fixed = [*FIXED, *timeline.ARGUMENTS] if traced else FIXED
    counts += timeline.UNSPECIALISED if traced else ()
    widened = [f"    {a.name} = ({a.name}).to({I64})" for a in plain if writer.is_integer(a)]
    helpers = sorted({name for f in writer.calls.functions.values() for name in f.helpers})
    lines = [
        f'"""plan {plan.plan_id}, schedule {plan.schedule_id}"""',
        HEADER,
        helper_text(helpers),
        HELPERS + timeline.HELPERS if traced else HELPERS,
        *([PAGES] if writer.calls.checks_pages else []),
        *([] if writer.taking is None else [SPLITMIX]),
        *([STEALING] if writer.schedule.steals else []),
        *(function.text for function in writer.calls.functions.values()),
        f"@triton.jit(do_not_specialize={counts!r})",
        f"def persistent({', '.join([*declared, *fixed, *more])}):",
        # Read first, so that what follows does not wait for it.
        f"    epoch = tl.load(CTRL + {Word.EPOCH:d})",
        f"    used = tl.load(CTRL + {Word.EVENTS_USED:d})",
        *widened,
        writer.code.text(),
    ]
    ordered = tuple(plain) + tuple(a for a in arguments if a.kind is Kind.PAGE)
    rides = sum(tasks.rides is not None for tasks in writer.sync.tasks.values())
    return Module(
        "\n".join(lines) + "\n",
        ordered,
        writer.calls.faults,
        tuple(writer.waits),
        writer.regions.wanted,
        rides,
        ordered=writer.ordered,
        diagonals=tuple((slant.outer.axis, slant.inner.axis) for slant in writer.slants),
        by_rows=tuple((slant.outer.axis, slant.inner.axis) for slant in writer.by_rows),
        together=bool(writer.waits) and writer.schedule.together,
        direct=not writer.waits and not writer.schedule.in_order,
        records=writer.records,
    )
