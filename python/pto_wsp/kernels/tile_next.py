"""Products over pages: which are computed together, and what is read behind each.

Heads of a cache lie on the same pages. Products with some of them, one behind the other, become one
instruction, which reads pages whole and in order. While it computes, it asks for what the next one
reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

from pto_wsp.kernels.tile_expr import dtype_of, expression, tile_type
from pto_wsp.kernels.tile_ir import Block, Op, Statement, Value
from pto_wsp.kernels.tile_uses import is_pure_scalar, only_right_operand
from pto_wsp.kernels.tile_windows import Region, paged_window, region_of, scalar_text
from pto_wsp.kernels.tile_writer import Writer

_FEW_ROWS = 16  # with more, computing takes longer than memory: kFewRows of core/tile/matmul_few.h

Group: TypeAlias = list[Statement]  # products that are computed together


def find_groups(w: Writer, body: Sequence[Statement]) -> list[Group]:
    """All products over pages, those that belong together in one group. Between them stand only
    statements that compute nothing: scalars, loads of pages, views."""
    groups: list[Group] = []
    is_open = False
    for stmt in body:
        load = _paged_operand(w, stmt)
        if load is not None:
            if is_open and _fits(w, groups[-1], stmt, load):
                groups[-1].append(stmt)
            else:
                groups.append([stmt])
            is_open = True
        elif not _computes_nothing(w, stmt):
            is_open = False
    return groups


def _computes_nothing(w: Writer, stmt: Statement) -> bool:
    if stmt.op is Op.LOAD:
        return _is_window(w, stmt)
    return is_pure_scalar(stmt) or (bool(stmt.results) and stmt.results[0].number in w.uses.views)


def _fits(w: Writer, group: Group, stmt: Statement, load: Statement) -> bool:
    """Whether a product reads other elements of the tokens that those of a group read."""
    first = group[0]
    region, other = (region_of(each) for each in (load, _right_load(w, first)))
    made = {product.results[0].number for product in group}
    return (
        stmt.op is first.op
        and _place(w, region) == _place(w, other)
        and [tile_type(v).shape for v in stmt.operands]
        == [tile_type(v).shape for v in first.operands]
        and _kinds(w, stmt) == _kinds(w, first)
        and made.isdisjoint(w.uses.views_of(v)[-1].number for v in stmt.operands)
    )


def _place(w: Writer, region: Region) -> tuple[object, ...]:
    """Which tokens of which parameter a region has, and how its dimensions lie."""
    return (region.param.number, w.scalar(region.offsets[0]), region.row_dim, region.col_dim)


def _kinds(w: Writer, stmt: Statement) -> list[object]:
    """The types in memory of the operands, and whether the second one is transposed."""
    chain = w.uses.views_of(stmt.operands[-1])
    left = w.uses.views_of(stmt.operands[-2])[-1]
    turned = sum(w.uses.definitions[v.number].op is Op.TRANSPOSE for v in chain[:-1]) % 2
    return [dtype_of(left), dtype_of(stmt.results[0]), turned]


def find_next(w: Writer, block: Block, step: str) -> dict[int, str]:
    """For each group of a loop body: the window that the next one reads, or the first one in the
    next iteration. The next one is the next whose windows are of the same type and size."""
    groups = find_groups(w, block.body)
    found: dict[int, str] = {}
    for mine in _alike(w, groups):
        for group, later in pairwise([*mine, mine[0]]):
            shift = f" + {step}" if later is mine[0] else ""
            text = _window_at(w, block, _right_load(w, later[0]), shift)
            if text is not None:
                found[id(group[0])] = text
    return found


def _alike(w: Writer, groups: list[Group]) -> list[list[Group]]:
    """The groups whose windows are of one type and size, so that each can ask for the next."""
    kinds: dict[object, list[Group]] = {}
    for group in groups:
        region = region_of(_right_load(w, group[0]))
        kind = (region.ref.dtype, region.ref.rank, region.ref.mode, region.shape, len(group))
        kinds.setdefault(kind, []).append(group)
    return list(kinds.values())


def _right_load(w: Writer, product: Statement) -> Statement:
    return w.uses.definitions[w.uses.views_of(product.operands[-1])[-1].number]


def _paged_operand(w: Writer, stmt: Statement) -> Statement | None:
    """The load of a product's second operand, if it is one of pages in the same block."""
    if stmt.op not in (Op.MATMUL, Op.MATMUL_ACC) or tile_type(stmt.operands[-2]).rows > _FEW_ROWS:
        return None
    value = w.uses.views_of(stmt.operands[-1])[-1]
    load = w.uses.definitions.get(value.number)
    if load is None or load.op is not Op.LOAD or w.uses.home[value.number] != _home(w, stmt):
        return None
    return load if _is_window(w, load) else None


def _is_window(w: Writer, load: Statement) -> bool:
    """Whether a load copies nothing: its pages are read where they lie."""
    region = region_of(load)
    inside = region.ref.paged and region.row_dim == 0 and not w.uses.changes(region.param)
    return inside and only_right_operand(w.uses, load.results[0])


def _home(w: Writer, stmt: Statement) -> int:
    return w.uses.owner[id(stmt)]


def _window_at(w: Writer, block: Block, load: Statement, shift: str) -> str | None:
    """The window of a load, with the index of the loop shifted; None where that is not known."""
    region = region_of(load)
    offsets = [_scalar_at(w, block, offset, shift) for offset in region.offsets]
    if None in offsets:
        return None
    known = [text for text in offsets if text is not None]
    rows, cols = region.shape
    return paged_window(w, region, (known, str(rows), str(cols)))


def _scalar_at(w: Writer, block: Block, value: Value, shift: str) -> str | None:
    made = w.uses.definitions.get(value.number)
    if value.number == block.params[0].number:
        return f"({w.names.of(value)}{shift})" if shift else w.names.of(value)
    if w.uses.home[value.number] != id(block) or (made is not None and made.op is Op.CONST):
        return w.scalar(value)
    if made is None or not is_pure_scalar(made):
        return None
    if made.op is Op.EXTENT:
        return scalar_text(w, made)
    operands = [_scalar_at(w, block, operand, shift) for operand in made.operands]
    known = [f"({text})" for text in operands if text is not None]
    return expression(made, known, is_vector=False) if len(known) == len(operands) else None
