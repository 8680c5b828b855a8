"""The result of tracing, and how the results of composed workloads become one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pto_wsp import ir
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError, ExecutionError
from pto_wsp.frontend.captures import Captured
from pto_wsp.frontend.declarations import Declarations, Default, KernelNames
from pto_wsp.frontend.kernels import Kernel
from pto_wsp.host_ends import HostEnd
from pto_wsp.srcloc import SrcLoc


@dataclass(frozen=True, slots=True)
class Traced:
    """A workload as IR, with what cannot travel in it: the kernels, and the default bindings.

    `defaults` maps the names of extents to ints, of arrays to NumPy arrays, of tensors that have
    data to Tensors; `bound` says of the bindings of a graph what they are in its stages.
    """

    module: ir.Module
    kernels: Mapping[str, Kernel]  # by the name of the specialisation in the module
    defaults: dict[str, Default]
    captured: tuple[Captured, ...] = ()
    host_ends: tuple[HostEnd, ...] = ()
    bound: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def check_captured(self, error: type[CompileError | ExecutionError]) -> None:
        """Raises if an array has changed of which the plan has constants."""
        for each in self.captured:
            each.check(error)

    @property
    def callables(self) -> dict[str, Callable[..., None]]:
        """The Python bodies, by kernel name."""
        return {n: k.fn for n, k in self.kernels.items() if k.form is ir.BodyForm.PYTHON}


def merge(form: str, parts: Sequence[Traced], loc: SrcLoc | None) -> Traced:
    """One module of several, without order between them or one after the other."""
    for part in parts:
        if part.module.body and isinstance(part.module.body[-1], ir.Network):
            raise of_a_network(form, loc)
    merged, bodies = merge_parts(parts, loc)
    stmt = ir.Combine(bodies, loc) if form == "combine" else ir.Sequential(bodies, loc)
    return replace(merged, module=replace(merged.module, name=form, body=(stmt,)))


def of_a_network(form: str, loc: SrcLoc | None) -> CompileError:
    return CompileError(
        Code.PROCESS,
        f"{form}(...) of a network",
        loc=loc,
        why="the processes of a program stand beside each other, from its start to its end",
        fix="put the other work into a process of the network",
    )


def merge_parts(parts: Sequence[Traced], loc: SrcLoc | None) -> tuple[Traced, tuple[ir.Body, ...]]:
    """What several modules declare as one, and their bodies: equal names become one declaration,
    equal kernels one kernel. Loop variables need no renaming, since no loop of one part is inside a
    loop of another."""
    declared, kernels = Declarations(), KernelNames[Kernel]()
    bodies: list[ir.Body] = []
    for part in parts:
        for symbol in part.module.symbols:
            declared.add_symbol(symbol, part.defaults.get(symbol.name), loc)
        suffix = f"_{len(bodies) + 1}"
        for tensor in part.module.tensors:
            if tensor.kind is ir.TensorKind.TEMP:  # each part has its own
                tensor = replace(tensor, name=tensor.name + suffix)
            declared.add_tensor(tensor, part.defaults.get(tensor.name), loc)
        renamed = {
            decl.name: kernels.name_of(
                part.kernels[decl.name], replace(decl, name=part.kernels[decl.name].name)
            )
            for decl in part.module.kernels
        }
        temps = {t.name for t in part.module.tensors if t.kind is ir.TensorKind.TEMP}
        bodies.append(_renamed(part.module.body, renamed, temps, suffix))
    module = ir.Module(
        "",
        tuple(declared.symbols.values()),
        tuple(declared.tensors.values()),
        tuple(kernels.decls.values()),
        (),
    )
    captured = tuple(each for part in parts for each in part.captured)
    return Traced(module, kernels.owners, declared.defaults, captured), tuple(bodies)


def _renamed(body: ir.Body, kernels: Mapping[str, str], temps: set[str], suffix: str) -> ir.Body:
    """A part with the kernels of the whole, and labels and temporaries that no other part has."""

    def argument(arg: ir.Argument) -> ir.Argument:
        if isinstance(arg, ir.Region) and arg.tensor in temps:
            return replace(arg, tensor=arg.tensor + suffix)
        return arg

    def rename(stmt: ir.Stmt) -> ir.Stmt:
        match stmt:
            case ir.Call():
                label = None if stmt.label is None else stmt.label + suffix
                after = tuple(replace(a, label=a.label + suffix) for a in stmt.after)
                args = tuple(argument(arg) for arg in stmt.args)
                kernel = kernels[stmt.kernel]
                return replace(stmt, kernel=kernel, args=args, label=label, after=after)
            case ir.Alloc(tensor):
                return replace(stmt, tensor=tensor + suffix)
            case ir.SlotLoad(_, region) if region.tensor in temps:
                return replace(stmt, region=replace(region, tensor=region.tensor + suffix))
            case _:
                return stmt

    return ir.map_stmts(body, rename)
