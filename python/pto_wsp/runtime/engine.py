"""What a program runs on: engines and runs, as every target provides them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from pto_wsp.runtime.bindings import Bound, Value
from pto_wsp.runtime.descriptors import Layout
from pto_wsp.runtime.stats import Stats
from pto_wsp.runtime.trace import Recorded
from pto_wsp.sharing import DeviceArray
from pto_wsp.srcloc import SrcLoc


@dataclass(frozen=True, slots=True)
class Generated:
    """What a plan generates for some bindings: the number of tasks and the two lanes of their
    hash, which are equal on every target."""

    tasks: int
    hash: tuple[int, int]


@dataclass(frozen=True, slots=True)
class TaskDump:
    """One task that ran alone, on copies: what it was given and what it made of it, by parameter,
    as `x_before` and `x_after`; scalars by their names. `path` holds the same as .npz."""

    kernel: str
    indices: tuple[int, ...]
    loc: SrcLoc | None
    path: Path
    arrays: Mapping[str, npt.NDArray[Any]]

    def __str__(self) -> str:
        shown = (f"{k}: {v.dtype}{list(v.shape)}" for k, v in self.arrays.items())
        call = f"{self.kernel}[{', '.join(map(str, self.indices))}]"
        return "\n  ".join([f"{call} at {self.loc}, in {self.path}", *shown])


@dataclass(frozen=True, slots=True)
class Explained:
    """A directive, how a target enforces it, and what that cost in the last run."""

    directive: str
    how: str
    cost: str
    loc: SrcLoc | None


@dataclass(frozen=True, slots=True)
class Control:
    """What a run does beyond running: keeps its decisions, or takes them from a recording or from
    a seed."""

    record: bool = False
    replay: bytes | None = None
    seed: int | None = None


class SingleRunner(Protocol):
    """Runs one task of a plan alone."""

    def __call__(
        self,
        bindings: tuple[Bound, ...],
        kernel: str,
        indices: tuple[int, ...],
        named: Mapping[str, int],
        *,
        line: int | None,
        site: int | None,
        path: Path | None,
    ) -> TaskDump: ...


class Run(Protocol):
    """One execution of an engine."""

    def wait(self, timeout: float | None) -> bool:
        """Waits for the end, at most `timeout` seconds; False if they ran out. Raises the error of
        a run that failed."""
        ...

    def done(self) -> bool:
        """Whether the run has ended, with or without an error."""
        ...

    def task_hash(self) -> tuple[int, int] | None:
        """The task hash, if it was asked for; complete once the run has ended."""
        ...

    def recording(self) -> bytes:
        """The decisions of a run that was started with `Control` and has ended; else empty."""
        ...

    def stats(self) -> Stats:
        """Counters of the run, complete once it has ended."""
        ...

    def trace(self) -> npt.NDArray[Any]:
        """One row per task, as `runtime.trace.trace_dtype` describes; empty if the schedule asks
        for no trace. Complete once the run has ended."""
        ...

    def recorded(self) -> Recorded:
        """The same and what else was recorded, for a viewer."""
        ...


class Engine(Protocol):
    """A plan with its kernels, ready to run. Runs queue in call order."""

    workers: int

    def start(
        self, bindings: tuple[Bound, ...], *, asynchronous: bool, hashed: bool = False
    ) -> Run:
        """Starts a run with one binding per SYMBOL. Without `asynchronous` it has ended on return;
        its error is raised by `Run.wait` in both cases. `hashed` adds up the task hash."""
        ...

    def trace_to(self, path: Path) -> None:
        """Later runs record all of their tasks, whatever the capacity; what does not fit into
        memory may lie in files beside `path` as long as the run is there."""
        ...

    def generate(self, bindings: tuple[Bound, ...]) -> Generated:
        """Walks the plan without running anything."""
        ...

    def descriptors(self, bindings: tuple[Bound, ...], layout: Layout) -> npt.NDArray[np.uint32]:
        """The words of each task's descriptor, in program order; nothing runs."""
        ...

    def explain(self, stats: Stats | None) -> list[Explained]:
        """How each directive of the schedule is enforced; `stats` are those of the last run."""
        ...

    def clone(self) -> Engine:
        """Another engine for the same plan and kernels, with threads of its own."""
        ...

    def close(self) -> None:
        """Ends runs in flight and gives threads back. The engine is not used afterwards."""
        ...


# Looks at the values of a run before it starts; the result, if any, looks at it once it has ended.
# Both raise if they find something.
Verifier = Callable[[tuple[Bound, ...]], Callable[[Run], None] | None]

# Finds the smallest depths of channels, by name, with which a run with these values ends.
DepthFinder = Callable[[tuple[Bound, ...]], dict[str, int]]


@runtime_checkable
class ControlledEngine(Protocol):
    """An engine whose runs can be recorded, repeated and drawn from a seed."""

    def start_controlled(
        self,
        bindings: tuple[Bound, ...],
        control: Control,
        *,
        asynchronous: bool,
        hashed: bool = False,
    ) -> Run:
        """Like `Engine.start`. Raises if the recording is of another run."""
        ...


@runtime_checkable
class DeviceEngine(Protocol):
    """An engine whose runs use arrays in the memory of a device where they lie."""

    def adopt(self, value: object) -> DeviceArray | None:
        """An array of the device; None of anything else."""
        ...


@runtime_checkable
class StreamEngine(Protocol):
    """An engine whose runs go into a stream of its device, in order, with memory that is made
    before."""

    def reserve(self, bindings: tuple[Bound, ...]) -> None:
        """Makes room for a run with these values. Nothing of it runs."""
        ...


@runtime_checkable
class QuickEngine(Protocol):
    """An engine that looks at plain arguments by itself, faster than Python code could."""

    def start_quick(
        self,
        current: tuple[Value | None, ...],
        changed: dict[str, object],
        *,
        asynchronous: bool,
    ) -> tuple[Run, tuple[Value, ...]] | None:
        """Starts a run with `current`, one value per SYMBOL, but for the names in `changed`. The
        run and its values; None if anything does not plainly fit, and nothing was started: then
        `Engine.start` is called with what `Binder.bind` makes of them, or that raises."""
        ...
