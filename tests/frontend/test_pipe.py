"""Mistakes with channels and processes, and where their errors point."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    Channel,
    CompileError,
    DenseDyn,
    DType,
    Event,
    In,
    Out,
    P,
    Tensor,
    Tile,
    Workload,
    combine,
    connect,
    consume,
    kernel,
    plan,
    process,
    receive,
    record,
    replicate,
    send,
    sequential,
    synchronize,
    workload,
)
from pto_wsp.error_codes import Code

Row = Tile[4, DType.F32]
X = Tensor(data=np.zeros((4, 4), np.float32), name="X")
Y = Tensor(data=np.zeros((4, 4), np.float32), name="Y")


@kernel
def copy(x: In[Tensor], y: Out[Tensor]) -> None:
    y[...] = x


def pipe(body: Callable[[Channel, Any], None]) -> Workload:
    @workload
    def made(rows: Any) -> None:
        ch = Channel[Row]("ch", depth=2)
        with P.pipe():
            body(ch, rows)

    return made(DenseDyn(4))


def refused(work: Workload, code: Code, message: str) -> str:
    """The line that the error points at."""
    with pytest.raises(CompileError, match=message) as caught:
        work.compile()
    assert caught.value.code is code
    loc = caught.value.loc
    assert loc is not None
    assert caught.value.fix
    return linecache.getline(loc.file, loc.line).strip()


def test_two_senders() -> None:
    def body(ch: Channel, rows: Any) -> None:
        for i in P(rows):
            send(ch, copy[i](x=X[i]))
        for i in P(rows):
            send(ch, copy[i](x=X[0]))  # the second
        with consume(ch) as t:
            copy(x=t, y=Y[t.number])

    line = refused(pipe(body), Code.CHANNEL, "processes 'copy' and 'copy_2' send to channel 'ch'")
    assert line.endswith("# the second")


def test_nobody_consumes() -> None:
    def body(ch: Channel, rows: Any) -> None:
        for i in P(rows):
            send(ch, copy[i](x=X[i]))  # here

    assert refused(pipe(body), Code.CHANNEL, "nobody consumes").endswith("# here")


def test_nobody_sends() -> None:
    def body(ch: Channel, rows: Any) -> None:
        for i in P(rows):
            copy[i](x=receive(ch), y=Y[i])  # here

    assert refused(pipe(body), Code.CHANNEL, "nobody sends").endswith("# here")


def test_no_pipe() -> None:
    @workload
    def made(rows: Any) -> None:
        ch = Channel[Row]("ch", depth=2)
        for i in P(rows):
            send(ch, copy[i](x=X[i]))
        with consume(ch) as t:  # here
            copy(x=t, y=Y[t.number])

    work = made(DenseDyn(4))
    assert refused(work, Code.CHANNEL, "both ends of channel 'ch'").endswith("# here")
    with pytest.raises(CompileError, match=r"with P\.pipe\(\)"):
        work.compile()


def test_a_call_that_is_not_sent() -> None:
    def body(ch: Channel, rows: Any) -> None:
        for i in P(rows):
            copy[i](x=X[i])  # here
        with consume(ch) as t:
            copy(x=t, y=Y[t.number])

    assert refused(pipe(body), Code.KERNEL_CALL, "copy is called with no y").endswith("# here")


def test_a_statement_that_is_no_process() -> None:
    def body(ch: Channel, rows: Any) -> None:
        for i in P(rows):
            send(ch, copy[i](x=X[i]))
        receive(ch)  # here

    line = refused(pipe(body), Code.PROCESS, "a statement of P.pipe.* that is no process")
    assert line.endswith("# here")


def test_two_messages_at_a_time() -> None:
    def body(ch: Channel, rows: Any) -> None:
        for i in P(rows):
            send(ch, copy[i](x=X[i]))
        for _ in P(2):
            copy(x=receive(ch), y=Y[0])
            copy(x=receive(ch), y=Y[1])  # here

    assert refused(pipe(body), Code.CHANNEL, "another message of 'ch'").endswith("# here")


def test_temporaries_of_main() -> None:
    @workload
    def made(rows: Any) -> None:
        ch = Channel[Row]("ch", depth=2)
        kept = Tensor.temp((4,), DType.F32)
        with P.pipe():
            for i in P(rows):
                copy[i](x=X[i], y=kept)  # here
                send(ch, copy[i](x=kept))
            with consume(ch) as t:
                copy(x=t, y=Y[t.number])

    line = refused(made(DenseDyn(4)), Code.TEMPORARY_ESCAPED, "temporary .* outside its scope")
    assert line.endswith("# here")


def test_after_a_call_of_another_process() -> None:
    def body(ch: Channel, rows: Any) -> None:
        for i in P(rows):
            first = copy[i](x=X[i], y=Y[i])
            send(ch, copy[i](x=X[i]))
        with consume(ch) as t:
            copy(x=t, y=Y[t.number], after=first)  # here

    with pytest.raises(CompileError, match="between processes, messages order tasks") as caught:
        pipe(body).compile()
    loc = caught.value.loc
    assert loc is not None
    assert linecache.getline(loc.file, loc.line).endswith("# here\n")


def test_a_replica_number_without_replicas() -> None:
    ch = Channel[Row]("ch", depth=2)

    def source() -> None:
        send(ch, copy(x=X[0]))

    def sink(replica: Any) -> None:
        copy(x=receive(ch), y=Y[replica])

    one = process("source").produces(ch).body(source)
    two = process("sink").consumes(ch).body(sink)
    refused(connect([one, two], [ch]), Code.PROCESS, "takes the number of a replica")
    assert connect([one, replicate(two, 1)], [ch]).compile().num_tasks() == 2


def test_two_processes_of_one_name() -> None:
    ch = Channel[Row]("ch", depth=2)

    def first() -> None:
        send(ch, copy(x=X[0]))

    def second() -> None:
        copy(x=receive(ch), y=Y[0])

    one = process("p").produces(ch).body(first)
    two = process("p").consumes(ch).body(second)
    refused(connect([one, two], [ch]), Code.PROCESS, "two processes are called 'p'")


def test_processes_of_events_are_called_like_their_kernels() -> None:
    @workload
    def made(rows: Any) -> None:
        ready = Event("ready")
        with P.pipe():
            for _ in P(1):
                for i in P(rows):
                    copy[i](x=X[i], y=Y[i])
                record(ready)
            for _ in P(1):
                synchronize(ready)
                copy(x=Y[0], y=X[0])

    program = made(DenseDyn(4)).compile()
    records = program.plan.records(plan.Process)
    assert [program.plan.string(each.name) for each in records] == ["copy", "copy_2"]


@workload
def fill(rows: Any) -> None:
    for i in P(rows):
        copy[i](x=X[i], y=Y[i])


@workload
def net(rows: Any) -> None:
    ch = Channel[Row]("ch", depth=2)
    with P.pipe():
        for i in P(rows):
            send(ch, copy[i](x=X[i]))
        with consume(ch) as t:
            copy(x=t, y=Y[t.number])


@pytest.mark.parametrize("form", [sequential, combine])
def test_networks_are_not_composed(form: Callable[..., Workload]) -> None:
    """The order that sequential(...) asks for would be lost without a word."""

    @workload
    def made(rows: Any) -> None:
        form(fill(rows), net(rows))

    refused(made(DenseDyn(4)), Code.PROCESS, rf"{form.__name__}\(\.\.\.\) of a network")
    rows = DenseDyn(4)
    with pytest.raises(CompileError, match=r"of a network"):
        form(fill(rows), net(rows)).compile()


def test_a_network_may_be_called() -> None:
    @workload
    def made(rows: Any) -> None:
        net(rows)

    assert made(DenseDyn(4)).compile().num_tasks() == 8
