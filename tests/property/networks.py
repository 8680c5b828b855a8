"""Random networks of processes: chains, fans, replicas, feedback with messages that are there at
the start, channels of any depth. Some of them can go on to their end, some cannot."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from pto_wsp import (
    Channel,
    DenseDyn,
    DType,
    In,
    InOut,
    Out,
    P,
    Process,
    Scalar,
    Tensor,
    Tile,
    Workload,
    connect,
    consume,
    kernel,
    process,
    receive,
    replicate,
    send,
    workload,
)

WIDTH = 3
ELEMENT = Tile[WIDTH, DType.I64]


@kernel
def begin(y: Out[Tensor], a: Scalar[DType.I64]):
    y[...] = np.arange(WIDTH) + 7 * a


@kernel
def one(x: In[Tensor], y: Out[Tensor], a: Scalar[DType.I64]):
    y[...] = x * 3 + a


@kernel
def two(x: In[Tensor], z: In[Tensor], y: Out[Tensor], a: Scalar[DType.I64]):
    y[...] = x * 5 - z * 2 + a


@kernel
def fold(x: In[Tensor], total: InOut[Tensor]):
    total[...] = total * 31 + x


@dataclass
class Stage:
    """A process: a loop of its own, or one over the messages of its first input."""

    inputs: list[int] = field(default_factory=list)  # channels
    outputs: list[int] = field(default_factory=list)
    back: int | None = None  # a channel of feedback that it receives from
    counts: bool = True  # it loops itself and receives, else it consumes
    ordered: bool = True  # its own loop is P.seq
    temporary: bool = False
    folds: bool = False  # adds up what it receives, in order
    replicas: int = 1


@dataclass
class Case:
    stages: list[Stage]
    depths: list[int]
    initial: list[int]
    iterations: int
    seen: Any = None  # by process and iteration: what it received
    totals: Any = None

    def make(self) -> Workload:
        """The network on new memory."""
        count = len(self.stages)
        self.seen = np.zeros((count, max(self.iterations, 1), WIDTH), np.int64)
        self.totals = np.zeros((count, WIDTH), np.int64)
        channels = [
            Channel[ELEMENT](f"c{k}", depth=depth, initial=initial)
            for k, (depth, initial) in enumerate(zip(self.depths, self.initial, strict=True))
        ]
        data = Tensor(data=self.seen, name="seen"), Tensor(data=self.totals, name="totals")
        stages = [
            _process(number, stage, channels, data, self.iterations)
            for number, stage in enumerate(self.stages)
        ]
        return connect(stages, channels)


def _process(
    number: int, stage: Stage, channels: list[Channel], data: tuple[Tensor, Tensor], n: int
) -> Process:
    seen, totals = data

    def work(i: Any, messages: list[Any]) -> None:
        if not messages:
            value = None
        elif len(messages) == 1:
            value = messages[0]
        else:
            value = Tensor.temp(shape=(WIDTH,), dtype=DType.I64)
            two(x=messages[0], z=messages[1], y=value, a=number)
            for more in messages[2:]:
                fold(x=more, total=value)
        if value is not None and stage.temporary:
            other = Tensor.temp(shape=(WIDTH,), dtype=DType.I64)
            one(x=value, y=other, a=i)
            value = other
        if value is not None:
            one(x=value, y=seen[number, i], a=0)
            if stage.folds:
                fold(x=value, total=totals[number])
        for k in stage.outputs:
            made = begin(a=i + k) if value is None else one(x=value, a=i * 2 + k)
            send(channels[k], made)

    inputs = stage.inputs + ([] if stage.back is None else [stage.back])

    @workload
    def counting(rounds: Any) -> None:
        for i in P.seq(rounds) if stage.ordered else P(rounds):
            work(i, [receive(channels[k]) for k in inputs])

    def consuming() -> None:
        with consume(channels[inputs[0]]) as first:
            work(first.number, [first, *(receive(channels[k]) for k in inputs[1:])])

    builder = process(f"p{number}").consumes(*(channels[k] for k in inputs))
    builder = builder.produces(*(channels[k] for k in stage.outputs))
    made = builder.body(counting(DenseDyn(n)) if stage.counts else consuming)
    return replicate(made, stage.replicas) if stage.replicas > 1 else made


@st.composite
def cases(draw: st.DrawFn) -> Case:
    some = st.sampled_from
    count = draw(st.integers(2, 5))
    stages = [Stage(ordered=draw(st.booleans())) for _ in range(count)]
    depths: list[int] = []
    initial: list[int] = []

    def channel(depth: int, tokens: int = 0) -> int:
        depths.append(depth)
        initial.append(tokens)
        return len(depths) - 1

    for number in range(1, count):
        for source in draw(st.lists(st.integers(0, number - 1), min_size=1, max_size=2)):
            k = channel(draw(some((0, 1, 1, 2, 5))))
            stages[source].outputs.append(k)
            stages[number].inputs.append(k)
    for stage in stages[1:]:
        stage.counts = draw(some((False, False, True)))
        stage.temporary = draw(st.booleans())
        stage.folds = draw(st.booleans())
        if not stage.counts:
            stage.replicas = draw(some((1, 1, 2, 3)))
            stage.folds = stage.folds and stage.replicas == 1
    if draw(st.booleans()):  # feedback to the first, which counts
        tokens = draw(st.integers(1, 2))
        k = channel(tokens + draw(st.integers(0, 1)), draw(some((tokens, tokens, 0))))
        stages[0].back = k
        stages[draw(st.integers(1, count - 1))].outputs.append(k)
    return Case(stages, depths, initial, draw(st.integers(0, 7)))
