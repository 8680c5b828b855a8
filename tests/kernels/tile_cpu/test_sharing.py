"""Parameters in the same memory: programs do what the kernel means, and others pay nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_wsp import DType, In, InOut, Kernel, Out, P, Program, Tensor, Tile, kernel, pto, workload
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.kernels.emit_cpp import emit_cpp

Array = np.ndarray[Any, Any]


@kernel
def turned(x: In[Tile[8, 8, DType.F32]], y: Out[Tile[8, 8, DType.F32]]):
    pto.store(y, pto.transpose(x))


@kernel(body="tile")
def chained(x: In[Tensor], y: Out[Tensor], w: In[Tensor]):
    """Each block reads what the one before it may have written."""
    for i in pto.for_range(0, x.shape[0], 4):
        pto.store(y[i : i + 4, 0:8], pto.load(x[i : i + 4, 0:8]) * 2.0 + pto.load(w[0:1, 0:8]))


@kernel(body="tile")
def as_bits(x: In[Tensor], y: InOut[Tensor]):
    pto.store(y[0:8, 0:8], pto.load(y[0:8, 0:8]) * 3.0)
    number = pto.cast(pto.load(x[0:8, 0:8]), DType.F32)
    pto.store(y[0:8, 0:8], pto.load(y[0:8, 0:8]) + number)


def numbers(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


W = np.ones((1, 8), np.float32)


def meant(which: Kernel, memory: Array, *cuts: Any) -> Array:
    """What the kernel makes of these parts of the memory."""
    copy = memory.copy()
    which.reference(*(copy[cut] for cut in cuts), *([W] if which is chained else []))
    return copy


def program_of_two(memory: Array) -> Program:
    """Two tensors, at first in memory of their own."""
    X, Y = Tensor(data=memory.copy()), Tensor(data=memory.copy())
    weights = Tensor(data=W)

    @workload
    def calls(X, Y):
        chained(X, Y, weights)

    return calls(X, Y).compile()


@pytest.mark.parametrize("target", ["reference", "cpu_sim"])
def test_regions_of_one_tensor(target: str) -> None:
    memory = numbers(4, 12, 8)
    wanted = [
        meant(turned, memory[0], np.s_[0:8], np.s_[0:8]),
        meant(turned, memory[1], np.s_[0:8], np.s_[3:11]),
        meant(chained, memory[2], np.s_[0:8], np.s_[2:10]),
        meant(chained, memory[3], np.s_[2:10], np.s_[0:8]),
    ]
    X, weights = Tensor(data=memory), Tensor(data=W)

    @workload
    def in_place():
        for _ in P(1):
            turned(X[0, 0:8], X[0, 0:8])
            turned(X[1, 0:8], X[1, 3:11])
            chained(X[2, 0:8], X[2, 2:10], weights)
            chained(X[3, 2:10], X[3, 0:8], weights)

    in_place().compile(target=target).execute()
    for plane, right in zip(memory, wanted, strict=True):
        np.testing.assert_allclose(plane, right, rtol=1e-6)


def test_arrays_that_turn_out_to_share() -> None:
    memory = numbers(20, 8)
    program = program_of_two(memory[:16])
    program.execute()
    for first, second in [(0, 2), (2, 0), (0, 0), (0, 4)]:
        cuts = np.s_[first : first + 16], np.s_[second : second + 16]
        wanted, ours = meant(chained, memory, *cuts), memory.copy()
        program.execute(X=ours[cuts[0]], Y=ours[cuts[1]])
        np.testing.assert_array_equal(ours, wanted)
    apart = memory[:16].copy()
    program.execute(X=memory[:16], Y=apart)
    np.testing.assert_array_equal(apart, memory[:16] * 2 + 1)


def test_runs_in_flight_and_instances() -> None:
    memory = numbers(4, 20, 8)
    program = program_of_two(memory[0, :16])
    wanted = [meant(chained, each, np.s_[0:16], np.s_[2:18]) for each in memory]
    ours = memory.copy()
    program.execute_async(X=memory[0, :16], Y=ours[3, :16].copy())
    for each in ours[:3]:
        program.execute_async(X=each[:16], Y=each[2:18])
    program.synchronize()
    other = program.instance()
    other.execute(X=ours[3, :16], Y=ours[3, 2:18])
    for plane, right in zip(ours, wanted, strict=True):
        np.testing.assert_array_equal(plane, right)


def test_columns_side_by_side_and_other_types() -> None:
    memory = numbers(16, 16)
    program = program_of_two(memory[:, :8])
    ours = memory.copy()
    program.execute(X=ours[:, :8], Y=ours[:, 8:])
    np.testing.assert_array_equal(ours[:, 8:], memory[:, :8] * 2 + 1)
    np.testing.assert_array_equal(ours[:, :8], memory[:, :8])
    left, right = memory[:8, :8].copy(), memory[:8, :8].copy()
    as_bits.run(left.view(np.int32), left)
    as_bits.reference(right.view(np.int32), right)
    np.testing.assert_array_equal(left, right)


def test_kernels_of_other_memory_pay_nothing() -> None:
    """One more version of the code, and only for kernels that some call gives one tensor twice."""
    X, Y = Tensor(data=numbers(8, 8)), Tensor(data=numbers(8, 8))
    weights = Tensor(data=W)

    @workload
    def apart():
        turned(X, Y)
        chained(X, Y, weights)

    @workload
    def half():
        turned(X, Y)
        chained(X, X, weights)

    texts = [emit_cpp(each().compile().plan) for each in (apart, half)]
    assert texts[0] is not None
    assert texts[1] is not None
    assert "may_share" not in texts[0].text
    assert texts[1].text.count("may_share") == 1
    assert "may_share(x, y)" in texts[1].text  # nobody asks for w


def test_sharing_needs_a_compiler_too(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = numbers(20, 8)
    program = program_of_two(memory[:16])
    monkeypatch.setenv("PTO_WSP_NO_JIT", "1")
    with pytest.raises(CompileError, match="have not been compiled yet: chained") as caught:
        program.execute(X=memory[:16], Y=memory[2:18])
    assert caught.value.code is Code.KERNEL_NOT_COMPILED
    program.execute(X=memory[:16], Y=memory[:16].copy())  # still usable
    monkeypatch.setenv("PTO_WSP_NO_JIT", "0")
    wanted = meant(chained, memory, np.s_[0:16], np.s_[2:18])
    program.execute(X=memory[:16], Y=memory[2:18])
    np.testing.assert_array_equal(memory, wanted)
