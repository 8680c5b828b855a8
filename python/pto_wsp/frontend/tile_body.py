"""Kernels with tile code: tracing a specialisation, and evaluating it alone."""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType

import numpy as np

from pto_wsp import ir, srcloc
from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.frontend import context, kernel_source
from pto_wsp.frontend.alone import Arguments, failed
from pto_wsp.frontend.annotations import Param
from pto_wsp.frontend.specialise import decls_of
from pto_wsp.kernels import tile_ir
from pto_wsp.kernels.numpy_eval import evaluate
from pto_wsp.kernels.numpy_ops import TileFault
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
            except CompileError as error:
                error.loc = srcloc.of_user(error.loc, self._name)
                raise
            finally:
                context.active.reset(token)
            self._traced[params] = known
        return known

    def traced(self, params: tuple[Param, ...], given: Mapping[str, object]) -> TileKernel:
        return self.specialised(decls_of(self._name, params, given))

    def evaluate(self, given: Arguments) -> None:
        """The NumPy meaning, of one task alone."""
        seen = [v for v in given.values if isinstance(v, np.ndarray | np.generic)]
        try:
            evaluate(self.specialised(given.decls()), seen)
        except TileFault as fault:
            raise failed(self._name, str(fault)) from fault

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
