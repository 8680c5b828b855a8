"""`cpu_sim`: the native core on threads of this machine."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pto_wsp import _core, config
from pto_wsp.backends.base import Engine
from pto_wsp.backends.cpu.explain import explain
from pto_wsp.backends.cpu.failures import Failure, NativeError
from pto_wsp.backends.cpu.python_kernels import make_dispatch
from pto_wsp.backends.cpu.trace import read_trace
from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import ScheduleError
from pto_wsp.kernels import LoadedKernel, NativeKernel, PythonKernel
from pto_wsp.options import MAX_WORKERS, NUM_THREADS, SEED, WORKSPACE_LIMIT
from pto_wsp.plan import (
    Directive,
    DispatchPolicy,
    Plan,
    ScheduleArg,
    ScheduleEntry,
    Section,
    Status,
    Symbol,
    SymbolKind,
)
from pto_wsp.runtime.bindings import Bound, Value
from pto_wsp.runtime.descriptors import Layout
from pto_wsp.runtime.engine import Control, Explained, Generated
from pto_wsp.runtime.run_errors import was_closed
from pto_wsp.runtime.stats import Stats
from pto_wsp.runtime.trace import Recorded

_Started: TypeAlias = "tuple[_core.NativeRun | None, NativeError | None]"
_POLL_NS = 50_000_000  # how often a waiting thread looks for Ctrl-C

_engines: weakref.WeakSet[CpuEngine] = weakref.WeakSet()


class CpuBackend:
    """Threads, queues and dependence tracking in C++."""

    name = "cpu_sim"
    options = frozenset({NUM_THREADS.name, SEED.name, WORKSPACE_LIMIT.name})

    def check(self, plan: Plan) -> None:
        """Loads the plan once: the core itself says what it cannot run."""
        _load(plan, 1, 0, 0)

    def load(
        self, plan: Plan, kernels: tuple[LoadedKernel, ...], options: Mapping[str, object]
    ) -> Engine:
        workers = _workers(NUM_THREADS.of(options), plan)
        return CpuEngine(plan, kernels, workers, SEED.of(options), WORKSPACE_LIMIT.of(options))


class CpuEngine:
    """A loaded plan with its worker threads, which sleep between runs."""

    def __init__(
        self,
        plan: Plan,
        kernels: tuple[LoadedKernel, ...],
        workers: int,
        seed: int,
        workspace_limit: int,
    ) -> None:
        self.plan = plan
        self.workers = workers
        self._seed = seed
        self._workspace_limit = workspace_limit
        self._trace_path: Path | None = None
        self._traced_runs = 0
        self._starting = threading.Lock()
        self._last: Callable[[], CpuRun | None] = lambda: None
        self._kernels = kernels  # keeps shared libraries loaded
        self._native: _core.NativeProgram | None = self._make_native()
        _engines.add(self)

    def _make_native(self) -> _core.NativeProgram:
        native = _load(self.plan, self.workers, self._seed, self._workspace_limit)
        native.expect([_expected(self.plan, symbol) for symbol in self.plan.records(Symbol)])
        for index, kernel in enumerate(self._kernels):
            if isinstance(kernel, PythonKernel):
                native.set_python_kernel(index, make_dispatch(self.plan, index, kernel.fn))
            else:
                how = (kernel.address, kernel.scratch, kernel.sharing)
                native.set_native_kernel(index, *how)
        return native

    def start(
        self, bindings: tuple[Bound, ...], *, asynchronous: bool, hashed: bool = False
    ) -> CpuRun:
        values = _values(bindings)
        return self._started(lambda: self.native.start(values, asynchronous, hashed), hashed)

    def start_controlled(
        self,
        bindings: tuple[Bound, ...],
        control: Control,
        *,
        asynchronous: bool,
        hashed: bool = False,
    ) -> CpuRun:
        how = (asynchronous, hashed, control.record, control.replay, control.seed)
        values = _values(bindings)
        return self._started(lambda: self.native.start_controlled(values, *how), hashed)

    def _started(self, start: Callable[[], _Started], hashed: bool) -> CpuRun:
        with self._starting:
            while True:
                file = self._next_trace_file()
                run, error = start()
                if run is not None:
                    return self._keep(CpuRun(self, run, hashed, file))
                failure = _failure(error)
                if failure.status != Status.SHARED_MEMORY:
                    raise failure.to_exception(self.plan)
                self._allow_sharing(failure)

    def _keep(self, run: CpuRun) -> CpuRun:
        self._last = weakref.ref(run)
        return run

    def _allow_sharing(self, failure: Failure) -> None:
        """Replaces a kernel by one that may be given views of the same memory."""
        assert failure.record is not None
        index = failure.record[1]
        kernel = self._kernels[index]
        assert isinstance(kernel, NativeKernel)
        assert kernel.made_for is not None, "a kernel without it may be given anything"
        made = kernel.made_for(kernel.memory)
        last = self._last()
        if last is not None:  # one that nobody keeps has ended
            last.join()
        self._kernels = (*self._kernels[:index], made, *self._kernels[index + 1 :])
        # Another thread may be running with the kernels before: those stay as they are.
        self._native = self._make_native()

    def start_quick(
        self,
        current: tuple[Value | None, ...],
        changed: dict[str, object],
        *,
        asynchronous: bool,
    ) -> tuple[CpuRun, tuple[Value, ...]] | None:
        native = self._native
        if native is None or self._trace_path is not None:  # None: closed meanwhile
            return None
        started = native.start_quick(current, changed, asynchronous)
        if started is None:
            return None
        run = CpuRun(self, started[0], False, None)
        self._last = weakref.ref(run)
        return run, started[1]

    def trace_to(self, path: Path) -> None:
        self._trace_path = path

    def _next_trace_file(self) -> Path | None:
        """A file for the next run, beside the one that is made of it in the end."""
        if self._trace_path is None:
            return None
        self._traced_runs += 1
        name = f"{self._trace_path.name}.{os.getpid()}-{id(self):x}-{self._traced_runs}.events"
        file = self._trace_path.absolute().with_name(name)
        self.native.set_trace_file(str(file))
        return file

    def generate(self, bindings: tuple[Bound, ...]) -> Generated:
        tasks, lane0, lane1, error = self.native.generate(_values(bindings))
        if error is not None:
            raise Failure.of(error).to_exception(self.plan)
        return Generated(tasks, (lane0, lane1))

    def descriptors(self, bindings: tuple[Bound, ...], layout: Layout) -> npt.NDArray[np.uint32]:
        values = _values(bindings)
        cells = np.ascontiguousarray(layout.cells.reshape(len(layout.cells), 2 * layout.words))
        rows = np.zeros((0, layout.words), np.uint32)
        tasks, error = self.native.descriptors(values, cells, rows)  # only counts
        if error is None:
            rows = np.empty((tasks, layout.words), np.uint32)
            _, error = self.native.descriptors(values, cells, rows)
        if error is not None:
            raise Failure.of(error).to_exception(self.plan)
        return rows

    def explain(self, stats: Stats | None) -> list[Explained]:
        return explain(self.plan, stats)

    def clone(self) -> CpuEngine:
        return CpuEngine(self.plan, self._kernels, self.workers, self._seed, self._workspace_limit)

    def close(self) -> None:
        native, self._native = self._native, None  # nothing starts from now on
        if native is not None:
            native.close()

    def after_fork(self) -> None:
        """In the child of a fork: the worker threads are not there."""
        if self._native is not None:
            self._native.after_fork()

    @property
    def native(self) -> _core.NativeProgram:
        native = self._native
        if native is None:  # Program looks as well, but another thread may close it
            raise was_closed()
        return native


class CpuRun:
    """One execution. The native run keeps the bound arrays alive until it has ended."""

    __slots__ = ("__weakref__", "_engine", "_file", "_hashed", "_native")

    def __init__(
        self, engine: CpuEngine, native: _core.NativeRun, hashed: bool, file: Path | None
    ) -> None:
        self._engine = engine
        self._native = native
        self._hashed = hashed
        self._file = file
        if file is not None:
            weakref.finalize(self, _remove, file, os.getpid())

    def task_hash(self) -> tuple[int, int] | None:
        return self._native.hash() if self._hashed else None

    def wait(self, timeout: float | None) -> bool:
        if self._native.succeeded():
            return True
        left = None if timeout is None else max(0, int(timeout * 1e9))
        while True:
            # In slices, so that Ctrl-C is noticed while waiting.
            part = _POLL_NS if left is None else min(left, _POLL_NS)
            ended, error = self._native.wait(part)
            if ended:
                break
            if left is not None:
                left -= part
                if left <= 0:
                    return False
        if error is not None:
            raise self._exception(Failure.of(error))
        return True

    def done(self) -> bool:
        return self._native.wait(0)[0]

    def join(self) -> None:
        """Waits for its end, whatever that is."""
        while not self._native.wait(_POLL_NS)[0]:
            pass

    def stats(self) -> Stats:
        by_worker = tuple(self._native.worker_tasks())
        return Stats(**self._native.stats(), workers=len(by_worker), worker_tasks=by_worker)

    def recording(self) -> bytes:
        return self._native.recording()

    def trace(self) -> npt.NDArray[Any]:
        pieces = self.recorded().pieces
        trace = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        return trace[np.argsort(trace["take"], kind="stable")]

    def recorded(self) -> Recorded:
        return read_trace(self._engine.plan, self._native, self._file)

    def _exception(self, failure: Failure) -> BaseException:
        raised = self._native.take_exception(failure.message)
        if raised is None:
            return failure.to_exception(self._engine.plan)
        if failure.status != Status.KERNEL_ERROR:
            return raised  # KeyboardInterrupt and the like: nobody's failure
        error = failure.kernel_error(
            self._engine.plan, f"{type(raised).__name__}: {raised}".rstrip(": ")
        )
        error.__cause__ = raised
        return error


def _remove(file: Path, owner: int) -> None:
    if os.getpid() == owner:  # the child of a fork has copies of runs, not of their files
        file.unlink(missing_ok=True)


def _load(plan: Plan, workers: int, seed: int, workspace_limit: int) -> _core.NativeProgram:
    program, error = _core.NativeProgram.load(plan.to_bytes(), workers, seed, workspace_limit)
    if program is None:
        raise _failure(error).to_exception(plan)
    return program


def _values(bindings: tuple[Bound, ...]) -> tuple[Value, ...]:
    return tuple(bound.value for bound in bindings)


def _expected(plan: Plan, symbol: Symbol) -> tuple[str, int, np.dtype[Any] | None, int, int, int]:
    """What the core looks for when it reads arguments by itself."""
    is_array = symbol.kind in (SymbolKind.ARRAY, SymbolKind.TENSOR)
    dtype = DType(symbol.dtype).numpy if is_array else None
    return (
        plan.string(symbol.name),
        symbol.dtype,
        dtype,
        symbol.rank,
        symbol.min_value,
        symbol.max_value,
    )


def _failure(error: NativeError | None) -> Failure:
    assert error is not None, "the core gives a result or an error"
    return Failure.of(error)


def _workers(num_threads: int, plan: Plan) -> int:
    named, entry = _named_workers(plan)
    if 0 < num_threads < named:
        raise ScheduleError(
            Code.DIRECTIVES_CONTRADICT,
            f"the schedule sends tasks to {named} workers, and num_threads={num_threads}",
            loc=plan.loc(Section.SCHEDULE, entry),
            why="tasks of a worker that is not there would never run",
            fix=f"use num_threads={named} or more, or a dispatch to {num_threads} workers",
        )
    return num_threads or max(config.NUM_THREADS.get() or os.cpu_count() or 1, named)


def _named_workers(plan: Plan) -> tuple[int, int]:
    """The most workers that the schedule names, and the entry that does."""
    args = plan.records(ScheduleArg)
    found = 1, 0
    for number, entry in enumerate(plan.records(ScheduleEntry)):
        first = {Directive.DISPATCH: 0, Directive.DISPATCH_THRESHOLD: 2}.get(Directive(entry.id))
        if first is None:
            continue
        policy, *rest = [arg.bits for arg in args[entry.args : entry.args + entry.num_args]][first:]
        if policy == DispatchPolicy.ROUND_ROBIN:
            found = max(found, (rest[0], number))
        if policy == DispatchPolicy.STATIC_PARTITION:
            found = max(found, (len(rest), number))
    return min(found[0], MAX_WORKERS), found[1]


def _after_fork() -> None:
    for engine in list(_engines):
        engine.after_fork()


os.register_at_fork(after_in_child=_after_fork)
