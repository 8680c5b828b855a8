"""Kernels of a plan as something that can be called."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.kernels.compile import compile_unit
from pto_wsp.kernels.compiler import Build
from pto_wsp.kernels.emit_cpp import emit_cpp, emit_sharing, entry_point, scratch_symbol
from pto_wsp.kernels.sharing import ALL_VIEWS, memory_views, views_of_calls, written_views
from pto_wsp.kernels.tile_body import kernel_params, tile_function
from pto_wsp.plan import BodyForm, Plan, Section


@dataclass(frozen=True, slots=True)
class PythonKernel:
    """A kernel that is a Python function of views, called in parameter order."""

    name: str
    fn: Callable[..., None]


@dataclass(frozen=True, slots=True)
class NativeKernel:
    """A kernel that is machine code with the signature `ptowsp_kernel_fn`, which is called with a
    null `user`. `library` keeps the code loaded; `scratch` is how many bytes of it a task needs.

    Sets of views are numbers, with a bit for each. Those of `sharing` may lie in the same memory as
    others of it; any other two must not, where the kernel writes one: it is in `written`. `memory`
    are those that lie anywhere. `made_for(views)` is the same kernel, for these to share as well;
    None if all may."""

    name: str
    address: int
    library: object
    scratch: int = 0
    sharing: int = ALL_VIEWS
    written: int = 0
    memory: int = 0
    made_for: Callable[[int], NativeKernel] | None = None


LoadedKernel: TypeAlias = PythonKernel | NativeKernel


def load_kernels(
    plan: Plan,
    callables: Mapping[str, Callable[..., None]],
    build: Build | None = None,
    *,
    evaluate_tiles: bool = False,
) -> tuple[LoadedKernel, ...]:
    """The kernels of a plan in KERNEL table order. C++ bodies and tile kernels are compiled, unless
    `evaluate_tiles` asks for the NumPy meaning of the latter; Python functions are taken from
    `callables` by kernel name."""
    forms = [_form(plan, index) for index in range(len(plan.kernel_names))]
    missing = [
        index
        for index, form in enumerate(forms)
        if form is BodyForm.PYTHON and plan.kernel_names[index] not in callables
    ]
    if missing:
        raise _missing_error(plan, missing)
    unit = emit_cpp(plan, with_tiles=not evaluate_tiles)
    library = None if unit is None else compile_unit(plan, unit, build or Build())
    shared = views_of_calls(plan)
    loaded: list[LoadedKernel] = []
    for index, (name, form) in enumerate(zip(plan.kernel_names, forms, strict=True)):
        if form is BodyForm.PYTHON:
            loaded.append(PythonKernel(name, callables[name]))
        elif form is BodyForm.TILE_IR and evaluate_tiles:
            loaded.append(PythonKernel(name, tile_function(plan, index)))
        elif form is BodyForm.TILE_IR:
            loaded.append(_tile_kernel(plan, index, library, build or Build(), shared[index]))
        else:
            address, scratch = _address(library, index), _scratch(library, index)
            loaded.append(NativeKernel(name, address, library, scratch))
    return tuple(loaded)


def _tile_kernel(
    plan: Plan, index: int, library: ctypes.CDLL | None, build: Build, views: int
) -> NativeKernel:
    """Of a library in which these views of the kernel may share memory."""
    params = kernel_params(plan, index)

    def made_for(more: int) -> NativeKernel:
        unit = emit_sharing(plan, index, views | more)
        return _tile_kernel(plan, index, compile_unit(plan, unit, build), build, views | more)

    address, scratch = _address(library, index), _scratch(library, index)
    written, memory = written_views(params), memory_views(params)
    if not written or memory.bit_count() < 2 or views == memory:
        return NativeKernel(plan.kernel_names[index], address, library, scratch)
    return NativeKernel(
        *(plan.kernel_names[index], address, library, scratch, views, written, memory), made_for
    )


def _form(plan: Plan, index: int) -> BodyForm:
    """What can be run. A kernel without a body in the plan has to come from the caller."""
    body = plan.body(index)
    form = BodyForm.PYTHON if body is None else BodyForm(body.form)
    if form in (BodyForm.PYTHON, BodyForm.CPP, BodyForm.TILE_IR):
        return form
    raise CompileError(
        Code.TARGET_LIMIT,
        f"kernel {plan.kernel_names[index]!r} has a body of form {form.name}",
        loc=plan.loc(Section.KERNEL, index),
        why="this version runs Python, C++ and tile bodies",
    )


def _address(library: ctypes.CDLL | None, index: int) -> int:
    address = ctypes.cast(getattr(library, entry_point(index)), ctypes.c_void_p).value
    assert address is not None  # getattr has found the symbol
    return address


def _scratch(library: ctypes.CDLL | None, index: int) -> int:
    """What the library says; a body that says nothing needs none."""
    assert library is not None
    try:
        return ctypes.c_uint64.in_dll(library, scratch_symbol(index)).value
    except ValueError:
        return 0


def _missing_error(plan: Plan, missing: list[int]) -> CompileError:
    names = [repr(plan.kernel_names[index]) for index in missing]
    example = ", ".join(
        f"{plan.kernel_names[index]!r}: {_function_name(plan, index)}" for index in missing
    )
    return CompileError(
        Code.KERNEL_MISSING,
        f"no Python function was given for {'kernel' if len(names) == 1 else 'kernels'} "
        + ", ".join(names),
        loc=plan.loc(Section.KERNEL, missing[0]),
        why="a plan carries the names of Python kernels, not their code",
        fix=f"pass kernels={{{example}}}",
    )


def _function_name(plan: Plan, index: int) -> str:
    """How the function was called where the plan was made."""
    body = plan.body(index)
    qualified = plan.kernel_names[index] if body is None else body.data.decode(errors="replace")
    return qualified.rpartition(".")[2] or plan.kernel_names[index]
