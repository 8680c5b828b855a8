"""Locations and layouts as types: what they are, what joins, what is refused at which line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    CompileError,
    DenseDyn,
    DType,
    In,
    InOut,
    Location,
    MemLayout,
    Out,
    P,
    PagedTensor,
    Tensor,
    TensorLayout,
    TensorReplicate,
    TensorShard,
    Tile,
    Token,
    TypeCheckError,
    ir,
    kernel,
    relayout,
    workload,
)

Refused = Callable[..., CompileError]

R, S = TensorReplicate(), TensorShard
ROWS, COLS = MemLayout.row_major(), MemLayout.col_major()


@kernel
def add(a: In[Tensor], b: In[Tensor], out: Out[Tensor]):
    out[...] = a + b


@kernel
def touch(x: InOut[Tensor]):
    x[...] += 1


@kernel(body="python")
def on_chip(x: InOut[Tile[4, 8, DType.F32, Location.UB]]):
    x[...] += 1


def matrix(*dims: Any, mem: MemLayout | None = None, **options: Any) -> Tensor:
    order: Any = "F" if mem == COLS else "C"
    layout = TensorLayout(dims, mem) if dims else None
    return Tensor(data=np.zeros((4, 8), np.float32, order=order), layout=layout, **options)


def traced(function: Any, *args: Any) -> ir.Module:
    module = workload(function)(*args).traced().module
    ir.verify(module)
    return module


# --- values ---


def test_layouts_are_values() -> None:
    layout = TensorLayout([S(0), R], ROWS)  # pyright: ignore[reportArgumentType]
    assert layout == TensorLayout((TensorShard(0), TensorReplicate()), MemLayout.row_major())
    assert layout != TensorLayout((S(0), R))
    assert len({layout, TensorLayout((S(0), R), ROWS), TensorLayout((S(1), R))}) == 2
    with pytest.raises(FrozenInstanceError):
        layout.mem = None  # pyright: ignore[reportAttributeAccessIssue]


def test_reprs() -> None:
    assert repr(S(0)) == "S(0)"
    assert repr(R) == "R"
    assert repr(TensorLayout((S(0), R))) == "[S(0), R]"
    assert repr(TensorLayout((R,), MemLayout.strided(-2))) == "[R] in strided(-2)"
    assert repr(TensorLayout((R, R), COLS)) == "[R, R] in col_major"
    assert repr(Location.UB) == "Location.UB"
    tensor = matrix(S(0), R, name="X", location=Location.L2)
    assert repr(tensor) == "<Tensor X: f32[4, 8] in L2 layout [S(0), R]>"


@pytest.mark.parametrize(
    "layout",
    [
        TensorLayout(()),
        TensorLayout((S(3),)),
        TensorLayout((R, S(0)), COLS),
        TensorLayout((R, R), MemLayout.strided(9, -1)),
    ],
)
def test_code_makes_the_layout_again(layout: TensorLayout) -> None:
    assert eval(layout.code) == layout


JOINS = [
    (TensorLayout((R, R)), TensorLayout((R, R)), TensorLayout((R, R))),
    (TensorLayout((R, R)), TensorLayout((S(1), R)), TensorLayout((S(1), R))),
    (TensorLayout((S(0), R)), TensorLayout((S(0), S(1))), TensorLayout((S(0), S(1)))),
    # aligned at the last dimension
    (TensorLayout((S(0), R)), TensorLayout((S(1),)), TensorLayout((S(0), S(1)))),
    (TensorLayout(()), TensorLayout((S(1),)), TensorLayout((S(1),))),
    (TensorLayout((R,), ROWS), TensorLayout((R,)), TensorLayout((R,), ROWS)),
    # strides of a vector say nothing of a matrix
    (TensorLayout((R,), MemLayout.strided(2)), TensorLayout((R, R)), TensorLayout((R, R))),
]


@pytest.mark.parametrize(("a", "b", "joined"), JOINS)
def test_join(a: TensorLayout, b: TensorLayout, joined: TensorLayout) -> None:
    assert a.join(b) == joined
    assert b.join(a) == joined
    assert joined.join(joined) == joined


@pytest.mark.parametrize(
    ("a", "b", "why"),
    [
        (
            TensorLayout((S(0), R)),
            TensorLayout((S(1), R)),
            "dimension 0 of the first is S(0), dimension 0 of the second is S(1)",
        ),
        (
            TensorLayout((S(0), R)),
            TensorLayout((S(0),)),
            "mesh axis 0 shards dimension 0 of the first and dimension 0 of the second, and may "
            "shard only one dimension",
        ),
        (
            TensorLayout((R,), ROWS),
            TensorLayout((R,), MemLayout.strided(1)),
            "the first is row_major in memory, the second strided(1)",
        ),
    ],
)
def test_layouts_that_do_not_join(a: TensorLayout, b: TensorLayout, why: str) -> None:
    with pytest.raises(TypeCheckError) as raised:
        a.join(b)
    assert raised.value.message == f"{a!r} and {b!r} do not join"
    assert raised.value.why == why


def test_layouts_that_cannot_be(refused: Refused) -> None:
    def twice() -> None:
        TensorLayout((S(0), R, S(0)))  #!

    refused(twice, "TensorLayout([S(0), R, S(0)])", TypeCheckError)

    def no_dims() -> None:
        TensorLayout((0, 1))  #!  # pyright: ignore[reportArgumentType]

    refused(no_dims, "TensorLayout((0, 1))", TypeCheckError)

    def no_list() -> None:
        TensorLayout(S(0))  #!  # pyright: ignore[reportArgumentType]

    refused(no_list, "TensorLayout(S(0))", TypeCheckError)

    def no_axis() -> None:
        S(8)  #!

    refused(no_axis, "TensorShard(8)", TypeCheckError)

    def no_order() -> None:
        TensorLayout((R,), "C")  #!  # pyright: ignore[reportArgumentType]

    refused(no_order, "TensorLayout(..., mem='C')", TypeCheckError)

    def no_strides() -> None:
        TensorLayout((R, R), MemLayout.strided(1))  #!

    refused(no_strides, "TensorLayout([R, R] in strided(1))", TypeCheckError)

    def fraction() -> None:
        MemLayout.strided(1, 0.5)  #!  # pyright: ignore[reportArgumentType]

    refused(fraction, "MemLayout.strided(1, 0.5)", TypeCheckError)


# --- tensors ---


def test_tensors_keep_what_they_are_given() -> None:
    X = matrix(S(0), R, location=Location.L2)
    pool = Tensor(data=np.zeros((3, 4), np.float32), location=Location.L2)
    K = PagedTensor(pool, np.zeros((2, 2), np.int32), name="K")
    half = TensorLayout((R, S(1)), ROWS)

    def w() -> None:
        T = Tensor.temp((4, 8), DType.F32, location=Location.UB, layout=half)
        on_chip(T)
        touch(X)
        touch(K[0, :4])

    module = traced(w)
    found = {t.name: (t.location, t.layout) for t in module.tensors}
    assert found == {
        "tmp": (Location.UB, half),
        "X": (Location.L2, TensorLayout((S(0), R))),
        "K_pool": (Location.L2, None),
        "K_table": (Location.Global, None),
        "K": (Location.L2, None),
    }
    assert [getattr(p, "location", None) for k in module.kernels for p in k.params] == [
        Location.UB,
        None,
        None,
    ]


def test_tensors_in_places_where_they_cannot_be(refused: Refused) -> None:
    def bound() -> None:
        matrix(location=Location.UB)

    with pytest.raises(TypeCheckError) as raised:
        bound()
    assert raised.value.message == "Tensor(...) in UB"

    def by_name() -> None:
        Tensor(data=np.zeros(2), location="ub")  #!  # pyright: ignore[reportArgumentType]

    error = refused(by_name, "Tensor(...) with location='ub'", TypeCheckError)
    assert error.fix == "use Location.Global or Location.L2"

    def rank() -> None:
        Tensor(data=np.zeros(2), layout=TensorLayout((R, R)))  #!

    error = refused(rank, "Tensor(...) with the layout [R, R]", TypeCheckError)
    assert error.why == "the layout has rank 2, the tensor 1"

    def no_layout() -> None:
        Tensor(shape=(2,), dtype=DType.F32, layout="R")  #!  # pyright: ignore[reportArgumentType]

    refused(no_layout, "Tensor(...) with layout='R'", TypeCheckError)

    def temporary() -> None:
        @workload
        def w():
            Tensor.temp((2,), DType.F32, layout=TensorLayout((R,), COLS))  #!

        w().traced()

    refused(temporary, "Tensor.temp(...) with the layout [R] in col_major", TypeCheckError)


SQUARE = np.zeros((4, 4))


@pytest.mark.parametrize(
    ("array", "mem"),
    [
        (SQUARE, ROWS),
        (SQUARE.T, COLS),
        (SQUARE[::2], MemLayout.strided(8, 1)),
        (SQUARE[::-1], MemLayout.strided(-4, 1)),
        (SQUARE[:, :1], MemLayout.strided(4, 77)),  # one column: nothing is reached by its stride
        (SQUARE[:1], MemLayout.strided(77, 1)),
        (np.zeros((0, 4)).T, ROWS),
    ],
)
def test_orders_in_memory(array: Any, mem: MemLayout) -> None:
    assert Tensor(data=array, layout=TensorLayout((R, R), mem)).layout is not None


@pytest.mark.parametrize(
    ("array", "mem", "says"),
    [
        (SQUARE.T, ROWS, "MemLayout.col_major()"),
        (SQUARE, COLS, "MemLayout.row_major()"),
        (SQUARE[::2], ROWS, "MemLayout.strided(8, 1)"),
        (SQUARE, MemLayout.strided(5, 1), "MemLayout.row_major()"),
    ],
)
def test_orders_that_an_array_does_not_have(array: Any, mem: MemLayout, says: str) -> None:
    with pytest.raises(TypeCheckError) as raised:
        Tensor(data=array, layout=TensorLayout((R, R), mem))
    strides = tuple(stride // 8 for stride in array.strides)
    assert raised.value.why == f"the array of shape {array.shape} has the strides {strides}"
    assert raised.value.fix is not None
    assert f"say {says}; np.asfortranarray" in raised.value.fix


# --- calls ---


def test_a_tile_elsewhere(refused: Refused) -> None:
    X = matrix()

    def case() -> None:
        @workload
        def w(rows: Any):
            for i in P(rows):
                on_chip[i](X)  #!

        ir.verify(w(DenseDyn(1)).traced().module)

    message = "argument 'x' of kernel 'on_chip' is a tile in UB, 'X' lies in Global"
    error = refused(case, message, TypeCheckError)
    assert error.fix == (
        "pass a tensor with location=Location.UB, or annotate x as "
        "Tile[4, 8, DType.F32, Location.Global]"
    )


def test_tiles_say_where_they_are() -> None:
    assert repr(on_chip) == "<kernel on_chip(x: inout Tile[4, 8, f32, UB])>"
    with pytest.raises(TypeCheckError) as raised:
        Tile[Location.UB]
    assert raised.value.fix == (
        "write Tile[16, 128, DType.F32] or Tile[16, 128, DType.F32, Location.UB]"
    )


def test_layouts_at_a_call(refused: Refused) -> None:
    A, B, out = matrix(S(0), R), matrix(R, S(0)), matrix()

    def case() -> None:
        @workload
        def w(rows: Any):
            for i in P(rows):
                add[i](A[i], B[i], out[i])  #!

        w(DenseDyn(4)).compile()

    message = "kernel 'add' gets 'A' as [S(0), R] and 'B' as [R, S(0)], which do not join"
    error = refused(case, message, TypeCheckError)
    assert error.why == (
        "mesh axis 0 shards dimension 0 of 'A' and dimension 1 of 'B', and may shard only one "
        "dimension"
    )
    assert error.fix == "pass relayout(B, TensorLayout((TensorShard(0), TensorReplicate())))"


def test_the_fix_is_one() -> None:
    A, B, out = matrix(S(0), R), matrix(R, S(0)), matrix()

    @workload
    def w():
        add(A, relayout(B, TensorLayout((TensorShard(0), TensorReplicate()))), out)

    ir.verify(w().traced().module)


def test_dimensions_are_those_of_the_tensor() -> None:
    """A[i] is a vector, and still dimension 0 of A is the one that is sharded."""
    A, v = matrix(S(0), R), Tensor(data=np.zeros(8, np.float32), layout=TensorLayout((S(1),)))

    def w() -> None:
        add(A[0], v, A[1])

    traced(w)


# --- relayout ---


def test_relayout_is_the_same_tensor() -> None:
    X = matrix(S(0), R)
    other = TensorLayout((R, S(1)))

    def w() -> None:
        add(relayout(X, other)[0], relayout(relayout(X, other), TensorLayout((R, R)))[1], X[2])

    module = traced(w)
    assert [(t.name, t.layout) for t in module.tensors] == [("X", TensorLayout((S(0), R)))]
    (call,) = module.body
    assert isinstance(call, ir.Call)
    assert [(r.tensor, r.layout) for r in call.regions] == [
        ("X", other),
        ("X", TensorLayout((R, R))),
        ("X", None),
    ]


def test_relayout_outside_a_workload() -> None:
    X = matrix(S(0), R)
    Y = relayout(X, TensorLayout((R, S(0))))
    assert Y.data is X.data
    assert X.layout == TensorLayout((S(0), R))

    def both() -> None:
        touch(X)
        touch(Y)

    assert [t.name for t in traced(both).tensors] == ["X"]

    def alone() -> None:  # the name by which this workload knows it
        touch(Y)

    assert [t.name for t in traced(alone).tensors] == ["Y"]

    def passed(Z: Any) -> None:
        touch(Z)

    module = traced(passed, Y)
    assert [(t.name, t.layout) for t in module.tensors] == [("Z", X.layout)]
    assert module.body[0].args[0].layout == Y.layout  # pyright: ignore[reportAttributeAccessIssue]


def test_relayout_of_a_temporary() -> None:
    def w() -> None:
        T = Tensor.temp((4, 8), DType.F32, layout=TensorLayout((S(0), R)))
        touch(relayout(T, TensorLayout((R, R), ROWS)))

    traced(w)


def test_relayouts_that_are_refused(refused: Refused) -> None:
    X, later = matrix(S(0), R), Tensor(shape=(4, 8), dtype=DType.F32)
    token, columns = Token(4), TensorLayout((R, R), COLS)

    def order() -> None:
        relayout(X, columns)  #!

    error = refused(order, "relayout(...) with the layout [R, R] in col_major", TypeCheckError)
    assert "np.asfortranarray" in str(error)

    def unknown() -> None:
        relayout(later, columns)  #!

    refused(unknown, "relayout(...) to [R, R] in col_major", TypeCheckError)

    def rank() -> None:
        relayout(X, TensorLayout((R,)))  #!

    refused(rank, "relayout(...) with the layout [R]", TypeCheckError)

    def nothing() -> None:
        relayout(X, None)  #!  # pyright: ignore[reportArgumentType]

    refused(nothing, "relayout(...) without a layout", TypeCheckError)

    def no_data() -> None:
        relayout(token, TensorLayout((R,)))  #!

    refused(no_data, "relayout of a Token", TypeCheckError)

    def no_tensor() -> None:
        relayout(np.zeros(2), TensorLayout((R,)))  #!  # pyright: ignore[reportArgumentType]

    refused(no_tensor, "relayout of ndarray", TypeCheckError)


def test_relayout_may_say_what_is_true() -> None:
    X = matrix(mem=None)
    assert relayout(X, TensorLayout((R, R), ROWS)).layout == TensorLayout((R, R), ROWS)
    F = Tensor(data=np.zeros((4, 8), order="F"))
    assert relayout(F, TensorLayout((R, R), COLS)).layout == TensorLayout((R, R), COLS)


def test_one_name_has_one_layout(refused: Refused) -> None:
    data = np.zeros((4, 8), np.float32)
    one = Tensor(data=data, name="Z", layout=TensorLayout((S(0), R)))
    two = Tensor(data=data, name="Z", location=Location.L2)

    def case() -> None:
        @workload
        def w():
            add(one, one, two)  #!

        w().traced()

    refused(
        case,
        "Z is two things: tensor of f32, rank 2, layout [S(0), R] and tensor of f32, rank 2, in L2",
    )
