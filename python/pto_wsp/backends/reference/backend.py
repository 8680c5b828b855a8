"""The reference backend: the definition that other backends are tested against.

It obeys every schedule by ignoring it: schedules say where and when tasks run and never what they
compute, and here everything runs at one place, one after the other. The trace directive is the
exception, since it asks for a record of the run.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pto_wsp import srcloc
from pto_wsp.backends.base import Generated
from pto_wsp.backends.reference.bound import BoundPlan
from pto_wsp.backends.reference.call import kernel_error, make_caller
from pto_wsp.backends.reference.check import check_plan, trace_capacity
from pto_wsp.backends.reference.descriptors import descriptor_words
from pto_wsp.backends.reference.network import Network
from pto_wsp.backends.reference.task_hash import task_words
from pto_wsp.backends.reference.walk import Task, Walk
from pto_wsp.error_codes import Code
from pto_wsp.errors import ExecutionError
from pto_wsp.kernels import LoadedKernel
from pto_wsp.plan import Feature, Kernel, Plan, Section, Site
from pto_wsp.plan.disasm import directive_texts
from pto_wsp.plan.hashing import task_lanes
from pto_wsp.runtime.bindings import Bound
from pto_wsp.runtime.descriptors import Layout
from pto_wsp.runtime.engine import Explained
from pto_wsp.runtime.run_errors import run_error, tasks_depend_on_data
from pto_wsp.runtime.stats import Stats
from pto_wsp.runtime.trace import Recorded, trace_dtype

_U64 = (1 << 64) - 1


class ReferenceBackend:
    """Runs any plan of this version, slowly."""

    name = "reference"
    options: frozenset[str] = frozenset()

    def check(self, plan: Plan) -> None:
        check_plan(plan)

    def load(
        self, plan: Plan, kernels: tuple[LoadedKernel, ...], options: Mapping[str, object]
    ) -> ReferenceEngine:
        del options  # there are none
        return ReferenceEngine(plan, kernels)


class ReferenceEngine:
    """A plan with its kernels. Runs go one after the other, in the order of `start`."""

    workers = 1

    def __init__(self, plan: Plan, kernels: tuple[LoadedKernel, ...]) -> None:
        self.plan = plan
        self._kernels = kernels
        self.callers = [make_caller(plan, i, kernel) for i, kernel in enumerate(kernels)]
        self.keeps_all = False  # of a trace
        self._lock = threading.Lock()
        self._last: ReferenceRun | None = None
        self._unfinished: list[ReferenceRun] = []

    def start(
        self, bindings: tuple[Bound, ...], *, asynchronous: bool, hashed: bool = False
    ) -> ReferenceRun:
        bound = BoundPlan(self.plan, bindings)
        with self._lock:
            run = ReferenceRun(self, bound, after=self._last, hashed=hashed)
            self._last = run
            self._unfinished = [r for r in self._unfinished if not r.done()] + [run]
        if asynchronous:
            run.start_thread()
        else:
            run.run()
        return run

    def trace_to(self, path: Path) -> None:
        del path
        self.keeps_all = True

    def generate(self, bindings: tuple[Bound, ...]) -> Generated:
        if Feature.DATA_DEPENDENT in self.plan.features:
            raise tasks_depend_on_data()
        count = first = second = 0
        for task in Walk(BoundPlan(self.plan, bindings)).tasks():
            lanes = self.lanes(task)
            count, first, second = count + 1, first + lanes[0], second + lanes[1]
        return Generated(count, (first & _U64, second & _U64))

    def descriptors(self, bindings: tuple[Bound, ...], layout: Layout) -> npt.NDArray[np.uint32]:
        return descriptor_words(BoundPlan(self.plan, bindings), layout)

    def lanes(self, task: Task) -> tuple[int, int]:
        """What a task adds to the task hash."""
        kernel = self.plan.records(Kernel)[task.kernel].name_hash
        path = self.plan.records(Site)[task.site].path_hash
        return task_lanes(task_words(task, kernel, path))

    def explain(self, stats: Stats | None) -> list[Explained]:
        del stats
        how = "one task at a time, in program order, which no schedule forbids"
        return [
            Explained(text, how, "", self.plan.loc(Section.SCHEDULE, index))
            for index, text in enumerate(directive_texts(self.plan))
        ]

    def clone(self) -> ReferenceEngine:
        return ReferenceEngine(self.plan, self._kernels)

    def close(self) -> None:
        for run in self._unfinished:
            run.cancel()


class ReferenceRun:
    """One execution: walks the plan and calls a kernel for each task it meets."""

    def __init__(
        self,
        engine: ReferenceEngine,
        bound: BoundPlan,
        after: ReferenceRun | None,
        hashed: bool = False,
    ) -> None:
        self._hash: tuple[int, int] | None = (0, 0) if hashed else None
        self._engine = engine
        self._bound = bound
        self._after = after
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._cancelled = False
        self._error: BaseException | None = None
        self._tasks = 0
        self._accesses = 0
        self._loads = 0
        self._network: Network | None = None
        self._began_ns = self._elapsed_ns = 0
        # (task, start, end) of the last tasks, as many as the schedule wants.
        capacity = trace_capacity(engine.plan)
        kept = None if engine.keeps_all and capacity > 0 else capacity
        self._events: deque[tuple[Task, int, int]] = deque(maxlen=kept)

    def start_thread(self) -> None:
        # Not a daemon: a kernel is never torn off in the middle of a write.
        self._thread = threading.Thread(
            target=self._run_in_thread, args=(srcloc.calling(),), name="pto_wsp-reference"
        )
        self._thread.start()

    def _run_in_thread(self, call: srcloc.Call | None) -> None:
        try:
            srcloc.call_for(call, self.run, {})
        except BaseException as error:  # raised again by wait(), in the caller's thread
            self._error = error

    def run(self) -> None:
        """Executes in this thread. An error of the program is kept for `wait`."""
        try:
            if self._after is not None:
                self._after.join()
                self._after = None  # else every run would keep all earlier ones alive
            self._execute()
        except ExecutionError as error:
            self._error = error
        finally:
            self._ended.set()

    def join(self) -> None:
        self._ended.wait()

    def wait(self, timeout: float | None) -> bool:
        if not self._ended.wait(timeout):
            return False
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error
        return True

    def done(self) -> bool:
        return self._ended.is_set()

    def recording(self) -> bytes:
        return b""

    def task_hash(self) -> tuple[int, int] | None:
        return None if self._hash is None else (self._hash[0] & _U64, self._hash[1] & _U64)

    def cancel(self) -> None:
        """Ends the run before its next task and waits for that."""
        self._cancelled = True
        self._ended.wait()
        if self._thread is not None:
            self._thread.join()

    def stats(self) -> Stats:
        network = self._network
        return Stats(
            messages=network.messages if network else 0,
            channel_empty=network.empty if network else 0,
            channel_full=network.full if network else 0,
            channel_high=network.high if network else 0,
            tasks=self._tasks,
            generated=self._tasks,
            live_high=min(1, self._tasks),
            ready_high=min(1, self._tasks),
            bounds_checked=self._accesses,
            loads=self._loads,
            elapsed_ns=self._elapsed_ns,
            began_ns=self._began_ns,
            trace_dropped=self._tasks - len(self._events) if self._events.maxlen else 0,
            workers=1,
            worker_tasks=(self._tasks,),
        )

    def trace(self) -> np.ndarray[Any, Any]:
        plan = self._engine.plan
        depth = max((site.level for site in plan.records(Site)), default=0)
        longest = max((len(name) for name in plan.kernel_names), default=1)
        rows = np.zeros(len(self._events), trace_dtype(depth, longest))
        for row, (task, start, end) in zip(rows, self._events, strict=True):
            row["task_id"] = row["seq"] = row["take"] = task.task_id
            row["kernel"] = plan.kernel_names[task.kernel]
            row["site"] = task.site
            row["indices"][: len(task.indices)] = task.indices
            row["ready_ns"] = row["start_ns"] = start
            row["end_ns"] = end
        return rows

    def recorded(self) -> Recorded:
        return Recorded((self.trace(),))

    def _execute(self) -> None:
        began = self._began_ns = time.monotonic_ns()
        walk = Walk(self._bound)
        try:
            for task in walk.tasks():
                if self._cancelled:
                    message = "the run was ended early: its program was closed"
                    raise run_error(Code.PROGRAM_STATE, message)
                if self._hash is not None:
                    lanes = self._engine.lanes(task)
                    self._hash = self._hash[0] + lanes[0], self._hash[1] + lanes[1]
                self._call(task, began)
        finally:
            self._loads = walk.loads
            self._network = walk.network
            self._elapsed_ns = time.monotonic_ns() - began

    def _call(self, task: Task, began: int) -> None:
        start = time.monotonic_ns() - began
        try:
            self._engine.callers[task.kernel](task, self._bound)
        except Exception as error:
            raise kernel_error(self._engine.plan, task, error) from error
        self._events.append((task, start, time.monotonic_ns() - began))
        self._tasks += 1
        self._accesses += len(task.regions)
