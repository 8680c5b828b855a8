"""Writes the arguments of a task: where its regions lie, and whether they lie inside."""

from __future__ import annotations

from dataclasses import dataclass

from pto_wsp.backends.cuda.code import I64, Code, Names, Scope
from pto_wsp.kernels.triton_code import ParamFacts, Role, TritonArgument
from pto_wsp.plan import (
    NONE,
    Access,
    AccessDim,
    Dim,
    ExprRef,
    Param,
    ParamKind,
    Plan,
    Storage,
    StorageClass,
    Tensor,
)

_DROPPED = 1  # flag of AccessDim


@dataclass(frozen=True, slots=True)
class Span:
    """One dimension of a region, as texts."""

    start: str
    extent: str
    step: str
    dropped: bool


@dataclass(frozen=True, slots=True)
class Lying:
    """A tensor in memory: a pointer, and by dimension the extent and the stride in elements."""

    pointer: str
    extents: tuple[str, ...]
    strides: tuple[str, ...]


class Regions:
    """`pointers`, `strides` and `extents` are what the kernel must be given, `pages` the pools
    whose tokens a page are compiled in."""

    def __init__(self, plan: Plan, code: Code) -> None:
        self._plan = plan
        self._code = code
        self._tensors = plan.records(Tensor)
        self._storages = plan.records(Storage)
        self._dims = plan.records(Dim)
        self.tensors: set[int] = set()  # those that are bound and used
        self.pages: set[int] = set()
        # Extents that make regions whole if they are known: those of the last dimension.
        self.wanted: frozenset[tuple[int, int]] = frozenset()
        self.temporaries: dict[int, str] = {}  # by tensor: a pointer to the iteration's own

    def spans(self, access: Access, scope: Scope) -> list[Span]:
        dims = self._plan.records(AccessDim)[access.dims : access.dims + access.rank]
        value = self._code.value
        return [
            Span(
                value(dim.start, scope),
                value(dim.extent, scope),
                value(dim.step, scope),
                bool(dim.flags & _DROPPED),
            )
            for dim in dims
        ]

    def record(self, tensor: int) -> Tensor:
        return self._tensors[tensor]

    def kind(self, tensor: int) -> StorageClass:
        return StorageClass(self._storages[self._tensors[tensor].storage].storage_class)

    def lying(self, tensor: int, scope: Scope) -> Lying:
        """A tensor that is bound, or a temporary of this iteration."""
        record = self._tensors[tensor]
        if self.kind(tensor) == StorageClass.TEMP:
            return self._temporary(tensor, scope)
        tensor = self._code.known.same.get(tensor, tensor)
        self.tensors.add(tensor)
        rank = range(record.rank)
        return Lying(
            Names.tensor(tensor),
            tuple(self._code.extent(tensor, d) for d in rank),
            tuple(self._stride(tensor, d) for d in rank),
        )

    def _stride(self, tensor: int, dim: int) -> str:
        known = self._code.known.strides.get((tensor, dim))
        return Names.stride(tensor, dim) if known is None else str(known)

    def shape_nodes(self, tensor: int) -> list[int]:
        record = self._tensors[tensor]
        return [dim.shape for dim in self._dims[record.dims : record.dims + record.rank]]

    def shape(self, tensor: int, scope: Scope) -> list[str]:
        """Of what is not bound."""
        return [self._code.value(node, scope) for node in self.shape_nodes(tensor)]

    def _temporary(self, tensor: int, scope: Scope) -> Lying:
        shape = self.shape(tensor, scope)
        strides = ["1"]
        for extent in reversed(shape[1:]):
            product = strides[0]
            if product.isdigit() and extent.isdigit():
                product = str(int(product) * int(extent))
            else:
                product = self._code.named(f"{product} * {extent}", "stride")
            strides.insert(0, product)
        return Lying(self.temporaries[tensor], tuple(shape), tuple(strides[: len(shape)]))

    # --- inside ---

    def inside(self, access: Access, spans: list[Span], param: Param, scope: Scope) -> list[str]:
        """Conditions under which a region exists and fits its tile; empty if nothing can fail."""
        limits = self._limits(access.tensor, scope)
        found: list[str] = []
        for span, limit in zip(spans, limits, strict=True):
            found += _within(span, limit)
        sizes = self._plan.records(ExprRef)[param.shape : param.shape + param.shape_rank]
        seen = [span for span in spans if not span.dropped] if sizes else []
        for span, size in zip(seen, sizes, strict=True):
            most = self._code.value(size.expr, scope)
            if not (span.extent.isdigit() and int(span.extent) <= int(most)):
                found.append(f"({span.extent} <= {most})")
        return found

    def _limits(self, tensor: int, scope: Scope) -> list[str]:
        record = self._tensors[tensor]
        if self.kind(tensor) == StorageClass.PAGED:
            pool, table = record.pool, self._code.known.same.get(record.table, record.table)
            self.tensors |= {pool, table}
            self.pages.add(pool)
            rest = [self._code.extent(pool, d) for d in range(2, record.rank)]
            tokens = f"{self._code.extent(table, 1)} * {page_name(pool)}"
            return [self._code.extent(table, 0), f"({tokens})", *rest]
        if self.kind(tensor) in (StorageClass.TEMP, StorageClass.TOKEN):
            return self.shape(tensor, scope)
        return [*self.lying(tensor, scope).extents]

    # --- arguments ---

    def facts(self, access: Access, spans: list[Span], param: Param, scope: Scope) -> ParamFacts:
        """What is known of a region while the kernel is written."""
        seen = [span for span in spans if not span.dropped]
        self._want(access.tensor, spans)
        sizes = self._plan.records(ExprRef)[param.shape : param.shape + param.shape_rank]
        tile = [self._code.value(size.expr, scope) for size in sizes]
        whole = bool(tile) and [span.extent for span in seen] == tile
        extents = tuple(int(s.extent) if s.extent.isdigit() else None for s in seen)
        record = self._tensors[access.tensor]
        paged = self.kind(access.tensor) == StorageClass.PAGED
        lying = self.lying(record.pool if paged else access.tensor, scope)
        strides = tuple(
            int(stride) * int(span.step) if stride.isdigit() and span.step.isdigit() else None
            for stride, span in zip(lying.strides, spans, strict=True)
            if not span.dropped
        )
        if not paged or param.kind != ParamKind.PAGED:
            return ParamFacts(extents=extents, strides=strides, whole=whole)
        page = int(lying.strides[0]) if lying.strides[0].isdigit() else None
        return ParamFacts(extents=extents, strides=strides, whole=whole, page_stride=page)

    def _want(self, tensor: int, spans: list[Span]) -> None:
        record = self._tensors[tensor]
        if self.kind(tensor) == StorageClass.PAGED:
            tensor, record = record.pool, self._tensors[record.pool]
        last = record.rank - 1
        if record.symbol == NONE or spans[-1].dropped:
            return
        if spans[-1].extent == self._code.extent(tensor, last):
            self.wanted |= {(tensor, last)}

    def argument(
        self, argument: TritonArgument, access: Access, spans: list[Span], scope: Scope
    ) -> str:
        """The text of one argument that belongs to a region."""
        tensor = self._tensors[access.tensor]
        if self.kind(access.tensor) == StorageClass.PAGED:
            return self._paged(argument, tensor, spans, scope)
        lying = self.lying(access.tensor, scope)
        seen = [d for d, span in enumerate(spans) if not span.dropped]
        match argument.role:
            case Role.POINTER:
                return lying.pointer
            case Role.OFFSET:
                return self._offset(spans, lying.strides)
            case Role.EXTENT:
                return spans[seen[argument.dim]].extent
            case Role.STRIDE:
                d = seen[argument.dim]
                return _times(lying.strides[d], spans[d].step)
            case role:
                raise AssertionError(role)

    def _offset(self, spans: list[Span], strides: tuple[str, ...]) -> str:
        pairs = zip(spans, strides, strict=True)
        terms = [_times(span.start, stride) for span, stride in pairs if span.start != "0"]
        if not terms:
            return "0"
        return self._code.named(f"({' + '.join(terms)})", "off")

    def _paged(
        self, argument: TritonArgument, tensor: Tensor, spans: list[Span], scope: Scope
    ) -> str:
        """Tokens of a sequence. A kernel that takes no pages is given those of one page."""
        pool, table = self.lying(tensor.pool, scope), self.lying(tensor.table, scope)
        self.pages.add(tensor.pool)
        page = page_name(tensor.pool)
        seen = [d for d, span in enumerate(spans) if not span.dropped]
        match argument.role:
            case Role.POINTER:
                return pool.pointer
            case Role.OFFSET:
                return self._offset(spans[2:], pool.strides[2:])
            case Role.EXTENT:
                return spans[seen[argument.dim]].extent
            case Role.STRIDE:
                d = seen[argument.dim]
                return _times(pool.strides[d], spans[d].step)
            case Role.TABLE:
                return table.pointer
            case Role.TABLE_OFFSET:
                return self._code.named(_times(spans[0].start, table.strides[0]), "off")
            case Role.TABLE_STRIDE:
                return table.strides[1]
            case Role.FIRST:
                return spans[1].start
            case Role.PAGE:
                return page
            case Role.PAGE_STRIDE:
                return pool.strides[0]
            case role:
                raise AssertionError(role)

    def on_one_page(self, access: Access, spans: list[Span], scope: Scope, there: str) -> str:
        """The offset of a region of a paged tensor whose tokens lie on one page. `there`: whether
        the table has it."""
        tensor = self._tensors[access.tensor]
        pool, table = self.lying(tensor.pool, scope), self.lying(tensor.table, scope)
        self.pages.add(tensor.pool)
        page = page_name(tensor.pool)
        code, token = self._code, spans[1].start
        at = f"({_times(spans[0].start, table.strides[0])}) + ({token} // {page})"
        load = f"tl.load({table.pointer} + {at} * {table.strides[1]}, mask={there}, other=0)"
        number = code.named(f"{load}.to({I64})")
        rest = self._offset(spans[2:], pool.strides[2:])
        inside = f"({token} % {page}) * {pool.strides[1]}"
        return code.named(f"{number} * {pool.strides[0]} + {inside} + {rest}", "off")

    def on_pages(
        self, access: Access, spans: list[Span], scope: Scope
    ) -> tuple[tuple[str, ...], str]:
        """Of a region of a paged tensor: the texts of where its row of the table lies, the step to
        the next element, the first page and the last one; and how many pages the pool has."""
        tensor = self._tensors[access.tensor]
        table = self.lying(tensor.table, scope)
        tokens = spans[1]
        page = self._code.known.extents.get((tensor.pool, 1), page_name(tensor.pool))
        last = f"{tokens.start} + ({tokens.extent} - 1) * {tokens.step}"
        row = f"{table.pointer} + {_times(spans[0].start, table.strides[0])}"
        place = row, table.strides[1], f"({tokens.start}) // {page}", f"({last}) // {page}"
        return place, self._code.extent(tensor.pool, 0)


def page_name(pool: int) -> str:
    """Tokens a page, which is compiled in."""
    return f"PAGE{pool}"


def _times(a: str, b: str) -> str:
    if a == "1":
        return b
    if b == "1":
        return a
    if a.isdigit() and b.isdigit():
        return str(int(a) * int(b))
    return f"{a} * {b}"


def _within(span: Span, limit: str) -> list[str]:
    """A region without elements is everywhere."""
    start, extent, step = span.start, span.extent, span.step
    if extent == "0":
        return []
    if all(text.isdigit() for text in (start, extent, step, limit)):
        reach = int(start) + (int(extent) - 1) * int(step)
        return [] if reach < int(limit) else ["(0 == 1)"]
    if start == "0" and extent == limit and step == "1":
        return []
    last = start if extent == "1" else f"{start} + ({extent} - 1) * {step}"
    found = [] if start.isdigit() else [f"({start} >= 0)"]
    if not step.isdigit():
        found.append(f"({step} >= 1)")
    found.append(f"({last} < {limit})")
    inside = " & ".join(found)
    if extent.isdigit():
        return [f"({inside})"]
    return [f"({extent} >= 0) & (({extent} == 0) | ({inside}))"]
