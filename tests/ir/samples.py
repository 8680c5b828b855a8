"""One module of each kind, for golden files and as a base for mutations."""

from __future__ import annotations

from dataclasses import replace

from pto_wsp import ir
from pto_wsp.dtypes import DType
from pto_wsp.ir import (
    ArrayLoad,
    AxisKind,
    Binary,
    BinaryOp,
    Const,
    DimSlice,
    Expr,
    LoopVar,
    Mode,
    Order,
    ParamDecl,
    Region,
    ShapeOf,
    SymbolDecl,
    SymbolKind,
    SymbolRef,
)
from pto_wsp.srcloc import SrcLoc

FILE = "model.py"


def loc(line: int, col: int = 0, end_col: int = 0) -> SrcLoc:
    return SrcLoc(FILE, line, col, end_col)


def add(lhs: Expr, rhs: Expr | int) -> Binary:
    return Binary(BinaryOp.ADD, lhs, Const(rhs) if isinstance(rhs, int) else rhs)


def mul(lhs: Expr, rhs: Expr | int) -> Binary:
    return Binary(BinaryOp.MUL, lhs, Const(rhs) if isinstance(rhs, int) else rhs)


def at(start: Expr | int) -> DimSlice:
    """A dimension the kernel does not see."""
    return DimSlice(_expr(start), Const(1), Const(1), dropped=True)


def part(start: Expr | int, extent: Expr | int, step: Expr | int = 1) -> DimSlice:
    return DimSlice(_expr(start), _expr(extent), _expr(step))


def _expr(value: Expr | int) -> Expr:
    return Const(value) if isinstance(value, int) else value


def extent(name: str, default: int | None = None, line: int = 0) -> SymbolDecl:
    return SymbolDecl(name, SymbolKind.EXTENT, DType.I64, default, loc(line) if line else None)


def array(name: str, dtype: DType = DType.I32) -> SymbolDecl:
    return SymbolDecl(name, SymbolKind.ARRAY, dtype)


def dyn(
    var: str, axis: str, *body: ir.Stmt, order: Order = Order.PARALLEL, line: int = 0
) -> ir.Loop:
    """A loop over an extent symbol of the axis' name."""
    where = loc(line, 5, 9) if line else None
    extent = SymbolRef(axis)
    return ir.Loop(var, axis, AxisKind.DENSE_DYN, order, Const(0), extent, body, loc=where)


def dense(var: str, count: int, *body: ir.Stmt, order: Order = Order.PARALLEL) -> ir.Loop:
    return ir.Loop(var, var, AxisKind.DENSE, order, Const(0), Const(count), body)


def ragged(var: str, lengths: str, parent: str, *body: ir.Stmt) -> ir.Loop:
    length = ArrayLoad(lengths, LoopVar(parent))
    kind, order = AxisKind.RAGGED, Order.PARALLEL
    return ir.Loop(var, var, kind, order, Const(0), length, body, lengths, parent)


def python_kernel(name: str, *params: ParamDecl, line: int = 0) -> ir.KernelDecl:
    where = loc(line, 1, 20) if line else None
    return ir.KernelDecl(name, params, ir.BodyForm.PYTHON, f"model.{name}", (), where)


IX, JX, KX = LoopVar("i"), LoopVar("j"), LoopVar("k")
IN, OUT, INOUT = Mode.IN, Mode.OUT, Mode.INOUT
F32 = DType.F32


def wave() -> ir.Module:
    """Dense, two loops, shifted elements; with source positions and a schedule."""
    cell = python_kernel(
        "cell",
        ParamDecl("up", IN, F32, 0),
        ParamDecl("left", IN, F32, 0),
        ParamDecl("out", OUT, F32, 0),
        line=3,
    )
    call = ir.Call(
        "cell",
        (IX, JX),
        (
            Region("X", (at(IX), at(add(JX, 1)))),
            Region("X", (at(add(IX, 1)), at(JX))),
            Region("X", (at(add(IX, 1)), at(add(JX, 1)))),
        ),
        loc(9, 9, 72),
    )
    return ir.Module(
        "wave",
        (extent("rows", 8, line=7), extent("cols", 8, line=7)),
        (ir.TensorDecl("X", F32, 2, loc(1)),),
        (cell,),
        (dyn("i", "rows", dyn("j", "cols", call, line=8), line=8),),
        (
            ir.Directive("DEPS", (2,), loc(12, 5, 40)),
            ir.Directive("WINDOW", (8192, 0, 0), loc(13)),
        ),
    )


def ragged_attention() -> ir.Module:
    """A ragged loop inside a loop over sequences, and a ragged loop below that."""
    kernel = python_kernel(
        "attend",
        ParamDecl("q", IN, F32, 1),
        ParamDecl("kv", IN, F32, 2),
        ParamDecl("out", INOUT, F32, 1),
    )
    call = ir.Call(
        "attend",
        (IX, JX, KX),
        (
            Region("Q", (at(IX), part(0, ShapeOf("Q", 1)))),
            Region("KV", (at(IX), part(mul(JX, 64), 64), part(0, ShapeOf("KV", 2)))),
            Region("O", (at(IX), part(0, ShapeOf("O", 1)))),
        ),
    )
    blocks = ragged("k", "blocks", "j", call)
    return ir.Module(
        "ragged_attention",
        (extent("batch"), array("lens"), array("blocks", DType.I64)),
        tuple(ir.TensorDecl(n, F32, r) for n, r in (("Q", 2), ("KV", 3), ("O", 2))),
        (kernel,),
        (dyn("i", "batch", ragged("j", "lens", "i", blocks)),),
    )


def chain() -> ir.Module:
    """P.seq inside P."""
    step = python_kernel("step", ParamDecl("a", IN, F32, 0), ParamDecl("b", OUT, F32, 0))
    args = (Region("X", (at(IX), at(JX))), Region("X", (at(IX), at(add(JX, 1)))))
    inner = dense("j", 16, ir.Call("step", (IX, JX), args), order=Order.SEQUENTIAL)
    tensors = (ir.TensorDecl("X", F32, 2),)
    return ir.Module("chain", (extent("n", 4),), tensors, (step,), (dyn("i", "n", inner),))


def blocks() -> ir.Module:
    """sequential and combine, with parts of one and of several statements."""
    fill = python_kernel("fill", ParamDecl("out", OUT, F32, 0))

    def call(*indices: Expr) -> ir.Call:
        return ir.Call("fill", indices, (Region("X", (at(indices[0] if indices else 0),)),))

    body = (
        ir.Sequential(
            (
                (call(),),
                (call(Const(1)), dense("i", 3, call(IX))),
                (ir.Combine(((call(Const(2)),), (call(Const(3)), call(Const(4)))), loc(6)),),
            ),
            loc(5, 5, 30),
        ),
        call(Const(5)),
    )
    return ir.Module("blocks", (), (ir.TensorDecl("X", F32, 1),), (fill,), body)


def cpp() -> ir.Module:
    """C++ kernels: a short one, and one with includes and several lines, for cube cores."""
    params = (ParamDecl("a", IN, F32, 1), ParamDecl("out", OUT, F32, 1))
    source = '\nfloat s = 0;  // "sum"\nfor (int i = 0; i < 4; ++i) s += a[i];\nout[0] = s;\n'
    kernels = (
        ir.KernelDecl("step", params, ir.BodyForm.CPP, "out[0] = a[0] + 1.0f;", (), loc(2)),
        ir.KernelDecl(
            *("total", params, ir.BodyForm.CPP, source, ("<cmath>", '"my.h"'), loc(5)),
            exec_unit=ir.ExecUnit.CUBE,
        ),
    )
    args = (Region("X", (part(IX, 4),)), Region("Y", (part(IX, 1),)))
    calls = tuple(ir.Call(k.name, (IX,), args) for k in kernels)
    tensors = (ir.TensorDecl("X", F32, 1), ir.TensorDecl("Y", F32, 1))
    return ir.Module("cpp", (extent("n", 4),), tensors, kernels, (dyn("i", "n", *calls),))


def strided() -> ir.Module:
    """Slices with constant and dynamic extents and steps, and whole dimensions."""
    params = (ParamDecl("src", IN, DType.BF16, 3), ParamDecl("dst", INOUT, DType.BF16, 2))
    kernel = python_kernel("gather", *params)
    row = Binary(BinaryOp.MIN, IX, Binary(BinaryOp.SUB, ShapeOf("X", 0), Const(1)))
    args = (
        Region("X", (part(mul(IX, 2), 4, 2), part(0, ShapeOf("X", 1)), part(1, SymbolRef("n"), 3))),
        Region("Y", (at(row), part(IX, SymbolRef("n"), add(IX, 1)), part(0, 2))),
    )
    tensors = (ir.TensorDecl("X", DType.BF16, 3), ir.TensorDecl("Y", DType.BF16, 3))
    call = ir.Call("gather", (IX,), args)
    return ir.Module("strided", (extent("n"),), tensors, (kernel,), (dyn("i", "n", call),))


def array_extents() -> ir.Module:
    """Extents and starts that are expressions of arrays, symbols and outer variables."""
    kernel = python_kernel("visit", ParamDecl("x", INOUT, F32, 0))
    first, last = ArrayLoad("offsets", IX), ArrayLoad("offsets", add(IX, 1))
    row = Binary(BinaryOp.SUB, last, first)
    triangle = Binary(BinaryOp.MAX, Binary(BinaryOp.SUB, JX, IX), Const(0))
    half = Binary(BinaryOp.FLOORDIV, add(mul(add(IX, JX), 3), 1), Const(2))
    call = ir.Call(
        "visit",
        (IX, Binary(BinaryOp.MOD, half, Const(7))),
        (Region("X", (at(ArrayLoad("index", add(JX, KX))),)),),
    )
    inner = ir.Loop("k", "tri", AxisKind.EXPR, Order.PARALLEL, Const(0), triangle, (call,))
    outer = ir.Loop("j", "row", AxisKind.EXPR, Order.SEQUENTIAL, first, row, (inner,))
    return ir.Module(
        "array_extents",
        (extent("n"), array("offsets", DType.I64), array("index", DType.U32)),
        (ir.TensorDecl("X", F32, 1),),
        (kernel,),
        (dyn("i", "n", outer),),
    )


def llama_attention(default: int = 512) -> ir.Module:
    """LLaMA-7B attention at 16K tokens: 4 x 32 x 512 x 512 tiles."""
    q, k, o = (LoopVar(v) for v in ("q", "k", "h"))
    params = (
        ParamDecl("q", IN, DType.F16, 2),
        ParamDecl("k", IN, DType.F16, 2),
        ParamDecl("v", IN, DType.F16, 2),
        ParamDecl("o", INOUT, DType.F16, 2),
    )

    def rows(tensor: str, tile: Expr) -> Region:
        dims = (at(LoopVar("b")), at(o), part(mul(tile, 32), 32), part(0, 128))
        return Region(tensor, dims)

    args = (rows("Q", q), rows("K", k), rows("V", k), rows("O", q))
    call = ir.Call("attention_tile", (LoopVar("b"), o, q, k), args, loc(20, 13, 80))
    inner = dyn(
        "q", "q_tiles", dyn("k", "kv_tiles", call, order=Order.SEQUENTIAL, line=19), line=18
    )
    return ir.Module(
        "llama_attention",
        (extent("q_tiles", default, line=15), extent("kv_tiles", default, line=15)),
        tuple(ir.TensorDecl(n, DType.F16, 4, loc(3)) for n in "QKVO"),
        (python_kernel("attention_tile", *params, line=8),),
        (dense("b", 4, dense("h", 32, inner)),),
        (ir.Directive("DEPS", (2,)), ir.Directive("WINDOW", (8192, 0, 0))),
    )


def kinds() -> ir.Module:
    """A temporary in a loop, a token, and a paged tensor read whole and written token by token."""
    b = LoopVar("b")
    length = ArrayLoad("lens", b)
    kind, view = ir.TensorKind, ir.ViewKind
    tensors = (
        ir.TensorDecl("pool", DType.F32, 3, loc(2)),
        ir.TensorDecl("table", DType.I32, 2),
        ir.TensorDecl("K", DType.F32, 3, kind=kind.PAGED, pages=ir.Pages("pool", "table", 16)),
        ir.TensorDecl("turn", DType.BOOL, 1, kind=kind.TOKEN, shape=(SymbolRef("n"),)),
        ir.TensorDecl("scores", DType.F32, 1, loc(9), kind=kind.TEMP),
        ir.TensorDecl("out", DType.F32, 1),
    )
    append = ir.KernelDecl(
        "append", (ParamDecl("k", Mode.OUT, DType.F32, 1),), ir.BodyForm.PYTHON, "mod.append"
    )
    score = ir.KernelDecl(
        "score",
        (
            ParamDecl("k", Mode.IN, DType.F32, 2, None, view.PAGED),
            ParamDecl("s", Mode.OUT, DType.F32, 1),
        ),
        ir.BodyForm.CPP,
        "for (int64_t i = 0; i < k.shape(0); ++i) s(i) = k(i, 0);",
    )
    reduce = ir.KernelDecl(
        "reduce",
        (
            ParamDecl("s", Mode.IN, DType.F32, 1),
            ParamDecl("turn", Mode.INOUT, DType.BOOL, 0, None, view.TOKEN),
            ParamDecl("y", Mode.ACCUM, DType.F32, 0),
        ),
        ir.BodyForm.PYTHON,
        "mod.reduce",
    )
    scores = Region("scores", (part(0, length),))
    token = Region("K", (at(b), at(Binary(BinaryOp.SUB, length, Const(1))), part(0, 8)))
    body = dyn(
        "b",
        "n",
        ir.Call("append", (b,), (token,), loc(8)),
        ir.Alloc("scores", (length,), loc(9)),
        ir.Call("score", (b,), (Region("K", (at(b), part(0, length), part(0, 8))), scores)),
        ir.Call("reduce", (b,), (scores, Region("turn", (at(0),)), Region("out", (at(0),)))),
    )
    symbols = (extent("n", 4), array("lens"))
    return ir.Module("kinds", symbols, tensors, (append, score, reduce), (body,))


def layouts() -> ir.Module:
    """Locations, layouts of each kind, and a tensor that counts as laid out in another way."""
    rows, columns = ir.MemLayout.row_major(), ir.MemLayout.col_major()
    shard, whole = ir.TensorShard, ir.TensorReplicate()
    split, kind = ir.TensorLayout((shard(0), whole), rows), ir.TensorKind.TEMP
    tensors = (
        ir.TensorDecl("A", F32, 2, loc(1), layout=split),
        ir.TensorDecl(
            "B", F32, 2, location=ir.Location.L2, layout=ir.TensorLayout((whole, shard(2)))
        ),
        ir.TensorDecl("C", F32, 2, layout=ir.TensorLayout((whole, whole), columns)),
        ir.TensorDecl("D", F32, 1, layout=ir.TensorLayout((whole,), ir.MemLayout.strided(-2))),
        ir.TensorDecl(
            "T", F32, 2, kind=kind, location=ir.Location.UB, layout=replace(split, mem=None)
        ),
    )
    load = python_kernel(
        "load",
        ParamDecl("a", IN, F32, 2),
        ParamDecl("b", IN, F32, 2),
        ParamDecl("t", OUT, F32, 2, (4, 16), location=ir.Location.UB),
    )
    store = python_kernel("store", ParamDecl("c", OUT, F32, 1))
    four = (part(mul(IX, 4), 4), part(0, 16))
    body = dyn(
        "i",
        "n",
        ir.Alloc("T", (Const(4), Const(16))),
        ir.Call(
            "load",
            (IX,),
            (Region("A", four), Region("B", four, split), Region("T", (part(0, 4), part(0, 16)))),
        ),
        *(
            ir.Call("store", (IX,), (Region(tensor, dims),))
            for tensor, dims in (("C", (at(IX), part(0, 4))), ("D", (part(IX, 1),)))
        ),
    )
    return ir.Module("layouts", (extent("n", 4),), tensors, (load, store), (body,))


SAMPLES = {
    sample.__name__: sample
    for sample in (
        wave,
        ragged_attention,
        chain,
        blocks,
        cpp,
        strided,
        array_extents,
        llama_attention,
        kinds,
        layouts,
    )
}
