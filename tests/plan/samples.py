"""Hand-made plans that together use every section and nearly every opcode."""

from __future__ import annotations

from pto_wsp.dtypes import DType
from pto_wsp.plan import (
    NONE,
    AccessMode,
    After,
    Alloc,
    AxisKind,
    BodyForm,
    Channel,
    ChannelRef,
    Const,
    Deps,
    DepsDistance,
    Descriptor,
    Dim,
    Directive,
    Domain,
    ExprOp,
    HazardKind,
    Layout,
    LayoutDim,
    LayoutKind,
    Mesh,
    Op,
    ParamKind,
    Place,
    Plan,
    Process,
    ProofKind,
    ReduceOp,
    ScalarType,
    Section,
    Slot,
    Stage,
    Storage,
    StorageClass,
    SymbolKind,
    Tensor,
    Tier,
    TierSet,
)
from pto_wsp.srcloc import SrcLoc
from tests.plan.writer import P, Writer, io, var


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
    scale = w.symbol("scale", SymbolKind.SCALAR, dtype=DType.F32, max_value=0)
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
    same, earlier = w.add(DepsDistance()), w.add(DepsDistance(expr=w.loop_var(0)))
    any_ = w.add(DepsDistance(open=1))
    w.add(
        Deps(
            source=first, sink=second, proof=ProofKind.DISTANCE, hazard=HazardKind.RAW,
            distance=same, num_distance=1,
        )
    )  # fmt: skip
    w.add(
        Deps(
            source=first, sink=first, proof=ProofKind.SYMBOLIC, hazard=HazardKind.WAW,
            distance=earlier, num_distance=1,
        )
    )  # fmt: skip
    w.add(
        Deps(
            source=second, sink=second, proof=ProofKind.UNKNOWN, hazard=HazardKind.WAW,
            distance=any_, num_distance=1,
            reason=w.deps_string("bucket is i // 8"),
        )
    )  # fmt: skip
    w.add(Descriptor(name=w.string("row"), site=first, expr=w.loop_var(0), dtype=DType.I32))
    body = b"body"
    w.body(small, BodyForm.TILE_IR, body)
    w.body(large, BodyForm.TILE_IR, body)
    return w.build()


def _paged(w: Writer, pool: int) -> int:
    """A paged tensor, and behind it its table."""
    storage = w.add(Storage(storage_class=StorageClass.PAGED))
    dims = w.add(Dim())
    w.add(Dim())
    table = w.count(Section.TENSOR) + 1
    record = Tensor(
        name=w.string("paged"), storage=storage, dtype=DType.F32, dims=dims, rank=2, pool=pool,
        table=table, page=w.const(16),
    )  # fmt: skip
    paged = w.add(record)
    w.tensor("table", 2, DType.I32)
    return paged


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
    paged = _paged(w, x)
    pipe = w.add(
        Channel(
            name=w.string("pipe"), element=message, depth=w.const(2), rate_in=w.const(1),
            rate_out=w.const(1),
        )
    )  # fmt: skip
    slot = w.add(Slot(name=w.string("left"), type=ScalarType.I64, level=1))
    order = P("order", AccessMode.INOUT, kind=ParamKind.TOKEN)
    page = P("page", kind=ParamKind.PAGED, rank=1)
    made = [P("t", AccessMode.OUT, rank=1), order]
    make = w.kernel("make", made, domain=Domain.HOST)
    taken = [P("t", rank=1), P("x", AccessMode.OUT, rank=1), page]
    take = w.kernel("take", taken, domain=Domain.ACCELERATOR)
    shift = w.kernel("shift", [P("x", AccessMode.INOUT, rank=1)])
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
            w.slot_load(slot, w.access(flags, AccessMode.IN, [i]))
            left = w.expr(ExprOp.SLOT, a=slot)
            going = w.binary(ExprOp.GT, left, w.const(0), ScalarType.BOOL)
            with w.loop(Op.LOOP_WHILE, "tries", w.const(9), AxisKind.DENSE, condition=going) as t:
                tries = w.axis
                w.item(Op.CALL, 0, 3)
                w.item(Op.SLOT_SET, slot, w.binary(ExprOp.SUB, left, w.const(1)))
                with w.block(Op.COND, condition=going):
                    w.item(Op.BREAK, 1)
            sent = w.access(message, AccessMode.OUT, [span])
            turn = w.access(token, AccessMode.INOUT, [w.binary(ExprOp.MOD, i, w.const(4))])
            w.item(Op.ROOM, pipe)
            site = w.task(make, [io(AccessMode.OUT, sent), io(AccessMode.INOUT, turn)])
            w.item(Op.SEND, pipe, site)
        w.item(Op.CLOSE, pipe)
    with w.entry(consumer):
        with w.recv(pipe) as number:
            got = w.access(message, AccessMode.IN, [span])
            written = w.access(x, AccessMode.OUT, [number, span])
            read = w.access(paged, AccessMode.IN, [number, span])
            words = [io(AccessMode.IN, got), io(AccessMode.OUT, written), io(AccessMode.IN, read)]
            place = w.task(take, [var(0), *words])
        w.item(Op.TAKE, pipe)
        w.item(Op.DROP, pipe)
    w.level, w.axis = 2, tries  # of the CALL
    with w.entry(), w.block(Op.COMBINE):
        row = w.access(x, AccessMode.INOUT, [t, span])
        w.task(shift, [var(1), io(AccessMode.INOUT, row)], op=Op.COLLECTIVE)
    w.add(Place(site=place, mesh=mesh, dim=0, coordinate=w.schedule_const(0).node))
    key = w.schedule_expr(ExprOp.TASK_ORDINAL)
    w.add(Place(site=place, mesh=mesh, dim=1, coordinate=key.node))
    return w.build()


ALL = {
    "tiny": tiny,
    "dense": dense,
    "ragged": ragged,
    "sparse": sparse,
    "tiers": tiers,
    "channels": channels,
}
