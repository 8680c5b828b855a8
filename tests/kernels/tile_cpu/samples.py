"""Kernels that several tests need."""

from __future__ import annotations

from pto_wsp.dtypes import DType
from pto_wsp.kernels.tile_ir import Op, TileKernel, Value

from .maker import Maker

F32 = DType.F32


def softmax(rows: int, cols: int, dtype: DType = F32) -> TileKernel:
    m = Maker("softmax")
    x, y = m.param("x", dtype), m.out("y", dtype)
    t = m.load(x, (0, 0), (rows, cols), name="t")
    high = m.op(Op.MAX_OF, t, axis=1, name="high")
    e = m.op(Op.EXP, m.op(Op.SUB, t, high), name="e")
    total = m.op(Op.SUM_OF, e, axis=1, name="total")
    m.store(y, m.op(Op.DIV, e, total), (0, 0), (rows, cols))
    return m.build()


def rmsnorm(rows: int, cols: int) -> TileKernel:
    m = Maker("rmsnorm")
    x, g, y = m.param("x"), m.param("g", rank=1), m.out("y")
    t = m.load(x, (0, 0), (rows, cols), name="t")
    w = m.load(g, (0,), (cols,), name="w")
    mean = m.op(Op.MEAN_OF, m.op(Op.MUL, t, t), axis=1, name="mean")
    r = m.op(Op.RSQRT, m.op(Op.ADD, mean, m.const(1e-5, F32)), name="r")
    m.store(y, m.op(Op.MUL, m.op(Op.MUL, t, r), w), (0, 0), (rows, cols))
    return m.build()


def flash_attention(block_q: int, block_k: int, width: int, dtype: DType = F32) -> TileKernel:
    m = Maker("flash")
    q, k, v, out = m.param("q", dtype), m.param("k", dtype), m.param("v", dtype), m.out("out")
    scale = m.const(width**-0.5, F32)
    tile_q = m.load(q, (0, 0), (block_q, width), name="tile_q")
    low = m.op(Op.FULL, m.const(float("-inf"), F32), shape=(block_q, 1))
    none = m.op(Op.FULL, m.const(0.0, F32), shape=(block_q, 1))
    zeros = m.op(Op.FULL, m.const(0.0, F32), shape=(block_q, width))

    def body(j: Value, high: Value, total: Value, acc: Value) -> list[Value]:
        tile_k = m.load(k, (j, 0), (block_k, width), name="tile_k")
        tile_v = m.load(v, (j, 0), (block_k, width), name="tile_v")
        s = m.op(Op.MATMUL, tile_q, m.op(Op.TRANSPOSE, tile_k), name="s")
        scaled = m.op(Op.MUL, s, scale, name="scaled")
        higher = m.op(Op.MAX, high, m.op(Op.MAX_OF, scaled, axis=1), name="higher")
        p = m.op(Op.EXP, m.op(Op.SUB, scaled, higher), name="p")
        alpha = m.op(Op.EXP, m.op(Op.SUB, high, higher), name="alpha")
        added = m.op(Op.SUM_OF, p, axis=1)
        total = m.op(Op.ADD, m.op(Op.MUL, total, alpha), added, name="total")
        acc = m.op(Op.MUL, acc, alpha, name="acc")
        if dtype is not F32:
            p = m.op(Op.CAST, p, dtype=dtype.text)
        return [higher, total, m.op(Op.MATMUL_ACC, acc, p, tile_v, name="acc")]

    from pto_wsp.kernels.tile_ir import ScalarType

    n = m.emit(Op.EXTENT, [ScalarType(DType.I64)], [k], dim=0, name="n")[0]
    _, total, acc = m.loop(0, n, block_k, [low, none, zeros], body, ["high", "total", "acc"])
    m.store(out, m.op(Op.DIV, acc, total), (0, 0), (block_q, width))
    return m.build()
