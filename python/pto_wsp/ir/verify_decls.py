"""What is legal in a declaration; `verify` has the rules for statements."""

from __future__ import annotations

from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import TypeCheckError
from pto_wsp.ir.nodes import (
    BodyForm,
    ConstexprDecl,
    Directive,
    ExprType,
    KernelDecl,
    Module,
    ParamDecl,
    ScalarDecl,
    SymbolDecl,
    SymbolKind,
    TensorDecl,
)
from pto_wsp.ir.types import scalar_type
from pto_wsp.ir.verify_expr import (
    I64_MAX,
    I64_MIN,
    INTEGERS,
    MAX_NAME_BYTES,
    MAX_RANK,
    MAX_SCALAR_ARGS,
    MAX_SOURCE_BYTES,
    MAX_STRING_BYTES,
    MAX_TENSOR_ARGS,
    Fault,
    Faults,
    Rule,
    Scope,
)


def _text_faults(what: str, text: str, limit: int = MAX_STRING_BYTES) -> Faults:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        yield Fault(f"{what} {text!r} is not valid text", "a plan stores it as UTF-8")
        return
    if size > limit:
        yield Fault(f"a {what} of {size} bytes", at_most(limit), code=Code.PLAN_LIMIT)


def name_faults(what: str, name: str) -> Faults:
    if not name:
        yield Fault(f"an empty {what}")
    yield from _text_faults(what, name, MAX_NAME_BYTES)


def name_is_legal(decl: Module | SymbolDecl | TensorDecl | KernelDecl, _: Scope) -> Faults:
    what = type(decl).__name__.removesuffix("Decl").lower()
    yield from name_faults(f"{what} name", decl.name)


def symbol_is_extent_or_array(symbol: SymbolDecl, _: Scope) -> Faults:
    if symbol.kind is SymbolKind.TENSOR:
        yield Fault(f"symbol '{symbol.name}' is of kind tensor", fix="declare it as a tensor")


def symbol_dtype_fits(symbol: SymbolDecl, _: Scope) -> Faults:
    if symbol.kind is SymbolKind.EXTENT and symbol.dtype is not DType.I64:
        yield Fault(f"extent '{symbol.name}' is {symbol.dtype.text}", "extents are i64")
    if symbol.kind is SymbolKind.ARRAY and not 1 <= symbol.rank <= 2:
        yield Fault(
            f"array '{symbol.name}' has rank {symbol.rank}", "control reads 1-D and 2-D ones"
        )
    if symbol.kind is SymbolKind.ARRAY and symbol.dtype not in INTEGERS:
        yield Fault(
            f"array '{symbol.name}' is {symbol.dtype.text}",
            "control reads integers only",
            "bind an integer array, or pass the data to a kernel as a tensor",
        )


def default_is_a_number(symbol: SymbolDecl, _: Scope) -> Faults:
    if symbol.default is None:
        return
    if symbol.kind not in (SymbolKind.EXTENT, SymbolKind.SCALAR):
        yield Fault(f"{symbol.kind.value} '{symbol.name}' has a default", "only numbers have one")
    if symbol.kind is SymbolKind.SCALAR:
        wanted = scalar_type(symbol.dtype) is ExprType.F64
        if isinstance(symbol.default, float) is not wanted:
            message = f"scalar '{symbol.name}' is {symbol.dtype.text}, its default is not"
            yield Fault(message, error=TypeCheckError)
        elif not wanted and not I64_MIN <= symbol.default <= I64_MAX:
            yield Fault(f"the default of scalar '{symbol.name}' does not fit 64 bits")
    elif not 0 <= symbol.default <= I64_MAX:
        why = "an extent counts iterations and fits 64 bits"
        yield Fault(f"the default of extent '{symbol.name}' is {symbol.default}", why)


def _rank_faults(what: str, rank: int) -> Faults:
    if not 0 <= rank <= MAX_RANK:
        why = f"a rank is between 0 and {MAX_RANK}"
        yield Fault(f"{what} has rank {rank}", why, code=Code.PLAN_LIMIT)


def tensor_rank_is_legal(tensor: TensorDecl, _: Scope) -> Faults:
    yield from _rank_faults(f"tensor '{tensor.name}'", tensor.rank)


def params_are_legal(kernel: KernelDecl, _: Scope) -> Faults:
    seen: set[str] = set()
    for param in kernel.params:
        yield from name_faults("parameter name", param.name)
        where = f"parameter '{param.name}' of kernel '{kernel.name}'"
        if isinstance(param, ParamDecl):
            yield from _rank_faults(where, param.rank)
            if param.shape is not None and len(param.shape) != param.rank:
                yield Fault(f"{where} has a shape of another rank")
            if param.location is not None and param.shape is None:
                yield Fault(f"{where} has a location", "only tiles have one")
        if param.name in seen:
            yield Fault(f"{where} is declared twice", fix="rename one of the two")
        seen.add(param.name)
    tensors = sum(isinstance(param, ParamDecl) for param in kernel.params)
    scalars = sum(isinstance(param, ScalarDecl) for param in kernel.params)
    if tensors > MAX_TENSOR_ARGS:
        message = f"kernel '{kernel.name}' has {tensors} tensor parameters"
        yield Fault(message, at_most(MAX_TENSOR_ARGS), code=Code.PLAN_LIMIT)
    if scalars > MAX_SCALAR_ARGS:
        message = f"kernel '{kernel.name}' has {scalars} scalar parameters"
        yield Fault(message, at_most(MAX_SCALAR_ARGS), code=Code.PLAN_LIMIT)


def constants_have_their_type(kernel: KernelDecl, _: Scope) -> Faults:
    for param in kernel.params:
        if not isinstance(param, ConstexprDecl):
            continue
        wanted = scalar_type(param.dtype) is ExprType.F64
        if isinstance(param.value, float) is not wanted:
            message = f"constexpr '{param.name}' of kernel '{kernel.name}' is not"
            yield Fault(f"{message} {param.dtype.text}", error=TypeCheckError)


def kernel_body_fits_its_form(kernel: KernelDecl, _: Scope) -> Faults:
    for text in (kernel.source, *kernel.includes):
        yield from _text_faults("kernel source", text, MAX_SOURCE_BYTES)
    if kernel.form is BodyForm.CPP:
        return
    kind = "Tile" if kernel.form is BodyForm.TILE_IR else "Python"
    if kernel.includes:
        yield Fault(f"{kind} kernel '{kernel.name}' has C++ includes")
    if not kernel.source:
        lacks = "has no operations" if kind == "Tile" else "does not name its function"
        yield Fault(f"{kind} kernel '{kernel.name}' {lacks}")


def directive_is_legal(directive: Directive, _: Scope) -> Faults:
    yield from name_faults("directive name", directive.name)
    for arg in directive.args:
        if isinstance(arg, str):
            yield from _text_faults("directive argument", arg)
        elif isinstance(arg, int) and not I64_MIN <= arg <= I64_MAX:
            message = f"argument {arg} of {directive.name} does not fit 64 bits"
            yield Fault(message, code=Code.DIRECTIVE_VALUE)


def at_most(count: int) -> str:
    return f"a plan holds at most {count}"


MODULE_RULES: tuple[Rule[Module], ...] = (name_is_legal,)
SYMBOL_RULES: tuple[Rule[SymbolDecl], ...] = (
    name_is_legal,
    symbol_is_extent_or_array,
    symbol_dtype_fits,
    default_is_a_number,
)
KERNEL_RULES: tuple[Rule[KernelDecl], ...] = (
    name_is_legal,
    params_are_legal,
    constants_have_their_type,
    kernel_body_fits_its_form,
)
DIRECTIVE_RULES: tuple[Rule[Directive], ...] = (directive_is_legal,)
