"""Networks whose processes only send and receive, written as data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from pto_wsp import (
    Channel,
    DenseDyn,
    DType,
    In,
    InOut,
    Out,
    P,
    Process,
    Program,
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
from pto_wsp.driver import load
from pto_wsp.errors import ChannelError, DeadlockError
from pto_wsp.passes import lower
from pto_wsp.passes import run as run_passes

ELEMENT = Tile[1, DType.I64]


@kernel
def put(t: Out[Tensor]):
    t[...] = 1


@kernel
def get(t: In[Tensor], total: InOut[Tensor]):
    total[...] += t


@kernel
def mark(total: InOut[Tensor]):
    total[...] += 1


@dataclass(frozen=True)
class Put:
    channel: str


@dataclass(frozen=True)
class Get:
    channel: str


@dataclass(frozen=True)
class All:
    """Each message, until there are no more."""

    channel: str
    body: Body = ()


@dataclass(frozen=True)
class Times:
    """A number, or the name of an extent that is bound at execute."""

    count: int | str
    body: Body


@dataclass(frozen=True)
class If:
    """A condition about which nothing is known before the run: it asks for that value of `flag`."""

    value: int
    body: Body
    other: Body = ()


Item: TypeAlias = Put | Get | All | Times | If
Body: TypeAlias = tuple[Item, ...]


@dataclass(frozen=True)
class Net:
    """Processes by name, and channels by name with their depth or (depth, initial)."""

    processes: dict[str, Body]
    channels: dict[str, int | tuple[int, int]]
    replicas: dict[str, int]

    def workload(self, **values: int) -> Workload:
        channels = {
            name: Channel[ELEMENT](name, depth=depth, initial=initial)
            for name, (depth, initial) in map(_with_initial, self.channels.items())
        }
        totals = Tensor(data=np.zeros((len(self.processes), 8, 1), np.int64), name="totals")
        n, m = DenseDyn(values.get("n", 2)), DenseDyn(values.get("m", 2))
        flag = np.array([values.get("flag", 0)])
        made = [
            self._process(name, body, channels, (totals, number), (n, m, flag))
            for number, (name, body) in enumerate(self.processes.items())
        ]
        return connect(made, list(channels.values()))

    def program(self, **values: int) -> Program:
        """Without the check: what is stuck is found by running."""
        traced = self.workload(**values).traced()
        plan = lower(run_passes(traced.module))
        return load(plan, "reference", traced.callables, {}, traced.defaults)

    def completes(self, **values: int) -> bool:
        with self.program(**values) as program:
            try:
                program.execute()
            except (DeadlockError, ChannelError):
                return False
        return True

    def with_depths(self, depths: Sequence[int]) -> Net:
        pairs = zip(self.channels.items(), depths, strict=True)
        channels = {item[0]: (depth, _with_initial(item)[1][1]) for item, depth in pairs}
        return Net(self.processes, channels, self.replicas)

    def _process(
        self,
        name: str,
        body: Body,
        channels: dict[str, Channel],
        place: tuple[Tensor, int],
        arguments: tuple[Any, ...],
    ) -> Process:
        totals, number = place
        used = _used(body)
        sends = [channels[c] for c in dict.fromkeys(i.channel for i in used if isinstance(i, Put))]
        takes = [
            channels[c] for c in dict.fromkeys(i.channel for i in used if not isinstance(i, Put))
        ]

        @workload
        def work(n: Any, m: Any, flag: Any) -> None:
            mark(total=totals[number, 0])
            _say(body, channels, totals[number, 0], {"n": n, "m": m}, flag)

        builder = process(name).consumes(*takes).produces(*sends)
        if name not in self.replicas:
            return builder.body(work(*arguments))

        def replica(r: Any) -> None:
            mark(total=totals[number, r])
            _say(body, channels, totals[number, r], {}, 0)

        return replicate(builder.body(replica), self.replicas[name])


def net(
    channels: dict[str, Any], /, replicas: dict[str, int] | None = None, **processes: Body
) -> Net:
    return Net(processes, channels, replicas or {})


def _with_initial(item: tuple[str, int | tuple[int, int]]) -> tuple[str, tuple[int, int]]:
    name, given = item
    return name, (given, 0) if isinstance(given, int) else given


def _used(body: Body) -> list[Put | Get | All]:
    found: list[Put | Get | All] = []
    for item in body:
        if isinstance(item, Put | Get | All):
            found.append(item)
        if isinstance(item, All | Times | If):
            found += _used(item.body)
        if isinstance(item, If):
            found += _used(item.other)
    return found


def extents_of(items: Iterable[Item]) -> set[str]:
    """The names of extents in loops in which channels are used."""
    found: set[str] = set()
    for item in items:
        if isinstance(item, All | Times | If):
            found |= extents_of(item.body)
        if isinstance(item, If):
            found |= extents_of(item.other)
        if isinstance(item, Times) and isinstance(item.count, str) and _used(item.body):
            found.add(item.count)
    return found


def _say(body: Body, channels: Any, total: Any, extents: dict[str, Any], flag: Any) -> None:
    """The statements of a body, to be traced."""
    for item in body:
        match item:
            case Put():
                send(channels[item.channel], put())
            case Get():
                get(t=receive(channels[item.channel]), total=total)
            case All():
                with consume(channels[item.channel]) as message:
                    get(t=message, total=total)
                    _say(item.body, channels, total, extents, flag)
            case Times():
                count = item.count
                for _ in P.seq(extents[count] if isinstance(count, str) else count):
                    _say(item.body, channels, total, extents, flag)
            case If():
                with P.when(flag[0] == item.value):
                    mark(total=total)
                    _say(item.body, channels, total, extents, flag)
                with P.otherwise():
                    mark(total=total)
                    _say(item.other, channels, total, extents, flag)
