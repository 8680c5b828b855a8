"""Tile kernels by hand, in a few lines: for tests of the emitter, without the tracer in front."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pto_wsp.dtypes import DType
from pto_wsp.kernels.tile_ir import (
    OPS,
    Attribute,
    Block,
    Group,
    Op,
    RefType,
    ScalarType,
    Statement,
    TileKernel,
    TileType,
    Type,
    Value,
)
from pto_wsp.plan import AccessMode
from pto_wsp.srcloc import SrcLoc

PRODUCT = {DType.F16: DType.F32, DType.BF16: DType.F32, DType.I8: DType.I32, DType.U8: DType.I32}


class Maker:
    """Builds one kernel; results get the types that the operations give them."""

    def __init__(self, name: str = "k") -> None:
        self._name = name
        self._next = 0
        self._params: list[Value] = []
        self._bodies: list[list[Statement]] = [[]]
        self._line = 0

    def value(self, kind: Type, name: str = "") -> Value:
        self._next += 1
        return Value(self._next, kind, name)

    def param(
        self,
        name: str,
        dtype: DType = DType.F32,
        rank: int = 2,
        mode: AccessMode = AccessMode.IN,
        paged: bool = False,
    ) -> Value:
        self._params.append(self.value(RefType(dtype, rank, mode, None, paged), name))
        return self._params[-1]

    def out(self, name: str, dtype: DType = DType.F32, rank: int = 2) -> Value:
        return self.param(name, dtype, rank, AccessMode.OUT)

    def scalar(self, name: str, dtype: DType = DType.F32) -> Value:
        self._params.append(self.value(ScalarType(dtype), name))
        return self._params[-1]

    def emit(
        self,
        op: Op,
        types: Sequence[Type],
        operands: Sequence[Value],
        blocks: Sequence[Block] = (),
        name: str = "",
        **attributes: Attribute,
    ) -> tuple[Value, ...]:
        self._line += 1
        results = tuple(self.value(kind, name) for kind in types)
        loc = SrcLoc(f"{self._name}.py", self._line)
        self._bodies[-1].append(
            Statement(op, results, tuple(operands), tuple(attributes.items()), tuple(blocks), loc)
        )
        return results

    def const(self, value: float, dtype: DType = DType.I64) -> Value:
        return self.emit(Op.CONST, [ScalarType(dtype)], [], value=value, dtype=dtype.text)[0]

    def load(
        self, ref: Value, offsets: Sequence[Value | int], sizes: tuple[int, ...], name: str = ""
    ) -> Value:
        kept = [size for size in sizes if size]
        dtype = ref.type.dtype
        kind: Type = ScalarType(dtype)
        if kept:
            rows, cols = (1, *kept)[-2:]
            kind = TileType(dtype, rows, cols, (rows != 1, cols != 1))
        return self.emit(Op.LOAD, [kind], [ref, *self._ints(offsets)], name=name, sizes=sizes)[0]

    def store(
        self, ref: Value, value: Value, offsets: Sequence[Value | int], sizes: tuple[int, ...]
    ) -> None:
        self.emit(Op.STORE, [], [ref, value, *self._ints(offsets)], sizes=sizes)

    def _ints(self, values: Sequence[Value | int]) -> list[Value]:
        return [self.const(v) if isinstance(v, int) else v for v in values]

    def op(self, op: Op, *operands: Value, name: str = "", **attributes: Any) -> Value:
        """Elementwise operations, reductions and products."""
        tiles = [v.type for v in operands if isinstance(v.type, TileType)]
        group, dtype = OPS[op].group, operands[-1].type.dtype
        if group is Group.COMPARE:
            dtype = DType.BOOL
        if group is Group.CAST:
            attributes.setdefault("rounding", "zero")
            dtype = DType.parse(attributes["dtype"])
        if group is Group.REDUCE:
            dtype = DType.I32 if op is Op.ARGMAX_OF else dtype
            t = tiles[0]
            along = attributes["axis"] == 1
            kind = TileType(
                dtype,
                t.rows if along else 1,
                1 if along else t.cols,
                (along and t.partial[0], not along and t.partial[1]),
            )
        elif group is Group.MATMUL:
            a, b = tiles[-2:]
            partial = (a.partial[0], b.partial[1])
            kind = TileType(PRODUCT.get(dtype, dtype), a.rows, b.cols, partial)
        elif group is Group.MAKE:
            kind = TileType(dtype, *attributes["shape"])
        elif op is Op.TRANSPOSE:
            t = tiles[0]
            kind = TileType(dtype, t.cols, t.rows, (t.partial[1], t.partial[0]))
        elif op is Op.PAD:
            kind = TileType(dtype, *tiles[0].shape)
        elif not tiles:
            kind = ScalarType(dtype)
        else:
            rows, cols = (max(t.shape[d] for t in tiles) for d in (0, 1))
            partial = tuple(any(t.partial[d] for t in tiles) for d in (0, 1))
            kind = TileType(dtype, rows, cols, (partial[0], partial[1]))
        return self.emit(op, [kind], operands, name=name, **attributes)[0]

    def loop(
        self,
        start: Value | int,
        stop: Value | int,
        step: Value | int,
        given: Sequence[Value],
        body: Callable[..., Sequence[Value]],
        names: Sequence[str] = (),
    ) -> tuple[Value, ...]:
        bounds = self._ints([start, stop, step])
        index = self.value(ScalarType(DType.I64), "j")
        labels = [*names, *[""] * (len(given) - len(names))]
        params = [self.value(g.type, n) for g, n in zip(given, labels, strict=True)]
        self._bodies.append([])
        made = tuple(body(index, *params))
        block = Block((index, *params), tuple(self._bodies.pop()), made)
        return self.emit(Op.FOR, [m.type for m in made], [*bounds, *given], [block])

    def when(
        self,
        condition: Value,
        first: Callable[[], Sequence[Value]],
        second: Callable[[], Sequence[Value]],
    ) -> tuple[Value, ...]:
        blocks: list[Block] = []
        for make in (first, second):
            self._bodies.append([])
            made = tuple(make())
            blocks.append(Block((), tuple(self._bodies.pop()), made))
        types = [value.type for value in blocks[0].yields]
        return self.emit(Op.WHEN, types, [condition], blocks)

    def build(self) -> TileKernel:
        return TileKernel(self._name, tuple(self._params), tuple(self._bodies[0]))
