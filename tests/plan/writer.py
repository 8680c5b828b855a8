"""A plan builder for tests that counts children, loops and block ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pto_wsp.dtypes import DType
from pto_wsp.plan import (
    NONE,
    Access,
    AccessDim,
    AccessMode,
    Axis,
    AxisKind,
    Dim,
    Entry,
    ExprOp,
    ExprRef,
    Kernel,
    Op,
    Param,
    ParamKind,
    PlanBuilder,
    ScalarType,
    Section,
    Site,
    Storage,
    StorageClass,
    Symbol,
    SymbolKind,
    TaskKind,
    Tensor,
    abi_hash,
    name_hash,
    path_hash,
)

IO_WORD = {
    AccessMode.IN: Op.IO_INPUT,
    AccessMode.OUT: Op.IO_OUTPUT,
    AccessMode.INOUT: Op.IO_INOUT,
    AccessMode.ACCUM: Op.IO_ACCUM,
}


@dataclass(frozen=True)
class P:
    """A kernel parameter."""

    name: str
    mode: AccessMode | None = AccessMode.IN
    kind: ParamKind = ParamKind.TENSOR
    rank: int = 0
    dtype: DType = DType.F32
    shape: tuple[int, ...] = ()
    value: int = 0


class Writer(PlanBuilder):
    """A builder that counts children, loops and block ends."""

    def __init__(self) -> None:
        super().__init__()
        self.path: list[int] = []
        self.level = 0
        self.axis = NONE  # the innermost loop that has an axis

    # --- tables ---

    def symbol(self, name: str, kind: SymbolKind, **fields: int) -> int:
        dtype = DType(fields.pop("dtype", DType.I64))
        record = Symbol(name=self.string(name), kind=kind, dtype=dtype, **fields)
        return self.add(record)

    def symbol_value(self, symbol: int) -> int:
        return self.expr(ExprOp.SYMBOL, a=symbol)

    def tensor(self, name: str, rank: int, dtype: DType = DType.F32, layout: int = NONE) -> int:
        symbol = self.symbol(name, SymbolKind.TENSOR, dtype=dtype, rank=rank, flags=1)
        storage = self.add(Storage(storage_class=StorageClass.BOUND))
        dims = self.count(Section.DIM)
        for _ in range(rank):
            self.add(Dim())
        text = self.string(name)
        record = Tensor(
            name=text, symbol=symbol, storage=storage, dtype=dtype, dims=dims, rank=rank,
            layout=layout,
        )  # fmt: skip
        return self.add(record)

    def made(self, name: str, cls: StorageClass, shape: Sequence[int], alloc: int = NONE) -> int:
        """A tensor that the user does not bind."""
        storage = self.add(Storage(storage_class=cls, alloc=alloc))
        dims = self.count(Section.DIM)
        for extent in shape:
            self.add(Dim(shape=self.const(extent)))
        text = self.string(name)
        return self.add(
            Tensor(name=text, storage=storage, dtype=DType.F32, dims=dims, rank=len(shape))
        )

    def kernel(self, name: str, params: Sequence[P], **fields: Any) -> int:
        first = self.count(Section.PARAM)
        signature: list[tuple[str, int, int, int, int]] = []
        for p in params:
            shape = self.exprs([self.const(n) for n in p.shape])
            record = Param(
                name=self.string(p.name), kind=p.kind, dtype=p.dtype, mode=p.mode or 0,
                rank=p.rank, shape=shape, shape_rank=len(p.shape), value=p.value,
            )  # fmt: skip
            self.add(record)
            signature.append((p.name, p.kind, p.dtype, p.mode or 0, p.rank))
        kernel = Kernel(
            name=self.string(name), params=first, num_params=len(params),
            name_hash=name_hash(name), abi_hash=abi_hash(signature), **fields,
        )  # fmt: skip
        return self.add(kernel)

    def exprs(self, nodes: Sequence[int]) -> int:
        """The first of a run in EXPR_LIST."""
        first = self.count(Section.EXPR_LIST)
        for node in nodes:
            self.add(ExprRef(expr=node))
        return first

    def access(self, tensor: int, mode: AccessMode, dims: Sequence[int | tuple[int, int]]) -> int:
        """A region: a node is an index that the kernel does not see, (start, extent) is a slice."""
        first = self.count(Section.ACCESS_DIM)
        one = self.const(1)
        for dim in dims:
            start, extent, flags = (dim, one, 1) if isinstance(dim, int) else (*dim, 0)
            self.add(AccessDim(start=start, extent=extent, step=one, flags=flags))
        return self.add(Access(tensor=tensor, mode=mode, dims=first, rank=len(dims)))

    # --- expressions ---

    def loop_var(self, level: int) -> int:
        return self.expr(ExprOp.LOOPVAR, arg=level)

    def bound_var(self, level: int) -> int:
        return self.expr(ExprOp.BOUNDVAR, arg=level)

    def binary(self, op: ExprOp, a: int, b: int, type: ScalarType = ScalarType.I64) -> int:
        return self.expr(op, type=type, a=a, b=b)

    def load(self, symbol: int, index: int, second: int = NONE) -> int:
        return self.expr(ExprOp.LOAD, a=symbol, b=index, c=second)

    # --- code ---

    @contextmanager
    def entry(self, process: int = NONE) -> Iterator[None]:
        index = self.add(Entry(pc=self.here, process=process))
        self.path = [index, 0]
        yield
        self.emit(Op.HALT)

    def item(self, op: Op, operand1: int = 0, operand2: int = 0) -> int:
        pc = self.emit(op, operand1, operand2)
        self.path[-1] += 1
        return pc

    @contextmanager
    def block(self, op: Op, operand1: int = 0, condition: int | None = None) -> Iterator[int]:
        pc = self.emit(op, operand1)
        if condition is not None:
            self.emit(Op.EXT, 0, condition)
        self.path.append(0)
        yield pc
        children = self.path.pop()
        self.emit(Op.END)
        counted = op in (Op.COMBINE, Op.SEQUENTIAL)
        self.patch(pc, operand1=children if counted else None, operand2=self.here)
        self.path[-1] += 1

    @contextmanager
    def loop(
        self,
        op: Op,
        name: str,
        extent: int,
        kind: AxisKind = AxisKind.DENSE_DYN,
        condition: int | None = None,
        **fields: int,
    ) -> Iterator[int]:
        """A loop; yields its variable."""
        start = fields.pop("start", self.const(0))
        record = Axis(
            name=self.string(name), kind=kind, level=self.level, start=start, extent=extent,
            outer=self.axis, **fields,
        )  # fmt: skip
        axis = self.add(record)
        variable = self.loop_var(self.level)
        outer, self.axis = self.axis, axis
        self.level += 1
        with self.block(op, axis, condition):
            yield variable
        self.level -= 1
        self.axis = outer

    @contextmanager
    def recv(self, channel: int) -> Iterator[int]:
        """A loop over messages; yields the message number."""
        variable = self.loop_var(self.level)
        self.level += 1
        with self.block(Op.RECV, channel):
            yield variable
        self.level -= 1

    def task(
        self,
        kernel: int,
        words: Sequence[tuple[Op, int, int]],
        tiers: int = NONE,
        stage: int = NONE,
        op: Op = Op.TASK,
    ) -> int:
        """A TASK or COLLECTIVE with its words; the site."""
        kind = TaskKind.COLLECTIVE if op is Op.COLLECTIVE else TaskKind.KERNEL
        index = self.site_here(kind, kernel=kernel, tiers=tiers, stage=stage)
        self.item(op, len(words), index)
        for word in words:
            self.emit(*word)
        return index

    def slot_load(self, slot: int, access: int) -> int:
        """A SLOT_LOAD with its word; the site."""
        index = self.site_here(TaskKind.LOAD)
        self.item(Op.SLOT_LOAD, slot, index)
        self.emit(Op.IO_INPUT, 0, access)
        return index

    def site_here(self, kind: TaskKind, **fields: int) -> int:
        """A site for the next instruction."""
        record = Site(
            kind=kind, pc=self.here, level=self.level, axis=self.axis,
            path_hash=path_hash(self.path), **fields,
        )  # fmt: skip
        return self.add(record)


def var(level: int) -> tuple[Op, int, int]:
    return Op.PARAM_LOOPVAR, level, 0


def io(mode: AccessMode, access: int) -> tuple[Op, int, int]:
    return IO_WORD[mode], 0, access
