"""What is wrong with a space, a generator or tiers, and that it is said at the user's line."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    DYNAMIC,
    PAD_LAST,
    CompileError,
    Dense,
    DenseDyn,
    DType,
    ExecutionError,
    InOut,
    Interleaved,
    Out,
    P,
    Scalar,
    Schedule,
    ScheduleError,
    Space,
    Tensor,
    axis,
    default,
    kernel,
    launch,
    select_tier,
    tier,
    tiers,
    workload,
)
from pto_wsp.error_codes import Code

Wrong = Callable[[], object]


@kernel(cpp_src="for (int64_t i = 0; i < y.shape(0); ++i) y(i) += s;")
def add(y: InOut[Tensor], s: Scalar[DType.I64]): ...


@kernel(cpp_src="workspace(0) = 1; y(0) = s;")
def roomy(y: InOut[Tensor], s: Scalar[DType.I64], workspace: Out[Tensor]): ...


class Callme:
    def __call__(self, s: Any, out: Any) -> None: ...


def refused(wrong: Wrong, code: Code, what: str) -> CompileError:
    with pytest.raises(CompileError) as caught:
        wrong()
    error = caught.value
    assert what in error.message
    assert error.code is code
    assert error.why
    assert error.fix
    assert error.loc is not None
    assert error.loc.file == __file__
    return error


def _space(**axes: Any) -> Space:
    return Space("s", **({"i": axis(0, "n")} | axes))


def _generated(body: Callable[[Any, Any, Any], None], **axes: Any) -> None:
    space = _space(**axes)

    @space.generator
    def generate(s: Any, out: Any, lens: Any) -> None:
        body(s, out, lens)

    launch(space, out=np.zeros(4), lens=np.array([1, 2]), n=2)


def _twice() -> None:
    space = _space()
    space.generator(lambda s, out: None)
    space.generator(lambda s, out: None)


def _itself(s: Any, out: Any, lens: Any) -> None:
    for i in P(s.i):
        add(out[i : i + 1], 1)
    _recursive(out)


@workload
def _recursive(out: Any) -> None:
    add(out[0:1], 1)
    _recursive(out)


def _scheduled_inside(s: Any, out: Any, lens: Any) -> None:
    inner = _space()

    @inner.generator(Schedule().streams(2))
    def generate(s: Any, out: Any) -> None:
        for i in P(s.i):
            s.emit(add, out[i : i + 1], 1)

    generate(out, n=2)


WRONG: list[tuple[str, Wrong]] = [
    ("axis(5, 3", lambda: axis(5, 3)),
    ("axis(True, 3", lambda: axis(True, 3)),
    ("axis(0, 'a b'", lambda: axis(0, "a b")),
    ("tile=(3, PAD_LAST, 1)", lambda: axis(0, 8, tile=(3, PAD_LAST, 1))),  # pyright: ignore[reportArgumentType]
    ("tile=(3,)", lambda: axis(0, 8, tile=(3,))),  # pyright: ignore[reportArgumentType]
    ("tile=[3, PAD_LAST]", lambda: axis(0, 8, tile=[3, PAD_LAST])),  # pyright: ignore[reportArgumentType]
    ("space 3", lambda: Space(3, i=axis(0, 2))),  # pyright: ignore[reportArgumentType]
    ("space 's' with an axis '_i'", lambda: _space(_i=axis(0, 2))),
    ("space 's' with an axis 'emit'", lambda: _space(emit=axis(0, 2))),
    ("space 's' with an axis 'where'", lambda: _space(where=axis(0, 2))),
    ("space 's' with an axis 'for'", lambda: _space(**{"for": axis(0, 2)})),
    ("where=3 of space s", lambda: _space(where=3)),
    ("where=*i of space s", lambda: _space(where=lambda *i: True)),
    ("where=i of space s", lambda: _space(where=lambda i, /: True)),
    ("a second generator of space s", _twice),
    ("the generator of space s is Callme", lambda: _space().generator(Callme())),
    ("the generator of space s is str", lambda: _space().generator("fifo")),  # pyright: ignore[reportArgumentType]
    ("the generator of space s is partial", lambda: _space().generator()(functools.partial(print))),
    ("has a schedule and is called in a workload", lambda: _generated(_scheduled_inside)),
]


@pytest.mark.parametrize(("what", "wrong"), WRONG, ids=[w for w, _ in WRONG])
def test_wrong_spaces(what: str, wrong: Wrong) -> None:
    refused(wrong, Code.SPACE, what)


def _axis_as_loop(s: Any, out: Any, lens: Any) -> None:
    for i in s.i:
        s.emit(add, out[i : i + 1], 1)


def _no_such_axis(s: Any, out: Any, lens: Any) -> None:
    assert not hasattr(s, "j")
    for j in P(s.j):
        s.emit(add, out[j : j + 1], 1)


def _length_of_an_array(s: Any, out: Any, lens: Any) -> None:
    assert not hasattr(lens, "shape")
    for j in P(lens.shape[0]):
        s.emit(add, out[j : j + 1], 1)


def _tile_of_no_tile(s: Any, out: Any, lens: Any) -> None:
    for i in P(s.i):
        s.emit(add, out[i.start : i.stop], 1)


IN_GENERATORS: list[tuple[str, Code, Callable[[Any, Any, Any], None]]] = [
    ("an axis of a space is not a number", Code.PARAMETER_AS_VALUE, _axis_as_loop),
    ("space s has no axis j", Code.SPACE, _no_such_axis),
    ("array lens has no .shape", Code.PARAMETER_AS_VALUE, _length_of_an_array),
    (".start of a symbolic value that is no tile", Code.AXIS_KIND, _tile_of_no_tile),
    ("workload _recursive inside 64 others", Code.WORKLOAD_FUNCTION, _itself),
]


@pytest.mark.parametrize(("what", "code", "body"), IN_GENERATORS)
def test_wrong_generators(what: str, code: Code, body: Any) -> None:
    refused(lambda: _generated(body), code, what)


def _selected(variants: Any) -> None:
    def body(s: Any, out: Any, lens: Any) -> None:
        for i in P(s.i):
            s.emit(select_tier(variants, i), out[i : i + 1], 1)

    _generated(body)


WRONG_TIERS: list[tuple[str, Wrong]] = [
    ("the condition 2048", lambda: tier(2048, add)),  # pyright: ignore[reportArgumentType]
    ("the condition <function", lambda: tier(lambda a, b: a < b, add)),  # pyright: ignore[reportArgumentType]
    ("has the workspace (4,)", lambda: tiers("t", default(roomy, (4,)))),  # pyright: ignore[reportArgumentType]
    ("is unpacked or iterated over", lambda: list(select_tier(tiers("t", default(add)), 1))),
    ("select_tier of Kernel", lambda: _selected(add)),
    ("select_tier of tuple", lambda: _selected((tier(lambda n: n < 2, add), default(add)))),
]


@pytest.mark.parametrize(("what", "wrong"), WRONG_TIERS, ids=[w for w, _ in WRONG_TIERS])
def test_wrong_tiers(what: str, wrong: Wrong) -> None:
    refused(wrong, Code.TIERS, what)


# --- ends ---


def _filled() -> Space:
    space = _space()

    @space.generator
    def generate(s: Any, out: Any) -> None:
        for i in P(s.i):
            s.emit(add, out[i : i + 1], 1)

    return space


@pytest.mark.parametrize("end", [True, 3.0, np.array([3]), np.array(3), np.float32(2)])
def test_an_end_that_is_no_number(end: Any) -> None:
    error = refused(lambda: launch(_filled(), out=np.zeros(3), n=end), Code.SPACE, "ends at n,")
    assert "n=8" in (error.fix or "")


@pytest.mark.parametrize("end", [3, np.int64(3), np.uint8(3), DenseDyn(3), Dense[3]()])
def test_numbers_that_end_an_axis(end: Any) -> None:
    for launched in (True, False):
        out = np.zeros(4)
        if launched:
            launch(_filled(), out=out, n=end)
        else:
            space = _filled()
            assert space.generates is not None
            space.generates(Tensor(data=out), n=end).compile().execute()
        assert out.tolist() == [1, 1, 1, 0]


def test_a_generator_that_another_workload_calls() -> None:
    """Its axis ends where that one says, whatever it calls the end."""
    space = _filled()
    generate = space.generates

    @workload
    def around(rows: Any, out: Any) -> None:
        assert generate is not None
        generate(out, n=rows)
        generate(out, n=2)

    out = np.zeros(4)
    around(DenseDyn(3), Tensor(data=out)).compile().execute()
    assert out.tolist() == [2, 2, 1, 0]


class Number:
    def __index__(self) -> int:
        return 3


def test_numbers_of_any_type() -> None:
    assert axis(np.int64(1), Number(), tile=np.uint8(2)) == axis(1, 3, tile=2)


def test_an_axis_may_be_called_name() -> None:
    space = Space("named", name=axis(0, 3), kv=axis(0, DYNAMIC))
    seen: list[str] = []

    @space.generator
    def generate(s: Any, out: Any) -> None:
        seen.append(s.name.name)
        for i in P(s.name):
            s.emit(add, out[i : i + 1], 1)

    launch(space, out=np.zeros(3))
    assert seen == ["name"]


def test_an_end_before_the_start() -> None:
    space = Space("s", i=axis(3, "n"))

    @space.generator
    def generate(s: Any, out: Any) -> None:
        for i in P(s.i):
            s.emit(add, out[i : i + 1], 1)

    with pytest.raises(ExecutionError) as caught:
        launch(space, out=np.zeros(3), n=2)
    assert caught.value.code is Code.NEGATIVE_EXTENT
    assert "maximum(n, start)" in (caught.value.fix or "")


def test_a_constraint_on_tiles() -> None:
    """It gets the number of the tile, with its bounds."""
    found: list[list[float]] = []
    for where in (lambda i: i.start >= 2, lambda i: i >= 1):
        space = Space("s", where=where, i=axis(0, 7, tile=2))

        @space.generator
        def generate(s: Any, out: Any) -> None:
            for i in P(s.i):
                s.emit(add, out[i.slice], 2)

        out = np.zeros(7)
        launch(space, out=out)
        found.append(out.tolist())
    assert found == [[0, 0, 2, 2, 2, 2, 2]] * 2


def test_an_order_of_an_axis_that_is_not_there() -> None:
    def scheduled() -> None:
        space = _space()

        @space.generator(Schedule().order(k=Interleaved(2)))
        def generate(s: Any, out: Any) -> None:
            for i in P(s.i):
                s.emit(add, out[i : i + 1], 1)

        launch(space, out=np.zeros(3), n=3)

    error = refused(scheduled, Code.DIRECTIVE_VALUE, "order names the loop 'k'")
    assert isinstance(error, ScheduleError)
    assert error.fix == "use one of 'i'"
