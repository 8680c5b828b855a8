"""Kernels that run alone, once, on arrays and numbers: what a task would run, without a program."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from pto_wsp import ir, srcloc
from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError, KernelError
from pto_wsp.frontend.annotations import Param, ScalarParam, TensorParam
from pto_wsp.frontend.driving import driver
from pto_wsp.frontend.specialise import Array, as_array, check_fit, decls_of, dtype_of
from pto_wsp.kernels import NativeCaller, NativeFailure, gathered, native_view, one_page, scattered
from pto_wsp.kernels.abi import NativeView
from pto_wsp.kernels.tile_ir.nodes import AccessMode

# Of a tensor its array, of a scalar a NumPy number of its dtype, of a constant its declaration; of
# a token nothing.
Given: TypeAlias = "Array | np.generic | ir.ConstexprDecl | None"
_NEEDS_COMPILER = (Code.KERNEL_NOT_COMPILED, Code.CPP_COMPILER_MISSING)


@dataclass(frozen=True, slots=True)
class Arguments:
    """One value for each parameter, checked, in their order."""

    kernel: str
    params: tuple[Param, ...]
    values: tuple[Given, ...]

    def arrays(self) -> Iterator[tuple[TensorParam, Array | None]]:
        for param, value in zip(self.params, self.values, strict=True):
            if isinstance(param, TensorParam):
                assert value is None or isinstance(value, np.ndarray)
                yield param, value

    def scalars(self) -> Iterator[np.generic]:
        return (value for value in self.values if isinstance(value, np.generic))

    def decls(self) -> tuple[ir.AnyParam, ...]:
        named = zip(self.params, self.values, strict=True)
        given = {
            param.name: value.value if isinstance(value, ir.ConstexprDecl) else value
            for param, value in named
        }
        return decls_of(self.kernel, self.params, given)

    def key(self) -> tuple[object, ...]:
        """What the specialisation depends on, where the parameters do not say it."""
        return tuple(
            (value.dtype, value.ndim) if isinstance(value, np.ndarray) else value
            for value in self.values
            if isinstance(value, np.ndarray | ir.ConstexprDecl)
        )


def checked(
    kernel: str,
    params: tuple[Param, ...],
    values: Sequence[object],
    check_scalar: Callable[[ScalarParam, object], object],
) -> Arguments:
    """Arguments from what the user gave; TypeCheckError if they do not fit the parameters."""
    found: list[Given] = []
    for param, value in zip(params, values, strict=True):
        if isinstance(param, ScalarParam):
            check_scalar(param, value)
            found.append(param.dtype.numpy.type(value))
        elif not isinstance(param, TensorParam):
            (decl,) = decls_of(kernel, (param,), {param.name: value})
            assert isinstance(decl, ir.ConstexprDecl)
            found.append(decl)
        elif param.view is ir.ViewKind.TOKEN:
            found.append(None)
        else:
            array = as_array(kernel, param.name, value)
            dtype_of(kernel, param.name, array)
            check_fit(kernel, param, array)
            found.append(array)
    return Arguments(kernel, params, tuple(found))


class Compiled:
    """The machine code of a kernel, by specialisation: made when it is first needed and kept."""

    def __init__(
        self, declare: Callable[[tuple[ir.AnyParam, ...]], ir.KernelDecl], *, is_tile: bool
    ) -> None:
        self._declare = declare
        self._is_tile = is_tile
        self._callers: dict[tuple[object, ...], NativeCaller] = {}
        self._compiling = threading.Lock()

    def run(self, given: Arguments) -> None:
        views: list[NativeView] = []
        pages: list[Any] = []
        memory: list[Array | None] = []
        for param, array in given.arrays():
            memory.append(array)
            paged = param.view is ir.ViewKind.PAGED
            views.append(NativeView() if array is None else native_view(array))
            pages.append(one_page(array) if paged and array is not None else None)
        scalars = [int.from_bytes(number.tobytes(), "little") for number in given.scalars()]
        try:
            self._caller(given)(views, pages, scalars, memory=memory)
        except NativeFailure as error:
            raise failed(given.kernel, str(error)) from error
        except CompileError as error:
            if error.code not in _NEEDS_COMPILER or not self._is_tile:
                raise
            raise CompileError(
                error.code,
                error.message,
                loc=srcloc.here(),
                why=error.why,
                fix=f"{error.fix}; {given.kernel}.reference(...) computes the same with NumPy",
            ) from None

    def _caller(self, given: Arguments) -> NativeCaller:
        key = given.key()
        known = self._callers.get(key)
        if known is None:
            with self._compiling:
                if key not in self._callers:
                    loaded = driver().compile_kernel(self._declare(given.decls()))
                    self._callers[key] = NativeCaller(loaded)
                known = self._callers[key]
        return known


def run_python(given: Arguments, function: Callable[..., None]) -> None:
    """A Python body as a task runs it: on views, read-only where it only reads."""
    arguments: list[Any] = []
    written: list[tuple[Array, Array]] = []
    for param, value in zip(given.params, given.values, strict=True):
        if isinstance(value, ir.ConstexprDecl):
            arguments.append(bool(value.value) if value.dtype is DType.BOOL else value.value)
        elif isinstance(value, np.generic):
            arguments.append(value.item())
        elif value is None:
            arguments.append(None)
        else:
            assert isinstance(param, TensorParam)
            arguments.append(_view(param, value, written))
    try:
        function(*arguments)
    except Exception as error:
        raise failed(given.kernel, f"{type(error).__name__}: {error}".rstrip(": ")) from error
    for tokens, array in written:
        scattered(tokens, [array])


def _view(param: TensorParam, array: Array, written: list[tuple[Array, Array]]) -> Array:
    if param.view is ir.ViewKind.PAGED:  # a copy, as of any pages
        tokens = gathered([array], AccessMode[param.mode.name])
        if param.mode is not ir.Mode.IN:
            written.append((tokens, array))
        return tokens
    view = array.view()
    if param.mode is ir.Mode.IN:
        view.flags.writeable = False
    return view


def failed(kernel: str, what: str) -> KernelError:
    """What a user sees of a kernel that failed."""
    return KernelError(
        Code.KERNEL_FAILED, f"kernel {kernel} failed: {what}", kernel=kernel, loc=srcloc.here()
    )
