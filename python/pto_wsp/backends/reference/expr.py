"""Values of expressions: pure, 64-bit, with every error defined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pto_wsp.backends.reference.bound import BoundPlan
from pto_wsp.error_codes import Code
from pto_wsp.plan import NONE, Expr, ExprOp, ReduceOp, ScalarType

INT64_MIN = -(1 << 63)
INT64_MAX = (1 << 63) - 1


class ExprFault(Exception):
    """An expression has no value. Whoever asked knows the place in the user's program."""

    def __init__(self, code: Code, message: str, *, why: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.why = why


@dataclass(slots=True)
class Scope:
    """Where an expression is evaluated: values of loop variables, of slots, of lets, and of the
    variables that REDUCE and SEARCH bind. Nodes are shared, so each is evaluated once per scope."""

    loops: Sequence[int]
    slots: Mapping[int, int] = field(default_factory=dict[int, int])
    lets: Mapping[int, int] = field(default_factory=dict[int, int])
    bound: dict[int, int] = field(default_factory=dict[int, int])
    known: dict[int, int] = field(default_factory=dict[int, int])


class Evaluator:
    """Evaluates the EXPR nodes of a plan with its bindings. Booleans are 0 and 1."""

    def __init__(self, plan: BoundPlan) -> None:
        self._plan = plan
        self._nodes = plan.plan.records(Expr)
        self._needs: dict[int, frozenset[int]] = {}
        self._constant: dict[int, int] = {}  # reductions that have one value in a run

    def reads_loops(self, nodes: Sequence[int]) -> bool:
        """Whether a value may differ from iteration to iteration."""
        return any(
            self._nodes[node].op in (ExprOp.LOOPVAR, ExprOp.SLOT, ExprOp.LETVAR)
            or self.reads_loops(operands(self._nodes[node]))
            for node in nodes
        )

    def value(self, node: int, scope: Scope) -> int:
        """The value of a node; ExprFault if it has none."""
        if node in self._constant:
            return self._constant[node]
        if node not in scope.known:
            scope.known[node] = self._compute(self._nodes[node], scope)
            folds = self._nodes[node].op in (ExprOp.REDUCE, ExprOp.SEARCH)
            if folds and not self._variables(node):
                self._constant[node] = scope.known[node]
        return scope.known[node]

    def _variables(self, node: int) -> frozenset[int]:
        """What a node needs from around it: -1 for loops, slots and lets, and the levels of
        reductions."""
        if node not in self._needs:
            e = self._nodes[node]
            needs = frozenset[int]().union(*(self._variables(each) for each in operands(e)))
            if e.op in (ExprOp.LOOPVAR, ExprOp.SLOT, ExprOp.LETVAR):
                needs |= {-1}
            elif e.op == ExprOp.BOUNDVAR:
                needs |= {e.arg}
            elif e.op in (ExprOp.REDUCE, ExprOp.SEARCH):
                needs -= {e.arg >> 8}
            self._needs[node] = needs
        return self._needs[node]

    def _compute(self, e: Expr, scope: Scope) -> int:
        match e.op:
            case ExprOp.CONST:
                bits = e.a | e.b << 32
                return bits - (1 << 64) if bits > INT64_MAX else bits
            case ExprOp.LOOPVAR:
                return scope.loops[e.arg]
            case ExprOp.BOUNDVAR:
                return scope.bound[e.arg]
            case ExprOp.SLOT:
                return scope.slots.get(e.a, 0)
            case ExprOp.LETVAR:
                return scope.lets[e.a]
            case ExprOp.SYMBOL:
                return self._plan.number(e.a)
            case ExprOp.SHAPE:
                return self._plan.tensors[e.a].shape[e.arg]
            case ExprOp.LOAD:
                return self._load(e, scope)
            case ExprOp.SELECT:  # only the chosen side is evaluated
                return self.value(e.b if self.value(e.a, scope) else e.c, scope)
            case ExprOp.NOT:
                return int(not self.value(e.a, scope))
            case ExprOp.CAST:
                value = self.value(e.a, scope)
                return int(value != 0) if e.type == ScalarType.BOOL else value
            case ExprOp.NEG:
                return _fitting(-self.value(e.a, scope))
            case ExprOp.REDUCE:
                return self._reduce(e, scope)
            case ExprOp.SEARCH:
                return self._search(e, scope)
            case _:
                return _binary(e.op, self.value(e.a, scope), self.value(e.b, scope))

    def _load(self, e: Expr, scope: Scope) -> int:
        array = self._plan.array(e.a)
        indices = [self.value(node, scope) for node in (e.b, e.c) if node != NONE]
        for index, length in zip(indices, array.shape, strict=True):
            if not 0 <= index < length:
                name = self._plan.symbol_name(e.a)
                message = f"index {index} is outside array {name!r} of length {length}"
                raise ExprFault(Code.OUT_OF_BOUNDS, message)
        return _fitting(int(array[tuple(indices)]))

    def _reduce(self, e: Expr, scope: Scope) -> int:
        values = (
            self.value(e.c, self._binding(e, scope, x))
            for x in range(self.value(e.a, scope), self.value(e.b, scope))
        )
        match ReduceOp(e.arg & 0xFF):
            case ReduceOp.SUM:
                total = 0
                for value in values:
                    total = _fitting(total + value)
                return total
            case ReduceOp.MIN:
                return min(values, default=INT64_MAX)
            case ReduceOp.MAX:
                return max(values, default=INT64_MIN)
            case ReduceOp.ANY:
                return int(any(list(values)))
            case ReduceOp.ALL:
                return int(all(list(values)))

    def _search(self, e: Expr, scope: Scope) -> int:
        """The predicate is monotone: false, then true. Bisection is part of the definition, since
        it decides which values a predicate that fails is asked for."""
        low, high = self.value(e.a, scope), self.value(e.b, scope)
        if low > high:
            return high
        while low < high:
            middle = (low + high) // 2
            if self.value(e.c, self._binding(e, scope, middle)):
                high = middle
            else:
                low = middle + 1
        return low

    def _binding(self, e: Expr, scope: Scope, value: int) -> Scope:
        """The scope inside a REDUCE or SEARCH, with its variable set."""
        bound = {**scope.bound, e.arg >> 8: value}
        return Scope(scope.loops, scope.slots, scope.lets, bound)


def operands(e: Expr) -> list[int]:
    """The nodes that a node refers to."""
    match e.op:
        case ExprOp.CONST | ExprOp.LOOPVAR | ExprOp.BOUNDVAR | ExprOp.SYMBOL | ExprOp.SHAPE:
            return []
        case ExprOp.SLOT | ExprOp.LETVAR:
            return []
        case ExprOp.LOAD:
            return [node for node in (e.b, e.c) if node != NONE]
        case _:
            return [node for node in (e.a, e.b, e.c) if node != NONE]


def _binary(op: ExprOp, a: int, b: int) -> int:
    match op:
        case ExprOp.ADD:
            return _fitting(a + b)
        case ExprOp.SUB:
            return _fitting(a - b)
        case ExprOp.MUL:
            return _fitting(a * b)
        case ExprOp.FLOORDIV:
            return _fitting(a // _divisor(b))
        case ExprOp.MOD:
            return a % _divisor(b)
        case ExprOp.MIN:
            return min(a, b)
        case ExprOp.MAX:
            return max(a, b)
        case ExprOp.EQ:
            return int(a == b)
        case ExprOp.NE:
            return int(a != b)
        case ExprOp.LT:
            return int(a < b)
        case ExprOp.LE:
            return int(a <= b)
        case ExprOp.GT:
            return int(a > b)
        case ExprOp.GE:
            return int(a >= b)
        case ExprOp.AND:
            return int(a != 0 and b != 0)
        case ExprOp.OR:
            return int(a != 0 or b != 0)
        case _:
            raise AssertionError(f"check() lets no {op.name} pass")


def _divisor(b: int) -> int:
    if b == 0:
        raise ExprFault(Code.ARITHMETIC, "division by zero in an index expression")
    return b


def _fitting(value: int) -> int:
    if INT64_MIN <= value <= INT64_MAX:
        return value
    message = f"integer overflow in an index expression: {value} does not fit 64 bits"
    raise ExprFault(Code.ARITHMETIC, message)
