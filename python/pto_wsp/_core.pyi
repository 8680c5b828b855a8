"""The native core of pto_wsp: reads plans and runs them."""

from collections.abc import Callable
from typing import Any

import numpy
import numpy.typing


def plan_validate(plan: bytes) -> tuple[int, str] | None:
    """
    None for a valid plan, else the byte at which the first fault lies and what it is.
    """

def reflect() -> dict[str, list[dict[str, object]]]:
    """
    The format's tables: opcodes, enums, sections and records, with their documentation; and the directives of schedules.
    """

def plan_limits() -> dict[str, int]:
    """The limits of plan.h by name."""

class NativeRun:
    """One run of a NativeProgram."""

    def wait(self, timeout_ns: int) -> tuple[bool, tuple[int, str, int, int, int, int, tuple[int, ...], int, int] | None]:
        """Whether the run has ended, and its error; waits at most that long."""

    def succeeded(self) -> bool:
        """Whether the run has ended without an error."""

    def cancel(self) -> None:
        """Asks the run to end early."""

    def take_exception(self, message: str) -> BaseException | None:
        """The exception of a Python kernel, by the message of the run's error."""

    def stats(self) -> dict[str, int]:
        """The counters of stats.def by name."""

    def hash(self) -> tuple[int, int]: ...

    def worker_tasks(self) -> list[int]:
        """Tasks that each worker ran."""

    def recording(self) -> bytes:
        """The decisions of the run; empty if nobody kept them."""

    def trace_block(self, kind: int) -> bytes:
        """
        What was recorded of a kind: 0 tasks, 1 edges, 2 samples; see ptowsp.h.
        """

    def trace_info(self) -> tuple[int, float, int, bool]:
        """first_tick, ns_per_tick, levels, ordered of struct ptowsp_trace_info."""

class NativeProgram:
    """A loaded plan with its worker threads."""

    @staticmethod
    def load(plan: bytes, workers: int, seed: int, workspace_limit: int) -> tuple[NativeProgram | None, tuple[int, str, int, int, int, int, tuple[int, ...], int, int] | None]:
        """A program, or the reason why there is none."""

    def set_native_kernel(self, kernel: int, address: int, scratch: int, sharing: int) -> None:
        """
        Machine code of the signature ptowsp_kernel_fn, how many bytes of scratch memory it needs, and a bit for each view that may share memory with others.
        """

    def set_python_kernel(self, kernel: int, dispatch: Callable[[list[numpy.ndarray], list[int]], None]) -> None:
        """A function of the views and the loop indices of a task."""

    def expect(self, symbols: list[tuple[str, int, numpy.dtype | None, int, int, int]]) -> None:
        """
        What runs bind, by symbol: name, dtype, NumPy's dtype of an array, rank, range.
        """

    def start(self, values: tuple[object, ...], asynchronous: bool, hashed: bool) -> tuple[NativeRun | None, tuple[int, str, int, int, int, int, tuple[int, ...], int, int] | None]:
        """A run, or the reason why the values, one for each symbol, do not fit."""

    def start_controlled(self, values: tuple[object, ...], asynchronous: bool, hashed: bool, record: bool, replay: bytes | None, seed: int | None) -> tuple[NativeRun | None, tuple[int, str, int, int, int, int, tuple[int, ...], int, int] | None]:
        """
        A run that keeps its decisions, repeats those of another one, or draws them.
        """

    def start_quick(self, current: tuple[object, ...], changed: dict[str, object], asynchronous: bool) -> tuple[NativeRun, tuple[Any, ...]] | None:
        """
        A run with some names changed, and all of its values; None if that is not plain.
        """

    def generate(self, values: tuple[object, ...]) -> tuple[int, int, int, tuple[int, str, int, int, int, int, tuple[int, ...], int, int] | None]:
        """Number of tasks and the two lanes of their hash, or an error."""

    def descriptors(self, values: tuple[object, ...], cells: numpy.typing.NDArray[numpy.uint32], out: numpy.typing.NDArray[numpy.uint32]) -> tuple[int, tuple[int, str, int, int, int, int, tuple[int, ...], int, int] | None]:
        """
        Writes a row for each of the first tasks, as the cells of their sites say; how many tasks there are, or an error.
        """

    def close(self) -> None:
        """Ends runs in flight and joins all threads."""

    def set_trace_file(self, path: str) -> None:
        """
        Later runs write their traces to this file; an empty path keeps them in memory.
        """

    def after_fork(self) -> None:
        """Forgets threads that a fork left behind."""

def stat_docs() -> list[tuple[str, str]]:
    """(name, meaning) of each counter of a run."""

TRACED_SIZE: int = 64
