"""`Program`: a plan with kernels on a target, ready to run."""

from __future__ import annotations

import atexit
import itertools
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from pto_wsp import srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import ExecutionError, SynchronizeTimeout
from pto_wsp.host_ends import HostEnd
from pto_wsp.plan import Feature, Plan
from pto_wsp.runtime.bindings import Binder, Bound, Value, show, stage_lines
from pto_wsp.runtime.descriptors import layout_of
from pto_wsp.runtime.engine import (
    Control,
    ControlledEngine,
    DepthFinder,
    DeviceEngine,
    Engine,
    Generated,
    QuickEngine,
    Run,
    SingleRunner,
    StreamEngine,
    TaskDump,
    Verifier,
)
from pto_wsp.runtime.pending import PendingRuns
from pto_wsp.runtime.perfetto import to_perfetto
from pto_wsp.runtime.ports import Port, bind_ports
from pto_wsp.runtime.recording import decisions
from pto_wsp.runtime.run_errors import of_call, tasks_depend_on_data, was_closed
from pto_wsp.runtime.serialised import serialised
from pto_wsp.runtime.stats import Stats
from pto_wsp.runtime.verified import VerifiedRun


class Loader(Protocol):
    """Makes a program from a plan; the driver registers one."""

    def __call__(
        self,
        plan: Plan,
        *,
        kernels: Mapping[str, Callable[..., Any]],
        target: str,
        options: Mapping[str, object],
    ) -> Program: ...


_PLAIN = Control()
_TRACED = "under .task_graph(trace=TracePolicy.timestamps())"
_POLL_S = 0.001
_loader: list[Loader] = []
_alive: weakref.WeakSet[Program] = weakref.WeakSet()


def register_loader(loader: Loader) -> None:
    """Called once by the driver, which knows the backends; this module may not."""
    _loader[:] = [loader]


class Program:
    """Runs a plan with new bindings as often as you like.

    `execute(**bindings)` runs and waits; `execute_async(**bindings)` returns at once and
    `synchronize()` waits. Names not given keep what they were bound to last. Runs of one program
    happen in call order.
    """

    def __init__(
        self,
        plan: Plan,
        engine: Engine,
        *,
        target: str,
        chosen: str = "",
        defaults: Mapping[str, object] | None = None,
        single: SingleRunner | None = None,
        verifier: Verifier | None = None,
        depths: DepthFinder | None = None,
    ) -> None:
        self.plan = plan
        self._depths = depths
        self._verifier = verifier
        self._single = single
        self.target = target
        self.chosen = chosen  # why target="auto" has chosen it, or empty
        self._engine = engine
        self._quick = engine if verifier is None and isinstance(engine, QuickEngine) else None
        adopt = engine.adopt if isinstance(engine, DeviceEngine) else None
        self._binder = Binder(plan, defaults or {}, adopt)
        self._pending = PendingRuns()
        self._last: Run | None = None
        self._closed = False
        self._check: Callable[[], None] | None = None
        self._trace_path: Path | None = None
        self._instances = itertools.count(2)
        self._ports: dict[str, Port] = {}
        self._bound: Mapping[str, tuple[str, ...]] = {}
        _alive.add(self)

    @classmethod
    def from_plan(
        cls,
        plan: Plan | bytes | str | PathLike[str],
        kernels: Mapping[str, Callable[..., Any]] | None = None,
        target: str = "cpu_sim",
        **options: object,
    ) -> Program:
        """A program from a plan, its bytes, or the path of a saved one.

        C++ bodies travel in the plan; Python bodies do not and are passed in `kernels` by name.
        """
        if isinstance(plan, bytes):
            plan = Plan.from_bytes(plan)
        elif not isinstance(plan, Plan):
            plan = Plan.load(Path(plan))
        return _loader[0](plan, kernels=kernels or {}, target=target, options=options)

    # --- channels that end at the host ---------------------------------------------------------

    def add_ports(self, ends: Iterable[HostEnd]) -> None:
        """The program has these channels of which the host has an end."""
        self._ports = {end.channel: Port(end) for end in ends}
        if self._ports:
            self._quick = None  # each run has arrays of its own for them

    def name_stages(self, bound: Mapping[str, tuple[str, ...]]) -> None:
        """What each binding is in the stages of the graph that the program was made of."""
        self._bound = bound
        parts = {part: name for name, found in bound.items() for part in found}
        self._binder.of_stages = parts

    def channel(self, channel: Any) -> Port:
        """The host's end of a channel that was made with `host=True`, by the channel or its name:
        `try_send`, `close`, `receive`, `query`."""
        name = getattr(channel, "name", channel)
        port = self._ports.get(str(name))
        if port is None:
            raise ExecutionError(
                Code.CHANNEL,
                f"the program has no channel {name!r} that ends at the host",
                loc=srcloc.here(),
                why=f"it has {', '.join(map(repr, self._ports)) or 'none'}",
                fix="make the channel with host=True, and connect it to one process",
            )
        return port

    # --- running -------------------------------------------------------------------------------

    def execute(self, **bindings: object) -> Program:
        """Runs to the end with these names rebound. Raises what the run raises; all names are then
        bound to what they were before.

        `hash=True` adds up the task hash on the way, which `task_hash()` then gives: the only way
        for a program whose tasks depend on what tasks compute.

        `seed=n` draws the interleaving of the run from that number: which worker starts or ends
        which task next, among all that the schedule allows. The same seed gives the same order and
        placement; other seeds give others, the unlikely ones as well. Slow: workers take turns.
        """
        quick = self._quick
        if quick is None or self._check is not None:
            return self._run(bindings, _PLAIN)
        try:
            started = quick.start_quick(self._binder.values, bindings, asynchronous=False)
        except BaseException:
            self._last = None
            raise
        if started is None:
            return self._run(bindings, _PLAIN)
        # The run before it goes last: giving back what it holds takes as long as starting a short
        # one.
        before = self._binder.values
        run, values = started
        self._binder.values = values
        self._last = run
        try:
            run.wait(None)
        except BaseException:
            self._binder.back(values, before)
            raise
        return self

    def record(self, path: str | PathLike[str], **bindings: object) -> Program:
        """Runs like `execute(**bindings)` and writes to `path` in what order and by which worker
        tasks were started and ended, in a few bytes a task. Also of a run that fails."""
        try:
            return self._run(bindings, Control(record=True))
        finally:
            recording = self._recording()
            if recording:
                Path(path).write_bytes(recording)

    def replay(self, path: str | PathLike[str], **bindings: object) -> Program:
        """Runs again as the recorded run did: the same order of starts and ends, each on the same
        worker. Plan, schedule (but for its trace), number of workers and tasks have to be those of
        the recording. Slow: workers take turns."""
        return self._run(bindings, Control(replay=Path(path).read_bytes()))

    @property
    def decisions(self) -> npt.NDArray[Any]:
        """What the last run decided, if it was recorded, replayed or drawn from a seed: one row
        (task_id, worker, ends) for each start and each end of a task, in order."""
        recording = self._recording()
        if recording:
            return decisions(recording)
        raise ExecutionError(
            Code.PROGRAM_STATE,
            "nobody kept the decisions of the last run",
            loc=srcloc.here(),
            why="that costs memory and some time",
            fix="use record(path), replay(path) or execute(seed=0)",
        )

    def execute_async(self, **bindings: object) -> Program:
        """Starts a run and returns; `synchronize()` waits for it and raises its error, which points
        at this call."""
        self._pending.add(self._start(bindings, asynchronous=True), srcloc.calling())
        return self

    def enqueue(self, **bindings: object) -> Program:
        """Starts a run for whoever uses the device's stream afterwards: as `execute_async`, but of
        all runs since the last `synchronize()` only the last is remembered, which ends when they
        all have. On targets without streams, `execute`."""
        if not isinstance(self._engine, StreamEngine):
            return self.execute(**bindings)
        self._pending.enqueue(self._start(bindings, asynchronous=True))
        return self

    def reserve(self, **bindings: object) -> Program:
        """Makes room for runs with these values, so that a captured CUDA graph has it. Nothing
        runs, and names stay bound to what they were. Other targets make room in each run."""
        self._check_usable()
        if isinstance(self._engine, StreamEngine):
            self.synchronize()  # else errors of runs before it would be lost
            self._engine.reserve(self._binder.bind(bindings))
        return self

    def synchronize(self, timeout: float | None = None) -> Program:
        """Waits for every run started so far, at most `timeout` seconds in all.

        Raises the first error among them, or SynchronizeTimeout if they are not done in time.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        first_error: BaseException | None = None
        self._pending.settle()
        while (pending := self._pending.first()) is not None:
            run, call = pending
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                if not srcloc.call_for(call, run.wait, {"timeout": left}):
                    raise SynchronizeTimeout(
                        Code.RUN_NOT_ENDED,
                        f"{len(self._pending)} run(s) not done after {timeout} s",
                        loc=srcloc.here(),
                        why="synchronize(timeout=...) waits no longer than that",
                        fix="they go on; call synchronize() again",
                    )
            except SynchronizeTimeout:
                raise
            except ExecutionError as error:
                first_error = first_error or error
            except BaseException:
                # Ctrl-C while waiting leaves the run where it is; a kernel's own has ended it.
                if run.done():
                    self._taken(run)
                raise
            try:
                if self._taken(run):
                    self._write_trace(run)
            except ExecutionError as error:
                first_error = first_error or error
        if first_error is not None:
            raise first_error
        return self

    def _taken(self, run: Run) -> bool:
        """A run has ended: whether this thread is the one to look at it."""
        taken = self._pending.take(run)
        if taken:
            self._last = run
        return taken

    def is_complete(self) -> bool:
        """Whether every run started so far has ended."""
        return self._pending.are_done()

    def instance(self) -> Program:
        """Another program of the same plan, kernels and current bindings, with workers of its own.
        Runs of one program queue in call order; runs of two instances go on at the same time."""
        self._check_usable()
        engine = self._engine.clone()
        other = Program(
            self.plan,
            engine,
            target=self.target,
            chosen=self.chosen,
            single=self._single,
            verifier=self._verifier,
            depths=self._depths,
        )
        other._binder.values = self._binder.values
        other._check = self._check
        other.add_ports(port.spec for port in self._ports.values())
        other.name_stages(self._bound)
        other._instances = self._instances
        if self._trace_path is not None:
            path = self._trace_path
            other.trace_to(path.with_name(f"{next(self._instances)}-{path.name}"))
        return other

    def close(self) -> None:
        """Ends runs in flight and joins all threads. Called by itself when the program goes."""
        if not self._closed:
            self._closed = True
            self._quick = None
            self._pending.clear()
            self._engine.close()

    @property
    def closed(self) -> bool:
        """Whether `close()` was called: then nothing runs any more."""
        return self._closed

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # --- looking -------------------------------------------------------------------------------

    @property
    def bindings(self) -> dict[str, Value]:
        """What each name is bound to for the next run."""
        return dict(self._binder.current)

    @property
    def num_workers(self) -> int:
        return self._engine.workers

    @property
    def stats(self) -> Stats:
        """Counters of the last run that was waited for."""
        return self._ended().stats()

    @property
    def trace(self) -> npt.NDArray[Any]:
        """One row per task of the last run, if its schedule has a `TracePolicy`; else it is
        empty, as `edges` is."""
        return self._ended().trace()

    @property
    def edges(self) -> npt.NDArray[Any]:
        """What tasks of the last run waited for: rows (src, dst) of numbers in the trace's column
        `seq`. A dependence on a task that had ended when `dst` was generated is not among them:
        nobody waited for it."""
        return self._ended().recorded().edges

    def elapsed_ms(self) -> float:
        """Length of the last run in milliseconds."""
        return self.stats.elapsed_ns / 1e6

    def task_hash(self, **bindings: object) -> tuple[int, int]:
        """Two 64-bit numbers that name the task set for these bindings; equal on every target.

        Without bindings, after `execute(hash=True)`: those of that run.
        """
        if not bindings and self._last is not None:
            hashed = self._last.task_hash()
            if hashed is not None:
                return hashed
        return self._generate(bindings).hash

    def num_tasks(self, **bindings: object) -> int:
        """How many tasks a run with these bindings generates."""
        return self._generate(bindings).tasks

    def min_depths(self, **bindings: object) -> dict[str, int]:
        """By name of a channel, the depth that it needs for a run with these bindings to come to
        its end: none of them can be smaller while the others stay. Raises DeadlockError if no
        depths help. Nothing runs, but it takes as long as there are messages."""
        self._check_usable()
        assert self._depths is not None, "the driver gives every program one"
        return self._depths(self._binder.bind(bindings))

    def descriptors(self, **bindings: object) -> npt.NDArray[Any]:
        """What a run with these bindings does, one row a task, in program order: `kernel` (a number
        in `plan.kernel_names`), the indices of its loops by axis, the fields that `emit` gave it,
        `stage` in a composed graph, and `workspace`, where its temporaries lie. Nothing runs.

        4294967295 stands where a task has no such number.
        """
        self._check_usable()
        if Feature.DATA_DEPENDENT in self.plan.features:
            raise tasks_depend_on_data(f"trace a run, {_TRACED}: trace has a row for each task")
        layout = layout_of(self.plan)
        return layout.rows(self._engine.descriptors(self._binder.bind(bindings), layout))

    def run_task(
        self,
        kernel: str,
        *indices: int,
        line: int | None = None,
        site: int | None = None,
        path: str | PathLike[str] | None = None,
        **axes: int,
    ) -> TaskDump:
        """Runs one task alone, on copies of its regions, and writes what it was given and what it
        made of it to `path`, by default cell-3-1.npz for run_task("cell", rows=3, cols=1).

        Loops are named as in keys of the schedule, or their indices given in order, outermost
        first. Of several calls of one kernel it is the one that has such a task; if many have,
        `line` tells them apart, or `site`, the number of the call in `trace`. Tensors hold what
        they hold now, under the current bindings; nothing of the program changes.
        """
        self._check_usable()
        assert self._single is not None, "the driver gives every program one"
        bound = self._binder.bind({})
        where = None if path is None else Path(path)
        try:
            return self._single(bound, kernel, indices, axes, line=line, site=site, path=where)
        except ExecutionError as error:
            if error.code is Code.RUN_TASK:
                of_call(error)
            raise

    def explain(self) -> str:
        """Each directive of the schedule: how the target enforces it, and what it cost in the last
        run; each parallel loop whose iterations wait for each other; and of a graph the bindings
        that several stages have, or that have the name of a stage."""
        self._check_usable()
        stats = None if self._last is None else self._last.stats()
        workers = self._engine.workers
        lines = [f"{self.target}, {workers} worker{'' if workers == 1 else 's'}"]
        lines[0] += f' (target="auto": {self.chosen})' if self.chosen else ""
        for entry in self._engine.explain(stats):
            where = "" if entry.loc is None else f"  # {entry.loc}"
            lines += [f"  {entry.directive}{where}", f"    how:  {entry.how}"]
            lines += [f"    cost: {entry.cost}"] if entry.cost else []
        lines += ["  no directives: all defaults"] if len(lines) == 1 else []
        lines += [f"  {line}" for line in serialised(self.plan, self._last_trace())]
        lines += [f"  {line}" for line in stage_lines(self._bound)]
        return "\n".join(lines)

    def _last_trace(self) -> npt.NDArray[Any] | None:
        """The trace of the last run, if it has one."""
        traced = self._last is not None and self._last.done() and self.plan.is_traced
        return self.trace if traced else None

    def save_trace(self, path: str | PathLike[str], *, arrows: bool = True) -> None:
        """Writes the last run's trace for Perfetto (ui.perfetto.dev) or chrome://tracing, with or
        without an arrow for each of `edges`. Without a `TracePolicy` there is none: an error."""
        if not self.plan.is_traced:
            raise ExecutionError(
                Code.PROGRAM_STATE,
                "the last run kept no trace",
                loc=srcloc.here(),
                why="its schedule has no TracePolicy, so trace and edges are empty",
                fix=f"compile it {_TRACED} or with compile(enable_profiling=True)",
            )
        to_perfetto(self._ended().recorded(), Path(path), name=self.target, arrows=arrows)

    def trace_to(self, path: Path) -> None:
        """Each run writes its whole trace there when it is waited for."""
        self._trace_path = path
        self._engine.trace_to(path)

    def _write_trace(self, run: Run) -> None:
        if self._trace_path is None or not run.done():
            return
        try:
            to_perfetto(run.recorded(), self._trace_path, name=self.target)
        except OSError as error:
            raise ExecutionError(
                Code.MACHINE_RESOURCES,
                f"the trace cannot be written to {str(self._trace_path)!r}",
                loc=srcloc.here(),
                why=str(error),
                fix="name a file that can be written in TracePolicy.timestamps(path=...)",
            ) from error

    def _repr_html_(self) -> str:
        """For notebooks: what it is, what is bound, and the plan."""
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{escape(show(value))}</td></tr>"
            for name, value in self.bindings.items()
        )
        text = escape(self.plan.disassemble())
        return (
            f"<b>{escape(repr(self))}</b><table><tr><th>name</th><th>bound to</th></tr>{rows}"
            f"</table><details><summary>plan</summary><pre>{text}</pre></details>"
        )

    def __repr__(self) -> str:
        kernels = ", ".join(self.plan.kernel_names)
        return f"<Program on {self.target}: {self.plan.task_bytes} bytes, kernels {kernels}>"

    def check_before_runs(self, check: Callable[[], None]) -> None:
        """Calls `check` before each run; it raises if the plan is out of date."""
        self._check = check

    def _run(self, bindings: dict[str, object], control: Control) -> Program:
        """Runs to the end."""
        self._last = None
        before = self._binder.values
        run = self._start(bindings, asynchronous=False, control=control)
        values = self._binder.values
        self._last = run
        try:
            run.wait(None)
        except BaseException:
            self._binder.back(values, before)
            with suppress(ExecutionError):  # what the run raises says more
                self._write_trace(run)
            raise
        self._write_trace(run)
        return self

    def _recording(self) -> bytes:
        return b"" if self._last is None else self._last.recording()

    def _start(
        self, bindings: dict[str, object], *, asynchronous: bool, control: Control = _PLAIN
    ) -> Run:
        self._check_usable()
        if self._quick is not None and control is _PLAIN:
            started = self._quick.start_quick(
                self._binder.values, bindings, asynchronous=asynchronous
            )
            if started is not None:
                run, self._binder.values = started
                return run
        hashed = False
        if "hash" in bindings and not self._binder.has("hash"):
            bindings = dict(bindings)
            hashed = bool(bindings.pop("hash"))
        if "seed" in bindings and not self._binder.has("seed"):
            bindings = dict(bindings)
            control = replace(control, seed=_checked_seed(bindings.pop("seed")))
        ports, begun = bind_ports(self._ports.values())
        bindings = {**bindings, **ports} if ports else bindings
        bound = self._binder.bind(bindings)
        check = None if self._verifier is None else self._verify(self._verifier, bound)
        if control is _PLAIN:
            run = self._engine.start(bound, asynchronous=asynchronous, hashed=hashed)
        else:
            run = self._controlled().start_controlled(
                bound, control, asynchronous=asynchronous, hashed=hashed
            )
        # Only now: values that the target refuses are forgotten.
        self._binder.values = tuple(b.value for b in bound)
        begun(run.done)
        return run if check is None else VerifiedRun(run, check)

    def _verify(self, verifier: Verifier, bound: tuple[Bound, ...]) -> Callable[[Run], None] | None:
        """Looks at the memory as the run will find it, so those before it have to end."""
        while not self.is_complete():
            time.sleep(_POLL_S)
        return verifier(bound)

    def _controlled(self) -> ControlledEngine:
        if isinstance(self._engine, ControlledEngine):
            return self._engine
        raise ExecutionError(
            Code.TARGET_LIMIT,
            f"{self.target} has one order of tasks and no other",
            loc=srcloc.here(),
            why="recording, replaying and seeds are about the order in which workers take tasks",
            fix='use target="cpu_sim"',
        )

    def _generate(self, bindings: Mapping[str, object]) -> Generated:
        self._check_usable()
        return self._engine.generate(self._binder.bind(bindings))

    def _check_usable(self) -> None:
        if self._check is not None:
            self._check()
        if self._closed:
            raise was_closed()

    def _ended(self) -> Run:
        if self._last is None:
            raise ExecutionError(
                Code.PROGRAM_STATE,
                "no run has ended yet",
                loc=srcloc.here(),
                why="stats and traces are those of the last run that was waited for",
                fix="call execute(), or synchronize() after execute_async()",
            )
        return self._last


def _checked_seed(seed: object) -> int:
    if isinstance(seed, int) and not isinstance(seed, bool) and 0 <= seed < 1 << 64:
        return seed
    raise ExecutionError(
        Code.TARGET_OPTION,
        f"seed must be an integer from 0 to 2**64 - 1, not {seed!r}",
        loc=srcloc.here(),
        why="it names one interleaving of the run",
        fix="pass such a number, or leave seed= out",
    )


@atexit.register
def _close_all() -> None:
    # Threads must not outlive the interpreter: a Python kernel would find it gone.
    for program in list(_alive):
        program.close()
