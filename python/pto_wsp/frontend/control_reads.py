"""Elements of arrays that control reads."""

from __future__ import annotations

from typing import cast

from pto_wsp import ir, srcloc
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.frontend.context import Scope
from pto_wsp.frontend.scalar_expr import (
    SymInt,
    as_int,
    as_symint,
    atom,
    is_integer,
    kind_of,
    poly_expr,
)
from pto_wsp.frontend.trace import current


def element(array: str, index: object, rank: int = 1) -> SymInt:
    """array[index] or array[i, j], for control."""
    tracer = current(f"{array}[...]")
    given = cast("tuple[object, ...]", index) if isinstance(index, tuple) else (index,)
    if len(given) != rank:
        raise CompileError(
            Code.ARRAY_INDEX,
            f"{array} is indexed with {len(given)} indices",
            loc=srcloc.here(),
            why=f"it has {rank} dimension{'s' if rank > 1 else ''}, and control reads one element",
            fix=f"write {array}[{', '.join('ij'[:rank])}]",
        )
    places = [place(array, each) for each in given]
    load = ir.ArrayLoad(array, *(poly_expr(place) for place in places))
    scopes = frozenset[Scope]().union(*(place.scopes for place in places))
    return atom(load, tracer.scope, *scopes)


def place(array: str, index: object) -> SymInt:
    """An index of an array whose length is known at execute only."""
    number = as_int(index)
    if number is not None and number < 0:
        raise CompileError(
            Code.ARRAY_INDEX,
            f"{array}[{index}] cannot be traced",
            loc=srcloc.here(),
            why="the length of an array may change from run to run, so there is no counting from "
            "its end",
            fix="use an index of at least 0",
        )
    if not is_integer(index):
        raise CompileError(
            Code.ARRAY_INDEX,
            f"{array} is indexed with {kind_of(index)}",
            loc=srcloc.here(),
            why="control reads one element at a time",
            fix=f"write {array}[i] with a loop variable, an integer or an expression of them; what "
            f"kernels work on is a tensor: pass Tensor(data={array})",
        )
    return as_symint(index)
