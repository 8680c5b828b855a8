"""The type of an expression, and what is wrong with the types inside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import assert_never

from pto_wsp.dtypes import DType
from pto_wsp.ir.nodes import (
    COMPARISONS,
    LOGIC,
    ArrayLoad,
    Binary,
    BoundVar,
    Column,
    Const,
    Expr,
    ExprType,
    FloatConst,
    LoopVar,
    Not,
    Reduce,
    ReduceOp,
    Search,
    Select,
    ShapeOf,
    SlotRef,
    SymbolDecl,
    SymbolRef,
    TaskAxis,
    TaskOrdinal,
    TaskSite,
)

FLOATS = frozenset({DType.F64, DType.F32, DType.F16, DType.BF16})
Symbols = Mapping[str, SymbolDecl]


def scalar_type(dtype: DType) -> ExprType:
    """The type of expressions that hold values of a dtype."""
    if dtype in FLOATS:
        return ExprType.F64
    return ExprType.BOOL if dtype is DType.BOOL else ExprType.I64


def expr_type(expr: Expr, symbols: Symbols) -> ExprType:
    """The type of an expression, whether or not the types inside it fit."""
    match expr:
        case FloatConst():
            return ExprType.F64
        case SymbolRef(name):
            known = symbols.get(name)
            return ExprType.I64 if known is None else scalar_type(known.dtype)
        case Binary(op):
            return ExprType.BOOL if op in COMPARISONS or op in LOGIC else ExprType.I64
        case Not():
            return ExprType.BOOL
        case Select(_, then, _):
            return expr_type(then, symbols)
        case Reduce(op):
            return ExprType.BOOL if op in (ReduceOp.ANY, ReduceOp.ALL) else ExprType.I64
        case Const() | LoopVar() | Column() | ShapeOf() | ArrayLoad() | SlotRef() | BoundVar():
            return ExprType.I64
        case TaskAxis() | TaskSite() | TaskOrdinal():
            return ExprType.I64
        case Search():
            return ExprType.I64
        case _:
            assert_never(expr)


def wanted_operands(expr: Expr, symbols: Symbols) -> Iterator[tuple[Expr, ExprType]]:
    """The operands of a node, each with the type that it must have."""
    match expr:
        case Binary(op, lhs, rhs):
            wanted = ExprType.BOOL if op in LOGIC else ExprType.I64
            yield from ((lhs, wanted), (rhs, wanted))
        case Not(operand):
            yield operand, ExprType.BOOL
        case Select(condition, then, otherwise):
            yield condition, ExprType.BOOL
            yield otherwise, expr_type(then, symbols)
        case ArrayLoad(_, index, column):
            yield index, ExprType.I64
            if column is not None:
                yield column, ExprType.I64
        case Reduce(_, _, lo, hi, body):
            yield from ((lo, ExprType.I64), (hi, ExprType.I64))
            yield body, expr_type(expr, symbols)
        case Search(_, lo, hi, predicate):
            yield from ((lo, ExprType.I64), (hi, ExprType.I64))
            yield predicate, ExprType.BOOL
        case _:
            return
