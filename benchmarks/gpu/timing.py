"""How GPU times are taken: steps inside a CUDA graph, which is replayed; the median of replays.

In Triton's interpreter (`--tiny`) a step is simply called: that shows that it works, not how fast.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.sampling import Samples
from pto_wsp import DType, Program

Step = Callable[[], object]
_GRAPH_US = 3000.0  # about how long one replay may take
_MOST_STEPS = 50


def torch() -> Any:
    return importlib.import_module("torch")


def interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"


def where() -> str:
    return "cpu" if interpreted() else "cuda"


def l2_bytes() -> int:
    if interpreted():
        return 0
    return int(torch().cuda.get_device_properties(0).L2_cache_size)


def sms() -> int:
    return 2 if interpreted() else torch().cuda.get_device_properties(0).multi_processor_count


def synchronize() -> None:
    if not interpreted():
        torch().cuda.synchronize()


def bindable(tensor: Any) -> Any:
    """What `execute` takes: a tensor on the GPU as it is; in the interpreter its memory as an
    array."""
    if not interpreted():
        return tensor
    if tensor.dtype == torch().bfloat16:
        return tensor.view(torch().int16).numpy().view(DType.BF16.numpy)
    return tensor.numpy()


def tensor_of(array: np.ndarray) -> Any:
    return torch().from_numpy(array).to(where())


class Captured:
    """Some steps as one CUDA graph."""

    def __init__(self, steps: Sequence[Step], drain: Step | None = None) -> None:
        """`drain` is called after the capture, outside of it."""
        self._steps = steps
        self._graph: Any = None
        if not interpreted():
            self._graph = torch().cuda.CUDAGraph()
            torch().cuda.synchronize()
            with torch().cuda.graph(self._graph):
                for step in steps:
                    step()
        if drain is not None:
            drain()

    def replay(self) -> None:
        if self._graph is None:
            for step in self._steps:
                step()
        else:
            self._graph.replay()


def steps_of(program: Program, bindings: Sequence[dict[str, Any]]) -> list[Step]:
    """One launch for each set of bindings; all of them have run before, so that there is room."""
    if not interpreted():
        for each in bindings:
            program.execute(**each)
    return [lambda each=each: program.execute_async(**each) for each in bindings]


def graph_us(
    steps: Sequence[Step],
    *,
    replays: int = 20,
    drain: Step | None = None,
    spoil: Step | None = None,
) -> Samples:
    """Microseconds a step, warm. The steps take turns: with several, each on data of its own, and
    all of that more than the L2 cache holds, every step finds its data in memory. `spoil` makes
    results wrong before what was timed is replayed once more: whoever looks at them then sees
    what the graph computes."""
    if interpreted():
        return Samples((_called_us(steps, drain),))
    for step in steps:
        step()
    if drain is not None:
        drain()
    once = _replay_us(Captured(steps, drain), 3)[-1] / len(steps)
    rounds = max(1, min(_MOST_STEPS, round(_GRAPH_US / max(once, 1.0))) // len(steps))
    captured = Captured([*steps] * rounds, drain)
    times = _replay_us(captured, replays + 3)[3:]
    if spoil is not None:
        spoil()
        _replay_us(captured, 1)
    return Samples(tuple(us / (rounds * len(steps)) for us in times))


def _called_us(steps: Sequence[Step], drain: Step | None) -> float:
    begin = time.perf_counter()
    for step in steps:
        step()
    if drain is not None:
        drain()
    return (time.perf_counter() - begin) * 1e6 / len(steps)


def _replay_us(captured: Captured, replays: int) -> list[float]:
    cuda = torch().cuda
    events = [[cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(replays)]
    for begin, end in events:
        begin.record()
        captured.replay()
        end.record()
    cuda.synchronize()
    return [begin.elapsed_time(end) * 1e3 for begin, end in events]


def program_us(
    program: Program, bindings: Sequence[dict[str, Any]], *, writes: str = "", replays: int = 20
) -> Samples:
    """`writes` is the name of what a step computes, unless it is computed from what was there."""

    def spoil() -> None:
        for each in bindings:
            each[writes].fill_(float("nan"))

    steps = steps_of(program, bindings)
    drain = program.synchronize
    return graph_us(steps, replays=replays, drain=drain, spoil=spoil if writes else None)


def host_us(
    program: Program, others: Sequence[dict[str, Any]] = ({},), calls: int = 200
) -> Samples:
    """How long `execute_async` keeps the caller, nothing waited for between calls. `others` are
    bound in turn."""
    program.execute()
    calls = 2 if interpreted() else calls
    taken: list[float] = []
    for turn in range(calls):
        bound = others[turn % len(others)]
        begin = time.perf_counter_ns()
        program.execute_async(**bound)
        taken.append((time.perf_counter_ns() - begin) / 1e3)
    program.synchronize()
    return Samples(tuple(taken))
