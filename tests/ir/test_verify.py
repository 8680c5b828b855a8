"""Every rule of the verifier: a legal module changed in one place, the message and the position."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from pto_wsp import ir
from pto_wsp.dtypes import DType
from pto_wsp.errors import CompileError, TypeCheckError
from pto_wsp.ir import (
    ArrayLoad,
    AxisKind,
    Binary,
    BinaryOp,
    Const,
    Location,
    LoopVar,
    MemLayout,
    Mode,
    Order,
    ShapeOf,
    SymbolRef,
    TensorKind,
    TensorLayout,
    TensorReplicate,
    TensorShard,
    ViewKind,
)
from tests.ir.samples import SAMPLES, add, array, at, extent, loc, part
from tests.ir.strategies import Case, cases
from tests.ir.test_verify_network import CHANGES, changed

HERE = loc(42, 3, 9)
PARAM = ir.ParamDecl("x", Mode.INOUT, DType.F32, 0)
KERNEL = ir.KernelDecl("f", (PARAM,), ir.BodyForm.PYTHON, "mod.f", (), HERE)
CALL = ir.Call("f", (LoopVar("i"),), (ir.Region("X", (at(LoopVar("i")),)),), HERE)
LOOP = ir.Loop(
    "i", "rows", AxisKind.DENSE_DYN, Order.PARALLEL, Const(0), SymbolRef("n"), (CALL,), loc=HERE
)
BASE = ir.Module(
    "base",
    (extent("n", 4), array("lens")),
    (ir.TensorDecl("X", DType.F32, 1), ir.TensorDecl("Y", DType.F64, 2)),
    (KERNEL,),
    (LOOP,),
)


ALWAYS = Binary(BinaryOp.EQ, Const(0), Const(0))
SET = ir.SlotSet("s", Const(1), HERE)


def declare(*decls: ir.SymbolDecl | ir.TensorDecl | ir.KernelDecl) -> ir.Module:
    """The base module with more declarations."""
    return replace(
        BASE,
        symbols=(*BASE.symbols, *(d for d in decls if isinstance(d, ir.SymbolDecl))),
        tensors=(*BASE.tensors, *(d for d in decls if isinstance(d, ir.TensorDecl))),
        kernels=(*BASE.kernels, *(d for d in decls if isinstance(d, ir.KernelDecl))),
    )


def symbol(**changes: Any) -> ir.Module:
    return declare(replace(extent("s"), loc=HERE, **changes))


def kernel(**changes: Any) -> ir.Module:
    return declare(replace(KERNEL, **{"name": "g", **changes}))


def loop(**changes: Any) -> ir.Module:
    return replace(BASE, body=(replace(LOOP, **changes),))


def inner(**changes: Any) -> ir.Module:
    """A second loop below the first."""
    below = replace(LOOP, **{"var": "j", "body": (), **changes})
    return replace(BASE, body=(replace(LOOP, body=(below,), loc=None),))


def call(**changes: Any) -> ir.Module:
    return loop(body=(replace(CALL, **changes),), loc=None)


def index(expr: ir.Expr) -> ir.Module:
    return call(indices=(expr,))


def region(*dims: ir.DimSlice, tensor: str = "X") -> ir.Module:
    return call(args=(ir.Region(tensor, dims),))


def directive(name: str, *args: int | str | None) -> ir.Module:
    return replace(BASE, schedule=(ir.Directive(name, args, HERE),))


def body(*stmts: ir.Stmt) -> ir.Module:
    return replace(BASE, body=stmts)


def nest(depth: int) -> ir.Module:
    stmts: ir.Body = ()
    for level in range(depth):
        stmts = (replace(LOOP, var=f"v{level}", body=stmts, loc=HERE),)
    return body(*stmts)


def blocks(depth: int) -> ir.Module:
    stmt: ir.Stmt = replace(CALL, indices=(), args=(ir.Region("X", (at(0),)),))
    for _ in range(depth):
        stmt = ir.Combine(((stmt,),), HERE)
    return body(stmt)


def pairs(depth: int) -> ir.Module:
    """Branches of two statements, which need a block of their own in the plan."""
    stmt: ir.Stmt = LOOP
    for _ in range(depth):
        stmt = ir.Combine(((stmt, LOOP),), HERE)
    return body(stmt)


def chain(depth: int) -> ir.Expr:
    """An expression `depth` nodes high."""
    expr: ir.Expr = SymbolRef("n")
    for _ in range(depth - 1):
        expr = add(expr, 1)
    return expr


def doubled(times: int) -> ir.Expr:
    expr: ir.Expr = SymbolRef("n")
    for _ in range(times):
        expr = add(expr, expr)
    return expr


def ragged(**changes: Any) -> ir.Module:
    same = {"kind": AxisKind.RAGGED, "lengths": "lens", "parent": "i"}
    length = ArrayLoad("lens", LoopVar("i"))
    return inner(**{**same, "extent": length, **changes})


def many_params(count: int) -> ir.Module:
    params = tuple(replace(PARAM, name=f"p{i}") for i in range(count))
    return kernel(params=params)


def many_words(count: int) -> ir.Module:
    return call(indices=(LoopVar("i"),) * (count - 1))


PAGES = ir.Pages("Y", "table")
TABLE = ir.TensorDecl("table", DType.I32, 2)


def tensor(**changes: Any) -> ir.Module:
    return declare(replace(ir.TensorDecl("T", DType.F32, 1, HERE), **changes))


TEMP = tensor(kind=TensorKind.TEMP)


def token(*shape: ir.Expr) -> ir.Module:
    return tensor(kind=TensorKind.TOKEN, dtype=DType.BOOL, shape=shape)


def paged(**changes: Any) -> ir.Module:
    decl = ir.TensorDecl("T", DType.F64, 2, HERE, TensorKind.PAGED, (), PAGES)
    return declare(replace(decl, **changes), TABLE)


def alloc(name: str, *shape: ir.Expr, times: int = 1) -> ir.Module:
    return replace(TEMP, body=(ir.Alloc(name, shape, HERE),) * times)


def with_call(module: ir.Module, **changes: Any) -> ir.Module:
    """The module with a loop around a call that is given element 0 of T."""
    args = (ir.Region("T", (at(0),)),)
    changed = replace(CALL, **{"args": args, **changes})
    return replace(module, body=(replace(LOOP, body=(changed,), loc=None),))


def with_view(view: ViewKind, name: str, *dims: ir.DimSlice) -> ir.Module:
    """A call of a kernel that sees a region of the paged T, or of X, in that way."""
    seen = sum(not dim.dropped for dim in dims)
    dtype = DType.F64 if name == "T" else DType.F32
    param = replace(PARAM, view=view, dtype=dtype, rank=seen)
    module = paged()
    kernels = (replace(KERNEL, params=(param,)),)
    return with_call(replace(module, kernels=kernels), args=(ir.Region(name, dims),))


R, S = TensorReplicate(), TensorShard


def tile_in(location: Location | None) -> ir.Module:
    """A call of a kernel whose parameter is a tile that lies somewhere."""
    param = replace(PARAM, rank=1, shape=(4,), location=location)
    kernels = (replace(KERNEL, params=(param,)),)
    return replace(region(part(0, 4)), kernels=kernels)


def joined(*layouts: TensorLayout | None, given: TensorLayout | None = None) -> ir.Module:
    """A call on whole tensors A, B, ... of these layouts; the last one is given another."""
    decls = tuple(
        ir.TensorDecl(name, DType.F32, 1 if layout is None else layout.rank, HERE, layout=layout)
        for name, layout in zip("ABC", layouts, strict=False)
    )
    regions = [ir.Region(d.name, tuple(part(0, 4) for _ in range(d.rank))) for d in decls]
    regions[-1] = replace(regions[-1], layout=given)
    params = tuple(replace(PARAM, name=d.name.lower(), rank=d.rank) for d in decls)
    kernels = (replace(KERNEL, params=params),)
    return ir.Module("base", (), decls, kernels, (ir.Call("f", (), tuple(regions), HERE),))


def writes_table() -> ir.Module:
    kernels = (replace(KERNEL, params=(replace(PARAM, dtype=DType.I32),)),)
    module = replace(paged(), kernels=kernels)
    return with_call(module, args=(ir.Region("table", (at(0), at(0))),))


LEGAL: dict[str, ir.Module] = {
    "base": BASE,
    "no tasks": replace(BASE, body=()),
    "empty loop": loop(body=()),
    "16 loops": nest(16),
    "48 blocks": blocks(48),
    "47 blocks and loops": pairs(23),
    "height 64": index(chain(64)),
    "4095 nodes": index(doubled(11)),
    "64 parameters": many_params(64),
    "160 words": many_words(160),
    "rank 8": declare(ir.TensorDecl("T", DType.F32, 8)),
    "long name": declare(ir.TensorDecl("T" * 1024, DType.F32, 1)),
    "ragged": ragged(),
    "largest constants": index(add(Const(-(2**63)), 2**63 - 1)),
    "constant start": region(at(0)),
    "loop variable named like a symbol": loop(var="n", body=()),
    "one name in two branches": replace(BASE, body=(LOOP, LOOP)),
    "empty C++ body": kernel(form=ir.BodyForm.CPP, source=""),
    "directive": directive("WINDOW", 8192, "tasks", None),
    "temporary": alloc("T", SymbolRef("n")),
    "token": token(SymbolRef("n")),
    "paged": paged(),
    "part of a page": with_view(ViewKind.STRIDED, "T", at(0), part(0, 4, 2)),
}


@pytest.mark.parametrize("module", LEGAL.values(), ids=LEGAL)
def test_legal(module: ir.Module) -> None:
    ir.verify(module)


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_are_legal(name: str) -> None:
    ir.verify(SAMPLES[name]())


@given(cases())
def test_random_modules_are_legal(case: Case) -> None:
    ir.verify(case.module)


ILLEGAL: list[tuple[str, ir.Module]] = [
    # names
    ("an empty symbol name", symbol(name="")),
    (
        "tensor name '\\ud800' is not valid text",
        declare(ir.TensorDecl("\ud800", DType.F32, 1, HERE)),
    ),
    ("a kernel name of 1025 bytes", kernel(name="k" * 1025)),
    ("name 'n' is declared twice", symbol(name="n")),
    ("name 'lens' is declared twice", declare(ir.TensorDecl("lens", DType.F32, 1, HERE))),
    ("name 'X' is declared twice", declare(ir.TensorDecl("X", DType.F32, 1, HERE))),
    ("kernel 'f' is declared twice", kernel(name="f")),
    # symbols
    ("symbol 's' is of kind tensor", symbol(kind=ir.SymbolKind.TENSOR)),
    ("extent 's' is i32", symbol(dtype=DType.I32)),
    ("array 's' is f32", symbol(kind=ir.SymbolKind.ARRAY, dtype=DType.F32)),
    ("array 's' is bool", symbol(kind=ir.SymbolKind.ARRAY, dtype=DType.BOOL)),
    ("array 's' has a default", symbol(kind=ir.SymbolKind.ARRAY, default=1)),
    ("the default of extent 's' is -1", symbol(default=-1)),
    ("the default of extent 's' is 9223372036854775808", symbol(default=2**63)),
    # tensors and kernels
    ("tensor 'T' has rank 9", declare(ir.TensorDecl("T", DType.F32, 9, HERE))),
    ("tensor 'T' has rank -1", declare(ir.TensorDecl("T", DType.F32, -1, HERE))),
    ("parameter 'x' of kernel 'g' has rank 9", kernel(params=(replace(PARAM, rank=9),))),
    ("parameter 'x' of kernel 'g' is declared twice", kernel(params=(PARAM, PARAM))),
    ("an empty parameter name", kernel(params=(replace(PARAM, name=""),))),
    ("kernel 'g' has 65 tensor parameters", many_params(65)),
    (
        "kernel 'g' has 33 scalar parameters",
        kernel(params=tuple(ir.ScalarDecl(f"s{k}", DType.I64) for k in range(33))),
    ),
    (
        "parameter 'x' of kernel 'g' has a shape of another rank",
        kernel(params=(replace(PARAM, shape=(4,)),)),
    ),
    (
        "constexpr 'c' of kernel 'g' is not f64",
        kernel(params=(ir.ConstexprDecl("c", DType.F64, 1),)),
    ),
    # control
    ("a condition without a body", body(ir.Cond(ALWAYS, (), (), HERE))),
    ("the condition 1 is not boolean", body(ir.Cond(Const(1), (SET,), (), HERE))),
    ("the condition i is not boolean", body(ir.While("i", "i", LoopVar("i"), Const(1), (), HERE))),
    (
        "the limit of 'i' is no integer",
        body(ir.While("i", "i", ALWAYS, ir.FloatConst(0), (), HERE)),
    ),
    ("slot 's' gets a value that is no integer", body(ir.SlotSet("s", ALWAYS, HERE))),
    ("an empty slot name", body(ir.SlotSet("", Const(1), HERE))),
    (
        "slot 's' is loaded from a region of several elements",
        body(ir.SlotLoad("s", ir.Region("X", (part(0, 2),)), HERE)),
    ),
    (
        "slot 's' is loaded from 'X', which is f32",
        body(ir.SlotLoad("s", ir.Region("X", (at(0),)), HERE)),
    ),
    ("slot 's' has no value here", body(replace(SET, value=ir.SlotRef("s")))),
    ("the column of 'i', which is no sparse loop around here", index(ir.Column("i"))),
    ("variable 0 of no reduction or search around it", index(ir.BoundVar(0))),
    (
        "a reduction or search of level 1 inside 0",
        index(ir.Search(1, Const(0), Const(1), ALWAYS)),
    ),
    (
        "0 == 0 is boolean where integer is wanted",
        index(Binary(BinaryOp.ADD, ALWAYS, Const(1))),
    ),
    ("tiled axis 'rows' has no tile size", loop(kind=AxisKind.TILED)),
    ("dense_dyn axis 'rows' has a tile size", loop(tile=Const(1))),
    ("dense_dyn axis 'rows' has column indices", loop(indices="lens")),
    ("sparse axis 'rows' lacks indptr, indices or the row", loop(kind=AxisKind.SPARSE)),
    ("array 's' has rank 3", symbol(kind=ir.SymbolKind.ARRAY, rank=3)),
    (
        "scalar 's' is f32, its default is not",
        symbol(kind=ir.SymbolKind.SCALAR, dtype=DType.F32, default=1),
    ),
    ("Python kernel 'g' has C++ includes", kernel(includes=("<cmath>",))),
    ("Python kernel 'g' does not name its function", kernel(source="")),
    (
        "Tile kernel 'g' has C++ includes",
        kernel(form=ir.BodyForm.TILE_IR, includes=("<cmath>",)),
    ),
    ("Tile kernel 'g' has no operations", kernel(form=ir.BodyForm.TILE_IR, source="")),
    ("kernel source '\\udc80' is not valid text", kernel(source="\udc80")),
    ("a kernel source of 1048577 bytes", kernel(form=ir.BodyForm.CPP, source="x" * (2**20 + 1))),
    # directives
    ("an empty directive name", directive("")),
    ("argument 9223372036854775808 of WINDOW does not fit 64 bits", directive("WINDOW", 2**63)),
    ("a directive argument of 65536 bytes", directive("TRACE", "x" * 65536)),
    # expressions
    ("loop variable 'k' is used outside its loop", index(LoopVar("k"))),
    ("loop variable 'i' is used outside its loop", loop(extent=LoopVar("i"), kind=AxisKind.EXPR)),
    ("extent 'm' is not declared", index(SymbolRef("m"))),
    ("extent 'm' is not declared", loop(extent=SymbolRef("m"))),
    ("extent 'm' is not declared", loop(start=SymbolRef("m"))),
    ("extent 'm' is not declared", region(at(SymbolRef("m")))),
    ("'lens' is used as an extent and declared as array", index(SymbolRef("lens"))),
    ("array 'm' is not declared", index(ArrayLoad("m", Const(0)))),
    ("'n' is used as an array and declared as extent", index(ArrayLoad("n", Const(0)))),
    ("extent 'm' is not declared", index(ArrayLoad("lens", SymbolRef("m")))),
    ("tensor 'Z' is not declared", index(ShapeOf("Z", 0))),
    ("dimension 1 of tensor 'X', which has rank 1", index(ShapeOf("X", 1))),
    ("dimension -1 of tensor 'X'", index(ShapeOf("X", -1))),
    ("constant 9223372036854775808 does not fit 64 bits", index(Const(2**63))),
    ("constant -9223372036854775809 does not fit", index(add(LoopVar("i"), -(2**63) - 1))),
    ("division by zero in i // 0", index(Binary(BinaryOp.FLOORDIV, LoopVar("i"), Const(0)))),
    ("division by zero in i % 0", index(Binary(BinaryOp.MOD, LoopVar("i"), Const(0)))),
    ("an expression is too large", index(chain(65))),
    ("an expression is too large", index(chain(5000))),
    ("an expression is too large", index(doubled(12))),
    ("an expression is too large", index(doubled(60))),
    # loops
    ("axis 'rows' is inside 16 other loops", nest(17)),
    ("an empty loop variable", loop(var="", body=())),
    ("an empty axis name", loop(axis="")),
    ("loop variable 'i' is bound twice", inner(var="i")),
    ("axis 'rows' has extent -1", loop(kind=AxisKind.DENSE, extent=Const(-1))),
    ("dense axis 'rows' has extent n", loop(kind=AxisKind.DENSE)),
    ("dense_dyn axis 'rows' has extent n + i", inner(extent=add(SymbolRef("n"), LoopVar("i")))),
    ("dense_dyn axis 'rows' has lengths or a parent", loop(lengths="lens")),
    ("expr axis 'rows' has lengths or a parent", inner(kind=AxisKind.EXPR, parent="i")),
    ("ragged axis 'rows' has no lengths", ragged(lengths=None)),
    ("ragged axis 'rows' has no parent", ragged(parent=None)),
    ("'n' is used as an array and declared as extent", ragged(lengths="n")),
    ("ragged axis 'rows' is indexed by 'k'", ragged(parent="k")),
    ("ragged axis 'rows' is indexed by 'j'", ragged(parent="j")),
    (
        "ragged axis 'rows' has extent lens[i + 1]",
        ragged(extent=ArrayLoad("lens", add(LoopVar("i"), 1))),
    ),
    # blocks
    ("combine of nothing", body(ir.Combine((), HERE))),
    ("sequential of nothing", body(ir.Sequential((), HERE))),
    ("branch 2 of combine is empty", body(ir.Combine(((LOOP,), ()), HERE))),
    ("step 1 of sequential is empty", body(ir.Sequential(((),), HERE))),
    ("more than 48 blocks inside each other", blocks(49)),
    ("more than 48 blocks inside each other", pairs(24)),
    (
        "too many statements in one combine",
        body(ir.Combine(((LOOP,) * 65536,), HERE)),
    ),
    # calls
    ("kernel 'h' is not declared", call(kernel="h")),
    ("kernel 'f' takes 1 arguments and gets 0", call(args=())),
    ("kernel 'f' takes 1 arguments and gets 2", call(args=CALL.args * 2)),
    ("argument 'x' of kernel 'f': tensor 'Z' is not declared", region(at(0), tensor="Z")),
    ("argument 'x' of kernel 'f': 'X' has rank 1, the region has 2", region(at(0), at(0))),
    ("argument 'x' of kernel 'f' wants f32, 'Y' is f64", region(at(0), at(0), tensor="Y")),
    ("argument 'x' of kernel 'f' wants rank 0, the region has rank 1", region(part(0, 4))),
    ("argument 'x' of kernel 'f': dimension 0 has step 0", region(part(0, 4, 0))),
    ("dimension 0 has step -1", region(part(0, 4, -1))),
    ("dimension 0 has extent -1", region(part(0, -1))),
    (
        "dimension 0 is not seen by the kernel and has extent 2",
        region(replace(at(0), extent=Const(2))),
    ),
    ("not seen by the kernel and has extent n", region(replace(at(0), extent=SymbolRef("n")))),
    ("a call of kernel 'f' has 161 indices and arguments", many_words(161)),
    ("descriptor field 'a' is given twice", call(fields=(("a", Const(1)), ("a", Const(2))))),
    ("descriptor field 'a' is no integer", call(fields=(("a", ALWAYS),))),
    # temporaries, tokens, paged tensors
    ("tensor 'T' has a shape of its own", tensor(shape=(Const(1),))),
    ("temp 'T' has fixed extents", tensor(kind=TensorKind.TEMP, fixed=(4,))),
    ("tensor 'T' has 2 fixed extents and rank 1", tensor(fixed=(4, None))),
    ("tensor 'T' has the fixed extent -1", tensor(fixed=(-1,))),
    ("paged 'T' has pages or lacks them", tensor(kind=TensorKind.PAGED)),
    ("temp 'T' has pages or lacks them", tensor(kind=TensorKind.TEMP, pages=PAGES)),
    ("temp 'T' has rank 8", tensor(kind=TensorKind.TEMP, rank=8)),
    ("token 'T' is f32", tensor(kind=TensorKind.TOKEN, shape=(Const(1),))),
    ("token 'T' has 2 extents and rank 1", token(Const(1), Const(2))),
    ("token 'T' has extent ?i", token(LoopVar("i"))),
    ("extent 'm' is not declared", token(SymbolRef("m"))),
    ("token 'T' has an extent that is no integer", token(ALWAYS)),
    ("the shape of token 'T'", with_call(token(Const(1)), indices=(ShapeOf("T", 0),))),
    ("paged 'T' has rank 1", paged(rank=1)),
    ("paged 'T' needs bound tensors as pool and table", paged(pages=ir.Pages("X", "Q"))),
    ("paged 'T' has another dtype or rank than its pool", paged(pages=ir.Pages("X", "table"))),
    ("the table of paged 'T' is not a matrix", paged(pages=ir.Pages("Y", "Y"))),
    ("paged 'T' has 0 tokens a page", paged(pages=ir.Pages("Y", "table", 0))),
    ("'X' is allocated and not declared as a temporary", alloc("X", Const(1))),
    ("temporary 'T' has rank 1, not 2", alloc("T", Const(1), Const(1))),
    ("temporary 'T' has an extent that is no integer", alloc("T", ALWAYS)),
    ("temporary 'T' has the negative extent -1", alloc("T", Const(-1))),
    ("temporary 'T' is allocated twice", alloc("T", Const(1), times=2)),
    ("argument 'x' of kernel 'f': temporary 'T' is used outside its scope", with_call(TEMP)),
    ("argument 'x' of kernel 'f': 'T' is a token", with_call(token(Const(1)))),
    ("argument 'x' of kernel 'f': 'X' is a tensor", with_view(ViewKind.TOKEN, "X", at(0))),
    ("argument 'x' of kernel 'f' is paged, 'X' is a tensor", with_view(ViewKind.PAGED, "X", at(0))),
    (
        "a region of several sequences of 'T'",
        with_view(ViewKind.STRIDED, "T", part(0, 2), at(0)),
    ),
    ("tokens of 'T' are not a range", with_view(ViewKind.PAGED, "T", at(0), part(0, 4, 2))),
    ("tokens of 'T' are not a range", with_view(ViewKind.PAGED, "T", at(0), at(0))),
    ("kernel 'f' writes 'table'", writes_table()),
    (
        "slot 's' is loaded from token 'T'",
        replace(token(Const(1)), body=(ir.SlotLoad("s", ir.Region("T", (at(0),)), HERE),)),
    ),
    # locations and layouts
    ("tensor 'T' lies in UB", tensor(location=Location.UB)),
    (
        "token 'T' lies in L2",
        tensor(kind=TensorKind.TOKEN, dtype=DType.BOOL, shape=(Const(1),), location=Location.L2),
    ),
    ("paged 'T' lies in L2, its pool in Global", paged(location=Location.L2)),
    (
        "parameter 'x' of kernel 'g' has a location",
        kernel(params=(replace(PARAM, location=Location.UB),)),
    ),
    ("argument 'x' of kernel 'f' is a tile in UB, 'X' lies in Global", tile_in(Location.UB)),
    ("tensor 'T' has rank 1 and the layout [R, S(1)]", tensor(layout=TensorLayout((R, S(1))))),
    (
        "token 'T' has the layout [R]",
        tensor(
            kind=TensorKind.TOKEN, dtype=DType.BOOL, shape=(Const(1),), layout=TensorLayout((R,))
        ),
    ),
    ("paged 'T' has the layout [R, R]", paged(layout=TensorLayout((R, R)))),
    (
        "temp 'T' has the layout [R] in col_major",
        tensor(kind=TensorKind.TEMP, layout=TensorLayout((R,), MemLayout.col_major())),
    ),
    (
        "argument 'x' of kernel 'f': 'X' has rank 1 and the layout [R, R]",
        call(args=(ir.Region("X", (at(0),), TensorLayout((R, R))),)),
    ),
    (
        "kernel 'f' gets 'A' as [S(0)] and 'B' as [S(1)], which do not join",
        joined(TensorLayout((S(0),)), TensorLayout((S(1),))),
    ),
]


@pytest.mark.parametrize(("message", "module"), ILLEGAL, ids=[m for m, _ in ILLEGAL])
def test_illegal(message: str, module: ir.Module) -> None:
    with pytest.raises(CompileError) as caught:
        ir.verify(module)
    assert message in caught.value.message
    assert caught.value.loc == HERE


def test_modules_have_no_position() -> None:
    with pytest.raises(CompileError, match="an empty module name") as caught:
        ir.verify(replace(BASE, name=""))
    assert caught.value.loc is None


def test_too_many_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = sys.modules["pto_wsp.ir.verify"]
    assert rules.MAX_AXES == 65536
    monkeypatch.setattr(rules, "MAX_AXES", 100)  # as many as that take seconds to look at
    many = replace(BASE, body=(replace(LOOP, body=()),) * 101)
    with pytest.raises(CompileError, match="101 loops in one module"):
        ir.verify(many)
    ir.verify(replace(many, body=many.body[1:]))


def test_arguments_that_do_not_fit_are_type_errors() -> None:
    for message, module in ILLEGAL:
        if " wants " in message or "takes" in message:
            with pytest.raises(TypeCheckError):
                ir.verify(module)


def test_full_text_of_an_error() -> None:
    with pytest.raises(CompileError) as caught:
        ir.verify(inner(var="i"))
    assert str(caught.value) == (
        "[PTO302] loop variable 'i' is bound twice\n"
        "  --> model.py:42:3\n"
        "  why: an enclosing loop has a variable of that name\n"
        "  fix: rename one of the two"
    )


def test_the_other_declaration_is_named() -> None:
    first, second = (replace(extent("s"), loc=loc(line)) for line in (1, 2))
    with pytest.raises(CompileError) as caught:
        ir.verify(declare(first, second))
    assert caught.value.loc == loc(2)
    assert caught.value.why == "the other declaration is at model.py:1"


ROWS, COLS = MemLayout.row_major(), MemLayout.col_major()
JOINS: list[tuple[ir.Module, str, str]] = [
    (
        joined(TensorLayout((S(0), R)), TensorLayout((R, S(0)))),
        "mesh axis 0 shards dimension 0 of 'A' and dimension 1 of 'B', and may shard only one "
        "dimension",
        "pass relayout(B, TensorLayout((TensorShard(0), TensorReplicate())))",
    ),
    (  # aligned at the last dimension
        joined(TensorLayout((R, S(0))), TensorLayout((S(1),))),
        "dimension 1 of 'A' is S(0), dimension 0 of 'B' is S(1)",
        "pass relayout(B, TensorLayout((TensorShard(0),)))",
    ),
    (  # what does not matter stays as it is
        joined(TensorLayout((S(0),)), TensorLayout((S(2), S(0), R))),
        "mesh axis 0 shards dimension 0 of 'A' and dimension 1 of 'B', and may shard only one "
        "dimension",
        "pass relayout(B, TensorLayout((TensorShard(2), TensorReplicate(), TensorShard(0))))",
    ),
    (  # the relayout fits all that stand before
        joined(TensorLayout((S(0), R)), TensorLayout((R, S(1))), TensorLayout((S(2), R))),
        "dimension 0 of 'A' is S(0), dimension 0 of 'C' is S(2)",
        "pass relayout(C, TensorLayout((TensorShard(0), TensorShard(1))))",
    ),
    (
        joined(TensorLayout((R, R), ROWS), TensorLayout((R, R), COLS)),
        "'A' is row_major in memory, 'B' col_major",
        "pass a copy of 'B' that is row_major; np.ascontiguousarray and np.asfortranarray make one",
    ),
]


@pytest.mark.parametrize(("module", "why", "fix"), JOINS)
def test_layouts_that_do_not_join(module: ir.Module, why: str, fix: str) -> None:
    with pytest.raises(TypeCheckError, match="do not join") as caught:
        ir.verify(module)
    assert caught.value.why == why
    assert caught.value.fix == fix


def test_layouts_that_join() -> None:
    ir.verify(joined(TensorLayout((S(0), R)), None, TensorLayout((R, S(1)), ROWS)))
    ir.verify(joined(TensorLayout((S(0), R), ROWS), TensorLayout((R,))))
    apart = TensorLayout((S(0), R)), TensorLayout((R, S(0)))
    ir.verify(joined(*apart, given=TensorLayout((S(0), R))))
    ir.verify(tile_in(Location.Global))
    ir.verify(tile_in(None))


LABELS: list[tuple[str, ir.Module]] = [
    ("a call waits for 'x', which is no call before it", call(after=(ir.After("x"),))),
    (
        "label 'x' is given twice",
        body(*(replace(LOOP, body=(replace(CALL, label="x"),)) for _ in range(2))),
    ),
    (
        "'x' has fewer loops than 2",
        call(label="x", after=(ir.After("x", (Const(0), Const(0))),)),
    ),
]


@pytest.mark.parametrize(("message", "module"), LABELS, ids=[m for m, _ in LABELS])
def test_labels(message: str, module: ir.Module) -> None:
    with pytest.raises(CompileError) as caught:
        ir.verify(module)
    assert caught.value.message == message


def test_every_rule_has_a_case() -> None:
    """A rule that no illegal module above breaks would be one that no test can miss."""
    module = sys.modules[ir.verify.__module__]
    tables: dict[str, tuple[Callable[..., object], ...]] = {
        name: value for name, value in vars(module).items() if name.endswith("_RULES")
    }
    rules = {rule.__name__ for table in tables.values() for rule in table}
    broken: set[str] = set()
    networks = [changed(old, new) for old, new, message in CHANGES if message is not None]
    for illegal in [*(m for _, m in ILLEGAL), *networks]:
        try:
            ir.verify(illegal)
        except CompileError as error:
            frame = error.__traceback__
            while frame is not None:
                rule = frame.tb_frame.f_locals.get("rule")
                broken |= {rule.__name__} if rule is not None else set()
                frame = frame.tb_next
    assert rules - broken == {"loops_fit_the_plan", "labels_are_known"}  # which have their own


def test_limits_are_those_of_the_format() -> None:
    header = Path(__file__).parents[2] / "core/include/ptowsp/plan.h"
    limits = dict(re.findall(r"kMax(\w+) = (\d+);", header.read_text()))
    module = vars(sys.modules[f"{ir.verify.__module__}_expr"])
    for name, constant in {
        "Loops": "MAX_LOOPS",
        "Blocks": "MAX_BLOCKS",
        "Rank": "MAX_RANK",
        "ExprDepth": "MAX_EXPR_DEPTH",
        "TensorArgs": "MAX_TENSOR_ARGS",
        "ArgWords": "MAX_ARG_WORDS",
        "ScalarArgs": "MAX_SCALAR_ARGS",
        "BoundVars": "MAX_BOUND_VARS",
        "Name": "MAX_NAME_BYTES",
    }.items():
        assert module[constant] == int(limits[name]), constant
