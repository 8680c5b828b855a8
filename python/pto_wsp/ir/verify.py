"""What a legal module is. The tables at the end list every rule, in the order they are tried.

A rule is a small function that yields what is wrong with one node; the first thing found is raised
as a CompileError at the node's source position. Expressions and regions carry no position of their
own: the loop or call around them lends its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar, assert_never

from pto_wsp.dtypes import DType
from pto_wsp.errors import CompileError, TypeCheckError
from pto_wsp.ir.nodes import (
    ArrayLoad,
    AxisKind,
    Binary,
    BinaryOp,
    Body,
    BodyForm,
    Call,
    Combine,
    Const,
    DimSlice,
    Directive,
    Expr,
    KernelDecl,
    Loop,
    LoopVar,
    Module,
    ParamDecl,
    Region,
    Sequential,
    ShapeOf,
    SymbolDecl,
    SymbolKind,
    SymbolRef,
    TensorDecl,
)
from pto_wsp.ir.rewrite import exprs, loop_vars, operands, walk, walk_expr
from pto_wsp.ir.text import ONE, expr_text
from pto_wsp.srcloc import SrcLoc

# Limits of the plan format (plan.h), so that every legal module can be lowered.
MAX_LOOPS = 16
MAX_BLOCKS = 48
MAX_RANK = 8
MAX_EXPR_DEPTH = 64
MAX_EXPR_NODES = 4096  # doubling a value 60 times makes a small plan, yet nothing could print it
MAX_TENSOR_ARGS = 64
MAX_ARG_WORDS = 160
MAX_CHILDREN = 0xFFFF  # of a block: a 16-bit operand counts them
MAX_AXES = 0x10000  # a 16-bit operand names one
MAX_NAME_BYTES = 1024
MAX_STRING_BYTES = 0xFFFF
MAX_SOURCE_BYTES = 1 << 20
I64_MIN, I64_MAX = -(2**63), 2**63 - 1

INTEGERS = frozenset(d for d in DType if d.name[0] in "IU")

Block: TypeAlias = Combine | Sequential
T = TypeVar("T")


def verify(module: Module) -> None:
    """Raises a CompileError for the first rule that the module breaks."""
    scope = _Scope(
        {s.name: s for s in module.symbols},
        {t.name: t for t in module.tensors},
        {k.name: k for k in module.kernels},
    )
    _check(MODULE_RULES, module, scope, None)
    for symbol in module.symbols:
        _check(SYMBOL_RULES, symbol, scope, symbol.loc)
    for tensor in module.tensors:
        _check(TENSOR_RULES, tensor, scope, tensor.loc)
    for kernel in module.kernels:
        _check(KERNEL_RULES, kernel, scope, kernel.loc)
    _check_unique("name", (*module.symbols, *module.tensors))
    _check_unique("kernel", module.kernels)
    for directive in module.schedule:
        _check(DIRECTIVE_RULES, directive, scope, directive.loc)
    _verify_body(module.body, scope)
    _check(WHOLE_BODY_RULES, module.body, scope, None)


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong, why that is not allowed, and what to do about it."""

    message: str
    why: str | None = None
    fix: str | None = None
    error: type[CompileError] = CompileError


Faults: TypeAlias = Iterator[Fault]


@dataclass(frozen=True, slots=True)
class _Scope:
    """What is declared, and the loops and blocks around the current place."""

    symbols: dict[str, SymbolDecl]
    tensors: dict[str, TensorDecl]
    kernels: dict[str, KernelDecl]
    loops: tuple[str, ...] = ()
    blocks: int = 0

    def text(self, expr: Expr) -> str:
        return expr_text(expr, self.loops)


Rule: TypeAlias = Callable[[T, _Scope], Faults]


def _check(rules: Iterable[Rule[T]], node: T, scope: _Scope, loc: SrcLoc | None) -> None:
    for rule in rules:
        for fault in rule(node, scope):
            raise fault.error(fault.message, loc=loc, why=fault.why, fix=fault.fix)


def _check_unique(kind: str, decls: Iterable[SymbolDecl | TensorDecl | KernelDecl]) -> None:
    first: dict[str, SrcLoc | None] = {}
    for decl in decls:
        if decl.name in first:
            there = first[decl.name]
            why = None if there is None else f"the other declaration is at {there}"
            message = f"{kind} '{decl.name}' is declared twice"
            raise CompileError(message, loc=decl.loc, why=why, fix="rename one of the two")
        first[decl.name] = decl.loc


def _verify_body(body: Body, scope: _Scope) -> None:
    for stmt in body:
        for expr in exprs(stmt):
            _check(EXPRESSION_RULES, expr, scope, stmt.loc)
        match stmt:
            case Loop():
                _check(LOOP_RULES, stmt, scope, stmt.loc)
                loops = (*scope.loops, stmt.var)
                _verify_body(stmt.body, replace(scope, loops=loops, blocks=scope.blocks + 1))
            case Combine(parts) | Sequential(parts):
                _check(BLOCK_RULES, stmt, scope, stmt.loc)
                for part in parts:
                    _verify_body(part, replace(scope, blocks=scope.blocks + _blocks_of(part)))
            case Call():
                _check(CALL_RULES, stmt, scope, stmt.loc)
            case _:
                assert_never(stmt)


def _blocks_of(part: Body) -> int:
    """Plan blocks opened for a branch or step: its own, and one more around several statements."""
    return 1 if len(part) == 1 else 2


# --- names, declarations, directives ---


def _text_faults(what: str, text: str, limit: int = MAX_STRING_BYTES) -> Faults:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        yield Fault(f"{what} {text!r} is not valid text", "a plan stores it as UTF-8")
        return
    if size > limit:
        yield Fault(f"a {what} of {size} bytes", f"a plan stores at most {limit}")


def _name_faults(what: str, name: str) -> Faults:
    if not name:
        yield Fault(f"an empty {what}")
    yield from _text_faults(what, name, MAX_NAME_BYTES)


def name_is_legal(decl: Module | SymbolDecl | TensorDecl | KernelDecl, _: _Scope) -> Faults:
    what = type(decl).__name__.removesuffix("Decl").lower()
    yield from _name_faults(f"{what} name", decl.name)


def symbol_is_extent_or_array(symbol: SymbolDecl, _: _Scope) -> Faults:
    if symbol.kind is SymbolKind.TENSOR:
        yield Fault(f"symbol '{symbol.name}' is of kind tensor", fix="declare it as a tensor")


def symbol_dtype_fits(symbol: SymbolDecl, _: _Scope) -> Faults:
    if symbol.kind is SymbolKind.EXTENT and symbol.dtype is not DType.I64:
        yield Fault(f"extent '{symbol.name}' is {symbol.dtype.text}", "extents are i64")
    if symbol.kind is SymbolKind.ARRAY and symbol.dtype not in INTEGERS:
        yield Fault(
            f"array '{symbol.name}' is {symbol.dtype.text}",
            "control reads integers only",
            "bind an integer array, or pass the data to a kernel as a tensor",
        )


def default_is_an_extent(symbol: SymbolDecl, _: _Scope) -> Faults:
    if symbol.default is None:
        return
    if symbol.kind is not SymbolKind.EXTENT:
        yield Fault(f"{symbol.kind.value} '{symbol.name}' has a default", "only extents have one")
    if not 0 <= symbol.default <= I64_MAX:
        why = "an extent counts iterations and fits 64 bits"
        yield Fault(f"the default of extent '{symbol.name}' is {symbol.default}", why)


def _rank_faults(what: str, rank: int) -> Faults:
    if not 0 <= rank <= MAX_RANK:
        yield Fault(f"{what} has rank {rank}", f"a rank is between 0 and {MAX_RANK}")


def tensor_rank_is_legal(tensor: TensorDecl, _: _Scope) -> Faults:
    yield from _rank_faults(f"tensor '{tensor.name}'", tensor.rank)


def params_are_legal(kernel: KernelDecl, _: _Scope) -> Faults:
    seen: set[str] = set()
    for param in kernel.params:
        yield from _name_faults("parameter name", param.name)
        where = f"parameter '{param.name}' of kernel '{kernel.name}'"
        yield from _rank_faults(where, param.rank)
        if param.name in seen:
            yield Fault(f"{where} is declared twice", fix="rename one of the two")
        seen.add(param.name)
    if len(kernel.params) > MAX_TENSOR_ARGS:
        count = len(kernel.params)
        yield Fault(f"kernel '{kernel.name}' has {count} parameters", _at_most(MAX_TENSOR_ARGS))


def kernel_body_fits_its_form(kernel: KernelDecl, _: _Scope) -> Faults:
    for text in (kernel.source, *kernel.includes):
        yield from _text_faults("kernel source", text, MAX_SOURCE_BYTES)
    if kernel.form is BodyForm.CPP:
        return
    if kernel.includes:
        yield Fault(f"Python kernel '{kernel.name}' has C++ includes")
    if not kernel.source:
        yield Fault(f"Python kernel '{kernel.name}' does not name its function")


def directive_is_legal(directive: Directive, _: _Scope) -> Faults:
    yield from _name_faults("directive name", directive.name)
    for arg in directive.args:
        if isinstance(arg, str):
            yield from _text_faults("directive argument", arg)
        elif arg is not None and not I64_MIN <= arg <= I64_MAX:
            yield Fault(f"argument {arg} of {directive.name} does not fit 64 bits")


def _at_most(count: int) -> str:
    return f"a plan holds at most {count}"


# --- expressions ---


def expression_is_not_too_large(expr: Expr, _: _Scope) -> Faults:
    level, depth, nodes = [expr], 1, 1
    while level := [inner for node in level for inner in operands(node)]:
        depth += 1
        nodes += len(level)
        if depth > MAX_EXPR_DEPTH or nodes > MAX_EXPR_NODES:
            size = f"{MAX_EXPR_DEPTH} levels and {MAX_EXPR_NODES} nodes"
            why = f"an expression has at most {size}"
            yield Fault("an expression is too large", why, "compute a part of it before the run")
            return


def names_in_expression_are_known(expr: Expr, scope: _Scope) -> Faults:
    for node in walk_expr(expr):
        match node:
            case LoopVar(name) if name not in scope.loops:
                why = "only variables of enclosing loops have a value here"
                yield Fault(f"loop variable '{name}' is used outside its loop", why)
            case SymbolRef(name):
                yield from _symbol_faults(name, SymbolKind.EXTENT, scope)
            case ArrayLoad(array, _):
                yield from _symbol_faults(array, SymbolKind.ARRAY, scope)
            case ShapeOf(tensor, dim):
                yield from _shape_faults(tensor, dim, scope)
            case LoopVar() | Const() | Binary():
                pass
            case _:
                assert_never(node)


def _symbol_faults(name: str, kind: SymbolKind, scope: _Scope) -> Faults:
    symbol = scope.symbols.get(name)
    if symbol is None:
        yield Fault(f"{kind.value} '{name}' is not declared")
    elif symbol.kind is not kind:
        yield Fault(f"'{name}' is used as an {kind.value} and declared as {symbol.kind.value}")


def _shape_faults(name: str, dim: int, scope: _Scope) -> Faults:
    tensor = scope.tensors.get(name)
    if tensor is None:
        yield Fault(f"tensor '{name}' is not declared")
    elif not 0 <= dim < tensor.rank:
        yield Fault(f"dimension {dim} of tensor '{name}', which has rank {tensor.rank}")


def constants_fit(expr: Expr, scope: _Scope) -> Faults:
    for node in walk_expr(expr):
        match node:
            case Const(value) if not I64_MIN <= value <= I64_MAX:
                yield Fault(f"constant {value} does not fit 64 bits", "all index arithmetic is i64")
            case Binary(BinaryOp.FLOORDIV | BinaryOp.MOD, _, Const(0)):
                yield Fault(f"division by zero in {scope.text(expr)}")
            case _:
                pass


# --- statements ---


def loops_are_not_too_deep(loop: Loop, scope: _Scope) -> Faults:
    if len(scope.loops) == MAX_LOOPS:
        yield Fault(f"axis '{loop.axis}' is inside {MAX_LOOPS} other loops", _at_most(MAX_LOOPS))


def blocks_are_not_too_deep(stmt: Loop | Block, scope: _Scope) -> Faults:
    match stmt:
        case Loop():
            opened = 1
        case Combine(parts) | Sequential(parts):
            opened = max((_blocks_of(p) for p in parts), default=1)
    if scope.blocks + opened > MAX_BLOCKS:
        yield Fault(f"more than {MAX_BLOCKS} blocks inside each other", _at_most(MAX_BLOCKS))


def loop_variable_is_new(loop: Loop, scope: _Scope) -> Faults:
    yield from _name_faults("loop variable", loop.var)
    yield from _name_faults("axis name", loop.axis)
    if loop.var in scope.loops:
        why = "an enclosing loop has a variable of that name"
        yield Fault(f"loop variable '{loop.var}' is bound twice", why, "rename one of the two")


def loop_extent_is_not_negative(loop: Loop, _: _Scope) -> Faults:
    if isinstance(loop.extent, Const) and loop.extent.value < 0:
        message = f"axis '{loop.axis}' has extent {loop.extent.value}"
        yield Fault(message, "it must be at least 0")


def loop_extent_fits_its_kind(loop: Loop, scope: _Scope) -> Faults:
    extent = scope.text(loop.extent)
    match loop.kind:
        case AxisKind.DENSE:
            if not isinstance(loop.extent, Const):
                yield Fault(f"dense axis '{loop.axis}' has extent {extent}", "it must be constant")
        case AxisKind.DENSE_DYN:
            if loop_vars(loop.extent):
                why = "it is bound at execute and cannot depend on a loop variable"
                yield Fault(f"dense_dyn axis '{loop.axis}' has extent {extent}", why)
        case AxisKind.RAGGED:
            yield from _ragged_faults(loop, scope)
        case AxisKind.EXPR:
            pass
        case _:
            assert_never(loop.kind)


def _ragged_faults(loop: Loop, scope: _Scope) -> Faults:
    if loop.lengths is None or loop.parent is None:
        missing = "lengths" if loop.lengths is None else "parent"
        yield Fault(f"ragged axis '{loop.axis}' has no {missing}")
        return
    yield from _symbol_faults(loop.lengths, SymbolKind.ARRAY, scope)
    if loop.parent not in scope.loops:
        why = "that is not the variable of an enclosing loop"
        yield Fault(f"ragged axis '{loop.axis}' is indexed by '{loop.parent}'", why)
    if loop.extent != ArrayLoad(loop.lengths, LoopVar(loop.parent)):
        why = f"its extent must be {loop.lengths}[{loop.parent}]"
        yield Fault(f"ragged axis '{loop.axis}' has extent {scope.text(loop.extent)}", why)


def only_ragged_has_lengths(loop: Loop, _: _Scope) -> Faults:
    if loop.kind is AxisKind.RAGGED:
        return
    if loop.lengths is not None or loop.parent is not None:
        yield Fault(f"{loop.kind.value} axis '{loop.axis}' has lengths or a parent")


def block_has_parts(block: Block, _: _Scope) -> Faults:
    match block:
        case Combine(parts):
            what, part_name = "combine", "branch"
        case Sequential(parts):
            what, part_name = "sequential", "step"
    if not parts:
        yield Fault(f"{what} of nothing", fix="leave it out")
    if len(parts) > MAX_CHILDREN or any(len(p) > MAX_CHILDREN for p in parts):
        yield Fault(f"too many statements in one {what}", _at_most(MAX_CHILDREN))
    for number, part in enumerate(parts, start=1):
        if not part:
            yield Fault(f"{part_name} {number} of {what} is empty", fix="leave it out")


def call_fits_the_kernel(call: Call, scope: _Scope) -> Faults:
    kernel = scope.kernels.get(call.kernel)
    if kernel is None:
        yield Fault(f"kernel '{call.kernel}' is not declared")
        return
    want, found = len(kernel.params), len(call.args)
    if want != found:
        message = f"kernel '{kernel.name}' takes {want} arguments and gets {found}"
        yield Fault(message, error=TypeCheckError)
        return
    for param, region in zip(kernel.params, call.args, strict=True):
        where = f"argument '{param.name}' of kernel '{kernel.name}'"
        yield from _region_faults(where, region, scope)
        yield from _argument_faults(where, param, region, scope)


def _region_faults(where: str, region: Region, scope: _Scope) -> Faults:
    tensor = scope.tensors.get(region.tensor)
    if tensor is None:
        yield Fault(f"{where}: tensor '{region.tensor}' is not declared")
        return
    if len(region.dims) != tensor.rank:
        ranks = f"'{tensor.name}' has rank {tensor.rank}, the region has {len(region.dims)}"
        yield Fault(f"{where}: {ranks}", error=TypeCheckError)
    for number, dim in enumerate(region.dims):
        yield from _dim_faults(f"{where}: dimension {number}", dim, scope)


def _dim_faults(where: str, dim: DimSlice, scope: _Scope) -> Faults:
    parts = (("start", dim.start, 0), ("extent", dim.extent, 0), ("step", dim.step, 1))
    for what, expr, least in parts:
        if isinstance(expr, Const) and expr.value < least:
            yield Fault(f"{where} has {what} {expr.value}", f"it must be at least {least}")
    if dim.dropped and dim.extent != ONE:
        extent = scope.text(dim.extent)
        yield Fault(f"{where} is not seen by the kernel and has extent {extent}", "it must be 1")


def _argument_faults(where: str, param: ParamDecl, region: Region, scope: _Scope) -> Faults:
    dtype = scope.tensors[region.tensor].dtype
    if dtype is not param.dtype:
        message = f"{where} wants {param.dtype.text}, '{region.tensor}' is {dtype.text}"
        yield Fault(message, error=TypeCheckError)
    rank = sum(not dim.dropped for dim in region.dims)
    if rank != param.rank:
        message = f"{where} wants rank {param.rank}, the region has rank {rank}"
        yield Fault(message, error=TypeCheckError)


def call_has_few_words(call: Call, _: _Scope) -> Faults:
    words = len(call.indices) + len(call.args)
    if words > MAX_ARG_WORDS:
        message = f"a call of kernel '{call.kernel}' has {words} indices and arguments"
        yield Fault(message, _at_most(MAX_ARG_WORDS))


def loops_fit_the_plan(body: Body, _: _Scope) -> Faults:
    count = sum(isinstance(stmt, Loop) for stmt in walk(body))
    if count > MAX_AXES:
        yield Fault(f"{count} loops in one module", _at_most(MAX_AXES))


# --- the rules, in the order they are tried ---

MODULE_RULES: tuple[Rule[Module], ...] = (name_is_legal,)
SYMBOL_RULES: tuple[Rule[SymbolDecl], ...] = (
    name_is_legal,
    symbol_is_extent_or_array,
    symbol_dtype_fits,
    default_is_an_extent,
)
TENSOR_RULES: tuple[Rule[TensorDecl], ...] = (name_is_legal, tensor_rank_is_legal)
KERNEL_RULES: tuple[Rule[KernelDecl], ...] = (
    name_is_legal,
    params_are_legal,
    kernel_body_fits_its_form,
)
DIRECTIVE_RULES: tuple[Rule[Directive], ...] = (directive_is_legal,)
EXPRESSION_RULES: tuple[Rule[Expr], ...] = (
    expression_is_not_too_large,
    names_in_expression_are_known,
    constants_fit,
)
LOOP_RULES: tuple[Rule[Loop], ...] = (
    loops_are_not_too_deep,
    blocks_are_not_too_deep,
    loop_variable_is_new,
    only_ragged_has_lengths,
    loop_extent_is_not_negative,
    loop_extent_fits_its_kind,
)
BLOCK_RULES: tuple[Rule[Block], ...] = (blocks_are_not_too_deep, block_has_parts)
CALL_RULES: tuple[Rule[Call], ...] = (call_fits_the_kernel, call_has_few_words)
WHOLE_BODY_RULES: tuple[Rule[Body], ...] = (loops_fit_the_plan,)
