"""One launch, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pto_wsp.backends.cuda import device, faults, timeline
from pto_wsp.backends.cuda.expansion import Table
from pto_wsp.backends.cuda.module import NEED_WORDS, Fault, Module, Need, Word
from pto_wsp.error_codes import Code
from pto_wsp.errors import ExecutionError, PtoError
from pto_wsp.plan import Plan
from pto_wsp.runtime.bindings import Bound
from pto_wsp.runtime.stats import Stats
from pto_wsp.runtime.trace import Recorded

_U64 = (1 << 64) - 1


@dataclass(slots=True)
class Inputs:
    """What a run was given, on the device: by symbol, PyTorch tensors and numbers. `arrays` are
    those of the host, which were copied there, and `copied` those of them that tasks write."""

    tensors: dict[int, Any] = field(default_factory=dict[int, Any])
    numbers: dict[int, int | float] = field(default_factory=dict[int, int | float])
    arrays: dict[int, npt.NDArray[Any]] = field(default_factory=dict[int, npt.NDArray[Any]])
    copied: dict[int, npt.NDArray[Any]] = field(default_factory=dict[int, npt.NDArray[Any]])


class Host(Protocol):
    """What a run needs of the engine that it belongs to."""

    plan: Plan
    workers: int

    @property
    def table(self) -> Table | None: ...

    def words(self) -> list[int]: ...

    def needs(self) -> list[int]: ...

    def details(self) -> list[int]: ...

    def grow(self) -> None: ...

    launched: int  # runs so far
    suspect: int  # the last of those in which control may have a mistake; 0: there is none
    lost: tuple[int, int]  # the first and the last of those among which one found no room


class CudaRun:
    """Launched at once; `finish` waits for the end and looks for faults."""

    def __init__(self, engine: Host, module: Module, inputs: Inputs, *, hashed: bool) -> None:
        self._engine = engine
        self._module = module
        self._inputs = inputs
        self._hashed = hashed
        self._began = time.monotonic_ns()
        self._elapsed = 0
        self._error: PtoError | None = None
        self._ended = False
        self._need: list[int] = [0] * NEED_WORDS
        self._launch: Callable[[], Any] = lambda: None
        self._number = 0
        self._records: Any = None
        self._read: Recorded | None = None

    def launch(self, launch: Callable[[], Any]) -> None:
        """`launch` may be called again, if there was no room for the run. It gives the records of
        tasks, if there will be some."""
        self._launch = launch
        self._engine.launched += 1
        self._number = self._engine.launched
        self._records = launch()

    def finish(self) -> None:
        """Waits, and looks at what happened."""
        if self._ended:
            return
        try:
            words = self._engine.words()
            self._error = self._mistake() or self._lost()
            if self._error is None and words[Word.ERROR] == Fault.CAPACITY:
                self._engine.grow()
                self._records = self._launch()
                words = self._engine.words()
            self._need = self._engine.needs()
            self._error = self._error or self._mistake() or self._fault(words)
        except ExecutionError as error:
            self._error = error
        for symbol, array in self._inputs.copied.items():
            device.from_device(self._inputs.tensors[symbol], array)
        self._elapsed = time.monotonic_ns() - self._began
        self._ended = True
        self._read_records()

    @property
    def _recorded(self) -> Recorded:
        """What was recorded; made when somebody asks, since a launch is to take no time."""
        if self._read is None:
            self._read = Recorded((timeline.no_trace(self._engine.plan),))
        return self._read

    def _read_records(self) -> None:
        shape, records, self._records = self._module.records, self._records, None
        if shape is None or records is None:
            return
        numbers = {"tickets": self._need[Need.TICKETS], "tasks": self._need[Need.TASKS]}
        self._read = timeline.read(self._engine.plan, shape, records, **numbers)

    def _mistake(self) -> PtoError | None:
        """What the reference finds wrong with control, where the device has found something. Runs
        that were launched before somebody looked may each be the one."""
        engine = self._engine
        if self._number > engine.suspect:
            return None
        found = faults.mistake(engine.plan, self._given())
        if found is None and self._number == engine.suspect:
            found = faults.mistake_before()
        if found is not None:
            engine.suspect = 0
        return found

    def _lost(self) -> PtoError | None:
        """Of several runs that were launched before somebody looked, one found no room: nobody
        knows which, and to run all of them once more would update twice."""
        first, last = self._engine.lost
        if not first <= self._number <= last:
            return None
        return ExecutionError(
            Code.MACHINE_RESOURCES,
            f"one of {last - first + 1} runs found no room for its tasks, and computed nothing",
            why="they were started one behind the other, and their results may all be wrong",
            fix="make room first: reserve(...) with the values that need the most, or wait for the "
            "first run with them",
        )

    def _given(self) -> tuple[Bound, ...]:
        inputs = self._inputs
        return faults.on_host(self._engine.plan, inputs.tensors, inputs.numbers, inputs.arrays)

    def _fault(self, words: list[int]) -> PtoError | None:
        if words[Word.ERROR] == Fault.NONE and words[Word.KERNEL] == 0:
            return None
        plan, given = self._engine.plan, self._given()
        table = self._engine.table if self._module.expanded else None
        return faults.told(plan, self._module, words, self._engine.details(), given, table)

    def wait(self, timeout: float | None) -> bool:
        if timeout is not None and not device.has_ended(timeout):
            return False
        self.finish()
        if self._error is not None:
            raise self._error
        return True

    def done(self) -> bool:
        return self._ended or device.has_ended(0)

    def task_hash(self) -> tuple[int, int] | None:
        if not self._hashed or not self._ended:
            return None
        return self._need[Need.HASH] & _U64, self._need[Need.HASH + 1] & _U64

    def recording(self) -> bytes:
        return b""

    def stats(self) -> Stats:
        tasks = self._need[Need.TASKS] if self._ended else 0
        traced = self._ended and self._module.records is not None
        return Stats(
            tasks=tasks,
            generated=tasks,
            elapsed_ns=self._elapsed,
            began_ns=self._began,
            workspace_bytes=self._need[Need.SPACE] if self._ended else 0,
            workers=self._engine.workers,
            stolen=self._need[Need.STOLEN] if self._ended else 0,
            trace_dropped=tasks - len(self._recorded.pieces[0]) if traced else 0,
        )

    def trace(self) -> npt.NDArray[Any]:
        (trace,) = self._recorded.pieces
        return trace[np.argsort(trace["take"], kind="stable")]

    def recorded(self) -> Recorded:
        return self._recorded
