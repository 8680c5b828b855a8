"""Arrays that tasks cannot use where they lie: refused, with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    DenseDyn,
    ExecutionError,
    Out,
    P,
    PtoError,
    Tensor,
    TypeCheckError,
    kernel,
    workload,
)
from pto_wsp.backends import registry
from tests.runtime.libraries import Interface

PLACE = "'Y' must be bound to an array that can be used in place, not "
SHARE = "Tensor(data=...) cannot share the memory of "
UNALIGNED = np.frombuffer(bytearray(49), np.float32, offset=1).reshape(4, 3)


@kernel(cpp_src="y(0) = 1;")
def mark(y: Out[Tensor]): ...


@workload
def work(rows, Y):
    for i in P(rows):
        mark[i](Y[i])


class Sparse:
    """Like scipy's: `data` holds the stored elements, not those of the array."""

    data = np.zeros((4, 3), np.float32)


@dataclass(frozen=True)
class Case:
    value: Any
    what: str  # of an error without a dtype
    why: str
    dtype: str = ""  # of an error about one


MASKED = np.ma.masked_less(np.zeros((4, 3), np.float32), 0)
INTERFACE = f"{Interface.__module__}.Interface"
REFUSED = {
    "unaligned": Case(UNALIGNED, "numpy.ndarray that is not aligned", "multiples of 4"),
    "unaligned interface": Case(
        Interface(UNALIGNED), f"{INTERFACE} that is not aligned", "multiples of 4"
    ),
    "odd stride": Case(
        np.ndarray((4, 3), np.float32, bytearray(99), 0, (13, 4)),
        "numpy.ndarray with a stride of 13 bytes",
        "no whole number of elements",
    ),
    "masked": Case(MASKED, f"{type(MASKED).__module__}.MaskedArray", "would not see its mask"),
    "masked interface": Case(
        Interface(np.zeros((4, 3), np.float32), mask=Interface(np.zeros((4, 3), bool))),
        INTERFACE,
        "would not see the mask",
    ),
    "interface that lies": Case(
        Interface(np.zeros((4, 3), np.float32), typestr="nonsense"), INTERFACE, ""
    ),
    "number": Case(np.float32(1), "numpy.float32", "no memory to share"),
    "sparse": Case(Sparse(), f"{__name__}.Sparse", "neither __array_interface__ nor __dlpack__"),
    "bytes": Case(bytes(48), "bytes", "neither __array_interface__ nor __dlpack__"),
    "big-endian": Case(np.zeros((4, 3), ">f4"), "", "bytes are in the other order", ">f4"),
    "complex": Case(np.zeros((4, 3), np.complex64), "", "", "complex64"),
    "records": Case(np.zeros((4, 3), [("a", "f4")]), "", "", "[('a', '<f4')]"),
    "strings": Case(np.zeros((4, 3), "U"), "", "", "<U1"),
    "objects": Case(np.zeros((4, 3), object), "", "", "object"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_data(name: str) -> None:
    case = REFUSED[name]
    with pytest.raises(TypeCheckError) as raised:
        Tensor(data=case.value)
    error = raised.value
    assert error.message == (
        f"Tensor(...) with dtype {case.dtype}" if case.dtype else SHARE + case.what
    )
    assert error.why is not None
    assert case.why in error.why
    assert error.fix
    assert error.loc is not None
    assert error.loc.file == __file__


@pytest.mark.parametrize("target", registry.host_names())
@pytest.mark.parametrize("name", REFUSED)
def test_refused_at_execute(target: str, name: str) -> None:
    case = REFUSED[name]
    y = np.zeros((4, 3), np.float32)
    program = work(DenseDyn(4), Tensor(data=y)).compile(target=target)
    with pytest.raises(ExecutionError) as raised:
        program.execute(Y=case.value)
    dtype = f"'Y' must be bound to dtype float32, not {case.dtype}"
    assert raised.value.message == (dtype if case.dtype else PLACE + case.what)
    assert case.why in (raised.value.why or "")
    assert raised.value.fix
    program.execute(Y=y)
    assert y.tolist() == [[1, 0, 0]] * 4


def refusal(value: Any) -> str:
    with pytest.raises(PtoError) as raised:
        Tensor(data=value)
    assert raised.value.message == SHARE + "torch.Tensor"
    assert raised.value.fix == "pass a tensor in host memory, detached, of a dtype that DType has"
    return raised.value.why or ""


def test_torch_tensors_that_are_refused() -> None:
    torch = pytest.importorskip("torch")
    assert "require gradient" in refusal(torch.zeros(3, requires_grad=True))
    assert "no DType" in refusal(torch.zeros(3, dtype=torch.complex64))
    assert "no DType" in refusal(torch.zeros(3, dtype=torch.float8_e4m3fn))
    assert refusal(torch.zeros(3).to_sparse())
    assert refusal(torch.zeros(3, device="meta"))


@pytest.mark.gpu
def test_torch_tensors_on_a_device_are_refused() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    assert refusal(torch.zeros(3, device="cuda")) == "its memory is on another device (CUDA)"
