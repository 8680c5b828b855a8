"""Which parameters of a kernel may lie in the same memory.

What a tile kernel means is one statement after the other: a load copies, a store changes what later
loads see. Compiled code reads a parameter where it lies unless somebody may write there, so it has
to know which parameters may be views of the same memory.
"""

from __future__ import annotations

from itertools import combinations

from pto_wsp.plan import (
    NONE,
    Access,
    AccessMode,
    Instr,
    Kernel,
    Op,
    Param,
    ParamKind,
    Plan,
    Site,
    TaskKind,
    Tensor,
)

_REGION_WORDS = frozenset({Op.IO_INPUT, Op.IO_OUTPUT, Op.IO_INOUT, Op.IO_ACCUM})
_VALUES = (ParamKind.SCALAR, ParamKind.CONSTEXPR)
ALL_VIEWS = (1 << 64) - 1


def view_params(params: tuple[Param, ...]) -> list[Param]:
    """The parameters that are views, in their order: a set of them is a number, with a bit for
    each."""
    return [param for param in params if param.kind not in _VALUES]


def memory_views(params: tuple[Param, ...]) -> int:
    """The views that have memory."""
    views = enumerate(view_params(params))
    return sum(1 << i for i, param in views if param.kind != ParamKind.TOKEN)


def written_views(params: tuple[Param, ...]) -> int:
    views = enumerate(view_params(params))
    written = (i for i, p in views if p.mode != AccessMode.IN and p.kind != ParamKind.TOKEN)
    return sum(1 << i for i in written)


def views_of_calls(plan: Plan) -> list[int]:
    """By kernel: the views for which some call names regions of one tensor, at least one of them
    written. Tensors that are bound to the same memory are not known here."""
    found = [0] * len(plan.records(Kernel))
    code, accesses, tensors = plan.records(Instr), plan.records(Access), plan.records(Tensor)
    for site in plan.records(Site):
        if site.kind != TaskKind.KERNEL or site.kernel == NONE:
            continue
        words = code[site.pc + 1 : site.pc + 1 + code[site.pc].operand1]
        regions = [accesses[word.operand2] for word in words if word.opcode in _REGION_WORDS]
        for (i, a), (j, b) in combinations(enumerate(regions), 2):
            if a.mode == AccessMode.IN and b.mode == AccessMode.IN:
                continue
            if _storage(tensors, a.tensor) == _storage(tensors, b.tensor):
                found[site.kernel] |= 1 << i | 1 << j
    records = plan.records(Kernel)
    params = plan.records(Param)
    return [
        views & memory_views(params[k.params : k.params + k.num_params])
        for views, k in zip(found, records, strict=True)
    ]


def _storage(tensors: tuple[Tensor, ...], index: int) -> int:
    """Where a tensor lies: a paged one in its pool."""
    pool = tensors[index].pool
    return tensors[index if pool == NONE else pool].storage
