"""Who uses what in a tile kernel: users of values, and which values need no memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pto_wsp.dtypes import DType
from pto_wsp.kernels.tile_expr import EXPENSIVE, HALVES, dtype_of, is_scalar, is_tile
from pto_wsp.kernels.tile_ir import OPS, Block, Group, Op, Statement, TileKernel, Value

ELEMENTWISE = frozenset({Group.UNARY, Group.BINARY, Group.COMPARE, Group.SELECT, Group.CAST})


def is_elementwise(stmt: Statement) -> bool:
    return OPS[stmt.op].group in ELEMENTWISE


def is_row_reduction(stmt: Statement) -> bool:
    reduce = OPS[stmt.op].group is Group.REDUCE and stmt.op is not Op.ARGMAX_OF
    return reduce and stmt.attribute("axis") == 1


def is_pure_scalar(stmt: Statement) -> bool:
    """Scalars from scalars: it may be computed wherever they are known."""
    if stmt.op in (Op.CONST, Op.EXTENT):
        return True
    return is_elementwise(stmt) and is_scalar(stmt.results[0])


@dataclass(slots=True)
class Uses:
    """Users by value number. A user is a statement, or the block whose yield it is."""

    users: dict[int, list[Statement | Block]] = field(
        default_factory=dict[int, list[Statement | Block]]
    )
    definitions: dict[int, Statement] = field(default_factory=dict[int, Statement])
    home: dict[int, int] = field(
        default_factory=dict[int, int]
    )  # the block of a value, by id; 0: the kernel
    position: dict[int, int] = field(
        default_factory=dict[int, int]
    )  # of statements, by id, in their block
    owner: dict[int, int] = field(
        default_factory=dict[int, int]
    )  # of statements, by id: their block
    parents: dict[int, int] = field(default_factory=dict[int, int])  # of blocks, by id
    floating: set[int] = field(
        default_factory=set[int]
    )  # values that are computed where they are used
    views: set[int] = field(
        default_factory=set[int]
    )  # operands of products, transposed or made longer: read where the source lies
    stored: set[int] = field(default_factory=set[int])  # parameters that are written
    shared: frozenset[int] = frozenset()  # parameters that may lie in the same memory

    def views_of(self, value: Value) -> list[Value]:
        """An operand of a product, what it is a view of, and so on to what lies in memory."""
        chain = [value]
        while chain[-1].number in self.views:
            chain.append(self.definitions[chain[-1].number].operands[0])
        return chain

    def changes(self, param: Value) -> bool:
        """Whether the kernel may write where a parameter lies."""
        return not self.stored.isdisjoint(self.sharers(param))

    def sharers(self, param: Value) -> frozenset[int]:
        """The parameters that may lie where this one does, itself among them."""
        return self.shared if param.number in self.shared else frozenset({param.number})

    def of(self, value: Value) -> list[Statement | Block]:
        return self.users.get(value.number, [])

    def dies_in(self, value: Value, last: int, block: int) -> bool:
        """Whether nobody needs a value of this block behind the statement with that position."""
        if self.home.get(value.number) != block:
            return False
        return all(
            isinstance(user, Statement)
            and self.owner[id(user)] == block
            and self.position[id(user)] <= last
            for user in self.of(value)
        )


def find_uses(kernel: TileKernel, shared: frozenset[int] = frozenset()) -> Uses:
    uses = Uses(shared=shared)
    for value in kernel.params:
        uses.home[value.number] = 0
    _visit(kernel.body, 0, uses)
    for stmt in reversed(list(walk(kernel.body))):  # a view may be of a view
        if _may_be_view(stmt, uses) and _only_products(stmt.results[0], uses):
            uses.views.add(stmt.results[0].number)
            uses.users.setdefault(stmt.operands[0].number, []).extend(uses.of(stmt.results[0]))
        if stmt.op in (Op.STORE, Op.SCATTER):
            uses.stored.add(stmt.operands[0].number)
    return uses


def walk(body: Sequence[Statement]) -> Iterator[Statement]:
    for stmt in body:
        yield stmt
        for block in stmt.blocks:
            yield from walk(block.body)


def _visit(body: Sequence[Statement], block: int, uses: Uses) -> None:
    for position, stmt in enumerate(body):
        uses.position[id(stmt)] = position
        uses.owner[id(stmt)] = block
        for operand in stmt.operands:
            uses.users.setdefault(operand.number, []).append(stmt)
        for result in stmt.results:
            uses.definitions[result.number] = stmt
            uses.home[result.number] = block
        if _is_floating(stmt, uses):
            uses.floating.add(stmt.results[0].number)
        for inner in stmt.blocks:
            uses.parents[id(inner)] = block
            for param in inner.params:
                uses.home[param.number] = id(inner)
            _visit(inner.body, id(inner), uses)
            for value in inner.yields:
                uses.users.setdefault(value.number, []).append(inner)


def _is_floating(stmt: Statement, uses: Uses) -> bool:
    """Tiles that come from scalars alone and are cheap."""
    if OPS[stmt.op].group is Group.MAKE:
        return True
    if not is_elementwise(stmt) or stmt.op in EXPENSIVE or not is_tile(stmt.results[0]):
        return False
    return all(is_scalar(v) or v.number in uses.floating for v in stmt.operands)


def _may_be_view(stmt: Statement, uses: Uses) -> bool:
    """Products read transposed operands, and f16 and bf16 as f32, without a copy."""
    if stmt.op is Op.TRANSPOSE:
        return True
    if stmt.op is not Op.CAST or stmt.results[0].number in uses.floating:
        return False
    source, result = stmt.operands[0], stmt.results[0]
    return is_tile(source) and dtype_of(source) in HALVES and dtype_of(result) is DType.F32


def _only_products(value: Value, uses: Uses) -> bool:
    for user in uses.of(value):
        if isinstance(user, Statement) and user.results and user.results[0].number in uses.views:
            continue
        if not isinstance(user, Statement) or user.op not in (Op.MATMUL, Op.MATMUL_ACC):
            return False
        if user.op is Op.MATMUL_ACC and user.operands[0].number == value.number:
            return False
    return bool(uses.of(value))


def only_right_operand(uses: Uses, value: Value) -> bool:
    """Whether a value is nothing but the second operand of products."""

    def is_it(operand: Value) -> bool:
        return uses.views_of(operand)[-1].number == value.number

    def fits(user: Statement | Block) -> bool:
        if not isinstance(user, Statement):
            return False
        if user.results and user.results[0].number in uses.views:
            return True
        if user.op not in (Op.MATMUL, Op.MATMUL_ACC):
            return False
        *others, right = map(is_it, user.operands)
        return right and not any(others)

    return all(map(fits, uses.of(value)))
