"""What is legal for locations and layouts; `verify` has the rules for the rest."""

from __future__ import annotations

from pto_wsp.error_codes import Code
from pto_wsp.errors import TypeCheckError
from pto_wsp.ir.layout import Location, MemLayout, TensorLayout, clash
from pto_wsp.ir.nodes import Call, ParamDecl, Region, TensorDecl, TensorKind
from pto_wsp.ir.verify_expr import Fault, Faults, Scope

_OFF_CHIP = (Location.Global, Location.L2)


def tensor_lies_where_its_kind_may(tensor: TensorDecl, scope: Scope) -> Faults:
    where = f"{tensor.kind.value} '{tensor.name}' lies in {tensor.location.name}"
    if tensor.kind is TensorKind.BOUND and tensor.location not in _OFF_CHIP:
        why = "UB and L1 are on the chip, where only temporaries lie"
        fix = "use Location.Global or Location.L2, or Tensor.temp(...) for an intermediate"
        yield Fault(where, why, fix, TypeCheckError, Code.LOCATION)
    if tensor.kind is TensorKind.TOKEN and tensor.location is not Location.Global:
        yield Fault(where, "a token has no memory", None, TypeCheckError, Code.LOCATION)
    pool = None if tensor.pages is None else scope.tensors.get(tensor.pages.pool)
    if pool is not None and pool.location is not tensor.location:
        message = f"{where}, its pool in {pool.location.name}"
        yield Fault(message, None, None, TypeCheckError, Code.LOCATION)


def layout_fits_the_tensor(tensor: TensorDecl, _: Scope) -> Faults:
    if tensor.layout is not None:
        yield from layout_faults(f"{tensor.kind.value} '{tensor.name}'", tensor, tensor.layout)


def layout_faults(what: str, tensor: TensorDecl, layout: TensorLayout) -> Faults:
    if tensor.kind in (TensorKind.TOKEN, TensorKind.PAGED):
        why = "tokens have no data, and paged tensors lie where their table says"
        yield Fault(f"{what} has the layout {layout!r}", why, None, TypeCheckError, Code.LAYOUT)
    if layout.rank != tensor.rank:
        message = f"{what} has rank {tensor.rank} and the layout {layout!r}"
        yield Fault(message, "a layout speaks of each dimension", None, TypeCheckError, Code.LAYOUT)
    rows = MemLayout.row_major()
    if tensor.kind is TensorKind.TEMP and layout.mem not in (None, rows):
        why = "temporaries are made in row-major order"
        yield Fault(f"{what} has the layout {layout!r}", why, None, TypeCheckError, Code.LAYOUT)


def location_fits(where: str, param: ParamDecl, region: Region, scope: Scope) -> Faults:
    found, wanted = scope.tensors[region.tensor].location, param.location
    if wanted is None or found is wanted:
        return
    sizes = ", ".join(map(str, param.shape or ()))
    tile = f"Tile[{sizes}, DType.{param.dtype.name}, {found!r}]"
    yield Fault(
        f"{where} is a tile in {wanted.name}, '{region.tensor}' lies in {found.name}",
        "a kernel is compiled for the memory that its tiles are in",
        f"pass a tensor with location={wanted!r}, or annotate {param.name} as {tile}",
        TypeCheckError,
        Code.LOCATION,
    )


def layouts_join(call: Call, scope: Scope) -> Faults:
    """The tensors of a call that have a layout must be usable together."""
    seen: list[tuple[str, TensorLayout]] = []
    for region in call.regions:
        tensor = scope.tensors[region.tensor]
        layout = region.layout or tensor.layout
        if layout is None:
            continue
        for name, earlier in seen:
            why = clash(earlier, layout, f"'{name}'", f"'{tensor.name}'")
            if why is not None:
                message = f"kernel '{call.kernel}' gets '{name}' as {earlier!r} and"
                message = f"{message} '{tensor.name}' as {layout!r}, which do not join"
                fix = _way_out(tensor.name, layout, seen)
                yield Fault(message, why, fix, TypeCheckError, Code.LAYOUTS_APART)
                return
        seen.append((tensor.name, layout))


def _way_out(name: str, layout: TensorLayout, seen: list[tuple[str, TensorLayout]]) -> str:
    """The relayout that makes a tensor fit those before it; memory takes a copy instead."""
    joined = seen[0][1]
    for _, each in seen[1:]:
        joined = joined.join(each)
    if joined.mem is not None and layout.mem is not None and joined.mem != layout.mem:
        copies = "np.ascontiguousarray and np.asfortranarray make one"
        return f"pass a copy of '{name}' that is {joined.mem!r}; {copies}"
    return f"pass relayout({name}, {joined.fitted(layout).code})"
