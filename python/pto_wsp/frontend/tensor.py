"""Tensors, and the regions that a workload names by indexing them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from types import EllipsisType
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

import numpy.typing as npt

from pto_wsp import ir, srcloc
from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError, TypeCheckError
from pto_wsp.frontend import bounds, context
from pto_wsp.frontend.extents import expect
from pto_wsp.frontend.memory import share
from pto_wsp.frontend.placement import (
    OFF_CHIP,
    check_order,
    check_temporary_order,
    checked_layout,
    checked_location,
)
from pto_wsp.frontend.refusal import (
    ARITHMETIC,
    COMPARISONS,
    COMPUTING,
    EQUALITY,
    refuse,
)
from pto_wsp.frontend.scalar_expr import (
    IntLike,
    SymBool,
    SymInt,
    as_int,
    as_symint,
    atom,
    constant,
    is_integer,
    kind_of,
    lower,
)
from pto_wsp.ir import Location, TensorLayout
from pto_wsp.sharing import ArrayHolder

Shape: TypeAlias = tuple[int | SymInt, ...]


@dataclass(frozen=True, slots=True)
class DimRange:
    """start, start + step, ... (extent elements) of one dimension, which has `size`."""

    size: SymInt
    start: SymInt
    extent: SymInt
    step: int = 1
    dropped: bool = False


@refuse(
    COMPUTING,
    {"__getitem__": "a second index", "__setitem__": "assignment"},
    code=Code.TENSOR_AS_VALUE,
    message="a region of a tensor has no value in a workload ({op})",
    why="a workload only says which regions the tasks touch",
    fix="index once, X[i, j], and compute inside a kernel that takes the region",
    error=TypeCheckError,
)
class Region:
    """A part of a tensor, to be passed to a kernel; `tensor` is the name of the tensor `of`."""

    __slots__ = ("dims", "of", "tensor")
    known_as = "a region of a tensor"

    def __init__(self, tensor: str, of: Tensor, dims: tuple[DimRange, ...]) -> None:
        self.tensor = tensor
        self.of = of
        self.dims = dims

    @property
    def dtype(self) -> DType:
        return self.of.dtype

    @property
    def rank(self) -> int:
        """Dimensions that a kernel sees."""
        return sum(not dim.dropped for dim in self.dims)

    def __repr__(self) -> str:
        return f"<region of {self.tensor}>"

    def element(self, indices: tuple[object, ...]) -> Region:
        """One element of the region, by an index for each dimension that it still has."""
        given = iter(indices)
        dims = tuple(
            dim if dim.dropped else _one(dim.size, dim.start + as_symint(next(given)) * dim.step)
            for dim in self.dims
        )
        return Region(self.tensor, self.of, dims)

    def lower(self, place: bounds.Place) -> ir.Region:
        """The region as a task or control uses it at a place; TypeCheckError if it is outside."""
        dims = (
            ir.DimSlice(lower(dim.start), lower(dim.extent), ir.Const(dim.step), dim.dropped)
            for dim in self.dims
        )
        region = ir.Region(self.tensor, tuple(dims), self.of.given_layout)
        place.check(self.tensor, self._spans())
        return region

    def _spans(self) -> list[bounds.Span]:
        return [
            bounds.Span(dim.start.polynomial, dim.extent.polynomial, dim.step, dim.size.polynomial)
            for dim in self.dims
        ]


_OPERATORS = {**ARITHMETIC, **COMPARISONS, **EQUALITY}


class Element(Region):
    """One element of an integer tensor: a region for a kernel, and an integer for control. Control
    reads it at the line where it is first used as a number, once its writers have ended."""

    __slots__ = ("_value",)

    if TYPE_CHECKING:  # the loop below makes them

        def __add__(self, other: IntLike) -> SymInt: ...
        def __radd__(self, other: IntLike) -> SymInt: ...
        def __sub__(self, other: IntLike) -> SymInt: ...
        def __rsub__(self, other: IntLike) -> SymInt: ...
        def __mul__(self, other: IntLike) -> SymInt: ...
        def __rmul__(self, other: IntLike) -> SymInt: ...
        def __floordiv__(self, other: IntLike) -> SymInt: ...
        def __mod__(self, other: IntLike) -> SymInt: ...
        def __lt__(self, other: IntLike) -> SymBool: ...
        def __le__(self, other: IntLike) -> SymBool: ...
        def __gt__(self, other: IntLike) -> SymBool: ...
        def __ge__(self, other: IntLike) -> SymBool: ...
        def __eq__(self, other: object) -> SymBool: ...  # pyright: ignore[reportIncompatibleMethodOverride]
        def __ne__(self, other: object) -> SymBool: ...  # pyright: ignore[reportIncompatibleMethodOverride]

    def __init__(self, tensor: str, of: Tensor, dims: tuple[DimRange, ...]) -> None:
        super().__init__(tensor, of, dims)
        self._value: SymInt | None = None

    def unread(self) -> Element:
        """The same element, for a condition: what is read there has no value behind it."""
        return self if self._value is not None else Element(self.tensor, self.of, self.dims)

    def as_scalar(self) -> SymInt:
        """The value, read here."""
        value = self._value
        if value is None:
            trace = context.active.get()
            assert trace is not None, "elements exist only while a workload is traced"
            region = self.lower(trace.place())
            value = self._value = cast(SymInt, trace.load(region, srcloc.here()))
        return value


def _delegate(method: str) -> Callable[..., Any]:
    def operator(self: Element, *others: object) -> Any:
        return getattr(self.as_scalar(), method)(*others)

    return operator


for _method in _OPERATORS:
    setattr(Element, _method, _delegate(_method))
Element.__hash__ = None  # pyright: ignore[reportAttributeAccessIssue]


@refuse(
    COMPUTING,
    {"__setitem__": "assignment"},
    code=Code.TENSOR_AS_VALUE,
    message="a Tensor does not compute ({op})",
    why="tensors are read and written by tasks",
    fix="call a kernel on X[...] inside a workload; outside of one use X.data",
    error=TypeCheckError,
)
class Tensor(ArrayHolder):
    """Data that tasks read and write: `Tensor(data=array)` looks at the array's memory, without a
    copy; `Tensor(shape=..., dtype=...)` has to be bound at execute.

    `execute` binds a tensor by its name: `name`, else the workload parameter it is passed for, else
    the variable or attribute by which the traced function refers to it.

    Inside a workload, `X[i, a:b]` names a region. Indices are integers or symbolic; slices have
    symbolic bounds and a constant positive step and are not clipped: bounds are checked when the
    extents are known. Negative Python ints count from the end; `X.shape` is symbolic, too, so that
    one trace serves tensors of other shapes.

    `location` is the memory in which it lies, `layout` how it is spread over a mesh and ordered in
    memory; the layouts of the tensors that a kernel is called with must join.
    """

    __slots__ = ("_array", "_shape", "dtype", "layout", "loc", "location", "name", "origin")

    # The tensor that a relayout was made of.
    origin: Tensor | None
    kind: ClassVar[ir.TensorKind] = ir.TensorKind.BOUND

    def __init__(
        self,
        data: Any = None,
        *,
        shape: tuple[int, ...] | None = None,
        dtype: DType | None = None,
        name: str | None = None,
        location: Location = Location.Global,
        layout: TensorLayout | None = None,
    ) -> None:
        self.name = identifier("Tensor", name)
        self.loc = srcloc.here()
        self.origin = None
        self.location = checked_location("Tensor", location, OFF_CHIP)
        if data is None:
            self._array = None
            self._shape, self.dtype = _declared(shape, dtype)
        else:
            self._share(data, shape, dtype)
        self.layout = checked_layout("Tensor(...)", layout, self.rank)
        check_order("Tensor(...)", self.layout, self._array)

    def _share(self, data: object, shape: object, dtype: object) -> None:
        """Looks at the memory of an array."""
        if shape is not None or dtype is not None:
            raise _bad(
                "both data and shape or dtype",
                "the array has a shape and a dtype of its own",
                "leave out shape= and dtype=",
            )
        self._array = share(data, "Tensor(data=...)")
        self._shape = self._array.shape
        try:
            self.dtype = DType.of(self._array.dtype)
        except TypeError as error:
            raise _bad(f"dtype {self._array.dtype}", str(error), "convert the array") from None

    @staticmethod
    def temp(
        shape: Any,
        dtype: DType,
        *,
        name: str = "tmp",
        location: Location = Location.Global,
        layout: TensorLayout | None = None,
    ) -> Tensor:
        """An intermediate of the current iteration: the runtime gives it memory at this line and
        takes it back when the tasks that use it have ended. What it holds is undefined until tasks
        write it. The shape may depend on loop variables; `name` is for messages and listings."""
        trace = context.active.get()
        if trace is None:
            raise CompileError(
                Code.OUTSIDE_WORKLOAD,
                "Tensor.temp outside a workload",
                loc=srcloc.here(),
                why="a temporary belongs to an iteration of a workload that is traced",
                fix="make it inside a @workload function; outside use Tensor(data=array)",
            )
        return Temporary(trace, shape, dtype, name, location, layout)

    @property
    def data(self) -> npt.NDArray[Any] | None:
        """The array that is bound when `execute` names no other; None without one."""
        return self._array

    @property
    def rank(self) -> int:
        return len(self._shape)

    @property
    def shape(self) -> Shape:
        """The extents: numbers, or symbolic inside a workload."""
        trace = context.active.get()
        if trace is None:
            return self._shape
        name = trace.tensor_name(self)
        return tuple(atom(ir.ShapeOf(name, dim), trace.scope) for dim in range(self.rank))

    def __repr__(self) -> str:
        name = "" if self.name is None else f"{self.name}: "
        where = "" if self.location is Location.Global else f" in {self.location.name}"
        layout = "" if self.layout is None else f" layout {self.layout!r}"
        return f"<Tensor {name}{self.dtype.text}{list(self._shape)}{where}{layout}>"

    @property
    def base(self) -> Tensor:
        """The tensor that was declared, of which this may be a relayout."""
        return self if self.origin is None else self.origin

    @property
    def given_layout(self) -> TensorLayout | None:
        """The layout that a relayout gave it."""
        return None if self.origin is None else self.layout

    def extents(self) -> tuple[int, ...]:
        """The shape that was given, which another binding may replace."""
        return cast("tuple[int, ...]", self._shape)

    def expect(self, *extents: int | None) -> None:
        """In a workload that is made for certain extents: what is bound to this tensor, now or at
        execute, has these; None: any. Else kernels would take what they find as a part of a tile.
        """
        expect(self, extents)

    def declaration(self, name: str) -> ir.TensorDecl:
        return ir.TensorDecl(
            *(name, self.dtype, self.rank, self.loc, self.kind),
            location=self.location,
            layout=self.layout,
        )

    def __getitem__(self, key: Any) -> Element:
        """A region; one element of an integer tensor is a number for control as well."""
        region = self.region(key)
        if self.dtype.name[0] in "IU" and all(dim.dropped for dim in region.dims):
            return Element(region.tensor, self, region.dims)
        return cast(Element, region)

    def region(self, key: Any) -> Region:
        """What an index of the tensor names."""
        trace = context.active.get()
        if trace is None:
            raise CompileError(
                Code.OUTSIDE_WORKLOAD,
                "a Tensor is indexed outside a workload",
                loc=srcloc.here(),
                why="X[...] names a region for a kernel call that is being traced",
                fix="index inside a @workload function; use X.data for the elements",
            )
        name = trace.tensor_name(self)
        parts = _expand(key, name, self.rank)
        dims = tuple(_dim(part, extent) for part, extent in zip(parts, self.shape, strict=True))
        return Region(name, self, dims)

    def named(self, name: str) -> Tensor:
        """The same tensor under the name of a parameter, where it has none of its own."""
        if self.name is not None:
            return self
        other = copy.copy(self)
        other.name = name
        other.origin = None if self.origin is None else self.origin.named(name)
        return other


class Temporary(Tensor):
    """What `Tensor.temp` makes."""

    __slots__ = ("scope",)

    kind = ir.TensorKind.TEMP

    def __init__(
        self,
        trace: context.ActiveTrace,
        shape: Any,
        dtype: object,
        name: str,
        location: Location,
        layout: TensorLayout | None,
    ) -> None:
        self.name = identifier("Tensor.temp", name)
        self.origin = None
        self.location = checked_location("Tensor.temp", location, tuple(Location))
        self.loc = srcloc.here()
        self._array = None
        parts = cast("tuple[Any, ...]", shape) if isinstance(shape, list | tuple) else (shape,)
        if not all(is_integer(part) for part in parts):
            raise _bad(f"shape={shape!r}", "extents are integers", "correct it", "Tensor.temp")
        try:
            self.dtype = DType.of(dtype)
        except TypeError as error:
            fix = "use a DType, such as DType.F32"
            raise _bad(f"dtype={dtype!r}", str(error), fix, "Tensor.temp") from None
        self.layout = checked_layout("Tensor.temp(...)", layout, len(parts))
        check_temporary_order("Tensor.temp(...)", self.layout)
        self._shape = tuple(trace.frozen(as_symint(part), self.loc) for part in parts)
        self.scope = trace.alloc(self, tuple(lower(size) for size in self._shape))

    @property
    def shape(self) -> Shape:
        return self._shape


class Message(Tensor):
    """A message of a channel, as a process has it: a tile in one of the channel's buffers."""

    __slots__ = ("position", "scope")

    kind = ir.TensorKind.CHANNEL

    def __init__(
        self, name: str, shape: tuple[int, ...], dtype: DType, scope: context.Scope
    ) -> None:
        self.name = name
        self.loc = scope.loc
        self.dtype = dtype
        self.location = Location.Global
        self._array = self.layout = self.origin = None
        self._shape = shape
        self.scope = scope
        self.position: SymInt | None = None

    @property
    def shape(self) -> Shape:
        return self._shape

    @property
    def number(self) -> SymInt:
        """How many messages came before it in its channel."""
        if self.position is not None:
            return self.position
        raise CompileError(
            Code.CHANNEL,
            "the number of a message that receive(...) gave",
            loc=srcloc.here(),
            why="only consume(...) counts messages",
            fix="count with the loop around: for i in P.seq(n): t = receive(ch)",
        )


def _declared(shape: object, dtype: object) -> tuple[tuple[int, ...], DType]:
    if not isinstance(shape, list | tuple) or dtype is None:
        raise _bad(
            "no data",
            "without an array, shape and dtype must be given",
            "write Tensor(data=array) or Tensor(shape=(4, 4), dtype=DType.F32)",
        )
    known = positive_sizes("Tensor", cast("tuple[object, ...]", shape))
    try:
        return known, DType.of(dtype)
    except TypeError as error:
        raise _bad(f"dtype={dtype!r}", str(error), "use a DType, such as DType.F32") from None


def positive_sizes(form: str, shape: tuple[object, ...] | list[object]) -> tuple[int, ...]:
    """The extents of a shape that is numbers."""
    sizes = [as_int(size) for size in shape]
    known = tuple(size for size in sizes if size is not None and size >= 0)
    if len(known) != len(sizes):
        why = "a shape holds non-negative integers"
        raise _bad(f"shape={shape!r}", why, "correct the shape", form)
    return known


def identifier(form: str, name: object) -> str | None:
    """A name that a user gives to a tensor."""
    if name is None or (isinstance(name, str) and name.isidentifier()):
        return name
    why = "execute(name=...) needs an identifier"
    raise _bad(f"name={name!r}", why, "choose another", form)


def _bad(what: str, why: str, fix: str, form: str = "Tensor") -> TypeCheckError:
    return TypeCheckError(
        Code.TENSOR_DECLARATION, f"{form}(...) with {what}", loc=srcloc.here(), why=why, fix=fix
    )


def _expand(key: object, name: str, rank: int) -> list[object]:
    """One index per dimension: the ellipsis and missing dimensions become full slices."""
    parts = list(cast("tuple[object, ...]", key)) if isinstance(key, tuple) else [key]
    dots = [at for at, part in enumerate(parts) if isinstance(part, EllipsisType)]
    if len(dots) > 1:
        raise _bad_index(name, "more than one ellipsis", "one `...` says which are left out")
    given = len(parts) - len(dots)
    if given > rank:
        raise _bad_index(name, f"{given} indices", f"it has {rank} dimensions")
    full: list[object] = [slice(None)] * (rank - given)
    at = dots[0] if dots else len(parts)
    return [*parts[:at], *full, *parts[at + 1 :]]


def _dim(part: object, size: int | SymInt) -> DimRange:
    extent = as_symint(size)
    if isinstance(part, slice):
        return _slice(cast("slice[object, object, object]", part), extent)
    if not is_integer(part):
        kind = "None" if part is None else kind_of(part)
        raise TypeCheckError(
            Code.INDEX,
            f"a tensor is indexed with {kind}",
            loc=srcloc.here(),
            why="a region has one integer, symbolic integer or slice per dimension",
            fix="use loop variables, integers, slices and `...`",
        )
    return _one(extent, _from_end(part, extent))


def _one(size: SymInt, start: SymInt) -> DimRange:
    return DimRange(size, start, constant(1), dropped=True)


def _slice(part: slice[object, object, object], extent: SymInt) -> DimRange:
    step = 1 if part.step is None else as_int(part.step)
    if step is None or step < 1 or isinstance(part.step, bool):
        raise TypeCheckError(
            Code.INDEX,
            "a slice of a tensor has a step that is not a positive constant",
            loc=srcloc.here(),
            why="regions are boxes with a fixed positive step per dimension",
            fix="use a Python integer of at least 1",
        )
    start = constant(0) if part.start is None else _from_end(part.start, extent)
    stop = extent if part.stop is None else _from_end(part.stop, extent)
    length = stop - start
    if length.polynomial.is_constant:
        length = constant(max(0, length.polynomial.constant))
    return DimRange(extent, start, (length + (step - 1)) // step, step)


def _from_end(value: object, extent: SymInt) -> SymInt:
    """Python's meaning of negative indices, for those that are plain numbers."""
    number = as_int(value)
    return extent + number if number is not None and number < 0 else as_symint(value)


def _bad_index(name: str, what: str, why: str) -> TypeCheckError:
    return TypeCheckError(
        Code.TOO_MANY_INDICES,
        f"tensor {name} is indexed with {what}",
        loc=srcloc.here(),
        why=why,
        fix="give at most one index or slice per dimension",
    )
