"""A traced workload under other names: as a stage of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace

from pto_wsp import ir
from pto_wsp.frontend import extents
from pto_wsp.frontend.compose import Traced


def renamed(traced: Traced, stage: str, names: Mapping[str, str], given: Set[str]) -> Traced:
    """Its symbols and tensors under the names that `names` has for them, with the first values of
    those in `given`, and with the stage on every call."""

    def new(name: str) -> str:
        return names.get(name, name)  # temporaries keep theirs

    def in_expr(expr: ir.Expr) -> ir.Expr:
        match expr:
            case ir.SymbolRef(name):
                return ir.SymbolRef(new(name))
            case ir.ArrayLoad():
                return replace(expr, array=new(expr.array))
            case ir.ShapeOf():
                return replace(expr, tensor=new(expr.tensor))
            case _:
                return expr

    def in_argument(arg: ir.Argument) -> ir.Argument:
        return replace(arg, tensor=new(arg.tensor)) if isinstance(arg, ir.Region) else arg

    def in_stmt(stmt: ir.Stmt) -> ir.Stmt:
        match stmt:
            case ir.Call():
                args = tuple(in_argument(arg) for arg in stmt.args)
                return replace(stmt, args=args, stage=stage)
            case ir.SlotLoad():
                return replace(stmt, region=replace(stmt.region, tensor=new(stmt.region.tensor)))
            case ir.Loop():
                arrays = (None if a is None else new(a) for a in (stmt.lengths, stmt.indices))
                lengths, indices = arrays
                return replace(stmt, lengths=lengths, indices=indices)
            case _:
                return stmt

    def declared(tensor: ir.TensorDecl) -> ir.TensorDecl:
        pages = tensor.pages
        if pages is not None:
            pages = replace(pages, pool=new(pages.pool), table=new(pages.table))
        shape = tuple(ir.map_expr(size, in_expr) for size in tensor.shape)
        return replace(tensor, name=new(tensor.name), shape=shape, pages=pages)

    module = traced.module
    body = ir.map_exprs(ir.map_stmts(module.body, in_stmt), lambda e: ir.map_expr(e, in_expr))
    symbols = _once(replace(each, name=new(each.name)) for each in module.symbols)
    tensors = _once_with_extents(map(declared, module.tensors))
    changed = replace(module, symbols=symbols, tensors=tensors, body=body)
    defaults = {new(name): value for name, value in traced.defaults.items() if name in given}
    return replace(traced, module=changed, defaults=defaults)


def _once_with_extents(decls: Iterable[ir.TensorDecl]) -> tuple[ir.TensorDecl, ...]:
    found: dict[str, ir.TensorDecl] = {}
    for each in decls:
        known = found.setdefault(each.name, each)
        fixed = extents.joined(each.name, known.fixed, each.fixed, each.loc)
        found[each.name] = replace(known, fixed=fixed)
    return tuple(found.values())


def _once(decls: Iterable[ir.SymbolDecl]) -> tuple[ir.SymbolDecl, ...]:
    """Names of one stage may have become one."""
    found: dict[str, ir.SymbolDecl] = {}
    for each in decls:
        found.setdefault(each.name, each)
    return tuple(found.values())
