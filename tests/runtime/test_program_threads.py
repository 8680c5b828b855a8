"""One program, several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pto_wsp import DenseDyn, In, KernelError, P, Tensor, kernel, workload


@kernel(body="python")
def fails(x: In[Tensor]) -> None:
    if x.sum() > 0:
        raise ValueError("no")


@workload
def work(rows: Any, X: Any) -> None:
    for i in P(rows):
        fails[i](X[i])


def together(count: int, action: Callable[[], object]) -> list[BaseException]:
    """What each of so many threads raises that do the same at once."""
    raised: list[BaseException] = []
    begin = threading.Barrier(count)

    def go() -> None:
        begin.wait()
        try:
            action()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=go) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


@pytest.mark.parametrize("target", ["cpu_sim", "reference"])
@pytest.mark.parametrize("verify", [None, "full"])
def test_several_threads_wait_for_the_same_runs(target: str, verify: str | None) -> None:
    made = work(DenseDyn(4), Tensor(data=np.zeros((4, 4))))
    with made.compile(target=target, verify=verify) as program:
        for _ in range(5):
            for rows in (4, 3, 2, 1, 4, 3, 2):
                program.execute_async(rows=rows)
            assert together(4, program.synchronize) == []
            assert program.is_complete()
            assert program.stats.tasks == 2


def test_the_error_of_a_run_that_several_threads_wait_for() -> None:
    with work(DenseDyn(4), Tensor(data=np.ones((4, 4)))).compile() as program:
        for _ in range(3):
            program.execute_async()
            raised = together(3, program.synchronize)
            assert raised
            assert all(isinstance(error, KernelError) for error in raised)
            assert program.is_complete()
        program.execute(X=np.zeros((4, 4)))
