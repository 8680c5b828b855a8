"""Calls a kernel for a task: NumPy views of its regions, or the C structures around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, assert_never

from pto_wsp.backends.reference.bound import Array
from pto_wsp.backends.reference.region import DimRange, Region, params_of, region_params
from pto_wsp.backends.reference.walk import Task, call_text
from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import KernelError
from pto_wsp.kernels import (
    LoadedKernel,
    NativeCaller,
    NativeFailure,
    NativeKernel,
    NativePages,
    NativeView,
    PythonKernel,
    gathered,
    native_view,
    scalar_value,
    scattered,
)
from pto_wsp.plan import NONE, AccessMode, ParamKind, Plan, Section, Tensor


@dataclass(frozen=True, slots=True)
class Paged:
    """Tokens of one sequence, on pages of a pool."""

    pool: Array
    table: Array
    region: Region


# What a kernel gets for a region; nothing of a token.
View: TypeAlias = Array | Paged | None
# Runs the task on these views, one for each region. Raises if the kernel fails.
Body = Callable[["Task", "Sequence[View]"], None]


class TaskMemory(Protocol):
    """Where the regions of a task lie."""

    @property
    def plan(self) -> Plan: ...

    @property
    def tensors(self) -> Sequence[Array] | Mapping[int, Array]: ...

    def pool(self, paged: Tensor) -> Array: ...

    def table(self, paged: Tensor) -> Array: ...


# Raises if the kernel fails.
Caller = Callable[[Task, TaskMemory], None]


def kernel_error(plan: Plan, task: Task, error: Exception, why: str | None = None) -> KernelError:
    """What a user sees of a kernel that raised."""
    name = plan.kernel_names[task.kernel]
    what = str(error)
    if not isinstance(error, NativeFailure):
        what = f"{type(error).__name__}: {what}".rstrip(": ")
    return KernelError(
        Code.KERNEL_FAILED,
        f"kernel {call_text(name, task.indices)} failed: {what}",
        kernel=name,
        indices=task.indices,
        loc=plan.loc(Section.SITE, task.site),
        why=why,
    )


def region_view(tensor: Array, region: Region) -> Array:
    """The region as an array over the tensor's own memory; read-only if the task only reads."""
    view = tensor[(*map(_index, region.dims), ...)]  # with the ellipsis, even one element is a view
    if region.mode == AccessMode.IN:
        view.flags.writeable = False
    return view


def _index(dim: DimRange) -> int | slice:
    if dim.dropped:
        return dim.start
    if dim.extent == 0:
        return slice(0, 0)
    return slice(dim.start, dim.start + (dim.extent - 1) * dim.step + 1, dim.step)


def paged(bound: TaskMemory, region: Region) -> Paged:
    tensor = bound.plan.records(Tensor)[region.tensor]
    return Paged(bound.pool(tensor), bound.table(tensor), region)


def page_views(tokens_on_pages: Paged) -> list[Array]:
    """The tokens of a region of a paged tensor, page by page; one empty view if it has none."""
    pool, region = tokens_on_pages.pool, tokens_on_pages.region
    page, tokens = pool.shape[1], region.dims[1]
    rest = region.dims[2:]
    if not region.pages:
        nothing = DimRange(0, 0, 1, False)
        return [region_view(pool, replace(region, dims=(region.dims[0], nothing, *rest)))]
    views: list[Array] = []
    begin, end = tokens.start, tokens.start + (tokens.extent - 1) * tokens.step + 1
    for k, number in enumerate(region.pages):
        base = (tokens.start // page + k) * page
        first, last = max(begin, base) - base, min(end, base + page) - base
        count = (last - first + tokens.step - 1) // tokens.step
        dims = (
            DimRange(number, 1, 1, True),
            DimRange(first, count, tokens.step, tokens.dropped),
            *rest,
        )
        views.append(region_view(pool, replace(region, dims=dims)))
    return views


def _view(bound: TaskMemory, region: Region, kind: ParamKind) -> View:
    if kind == ParamKind.TOKEN:
        return None
    if bound.plan.records(Tensor)[region.tensor].pool == NONE:
        return region_view(bound.tensors[region.tensor], region)
    tokens = paged(bound, region)
    return tokens if kind == ParamKind.PAGED else page_views(tokens)[0]


def make_caller(plan: Plan, index: int, kernel: LoadedKernel) -> Caller:
    """What runs the tasks of a kernel, where their regions are."""
    body = make_body(plan, index, kernel)
    kinds = [ParamKind(param.kind) for param in region_params(plan, index)]

    def call(task: Task, bound: TaskMemory) -> None:
        body(task, [_view(bound, r, k) for r, k in zip(task.regions, kinds, strict=True)])

    return call


def make_body(plan: Plan, index: int, kernel: LoadedKernel) -> Body:
    """What runs the tasks of a kernel on any views."""
    match kernel:
        case PythonKernel():
            return _python_body(plan, index, kernel)
        case NativeKernel():
            return _native_body(kernel)
        case _:
            assert_never(kernel)


def _python_body(plan: Plan, index: int, kernel: PythonKernel) -> Body:
    params = params_of(plan, index)

    def call(task: Task, views: Sequence[View]) -> None:
        view, scalar = iter(views), iter(task.scalars)
        arguments: list[Any] = []
        written: list[tuple[Array, list[Array]]] = []
        for param in params:
            match ParamKind(param.kind):
                case ParamKind.SCALAR:
                    arguments.append(scalar_value(DType(param.dtype), next(scalar)))
                case ParamKind.CONSTEXPR:
                    arguments.append(scalar_value(DType(param.dtype), param.value))
                case ParamKind.TENSOR | ParamKind.TILE | ParamKind.TOKEN:
                    arguments.append(next(view))
                case ParamKind.PAGED:
                    tokens = next(view)
                    assert isinstance(tokens, Paged)
                    pages = page_views(tokens)
                    arguments.append(gathered(pages, AccessMode(param.mode)))
                    if param.mode != AccessMode.IN:
                        written.append((arguments[-1], pages))
        kernel.fn(*arguments)
        for array, pages in written:
            scattered(array, pages)

    return call


def _native_body(kernel: NativeKernel) -> Body:
    caller = NativeCaller(kernel)

    def call(task: Task, given: Sequence[View]) -> None:
        views: list[NativeView] = []
        pages: list[NativePages | None] = []
        for each in given:
            found: tuple[NativeView, NativePages | None] = NativeView(), None
            if isinstance(each, Paged):
                found = _native_pages(each)
            elif each is not None:
                found = native_view(each), None
            views.append(found[0])
            pages.append(found[1])
        caller(
            *(views, pages, task.scalars),
            memory=[each.pool if isinstance(each, Paged) else each for each in given],
            indices=task.indices,
            site=task.site,
            task_id=task.task_id,
        )

    return call


def _native_pages(given: Paged) -> tuple[NativeView, NativePages]:
    """A view of the whole pool in the region's dimensions, and where its tokens are."""
    pool, table, region = given.pool, given.table, given.region
    page, tokens = pool.shape[1], region.dims[1]
    # Page 0 from its first token on, of which there may be more than the page has.
    from_first = (DimRange(0, 1, 1, True), DimRange(0, 1, 1, False), *region.dims[2:])
    native = native_view(region_view(pool, replace(region, dims=from_first)))
    native.shape[0] = tokens.extent
    row = table[region.dims[0].start :, tokens.start // page :]
    return native, NativePages(
        table=row.ctypes.data,
        table_stride=table.strides[1] // table.itemsize,
        page=page,
        first=tokens.start % page,
        page_stride=pool.strides[0] // pool.itemsize,
        wide=int(table.itemsize == 8),
    )
