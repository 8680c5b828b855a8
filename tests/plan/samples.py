"""Hand-made plans that together use every section and nearly every opcode.

`Writer` keeps the books that the format asks for: child numbers, loop levels, block ends.
"""

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
    After,
    Alloc,
    Axis,
    AxisKind,
    BodyForm,
    Channel,
    ChannelRef,
    Const,
    Deps,
    Descriptor,
    Dim,
    Directive,
    Domain,
    Entry,
    ExprOp,
    ExprRef,
    HazardKind,
    Kernel,
    Layout,
    LayoutDim,
    LayoutKind,
    Mesh,
    Op,
    Param,
    ParamKind,
    Place,
    Plan,
    PlanBuilder,
    Process,
    ProofKind,
    ReduceOp,
    ScalarType,
    Section,
    Site,
    Slot,
    Stage,
    Storage,
    StorageClass,
    Symbol,
    SymbolKind,
    TaskKind,
    Tensor,
    Tier,
    TierSet,
    abi_hash,
    name_hash,
    path_hash,
)
from pto_wsp.srcloc import SrcLoc

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
            **fields,
        )  # fmt: skip
        axis = self.add(record)
        variable = self.loop_var(self.level)
        self.level += 1
        with self.block(op, axis, condition):
            yield variable
        self.level -= 1

    def task(
        self,
        kernel: int,
        words: Sequence[tuple[Op, int, int]],
        tiers: int = NONE,
        stage: int = NONE,
    ) -> int:
        """A TASK with its words; the site."""
        site = Site(
            kernel=kernel, tiers=tiers, pc=self.here, level=self.level, stage=stage,
            path_hash=path_hash(self.path),
        )  # fmt: skip
        index = self.add(site)
        self.item(Op.TASK, len(words), index)
        for op, operand1, operand2 in words:
            self.emit(op, operand1, operand2)
        return index

    def site_here(self, kind: TaskKind) -> int:
        """A site for the next instruction."""
        record = Site(kind=kind, pc=self.here, level=self.level, path_hash=path_hash(self.path))
        return self.add(record)


def var(level: int) -> tuple[Op, int, int]:
    return Op.PARAM_LOOPVAR, level, 0


def io(mode: AccessMode, access: int) -> tuple[Op, int, int]:
    return IO_WORD[mode], 0, access


def dense() -> Plan:
    """A wavefront: two parallel loops, one task, a schedule, bodies and positions."""
    w = Writer()
    rows = w.symbol("rows", SymbolKind.EXTENT, default_value=w.add(Const(bits=8)))
    cols = w.symbol("cols", SymbolKind.EXTENT)
    x = w.tensor("X", 2)
    cell = w.kernel("cell", [P("up"), P("left"), P("out", AccessMode.OUT)])
    extent = w.symbol_value(cols)
    with (
        w.entry(),
        w.loop(Op.PARALLEL_FOR, "rows", w.symbol_value(rows), body_tasks=extent) as i,
        w.loop(Op.PARALLEL_FOR, "cols", extent, body_tasks=w.const(1)) as j,
    ):
        one = w.const(1)
        next_i, next_j = w.binary(ExprOp.ADD, i, one), w.binary(ExprOp.ADD, j, one)
        up = w.access(x, AccessMode.IN, [i, next_j])
        left = w.access(x, AccessMode.IN, [next_i, j])
        out = w.access(x, AccessMode.OUT, [next_i, next_j])
        words = [io(AccessMode.IN, up), io(AccessMode.IN, left), io(AccessMode.OUT, out)]
        site = w.task(cell, [var(0), var(1), *words])
    w.directive(Directive.DEPS, [2], SrcLoc("wave.py", 20))
    w.directive(Directive.WINDOW, [8192, 0, 0], SrcLoc("wave.py", 21, 5, 12))
    w.body(cell, BodyForm.CPP, b'{"includes":[],"source":"out[0] = up[0] + left[0];"}')
    w.debug(Section.SITE, site, SrcLoc("wave.py", 12, 9, 40))
    w.debug(Section.AXIS, 0, SrcLoc("wave.py", 10, 5, 30))
    w.debug(Section.KERNEL, cell, SrcLoc("wave.py", 3))
    return w.build()


def tiny() -> Plan:
    """One parallel loop over a constant extent, one kernel without parameters."""
    w = Writer()
    k = w.kernel("k", [])
    with w.entry(), w.loop(Op.PARALLEL_FOR, "i", w.const(4), AxisKind.DENSE, body_tasks=w.const(1)):
        w.task(k, [var(0)])
    return w.build()


def ragged() -> Plan:
    """Sequences of different lengths: a chain per sequence, and a count that needs a REDUCE."""
    w = Writer()
    batch = w.symbol("batch", SymbolKind.EXTENT)
    lengths = w.symbol("lengths", SymbolKind.ARRAY, dtype=DType.I32, rank=1)
    kv, acc = w.tensor("KV", 3), w.tensor("acc", 2)
    step = w.kernel("step", [P("kv", rank=1), P("acc", AccessMode.INOUT, rank=1)])
    outer = w.symbol("layers", SymbolKind.EXTENT)
    per_layer = w.expr(
        ExprOp.REDUCE, arg=ReduceOp.SUM, a=w.const(0), b=w.symbol_value(batch),
        c=w.load(lengths, w.bound_var(0)),
    )  # fmt: skip
    with (
        w.entry(),
        w.loop(Op.FOR_EACH, "layers", w.symbol_value(outer), body_tasks=per_layer),
        w.loop(
            Op.PARALLEL_FOR, "batch", w.symbol_value(batch),
            body_tasks=w.load(lengths, w.loop_var(1)),
        ) as b,
        w.loop(
            Op.FOR_EACH, "tokens", w.load(lengths, b), AxisKind.RAGGED, parent=1, lengths=lengths,
            body_tasks=w.const(1),
        ) as t,
    ):  # fmt: skip
        whole = (w.const(0), w.expr(ExprOp.SHAPE, a=acc, arg=1))
        read = w.access(kv, AccessMode.IN, [b, t, whole])
        update = w.access(acc, AccessMode.INOUT, [b, whole])
        words = [var(0), var(1), (Op.PARAM_CONST, 0, w.add(Const(bits=7)))]
        words += [(Op.PARAM_EXPR, 0, w.binary(ExprOp.MUL, t, w.const(2)))]
        w.task(step, [*words, io(AccessMode.IN, read), io(AccessMode.INOUT, update)])
    key = w.schedule_expr(ExprOp.TASK_AXIS, a=w.schedule_string("batch"))
    site = w.schedule_expr(ExprOp.TASK_SITE)
    mixed = w.schedule_expr(ExprOp.ADD, a=key.node, b=site.node)
    w.directive(Directive.READY, [3, mixed])
    w.directive(Directive.SET, ["steady", None])
    w.directive(Directive.TIMING, [0.5, w.schedule_const(-1)])
    w.body(step, BodyForm.PYTHON, b"model.step")
    return w.build()


def sparse() -> Plan:
    """A routed batch: SELECT over CSR rows, COND with ELSE, LET, SEARCH, every expression type."""
    w = Writer()
    n = w.symbol("n", SymbolKind.EXTENT)
    indptr = w.symbol("indptr", SymbolKind.ARRAY, dtype=DType.I32, rank=1)
    indices = w.symbol("indices", SymbolKind.ARRAY, dtype=DType.I32, rank=1)
    grid = w.symbol("grid", SymbolKind.ARRAY, dtype=DType.U16, rank=2)
    scale = w.symbol("scale", SymbolKind.SCALAR, dtype=DType.F32)
    x = w.tensor("X", 2)
    s = P("s", None, ParamKind.SCALAR)
    expert = w.kernel("expert", [P("x", AccessMode.INOUT, rank=1), s])
    other = w.kernel("other", [P("x", AccessMode.INOUT, rank=1)], domain=Domain.HOST)
    with w.entry(), w.loop(Op.PARALLEL_FOR, "rows", w.symbol_value(n)) as r:
        row = w.load(indptr, r)
        extent = w.binary(ExprOp.SUB, w.load(indptr, w.binary(ExprOp.ADD, r, w.const(1))), row)
        column = w.load(indices, w.binary(ExprOp.ADD, row, w.loop_var(1)))
        with w.loop(
            Op.SELECT, "experts", extent, AxisKind.SPARSE, value=column, parent=0, lengths=indptr,
            indices=indices, body_tasks=w.const(1),
        ):  # fmt: skip
            chunk = w.expr(
                ExprOp.SEARCH, a=w.const(0), b=w.symbol_value(n),
                c=w.binary(
                    ExprOp.GE, w.load(grid, w.bound_var(0), column), w.const(3), ScalarType.BOOL
                ),
            )  # fmt: skip
            w.item(Op.LET, 0, chunk)
            let = w.expr(ExprOp.LETVAR, a=0)
            whole = (let, w.expr(ExprOp.SHAPE, a=x, arg=1))
            region = w.access(x, AccessMode.INOUT, [column, whole])
            even = w.binary(
                ExprOp.EQ, w.binary(ExprOp.MOD, column, w.const(2)), w.const(0), ScalarType.BOOL
            )
            with w.block(Op.COND, condition=even):
                real = w.expr(ExprOp.CAST, type=ScalarType.F64, a=column)
                value = w.expr(ExprOp.SYMBOL, type=ScalarType.F64, a=scale)
                product = w.binary(ExprOp.DIV, real, value, ScalarType.F64)
                words = [var(0), io(AccessMode.INOUT, region), (Op.SCALAR, 0, product)]
                w.task(expert, words)
            with w.block(Op.ELSE):
                w.task(other, [io(AccessMode.INOUT, region)])
    return w.build()


def tiers() -> Plan:
    """Variants of a kernel, temporaries, commutative updates, explicit dependences, tiles."""
    w = Writer()
    n = w.symbol("n", SymbolKind.EXTENT, default_value=w.add(Const(bits=16)), max_value=1 << 20)
    cores = w.symbol("cores", SymbolKind.FACT, dtype=DType.I32, min_value=1)
    x, total = w.tensor("X", 2), w.tensor("total", 1)
    tile = P("x", AccessMode.IN, ParamKind.TILE, 1, shape=(128,))
    size = P("N", None, ParamKind.CONSTEXPR, dtype=DType.I64, value=4)
    out = P("y", AccessMode.OUT, rank=1)
    small = w.kernel("small", [tile, size, out], scratch=w.const(256), cost=w.const(10))
    large = w.kernel("large", [tile, out], block_dim=4)
    add = w.kernel("add", [P("y", rank=1), P("total", AccessMode.ACCUM)])
    level_alloc = Alloc(size=w.const(512), align=64, level=1, cap=w.const(4096))
    temp = w.made("temp", StorageClass.TEMP, [128], w.add(level_alloc))
    workspace = w.add(Alloc(size=w.const(64), align=16, level=0))
    tier = w.add(
        Tier(
            predicate=w.binary(ExprOp.LT, w.loop_var(0), w.symbol_value(cores), ScalarType.BOOL),
            kernel=small,
            workspace=workspace,
        )
    )
    w.add(Tier(kernel=large))
    chosen = w.add(TierSet(name=w.string("matmul"), tiers=tier, num_tiers=2))
    stage = w.add(Stage(name=w.string("decode"), graph=w.string("model")))
    span = (w.const(0), w.const(128))
    with w.entry(), w.loop(Op.PARALLEL_FOR, "i", w.symbol_value(n), body_tasks=w.const(3)) as i:
        w.item(Op.ALLOC, 0)
        read = w.access(x, AccessMode.IN, [i, span])
        made = w.access(temp, AccessMode.OUT, [span])
        used = w.access(temp, AccessMode.IN, [span])
        with w.block(Op.SEQUENTIAL):
            words = [var(0), io(AccessMode.IN, read), io(AccessMode.OUT, made)]
            first = w.task(NONE, words, tiers=chosen, stage=stage)
            with w.block(Op.COMBINE):
                w.item(Op.NOP)
                bucket = w.access(
                    total, AccessMode.ACCUM, [w.binary(ExprOp.FLOORDIV, i, w.const(8))]
                )
                words = [var(0), io(AccessMode.IN, used), io(AccessMode.ACCUM, bucket)]
                after_all = w.add(After(site=first, shared_levels=1))
                before = w.binary(ExprOp.SUB, i, w.const(1))
                after_one = w.add(After(site=first, indices=w.exprs([before]), num_indices=1))
                words += [(Op.AFTER, 0, after_all), (Op.AFTER, 0, after_one)]
                second = w.task(add, words)
        w.item(Op.FREE, 0)
        w.item(Op.BARRIER)
    distance = w.exprs([w.const(0)])
    w.add(
        Deps(
            source=first, sink=second, proof=ProofKind.DISTANCE, hazard=HazardKind.RAW,
            distance=distance, num_distance=1,
        )
    )  # fmt: skip
    w.add(
        Deps(
            source=second, sink=second, proof=ProofKind.UNKNOWN, hazard=HazardKind.WAW,
            reason=w.string("bucket is i // 8"),
        )
    )  # fmt: skip
    w.add(Descriptor(name=w.string("row"), site=first, expr=w.loop_var(0), dtype=DType.I32))
    body = b"body"
    w.body(small, BodyForm.TILE_IR, body)
    w.body(large, BodyForm.TILE_IR, body)
    return w.build()


def channels() -> Plan:
    """Two processes and a channel, slots, LOOP_WHILE, CALL, meshes, pages, tokens, collectives."""
    w = Writer()
    n = w.symbol("n", SymbolKind.EXTENT)
    mesh_shape = w.exprs([w.const(4), w.const(2)])
    mesh = w.add(Mesh(name=w.string("devices"), shape=mesh_shape, rank=2))
    dims = w.add(LayoutDim(kind=LayoutKind.SHARD, mesh_axis=1))
    w.add(LayoutDim(kind=LayoutKind.REPLICATE))
    layout = w.add(Layout(mesh=mesh, dims=dims, rank=2))
    x = w.tensor("X", 2, layout=layout)
    flags = w.tensor("flags", 1, DType.I32)
    slot_alloc = w.add(Alloc(size=w.const(64), align=64, level=0, copies=2))
    message = w.made("message", StorageClass.CHANNEL, [16], slot_alloc)
    token = w.made("token", StorageClass.TOKEN, [4])
    storage = w.add(Storage(storage_class=StorageClass.PAGED))
    paged = w.add(
        Tensor(
            name=w.string("paged"), storage=storage, dtype=DType.F32, pool=x, table=flags,
            page=w.const(16),
        )
    )  # fmt: skip
    pipe = w.add(
        Channel(
            name=w.string("pipe"), element=message, depth=w.const(2), rate_in=w.const(1),
            rate_out=w.const(1),
        )
    )  # fmt: skip
    slot = w.add(Slot(name=w.string("left"), type=ScalarType.I64, level=1))
    make = w.kernel("make", [P("t", AccessMode.OUT, rank=1), P("order", AccessMode.INOUT)],
                    domain=Domain.HOST)  # fmt: skip
    take = w.kernel("take", [P("t", rank=1), P("x", AccessMode.OUT, rank=1), P("page")],
                    domain=Domain.ACCELERATOR)  # fmt: skip
    names = w.add(ChannelRef(channel=pipe))
    w.add(ChannelRef(channel=pipe))
    producer = w.add(
        Process(
            name=w.string("producer"), entry=1, replicas=w.const(1), produces=names, num_produces=1
        )
    )
    consumer = w.add(
        Process(
            name=w.string("consumer"), entry=2, replicas=w.const(2), consumes=names + 1,
            num_consumes=1,
        )
    )  # fmt: skip
    span = (w.const(0), w.const(16))
    with w.entry():
        w.item(Op.NOP)
    with w.entry(producer):
        with w.loop(Op.PARALLEL_FOR, "n", w.symbol_value(n)) as i:
            w.site_here(TaskKind.LOAD)
            w.item(Op.SLOT_LOAD, slot, w.access(flags, AccessMode.IN, [i]))
            left = w.expr(ExprOp.SLOT, a=slot)
            going = w.binary(ExprOp.GT, left, w.const(0), ScalarType.BOOL)
            with w.loop(Op.LOOP_WHILE, "tries", w.const(9), AxisKind.DENSE, condition=going):
                w.item(Op.CALL, 0, 3)
                w.item(Op.SLOT_SET, slot, w.binary(ExprOp.SUB, left, w.const(1)))
                with w.block(Op.COND, condition=going):
                    w.item(Op.BREAK, 1)
            made = w.access(message, AccessMode.OUT, [span])
            order = w.access(token, AccessMode.INOUT, [w.binary(ExprOp.MOD, i, w.const(4))])
            site = w.task(make, [io(AccessMode.OUT, made), io(AccessMode.INOUT, order)])
            w.item(Op.SEND, pipe, site)
        w.item(Op.CLOSE, pipe)
    with w.entry(consumer), w.block(Op.RECV, pipe):
        taken = w.access(message, AccessMode.IN, [span])
        written = w.access(x, AccessMode.OUT, [w.const(0), span])
        page = w.access(paged, AccessMode.IN, [])
        words = [io(AccessMode.IN, taken), io(AccessMode.OUT, written), io(AccessMode.IN, page)]
        place = w.task(take, words)
    w.level = 2
    with w.entry(), w.block(Op.COMBINE):
        w.item(Op.COLLECTIVE, 1, w.site_here(TaskKind.COLLECTIVE))
    coordinates = w.exprs([w.const(0), w.const(1)])
    w.add(Place(site=place, mesh=mesh, coordinates=coordinates, rank=2))
    return w.build()


ALL = {
    "tiny": tiny,
    "dense": dense,
    "ragged": ragged,
    "sparse": sparse,
    "tiers": tiers,
    "channels": channels,
}
