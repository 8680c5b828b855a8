"""`emit`: a task with its descriptor, of a kernel or of the tier that a value selects."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import zip_longest
from typing import Any, cast

from pto_wsp import columns, srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.frontend.annotations import ScalarParam
from pto_wsp.frontend.conditions import otherwise, when
from pto_wsp.frontend.handles import Handle, OneOf
from pto_wsp.frontend.kernels import IndexedKernel, Kernel, Unsent
from pto_wsp.frontend.scalar_expr import IntLike, SymInt, as_symint
from pto_wsp.frontend.tensor import Element, Tensor
from pto_wsp.frontend.tiers import Selected, Tier
from pto_wsp.frontend.trace import Tracer, current

MAX_FIELDS = 16  # of an emit; a descriptor is some tens of bytes


def emit(
    kernel: Kernel | IndexedKernel | Selected,
    /,
    *args: Any,
    fields: Mapping[str, IntLike] | None = None,
    **kwargs: Any,
) -> Handle:
    """Emits a descriptor: a task of the kernel, or of the tier that was selected. `fields` are up
    to 16 numbers that the descriptor has beside the indices of its loops. Brackets give the task
    its indices, as in a call: `emit(k[i, j], ...)`, `emit(select_tier(t, n)[i, j], ...)`.

    The handle stands for whichever tier is there, for `after=` of later calls.
    """
    tracer = current("emit(...)")
    described = _described(tracer, fields)
    if isinstance(kernel, Kernel):
        return kernel.call((), args, kwargs, described)
    if isinstance(kernel, IndexedKernel):
        return kernel.call(args, kwargs, described)
    if isinstance(kernel, Selected):  # pyright: ignore[reportUnnecessaryIsInstance]
        with tracer.apart():
            return _tiered(kernel, args, kwargs, described)
    raise _error(
        Code.SPACE,
        f"emit({type(kernel).__name__})",
        "a descriptor is for a kernel or for a selected tier",
        "pass a kernel, or select_tier(tiers, value)",
    )


def complete(handle: Handle) -> Handle:
    """A call under a condition has all its arguments: a message that it leaves out would be sent
    whether or not it holds."""
    if isinstance(handle, Unsent):
        raise handle.misses()
    return handle


def _tiered(
    selected: Selected, args: tuple[Any, ...], kwargs: dict[str, Any], fields: dict[str, SymInt]
) -> Handle:
    args, kwargs = _read(selected, args, kwargs)
    found: list[Handle] = []
    for number, variant in enumerate(selected.tiers.tiers):
        with _branch(selected, number):
            given = {**kwargs, **_workspace(variant)}
            described = {columns.TIER: as_symint(number), **fields}
            found.append(complete(variant.kernel.call(selected.indices, args, given, described)))
    return OneOf.of(found)


def _read(
    selected: Selected, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Elements of tensors that are numbers for every tier are read before one is chosen: a value
    that is read in a branch ends with it."""
    params = [variant.kernel.params for variant in selected.tiers.tiers]
    names = [{p.name for p in each if isinstance(p, ScalarParam)} for each in params]
    scalar = names[0].intersection(*names)

    def read(name: str, value: Any) -> Any:
        return as_symint(value) if isinstance(value, Element) and name in scalar else value

    positions = [param.name for param in params[0]]
    given = zip_longest(positions[: len(args)], args, fillvalue="")
    return tuple(read(*each) for each in given), {n: read(n, v) for n, v in kwargs.items()}


def _branch(selected: Selected, number: int) -> AbstractContextManager[None]:
    """Where the calls of a tier stand."""
    if number < len(selected.conditions):
        return when(selected.conditions[number])
    return otherwise() if selected.conditions else nullcontext()


def _workspace(variant: Tier) -> dict[str, Tensor]:
    room = variant.workspace
    if room is None:
        return {}
    name = f"{variant.kernel.name}_workspace"
    return {columns.WORKSPACE: Tensor.temp(room.shape, room.dtype, name=name)}


def _described(tracer: Tracer, fields: Mapping[str, IntLike] | None) -> dict[str, SymInt]:
    """The fields of a descriptor, none of which hides a column that it has anyway."""
    if fields is None:
        return {}
    if not isinstance(fields, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _error(
            Code.DESCRIPTOR,
            f"emit(..., fields={type(fields).__name__})",
            "a field is a number with a name",
            'write fields={"start": c.start, "stop": c.stop}',
        )
    if len(fields) > MAX_FIELDS:
        raise _error(
            Code.DESCRIPTOR,
            f"emit(...) with {len(fields)} fields",
            f"a descriptor has at most {MAX_FIELDS} of them beside its indices",
            "leave out what follows from other fields or from the indices",
        )
    axes = (axis for axis in (loop.column_axis for loop in tracer.loops) if axis is not None)
    loops = columns.of_loops(axes)
    for name in cast("Mapping[object, object]", fields):
        _check_name(name, loops)
    return {name: as_symint(value) for name, value in fields.items()}


def _check_name(name: object, loops: list[str]) -> None:
    if not isinstance(name, str) or not name.isidentifier():
        raise _error(
            Code.DESCRIPTOR,
            f"emit(...) with the field {name!r}",
            "a field has a name, by which its column is asked for",
            'give it one of letters and digits: fields={"start": c.start}',
        )
    if name in columns.RESERVED or name in loops:
        whose = "the index of a loop" if name in loops else "one that descriptors have anyway"
        raise _error(
            Code.DESCRIPTOR,
            f"emit(...) with the field {name!r}",
            f"the column of that name is {whose}",
            "give the field another name",
        )


def _error(code: Code, what: str, why: str, fix: str) -> CompileError:
    return CompileError(code, what, loc=srcloc.here(), why=why, fix=fix)
