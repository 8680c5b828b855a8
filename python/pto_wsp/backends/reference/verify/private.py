"""Copies of all that a run is bound to. What overlaps in the user's memory overlaps in the copy."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np

from pto_wsp.backends.reference.bound import Array
from pto_wsp.plan import Plan, Symbol, SymbolKind
from pto_wsp.runtime.bindings import Bound

LINE = 64  # bytes; a copy begins at a multiple of it, as far as the original did


def address(array: Array) -> int:
    return array.__array_interface__["data"][0]  # array.ctypes makes an object first


def byte_span(array: Array) -> tuple[int, int]:
    """The first byte of an array, and the one behind its last. Nothing lies in an empty one."""
    first = address(array)
    if array.size == 0:
        return first, first
    reach = [(n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True)]
    low = first + sum(r for r in reach if r < 0)
    return low, first + sum(r for r in reach if r > 0) + array.itemsize


def raw_memory(size: int, like: int = 0) -> Array:
    """Bytes whose address has the same remainder by LINE as `like`."""
    raw = np.empty(size + LINE, np.uint8)
    skip = (like - raw.ctypes.data) % LINE
    return raw[skip : skip + size]


def private(plan: Plan, bindings: tuple[Bound, ...]) -> tuple[Bound, ...]:
    """The same bindings with tensors in memory of their own."""
    out = list(bindings)
    symbols = plan.records(Symbol)
    tensors = [b for b in bindings if symbols[b.symbol].kind == SymbolKind.TENSOR]
    block: list[tuple[int, Bound]] = []
    end = 0
    for bound in sorted(tensors, key=lambda b: byte_span(_array(b))):
        low, high = byte_span(_array(bound))
        if block and low >= end:
            _copy(block, end, out)
            block = []
        block.append((low, bound))
        end = max(end, high) if len(block) > 1 else high
    _copy(block, end, out)
    return tuple(out)


def _array(bound: Bound) -> Array:
    assert isinstance(bound.value, np.ndarray)
    return bound.value


def _copy(block: list[tuple[int, Bound]], end: int, out: list[Bound]) -> None:
    """Copies tensors that lie in one stretch of memory."""
    if not block:
        return
    begin = block[0][0]
    memory = raw_memory(end - begin, like=begin)
    if end > begin:
        ctypes.memmove(memory.ctypes.data, begin, end - begin)
    for _, bound in block:
        array = _array(bound)
        copy = np.empty(array.shape, array.dtype)
        if array.size > 0:
            offset = array.ctypes.data - begin
            copy = np.ndarray(array.shape, array.dtype, memory.data, offset, array.strides)
        out[bound.symbol] = replace(bound, value=copy)
