"""From a workload to a program: the order of the stages, in one place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from pto_wsp import ir, srcloc
from pto_wsp.backends import registry
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError, ExecutionError, ScheduleError
from pto_wsp.frontend import TracePolicy, Workload
from pto_wsp.kernels import Build, LoadedKernel, load_kernels
from pto_wsp.options import ENABLE_DEBUG, ENABLE_PROFILING, OPTIMIZATION_LEVEL, VERIFY, check_known
from pto_wsp.passes import lower
from pto_wsp.passes import run as run_passes
from pto_wsp.passes.pipeline import PASSES
from pto_wsp.plan import Channel, Plan
from pto_wsp.runtime.bindings import Bound
from pto_wsp.runtime.engine import SingleRunner, TaskDump, Verifier
from pto_wsp.runtime.program import Program, register_loader

_REFERENCE = "reference"  # tile kernels run there as NumPy: their meaning
_CUDA = "cuda"  # makes its own code of them
_TRACE_CAPACITY = 1 << 22  # events of each worker, where the user asks for no trace

# A workload is immutable, so it has one plan; compiling it again only loads that.
_plans: WeakKeyDictionary[Workload, Plan] = WeakKeyDictionary()


def compile_workload(workload: Workload, target: str = "cpu_sim", **options: object) -> Program:
    """Traces, checks and lowers a workload, and loads it on a target.

    The cost depends on the size of the program text, never on extents. `target="auto"` takes the
    first target that runs the program. `pto_wsp.options` has the table of options.
    """
    if ENABLE_PROFILING.of(options) and workload.schedule.trace is None:
        workload = workload.task_graph(trace=TracePolicy.timestamps())
    traced = workload.traced()
    traced.check_captured(CompileError)
    plan = _plans.get(workload)
    if plan is None:
        plan = _plans[workload] = _checked(lower(run_passes(traced.module)))
    program = load(plan, target, traced.callables, options, traced.defaults)
    program.add_ports(traced.host_ends)
    program.name_stages(traced.bound)
    policy = workload.schedule.trace
    if policy is not None and policy.path is not None:
        program.trace_to(_trace_path(policy.path))
    if traced.captured:
        program.check_before_runs(partial(traced.check_captured, ExecutionError))
    return program


def _checked(plan: Plan) -> Plan:
    """A plan whose network, if it is one, may come to its end."""
    if plan.records(Channel):
        from pto_wsp.backends.reference import liveness

        liveness.check_liveness(plan)
    return plan


def compile_kernel(decl: ir.KernelDecl) -> LoadedKernel:
    """The machine code of one kernel, as a program that has no other one would load it."""
    plan = lower(ir.Module(decl.name, (), (), (decl,), ()))
    (loaded,) = load_kernels(plan, {}, _build({}))
    return loaded


def _trace_path(path: Path) -> Path:
    if path.absolute().parent.is_dir():
        return path
    raise ScheduleError(
        Code.DIRECTIVE_VALUE,
        f"TracePolicy with path={str(path)!r}",
        loc=srcloc.here(),
        why=f"there is no folder {str(path.absolute().parent)!r}",
        fix="make the folder first, or name another one",
    )


def stage_text(workload: Workload, stage: str, *, locs: bool = False) -> str:
    """A workload after a stage of the compiler: "trace", the name of a pass, or "lower"."""
    module = workload.traced().module
    names = [step.name for step in PASSES]
    if stage == "lower":
        return lower(run_passes(module)).disassemble()
    count = 0 if stage == "trace" else names.index(stage) + 1
    return ir.to_text(run_passes(module, PASSES[:count]), locs=locs)


def load(
    plan: Plan,
    target: str,
    callables: Mapping[str, Callable[..., Any]],
    options: Mapping[str, object],
    defaults: Mapping[str, object] | None = None,
) -> Program:
    """A plan on a target, with its kernels compiled."""
    chosen = ""
    if target == registry.AUTO:
        target, chosen = registry.choose(plan, options)
    backend = registry.get(target)
    check_known(options, target, backend.options)
    build = _build(options)
    verify = VERIFY.of(options)
    if verify == "schedule":
        plan = plan.with_trace(_TRACE_CAPACITY)
    backend.check(plan)
    tiles = target in (_REFERENCE, _CUDA)
    kernels = load_kernels(plan, callables, build, evaluate_tiles=tiles)
    engine = backend.load(plan, kernels, options)
    return Program(
        plan,
        engine,
        target=target,
        chosen=chosen,
        defaults=defaults,
        single=_single(plan, kernels),
        verifier=None if verify is None else _verifier(plan, kernels, full=verify == "full"),
        depths=partial(_min_depths, plan),
    )


def _min_depths(plan: Plan, bindings: tuple[Bound, ...]) -> dict[str, int]:
    from pto_wsp.backends.reference import liveness

    registry.get("reference").check(plan)
    return liveness.min_depths(plan, bindings)


def _verifier(plan: Plan, kernels: tuple[LoadedKernel, ...], *, full: bool) -> Verifier:
    """The reference knows what a program means, whatever the target."""
    from pto_wsp.backends.reference import verify

    registry.get("reference").check(plan)
    return partial(verify.verify_full if full else verify.prepare_replay, plan, kernels)


def _build(options: Mapping[str, object]) -> Build:
    debug, level = ENABLE_DEBUG.of(options), OPTIMIZATION_LEVEL.of(options)
    if debug and OPTIMIZATION_LEVEL.name not in options:
        level = 0
    return Build(level, debug)


def _single(plan: Plan, kernels: tuple[LoadedKernel, ...]) -> SingleRunner:
    """What runs one task of a plan alone, whatever the target: the reference knows what it is."""

    def run(
        bindings: tuple[Bound, ...],
        kernel: str,
        indices: tuple[int, ...],
        named: Mapping[str, int],
        *,
        line: int | None,
        site: int | None,
        path: Path | None,
    ) -> TaskDump:
        from pto_wsp.backends import reference

        registry.get("reference").check(plan)
        bound = reference.BoundPlan(plan, bindings)
        call, at = reference.choose_task(bound, kernel, indices, named, line=line, site=site)
        return reference.run_task(bound, kernels, call, at, path)

    return run


def _load_plan(
    plan: Plan,
    *,
    kernels: Mapping[str, Callable[..., Any]],
    target: str,
    options: Mapping[str, object],
) -> Program:
    if ENABLE_PROFILING.of(options):
        raise CompileError(
            Code.TARGET_OPTION,
            f"{ENABLE_PROFILING.name} of a plan",
            loc=srcloc.here(),
            why="the schedule, and with it the trace policy, is part of the plan",
            fix="trace the workload: .task_graph(trace=TracePolicy.timestamps())",
        )
    # A decorated kernel is accepted as well as the bare function.
    bodies = {name: getattr(fn, "fn", fn) for name, fn in kernels.items()}
    return load(_checked(plan), target, bodies, options)


register_loader(_load_plan)
