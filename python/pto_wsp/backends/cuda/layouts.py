"""What a plan says of extents and of how tensors lie in memory, compared with those of a run."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from pto_wsp.backends.cuda.code import operands
from pto_wsp.backends.cuda.keys import constant
from pto_wsp.error_codes import Code
from pto_wsp.errors import ExecutionError
from pto_wsp.plan import NONE, Dim, Expr, ExprOp, Plan, Section, Tensor
from pto_wsp.runtime.run_errors import run_error


class Layouts:
    """Extents are constants; strides of layouts are products of constants and extents."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        dims, tensors = plan.records(Dim), plan.records(Tensor)
        bound = [
            (number, tensor, d, dims[tensor.dims + d])
            for number, tensor in enumerate(tensors)
            if tensor.symbol != NONE
            for d in range(tensor.rank)
        ]
        self._extents = [(n, t, d, dim.shape) for n, t, d, dim in bound if dim.shape != NONE]
        self._strides = [(n, t, d, dim.stride) for n, t, d, dim in bound if dim.stride != NONE]

    def check(self, tensors: dict[int, Any], arrays: dict[int, npt.NDArray[Any]]) -> None:
        """ExecutionError if a tensor is or lies otherwise. `arrays` are those of the host, of which
        the tensors are copies. Strides by which no element is reached say nothing."""
        for number, tensor, d, extent in self._extents:
            size, wanted = tensors[tensor.symbol].shape[d], self._value(extent, tensors)
            if wanted is not None and wanted != size:
                what = f"has the extent {size} in dimension {d}, the workload is made for {wanted}"
                raise self._error(Code.BINDING_EXTENT, number, what)
        for number, tensor, d, stride in self._strides:
            there = tensors[tensor.symbol]
            if there.numel() == 0 or there.shape[d] == 1:
                continue
            array = arrays.get(tensor.symbol)
            found = there.stride(d) if array is None else array.strides[d] // array.itemsize
            wanted = self._value(stride, tensors)
            if wanted is not None and wanted != found:
                what = f"has the stride {found} in dimension {d}, its layout says {wanted}"
                raise self._error(Code.BINDING_ORDER, number, what)

    def _value(self, node: int, tensors: dict[int, Any]) -> int | None:
        e = self._plan.records(Expr)[node]
        if e.op == ExprOp.CONST:
            return constant(e)
        if e.op == ExprOp.SHAPE:
            return tensors[self._plan.records(Tensor)[e.a].symbol].shape[e.arg]
        values = [self._value(each, tensors) for each in operands(e)]
        known = [value for value in values if value is not None]
        return known[0] * known[1] if e.op == ExprOp.MUL and len(known) == 2 else None

    def _error(self, code: Code, number: int, what: str) -> ExecutionError:
        plan = self._plan
        name = plan.string(plan.records(Tensor)[number].name)
        return run_error(code, f"tensor {name!r} {what}", loc=plan.loc(Section.TENSOR, number))
