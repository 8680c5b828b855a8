"""What is legal for temporaries, tokens and paged tensors; `verify` has the rules for the rest."""

from __future__ import annotations

from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import TypeCheckError
from pto_wsp.ir.nodes import (
    Alloc,
    Call,
    Const,
    ExprType,
    Mode,
    ParamDecl,
    Region,
    SlotLoad,
    TensorDecl,
    TensorKind,
    ViewKind,
)
from pto_wsp.ir.rewrite import loop_vars
from pto_wsp.ir.text import given_params
from pto_wsp.ir.types import expr_type
from pto_wsp.ir.verify_decls import name_is_legal, tensor_rank_is_legal
from pto_wsp.ir.verify_expr import I64_MAX, MAX_RANK, Fault, Faults, Rule, Scope
from pto_wsp.ir.verify_layouts import layout_fits_the_tensor, tensor_lies_where_its_kind_may
from pto_wsp.ir.verify_network import channel_fits


def tensor_fits_its_kind(tensor: TensorDecl, scope: Scope) -> Faults:
    what = f"{tensor.kind.value} '{tensor.name}'"
    if tensor.kind not in (TensorKind.TOKEN, TensorKind.CHANNEL) and tensor.shape:
        yield Fault(f"{what} has a shape of its own", "only tokens and channels have one")
    if tensor.fixed:
        yield from _fixed_faults(what, tensor)
    if (tensor.pages is not None) is not (tensor.kind is TensorKind.PAGED):
        yield Fault(f"{what} has pages or lacks them", "paged tensors have them, others have none")
    if tensor.kind is TensorKind.TOKEN:
        yield from _token_faults(what, tensor, scope)
    if tensor.kind is TensorKind.PAGED:
        yield from _paged_faults(what, tensor, scope)
    if tensor.kind is TensorKind.TEMP and tensor.rank >= MAX_RANK:
        yield Fault(f"{what} has rank {tensor.rank}", f"a temporary has at most {MAX_RANK - 1}")


def _fixed_faults(what: str, tensor: TensorDecl) -> Faults:
    if tensor.kind is not TensorKind.BOUND:
        yield Fault(f"{what} has fixed extents", "only what execute binds has those")
    if len(tensor.fixed) != tensor.rank:
        yield Fault(f"{what} has {len(tensor.fixed)} fixed extents and rank {tensor.rank}")
    for size in tensor.fixed:
        if size is not None and not 0 <= size <= I64_MAX:
            yield Fault(f"{what} has the fixed extent {size}")


def _token_faults(what: str, tensor: TensorDecl, scope: Scope) -> Faults:
    if tensor.dtype is not DType.BOOL:
        yield Fault(f"{what} is {tensor.dtype.text}", "a token holds nothing, as bool")
    if len(tensor.shape) != tensor.rank:
        yield Fault(f"{what} has {len(tensor.shape)} extents and rank {tensor.rank}")
    for size in tensor.shape:
        if loop_vars(size):
            yield Fault(f"{what} has extent {scope.text(size)}", "it may depend on symbols only")
        elif expr_type(size, scope.symbols) is not ExprType.I64:
            yield Fault(f"{what} has an extent that is no integer", error=TypeCheckError)


def _paged_faults(what: str, tensor: TensorDecl, scope: Scope) -> Faults:
    if tensor.pages is None:
        return
    pool = scope.tensors.get(tensor.pages.pool)
    table = scope.tensors.get(tensor.pages.table)
    bound = TensorKind.BOUND
    if tensor.rank < 2:
        yield Fault(f"{what} has rank {tensor.rank}", "its coordinates are [sequence, token, ...]")
    if pool is None or pool.kind is not bound or table is None or table.kind is not bound:
        yield Fault(f"{what} needs bound tensors as pool and table")
        return
    if (pool.dtype, pool.rank) != (tensor.dtype, tensor.rank):
        why = "[page, token, ...] in the pool are [sequence, token, ...] of the paged tensor"
        yield Fault(f"{what} has another dtype or rank than its pool", why, error=TypeCheckError)
    if table.dtype not in (DType.I32, DType.I64) or table.rank != 2:
        why = "its rows are the page numbers of a sequence, as i32 or i64"
        yield Fault(f"the table of {what} is not a matrix of integers", why, error=TypeCheckError)
    if tensor.pages.page is not None and tensor.pages.page < 1:
        yield Fault(f"{what} has {tensor.pages.page} tokens a page", "it must be at least 1")


def alloc_makes_a_temporary(stmt: Alloc, scope: Scope) -> Faults:
    tensor = scope.tensors.get(stmt.tensor)
    if tensor is None or tensor.kind is not TensorKind.TEMP:
        yield Fault(f"'{stmt.tensor}' is allocated and not declared as a temporary")
        return
    if stmt.tensor in scope.temps:
        yield Fault(f"temporary '{stmt.tensor}' is allocated twice")
    if len(stmt.shape) != tensor.rank:
        yield Fault(f"temporary '{stmt.tensor}' has rank {tensor.rank}, not {len(stmt.shape)}")
    for size in stmt.shape:
        if expr_type(size, scope.symbols) is not ExprType.I64:
            message = f"temporary '{stmt.tensor}' has an extent that is no integer"
            yield Fault(message, error=TypeCheckError)
        if isinstance(size, Const) and size.value < 0:
            yield Fault(f"temporary '{stmt.tensor}' has the negative extent {size.value}")


def temporary_is_there(where: str, region: Region, scope: Scope) -> Faults:
    tensor = scope.tensors.get(region.tensor)
    if tensor is None or region.tensor in scope.temps:
        return
    if tensor.kind is TensorKind.CHANNEL:
        message = f"{where}: a message of channel '{region.tensor}' that is not there"
        why = "a message is there inside of its consume, or behind its receive in the same body"
        yield Fault(message, why, code=Code.CHANNEL)
    if tensor.kind is not TensorKind.TEMP:
        return
    why = "it exists from its Tensor.temp(...) to the end of that loop body or condition"
    message = f"{where}: temporary '{region.tensor}' is used outside its scope"
    fix = "make it in the body that uses it; each process has its own"
    yield Fault(message, why, fix, code=Code.TEMPORARY_ESCAPED)


def _misfit(message: str, why: str, fix: str) -> Fault:
    return Fault(message, why, fix, TypeCheckError, Code.KERNEL_ARGUMENT)


def view_fits_the_tensor(where: str, param: ParamDecl, region: Region, scope: Scope) -> Faults:
    tensor = scope.tensors[region.tensor]
    is_token, is_paged = tensor.kind is TensorKind.TOKEN, tensor.kind is TensorKind.PAGED
    if is_token is not (param.view is ViewKind.TOKEN):
        why = "tokens order tasks and have no data"
        fix = f"annotate {param.name} as In[Token], Out[Token] or InOut[Token] for tokens only"
        message = f"{where}: '{tensor.name}' is a {tensor.kind.value}"
        yield _misfit(message, why, fix)
    if param.view is ViewKind.PAGED and not is_paged:
        fix = f"pass PagedTensor({tensor.name}, table), or annotate {param.name} as In[Tensor]"
        message = f"{where} is paged, '{tensor.name}' is a {tensor.kind.value}"
        yield _misfit(message, "only paged tensors have pages", fix)
    if not is_paged or len(region.dims) != tensor.rank:
        return
    if not region.dims[0].dropped:
        fix = f"index it: {tensor.name}[b, ...]"
        message = f"{where}: a region of several sequences of '{tensor.name}'"
        yield _misfit(message, "each sequence has pages of its own", fix)
    tokens = region.dims[1]
    if param.view is ViewKind.PAGED and (tokens.dropped or tokens.step != Const(1)):
        fix = f"pass {tensor.name}[b, first:last]"
        message = f"{where}: tokens of '{tensor.name}' are not a range"
        yield _misfit(message, "a paged parameter sees tokens that follow each other", fix)


def load_reads_plain_data(stmt: SlotLoad, scope: Scope) -> Faults:
    tensor = scope.tensors.get(stmt.region.tensor)
    if tensor is not None and tensor.kind in (TensorKind.TOKEN, TensorKind.PAGED):
        message = f"slot '{stmt.slot}' is loaded from {tensor.kind.value} '{tensor.name}'"
        yield Fault(message, "control reads plain tensors", error=TypeCheckError)


def page_tables_are_not_written(call: Call, scope: Scope) -> Faults:
    owners = {t.pages.table: t.name for t in scope.tensors.values() if t.pages is not None}
    if not owners or call.kernel not in scope.kernels:
        return
    for param, arg in zip(given_params(scope.kernels[call.kernel]), call.args, strict=False):
        if not isinstance(arg, Region) or arg.tensor not in owners:
            continue
        if isinstance(param, ParamDecl) and param.mode is not Mode.IN:
            message = f"kernel '{call.kernel}' writes '{arg.tensor}'"
            why = f"it is the page table of '{owners[arg.tensor]}', which must stay as it is"
            fix = "change the table in a program of its own, or between runs"
            yield Fault(message, why, fix, TypeCheckError, Code.PAGE_TABLE_WRITTEN)


TENSOR_RULES: tuple[Rule[TensorDecl], ...] = (
    name_is_legal,
    tensor_rank_is_legal,
    tensor_fits_its_kind,
    channel_fits,
    tensor_lies_where_its_kind_may,
    layout_fits_the_tensor,
)
ALLOC_RULES: tuple[Rule[Alloc], ...] = (alloc_makes_a_temporary,)
