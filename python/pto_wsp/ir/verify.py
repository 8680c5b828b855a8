"""What a legal module is. The tables at the end list every rule, in the order they are tried.

A rule is a small function that yields what is wrong with one node; the first thing found is raised
as a CompileError at the node's source position. Expressions and regions carry no position of their
own: the loop or call around them lends its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeAlias, TypeVar, assert_never

from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import CompileError, TypeCheckError
from pto_wsp.ir.nodes import (
    Alloc,
    ArrayLoad,
    AxisKind,
    Binary,
    BinaryOp,
    Body,
    Call,
    Close,
    Combine,
    Cond,
    Const,
    Consume,
    DimSlice,
    Expr,
    ExprType,
    KernelDecl,
    Loop,
    LoopVar,
    Module,
    Network,
    Order,
    ParamDecl,
    Receive,
    Region,
    Send,
    Sequential,
    SlotLoad,
    SlotSet,
    Stmt,
    SymbolDecl,
    TensorDecl,
    While,
)
from pto_wsp.ir.rewrite import bodies, exprs, loop_vars, walk
from pto_wsp.ir.text import ONE, given_params
from pto_wsp.ir.types import expr_type, scalar_type
from pto_wsp.ir.verify_decls import (
    DIRECTIVE_RULES,
    KERNEL_RULES,
    MODULE_RULES,
    SYMBOL_RULES,
    at_most,
    name_faults,
)
from pto_wsp.ir.verify_expr import (
    EXPRESSION_RULES,
    I64_MIN,
    MAX_ARG_WORDS,
    MAX_AXES,
    MAX_BLOCKS,
    MAX_CHILDREN,
    MAX_LOOPS,
    Fault,
    Faults,
    Rule,
    Scope,
    array_faults,
)
from pto_wsp.ir.verify_layouts import layout_faults, layouts_join, location_fits
from pto_wsp.ir.verify_network import (
    CLOSE_RULES,
    HOLDING_RULES,
    MODULE_NETWORK_RULES,
    NETWORK_RULES,
    SEND_RULES,
)
from pto_wsp.ir.verify_tensors import (
    ALLOC_RULES,
    TENSOR_RULES,
    load_reads_plain_data,
    page_tables_are_not_written,
    temporary_is_there,
    view_fits_the_tensor,
)
from pto_wsp.srcloc import SrcLoc

Block: TypeAlias = Combine | Sequential
_FIXES = {Code.PLAN_LIMIT: "split the workload, or let each kernel do more"}
T = TypeVar("T")


def verify(module: Module) -> None:
    """Raises a CompileError for the first rule that the module breaks."""
    scope = Scope(
        {s.name: s for s in module.symbols},
        {t.name: t for t in module.tensors},
        {k.name: k for k in module.kernels},
    )
    _check(MODULE_RULES, module, scope, None)
    for symbol in module.symbols:
        _check(SYMBOL_RULES, symbol, scope, symbol.loc)
    for tensor in module.tensors:
        _check(TENSOR_RULES, tensor, scope, tensor.loc)
        for size in tensor.shape:
            _check(EXPRESSION_RULES, size, scope, tensor.loc)
    for kernel in module.kernels:
        _check(KERNEL_RULES, kernel, scope, kernel.loc)
    _check_unique("name", (*module.symbols, *module.tensors))
    _check_unique("kernel", module.kernels)
    for directive in module.schedule:
        _check(DIRECTIVE_RULES, directive, scope, directive.loc)
        for arg in directive.args:
            if arg is not None and not isinstance(arg, int | str):
                _check(EXPRESSION_RULES, arg, replace(scope, is_key=True), directive.loc)
    _verify_body(module.body, scope)
    _check(MODULE_NETWORK_RULES, module, scope, None)
    _check(WHOLE_BODY_RULES, module.body, scope, None)


def _check(rules: Iterable[Rule[T]], node: T, scope: Scope, loc: SrcLoc | None) -> None:
    for rule in rules:
        for fault in rule(node, scope):
            fix = fault.fix or _FIXES.get(fault.code)
            at = fault.loc or loc
            raise fault.error(fault.code, fault.message, loc=at, why=fault.why, fix=fix)


def _check_unique(kind: str, decls: Iterable[SymbolDecl | TensorDecl | KernelDecl]) -> None:
    first: dict[str, SrcLoc | None] = {}
    for decl in decls:
        if decl.name in first:
            there = first[decl.name]
            why = None if there is None else f"the other declaration is at {there}"
            message = f"{kind} '{decl.name}' is declared twice"
            fix = "rename one of the two"
            raise CompileError(Code.NAME_CLASH, message, loc=decl.loc, why=why, fix=fix)
        first[decl.name] = decl.loc


def _verify_body(body: Body, scope: Scope) -> None:
    for stmt in body:
        own = (stmt.condition,) if isinstance(stmt, While) else ()
        for expr in exprs(stmt):
            if expr not in own:  # a While's condition sees its variable
                _check(EXPRESSION_RULES, expr, scope, stmt.loc)
        _verify_stmt(stmt, scope)
        if isinstance(stmt, SlotSet | SlotLoad):
            scope = replace(scope, slots=scope.slots | {stmt.slot})
        if isinstance(stmt, Alloc):
            scope = replace(scope, temps=scope.temps | {stmt.tensor})
        if isinstance(stmt, Receive):
            scope = replace(scope, temps=scope.temps | {stmt.channel})


def _verify_stmt(stmt: Stmt, scope: Scope) -> None:
    deeper = replace(scope, blocks=scope.blocks + 1)
    match stmt:
        case Loop():
            _check(LOOP_RULES, stmt, scope, stmt.loc)
            sparse = {stmt.var} if stmt.kind is AxisKind.SPARSE else set[str]()
            inside = replace(deeper, loops=(*scope.loops, stmt.var), sparse=scope.sparse | sparse)
            _verify_body(stmt.body, inside)
        case While():
            _check(WHILE_RULES, stmt, scope, stmt.loc)
            inside = replace(deeper, loops=(*scope.loops, stmt.var))
            _check(EXPRESSION_RULES, stmt.condition, inside, stmt.loc)
            _verify_body(stmt.body, inside)
        case Cond():
            _check(COND_RULES, stmt, scope, stmt.loc)
            _verify_body(stmt.then, deeper)
            _verify_body(stmt.otherwise, deeper)
        case Combine(parts) | Sequential(parts):
            _check(BLOCK_RULES, stmt, scope, stmt.loc)
            for part in parts:
                _verify_body(part, replace(scope, blocks=scope.blocks + _blocks_of(part)))
        case SlotSet():
            _check(SLOT_SET_RULES, stmt, scope, stmt.loc)
        case SlotLoad():
            _check(SLOT_LOAD_RULES, stmt, scope, stmt.loc)
        case Alloc():
            _check(ALLOC_RULES, stmt, scope, stmt.loc)
        case Call():
            _check(CALL_RULES, stmt, scope, stmt.loc)
        case Send(channel, body):
            _check(SEND_RULES, stmt, scope, stmt.loc)
            _verify_body(body, replace(scope, temps=scope.temps | {channel}))
        case Consume():
            _check(CONSUME_RULES, stmt, scope, stmt.loc)
            loops, temps = (*scope.loops, stmt.var), scope.temps | {stmt.channel}
            _verify_body(stmt.body, replace(deeper, loops=loops, temps=temps))
        case Receive():
            _check(HOLDING_RULES, stmt, scope, stmt.loc)
        case Close():
            _check(CLOSE_RULES, stmt, scope, stmt.loc)
        case Network(processes):
            _check(NETWORK_RULES, stmt, scope, stmt.loc)
            apart = replace(scope, temps=frozenset(), slots=frozenset())  # those of main
            for process in processes:
                _verify_body(process.body, apart)
        case _:
            assert_never(stmt)


def _blocks_of(part: Body) -> int:
    """Plan blocks opened for a branch or step: its own, and one more around several statements or
    around a statement that becomes several."""
    several = Cond | Alloc | Send | Receive
    return 1 if len(part) == 1 and not isinstance(part[0], several) else 2


# --- statements ---


def loops_are_not_too_deep(loop: Loop | While | Consume, scope: Scope) -> Faults:
    if len(scope.loops) == MAX_LOOPS:
        name = f"channel '{loop.channel}'" if isinstance(loop, Consume) else f"axis '{loop.axis}'"
        message = f"{name} is inside {MAX_LOOPS} other loops"
        yield Fault(message, at_most(MAX_LOOPS), code=Code.PLAN_LIMIT)


def blocks_are_not_too_deep(stmt: Loop | While | Cond | Consume | Block, scope: Scope) -> Faults:
    match stmt:
        case Loop() | While() | Cond() | Consume():
            opened = 1
        case Combine(parts) | Sequential(parts):
            opened = max((_blocks_of(p) for p in parts), default=1)
    if scope.blocks + opened > MAX_BLOCKS:
        message = f"more than {MAX_BLOCKS} blocks inside each other"
        yield Fault(message, at_most(MAX_BLOCKS), code=Code.PLAN_LIMIT)


def loop_variable_is_new(loop: Loop | While | Consume, scope: Scope) -> Faults:
    yield from name_faults("loop variable", loop.var)
    if not isinstance(loop, Consume):
        yield from name_faults("axis name", loop.axis)
    if loop.var in scope.loops:
        why = "an enclosing loop has a variable of that name"
        yield Fault(f"loop variable '{loop.var}' is bound twice", why, "rename one of the two")


def loop_extent_is_not_negative(loop: Loop, _: Scope) -> Faults:
    if isinstance(loop.extent, Const) and loop.extent.value < 0:
        message = f"axis '{loop.axis}' has extent {loop.extent.value}"
        yield Fault(message, "it must be at least 0")


def loop_extent_fits_its_kind(loop: Loop, scope: Scope) -> Faults:
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
        case AxisKind.SPARSE:
            yield from _sparse_faults(loop, scope)
        case AxisKind.TILED:
            if loop.tile is None:
                yield Fault(f"tiled axis '{loop.axis}' has no tile size")
        case AxisKind.EXPR:
            pass
        case _:
            assert_never(loop.kind)
    if (
        _type(loop.extent, scope) is not ExprType.I64
        or _type(loop.start, scope) is not ExprType.I64
    ):
        yield Fault(f"axis '{loop.axis}' has an extent that is no integer", error=TypeCheckError)


def _ragged_faults(loop: Loop, scope: Scope) -> Faults:
    if loop.lengths is None or loop.parent is None:
        missing = "lengths" if loop.lengths is None else "parent"
        yield Fault(f"ragged axis '{loop.axis}' has no {missing}")
        return
    yield from array_faults(loop.lengths, 1, scope)
    if loop.parent not in scope.loops:
        why = "that is not the variable of an enclosing loop"
        yield Fault(f"ragged axis '{loop.axis}' is indexed by '{loop.parent}'", why)
    if loop.extent != ArrayLoad(loop.lengths, LoopVar(loop.parent)):
        why = f"its extent must be {loop.lengths}[{loop.parent}]"
        yield Fault(f"ragged axis '{loop.axis}' has extent {scope.text(loop.extent)}", why)


def _sparse_faults(loop: Loop, scope: Scope) -> Faults:
    if loop.lengths is None or loop.parent is None or loop.indices is None:
        yield Fault(f"sparse axis '{loop.axis}' lacks indptr, indices or the row")
        return
    for array in (loop.lengths, loop.indices):
        yield from array_faults(array, 1, scope)
    if loop.parent not in scope.loops:
        why = "that is not the variable of an enclosing loop"
        yield Fault(f"the row of sparse axis '{loop.axis}' is '{loop.parent}'", why)
    row = LoopVar(loop.parent)
    end = ArrayLoad(loop.lengths, Binary(BinaryOp.ADD, row, ONE))
    if loop.extent != Binary(BinaryOp.SUB, end, ArrayLoad(loop.lengths, row)):
        why = f"its extent must be {loop.lengths}[row + 1] - {loop.lengths}[row]"
        yield Fault(f"sparse axis '{loop.axis}' has extent {scope.text(loop.extent)}", why)
    if loop.start != Const(0):
        yield Fault(f"sparse axis '{loop.axis}' does not start at 0")
    if loop.order is not Order.PARALLEL:
        yield Fault(f"sparse axis '{loop.axis}' is sequential", "P.sel has no order")


def loop_fields_fit_its_kind(loop: Loop, _: Scope) -> Faults:
    by_array = loop.kind in (AxisKind.RAGGED, AxisKind.SPARSE)
    if not by_array and (loop.lengths is not None or loop.parent is not None):
        yield Fault(f"{loop.kind.value} axis '{loop.axis}' has lengths or a parent")
    if loop.kind is not AxisKind.SPARSE and loop.indices is not None:
        yield Fault(f"{loop.kind.value} axis '{loop.axis}' has column indices")
    if loop.kind is not AxisKind.TILED and (loop.tile is not None or loop.padded):
        yield Fault(f"{loop.kind.value} axis '{loop.axis}' has a tile size")


def condition_is_boolean(stmt: Cond | While, scope: Scope) -> Faults:
    loops = (*scope.loops, stmt.var) if isinstance(stmt, While) else scope.loops
    if _type(stmt.condition, scope) is not ExprType.BOOL:
        text = replace(scope, loops=loops).text(stmt.condition)
        yield Fault(f"the condition {text} is not boolean", error=TypeCheckError)


def limit_is_an_integer(loop: While, scope: Scope) -> Faults:
    if _type(loop.limit, scope) is not ExprType.I64:
        yield Fault(f"the limit of '{loop.axis}' is no integer", error=TypeCheckError)


def condition_has_a_body(stmt: Cond, _: Scope) -> Faults:
    if not stmt.then:
        yield Fault("a condition without a body", fix="leave it out")


def slot_value_is_an_integer(stmt: SlotSet, scope: Scope) -> Faults:
    yield from name_faults("slot name", stmt.slot)
    if _type(stmt.value, scope) is not ExprType.I64:
        yield Fault(f"slot '{stmt.slot}' gets a value that is no integer", error=TypeCheckError)


def slot_is_one_element(stmt: SlotLoad, scope: Scope) -> Faults:
    yield from name_faults("slot name", stmt.slot)
    where = f"slot '{stmt.slot}'"
    yield from _region_faults(where, stmt.region, scope)
    if not all(dim.dropped for dim in stmt.region.dims):
        message = f"{where} is loaded from a region of several elements"
        yield Fault(message, error=TypeCheckError, code=Code.KERNEL_ARGUMENT)
    tensor = scope.tensors.get(stmt.region.tensor)
    if tensor is not None and scalar_type(tensor.dtype) is not ExprType.I64:
        message = f"{where} is loaded from '{tensor.name}', which is {tensor.dtype.text}"
        why = "slots hold integers"
        yield Fault(message, why, error=TypeCheckError, code=Code.KERNEL_ARGUMENT)


def _type(expr: Expr, scope: Scope) -> ExprType:
    return expr_type(expr, scope.symbols)


def block_has_parts(block: Block, _: Scope) -> Faults:
    match block:
        case Combine(parts):
            what, part_name = "combine", "branch"
        case Sequential(parts):
            what, part_name = "sequential", "step"
    if not parts:
        yield Fault(f"{what} of nothing", fix="leave it out")
    if len(parts) > MAX_CHILDREN or any(len(p) > MAX_CHILDREN for p in parts):
        message = f"too many statements in one {what}"
        yield Fault(message, at_most(MAX_CHILDREN), code=Code.PLAN_LIMIT)
    for number, part in enumerate(parts, start=1):
        if not part:
            yield Fault(f"{part_name} {number} of {what} is empty", fix="leave it out")


def call_fits_the_kernel(call: Call, scope: Scope) -> Faults:
    kernel = scope.kernels.get(call.kernel)
    if kernel is None:
        yield Fault(f"kernel '{call.kernel}' is not declared")
        return
    params = given_params(kernel)
    want, found = len(params), len(call.args)
    if want != found:
        message = f"kernel '{kernel.name}' takes {want} arguments and gets {found}"
        yield Fault(message, error=TypeCheckError)
        return
    for param, arg in zip(params, call.args, strict=True):
        where = f"argument '{param.name}' of kernel '{kernel.name}'"
        if isinstance(param, ParamDecl) is not isinstance(arg, Region):
            yield Fault(f"{where} is not what the kernel takes there", error=TypeCheckError)
        elif isinstance(arg, Region) and isinstance(param, ParamDecl):
            yield from _region_faults(where, arg, scope)
            yield from _argument_faults(where, param, arg, scope)
        elif not isinstance(arg, Region):
            yield from _scalar_faults(where, param.dtype, arg, scope)


def _scalar_faults(where: str, dtype: DType, arg: Expr, scope: Scope) -> Faults:
    found, wanted = _type(arg, scope), scalar_type(dtype)
    if found is not wanted:
        message = f"{where} wants {dtype.text}, {scope.text(arg)} is {found.value}"
        yield Fault(message, error=TypeCheckError)


def _region_faults(where: str, region: Region, scope: Scope) -> Faults:
    tensor = scope.tensors.get(region.tensor)
    if tensor is None:
        yield Fault(f"{where}: tensor '{region.tensor}' is not declared")
        return
    if len(region.dims) != tensor.rank:
        ranks = f"'{tensor.name}' has rank {tensor.rank}, the region has {len(region.dims)}"
        yield Fault(f"{where}: {ranks}", error=TypeCheckError)
    yield from temporary_is_there(where, region, scope)
    if region.layout is not None:
        yield from layout_faults(f"{where}: '{tensor.name}'", tensor, region.layout)
    for number, dim in enumerate(region.dims):
        yield from _dim_faults(f"{where}: dimension {number}", dim, scope)


def _dim_faults(where: str, dim: DimSlice, scope: Scope) -> Faults:
    # A start outside the tensor does no harm where nothing is ever read: runs check it.
    parts = (("start", dim.start, I64_MIN), ("extent", dim.extent, 0), ("step", dim.step, 1))
    for what, expr, least in parts:
        if _type(expr, scope) is not ExprType.I64:
            yield Fault(f"{where} has a {what} that is no integer", error=TypeCheckError)
        if isinstance(expr, Const) and expr.value < least:
            message = f"{where} has {what} {expr.value}"
            yield Fault(message, f"it must be at least {least}", code=Code.OUT_OF_BOUNDS)
    if dim.dropped and dim.extent != ONE:
        extent = scope.text(dim.extent)
        yield Fault(f"{where} is not seen by the kernel and has extent {extent}", "it must be 1")


def _argument_faults(where: str, param: ParamDecl, region: Region, scope: Scope) -> Faults:
    yield from view_fits_the_tensor(where, param, region, scope)
    yield from location_fits(where, param, region, scope)
    dtype = scope.tensors[region.tensor].dtype
    if dtype is not param.dtype:
        message = f"{where} wants {param.dtype.text}, '{region.tensor}' is {dtype.text}"
        yield Fault(message, error=TypeCheckError)
    seen = [dim for dim in region.dims if not dim.dropped]
    if len(seen) != param.rank:
        message = f"{where} wants rank {param.rank}, the region has rank {len(seen)}"
        yield Fault(message, error=TypeCheckError)
    for number, (dim, size) in enumerate(zip(seen, param.shape or (), strict=False)):
        if isinstance(dim.extent, Const) and dim.extent.value > size:
            message = f"{where} has {size} elements in dimension {number}"
            yield Fault(f"{message}, the region {dim.extent.value}", error=TypeCheckError)


def call_has_few_words(call: Call, _: Scope) -> Faults:
    words = len(call.indices) + len(call.args) + len(call.after)
    if words > MAX_ARG_WORDS:
        message = f"a call of kernel '{call.kernel}' has {words} indices and arguments"
        yield Fault(message, at_most(MAX_ARG_WORDS), code=Code.PLAN_LIMIT)


def call_fields_are_integers(call: Call, scope: Scope) -> Faults:
    names = [name for name, _ in call.fields]
    for name, value in call.fields:
        if names.count(name) > 1:
            yield Fault(f"descriptor field '{name}' is given twice", error=TypeCheckError)
        if _type(value, scope) is not ExprType.I64:
            message = f"descriptor field '{name}' is no integer"
            yield Fault(message, f"{scope.text(value)} is none", error=TypeCheckError)


_MESSAGES, _REPLICAS = "messages of", "replicas of"  # loops whose variables nobody can name


def labels_are_known(body: Body, _: Scope) -> Faults:
    """Calls wait for calls before them, by labels that are given once."""
    seen: dict[str, tuple[str, ...]] = {}
    yield from _label_faults(body, (), seen)


def _label_faults(body: Body, loops: tuple[str, ...], seen: dict[str, tuple[str, ...]]) -> Faults:
    for stmt in body:
        inside = (*loops, stmt.var) if isinstance(stmt, Loop | While) else loops
        if isinstance(stmt, Consume):
            inside = (*loops, _MESSAGES)
        if isinstance(stmt, Network):  # a process waits for no call of another
            for process in stmt.processes:
                first = process.body[0] if process.replicated else None
                replicas = isinstance(first, Loop)
                inner = first.body if isinstance(first, Loop) else process.body
                yield from _label_faults(inner, (_REPLICAS,) if replicas else (), {})
            continue
        for inner in bodies(stmt):
            yield from _label_faults(inner, inside, seen)
        if not isinstance(stmt, Call):
            continue
        if stmt.label is not None:
            if stmt.label in seen:
                yield Fault(f"label '{stmt.label}' is given twice")
            seen[stmt.label] = loops
        for after in stmt.after:
            if after.label not in seen or (after.label == stmt.label and not after.indices):
                message = f"a call waits for '{after.label}', which is no call before it"
                why = "calls of another process are none: between processes, messages order tasks"
                yield Fault(message, why, code=Code.AFTER, loc=stmt.loc)
            elif after.indices and _MESSAGES in (*loops, *seen[after.label]):
                message = f"'{after.label}' is waited for by its indices in a consume"
                why = "the number of a message is an index that nothing compares"
                fix = "wait for all its tasks of this message: after=h"
                yield Fault(message, why, fix, code=Code.AFTER, loc=stmt.loc)
            elif after.indices and _REPLICAS in seen[after.label][-len(after.indices) :]:
                message = f"'{after.label}' is waited for in another replica"
                why = "between replicas, messages order tasks"
                yield Fault(message, why, code=Code.AFTER, loc=stmt.loc)
            elif len(after.indices) > len(seen[after.label]):
                message = f"'{after.label}' has fewer loops than {len(after.indices)}"
                yield Fault(message, code=Code.AFTER, loc=stmt.loc)


def loops_fit_the_plan(body: Body, _: Scope) -> Faults:
    count = sum(isinstance(stmt, Loop | While) for stmt in walk(body))
    if count > MAX_AXES:
        yield Fault(f"{count} loops in one module", at_most(MAX_AXES), code=Code.PLAN_LIMIT)


# --- the rules, in the order they are tried ---

LOOP_RULES: tuple[Rule[Loop], ...] = (
    loops_are_not_too_deep,
    blocks_are_not_too_deep,
    loop_variable_is_new,
    loop_fields_fit_its_kind,
    loop_extent_is_not_negative,
    loop_extent_fits_its_kind,
)
WHILE_RULES: tuple[Rule[While], ...] = (
    loops_are_not_too_deep,
    blocks_are_not_too_deep,
    loop_variable_is_new,
    condition_is_boolean,
    limit_is_an_integer,
)
COND_RULES: tuple[Rule[Cond], ...] = (
    blocks_are_not_too_deep,
    condition_is_boolean,
    condition_has_a_body,
)
CONSUME_RULES: tuple[Rule[Consume], ...] = (
    loops_are_not_too_deep,
    blocks_are_not_too_deep,
    loop_variable_is_new,
    *HOLDING_RULES,
)
SLOT_SET_RULES: tuple[Rule[SlotSet], ...] = (slot_value_is_an_integer,)
SLOT_LOAD_RULES: tuple[Rule[SlotLoad], ...] = (load_reads_plain_data, slot_is_one_element)
BLOCK_RULES: tuple[Rule[Block], ...] = (blocks_are_not_too_deep, block_has_parts)
CALL_RULES: tuple[Rule[Call], ...] = (
    call_fits_the_kernel,
    page_tables_are_not_written,
    call_has_few_words,
    call_fields_are_integers,
    layouts_join,
)
WHOLE_BODY_RULES: tuple[Rule[Body], ...] = (
    loops_fit_the_plan,
    labels_are_known,
)
