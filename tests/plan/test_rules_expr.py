"""One test per rule about expressions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pto_wsp.dtypes import DType
from pto_wsp.plan import (
    MAX_EXPR_DEPTH,
    MAX_EXPR_TREE,
    MAX_LETS,
    NONE,
    AxisKind,
    Expr,
    ExprOp,
    Op,
    ReduceOp,
    ScalarType,
    Section,
    Slot,
    StorageClass,
    SymbolKind,
)
from tests.plan.draft import Draft, fault_of, refuses
from tests.plan.writer import Writer

I64, F64, BOOL = ScalarType.I64, ScalarType.F64, ScalarType.BOOL
E = ExprOp


def writer() -> Writer:
    """A plan that does nothing, with something of each kind to name: symbols n, s, a, m, flag."""
    w = Writer()
    with w.entry():
        w.item(Op.NOP)
    w.symbol("n", SymbolKind.EXTENT)
    w.symbol("s", SymbolKind.SCALAR, dtype=DType.F32, max_value=0)
    w.symbol("a", SymbolKind.ARRAY, dtype=DType.I32, rank=1)
    w.symbol("m", SymbolKind.ARRAY, dtype=DType.I32, rank=2)
    w.symbol("flag", SymbolKind.SCALAR, dtype=DType.BOOL)
    w.tensor("X", 2)
    w.made("token", StorageClass.TOKEN, [4])
    w.add(Slot(type=F64, level=2))
    return w


def truth(w: Writer) -> int:
    return w.expr(E.SYMBOL, type=BOOL, a=4)


def real(w: Writer) -> int:
    return w.expr(E.SYMBOL, type=F64, a=1)


def number(w: Writer) -> int:
    return w.symbol_value(0)


Make = Callable[[Writer], int]

GOOD: dict[str, Make] = {
    "const_i64": lambda w: w.const(-1),
    "const_f64": lambda w: w.expr(E.CONST, type=F64, a=5, b=9),
    "const_bool": lambda w: w.expr(E.CONST, type=BOOL, a=1, b=0),
    "load": lambda w: w.load(2, number(w)),
    "load_2d": lambda w: w.load(3, number(w), number(w)),
    "shape": lambda w: w.expr(E.SHAPE, a=0, arg=1),
    "slot": lambda w: w.expr(E.SLOT, type=F64, a=0),
    "add_real": lambda w: w.binary(E.ADD, real(w), real(w), F64),
    "div": lambda w: w.binary(E.DIV, real(w), real(w), F64),
    "neg": lambda w: w.expr(E.NEG, a=number(w)),
    "eq_bool": lambda w: w.binary(E.EQ, truth(w), truth(w), BOOL),
    "lt_real": lambda w: w.binary(E.LT, real(w), real(w), BOOL),
    "and": lambda w: w.binary(E.AND, truth(w), truth(w), BOOL),
    "not": lambda w: w.expr(E.NOT, type=BOOL, a=truth(w)),
    "select": lambda w: w.expr(E.SELECT, a=truth(w), b=number(w), c=w.const(0)),
    "cast": lambda w: w.expr(E.CAST, type=BOOL, a=number(w)),
    "any": lambda w: w.expr(
        E.REDUCE, type=BOOL, arg=ReduceOp.ANY, a=w.const(0), b=number(w), c=truth(w)
    ),
    "max_real": lambda w: w.expr(
        E.REDUCE, type=F64, arg=ReduceOp.MAX, a=w.const(0), b=number(w), c=real(w)
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_good_node(name: str) -> None:
    w = writer()
    GOOD[name](w)
    w.build()


BAD: dict[str, tuple[Make, str, str]] = {
    "const_arg": (lambda w: w.expr(E.CONST, a=0, b=0, arg=1), "CONST has a bad arg", "arg"),
    "const_c": (lambda w: w.expr(E.CONST, a=0, b=0, c=0), "does not use this operand", "c"),
    "const_bool": (lambda w: w.expr(E.CONST, type=BOOL, a=2, b=0), "neither 0 nor 1", "a"),
    "loopvar_type": (lambda w: w.expr(E.LOOPVAR, type=F64), "cannot have the type F64", "type"),
    "loopvar_level": (lambda w: w.expr(E.LOOPVAR, arg=16), "LOOPVAR has a bad arg", "arg"),
    "loopvar_a": (lambda w: w.expr(E.LOOPVAR, a=0), "does not use this operand", "a"),
    "boundvar_level": (lambda w: w.expr(E.BOUNDVAR, arg=4), "BOUNDVAR has a bad arg", "arg"),
    "symbol_missing": (lambda w: w.expr(E.SYMBOL, a=99), "SYMBOL does not have", "a"),
    "symbol_none": (lambda w: w.expr(E.SYMBOL), "SYMBOL does not have", "a"),
    "symbol_array": (lambda w: w.expr(E.SYMBOL, a=2), "kind EXTENT, SCALAR or FACT", "a"),
    "symbol_tensor": (lambda w: w.expr(E.SYMBOL, a=5), "kind EXTENT, SCALAR or FACT", "a"),
    "symbol_type": (lambda w: w.expr(E.SYMBOL, a=1), "cannot have the type I64", "type"),
    "symbol_b": (lambda w: w.expr(E.SYMBOL, a=0, b=0), "does not use this operand", "b"),
    "shape_missing": (lambda w: w.expr(E.SHAPE, a=9), "TENSOR does not have", "a"),
    "shape_dim": (lambda w: w.expr(E.SHAPE, a=0, arg=2), "SHAPE has a bad arg", "arg"),
    "shape_token": (lambda w: w.expr(E.SHAPE, a=1), "needs a tensor of class BOUND", "a"),
    "load_kind": (lambda w: w.load(0, number(w)), "needs a symbol of kind ARRAY", "a"),
    "load_index_type": (lambda w: w.load(2, real(w)), "operand of type I64", "b"),
    "load_rank_1": (lambda w: w.load(2, number(w), number(w)), "does not use this", "c"),
    "load_rank_2": (lambda w: w.load(3, number(w)), "needs two indices", "c"),
    "load_type": (lambda w: w.expr(E.LOAD, type=F64, a=2, b=number(w)), "the type F64", "type"),
    "slot_missing": (lambda w: w.expr(E.SLOT, a=1), "SLOT does not have", "a"),
    "slot_type": (lambda w: w.expr(E.SLOT, a=0), "cannot have the type I64", "type"),
    "let_missing": (lambda w: w.expr(E.LETVAR, a=0), "names a let that no LET sets", "a"),
    "let_far": (lambda w: w.expr(E.LETVAR, a=NONE), "names a let that no LET sets", "a"),
    "order": (lambda w: w.binary(E.ADD, 50, 0), "must come after its operands", "a"),
    "itself": (lambda w: w.expr(E.NEG, a=w.count(Section.EXPR)), "must come after", "a"),
    "operand_none": (lambda w: w.expr(E.ADD, a=number(w)), "must come after its operands", "b"),
    "add_bool": (lambda w: w.binary(E.ADD, truth(w), truth(w), BOOL), "the type BOOL", "type"),
    "add_mixed": (lambda w: w.binary(E.ADD, number(w), real(w)), "operand of type I64", "b"),
    "add_third": (lambda w: w.expr(E.ADD, a=number(w), b=number(w), c=0), "does not use", "c"),
    "add_arg": (lambda w: w.expr(E.ADD, a=number(w), b=number(w), arg=1), "bad arg", "arg"),
    "mod_real": (lambda w: w.binary(E.MOD, real(w), real(w), F64), "the type F64", "type"),
    "div_int": (lambda w: w.binary(E.DIV, number(w), number(w)), "the type I64", "type"),
    "lt_result": (lambda w: w.binary(E.LT, number(w), number(w)), "the type I64", "type"),
    "lt_bool": (lambda w: w.binary(E.LT, truth(w), truth(w), BOOL), "does not order", "a"),
    "eq_mixed": (lambda w: w.binary(E.EQ, number(w), real(w), BOOL), "of type I64", "b"),
    "and_int": (lambda w: w.binary(E.AND, number(w), number(w), BOOL), "of type BOOL", "a"),
    "not_int": (lambda w: w.expr(E.NOT, type=BOOL, a=number(w)), "of type BOOL", "a"),
    "neg_two": (lambda w: w.expr(E.NEG, a=number(w), b=number(w)), "does not use", "b"),
    "select_cond": (
        lambda w: w.expr(E.SELECT, a=number(w), b=number(w), c=number(w)),
        "operand of type BOOL",
        "a",
    ),
    "select_arms": (
        lambda w: w.expr(E.SELECT, a=truth(w), b=number(w), c=real(w)),
        "operand of type I64",
        "c",
    ),
    "reduce_op": (lambda w: w.expr(E.REDUCE, arg=5), "REDUCE has a bad arg", "arg"),
    "reduce_level": (lambda w: w.expr(E.REDUCE, arg=4 << 8), "REDUCE has a bad arg", "arg"),
    "reduce_type": (lambda w: w.expr(E.REDUCE, arg=ReduceOp.ANY), "the type I64", "type"),
    "reduce_body": (
        lambda w: w.expr(E.REDUCE, a=w.const(0), b=number(w), c=real(w)),
        "operand of type I64",
        "c",
    ),
    "search_arg": (lambda w: w.expr(E.SEARCH, arg=1), "SEARCH has a bad arg", "arg"),
    "search_body": (
        lambda w: w.expr(E.SEARCH, a=w.const(0), b=number(w), c=number(w)),
        "operand of type BOOL",
        "c",
    ),
    "task_site": (lambda w: w.expr(E.TASK_SITE), "TASK_SITE is for schedules only", "op"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_node(name: str) -> None:
    make, message, field = BAD[name]
    w = writer()
    node = make(w)
    refuses(w, message, Section.EXPR, node, field)


# --- schedules ---


def test_schedule_keys_know_no_loop_variables_lets_or_slots() -> None:
    for op, type in ((E.LOOPVAR, I64), (E.LETVAR, I64), (E.SLOT, F64)):
        w = writer()
        w.schedule_expr(op, type=type, a=NONE if op is E.LOOPVAR else 0)
        refuses(w, f"{op.name} has no meaning in a schedule", Section.SCHEDULE_EXPR, 0)


def test_schedule_keys_do_not_read_what_tasks_write() -> None:
    w = writer()
    written = w.symbol("w", SymbolKind.ARRAY, dtype=DType.I32, rank=1, flags=1)
    zero = w.schedule_const(0).node
    node = w.schedule_expr(E.LOAD, a=written, b=zero).node
    refuses(w, "may not read what tasks write", Section.SCHEDULE_EXPR, node, "a")


def test_task_axis_names_a_string() -> None:
    w = writer()
    w.schedule_expr(E.TASK_AXIS, a=w.schedule_string("rows") + 1)
    refuses(w, "TASK_AXIS is not the offset of a string", Section.SCHEDULE_EXPR, 0, "a")


# --- size ---


def test_height_has_a_limit() -> None:
    w = writer()
    node = number(w)
    for _ in range(MAX_EXPR_DEPTH - 1):
        node = w.expr(E.NEG, a=node)
    w.build()
    node = w.expr(E.NEG, a=node)
    refuses(w, f"is part of a tree higher than {MAX_EXPR_DEPTH}", Section.EXPR, node)


def test_shared_nodes_do_not_hide_a_huge_tree() -> None:
    """Forty nodes that stand for 2^40: an evaluator without a memory would never return."""
    w = writer()
    node, size = number(w), 1
    while 2 * size + 1 <= MAX_EXPR_TREE:
        node, size = w.binary(E.ADD, node, node), 2 * size + 1
    w.build()
    node = w.binary(E.ADD, node, node)
    refuses(w, f"stands for a tree of more than {MAX_EXPR_TREE} nodes", Section.EXPR, node)
    for _ in range(24):
        w.binary(E.ADD, w.count(Section.EXPR) - 1, w.count(Section.EXPR) - 1)
    refuses(w, f"stands for a tree of more than {MAX_EXPR_TREE} nodes", Section.EXPR, node)


# --- bound variables ---


def fold(w: Writer, level: int, body: int, low: int | None = None) -> int:
    start = w.const(0) if low is None else low
    return w.expr(E.REDUCE, arg=level << 8, a=start, b=number(w), c=body)


def used(w: Writer, node: int) -> Writer:
    """Use an expression in a place without loops."""
    w.kernel("k", [], cost=node)
    return w


def test_nested_reductions() -> None:
    w = writer()
    innermost = w.binary(E.ADD, w.bound_var(0), w.bound_var(3))
    node = innermost
    for level in (3, 2, 1, 0):
        node = fold(w, level, node)
    plan = used(w, w.binary(E.ADD, node, fold(w, 0, w.bound_var(0)))).build()
    assert "sum(x0 in 0..n: sum(x1 in 0..n: sum(x2 in 0..n: sum(x3 in 0..n: x0 + x3))))" in (
        plan.disassemble()
    )


def test_bound_variables_do_not_escape() -> None:
    w = writer()
    node = fold(w, 0, w.bound_var(1))
    message = "Kernel.cost reads a bound variable outside the REDUCE or SEARCH that binds it"
    refuses(used(w, node), message, Section.KERNEL, 0, "cost")


def test_bound_variable_is_not_bound_in_its_own_limits() -> None:
    w = writer()
    node = fold(w, 0, w.const(1), low=w.bound_var(0))
    refuses(used(w, node), "reads a bound variable outside", Section.KERNEL, 0, "cost")


def test_levels_of_reductions_count_their_nesting() -> None:
    w = writer()
    refuses(used(w, fold(w, 1, w.bound_var(1))), "does not bind level 0", Section.KERNEL, 0, "cost")
    for inner in (0, 2):
        w = writer()
        node = fold(w, 0, fold(w, inner, w.const(1)))
        refuses(w, "must bind the next level", Section.EXPR, node, "c")
    w = writer()
    node = w.binary(E.ADD, fold(w, 0, w.const(1)), fold(w, 1, w.const(1)))
    refuses(w, "bind different levels at the same depth", Section.EXPR, node, "b")


# --- lets ---


def test_let_numbers() -> None:
    w = Writer()
    with w.entry():
        w.item(Op.LET, MAX_LETS, w.const(1))
    refuses(w, f"LET numbers end at {MAX_LETS - 1}", Section.CODE, 0)
    w = Writer()
    with w.entry():
        w.item(Op.LET, 0, w.const(1))
        w.item(Op.LET, 0, w.const(2))
    refuses(w, "this let is set by another LET too", Section.CODE, 1)
    w = Writer()
    with w.entry():
        w.item(Op.LET, 0, 7)
    refuses(w, "LET names an expression that EXPR does not have", Section.CODE, 0)


def test_let_type() -> None:
    w = Writer()
    node = w.expr(E.LETVAR, type=BOOL, a=0)
    with w.entry():
        w.item(Op.LET, 0, w.const(1))
    refuses(w, "LETVAR cannot have the type BOOL", Section.EXPR, node, "type")


def test_let_is_visible_in_its_block_only() -> None:
    w = Writer()
    value = w.expr(E.LETVAR, a=0)
    with w.entry():
        with w.block(Op.COMBINE):
            w.item(Op.LET, 0, w.const(1))
            w.item(Op.LET, 1, value)
        pc = w.item(Op.LET, 2, value)
    refuses(w, "LET reads a let that has no value there", Section.CODE, pc)


def test_let_does_not_read_itself() -> None:
    w = Writer()
    value = w.expr(E.LETVAR, a=0)
    with w.entry():
        w.item(Op.LET, 0, value)
    refuses(w, "LET reads a let that has no value there", Section.CODE, 0)


def test_ragged_through_a_let() -> None:
    """The feature bit sees through lets; C++ and Python agree on it."""
    w = Writer()
    n = w.symbol_value(w.symbol("n", SymbolKind.EXTENT))
    with w.entry(), w.loop(Op.PARALLEL_FOR, "i", n) as i:
        w.item(Op.LET, 0, i)
        w.item(Op.LET, 1, w.expr(E.NEG, a=w.expr(E.LETVAR, a=0)))
        with w.loop(Op.PARALLEL_FOR, "j", w.expr(E.LETVAR, a=1), AxisKind.EXPR):
            w.item(Op.NOP)
    assert {f.name for f in w.build().features} == {"RAGGED", "SLOT"}


def test_dead_nodes_may_read_anything() -> None:
    """A node that nothing uses may have free variables: it is a part of others."""
    w = writer()
    w.bound_var(3)
    w.loop_var(15)
    w.build()


def test_unknown_operation() -> None:
    w = writer()
    node = number(w)
    draft = Draft(w.encode()).set(Section.EXPR, node, op=99)
    offset, message = fault_of(draft.seal())
    assert message == "Expr.op is 99, not a value of ExprOp"
    assert offset == draft.offset(Section.EXPR, node, "op")
    assert Expr(op=E.NEG).a == NONE
