"""The tables of a plan: symbols, tensors, kernels and directives of a module."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from pto_wsp import ir, plan
from pto_wsp.dtypes import DType
from pto_wsp.passes.lower_expr import ExprLowering
from pto_wsp.passes.lower_layouts import lower_strides

_I64_MAX = 2**63 - 1
_WRITTEN = 1  # Symbol.flags


def number_bits(value: int | float) -> int:
    """The 64 bits of a symbol's default."""
    return ir.float_bits(value) if isinstance(value, float) else value % 2**64


_FLOAT_FORMATS = {DType.F64: "<d", DType.F32: "<f", DType.F16: "<e"}


def value_bits(dtype: DType, value: int | float) -> int:
    """The bits of a constant of a dtype, in the low end of 64."""
    if dtype is DType.BF16:  # the upper half of a float, rounded to even
        bits = value_bits(DType.F32, value)
        return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF
    if dtype in _FLOAT_FORMATS:
        return int.from_bytes(struct.pack(_FLOAT_FORMATS[dtype], value), "little")
    return int(value) % (1 << 8 * dtype.size)


def lower_symbols(module: ir.Module, builder: plan.PlanBuilder) -> dict[str, int]:
    numbers: dict[str, int] = {}
    extent_arrays = _arrays_in_extents(module)
    for decl in module.symbols:
        low, high = _value_range(decl, decl.name in extent_arrays)
        # Every default has a constant of its own, so that other defaults make no other layout.
        default = plan.NONE
        if decl.default is not None:
            default = builder.add(plan.Const(bits=number_bits(decl.default)))
        record = plan.Symbol(
            name=builder.string(decl.name),
            kind=plan.SymbolKind[decl.kind.name],
            dtype=decl.dtype,
            rank=decl.rank if decl.kind is ir.SymbolKind.ARRAY else 0,
            default_value=default,
            min_value=low,
            max_value=high,
        )
        numbers[decl.name] = builder.add(record)
        builder.debug(plan.Section.SYMBOL, numbers[decl.name], decl.loc)
    return numbers


def _arrays_in_extents(module: ir.Module) -> set[str]:
    """Arrays whose elements are extents as they stand: those cannot be negative."""
    extents = (stmt.extent for stmt in ir.walk(module.body) if isinstance(stmt, ir.Loop))
    return {extent.array for extent in extents if isinstance(extent, ir.ArrayLoad)}


def _value_range(decl: ir.SymbolDecl, counts: bool) -> tuple[int, int]:
    """Smallest and largest legal value of an extent, or of an array's elements."""
    if decl.kind is ir.SymbolKind.EXTENT or counts:
        return 0, _I64_MAX
    if ir.scalar_type(decl.dtype) is ir.ExprType.F64:
        return 0, 0
    if decl.dtype is DType.BOOL:
        return 0, 1
    bits = 8 * decl.dtype.size
    if decl.dtype.name.startswith("U"):
        return 0, min(2**bits - 1, _I64_MAX)
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def lower_tensors(
    module: ir.Module,
    builder: plan.PlanBuilder,
    symbols: dict[str, int],
    layouts: Mapping[str, int],
) -> dict[str, int]:
    """Bound tensors first: the others refer to them. A temporary gets its record at its Alloc."""
    numbers: dict[str, int] = {}
    written = _written_tensors(module)
    for decl in module.tensors:
        if decl.kind is ir.TensorKind.BOUND:
            layout = layouts.get(decl.name, plan.NONE)
            is_written = decl.name in written
            numbers[decl.name] = _lower_bound(decl, builder, symbols, is_written, layout)
    exprs = ExprLowering(builder, symbols, numbers, {s.name: s for s in module.symbols})
    for decl in module.tensors:
        if decl.kind is ir.TensorKind.PAGED:
            numbers[decl.name] = _lower_paged(decl, builder, numbers)
    for decl in module.tensors:
        if decl.kind is ir.TensorKind.TOKEN:
            shape = [exprs.lower(size, {}) for size in decl.shape]
            storage = plan.Storage(storage_class=plan.StorageClass.TOKEN)
            numbers[decl.name] = lower_shaped(decl, builder, builder.add(storage), shape)
    return numbers


def _lower_bound(
    decl: ir.TensorDecl,
    builder: plan.PlanBuilder,
    symbols: dict[str, int],
    written: bool,
    layout: int,
) -> int:
    """A tensor with a symbol of its name, a storage of its own, and dimensions bound later."""
    symbol = plan.Symbol(
        name=builder.string(decl.name),
        kind=plan.SymbolKind.TENSOR,
        dtype=decl.dtype,
        rank=decl.rank,
        flags=_WRITTEN if written else 0,
        min_value=0,
        max_value=0,
    )
    symbols[decl.name] = builder.add(symbol)
    builder.debug(plan.Section.SYMBOL, symbols[decl.name], decl.loc)
    storage = builder.add(_storage(decl, plan.StorageClass.BOUND))
    record = _tensor(decl, builder, storage)
    record = replace(record, symbol=symbols[decl.name], layout=layout)
    strides = lower_strides(decl.layout, builder.count(plan.Section.TENSOR), builder)
    fixed = [plan.NONE if size is None else builder.const(size) for size in decl.fixed]
    return _add_tensor(record, fixed, decl, builder, strides)


def _lower_paged(decl: ir.TensorDecl, builder: plan.PlanBuilder, numbers: dict[str, int]) -> int:
    assert decl.pages is not None
    pool, table = numbers[decl.pages.pool], numbers[decl.pages.table]
    if decl.pages.page is None:
        page = builder.expr(plan.ExprOp.SHAPE, arg=1, a=pool)
    else:
        page = builder.const(decl.pages.page)
    storage = builder.add(_storage(decl, plan.StorageClass.PAGED))
    record = _tensor(decl, builder, storage)
    return _add_tensor(replace(record, pool=pool, table=table, page=page), [], decl, builder)


def lower_shaped(
    decl: ir.TensorDecl,
    builder: plan.PlanBuilder,
    storage: int,
    shape: list[int],
    layout: int = plan.NONE,
) -> int:
    """A tensor whose shape the plan says, by expressions."""
    record = replace(_tensor(decl, builder, storage), layout=layout)
    return _add_tensor(record, shape, decl, builder)


def lower_location(decl: ir.TensorDecl) -> plan.Location:
    return plan.Location[decl.location.name.upper()]


def _storage(decl: ir.TensorDecl, storage_class: plan.StorageClass) -> plan.Storage:
    return plan.Storage(storage_class=storage_class, location=lower_location(decl))


def _tensor(decl: ir.TensorDecl, builder: plan.PlanBuilder, storage: int) -> plan.Tensor:
    dims = builder.count(plan.Section.DIM)
    name = builder.string(decl.name)
    return plan.Tensor(
        name=name,
        storage=storage,
        dtype=decl.dtype,
        location=lower_location(decl),
        dims=dims,
        rank=decl.rank,
    )


def _add_tensor(
    record: plan.Tensor,
    shape: list[int],
    decl: ir.TensorDecl,
    builder: plan.PlanBuilder,
    strides: list[int] | None = None,
) -> int:
    bound = [plan.NONE] * decl.rank
    for size, stride in zip(shape or bound, strides or bound, strict=True):
        builder.add(plan.Dim(shape=size, stride=stride))
    number = builder.add(record)
    builder.debug(plan.Section.TENSOR, number, decl.loc)
    return number


def _written_tensors(module: ir.Module) -> set[str]:
    """Tensors that tasks write, pools behind paged ones included."""
    params = {kernel.name: ir.given_params(kernel) for kernel in module.kernels}
    named = {
        arg.tensor
        for call in ir.walk(module.body)
        if isinstance(call, ir.Call)
        for param, arg in zip(params[call.kernel], call.args, strict=True)
        if isinstance(param, ir.ParamDecl)
        and isinstance(arg, ir.Region)
        and param.mode is not ir.Mode.IN
    }
    return named | {t.pages.pool for t in module.tensors if t.pages is not None and t.name in named}


_VIEWS = {
    ir.ViewKind.STRIDED: plan.ParamKind.TENSOR,
    ir.ViewKind.PAGED: plan.ParamKind.PAGED,
    ir.ViewKind.TOKEN: plan.ParamKind.TOKEN,
}


def _lower_param(param: ir.AnyParam, builder: plan.PlanBuilder) -> plan.Param:
    name = builder.string(param.name)
    match param:
        case ir.ScalarDecl(_, dtype):
            return plan.Param(name=name, kind=plan.ParamKind.SCALAR, dtype=dtype)
        case ir.ConstexprDecl(_, dtype, value):
            bits = value_bits(dtype, value)
            return plan.Param(name=name, kind=plan.ParamKind.CONSTEXPR, dtype=dtype, value=bits)
        case ir.ParamDecl(_, mode, dtype, rank, shape, view):
            record = plan.Param(
                name=name,
                kind=_VIEWS[view] if shape is None else plan.ParamKind.TILE,
                dtype=dtype,
                mode=plan.AccessMode[mode.name],
                rank=rank,
            )
            if shape is None:
                return record
            first = builder.count(plan.Section.EXPR_LIST)
            for size in shape:
                builder.add(plan.ExprRef(expr=builder.const(size)))
            return replace(record, shape=first, shape_rank=len(shape))
        case _:
            assert_never(param)


_UNITS = {
    ir.ExecUnit.ANY: plan.ExecUnit.ANY,
    ir.ExecUnit.VECTOR: plan.ExecUnit.AIV,
    ir.ExecUnit.CUBE: plan.ExecUnit.AIC,
}


def lower_kernel(decl: ir.KernelDecl, builder: plan.PlanBuilder) -> int:
    name = builder.string(decl.name)
    params = [_lower_param(param, builder) for param in decl.params]
    signature = [
        (decl.name, p.kind, p.dtype, p.mode, p.rank)
        for decl, p in zip(decl.params, params, strict=True)
    ]
    record = plan.Kernel(
        name=name,
        exec_unit=_UNITS[decl.exec_unit],
        domain=plan.Domain.ANY,
        params=builder.count(plan.Section.PARAM),
        num_params=len(decl.params),
        block_dim=1,
        name_hash=plan.name_hash(decl.name),
        abi_hash=plan.abi_hash(signature),
    )
    for param in params:
        builder.add(param)
    number = builder.add(record)
    builder.debug(plan.Section.KERNEL, number, decl.loc)
    builder.body(number, plan.BodyForm[decl.form.name], _body_bytes(decl), decl.loc)
    return number


def _body_bytes(decl: ir.KernelDecl) -> bytes:
    match decl.form:
        case ir.BodyForm.PYTHON | ir.BodyForm.TILE_IR:
            return decl.source.encode()
        case ir.BodyForm.CPP:
            parts = {"includes": decl.includes, "source": decl.source}
            text = json.dumps(parts, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
            return text.encode()
        case _:
            assert_never(decl.form)
