"""Memory in which a task cannot touch anything unnoticed.

Each region lies in a stretch of poison that is as wide as the distance of its rows, and the bytes
between its elements are poison, too. The strides that the kernel sees are those of its tensor as
long as that takes no more than a few pages; rows that lie further apart are moved together, and
rows that follow each other without a gap stay so. Regions that share memory, of which one is
written, keep their places to each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pto_wsp.backends.reference.bound import Array
from pto_wsp.backends.reference.call import Paged, View, page_views
from pto_wsp.backends.reference.region import DimRange, Region
from pto_wsp.backends.reference.verify.private import LINE, byte_span, raw_memory
from pto_wsp.plan import AccessMode

# Large and small as any number, and never the value of a sum or a maximum of both.
POISON = (0x7B, 0xFB)
_FEW_PAGES = 1 << 16
_NEXT_PAGES = 8  # entries behind those of a region in its page table: all lead to poison


@dataclass(frozen=True, slots=True)
class Lay:
    """How a view lies: `strides` in bytes, and `below` bytes in front of its first element."""

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    strides: tuple[int, ...]
    below: int
    span: int

    @property
    def margin(self) -> int:
        widest = max((abs(s) for s in self.strides), default=0)
        return -(-max(LINE, 2 * widest) // LINE) * LINE


@dataclass(frozen=True, slots=True)
class OnPages:
    """How tokens on pages lie: the region and the page table of a small pool of `pages` pages, each
    laid out as `page`. Regions of one pool share its pages."""

    pool: int
    page: Lay
    pages: int
    region: Region
    table: tuple[int, ...]
    table_dtype: np.dtype[np.generic]


# Where a region lies: nowhere (a token), by itself, with others at an offset in bytes, or on pages.
Place = tuple[Lay, int, int] | OnPages | None  # lay, group, offset in the group


def lay_of(view: Array) -> Lay:
    """The lay of a view that stands alone."""
    low, high = byte_span(view)
    real = Lay(view.shape, view.dtype, view.strides, view.ctypes.data - low, high - low)
    if real.span + 2 * real.margin <= max(_FEW_PAGES, 4 * view.nbytes):
        return real
    return _moved_together(real)


def lay_in_group(view: Array) -> Lay:
    """The lay of a view that shares memory with others."""
    low, high = byte_span(view)
    return Lay(view.shape, view.dtype, view.strides, view.ctypes.data - low, high - low)


def _moved_together(real: Lay) -> Lay:
    item = real.dtype.itemsize
    gap = -(-LINE // item) * item
    strides = list(real.strides)
    span = item
    for d in sorted(range(len(strides)), key=lambda d: abs(strides[d])):
        stride, n = abs(strides[d]), real.shape[d]
        if stride != 0 and stride != span:
            if stride < span and n > 1:
                return real  # rows overlap
            stride = min(stride, span + gap) if stride > span else stride
            strides[d] = stride if strides[d] > 0 else -stride
        span += (n - 1) * stride
    below = sum(-s * (n - 1) for s, n in zip(strides, real.shape, strict=True) if s < 0)
    return Lay(real.shape, real.dtype, tuple(strides), below, span)


class Arena:
    """Guarded memory for the tasks whose regions lie alike: the memory that the kernel gets, and
    two images of it with different poison."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places
        self._offsets: dict[int, int] = {}  # of groups
        self._pools: dict[int, int] = {}  # offsets of the first pages
        self.size = 0
        for place in places:
            if isinstance(place, OnPages):
                self._add_pool(place)
        groups = [p for p in places if p is not None and not isinstance(p, OnPages)]
        for group in sorted({group for _, group, _ in groups}):
            mine = [(lay, offset) for lay, other, offset in groups if other == group]
            margin = max(lay.margin for lay, _ in mine)
            self._offsets[group] = self.size + margin
            end = self.size + margin + max(offset + lay.span for lay, offset in mine)
            self.size = -(-(end + margin) // LINE) * LINE
        self.raw = raw_memory(self.size)
        self.images = tuple(raw_memory(self.size) for _ in POISON)
        for image, poison in zip(self.images, POISON, strict=True):
            image[...] = poison
        self.given = self._views(self.raw)
        self.parts = [parts_of(view) for view in self.given]
        self.image_parts = [
            [parts_of(view) for view in self._views(image)] for image in self.images
        ]

    def _add_pool(self, place: OnPages) -> None:
        if place.pool in self._pools:
            return
        self._pools[place.pool] = self.size + place.page.margin
        # One page more, which is poison.
        self.size += 2 * place.page.margin + (place.pages + 1) * self._page_stride(place)
        self.size = -(-self.size // LINE) * LINE

    @staticmethod
    def _page_stride(place: OnPages) -> int:
        """Whole elements, since kernels count in them."""
        item = place.page.dtype.itemsize
        return -(-(place.page.span + place.page.margin) // (item * LINE)) * item * LINE

    def _views(self, memory: Array) -> list[View]:
        return [self._view(memory, place) for place in self._places]

    def _view(self, memory: Array, place: Place) -> View:
        if place is None:
            return None
        if isinstance(place, OnPages):
            page, stride = place.page, self._page_stride(place)
            pool = np.ndarray(
                (place.pages + 1, *page.shape),
                page.dtype,
                memory,
                self._pools[place.pool] + page.below,
                (stride, *page.strides),
            )
            entries = (*place.table, *(place.pages for _ in range(_NEXT_PAGES)))
            return Paged(pool, np.array([entries], place.table_dtype), place.region)
        lay, group, offset = place
        at = self._offsets[group] + offset + lay.below
        return np.ndarray(lay.shape, lay.dtype, memory, at, lay.strides)

    def where(self, byte: int, names: Sequence[str]) -> str:
        """A byte of the guard, by the region that is nearest."""
        best = (self.size, "")
        base = self.raw.ctypes.data
        for name, parts in zip(names, self.parts, strict=True):
            for part in parts:
                low, high = (at - base for at in byte_span(part))
                if low <= byte < high:
                    return f"between the rows of {name}"
                if byte < low:
                    best = min(best, (low - byte, f"{low - byte} bytes before {name} begins"))
                else:
                    best = min(best, (byte - high, f"{byte - high} bytes behind the end of {name}"))
        return best[1]


def parts_of(view: View) -> list[Array]:
    """The arrays that a view consists of, all of which may be written."""
    if view is None:
        return []
    if not isinstance(view, Paged):
        return [view]
    writable = replace(view.region, mode=AccessMode.INOUT)
    return page_views(Paged(view.pool, view.table, writable))


def on_small_pool(index: int, tokens: Paged, used: dict[int, int]) -> OnPages:
    """The place of a region on pages; `used` numbers the pages of its pool that the task has."""
    pool, region = tokens.pool, tokens.region
    page = lay_in_group(pool[0]) if len(pool) > 0 else lay_in_group(pool[:, 0])
    numbers = tuple(used[number] for number in region.pages)
    first = region.dims[1]
    moved = (
        replace(region.dims[0], start=0),
        DimRange(first.start % pool.shape[1], first.extent, first.step, first.dropped),
        *region.dims[2:],
    )
    small = replace(region, dims=moved, pages=numbers)
    return OnPages(index, page, len(used), small, numbers, tokens.table.dtype)
