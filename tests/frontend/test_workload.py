"""Workloads become the IR that one would write by hand, once, whatever their extents."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pto_wsp import (
    Dense,
    DenseDyn,
    DType,
    In,
    InOut,
    Out,
    P,
    Ragged,
    Tensor,
    Workload,
    ir,
    kernel,
    minimum,
    workload,
)
from pto_wsp.frontend import driving

X = Tensor(data=np.zeros((9, 9), np.float32))
K = Tensor(data=np.zeros((4, 512), np.float16))


@kernel
def cell(up: In[Tensor], left: In[Tensor], out: Out[Tensor]):
    out[...] = up + left + 1.0


@kernel
def touch(x: InOut[Tensor]):
    x[...] += 1


@workload
def wave(rows: Any, cols: Any):
    for i, j in P(rows, cols):
        cell[i, j](up=X[i, j + 1], left=X[i + 1, j], out=X[i + 1, j + 1])


def body_text(value: Workload) -> str:
    """The statements, after checking that the module is legal and reads back."""
    module = value.traced().module
    ir.verify(module)
    text = ir.to_text(module, locs=False)
    assert ir.parse(text) == module
    inside = text.split("body {\n")[1].split("\n}\n")[0]
    return "\n".join(line.removeprefix("  ") for line in inside.splitlines())


def test_wave_is_exactly_this_module() -> None:
    point = ir.Const(1)

    def element(i: ir.Expr, j: ir.Expr) -> ir.Region:
        dims = (ir.DimSlice(i, point, point, True), ir.DimSlice(j, point, point, True))
        return ir.Region("X", dims)

    i, j = ir.LoopVar("i"), ir.LoopVar("j")
    below = ir.Binary(ir.BinaryOp.ADD, i, ir.Const(1))
    right = ir.Binary(ir.BinaryOp.ADD, j, ir.Const(1))
    call = ir.Call("cell", (i, j), (element(i, right), element(below, j), element(below, right)))
    inner = ir.Loop(
        "j", "cols", ir.AxisKind.DENSE_DYN, ir.Order.PARALLEL, ir.Const(0), ir.SymbolRef("cols"),
        (call,),
    )  # fmt: skip
    outer = ir.Loop(
        "i", "rows", ir.AxisKind.DENSE_DYN, ir.Order.PARALLEL, ir.Const(0), ir.SymbolRef("rows"),
        (inner,),
    )  # fmt: skip
    modes = {"up": ir.Mode.IN, "left": ir.Mode.IN, "out": ir.Mode.OUT}
    params = tuple(ir.ParamDecl(name, mode, DType.F32, 0) for name, mode in modes.items())
    expected = ir.Module(
        "wave",
        (
            ir.SymbolDecl("rows", ir.SymbolKind.EXTENT, DType.I64, 8),
            ir.SymbolDecl("cols", ir.SymbolKind.EXTENT, DType.I64, 7),
        ),
        (ir.TensorDecl("X", DType.F32, 2),),
        (ir.KernelDecl("cell", params, ir.BodyForm.PYTHON, f"{__name__}.cell"),),
        (outer,),
    )
    traced = wave(DenseDyn(8), DenseDyn(7)).traced()
    assert traced.module == expected
    assert traced.callables == {"cell": cell.fn}
    assert traced.defaults == {"rows": 8, "cols": 7, "X": X}


def test_positions_are_the_users_lines() -> None:
    def line_of(text: str) -> int:
        with open(__file__, encoding="utf-8") as file:
            return next(n for n, line in enumerate(file, 1) if line.strip().startswith(text))

    value = wave(DenseDyn(1), DenseDyn(1))  # called here
    module = value.traced().module
    loop = module.body[0]
    assert isinstance(loop, ir.Loop)
    inner = loop.body[0]
    assert isinstance(inner, ir.Loop)
    call = inner.body[0]
    expected = {
        module.symbols[0].loc: "value = wave(",
        module.tensors[0].loc: "X = Tensor(",
        module.kernels[0].loc: "def cell(",
        loop.loc: "for i, j in P(rows, cols)",
        call.loc: "cell[i, j](up",
    }
    for loc, text in expected.items():
        assert loc is not None
        assert (loc.file, loc.line) == (__file__, line_of(text))


def test_traced_once_whatever_the_extents() -> None:
    runs: list[int] = []

    @workload
    def counted(rows: Any):
        runs.append(0)
        for i in P(rows):
            runs.append(1)
            touch[i](X[i])

    for extent in (0, 1, 10**12):
        runs.clear()
        value = counted(DenseDyn(extent))
        assert not runs, "nothing runs before the IR is asked for"
        first = value.traced()
        assert value.traced() is first
        assert value.task_graph().traced().module == first.module
        assert runs == [0, 1]


def test_one_trace_from_many_threads() -> None:
    runs: list[int] = []
    inside = threading.Event()

    @workload
    def slow(rows: Any):
        inside.wait()
        runs.append(1)
        for i in P(rows):
            touch[i](X[i])

    value = slow(DenseDyn(3))
    threads = [threading.Thread(target=value.traced) for _ in range(4)]
    for thread in threads:
        thread.start()
    inside.set()
    for thread in threads:
        thread.join()
    assert runs == [1]


def test_dense_axes_are_fixed() -> None:
    value = wave(Dense[8](), DenseDyn(3))
    assert [s.name for s in value.traced().module.symbols] == ["cols"]
    assert body_text(value).startswith(
        "parallel i in rows: dense 0:+8 {\n  parallel j in cols: dense_dyn 0:+cols {"
    )


def test_a_plain_int_is_a_constant() -> None:
    @workload
    def tiles(rows: Any, size: int):
        assert size == 64
        for i in P(rows):
            for part in range(2):
                touch[i, part](K[i, part * size : (part + 1) * size])

    value = tiles(DenseDyn(4), size=64)
    assert [s.name for s in value.traced().module.symbols] == ["rows"]
    assert body_text(value) == (
        "parallel i in rows: dense_dyn 0:+rows {\n"
        "  touch[i, 0](x = K[i, 0:+64])\n"
        "  touch[i, 1](x = K[i, 64:+64])\n"
        "}"
    )


def test_arrays_are_extents_and_indices() -> None:
    lens = np.array([3, 1, 2], np.int32)

    @workload
    def attention(batch: Any, lens: Any, table: Any):
        for b in P(batch):
            for t in P.seq(lens[b]):
                touch[b, t](K[table[b + 1], t * 64 : (t + 1) * 64])
            for u in P(lens[b] - 1):
                touch[b, u](K[b, u])
            for first in P(lens[0]):
                touch[b, first](K[b, first])

    traced = attention(DenseDyn(3), lens, [4, 5, 6, 7]).traced()
    assert traced.module.symbols[1:] == (
        ir.SymbolDecl("lens", ir.SymbolKind.ARRAY, DType.I32),
        ir.SymbolDecl("table", ir.SymbolKind.ARRAY, DType.I64),
    )
    assert traced.defaults["lens"] is lens
    table = traced.defaults["table"]
    assert isinstance(table, np.ndarray)
    assert (table.tolist(), table.dtype) == ([4, 5, 6, 7], np.int64)
    value = attention(DenseDyn(3), lens, [4, 5, 6, 7])
    assert body_text(value) == (
        "parallel b in batch: dense_dyn 0:+batch {\n"
        "  sequential t in lens: ragged(lens, b) 0:+lens[b] {\n"
        "    touch[b, t](x = K[table[b + 1], t * 64:+64])\n"
        "  }\n"
        "  parallel u in u: expr 0:+lens[b] - 1 {\n"
        '    "touch.2"[b, u](x = K[b, u])\n'
        "  }\n"
        "  parallel first in lens: expr 0:+lens[0] {\n"
        '    "touch.2"[b, first](x = K[b, first])\n'
        "  }\n"
        "}"
    )


def ragged_args() -> tuple[DenseDyn, Ragged]:
    batch = DenseDyn(2)
    return batch, Ragged(batch, [3, 1])


def test_ragged_axes_find_their_row() -> None:
    @workload
    def by_axis(batch: Any, toks: Any):
        for b, t in P(batch, toks):
            touch[b, t](K[b, t])

    @workload
    def by_row(batch: Any, toks: Any):
        for b in P(batch):
            for t in P(toks[b]):
                touch[b, t](K[b, t])

    expected = (
        "parallel b in batch: dense_dyn 0:+batch {\n"
        "  parallel t in toks: ragged(toks, b) 0:+toks[b] {\n"
        "    touch[b, t](x = K[b, t])\n"
        "  }\n"
        "}"
    )
    assert body_text(by_axis(*ragged_args())) == expected
    assert body_text(by_row(*ragged_args())) == expected
    symbols = by_axis(*ragged_args()).traced().module.symbols
    assert symbols[1] == ir.SymbolDecl("toks", ir.SymbolKind.ARRAY, DType.I64)


def test_ragged_takes_the_innermost_loop_over_its_outer_axis() -> None:
    @workload
    def twice(batch: Any, toks: Any):
        for a, b in P(batch, batch):
            for t in P(toks):
                touch[a, b, t](K[b, t])

    assert "ragged(toks, b) 0:+toks[b]" in body_text(twice(*ragged_args()))


def test_extents_may_be_expressions() -> None:
    @workload
    def shapes():
        for i in P(X.shape[0]):
            for j in P(i + 1):
                for k in P(Dense[3]()):
                    touch[i, j, k](X[i, j])
        for t in P(-(-K.shape[1] // 64)):
            touch[t](K[0, t * 64 : minimum(t * 64 + 64, K.shape[1])])

    assert body_text(shapes()) == (
        "parallel i in i: expr 0:+X.shape[0] {\n"
        "  parallel j in j: expr 0:+i + 1 {\n"
        "    parallel k in k: dense 0:+3 {\n"
        "      touch[i, j, k](x = X[i, j])\n"
        "    }\n"
        "  }\n"
        "}\n"
        "parallel t in t: expr 0:+0 - (0 - K.shape[1]) // 64 {\n"
        '  "touch.2"[t](x = K[0, t * 64:+min(t * 64 + 64, K.shape[1]) - t * 64])\n'
        "}"
    )


def test_constant_extents_are_dense() -> None:
    @workload
    def constants(n: int):
        for i, j, k in P(n, np.int64(2), X.shape[0] - X.shape[0] + 3):
            touch[i, j, k](X)

    text = body_text(constants(5))
    assert [line.split(": ")[1] for line in text.splitlines() if "parallel" in line] == [
        "dense 0:+5 {",
        "dense 0:+2 {",
        "dense 0:+3 {",
    ]


def test_loop_variables_have_the_users_names() -> None:
    @workload
    def names(rows: Any, cols: Any):
        for i in P(rows):
            for i in P(cols):  # a new variable under an old name
                touch[i](X[i])
        for _ in P(rows):
            touch(X)
        for pair in P(rows, cols):
            touch[pair](X[pair])
        list(P(rows, cols))
        _done = [touch[k](X[k]) for k in P(rows)]

    lines = body_text(names(DenseDyn(1), DenseDyn(1))).splitlines()
    loops = [line.split()[1] for line in lines if line.strip().startswith("parallel")]
    assert loops == ["i", "i_2", "rows", "rows", "cols", "rows", "cols", "k"]


def test_names_are_free_again_after_their_loop() -> None:
    @workload
    def siblings(rows: Any):
        for i in P(rows):
            touch[i](X[i])
        for i in P(rows):
            touch[i](X[i])

    loops = siblings(DenseDyn(1)).traced().module.body
    assert [loop.var for loop in loops if isinstance(loop, ir.Loop)] == ["i", "i"]


def test_seq_nests_several_axes() -> None:
    @workload
    def chain(rows: Any, cols: Any):
        for i, j in P.seq(rows, cols):
            touch[i, j](X[i, j])

    text = body_text(chain(DenseDyn(2), DenseDyn(2)))
    assert text.startswith("sequential i in rows: dense_dyn 0:+rows {\n  sequential j in cols:")


def test_loops_may_be_kept_and_used_again() -> None:
    @workload
    def reused(rows: Any):
        every = P(rows)
        for i in every:
            touch[i](X[i])
        for j in every:
            touch[j](X[j])

    loops = reused(DenseDyn(1)).traced().module.body
    assert [loop.var for loop in loops if isinstance(loop, ir.Loop)] == ["i", "j"]


def test_continue_and_else_are_python() -> None:
    @workload
    def plain(rows: Any, twice: bool):
        for i in P(rows):
            touch[i](X[i])
            if not twice:
                continue
            touch[i](X[i])
        else:
            touch(X)

    assert len(plain(DenseDyn(1), True).traced().module.body) == 2
    loop = plain(DenseDyn(1), False).traced().module.body[0]
    assert isinstance(loop, ir.Loop)
    assert len(loop.body) == 1


def test_arguments_may_have_defaults_and_be_keyword_only() -> None:
    @workload
    def defaults(rows: Any = DenseDyn(5), *, cols: Any):  # noqa: B008
        for i, j in P(rows, cols):
            touch[i, j](X[i, j])

    assert defaults(cols=DenseDyn(6)).traced().defaults == {"rows": 5, "cols": 6, "X": X}


def test_an_empty_workload_is_one() -> None:
    @workload
    def nothing():
        pass

    assert nothing().traced().module == ir.Module("nothing", (), (), (), ())


def test_workloads_are_immutable_and_short_to_print() -> None:
    value = wave(DenseDyn(8), DenseDyn(8))
    assert repr(value) == "<Workload wave>"
    with pytest.raises(AttributeError):
        value.name = "other"  # pyright: ignore[reportAttributeAccessIssue]


def test_compile_calls_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driving, "_load", None)  # put back at the end
    compiler = SimpleNamespace(compile_workload=lambda *args, **options: (args, options))
    driving.install_driver(lambda: compiler)
    value = wave(DenseDyn(8), DenseDyn(8))
    assert value.compile("cpu_sim", num_threads=2) == ((value, "cpu_sim"), {"num_threads": 2})
