"""Who runs the graphs: PTO-WSP and its rivals, each as a job that times itself."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from benchmarks.overhead import build
from benchmarks.overhead.workload import Graph
from benchmarks.sampling import Job, two_digits
from pto_wsp import StartPolicy, TaskWindow


class WrongResult(Exception):
    """A contender did not compute what the graph says; its time is worth nothing."""


def compile_ours(graph: Graph, *, workers: int, held: bool = False, iterations: int = 0) -> Any:
    """The program: by default the default schedule, where tasks run while others are generated.
    `held`: the first task starts when the whole graph is there."""
    work = graph.workload(iterations)
    if held:
        work = work.task_graph(
            start=StartPolicy.after_orchestration(), window=TaskWindow(graph.tasks)
        )
    return work.compile(num_threads=workers)


def our_job(program: Any, graph: Graph) -> Job:
    """Times `execute()` from the outside: generation, inference, execution and the call."""

    def job() -> float:
        graph.reset()
        begin = time.perf_counter_ns()
        program.execute()
        took = time.perf_counter_ns() - begin
        if not graph.is_right() or program.stats.tasks != graph.tasks:
            raise WrongResult(f"pto_wsp on {graph.name}: the result is wrong")
        return float(took)

    return job


@dataclass(slots=True)
class Rival:
    """Another runtime, in a shared library of this process."""

    name: str
    library: ctypes.CDLL
    version: str
    teardown_ns: dict[str, float] = field(default_factory=dict[str, float])

    @classmethod
    def load(cls, name: str) -> Rival:
        """Builds it if need be; build.Unavailable if that cannot be done here."""
        if name == "starpu":  # its machine model and its messages
            os.environ.setdefault("STARPU_HOME", str(build.CACHE))
            os.environ.setdefault("STARPU_SILENT", "1")
        library = build.load(name)
        library.bench_version.restype = ctypes.c_char_p
        library.bench_run.restype = ctypes.c_int64
        pointer = ctypes.POINTER(ctypes.c_int32)
        library.bench_run.argtypes = [
            ctypes.c_char_p,
            ctypes.c_int64,
            ctypes.c_int64,
            pointer,
            pointer,
            ctypes.c_int,
            ctypes.c_int64,
            ctypes.POINTER(ctypes.c_int64),
        ]
        return cls(name, library, library.bench_version().decode())

    def job(self, graph: Graph, *, workers: int, iterations: int = 0) -> Job:
        """Times building and executing, by the library's own clock."""
        pointer = ctypes.POINTER(ctypes.c_int32)
        teardown = ctypes.c_int64(0)

        def job() -> float:
            graph.reset()
            took = self.library.bench_run(
                graph.name.encode(),
                graph.n,
                graph.m,
                graph.x.ctypes.data_as(pointer),
                graph.out.ctypes.data_as(pointer),
                workers,
                iterations,
                ctypes.byref(teardown),
            )
            if took < 0 or not graph.is_right():
                raise WrongResult(f"{self.name} on {graph.name}: the result is wrong")
            self.teardown_ns[f"{graph.name}_{workers}"] = float(teardown.value)
            return float(took)

        return job


def load_rivals(names: tuple[str, ...]) -> tuple[dict[str, Rival], dict[str, str]]:
    """Those that can be had here, and why the others cannot."""
    found: dict[str, Rival] = {}
    missing: dict[str, str] = {}
    for name in names:
        try:
            found[name] = Rival.load(name)
        except (build.Unavailable, OSError) as error:
            missing[name] = str(error)
    return found, missing


@dataclass(frozen=True, slots=True)
class Spinner:
    """The busy loop of the bodies, calibrated on this machine."""

    library: ctypes.CDLL
    ns_per_iteration: float

    @classmethod
    def calibrate(cls) -> Spinner:
        library = build.load("spin")
        library.bench_spin.restype = ctypes.c_int64
        library.bench_spin.argtypes = [ctypes.c_int64]
        rounds = 200_000
        # The shortest of many: whatever disturbs the loop makes it longer.
        best = min(library.bench_spin(rounds) for _ in range(50))
        return cls(library, best / rounds)

    def iterations(self, ns: float) -> int:
        return two_digits(ns / self.ns_per_iteration)

    def length_ns(self, iterations: int) -> float:
        return iterations * self.ns_per_iteration

    def ceiling(self, threads: int, repeats: int = 5) -> float:
        """Speed-up of plain threads that share nothing: what this machine gives at best now."""
        rounds = int(20e6 / self.ns_per_iteration)
        # Shortest against shortest: one disturbed run must not look like a gain.
        times = [(self._wall_ns(1, rounds), self._wall_ns(threads, rounds)) for _ in range(repeats)]
        alone, together = (min(column) for column in zip(*times, strict=True))
        return threads * alone / together

    def _wall_ns(self, threads: int, rounds: int) -> int:
        gate = threading.Barrier(threads + 1)

        def body() -> None:
            gate.wait()
            self.library.bench_spin(rounds)

        running = [threading.Thread(target=body) for _ in range(threads)]
        for thread in running:
            thread.start()
        gate.wait()
        begin = time.perf_counter_ns()
        for thread in running:
            thread.join()
        return time.perf_counter_ns() - begin
