"""The tasks of a module by plain interpretation: the oracle that lowering is compared with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, assert_never

from pto_wsp import ir


@dataclass(frozen=True)
class Bindings:
    """What execute binds: values of extents, elements of arrays, shapes of tensors."""

    extents: Mapping[str, int] = field(default_factory=dict)
    arrays: Mapping[str, Sequence[int]] = field(default_factory=dict)
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)


Phases: TypeAlias = dict[tuple[tuple[int, ...], tuple[int, ...]], int]
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
    scalars: tuple[int, ...] = ()
    # The phases of P.seq and sequential around it: which block, in which iteration, which phase.
    phases: Phases = field(default_factory=dict, compare=False)
    call: ir.Call | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Values:
    """What names mean at some place: loop variables, columns of sparse loops, slots, and the
    variables of reductions around."""

    loops: dict[str, int] = field(default_factory=dict)
    columns: dict[str, int] = field(default_factory=dict)
    slots: dict[str, int] = field(default_factory=dict)
    bound: tuple[int, ...] = ()
    phases: Phases = field(default_factory=dict)

    def in_phase(self, block: tuple[int, ...], number: int) -> Values:
        key = (block, tuple(self.loops.values()))
        return replace(self, phases={**self.phases, key: number})

    def inside(self, var: str, index: int, column: int | None = None) -> Values:
        columns = self.columns if column is None else {**self.columns, var: column}
        return replace(self, loops={**self.loops, var: index}, columns=columns)


def evaluate(expr: ir.Expr, bindings: Bindings, values: Values | Mapping[str, int]) -> int:
    if not isinstance(values, Values):
        values = Values(dict(values))

    def value(inner: ir.Expr) -> int:
        return evaluate(inner, bindings, values)

    match expr:
        case ir.Const(number):
            return number
        case ir.FloatConst(bits):
            return bits
        case ir.LoopVar(name):
            return values.loops[name]
        case ir.Column(loop):
            return values.columns[loop]
        case ir.SlotRef(slot):
            return values.slots[slot]
        case ir.BoundVar(level):
            return values.bound[level]
        case ir.SymbolRef(name):
            return bindings.extents[name]
        case ir.ShapeOf(tensor, dim):
            return bindings.shapes[tensor][dim]
        case ir.ArrayLoad(array, index, None):
            place = value(index)
            assert place >= 0
            return bindings.arrays[array][place]
        case ir.ArrayLoad():
            raise NotImplementedError("arrays of two dimensions are tested elsewhere")
        case ir.Binary(op, lhs, rhs):
            return operate(op, value(lhs), value(rhs))
        case ir.Not(operand):
            return int(not value(operand))
        case ir.Select(condition, then, otherwise):
            return value(then) if value(condition) else value(otherwise)
        case ir.Reduce() | ir.Search():
            return _over_range(expr, bindings, values)
        case _:
            assert_never(expr)


def _over_range(expr: ir.Reduce | ir.Search, bindings: Bindings, values: Values) -> int:
    lo, hi = evaluate(expr.lo, bindings, values), evaluate(expr.hi, bindings, values)

    def at(body: ir.Expr, x: int) -> int:
        return evaluate(body, bindings, replace(values, bound=(*values.bound, x)))

    match expr:
        case ir.Search(_, _, _, predicate):
            return next((x for x in range(lo, hi) if at(predicate, x)), hi)
        case ir.Reduce(op, _, _, _, body):
            found = [at(body, x) for x in range(lo, hi)]
            match op:
                case ir.ReduceOp.SUM:
                    return sum(found)
                case ir.ReduceOp.MIN:
                    return min(found, default=2**63 - 1)
                case ir.ReduceOp.MAX:
                    return max(found, default=-(2**63))
                case ir.ReduceOp.ANY:
                    return int(any(found))
                case ir.ReduceOp.ALL:
                    return int(all(found))


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
        case ir.BinaryOp.EQ:
            return int(a == b)
        case ir.BinaryOp.NE:
            return int(a != b)
        case ir.BinaryOp.LT:
            return int(a < b)
        case ir.BinaryOp.LE:
            return int(a <= b)
        case ir.BinaryOp.GT:
            return int(a > b)
        case ir.BinaryOp.GE:
            return int(a >= b)
        case ir.BinaryOp.AND:
            return int(a != 0 and b != 0)
        case ir.BinaryOp.OR:
            return int(a != 0 or b != 0)
        case _:
            assert_never(op)


def tasks(
    body: ir.Body,
    bindings: Bindings,
    values: Values | Mapping[str, int] | None = None,
    path: tuple[int, ...] = (),
    first: int = 0,
) -> Iterator[Task]:
    """Every task in program order, below loops whose variables have those values. Slots that an
    outer body has set are changed in place."""
    if not isinstance(values, Values):
        values = Values(dict(values or {}))
    inherited = set(values.slots)
    number = first
    for stmt in body:
        here = (*path, number)
        number += 2 if isinstance(stmt, ir.Cond) and stmt.otherwise else 1
        match stmt:
            case ir.Loop():
                yield from _loop_tasks(stmt, bindings, values, here)
            case ir.While():
                limit = evaluate(stmt.limit, bindings, values)
                for index in range(limit + 1):
                    inside = values.inside(stmt.var, index)
                    if not evaluate(stmt.condition, bindings, inside):
                        break
                    assert index < limit
                    yield from tasks(stmt.body, bindings, inside, here)
            case ir.Cond(condition, then, otherwise):
                if evaluate(condition, bindings, values):
                    yield from tasks(then, bindings, values, here)
                elif otherwise:
                    yield from tasks(otherwise, bindings, values, (*here[:-1], here[-1] + 1))
            case ir.SlotSet(slot, value):
                values.slots[slot] = evaluate(value, bindings, values)
            case ir.SlotLoad():
                raise NotImplementedError("what depends on data is compared with the reference")
            case ir.Combine(parts) | ir.Sequential(parts):
                for child, part in enumerate(parts):
                    # A lone statement has the part's number; several are a block of their own.
                    alone = len(part) == 1 and not isinstance(part[0], ir.Cond)
                    where, start = (here, child) if alone else ((*here, child), 0)
                    ordered = isinstance(stmt, ir.Sequential)
                    step = values.in_phase(here, child) if ordered else values
                    yield from tasks(part, bindings, step, where, start)
            case ir.Call():
                yield _task(stmt, bindings, values, here)
            case _:
                assert_never(stmt)
    for slot in set(values.slots) - inherited:
        del values.slots[slot]


def _loop_tasks(
    loop: ir.Loop, bindings: Bindings, values: Values, path: tuple[int, ...]
) -> Iterator[Task]:
    start = evaluate(loop.start, bindings, values)
    extent = evaluate(loop.extent, bindings, values)
    assert extent >= 0
    for index in range(start, start + extent):
        column = None
        if loop.kind is ir.AxisKind.SPARSE:
            assert loop.lengths is not None
            assert loop.indices is not None
            assert loop.parent is not None
            row = bindings.arrays[loop.lengths][values.loops[loop.parent]]
            column = bindings.arrays[loop.indices][row + index]
        ordered = loop.order is ir.Order.SEQUENTIAL
        step = values.in_phase(path, index) if ordered else values
        yield from tasks(loop.body, bindings, step.inside(loop.var, index, column), path)


def _task(call: ir.Call, bindings: Bindings, values: Values, path: tuple[int, ...]) -> Task:
    def value(expr: ir.Expr) -> int:
        return evaluate(expr, bindings, values)

    regions = tuple(
        (r.tensor, tuple((value(d.start), value(d.extent), value(d.step)) for d in r.dims))
        for r in call.regions
    )
    indices = tuple(value(i) for i in call.indices)
    scalars = tuple(value(a) for a in call.args if not isinstance(a, ir.Region))
    loops = tuple(values.loops.values())
    return Task(call.kernel, path, loops, indices, regions, scalars, values.phases, call)
