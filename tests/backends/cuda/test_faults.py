"""What goes wrong on the device is told with the task that it is about."""

# pyright: basic, reportInvalidTypeForm=false
from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    DeadlockError,
    DenseDyn,
    DType,
    ExecutionError,
    In,
    KernelError,
    Out,
    P,
    Program,
    Scalar,
    Tensor,
    kernel,
    minimum,
    pto,
    workload,
)
from pto_wsp.backends.cuda import device

from .programs import PROGRAMS, TILE, dense, double, numbers

F32 = DType.F32


def without_ends(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on no task says that it has ended."""
    engine: Any = program._engine
    ((key, (module, _)),) = engine._modules.items()
    broken = module.text.replace('1, sem="release")', '0, sem="release")')
    assert broken != module.text
    monkeypatch.setitem(engine._modules, key, (module, device.load_source(broken)))
    engine._again = None  # the last launch was that of the other kernel
    engine.tries = min(engine.tries, 1 << 12)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("wavefront", r"add\[rows=0, cols=1\] waits for add\[rows=0, cols=0\] \(RAW"),
        ("by_data", r"add\[again=0\] waits for double\[rows=\*\] \(RAW\): 0 of 4 have ended"),
        ("explicit", r"triple\[rows=0\] waits for double\[rows=0\] \(after\): 0 of 1 have ended"),
        ("chains", r"grow\[rows=0, lens=1\] waits for the 1 tasks before it in P.seq\(lens\)"),
        ("two_parts", r"add\[rows=0\] waits for the 4 tasks before it in the parts of sequential"),
    ],
)
def test_tasks_that_wait_in_vain(name: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not device.is_interpreted():  # any task that waits may be the first to give up
        told = re.sub(r"\d", r"\\d", told)
    program = PROGRAMS[name]().workload.compile(target="cuda")
    program.execute()
    with monkeypatch.context() as patch:
        without_ends(program, patch)
        with pytest.raises(DeadlockError, match=told) as caught:
            program.execute()
    assert "programs.py" in str(caught.value)
    assert "0 of " in caught.value.message
    program.execute()  # and the program is usable again


def test_how_many_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but one of the tasks that the last part waits for."""
    program = PROGRAMS["by_data"]().workload.compile(target="cuda")
    program.execute()
    engine: Any = program._engine
    ((key, (module, _)),) = engine._modules.items()
    broken = module.text.replace('1, sem="release")', 'tl.where(t == 2, 0, 1), sem="release")')
    monkeypatch.setitem(engine._modules, key, (module, device.load_source(broken)))
    engine._again = None
    engine.tries = min(engine.tries, 1 << 12)
    with pytest.raises(DeadlockError, match="3 of 4 have ended"):
        program.execute()


def both(made: Any, **bindings: object) -> list[ExecutionError]:
    """What the reference says, and what the device does."""
    found: list[ExecutionError] = []
    for target in ("reference", "cuda"):
        program = made().compile(target=target)
        with pytest.raises(ExecutionError) as caught:
            program.execute(**bindings)
        found.append(caught.value)
        if target == "cuda":
            program.execute(**dict.fromkeys(bindings, 1))
    return found


def test_regions_outside_their_tensors() -> None:
    """One row too many, in words of the reference."""
    wanted, found = both(lambda: dense().workload, rows=4)
    assert "in double[3, 0]" in wanted.message
    # Both tasks of the row are outside, and blocks find them at the same time.
    assert found.message.replace("[3, 1]", "[3, 0]") == wanted.message
    assert (found.code, found.why, found.fix) == (wanted.code, wanted.why, wanted.fix)
    assert found.loc == wanted.loc


def merged(limit: int) -> Any:
    """Sums of parts, by the last of them, with room for the sums of some rows only."""
    lengths = np.array([1, 3, 2])
    x, y = Tensor(data=numbers(3, 6, 4)), Tensor(data=np.zeros((limit, 2, 4), np.float32))

    @kernel
    def total(parts: In[Tensor], y: Out[TILE], at: Scalar[DType.I64]):
        s = pto.carry(sum=pto.zeros((2, 4), F32))
        for c in pto.for_range(0, parts.shape[0]):
            s.sum = s.sum + pto.load(parts[c + at, 0:2, 0:4])
        pto.store(y, s.sum)

    @workload
    def run(batch, lens, at):
        for b in P(batch):
            parts = Tensor.temp((minimum(lens[b], 3), 2, 4), F32, name="parts")
            for c in P(minimum(lens[b], 3)):
                double[b, c](x[b, 2 * c : 2 * c + 2], parts[c])
            total[b](parts, y[b], at * b)

    return run(DenseDyn(3), lengths, Scalar(0))


def test_tasks_that_the_last_of_others_runs() -> None:
    wanted, found = both(lambda: merged(2), batch=3)
    assert "in total[2]" in wanted.message
    assert found.message == wanted.message


def test_kernels_that_fail() -> None:
    program = merged(3).compile(target="cuda")
    reference = merged(3).compile(target="reference")
    for each in (reference, program):
        with pytest.raises(KernelError) as caught:
            each.execute(at=5)
        error = caught.value
        assert error.kernel.startswith("total")
        assert error.indices in ((1,), (2,))  # row 0 is where it should be
        assert f"[{error.indices[0]}] failed" in error.message
        assert error.loc is not None
        assert "test_faults.py" in error.loc.file
        each.execute(at=0)


def test_the_call_that_failed_is_named() -> None:
    """Of several kernels that may fail, the one that did."""
    x, y = Tensor(data=numbers(4, 4)), Tensor(data=np.zeros((2, 2, 4), np.float32))

    @kernel
    def first(x: In[Tensor], y: Out[TILE], at: Scalar[DType.I32]):
        pto.store(y, pto.load(x[at : at + 2, 0:4]) + pto.load(x[at, 0:4]))

    @kernel
    def second(x: In[Tensor], y: Out[TILE], at: Scalar[DType.I32]):
        pto.store(y, pto.load(x[0:2, 0:4]) * pto.load(x[at, 0:4]))

    @workload
    def run(rows, one, other):
        for i in P(rows):
            with P.when(i == 0):
                first[i](x, y[i], one)
            with P.otherwise():
                second[i](x, y[i], other)

    program = run(DenseDyn(2), Scalar(0), Scalar(0)).compile(target="cuda")
    program.execute()
    for bound, name, index in (({"one": 9}, "first", 0), ({"one": 0, "other": 9}, "second", 1)):
        with pytest.raises(KernelError, match=rf"kernel {name}\[{index}\] failed") as caught:
            program.execute(**bound)
        assert caught.value.indices == (index,)
