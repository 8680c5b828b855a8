"""Runs that were started and that nobody has waited for."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator

from pto_wsp.runtime.engine import Run
from pto_wsp.srcloc import Call


class PendingRuns:
    """In call order. Several threads may wait for them: each run is taken out once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # And who started them. The first of many is found and taken out at once.
        self._runs: OrderedDict[Run, Call | None] = OrderedDict()
        self._enqueued: Run | None = None

    def add(self, run: Run, call: Call | None) -> None:
        with self._lock:
            self._runs[run] = call

    def enqueue(self, run: Run) -> None:
        """One that stands for all that were enqueued before it."""
        with self._lock:
            self._enqueued = run

    def settle(self) -> None:
        """What is enqueued is waited for like any other."""
        with self._lock:
            if self._enqueued is not None:
                self._runs[self._enqueued] = None  # it stands for many calls
                self._enqueued = None

    def first(self) -> tuple[Run, Call | None] | None:
        """The run to wait for next, and who started it."""
        with self._lock:
            return next(iter(self._runs.items()), None)

    def take(self, run: Run) -> bool:
        """Takes it out, if nobody has done so."""
        with self._lock:
            known = run in self._runs
            if known:
                del self._runs[run]
            return known

    def __iter__(self) -> Iterator[Run]:
        """Those of this moment that are waited for one by one."""
        with self._lock:
            return iter(list(self._runs))

    def __len__(self) -> int:
        return len(self._runs)

    def are_done(self) -> bool:
        """Whether every run has ended, those that are enqueued among them."""
        with self._lock:
            enqueued = self._enqueued
            runs = list(self._runs)
        return all(run.done() for run in runs) and (enqueued is None or enqueued.done())

    def clear(self) -> None:
        with self._lock:
            self._runs.clear()
            self._enqueued = None
