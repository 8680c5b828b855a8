"""Graphs: stages that are workloads of their own, and what passes between them.

A dependence says that what one stage writes is what another one reads. Tasks then wait for the
regions they touch: a decode step waits for the keys of its own sequence, not for all of the stage
before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pto_wsp import ir, srcloc
from pto_wsp.frontend.compose import Traced
from pto_wsp.frontend.renaming import renamed
from pto_wsp.frontend.stage_names import Dependence, Key, graph_error, name_stages
from pto_wsp.frontend.workloads import Workload, staged


@dataclass(frozen=True, slots=True)
class Graph:
    """`Graph("serve").stage("prefill", p).stage("decode", d).depends("decode.K", "prefill.K")`.
    Immutable: each call gives a new graph; `workload()` is all of it, to be scheduled and
    compiled.

    `execute` binds the names of stages. Equal names of several stages are one binding if they are
    of one type and were given equal values; otherwise each is bound as "stage.name", and a binding
    that several stages have is called by the first of them. `explain()` of the program lists those.
    """

    name: str
    stages: tuple[tuple[str, Workload], ...] = ()
    dependences: tuple[Dependence, ...] = ()
    apart: frozenset[str] = frozenset()

    def stage(self, name: str, work: Workload, *, qualified: bool = False) -> Graph:
        """One stage more. In program order its tasks come after those of the stages before.
        `qualified`: its names are "stage.name" whatever it and the others were given."""
        known = [stage for stage, _ in self.stages]
        if not isinstance(name, str) or name in known or not name.isidentifier():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise graph_error(
                f"stage {name!r}", "a stage has a name of its own", "choose another one"
            )
        if not isinstance(work, Workload):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise graph_error(
                f"stage {name} is {type(work).__name__}",
                "a stage is a workload that has its arguments",
                "call the workload first: decode(DenseDyn(n), ...)",
            )
        if not work.schedule.is_default:
            raise graph_error(
                f"stage {name} has a schedule: {work.schedule}",
                "a schedule applies to a whole program",
                f"schedule the graph: graph.workload().{work.schedule}",
            )
        apart = self.apart | {name} if qualified else self.apart
        return replace(self, stages=(*self.stages, (name, work)), apart=apart)

    def depends(self, reader: str, writer: str) -> Graph:
        """`depends("decode.cache", "prefill.keys")`: what stage decode calls `cache` is what stage
        prefill calls `keys`. It is bound once, by the name that the earliest stage gives it, in
        whatever order dependences are given. Arrays that control reads, axes and scalars of two
        stages become one in the same way."""
        read, written = self._named(reader), self._named(writer)
        order = [name for name, _ in self.stages]
        if order.index(read[0]) <= order.index(written[0]):
            raise graph_error(
                f"{reader} depends on {writer}",
                f"stage {written[0]} does not come before stage {read[0]}",
                "add stages in the order in which they run",
            )
        return replace(
            self, dependences=(*self.dependences, Dependence(read, written, srcloc.here()))
        )

    def workload(self) -> Workload:
        """All stages as one workload."""
        if not self.stages:
            raise graph_error(f"graph {self.name} has no stage", "there is no work", "add one")
        return staged(self.name, self._parts)

    def compile(self, target: str = "cpu_sim", **options: Any) -> Any:
        """`workload().compile(...)`."""
        return self.workload().compile(target, **options)

    def _named(self, name: object) -> Key:
        stage, _, rest = name.partition(".") if isinstance(name, str) else ("", "", "")
        if rest and any(stage == known for known, _ in self.stages):
            return stage, rest
        raise graph_error(
            f"{name!r} in a dependence",
            f"the stages are {', '.join(name for name, _ in self.stages) or 'none'}",
            'write "stage.tensor"',
        )

    def _parts(self) -> tuple[list[Traced], Mapping[str, tuple[str, ...]]]:
        traced = {name: work.traced() for name, work in self.stages}
        for each in self.dependences:
            _check(each, traced)
        names = name_stages(traced, self.dependences, self.apart)
        parts: list[Traced] = []
        for stage, part in traced.items():
            of = {name: new for (where, name), new in names.of.items() if where == stage}
            given = {name for where, name in names.given if where == stage}
            parts.append(renamed(part, stage, of, given))
        return parts, names.bound


def _check(dependence: Dependence, traced: Mapping[str, Traced]) -> None:
    """Both names are there, and a tensor is written."""
    for stage, name in (dependence.reader, dependence.writer):
        known = _names(traced[stage].module)
        if name not in known:
            raise graph_error(
                f"{stage}.{name} in a dependence",
                f"stage {stage} has {', '.join(known) or 'nothing that has a name'}",
                "use one of them",
                dependence.loc,
            )
    stage, tensor = dependence.writer
    module = traced[stage].module
    if any(each.name == tensor for each in module.tensors) and not _writes(module, tensor):
        raise graph_error(
            str(dependence),
            f"no task of stage {stage} writes {tensor}: there is nothing to wait for",
            "leave the dependence out, or name what the stage writes",
            dependence.loc,
        )


def _names(module: ir.Module) -> list[str]:
    tensors = [t.name for t in module.tensors if t.kind is not ir.TensorKind.TEMP]
    return [*tensors, *(symbol.name for symbol in module.symbols)]


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
