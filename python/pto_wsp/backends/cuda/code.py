"""Text of Triton functions, with names for expressions of a plan.

Each node of an expression is one line, written once in each scope that needs it: the nodes of a
plan are shared, and written out they would be as long as the product of their uses. Nodes that
read no loop have one value in a run; they are written in front of the main loop.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache

from pto_wsp.plan import NONE, Expr, ExprOp, Plan, ReduceOp, ScalarType, Symbol, SymbolKind

I64 = "tl.int64"
_BOUND = 1000  # stands for bound variables among levels of loops, which are less
LANES = 128  # elements of an array that a reduction takes at a time

_INFIX = {
    ExprOp.ADD: "+",
    ExprOp.SUB: "-",
    ExprOp.MUL: "*",
    ExprOp.EQ: "==",
    ExprOp.NE: "!=",
    ExprOp.LT: "<",
    ExprOp.LE: "<=",
    ExprOp.GT: ">",
    ExprOp.GE: ">=",
    ExprOp.AND: "&",
    ExprOp.OR: "|",
}
_CALLS = {
    ExprOp.FLOORDIV: "pto_floordiv",
    ExprOp.MOD: "pto_mod",
    ExprOp.MIN: "tl.minimum",
    ExprOp.MAX: "tl.maximum",
}


@dataclass(frozen=True, slots=True)
class Fold:
    """How two values are put together, what stands for none, and how a block of values is."""

    join: str
    nothing: str
    over: str


SUM = Fold("{} + {}", "0", "tl.sum({}, 0)")
LARGEST = Fold("tl.maximum({}, {})", "0", "tl.max({}, 0)")  # of what is not negative
_REDUCE = {
    ReduceOp.SUM: SUM,
    ReduceOp.MIN: Fold("tl.minimum({}, {})", str((1 << 63) - 1), "tl.min({}, 0)"),
    ReduceOp.MAX: Fold("tl.maximum({}, {})", str(-(1 << 63)), "tl.max({}, 0)"),
    ReduceOp.ANY: LARGEST,
    ReduceOp.ALL: Fold("tl.minimum({}, {})", "1", "tl.min({}, 0)"),
}


@dataclass(slots=True)
class Scope:
    """Names of variables, and of nodes that are written already. `lanes`: some variable is a block
    of that many values, so that expressions are; 0 if none is."""

    loops: dict[int, str] = field(default_factory=dict[int, str])
    lets: dict[int, str] = field(default_factory=dict[int, str])
    bound: dict[int, str] = field(default_factory=dict[int, str])
    known: dict[int, str] = field(default_factory=dict[int, str])
    lanes: int = 0

    def inner(self) -> Scope:
        """A scope that sees this one, for a block of its own."""
        return Scope({**self.loops}, {**self.lets}, {**self.bound}, {**self.known}, self.lanes)


class Names:
    """How the kernel calls what is bound: `a3` the array of symbol 3, `s3` its number, `t2` a
    tensor, `t2_n1` its extent, `t2_s1` its stride."""

    @staticmethod
    def array(symbol: int) -> str:
        return f"a{symbol}"

    @staticmethod
    def number(symbol: int) -> str:
        return f"s{symbol}"

    @staticmethod
    def tensor(tensor: int) -> str:
        return f"t{tensor}"

    @staticmethod
    def extent(tensor: int, dim: int) -> str:
        return f"t{tensor}_n{dim}"

    @staticmethod
    def stride(tensor: int, dim: int) -> str:
        return f"t{tensor}_s{dim}"


@dataclass(frozen=True, slots=True)
class Known:
    """What is compiled in, by tensor and dimension: extents that make regions whole, strides, and
    which tensor is the same as another one; and whether page numbers are taken as they are."""

    extents: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    strides: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    same: dict[int, int] = field(default_factory=dict[int, int])
    trusts_pages: bool = False

    @property
    def key(self) -> tuple[object, ...]:
        return tuple(tuple(sorted(d.items())) for d in (self.extents, self.strides, self.same))


class Code:
    """Lines of a function body. `prelude` is what stands in front of its loop."""

    def __init__(self, plan: Plan, known: Known) -> None:
        self._plan = plan
        self.known = known
        self._nodes = plan.records(Expr)
        self._lines: list[tuple[int, str]] = []
        self._prelude: list[tuple[int, str]] = []
        self._indent = 1
        # By text: names that the prelude has for it, and those of its part that is being written.
        self._shared: dict[str, str] = {}
        self._own: dict[str, str] | None = None
        self._count = 0
        self._is_anew = False
        self.closed = Scope()
        self.symbols: set[int] = set()  # numbers and arrays that are read
        self.shapes: set[tuple[int, int]] = set()
        self._depends = cache(self._find_depends)

    # --- lines ---

    def line(self, text: str) -> None:
        self._lines.append((self._indent, text))

    @contextmanager
    def block(self, head: str) -> Generator[None]:
        self.line(head)
        self._indent += 1
        before = len(self._lines)
        yield
        if len(self._lines) == before:
            self.line("pass")
        self._indent -= 1

    def open(self, head: str) -> None:
        self.line(head)
        self._indent += 1

    def close(self) -> None:
        self._indent -= 1

    @contextmanager
    def in_prelude(self) -> Generator[None]:
        """What is written goes in front of the main loop; what is written so while something else
        is, in front of that."""
        lines, indent, own = self._lines, self._indent, self._own
        self._lines, self._indent, self._own = [], 1, {}
        yield
        self._prelude += self._lines
        self._shared |= self._own
        self._lines, self._indent, self._own = lines, indent, own

    @contextmanager
    def anew(self) -> Generator[None]:
        """What has one value in a run is computed where it is used, and not kept for it."""
        self._is_anew = True
        yield
        self._is_anew = False

    def fresh(self, stem: str = "v") -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def named(self, text: str, stem: str = "v") -> str:
        """A name for the value of a text; numbers and names stay what they are. In front of the
        main loop each text is written once."""
        if text.isidentifier() or _is_number(text):
            return text
        known = None if self._own is None else self._own.get(text) or self._shared.get(text)
        if known is not None:
            return known
        name = self.fresh(stem)
        self.line(f"{name} = {text}")
        if self._own is not None and self._indent == 1:
            self._own[text] = name
        return name

    def text(self) -> str:
        return "\n".join("    " * indent + text for indent, text in [*self._prelude, *self._lines])

    def fold(self, how: Fold, low: str, high: str, of: Callable[[str], str]) -> str:
        """The values `of(numbers)` for numbers from `low` below `high` put together, a block of
        them at a time. In front of the main loop the first block, mostly the only one, stands in
        front of the loop over blocks, where its lines serve other folds as well."""
        # Triton cannot compile some loops that it sees are never entered.
        count = int(high) - int(low) if _is_number(low) and _is_number(high) else None
        if count is not None and count <= 0:
            return how.nothing
        total, at = self.fresh("sum"), self.fresh("x")
        if self._own is not None:
            first = self.named(self.folded(how, self.numbers(low), high, of))
            if count is not None and count <= LANES:
                return first
            self.line(f"{total} = {first}")
            self.line(f"{at} = tl.full((), {LANES}, {I64}) + {low}")
        else:
            self.line(f"{total} = tl.full((), {how.nothing}, {I64})")
            self.line(f"{at} = tl.full((), 0, {I64}) + {low}")
        with self.block(f"while {at} < {high}:"):
            value = self.folded(how, self.numbers(at), high, of)
            self.line(f"{total} = {how.join.format(total, value)}")
            self.line(f"{at} += {LANES}")
        return total

    def numbers(self, first: str) -> str:
        """A block of numbers."""
        lanes = f"tl.arange(0, {LANES}).to({I64})"
        return self.named(lanes if first == "0" else f"{first} + {lanes}", "ks")

    def folded(self, how: Fold, numbers: str, high: str, of: Callable[[str], str]) -> str:
        """The text of what a block of numbers comes to."""
        return how.over.format(f"tl.where({numbers} < {high}, {of(numbers)}, {how.nothing})")

    # --- expressions ---

    def let(self, number: int, node: int, scope: Scope) -> None:
        """Names the value of a let."""
        scope.lets[number] = self.value(node, scope)
        if not self._depends(node) and not self._is_anew:
            self.closed.lets[number] = scope.lets[number]

    def enter(self, scope: Scope, level: int, name: str, *, lanes: int = 0) -> Scope:
        """The scope of one iteration, whose variable has that name. What is known of the loop's
        last one, and of those in it, is forgotten."""
        found = scope.inner()
        if any(k >= level for k in scope.loops):
            found.known = {k: v for k, v in scope.known.items() if self._is_outside(k, level)}
        found.loops = {k: v for k, v in scope.loops.items() if k < level} | {level: name}
        found.lanes = scope.lanes or lanes
        return found

    def _is_outside(self, node: int, level: int) -> bool:
        """Whether a node reads neither a loop from `level` on, nor a let, which might."""
        return all(0 <= k < level for k in self._depends(node))

    def is_closed(self, node: int) -> bool:
        """Whether it has one value in a run."""
        return not self._depends(node)

    def depends(self, node: int) -> frozenset[int]:
        """The loops that an expression reads; -1 - n for let n, which stands for more."""
        return frozenset(k for k in self._depends(node) if k < _BOUND)

    def _find_depends(self, node: int) -> frozenset[int]:
        e = self._nodes[node]
        found = frozenset[int]().union(*(self._depends(each) for each in operands(e)))
        match e.op:
            case ExprOp.LOOPVAR:
                return found | {e.arg}
            case ExprOp.LETVAR:
                return found | {-1 - e.a}
            case ExprOp.BOUNDVAR:
                return found | {_BOUND + e.arg}
            case ExprOp.REDUCE | ExprOp.SEARCH:
                return found - {_BOUND + (e.arg >> 8)}
            case _:
                return found

    def value(self, node: int, scope: Scope) -> str:
        """A name or number that stands for a node in a scope."""
        if not self._depends(node) and not self._is_anew:
            if node not in self.closed.known:
                with self.in_prelude():
                    self.closed.known[node] = self._write(self._nodes[node], self.closed)
            return self.closed.known[node]
        if node not in scope.known:
            scope.known[node] = self._write(self._nodes[node], scope)
        return scope.known[node]

    def extent(self, tensor: int, dim: int) -> str:
        """The extent of a bound tensor."""
        if (tensor, dim) in self.known.extents:
            return str(self.known.extents[tensor, dim])
        self.shapes.add((tensor, dim))
        return Names.extent(tensor, dim)

    def rank(self, symbol: int) -> int:
        """Dimensions of an array; 0 of a number."""
        record = self._plan.records(Symbol)[symbol]
        return record.rank if record.kind == SymbolKind.ARRAY else 0

    def _write(self, e: Expr, scope: Scope) -> str:
        match e.op:
            case ExprOp.CONST:
                bits = e.a | e.b << 32
                if e.type == ScalarType.F64:
                    return repr(struct.unpack("<d", struct.pack("<Q", bits))[0])
                return str(bits - (1 << 64) if bits >> 63 else bits)
            case ExprOp.LOOPVAR:
                return scope.loops[e.arg]
            case ExprOp.LETVAR:
                return scope.lets[e.a]
            case ExprOp.BOUNDVAR:
                return scope.bound[e.arg]
            case ExprOp.SYMBOL:
                self.symbols.add(e.a)
                name = Names.number(e.a)
                return self.named(f"{name} != 0") if e.type == ScalarType.BOOL else name
            case ExprOp.SHAPE:
                return self.extent(e.a, e.arg)
            case ExprOp.LOAD:
                return self._load(e, scope)
            case ExprOp.REDUCE:
                return self._reduce(e, scope)
            case ExprOp.SEARCH:
                return self._search(e, scope)
            case _:
                return self.operation(e, [self.value(n, scope) for n in operands(e)])

    def operation(self, e: Expr, args: list[str]) -> str:
        """What a node computes of its operands."""
        if e.op in _INFIX:
            return self.named(_folded(args[0], _INFIX[e.op], args[1]))
        if e.op in _CALLS:
            return self.named(_called(e.op, args[0], args[1]))
        match e.op:
            case ExprOp.NEG:
                return self.named(f"-{args[0]}" if not args[0].startswith("-") else args[0][1:])
            case ExprOp.NOT:
                if args[0] in ("0", "1"):
                    return "1" if args[0] == "0" else "0"
                return self.named(f"({args[0]}) == 0")
            case ExprOp.SELECT:
                return self.named(chosen(*args))
            case ExprOp.CAST if e.type == ScalarType.BOOL:
                return self.named(f"({args[0]}) != 0")
            case ExprOp.CAST if self._nodes[e.a].type == ScalarType.BOOL:
                return self.named(chosen(args[0], "1", "0"))
            case ExprOp.CAST:
                return args[0]
            case op:
                raise AssertionError(f"check() lets no {op.name} pass")

    def _load(self, e: Expr, scope: Scope) -> str:
        self.symbols.add(e.a)
        array = Names.array(e.a)
        indices = [self.value(n, scope) for n in (e.b, e.c) if n != NONE]
        inside = " & ".join(
            f"({index} >= 0) & ({index} < {array}_n{d})" for d, index in enumerate(indices)
        )
        at = " + ".join(f"{index} * {array}_s{d}" for d, index in enumerate(indices))
        mask = self.named(inside, "inside")
        return self.named(f"tl.load({array} + ({at}), mask={mask}, other=0).to({I64})")

    def _reduce(self, e: Expr, scope: Scope) -> str:
        """By blocks of values where the scope has one of each, else value by value."""
        how = _REDUCE[ReduceOp(e.arg & 0xFF)]
        low, high = self.value(e.a, scope), self.value(e.b, scope)

        def of(name: str) -> str:
            inner = scope.inner()
            inner.bound[e.arg >> 8] = name
            inner.known = {k: v for k, v in scope.known.items() if not self.is_bound(k, e)}
            inner.lanes = scope.lanes or LANES
            return self._as_integer(e.c, self.value(e.c, inner))

        if not scope.lanes:
            return self._as_type(e, self.fold(how, low, high, of))
        total, at = self.fresh("sum"), self.fresh("x")
        self.line(f"{total} = {_start(how.nothing, scope)}")
        self.line(f"{at} = tl.full((), 0, {I64}) + {_least(low, scope)}")
        with self.block(f"while {at} < {_most(high, scope)}:"):
            inside = f"({at} >= {low}) & ({at} < {high})"
            value = f"tl.where({inside}, {of(at)}, {how.nothing})"
            self.line(f"{total} = {how.join.format(total, value)}")
            self.line(f"{at} += 1")
        return self._as_type(e, total)

    def _as_type(self, e: Expr, total: str) -> str:
        return self.named(f"{total} != 0") if e.type == ScalarType.BOOL else total

    def is_bound(self, node: int, e: Expr) -> bool:
        """Whether a node reads the variable of a REDUCE or SEARCH."""
        return _BOUND + (e.arg >> 8) in self._depends(node)

    def _as_integer(self, node: int, text: str) -> str:
        return chosen(text, "1", "0") if self._nodes[node].type == ScalarType.BOOL else text

    def _search(self, e: Expr, scope: Scope) -> str:
        """Bisection; of a block, as long as one of its values is not found."""
        low, high = self.fresh("low"), self.fresh("high")
        first, last = self.value(e.a, scope), self.value(e.b, scope)
        like = _start("0", scope)
        self.line(f"{high} = {like} + {last}")
        self.line(f"{low} = {like} + tl.minimum({first}, {high})")
        again = f"{low} < {high}"
        if scope.lanes:
            again = f"tl.max(tl.where({again}, 1, 0), 0) > 0"
        with self.block(f"while {again}:"):
            middle = self.named(f"({low} + {high}) >> 1", "mid")
            inner = scope.inner()
            inner.bound[e.arg >> 8] = middle
            inner.known = {k: v for k, v in scope.known.items() if not self.is_bound(k, e)}
            holds = self.value(e.c, inner)
            moved = f"({holds}) & ({low} < {high})" if scope.lanes else holds
            next_low = f"tl.where({holds}, {low}, tl.minimum({middle} + 1, {high}))"
            self.line(f"{low}, {high} = {next_low}, tl.where({moved}, {middle}, {high})")
        return high


def chosen(condition: str, then: str, other: str) -> str:
    """One of two values; a condition may be known."""
    if condition in ("0", "1"):
        return then if condition == "1" else other
    return f"tl.where({condition}, {then}, {other})"


def _start(nothing: str, scope: Scope) -> str:
    """The first value of something that is carried through a loop, in the shape of a scope."""
    if not scope.lanes:
        return f"tl.full((), {nothing}, {I64})"
    return f"tl.full(({scope.lanes},), {nothing}, {I64})"


def _least(low: str, scope: Scope) -> str:
    return f"tl.min(tl.full(({scope.lanes},), 0, {I64}) + {low}, 0)" if scope.lanes else low


def _most(high: str, scope: Scope) -> str:
    return f"tl.max(tl.full(({scope.lanes},), 0, {I64}) + {high}, 0)" if scope.lanes else high


def operands(e: Expr) -> list[int]:
    """The nodes that a node refers to."""
    match e.op:
        case ExprOp.CONST | ExprOp.LOOPVAR | ExprOp.BOUNDVAR | ExprOp.SYMBOL | ExprOp.SHAPE:
            return []
        case ExprOp.SLOT | ExprOp.LETVAR | ExprOp.TASK_AXIS | ExprOp.TASK_SITE:
            return []
        case ExprOp.TASK_ORDINAL:
            return []
        case ExprOp.LOAD:
            return [node for node in (e.b, e.c) if node != NONE]
        case ExprOp.SELECT | ExprOp.REDUCE | ExprOp.SEARCH:
            return [e.a, e.b, e.c]
        case ExprOp.NEG | ExprOp.NOT | ExprOp.CAST:
            return [e.a]
        case _:
            return [e.a, e.b]


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdigit()


_COMPARED = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_COMPUTED = {"+": operator.add, "-": operator.sub, "*": operator.mul, **_COMPARED}


def _folded(a: str, op: str, b: str) -> str:
    """`a op b`, worked out where both are numbers or one of them changes nothing."""
    if op in _COMPUTED and _is_number(a) and _is_number(b):
        return str(int(_COMPUTED[op](int(a), int(b))))
    if (op in "+-" and b == "0") or (op == "*" and b == "1"):
        return a
    if (op == "+" and a == "0") or (op == "*" and a == "1"):
        return b
    if op == "*" and "0" in (a, b):
        return "0"
    for one, other in ((a, b), (b, a)):
        if op in "&|" and _is_number(one):
            decides = (int(one) != 0) == (op == "|")
            return str(int(op == "|")) if decides else other
    return f"({a}) {op} ({b})" if op in "&|" else f"{a} {op} {b}"


def _called(op: ExprOp, a: str, b: str) -> str:
    if _is_number(a) and _is_number(b):
        x, y = int(a), int(b)
        match op:
            case ExprOp.MIN:
                return str(min(x, y))
            case ExprOp.MAX:
                return str(max(x, y))
            case ExprOp.FLOORDIV if y:
                return str(x // y)
            case ExprOp.MOD if y:
                return str(x % y)
            case _:
                pass
    if op is ExprOp.FLOORDIV and b == "1":
        return a
    return f"{_CALLS[op]}({a}, {b})"
