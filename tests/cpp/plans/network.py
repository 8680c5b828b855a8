"""Writes network.plan, which tests/cpp/test_network.cpp runs: a farm of three replicas behind a
source, with temporaries, feedback and a rendezvous. The kernels are the C++ test's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from pto_wsp import (
    Channel,
    DenseDyn,
    DType,
    In,
    InOut,
    Out,
    P,
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

ELEMENT = Tile[4, DType.I64]


@kernel(cpp_src="(void)t; (void)x; (void)i;")
def make(x: In[Tensor], t: Out[Tensor], i: Scalar[DType.I64]): ...


@kernel(cpp_src="(void)x; (void)t;")
def change(x: In[Tensor], t: Out[Tensor]): ...


@kernel(cpp_src="(void)x; (void)y;")
def fold(x: In[Tensor], y: InOut[Tensor]): ...


def network() -> Workload:
    items = Channel[ELEMENT]("items", depth=2)
    done = Channel[ELEMENT]("done", depth=3)
    last = Channel[ELEMENT]("last", depth=0)
    back = Channel[ELEMENT]("back", depth=2, initial=2)

    @workload
    def source(rounds: Any) -> None:
        for i in P.seq(rounds):
            send(items, make[i](x=receive(back), i=i))

    def worker() -> None:
        with consume(items) as item:
            between = Tensor.temp((4,), DType.I64)
            change(x=item, t=between)
            send(done, change(x=between))

    def collect() -> None:
        with consume(done) as item:
            send(last, change(x=item))

    def sink() -> None:
        y = Tensor(data=np.zeros(4, np.int64), name="Y")
        with consume(last) as item:
            fold(x=item, y=y)
            send(back, change(x=item))

    stages = [
        process("source").consumes(back).produces(items).body(source(DenseDyn(10))),
        replicate(process("worker").consumes(items).produces(done).body(worker), 3),
        process("collect").consumes(done).produces(last).body(collect),
        process("sink").consumes(last).produces(back).body(sink),
    ]
    return connect(stages, [items, done, last, back])


def plan_bytes() -> bytes:
    return network().compile(target="reference").plan.to_bytes()


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_suffix(".plan")
    target.write_bytes(plan_bytes())
