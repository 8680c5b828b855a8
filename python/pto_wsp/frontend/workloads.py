"""@workload, and the values it makes: programs that generate tasks, and their schedules."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from html import escape
from types import FunctionType
from typing import Any

from pto_wsp import ir, srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError, ScheduleError
from pto_wsp.frontend import trace
from pto_wsp.frontend.arguments import Argument, ScalarArgument, bind, match_signature
from pto_wsp.frontend.blocks import OpenBlock
from pto_wsp.frontend.captures import captured_arrays
from pto_wsp.frontend.compose import Traced, merge, of_a_network
from pto_wsp.frontend.directives import Directives, Schedule
from pto_wsp.frontend.driving import driver
from pto_wsp.frontend.kernels import Kernel
from pto_wsp.frontend.schedule import DirectiveSet
from pto_wsp.frontend.tensor import Tensor
from pto_wsp.srcloc import SrcLoc

_MOST_CALLS = 64  # of workloads inside each other


class _Once:
    """Makes a value when it is first asked for. Safe to ask from several threads; a failure is not
    remembered."""

    def __init__(self, make: Callable[[], Traced]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._value: Traced | None = None

    def get(self) -> Traced:
        with self._lock:
            if self._value is None:
                self._value = self._make()
            return self._value


@dataclass(frozen=True, slots=True, eq=False, repr=False, weakref_slot=True)
class Workload(Directives):
    """A workload with its arguments and its schedule. Immutable: scheduling gives a new value."""

    name: str
    schedule: DirectiveSet
    _source: _Once  # the trace without a schedule, shared by all values that differ in it
    _scheduled: _Once

    def __repr__(self) -> str:
        schedule = "" if self.schedule.is_default else f" {self.schedule}"
        return f"<Workload {self.name}{schedule}>"

    def _repr_html_(self) -> str:
        """For notebooks: the workload as it was traced."""
        text = ir.to_text(self.traced().module, locs=False)
        return f"<b>{escape(repr(self))}</b><pre>{escape(text)}</pre>"

    def traced(self) -> Traced:
        """The IR. The user's function runs once, the first time, whatever the extents are."""
        trace.refuse_inside_workload("traced()", "compile workloads outside of workloads")
        return self._scheduled.get()

    def source(self) -> Traced:
        """The IR without the schedule, for what it becomes a part of."""
        return self._source.get()

    @property
    def directives(self) -> DirectiveSet:
        return self.schedule

    def under(self, schedule: Schedule) -> Workload:
        """This workload under a schedule of its own, in place of the directives given so far."""
        if not isinstance(schedule, Schedule):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ScheduleError(
                Code.DIRECTIVE_VALUE,
                f"under({type(schedule).__name__})",
                loc=srcloc.here(),
                why="it takes a schedule",
                fix="write under(Schedule().order(rows=Parallel))",
            )
        return self._under(schedule.directives)

    def _under(self, schedule: DirectiveSet) -> Workload:
        return _workload(self.name, self._source, schedule)

    def compile(self, target: str = "cpu_sim", **options: Any) -> Any:
        """Compile for a target; see `pto_wsp.driver.compile_workload` for the options."""
        return driver().compile_workload(self, target, **options)


def _workload(name: str, source: _Once, schedule: DirectiveSet) -> Workload:
    def scheduled() -> Traced:
        base = source.get()
        schedule.check_complete()
        schedule.check_axes(base.module.body)
        schedule.check_network(base.module.body)
        return replace(base, module=replace(base.module, schedule=schedule.directives()))

    return Workload(name, schedule, source, _Once(scheduled))


class WorkloadFunction:
    """A function decorated with @workload. Calling it gives a Workload; nothing is traced yet."""

    def __init__(self, function: FunctionType) -> None:
        self.function = function
        functools.update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<workload function {self.function.__name__}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Workload:
        """A Workload; inside another workload, its tasks become part of that one."""
        name = self.function.__name__
        loc = srcloc.here()
        tracer = trace.active()
        if tracer is not None:
            return _inlined(
                tracer, self.function, match_signature(self.function, args, kwargs, loc)
            )
        arguments = bind(self.function, args, kwargs, loc)
        make = functools.partial(_trace, self.function, arguments, loc)
        return _workload(name, _Once(make), DirectiveSet())


def workload(function: Callable[..., None]) -> WorkloadFunction:
    """Make a workload of a function that loops with P and calls kernels.

    The function is traced once, symbolically. Its parameters are given, when it is called, by axes
    (Dense[8](), DenseDyn(n), Ragged(outer, lengths)), 1-D integer arrays that control reads, and
    Tensors; `execute` rebinds each by the parameter's name. A plain Python int is a compile-time
    constant: the function sees the number itself, and `execute` cannot rebind it.
    """
    loc = srcloc.here()
    if not isinstance(function, FunctionType):
        raise CompileError(
            Code.WORKLOAD_FUNCTION,
            f"@workload on {type(function).__name__}",
            loc=loc,
            why="a workload is a function",
            fix="decorate a `def` function",
        )
    if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
        raise CompileError(
            Code.WORKLOAD_FUNCTION,
            f"workload {function.__name__} is a generator or coroutine",
            loc=loc,
            why="tracing runs it once from beginning to end",
            fix="remove yield, async and await",
        )
    for param in inspect.signature(function).parameters.values():
        if param.kind not in (param.POSITIONAL_OR_KEYWORD, param.KEYWORD_ONLY):
            raise CompileError(
                Code.WORKLOAD_FUNCTION,
                f"workload {function.__name__}: {param} is {param.kind.description}",
                loc=loc,
                why="execute rebinds each parameter by its name",
                fix="name each parameter",
            )
    return WorkloadFunction(function)


def combine(*workloads: Workload) -> Workload:
    """All tasks of all the workloads, without order between them (beyond data dependences)."""
    return _composed("combine", workloads)


def sequential(*workloads: Workload) -> Workload:
    """Each workload begins when all tasks of the one before it have ended."""
    return _composed("sequential", workloads)


def _composed(form: str, parts: tuple[object, ...]) -> Workload:
    loc = srcloc.here()
    tracer = trace.active()
    if tracer is not None:
        return _composed_inside(form, tracer, parts, loc)
    if not parts:
        raise CompileError(
            Code.COMPOSITION,
            f"{form}() of nothing",
            loc=loc,
            why="there is no work",
            fix="pass workloads",
        )
    sources: list[_Once] = []
    for part in parts:
        if not isinstance(part, Workload):
            called = isinstance(part, WorkloadFunction)
            raise CompileError(
                Code.COMPOSITION,
                f"{form}(...) of {type(part).__name__}",
                loc=loc,
                why="it composes workloads that have their arguments",
                fix="call the workload first: wave(DenseDyn(n))" if called else "pass workloads",
            )
        if not part.schedule.is_default:
            raise ScheduleError(
                Code.COMPOSITION,
                f"{form}(...) of a workload that has a schedule: {part.schedule}",
                loc=loc,
                why="a schedule applies to a whole program",
                fix=f"schedule the result: {form}(...).{part.schedule}",
            )
        sources.append(part._source)  # pyright: ignore[reportPrivateUsage]
    make = functools.partial(_compose, form, tuple(sources), loc)
    return _workload(form, _Once(make), DirectiveSet())


class Inlined:
    """The tasks of a workload that was called inside another one: statements of a body."""

    def __init__(self, block: OpenBlock, start: int, end: int, *, is_network: bool = False) -> None:
        self.block = block
        self.start = start
        self.end = end
        self.is_network = is_network

    def __getattr__(self, name: str) -> Any:
        """What a Workload has and a part of one has not."""
        if hasattr(Workload, name):
            trace.refuse_inside_workload(f".{name} of a workload", f"leave out .{name}")
        raise AttributeError(name)


def _check_depth(tracer: trace.Tracer, function: FunctionType) -> None:
    """A workload that calls itself ends at a number of Python's, or never."""
    if tracer.depth < _MOST_CALLS:
        return
    raise CompileError(
        Code.WORKLOAD_FUNCTION,
        f"workload {function.__name__} inside {_MOST_CALLS} others",
        loc=srcloc.here(),
        why="a workload is traced once: one that calls itself does so again and again, whatever its"
        " symbolic values would be",
        fix="loop with P.seq(...) or P.loop_while(...)",
    )


def _inlined(tracer: trace.Tracer, function: FunctionType, arguments: dict[str, Any]) -> Any:
    block = tracer.block
    start = len(block.body)
    processes = tracer.num_processes
    _check_depth(tracer, function)
    tracer.depth += 1
    with tracer.apart():
        result = function(**arguments)
    tracer.depth -= 1
    if result is not None and not isinstance(result, trace.CallResult):
        raise CompileError(
            Code.WORKLOAD_FUNCTION,
            f"workload {function.__name__} returns a value",
            loc=srcloc.here(),
            why="a workload generates tasks and has no result",
            fix="remove the return value; tasks write their results to tensors",
        )
    is_network = tracer.num_processes > processes
    return Inlined(block, start, len(block.body), is_network=is_network)


def _composed_inside(
    form: str, tracer: trace.Tracer, parts: tuple[object, ...], loc: SrcLoc | None
) -> Any:
    """Calls of workloads as the branches or steps of one statement."""
    block = tracer.block
    at = len(block.body)
    bodies: list[ir.Body] = []
    for part in reversed(parts):
        if not isinstance(part, Inlined) or part.block is not block or part.end != at:
            raise CompileError(
                Code.COMPOSITION,
                f"{form}(...) inside a workload",
                loc=loc,
                why="it composes calls of workloads that stand in it",
                fix=f"write {form}(first(a), second(b)), with nothing between",
            )
        if part.is_network:
            raise of_a_network(form, loc)
        bodies.insert(0, tuple(block.body[part.start : part.end]))
        at = part.start
    children = tuple(body for body in bodies if body)
    if children:
        stmt = ir.Combine(children, loc) if form == "combine" else ir.Sequential(children, loc)
        block.body[at:] = [stmt]
    return Inlined(block, at, len(block.body))


def staged(
    name: str, parts: Callable[[], tuple[list[Traced], Mapping[str, tuple[str, ...]]]]
) -> Workload:
    """The parts of a graph as one workload, without order between them; `parts` also says what
    each binding is in them."""
    loc = srcloc.here()

    def make() -> Traced:
        traced, bound = parts()
        merged = merge("combine", traced, loc)
        return replace(merged, module=replace(merged.module, name=name), bound=bound)

    return _workload(name, _Once(make), DirectiveSet())


def network(name: str, make: Callable[[], Traced]) -> Workload:
    """A network of processes as a workload."""
    return _workload(name, _Once(make), DirectiveSet())


def _compose(form: str, sources: tuple[_Once, ...], loc: SrcLoc | None) -> Traced:
    return merge(form, [source.get() for source in sources], loc)


def _seen(argument: Argument, tracer: trace.Tracer) -> object:
    """What the function sees of an argument."""
    value = argument.value
    return value.value(tracer.scope) if isinstance(value, ScalarArgument) else value


def _trace(function: FunctionType, arguments: tuple[Argument, ...], loc: SrcLoc | None) -> Traced:
    """Run the user's function once and collect its module."""
    name = function.__name__
    written = inspect.unwrap(function)  # the user's, under what a space puts around it
    assert isinstance(written, FunctionType)
    tracer = trace.Tracer(name, written.__code__, loc)
    for argument in arguments:
        for symbol in argument.symbols:
            tracer.declared.add_symbol(symbol.decl, symbol.default, loc)
        for tensor in argument.tensors:
            tracer.tensor_name(tensor, loc)
    body = trace.run(tracer, function, {a.name: _seen(a, tracer) for a in arguments})
    kernels = {n: k for n, k in tracer.kernels.owners.items() if isinstance(k, Kernel)}
    module = ir.Module(
        name,
        tuple(tracer.declared.symbols.values()),
        tuple(tracer.declared.tensors.values()),
        tuple(tracer.kernels.decls.values()),
        body,
    )
    defaults = tracer.declared.defaults
    tensors = [default for default in defaults.values() if isinstance(default, Tensor)]
    return Traced(module, kernels, defaults, captured_arrays(written, tensors))
