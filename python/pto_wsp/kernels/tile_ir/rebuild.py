"""Makes statements anew with other values in place of some: for what turns out to be constant, and
for loops that turn out to carry partial tiles. Types are inferred again, so that what is wider goes
on to be wider in everything computed from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pto_wsp.errors import CompileError
from pto_wsp.kernels.tile_ir.infer import infer, join
from pto_wsp.kernels.tile_ir.nodes import Block, Statement, Type, Value
from pto_wsp.kernels.tile_ir.ops import Op

Values = dict[int, Value]  # by the number of what they replace


def rebuild(body: Sequence[Statement], values: Values) -> tuple[Statement, ...]:
    """The statements with operands replaced. Results keep their numbers and are added to `values`
    where their types change."""
    return tuple(_statement(each, values) for each in body)


def replaced(operands: Sequence[Value], values: Mapping[int, Value]) -> tuple[Value, ...]:
    return tuple(values.get(operand.number, operand) for operand in operands)


def widened_loop(
    given: Sequence[Value],
    params: Sequence[Value],
    body: Sequence[Statement],
    yields: Sequence[Value],
) -> tuple[Block, tuple[int, ...]]:
    """A loop's block, whose first parameter is the index, with parameters as partial as what they
    are given; and which of the carried values have changed their dtype or shape, which nothing can
    repair."""
    values: Values = {}
    block = Block(tuple(params), tuple(body), tuple(yields))
    while True:
        wanted = [param.type for param in block.params[1:]]
        for position, (value, first) in enumerate(zip(block.yields, given, strict=True)):
            for each in (value, first):
                wider = join(wanted[position], each.type)
                if wider is None:
                    return block, (position,)
                wanted[position] = wider
        carried = _retyped(block.params[1:], wanted, values)
        if carried == block.params[1:]:
            return block, ()
        inside = rebuild(block.body, values)
        block = Block((block.params[0], *carried), inside, replaced(block.yields, values))


def _retyped(old: Sequence[Value], types: Sequence[Type], values: Values) -> tuple[Value, ...]:
    """Values of the same numbers with these types; those that change are added to `values`."""
    made = tuple(replace(value, type=each) for value, each in zip(old, types, strict=True))
    for before, after in zip(old, made, strict=True):
        if before.type != after.type:
            values[before.number] = after
    return made


def _statement(statement: Statement, values: Values) -> Statement:
    operands = replaced(statement.operands, values)
    if statement.op is Op.FOR:
        block = statement.blocks[0]
        inside = rebuild(block.body, values)
        yields = replaced(block.yields, values)
        block, _ = widened_loop(operands[3:], block.params, inside, yields)
        types = [param.type for param in block.params[1:]]
        results = _retyped(statement.results, types, values)
        return replace(statement, operands=operands, blocks=(block,), results=results)
    if statement.op is Op.WHEN:
        blocks = tuple(
            Block(b.params, rebuild(b.body, values), replaced(b.yields, values))
            for b in statement.blocks
        )
        results = _retyped(statement.results, branch_types(blocks), values)
        return replace(statement, operands=operands, blocks=blocks, results=results)
    if operands == statement.operands:
        return statement
    try:
        types = infer(statement.op, [o.type for o in operands], dict(statement.attributes))
    except CompileError as error:
        error.loc = error.loc or statement.loc
        raise
    return replace(statement, operands=operands, results=_retyped(statement.results, types, values))


def branch_types(blocks: Sequence[Block]) -> list[Type]:
    """The types of what a condition gives: of each value, what holds it from either branch."""
    found: list[Type] = []
    for one, other in zip(blocks[0].yields, blocks[1].yields, strict=True):
        joined = join(one.type, other.type)
        assert joined is not None  # `check` and the tracer have seen to it
        found.append(joined)
    return found
