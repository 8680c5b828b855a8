"""`emit`: what its handle stands for, its indices, and the fields that a descriptor may have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    Channel,
    CompileError,
    DenseDyn,
    Deps,
    DType,
    ExecutionError,
    In,
    InOut,
    Out,
    P,
    RaceError,
    Scalar,
    Schedule,
    Space,
    Tensor,
    Tile,
    TypeCheckError,
    Workspace,
    axis,
    consume,
    default,
    emit,
    ir,
    kernel,
    launch,
    select_tier,
    send,
    tier,
    tiers,
    workload,
)
from pto_wsp.error_codes import Code

EXPLICIT = Schedule().task_graph(deps=Deps.explicit())


@kernel
def put(y: Out[Tensor], s: Scalar[DType.I64]):
    y[...] = s


@kernel
def put_large(y: Out[Tensor], s: Scalar[DType.I64], workspace: Out[Tensor]):
    workspace[...] = s
    y[...] = workspace


@kernel
def add(y: InOut[Tensor], s: Scalar[DType.I64]):
    y[...] += s


@kernel
def copy(x: In[Tensor], y: Out[Tensor]):
    y[...] = x


@kernel
def fill(y: Out[Tensor]):
    y[...] = 1


variants = tiers(
    "variants", tier(lambda n: n < 2, put), default(put_large, Workspace((1,), DType.F64))
)


def both(body: Callable[..., None], **space: Any) -> Any:
    """The generator of four iterations under Deps.explicit()."""
    made = Space("made", i=axis(0, 4), **space)

    @made.generator(EXPLICIT)
    def generate(s: Any, a: Any, b: Any) -> None:
        for i in P(s.i):
            body(s, a, b, i)

    return made


def tiered(s: Any, a: Any, b: Any, i: Any) -> None:
    done = s.emit(select_tier(variants, i), a[i : i + 1], 5)
    s.emit(copy, a[i : i + 1], b[i : i + 1], after=done)


def plain(s: Any, a: Any, b: Any, i: Any) -> None:
    done = s.emit(put, a[i : i + 1], 5)
    s.emit(copy, a[i : i + 1], b[i : i + 1], after=[done])


def last(s: Any, a: Any, b: Any, i: Any) -> None:
    """Each task waits for the one before it."""
    done = s.emit(select_tier(variants, i), a[i : i + 1], 5)
    with P.when(i > 0):
        s.emit(copy, a[i - 1 : i], b[i - 1 : i], after=done[i - 1])


def tiers_that_wait(s: Any, a: Any, b: Any, i: Any) -> None:
    done = s.emit(put, a[i : i + 1], 5)
    copies = tiers("copies", tier(lambda n: n < 2, copy), default(copy))
    s.emit(select_tier(copies, i), a[i : i + 1], b[i : i + 1], after=done)


@pytest.mark.parametrize("target", ["cpu_sim", "reference"])
@pytest.mark.parametrize(
    ("body", "where", "wanted"),
    [
        (tiered, None, [5, 5, 5, 5]),
        (tiered, lambda i: i != 1, [5, 0, 5, 5]),
        (plain, lambda i: i != 1, [5, 0, 5, 5]),
        (last, None, [5, 5, 5, 0]),
        (last, lambda i: i != 1, [0, 0, 5, 0]),
        (tiers_that_wait, None, [5, 5, 5, 5]),
    ],
)
def test_a_handle_is_waited_for(body: Any, where: Any, wanted: Any, target: str) -> None:
    """verify="full" finds each order that is missing."""
    a, b = np.zeros(4), np.zeros(4)
    launch(both(body, where=where), a=a, b=b, target=target, options={"verify": "full"})
    assert b.tolist() == wanted


def test_nobody_is_waited_for() -> None:
    def body(s: Any, a: Any, b: Any, i: Any) -> None:
        s.emit(put, a[i : i + 1], 5)
        s.emit(copy, a[i : i + 1], b[i : i + 1], after=None)

    with pytest.raises(RaceError):
        launch(both(body), a=np.zeros(4), b=np.zeros(4), options={"verify": "full"})


@pytest.mark.parametrize("target", ["cpu_sim", "reference"])
@pytest.mark.parametrize("where", [None, lambda i: i != 1])
def test_numbers_that_are_elements_of_tensors(where: Any, target: str) -> None:
    """They are read once for all tiers, and may be used again behind a constraint."""
    chosen = tiers("chosen", tier(lambda n: n < 2, add), default(add))
    made = Space("made", where=where, i=axis(0, 4))

    @made.generator
    def generate(s: Any, lens: Any, out: Any) -> None:
        for i in P(s.i):
            n = lens[i]
            s.emit(select_tier(chosen, i), out[i : i + 1], n, fields={"n": n})
            s.emit(add, out[i : i + 1], s=n)
            s.emit(select_tier(chosen, n), out[i : i + 1], s=10 * lens[i])

    out = np.zeros(4)
    launch(made, lens=Tensor(data=np.arange(4)), out=out, target=target)
    assert out.tolist() == [0, 12 if where is None else 0, 24, 36]


def test_only_a_default() -> None:
    alone = tiers("alone", default(add))
    made = Space("made", i=axis(0, 4))

    @made.generator
    def generate(s: Any, out: Any) -> None:
        for i in P(s.i):
            with P.when(i == 0):
                add(out[i : i + 1], 1)
            s.emit(select_tier(alone, i), out[i : i + 1], 10)

    out = np.zeros(4)
    program = launch(made, out=out)
    assert out.tolist() == [11, 10, 10, 10]
    assert program.descriptors()["tier"].tolist() == [0xFFFF_FFFF, 0, 0, 0, 0]


def test_emit_in_any_workload() -> None:
    """With the indices of its task, which schedules and traces see."""

    @workload
    def work(rows: Any, out: Any) -> None:
        for i in P(rows):
            emit(put[i], out[i : i + 1], 1, fields={"twice": 2 * i})
            emit(select_tier(variants, i)[i, 7], out[i : i + 1], 3)

    out = np.zeros(3)
    made = work(DenseDyn(3), Tensor(data=out))
    text = ir.to_text(made.traced().module)
    assert "put[i](" in text
    assert "put[i, 7](" in text
    program = made.compile().execute()
    assert out.tolist() == [3, 3, 3]
    rows = program.descriptors()
    assert rows.dtype.names == ("kernel", "rows", "tier", "twice", "workspace")
    assert rows["twice"].tolist()[::2] == [0, 2, 4]


def test_a_message_that_is_emitted() -> None:
    """The call of a message belongs to the process that sends it."""
    out = np.zeros(1)

    @workload
    def work(out: Any) -> None:
        ch = Channel[Tile[1, DType.F64]]("ch", depth=1)
        with P.pipe():
            for _ in P(3):
                send(ch, emit(fill))
            with consume(ch) as t:
                emit(copy, t, out[0:1])

    work(Tensor(data=out)).compile().execute()
    assert out.tolist() == [1]


def _message(s: Any, a: Any, b: Any, i: Any) -> None:
    send(Channel[Tile[1, DType.F64]]("ch", depth=1), s.emit(fill))


def test_a_message_under_a_constraint() -> None:
    with pytest.raises(TypeCheckError, match="kernel fill is called with no y") as caught:
        launch(both(_message, where=lambda i: i > 0), a=np.zeros(4), b=np.zeros(4))
    assert caught.value.code is Code.KERNEL_CALL


def test_a_workspace_beyond_the_limit() -> None:
    large = tiers("large", default(put_large, Workspace((1000,), DType.F64)))

    def body(s: Any, a: Any, b: Any, i: Any) -> None:
        s.emit(select_tier(large, i), a[i : i + 1], 5)

    options = {"workspace_limit": 9000, "num_threads": 2}
    with pytest.raises(ExecutionError) as caught:
        launch(both(body), a=np.zeros(4), b=np.zeros(4), options=options)
    error = caught.value
    assert error.code is Code.MACHINE_RESOURCES
    assert error.message == (
        "temporaries need 16000 bytes, of which those of 'put_large_workspace' are 2 times 8000, "
        "and workspace_limit is 9000"
    )
    assert "raise workspace_limit" in (error.fix or "")
    assert error.loc is not None
    assert "select_tier(large, i)" in error.loc.render()


# --- fields ---


def fields_of(given: Any) -> Any:
    made = Space("made", i=axis(0, 4))

    @made.generator
    def generate(s: Any, out: Any) -> None:
        for i in P(s.i):
            for _ in P(s.i):
                s.emit(put, out[i : i + 1], 1, fields=given)

    return launch(made, out=np.zeros(4))


@pytest.mark.parametrize(
    "name", ["kernel", "stage", "tier", "workspace", "i", "i_2", "", "a b", 3, None]
)
def test_names_that_a_field_cannot_have(name: Any) -> None:
    with pytest.raises(CompileError, match="with the field") as caught:
        fields_of({name: 1})
    assert caught.value.code is Code.DESCRIPTOR
    assert caught.value.loc is not None
    assert caught.value.loc.file == __file__


def test_how_many_fields_there_may_be() -> None:
    rows = fields_of({f"f{k}": k for k in range(16)}).descriptors()
    assert rows.dtype.itemsize == 4 * (1 + 2 + 16)
    with pytest.raises(CompileError, match="with 17 fields"):
        fields_of({f"f{k}": k for k in range(17)})
    with pytest.raises(CompileError, match="fields=list"):
        fields_of([("x", 1)])


def test_loops_with_the_names_of_other_columns() -> None:
    @workload
    def work(kernel: Any, out: Any) -> None:
        for i in P(kernel):
            put(out[i : i + 1], i)

    program = work(DenseDyn(3), Tensor(data=np.zeros(3))).compile()
    rows = program.descriptors()
    assert rows.dtype.names == ("kernel", "kernel_2")
    assert rows["kernel_2"].tolist() == [0, 1, 2]
