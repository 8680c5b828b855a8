"""Text of the tables that only distributed, channelled or analysed plans have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pto_wsp.plan.enums import NONE, LayoutKind
from pto_wsp.plan.exprtext import ExprText, table
from pto_wsp.plan.records import (
    Channel,
    ChannelRef,
    Deps,
    Descriptor,
    Layout,
    LayoutDim,
    Mesh,
    Place,
    Process,
    Stage,
    Tensor,
)

if TYPE_CHECKING:
    from pto_wsp.plan.plan import Plan


def distributed_tables(plan: Plan, exprs: ExprText) -> list[str]:
    """Stages, channels, processes, meshes, layouts, places, dependences, descriptors."""
    lines: list[str] = []
    lines += table([_stage(plan, s) for s in plan.records(Stage)], "stages")
    lines += table([_channel(plan, exprs, c) for c in plan.records(Channel)], "channels")
    lines += table([_process(plan, exprs, p) for p in plan.records(Process)], "processes")
    lines += table([_mesh(plan, exprs, m) for m in plan.records(Mesh)], "meshes")
    lines += table([_layout(plan, layout) for layout in plan.records(Layout)], "layouts")
    lines += table([_place(plan, exprs, p) for p in plan.records(Place)], "places")
    lines += table([_deps(plan, exprs, d) for d in plan.records(Deps)], "dependences")
    lines += table([_descriptor(plan, exprs, d) for d in plan.records(Descriptor)], "descriptors")
    return lines


def _stage(plan: Plan, stage: Stage) -> str:
    graph = "" if stage.graph == NONE else f" of {plan.string(stage.graph)}"
    return f"{plan.string(stage.name)}{graph}"


def _channel(plan: Plan, exprs: ExprText, channel: Channel) -> str:
    element = plan.string(plan.records(Tensor)[channel.element].name)
    text = f"{plan.string(channel.name)}: {element}, depth {exprs.expr(channel.depth)}"
    if channel.initial:
        text += f", {channel.initial} at the start"
    for what, node in (("in", channel.rate_in), ("out", channel.rate_out)):
        if node != NONE:
            text += f", {exprs.expr(node)} {what} per iteration"
    return text


def _process(plan: Plan, exprs: ExprText, process: Process) -> str:
    def names(first: int, count: int) -> str:
        run = plan.records(ChannelRef)[first : first + count]
        return ", ".join(plan.string(plan.records(Channel)[r.channel].name) for r in run) or "-"

    consumes = names(process.consumes, process.num_consumes)
    produces = names(process.produces, process.num_produces)
    text = f"{plan.string(process.name)}: entry {process.entry}"
    return f"{text}, replicas {exprs.expr(process.replicas)}, {consumes} -> {produces}"


def _mesh(plan: Plan, exprs: ExprText, mesh: Mesh) -> str:
    return f"{plan.string(mesh.name)}: {exprs.exprs(mesh.shape, mesh.rank)}"


def _layout(plan: Plan, layout: Layout) -> str:
    dims = plan.records(LayoutDim)[layout.dims : layout.dims + layout.rank]
    shown = ", ".join(f"S({d.mesh_axis})" if d.kind is LayoutKind.SHARD else "R" for d in dims)
    mesh = "" if layout.mesh == NONE else f" on {plan.string(plan.records(Mesh)[layout.mesh].name)}"
    return f"[{shown}]{mesh}"


def _place(plan: Plan, exprs: ExprText, place: Place) -> str:
    mesh = plan.string(plan.records(Mesh)[place.mesh].name)
    return f"site {place.site} on {mesh}[{exprs.exprs(place.coordinates, place.rank)}]"


def _deps(plan: Plan, exprs: ExprText, deps: Deps) -> str:
    text = f"site {deps.source} -> site {deps.sink}: {deps.proof.name.lower()}"
    text += f" {deps.hazard.name.lower()}"
    if deps.num_distance:
        text += f" ({exprs.exprs(deps.distance, deps.num_distance)})"
    return text if deps.reason == NONE else f"{text}: {plan.string(deps.reason)}"


def _descriptor(plan: Plan, exprs: ExprText, field: Descriptor) -> str:
    text = f"{plan.string(field.name)} of site {field.site}: {field.dtype.text}"
    return f"{text} {exprs.expr(field.expr)}"
