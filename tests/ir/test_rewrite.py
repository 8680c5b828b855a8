"""Walking and rebuilding."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from pto_wsp import ir
from pto_wsp.ir import Binary, BinaryOp, Const, LoopVar, SymbolRef
from tests.ir.interpreter import Values, tasks
from tests.ir.samples import SAMPLES, add, at, dense, dyn, mul, ragged
from tests.ir.strategies import Case, any_exprs, cases

I, J, N = LoopVar("i"), LoopVar("j"), SymbolRef("n")  # noqa: E741


def call(*indices: ir.Expr) -> ir.Call:
    return ir.Call("f", indices, ())


def test_walk_expr_visits_from_the_root_in_order() -> None:
    expr = add(ir.ArrayLoad("a", I), mul(J, 2))
    assert list(ir.walk_expr(expr)) == [expr, expr.lhs, I, expr.rhs, J, Const(2)]


def test_walk_expr_needs_no_stack() -> None:
    expr: ir.Expr = I
    for _ in range(5000):
        expr = add(expr, 1)
    assert sum(1 for _ in ir.walk_expr(expr)) == 10001
    assert ir.loop_vars(expr) == {"i"}


def test_map_expr_sees_changed_operands() -> None:
    seen: list[ir.Expr] = []

    def bump(node: ir.Expr) -> ir.Expr:
        seen.append(node)
        return Const(node.value + 1) if isinstance(node, Const) else node

    assert ir.map_expr(add(I, 1), bump) == add(I, 2)
    assert seen == [I, Const(1), add(I, 2)]


@given(any_exprs)
def test_map_expr_with_nothing_to_do(expr: ir.Expr) -> None:
    assert ir.map_expr(expr, lambda e: e) == expr


def test_walk_is_in_program_order() -> None:
    stmts = [type(s).__name__ for s in ir.walk(SAMPLES["blocks"]().body)]
    calls = ["Call", "Call", "Loop", "Call", "Combine", "Call", "Call", "Call"]
    assert stmts == ["Sequential", *calls, "Call"]


def test_exprs_of_statements() -> None:
    loop = dyn("i", "n", call(I))
    assert list(ir.exprs(loop)) == [Const(0), N]
    region = ir.Region("X", (at(I), ir.DimSlice(J, N, Const(2))))
    assert list(ir.exprs(ir.Call("f", (J,), (region,)))) == [
        J,
        I,
        Const(1),
        Const(1),
        J,
        N,
        Const(2),
    ]
    assert list(ir.exprs(ir.Combine(((loop,),)))) == []


@given(cases())
def test_maps_with_nothing_to_do(case: Case) -> None:
    body = case.module.body
    assert repr(ir.map_stmts(body, lambda s: s)) == repr(body)
    assert repr(ir.map_exprs(body, lambda e: e)) == repr(body)
    assert repr(ir.rename(body, {})) == repr(body)
    assert ir.free_vars(body) == frozenset()


def test_map_stmts_goes_from_the_inside_out() -> None:
    seen: list[str] = []

    def note(stmt: ir.Stmt) -> ir.Stmt:
        seen.append(stmt.var if isinstance(stmt, ir.Loop) else "call")
        return stmt

    ir.map_stmts((dense("i", 2, dense("j", 2, call())), call()), note)
    assert seen == ["call", "j", "i", "call"]


def test_map_exprs_reaches_every_expression() -> None:
    module = SAMPLES["array_extents"]()

    def rename_n(expr: ir.Expr) -> ir.Expr:
        return ir.map_expr(expr, lambda e: SymbolRef("m") if e == N else e)

    text = ir.to_text(replace(module, body=ir.map_exprs(module.body, rename_n)))
    assert "dense_dyn 0:+m" in text


def test_free_vars() -> None:
    body = (dense("i", 4, call(I, J)), ragged("k", "lens", "p"), call(LoopVar("z")))
    assert ir.free_vars(body) == {"j", "p", "z"}
    assert ir.free_vars((call(I), dense("i", 4, call(I)))) == {"i"}


def test_substitute_expr_replaces_all_at_once() -> None:
    assert ir.substitute_expr(add(I, J), {"i": J, "j": I}) == add(J, I)


def test_substitute_leaves_bound_variables_alone() -> None:
    body = (call(I), dense("i", 4, call(I, J)))
    expected = (call(N), dense("i", 4, call(I, Const(3))))
    assert ir.substitute(body, {"i": N, "j": Const(3)}) == expected


def test_substitute_reaches_extents_and_parents() -> None:
    body = (ragged("k", "lens", "i", call(LoopVar("k"))),)
    assert ir.substitute(body, {"i": J}) == (ragged("k", "lens", "j", call(LoopVar("k"))),)
    with pytest.raises(ValueError, match="needs a loop variable for i"):
        ir.substitute(body, {"i": add(J, 1)})


def test_substitute_refuses_capture() -> None:
    with pytest.raises(ValueError, match="loop variable i would capture a part of j's value"):
        ir.substitute((dense("i", 4, call(J)),), {"j": add(I, 1)})
    unread = (dense("i", 4, call()),)
    assert ir.substitute(unread, {"j": I}) == unread


def test_rename() -> None:
    body = (dyn("i", "n", ragged("j", "lens", "i", call(add(I, J)))),)
    swapped = ir.rename(body, {"i": "j", "j": "i"})
    assert ir.to_text(ir.Module("m", (), (), (), swapped)) == (
        "module m\n\nbody {\n"
        "  parallel j in n: dense_dyn 0:+n {\n"
        "    parallel i in j: ragged(lens, j) 0:+lens[j] {\n"
        "      f[j + i]()\n"
        "    }\n  }\n}\n"
    )


@given(cases())
def test_renaming_keeps_the_tasks(case: Case) -> None:
    body = case.module.body
    names = {s.var: f"new {s.var}" for s in ir.walk(body) if isinstance(s, ir.Loop)}
    renamed = ir.rename(body, names)
    assert {s.var for s in ir.walk(renamed) if isinstance(s, ir.Loop)} == set(names.values())
    assert list(tasks(renamed, case.bindings)) == list(tasks(body, case.bindings))


@given(cases())
def test_substitution_keeps_the_tasks(case: Case) -> None:
    """The body of a loop with a number for the variable makes the tasks of that iteration."""
    for stmt in case.module.body:
        if not isinstance(stmt, ir.Loop) or any(
            isinstance(s, ir.Loop) and s.parent == stmt.var for s in ir.walk(stmt.body)
        ):
            continue
        fixed = ir.substitute(stmt.body, {stmt.var: Const(1)})
        assert stmt.var not in ir.free_vars(fixed)
        slots = {s.slot: 2 for s in ir.walk(case.module.body) if isinstance(s, ir.SlotSet)}
        inside = Values({stmt.var: 1}, slots=dict(slots))
        expected = [
            replace(task, loop_indices=task.loop_indices[1:])
            for task in tasks(stmt.body, case.bindings, inside)
        ]
        assert list(tasks(fixed, case.bindings, Values(slots=slots))) == expected


def test_operands() -> None:
    assert ir.operands(Binary(BinaryOp.MIN, I, J)) == (I, J)
    assert ir.operands(ir.ArrayLoad("a", I)) == (I,)
    assert ir.operands(ir.ShapeOf("X", 0)) == ()
