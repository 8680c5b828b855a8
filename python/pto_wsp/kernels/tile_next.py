"""What a loop over pages reads next: products ask for it while they compute."""

from __future__ import annotations

from itertools import pairwise

from pto_wsp.kernels.tile_expr import expression, tile_type
from pto_wsp.kernels.tile_ir import Block, Op, Statement, Value
from pto_wsp.kernels.tile_uses import is_pure_scalar, only_right_operand
from pto_wsp.kernels.tile_windows import paged_window, region_of, scalar_text
from pto_wsp.kernels.tile_writer import Writer

_FEW_ROWS = 16  # with more, computing takes longer than memory: kFewRows of core/tile/matmul_few.h


def find_next(w: Writer, block: Block, step: str) -> dict[int, str]:
    """For each product of a loop body that reads pages: the window of the next product that reads
    pages of the same parameter, which lie as its own do. For the last one it is that of the next
    iteration."""
    products = [
        (stmt, load) for stmt in block.body if (load := _paged_operand(w, stmt)) is not None
    ]
    found: dict[int, str] = {}
    for param in {region_of(load).param.number for _, load in products}:
        same = [each for each in products if region_of(each[1]).param.number == param]
        for (stmt, _), (_, load) in pairwise([*same, same[0]]):
            text = _window_at(w, block, load, f" + {step}" if load is same[0][1] else "")
            if text is not None:
                found[id(stmt)] = text
    return found


def _paged_operand(w: Writer, stmt: Statement) -> Statement | None:
    """The load of a product's second operand, if it is one of pages in the same block."""
    if stmt.op not in (Op.MATMUL, Op.MATMUL_ACC) or tile_type(stmt.operands[-2]).rows > _FEW_ROWS:
        return None
    value = stmt.operands[-1]
    while value.number in w.uses.views:
        value = w.uses.definitions[value.number].operands[0]
    load = w.uses.definitions.get(value.number)
    if load is None or load.op is not Op.LOAD or w.uses.home[value.number] != _home(w, stmt):
        return None
    region = region_of(load)
    is_window = region.ref.paged and region.row_dim == 0 and only_right_operand(w.uses, value)
    return load if is_window else None


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
        return w.names.of(value) + shift
    if w.uses.home[value.number] != id(block) or (made is not None and made.op is Op.CONST):
        return w.scalar(value)
    if made is None or not is_pure_scalar(made):
        return None
    if made.op is Op.EXTENT:
        return scalar_text(w, made)
    operands = [_scalar_at(w, block, operand, shift) for operand in made.operands]
    known = [f"({text})" for text in operands if text is not None]
    return expression(made, known, is_vector=False) if len(known) == len(operands) else None
