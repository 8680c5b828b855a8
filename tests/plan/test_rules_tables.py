"""One test per rule about records: each breaks one, and expects the words and the place."""

from __future__ import annotations

import pytest

from pto_wsp.dtypes import DType
from pto_wsp.plan import (
    NONE,
    Access,
    AccessDim,
    AccessMode,
    After,
    Alloc,
    BodyForm,
    Const,
    Dim,
    Expr,
    ExprOp,
    Layout,
    LayoutDim,
    LayoutKind,
    Op,
    ParamKind,
    Place,
    Plan,
    ScalarType,
    Section,
    Storage,
    StorageClass,
    Symbol,
    SymbolKind,
    Tensor,
)
from tests.plan import samples
from tests.plan.draft import Draft, Rule, fault_of, refuses
from tests.plan.writer import P, Writer

S = Section
BIG = 1 << 20

GENERIC = [
    Rule("ref", samples.dense, lambda d: d.set(S.ACCESS, 1, tensor=BIG),
         "Access.tensor is 1048576; TENSOR has 1 records", (S.ACCESS, 1, "tensor")),
    Rule("ref_none", samples.dense, lambda d: d.set(S.ACCESS, 1, tensor=NONE),
         "Access.tensor is 4294967295; TENSOR has 1 records", (S.ACCESS, 1, "tensor")),
    Rule("opt", samples.dense, lambda d: d.set(S.SITE, 0, stage=3),
         "Site.stage is 3; STAGE has 0 records", (S.SITE, 0, "stage")),
    Rule("str", samples.dense, lambda d: d.set(S.SYMBOL, 1, name=1),
         "Symbol.name is not the offset of a string", (S.SYMBOL, 1, "name")),
    Rule("str_outside", samples.dense, lambda d: d.set(S.SYMBOL, 1, name=BIG),
         "Symbol.name is not the offset of a string", (S.SYMBOL, 1, "name")),
    Rule("opt_str", samples.tiers, lambda d: d.set(S.STAGE, 0, graph=1),
         "Stage.graph is not the offset of a string", (S.STAGE, 0, "graph")),
    Rule("debug_str", samples.dense, lambda d: d.set(S.DEBUG_LINE, 2, file=1),
         "DebugLine.file is not the offset of a string", (S.DEBUG_LINE, 2, "file")),
    Rule("span", samples.dense, lambda d: d.set(S.ACCESS, 0, dims=5),
         "Access.rank makes the run reach past the end", (S.ACCESS, 0, "rank")),
    Rule("span_far", samples.dense, lambda d: d.set(S.ACCESS, 0, dims=NONE),
         "Access.rank makes the run reach past the end", (S.ACCESS, 0, "rank")),
    Rule("span_shared", samples.dense, lambda d: d.set(S.ACCESS, 1, dims=1),
         "Access.rank makes the run overlap the run of another record", (S.ACCESS, 1, "rank")),
    Rule("enum", samples.dense, lambda d: d.set(S.AXIS, 1, kind=0x36),
         "Axis.kind is 54, not a value of AxisKind", (S.AXIS, 1, "kind")),
    Rule("zero", samples.dense, lambda d: d.set(S.KERNEL, 0, reserved=1),
         "Kernel.reserved is reserved and must be 0", (S.KERNEL, 0, "reserved")),
    Rule("bits", samples.dense, lambda d: d.set(S.ACCESS_DIM, 3, flags=2),
         "AccessDim.flags has unknown bits set", (S.ACCESS_DIM, 3, "flags")),
    Rule("instr_flags", samples.dense, lambda d: d.set(S.CODE, 4, flags=1),
         "Instr.flags is reserved and must be 0", (S.CODE, 4, "flags")),
    Rule("directive", samples.dense, lambda d: d.set(S.SCHEDULE, 0, id=99),
         "ScheduleEntry.id is 99, not a value of Directive", (S.SCHEDULE, 0, "id")),
]  # fmt: skip

DATA = [
    Rule("symbol_range", samples.dense, lambda d: d.set(S.SYMBOL, 1, max_value=-1),
         "symbol 'cols' has min_value > max_value", (S.SYMBOL, 1, "min_value")),
    Rule("symbol_negative_extent", samples.dense, lambda d: d.set(S.SYMBOL, 1, min_value=-1),
         "is an extent that may be negative", (S.SYMBOL, 1, "min_value")),
    Rule("symbol_default", samples.dense, lambda d: d.set(S.CONST, 0, bits=-3),
         "symbol 'rows' has a default outside its range", (S.SYMBOL, 0, "default_value")),
    Rule("symbol_float_extent", samples.dense, lambda d: d.set(S.SYMBOL, 1, dtype=DType.F32),
         "expression SYMBOL cannot have the type I64", (S.EXPR, 0, "type")),
    Rule("symbol_float_array", samples.ragged, lambda d: d.set(S.SYMBOL, 1, dtype=DType.F32),
         "symbol 'lengths' must have an integer dtype", (S.SYMBOL, 1, "dtype")),
    Rule("symbol_array_rank", samples.ragged, lambda d: d.set(S.SYMBOL, 1, rank=3),
         "must have rank 1 or 2", (S.SYMBOL, 1, "rank")),
    Rule("symbol_value_rank", samples.dense, lambda d: d.set(S.SYMBOL, 1, rank=1),
         "is a single value and must have rank 0", (S.SYMBOL, 1, "rank")),
    Rule("symbol_value_written", samples.dense, lambda d: d.set(S.SYMBOL, 1, flags=1),
         "tasks cannot write it", (S.SYMBOL, 1, "flags")),
    Rule("symbol_tensor_default", samples.dense, lambda d: d.set(S.SYMBOL, 2, default_value=0),
         "symbol 'X' cannot have a default", (S.SYMBOL, 2, "default_value")),
    Rule("symbol_tensor_rank", samples.dense, lambda d: d.set(S.SYMBOL, 2, rank=9),
         "symbol 'X' has too many dimensions", (S.SYMBOL, 2, "rank")),
    Rule("symbol_unwritten", samples.dense, lambda d: d.set(S.SYMBOL, 2, flags=0),
         "writes a tensor whose symbol says that no task writes it", (S.ACCESS, 2, "mode")),
    Rule("symbol_float_range", samples.sparse, lambda d: d.set(S.SYMBOL, 4, max_value=1),
         "symbol 'scale' is floating point and must have the range 0, 0",
         (S.SYMBOL, 4, "min_value")),
    Rule("alloc_align", samples.tiers, lambda d: d.set(S.ALLOC, 0, align=48),
         "Alloc.align is not a power of two", (S.ALLOC, 0, "align")),
    Rule("alloc_align_zero", samples.tiers, lambda d: d.set(S.ALLOC, 0, align=0),
         "Alloc.align is not a power of two", (S.ALLOC, 0, "align")),
    Rule("alloc_level", samples.tiers, lambda d: d.set(S.ALLOC, 1, level=17),
         "Alloc.level is too high", (S.ALLOC, 1, "level")),
    Rule("slot_level", samples.channels, lambda d: d.set(S.SLOT, 0, level=17),
         "Slot.level is too high", (S.SLOT, 0, "level")),
    Rule("storage_alloc", samples.dense, lambda d: d.set(S.STORAGE, 0, storage_class=1),
         "TEMP, WORKSPACE and CHANNEL storages have an alloc", (S.STORAGE, 0, "alloc")),
    Rule("storage_location", samples.tiers, lambda d: d.set(S.STORAGE, 2, location=2),
         "Storage.location is not that of its alloc", (S.STORAGE, 2, "location")),
    Rule("mesh_rank", samples.channels, lambda d: d.set(S.MESH, 0, rank=0),
         "a mesh has 1 to 8 dimensions", (S.MESH, 0, "rank")),
    Rule("mesh_axis", samples.channels, lambda d: d.set(S.LAYOUT_DIM, 0, mesh_axis=2),
         "the mesh does not have this dimension", (S.LAYOUT_DIM, 0, "mesh_axis")),
    Rule("mesh_missing", samples.channels, lambda d: d.set(S.LAYOUT, 0, mesh=NONE),
         "a sharded dimension needs a mesh", (S.LAYOUT_DIM, 0, "mesh_axis")),
    Rule("mesh_replicated", samples.channels, lambda d: d.set(S.LAYOUT_DIM, 1, mesh_axis=1),
         "a replicated dimension names no mesh dimension", (S.LAYOUT_DIM, 1, "mesh_axis")),
    Rule("mesh_twice", samples.channels, lambda d: d.set(S.LAYOUT_DIM, 1, kind=1, mesh_axis=1),
         "the mesh dimension is sharded twice", (S.LAYOUT_DIM, 1, "mesh_axis")),
    Rule("layout_rank", samples.channels, lambda d: d.set(S.LAYOUT, 0, rank=1),
         "tensor 'X' has a layout of another rank", (S.TENSOR, 0, "layout")),
    Rule("tensor_location", samples.dense, lambda d: d.set(S.TENSOR, 0, location=1),
         "tensor 'X' does not lie where its storage lies", (S.TENSOR, 0, "location")),
    Rule("tensor_unbound", samples.dense, lambda d: d.set(S.TENSOR, 0, symbol=NONE),
         "tensor 'X' is bound and has no symbol", (S.TENSOR, 0, "symbol")),
    Rule("tensor_symbol_kind", samples.dense, lambda d: d.set(S.TENSOR, 0, symbol=0),
         "is bound by a symbol of another kind", (S.TENSOR, 0, "symbol")),
    Rule("tensor_dtype", samples.dense, lambda d: d.set(S.TENSOR, 0, dtype=DType.I8),
         "has another dtype than its symbol", (S.TENSOR, 0, "dtype")),
    Rule("tensor_rank", samples.dense, lambda d: d.set(S.TENSOR, 0, rank=1),
         "has another rank than its symbol", (S.TENSOR, 0, "rank")),
    Rule("tensor_shared", samples.ragged,
         lambda d: d.set(S.TENSOR, 1, symbol=2, name=d.get(S.TENSOR, 0, "name"), rank=3, dims=2),
         "overlap the run of another record", (S.TENSOR, 1, "rank")),
    Rule("tensor_name", samples.ragged, lambda d: d.set(S.TENSOR, 1, name=0),
         "has another name than its symbol", (S.TENSOR, 1, "name")),
    Rule("tensor_symbol_of_temp", samples.tiers, lambda d: d.set(S.TENSOR, 2, symbol=2),
         "tensor 'temp' is not bound and has a symbol", (S.TENSOR, 2, "symbol")),
    Rule("tensor_pages", samples.channels, lambda d: d.set(S.TENSOR, 4, table=NONE),
         "must have pool, table and page exactly if it is PAGED", (S.TENSOR, 4, "pool")),
    Rule("tensor_pages_of_bound", samples.dense, lambda d: d.set(S.TENSOR, 0, page=0),
         "must have pool, table and page exactly if it is PAGED", (S.TENSOR, 0, "pool")),
    Rule("tensor_pool", samples.channels, lambda d: d.set(S.TENSOR, 4, pool=2),
         "needs a bound tensor as its pool", (S.TENSOR, 4, "pool")),
    Rule("tensor_table", samples.channels, lambda d: d.set(S.TENSOR, 4, table=0),
         "needs a bound tensor of integers as its table", (S.TENSOR, 4, "table")),
    Rule("tensor_table_rank", samples.channels, lambda d: d.set(S.TENSOR, 4, table=1),
         "needs a matrix of i32 or i64 as its table", (S.TENSOR, 4, "table")),
    Rule("tensor_pool_dtype", samples.channels, lambda d: d.set(S.TENSOR, 4, pool=5),
         "must have the dtype and the rank of its pool", (S.TENSOR, 4, "pool")),
    Rule("dim_shape", samples.tiers, lambda d: d.set(S.DIM, 3, shape=NONE),
         "a tensor that is not bound needs its shape in the plan", (S.DIM, 3, "shape")),
    Rule("access_rank", samples.dense, lambda d: d.set(S.ACCESS, 2, rank=1),
         "Access.rank is not the rank of its tensor", (S.ACCESS, 2, "rank")),
]  # fmt: skip

KERNELS = [
    Rule("name_hash", samples.dense, lambda d: d.set(S.KERNEL, 0, name_hash=7),
         "Kernel.name_hash is not that of its name", (S.KERNEL, 0, "name_hash")),
    Rule("abi_hash", samples.dense, lambda d: d.set(S.KERNEL, 0, abi_hash=7),
         "Kernel.abi_hash is not that of its parameters", (S.KERNEL, 0, "abi_hash")),
    Rule("block_dim", samples.dense, lambda d: d.set(S.KERNEL, 0, block_dim=0),
         "Kernel.block_dim is 0", (S.KERNEL, 0, "block_dim")),
    Rule("param_mode", samples.dense, lambda d: d.set(S.PARAM, 1, mode=4),
         "parameter 'left' must have an access mode", (S.PARAM, 1, "mode")),
    Rule("param_mode_of_scalar", samples.sparse, lambda d: d.set(S.PARAM, 1, mode=1),
         "parameter 's' must have an access mode exactly if", (S.PARAM, 1, "mode")),
    Rule("param_rank", samples.dense, lambda d: d.set(S.PARAM, 0, rank=9),
         "parameter 'up' has too many dimensions", (S.PARAM, 0, "rank")),
    Rule("param_rank_of_scalar", samples.sparse, lambda d: d.set(S.PARAM, 1, rank=1),
         "parameter 's' is a value and must have rank 0", (S.PARAM, 1, "rank")),
    Rule("param_value", samples.dense, lambda d: d.set(S.PARAM, 0, value=1),
         "parameter 'up' has a value and is not CONSTEXPR", (S.PARAM, 0, "value")),
    Rule("param_tile", samples.tiers, lambda d: d.set(S.PARAM, 0, shape_rank=0),
         "Param.shape_rank must be the rank of a TILE", (S.PARAM, 0, "shape_rank")),
    Rule("param_names", samples.dense, lambda d: d.set(S.PARAM, 1, name=d.get(S.PARAM, 0, "name")),
         "two parameters of a kernel have the same name", (S.KERNEL, 0, "num_params")),
    Rule("tier_default", samples.tiers, lambda d: d.set(S.TIER, 0, predicate=NONE),
         "only the last tier may do without a predicate", (S.TIER, 0, "predicate")),
    Rule("tier_arguments", samples.tiers, lambda d: d.set(S.TIER, 1, kernel=2),
         "the kernels of a tier set must take the same arguments", (S.TIER, 1, "kernel")),
    Rule("tier_empty", samples.tiers, lambda d: d.set(S.TIER_SET, 0, num_tiers=0),
         "a tier set is empty", (S.TIER_SET, 0, "num_tiers")),
    Rule("tier_type", samples.tiers, lambda d: d.set(S.TIER, 0, predicate=0),
         "Tier.predicate must be of type BOOL, not I64", (S.TIER, 0, "predicate")),
    Rule("body_twice", samples.tiers, lambda d: d.set(S.KERNEL_BODY, 1, kernel=0),
         "the kernel has two bodies", (S.KERNEL_BODY, 1, None)),
    Rule("body_overlap", samples.tiers, lambda d: d.set(S.KERNEL_BODY, 1, bytes=1, num_bytes=2),
         "overlap without being the same", (S.KERNEL_BODY, 1, "bytes")),
]  # fmt: skip

OTHERS = [
    Rule("after_shared", samples.tiers, lambda d: d.set(S.AFTER, 0, shared_levels=2),
         "After.shared_levels counts loops that the sites do not share",
         (S.AFTER, 0, "shared_levels")),
    Rule("after_indices", samples.tiers, lambda d: d.set(S.AFTER, 1, shared_levels=1),
         "After needs one index for each loop that is not shared", (S.AFTER, 1, "num_indices")),
    Rule("after_later", samples.tiers, lambda d: d.set(S.AFTER, 0, site=1),
         "After without indices must name an earlier site", (S.AFTER, 0, "site")),
    Rule("deps_distance", samples.tiers, lambda d: d.set(S.DEPS, 0, proof=1),
         "DISTANCE, SYMBOLIC and EVERY proofs have a distance, INDEPENDENT ones none",
         (S.DEPS, 0, "num_distance")),
    Rule("deps_open", samples.tiers, lambda d: d.set(S.DEPS_DISTANCE, 0, open=1),
         "open components are UNKNOWN or EVERY", (S.DEPS, 0, "proof")),
    Rule("deps_every", samples.tiers, lambda d: d.set(S.DEPS, 0, proof=4),
         "and EVERY has some", (S.DEPS, 0, "proof")),
    Rule("deps_open_value", samples.tiers, lambda d: d.set(S.DEPS_DISTANCE, 0, open=1, value=2),
         "an open DepsDistance has neither value nor expression", (S.DEPS_DISTANCE, 0, "value")),
    Rule("deps_proof", samples.tiers, lambda d: d.set(S.DEPS, 1, proof=2),
         "a DISTANCE proof has constants only, a SYMBOLIC one some expression",
         (S.DEPS, 1, "proof")),
    Rule("deps_constant", samples.tiers, lambda d: d.set(S.DEPS_DISTANCE, 1, expr=NONE),
         "a DISTANCE proof has constants only, a SYMBOLIC one some expression",
         (S.DEPS, 1, "proof")),
    Rule("deps_value", samples.tiers, lambda d: d.set(S.DEPS_DISTANCE, 1, value=3),
         "DepsDistance.value must be 0 beside an expression", (S.DEPS_DISTANCE, 1, "value")),
    Rule("deps_reason", samples.tiers, lambda d: d.set(S.DEPS, 2, reason=1),
         "Deps.reason is not the offset of a string", (S.DEPS, 2, "reason")),
    Rule("place_dim", samples.channels, lambda d: d.set(S.PLACE, 1, dim=2),
         "a place needs one record per dimension of its mesh, in order", (S.PLACE, 1, "dim")),
    Rule("place_order", samples.channels, lambda d: d.set(S.PLACE, 0, dim=1),
         "a place needs one record per dimension of its mesh, in order", (S.PLACE, 0, "dim")),
    Rule("place_site", samples.channels, lambda d: d.set(S.PLACE, 1, site=3),
         "a place needs one record per dimension of its mesh, in order", (S.PLACE, 1, "dim")),
    Rule("place_type", samples.channels,
         lambda d: d.set(S.SCHEDULE_EXPR, 0, type=ScalarType.F64),
         "Place.coordinate must be of type I64", (S.PLACE, 0, "coordinate")),
    Rule("descriptor_type", samples.tiers, lambda d: d.set(S.DESCRIPTOR, 0, dtype=DType.F32),
         "Descriptor.expr must be of type F64, not I64", (S.DESCRIPTOR, 0, "expr")),
    Rule("channel_element", samples.channels, lambda d: d.set(S.CHANNEL, 0, element=3),
         "Channel.element is not a tensor of class CHANNEL", (S.CHANNEL, 0, "element")),
    Rule("channel_send", samples.channels, lambda d: d.set(S.CODE, 18, operand2=0),
         "SEND names a task that does not write the channel's element", (S.CODE, 18, None)),
    Rule("entry_process", samples.channels, lambda d: d.set(S.ENTRY, 2, process=0),
         "the process's entry belongs to another process", (S.PROCESS, 1, "entry")),
    Rule("channel_recv", samples.channels, lambda d: d.set(S.PROCESS, 1, num_consumes=0),
         "RECV uses a channel that its process does not consume", (S.CODE, 22, None)),
    Rule("process_entry", samples.channels, lambda d: d.set(S.PROCESS, 0, entry=2),
         "the process's entry belongs to another process", (S.PROCESS, 0, "entry")),
    Rule("arg_string", samples.ragged, lambda d: d.set(S.SCHEDULE_ARG, 2, bits=1),
         "the directive's argument is not the offset of a string", (S.SCHEDULE_ARG, 2, "bits")),
    Rule("arg_expr", samples.ragged, lambda d: d.set(S.SCHEDULE_ARG, 1, bits=99),
         "is an expression that does not exist", (S.SCHEDULE_ARG, 1, "bits")),
    Rule("arg_none", samples.ragged, lambda d: d.set(S.SCHEDULE_ARG, 3, bits=1),
         "an absent argument must be 0", (S.SCHEDULE_ARG, 3, "bits")),
    Rule("debug_index", samples.dense, lambda d: d.set(S.DEBUG_LINE, 0, index=9),
         "DebugLine speaks of a record that does not exist", (S.DEBUG_LINE, 0, "index")),
    Rule("debug_line", samples.dense, lambda d: d.set(S.DEBUG_LINE, 0, line=0),
         "lines count from 1", (S.DEBUG_LINE, 0, "line")),
]  # fmt: skip


@pytest.mark.parametrize("rule", [*GENERIC, *DATA, *KERNELS, *OTHERS], ids=lambda rule: rule.name)
def test_rule(rule: Rule) -> None:
    rule.check()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"\x02\x00\xc0\x80", "not valid UTF-8"),  # overlong
        (b"\x03\x00\xed\xa0\x80", "not valid UTF-8"),  # surrogate
        (b"\x04\x00\xf4\x90\x80\x80", "not valid UTF-8"),  # past the last character
        (b"\x02\x00\xe2\x82", "not valid UTF-8"),  # cut off
        (b"\x01\x00\x80", "not valid UTF-8"),  # continuation without a lead
        (b"\x05\x00ab", "a string reaches past its section"),
        (b"\x05", "a string's length is cut off"),
    ],
)
def test_strings(text: bytes, message: str) -> None:
    draft = Draft(samples.dense())
    old = draft.sections[S.STRING].data
    draft.data(S.STRING, old + text)
    offset, found = fault_of(draft.seal())
    assert message in found
    assert offset in (draft.offset(S.STRING, len(old)), draft.offset(S.STRING, len(old) + 2))


def test_utf8_is_accepted() -> None:
    w = Writer()
    w.symbol("größe π 数 🙂", SymbolKind.EXTENT)
    with w.entry():
        pass
    assert "größe π 数 🙂" in w.build().disassemble()


def nothing() -> Writer:
    w = Writer()
    with w.entry():
        w.item(Op.NOP)
    return w


@pytest.mark.parametrize(("name", "message"), [("", "is empty"), ("x" * 1025, "is longer than")])
def test_names_have_a_length(name: str, message: str) -> None:
    w = nothing()
    w.symbol(name, SymbolKind.EXTENT)
    refuses(w, f"Symbol.name {message}", S.SYMBOL, 0, "name")


def test_names_are_unique() -> None:
    w = nothing()
    w.symbol("n", SymbolKind.EXTENT)
    w.symbol("n", SymbolKind.SCALAR)
    refuses(w, "two symbols have the name 'n'", S.SYMBOL, 1)
    # The same text at two offsets is the same name too.
    draft = Draft(w.encode())
    draft.data(S.STRING, b"\x01\x00n\x01\x00n").set(S.SYMBOL, 1, name=3)
    assert "two symbols have the name 'n'" in fault_of(draft.seal())[1]
    w = nothing()
    w.kernel("k", [])
    w.kernel("k", [])
    refuses(w, "two kernels have the name 'k'", S.KERNEL, 1)


def test_one_tensor_per_symbol() -> None:
    w = nothing()
    w.tensor("X", 0)
    storage = w.add(Storage(storage_class=StorageClass.BOUND))
    w.add(Tensor(name=w.string("X"), symbol=0, storage=storage, dtype=DType.F32))
    refuses(w, "shares its symbol with another tensor", S.TENSOR, 1, "symbol")


def test_rank_has_a_limit() -> None:
    w = nothing()
    w.made("t", StorageClass.TOKEN, [1] * 9)
    refuses(w, "tensor 't' has too many dimensions", S.TENSOR, 0, "rank")


def test_layout_rank_has_a_limit() -> None:
    w = nothing()
    for _ in range(9):
        w.add(LayoutDim(kind=LayoutKind.REPLICATE))
    w.add(Layout(dims=0, rank=9))
    refuses(w, "Layout.rank is too high", S.LAYOUT, 0, "rank")


@pytest.mark.parametrize(("kind", "count"), [("tensor", 65), ("scalar", 33), ("any", 161)])
def test_parameters_have_a_limit(kind: str, count: int) -> None:
    by_kind = {
        "tensor": P("p"),
        "scalar": P("p", None, ParamKind.SCALAR),
        "any": P("p", None, ParamKind.CONSTEXPR),
    }
    w = nothing()
    p = by_kind[kind]
    w.kernel("k", [P(f"p{i}", p.mode, p.kind) for i in range(count)])
    refuses(w, "a kernel has too many", S.KERNEL, 0, "num_params")


def test_sizes_are_static() -> None:
    """Shapes, caps and kernel costs are known before any loop runs."""
    w = nothing()
    w.add(Alloc(size=w.const(1), align=1, level=0, cap=w.loop_var(0)))
    refuses(w, "Alloc.cap reads a variable of loop level 0", S.ALLOC, 0, "cap")
    w = nothing()
    w.add(Alloc(size=w.loop_var(1), align=1, level=1))
    refuses(w, "Alloc.size reads a variable of loop level 1", S.ALLOC, 0, "size")
    w = nothing()
    storage = w.add(Storage(storage_class=StorageClass.TOKEN))
    w.add(Dim(shape=w.loop_var(0)))
    w.add(Tensor(name=w.string("t"), storage=storage, dtype=DType.F32, rank=1))
    refuses(w, "Dim.shape reads a variable of loop level 0", S.DIM, 0, "shape")
    w = nothing()
    w.kernel("k", [], scratch=w.loop_var(0))
    refuses(w, "Kernel.scratch reads a variable of loop level 0", S.KERNEL, 0, "scratch")


@pytest.mark.parametrize(
    ("extent", "step", "flags", "message", "field"),
    [
        (-1, 1, 0, "AccessDim.extent is negative", "extent"),
        (1, 0, 0, "AccessDim.step is less than 1", "step"),
        (2, 1, 1, "must have the constant extent 1", "extent"),
    ],
)
def test_regions(extent: int, step: int, flags: int, message: str, field: str) -> None:
    w = nothing()
    x = w.tensor("X", 1)
    values = {"extent": w.const(extent), "step": w.const(step)}
    w.add(AccessDim(start=w.const(0), flags=flags, **values))
    w.add(Access(tensor=x, mode=AccessMode.IN, dims=0, rank=1))
    refuses(w, message, S.ACCESS_DIM, 0, field)


def test_array_symbols_have_no_default() -> None:
    w = nothing()
    w.add(Const(bits=1))
    record = Symbol(
        name=w.string("a"), kind=SymbolKind.ARRAY, dtype=DType.I32, rank=1, default_value=0
    )
    w.add(record)
    refuses(w, "symbol 'a' cannot have a default", S.SYMBOL, 0, "default_value")


def test_distances_read_the_loops_of_the_source() -> None:
    draft = Draft(samples.tiers())
    variable = draft.get(S.DEPS_DISTANCE, 1, "expr")
    assert draft.get(S.EXPR, variable, "op") == ExprOp.LOOPVAR
    draft.data(S.EXPR, draft.sections[S.EXPR].data + Expr(op=ExprOp.LOOPVAR, arg=1).pack())
    draft.set(S.DEPS_DISTANCE, 1, expr=len(draft.sections[S.EXPR].data) // 16 - 1)
    offset, message = fault_of(draft.seal())
    assert "DepsDistance.expr reads a variable of loop level 1" in message
    assert offset == draft.offset(S.DEPS_DISTANCE, 1, "expr")


def test_places_are_complete_and_sorted() -> None:
    size = Place.packed_size()
    draft = Draft(samples.channels())
    both = draft.sections[S.PLACE].data
    offset, message = fault_of(draft.data(S.PLACE, both[:size]).seal())
    assert message == "a place needs one record per dimension of its mesh, in order"
    assert offset == draft.offset(S.PLACE, 1)
    offset, message = fault_of(draft.data(S.PLACE, both * 2).seal())
    assert message == "places must be sorted by site and mesh, each once"
    assert offset == draft.offset(S.PLACE, 2)
    draft.data(S.PLACE, both * 2).set(S.PLACE, 2, site=3).set(S.PLACE, 3, site=3)
    Plan.from_bytes(draft.seal())


def test_after_stays_in_its_entry() -> None:
    w = Writer()
    k = w.kernel("k", [])
    with w.entry():
        first = w.task(k, [])
        w.item(Op.CALL, 0, 1)
    with w.entry():
        after = w.add(After(site=first))
        w.task(k, [(Op.AFTER, 0, after)])
    refuses(w, "After.site lies in another entry", S.AFTER, 0, "site")


def test_bodies_may_be_equal_or_apart() -> None:
    w = nothing()
    for name in "abc":
        w.body(w.kernel(name, []), BodyForm.PYTHON, name.upper().encode() * 3)
    assert [w.build().body(i) for i in range(3)] == [Plan(w.encode()).body(i) for i in range(3)]
