"""Tensors that nobody binds: temporaries, tokens, and the pages of paged ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pto_wsp.backends.reference.bound import BoundPlan, shape_only
from pto_wsp.backends.reference.expr import Evaluator, ExprFault, Scope
from pto_wsp.backends.reference.region import Region
from pto_wsp.dtypes import DType
from pto_wsp.error_codes import Code
from pto_wsp.plan import NONE, Channel, Dim, ParamKind, Section, Storage, StorageClass, Tensor
from pto_wsp.runtime.run_errors import run_error

_POISON = 0xCD  # what temporaries hold before a task writes them


class Memory:
    """Makes temporaries where their ALLOC stands, each time anew."""

    def __init__(self, bound: BoundPlan, evaluator: Evaluator) -> None:
        self._bound = bound
        self._evaluator = evaluator
        self._tensors = bound.plan.records(Tensor)
        self._storages = bound.plan.records(Storage)
        self._dims = bound.plan.records(Dim)
        self._messages: dict[int, list[np.ndarray[Any, Any]]] = {}  # by channel: its buffers

    def begin(self) -> None:
        """Gives tokens their shape, and looks at the extents, strides and pages of the others."""
        for index, tensor in enumerate(self._tensors):
            try:
                if tensor.symbol != NONE:
                    self._check_extents(index, tensor)
                    self._check_strides(index, tensor)
                if tensor.pool != NONE:
                    self._check_page(tensor)
                if self._storages[tensor.storage].storage_class == StorageClass.TOKEN:
                    self._bound.tensors[index] = shape_only(self._shape(index, "token", Scope(())))
            except ExprFault as fault:
                loc = self._bound.plan.loc(Section.TENSOR, index)
                raise run_error(fault.code, str(fault), loc=loc) from None
        for number, channel in enumerate(self._bound.plan.records(Channel)):
            depth = self._evaluator.value(channel.depth, Scope(()))
            self._messages[number] = [
                self._make(
                    channel.element, "channel", Scope(()), 0 if m < channel.initial else _POISON
                )
                for m in range(max(depth, 1))
            ]

    def message(self, channel: int, buffer: int) -> np.ndarray[Any, Any]:
        """One of the buffers of a channel."""
        return self._messages[channel][buffer]

    def _check_extents(self, index: int, tensor: Tensor) -> None:
        """A plan may say of what extent a tensor has to be."""
        array = self._bound.tensors[index]
        for d, dim in enumerate(self._dims[tensor.dims : tensor.dims + tensor.rank]):
            if dim.shape == NONE:
                continue
            wanted = self._evaluator.value(dim.shape, Scope(()))
            if wanted != array.shape[d]:
                what = f"tensor {self._bound.plan.string(tensor.name)!r} has the extent"
                what = f"{what} {array.shape[d]} in dimension {d}"
                raise ExprFault(Code.BINDING_EXTENT, f"{what}, the workload is made for {wanted}")

    def _check_strides(self, index: int, tensor: Tensor) -> None:
        """A plan may say how a tensor lies in memory. Strides by which no element is reached say
        nothing."""
        array = self._bound.tensors[index]
        for d, dim in enumerate(self._dims[tensor.dims : tensor.dims + tensor.rank]):
            if dim.stride == NONE or array.size == 0 or array.shape[d] == 1:
                continue
            wanted, found = self._evaluator.value(dim.stride, Scope(())), array.strides[d]
            if wanted * array.itemsize != found:
                what = f"tensor {self._bound.plan.string(tensor.name)!r} has the stride"
                what = f"{what} {found // array.itemsize} in dimension {d}"
                raise ExprFault(Code.BINDING_ORDER, f"{what}, its layout says {wanted}")

    def _check_page(self, tensor: Tensor) -> None:
        page, there = self._evaluator.value(tensor.page, Scope(())), self._bound.pool(tensor)
        if page != there.shape[1] or page < 1:
            name = self._bound.plan.string(tensor.name)
            what = f"paged tensor {name!r} has {page} tokens a page"
            raise ExprFault(Code.PAGED_PARTS, f"{what}, its pool has {there.shape[1]}")

    def allocate(self, alloc: int, scope: Scope) -> None:
        """New temporaries for an iteration; ExprFault if their shape is not one."""
        for index, tensor in enumerate(self._tensors):
            if self._storages[tensor.storage].alloc != alloc:
                continue
            self._bound.tensors[index] = self._make(index, "temporary", scope, _POISON)

    def _make(self, index: int, kind: str, scope: Scope, fill: int) -> np.ndarray[Any, Any]:
        shape = self._shape(index, kind, scope)
        dtype = DType(self._tensors[index].dtype)
        count = int(np.prod(shape, dtype=np.int64)) * dtype.size
        return np.full(count, fill, np.uint8).view(dtype.numpy).reshape(shape)

    def _shape(self, index: int, kind: str, scope: Scope) -> tuple[int, ...]:
        tensor = self._tensors[index]
        dims = self._dims[tensor.dims : tensor.dims + tensor.rank]
        shape = tuple(self._evaluator.value(dim.shape, scope) for dim in dims)
        name = self._bound.plan.string(tensor.name)
        for extent in shape:
            if extent < 0:
                raise ExprFault(
                    Code.NEGATIVE_EXTENT, f"{kind} {name!r} has the negative extent {extent}"
                )
        return shape

    def on_pages(self, region: Region, kind: ParamKind) -> Region:
        """A region of a paged tensor with the pages that its tokens lie on."""
        tensor = self._tensors[region.tensor]
        if tensor.pool == NONE or any(dim.extent == 0 for dim in region.dims):
            return region
        pool, table = self._bound.pool(tensor), self._bound.table(tensor)
        page = pool.shape[1]
        sequence, tokens = region.dims[0].start, region.dims[1]
        last = tokens.start + (tokens.extent - 1) * tokens.step
        first_page, last_page = tokens.start // page, last // page
        name = self._bound.plan.string(tensor.name)
        if kind != ParamKind.PAGED and first_page != last_page:
            what = f"tokens {tokens.start} to {last}, which lie on several pages,"
            raise ExprFault(Code.PAGES, f"{what} of paged tensor {name!r}")
        numbers = tuple(int(n) for n in table[sequence, first_page : last_page + 1])
        for k, number in enumerate(numbers):
            if not 0 <= number < pool.shape[0]:
                token = max(tokens.start, (first_page + k) * page)
                what = f"page {number} for token {token} of sequence {sequence}"
                message = f"{what} is outside the pool of paged tensor {name!r}"
                raise ExprFault(Code.PAGES, message)
        return replace(region, pages=numbers)
