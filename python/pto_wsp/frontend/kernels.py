"""@kernel: the functions that tasks run, and calling them inside a workload."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, cast, overload

import numpy as np

from pto_wsp import ir, srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import TypeCheckError
from pto_wsp.frontend import kernel_source
from pto_wsp.frontend.annotations import (
    ConstexprParam,
    Param,
    ScalarParam,
    TensorParam,
    constant_decl,
)
from pto_wsp.frontend.axis_params import ArrayParam
from pto_wsp.frontend.blocks import Pending
from pto_wsp.frontend.handles import Handle, waits
from pto_wsp.frontend.kernel_body import BodyMethods, body_form, tile_body
from pto_wsp.frontend.kernel_function import (
    checked_function,
    exec_unit_of,
    includes_of,
    params_of,
    refused,
)
from pto_wsp.frontend.scalar_expr import (
    SymBool,
    SymFloat,
    SymInt,
    as_symint,
    check_scopes,
    constant,
    is_integer,
    kind_of,
    lower,
    lower_bool,
)
from pto_wsp.frontend.tensor import DimRange, Region, Tensor
from pto_wsp.frontend.trace import Tracer, current


class Kernel(BodyMethods):
    """A kernel: `k[i, j](x=X[i], out=Y[j])` inside a workload generates one task. The brackets
    give the task its indices and may be left out."""

    def __init__(
        self,
        function: FunctionType,
        params: tuple[Param, ...],
        cpp_src: str | None,
        includes: tuple[str, ...],
        exec_unit: ir.ExecUnit = ir.ExecUnit.ANY,
        form: ir.BodyForm = ir.BodyForm.PYTHON,
    ) -> None:
        self.name = function.__name__
        self.fn = function
        self.params = params
        self.cpp_src = cpp_src
        self.includes = includes
        self.exec_unit = exec_unit
        self.form = form
        self._tile = tile_body(self.name, function) if form is ir.BodyForm.TILE_IR else None
        self.loc = (
            kernel_source.definition(function)
            if cpp_src is None
            else kernel_source.cpp_text(function)
        )
        functools.update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<kernel {self.name}({', '.join(map(str, self.params))})>"

    def __getitem__(self, indices: object) -> IndexedKernel:
        tracer = current(f"kernel {self.name}[...]")
        pending = tracer.expect_use(
            f"{self.name}[...]", f"call it: {self.name}[...](...) generates a task"
        )
        return IndexedKernel(self, self.identity(indices), pending)

    def identity(self, indices: object) -> tuple[SymInt, ...]:
        """What stands in brackets: the indices of a task."""
        parts = cast("tuple[object, ...]", indices) if isinstance(indices, tuple) else (indices,)
        return tuple(self._index(part) for part in parts)

    def __call__(self, *args: Any, **kwargs: Any) -> Handle:
        return self.call((), args, kwargs)

    def call(
        self,
        indices: tuple[SymInt, ...],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        fields: Mapping[str, SymInt] | None = None,
        waited: tuple[ir.After, ...] = (),
    ) -> Handle:
        """Trace one call. `after=` names calls whose tasks it waits for; `fields` are those of its
        descriptor. `waited` is what an `after=` of before has been made of."""
        if not self._has("after"):
            waited = (*waited, *waits(kwargs.pop("after", None)))
        tracer = current(f"a call of kernel {self.name}")
        message = self._left_out(args, kwargs)
        if message is not None:
            return Unsent(self, tracer, message, indices, args, kwargs, waited, fields)
        values = self._bind(args, kwargs)
        place = tracer.place()
        decls: list[ir.AnyParam] = []
        arguments: list[ir.Argument] = []
        for param, value in zip(self.params, values, strict=True):
            match param:
                case ConstexprParam():
                    decls.append(constant_decl(self.name, param, value))
                case ScalarParam():
                    decls.append(ir.ScalarDecl(param.name, param.dtype))
                    arguments.append(self._scalar(param, value))
                case TensorParam():
                    region = self._region(tracer, param.name, value)
                    decls.append(self._tensor_decl(param, region))
                    arguments.append(region.lower(place))
        waited = (*waited, *tracer.gates())
        name = tracer.kernels.name_of(self, self.decl(tuple(decls)))
        identity = tuple(lower(index) for index in indices)
        label = tracer.new_label(self.name)
        loc = srcloc.here()
        described = tuple((name, lower(value)) for name, value in (fields or {}).items())
        tracer.emit(ir.Call(name, identity, tuple(arguments), loc, label, waited, described))
        return Handle(tracer, label, tuple(loop.scope for loop in tracer.loops))

    def _left_out(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        """The parameter that is left for a message: the only one without a value, if it is an
        Out."""
        given = {param.name for param in self.params[: len(args)]} | kwargs.keys()
        left = [param for param in self.params if param.name not in given]
        needed = [p.name for p in left if isinstance(p, TensorParam) or p.default is None]
        outs = [p.name for p in left if isinstance(p, TensorParam) and p.mode is ir.Mode.OUT]
        alone = needed == outs and len(outs) == 1 and len(args) <= len(self.params)
        return outs[0] if alone else None

    def misses(self, name: str) -> TypeCheckError:
        """The error of a call without that parameter."""
        return self._misfit(f"no {name}", "it has no default")

    def _has(self, name: str) -> bool:
        return any(param.name == name for param in self.params)

    def _tensor_decl(self, param: TensorParam, region: Region) -> ir.ParamDecl:
        tile = param.tile
        if tile is None:
            view = param.view
            return ir.ParamDecl(param.name, param.mode, region.dtype, region.rank, None, view)
        where = f"kernel {self.name}: {param.name} is {tile.__name__}"
        if region.dtype is not tile.dtype:
            what = f"{where}, {region.tensor} is {region.dtype.text}"
            raise _type_error(
                Code.TILE_MISFIT, what, "a tile has one dtype", "pass a tensor of that dtype"
            )
        seen = [dim for dim in region.dims if not dim.dropped]
        if len(seen) != len(tile.shape):
            what = f"{where}, the region has rank {len(seen)}"
            raise _type_error(
                Code.TILE_MISFIT, what, "the ranks differ", "index so that the ranks are equal"
            )
        for dim, size in zip(seen, tile.shape, strict=True):
            length = dim.extent.polynomial
            if length.is_constant and length.constant > size:
                what = f"{where}, the region has an extent of {length.constant}"
                raise _type_error(
                    Code.TILE_MISFIT,
                    what,
                    "a region must fit into its tile",
                    "pass a smaller slice",
                )
        return ir.ParamDecl(
            *(param.name, param.mode, tile.dtype, len(seen), tile.shape), location=tile.location
        )

    def _scalar(self, param: ScalarParam, value: object) -> ir.Expr:
        """The value of a scalar parameter as an expression of its type."""
        wanted = ir.scalar_type(param.dtype)
        if wanted is ir.ExprType.F64:
            if isinstance(value, SymFloat):
                check_scopes(value.scopes)
                return value.expr
            if isinstance(value, int | float | np.integer | np.floating) and not isinstance(
                value, bool
            ):
                return ir.FloatConst(ir.float_bits(float(cast(float, value))))
        elif wanted is ir.ExprType.BOOL:
            if isinstance(value, SymBool):
                return lower_bool(value)
            if isinstance(value, bool | np.bool_):
                number = ir.Const(1 if value else 0)
                return ir.Binary(ir.BinaryOp.EQ, number, ir.Const(1))
        elif is_integer(value):
            expr = lower(as_symint(value))
            self._check_range(param, expr)
            return expr
        raise _type_error(
            Code.KERNEL_ARGUMENT,
            f"kernel {self.name}: {param.name} is {kind_of(value)}",
            f"it is Scalar[{param.dtype.text}]",
            f"pass {_SCALARS[wanted]}",
        )

    def _check_range(self, param: ScalarParam, expr: ir.Expr) -> None:
        if not isinstance(expr, ir.Const):
            return
        info = np.iinfo(param.dtype.numpy)
        if not info.min <= expr.value <= info.max:
            raise _type_error(
                Code.KERNEL_ARGUMENT,
                f"kernel {self.name}: {param.name} is {expr.value}",
                f"{param.dtype.text} holds {info.min} to {info.max}",
                "pass a smaller number, or use a larger type",
            )

    def decl(self, params: tuple[ir.AnyParam, ...]) -> ir.KernelDecl:
        """The declaration of this kernel specialised to dtypes, ranks and constants."""
        source = self.cpp_src or f"{self.fn.__module__}.{self.fn.__qualname__}"
        if self._tile is not None:
            source = self._tile.text(params)
        loc = srcloc.of_user(self.loc, self.name)
        return ir.KernelDecl(
            self.name, params, self.form, source, self.includes, loc, self.exec_unit
        )

    def _index(self, part: object) -> SymInt:
        if is_integer(part):
            return as_symint(part)
        raise TypeCheckError(
            Code.INDEX,
            f"kernel {self.name} is indexed with {type(part).__name__}",
            loc=srcloc.here(),
            why="the brackets hold the task's indices, which are integers",
            fix=f"write {self.name}[i, j](...) with loop variables or expressions of them",
        )

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """One value per parameter, in their order."""
        names = [param.name for param in self.params]
        if len(args) > len(names):
            raise self._misfit(f"{len(args)} positional arguments", f"it has {len(names)}")
        given = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names:
                raise self._misfit(f"an unknown argument {name}", "no parameter has that name")
            if name in given:
                raise self._misfit(f"two values for {name}", "one is given by position")
            given[name] = value
        for param in self.params:
            if not isinstance(param, TensorParam) and param.default is not None:
                given.setdefault(param.name, param.default)
        missing = [name for name in names if name not in given]
        if missing:
            raise self.misses(", ".join(missing))
        return [given[name] for name in names]

    def _region(self, tracer: Tracer, param: str, value: object) -> Region:
        if isinstance(value, Region):
            return value
        if isinstance(value, Tensor):
            name = tracer.tensor_name(value)
            sizes = [as_symint(extent) for extent in value.shape]
            dims = tuple(DimRange(size, constant(0), size) for size in sizes)
            return Region(name, value, dims)
        fix = "pass X or X[...] of a Tensor X"
        if isinstance(value, SymInt | SymFloat | SymBool | int | float | complex | np.generic):
            fix = f"annotate the parameter as a number: {param}: Scalar[DType.F32]"
        if isinstance(value, np.ndarray):
            fix = "make it a tensor outside the workload: X = Tensor(data=array)"
        if isinstance(value, ArrayParam):
            fix = f"pass Tensor(data={value.name}) to the workload: control reads plain arrays"
        raise TypeCheckError(
            Code.KERNEL_ARGUMENT,
            f"kernel {self.name}: {param} is {kind_of(cast(object, value))}",
            loc=srcloc.here(),
            why="a kernel parameter is a tensor or a region of one",
            fix=fix,
        )

    def _misfit(self, what: str, why: str) -> TypeCheckError:
        return TypeCheckError(
            Code.KERNEL_CALL,
            f"kernel {self.name} is called with {what}",
            loc=srcloc.here(),
            why=why,
            fix=f"the parameters are ({', '.join(param.name for param in self.params)})",
        )


class Unsent(Handle):
    """A call that leaves its one Out parameter to the message that `send` makes of it."""

    __slots__ = (
        *("_args", "_call_indices", "_fields", "_kernel", "_kwargs", "_message"),
        *("_pending", "_waited"),
    )

    def __init__(
        self,
        kernel: Kernel,
        tracer: Tracer,
        message: str,
        indices: tuple[SymInt, ...],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        waited: tuple[ir.After, ...],
        fields: Mapping[str, SymInt] | None = None,
    ) -> None:
        super().__init__(tracer, kernel.name, ())
        self._fields = fields
        fix = f"send it: send(channel, {kernel.name}[...](...))"
        error = kernel.misses(message)
        self._pending = tracer.expect_use(f"{kernel.name}[...](...)", fix, error)
        self._kernel = kernel
        self._message = message
        self._call_indices = indices
        self._args = args
        self._kwargs = kwargs
        self._waited = waited

    def __getitem__(self, index: Any) -> Handle:
        raise self.misses()

    def waits(self) -> tuple[ir.After, ...]:
        raise self.misses()

    def misses(self) -> TypeCheckError:
        """The error of what nobody sends."""
        return self._kernel.misses(self._message)

    def complete(self, message: Tensor) -> Handle:
        """The call with the message in its place."""
        self._pending.used = True
        kwargs = {**self._kwargs, self._message: message}
        return self._kernel.call(self._call_indices, self._args, kwargs, self._fields, self._waited)


class IndexedKernel:
    """A kernel with the indices of its task, ready to be called."""

    __slots__ = ("_indices", "_kernel", "_pending")

    def __init__(self, kernel: Kernel, indices: tuple[SymInt, ...], pending: Pending) -> None:
        self._kernel = kernel
        self._indices = indices
        self._pending = pending

    def __call__(self, *args: Any, **kwargs: Any) -> Handle:
        return self.call(args, kwargs)

    def call(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        fields: Mapping[str, SymInt] | None = None,
    ) -> Handle:
        """The call with the fields of its descriptor."""
        self._pending.used = True
        return self._kernel.call(self._indices, args, kwargs, fields)


@overload
def kernel(function: Callable[..., None], /) -> Kernel: ...
@overload
def kernel(
    *,
    body: str | None = None,
    cpp_src: str | None = None,
    cpp_includes: Sequence[str] = (),
    exec_unit: str = "any",
) -> Callable[[Callable[..., None]], Kernel]: ...
def kernel(
    function: Callable[..., None] | None = None,
    /,
    *,
    body: str | None = None,
    cpp_src: str | None = None,
    cpp_includes: Sequence[str] = (),
    exec_unit: str = "any",
) -> Kernel | Callable[[Callable[..., None]], Kernel]:
    """Make a kernel of a function whose parameters are annotated In[Tensor], Out[Tensor] or
    InOut[Tensor].

    `body` says what the function holds: "python" runs once per task on NumPy views of the regions;
    "tile", which kernels with Tile parameters have unless they say otherwise, is traced with pto
    functions and compiled; "cpp" is the text of `cpp_src`, below a Python body of `...`.
    `cpp_includes` are headers for it, such as "<cmath>".
    `exec_unit` is the kind of core that runs it, "vector", "cube" or "any", where a schedule
    divides workers by it: Pools.by_exec_unit().
    """
    if cpp_src is not None and (not isinstance(cast(object, cpp_src), str) or not cpp_src.strip()):
        raise refused(
            Code.KERNEL_BODY,
            "cpp_src holds no C++",
            "it is the body of the kernel",
            "pass its statements",
        )
    unit = exec_unit_of(exec_unit)
    includes = includes_of(cpp_includes)
    if includes and cpp_src is None:
        raise refused(
            Code.KERNEL_BODY,
            "cpp_includes without cpp_src",
            "a Python body includes nothing",
            "pass cpp_src too",
        )

    def decorate(function: Callable[..., None]) -> Kernel:
        plain = checked_function(function)
        params = params_of(plain)
        if cpp_src is not None and not kernel_source.has_empty_body(plain):
            raise refused(
                Code.KERNEL_BODY,
                f"kernel {plain.__name__} has a C++ and a Python body",
                "the Python body would never run",
                "leave `...` as the Python body, or remove cpp_src",
                kernel_source.definition(plain),
            )
        form = body_form(plain, params, body, cpp_src)
        return Kernel(plain, params, cpp_src, includes, unit, form)

    return decorate if function is None else decorate(function)


_SCALARS = {
    ir.ExprType.I64: "an integer or a symbolic integer",
    ir.ExprType.BOOL: "a bool or a condition",
    ir.ExprType.F64: "a Python number, or a Scalar(...) argument of the workload",
}


def _type_error(code: Code, what: str, why: str, fix: str) -> TypeCheckError:
    return TypeCheckError(code, what, loc=srcloc.here(), why=why, fix=fix)
