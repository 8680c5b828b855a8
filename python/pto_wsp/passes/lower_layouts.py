"""Layouts in a plan: MESH, LAYOUT and LAYOUT_DIM records, and the strides of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pto_wsp import ir, plan

_MESH = "mesh"


def lower_layouts(module: ir.Module, builder: plan.PlanBuilder) -> Mapping[str, int]:
    """The LAYOUT records of tensors, by name; equal ones share a record. There is one mesh, with as
    many axes as some tensor is sharded along; on one machine it has one element, so each is 1."""
    declared = {t.name: t.layout for t in module.tensors if t.layout is not None}
    axes = {axis for layout in declared.values() for axis in layout.axes}
    mesh = _lower_mesh(max(axes) + 1, builder) if axes else plan.NONE
    numbers: dict[tuple[ir.LayoutDim, ...], int] = {}
    for layout in declared.values():
        if layout.dims not in numbers:
            numbers[layout.dims] = _lower_layout(
                layout, mesh if layout.axes else plan.NONE, builder
            )
    return {name: numbers[layout.dims] for name, layout in declared.items()}


def _lower_mesh(axes: int, builder: plan.PlanBuilder) -> int:
    first = builder.count(plan.Section.EXPR_LIST)
    for _ in range(axes):
        builder.add(plan.ExprRef(expr=builder.const(1)))
    return builder.add(plan.Mesh(name=builder.string(_MESH), shape=first, rank=axes))


def _lower_layout(layout: ir.TensorLayout, mesh: int, builder: plan.PlanBuilder) -> int:
    first = builder.count(plan.Section.LAYOUT_DIM)
    for dim in layout.dims:
        if isinstance(dim, ir.TensorShard):
            builder.add(plan.LayoutDim(kind=plan.LayoutKind.SHARD, mesh_axis=dim.mesh_axis))
        else:
            builder.add(plan.LayoutDim(kind=plan.LayoutKind.REPLICATE))
    return builder.add(plan.Layout(mesh=mesh, dims=first, rank=layout.rank))


def lower_strides(
    layout: ir.TensorLayout | None, tensor: int, builder: plan.PlanBuilder
) -> list[int]:
    """The strides that a layout asks of a bound tensor, as expressions; empty if it asks none."""
    if layout is None or layout.mem is None:
        return []
    if layout.mem.order is ir.MemOrder.STRIDED:
        return [builder.const(stride) for stride in layout.mem.strides]

    def times(product: int, dim: int) -> int:
        extent = builder.expr(plan.ExprOp.SHAPE, arg=dim, a=tensor)
        is_one = product == builder.const(1)
        return extent if is_one else builder.expr(plan.ExprOp.MUL, a=product, b=extent)

    return [reduce(times, inner, builder.const(1)) for inner in layout.mem.inner(layout.rank)]
