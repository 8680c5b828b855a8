"""`launch(space, **inputs)`: compiled the first time, run every time."""

from __future__ import annotations

import copy
import inspect
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np

from pto_wsp import srcloc
from pto_wsp.driver import compile_workload
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError, TypeCheckError
from pto_wsp.frontend import (
    Dense,
    DenseDyn,
    PagedTensor,
    Ragged,
    Scalar,
    Space,
    Sparse,
    Tensor,
    Tiled,
    Token,
    WorkloadFunction,
)
from pto_wsp.frontend.trace import refuse_inside_workload
from pto_wsp.runtime.program import Program
from pto_wsp.sharing import NotShared, share

Key = tuple[object, ...]
MAX_PROGRAMS = 16  # that are kept of a space or a workload


class _Kept:
    """The programs of a space or workload that were launched last. A closed one is none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._programs: OrderedDict[Key, Program] = OrderedDict()

    def get(self, key: Key, make: Callable[[], Program]) -> Program:
        """Whoever wants one that is being compiled waits for it."""
        with self._lock:
            program = self._programs.pop(key, None)
            if program is None or program.closed:
                program = make()
            self._programs[key] = program
            if len(self._programs) > MAX_PROGRAMS:
                self._programs.popitem(last=False)
            return program


_kept: WeakKeyDictionary[WorkloadFunction, _Kept] = WeakKeyDictionary()
_keeping = threading.Lock()


def launch(
    what: Space | WorkloadFunction,
    /,
    *,
    target: str = "cpu_sim",
    options: Mapping[str, Any] | None = None,
    **inputs: Any,
) -> Program:
    """Runs the generator of a space, or a workload, on these inputs, and returns its program, whose
    stats, trace and descriptors are those of this run.

    Arrays of integers with one dimension, of NumPy, torch or others, and lists of integers are read
    by control; other arrays are tensors, and numbers may change from launch to launch: whatever has
    the same names, dtypes, ranks and axes is compiled once. The 16 programs that were launched last
    are kept for each space or workload; one that is closed is compiled anew. `options` are those of
    `compile`.
    """
    refuse_inside_workload("launch(...)", "call the generator or the workload itself")
    function = _function(what)
    given = _options(options)
    taken = {name: _argument(name, value) for name, value in inputs.items()}
    names = {id(value): name for name, value in taken.items()}
    named = (*((name, repr(value)) for name, value in sorted(given.items())), repr(target))
    kinds = ((name, *_kind(value, names)) for name, value in taken.items())
    program = _programs_of(function).get(
        (named, *kinds), lambda: compile_workload(function(**taken), target, **given)
    )
    return program.execute(**dict(_bindings(taken, names)))


def _programs_of(function: WorkloadFunction) -> _Kept:
    known = _kept.get(function)
    if known is not None:
        return known
    for name in ("target", "options"):
        if name in inspect.signature(function.function).parameters:
            raise CompileError(
                Code.SPACE,
                f"launch(...) of a workload that has an input {name}",
                loc=srcloc.here(),
                why=f"launch has a parameter of that name: {name}= would be taken for it",
                fix="call the input otherwise, or compile by hand: work(...).compile()",
            )
    with _keeping:
        return _kept.setdefault(function, _Kept())


def _function(what: object) -> WorkloadFunction:
    function = what.generates if isinstance(what, Space) else what
    if isinstance(function, WorkloadFunction):
        return function
    named = f"{what!r} has no generator" if isinstance(what, Space) else type(what).__name__
    raise CompileError(
        Code.SPACE,
        f"launch({named})",
        loc=srcloc.here(),
        why="it runs the generator of a space, or a workload function",
        fix="decorate a function with @space.generator, or pass what @workload makes",
    )


def _options(options: object) -> dict[str, Any]:
    names = cast("Mapping[object, object]", options) if isinstance(options, Mapping) else None
    if options is None or (names is not None and all(isinstance(name, str) for name in names)):
        return dict(cast("Mapping[str, Any]", options or {}))
    raise CompileError(
        Code.TARGET_OPTION,
        f"launch(..., options={options!r})",
        loc=srcloc.here(),
        why="they are those of compile(...), by name",
        fix='write options={"num_threads": 4}',
    )


# --- inputs ---


def _argument(name: str, value: Any) -> Any:
    """An input as a workload takes it."""
    match value:
        case None:
            raise _wrong(name, "is None", "pass an array, a number, a Tensor or an axis")
        case bool() | int() | float():
            return Scalar(value)
        case np.generic():
            return Scalar(cast("Any", value).item())
        case Tensor():
            return _tensor(name, value)
        case Scalar() | Dense() | DenseDyn() | Ragged() | Sparse() | Tiled():
            return value
        case list() | tuple():
            return _integers(name, cast("list[Any]", value))
        case _:
            control = _control(value)
            return _shared(name, value) if control is None else control


def _tensor(name: str, value: Tensor) -> Tensor:
    """A tensor with its data, and the parts of a paged one with names."""
    if isinstance(value, PagedTensor):
        named = copy.copy(value)
        named.pool = _tensor(name, value.pool.named(f"{name}_pool"))
        named.table = _tensor(name, value.table.named(f"{name}_table"))
        return named
    if value.data is None and not isinstance(value, Token):
        fix = "write Tensor(data=array), or pass the array itself"
        raise _wrong(name, "is a Tensor without data", fix)
    return value


def _integers(name: str, value: list[Any] | tuple[Any, ...]) -> Any:
    """A list that control reads; of lists, if it has two dimensions."""
    try:
        array = np.asarray(value)
    except ValueError:
        raise _wrong(name, "holds lists of different lengths", _LISTS) from None
    if array.size == 0:
        return array.astype(np.int64)
    if array.dtype.kind != "i" or array.ndim > 2 or _holds_bool(value):
        raise _wrong(name, f"is a list of {_element(value)}", _LISTS)
    return array.astype(np.int64)


def _holds_bool(value: Iterable[Any]) -> bool:
    return any(
        _holds_bool(cast("list[Any]", each))
        if isinstance(each, list | tuple)
        else isinstance(each, bool | np.bool_)
        for each in value
    )


def _element(value: Any) -> str:
    """The first thing in a list that is no integer of 64 bits."""
    for each in value:
        if isinstance(each, list | tuple):
            return f"lists of {_element(cast('list[Any]', each))}"
        if isinstance(each, bool) or not isinstance(each, int | np.integer):
            return type(each).__name__
    return "integers that do not fit 64 bits"


def _control(value: Any) -> np.ndarray[Any, Any] | None:
    """What control reads of an array: integers with one dimension, in the memory of the host."""
    try:
        array = share(value)
    except NotShared:
        return None
    return array if array.ndim == 1 and array.dtype.kind in "iu" else None


def _shared(name: str, value: Any) -> Tensor:
    try:
        return Tensor(data=value)
    except TypeCheckError as error:
        what = f"input {name}: {error.message}"
        raise TypeCheckError(
            error.code, what, loc=error.loc, why=error.why, fix=error.fix
        ) from None


def _wrong(name: str, what: str, fix: str) -> CompileError:
    return CompileError(
        Code.WORKLOAD_ARGUMENT,
        f"input {name} {what}",
        loc=srcloc.here(),
        why="a launch takes arrays, integers for control, numbers, Tensors and axes",
        fix=fix,
    )


_LISTS = "pass a list of integers, or an array: np.array([0.5, 1.5]) is a tensor"


# --- what a plan depends on ---


def _kind(value: object, names: Mapping[int, str]) -> Key:
    """What a plan depends on: never values, but for those that are its constants."""
    match value:
        case Scalar():
            return "scalar", value.dtype
        case np.ndarray():
            array = cast("np.ndarray[Any, Any]", value)
            return "array", array.dtype, array.ndim
        case PagedTensor():
            parts = (_kind(value.pool, names), _kind(value.table, names))
            return ("paged", value.page, value.name, *parts)
        case Token():
            return "token", value.shape, value.name
        case Tensor():
            given = value.location, value.layout, value.origin is None
            return "tensor", value.dtype, value.rank, value.name, names.get(id(value)), *given
        case Dense():
            return "dense", value.extent
        case Ragged():
            return "ragged", names.get(id(value.outer)), _kind(value.lengths, names)
        case Sparse():
            arrays = (_kind(value.indptr, names), _kind(value.indices, names))
            return ("sparse", names.get(id(value.outer)), *arrays)
        case Tiled():
            size = value.size if isinstance(value.size, int) else names.get(id(value.size))
            inner = names.get(id(value.axis)), _kind(value.axis, names)
            return "tiled", size, value.pad_last, *inner
        case _:
            return (type(value),)


# --- what a run gets ---


def _bindings(taken: Mapping[str, Any], names: Mapping[int, str]) -> Iterator[tuple[str, Any]]:
    """Everything that a launch binds, by the names that the program has for it."""
    for name, value in taken.items():
        match value:
            case Scalar():
                yield name, value.value
            case PagedTensor():
                yield from (_array("", part, names) for part in (value.pool, value.table))
            case Token() | Dense():
                pass
            case DenseDyn():
                yield name, value.extent
            case Ragged():
                yield _array(name, value.lengths, names)
            case Sparse():
                yield _array(f"{name}_indptr", value.indptr, names)
                yield _array(f"{name}_indices", value.indices, names)
            case Tiled() if isinstance(value.axis, DenseDyn) and id(value.axis) not in names:
                yield name, value.axis.extent
            case Tiled():
                pass
            case _:
                yield _array(name, value, names)


def _array(name: str, value: Any, names: Mapping[int, str]) -> tuple[str, Any]:
    """A tensor has its own name, or that of the input that it is."""
    if isinstance(value, Tensor):
        return value.name or names.get(id(value), name), value.data
    return name, value
