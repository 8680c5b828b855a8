"""A plan as text: every table, the code indented by nesting, the schedule.

The text depends on the bytes alone, so it can be kept as a golden file.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from pto_wsp.dtypes import DType
from pto_wsp.plan.codetext import CodeText, callee_name
from pto_wsp.plan.debug import read_string
from pto_wsp.plan.enums import (
    NONE,
    Affinity,
    ArgTag,
    DepsPolicy,
    DepthScope,
    Directive,
    DispatchPolicy,
    OnFull,
    OrderPolicy,
    ParamKind,
    PoolPolicy,
    ReadyPolicy,
    ScalarType,
    Section,
    StartPolicy,
    StorageClass,
    SymbolKind,
    TaskKind,
    TimingPolicy,
    TracePolicy,
    WindowMode,
    WindowUnit,
)
from pto_wsp.plan.exprtext import ExprText, bits_text, slot_name, table
from pto_wsp.plan.reader import PlanReader
from pto_wsp.plan.records import (
    Alloc,
    Const,
    Dim,
    Kernel,
    Param,
    ScheduleArg,
    ScheduleEntry,
    Site,
    Slot,
    Storage,
    Symbol,
    Tensor,
    Tier,
    TierSet,
)
from pto_wsp.plan.tabletext import distributed_tables

_WRITTEN = 1
_FLOATS = frozenset({DType.F64, DType.F32, DType.F16, DType.BF16})
_POLICIES: dict[Directive, tuple[type[IntEnum] | None, ...]] = {
    Directive.DEPS: (DepsPolicy,),
    Directive.READY: (ReadyPolicy,),
    Directive.START: (StartPolicy,),
    Directive.WINDOW: (None, WindowUnit, WindowMode),
    Directive.TRACE: (TracePolicy,),
    Directive.DISPATCH: (DispatchPolicy,),
    Directive.DISPATCH_THRESHOLD: (None, None, DispatchPolicy),
    Directive.AFFINITY: (None, Affinity),
    Directive.TIMING: (TimingPolicy,),
    Directive.POOLS: (PoolPolicy,),
    Directive.PIPELINE_DEPTH: (None, DepthScope, OnFull),
    Directive.ORDER: (None, OrderPolicy),
}


def directive_texts(plan: PlanReader) -> list[str]:
    """The directives of a plan's schedule, in order, without their positions."""
    writer = _Disassembly(plan)
    entries = plan.records(ScheduleEntry)
    return [writer.directive(entry) for entry in entries]


def disassemble(plan: PlanReader) -> str:
    """The whole plan as text."""
    return _Disassembly(plan).text()


class _Disassembly:
    def __init__(self, plan: PlanReader) -> None:
        self._plan = plan
        self._exprs = ExprText(plan)

    def text(self) -> str:
        plan = self._plan
        features = ", ".join(sorted(f.name.lower() for f in plan.features)) or "none"
        lines = [f"plan {plan.plan_id}", f"schedule {plan.schedule_id}", f"features {features}"]
        lines += table([self._symbol(s, i) for i, s in enumerate(plan.records(Symbol))], "symbols")
        lines += table([self._tensor(t) for t in plan.records(Tensor)], "tensors")
        lines += table([self._alloc(a) for a in plan.records(Alloc)], "allocs")
        lines += table([self._slot(i) for i in range(len(plan.records(Slot)))], "slots")
        lines += table([self._kernel(k, i) for i, k in enumerate(plan.records(Kernel))], "kernels")
        lines += table([self._tier_set(t) for t in plan.records(TierSet)], "tiers")
        lines += table([self._site(s, i) for i, s in enumerate(plan.records(Site))], "sites")
        lines += distributed_tables(plan, self._exprs)
        lines += CodeText(plan).lines()
        rows = [self._directive(d, i) for i, d in enumerate(plan.records(ScheduleEntry))]
        lines += table(rows, "schedule")
        return "\n".join(lines) + "\n"

    def _where(self, section: Section, index: int) -> str:
        place = self._plan.debug_loc(section, index)
        return "" if place is None else f"  # {place}"

    def _symbol(self, symbol: Symbol, index: int) -> str:
        name = self._plan.string(symbol.name)
        text = f"{name}: {symbol.kind.name.lower()} {symbol.dtype.text}"
        if symbol.rank:
            text += f" rank {symbol.rank}"
        if symbol.flags & _WRITTEN:
            text += ", written"
        if symbol.kind is not SymbolKind.TENSOR and symbol.dtype not in _FLOATS:
            text += f", {symbol.min_value}..{symbol.max_value}"
        if symbol.default_value != NONE:
            bits = self._plan.records(Const)[symbol.default_value].bits
            kind = ScalarType.F64 if symbol.dtype in _FLOATS else ScalarType.I64
            text += f", default {bits_text(bits, kind)}"
        return text + self._where(Section.SYMBOL, index)

    def _tensor(self, tensor: Tensor) -> str:
        plan = self._plan
        storage = plan.records(Storage)[tensor.storage]
        dims = plan.records(Dim)[tensor.dims : tensor.dims + tensor.rank]
        shape = ", ".join("?" if d.shape == NONE else self._exprs.expr(d.shape) for d in dims)
        text = f"{plan.string(tensor.name)}: {tensor.dtype.text}[{shape}]"
        text += f" {storage.storage_class.name.lower()} storage {tensor.storage}"
        if tensor.location:
            text += f" in {tensor.location.name.lower()}"
        if storage.alloc != NONE:
            text += f", alloc {storage.alloc}"
        if storage.storage_class is StorageClass.PAGED:
            names = [plan.string(plan.records(Tensor)[t].name) for t in (tensor.pool, tensor.table)]
            text += f", pages of {self._exprs.expr(tensor.page)} in {names[0]} by {names[1]}"
        if tensor.layout != NONE:
            text += f", layout {tensor.layout}"
        strides = [d.stride for d in dims]
        if any(stride != NONE for stride in strides):
            shown = ("?" if node == NONE else self._exprs.expr(node) for node in strides)
            text += f", strides ({', '.join(shown)})"
        return text

    def _alloc(self, alloc: Alloc) -> str:
        text = f"{self._exprs.expr(alloc.size)} bytes, align {alloc.align}, level {alloc.level}"
        text += f", copies {alloc.copies}"
        return text if alloc.cap == NONE else f"{text}, cap {self._exprs.expr(alloc.cap)}"

    def _slot(self, index: int) -> str:
        slot = self._plan.records(Slot)[index]
        return f"{slot_name(self._plan, index)}: {slot.type.name.lower()}, level {slot.level}"

    def _kernel(self, kernel: Kernel, index: int) -> str:
        params = self._plan.records(Param)[kernel.params : kernel.params + kernel.num_params]
        text = f"{self._plan.string(kernel.name)}({', '.join(self._param(p) for p in params)})"
        for what, value in (("unit", kernel.exec_unit), ("domain", kernel.domain)):
            if value:
                text += f", {what} {value.name.lower()}"
        if kernel.block_dim != 1:
            text += f", {kernel.block_dim} cores"
        for what, node in (("scratch", kernel.scratch), ("cost", kernel.cost)):
            if node != NONE:
                text += f", {what} {self._exprs.expr(node)}"
        if kernel.flags:
            text += ", deterministic"
        body = self._plan.body(index)
        if body is not None:
            text += f" ; {body.form.name.lower()} body of {len(body.data)} bytes"
        return text + self._where(Section.KERNEL, index)

    def _param(self, param: Param) -> str:
        name, dtype = self._plan.string(param.name), param.dtype.text
        match param.kind:
            case ParamKind.TENSOR | ParamKind.TILE | ParamKind.PAGED | ParamKind.TOKEN:
                mode = {1: "in", 2: "out", 3: "inout", 7: "accum"}[param.mode]
                shape = self._exprs.exprs(param.shape, param.shape_rank) or f"rank {param.rank}"
                seen = {ParamKind.PAGED: "paged ", ParamKind.TOKEN: "token "}.get(param.kind, "")
                return f"{name}: {mode} {seen}{dtype} {shape}"
            case ParamKind.SCALAR:
                return f"{name}: {dtype}"
            case ParamKind.CONSTEXPR:
                return f"{name}: constexpr {dtype} {bits_text(param.value, ScalarType.I64)}"

    def _tier_set(self, tiers: TierSet) -> str:
        parts: list[str] = []
        for tier in self._plan.records(Tier)[tiers.tiers : tiers.tiers + tiers.num_tiers]:
            kernel = self._plan.kernel_names[tier.kernel]
            space = "" if tier.workspace == NONE else f" with alloc {tier.workspace}"
            when = "" if tier.predicate == NONE else f" if {self._exprs.expr(tier.predicate)}"
            parts.append(f"{kernel}{space}{when}")
        return f"{self._plan.string(tiers.name)}: {', else '.join(parts)}"

    def _site(self, site: Site, index: int) -> str:
        kind = "collective " if site.kind is TaskKind.COLLECTIVE else ""
        text = f"{kind}{callee_name(self._plan, site)} at {site.pc}, level {site.level}"
        if site.axis != NONE:
            text += f", axis {site.axis}"
        text += f", path {site.path_hash:016x}"
        if site.tags:
            text += f", tags {site.tags:#x}"
        if site.stage != NONE:
            text += f", stage {site.stage}"
        return text + self._where(Section.SITE, index)

    def _directive(self, entry: ScheduleEntry, index: int) -> str:
        return self.directive(entry) + self._where(Section.SCHEDULE, index)

    def directive(self, entry: ScheduleEntry) -> str:
        args = self._plan.records(ScheduleArg)[entry.args : entry.args + entry.num_args]
        policies = _POLICIES.get(entry.id, ())
        shown = [
            self._argument(arg, policies[i] if i < len(policies) else None)
            for i, arg in enumerate(args)
        ]
        version = "" if entry.version == 1 else f" version {entry.version}"
        return f"{entry.id.name.lower()}({', '.join(shown)}){version}"

    def _argument(self, arg: ScheduleArg, policy: type[IntEnum] | None) -> str:
        match arg.tag:
            case ArgTag.INT:
                values = {} if policy is None else {int(v): v.name.lower() for v in policy}
                return values.get(arg.bits, bits_text(arg.bits, ScalarType.I64))
            case ArgTag.FLOAT:
                return repr(struct.unpack("<d", struct.pack("<Q", arg.bits))[0])
            case ArgTag.STRING:
                return repr(read_string(self._plan.blob(Section.SCHEDULE_STRING), arg.bits))
            case ArgTag.EXPR:
                return ExprText(self._plan, Section.SCHEDULE_EXPR).expr(arg.bits)
            case ArgTag.NONE:
                return "none"
