"""Runs that take longer than a test should."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    DenseDyn,
    InOut,
    KernelError,
    P,
    ReadyPolicy,
    TaskWindow,
    Tensor,
    kernel,
    workload,
)

pytestmark = pytest.mark.soak


@kernel(cpp_src="y() = y() * 6364136223846793005u + 1442695040888963407u;")
def mix(y: InOut[Tensor]): ...


@workload
def wide(n, Y):
    for i in P(n):
        mix[i](y=Y[i % 64])


def resident_kb() -> int:
    for line in Path("/proc/self/status").read_text("utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


def mixed(times: int) -> int:
    y = 0
    for _ in range(times):
        y = (y * 6364136223846793005 + 1442695040888963407) % 2**64
    return y


POLICIES = [ReadyPolicy.fifo(), ReadyPolicy.work_steal(), None]


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("ready", POLICIES, ids=str)
def test_ten_million_tasks_in_a_window_of_1024(ready: ReadyPolicy | None, workers: int) -> None:
    """Memory stays flat, and each chain has its checksum."""
    y = np.zeros(64, np.uint64)
    schedule = {"window": TaskWindow(1024), "ready": ready}
    work = wide(DenseDyn(1), Tensor(data=y)).task_graph(**schedule)
    program = work.compile(num_threads=workers)
    program.execute(n=100_000)
    y[:] = 0
    before, records = resident_kb(), program.stats.memory_bytes
    program.execute(n=10_000_000)
    assert program.num_tasks(n=10_000_000) == program.stats.tasks == 10_000_000
    assert resident_kb() - before < 16 * 1024
    assert program.stats.memory_bytes <= max(2 * records, records + (1 << 20))
    assert y.tolist() == [mixed(10_000_000 // 64)] * 64


def test_programs_come_and_go() -> None:
    """Many programs, many failures, many threads: nothing piles up."""

    @kernel
    def fails_sometimes(y: InOut[Tensor]):
        y += 1
        if y[()] % 7 == 0:
            raise ValueError("seven")

    @workload
    def work(n, Y):
        for i in P(n):
            fails_sometimes[i](y=Y[i])

    def use(number: int) -> None:
        options: dict[str, Any] = {"num_threads": 1 + number % 4}
        for _ in range(50):
            y = np.arange(20.0)
            program = work(DenseDyn(20), Tensor(data=y)).compile(**options)
            with pytest.raises(KernelError):
                program.execute()
            program.execute_async(Y=np.zeros(20))
            if number % 2:
                program.synchronize()

    use(0)
    before = resident_kb()
    for _ in range(4):
        threads = [threading.Thread(target=use, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert resident_kb() - before < 32 * 1024
