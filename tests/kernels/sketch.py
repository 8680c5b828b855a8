"""Plans by hand, in a few lines: for tests of what runs plans, without the compiler in between."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pto_wsp.dtypes import DType
from pto_wsp.plan import (
    NONE,
    Access,
    AccessDim,
    AccessMode,
    Axis,
    AxisKind,
    BodyForm,
    Dim,
    Entry,
    ExprOp,
    Kernel,
    Op,
    Param,
    ParamKind,
    Plan,
    PlanBuilder,
    Section,
    Site,
    Storage,
    StorageClass,
    Symbol,
    SymbolKind,
    Tensor,
    abi_hash,
    name_hash,
    path_hash,
)
from pto_wsp.srcloc import SrcLoc

_WORDS = {
    AccessMode.IN: Op.IO_INPUT,
    AccessMode.OUT: Op.IO_OUTPUT,
    AccessMode.INOUT: Op.IO_INOUT,
    AccessMode.ACCUM: Op.IO_ACCUM,
}

# A dimension of a region: an index that the kernel does not see, or (start, extent[, step]); all of
# them are expression nodes.
DimNodes = int | tuple[int, ...]


@dataclass(frozen=True)
class P:
    """A kernel parameter; `value` makes it a constexpr."""

    name: str
    mode: AccessMode = AccessMode.IN
    dtype: DType = DType.F32
    rank: int = 1
    kind: ParamKind = ParamKind.TENSOR
    value: int = 0


def out(name: str, dtype: DType = DType.F32, rank: int = 1) -> P:
    return P(name, AccessMode.OUT, dtype, rank)


class Sketch:
    """A PlanBuilder with the rules of the format built in."""

    def __init__(self) -> None:
        self.b = PlanBuilder()
        self._params: list[tuple[P, ...]] = []
        self._path = [0, 0]  # entry, then the number of the next child per open block
        self._level = 0
        self._axis = NONE
        self.b.add(Entry(pc=0, process=NONE))

    # --- names ---

    def extent(self, name: str) -> int:
        """A bound extent, as an expression node."""
        symbol = Symbol(name=self.b.string(name), kind=SymbolKind.EXTENT, dtype=DType.I64)
        return self.b.expr(ExprOp.SYMBOL, a=self.b.add(symbol))

    def array(self, name: str, *, low: int = 0, loc: SrcLoc | None = None) -> int:
        """A bound i64 array that control reads."""
        record = Symbol(
            name=self.b.string(name),
            kind=SymbolKind.ARRAY,
            dtype=DType.I64,
            rank=1,
            min_value=low,
        )
        symbol = self.b.add(record)
        self.b.debug(Section.SYMBOL, symbol, loc)
        return symbol

    def tensor(self, name: str, rank: int, dtype: DType = DType.F32) -> int:
        text = self.b.string(name)
        record = Symbol(name=text, kind=SymbolKind.TENSOR, dtype=dtype, rank=rank, flags=1)
        symbol = self.b.add(record)  # flag: some task may write it
        storage = self.b.add(Storage(storage_class=StorageClass.BOUND))
        dims = [self.b.add(Dim(shape=NONE, stride=NONE)) for _ in range(rank)]
        return self.b.add(
            Tensor(
                name=text,
                symbol=symbol,
                storage=storage,
                dtype=dtype,
                dims=dims[0] if dims else 0,
                rank=rank,
            )
        )

    def kernel(
        self,
        name: str,
        params: Sequence[P],
        cpp: str | bytes | None = None,
        *,
        includes: Sequence[str] = (),
        form: BodyForm | None = BodyForm.PYTHON,
        loc: SrcLoc | None = None,
    ) -> int:
        """A kernel. With `cpp` its body is C++ (bytes: the raw content), else Python, or none."""
        records = [
            Param(
                name=self.b.string(p.name),
                kind=p.kind,
                dtype=p.dtype,
                mode=p.mode if p.kind == ParamKind.TENSOR else 0,
                rank=p.rank if p.kind == ParamKind.TENSOR else 0,
                value=p.value,
            )
            for p in params
        ]
        first = [self.b.add(record) for record in records]
        described = [
            (p.name, r.kind, r.dtype, r.mode, r.rank) for p, r in zip(params, records, strict=True)
        ]
        kernel = self.b.add(
            Kernel(
                name=self.b.string(name),
                params=first[0] if first else 0,
                num_params=len(params),
                name_hash=name_hash(name),
                abi_hash=abi_hash(described),
            )
        )
        self._params.append(tuple(params))
        if cpp is not None:
            data = cpp if isinstance(cpp, bytes) else _cpp_bytes(cpp, includes)
            self.b.body(kernel, BodyForm.CPP, data, loc)
        elif form is not None:
            self.b.body(kernel, form, f"module.{name}_function".encode())
        return kernel

    # --- expressions ---

    def const(self, value: int) -> int:
        return self.b.const(value)

    def op(self, op: ExprOp, a: int, b: int = NONE) -> int:
        return self.b.expr(op, a=a, b=b)

    def add(self, a: int, b: int) -> int:
        return self.op(ExprOp.ADD, a, b)

    def load(self, array: int, index: int) -> int:
        return self.b.expr(ExprOp.LOAD, a=array, b=index)

    # --- code ---

    @contextmanager
    def loop(
        self,
        name: str,
        extent: int,
        *,
        start: int | None = None,
        ordered: bool = False,
        lengths: int | None = None,
        parent: int = NONE,
        loc: SrcLoc | None = None,
    ) -> Generator[int, None, None]:
        """A loop; gives the node of its variable."""
        axis = self.b.add(
            Axis(
                name=self.b.string(name),
                kind=AxisKind.EXPR if lengths is None else AxisKind.RAGGED,
                level=self._level,
                start=self.const(0) if start is None else start,
                extent=extent,
                parent=parent,
                lengths=NONE if lengths is None else lengths,
                outer=self._axis,
            )
        )
        self.b.debug(Section.AXIS, axis, loc)
        variable = self.b.expr(ExprOp.LOOPVAR, arg=self._level)
        outer, self._axis = self._axis, axis
        self._level += 1
        with self.block(Op.FOR_EACH if ordered else Op.PARALLEL_FOR, axis):
            yield variable
        self._level -= 1
        self._axis = outer

    @contextmanager
    def block(self, op: Op, operand1: int | None = None) -> Generator[None, None, None]:
        """COMBINE, SEQUENTIAL or a loop: its children are what is made inside."""
        pc = self.b.emit(op)
        self._path.append(0)
        yield
        self.b.emit(Op.END)
        children = self._path.pop()
        self.b.patch(pc, children if operand1 is None else operand1, self.b.here)
        self._path[-1] += 1

    def call(
        self,
        kernel: int,
        regions: Sequence[tuple[int, Sequence[DimNodes]]],
        *,
        loc: SrcLoc | None = None,
    ) -> int:
        """A task with one (tensor, dimensions) per tensor parameter."""
        pc = self.b.emit(Op.TASK)
        params = [p for p in self._params[kernel] if p.kind == ParamKind.TENSOR]
        for p, (tensor, dims) in zip(params, regions, strict=True):
            self.b.emit(_WORDS[p.mode], 0, self._access(tensor, p.mode, dims))
        site = self.b.add(
            Site(
                kernel=kernel,
                pc=pc,
                level=self._level,
                axis=self._axis,
                path_hash=path_hash(self._path),
            )
        )
        self.b.debug(Section.SITE, site, loc)
        self.b.patch(pc, len(params), site)
        self._path[-1] += 1
        return site

    def _access(self, tensor: int, mode: AccessMode, dims: Sequence[DimNodes]) -> int:
        one = self.const(1)
        records: list[AccessDim] = []
        for dim in dims:
            dropped = isinstance(dim, int)
            start, extent, step = (*((dim, one) if isinstance(dim, int) else dim), one)[:3]
            records.append(AccessDim(start=start, extent=extent, step=step, flags=int(dropped)))
        first = [self.b.add(record) for record in records]
        return self.b.add(
            Access(tensor=tensor, mode=mode, dims=first[0] if first else 0, rank=len(dims))
        )

    def build(self) -> Plan:
        self.b.emit(Op.HALT)
        return self.b.build()


def _cpp_bytes(source: str, includes: Sequence[str]) -> bytes:
    content = {"includes": list(includes), "source": source}
    return json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


def one_kernel(
    params: Sequence[P],
    cpp: str,
    *,
    name: str = "body",
    includes: Sequence[str] = (),
    loc: SrcLoc | None = None,
) -> Plan:
    """A plan with one C++ kernel, called once with whole one-dimensional tensors: its parameters
    name them."""
    sketch = Sketch()
    tensors = {
        p.name: sketch.tensor(p.name, p.rank, p.dtype) for p in params if p.kind == ParamKind.TENSOR
    }
    kernel = sketch.kernel(name, params, cpp, includes=includes, loc=loc)
    zero = sketch.const(0)
    regions = [
        (
            tensors[p.name],
            [(zero, sketch.b.expr(ExprOp.SHAPE, a=tensors[p.name], arg=d)) for d in range(p.rank)],
        )
        for p in params
        if p.kind == ParamKind.TENSOR
    ]
    sketch.call(kernel, regions)
    return sketch.build()
