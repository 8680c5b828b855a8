"""What a legal tile kernel is. The tables at the end list every rule, in the order they are tried.

A rule yields what is wrong with a kernel, a statement or a block; the first thing found is raised
as a CompileError at the statement's line. Types are asked of `infer`, which raises by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError
from pto_wsp.kernels.tile_ir.infer import infer, join
from pto_wsp.kernels.tile_ir.nodes import (
    Block,
    RefType,
    ScalarType,
    Statement,
    TileKernel,
    TileType,
    Type,
    Value,
)
from pto_wsp.kernels.tile_ir.operands import I64, MAX_EXTENT, type_text
from pto_wsp.kernels.tile_ir.ops import ATTRIBUTES, OPS, Group, Op
from pto_wsp.srcloc import SrcLoc

MAX_RANK = 8
MAX_BLOCKS = 32  # inside each other
MAX_STATEMENTS = 1 << 16


@dataclass
class Scope:
    """The values that a place sees, and the numbers that are taken anywhere in the kernel."""

    visible: dict[int, Value] = field(default_factory=dict[int, Value])
    taken: set[int] = field(default_factory=set[int])
    depth: int = 0
    statements: int = 0


def check(kernel: TileKernel) -> None:
    """CompileError if the kernel breaks a rule."""
    scope = Scope()
    for rule in KERNEL_RULES:
        _raise_first(rule(kernel), kernel.loc)
    _define(kernel.params, scope, kernel.loc)
    _check_body(kernel.body, scope)


def _raise_first(faults: Iterator[str], loc: SrcLoc | None) -> None:
    for fault in faults:
        raise CompileError(Code.IR_ILLEGAL, fault, loc=loc, why="a tile kernel must keep the rules")


def _define(values: Sequence[Value], scope: Scope, loc: SrcLoc | None) -> None:
    for value in values:
        for rule in VALUE_RULES:
            _raise_first(rule(value, scope), loc)
        scope.taken.add(value.number)
        scope.visible[value.number] = value


def _check_body(body: Sequence[Statement], scope: Scope) -> None:
    for statement in body:
        scope.statements += 1
        for rule in STATEMENT_RULES:
            _raise_first(rule(statement, scope), statement.loc)
        for block in statement.blocks:
            _check_block(statement, block, scope)
        _raise_first(results_have_their_types(statement), statement.loc)
        _define(statement.results, scope, statement.loc)


def _check_block(statement: Statement, block: Block, scope: Scope) -> None:
    outside = dict(scope.visible)
    scope.depth += 1
    _define(block.params, scope, statement.loc)
    _check_body(block.body, scope)
    for rule in BLOCK_RULES:
        _raise_first(rule(statement, block, scope), statement.loc)
    scope.depth -= 1
    scope.visible = outside


# --- rules of kernels ----------------------------------------------------------------------------


def kernel_has_a_name(kernel: TileKernel) -> Iterator[str]:
    if not kernel.name:
        yield "a kernel without a name"


def params_are_references_and_scalars(kernel: TileKernel) -> Iterator[str]:
    for param in kernel.params:
        if isinstance(param.type, TileType):
            yield f"parameter %{param.number} is a tile; parameters are references and scalars"


def references_are_legal(kernel: TileKernel) -> Iterator[str]:
    for param in kernel.params:
        ref = param.type
        if not isinstance(ref, RefType):
            continue
        if not 0 <= ref.rank <= MAX_RANK:
            yield f"parameter %{param.number} has rank {ref.rank}, legal are 0 to {MAX_RANK}"
        if ref.tile is not None and (len(ref.tile) != ref.rank or not ref.tile):
            yield f"parameter %{param.number} has a tile of another rank"
        if ref.tile is not None and not all(0 < size <= MAX_EXTENT for size in ref.tile):
            yield f"parameter %{param.number} has an extent outside 1 to {MAX_EXTENT}"
        if ref.paged and ref.rank == 0:
            yield f"parameter %{param.number} has pages and no dimension"


# --- rules of values -----------------------------------------------------------------------------


def numbers_are_unique(value: Value, scope: Scope) -> Iterator[str]:
    if value.number in scope.taken:
        yield f"%{value.number} is defined twice"


def tiles_have_extents(value: Value, scope: Scope) -> Iterator[str]:
    del scope
    tile = value.type
    if not isinstance(tile, TileType):
        return
    if not all(0 < size <= MAX_EXTENT for size in tile.shape):
        yield f"%{value.number} has an extent outside 1 to {MAX_EXTENT}"
    if any(partial and size == 1 for partial, size in zip(tile.partial, tile.shape, strict=True)):
        yield f"%{value.number} is partial where its extent is 1"


# --- rules of statements -------------------------------------------------------------------------


def kernel_is_not_too_long(statement: Statement, scope: Scope) -> Iterator[str]:
    del statement
    if scope.statements > MAX_STATEMENTS:
        yield f"more than {MAX_STATEMENTS} statements"


def operands_are_visible(statement: Statement, scope: Scope) -> Iterator[str]:
    for operand in statement.operands:
        yield from _visible(operand, scope, statement.op)


def _visible(value: Value, scope: Scope, op: Op) -> Iterator[str]:
    known = scope.visible.get(value.number)
    if known is None:
        yield f"{op.value} uses %{value.number}, which no statement before it defines"
    elif known.type != value.type:
        was = type_text(known.type)
        yield f"{op.value} uses %{value.number} as {type_text(value.type)}, but it is {was}"


def operand_count_fits(statement: Statement, scope: Scope) -> Iterator[str]:
    del scope
    wanted, found = OPS[statement.op].operands, len(statement.operands)
    least = _LEAST.get(statement.op, 0)
    if wanted != -1 and found != wanted:
        yield f"{statement.op.value} has {found} operands, it takes {wanted}"
    if found < least:
        yield f"{statement.op.value} has {found} operands, it takes at least {least}"


_LEAST = {Op.LOAD: 1, Op.STORE: 2, Op.CONCAT: 1, Op.FOR: 3}


def attributes_fit(statement: Statement, scope: Scope) -> Iterator[str]:
    del scope
    wanted = ATTRIBUTES.get(statement.op, {})
    names = [key for key, _ in statement.attributes]
    if sorted(names) != sorted(wanted):
        yield f"{statement.op.value} has attributes {sorted(names)}, it takes {sorted(wanted)}"
        return
    for key, value in statement.attributes:
        is_bool = isinstance(value, bool)
        accepted = wanted[key]
        takes_bool = accepted is bool or (isinstance(accepted, tuple) and bool in accepted)
        whole = not isinstance(value, tuple) or all(type(each) is int for each in value)
        if not isinstance(value, accepted) or is_bool > takes_bool or not whole:
            yield f"attribute {key} of {statement.op.value} is {value!r}"


def blocks_fit(statement: Statement, scope: Scope) -> Iterator[str]:
    wanted = {Op.FOR: 1, Op.WHEN: 2}.get(statement.op, 0)
    if len(statement.blocks) != wanted:
        yield f"{statement.op.value} has {len(statement.blocks)} blocks, it takes {wanted}"
    if statement.blocks and scope.depth == MAX_BLOCKS:
        yield f"blocks nested more than {MAX_BLOCKS} deep"


def loop_head_fits(statement: Statement, scope: Scope) -> Iterator[str]:
    del scope
    if statement.op is not Op.FOR:
        return
    if any(operand.type != I64 for operand in statement.operands[:3]):
        yield "start, stop and step of a loop are i64"
    given, params = statement.operands[3:], statement.blocks[0].params
    if not params or params[0].type != I64:
        yield "the first parameter of a loop is its index, i64"
    elif len(params) - 1 != len(given):
        yield f"a loop carries {len(params) - 1} values and is given {len(given)}"
    for param, operand in zip(params[1:], given, strict=False):
        if not _holds(param.type, operand.type):
            yield _widths("a loop is given", operand, param.type)


def condition_fits(statement: Statement, scope: Scope) -> Iterator[str]:
    del scope
    if statement.op is not Op.WHEN:
        return
    if statement.operands[0].type != ScalarType(DType.BOOL):
        yield "the condition of when is a bool scalar"
    if any(block.params for block in statement.blocks):
        yield "the branches of when have no parameters"


def _holds(wide: Type, narrow: Type) -> bool:
    return not isinstance(wide, RefType) and join(wide, narrow) == wide


def _widths(what: str, value: Value, wanted: Type) -> str:
    return f"{what} %{value.number}, {type_text(value.type)}, for {type_text(wanted)}"


# --- rules of blocks, once what is inside of them is known ---------------------------------------


def yields_are_visible(statement: Statement, block: Block, scope: Scope) -> Iterator[str]:
    for value in block.yields:
        yield from _visible(value, scope, statement.op)


def yields_fit(statement: Statement, block: Block, scope: Scope) -> Iterator[str]:
    del scope
    wanted = block.params[1:] if statement.op is Op.FOR else statement.results
    if len(block.yields) != len(wanted):
        yield f"a block of {statement.op.value} yields {len(block.yields)} values of {len(wanted)}"
        return
    for value, target in zip(block.yields, wanted, strict=True):
        if not _holds(target.type, value.type):
            yield _widths(f"a block of {statement.op.value} yields", value, target.type)


def results_have_their_types(statement: Statement) -> Iterator[str]:
    found = tuple(result.type for result in statement.results)
    if statement.op is Op.WHEN:
        return  # its blocks yield what fits
    if statement.op is Op.FOR:
        wanted = tuple(param.type for param in statement.blocks[0].params[1:])
    else:
        wanted = _inferred(statement)
    if found != wanted:
        shown = [", ".join(map(type_text, types)) or "nothing" for types in (found, wanted)]
        yield f"{statement.op.value} gives {shown[0]}, its type is {shown[1]}"


def _inferred(statement: Statement) -> tuple[Type, ...]:
    assert OPS[statement.op].group is not Group.CONTROL
    operands = [operand.type for operand in statement.operands]
    try:
        return infer(statement.op, operands, dict(statement.attributes))
    except CompileError as error:
        error.loc = error.loc or statement.loc
        raise


KERNEL_RULES: tuple[Callable[[TileKernel], Iterator[str]], ...] = (
    kernel_has_a_name,
    params_are_references_and_scalars,
    references_are_legal,
)
VALUE_RULES: tuple[Callable[[Value, Scope], Iterator[str]], ...] = (
    numbers_are_unique,
    tiles_have_extents,
)
STATEMENT_RULES: tuple[Callable[[Statement, Scope], Iterator[str]], ...] = (
    kernel_is_not_too_long,
    operands_are_visible,
    operand_count_fits,
    attributes_fit,
    blocks_fit,
    loop_head_fits,
    condition_fits,
)
BLOCK_RULES: tuple[Callable[[Statement, Block, Scope], Iterator[str]], ...] = (
    yields_are_visible,
    yields_fit,
)
