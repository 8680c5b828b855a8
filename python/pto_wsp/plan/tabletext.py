"""Text of the tables that only distributed, channelled or analysed plans have."""

from __future__ import annotations

from pto_wsp.plan.enums import NONE, LayoutKind, Section
from pto_wsp.plan.exprtext import ExprText, table
from pto_wsp.plan.reader import PlanReader
from pto_wsp.plan.records import (
    Channel,
    ChannelRef,
    Deps,
    DepsDistance,
    Descriptor,
    Layout,
    LayoutDim,
    Mesh,
    Place,
    Process,
    Stage,
    Tensor,
)


def distributed_tables(plan: PlanReader, exprs: ExprText) -> list[str]:
    """Stages, channels, processes, meshes, layouts, places, dependences, descriptors."""
    lines: list[str] = []
    lines += table([_stage(plan, s) for s in plan.records(Stage)], "stages")
    lines += table([_channel(plan, exprs, c) for c in plan.records(Channel)], "channels")
    lines += table([_process(plan, exprs, p) for p in plan.records(Process)], "processes")
    lines += table([_mesh(plan, exprs, m) for m in plan.records(Mesh)], "meshes")
    lines += table([_layout(plan, layout) for layout in plan.records(Layout)], "layouts")
    lines += table([_place(plan, p) for p in plan.records(Place)], "places")
    lines += table([_deps(plan, exprs, d) for d in plan.records(Deps)], "dependences")
    lines += table([_descriptor(plan, exprs, d) for d in plan.records(Descriptor)], "descriptors")
    return lines


def _stage(plan: PlanReader, stage: Stage) -> str:
    graph = "" if stage.graph == NONE else f" of {plan.string(stage.graph)}"
    return f"{plan.string(stage.name)}{graph}"


def _channel(plan: PlanReader, exprs: ExprText, channel: Channel) -> str:
    element = plan.string(plan.records(Tensor)[channel.element].name)
    text = f"{plan.string(channel.name)}: {element}, depth {exprs.expr(channel.depth)}"
    if channel.initial:
        text += f", {channel.initial} at the start"
    for what, node in (("in", channel.rate_in), ("out", channel.rate_out)):
        if node != NONE:
            text += f", {exprs.expr(node)} {what} per iteration"
    return text


def _process(plan: PlanReader, exprs: ExprText, process: Process) -> str:
    def names(first: int, count: int) -> str:
        run = plan.records(ChannelRef)[first : first + count]
        return ", ".join(plan.string(plan.records(Channel)[r.channel].name) for r in run) or "-"

    consumes = names(process.consumes, process.num_consumes)
    produces = names(process.produces, process.num_produces)
    text = f"{plan.string(process.name)}: entry {process.entry}"
    return f"{text}, replicas {exprs.expr(process.replicas)}, {consumes} -> {produces}"


def _mesh(plan: PlanReader, exprs: ExprText, mesh: Mesh) -> str:
    return f"{plan.string(mesh.name)}: {exprs.exprs(mesh.shape, mesh.rank)}"


def _layout(plan: PlanReader, layout: Layout) -> str:
    dims = plan.records(LayoutDim)[layout.dims : layout.dims + layout.rank]
    shown = ", ".join(f"S({d.mesh_axis})" if d.kind is LayoutKind.SHARD else "R" for d in dims)
    mesh = "" if layout.mesh == NONE else f" on {plan.string(plan.records(Mesh)[layout.mesh].name)}"
    return f"[{shown}]{mesh}"


def _place(plan: PlanReader, place: Place) -> str:
    mesh = plan.string(plan.records(Mesh)[place.mesh].name)
    coordinate = ExprText(plan, Section.SCHEDULE_EXPR).expr(place.coordinate)
    return f"site {place.site} on {mesh}, dimension {place.dim}: {coordinate}"


def _deps(plan: PlanReader, exprs: ExprText, deps: Deps) -> str:
    text = f"site {deps.source} -> site {deps.sink}: {deps.proof.name.lower()}"
    text += f" {deps.hazard.name.lower()}"
    run = plan.records(DepsDistance)[deps.distance : deps.distance + deps.num_distance]
    if run:
        text += f" ({', '.join(_distance(exprs, part) for part in run)})"
    return text if deps.reason == NONE else f"{text}: {plan.deps_string(deps.reason)}"


def _distance(exprs: ExprText, part: DepsDistance) -> str:
    if part.open:
        return "?"
    return str(part.value) if part.expr == NONE else exprs.expr(part.expr)


def _descriptor(plan: PlanReader, exprs: ExprText, field: Descriptor) -> str:
    text = f"{plan.string(field.name)} of site {field.site}: {field.dtype.text}"
    return f"{text} {exprs.expr(field.expr)}"
