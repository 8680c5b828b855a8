"""What is legal in an expression; `verify` has the rules for everything else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias, TypeVar, assert_never

from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError, TypeCheckError
from pto_wsp.ir.nodes import (
    ArrayLoad,
    Binary,
    BinaryOp,
    BoundVar,
    Column,
    Const,
    Expr,
    FloatConst,
    KernelDecl,
    LoopVar,
    Not,
    Reduce,
    Search,
    Select,
    ShapeOf,
    SlotRef,
    SymbolDecl,
    SymbolKind,
    SymbolRef,
    TaskAxis,
    TaskOrdinal,
    TaskSite,
    TensorDecl,
    TensorKind,
)
from pto_wsp.ir.rewrite import operands, walk_expr
from pto_wsp.ir.text import expr_text
from pto_wsp.ir.types import expr_type, wanted_operands
from pto_wsp.srcloc import SrcLoc

# Limits of the plan format (plan.h), so that every legal module can be lowered.
MAX_LOOPS = 16
MAX_BLOCKS = 48
MAX_RANK = 8
MAX_EXPR_DEPTH = 64
MAX_EXPR_NODES = 4096  # doubling a value 60 times makes a small plan, yet nothing could print it
MAX_TENSOR_ARGS = 64
MAX_SCALAR_ARGS = 32
MAX_ARG_WORDS = 160
MAX_BOUND_VARS = 4
MAX_CHILDREN = 0xFFFF  # of a block: a 16-bit operand counts them
MAX_AXES = 0x10000  # a 16-bit operand names one
MAX_NAME_BYTES = 1024
MAX_STRING_BYTES = 0xFFFF
MAX_SOURCE_BYTES = 1 << 20
I64_MIN, I64_MAX = -(2**63), 2**63 - 1

INTEGERS = frozenset(d for d in DType if d.name[0] in "IU")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong, why that is not allowed, and what to do about it."""

    message: str
    why: str | None = None
    fix: str | None = None
    error: type[CompileError] = CompileError
    code: Code = Code.IR_ILLEGAL
    loc: SrcLoc | None = None  # if it is another one than that of what is checked


Faults: TypeAlias = Iterator[Fault]


@dataclass(frozen=True, slots=True)
class Scope:
    """What is declared, and the loops and blocks around the current place."""

    symbols: dict[str, SymbolDecl]
    tensors: dict[str, TensorDecl]
    kernels: dict[str, KernelDecl]
    loops: tuple[str, ...] = ()
    sparse: frozenset[str] = frozenset()  # those of the loops that have columns
    slots: frozenset[str] = frozenset()
    temps: frozenset[str] = frozenset()  # that exist here
    blocks: int = 0
    is_key: bool = False  # of a schedule

    def text(self, expr: Expr) -> str:
        return expr_text(expr, self.loops)


Rule: TypeAlias = Callable[[T, Scope], Faults]


def expression_is_not_too_large(expr: Expr, _: Scope) -> Faults:
    level, depth, nodes = [expr], 1, 1
    while level := [inner for node in level for inner in operands(node)]:
        depth += 1
        nodes += len(level)
        if depth > MAX_EXPR_DEPTH or nodes > MAX_EXPR_NODES:
            size = f"{MAX_EXPR_DEPTH} levels and {MAX_EXPR_NODES} nodes"
            why = f"an expression has at most {size}"
            fix = "compute a part of it before the run"
            yield Fault("an expression is too large", why, fix, code=Code.PLAN_LIMIT)
            return


def names_in_expression_are_known(expr: Expr, scope: Scope) -> Faults:
    for node in walk_expr(expr):
        match node:
            case LoopVar(name) if name not in scope.loops:
                why = "only variables of enclosing loops have a value here"
                message = f"loop variable '{name}' is used outside its loop"
                yield Fault(message, why, code=Code.LOOP_VARIABLE_ESCAPED)
            case Column(loop) if loop not in scope.sparse:
                yield Fault(f"the column of '{loop}', which is no sparse loop around here")
            case SlotRef(slot) if slot not in scope.slots:
                message = f"slot '{slot}' has no value here"
                yield Fault(message, "nothing before has set it", code=Code.SLOT)
            case SymbolRef(name):
                yield from number_faults(name, scope)
            case ArrayLoad(array, _, column):
                yield from array_faults(array, 1 if column is None else 2, scope)
            case ShapeOf(tensor, dim):
                yield from _shape_faults(tensor, dim, scope)
            case LoopVar() | Column() | SlotRef() | Const() | FloatConst() | BoundVar():
                pass
            case TaskAxis() | TaskSite() | TaskOrdinal():
                if not scope.is_key:
                    yield Fault(f"{scope.text(node)} outside a key of the schedule")
            case Binary() | Not() | Select() | Reduce() | Search():
                pass
            case _:
                assert_never(node)


def number_faults(name: str, scope: Scope) -> Faults:
    symbol = scope.symbols.get(name)
    if symbol is None:
        yield Fault(f"extent '{name}' is not declared")
    elif symbol.kind not in (SymbolKind.EXTENT, SymbolKind.SCALAR):
        yield Fault(f"'{name}' is used as an extent and declared as {symbol.kind.value}")


def array_faults(name: str, rank: int, scope: Scope) -> Faults:
    symbol = scope.symbols.get(name)
    if symbol is None:
        yield Fault(f"array '{name}' is not declared")
    elif symbol.kind is not SymbolKind.ARRAY:
        yield Fault(f"'{name}' is used as an array and declared as {symbol.kind.value}")
    elif symbol.rank != rank:
        yield Fault(f"array '{name}' has {symbol.rank} dimensions and gets {rank} indices")


def bound_variables_are_bound(expr: Expr, _: Scope) -> Faults:
    pending = [(expr, 0)]  # nodes, with the number of variables bound around them
    while pending:
        node, bound = pending.pop()
        match node:
            case BoundVar(level) if not 0 <= level < bound:
                yield Fault(f"variable {level} of no reduction or search around it")
            case Reduce(_, level, lo, hi, body) | Search(level, lo, hi, body):
                if level != bound or bound == MAX_BOUND_VARS:
                    why = f"at most {MAX_BOUND_VARS} stand inside each other, numbered from 0"
                    yield Fault(f"a reduction or search of level {level} inside {bound}", why)
                pending += [(lo, bound), (hi, bound), (body, bound + 1)]
            case _:
                pending += [(inner, bound) for inner in operands(node)]


def types_fit(expr: Expr, scope: Scope) -> Faults:
    for node in walk_expr(expr):
        for operand, wanted in wanted_operands(node, scope.symbols):
            found = expr_type(operand, scope.symbols)
            if found is not wanted:
                message = f"{scope.text(operand)} is {found.value} where {wanted.value} is wanted"
                yield Fault(message, f"it stands in {scope.text(node)}", error=TypeCheckError)


def _shape_faults(name: str, dim: int, scope: Scope) -> Faults:
    tensor = scope.tensors.get(name)
    if tensor is None:
        yield Fault(f"tensor '{name}' is not declared")
    elif not 0 <= dim < tensor.rank:
        yield Fault(f"dimension {dim} of tensor '{name}', which has rank {tensor.rank}")
    elif tensor.kind is not TensorKind.BOUND:
        yield Fault(f"the shape of {tensor.kind.value} '{name}'", "it is an expression already")


def constants_fit(expr: Expr, scope: Scope) -> Faults:
    for node in walk_expr(expr):
        match node:
            case Const(value) if not I64_MIN <= value <= I64_MAX:
                message = f"constant {value} does not fit 64 bits"
                yield Fault(message, "all index arithmetic is i64", code=Code.ARITHMETIC)
            case Binary(BinaryOp.FLOORDIV | BinaryOp.MOD, _, Const(0)):
                message = f"division by zero in {scope.text(expr)}"
                yield Fault(message, code=Code.ARITHMETIC)
            case _:
                pass


EXPRESSION_RULES: tuple[Rule[Expr], ...] = (
    expression_is_not_too_large,
    names_in_expression_are_known,
    bound_variables_are_bound,
    types_fit,
    constants_fit,
)
