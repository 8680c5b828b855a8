"""Programs for a GPU from programs with any kernels: the same nest, regions, scalars and names,
with tile operations in place of Python and C++.

Every such kernel folds all that it reads into a number, element by element, and changes all that it
writes by it, so that a lost or wrong order of two tasks shows in the result.
"""

# Values of kernels are of many types.
# pyright: basic
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pto_wsp import DType, ir, pto
from pto_wsp.frontend.tile_body import TileBody

FLOATS = (DType.F64, DType.F32, DType.F16, DType.BF16)
I64 = DType.I64


def twin(module: ir.Module) -> ir.Module:
    """The module with tile kernels; those that are stay what they are."""
    return replace(module, kernels=tuple(map(_kernel, module.kernels)))


def _kernel(decl: ir.KernelDecl) -> ir.KernelDecl:
    if decl.form is ir.BodyForm.TILE_IR:
        return decl
    body = TileBody(decl.name, _body(decl.params))
    return replace(decl, form=ir.BodyForm.TILE_IR, source=body.text(decl.params), includes=())


def _body(params: tuple[ir.AnyParam, ...]) -> Any:
    def body(*given):
        state = pto.carry(sum=pto.scalar(1, I64))
        named = list(zip(params, given, strict=True))
        for param, value in named:
            match param:
                case ir.ScalarDecl():
                    state.sum = state.sum * 31 + _whole(value, param.dtype)
                case ir.ParamDecl(mode=ir.Mode.IN) if param.view is not ir.ViewKind.TOKEN:
                    _fold(state, param, value)
                case _:
                    pass
        for param, value in named:
            match param:
                case ir.ParamDecl(mode=mode, view=view) if view is not ir.ViewKind.TOKEN:
                    if mode is not ir.Mode.IN:
                        _write(state, param, value)
                case _:
                    pass

    return body


def _fold(state, param: ir.ParamDecl, ref) -> None:
    def add(at) -> None:
        state.sum = state.sum * 31 + _whole(pto.load(ref[at]), param.dtype)

    _each(ref, param.rank, add)


def _write(state, param: ir.ParamDecl, ref) -> None:
    """Out: the sum; InOut: three times what was there, or half of it, and the sum."""

    def change(at) -> None:
        before = None if param.mode is ir.Mode.OUT else pto.load(ref[at])
        pto.store(ref[at], _changed(before, state.sum, param.dtype))
        state.sum = state.sum + 1

    _each(ref, param.rank, change)


def _whole(value, dtype: DType):
    """A number of any dtype as an integer."""
    if dtype in FLOATS:
        return pto.cast(pto.floor(value * 8.0), I64)
    return pto.cast(value, I64)


def _changed(before, number, dtype: DType):
    """Exact in every dtype, so that no order of rounding shows."""
    if dtype is DType.BOOL:
        odd = (number & 1) == 1
        return odd if before is None else odd ^ before
    if dtype in FLOATS:
        small = pto.cast(number & 15, dtype)
        return small if before is None else before * 0.5 + small
    number = pto.cast(number, dtype)
    return number if before is None else before * 3 + number


def _each(ref, rank: int, visit: Callable[[Any], None], at: tuple[Any, ...] = ()) -> None:
    """Every element."""
    d = len(at)
    if d == rank:
        visit(at if rank else ...)
        return
    for i in pto.for_range(0, ref.shape[d]):
        _each(ref, rank, visit, (*at, i))
