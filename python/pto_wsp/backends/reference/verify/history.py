"""What happened to one place in memory, as far as the next access has to know."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from pto_wsp.plan import AccessMode

Access = tuple[int, int]  # a node, and which of its regions


class Hazard(Enum):
    RAW = "read after write"
    WAR = "write after read"
    WAW = "write after write"
    APART = "two updates, in either order but not at the same time"


@dataclass(slots=True)
class History:
    """The last write, the updates (Accum) since, and the reads since these. Updates commute: each
    follows what came before them all, and none follows another."""

    writer: Access | None = None
    updates: list[Access] = field(default_factory=list[Access])
    before_updates: list[tuple[Access, Hazard]] = field(default_factory=list[tuple[Access, Hazard]])
    readers: list[Access] = field(default_factory=list[Access])

    def conflicts(self, mode: AccessMode) -> list[tuple[Access, Hazard]]:
        """What an access has to come after. What these came after is left out."""
        if mode == AccessMode.IN:
            return [(a, Hazard.RAW) for a in self.updates] or self._written(Hazard.RAW)
        if mode == AccessMode.ACCUM and self.updates and not self.readers:
            return [*self.before_updates, (self.updates[-1], Hazard.APART)]
        if self.readers:
            return [(a, Hazard.WAR) for a in self.readers]
        hazard = Hazard.WAW if mode == AccessMode.OUT else Hazard.RAW
        return [(a, hazard) for a in self.updates] or self._written(hazard)

    def add(self, access: Access, mode: AccessMode) -> None:
        if mode == AccessMode.IN:
            self.readers.append(access)
        elif mode == AccessMode.ACCUM:
            if self.readers or not self.updates:
                self.before_updates = self.conflicts(mode)
                self.updates = []
                self.readers = []
            self.updates.append(access)
        else:
            self.writer = access
            self.updates, self.before_updates, self.readers = [], [], []

    def _written(self, hazard: Hazard) -> list[tuple[Access, Hazard]]:
        return [] if self.writer is None else [(self.writer, hazard)]
