"""Carried tiles that would lose elements: a whole tile plus a block that ends early ends there too,
and so does everything that is added to it later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.kernels.tile_bounds import WORDS, Bounds, find_bounds
from pto_wsp.kernels.tile_ir import Op, Statement, TileKernel, Value


def refuse_shrinking(kernel: TileKernel) -> None:
    """CompileError if a loop carries a tile whose extents depend on the iteration and on what they
    were before."""
    bounds = find_bounds(kernel, _name, lambda name: name)
    for loop in _loops(kernel.body):
        for result, param in zip(loop.results, loop.blocks[0].params[1:], strict=True):
            for dim in (0, 1):
                if _shrinks(bounds, result, param, dim):
                    raise _error(param, dim, loop)


def _name(value: Value) -> str:
    return f"%{value.number}"


def _loops(body: Sequence[Statement]) -> Iterator[Statement]:
    for stmt in body:
        if stmt.op is Op.FOR:
            yield stmt
        for block in stmt.blocks:
            yield from _loops(block.body)


def _shrinks(bounds: Bounds, result: Value, param: Value, dim: int) -> bool:
    merge = bounds.merges.get((result.number, dim))
    own = f"{_name(param)}_{WORDS[dim]}"
    return merge is not None and merge.varies and own in merge.made and len(merge.made) > 1


def _error(param: Value, dim: int, loop: Statement) -> CompileError:
    what = ("rows", "columns")[dim]
    return CompileError(
        Code.TILE_CARRY,
        f"{param.name or 'a carried value'} would lose {what} from iteration to iteration",
        loc=loop.loc,
        why="operations compute where all their operands have elements, and a block that the loop "
        "loads may end early: so would the carried tile, and all that follows",
        fix="make the block whole first: pto.pad(block, 0.0), or what changes nothing here",
    )
