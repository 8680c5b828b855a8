"""What a run must have done, worked out without the core: which tasks are ordered, and whether the
times of a trace respect that."""

from __future__ import annotations

import math

import numpy as np

from pto_wsp import ir
from tests.ir.interpreter import Task, tasks
from tests.property.kernel_library import KERNELS
from tests.property.nests import TENSORS, Case, View, array_of

_MODES = {
    kernel.name: [param.mode for param in kernel.params if isinstance(param, ir.ParamDecl)]
    for kernel in KERNELS
}


class Order:
    """The order that a case demands of its tasks."""

    def __init__(self, case: Case) -> None:
        self.tasks = list(tasks(case.module.body, case.bindings))
        self.phases = [task.phases for task in self.tasks]
        cells = np.arange(case.memory // 4, dtype=np.uint32)
        # Element -> number of the 4-byte cells that it covers; u64 elements cover two.
        self._cells = {t.name: _cells(cells, case.views[t.name], t.dtype.size) for t in TENSORS}
        self._count = len(cells)
        touched = [self._touched(task) for task in self.tasks]
        self.reads = [reads for reads, _ in touched]
        self.writes = [writes for _, writes in touched]

    def most_written(self) -> int:
        """Bytes of the task that writes the most."""
        items = {t.name: t.dtype.size for t in TENSORS}

        def written(task: Task) -> int:
            return sum(
                items[tensor] * math.prod(extent for _, extent, _ in dims)
                for (tensor, dims), mode in zip(task.regions, _MODES[task.kernel], strict=True)
                if mode is not ir.Mode.IN
            )

        return max(map(written, self.tasks), default=0)

    def demands(self, first: int, second: int) -> str | None:
        """Why task `second` must wait for task `first`, which is before it in program order."""
        later = self.phases[second]
        for block, number in self.phases[first].items():
            if later.get(block, number) > number:
                return "phase"
        if self.writes[first] & self.reads[second]:
            return "read after write"
        if self.reads[first] & self.writes[second]:
            return "write after read"
        return "write after write" if self.writes[first] & self.writes[second] else None

    def violations(self, trace: np.ndarray) -> list[str]:
        """Pairs of tasks that ran in the wrong order or at the same time."""
        rows = trace[np.argsort(trace["task_id"])]
        assert rows["task_id"].tolist() == list(range(len(self.tasks)))
        starts, ends = rows["start_ns"].tolist(), rows["end_ns"].tolist()
        found: list[str] = []
        for second, start in enumerate(starts):
            for first in range(second):
                if ends[first] > start:  # only these could be wrong
                    reason = self.demands(first, second)
                    if reason is not None:
                        found.append(f"{reason}: {self.tasks[first]}, {self.tasks[second]}")
        return found

    def _touched(self, task: Task) -> tuple[int, int]:
        """Bit sets of the cells that a task reads and writes."""
        reads = writes = 0
        for (tensor, dims), mode in zip(task.regions, _MODES[task.kernel], strict=True):
            index = tuple(
                slice(start, start + (extent - 1) * step + 1, step) if extent > 0 else slice(0, 0)
                for start, extent, step in dims
            )
            mask = np.zeros(self._count, np.bool_)
            mask[self._cells[tensor][index]] = True
            bits = int.from_bytes(np.packbits(mask).tobytes(), "big")
            reads |= bits if mode is not ir.Mode.OUT else 0
            writes |= bits if mode is not ir.Mode.IN else 0
        return reads, writes


def _cells(cells: np.ndarray, view: View, item: int) -> np.ndarray:
    first = array_of(cells.view(np.uint8), view, np.dtype(np.uint32))
    return np.stack([first + k for k in range(item // 4)], axis=-1)
