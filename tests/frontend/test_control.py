"""Conditions, sparse and tiled axes, slots, reads of tensors, scalars: what they are traced to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    Constexpr,
    Dense,
    DenseDyn,
    DType,
    In,
    InOut,
    Out,
    P,
    Ragged,
    Scalar,
    Sparse,
    Tensor,
    Tile,
    Tiled,
    combine,
    ir,
    kernel,
    reduce_any,
    reduce_sum,
    search,
    select,
    sequential,
    slot_load_u64,
    slot_set_u64,
    slot_u64,
    workload,
)
from pto_wsp.errors import CompileError, TypeCheckError
from tests.frontend.conftest import Refused

X = Tensor(data=np.zeros((8, 8), np.float32))
N = Tensor(data=np.zeros(8, np.int32))


@kernel
def touch(x: InOut[Tensor]): ...


@kernel
def put(x: InOut[Tensor], s: Scalar[DType.I32], f: Scalar[DType.F32] = 0.5, n: Constexpr[int] = 2):
    pass


def body_of(function: Any, *args: Any) -> str:
    """The traced body as text."""
    module = workload(function)(*args).traced().module
    ir.verify(module)
    assert ir.parse(ir.to_text(module)) == module
    text = ir.to_text(module, locs=False)
    lines = text[text.index("body {") :].splitlines()[1:-1]
    return "\n".join(line[2:] for line in lines)


def test_neighbouring_conditions_are_one_chain() -> None:
    def w(rows: Any):
        for i in P(rows):
            with P.when(i == 0):
                touch(X[i])
            with P.when((i < 3) | ~(i != 5)):
                touch(X[i, 0])
            with P.otherwise():
                touch(X[i, 1])
            with P.when(i > 6):
                touch(X[i, 2])
            touch(X[i, 3])
            with P.when(i > 7):
                touch(X[i, 4])

    assert body_of(w, DenseDyn(8)) == (
        "parallel i in rows: dense_dyn 0:+rows {\n"
        "  when i == 0 {\n"
        "    touch(x = X[i, 0:+X.shape[1]])\n"
        "  } otherwise {\n"
        "    when i < 3 or not i != 5 {\n"
        '      "touch.2"(x = X[i, 0])\n'
        "    } otherwise {\n"
        '      "touch.2"(x = X[i, 1])\n'
        "    }\n"
        "  }\n"
        "  when i > 6 {\n"
        '    "touch.2"(x = X[i, 2])\n'
        "  }\n"
        '  "touch.2"(x = X[i, 3])\n'
        "  when i > 7 {\n"
        '    "touch.2"(x = X[i, 4])\n'
        "  }\n"
        "}"
    )


def test_branches_without_tasks() -> None:
    def w(rows: Any):
        for i in P(rows):
            with P.when(i == 0):
                pass
            with P.otherwise():
                touch(X[i, 1])
            with P.when(i == 3):
                pass

    assert body_of(w, DenseDyn(8)) == (
        "parallel i in rows: dense_dyn 0:+rows {\n"
        "  when not i == 0 {\n"
        "    touch(x = X[i, 1])\n"
        "  }\n"
        "}"
    )


def test_reads_of_tensors() -> None:
    def w(rows: Any):
        for i in P(rows):
            with P.when(N[i] > 2):
                touch(N[i])
            with P.when(N[i + 1] == 4):
                touch(N[i])
            for _ in P(N[0]):
                touch(N[N[i]])

    assert body_of(w, DenseDyn(4)) == (
        "parallel i in rows: dense_dyn 0:+rows {\n"
        "  load N = N[i]\n"
        "  when slot(N) > 2 {\n"
        "    touch(x = N[i])\n"
        "  } otherwise {\n"
        "    load N_2 = N[i + 1]\n"
        "    when slot(N_2) == 4 {\n"
        "      touch(x = N[i])\n"
        "    }\n"
        "  }\n"
        "  load N_3 = N[0]\n"
        "  parallel i_2 in i_2: expr 0:+slot(N_3) {\n"
        "    load N_4 = N[i]\n"
        "    touch(x = N[slot(N_4)])\n"
        "  }\n"
        "}"
    )


def test_sparse_axes() -> None:
    def w(rows: Any, routing: Any):
        for b in P(rows):
            for e in P.sel(routing[b]):
                touch(X[e, routing.pos])
            for e in P.sel(routing[b + 1]):
                touch(X[b, e])

    rows = DenseDyn(2)
    assert body_of(w, rows, Sparse(rows, [0, 1, 3], [4, 5, 6])) == (
        "parallel b in rows: dense_dyn 0:+rows {\n"
        "  parallel routing_pos in routing: sparse(routing_indptr, b, routing_indices) "
        "0:+routing_indptr[b + 1] - routing_indptr[b] {\n"
        "    touch(x = X[column(routing_pos), routing_pos])\n"
        "  }\n"
        "  parallel routing_pos in routing: expr "
        "0:+routing_indptr[b + 2] - routing_indptr[b + 1] {\n"
        "    touch(x = X[b, routing_indices[routing_pos + routing_indptr[b + 1]]])\n"
        "  }\n"
        "}"
    )


def test_tiled_axes() -> None:
    def w(rows: Any, size: Any, tiles: Any, padded: Any, own: Any):
        for t in P(tiles):
            touch(X[t.slice])
        for t in P(padded):
            put(X[t.start : t.stop, 0], t.size)
        for t in P(own):
            put(X[t.start, 0], t.size)
        del rows, size

    rows, size = DenseDyn(7), DenseDyn(3)
    tiles, padded = Tiled(rows, size), Tiled(rows, 4, pad_last=True)
    assert body_of(w, rows, size, tiles, padded, Tiled(DenseDyn(5), 2)) == (
        "parallel t in tiles: tiled tile size 0:+(rows + size - 1) // size {\n"
        "  touch(x = X[t * size:+min(t * size + size, rows) - t * size, 0:+X.shape[1]])\n"
        "}\n"
        'parallel t in "padded": tiled tile 4 padded 0:+(rows + 3) // 4 {\n'
        "  put(x = X[t * 4:+4, 0], s = value 4, f = value float(4602678819172646912))\n"
        "}\n"
        "parallel t in own: tiled tile 2 0:+(own + 1) // 2 {\n"
        '  "put.2"(x = X[t * 2, 0], s = value min(t * 2 + 2, own) - t * 2, '
        "f = value float(4602678819172646912))\n"
        "}"
    )


def test_ragged_inside_ragged() -> None:
    def w(docs: Any, pages: Any, words: Any):
        for d in P(docs):
            for p in P(pages):
                for _ in P(words):
                    touch(X[d, p])

    docs = DenseDyn(2)
    pages = Ragged(docs, [1, 2])
    assert "expr 0:+words[d, p]" in body_of(w, docs, pages, Ragged(pages, np.ones((2, 3), int)))


def test_slots_and_loops_while() -> None:
    def w(rows: Any):
        slot_set_u64(0, 3)
        for i in P.loop_while(lambda: slot_u64(0) > 0, max_iterations=10):
            put[i](X[i, 0], slot_u64(0))
            slot_load_u64(0, N[:], col=i)
        for i in P(rows):
            slot_set_u64(1, i * 2)
            put(X[slot_u64(1), slot_u64(0)], i)

    assert body_of(w, DenseDyn(2)) == (
        "set slot_0 = 3\n"
        "while i in i: slot(slot_0) > 0 limit 10 {\n"
        "  put[i](x = X[i, 0], s = value slot(slot_0), f = value float(4602678819172646912))\n"
        "  load slot_0 = N[i]\n"
        "}\n"
        "parallel i in rows: dense_dyn 0:+rows {\n"
        "  set slot_1 = i * 2\n"
        "  put(x = X[slot(slot_1), slot(slot_0)], s = value i, "
        "f = value float(4602678819172646912))\n"
        "}"
    )


def test_reductions_and_searches() -> None:
    def w(rows: Any, lens: Any):
        for b in P(rows):
            before = reduce_sum(b, lambda k: lens[k])
            best = search(1, 9, lambda c: reduce_sum(rows_of(lens), lambda k: lens[k] // c) <= 4)
            with P.when(reduce_any(3, lambda k, b=b: lens[k] == b)):
                put(X[before, best], select(b > 1, b, 0))

    assert body_of(w, DenseDyn(3), [1, 2, 3]) == (
        "parallel b in rows: dense_dyn 0:+rows {\n"
        "  when reduce(any, 0, 0, 3, lens[var(0)] == b) {\n"
        "    put(x = X[reduce(sum, 0, 0, b, lens[var(0)]), "
        "search(0, 1, 9, reduce(sum, 1, 0, 3, lens[var(1)] // var(0)) <= 4)], "
        "s = value select(b > 1, b, 0), f = value float(4602678819172646912))\n"
        "  }\n"
        "}"
    )


def rows_of(lens: Any) -> int:
    del lens
    return 3


def test_workloads_call_workloads() -> None:
    @workload
    def row(cols: Any, i: Any):
        for j in P(cols):
            touch(X[i, j])

    def w(rows: Any, cols: Any):
        for i in P(rows):
            row(cols, i)
            sequential(row(cols, 0), combine(row(4, 1), row(cols, i=2)))

    text = body_of(w, DenseDyn(2), Dense[3]())
    assert text == (
        "parallel i in rows: dense_dyn 0:+rows {\n"
        "  parallel j in cols: dense 0:+3 {\n"
        "    touch(x = X[i, j])\n"
        "  }\n"
        "  sequential {\n"
        "    parallel j in cols: dense 0:+3 {\n"
        "      touch(x = X[0, j])\n"
        "    }\n"
        "  } then {\n"
        "    combine {\n"
        "      parallel j in j: dense 0:+4 {\n"
        "        touch(x = X[1, j])\n"
        "      }\n"
        "    } and {\n"
        "      parallel j in cols: dense 0:+3 {\n"
        "        touch(x = X[2, j])\n"
        "      }\n"
        "    }\n"
        "  }\n"
        "}"
    )


def test_scalars_of_a_workload() -> None:
    def w(n: Any, scale: Any, flag: Any, fixed: Any):
        put(X[n, fixed], n + 1, scale)
        with P.when(flag):
            put(X[0, 0], n, 0.25, n=7)

    module = workload(w)(Scalar(3), Scalar(1.5), Scalar(True), 2).traced().module
    assert [(s.name, s.kind, s.dtype, s.default) for s in module.symbols] == [
        ("n", ir.SymbolKind.SCALAR, DType.I64, 3),
        ("scale", ir.SymbolKind.SCALAR, DType.F64, 1.5),
        ("flag", ir.SymbolKind.SCALAR, DType.BOOL, 1),
    ]
    assert "when flag {" in ir.to_text(module, locs=False)
    assert [k.params[-1] for k in module.kernels] == [
        ir.ConstexprDecl("n", DType.I64, 2),
        ir.ConstexprDecl("n", DType.I64, 7),
    ]


@kernel
def tile(x: In[Tile[4, 4, DType.F32]], y: Out[Tile[4, 4, DType.F32]]): ...


def test_tiles() -> None:
    def w(tiles: Any):
        for t in P(tiles):
            tile(X[t.slice, :4], X[t.slice, 4:8])

    assert '"tile"(x = X[t * 4:+min(t * 4 + 4, tiles) - t * 4, 0:+4]' in body_of(
        w, Tiled(DenseDyn(8), 4)
    )
    decl = workload(w)(Tiled(DenseDyn(8), 4)).traced().module.kernels[0]
    assert decl.params[0] == ir.ParamDecl("x", ir.Mode.IN, DType.F32, 2, (4, 4))


def trace(function: Any, *args: Any) -> None:
    workload(function)(*args).traced()


def test_refused_tiles(refused: Refused) -> None:
    def large() -> None:
        def w():
            tile(X[:5, :4], X[:4, :4])  #!

        trace(w)

    refused(
        large, "kernel tile: x is Tile[4, 4, f32], the region has an extent of 5", TypeCheckError
    )

    def other_dtype() -> None:
        def w():
            tile(N[:4], X[:4, :4])  #!

        trace(w)

    refused(other_dtype, "kernel tile: x is Tile[4, 4, f32], N is i32", TypeCheckError)


def test_refused_conditions(refused: Refused) -> None:
    def alone() -> None:
        def w():
            with P.otherwise():  #!
                touch(X)

        trace(w)

    refused(alone, "P.otherwise() without a P.when before it")

    def unused() -> None:
        def w(rows: Any):
            for i in P(rows):
                P.when(i > 0)  #!

        trace(w, DenseDyn(1))

    refused(unused, "P.when(...) is not used")

    def no_condition() -> None:
        def w():
            with P.when(1):  # pyright: ignore[reportArgumentType]  #!
                touch(X)

        trace(w)

    refused(no_condition, "int where a condition is wanted")


def test_refused_values(refused: Refused) -> None:
    def unset() -> None:
        def w():
            touch(X[slot_u64(3)])  #!

        trace(w)

    refused(unset, "slot_3 has no value here")

    def sparse_extent() -> None:
        def w(rows: Any, routing: Any):
            for _ in P(rows):
                for _ in P(routing):  #!
                    touch(X)

        rows = DenseDyn(1)
        trace(w, rows, Sparse(rows, [0, 1], [2]))

    refused(sparse_extent, "P(routing) over a sparse axis")

    def fraction() -> None:
        def w(scale: Any):
            touch(X[scale])  #!

        trace(w, Scalar(0.5))

    refused(fraction, "a tensor is indexed with a floating-point number", TypeCheckError)


def test_refused_scalars(refused: Refused) -> None:
    def wrong_scalar() -> None:
        def w():
            put(X[0, 0], 0.5)  #!

        trace(w)

    refused(wrong_scalar, "kernel put: s is float", TypeCheckError)

    def wide() -> None:
        def w():
            put(X[0, 0], 2**31)  #!

        trace(w)

    refused(wide, "kernel put: s is 2147483648", TypeCheckError)

    def constant() -> None:
        def w(rows: Any):
            for i in P(rows):
                put(X[0, 0], 1, n=i)  #!

        trace(w, DenseDyn(1))

    refused(constant, "kernel put: n is an integer", TypeCheckError)


def test_reads_of_a_condition_end_with_it() -> None:
    def outside() -> None:
        def w(rows: Any):
            with P.when(N[0] == 0):
                touch(X)
            value = N[1]
            with P.when(value == 1):
                touch(X)
            touch(X[value])
            del rows

        trace(w, DenseDyn(1))

    with pytest.raises(CompileError, match="is used outside of it"):
        outside()


def test_a_chain_needs_its_own_block() -> None:
    def w(rows: Any):
        with P.when(N[0] == 0):
            touch(X)
        for _ in P(rows):
            with P.otherwise():
                touch(X)

    with pytest.raises(CompileError, match=r"without a P\.when before it"):
        trace(w, DenseDyn(1))


def test_refused_handles(refused: Refused) -> None:
    def no_handle() -> None:
        def w():
            touch(X, after=3)  #!

        trace(w)

    refused(no_handle, "after= is int", TypeCheckError)

    def indexed() -> None:
        def w(rows: Any):
            for i in P(rows):
                h = touch[i](X[i])
            touch(X[0], after=h[0, 0])  #!

        trace(w, DenseDyn(1))

    refused(indexed, "the handle of touch has 2 indices")

    def ended() -> None:
        def w(rows: Any):
            for i in P(rows):
                for j in P(rows):
                    h = touch[i, j](X[i])
            touch(X[0], after=h[0])  #!

        trace(w, DenseDyn(1))

    refused(ended, "the handle of touch has 1 indices")

    kept: list[Any] = []

    def other_workload() -> None:
        def first():
            kept.append(touch(X))

        def w():
            touch(X, after=kept[0])  #!

        trace(first)
        trace(w)

    refused(other_workload, "after= names a call of touch in another workload")


def test_scalars_are_numbers(refused: Refused) -> None:
    def text() -> None:
        Scalar("n")  # pyright: ignore[reportArgumentType]  #!

    refused(text, "Scalar('n')", TypeCheckError)

    def large() -> None:
        Scalar(2**63)  #!

    refused(large, "Scalar(9223372036854775808)", TypeCheckError)
    assert (Scalar(np.float32(0.5)).dtype, Scalar(True).dtype) == (DType.F32, DType.BOOL)
    assert repr(Scalar[DType.I8](3)) == "Scalar(3, i8)"
