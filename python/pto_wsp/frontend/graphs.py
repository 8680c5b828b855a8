"""Graphs: stages that are workloads of their own, and the tensors that pass between them.

A dependence says that what one stage writes is what another one reads. Tasks then wait for the
regions they touch: a decode step waits for the keys of its own sequence, not for all of the stage
before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pto_wsp import ir, srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.frontend.compose import Traced
from pto_wsp.frontend.workloads import Workload, staged
from pto_wsp.srcloc import SrcLoc


@dataclass(frozen=True, slots=True)
class _Dependence:
    """Tensor `reader` of a stage is tensor `writer` of an earlier one: (stage, name)."""

    reader: tuple[str, str]
    writer: tuple[str, str]
    loc: SrcLoc | None


@dataclass(frozen=True, slots=True)
class Graph:
    """`Graph("serve").stage("prefill", p).stage("decode", d).depends("decode.K", "prefill.K")`.
    Immutable: each call gives a new graph; `workload()` is all of it, to be scheduled and
    compiled."""

    name: str
    stages: tuple[tuple[str, Workload], ...] = ()
    dependences: tuple[_Dependence, ...] = ()

    def stage(self, name: str, work: Workload) -> Graph:
        """One stage more. In program order its tasks come after those of the stages before."""
        known = [stage for stage, _ in self.stages]
        if name in known or not name.isidentifier():
            raise _error(f"stage {name!r}", "a stage has a name of its own", "choose another one")
        if not isinstance(work, Workload):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise _error(
                f"stage {name} is {type(work).__name__}",
                "a stage is a workload that has its arguments",
                "call the workload first: decode(DenseDyn(n), ...)",
            )
        if not work.schedule.is_default:
            raise _error(
                f"stage {name} has a schedule: {work.schedule}",
                "a schedule applies to a whole program",
                f"schedule the graph: graph.workload().{work.schedule}",
            )
        return replace(self, stages=(*self.stages, (name, work)))

    def depends(self, reader: str, writer: str) -> Graph:
        """`depends("decode.cache", "prefill.keys")`: what the second stage calls `keys` is what the
        first one calls `cache`. It is bound once, by the name that the writer gives it."""
        read, written = self._named(reader), self._named(writer)
        order = [name for name, _ in self.stages]
        if order.index(read[0]) <= order.index(written[0]):
            raise _error(
                f"{reader} depends on {writer}",
                f"stage {written[0]} does not come before stage {read[0]}",
                "add stages in the order in which they run",
            )
        return replace(
            self, dependences=(*self.dependences, _Dependence(read, written, srcloc.here()))
        )

    def workload(self) -> Workload:
        """All stages as one workload."""
        if not self.stages:
            raise _error(f"graph {self.name} has no stage", "there is no work", "add one")
        return staged(self.name, self._parts)

    def compile(self, target: str = "cpu_sim", **options: Any) -> Any:
        """`workload().compile(...)`."""
        return self.workload().compile(target, **options)

    def _named(self, text: str) -> tuple[str, str]:
        stage, dot, tensor = text.partition(".")
        if dot and tensor and any(stage == name for name, _ in self.stages):
            return stage, tensor
        raise _error(
            f"{text!r} in a dependence",
            f"the stages are {', '.join(name for name, _ in self.stages) or 'none'}",
            'write "stage.tensor"',
        )

    def _parts(self) -> list[Traced]:
        traced = {name: work.traced() for name, work in self.stages}
        names = {name: {t.name: t.name for t in traced[name].module.tensors} for name in traced}
        for each in self.dependences:
            _check(each, traced)
            (reader, theirs), (writer, ours) = each.reader, each.writer
            names[reader] |= _renamed(traced[reader], theirs, names[writer], traced[writer], ours)
        return [_staged(traced[name], name, names[name]) for name in traced]


def _check(dependence: _Dependence, traced: Mapping[str, Traced]) -> None:
    """Both tensors are there, the one is written and the other used."""
    for stage, tensor in (dependence.reader, dependence.writer):
        known = [t.name for t in traced[stage].module.tensors if t.kind is not ir.TensorKind.TEMP]
        if tensor not in known:
            raise _error(
                f"{stage}.{tensor} in a dependence",
                f"stage {stage} has the tensors {', '.join(known) or 'none'}",
                "use one of them",
                dependence.loc,
            )
    stage, tensor = dependence.writer
    if not _writes(traced[stage].module, tensor):
        raise _error(
            f"{'.'.join(dependence.reader)} depends on {stage}.{tensor}",
            f"no task of stage {stage} writes {tensor}: there is nothing to wait for",
            "leave the dependence out, or name what the stage writes",
            dependence.loc,
        )


def _writes(module: ir.Module, tensor: str) -> bool:
    kernels = {kernel.name: ir.given_params(kernel) for kernel in module.kernels}
    return any(
        isinstance(arg, ir.Region)
        and arg.tensor == tensor
        and isinstance(param, ir.ParamDecl)
        and param.mode is not ir.Mode.IN
        for stmt in ir.walk(module.body)
        if isinstance(stmt, ir.Call)
        for param, arg in zip(kernels[stmt.kernel], stmt.args, strict=True)
    )


def _renamed(
    reader: Traced, theirs: str, known: Mapping[str, str], writer: Traced, ours: str
) -> dict[str, str]:
    """New names of the reader's tensor, and of its pool and table if it is paged."""
    found = {theirs: known[ours]}
    read, written = _decl(reader, theirs).pages, _decl(writer, ours).pages
    if read is not None and written is not None:
        found |= {read.pool: known[written.pool], read.table: known[written.table]}
    return found


def _decl(traced: Traced, name: str) -> ir.TensorDecl:
    return next(tensor for tensor in traced.module.tensors if tensor.name == name)


def _staged(traced: Traced, stage: str, names: Mapping[str, str]) -> Traced:
    """A stage with its name on every call, and its tensors under other names."""

    def region(arg: ir.Argument) -> ir.Argument:
        return replace(arg, tensor=names[arg.tensor]) if isinstance(arg, ir.Region) else arg

    def rename(stmt: ir.Stmt) -> ir.Stmt:
        match stmt:
            case ir.Call():
                args = tuple(region(arg) for arg in stmt.args)
                return replace(stmt, args=args, stage=stage)
            case ir.SlotLoad():
                return replace(stmt, region=replace(stmt.region, tensor=names[stmt.region.tensor]))
            case _:
                return stmt

    def shape(expr: ir.Expr) -> ir.Expr:
        is_shape = isinstance(expr, ir.ShapeOf)
        return replace(expr, tensor=names.get(expr.tensor, expr.tensor)) if is_shape else expr

    def declared(tensor: ir.TensorDecl) -> ir.TensorDecl:
        pages = tensor.pages
        if pages is not None:
            pages = replace(pages, pool=names[pages.pool], table=names[pages.table])
        return replace(tensor, name=names[tensor.name], pages=pages)

    module = traced.module
    body = ir.map_exprs(ir.map_stmts(module.body, rename), lambda e: ir.map_expr(e, shape))
    tensors = tuple(declared(tensor) for tensor in module.tensors)
    kept = traced.defaults.items()  # a tensor under another name is what the writer binds
    defaults = {name: value for name, value in kept if names.get(name, name) == name}
    return replace(traced, module=replace(module, body=body, tensors=tensors), defaults=defaults)


def _error(what: str, why: str, fix: str, loc: SrcLoc | None = None) -> CompileError:
    return CompileError(Code.GRAPH, what, loc=loc or srcloc.here(), why=why, fix=fix)
