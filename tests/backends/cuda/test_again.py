"""A launch once more, with memory that lies as that of the last launch did, or not."""

# pyright: basic
from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pto_wsp import DenseDyn, DType, ExecutionError, PagedTensor, Scalar, Tensor
from pto_wsp.backends.cuda import device
from pto_wsp.backends.cuda.again import Again, Layout
from pto_wsp.backends.cuda.run import Inputs
from pto_wsp.sharing import DeviceArray
from pto_wsp.workloads import GpuDecode

from .programs import dense, numbers

torch: Any = importlib.import_module("torch")
NAMES = {"x": 0, "y": 1, "k_table": 2, "v_table": 3, "batch": 4}


def launched(table: Any = None) -> tuple[Again, list[tuple[Any, ...]]]:
    """As after a launch with x, y (written), two page tables and a number."""
    kept = torch.zeros(2, 8, dtype=torch.int32) if table is None else table
    tensors = {0: torch.zeros(4, 16), 1: torch.zeros(4, 16), 2: kept, 3: kept}
    inputs = Inputs(tensors=dict(tensors), numbers={4: 7})
    done: list[tuple[Any, ...]] = []
    layout = Layout(
        module=SimpleNamespace(),  # type: ignore[arg-type]
        launch=lambda *arguments: done.append(arguments),
        symbols=NAMES,
        places={0: (0,), 1: (1, 3), 2: (4,), 3: (5,)},
        tables=frozenset({2, 3}),
        written=frozenset({1}),
        sizes={symbol: device.num_bytes(tensor) for symbol, tensor in tensors.items()},
    )
    values = (*(DeviceArray(t, np.dtype("f4"), tuple(t.shape)) for t in tensors.values()), 7)
    addresses = [tensors[s].data_ptr() for s in (0, 1)]
    rest = [tensors[s].data_ptr() for s in (2, 3)]
    return Again(layout, values, inputs, (*addresses, 7, addresses[1], *rest), None), done


def test_other_memory_takes_every_place_of_the_last() -> None:
    again, done = launched()
    y = torch.zeros(4, 16)
    moved = again.with_memory({"y": y, "batch": 7})
    assert moved is not None
    moved.launch()
    assert done == [(again.arguments[0], y.data_ptr(), 7, y.data_ptr(), *again.arguments[4:])]
    assert moved.inputs.tensors[1] is y
    value = moved.values[1]
    assert isinstance(value, DeviceArray)
    assert value.array is y
    assert moved.is_for(moved.values)
    assert not moved.is_for(again.values)


def test_nothing_new_is_the_same_launch() -> None:
    again, _ = launched()
    assert again.with_memory({"batch": 7}) is again


@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(4, 17),
        torch.zeros(16, 4).T,
        torch.zeros(4, 16, dtype=torch.float64),
        torch.zeros(4 * 16 + 1)[1:].view(4, 16),  # at an odd address
        torch.zeros(4, 16, requires_grad=True),
        np.zeros((4, 16), np.float32),
        3,
    ],
    ids=["shape", "strides", "dtype", "address", "gradient", "NumPy", "number"],
)
def test_what_lies_otherwise_is_bound_anew(value: Any) -> None:
    again, _ = launched()
    assert again.with_memory({"x": value}) is None


@pytest.mark.parametrize("changed", [{"batch": 8}, {"batch": True}, {"hash": True}, {"z": 1}])
def test_other_numbers_and_names_are_bound_anew(changed: dict[str, object]) -> None:
    assert launched()[0].with_memory(changed) is None


def test_what_tasks_write_has_to_lie_apart() -> None:
    again, _ = launched()
    both = torch.zeros(6, 16)
    assert again.with_memory({"x": both[:4], "y": both[2:]}) is None
    assert again.with_memory({"y": again.inputs.tensors[0]}) is None


def test_tables_that_were_one_stay_one() -> None:
    again, _ = launched()
    one, other = (torch.zeros(2, 8, dtype=torch.int32) for _ in range(2))
    assert again.with_memory({"k_table": one, "v_table": one}) is not None
    assert again.with_memory({"k_table": one, "v_table": other}) is None
    assert again.with_memory({"k_table": one}) is None


@pytest.mark.gpu
def test_results_lie_in_the_memory_of_each_call() -> None:
    program = dense().workload.compile(target="cuda")
    made = []
    for turn in range(4):
        x = torch.from_numpy(numbers(6, 8)).cuda() + turn
        y = torch.empty_like(x)
        program.execute_async(tx=x, ty=y)
        made.append((x, y))
    program.synchronize()
    for x, y in made:
        torch.testing.assert_close(y, 2 * x + 1)
    x, y = made[-1]
    with pytest.raises(ExecutionError, match="shares memory"):
        program.execute(ty=x)
    program.execute(tx=x, ty=y)


@pytest.mark.gpu
def test_room_that_was_made_is_used_by_the_next_launch() -> None:
    """A step whose lengths need more room than there was, and then steps in other memory."""
    shape, config = (2, 1, 16, 4), GpuDecode(block=16, chunk=16)
    decode = config.workload(*shape, DType.F32)
    pools = [Tensor(data=np.zeros((1, 4, 1, 16), np.float32), name=n) for n in ("keys", "values")]
    table = Tensor(data=np.zeros((1, 1), np.int32), name="table")
    program = decode(
        batch=DenseDyn(1),
        lens=np.ones(1, np.int32),
        blocks=Scalar(4096),
        q=Tensor(data=np.zeros((1, 2, 16), np.float32), name="q"),
        k=PagedTensor(pools[0], table),
        v=PagedTensor(pools[1], table),
        out=Tensor(data=np.zeros((1, 2, 16), np.float32), name="out"),
    ).compile(target="cuda", **config.options)
    batch, longest = 64, 1 << 15
    keys, values = (torch.randn(longest // 4, 4, 1, 16, device="cuda") for _ in range(2))
    pages = torch.arange(longest // 4, dtype=torch.int32, device="cuda").repeat(batch, 1)
    lens = torch.full((batch,), 8, dtype=torch.int32, device="cuda")
    q = torch.randn(batch, 2, 16, device="cuda")
    bound = {"batch": batch, "lens": lens, "table": pages, "keys": keys, "values": values}
    for length in (8, longest, 64, longest):
        lens.fill_(length)  # the program is not told
        for _ in range(2):
            out = torch.full_like(q, float("nan"))
            program.execute(**bound, q=q, out=out)
            rows = [x.reshape(-1, 16)[:length].double() for x in (keys, values)]
            wanted = torch.softmax(q.double() @ rows[0].T / 4, -1) @ rows[1]
            torch.testing.assert_close(out.double(), wanted, atol=1e-3, rtol=1e-3)


@pytest.mark.gpu
def test_a_listening_profiler_is_told() -> None:
    hooks: Any = importlib.import_module("triton").knobs.runtime
    program = dense().workload.compile(target="cuda")
    x, y = (torch.from_numpy(numbers(6, 8)).cuda() for _ in range(2))
    program.execute(tx=x, ty=y)
    heard: list[object] = []
    hooks.launch_enter_hook.add(heard.append)
    try:
        program.execute()
    finally:
        hooks.launch_enter_hook.remove(heard.append)
    assert heard
