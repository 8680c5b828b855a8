"""Kernels with tile code: tracing a specialisation, and running it alone."""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType
from typing import Any

import numpy as np

from pto_wsp import ir, srcloc
from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError, TypeCheckError
from pto_wsp.frontend import context, kernel_source
from pto_wsp.frontend.annotations import ConstexprParam, Param, ScalarParam, constant_decl
from pto_wsp.frontend.tensor import Tensor
from pto_wsp.kernels import tile_ir
from pto_wsp.kernels.numpy_eval import evaluate
from pto_wsp.kernels.pto import TracedParam, trace_kernel
from pto_wsp.kernels.tile_ir.nodes import AccessMode, RefType, ScalarType, TileKernel


class TileBody:
    """The body of a kernel as tile operations, traced once for each specialisation."""

    def __init__(self, name: str, function: FunctionType) -> None:
        self._name = name
        self._function = function
        self._loc = kernel_source.definition(function)
        self._traced: dict[tuple[ir.AnyParam, ...], TileKernel] = {}
        early = kernel_source.leaves_with(function)
        if early is not None:
            raise CompileError(
                Code.LOOP_LEFT_EARLY,
                f"kernel {name} leaves a `with` block in the middle",
                loc=early,
                why="a condition is traced once: what follows would never be, whatever holds",
                fix="put what follows under `with pto.otherwise():`",
            )

    def specialised(self, params: tuple[ir.AnyParam, ...]) -> TileKernel:
        known = self._traced.get(params)
        if known is None:
            # The body belongs to no workload: P and kernel calls have no place in it.
            token = context.active.set(None)
            try:
                known = trace_kernel(
                    self._name, self._function, [_traced(p) for p in params], self._loc
                )
            finally:
                context.active.reset(token)
            self._traced[params] = known
        return known

    def traced(self, params: tuple[Param, ...], given: Mapping[str, object]) -> TileKernel:
        return self.specialised(tuple(_decls(self._name, params, given)))

    def run(self, params: tuple[Param, ...], given: Mapping[str, object]) -> None:
        """Runs one task alone, on arrays and numbers by the names of the parameters."""
        _run_alone(self.traced(params, given), given)

    def text(self, params: tuple[ir.AnyParam, ...]) -> str:
        """What travels in the plan."""
        return tile_ir.to_text(self.specialised(params), folders=False)


def _traced(param: ir.AnyParam) -> TracedParam:
    match param:
        case ir.ConstexprDecl():
            value = bool(param.value) if param.dtype is DType.BOOL else param.value
            return TracedParam(param.name, value)
        case ir.ScalarDecl():
            return TracedParam(param.name, ScalarType(param.dtype))
        case ir.ParamDecl() if param.view is ir.ViewKind.TOKEN:
            return TracedParam(param.name, None)
        case ir.ParamDecl():
            paged = param.view is ir.ViewKind.PAGED
            mode = AccessMode[param.mode.name]
            return TracedParam(
                param.name, RefType(param.dtype, param.rank, mode, param.shape, paged)
            )


def _decls(
    kernel: str, params: tuple[Param, ...], given: Mapping[str, object]
) -> list[ir.AnyParam]:
    """A specialisation from what is given: arrays, or (dtype, rank), for tensors, numbers for
    constants."""
    found: list[ir.AnyParam] = []
    for param in params:
        value = given.get(param.name)
        if isinstance(param, ConstexprParam):
            value = param.default if value is None else value
            if value is None:
                raise _lacks(kernel, param, "the constant", f"{param.name}=64")
            found.append(constant_decl(kernel, param, value))
        elif isinstance(param, ScalarParam):
            found.append(ir.ScalarDecl(param.name, param.dtype))
        elif param.tile is not None:
            tile = param.tile
            found.append(
                ir.ParamDecl(param.name, param.mode, tile.dtype, len(tile.shape), tile.shape)
            )
        elif param.view is ir.ViewKind.TOKEN:
            found.append(ir.ParamDecl(param.name, param.mode, DType.BOOL, 1, None, param.view))
        else:
            dtype, rank = _tensor_type(kernel, param, value)
            found.append(ir.ParamDecl(param.name, param.mode, dtype, rank, None, param.view))
    return found


def _tensor_type(kernel: str, param: Param, value: object) -> tuple[Any, int]:
    match value:
        case (DType() as dtype, int(rank)):
            return dtype, rank
        case None:
            raise _lacks(kernel, param, "its dtype and rank", f"{param.name}=(DType.F32, 2)")
        case _:
            array = _as_array(value)
            return DType.of(array.dtype), array.ndim


def _lacks(kernel: str, param: Param, what: str, example: str) -> TypeCheckError:
    return TypeCheckError(
        Code.KERNEL_ARGUMENT,
        f"kernel {kernel}: {param.name} is not known",
        loc=srcloc.here(),
        why=f"a specialisation needs {what}",
        fix=f"write {kernel}.trace({example})",
    )


def _as_array(value: object) -> np.ndarray[Any, Any]:
    """The memory of an array-like, where it lies."""
    tensor = value if isinstance(value, Tensor) else Tensor(data=value)
    assert tensor.data is not None
    return tensor.data


def _run_alone(kernel: TileKernel, given: Mapping[str, object]) -> None:
    """Runs a traced kernel on arrays and numbers, by the names of its parameters."""
    arguments: list[Any] = []
    for param in kernel.params:
        value = given[param.name]
        if isinstance(param.type, ScalarType):
            arguments.append(value)
            continue
        assert isinstance(param.type, RefType)
        arguments.append(_fitting(kernel.name, param.name, param.type, _as_array(value)))
    evaluate(kernel, arguments)


def _fitting(
    kernel: str, name: str, ref: RefType, array: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    what = why = ""
    if DType.of(array.dtype) is not ref.dtype or array.ndim != ref.rank:
        what = f"{name} is an array of {array.dtype} with rank {array.ndim}"
        why = f"the parameter has {ref.dtype.text} and rank {ref.rank}"
    elif ref.tile is not None and any(a > b for a, b in zip(array.shape, ref.tile, strict=True)):
        what, why = f"{name} has shape {array.shape}", f"its tile holds at most {ref.tile}"
    elif ref.mode is not AccessMode.IN and not array.flags.writeable:
        what, why = f"{name} is read-only", "the kernel writes it"
    if not what:
        return array
    raise TypeCheckError(
        Code.TILE_MISFIT,
        f"kernel {kernel}: {what}",
        loc=srcloc.here(),
        why=why,
        fix="pass an array that fits, or a slice of it",
    )
