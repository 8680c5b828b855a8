"""What kernel parameters are annotated with: directions, tensors, tiles, scalars, constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar, cast, get_args, get_origin

import numpy as np

from pto_wsp import ir, srcloc
from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError, TypeCheckError
from pto_wsp.frontend.scalar_expr import as_int, kind_of
from pto_wsp.frontend.tensor import Tensor
from pto_wsp.frontend.tensor_kinds import PagedTensor, Token

T = TypeVar("T")


class In(Any, Generic[T]):
    """`In[Tensor]`: the kernel reads the region. In a Python body it is a NumPy view."""


class Out(Any, Generic[T]):
    """`Out[Tensor]`: the kernel writes every element of the region and reads none."""


class InOut(Any, Generic[T]):
    """`InOut[Tensor]`: the kernel reads and writes the region."""


class Accum(Any, Generic[T]):
    """`Accum[Tensor]`: the kernel adds to the region; tasks that do so may come in any order."""


class Constexpr(Any, Generic[T]):
    """`N: Constexpr[int] = 4`: a constant of the call that specialises the kernel."""


class Tile:
    """`In[Tile[16, 128, DType.F32]]`: a region of at most that shape, of that dtype. A smaller one,
    at the edge of a tensor, is a partial tile. `Tile[16, 128, DType.F32, Location.UB]` takes only
    tensors that lie there."""

    shape: ClassVar[tuple[int, ...]]
    dtype: ClassVar[DType]
    location: ClassVar[ir.Location | None]

    def __class_getitem__(cls, key: Any) -> type[Tile]:
        parts = cast("tuple[Any, ...]", key) if isinstance(key, tuple) else (key,)
        location = parts[-1] if isinstance(parts[-1], ir.Location) else None
        parts = parts if location is None else parts[:-1]
        sizes = [as_int(part) for part in parts[:-1]]
        dtype = parts[-1] if parts else None
        legal = tuple(size for size in sizes if size is not None and size > 0)
        if not isinstance(dtype, DType) or len(legal) != len(sizes) or not legal:
            raise TypeCheckError(
                Code.KERNEL_PARAMETER,
                f"Tile[{', '.join(getattr(part, 'text', str(part)) for part in parts)}]",
                loc=srcloc.here(),
                why="a tile has positive sizes, a DType and, if it matters, a Location",
                fix="write Tile[16, 128, DType.F32] or Tile[16, 128, DType.F32, Location.UB]",
            )
        where = "" if location is None else f", {location.name}"
        name = f"Tile[{', '.join(map(str, legal))}, {dtype.text}{where}]"
        return type(name, (Tile,), {"shape": legal, "dtype": dtype, "location": location})


# A parameter that is annotated with a scalar computes like a number, as type checkers should know.
_Number: Any = object


class Scalar(_Number):
    """A number. As an annotation, `s: Scalar[DType.F32]`, a parameter of a kernel for which each
    task has a value; as a value, `Scalar(0.5)`, an argument of a workload that execute rebinds by
    its name. Plain numbers given to a workload are constants of the plan.
    """

    __slots__ = ("dtype", "value")

    def __class_getitem__(cls, dtype: Any) -> Any:
        return ScalarType(DType.of(dtype))

    def __init__(self, value: float, dtype: DType | None = None) -> None:
        number = _plain(value)
        fits = isinstance(number, float) or (isinstance(number, int) and -(2**63) <= number < 2**63)
        if not isinstance(number, int | float) or not fits:
            raise TypeCheckError(
                Code.KERNEL_ARGUMENT,
                f"Scalar({number!r})",
                loc=srcloc.here(),
                why="a scalar is a number of at most 64 bits",
                fix="pass a Python or NumPy number",
            )
        self.dtype = dtype or DType.of(np.asarray(value).dtype)
        is_float = ir.scalar_type(self.dtype) is ir.ExprType.F64
        self.value: int | float = float(number) if is_float else int(number)

    def __repr__(self) -> str:
        return f"Scalar({self.value}, {self.dtype.text})"


@dataclass(frozen=True, slots=True)
class ScalarType:
    """`Scalar[DType.F32]`, as an annotation; calling it makes a value of that dtype."""

    dtype: DType

    def __call__(self, value: float) -> Scalar:
        return Scalar(value, self.dtype)


@dataclass(frozen=True, slots=True)
class TensorParam:
    """A region; `tile` is the type of a tile parameter."""

    name: str
    mode: ir.Mode
    tile: type[Tile] | None = None
    view: ir.ViewKind = ir.ViewKind.STRIDED

    def __str__(self) -> str:
        tile = "" if self.tile is None else f" {self.tile.__name__}"
        tile = tile if self.view is ir.ViewKind.STRIDED else f" {self.view.value}"
        return f"{self.name}: {self.mode.value}{tile}"


@dataclass(frozen=True, slots=True)
class ScalarParam:
    name: str
    dtype: DType
    default: object = None

    def __str__(self) -> str:
        return f"{self.name}: scalar {self.dtype.text}"


@dataclass(frozen=True, slots=True)
class ConstexprParam:
    name: str
    type: type
    default: object = None

    def __str__(self) -> str:
        return f"{self.name}: constexpr {self.type.__name__}"


Param = TensorParam | ScalarParam | ConstexprParam
_MODES: dict[object, ir.Mode] = {
    In: ir.Mode.IN,
    Out: ir.Mode.OUT,
    InOut: ir.Mode.INOUT,
    Accum: ir.Mode.ACCUM,
}
_VIEWS: dict[object, ir.ViewKind] = {
    Tensor: ir.ViewKind.STRIDED,
    PagedTensor: ir.ViewKind.PAGED,
    Token: ir.ViewKind.TOKEN,
}
_CONSTANTS = (int, float, bool)


def _plain(value: object) -> object:
    """A NumPy number as a Python one."""
    return cast(Any, value).item() if isinstance(value, np.generic) else value


def param_of(name: str, annotation: Any, default: object) -> Param | None:
    """The parameter that an annotation says; None if it says none. A default of None is none."""
    origin, args = get_origin(annotation), get_args(annotation)
    mode = _MODES.get(origin)
    if mode is not None and len(args) == 1:
        inner = args[0]
        if inner in _VIEWS:
            return TensorParam(name, mode, view=_VIEWS[inner])
        if isinstance(inner, type) and issubclass(inner, Tile) and inner is not Tile:
            return TensorParam(name, mode, inner)
        return None
    if isinstance(annotation, ScalarType):
        return ScalarParam(name, annotation.dtype, default)
    if origin is Constexpr and len(args) == 1 and args[0] in _CONSTANTS:
        return ConstexprParam(name, cast(type, args[0]), default)
    return None


def constant_decl(kernel: str, param: ConstexprParam, value: object) -> ir.ConstexprDecl:
    """A constant of a call, checked against its parameter."""
    number = _plain(value)
    fits = isinstance(number, param.type) and (param.type is bool or not isinstance(number, bool))
    if param.type is float and isinstance(number, int) and not isinstance(number, bool):
        number, fits = float(number), True
    if not fits or not isinstance(number, int | float):
        raise TypeCheckError(
            Code.KERNEL_ARGUMENT,
            f"kernel {kernel}: {param.name} is {kind_of(value)}",
            loc=srcloc.here(),
            why=f"it is Constexpr[{param.type.__name__}]: a constant that specialises the kernel",
            fix="pass a Python number; values that differ from task to task are Scalar parameters",
        )
    dtype = {int: DType.I64, float: DType.F64, bool: DType.BOOL}[param.type]
    if dtype is DType.I64 and not -(2**63) <= number < 2**63:
        raise CompileError(
            Code.KERNEL_ARGUMENT,
            f"kernel {kernel}: {param.name} does not fit 64 bits",
            loc=srcloc.here(),
            why="constants have 64 bits",
            fix="use a smaller number",
        )
    return ir.ConstexprDecl(param.name, dtype, number if dtype is DType.F64 else int(number))
