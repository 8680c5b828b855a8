"""The tasks of a plan by plain interpretation, for comparison with those of its module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pto_wsp import plan
from pto_wsp.plan import ExprOp, Op
from tests.ir.interpreter import Bindings, Box

_BINARY = {
    ExprOp.ADD: lambda a, b: a + b,
    ExprOp.SUB: lambda a, b: a - b,
    ExprOp.MUL: lambda a, b: a * b,
    ExprOp.FLOORDIV: lambda a, b: a // b,
    ExprOp.MOD: lambda a, b: a % b,
    ExprOp.MIN: min,
    ExprOp.MAX: max,
    ExprOp.EQ: lambda a, b: int(a == b),
    ExprOp.NE: lambda a, b: int(a != b),
    ExprOp.LT: lambda a, b: int(a < b),
    ExprOp.LE: lambda a, b: int(a <= b),
    ExprOp.GT: lambda a, b: int(a > b),
    ExprOp.GE: lambda a, b: int(a >= b),
    ExprOp.AND: lambda a, b: int(a != 0 and b != 0),
    ExprOp.OR: lambda a, b: int(a != 0 or b != 0),
}
_ARGUMENTS = {Op.IO_INPUT: 1, Op.IO_OUTPUT: 2, Op.IO_INOUT: 3, Op.IO_ACCUM: 7}
_FOLDS = {
    plan.ReduceOp.SUM: sum,
    plan.ReduceOp.MIN: lambda values: min(values, default=2**63 - 1),
    plan.ReduceOp.MAX: lambda values: max(values, default=-(2**63)),
    plan.ReduceOp.ANY: lambda values: int(any(values)),
    plan.ReduceOp.ALL: lambda values: int(all(values)),
}


@dataclass(frozen=True)
class PlanTask:
    kernel: str
    path_hash: int
    loop_indices: tuple[int, ...]
    indices: tuple[int, ...]
    regions: tuple[tuple[str, Box], ...]
    scalars: tuple[int, ...] = ()


@dataclass(frozen=True)
class Iteration:
    """One iteration of a loop: where it stands and what its axis says of the tasks in it."""

    pc: int
    loop_indices: tuple[int, ...]
    body_tasks: int | None
    generated: int


class Walker:
    """Runs a plan's main entry without kernels; `iterations` fills while it runs."""

    def __init__(self, program: plan.Plan, bindings: Bindings) -> None:
        self.plan = program
        self.bindings = bindings
        self.code = program.records(plan.Instr)
        self.exprs = program.records(plan.Expr)
        self.symbols = [program.string(s.name) for s in program.records(plan.Symbol)]
        self.tensors = [program.string(t.name) for t in program.records(plan.Tensor)]
        self.iterations: list[Iteration] = []
        self.slots: dict[int, int] = {}

    def tasks(self) -> list[PlanTask]:
        (entry,) = self.plan.records(plan.Entry)
        return list(self.block(entry.pc, (), (0,)))

    # --- expressions ---

    def value(self, number: int, loops: Sequence[int], bound: tuple[int, ...] = ()) -> int:
        node = self.exprs[number]

        def operand(n: int) -> int:
            return self.value(n, loops, bound)

        match node.op:
            case ExprOp.CONST:
                bits = node.a | node.b << 32
                return bits - (bits >> 63 << 64)
            case ExprOp.LOOPVAR:
                return loops[node.arg]
            case ExprOp.BOUNDVAR:
                return bound[node.arg]
            case ExprOp.SYMBOL:
                return self.bindings.extents[self.symbols[node.a]]
            case ExprOp.SHAPE:
                return self.bindings.shapes[self.tensors[node.a]][node.arg]
            case ExprOp.LOAD:
                return self.bindings.arrays[self.symbols[node.a]][operand(node.b)]
            case ExprOp.SLOT:
                return self.slots[node.a]
            case ExprOp.NOT:
                return int(not operand(node.a))
            case ExprOp.SELECT:
                return operand(node.b) if operand(node.a) else operand(node.c)
            case ExprOp.REDUCE | ExprOp.SEARCH:
                assert node.arg >> 8 == len(bound), "a reduction has the level of its place"
                span = range(operand(node.a), operand(node.b))
                found = [self.value(node.c, loops, (*bound, i)) for i in span]
                if node.op is ExprOp.REDUCE:
                    return _FOLDS[plan.ReduceOp(node.arg & 0xFF)](found)
                return next((i for i, f in zip(span, found, strict=True) if f), operand(node.b))
            case op:
                return _BINARY[op](operand(node.a), operand(node.b))

    # --- code ---

    def block(self, pc: int, loops: tuple[int, ...], path: tuple[int, ...]) -> Iterator[PlanTask]:
        """The items of a block up to its END or HALT."""
        child = 0
        while (instr := self.code[pc]).opcode not in (Op.END, Op.HALT):
            here = (*path, child)
            child += 1
            match instr.opcode:
                case Op.TASK:
                    yield self.task(pc, loops, here)
                    pc += 1 + instr.operand1
                    continue
                case Op.SLOT_SET:
                    self.slots[instr.operand1] = self.value(instr.operand2, loops)
                    pc += 1
                    continue
                case Op.PARALLEL_FOR | Op.FOR_EACH | Op.SELECT:
                    yield from self.loop(pc, loops, here)
                case Op.LOOP_WHILE:
                    index = 0
                    while self.value(self.code[pc + 1].operand2, (*loops, index)):
                        yield from self.block(pc + 2, (*loops, index), here)
                        index += 1
                case Op.COND:
                    behind = self.code[instr.operand2]
                    if self.value(self.code[pc + 1].operand2, loops):
                        yield from self.block(pc + 2, loops, here)
                    elif behind.opcode is Op.ELSE:
                        other = (*path, child)
                        yield from self.block(instr.operand2 + 1, loops, other)
                    if behind.opcode is Op.ELSE:
                        child += 1
                        instr = behind
                case Op.COMBINE | Op.SEQUENTIAL:
                    assert instr.operand1 == self.children(pc + 1)
                    yield from self.block(pc + 1, loops, here)
                case op:
                    raise AssertionError(f"unexpected {op}")
            pc = instr.operand2
            assert self.code[pc - 1].opcode is Op.END

    def children(self, pc: int) -> int:
        count = 0
        while (instr := self.code[pc]).opcode is not Op.END:
            count += 1
            match instr.opcode:
                case Op.TASK:
                    pc += 1 + instr.operand1
                case Op.SLOT_SET:
                    pc += 1
                case _:
                    pc = instr.operand2
        return count

    def loop(self, pc: int, loops: tuple[int, ...], path: tuple[int, ...]) -> Iterator[PlanTask]:
        axis = self.plan.records(plan.Axis)[self.code[pc].operand1]
        assert axis.level == len(loops)
        start, extent = self.value(axis.start, loops), self.value(axis.extent, loops)
        for index in range(start, start + extent):
            inside = (*loops, index)
            tasks = list(self.block(pc + 1, inside, path))
            known = axis.body_tasks != plan.NONE
            counted = self.value(axis.body_tasks, inside) if known else None
            self.iterations.append(Iteration(pc, inside, counted, len(tasks)))
            yield from tasks

    def task(self, pc: int, loops: tuple[int, ...], path: tuple[int, ...]) -> PlanTask:
        site = self.plan.records(plan.Site)[self.code[pc].operand2]
        assert (site.pc, site.level) == (pc, len(loops))
        assert site.path_hash == plan.path_hash(path)
        kernel = self.plan.records(plan.Kernel)[site.kernel]
        params = self.plan.records(plan.Param)[kernel.params : kernel.params + kernel.num_params]
        words = self.code[pc + 1 : pc + 1 + self.code[pc].operand1]
        indices = tuple(
            self.identity(word, loops)
            for word in words
            if word.opcode not in _ARGUMENTS and word.opcode is not Op.SCALAR
        )
        scalars = tuple(
            self.value(word.operand2, loops) for word in words if word.opcode is Op.SCALAR
        )
        params = tuple(p for p in params if p.kind is plan.ParamKind.TENSOR)
        arguments = [word for word in words if word.opcode in _ARGUMENTS]
        regions = tuple(
            self.region(word, param, loops) for word, param in zip(arguments, params, strict=True)
        )
        name = self.plan.string(kernel.name)
        return PlanTask(name, site.path_hash, loops, indices, regions, scalars)

    def identity(self, word: plan.Instr, loops: tuple[int, ...]) -> int:
        match word.opcode:
            case Op.PARAM_LOOPVAR:
                return loops[word.operand1]
            case Op.PARAM_CONST:
                bits = self.plan.records(plan.Const)[word.operand2].bits
                return bits - (bits >> 63 << 64)
            case op:
                assert op is Op.PARAM_EXPR
                return self.value(word.operand2, loops)

    def region(
        self, word: plan.Instr, param: plan.Param, loops: tuple[int, ...]
    ) -> tuple[str, Box]:
        access = self.plan.records(plan.Access)[word.operand2]
        dims = self.plan.records(plan.AccessDim)[access.dims : access.dims + access.rank]
        assert access.mode == param.mode == _ARGUMENTS[word.opcode]
        assert param.rank == sum(not d.flags for d in dims)
        box = tuple(
            (self.value(d.start, loops), self.value(d.extent, loops), self.value(d.step, loops))
            for d in dims
        )
        return self.tensors[access.tensor], box
