"""NumPy arrays that a workload reads without being given them.

Tracing runs the workload once, so a number that it takes from an array outside of it, such as
`P(int(lens[0]))`, is fixed in the plan. Such arrays are remembered with what they held, and
compared before each compile and each run: a change that a run would not see is an error.

Which arrays those are is read from the code of the function and of the functions it calls: NumPy
tells nobody who reads an element. Uses of the shape or dtype alone do not count.
"""

from __future__ import annotations

import dis
import inspect
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from pto_wsp import srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError, ExecutionError
from pto_wsp.frontend.kernels import Kernel
from pto_wsp.frontend.memory import same_memory
from pto_wsp.frontend.names import is_subscript, stored_attributes
from pto_wsp.frontend.tensor import Tensor
from pto_wsp.srcloc import SrcLoc

Array = npt.NDArray[Any]
Instructions = list[dis.Instruction]

_LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_FAST")  # and their variants
_ATTRIBUTES = frozenset(("LOAD_ATTR", "LOAD_METHOD"))
_METADATA = frozenset(("shape", "ndim", "dtype", "size", "itemsize", "nbytes", "strides"))
# Functions of installed packages read arrays of their own, not those of the workload.
_LIBRARIES = (
    srcloc.PACKAGE_DIR,
    *{sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")},
)


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """An array that was read while a workload was traced, and what it held then."""

    name: str
    array: Array
    held: tuple[tuple[int, ...], bytes]
    loc: SrcLoc | None

    def check(self, error: type[CompileError | ExecutionError]) -> None:
        """Raises if the array holds something else by now."""
        if _held(self.array) == self.held:
            return
        raise error(
            Code.ARRAY_CHANGED,
            f"array {self.name} has changed since the workload was traced",
            loc=self.loc,
            why="what was read from it here is a constant of the plan, and would be out of date",
            fix=f"make {self.name} a parameter of the workload, which is read in each run, or call "
            "the workload again and compile that",
        )


def captured_arrays(function: FunctionType, tensors: Iterable[Tensor]) -> tuple[Captured, ...]:
    """The arrays outside a workload function whose values it reads. `tensors` are those that it
    uses: one that it makes itself shares its array with the tasks and reads none of it."""
    reader = _Reader()
    reader.function(function)
    code = function.__code__
    lines = [line for *_, line in code.co_lines() if line is not None]
    inside = range(min(lines, default=0), max(lines, default=0) + 1)
    shared = [
        tensor.data
        for tensor in tensors
        if tensor.data is not None
        and tensor.loc is not None
        and tensor.loc.file == code.co_filename
        and tensor.loc.line in inside
    ]
    return tuple(
        Captured(name, array, _held(array), loc)
        for name, array, loc in reader.found.values()
        if not any(same_memory(array, other) for other in shared)
    )


def _held(array: Array) -> tuple[tuple[int, ...], bytes]:
    return array.shape, array.tobytes()


class _Reader:
    """Walks code for names that lead to arrays, following the functions that it calls."""

    def __init__(self) -> None:
        self.found: dict[int, tuple[str, Array, SrcLoc | None]] = {}  # by identity of the array
        self._seen: set[tuple[FunctionType, int]] = set()

    def function(self, function: FunctionType, *bound: object) -> None:
        """A function; `bound` is the first argument of a method."""
        code, key = function.__code__, (function, id(bound[0]) if bound else 0)
        if code.co_filename.startswith(_LIBRARIES) or key in self._seen:
            return
        self._seen.add(key)
        cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
        names = {name: cell.cell_contents for name, cell in cells if _is_set(cell)}
        self._code(code, {**function.__globals__, **names}, bound)

    def _code(
        self, code: CodeType, names: Mapping[str, object], bound: tuple[object, ...] = ()
    ) -> None:
        own = {*code.co_varnames, *code.co_cellvars}
        visible = {name: value for name, value in names.items() if name not in own}
        visible.update(zip(code.co_varnames, bound, strict=False))
        instructions = list(dis.get_instructions(code))
        for at, instruction in enumerate(instructions):
            if instruction.opname.startswith(_LOADS) and instruction.argval in visible:
                self._use(code, instructions, at, visible[instruction.argval])
        for nested in code.co_consts:
            if isinstance(nested, CodeType):
                self._code(nested, visible)

    def _use(self, code: CodeType, instructions: Instructions, at: int, value: object) -> None:
        """A name at one place, with the attributes that follow it."""
        first, (at, value) = at, _followed(instructions, at, value)
        name = ".".join(str(i.argval) for i in instructions[first : at + 1])
        if isinstance(value, MethodType) and isinstance(value.__func__, FunctionType):
            self.function(value.__func__, value.__self__)
        elif (called := _called(value)) is not None:
            self.function(called)
        for array in _arrays(value):
            if not _is_metadata(instructions, at, inside=array is not value):
                loc = srcloc.of_instruction(code, instructions[first].offset)
                self.found.setdefault(id(array), (name, array, loc))


def _followed(instructions: Instructions, at: int, value: object) -> tuple[int, object]:
    """The value behind the attributes of a value, up to an array, and where that is."""
    for following in instructions[at + 1 :]:
        if following.opname not in _ATTRIBUTES or isinstance(value, np.ndarray):
            break
        value, at = _attribute(value, following.argval), at + 1
    return at, cast(object, value)


def _called(value: object) -> FunctionType | None:
    """What runs while the workload is traced when this is called: a function, or the one that a
    @workload holds. A kernel does not run."""
    if isinstance(value, FunctionType):
        return value
    if isinstance(value, Kernel):
        return None
    wrapped = stored_attributes(value, ("__wrapped__",))
    return next((found for _, found in wrapped if isinstance(found, FunctionType)), None)


def _arrays(value: object) -> Sequence[Array]:
    """The value if it is an array, or the arrays that a list, tuple or dictionary holds."""
    if isinstance(value, dict):
        value = list(cast("dict[object, object]", value).values())
    items = cast("Sequence[object]", value) if isinstance(value, list | tuple) else (value,)
    return [cast(Array, item) for item in items if isinstance(item, np.ndarray)]


def _attribute(owner: object, name: str) -> object:
    """An attribute, if it can be read without running code; None otherwise."""
    if isinstance(owner, Tensor) and name == "data":
        return owner.data
    for _, value in stored_attributes(owner, (name,)):
        return value
    method = inspect.getattr_static(type(owner), name, None)
    return MethodType(method, owner) if isinstance(method, FunctionType) else None


def _is_metadata(instructions: Instructions, at: int, *, inside: bool) -> bool:
    """Whether only the shape or the like is read of the value that instruction `at` leaves, or of
    an element of it that is chosen next."""
    if _is_argument_of_len(instructions, at):
        return True
    if inside:
        later = range(at + 1, len(instructions))
        at = next((k for k in later if is_subscript(instructions[k])), at)
    following = instructions[at + 1 : at + 2]
    return any(i.opname in _ATTRIBUTES and i.argval in _METADATA for i in following)


def _is_argument_of_len(instructions: Instructions, at: int) -> bool:
    before = [i for i in instructions[max(0, at - 2) : at] if i.opname != "PUSH_NULL"]
    following = instructions[at + 1 : at + 2]
    is_len = bool(before) and before[-1].opname == "LOAD_GLOBAL" and before[-1].argval == "len"
    return is_len and any("CALL" in i.opname for i in following)


def _is_set(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
