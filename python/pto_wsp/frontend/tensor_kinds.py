"""Tensors beside those that `execute` binds: tokens, and tensors that lie in pages."""

from __future__ import annotations

from typing import Any, cast

from pto_wsp import ir, srcloc
from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.errors import TypeCheckError
from pto_wsp.frontend import context
from pto_wsp.frontend.scalar_expr import as_symint, is_integer, lower
from pto_wsp.frontend.tensor import Region, Shape, Tensor, identifier, positive_sizes
from pto_wsp.ir import Location


class Token(Tensor):
    """A tensor without data, for hazards that no region of one can express: tasks that name
    regions of it, as `Out[Token]` and `In[Token]`, are ordered as if they wrote and read it.

    The shape holds integers, or inside a workload expressions of its symbols.
    """

    __slots__ = ()

    kind = ir.TensorKind.TOKEN

    def __init__(self, shape: Any, *, name: str | None = None) -> None:
        self.name = identifier("Token", name)
        self.loc = srcloc.here()
        self.dtype = DType.BOOL
        self.location = Location.Global
        self._array = self.layout = self.origin = None
        inside = context.active.get() is not None
        parts = cast("tuple[Any, ...]", shape) if isinstance(shape, list | tuple) else (shape,)
        if inside and all(is_integer(part) for part in parts):
            self._shape = tuple(as_symint(part) for part in parts)
        else:
            self._shape = positive_sizes("Token", parts)

    @property
    def shape(self) -> Shape:
        return self._shape

    def declaration(self, name: str) -> ir.TensorDecl:
        sizes = tuple(lower(as_symint(size)) for size in self._shape)
        return ir.TensorDecl(name, self.dtype, self.rank, self.loc, self.kind, sizes)


class PagedTensor(Tensor):
    """A tensor of coordinates [sequence, token, ...] whose tokens lie in the pages of a pool.

    `pool` is [pages, page, ...]: pages of `page` tokens each. Row b of `table` holds the page
    numbers of sequence b; entries that no task touches may hold anything. Tasks are ordered by the
    tokens they name: what is appended to one sequence orders readers of that sequence only. So two
    sequences may share pages that no task writes.

    `execute` binds pool and table by their own names, else as `<name>_pool` and `<name>_table`.
    A kernel takes regions of one page as `In[Tensor]`, and any range of tokens as
    `In[PagedTensor]`.
    """

    __slots__ = ("page", "pool", "table")

    kind = ir.TensorKind.PAGED

    def __init__(
        self, pool: Any, table: Any, page: int | None = None, *, name: str | None = None
    ) -> None:
        self.name = identifier("PagedTensor", name)
        self.loc = srcloc.here()
        self.pool = pool if isinstance(pool, Tensor) else Tensor(data=pool)
        self.table = table if isinstance(table, Tensor) else Tensor(data=table)
        self.page = page
        self.dtype = self.pool.dtype
        self.location = self.pool.location
        self._array = self.layout = self.origin = None
        self._check()
        pages, rows = self.pool.extents(), self.table.extents()
        self._shape = (rows[0], rows[1] * pages[1], *pages[2:])

    def _check(self) -> None:
        pool, table = self.pool, self.table
        if pool.kind is not ir.TensorKind.BOUND or table.kind is not ir.TensorKind.BOUND:
            raise _bad("pool and table are plain tensors", "pass tensors or arrays")
        if pool.rank < 2:
            raise _bad(
                f"the pool has rank {pool.rank}", "pass a pool of shape [pages, tokens a page, ...]"
            )
        if table.rank != 2 or table.dtype not in (DType.I32, DType.I64):
            raise _bad(
                f"the table is {table!r}", "pass a matrix of i32 or i64: a row for each sequence"
            )
        if self.page is not None and self.page != pool.extents()[1]:
            raise _bad(
                f"page={self.page!r}, and the pool has pages of {pool.extents()[1]} tokens",
                "pass the second extent of the pool, or leave page out",
            )

    @property
    def shape(self) -> Shape:
        trace = context.active.get()
        if trace is None:
            return self._shape
        pages, rows = (part.shape for part in trace.parts(self))
        return (rows[0], rows[1] * pages[1], *pages[2:])

    def expect(self, *extents: int | None, page: int | None = None) -> None:
        """What every pool and table that is bound has to be like: sequences, tokens a sequence
        (None, as tables grow) and the extents of a token; `page`: tokens a page."""
        trace = context.active.get()
        if trace is None or len(extents) != self.rank or extents[1] is not None:
            super().expect(*extents)
            return
        pool, table = trace.parts(self)
        pool.expect(None, page, *extents[2:])
        table.expect(extents[0], None)

    def __getitem__(self, key: Any) -> Any:
        region = self.region(key)
        return Region(region.tensor, self, region.dims)

    def paged_declaration(self, name: str, pool: str, table: str) -> ir.TensorDecl:
        pages = ir.Pages(pool, table, self.page)
        return ir.TensorDecl(
            *(name, self.dtype, self.rank, self.loc, self.kind, (), pages, self.location)
        )


def expect(value: Any, *extents: int | None, page: int | None = None) -> None:
    """`value.expect(...)` in a ready workload. Of what is no such tensor, its use says more."""
    if isinstance(value, PagedTensor):
        value.expect(*extents, page=page)
    elif isinstance(value, Tensor) and page is None:
        value.expect(*extents)


def _bad(why: str, fix: str) -> TypeCheckError:
    what = "PagedTensor(...) of a pool and a table that do not fit"
    return TypeCheckError(Code.PAGED_PARTS, what, loc=srcloc.here(), why=why, fix=fix)
