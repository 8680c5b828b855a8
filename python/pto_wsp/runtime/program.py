"""`Program`: a plan with kernels on a target, ready to run."""

from __future__ import annotations

import atexit
import time
import weakref
from collections.abc import Callable, Mapping
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from pto_wsp import srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import ExecutionError, SynchronizeTimeout
from pto_wsp.plan import Plan
from pto_wsp.runtime.bindings import Binder, Bound, Value, show
from pto_wsp.runtime.engine import (
    Engine,
    Generated,
    QuickEngine,
    Run,
    SingleRunner,
    TaskDump,
    Verifier,
)
from pto_wsp.runtime.stats import Stats
from pto_wsp.runtime.trace import to_perfetto
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
        defaults: Mapping[str, object] | None = None,
        single: SingleRunner | None = None,
        verifier: Verifier | None = None,
    ) -> None:
        self.plan = plan
        self._verifier = verifier
        self._single = single
        self.target = target
        self._engine = engine
        self._quick = engine if verifier is None and isinstance(engine, QuickEngine) else None
        self._binder = Binder(plan, defaults or {})
        self._pending: list[Run] = []
        self._last: Run | None = None
        self._closed = False
        self._check: Callable[[], None] | None = None
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

    # --- running -------------------------------------------------------------------------------

    def execute(self, **bindings: object) -> Program:
        """Runs to the end with these names rebound. Raises what the run raises.

        `hash=True` adds up the task hash on the way, which `task_hash()` then gives: the only way
        for a program whose tasks depend on what tasks compute.
        """
        run = self._start(bindings, asynchronous=False)
        self._last = run
        run.wait(None)
        return self

    def execute_async(self, **bindings: object) -> Program:
        """Starts a run and returns; `synchronize()` waits for it and raises its error."""
        self._pending.append(self._start(bindings, asynchronous=True))
        return self

    def synchronize(self, timeout: float | None = None) -> Program:
        """Waits for every run started so far, at most `timeout` seconds in all.

        Raises the first error among them, or SynchronizeTimeout if they are not done in time.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        first_error: BaseException | None = None
        while self._pending:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            run = self._pending[0]
            try:
                if not run.wait(left):
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
                    self._last = self._pending.pop(0)
                raise
            self._last = self._pending.pop(0)
        if first_error is not None:
            raise first_error
        return self

    def is_complete(self) -> bool:
        """Whether every run started so far has ended."""
        return all(run.done() for run in self._pending)

    def instance(self) -> Program:
        """Another program of the same plan, kernels and current bindings, with workers of its own.
        Runs of one program queue in call order; runs of two instances go on at the same time."""
        self._check_usable()
        engine = self._engine.clone()
        other = Program(
            self.plan, engine, target=self.target, single=self._single, verifier=self._verifier
        )
        other._binder.values = self._binder.values
        other._check = self._check
        return other

    def close(self) -> None:
        """Ends runs in flight and joins all threads. Called by itself when the program goes."""
        if not self._closed:
            self._closed = True
            self._pending.clear()
            self._engine.close()

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
        """One row per task of the last run, if its schedule has `TracePolicy.timestamps()`."""
        return self._ended().trace()

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

    def run_task(
        self,
        kernel: str,
        *indices: int,
        line: int | None = None,
        path: str | PathLike[str] | None = None,
        **axes: int,
    ) -> TaskDump:
        """Runs one task alone, on copies of its regions, and writes what it was given and what it
        made of it to `path`, by default cell-3-1.npz for run_task("cell", rows=3, cols=1).

        Loops are named as in keys of the schedule, or their indices given in order, outermost
        first. `line` tells apart several calls of one kernel. Tensors hold what they hold now,
        under the current bindings; nothing of the program changes.
        """
        self._check_usable()
        assert self._single is not None, "the driver gives every program one"
        bound = self._binder.bind({})
        where = None if path is None else Path(path)
        return self._single(bound, kernel, indices, axes, line=line, path=where)

    def explain(self) -> str:
        """Each directive of the schedule: how the target enforces it, and what it cost in the last
        run."""
        self._check_usable()
        stats = None if self._last is None else self._last.stats()
        workers = self._engine.workers
        lines = [f"{self.target}, {workers} worker{'' if workers == 1 else 's'}"]
        for entry in self._engine.explain(stats):
            where = "" if entry.loc is None else f"  # {entry.loc}"
            lines += [f"  {entry.directive}{where}", f"    how:  {entry.how}"]
            lines += [f"    cost: {entry.cost}"] if entry.cost else []
        return "\n".join(lines if len(lines) > 1 else [*lines, "  no directives: all defaults"])

    def save_trace(self, path: str | PathLike[str]) -> None:
        """Writes the last run's trace for Perfetto (ui.perfetto.dev) or chrome://tracing."""
        to_perfetto(self.trace, Path(path), name=self.target)

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

    def _start(self, bindings: dict[str, object], *, asynchronous: bool) -> Run:
        self._check_usable()
        if self._quick is not None:
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
        bound = self._binder.bind(bindings)
        check = None if self._verifier is None else self._verify(self._verifier, bound)
        run = self._engine.start(bound, asynchronous=asynchronous, hashed=hashed)
        # Only now: values that the target refuses are forgotten.
        self._binder.values = tuple(b.value for b in bound)
        return run if check is None else VerifiedRun(run, check)

    def _verify(self, verifier: Verifier, bound: tuple[Bound, ...]) -> Callable[[Run], None] | None:
        """Looks at the memory as the run will find it, so those before it have to end."""
        while not self.is_complete():
            time.sleep(_POLL_S)
        return verifier(bound)

    def _generate(self, bindings: Mapping[str, object]) -> Generated:
        self._check_usable()
        return self._engine.generate(self._binder.bind(bindings))

    def _check_usable(self) -> None:
        if self._check is not None:
            self._check()
        if self._closed:
            raise ExecutionError(
                Code.PROGRAM_STATE,
                "this program was closed",
                loc=srcloc.here(),
                why="close() has given its threads back",
                fix="compile the workload again",
            )

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


@atexit.register
def _close_all() -> None:
    # Threads must not outlive the interpreter: a Python kernel would find it gone.
    for program in list(_alive):
        program.close()
