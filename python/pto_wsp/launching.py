"""`launch(space, **inputs)`: compiled the first time, run every time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np

from pto_wsp import srcloc
from pto_wsp.driver import compile_workload
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.frontend import (
    Dense,
    DenseDyn,
    PagedTensor,
    Ragged,
    Scalar,
    Space,
    Sparse,
    Tensor,
    WorkloadFunction,
)
from pto_wsp.runtime.program import Program

Key = tuple[object, ...]

_programs: WeakKeyDictionary[WorkloadFunction, dict[Key, Program]] = WeakKeyDictionary()


def launch(
    what: Space | WorkloadFunction,
    /,
    *,
    target: str = "cpu_sim",
    options: dict[str, Any] | None = None,
    **inputs: Any,
) -> Program:
    """Runs the generator of a space, or a workload, on these inputs, and returns its program, whose
    stats, trace and descriptors are those of this run.

    Arrays of floats and of two or more dimensions are tensors, other arrays are read by control,
    and numbers may change from launch to launch: whatever has the same names, dtypes and ranks is
    compiled once. `options` are those of `compile`.
    """
    function = _function(what)
    taken = {name: _argument(value) for name, value in inputs.items()}
    given = options or {}
    key: Key = (target, tuple(sorted(given.items())), *(map(_kind, taken.items())))
    known = _programs.setdefault(function, {})
    program = known.get(key)
    if program is None:
        work = function(**taken)
        program = known[key] = compile_workload(work, target, **given)
        return program.execute()
    return program.execute(**dict(_bindings(taken)))


def _function(what: object) -> WorkloadFunction:
    if isinstance(what, Space) and what.generates is not None:
        return what.generates
    if isinstance(what, WorkloadFunction):
        return what
    named = f"{what!r} has no generator" if isinstance(what, Space) else type(what).__name__
    raise CompileError(
        Code.SPACE,
        f"launch({named})",
        loc=srcloc.here(),
        why="it runs the generator of a space, or a workload function",
        fix="decorate a function with @space.generator, or pass what @workload makes",
    )


def _argument(value: Any) -> Any:
    """An input as a workload takes it."""
    match value:
        case bool() | int() | float():
            return Scalar(value)
        case np.generic():
            return Scalar(cast("Any", value).item())
        case Tensor() | Scalar() | Dense() | DenseDyn() | Ragged() | Sparse():
            return value
        case _ if _is_control(value):
            return value
        case list() | tuple():
            return np.asarray(cast("Any", value), np.int64)
        case _:
            return Tensor(data=value)


def _is_control(value: Any) -> bool:
    if not isinstance(value, np.ndarray):
        return False
    array = cast("np.ndarray[Any, Any]", value)
    return array.ndim == 1 and array.dtype.kind in "iu"


def _kind(named: tuple[str, Any]) -> Key:
    """What a plan depends on."""
    name, value = named
    match value:
        case PagedTensor():
            table = value.table
            return name, "paged", value.dtype, value.rank, table.dtype, value.pool.name, table.name
        case Tensor():
            return name, value.kind, value.dtype, value.rank, value.location, value.layout
        case Scalar():
            return name, "scalar", value.dtype
        case Dense():
            return name, "dense", value.extent
        case np.ndarray():
            array = cast("np.ndarray[Any, Any]", value)
            return name, "array", array.dtype, array.ndim
        case Ragged():
            return name, "ragged", type(value.lengths), type(value.outer)
        case _:
            return name, type(cast(object, value))


def _bindings(taken: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What `execute` gets for the inputs."""
    for name, value in taken.items():
        match value:
            case PagedTensor(pool=pool, table=table):
                yield pool.name or f"{name}_pool", pool.data
                yield table.name or f"{name}_table", table.data
            case Tensor():
                yield name, value.data
            case Scalar():
                yield name, value.value
            case DenseDyn():
                yield name, value.extent
            case Ragged():
                yield name, _data(value.lengths)
            case Sparse():
                yield f"{name}_indptr", _data(value.indptr)
                yield f"{name}_indices", _data(value.indices)
            case Dense():
                pass
            case _:
                yield name, value


def _data(array: Any) -> Any:
    return array.data if isinstance(array, Tensor) else array
