"""Writes the one kernel of a plan: each block of threads takes a number, finds the task that has
it, waits for what that task waits for, runs it, and says so.

Numbers are handed out in program order, so that a block only ever waits for tasks that blocks
before it have taken: it never matters how many blocks run at once. See docs/design/0014-cuda.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from pto_wsp.backends.cuda.code import I64, Code, Known, Names, Scope
from pto_wsp.backends.cuda.counting import I32, Counter, Finder, Found
from pto_wsp.backends.cuda.nest import Block, Branch, Call, Loop, Path, Phases, read_nest
from pto_wsp.backends.cuda.regions import TYPES, Regions, page_name
from pto_wsp.backends.cuda.sync import Group, Synchronisation, Tasks, Wait
from pto_wsp.backends.cuda.temporaries import Temporaries
from pto_wsp.backends.cuda.waiting import Counters, inside
from pto_wsp.dtypes import DType
from pto_wsp.kernels.tile_body import tile_kernel
from pto_wsp.kernels.triton_code import (
    ParamFacts,
    Role,
    TritonOptions,
    TritonSource,
    emit_triton,
    HEADER,
    helper_text,
)
from pto_wsp.plan import Access, Kernel, Param, ParamKind, Plan, Section, Site, StorageClass, Symbol


class Kind(Enum):
    """What the kernel is given for an argument."""

    POINTER = "pointer"  # to a bound tensor
    STRIDE = "stride"
    EXTENT = "extent"
    PAGE = "page"  # tokens a page, compiled in
    NUMBER = "number"
    ARRAY = "array"  # pointer to what control reads
    ARRAY_EXTENT = "array_extent"
    ARRAY_STRIDE = "array_stride"


@dataclass(frozen=True, slots=True)
class Argument:
    """`number` is that of the tensor or of the symbol."""

    name: str
    kind: Kind
    number: int
    dim: int = 0


@dataclass(frozen=True, slots=True)
class Module:
    """The text of a module that defines `persistent`, and what it is to be given, in order, before
    the arguments that every such kernel has (FIXED)."""

    text: str
    arguments: tuple[Argument, ...]
    faults: dict[int, tuple[str, ...]]  # by site: what its kernel's faults are
    waits: tuple[Wait, ...]
    wanted: frozenset[tuple[int, int]]  # tensors and dimensions whose extents may be compiled in
    rides: int  # calls whose tasks are run by the last of those they wait for


# What every kernel is given: control words, what it needs (i64), counters and their capacity,
# workspace and its capacity, tries before a wait is given up, and compiled in: whether the first
# number of a block is its own.
FIXED = (
    *("CTRL", "NEED", "EVENTS", "EVENT_CAP", "SPACE", "SPACE_CAP", "TRIES"),
    "DIRECT: tl.constexpr",
)

# Words of CTRL.
EPOCH, TICKET, ENDED, ERROR, SITE, NUMBER, DETAIL, EVENTS_USED = range(8)
CTRL_WORDS = 16


class Fault(Enum):
    """What ERROR says."""

    NONE = 0
    CAPACITY = 1  # more tasks, counters or workspace than there is room for: NEED says
    OUTSIDE = 2  # a region outside its tensor, or larger than its tile
    KERNEL = 3  # a kernel's own fault: DETAIL says which
    STUCK = 4  # a wait that did not end: DETAIL is the wait


HELPERS = '''
@triton.jit
def pto_floordiv(a, b):
    """Rounds down, as Python does."""
    d = tl.where(b == 0, 1, b)
    q = a // d
    r = a - q * d
    return q - tl.where((r != 0) & ((r < 0) != (d < 0)), 1, 0)


@triton.jit
def pto_mod(a, b):
    return a - pto_floordiv(a, b) * b


@triton.jit
def pto_fault(CTRL, code: tl.constexpr, site: tl.constexpr, number, detail):
    """The first fault of a run is kept; numbers taken after it are those of no task."""
    tl.atomic_max(CTRL + 1, 1 << 30)
    if tl.atomic_cas(CTRL + 3, 0, code) == 0:
        tl.store(CTRL + 4, site)
        tl.store(CTRL + 5, number)
        tl.store(CTRL + 6, detail)


@triton.jit
def pto_wait(CTRL, counter, target, TRIES, site: tl.constexpr, number, wait: tl.constexpr):
    """Until the counter has reached the target, or a fault has ended the run."""
    seen = tl.atomic_add(counter, 0, sem="acquire")
    tries = tl.full((), 0, tl.int64)
    while seen < target:
        tries += 1
        if tries >= TRIES:
            pto_fault(CTRL, 4, site, number, wait)
        if (tries & 1023) == 0 or tries >= TRIES:
            if tl.load(CTRL + 3, volatile=True) != 0:
                seen = target.to(tl.int32)
            else:
                seen = tl.atomic_add(counter, 0, sem="acquire")
        else:
            seen = tl.atomic_add(counter, 0, sem="acquire")
'''


class _Writer:
    def __init__(
        self, plan: Plan, options: TritonOptions, known: Known
    ) -> None:
        self._plan = plan
        self._options = options
        self._kernels = plan.records(Kernel)
        self._params = plan.records(Param)
        self._accesses = plan.records(Access)
        self._sites = plan.records(Site)
        self.nest: Block = read_nest(plan)
        self.sync = Synchronisation(plan, self.nest)
        self.code = Code(plan, known)
        self.counter = Counter(plan, self.code, self._weight)
        self.counters = Counters(plan, self.nest, self.code, self.counter, self.sync)
        self.regions = Regions(plan, self.code)
        self.temps = Temporaries(plan, self.nest, self.code, self.counter, self.counters)
        self.functions: dict[tuple[int, tuple[ParamFacts, ...]], TritonSource] = {}
        self.faults: dict[int, tuple[str, ...]] = {}
        self.waits: list[Wait] = []

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

    def _iteration(self, loop: Loop, scope: Scope) -> str:
        start, variable = self.counter.start(loop, scope), scope.loops[loop.level]
        return variable if start == "0" else self.code.named(f"{variable} - {start}", "k")

    # --- the main loop ---

    def write(self) -> None:
        code = self.code
        self.counter.depends(self.nest)  # learns what lets depend on
        self.counters.place()
        self.temps.place()
        with code.in_prelude():
            total = self.counter.count(self.nest, code.closed)
            code.line(f"total64 = tl.full((), 0, {I64}) + {total}")
            code.line(f"events = tl.full((), 0, {I64}) + {self.counters.used}")
            code.line(f"space = tl.full((), 0, {I64}) + {self.temps.used}")
        code.line("fits = (total64 < (1 << 30)) & (events <= EVENT_CAP) & (space <= SPACE_CAP)")
        code.line("pid = tl.program_id(0)")
        code.line("blocks = tl.num_programs(0)")
        code.line("epoch = tl.load(CTRL)")
        with code.block("if pid == 0:"):
            code.line("tl.store(NEED, total64)")
            code.line("tl.store(NEED + 1, events)")
            code.line("tl.store(NEED + 2, space)")
            with code.block("if fits == 0:"):
                code.line(f"pto_fault(CTRL, {Fault.CAPACITY.value}, 0, 0, 0)")
        code.line(f"total = tl.where(fits, total64, 0).to({I32})")
        code.line("counters = EVENTS + (epoch & 1).to(tl.int64) * EVENT_CAP")
        self._clear()
        with code.block("if DIRECT:"):
            code.line("t = pid")
        with code.block("else:"):
            code.line('t = tl.atomic_add(CTRL + 1, 1, sem="relaxed")')
        with code.block("while t < total:"):
            finder = Finder(code, self.counter, self._leaf)
            finder.find(self.nest, "t", Found(Scope(lets={**code.closed.lets}), {}, {}))
            code.line('t = tl.atomic_add(CTRL + 1, 1, sem="relaxed")')
            with code.block("if DIRECT:"):
                code.line("t += blocks")
        self._end()

    def _clear(self) -> None:
        """The counters of the last run are those of the next one."""
        code = self.code
        code.line("others = EVENTS + (1 - (epoch & 1)).to(tl.int64) * EVENT_CAP")
        code.line("used = tl.load(CTRL + 7)")
        code.line("clear = pid * 1024")
        with code.block("while clear < used:"):
            code.line("at = clear + tl.arange(0, 1024)")
            code.line(f"tl.store(others + at, tl.zeros((1024,), {I32}), mask=at < used)")
            code.line("clear += blocks * 1024")

    def _end(self) -> None:
        """The last block to end prepares the next run."""
        code = self.code
        code.line("tl.debug_barrier()")
        code.line('ended = tl.atomic_add(CTRL + 2, 1, sem="acq_rel")')
        with code.block("if ended == blocks - 1:"):
            code.line("tl.store(CTRL + 1, 0)")
            code.line("tl.store(CTRL + 2, 0)")
            code.line(f"tl.store(CTRL + 7, tl.where(fits, events, 0).to({I32}))")
            code.line("tl.store(CTRL, epoch + 1)")

    # --- one task ---

    def _leaf(self, call: Call, found: Found) -> None:
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
            self._write_wait(tasks.call, wait, slot, before)

    def _wait(self, call: Call, wait: Wait, found: Found) -> None:
        given = self.counters.instance(wait, found)
        if wait.is_here:
            need = self.counters.expected(wait.group, given, found.scope, found.path)
        else:
            free = Scope(lets={**self.code.closed.lets})
            need = self.counters.expected(wait.group, given, free)
        if need == "0":
            return
        slot = self.counters.slot(wait.group, [given[g.level] for g in wait.group.loops])
        self._write_wait(call, wait, slot, need)

    def _write_wait(self, call: Call, wait: Wait, slot: str, need: str) -> None:
        number = len(self.waits)
        self.waits.append(wait)
        name = self.code.fresh("need")
        self.code.line(f"{name} = tl.full((), 0, {I64}) + {need}")
        with self.code.block(f"if {name} > 0:"):
            self.code.line(
                f"pto_wait(CTRL, counters + {slot}, {name}, TRIES, {call.site}, t, {number})"
            )

    def _run(self, call: Call, tasks: Tasks, found: Found) -> None:
        """The kernel, and what is said afterwards."""
        code = self.code
        self._call(call, found)
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
        self._run(rider.call, rider, Found(scope, mine, {}, rider.path))
        for _ in range(opened):
            code.close()

    # --- the call ---

    def _call(self, call: Call, found: Found) -> None:
        code, scope = self.code, found.scope
        kernel = self._sites[call.site].kernel
        params = self._params_of(kernel)
        accesses = iter(self._accesses[number] for number in call.accesses)
        given: dict[int, tuple[Access, list]] = {}
        conditions: list[str] = []
        for position, param in enumerate(params):
            if param.kind in (ParamKind.SCALAR, ParamKind.CONSTEXPR):
                continue
            access = next(accesses)
            self.temps.use(access.tensor, found, self.regions)
            spans = self.regions.spans(access, scope)
            conditions += self.regions.inside(access, spans, param, scope)
            given[position] = (access, spans)
        function = self._function(kernel, params, given, scope)
        self.faults[call.site] = function.faults
        arguments = self._arguments(function, call, params, given, scope)
        text = f"{function.name}({', '.join(arguments)})"
        if not conditions:
            code.line(text)
            return
        good = code.fresh("ok")
        code.line(f"{good} = {' & '.join(conditions)}")
        with code.block(f"if {good}:"):
            code.line(text)
        with code.block("else:"):
            code.line(f"pto_fault(CTRL, {Fault.OUTSIDE.value}, {call.site}, t, 0)")

    def _params_of(self, kernel: int) -> tuple[Param, ...]:
        record = self._kernels[kernel]
        return self._params[record.params : record.params + record.num_params]

    def _function(
        self, kernel: int, params: tuple[Param, ...], given: dict, scope: Scope
    ) -> TritonSource:
        """The Triton form of a kernel for what is known of these regions."""
        facts = {
            position: self.regions.facts(access, spans, params[position], scope)
            for position, (access, spans) in given.items()
            if params[position].kind != ParamKind.TOKEN
        }
        facts = self._same_extents(facts, params, given)
        key = (kernel, tuple(facts.values()))
        if key not in self.functions:
            names = {p: self._plan.string(params[p].name) for p in facts}
            options = TritonOptions(
                params={names[p]: fact for p, fact in facts.items()},
                num_stages=self._options.num_stages,
                tf32=self._options.tf32,
                narrow=self._options.narrow,
            )
            stem = "".join(c if c.isalnum() else "_" for c in self._plan.kernel_names[kernel])
            name = f"{stem}_{len(self.functions)}"
            self.functions[key] = emit_triton(tile_kernel(self._plan, kernel), name, options)
        return self.functions[key]

    def _same_extents(
        self, facts: dict[int, ParamFacts], params: tuple[Param, ...], given: dict
    ) -> dict[int, ParamFacts]:
        """Regions whose extents are one expression are as long as each other."""
        first: dict[str, tuple[str, int]] = {}
        found: dict[int, ParamFacts] = {}
        for position, fact in facts.items():
            name = self._plan.string(params[position].name)
            seen = [span.extent for span in given[position][1] if not span.dropped]
            extents: list[int | tuple[str, int] | None] = []
            for dim, (text, known) in enumerate(zip(seen, fact.extents, strict=True)):
                extents.append(known if known is not None else first.get(text))
                first.setdefault(text, (name, dim))
            found[position] = replace(fact, extents=tuple(extents))
        return self._same_pages(found, params, given)

    def _same_pages(
        self, facts: dict[int, ParamFacts], params: tuple[Param, ...], given: dict
    ) -> dict[int, ParamFacts]:
        """Regions whose tokens have the same numbers of the same table."""
        first: dict[tuple[object, ...], str] = {}
        for position, fact in facts.items():
            access, spans = given[position]
            if params[position].kind != ParamKind.PAGED:
                continue
            tensor = self.regions.record(access.tensor)
            table = self.code.known.same.get(tensor.table, tensor.table)
            size = self.code.known.extents.get((tensor.pool, 1))
            if size is None:
                continue
            key = table, size, spans[0].start, spans[1].start, spans[1].step
            name = self._plan.string(params[position].name)
            facts[position] = replace(fact, pages_of=first.get(key, ""))
            first.setdefault(key, name)
        return facts

    def _arguments(
        self,
        function: TritonSource,
        call: Call,
        params: tuple[Param, ...],
        given: dict,
        scope: Scope,
    ) -> list[str]:
        code = self.code
        unseen = (ParamKind.CONSTEXPR, ParamKind.TOKEN)
        positions = [p for p, param in enumerate(params) if param.kind not in unseen]
        scalars = iter(call.scalars)
        values = {
            p: self._scalar(params[p], next(scalars), scope)
            for p in positions
            if params[p].kind == ParamKind.SCALAR
        }
        found: list[str] = []
        for argument in function.arguments:
            if argument.role is Role.FAULT:
                found.append(f"CTRL + {CTRL_WORDS}")
                continue
            position = positions[argument.param]
            if argument.role is Role.SCALAR:
                found.append(values[position])
                continue
            access, spans = given[position]
            paged = self.regions.kind(access.tensor) == StorageClass.PAGED
            if paged and params[position].kind != ParamKind.PAGED and argument.role is Role.OFFSET:
                found.append(self.regions.on_one_page(access, spans, scope))
                continue
            found.append(self.regions.argument(argument, access, spans, scope))
        return [code.named(text, "x") for text in found]

    def _scalar(self, param: Param, node: int, scope: Scope) -> str:
        text = self.code.value(node, scope)
        dtype = DType(param.dtype)
        if dtype in (DType.F64, DType.F32, DType.F16, DType.BF16):
            return text
        return f"tl.full((), 0, {I64}) + {text}" if text.lstrip("-").isdigit() else text

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


def write_module(plan: Plan, options: TritonOptions, known: Known) -> Module:
    """The module of a plan that `check` accepts, for tensors of which that is known."""
    writer = _Writer(plan, options, known)
    writer.write()
    arguments = writer.arguments()
    plain = [a for a in arguments if a.kind is not Kind.PAGE]
    declared = [a.name for a in plain] + [f"{a.name}: tl.constexpr" for a in arguments
                                          if a.kind is Kind.PAGE]
    unspecialised = [a.name for a in plain if a.kind in _WIDE]
    unspecialised += ["EVENT_CAP", "SPACE_CAP", "TRIES"]
    widened = [f"    {a.name} = ({a.name}).to({I64})" for a in plain if writer.is_integer(a)]
    helpers = sorted({name for f in writer.functions.values() for name in f.helpers})
    lines = [
        f'"""plan {plan.plan_id}, schedule {plan.schedule_id}"""',
        HEADER,
        helper_text(helpers),
        HELPERS,
        *(function.text for function in writer.functions.values()),
        f"@triton.jit(do_not_specialize={unspecialised!r})",
        f"def persistent({', '.join([*declared, *FIXED])}):",
        *widened,
        writer.code.text(),
    ]
    ordered = tuple(plain) + tuple(a for a in arguments if a.kind is Kind.PAGE)
    rides = sum(tasks.rides is not None for tasks in writer.sync.tasks.values())
    return Module("\n".join(lines) + "\n", ordered, writer.faults, tuple(writer.waits), writer.regions.wanted, rides)
