"""The calls of a module and what they touch, for analysis: the sites of its plan, in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from pto_wsp import ir
from pto_wsp.ir import polynomial as poly
from pto_wsp.ir.polynomial import Polynomial
from pto_wsp.srcloc import SrcLoc

AnyLoop: TypeAlias = ir.Loop | ir.While | ir.Consume


@dataclass(frozen=True, slots=True, eq=False)
class Around:
    """A loop around a site. Two of them are the same loop only if they are the same object."""

    stmt: AnyLoop

    @property
    def extent(self) -> int | None:
        """The number of iterations, where the text says it."""
        extent = self.stmt.extent if isinstance(self.stmt, ir.Loop) else None
        return extent.value if isinstance(extent, ir.Const) else None

    @property
    def ordered(self) -> bool:
        """Whether the program itself puts the iterations in order."""
        match self.stmt:
            case ir.While():
                return True
            case ir.Consume():
                return False
            case ir.Loop():
                return self.stmt.order is ir.Order.SEQUENTIAL


@dataclass(frozen=True, slots=True)
class Dim:
    """One dimension of a region: its first element, and how far it goes at most."""

    start: Polynomial | None  # None: not an integer sum
    extent: Polynomial | None  # None: unknown
    step: int | None


@dataclass(frozen=True, slots=True)
class Access:
    tensor: str
    mode: ir.Mode
    dims: tuple[Dim, ...]
    private: int = 0  # loops of which each iteration has a tensor of its own

    @property
    def reads(self) -> bool:
        return self.mode is not ir.Mode.OUT

    @property
    def writes(self) -> bool:
        return self.mode is not ir.Mode.IN


@dataclass(frozen=True, slots=True, eq=False)
class SiteUse:
    """A call, or a load by control."""

    number: int
    stmt: ir.Call | ir.SlotLoad
    loops: tuple[Around, ...]
    accesses: tuple[Access, ...]

    @property
    def name(self) -> str:
        return self.stmt.kernel if isinstance(self.stmt, ir.Call) else f"slot {self.stmt.slot}"

    @property
    def loc(self) -> SrcLoc | None:
        return self.stmt.loc


def sites_of(module: ir.Module) -> tuple[SiteUse, ...]:
    """All sites, numbered as in the plan."""
    kernels = {kernel.name: kernel for kernel in module.kernels}
    collector = _Collector(kernels)
    collector.body(module.body, (), {})
    return tuple(collector.found)


@dataclass(slots=True)
class _Collector:
    kernels: Mapping[str, ir.KernelDecl]
    found: list[SiteUse] = field(default_factory=list[SiteUse])

    def body(self, body: ir.Body, loops: tuple[Around, ...], private: Mapping[str, int]) -> None:
        for stmt in body:
            match stmt:
                case ir.Call():
                    self.add(stmt, loops, self.call(stmt, private))
                case ir.SlotLoad(_, region):
                    self.add(stmt, loops, (access_of(region, ir.Mode.IN, private),))
                case ir.Alloc(tensor):
                    private = {**private, tensor: len(loops)}
                case ir.Loop() | ir.While() | ir.Consume():
                    self.body(stmt.body, (*loops, Around(stmt)), private)
                case _:
                    for inner in ir.bodies(stmt):
                        self.body(inner, loops, private)

    def add(
        self,
        stmt: ir.Call | ir.SlotLoad,
        loops: tuple[Around, ...],
        accesses: tuple[Access, ...],
    ) -> None:
        self.found.append(SiteUse(len(self.found), stmt, loops, accesses))

    def call(self, call: ir.Call, private: Mapping[str, int]) -> tuple[Access, ...]:
        params = ir.given_params(self.kernels[call.kernel])
        return tuple(
            access_of(arg, param.mode, private)
            for param, arg in zip(params, call.args, strict=True)
            if isinstance(param, ir.ParamDecl) and isinstance(arg, ir.Region)
        )


def access_of(region: ir.Region, mode: ir.Mode, private: Mapping[str, int]) -> Access:
    dims = tuple(
        Dim(_sum_of(dim.start), _most(dim.extent), _constant(dim.step)) for dim in region.dims
    )
    return Access(region.tensor, mode, dims, private.get(region.tensor, 0))


def _sum_of(expr: ir.Expr) -> Polynomial | None:
    try:
        return poly.of_expr(expr)
    except (ValueError, poly.TooLarge):
        return None


def _constant(expr: ir.Expr) -> int | None:
    return expr.value if isinstance(expr, ir.Const) else None


def _most(extent: ir.Expr) -> Polynomial | None:
    """An upper bound that is a constant or one product: min(64, n - i) is at most 64, and so is
    min(i + 64, n) - i, the extent of a tile."""
    if isinstance(extent, ir.Binary) and extent.op is ir.BinaryOp.MIN:
        return _smaller([_most(extent.lhs), _most(extent.rhs)])
    if isinstance(extent, ir.Binary) and extent.op is ir.BinaryOp.SUB:
        end = extent.lhs
        if isinstance(end, ir.Binary) and end.op is ir.BinaryOp.MIN:
            ends = (replace(extent, lhs=side) for side in (end.lhs, end.rhs))
            return _smaller([_most(each) for each in ends])
    found = _sum_of(extent)
    return found if found is not None and len(found.terms) <= 1 else None


def _smaller(bounds: list[Polynomial | None]) -> Polynomial | None:
    """The one that says more: a constant."""
    known = [bound for bound in bounds if bound is not None]
    return min(known, key=lambda bound: not bound.is_constant, default=None)
