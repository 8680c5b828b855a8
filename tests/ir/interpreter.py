"""The tasks of a module by plain interpretation: the oracle that lowering is compared with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never

from pto_wsp import ir


@dataclass(frozen=True)
class Bindings:
    """What execute binds: values of extents, elements of arrays, shapes of tensors."""

    extents: Mapping[str, int] = field(default_factory=dict)
    arrays: Mapping[str, Sequence[int]] = field(default_factory=dict)
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)


Box: TypeAlias = tuple[tuple[int, int, int], ...]  # start, extent, step of each dimension


@dataclass(frozen=True)
class Task:
    kernel: str
    path: tuple[int, ...]  # child numbers from the module's body down to the call
    loop_indices: tuple[int, ...]
    indices: tuple[int, ...]
    regions: tuple[
        tuple[str, tuple[tuple[int, int, int], ...]], ...
    ]  # tensor, (start, extent, step)


def evaluate(expr: ir.Expr, bindings: Bindings, loop_vars: Mapping[str, int]) -> int:
    match expr:
        case ir.Const(value):
            return value
        case ir.LoopVar(name):
            return loop_vars[name]
        case ir.SymbolRef(name):
            return bindings.extents[name]
        case ir.ShapeOf(tensor, dim):
            return bindings.shapes[tensor][dim]
        case ir.ArrayLoad(array, index):
            place = evaluate(index, bindings, loop_vars)
            assert place >= 0
            return bindings.arrays[array][place]
        case ir.Binary(op, lhs, rhs):
            a, b = evaluate(lhs, bindings, loop_vars), evaluate(rhs, bindings, loop_vars)
            return operate(op, a, b)
        case _:
            assert_never(expr)


def operate(op: ir.BinaryOp, a: int, b: int) -> int:
    match op:
        case ir.BinaryOp.ADD:
            return a + b
        case ir.BinaryOp.SUB:
            return a - b
        case ir.BinaryOp.MUL:
            return a * b
        case ir.BinaryOp.FLOORDIV:
            return a // b
        case ir.BinaryOp.MOD:
            return a % b
        case ir.BinaryOp.MIN:
            return min(a, b)
        case ir.BinaryOp.MAX:
            return max(a, b)
        case _:
            assert_never(op)


def tasks(
    body: ir.Body,
    bindings: Bindings,
    loop_vars: Mapping[str, int] | None = None,
    path: tuple[int, ...] = (),
    first: int = 0,
) -> Iterator[Task]:
    """Every task in program order, below loops whose variables have the values `loop_vars`."""
    values = dict(loop_vars or {})
    for child, stmt in enumerate(body, start=first):
        here = (*path, child)
        match stmt:
            case ir.Loop():
                start = evaluate(stmt.start, bindings, values)
                extent = evaluate(stmt.extent, bindings, values)
                assert extent >= 0
                for index in range(start, start + extent):
                    yield from tasks(stmt.body, bindings, {**values, stmt.var: index}, here)
            case ir.Combine(parts) | ir.Sequential(parts):
                for number, part in enumerate(parts):
                    # A lone statement has the part's number; several are a block of their own.
                    where, first = (here, number) if len(part) == 1 else ((*here, number), 0)
                    yield from tasks(part, bindings, values, where, first)
            case ir.Call():
                yield _task(stmt, bindings, values, here)
            case _:
                assert_never(stmt)


def _task(call: ir.Call, bindings: Bindings, values: dict[str, int], path: tuple[int, ...]) -> Task:
    def value(expr: ir.Expr) -> int:
        return evaluate(expr, bindings, values)

    regions = tuple(
        (r.tensor, tuple((value(d.start), value(d.extent), value(d.step)) for d in r.dims))
        for r in call.args
    )
    indices = tuple(value(i) for i in call.indices)
    return Task(call.kernel, path, tuple(values.values()), indices, regions)
