"""Mistakes in control that no task would show: an extent that is negative or has no value, a
condition, a let, the shape of a temporary, lengths that are too few.

The first block that ends walks over what the loops, conditions and lets of the nest compute, as far
as it is not proved, a block of iterations at a time; it sets a word if something is wrong, and the
host asks the reference what. Others still run, so that nobody waits for it; the main loop has no
line of it, and keeps no value for it. What a task alone computes, its regions and scalars, is
looked at where the task is (calls.py).
"""

from __future__ import annotations

from typing import assert_never

from pto_wsp.backends.cuda.code import Code, Names, Scope
from pto_wsp.backends.cuda.counting import I32, Counter
from pto_wsp.backends.cuda.mistakes import At, Mistakes
from pto_wsp.backends.cuda.module import Word
from pto_wsp.backends.cuda.nest import Block, Branch, Call, Item, Let, Loop, Phases, Temporary
from pto_wsp.plan import (
    NONE,
    Access,
    AccessDim,
    Axis,
    AxisKind,
    Dim,
    Instr,
    Op,
    Plan,
    Storage,
    StorageClass,
    Tensor,
)


def call_nodes(plan: Plan, call: Call) -> list[int]:
    """The expressions of a task's regions and scalars."""
    found = list(call.scalars)
    for access in (plan.records(Access)[number] for number in call.accesses):
        for dim in plan.records(AccessDim)[access.dims : access.dims + access.rank]:
            found += [dim.start, dim.extent, dim.step]
    return found


class ControlWalk:
    """Writes the walk over a nest."""

    def __init__(self, plan: Plan, code: Code, counter: Counter, mistakes: Mistakes) -> None:
        self._plan = plan
        self._code = code
        self._counter = counter
        self._mistakes = mistakes
        self._axes = plan.records(Axis)

    def write(self, nest: Block) -> None:
        """Nothing, if nothing can be wrong."""
        code, tokens = self._code, self._tokens()
        if not tokens and not self._needs(nest):
            return
        with code.block("if ended == 0:"), code.anew():
            code.line(f"wrong = tl.full((), 0, {I32})")
            at = At(Scope(), "wrong")
            self._look_once(nest, at)
            for node in tokens:
                self._extent(node, at)
            self._block(nest, at)
            code.line(f"tl.store(CTRL + {Word.CONTROL:d}, 1, mask=wrong > 0)")

    def _look_once(self, block: Block, at: At) -> None:
        """At what has one value in a run, whoever asks for it."""
        for item in block:
            nodes = self._nodes(item)
            for node in sorted(set[int]().union(*map(self._mistakes.closed, nodes))):
                if node in self._mistakes.flags:
                    continue
                flag = self._code.fresh("flag")
                self._code.line(f"{flag} = tl.full((), 0, {I32})")
                self._mistakes.look(node, At(at.scope, flag))
                self._mistakes.flags[node] = flag
            for part in self._parts(item):
                self._look_once(part, at)

    # --- what is to be looked at ---

    def _tokens(self) -> list[int]:
        """Extents of tokens, which have one value in a run."""
        storages = self._plan.records(Storage)
        found = [
            node
            for index, tensor in enumerate(self._plan.records(Tensor))
            if storages[tensor.storage].storage_class == StorageClass.TOKEN
            for node in self._shape(index)
        ]
        return [node for node in found if self._may_be_none(node)]

    def _shape(self, tensor: int) -> list[int]:
        record = self._plan.records(Tensor)[tensor]
        return [d.shape for d in self._plan.records(Dim)[record.dims : record.dims + record.rank]]

    def _may_be_none(self, extent: int) -> bool:
        """Whether an extent may be negative or have no value."""
        return self._mistakes.may(extent) or self._mistakes.bounds(extent)[0] < 0

    def _made(self, item: Temporary) -> list[int]:
        """The extents of temporaries."""
        storages = self._plan.records(Storage)
        return [
            node
            for index, tensor in enumerate(self._plan.records(Tensor))
            if storages[tensor.storage].alloc == item.alloc
            for node in self._shape(index)
        ]

    def _column(self, loop: Loop) -> int:
        """What says which column an iteration of P.sel is of; NONE for other loops."""
        selects = self._plan.records(Instr)[loop.pc].opcode == Op.SELECT
        return self._axes[loop.axis].value if selects else NONE

    def _lengths(self, loop: Loop) -> list[int]:
        """Arrays that have to have an element for each iteration, no more and no fewer."""
        axis = self._axes[loop.axis]
        if self._code.depends(axis.start) | self._code.depends(axis.extent):
            return []
        return [
            inner.lengths
            for inner in self._axes
            if inner.kind == AxisKind.RAGGED and inner.parent == loop.axis and inner.lengths != NONE
        ]

    def _nodes(self, item: Item) -> list[int]:
        """Expressions of an item itself in which a mistake may be."""
        may = self._mistakes.may
        match item:
            case Let():
                return [item.value] if may(item.value) else []
            case Branch():
                return [item.condition] if may(item.condition) else []
            case Temporary():
                return [node for node in self._made(item) if self._may_be_none(node)]
            case Call():
                nodes = call_nodes(self._plan, item)
                return sorted(set[int]().union(*map(self._mistakes.once, nodes)))
            case Loop():
                axis, column = self._axes[item.axis], self._column(item)
                found = [axis.extent] if self._may_be_none(axis.extent) else []
                found += [axis.start] if may(axis.start) else []
                return found + ([column] if column != NONE and may(column) else [])
            case Phases():
                return []
            case _:
                assert_never(item)

    def _parts(self, item: Item) -> tuple[Block, ...]:
        match item:
            case Branch():
                return item.then, item.other
            case Phases():
                return item.children
            case Loop():
                return (item.body,)
            case _:
                return ()

    def _needs(self, block: Block) -> bool:
        """Whether something in a block has to be looked at."""
        return any(
            self._nodes(item)
            or (isinstance(item, Loop) and self._lengths(item))
            or any(map(self._needs, self._parts(item)))
            for item in block
        )

    def _reads(self, block: Block) -> frozenset[int]:
        """The levels of loops on which that depends."""
        found: frozenset[int] = frozenset()
        depends = self._counter.node_depends
        for item in block:
            for node in self._nodes(item):
                found |= depends(node)
            if not any(map(self._needs, self._parts(item))):
                continue
            if isinstance(item, Branch):
                found |= depends(item.condition)
            if isinstance(item, Loop):
                axis = self._axes[item.axis]
                found |= depends(axis.start) | depends(axis.extent)
            for part in self._parts(item):
                found |= self._reads(part)
        return found

    # --- lines ---

    def _extent(self, node: int, at: At) -> None:
        self._mistakes.look(node, at)
        if self._mistakes.bounds(node)[0] < 0:
            self._mistakes.say(at, f"{self._code.value(node, at.scope)} < 0")

    def _block(self, block: Block, at: At) -> None:
        for number, item in enumerate(block):
            if not self._needs(block[number:]):
                return
            match item:
                case Let():
                    self._mistakes.look(item.value, at)
                    self._code.let(item.number, item.value, at.scope)
                case Temporary():
                    for node in self._made(item):
                        self._extent(node, at)
                case Call():
                    for node in self._nodes(item):
                        self._mistakes.look(node, at)
                case Branch():
                    self._branch(item, at)
                case Phases():
                    for child in item.children:
                        self._block(child, at)
                case Loop():
                    self._loop(item, at)
                case _:
                    assert_never(item)

    def _branch(self, item: Branch, at: At) -> None:
        self._mistakes.look(item.condition, at)
        if not any(map(self._needs, self._parts(item))):
            return
        condition = self._code.value(item.condition, at.scope)
        if condition in ("0", "1"):
            self._block(item.then if condition == "1" else item.other, at)
            return
        for side, holds in ((item.then, "!="), (item.other, "==")):
            mask = self._mistakes.also(at, f"({condition}) {holds} 0")
            self._block(side, at.inside(at.scope.inner(), mask))

    def _loop(self, loop: Loop, at: At) -> None:
        code, axis, mistakes = self._code, self._axes[loop.axis], self._mistakes
        mistakes.look(axis.start, at)
        self._extent(axis.extent, at)
        start, extent = (code.value(node, at.scope) for node in (axis.start, axis.extent))
        for lengths in self._lengths(loop):
            code.symbols.add(lengths)
            other = f"{Names.array(lengths)}_n0 != {start} + {extent}"
            mistakes.say(at, f"({extent} > 0) & ({other})")
        column = self._column(loop)
        if column == NONE and not self._needs(loop.body):
            return
        if extent == "0":
            return
        reads = self._reads(loop.body)
        if column != NONE:
            reads |= self._counter.node_depends(column)
        if loop.level in reads:
            mistakes.each("0", extent, at, lambda x, inner: self._iteration(loop, x, inner))
        elif not extent.isdigit():
            self._iteration(loop, "0", at.inside(at.scope, mistakes.also(at, f"{extent} > 0")))
        else:
            self._iteration(loop, "0", at)

    def _iteration(self, loop: Loop, number: str, at: At) -> None:
        variable = self._counter.variable(loop, number, at.scope)
        scope = self._code.enter(at.scope, loop.level, variable, lanes=at.scope.lanes)
        inside = at.inside(scope, at.mask)
        column = self._column(loop)
        if column != NONE:
            self._mistakes.look(column, inside)
        self._block(loop.body, inside)
