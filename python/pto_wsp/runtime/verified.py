"""A run that somebody looks at when it has ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy.typing as npt

from pto_wsp.errors import ExecutionError
from pto_wsp.runtime.engine import Run
from pto_wsp.runtime.stats import Stats
from pto_wsp.runtime.trace import Recorded


class VerifiedRun:
    """Waiting for it raises what the run raises, else what the check finds."""

    def __init__(self, run: Run, check: Callable[[Run], None]) -> None:
        self._run = run
        self._check: Callable[[Run], None] | None = check
        self._found: ExecutionError | None = None
        self._checking = threading.Lock()

    def wait(self, timeout: float | None) -> bool:
        if not self._run.wait(timeout):
            return False
        with self._checking:
            check, self._check = self._check, None
            try:
                if check is not None:
                    check(self._run)
            except ExecutionError as error:
                self._found = error
        if self._found is not None:
            raise self._found
        return True

    def done(self) -> bool:
        return self._run.done()

    def task_hash(self) -> tuple[int, int] | None:
        return self._run.task_hash()

    def stats(self) -> Stats:
        return self._run.stats()

    def recording(self) -> bytes:
        return self._run.recording()

    def recorded(self) -> Recorded:
        return self._run.recorded()

    def trace(self) -> npt.NDArray[Any]:
        return self._run.trace()
