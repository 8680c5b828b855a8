"""Loop variables that number groups of elements."""

from __future__ import annotations

from pto_wsp.frontend.scalar_expr import SymInt, minimum


class TileVar(SymInt):
    """The number of a tile. `start` and `stop` bound its elements, `slice` is both, `size` their
    number; the last tile is shorter unless the axis pads it."""

    __slots__ = ("_start", "_stop")

    def __init__(self, number: SymInt, start: SymInt, stop: SymInt) -> None:
        super().__init__(number.polynomial, number.scopes)
        self._start = start
        self._stop = stop

    @staticmethod
    def of(number: SymInt, size: SymInt, end: SymInt, first: int = 0, *, padded: bool) -> TileVar:
        """A tile of `size` elements, of those from `first` to `end`."""
        start = number * size + first
        stop = start + size
        return TileVar(number, start, stop if padded else minimum(stop, end))

    @property
    def start(self) -> SymInt:
        return self._start

    @property
    def stop(self) -> SymInt:
        return self._stop

    @property
    def size(self) -> SymInt:
        return self._stop - self._start

    @property
    def slice(self) -> slice[SymInt, SymInt, None]:
        return slice(self._start, self._stop)


def tile_count(extent: SymInt, size: SymInt) -> SymInt:
    """How many tiles cover an extent."""
    return (extent + size - 1) // size
