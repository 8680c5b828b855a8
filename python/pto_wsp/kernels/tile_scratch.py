"""Scratch memory of a tile kernel: what lives when, and so which places can be shared."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pto_wsp.dtypes import DType

ALIGNMENT = 64  # of places, and of the rows in them: Tile of core/tile/tile.h


def tile_bytes(dtype: DType, rows: int, cols: int) -> int:
    """What Tile<T, rows, cols>::kBytes says."""
    stride = 1 if cols == 1 else _up(cols, ALIGNMENT // dtype.size)
    return _up(rows * stride * dtype.size, ALIGNMENT)


def _up(number: int, to: int) -> int:
    return -(-number // to) * to


@dataclass(slots=True, eq=False)
class Slot:
    """A place in scratch. Times count statements."""

    number: int
    size: int
    first: int
    last: int
    offset: int = 0

    @property
    def text(self) -> str:
        """Stands in the source until all places are known."""
        return f"scratch + @{self.number}@"


@dataclass(slots=True)
class Scratch:
    """All places of a kernel, and the clock by which they live."""

    slots: list[Slot] = field(default_factory=list[Slot])
    now: int = 0
    spares: list[str] = field(default_factory=list[str])

    def take(self, size: int) -> Slot:
        slot = Slot(len(self.slots), size, self.now, self.now)
        self.slots.append(slot)
        return slot

    def spare(self, size: str) -> str:
        """Room behind all places, for one instruction at a time; the library says how much."""
        if size not in self.spares:
            self.spares.append(size)
        return "scratch + kTileBytes"

    def touch(self, slot: Slot) -> None:
        slot.last = max(slot.last, self.now)

    def keep_through(self, begin: int) -> None:
        """What was there before a loop began and is used in it lives until it ends: now."""
        for slot in self.slots:
            if slot.first < begin <= slot.last:
                self.touch(slot)

    def place(self) -> int:
        """Gives every slot its offset; the bytes of all."""
        total = 0
        placed: list[Slot] = []
        for slot in sorted(self.slots, key=lambda slot: (-slot.size, slot.number)):
            others = [o for o in placed if o.first <= slot.last and slot.first <= o.last]
            slot.offset = 0
            for other in sorted(others, key=lambda other: other.offset):
                if slot.offset + slot.size <= other.offset:
                    break
                slot.offset = max(slot.offset, other.offset + other.size)
            placed.append(slot)
            total = max(total, slot.offset + slot.size)
        return total

    def resolve(self, text: str) -> str:
        return re.sub(r"@(\d+)@", lambda match: str(self.slots[int(match[1])].offset), text)
