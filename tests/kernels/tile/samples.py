"""Kernels that several tests look at, and random ones."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from pto_wsp.dtypes import DType
from pto_wsp.errors import CompileError
from pto_wsp.kernels import pto
from pto_wsp.kernels.tile_ir import (
    OPS,
    Attribute,
    Block,
    Op,
    RefType,
    ScalarType,
    Statement,
    TileKernel,
    Value,
    infer,
)
from pto_wsp.plan import AccessMode
from pto_wsp.srcloc import SrcLoc
from tests.kernels.tile.tracing import out, scalar, tensor, tile, traced


def softmax(x: Any, y: Any) -> None:
    m = pto.row_max(x)
    e = pto.exp(x - m)
    pto.store(y, e / pto.row_sum(e))


def rmsnorm(x: Any, weight: Any, y: Any, eps: Any) -> None:
    wide = pto.cast(x, DType.F32)
    scale = pto.rsqrt(pto.row_mean(wide**2) + eps)
    pto.store(y, pto.cast(wide * scale, DType.F16) * weight)


def flash(q: Any, k: Any, v: Any, o: Any, head: Any, scale: Any, KT: int) -> None:
    rows, size = q.shape
    s = pto.carry(
        m=pto.full((rows, 1), -float("inf"), DType.F32),
        l=pto.zeros((rows, 1)),
        acc=pto.zeros((rows, size)),
    )
    for pos in pto.for_range(0, k.shape[0], KT):
        kt = pto.load(k[pos : pos + KT, head, 0:size])
        vt = pto.load(v[pos : pos + KT, head, 0:size])
        qk = pto.matmul(q, kt.T) * scale
        m = pto.maximum(s.m, pto.row_max(qk))
        p = pto.exp(qk - m)
        shrink = pto.exp(s.m - m)
        s.l = s.l * shrink + pto.row_sum(p)
        s.acc = pto.matmul_acc(s.acc * shrink, p, vt)
        s.m = m
    pto.store(o, s.acc / s.l)


def kernels() -> dict[str, TileKernel]:
    half = DType.F16
    return {
        "softmax": traced(softmax, x=tile(16, 128), y=out(16, 128)),
        "rmsnorm": traced(
            rmsnorm,
            x=tile(8, 64, dtype=half),
            weight=tile(64, dtype=half),
            y=out(8, 64, dtype=half),
            eps=scalar(),
        ),
        "flash": traced(
            flash,
            q=tile(16, 64),
            k=RefType(DType.F32, 3, AccessMode.IN, None, paged=True),
            v=tensor(3),
            o=out(16, 64),
            head=scalar(DType.I32),
            scale=scalar(),
            KT=32,
        ),
    }


# --- random kernels, all of them legal -----------------------------------------------------------

_NAMES = st.sampled_from(["", "x", "acc_1", "T", "load", "for"])
_LOCS = st.none() | st.builds(
    SrcLoc, st.sampled_from(["a.py", 'od"d\\na\tme.py', "ä.py"]), st.integers(1, 99)
)
_SIZES = st.sampled_from([1, 2, 8])
_NUMBERS = {
    DType.BOOL: st.booleans(),
    DType.F32: st.floats(width=32),
    DType.F16: st.floats(width=16),
    DType.I64: st.integers(-(2**63), 2**63 - 1),
    DType.U8: st.integers(0, 255),
}


class _Builder:
    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.count = 0

    def value(self, of_type: Any) -> Value:
        self.count += 1
        return Value(self.count - 1, of_type, self.draw(_NAMES))

    def statement(self, visible: list[Value], depth: int) -> Statement | None:
        op = self.draw(st.sampled_from(list(Op)))
        loc = self.draw(_LOCS)
        if op is Op.WHEN or op is Op.FOR:
            return self.block(op, visible, depth, loc) if depth < 3 else None
        info = OPS[op]
        wanted = self.draw(st.integers(2, 4)) if info.operands == -1 else info.operands
        operands = [self.draw(st.sampled_from(visible)) for _ in range(wanted)]
        attributes = self.attributes(op)
        try:
            types = infer(op, [o.type for o in operands], dict(attributes))
        except CompileError:
            return None
        results = tuple(self.value(each) for each in types)
        return Statement(op, results, tuple(operands), attributes, (), loc)

    def block(self, op: Op, visible: list[Value], depth: int, loc: Any) -> Statement | None:
        truth = [v for v in visible if v.type == ScalarType(DType.BOOL)]
        index = [v for v in visible if v.type == ScalarType(DType.I64)]
        carried = [v for v in visible if not isinstance(v.type, RefType)][:2]
        if not truth or not index:
            return None
        if op is Op.WHEN:
            blocks = tuple(
                Block((), self.body(visible, depth + 1), tuple(carried)) for _ in range(2)
            )
            results = tuple(self.value(v.type) for v in carried)
            return Statement(op, results, (truth[0],), (), blocks, loc)
        params = [self.value(ScalarType(DType.I64)), *(self.value(v.type) for v in carried)]
        body = self.body([*visible, *params], depth + 1)
        block = Block(tuple(params), body, tuple(params[1:]))
        results = tuple(self.value(v.type) for v in carried)
        return Statement(op, results, (index[0],) * 3 + tuple(carried), (), (block,), loc)

    def attributes(self, op: Op) -> tuple[tuple[str, Attribute], ...]:
        shape = (self.draw(_SIZES), self.draw(_SIZES))
        axis, k = self.draw(st.integers(0, 1)), self.draw(st.integers(1, 8))
        dtype = self.draw(st.sampled_from(list(_NUMBERS)))
        number = self.draw(_NUMBERS[dtype]) if op is Op.CONST else 0
        number = float("nan") if number != number else number
        found: dict[Op, dict[str, Attribute]] = {
            Op.CONST: {"dtype": dtype.text, "value": number},
            Op.LOAD: {"sizes": shape},
            Op.STORE: {"sizes": shape},
            Op.EXTENT: {"dim": axis},
            Op.GATHER: {"cols": k},
            Op.CAST: {"dtype": dtype.text, "rounding": "floor"},
            Op.TOPK: {"k": k},
            Op.SORT: {"descending": bool(axis)},
            Op.ARANGE: {"shape": shape, "axis": axis},
            Op.CONCAT: {"axis": axis},
        }
        if op in (Op.FULL, Op.RESHAPE, Op.SLICE):
            return (("shape", shape),)
        if op.value.endswith("_of"):
            return (("axis", axis),)
        return tuple(found.get(op, {}).items())

    def body(self, visible: list[Value], depth: int) -> tuple[Statement, ...]:
        visible = list(visible)
        found: list[Statement] = []
        for _ in range(self.draw(st.integers(0, 12 if depth == 0 else 4))):
            statement = self.statement(visible, depth)
            if statement is not None:
                found.append(statement)
                visible += statement.results
        return tuple(found)


@st.composite
def random_kernels(draw: Any) -> TileKernel:
    builder = _Builder(draw)
    f32, inout = DType.F32, AccessMode.INOUT
    types = [
        RefType(f32, 2, AccessMode.IN, (8, 2)),
        RefType(f32, 2, inout, None),
        RefType(DType.U8, 2, inout, None, paged=True),
        ScalarType(DType.BOOL),
        ScalarType(DType.I64),
        ScalarType(f32),
    ]
    params = [builder.value(each) for each in types]
    name = draw(st.sampled_from(["k", "soft max", "tile", ""])) or "k"
    return TileKernel(name, tuple(params), builder.body(params, 0), draw(_LOCS))
