"""How many rows and columns tiles have at run time, by name.

The extents of a tile are the least of some named bounds, or those of its type if there are none. A
bound gets its name where elements may be missing: at a load, or where loops and branches bring
together tiles that have different ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pto_wsp.kernels.tile_expr import is_tile, tile_type
from pto_wsp.kernels.tile_ir import OPS, Block, Group, Op, Statement, TileKernel, Value
from pto_wsp.kernels.tile_uses import is_elementwise

Dim: TypeAlias = frozenset[str]
Dims: TypeAlias = tuple[Dim, Dim]
_ALL: Dim = frozenset()
WORDS = ("rows", "cols")


@dataclass(slots=True)
class Merge:
    """The bound of what a loop or branch gives: `name` is what it is then, `given` what it began
    with and `made` what the block makes of it. `varies`: it changes inside the loop."""

    name: str
    size: int
    given: Dim
    made: Dim
    varies: bool


@dataclass(frozen=True, slots=True)
class FixedBound:
    """How much of `size` elements from a constant offset on a parameter has: known from the start,
    and the same wherever it is asked for."""

    param: Value
    dim: int
    offset: int
    size: int


@dataclass(slots=True)
class Bounds:
    of: dict[int, Dims] = field(default_factory=dict[int, Dims])
    # Bounds of results of loops and branches, by value number and dimension.
    merges: dict[tuple[int, int], Merge] = field(default_factory=dict[tuple[int, int], Merge])
    depth: dict[str, int] = field(default_factory=dict[str, int])  # of the block that names a bound
    fixed: dict[FixedBound, str] = field(default_factory=dict[FixedBound, str])

    def dims(self, value: Value) -> Dims:
        return self.of[value.number]


def find_bounds(
    kernel: TileKernel, name_of: Callable[[Value], str], fresh: Callable[[str], str]
) -> Bounds:
    finder = _Finder(name_of, fresh)
    finder.block(kernel.body, 0)
    return finder.bounds


class _Finder:
    def __init__(self, name_of: Callable[[Value], str], fresh: Callable[[str], str]) -> None:
        self.bounds = Bounds()
        self._name_of = name_of
        self._fresh_name = fresh
        self._constants: dict[int, int] = {}

    def block(self, body: Sequence[Statement], depth: int) -> None:
        for stmt in body:
            if stmt.op is Op.CONST:
                value = stmt.attribute("value")
                if isinstance(value, int):
                    self._constants[stmt.results[0].number] = value
            elif stmt.op in (Op.LOAD, Op.STORE):
                self._access(stmt, depth)
            elif stmt.op is Op.FOR:
                self._loop(stmt, depth)
            elif stmt.op is Op.WHEN:
                self._branch(stmt, depth)
            else:
                self._plain(stmt, depth)

    def _access(self, stmt: Statement, depth: int) -> None:
        """Bounds of a load; those at constant offsets are fixed, those of stores too."""
        first = 1 if stmt.op is Op.LOAD else 2
        sizes = stmt.attribute("sizes")
        assert isinstance(sizes, tuple)
        dims: list[Dim] = []
        for dim in kept_dims(sizes):
            if dim < 0 or (sizes[dim] == 1 and stmt.op is Op.LOAD):
                dims.append(_ALL)  # a load fails if there is nothing, a store writes nothing
                continue
            offset = self._constants.get(stmt.operands[first + dim].number, -1)
            if offset >= 0:
                key = FixedBound(stmt.operands[0], dim, offset, sizes[dim])
                dims.append(frozenset({self._fixed_name(key, len(dims))}))
            elif stmt.op is Op.LOAD:
                dims.append(frozenset({self._named(stmt.results[0], len(dims), depth)}))
        if stmt.op is Op.LOAD and is_tile(stmt.results[0]):
            self.bounds.of[stmt.results[0].number] = dims[0], dims[1]

    def _fixed_name(self, key: FixedBound, axis: int) -> str:
        if key not in self.bounds.fixed:
            part = "" if key.offset == 0 else f"_{key.offset}"
            name = self._fresh_name(f"{self._name_of(key.param)}{part}_{WORDS[axis]}")
            self.bounds.fixed[key] = name
            self.bounds.depth[name] = 0
        return self.bounds.fixed[key]

    def _fresh(self, value: Value, dim: int, depth: int) -> Dim:
        if not tile_type(value).partial[dim]:
            return _ALL
        return frozenset({self._named(value, dim, depth)})

    def _named(self, value: Value, dim: int, depth: int) -> str:
        name = f"{self._name_of(value)}_{WORDS[dim]}"
        self.bounds.depth[name] = depth
        return name

    def _plain(self, stmt: Statement, depth: int) -> None:
        for result in stmt.results:
            if is_tile(result):
                self.bounds.of[result.number] = self._dims(stmt, result, depth)

    def _dims(self, stmt: Statement, result: Value, depth: int) -> Dims:
        of = self.bounds.of
        operands = [of[v.number] for v in stmt.operands if is_tile(v)]
        match stmt.op:
            case Op.SLICE:
                return self._fresh(result, 0, depth), self._fresh(result, 1, depth)
            case Op.GATHER:
                source, rows = stmt.operands[0], of[stmt.operands[1].number][0]
                if is_tile(source):
                    return rows, of[source.number][1]
                width = FixedBound(source, 1, 0, tile_type(result).cols)
                partial = tile_type(result).partial[1]
                return rows, frozenset({self._fixed_name(width, 1)}) if partial else _ALL
            case Op.TRANSPOSE:
                rows, cols = operands[0]
                return cols, rows
            case Op.MATMUL:
                return operands[0][0], operands[1][1]
            case Op.MATMUL_ACC:
                return operands[0][0] | operands[1][0], operands[0][1] | operands[2][1]
            case Op.SORT:
                return operands[0]
            case Op.TOPK:
                return operands[0][0], self._fresh(stmt.results[0], 1, depth)
            case Op.CONCAT:
                return _union([d[0] for d in operands]), _union([d[1] for d in operands])
            case _:
                pass
        if OPS[stmt.op].group is Group.REDUCE:
            rows, cols = operands[0]
            return (rows, _ALL) if stmt.attribute("axis") == 1 else (_ALL, cols)
        if is_elementwise(stmt):
            return self._broadcast(stmt, result)
        return _ALL, _ALL  # made of scalars, padded or reshaped: whole

    def _broadcast(self, stmt: Statement, result: Value) -> Dims:
        dims: list[Dim] = []
        for dim in (0, 1):
            found = [
                self.bounds.of[v.number][dim]
                for v in stmt.operands
                if is_tile(v) and tile_type(v).shape[dim] != 1
            ]
            dims.append(_union(found) if tile_type(result).shape[dim] != 1 else _ALL)
        return dims[0], dims[1]

    def _loop(self, stmt: Statement, depth: int) -> None:
        block, of = stmt.blocks[0], self.bounds.of
        carried = list(zip(block.params[1:], stmt.operands[3:], stmt.results, strict=True))
        carried = [item for item in carried if is_tile(item[0])]
        for param, given, _ in carried:
            of[param.number] = of[given.number]
        shared: dict[tuple[Dim, Dim, int], str] = {}
        yields = self._fixed_point(block, [param for param, _, _ in carried], depth)
        for param, given, result in carried:
            dims: list[Dim] = []
            for dim in (0, 1):
                begin, made = of[given.number][dim], yields[param.number][dim]
                inside = of[param.number][dim]
                varies = f"{self._name_of(param)}_{WORDS[dim]}" in inside
                if begin == made and not varies:
                    dims.append(begin)
                    continue
                size = tile_type(param).shape[dim]
                if varies:
                    name = next(iter(inside))
                elif (begin, made, size) in shared:
                    name = shared[begin, made, size]
                else:
                    name = shared[begin, made, size] = self._named(result, dim, depth)
                self.bounds.depth[name] = depth
                merge = Merge(name, size, begin, made, varies)
                self.bounds.merges[result.number, dim] = merge
                dims.append(frozenset({name}))
            of[result.number] = dims[0], dims[1]

    def _fixed_point(self, block: Block, params: list[Value], depth: int) -> dict[int, Dims]:
        """What the block makes of its parameters' bounds, which become what holds in every
        iteration."""
        of = self.bounds.of
        places = dict(zip([p.number for p in block.params[1:]], block.yields, strict=True))
        first: dict[int, Dims] = {}  # what one iteration makes: if others make less, it varies
        noticed: list[Dim] = []  # by the first iteration
        while True:
            self.block(block.body, depth + 1)
            made = {p.number: of[places[p.number].number] for p in params}
            first, noticed = first or made, noticed or list(self._noticed(block.body))
            changed = False
            for param in params:
                before = of[param.number]
                after = tuple(
                    self._carried(
                        (param, dim, before[dim]),
                        made[param.number][dim],
                        made[param.number][dim] == first[param.number][dim],
                        depth,
                    )
                    for dim in (0, 1)
                )
                changed = changed or after != before
                of[param.number] = after[0], after[1]
            if changed:
                continue
            if noticed == list(self._noticed(block.body)):
                return made
            # The first iteration has more elements than the others, and somebody looks at them.
            noticed = list(self._noticed(block.body))
            for param in params:
                dims = (self._moving(param, dim, of[param.number], depth) for dim in (0, 1))
                of[param.number] = next(dims), next(dims)

    def _moving(self, param: Value, dim: int, dims: Dims, depth: int) -> Dim:
        if not dims[dim]:
            return _ALL
        own = f"{self._name_of(param)}_{WORDS[dim]}"
        self.bounds.depth[own] = depth + 1
        return frozenset({own})

    def _noticed(self, body: Sequence[Statement]) -> Iterator[Dim]:
        """The bounds that show in what statements do, beyond how many elements their results have:
        of everything that is stored, added up or put elsewhere."""
        for stmt in body:
            for block in stmt.blocks:
                yield from self._noticed(block.body)
            for value, dim in _noticed_dims(stmt):
                yield self.bounds.of[value.number][dim]

    def _carried(self, what: tuple[Value, int, Dim], made: Dim, settled: bool, depth: int) -> Dim:
        param, dim, before = what
        own = f"{self._name_of(param)}_{WORDS[dim]}"
        inside = any(self.bounds.depth[name] > depth for name in made)
        grows = not before <= made  # as when a block that is short at first is padded
        if inside or grows or not settled or own in before:
            self.bounds.depth[own] = depth + 1  # it changes with the iterations
            return frozenset({own})
        return before | made

    def _branch(self, stmt: Statement, depth: int) -> None:
        first, second = stmt.blocks
        self.block(first.body, depth + 1)
        self.block(second.body, depth + 1)
        for result, one, other in zip(stmt.results, first.yields, second.yields, strict=True):
            if not is_tile(result):
                continue
            dims: list[Dim] = []
            for dim in (0, 1):
                a, b = self.bounds.of[one.number][dim], self.bounds.of[other.number][dim]
                if a == b and all(self.bounds.depth[name] <= depth for name in a):
                    dims.append(a)
                    continue
                name = self._named(result, dim, depth)
                size = tile_type(result).shape[dim]
                self.bounds.merges[result.number, dim] = Merge(name, size, b, a, varies=True)
                dims.append(frozenset({name}))
            self.bounds.of[result.number] = dims[0], dims[1]


def _noticed_dims(stmt: Statement) -> Iterator[tuple[Value, int]]:
    """The extents of operands that a statement does not simply hand on to its results."""
    tiles = [operand for operand in stmt.operands if is_tile(operand)]
    if is_elementwise(stmt) or stmt.op in (Op.TRANSPOSE, Op.FOR, Op.WHEN):
        return
    if stmt.op in (Op.MATMUL, Op.MATMUL_ACC):
        yield from ((tiles[-2], 1), (tiles[-1], 0))
    elif OPS[stmt.op].group is Group.REDUCE:
        axis = stmt.attribute("axis")
        assert isinstance(axis, int)
        yield tiles[0], axis
    else:
        yield from ((tile, dim) for tile in tiles for dim in (0, 1))


def kept_dims(sizes: Sequence[int]) -> tuple[int, int]:
    """The dimensions of a parameter that are the rows and columns of a tile; -1 for none."""
    kept = [dim for dim, size in enumerate(sizes) if size != 0]
    row_dim, col_dim = (-1, *kept)[-2:] if kept else (-1, -1)
    return row_dim, col_dim


def _union(dims: Sequence[Dim]) -> Dim:
    return frozenset[str]().union(*dims)
